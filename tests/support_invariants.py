"""What must hold of every run after every test, whatever was done to it; and what a committed row may never do.

The watch is a set of triggers of the owner's: they see every write of every connection, while it happens. The checks are
views of the end: each returns the rows that break a law, and must return none.
"""

from __future__ import annotations

from collections.abc import AsyncIterator

import asyncpg
import pytest

# A record that is an answer stays what it is (50.1, 60.5, 80.1, 90.1): only its looseness may change.
WATCH = """
create schema watch;
create function watch.refuse() returns trigger language plpgsql as $$
begin
  raise exception 'a committed % was changed: % -> %', tg_table_name, old, case when tg_op = 'UPDATE' then new::text else 'nothing' end;
end $$;
create trigger watch before update or delete on fencepost.outcome for each row execute function watch.refuse();
create trigger watch before update or delete on fencepost.attempt for each row execute function watch.refuse();
create trigger watch before update or delete on fencepost.event for each row execute function watch.refuse();
create trigger watch before update or delete on fencepost.result for each row execute function watch.refuse();
create trigger watch before update or delete on fencepost.handoff for each row execute function watch.refuse();
create trigger watch before update or delete on fencepost.definition for each row execute function watch.refuse();
create trigger watch before update on fencepost.step for each row when (old.ended_at is not null) execute function watch.refuse();
create trigger watch_delete before delete on fencepost.boundary for each row execute function watch.refuse();
create trigger watch before update on fencepost.boundary for each row
  when (old.state in ('kept', 'arrived', 'timed_out')
        and (old.state, old.value, old.seq, old.hash, old.child, old.asked_ms, old.at)
            is distinct from (new.state, new.value, new.seq, new.hash, new.child, new.asked_ms, new.at))
  execute function watch.refuse();
create trigger watch_delete before delete on fencepost.row for each row execute function watch.refuse();
create trigger watch before update on fencepost.row for each row
  when (old.state = 'kept' and (old.state, old.value, old.seq, old.key) is distinct from (new.state, new.value, new.seq, new.key))
  execute function watch.refuse();
create trigger watch before update on fencepost.signal for each row
  when (old.taken is not null or (old.payload, old.name, old.rid) is distinct from (new.payload, new.name, new.rid))
  execute function watch.refuse();
"""

