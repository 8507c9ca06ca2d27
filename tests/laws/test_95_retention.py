"""Chapter 95: what may be forgotten, and when."""

from __future__ import annotations

from datetime import UTC, datetime

import asyncpg

from fencepost import ledger, limits, recovery, retention, steps, terminal
from fencepost.db import Database
from fencepost.testing import Clock
from tests.support import admit_one, claim_one, look, new_holder, tables
from tests.support_runs import arm, cancel, child_of, family, finish, holder_of, keep, lose, mark, running, send, wait

NOON = datetime(2031, 5, 6, 12, tzinfo=UTC)
DAY = 86400
OLD = 31 * DAY


async def ended(db: Database, name: str) -> int:
    """A run that ended with something in every table."""
    claimed = await running(db, name)
    fence = claimed.fence
    await keep(db, fence)
    made = await steps.open_map(
        db, fence, "m", 1, hash="", start=0, keys=["k", "l"], inputs=["1", "2"], repeatable=True, whole=True
    )
    assert isinstance(made, steps.OpenMap)
    await steps.keep_row(db, fence, made.mid, 0, "kept", "1")
    await steps.keep_row(db, fence, made.mid, 1, "failed", "{}")
    await mark(db, fence, "never known")
    await send(db, name, "nobody asks")
    await finish(db, fence)
    return fence.rid


async def test_only_terminal_rows_older_than_the_policy_go(
    db: Database, admin: asyncpg.Connection, clock: Clock
) -> None:
    """95.1 Nothing of the young, everything of the old, and the tables hold no crumb of it."""
    await clock.set(NOON)
    rid = await ended(db, "old")
    await clock.advance(30 * DAY)
    assert (await retention.retain(db))[1] == 0, "exactly as old as the policy says, not older"
    await clock.advance(1)
    young = await ended(db, "young")
    assert await retention.retain(db) == (0, 1)
    assert await ledger.read_run(db, "default", "old") is None
    assert await ledger.read_run(db, "default", "young") is not None
    for table in ("run", "outcome", "attempt", "boundary", "map", "signal", "event"):
        assert await look(admin, rid, "count(*)", table=table) == 0, table
        assert await look(admin, young, "count(*)", table=table) > 0, table
    assert (
        await admin.fetchval(
            "select count(*) from fencepost.row r where not exists (select from fencepost.map m where m.mid = r.mid)"
        )
        == 0
    )


async def test_nothing_parked_unknown_or_alive_is_touched_however_old(
    db: Database, admin: asyncpg.Connection, clock: Clock
) -> None:
    """95.1, B140 Ten years."""
    await clock.set(NOON)
    parked = (await running(db, "parked")).fence
    await keep(db, parked)
    await wait(db, parked, arm("signal"))
    unfit = (await running(db, "unfit")).fence
    await finish(db, unfit, "unfit")
    unknown = (await running(db, "unknown")).fence
    await mark(db, unknown)
    await finish(db, unknown, "unknown")
    await running(db, "running")
    cancelling = await family(db, id="cancelling")
    await cancel(db, "cancelling", grace=2 * 10**6)
    await admit_one(db, "queued")
    await clock.advance(3650 * DAY)  # nobody beats, so nobody's grace is over
    before = await tables(admin)
    assert await retention.retain(db) == (0, 0)
    assert await tables(admin) == before
    assert len(cancelling) == 2


async def test_scratch_goes_six_hours_after_the_end_and_the_ledger_outlives_it(
    db: Database, admin: asyncpg.Connection, clock: Clock
) -> None:
    """95.1 What is scratch are signals nobody took; the history, the values and the rows by outcome stay readable."""
    await clock.set(NOON)
    rid = await ended(db, "it")
    before = await ledger.read_events(db, "default", "it", after=0)
    await clock.advance(limits.SCRATCH_SECONDS)
    assert await retention.retain(db) == (0, 0)
    await clock.advance(1)
    assert await retention.retain(db) == (1, 0)
    assert await retention.retain(db) == (0, 0), "and is done"
    assert await look(admin, rid, "count(*)", table="signal") == 0
    assert await ledger.read_events(db, "default", "it", after=0) == before
    found = await ledger.read_run(db, "default", "it")
    assert found is not None
    assert (found["rows"]["completed"], found["rows"]["failed"], found["rows"]["total"]) == (1, 1, 2)
    assert [step["state"] for step in found["steps"] if step["name"] == "never known"] == ["unknown"], (
        "nothing deletes a mark (50.7)"
    )


