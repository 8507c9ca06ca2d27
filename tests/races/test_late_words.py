"""Verdicts, claims and operators meet the living: whoever comes second finds what the first made of it."""

from __future__ import annotations

import asyncio

import asyncpg
import pytest

from fencepost import admission, attempts, recovery, terminal
from fencepost.admission import Admitted
from fencepost.db import Database
from fencepost.recovery import Beat
from fencepost.terminal import Ended
from fencepost.testing import Clock
from fencepost.words import STALE
from tests.support import admit_one, claim_all, launch, look, new_holder, next_request
from tests.support_races import Call, in_order, raced, together, transaction, waiting
from tests.support_runs import (
    ERROR,
    beat,
    boundary,
    cancel,
    finish,
    holder_of,
    mark,
    outcome_of,
    running,
    send,
)

pytestmark = pytest.mark.usefixtures("lawful")


# Recovery meets the living


async def test_a_reaper_steps_back_from_a_finish_that_has_the_row(
    db: Database, dsn: str, admin: asyncpg.Connection
) -> None:
    """85.2, B01 The finish is not committed when the sweep comes; it lands, and the next sweep finds nothing."""
    mine = await running(db)
    who, watcher = await holder_of(admin, mine.fence), await new_holder(db)
    async with transaction(dsn) as slow:
        rows = await slow.fetch(
            "select * from fencepost.finish_attempts(array[$1::bigint], array[$2::uuid], '{completed}', '{1}', '{null}', '{null}', '{null}')",
            mine.fence.rid, mine.fence.fence,
        )  # fmt: skip
        assert [r["answer"] for r in rows] == ["committed"]
        assert (await beat(db, watcher, dead=[who])).reaped == 0
    assert (await beat(db, watcher, dead=[who])).reaped == 0
    assert await outcome_of(admin, mine.fence.rid) == ("completed", "1", None)


async def test_a_finish_that_waited_behind_a_reaper_is_told_stale(
    db: Database, dsn: str, admin: asyncpg.Connection
) -> None:
    """85.2, B11 The verdict stands; the late result changes nothing."""
    mine = await running(db)
    who, watcher = await holder_of(admin, mine.fence), await new_holder(db)
    async with transaction(dsn) as reaper:
        await reaper.fetchval("select fencepost.beat($1, 0, '{}', '{}', array[$2::uuid])", watcher, who)
        ending = asyncio.ensure_future(finish(db, mine.fence))
        await waiting(admin, 1)
    assert await ending is STALE
    assert await look(admin, mine.fence.rid, "state", "tries") == ("queued", 1)


async def test_a_reaper_that_waited_while_the_work_was_finished_finds_nothing(
    db: Database, dsn: str, admin: asyncpg.Connection
) -> None:
    """85.2, B01 The whole of the verdict is decided after the wait."""
    mine = await running(db)
    who, watcher = await holder_of(admin, mine.fence), await new_holder(db)
    async with transaction(dsn) as gate:
        await gate.execute("select from fencepost.incarnation where id = $1 for update", watcher)
        sweeping = asyncio.ensure_future(beat(db, watcher, dead=[who]))
        await waiting(admin, 1)
        assert await finish(db, mine.fence) == Ended("committed", "completed")
    assert (await sweeping).reaped == 0


async def test_two_beats_that_reap_one_incarnation_charge_one_try(
    db: Database, dsn: str, admin: asyncpg.Connection
) -> None:
    """85.1, B13, B02 The second neither waits for the first nor repeats it."""
    mine = await running(db)
    who, one, two = await holder_of(admin, mine.fence), await new_holder(db), await new_holder(db)
    async with transaction(dsn) as first:
        await first.fetchval("select fencepost.beat($1, 0, '{}', '{}', array[$2::uuid])", one, who)
        assert (await beat(db, two, dead=[who])).reaped == 0
    assert (await beat(db, two, dead=[who])).reaped == 0
    assert await look(admin, mine.fence.rid, "tries", "losses") == (1, 1)


async def test_ten_beats_at_once_charge_one_try_each(db: Database, rival: Database, admin: asyncpg.Connection) -> None:
    """85.1 From one barrier, twenty deaths, ten reapers."""
    holders, rids = [], []
    for _ in range(20):
        mine = await running(db)
        rids.append(mine.fence.rid)
        holders.append(await holder_of(admin, mine.fence))
    watchers = [await new_holder(db) for _ in range(10)]

    def one(n: int) -> Call:
        return lambda: beat((db, rival)[n % 2], watchers[n], dead=holders)

    said: list[Beat] = await together(*(one(n) for n in range(10)))
    reaped = sum(b.reaped for b in said) + (await beat(db, watchers[0], dead=holders)).reaped
    assert reaped == 20
    assert [await look(admin, rid, "tries", "state") for rid in rids] == [(1, "queued")] * 20


