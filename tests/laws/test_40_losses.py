"""Chapter 40.11 to 40.15: what a worker gives back, what a deadline ends, and a run that takes its workers with it."""

from __future__ import annotations

import uuid

import asyncpg
import pytest

from fencepost import attempts, recovery, steps, terminal
from fencepost.attempts import Claimed
from fencepost.db import Database
from fencepost.testing import Clock
from fencepost.words import Fence
from tests.support import admit_one, claim_all, lane_of, look, new_holder
from tests.support_runs import (
    ERROR,
    arm,
    beat,
    child_of,
    claim_by,
    finish,
    holder_of,
    keep,
    lose,
    mark,
    running,
    send,
    villain_of,
    wait,
)  # fmt: skip

pytestmark = pytest.mark.usefixtures("lawful")


# 40.11


async def test_a_stopping_worker_records_what_still_runs_as_lost_itself(
    db: Database, admin: asyncpg.Connection
) -> None:
    """40.11 Each as declared; what was never dispatched costs no try; then it is closed, and asked again it has nothing more."""
    await lane_of(db)
    rids = [await admit_one(db, on_lost=on_lost) for on_lost in ("replay", "fail", "ask", "fail")]
    holder = await new_holder(db)
    claimed = await claim_all(db, holder, most=4)
    for one in claimed[:3]:
        await attempts.begin(db, one.fence)
    assert await lose(db, holder) == 4
    assert await lose(db, holder) == 0
    assert [await look(admin, rid, "state", "tries") for rid in rids] == [
        ("queued", 1),
        None,
        ("unknown", 1),
        ("queued", 0),
    ]
    assert await admin.fetchval("select ended from fencepost.incarnation where id = $1", holder) == "closed"
    assert (await beat(db, holder)).buried


async def test_giving_back_costs_no_try_and_comes_first_in_no_line_twice(
    db: Database, admin: asyncpg.Connection
) -> None:
    """40.11, 40.7 The number was spent, the try was not."""
    mine = await running(db)
    assert await attempts.give_back(db, mine.fence) == "given_back"
    assert await look(admin, mine.fence.rid, "state", "number", "tries", "losses") == ("queued", 1, 0, 0)
    new = await claim_by(db, admin, mine.fence.rid)
    assert await attempts.give_back(db, mine.fence) == "given_back"  # the answer it got; nothing happens (00.3)
    assert await look(admin, mine.fence.rid, "fence", "number") == (new.fence.fence, 2)


# 40.12


async def test_a_step_a_lease_past_its_deadline_is_lost_however_healthy_its_worker(
    db: Database, admin: asyncpg.Connection, clock: Clock
) -> None:
    """40.12 By any worker's beat, of whatever lane; not a moment before."""
    await clock.advance(0)
    mine = await running(db)
    holder = await holder_of(admin, mine.fence)
    await mark(db, mine.fence, repeatable=True, timeout_ms=5000)
    other = await new_holder(db, release="r2")
    for _ in range(7):
        await clock.advance(4.999)
        await beat(db, holder, held=[mine.fence])
        assert (await beat(db, other)).reaped == 0
    await clock.advance(0.007)
    assert (await beat(db, other)).reaped == 1
    assert await look(admin, mine.fence.rid, "state", "tries") == ("queued", 1)
    assert await look(admin, mine.fence.rid, "reason", table="attempt") == "deadline_passed"
    assert [held.rid for held in (await beat(db, holder, held=[mine.fence])).lost] == [mine.fence.rid]


async def test_a_deadline_ends_with_its_step_and_with_its_fence(
    db: Database, admin: asyncpg.Connection, clock: Clock
) -> None:
    """40.12 A kept step, a step without time-out, and another fence's mark put nobody out."""
    await clock.advance(0)
    kept, endless, new = await running(db), await running(db), await running(db)
    await mark(db, kept.fence, repeatable=True, timeout_ms=1000)
    await keep(db, kept.fence, repeatable=True)
    await mark(db, endless.fence)
    await mark(db, new.fence, timeout_ms=1000)
    await villain_of(db, admin, new)
    await clock.advance(3600)
    holders = [await holder_of(admin, c.fence) for c in (kept, endless, new)]
    for holder, claimed in zip(holders, (kept, endless, new), strict=True):
        assert (await beat(db, holder, held=[claimed.fence])).reaped == 0
    assert [await look(admin, c.fence.rid) for c in (kept, endless, new)] == ["running"] * 3


# 40.15


async def test_after_five_losses_without_a_committed_boundary_the_run_is_unknown(
    db: Database, admin: asyncpg.Connection
) -> None:
    """40.15 And waits for somebody who knows."""
    rid = await admit_one(db, "poison")
    for n in range(5):
        assert await look(admin, rid, "state", "losses") == ("queued", n)
        await lose(db, await holder_of(admin, (await claim_by(db, admin, rid)).fence))
    assert await look(admin, rid, "state", "unknown", "tries") == ("unknown", "LOST_TOO_OFTEN", 5)
    assert await recovery.resolve(
        db, "default", "poison", step=None, ordinal=None, row_key=None, verdict="again", value=None, by="ann"
    ) == ("done", None)  # fmt: skip
    assert await look(admin, rid, "state", "losses") == ("queued", 0)


