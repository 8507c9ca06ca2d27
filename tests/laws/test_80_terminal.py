"""Chapter 80: a run ends once, and whoever ended it may ask again."""

from __future__ import annotations

import asyncio
import json
from typing import Any

import asyncpg
import pytest

from fencepost import recovery, steps, terminal
from fencepost.attempts import Claimed
from fencepost.db import Database
from fencepost.errors import BrokenLaw
from fencepost.terminal import Ended
from fencepost.testing import Clock
from fencepost.words import STALE
from tests.support import admit_one, claim_all, look, new_holder, tables
from tests.support_runs import (
    ERROR,
    arm,
    batch,
    beat,
    cancel,
    child_of,
    claim_by,
    finish,
    holder_of,
    holding,
    keep,
    ledger_of,
    lose,
    mark,
    outcome_of,
    running,
    send,
    villain_of,
    wait,
)  # fmt: skip

pytestmark = pytest.mark.usefixtures("lawful")


def item(
    claimed: Claimed, ending: str, value: str | None, delay: int | None = None, tries: int | None = None
) -> tuple[Any, ...]:
    return (claimed.fence.rid, claimed.fence.fence, ending, value, delay, tries, None)


async def test_the_first_terminal_write_wins(db: Database, admin: asyncpg.Connection) -> None:
    """80.1 After it neither another leg, nor a cancel, nor an operator, nor a loss, nor a signal changes anything."""
    mine = await running(db, "run")
    holder = await holder_of(admin, mine.fence)
    assert await finish(db, mine.fence, "completed", '{"n":  1}') == Ended("committed", "completed")
    before = await tables(admin, without=("incarnation", "sleeper"))
    assert await cancel(db, "run") == ("too_late", "completed")
    assert await terminal.end(db, "default", "run", by="ann", reason="x") == ("too_late", "completed")
    assert await send(db, "run") == "ended"
    assert await recovery.resolve(
        db, "default", "run", step=None, ordinal=None, row_key=None, verdict="failed", value=ERROR, by="ann"
    ) == ("refused", "the run has ended")  # fmt: skip
    assert await terminal.judge_bound(db, "default", "run") is False
    assert await keep(db, mine.fence) is STALE
    assert await lose(db, holder) == 0
    assert await tables(admin, without=("incarnation", "sleeper")) == before
    assert await outcome_of(admin, mine.fence.rid) == ("completed", '{"n":  1}', None)


async def test_a_stale_fence_cannot_finish_a_run_that_another_is_running(
    db: Database, admin: asyncpg.Connection
) -> None:
    """80.1, 40.3 The usurper looks exactly like the holder."""
    old = await running(db)
    new = await villain_of(db, admin, old)
    before = await tables(admin)
    for ending in ("completed", "failed", "retry", "unknown", "unfit"):
        assert await finish(db, old.fence, ending, delay_ms=0, digest="d") is STALE  # type: ignore[arg-type]  # each of the endings
    assert await tables(admin) == before
    assert await finish(db, new.fence) == Ended("committed", "completed")
    assert await finish(db, old.fence) == Ended("already_terminal", "completed")
    assert (await look(admin, old.fence.rid, "fence", "number", table="outcome")) == (new.fence.fence, 2)


@pytest.mark.parametrize(
    ("ending", "value", "expected"),
    [
        ("completed", '{"a": 1}', Ended("committed", "completed")),
        ("completed", "null", Ended("committed", "completed")),
        ("failed", ERROR, Ended("committed", "failed")),
        ("retry", ERROR, Ended("retrying", None)),
        ("unknown", ERROR, Ended("unknown", None)),
        ("unfit", ERROR, Ended("parked", None)),
    ],
)
async def test_a_fence_that_asks_again_gets_the_answer_it_got(
    db: Database, admin: asyncpg.Connection, ending: terminal.Ending, value: str, expected: Ended
) -> None:
    """80.2, 00.3 Whatever happened to the run since; and nothing changes by asking."""
    mine = await running(db, "run")
    assert await finish(db, mine.fence, ending, value, delay_ms=0, digest="d") == expected
    before = await tables(admin)
    assert await finish(db, mine.fence, ending, value, delay_ms=0, digest="d") == expected
    assert await tables(admin) == before
    await recovery.wake(db, "default", "run")
    await recovery.resolve(
        db, "default", "run", step=None, ordinal=None, row_key=None, verdict="again", value=None, by="ann"
    )
    if expected.how != "committed":
        await finish(db, (await claim_by(db, admin, mine.fence.rid)).fence, "completed", '"later"')
    assert await finish(db, mine.fence, ending, value, delay_ms=0, digest="d") == expected


async def test_an_end_without_a_value_may_be_asked_again(db: Database) -> None:
    """80.2, 00.16 No output is not null."""
    mine = await running(db)
    assert await terminal.finish(db, mine.fence, "completed", None) == Ended("committed", "completed")
    assert await terminal.finish(db, mine.fence, "completed", None) == Ended("committed", "completed")
    with pytest.raises(BrokenLaw):
        await terminal.finish(db, mine.fence, "completed", "null")