async def test_a_deadline_and_a_keep_meet(db: Database, dsn: str, admin: asyncpg.Connection, clock: Clock) -> None:
    """40.12, 85.2 A step kept in the last moment ends its deadline: the sweep steps back, and finds nothing afterwards."""
    await clock.advance(0)
    mine = await running(db)
    holder, watcher = await holder_of(admin, mine.fence), await new_holder(db)
    await mark(db, mine.fence, timeout_ms=1000)
    await clock.advance(31)
    async with transaction(dsn) as slow:
        await slow.fetch(
            "select * from fencepost.keep_steps(array[$1::bigint], array[$2::uuid], '{step}', '{pay}', '{1}', '{h}', '{false}', '{true}', '{1}')",
            mine.fence.rid, mine.fence.fence,
        )  # fmt: skip
        assert (await beat(db, watcher)).reaped == 0
    await beat(db, holder, held=[mine.fence])
    assert (await beat(db, watcher)).reaped == 0
    assert await look(admin, mine.fence.rid) == "running"


async def test_a_workers_own_close_and_its_finish_meet(
    db: Database, rival: Database, dsn: str, admin: asyncpg.Connection, turned: bool
) -> None:
    """40.11, 85.1 The drain ends while the last result is on its way: it lands, or the run is lost; never both."""
    mine = await running(db)
    who = await holder_of(admin, mine.fence)
    closed, end = await raced(
        dsn,
        admin,
        mine.fence.rid,
        turned,
        lambda: recovery.close_incarnation(rival, who, patience=30),
        lambda: finish(db, mine.fence),
    )
    if turned:
        assert (closed, end) == (0, Ended("committed", "completed"))
    else:
        assert (closed, end) == (1, STALE)
        assert await look(admin, mine.fence.rid, "state", "tries") == ("queued", 1)


# Claims


async def test_a_claim_passes_by_a_run_that_is_being_cancelled(
    db: Database, dsn: str, admin: asyncpg.Connection
) -> None:
    """80.4, B40 It neither waits nor takes it; the run ends unclaimed."""
    rid = await admit_one(db, "run")
    async with transaction(dsn) as slow:
        await slow.fetch("select * from fencepost.cancel_run('default', 'run', 'enough', 30000)")
        assert await claim_all(db, await new_holder(db)) == ()
    assert (await outcome_of(admin, rid) or ("",))[0] == "cancelled"
    assert await look(admin, rid, "number", table="outcome") == 0


async def test_a_cancel_that_waited_behind_a_claim_tells_its_worker(
    db: Database, dsn: str, admin: asyncpg.Connection
) -> None:
    """80.4, B40 It is running by then: cancelling, not cancelled."""
    rid = await admit_one(db, "run")
    holder = await new_holder(db)
    async with transaction(dsn) as slow:
        (row,) = await slow.fetch(
            "select * from fencepost.claim_attempts($1, 10, 1, 1, '', true) where answer = 'claimed'", holder
        )
        cancelling = asyncio.ensure_future(cancel(db, "run"))
        await waiting(admin, 1)
    assert await cancelling == ("accepted", "cancelling")
    assert [c.rid for c in (await beat(db, holder, answered=0, held=[])).cancel] == []
    said = await recovery.beat(db, holder, answered=0, held=[(rid, row["number"])], dead=[], patience=30)
    assert [c.rid for c in said.cancel] == [rid]


async def test_many_claimants_of_one_run_and_one_wins(db: Database, rival: Database, admin: asyncpg.Connection) -> None:
    """40.2, B02 From one barrier, thirty times."""
    holders = [await new_holder(db) for _ in range(6)]
    for _ in range(30):
        rid = await admit_one(db)

        def one(n: int) -> Call:
            return lambda: attempts.claim(
                (db, rival)[n % 2], holders[n], next_request(), lane=1, most=1, cursor="", alone=True, patience=30
            )

        claims = await together(*(one(n) for n in range(6)))
        assert [c.fence.rid for claim in claims for c in claim.claimed] == [rid]


# Words of operators and clients


