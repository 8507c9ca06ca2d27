"""Chapter 40: how a run comes back to the line, and what that costs."""

from __future__ import annotations

import uuid
from datetime import UTC, datetime
from typing import Any

import asyncpg
import pytest

from fencepost import attempts, steps, suspension
from fencepost.attempts import Deferred
from fencepost.db import Database
from fencepost.errors import BrokenLaw
from fencepost.testing import Clock
from fencepost.words import STALE, Fence
from tests.support import admit_one, claim_all, claim_one, look, new_holder, next_request, tables
from tests.support_runs import (
    arm,
    beat,
    finish,
    lose,
    mark,
    running,
    send,
    wait,
)  # fmt: skip

NOON = datetime(2031, 5, 6, 12, tzinfo=UTC)
pytestmark = pytest.mark.usefixtures("lawful")


# 40.5


async def test_a_run_returns_to_the_queue_only_by_what_the_law_names(admin: asyncpg.Connection) -> None:
    """40.5 The table of moves, read: no ordinary exception is among the reasons."""
    moves = await admin.fetch("select was, by from fencepost.move where becomes = 'queued' order by was")
    found = {row["was"]: set(row["by"]) for row in moves}
    assert found == {
        # a declared retry; a deferral; what was never dispatched; what was not held, or lost and declared replay
        "running": {"finish_attempts", "defer_attempts", "give_back_attempts", "beat", "close_incarnation"},
        # what it waited for came, or the hour did, or the code
        "parked": found["parked"],
        "unknown": {"resolve_unknown", "wake_run"},
    }
    assert {"send_signals", "beat", "finish_attempts", "register_workflows"} <= found["parked"]


@pytest.mark.parametrize("ending", ["failed", "completed", "unknown", "unfit"])
async def test_no_other_ending_of_a_leg_puts_the_run_back(db: Database, admin: asyncpg.Connection, ending: Any) -> None:
    """40.5 An exception that left the workflow ends the run; only a declared retry asks again."""
    claimed = await running(db)
    await finish(db, claimed.fence, ending)
    assert await look(admin, claimed.fence.rid, "state") in (None, "unknown", "parked")
    assert await claim_all(db, await new_holder(db), most=9) == ()


async def test_a_workflow_this_worker_does_not_have_costs_thirty_seconds_and_nothing_else(
    db: Database, admin: asyncpg.Connection, clock: Clock
) -> None:
    """40.5 No try, no recovery budget, a hundred times in a row."""
    await clock.set(NOON)
    rid = await admit_one(db)
    holder = await new_holder(db)
    for _ in range(25):
        claimed = await claim_one(db, holder)
        assert await attempts.defer(
            db, claimed.fence, reason="workflow_missing", dependency="work", delay_ms=30_000
        ) == Deferred(exhausted=False)
        assert await claim_all(db, holder) == ()
        await clock.advance(29.9)
        await beat(db, holder)
        assert await claim_all(db, holder) == ()
        await clock.advance(0.1)
        await beat(db, holder)
    assert await look(admin, rid, "tries", "deferrals", "number") == (0, 0, 25)


async def test_an_attempt_whose_code_may_have_run_is_not_deferred(db: Database, admin: asyncpg.Connection) -> None:
    """40.5 A deferral needs proof that no code ran; the mark is that there is none. Where loss means replay it proves nothing."""
    claimed = await running(db, on_lost="fail")
    await attempts.begin(db, claimed.fence)
    before = await tables(admin)
    with pytest.raises(BrokenLaw) as broken:
        await attempts.defer(db, claimed.fence, reason="capacity", dependency="x", delay_ms=1)
    assert broken.value.sqlstate == "LW401"
    assert await tables(admin) == before
    again = await running(db, on_lost="replay")
    assert again.begun
    assert await attempts.defer(db, again.fence, reason="capacity", dependency="x", delay_ms=1) == Deferred(
        exhausted=False
    )


# 40.6, 40.7, 40.8


@pytest.mark.parametrize("ending", ["failed", "retry", "unknown"])
@pytest.mark.parametrize("what", ["step", "row"])
async def test_an_unknown_outcome_is_never_turned_into_a_retry(
    db: Database, admin: asyncpg.Connection, ending: Any, what: str
) -> None:
    """40.6 Whatever the leg raised and whatever retry is declared: with an unresolved mark the run is `unknown`."""
    claimed = await running(db)
    if what == "step":
        await mark(db, claimed.fence)
    else:
        made = await steps.open_map(
            db, claimed.fence, "m", 1, hash="", start=0, keys=["k"], inputs=["1"], repeatable=False, whole=True
        )
        assert isinstance(made, steps.OpenMap)
        await steps.mark_row(db, claimed.fence, made.mid, 0)
    ended = await finish(db, claimed.fence, ending, delay_ms=0, most_tries=99)
    assert ended.how == "unknown"
    assert await look(admin, claimed.fence.rid, "state", "unknown", "tries") == ("unknown", "STEP_OUTCOME_UNKNOWN", 0)
    assert await claim_all(db, await new_holder(db)) == ()


async def test_a_leg_that_met_an_unknown_may_still_succeed(db: Database, admin: asyncpg.Connection) -> None:
    """40.6 Success or unknown, nothing between."""
    claimed = await running(db)
    await mark(db, claimed.fence)
    assert (await finish(db, claimed.fence, "completed")).status == "completed"


async def test_only_dispatched_attempts_that_failed_or_were_lost_are_charged(
    db: Database, admin: asyncpg.Connection, clock: Clock
) -> None:
    """40.7 Number after number: a give-back, a deferral, a park and a stop before dispatch cost no try; a retry and a loss do."""
    await clock.set(NOON)
    rid = await admit_one(db, "it", on_lost="ask")
    tries = []

    async def next_fence() -> tuple[uuid.UUID, Fence]:
        holder = await new_holder(db)
        await beat(db, holder)
        claim = await attempts.claim_tree(db, holder, next_request(), root=rid, most=1, patience=30)
        return holder, claim.claimed[0].fence

    for how in ("give", "defer", "park", "stop", "retry", "lose"):
        holder, fence = await next_fence()
        match how:
            case "give":
                await attempts.give_back(db, fence)
            case "defer":
                await attempts.defer(db, fence, reason="capacity", dependency="x", delay_ms=1000)
                await clock.advance(1)
            case "park":
                await wait(db, fence, arm("sleep", ms=1000))
                await clock.advance(1)
            case "stop":
                assert await lose(db, holder) == 1  # claimed, never begun
            case "retry":
                await attempts.begin(db, fence)
                await finish(db, fence, "retry", delay_ms=0, most_tries=9)
            case _:
                await attempts.begin(db, fence)
                await lose(db, holder)
        tries.append(await look(admin, rid, "tries"))
    assert tries == [0, 0, 0, 0, 1, 2]
    assert await look(admin, rid, "number") == 6


async def test_a_wait_answered_in_place_keeps_number_and_fence_and_a_wake_does_not(
    db: Database, admin: asyncpg.Connection
) -> None:
    """40.8 Bit for bit."""
    claimed = await running(db, "it")
    await send(db, "it")
    here = await wait(db, claimed.fence, arm("signal"))
    assert isinstance(here, suspension.Here)
    assert await look(admin, claimed.fence.rid, "number", "fence") == (1, claimed.fence.fence)
    assert await wait(db, claimed.fence, arm("signal", ordinal=2), known=here.resolved[-1].seq) == suspension.Parked()
    await send(db, "it")
    woken = await claim_one(db)
    assert woken.fence.number == 2
    assert woken.fence.fence != claimed.fence.fence
    assert await finish(db, claimed.fence) == STALE