@pytest.mark.parametrize(("ending", "value"), [("completed", "2"), ("failed", ERROR), ("completed", "1 ")])
async def test_one_fence_cannot_end_a_run_twice_differently(db: Database, ending: terminal.Ending, value: str) -> None:
    """80.2 It has broken the law."""
    mine = await running(db)
    await finish(db, mine.fence, "completed", "1")
    with pytest.raises(BrokenLaw, match="LW801"):
        await finish(db, mine.fence, ending, value)


async def test_a_law_broken_by_one_item_leaves_the_others_of_its_batch_alone(
    db: Database, admin: asyncpg.Connection
) -> None:
    """80.2, 00.13 An item twice in a batch ends once; a stale one first does not speak for the living one behind it."""
    one, two, three, old = [await running(db) for _ in range(4)]
    new = await villain_of(db, admin, old)
    await finish(db, one.fence, "completed", "1")
    rows = await batch(
        db, "finish_attempts", item(one, "completed", "9"), item(old, "completed", '"old"'), item(two, "completed", "2"),
        item(two, "completed", "2"), item(new, "completed", '"new"'), item(three, "failed", ERROR), item(two, "failed", ERROR),
        item(three, "cancelled", None),
    )  # fmt: skip
    assert [r["answer"] for r in rows] == [
        "LW801", "already_terminal", "committed", "committed", "committed", "committed", "LW801", "committed",
    ]  # fmt: skip
    assert (await outcome_of(admin, new.fence.rid)) == ("completed", '"new"', None)
    assert (await outcome_of(admin, two.fence.rid)) == ("completed", "2", None)


async def test_a_leg_cannot_cancel_its_run(db: Database, admin: asyncpg.Connection) -> None:
    """80.3 Nor end it in any way that is no ending of a leg."""
    mine = await running(db)
    before = await tables(admin)
    for ending in ("cancelled", "queued", ""):
        with pytest.raises(BrokenLaw, match="LW802"):
            await finish(db, mine.fence, ending, ERROR)  # type: ignore[arg-type]  # that is the point
    assert await tables(admin) == before


async def test_a_terminal_run_holds_waits_for_and_asks_nothing(
    db: Database, admin: asyncpg.Connection, clock: Clock
) -> None:
    """80.6, B49 Its lease, waits, timers and watchers are gone; a watcher was told once."""
    mine = await running(db, "run")
    heard: asyncio.Queue[str] = asyncio.Queue()
    await admin.add_listener("fp_watcher", lambda *got: heard.put_nowait(got[-1]))
    outcome = await terminal.watch_outcome(db, "default", "run", "fp_watcher")
    assert outcome is not None
    assert outcome.status == "running"
    await wait(db, mine.fence, arm("signal", ms=1000), arm("sleep", "nap", ms=500), park=False)
    await child_of(db, mine.fence, "kid")
    await finish(db, mine.fence)
    assert await asyncio.wait_for(heard.get(), 10) == "ended"
    rid = mine.fence.rid
    assert await look(admin, rid) is None
    assert {r[0] for r in await admin.fetch("select state from fencepost.boundary where rid = $1", rid)} == {
        "cancelled"
    }
    await clock.advance(3600)
    assert (await beat(db, await new_holder(db))).woken == 0
    assert (await ledger_of(admin, rid))[-1] == "run.completed"


async def test_a_declared_retry_counts_tries_and_waits_out_its_delay(
    db: Database, admin: asyncpg.Connection, clock: Clock
) -> None:
    """80.1, 40.5 The last try ends the run, with what the last one brought."""
    await clock.advance(0)
    mine = await running(db, "run")
    assert await finish(db, mine.fence, "retry", delay_ms=5000, most_tries=2) == Ended("retrying", None)
    assert await look(admin, mine.fence.rid, "state", "tries", "number") == ("queued", 1, 1)
    await clock.advance(4.999)
    worker = await new_holder(db)
    assert (await beat(db, worker)).woken == 0
    assert await claim_all(db, worker) == ()
    await clock.advance(0.001)
    assert (await beat(db, worker)).woken == 1
    (again,) = await claim_all(db, worker)
    assert again.tries == 1
    for _ in range(2):
        assert await finish(db, again.fence, "retry", delay_ms=5000, most_tries=2) == Ended("committed", "failed")
    status, output, error = await outcome_of(admin, mine.fence.rid) or ("", None, None)
    assert (status, output) == ("failed", None)
    assert json.loads(error or "") == {
        "code": "TRIES_EXHAUSTED",
        "message": "2 tries, the last: it broke",
        "last": json.loads(ERROR),
    }
    assert await look(admin, mine.fence.rid, "tries", table="outcome") == 2


# 40.6