CHECKS = {
    "I2: a run is live or has one outcome, never both": """
        select t.rid, t.state, o.status from fencepost.task t join fencepost.outcome o using (rid)""",
    "I4: numbers are 1..n without gaps, and every claim but a living one has one line in the history": """
        select x.* from (
          select r.rid, coalesce(o.number, t.number) as number, (t.fence is not null)::integer as living,
                 (select count(*) from fencepost.attempt a where a.rid = r.rid) as lines,
                 (select coalesce(max(a.number), 0) from fencepost.attempt a where a.rid = r.rid) as last,
                 (select count(distinct a.fence) from fencepost.attempt a where a.rid = r.rid) as fences,
                 (select count(*) from fencepost.event e where e.rid = r.rid and e.type = 'attempt.claimed') as claims
            from fencepost.run r left join fencepost.task t using (rid) left join fencepost.outcome o using (rid)) x
         where x.number <> x.claims or x.lines <> x.number - x.living or x.last <> x.number - x.living or x.fences <> x.lines""",
    "I4: a living fence is nobody's old one": """
        select t.rid, t.fence from fencepost.task t join fencepost.attempt a on a.fence = t.fence""",
    "I5: a terminal run has no wait and no watcher": """
        select o.rid, b.kind, b.name from fencepost.outcome o join fencepost.boundary b on b.rid = o.rid and b.state = 'armed'
        union all select o.rid, 'watcher', w.channel from fencepost.outcome o join fencepost.watcher w using (rid)""",
    "I9: a signal that was taken is the value of its wait, and of one wait": """
        select s.rid, s.name, s.taken from fencepost.signal s
          left join fencepost.boundary b on b.rid = s.rid and b.kind = 'signal' and b.name = s.name and b.ordinal = s.taken
         where s.taken is not null and (b.state is distinct from 'arrived' or b.value is distinct from s.payload)
        union all
        select s.rid, s.name, s.taken from fencepost.signal s where s.taken is not null group by 1, 2, 3 having count(*) > 1""",
    "I9: signals of one name are delivered in the order sent": """
        select a.rid, a.name, a.sid, b.sid from fencepost.signal a join fencepost.signal b on b.rid = a.rid and b.name = a.name and b.sid > a.sid
          left join fencepost.boundary x on x.rid = a.rid and x.kind = 'signal' and x.name = a.name and x.ordinal = a.taken
          left join fencepost.boundary y on y.rid = b.rid and y.kind = 'signal' and y.name = b.name and y.ordinal = b.taken
         where b.taken is not null and (a.taken is null or x.seq > y.seq)""",
    "I18: what is parked waits for something that can come": """
        select t.rid from fencepost.task t where t.state = 'parked' and t.park = 'wait'
           and not exists (select from fencepost.boundary b where b.rid = t.rid and b.state = 'armed')""",
    "I18: a wait that is due is somebody's timer": """
        select t.rid, b.kind, b.name, b.until, t.due_at from fencepost.task t join fencepost.boundary b on b.rid = t.rid and b.state = 'armed'
         where t.state = 'parked' and t.park = 'wait' and b.until is not null and (t.due_at is null or t.due_at > b.until)""",
    "I18: whoever holds is an incarnation on record": """
        select t.rid, t.holder from fencepost.task t left join fencepost.incarnation i on i.id = t.holder
         where t.holder is not null and i.id is null""",
    "I18: a child is younger than its parent": """
        select r.rid, r.parent from fencepost.run r where r.parent >= r.rid""",
    "90.1: sequences are 1..n without gaps and without twins": """
        select x.* from (
          select r.rid, coalesce(o.seq, t.seq) as seq, count(l.seq) as entries, count(distinct l.seq) as places,
                 min(l.seq) as first, max(l.seq) as last,
                 array_agg(l.seq || ' ' || l.type order by l.seq) as ledger
            from fencepost.run r left join fencepost.task t using (rid) left join fencepost.outcome o using (rid)
            left join fencepost.ledger l using (rid) group by 1, 2) x
         where x.entries <> x.seq or x.places <> x.seq or x.first <> 1 or x.last <> x.seq""",
    "90.1: an entry names no attempt that has not been": """
        select l.rid, l.seq, l.type, l.number from fencepost.ledger l left join fencepost.task t using (rid) left join fencepost.outcome o using (rid)
          join fencepost.run r using (rid) where r.origin is null and l.number > coalesce(o.number, t.number)""",
    "70.4: a plan's counts are those of its steps, and no more than it allows run": """
        select x.* from (
          select p.*, (select count(*) from fencepost.task c where c.parent = p.rid) as living,
                 count(*) filter (where s.ended_at is null) as is_open, count(*) filter (where s.state in ('running', 'unknown')) as is_flying,
                 count(*) filter (where s.state = 'unknown') as is_unknown, count(*) filter (where s.state = 'succeeded') as is_succeeded,
                 count(*) filter (where s.state = 'failed') as is_failed
            from fencepost.plan p join fencepost.task t using (rid) join fencepost.step s using (rid) group by p.rid) x
         where (x.open, x.flying, x.unknown, x.succeeded, x.failed)
               is distinct from (x.is_open, x.is_flying, x.is_unknown, x.is_succeeded, x.is_failed)
            or x.living <> x.flying or x.flying > x.most""",
    "70.5: a step that runs has one living try, which is unknown if it is": """
        select s.rid, s.id, s.state, c.state as child from fencepost.step s join fencepost.task t on t.rid = s.rid
          left join fencepost.task c on c.rid = s.child
         where (s.state in ('running', 'unknown')) <> (c.rid is not null) or (s.state = 'unknown') <> coalesce(c.state = 'unknown', false)""",
    "70.6: results are those of steps that succeeded, by the try that did": """
        select r.rid, r.step, r.name from fencepost.result r left join fencepost.step s on s.rid = r.rid and s.no = r.step
         where s.state is distinct from 'succeeded' or s.child <> r.child""",
    "70.3: what is blocked waits for as many as have not ended": """
        select s.rid, s.id, s.needs from fencepost.step s join fencepost.task t on t.rid = s.rid where s.state = 'blocked'
           and s.needs <> (select count(*) from fencepost.edge e join fencepost.step f on f.rid = e.rid and f.no = e.source
                            where e.rid = s.rid and e.target = s.no and f.ended_at is null)""",
    "70.13: a delay is the plan's timer": """
        select t.rid, t.due_at from fencepost.task t join fencepost.plan p using (rid) where t.state = 'parked'
           and t.due_at is distinct from (select min(s.due_at) from fencepost.step s where s.rid = t.rid)""",
    "80.6: of a plan that has ended no try lives": """
        select o.rid, c.rid as child from fencepost.outcome o join fencepost.plan p using (rid) join fencepost.task c on c.parent = o.rid""",
    "tries are not more than attempts": """
        select t.rid from fencepost.task t where t.tries > t.number union all select o.rid from fencepost.outcome o where o.tries > o.number""",
    "85.5: evidence that was accepted is the record": """
        select l.rid, l.name from fencepost.late l
          join fencepost.boundary b on b.rid = l.rid and b.kind = l.kind and b.name = l.name and b.ordinal = l.ordinal
         where l.accepted and b.value is distinct from l.value""",
}


async def broken(connection: asyncpg.Connection) -> dict[str, list[str]]:
    """Invariant -> the rows that break it."""
    found: dict[str, list[str]] = {}
    for law, query in CHECKS.items():
        rows = await connection.fetch(query)
        if rows:
            found[law] = [str(dict(row)) for row in rows[:5]]
    return found


@pytest.fixture
async def lawful(dsn: str) -> AsyncIterator[None]:
    """Watch every write of the test, and judge the tables when it is over."""
    owner = await asyncpg.connect(dsn)
    try:
        await owner.execute(WATCH)
        yield
        assert await broken(owner) == {}
    finally:
        await owner.close()
