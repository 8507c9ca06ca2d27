"""Two doors, one row, both orders: what each caller is told, and what is stored."""

from __future__ import annotations

import asyncio

import asyncpg
import pytest

from fencepost.db import Database
from fencepost.errors import BrokenLaw
from fencepost.steps import Kept, KeptBefore
from fencepost.suspension import Here, Parked, Started
from fencepost.terminal import Ended
from fencepost.testing import Clock
from fencepost.words import CANCELLING, STALE
from tests.support import claim_all, look, new_holder
from tests.support_races import in_order, raced, transaction, waiting
from tests.support_runs import (
    arm,
    beat,
    boundary,
    cancel,
    child_of,
    claim_by,
    family,
    finish,
    history,
    keep,
    ledger_of,
    mark,
    outcome_of,
    running,
    send,
    wait,
)

pytestmark = pytest.mark.usefixtures("lawful")


async def test_a_signal_and_a_park_meet(
    db: Database, rival: Database, dsn: str, admin: asyncpg.Connection, turned: bool
) -> None:
    """60.2, B42 Whichever comes first, it is delivered, once, and nobody sleeps through it."""
    mine = await running(db, "run")
    sent, parked = await raced(
        dsn, admin, mine.fence.rid, turned, lambda: send(rival, "run"), lambda: wait(db, mine.fence, arm("signal"))
    )
    assert sent == "sent"
    if turned:
        assert parked == Parked()
        mine = await claim_by(db, admin, mine.fence.rid)
        assert [(r[1], r[3], r[8]) for r in history(mine)] == [("review", "arrived", "1")]
    else:
        assert isinstance(parked, Here)
    assert await admin.fetchval("select array_agg(taken) from fencepost.signal") == [1]


@pytest.mark.parametrize("isolation", ["repeatable_read", "serializable"])
async def test_a_sender_of_another_isolation_fails_rather_than_miss_a_wait(
    db: Database, dsn: str, admin: asyncpg.Connection, isolation: str
) -> None:
    """60.2, 00.14 Its snapshot is older than the park: it is told to try again, and then delivers."""
    mine = await running(db, "run")

    async def late_sender() -> None:
        async with transaction(dsn, isolation) as sender:
            await sender.fetchval("select count(*) from fencepost.task")
            assert await wait(db, mine.fence, arm("signal")) == Parked()
            await sender.fetchval("select fencepost.send_signal('run', 'review')")

    with pytest.raises(asyncpg.SerializationError):
        await late_sender()
    async with transaction(dsn, isolation) as sender:
        assert await sender.fetchval("select fencepost.send_signal('run', 'review')") == "sent"
    assert await look(admin, mine.fence.rid) == "queued"


@pytest.mark.parametrize("isolation", ["read_committed", "repeatable_read", "serializable"])
async def test_a_park_waits_for_a_sender_that_has_not_committed(
    db: Database, dsn: str, admin: asyncpg.Connection, isolation: str
) -> None:
    """60.2 In every isolation level: committed, the signal is here; a moment earlier nobody could say."""
    mine = await running(db, "run")
    async with transaction(dsn, isolation) as sender:
        assert await sender.fetchval("select fencepost.send_signal('run', 'review')") == "sent"
        parking = asyncio.ensure_future(wait(db, mine.fence, arm("signal")))
        await waiting(admin, 1)
    assert isinstance(await parking, Here)


async def test_a_sender_that_rolled_back_sent_nothing(db: Database, dsn: str, admin: asyncpg.Connection) -> None:
    """60.2 The park that waited for it parks."""
    mine = await running(db, "run")
    sender = await asyncpg.connect(dsn)
    turn = sender.transaction()
    await turn.start()
    await sender.fetchval("select fencepost.send_signal('run', 'review')")
    parking = asyncio.ensure_future(wait(db, mine.fence, arm("signal")))
    await waiting(admin, 1)
    await turn.rollback()
    await sender.close()
    assert await parking == Parked()


async def test_a_signal_and_the_hour_meet(
    db: Database, rival: Database, dsn: str, admin: asyncpg.Connection, clock: Clock
) -> None:
    """60.5, B04 The wait resolves once: the sweep steps back from the row that the signal has, and the signal is there in time."""
    await clock.advance(0)
    mine = await running(db, "run")
    assert await wait(db, mine.fence, arm("signal", ms=1000)) == Parked()
    watcher = await new_holder(db)
    await clock.advance(1)
    async with transaction(dsn) as sender:
        await sender.fetchval("select fencepost.send_signal('run', 'review')")
        assert (await beat(db, watcher)).woken == 0
    assert await boundary(admin, mine.fence.rid, "review", kind="signal") == "arrived"
    assert (await ledger_of(admin, mine.fence.rid)).count("run.woken") == 1


async def test_a_childs_end_and_its_parents_park_meet(
    db: Database, rival: Database, dsn: str, admin: asyncpg.Connection, turned: bool
) -> None:
    """60.10, B48 Neither order leaves a parent that sleeps for a child that has ended."""
    dad, kid = await family(db)
    end, parked = await raced(
        dsn, admin, dad.fence.rid, turned, lambda: finish(rival, kid.fence), lambda: wait(db, dad.fence)
    )
    assert end == Ended("committed", "completed")
    assert isinstance(parked, Parked if turned else Here)
    assert await look(admin, dad.fence.rid) == ("queued" if turned else "running")


