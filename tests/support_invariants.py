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
create trigger watch before update or delete on fencepost.result for each row execute function watch.refuse();
create trigger watch before update or delete on fencepost.handoff for each row execute function watch.refuse();
create trigger watch before update on fencepost.process for each row
  when (to_jsonb(old) - 'loose' is distinct from to_jsonb(new) - 'loose') execute function watch.refuse();
"""

# Of plans. One that has ended under a cancel may leave steps behind as they were: its runs end after it.
PLANS = {
    "I12: a result is of a step that succeeded, and of the run that did": """
        select q.rid, q.step, q.name, s.state from fencepost.result q join fencepost.step s on s.rid = q.rid and s.no = q.step
         where s.state <> 'succeeded' or q.child <> s.child""",
    "I12: what was handed over is what was committed": """
        select h.rid, h.input, h.digest, q.digest as committed
          from fencepost.handoff h join fencepost.run c using (rid) join fencepost.run r on r.rid = c.parent
          join fencepost.step s on s.rid = c.parent and s.id = split_part(substr(c.id, length(r.id) + 2), '/', 1)
          join fencepost.binding b on b.rid = c.parent and b.target = s.no and b.id = h.id
          left join fencepost.result q on q.rid = c.parent and q.step = b.source and q.name = b.output
         where h.mode <> 'none' and h.digest is distinct from q.digest""",
    "70.4: what a plan counts is so": """
        select p.*, x.* from fencepost.plan p join fencepost.task t using (rid)
          cross join lateral (
            select count(*) filter (where s.state in ('running', 'unknown')) as flies, count(*) filter (where s.state = 'unknown') as asks,
                   count(*) filter (where s.ended_at is null) as stays, count(*) filter (where s.state = 'succeeded') as done,
                   count(*) filter (where s.state = 'failed') as broke, count(*) as all_steps
              from fencepost.step s where s.rid = p.rid) x
         where (p.flying, p.unknown, p.open, p.succeeded, p.failed, p.steps) is distinct from (x.flies, x.asks, x.stays, x.done, x.broke, x.all_steps)
            or p.open = 0 and t.state <> 'cancelling'""",
    "70.3: a step is blocked until what it needs has ended, and not longer": """
        select s.rid, s.id, s.state, s.needs, x.* from fencepost.step s join fencepost.task t using (rid)
          cross join lateral (
            select count(*) filter (where f.ended_at is null) as awaited,
                   count(*) filter (where f.ended_at is not null and f.state <> 'succeeded' and not e.optional) as bad
              from fencepost.edge e join fencepost.step f on f.rid = e.rid and f.no = e.source where e.rid = s.rid and e.target = s.no) x
         where s.state = 'blocked' and (s.needs <> x.awaited or x.awaited = 0 or x.bad > 0)
            or s.state in ('ready', 'running', 'waiting', 'unknown', 'succeeded', 'failed') and (x.awaited > 0 or x.bad > 0)""",
    "70.12: a step that runs has a run that lives, and no other has": """
        select s.rid, s.id, s.state, s.child from fencepost.step s join fencepost.task t using (rid) left join fencepost.task c on c.rid = s.child
         where (s.state in ('running', 'unknown')) <> (c.rid is not null) or c.rid is not null and (s.state = 'unknown') <> (c.state = 'unknown')""",
    "70.13: a plan that lives waits for something, or says that it is stuck": """
        select t.rid, t.state, t.trouble, p.open from fencepost.task t join fencepost.plan p using (rid)
         where t.state = 'parked' and p.flying = 0 and t.trouble is null
           and not exists (select from fencepost.step s where s.rid = t.rid and s.state = 'waiting')""",
    "70.10: opaque work that has begun has a process on record, and what is loose has no fence": """
        select t.rid, t.number, x.loose from fencepost.task t left join fencepost.process x on x.rid = t.rid and x.number = t.number
         where t.opaque and t.fence is not null and (t.begun <> (x.rid is not null) or x.loose)""",
}

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
} | PLANS


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