async def test_two_resolutions_of_one_step_meet(
    db: Database, rival: Database, dsn: str, admin: asyncpg.Connection
) -> None:
    """85.5 The first is done, the second refused."""
    mine = await running(db, "run")
    await mark(db, mine.fence)
    await finish(db, mine.fence, "unknown")

    def say(database: Database, value: str) -> Call:
        return lambda: recovery.resolve(
            database, "default", "run", step="pay", ordinal=1, row_key=None, verdict="completed", value=value, by="ann"
        )

    one, two = await in_order(dsn, admin, mine.fence.rid, say(db, "1"), say(rival, "2"))
    assert (one, two[0]) == (("done", None), "refused")
    assert await boundary(admin, mine.fence.rid, "pay", "value") == "1"


async def test_a_resolution_and_a_cancel_meet(
    db: Database, rival: Database, dsn: str, admin: asyncpg.Connection, turned: bool
) -> None:
    """85.5, 80.4 Either the step is resolved and the run cancelled, or the run had ended."""
    mine = await running(db, "run")
    await mark(db, mine.fence)
    await finish(db, mine.fence, "unknown")
    said, word = await raced(
        dsn, admin, mine.fence.rid, turned, lambda: cancel(rival, "run"),
        lambda: recovery.resolve(db, "default", "run", step="pay", ordinal=1, row_key=None, verdict="failed", value=ERROR, by="ann"),
    )  # fmt: skip
    assert said == ("accepted", "cancelled")
    assert word == (("done", None) if turned else ("refused", "the run has ended"))


async def test_two_redrives_under_one_id_make_one_run(db: Database, dsn: str, admin: asyncpg.Connection) -> None:
    """85.5, 00.3 The second waits for the first, and is told `replayed`; no caller sees a duplicate key."""
    await finish(db, (await running(db, "run")).fence)
    async with transaction(dsn) as slow:
        await slow.fetch("select * from fencepost.redrive_run('default', 'run', 'new', null, null, '{}', 'ann')")
        second = asyncio.ensure_future(
            recovery.redrive(db, "default", "run", new_id="new", from_step=None, again=[], by="ann")
        )
        await waiting(admin, 1)
    assert await second == ("replayed", None)
    assert await admin.fetchval("select count(*) from fencepost.run") == 2


@pytest.mark.parametrize("committed", [True, False])
async def test_an_admission_waits_for_its_twin_that_is_not_committed(
    db: Database, dsn: str, admin: asyncpg.Connection, committed: bool
) -> None:
    """30.2, 00.13 Alone it is asked again until its twin is decided: replayed if that was committed, created if not."""
    await claim_all(db, await new_holder(db))
    connection = await asyncpg.connect(dsn)
    turn = connection.transaction()
    await turn.start()
    given = launch(id="twin")
    first = await admission.admit_on(db, connection, given)
    second = asyncio.ensure_future(admission.admit(db, [given]))
    await waiting(admin, 1)
    await (turn.commit() if committed else turn.rollback())
    await connection.close()
    (answer,) = await second
    assert isinstance(answer, Admitted)
    assert answer.how == ("replayed" if committed else "created")
    assert await admin.fetchval("select count(*) from fencepost.run") == 1
    assert isinstance(first, Admitted)


async def test_an_operators_end_and_a_finish_meet(
    db: Database, rival: Database, dsn: str, admin: asyncpg.Connection, turned: bool
) -> None:
    """80.1 The first terminal write wins; both are told which it was."""
    mine = await running(db, "run")
    said, end = await raced(
        dsn,
        admin,
        mine.fence.rid,
        turned,
        lambda: terminal.end(rival, "default", "run", by="ann", reason="x"),
        lambda: finish(db, mine.fence),
    )
    if turned:
        assert (said, end) == (("too_late", "completed"), Ended("committed", "completed"))
    else:
        assert (said, end) == (("done", "failed"), Ended("already_terminal", "failed"))


async def test_a_signal_and_an_end_meet(
    db: Database, rival: Database, dsn: str, admin: asyncpg.Connection, turned: bool
) -> None:
    """60.3, 80.1 Sent before the end or told that it was too late."""
    mine = await running(db, "run")
    sent, end = await raced(
        dsn, admin, mine.fence.rid, turned, lambda: send(rival, "run"), lambda: finish(db, mine.fence)
    )
    assert (sent, end) == ("ended" if turned else "sent", Ended("committed", "completed"))