async def with_unknown(db: Database, admin: asyncpg.Connection, what: str, run: str = "run") -> Claimed:
    """A second attempt over the mark, on a step or a row, of a first that was lost."""
    mine = await running(db, run)
    if what == "step":
        await mark(db, mine.fence)
    else:
        opened = await steps.open_map(
            db, mine.fence, "m", 1, hash="h", start=0, keys=["a"], inputs=["1"], repeatable=False, whole=True
        )
        assert isinstance(opened, steps.OpenMap)
        await steps.mark_row(db, mine.fence, opened.mid, 0)
    return await villain_of(db, admin, mine)


@pytest.mark.parametrize("what", ["step", "row"])
@pytest.mark.parametrize("ending", ["failed", "retry", "unknown"])
async def test_a_leg_with_an_unresolved_unknown_ends_as_unknown_whatever_it_brings(
    db: Database, admin: asyncpg.Connection, ending: terminal.Ending, what: str
) -> None:
    """40.6, 50.2 No retry policy applies: no try is charged, nothing is run again."""
    new = await with_unknown(db, admin, what)
    tries = await look(admin, new.fence.rid, "tries")
    for _ in range(2):
        assert await finish(db, new.fence, ending, delay_ms=0, most_tries=9) == Ended("unknown", None)
    assert await look(admin, new.fence.rid, "state", "unknown", "tries", "trouble") == (
        "unknown",
        "STEP_OUTCOME_UNKNOWN",
        tries,
        ERROR,
    )
    assert await claim_all(db, await new_holder(db)) == ()


@pytest.mark.parametrize("what", ["step", "row"])
async def test_a_leg_that_met_an_unknown_may_end_as_success(db: Database, admin: asyncpg.Connection, what: str) -> None:
    """40.6 Its code dealt with it; the unknown stays in the record."""
    new = await with_unknown(db, admin, what)
    assert await finish(db, new.fence) == Ended("committed", "completed")
    assert await outcome_of(admin, new.fence.rid) == ("completed", "1", None)


async def test_a_repeatable_mark_is_no_unknown(db: Database, admin: asyncpg.Connection) -> None:
    """40.6, 50.11 It may run twice: the leg fails as it says."""
    mine = await running(db)
    await mark(db, mine.fence, repeatable=True, timeout_ms=1000)
    assert await finish(db, mine.fence, "failed") == Ended("committed", "failed")


async def test_an_unknown_that_was_resolved_no_longer_decides(db: Database, admin: asyncpg.Connection) -> None:
    """40.6, 85.5 The continued run may fail and be retried again."""
    new = await with_unknown(db, admin, "step")
    await finish(db, new.fence, "failed")
    await recovery.resolve(
        db, "default", "run", step="pay", ordinal=1, row_key=None, verdict="failed", value=ERROR, by="ann"
    )
    again = await claim_by(db, admin, new.fence.rid)
    assert await finish(db, again.fence, "retry", delay_ms=0) == Ended("retrying", None)


async def test_bounds_and_operators_end_runs_once(db: Database, admin: asyncpg.Connection, clock: Clock) -> None:
    """80.1, 30.9 Whoever asks again about the same end is answered the same; anybody else is too late."""
    await clock.advance(0)
    late = await admit_one(db, "late", claim_ms=1000)
    mine = await running(db, "mine")
    assert await terminal.judge_bound(db, "default", "late") is False
    await clock.advance(1)
    for _ in range(2):
        assert await terminal.judge_bound(db, "default", "late") is True
    for _ in range(2):
        assert await terminal.end(db, "default", "mine", by="ann", reason="no more") == ("done", "failed")
    assert await terminal.end(db, "default", "mine", by="bob", reason="no more") == ("too_late", "failed")
    assert await terminal.end(db, "default", "late", by="ann", reason="no more") == ("too_late", "failed")
    assert await terminal.end(db, "default", "nobody", by="ann", reason="") == ("unknown_run", None)
    assert json.loads((await outcome_of(admin, mine.fence.rid) or ("", "", ""))[2] or "")["code"] == "OPERATOR_ENDED"
    assert json.loads((await outcome_of(admin, late) or ("", "", ""))[2] or "")["code"] == "ADMISSION_EXPIRED"
    assert await finish(db, mine.fence) == Ended("already_terminal", "failed")
    assert await keep(db, mine.fence) is STALE


async def test_in_a_batch_of_ends_a_locked_parent_delays_only_its_child(db: Database, dsn: str) -> None:
    """80.1, 00.13, 00.14 A child cannot end without its parent's row: it is asked alone, where it may wait."""
    dad = await running(db, "dad")
    started = await child_of(db, dad.fence, "kid")
    (kid,) = await claim_all(db, await new_holder(db))
    assert kid.fence.rid == started.child
    free = await running(db)
    async with holding(dsn, dad.fence.rid):
        rows = await batch(db, "finish_attempts", item(kid, "completed", "1"), item(free, "completed", "1"))
    assert [r["answer"] for r in rows] == ["again", "committed"]
    assert await finish(db, kid.fence) == Ended("committed", "completed")