async def test_a_cancel_and_a_finish_meet(
    db: Database, rival: Database, dsn: str, admin: asyncpg.Connection, turned: bool
) -> None:
    """80.4, B56 What the caller of cancel is told always agrees with what is stored."""
    mine = await running(db, "run")
    said, end = await raced(
        dsn, admin, mine.fence.rid, turned, lambda: cancel(rival, "run"), lambda: finish(db, mine.fence)
    )
    status = (await outcome_of(admin, mine.fence.rid) or ("",))[0]
    if turned:
        assert (said, end, status) == (("too_late", "completed"), Ended("committed", "completed"), "completed")
    else:
        assert (said, end, status) == (("accepted", "cancelling"), Ended("cancelled", "cancelled"), "cancelled")


async def test_a_cancel_and_a_childs_start_meet(
    db: Database, rival: Database, dsn: str, admin: asyncpg.Connection, turned: bool
) -> None:
    """80.4 A child that exists is reached, one that comes later is not admitted."""
    dad = await running(db, "dad")
    said, started = await raced(
        dsn, admin, dad.fence.rid, turned, lambda: cancel(rival, "dad"), lambda: child_of(db, dad.fence, "kid")
    )
    assert said == ("accepted", "cancelling")
    if turned:
        assert isinstance(started, Started)
        assert (await outcome_of(admin, started.child) or ("",))[0] == "cancelled"
    else:
        assert started is CANCELLING
        assert await admin.fetchval("select count(*) from fencepost.run") == 1
    assert await claim_all(db, await new_holder(db)) == ()


async def test_a_cancel_reaches_a_grandchild_born_while_it_waited(
    db: Database, rival: Database, dsn: str, admin: asyncpg.Connection
) -> None:
    """80.4 The cancel knew the child and waited for it; meanwhile the child started its own."""
    root, dad = await family(db, id="root")
    late, said = await in_order(
        dsn, admin, dad.fence.rid, lambda: child_of(db, dad.fence, "late"), lambda: cancel(rival, "root")
    )
    assert said == ("accepted", "cancelling")
    assert (await outcome_of(admin, late.child) or ("",))[0] == "cancelled"
    assert await look(admin, root.fence.rid) == "cancelling"


async def test_two_finishes_of_one_fence_with_different_values_meet(
    db: Database, rival: Database, dsn: str, admin: asyncpg.Connection
) -> None:
    """80.2 One lands; the other has broken the law, and is not answered as if it had landed."""
    mine = await running(db)
    one, two = await in_order(
        dsn,
        admin,
        mine.fence.rid,
        lambda: finish(db, mine.fence, "completed", "1"),
        lambda: finish(rival, mine.fence, "completed", "2"),
    )
    assert one == Ended("committed", "completed")
    assert isinstance(two, BrokenLaw)
    assert two.sqlstate == "LW801"
    assert await outcome_of(admin, mine.fence.rid) == ("completed", "1", None)


async def test_a_finish_asked_twice_at_once_lands_once(
    db: Database, rival: Database, dsn: str, admin: asyncpg.Connection
) -> None:
    """80.2, B80 The second connection's retry of a call whose first never was answered."""
    mine = await running(db)
    answers = await in_order(
        dsn, admin, mine.fence.rid, lambda: finish(db, mine.fence), lambda: finish(rival, mine.fence)
    )
    assert answers == [Ended("committed", "completed")] * 2


async def test_a_finish_that_waited_behind_a_park_is_told_stale(
    db: Database, rival: Database, dsn: str, admin: asyncpg.Connection
) -> None:
    """80.1, 60.8 Judged after the lock was got, not before."""
    mine = await running(db)
    answers = await in_order(
        dsn, admin, mine.fence.rid, lambda: wait(db, mine.fence, arm("signal")), lambda: finish(rival, mine.fence)
    )
    assert answers == [Parked(), STALE]


async def test_a_keep_that_waited_behind_a_finish_is_told_stale(
    db: Database, rival: Database, dsn: str, admin: asyncpg.Connection
) -> None:
    """50.1, 00.14 The row it locked is gone."""
    mine = await running(db)
    answers = await in_order(
        dsn, admin, mine.fence.rid, lambda: finish(db, mine.fence), lambda: keep(rival, mine.fence)
    )
    assert answers == [Ended("committed", "completed"), STALE]


async def test_two_keeps_of_one_step_meet(db: Database, rival: Database, dsn: str, admin: asyncpg.Connection) -> None:
    """50.1 One is kept, the other learns of it; no caller sees a duplicate key."""
    mine = await running(db)
    one, two = await in_order(
        dsn, admin, mine.fence.rid, lambda: keep(db, mine.fence, "a", "1"), lambda: keep(rival, mine.fence, "a", "2")
    )
    assert (one, two) == (Kept(3), KeptBefore(3, "kept", "1"))


async def test_keep_mark_row_and_wait_give_no_place_twice(
    db: Database, rival: Database, dsn: str, admin: asyncpg.Connection
) -> None:
    """90.1, 50.4 Four doors behind one row: every place is one door's, and none is left out.

    Behind the first the server decides who is next: the signal is there for the wait, or the wait is only armed.
    """
    mine = await running(db, "run")
    await in_order(
        dsn, admin, mine.fence.rid, lambda: keep(db, mine.fence, "a"), lambda: mark(rival, mine.fence, "b"), lambda: send(db, "run"),
        lambda: wait(rival, mine.fence, arm("signal"), park=False),
    )  # fmt: skip
    state = await admin.fetchval("select state from fencepost.boundary where kind = 'signal'")
    assert await look(admin, mine.fence.rid, "seq") == {"armed": 6, "arrived": 7}[state]