async def test_what_something_alive_refers_to_stays(db: Database, admin: asyncpg.Connection, clock: Clock) -> None:
    """95.1, B140 The ended child of a living parent, the ended parent of a living child, the origin of a living redrive and what it
    started; once they have ended, all goes."""
    await clock.set(NOON)
    dad, kid = await family(db, id="dad")
    await finish(db, kid.fence)
    mum, son = await family(db, id="mum", waits=False)
    await finish(db, mum.fence)
    origin = await running(db, "origin")
    await child_of(db, origin.fence, "errand", waits=False)
    await finish(db, (await claim_one(db)).fence)
    await finish(db, origin.fence, "failed")
    assert (await recovery.redrive(db, "default", "origin", new_id="anew", from_step=None, again=[], by="me"))[
        0
    ] == "created"
    await clock.advance(OLD)
    assert await retention.retain(db) == (0, 0)
    for name in ("dad", "dad-1", "mum", "mum-1", "origin", "errand", "anew"):
        assert await ledger.read_run(db, "default", name) is not None, name
    await finish(db, dad.fence)
    await finish(db, son.fence)
    await finish(db, (await claim_one(db)).fence)
    assert await retention.retain(db) == (0, 4), "the ended were the living's; what the living were is young"
    await clock.advance(OLD)
    assert await retention.retain(db) == (0, 3)
    assert await admin.fetchval("select count(*) from fencepost.run") == 0


async def test_batches_are_bounded_and_always_progress(db: Database, admin: asyncpg.Connection, clock: Clock) -> None:
    """95.1, B99 The oldest are referenced and stay: they do not hide those behind them."""
    await clock.set(NOON)
    living = (await running(db, "living")).fence
    for n in range(4):
        await child_of(db, living, f"kid-{n}", ordinal=n + 1)
        await finish(db, (await claim_one(db)).fence)
    for n in range(7):
        await clock.advance(1)
        await ended(db, f"run-{n}")
    await clock.advance(OLD)
    gone = []
    while (passed := (await retention.retain(db, most=3)))[1]:
        gone.append(passed[1])
    assert gone == [3, 3, 1]
    assert await admin.fetchval("select count(*) from fencepost.run") == 5
    assert limits.RETAIN_RUNS_MAX == 1000


async def test_workers_that_nothing_names_any_more_are_forgotten(
    db: Database, admin: asyncpg.Connection, clock: Clock
) -> None:
    """95.1, B25 An ended incarnation goes with the last attempt that names it; a living one never."""
    await clock.set(NOON)
    claimed = await running(db, "it")
    named = await holder_of(admin, claimed.fence)
    await finish(db, claimed.fence)
    waiting = await running(db, "waits for years")
    parker = await holder_of(admin, waiting.fence)
    await wait(db, waiting.fence, arm("signal"))
    idle, alive = await new_holder(db), await new_holder(db)
    for holder in (named, idle, parker):
        await lose(db, holder)
    await clock.advance(29 * DAY)
    await retention.retain(db)
    ids = "select array_agg(id) from fencepost.incarnation"
    assert set(await admin.fetchval(ids)) == {named, idle, parker, alive}
    await clock.advance(2 * DAY)
    await retention.retain(db)
    await retention.retain(db)
    assert set(await admin.fetchval(ids)) == {alive, parker}


async def test_watchers_whose_hour_has_passed_go(db: Database, admin: asyncpg.Connection, clock: Clock) -> None:
    """95.1"""
    await clock.set(NOON)
    await admit_one(db, "it")
    await terminal.watch_outcome(db, "default", "it", "channel")
    await retention.retain(db)
    assert await admin.fetchval("select count(*) from fencepost.watcher") == 1
    await clock.advance(3601)
    await retention.retain(db)
    assert await admin.fetchval("select count(*) from fencepost.watcher") == 0