@pytest.mark.usefixtures("company")
@pytest.mark.parametrize("what", ["step", "row", "park", "child"])
async def test_a_committed_boundary_begins_the_count_anew(db: Database, admin: asyncpg.Connection, what: str) -> None:
    """40.15 A step, a row, a child, a park; not a mark, not a repeated commit."""
    mine = await running(db, "run")
    await keep(db, mine.fence, "old")
    for _ in range(2):
        mine = await villain_of(db, admin, mine)
    await mark(db, mine.fence, "new")
    await keep(db, mine.fence, "old")
    opened = await steps.open_map(
        db, mine.fence, "m", 1, hash="h", start=0, keys=["a"], inputs=["1"], repeatable=True, whole=True
    )
    assert isinstance(opened, steps.OpenMap)
    assert await look(admin, mine.fence.rid, "losses") == 2
    match what:
        case "step":
            await keep(db, mine.fence, "new")
        case "row":
            await steps.keep_row(db, mine.fence, opened.mid, 0, "kept", "1")
            await db.call("claim_attempts", uuid.uuid4(), 1, 1, 1, "", True)
        case "child":
            await child_of(db, mine.fence, "kid")
        case _:
            await wait(db, mine.fence, arm("signal"))
            await send(db, "run")
    assert await look(admin, mine.fence.rid, "losses") == 0


async def test_a_row_that_was_kept_before_does_not_begin_the_count_anew(
    db: Database, admin: asyncpg.Connection
) -> None:
    """40.15 Newly committed is what counts."""
    mine = await running(db)
    opened = await steps.open_map(
        db, mine.fence, "m", 1, hash="h", start=0, keys=["a"], inputs=["1"], repeatable=True, whole=True
    )
    assert isinstance(opened, steps.OpenMap)
    await steps.keep_row(db, mine.fence, opened.mid, 0, "kept", "1")
    new = await villain_of(db, admin, mine)
    assert await steps.keep_row(db, new.fence, opened.mid, 0, "kept", "2") == "kept_before"
    assert await look(admin, mine.fence.rid, "losses") == 1


async def test_a_suspect_is_claimed_alone(db: Database, admin: asyncpg.Connection) -> None:
    """40.15 Not by a worker that holds something; by one that holds nothing, and nothing else with it."""
    rid = await admit_one(db)
    (poison,) = await claim_all(db, await new_holder(db))
    assert poison.fence.rid == rid
    await lose(db, await holder_of(admin, poison.fence))
    good = [await admit_one(db) for _ in range(2)]
    busy, idle = await new_holder(db), await new_holder(db)
    taken = await claim_all(db, busy, most=9, alone=False)
    assert sorted(c.fence.rid for c in taken) == good
    claim = await attempts.claim(db, busy, 10**6, lane=1, most=9, cursor="", alone=False, patience=30)
    assert claim.claimed == ()
    assert claim.suspect_since is not None
    await attempts.give_back(db, taken[0].fence)
    (suspect,) = await claim_all(db, idle, most=9, alone=True)
    assert (suspect.fence.rid, suspect.suspect) == (rid, True)


def fences(claimed: list[Claimed]) -> list[Fence]:
    return [c.fence for c in claimed]


async def test_an_attempt_of_an_answered_request_that_the_worker_does_not_hold_goes_back(
    db: Database, admin: asyncpg.Connection
) -> None:
    """40.14, 85.7 No try charged; one of a request not yet answered stays."""
    rids = [await admit_one(db) for _ in range(3)]
    holder = await new_holder(db)
    (first,) = await claim_all(db, holder, request=1)
    (lost,) = await claim_all(db, holder, request=2)
    (open_,) = await claim_all(db, holder, request=3)
    assert [c.fence.rid for c in (first, lost, open_)] == rids
    said = await beat(db, holder, answered=2, held=fences([first]))
    assert said.lost == ()
    assert [await look(admin, rid, "state", "tries") for rid in rids] == [("running", 0), ("queued", 0), ("running", 0)]


async def test_an_error_brought_by_a_lost_holder_is_no_terminal(db: Database, admin: asyncpg.Connection) -> None:
    """85.7, 40.4 It observes the winner."""
    mine = await running(db, on_lost="fail")
    await attempts.begin(db, mine.fence)
    await lose(db, await holder_of(admin, mine.fence))
    assert await finish(db, mine.fence, "failed", ERROR) == terminal.Ended("already_terminal", "failed")
    assert await finish(db, mine.fence) == terminal.Ended("already_terminal", "failed")
