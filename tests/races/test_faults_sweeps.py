"""Sweeps under trouble: many at one instant, cut off in the middle, and on a clock that jumps (85.3, 85.4)."""

from __future__ import annotations

import asyncio
from datetime import timedelta

import asyncpg
import pytest

from fencepost import admission, attempts
from fencepost.db import Database
from fencepost.recovery import Beat
from fencepost.testing import Clock
from tests.support import admit_one, claim_all, claim_one, lane_of, launch, look, new_holder
from tests.support_invariants import broken
from tests.support_races import together, waiting
from tests.support_runs import arm, beat, finish, ledger_of, running, wait

LEASE = 30.0


async def test_what_begins_in_the_very_instant_of_a_sweep_is_nobodys_to_take_over(
    db: Database, admin: asyncpg.Connection, clock: Clock
) -> None:
    """B03 The clock stands still, so every instant is the same: who owns what is told by incarnation and fence alone."""
    await clock.advance(0)
    lane = await lane_of(db)

    async def works() -> int:
        await admission.admit(db, [launch(lane=lane) for _ in range(20)])
        me = await new_holder(db)
        mine = [claimed.fence for claimed in await claim_all(db, me, most=20, request=1, alone=False)]
        said = await beat(db, me, answered=1, held=mine)
        assert not said.lost
        return len(mine)

    async def observes() -> int:
        return len((await beat(db, await new_holder(db))).lost)

    claimed = await together(*[works] * 10, *[observes] * 10)
    assert sum(claimed) > 0
    assert await admin.fetchval("select count(*) from fencepost.attempt") == 0, "no leg has ended"
    assert await admin.fetchval("select count(*) from fencepost.task where losses > 0 or number > 1") == 0
    assert await broken(admin) == {}


GATE = """
create function watch_gate() returns trigger language plpgsql security definer as $$
begin
  if (select count(*) from fencepost.attempt) = %s then perform pg_advisory_xact_lock(29); end if;
  return null;
end $$;
create trigger watch_gate after insert on fencepost.attempt for each row execute function watch_gate();
"""
DEAD = 120


@pytest.mark.parametrize("at", [1, 2, 50, 100])
async def test_a_sweep_that_is_cut_off_in_the_middle_is_done_by_the_next(
    db: Database, dsn: str, admin: asyncpg.Connection, at: int
) -> None:
    """B29, B39 Its backend is ended after so many verdicts: none of them stands, and the beat, asked again, gives them all."""
    lane = await lane_of(db)
    await admission.admit(db, [launch(lane=lane) for _ in range(DEAD)])
    gone = await new_holder(db)
    for request in range(1, 4):
        await claim_all(db, gone, most=40, request=request, alone=False)
    await admin.execute("update fencepost.task set begun = true")
    await admin.execute(GATE % at)
    observer = await new_holder(db)
    other = await asyncpg.connect(dsn)
    try:
        async with other.transaction():
            await other.execute("select pg_advisory_xact_lock(29)")
            sweep: asyncio.Task[Beat] = asyncio.ensure_future(beat(db, observer, dead=[gone]))
            await waiting(admin, 1)
            assert await admin.fetchval(
                "select pg_terminate_backend(pid) from pg_stat_activity where datname = current_database() and cardinality(pg_blocking_pids(pid)) > 0"
            )
            await admin.execute("drop trigger watch_gate on fencepost.attempt")
            assert await admin.fetchval("select count(*) from fencepost.attempt") == 0, "a verdict that did not commit"
        await sweep
    finally:
        await other.close()
    for _ in range(2):
        await beat(db, observer, dead=[gone])
    assert await admin.fetchval("select count(*) from fencepost.task where holder is not null") == 0
    assert await admin.fetchval("select count(*) from fencepost.attempt where ended = 'lost'") == DEAD
    assert await admin.fetchval("select array_agg(distinct tries) from fencepost.task") == [1], "each is charged once"
    assert await broken(admin) == {}


STEPS = [timedelta(hours=1), timedelta(hours=-1), timedelta(days=3652), timedelta(days=-3652)]


@pytest.mark.parametrize("step", STEPS, ids=str)
async def test_a_clock_that_steps_puts_nobody_out_and_a_sleep_is_over_once_at_its_hour(
    db: Database, admin: asyncpg.Connection, clock: Clock, step: timedelta
) -> None:
    """B35 What is due is judged anew by whoever looks, on the database's clock as it is then; who is heard is not silent."""
    start = await clock.advance(0)
    sleeps, works = await admit_one(db, "sleeps"), await admit_one(db, "works")
    mine, observer = await new_holder(db), await new_holder(db)
    for claimed in await claim_all(db, mine, most=2, request=1, alone=True):
        if claimed.fence.rid == sleeps:
            await wait(db, claimed.fence, arm("sleep", "nap", ms=60_000))
        else:
            held = [claimed.fence]
            assert await attempts.begin(db, claimed.fence) == "begun"
    for _ in range(3):
        await clock.advance(5)
        await beat(db, mine, answered=1, held=held)
        await beat(db, observer)
    stepped = await clock.set(await clock.now() + step)
    for _ in range(12):  # two leases of everybody's beats, the observer's always first
        await beat(db, observer)
        assert not (await beat(db, mine, answered=1, held=held)).lost
        await clock.advance(5)
    assert await look(admin, works, "state", "number", "losses") == ("running", 1, 0)
    assert await look(admin, sleeps, "state") == ("queued" if step > timedelta() else "parked")
    await clock.set(max(stepped, start) + timedelta(seconds=61))
    for _ in range(2):
        await beat(db, observer)
    assert await look(admin, sleeps, "state") == "queued"
    assert (await ledger_of(admin, sleeps)).count("wait.timed_out") + (await ledger_of(admin, sleeps)).count(
        "wait.arrived"
    ) == 1
    assert await broken(admin) == {}


async def test_only_a_claim_gives_an_attempt(db: Database, admin: asyncpg.Connection) -> None:
    """B02 Two that read the same dead list: whoever comes second is told that there was nothing, and holds nothing."""
    rid = await admit_one(db)
    gone = await new_holder(db)
    await claim_one(db, gone)
    first, second = await new_holder(db), await new_holder(db)
    await together(lambda: beat(db, first, dead=[gone]), lambda: beat(db, second, dead=[gone]))
    got = [await claim_all(db, holder, request=1) for holder in (first, second)]
    assert sorted(len(one) for one in got) == [0, 1]
    assert await look(admin, rid, "number") == 2


async def test_a_run_that_backs_off_holds_nothing_and_no_lease_of_it_lapses(
    db: Database, admin: asyncpg.Connection, clock: Clock
) -> None:
    """B65 Ten leases long, its old holder gone: every sweep passes it by, and its hour brings the next try."""
    await clock.advance(0)
    mine = await running(db, "run")
    await finish(db, mine.fence, "retry", delay_ms=int(10 * LEASE * 1000), most_tries=5)
    observer = await new_holder(db)
    for _ in range(59):
        await clock.advance(5)
        await beat(db, observer)
        assert await look(admin, mine.fence.rid, "state", "holder", "losses", "tries") == ("queued", None, 0, 1)
        assert await claim_all(db, observer) == ()
    await clock.advance(5)
    await beat(db, observer)
    assert [one.fence.number for one in await claim_all(db, observer)] == [2]
    assert await broken(admin) == {}
