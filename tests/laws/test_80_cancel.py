"""Chapter 80.4: cancel reaches every descendant, and is final only when code has stopped or was fenced out."""

from __future__ import annotations

import json

import asyncpg
import pytest

from fencepost import attempts, recovery, terminal
from fencepost.attempts import Claimed
from fencepost.db import Database
from fencepost.recovery import Held, ToCancel
from fencepost.terminal import Ended
from fencepost.testing import Clock
from fencepost.words import CANCELLING, STALE
from tests.support import admit_one, claim_all, look, new_holder, next_request
from tests.support_runs import (
    ERROR,
    arm,
    batch,
    beat,
    cancel,
    child_of,
    claim_by,
    family,
    finish,
    holder_of,
    keep,
    ledger_of,
    lose,
    mark,
    outcome_of,
    running,
    wait,
)  # fmt: skip

pytestmark = pytest.mark.usefixtures("lawful")


async def ended(admin: asyncpg.Connection, *claimed: Claimed) -> list[str | None]:
    return [await look(admin, c.fence.rid, "status", table="outcome") for c in claimed]


async def test_what_no_code_runs_for_is_cancelled_at_once(
    db: Database, admin: asyncpg.Connection, clock: Clock
) -> None:
    """80.4 In the line, delayed, backing off, parked on a wait or on its code, unknown; asked again it is still accepted."""
    await clock.advance(0)
    runs = {"queued": await admit_one(db, "queued"), "delayed": await admit_one(db, "delayed", delay_ms=9000)}
    made = {name: await running(db, name) for name in ("parked", "code", "unknown", "backing-off", "deferred")}
    await wait(db, made["parked"].fence, arm("signal", ms=9000))
    await finish(db, made["code"].fence, "unfit", digest="d")
    await finish(db, made["unknown"].fence, "unknown")
    await finish(db, made["backing-off"].fence, "retry", delay_ms=9000)
    await attempts.defer(db, made["deferred"].fence, reason="workflow_missing", dependency="work", delay_ms=9000)
    for name, rid in (runs | {name: c.fence.rid for name, c in made.items()}).items():
        for _ in range(2):
            assert await cancel(db, name) == ("accepted", "cancelled"), name
        status, output, error = await outcome_of(admin, rid) or ("", None, "")
        assert (status, output, json.loads(error or "")) == (
            "cancelled",
            None,
            {"code": "CANCELLED", "message": "enough"},
        )
    assert await cancel(db, "nobody") == ("unknown_run", None)


async def test_after_accepted_only_cancelled_can_be_stored(db: Database, admin: asyncpg.Connection) -> None:
    """80.4 Until its code has stopped it is not final; a result that arrives later is evidence."""
    mine = await running(db, "run")
    assert await cancel(db, "run") == ("accepted", "cancelling")
    assert await outcome_of(admin, mine.fence.rid) is None
    assert await finish(db, mine.fence, "completed", '"done"') == Ended("cancelled", "cancelled")
    assert await finish(db, mine.fence, "completed", '"done"') == Ended("cancelled", "cancelled")
    assert (await outcome_of(admin, mine.fence.rid) or ("",))[0] == "cancelled"
    assert await look(admin, mine.fence.rid, "kind", "ok", "value", "accepted", table="late") == (
        "run",
        True,
        '"done"',
        False,
    )


@pytest.mark.parametrize("ending", ["failed", "retry", "unknown", "unfit"])
async def test_whatever_a_leg_of_a_cancelling_run_brings_the_run_ends_cancelled(
    db: Database, admin: asyncpg.Connection, ending: terminal.Ending
) -> None:
    """80.4 Neither retried, nor parked, nor unknown; only a result or a failure is evidence."""
    mine = await running(db, "run")
    await mark(db, mine.fence)
    await cancel(db, "run")
    assert await finish(db, mine.fence, ending, delay_ms=0, digest="d") == Ended("cancelled", "cancelled")
    assert await look(admin, mine.fence.rid, "ok", table="late") == (False if ending == "failed" else None)
    assert await ended(admin, mine) == ["cancelled"]


async def test_the_first_reason_stays(db: Database, admin: asyncpg.Connection, clock: Clock) -> None:
    """80.4 And the first grace: asking again does not lengthen it."""
    await clock.advance(0)
    mine = await running(db, "run")
    await cancel(db, "run", reason="first", grace=10)
    await clock.advance(5)
    await cancel(db, "run", reason="second", grace=100)
    await clock.advance(5)
    await beat(db, await new_holder(db))
    assert json.loads((await outcome_of(admin, mine.fence.rid) or ("", "", ""))[2] or "")["message"] == "first"


async def test_the_holders_beat_is_told_what_to_cancel(db: Database, admin: asyncpg.Connection) -> None:
    """80.4, 40.14 With the reason; and what is no longer its own."""
    mine, other = await running(db, "run"), await running(db, "other")
    holder = await holder_of(admin, mine.fence)
    await cancel(db, "run")
    said = await beat(db, holder, held=[mine.fence, other.fence])
    assert said.cancel == (ToCancel(mine.fence.rid, 1, "enough"),)
    assert said.lost == (Held(other.fence.rid, 1),)


@pytest.mark.parametrize("how", ["stopped", "given back", "deferred", "lost", "not held", "grace"])
async def test_cancelled_is_final_when_the_code_has_stopped_or_was_fenced_out(
    db: Database, admin: asyncpg.Connection, clock: Clock, how: str
) -> None:
    """80.4 Each way the leg of a cancelling run can end; none returns it to the line."""
    await clock.advance(0)
    mine = await running(db, "run")
    holder = await holder_of(admin, mine.fence)
    await cancel(db, "run", grace=20)
    match how:
        case "stopped":
            await finish(db, mine.fence, "failed")
        case "given back":
            assert await attempts.give_back(db, mine.fence) == "given_back"
        case "deferred":
            assert await attempts.defer(db, mine.fence, reason="x", dependency="y", delay_ms=1) == attempts.Deferred(
                exhausted=False
            )
        case "lost":
            await lose(db, holder)
        case "not held":
            await beat(db, holder, answered=10**9)
        case _:
            worker = await new_holder(db)
            await clock.advance(19.9)
            await beat(db, holder, held=[mine.fence])
            assert await ended(admin, mine) == [None]
            await clock.advance(0.1)
            await beat(db, worker)
    assert await ended(admin, mine) == ["cancelled"]
    assert await keep(db, mine.fence) is STALE


async def test_without_a_grace_a_cancel_is_final_at_once(db: Database, admin: asyncpg.Connection) -> None:
    """80.4 The whole tree is fenced out by the cancel itself: no worker may be there to do it. Late words are stale."""
    root, dad, kid = await family(db, depth=2, id="root")
    await mark(db, kid.fence)
    await wait(db, root.fence)
    assert await cancel(db, "root", grace=0) == ("accepted", "cancelled")
    assert await ended(admin, root, dad, kid) == ["cancelled"] * 3
    assert await look(admin, kid.fence.rid, "ended", "reason", table="attempt") == ("lost", "grace_over")
    assert await keep(db, kid.fence) is STALE
    assert await finish(db, dad.fence) == Ended("already_terminal", "cancelled")
    assert await cancel(db, "root", grace=0) == ("accepted", "cancelled")


async def test_a_cancel_asked_again_after_the_grace_is_final(
    db: Database, admin: asyncpg.Connection, clock: Clock
) -> None:
    """80.4 Its worker is gone, and no other beats. Before the grace is over, asking again ends nothing."""
    await clock.advance(0)
    root, kid = await family(db, id="root")
    assert await cancel(db, "root", grace=10) == ("accepted", "cancelling")
    await clock.advance(9.9)
    assert await cancel(db, "root", grace=0) == ("accepted", "cancelling")
    await clock.advance(0.1)
    assert await cancel(db, "root", grace=10) == ("accepted", "cancelled")
    assert await ended(admin, root, kid) == ["cancelled"] * 2


async def test_cancel_reaches_every_existing_descendant(db: Database, admin: asyncpg.Connection) -> None:
    """80.4, B57 Queued, running, parked, unknown, in retry back-off; a parent ends after its children, in one chain at the last one's end."""
    root, dad, kid = await family(db, depth=2, id="root")
    queued = (await child_of(db, dad.fence, "queued", ordinal=2)).child
    others = []
    for place, name in enumerate(("parked", "unknown", "backing-off")):
        others.append(await claim_by(db, admin, (await child_of(db, root.fence, name, ordinal=place + 5)).child))
    await wait(db, others[0].fence, arm("signal"))
    await finish(db, others[1].fence, "unknown")
    await finish(db, others[2].fence, "retry", delay_ms=99_000)
    await wait(db, root.fence)
    assert await cancel(db, "root") == ("accepted", "cancelling")
    assert await ended(admin, *others) == ["cancelled"] * 3
    assert await look(admin, queued, "status", table="outcome") == "cancelled"
    assert [await look(admin, c.fence.rid) for c in (root, dad, kid)] == ["cancelling"] * 3
    assert await finish(db, dad.fence, "failed") == Ended("cancelled", None)
    assert await finish(db, dad.fence, "failed") == Ended("cancelled", None)
    assert await ended(admin, root, dad, kid) == [None] * 3
    assert await finish(db, kid.fence) == Ended("cancelled", "cancelled")
    assert await ended(admin, root, dad, kid) == ["cancelled"] * 3
    assert await finish(db, dad.fence, "failed") == Ended("cancelled", "cancelled")


async def test_cancel_reaches_below_a_descendant_that_has_ended(db: Database, admin: asyncpg.Connection) -> None:
    """80.4 The grandchild of a child that did not wait for it."""
    root, dad, kid = await family(db, depth=2, id="root")
    await finish(db, dad.fence)
    await cancel(db, "root")
    assert await look(admin, kid.fence.rid) == "cancelling"
    assert await mark(db, kid.fence) is CANCELLING
    assert await finish(db, root.fence) == Ended("cancelled", "cancelled")
    assert await finish(db, kid.fence) == Ended("cancelled", "cancelled")


async def test_nothing_of_a_cancelling_tree_is_claimed_begun_or_admitted(
    db: Database, admin: asyncpg.Connection
) -> None:
    """80.4 Not by a claim of the lane, nor of the tree; not after its worker was lost."""
    root, dad = await family(db, id="root")
    await child_of(db, root.fence, "waiting", ordinal=2)
    await cancel(db, "root")
    assert await claim_all(db, await new_holder(db)) == ()
    assert (
        await attempts.claim_tree(db, await new_holder(db), next_request(), root=root.fence.rid, most=9, patience=30)
    ).claimed == ()
    assert await attempts.begin(db, dad.fence) is CANCELLING
    assert await child_of(db, dad.fence, "late") is CANCELLING
    assert await lose(db, await holder_of(admin, dad.fence)) == 1
    assert await claim_all(db, await new_holder(db)) == ()
    assert await ended(admin, root, dad) == [None, "cancelled"]


async def test_when_the_grace_is_over_a_parent_ends_though_its_children_do_not(
    db: Database, admin: asyncpg.Connection, clock: Clock
) -> None:
    """80.4 A child whose own grace is longer, because it was cancelled first."""
    await clock.advance(0)
    root, dad = await family(db, id="root")
    await cancel(db, "root-1", grace=100)
    await wait(db, root.fence)
    await cancel(db, "root", grace=10)
    await clock.advance(10)
    await beat(db, await new_holder(db))
    assert await ended(admin, root, dad) == ["cancelled", None]
    await clock.advance(90)
    await beat(db, await new_holder(db))
    assert await ended(admin, dad) == ["cancelled"]


async def test_a_leg_that_ends_after_the_grace_is_not_waited_for_by_its_children(
    db: Database, admin: asyncpg.Connection, clock: Clock
) -> None:
    """80.4 The run ends with its leg: the grace of the whole tree is over."""
    await clock.advance(0)
    root, dad = await family(db, id="root")
    await cancel(db, "root", grace=10)
    await clock.advance(11)
    assert await finish(db, root.fence) == Ended("cancelled", "cancelled")
    assert await finish(db, dad.fence) == Ended("cancelled", "cancelled")


async def test_a_cancelled_child_wakes_a_parent_that_was_not_cancelled(db: Database, admin: asyncpg.Connection) -> None:
    """80.4, 60.10 A cancel goes down, not up."""
    dad, kid = await family(db)
    await wait(db, dad.fence)
    await cancel(db, "dad-1")
    await finish(db, kid.fence)
    assert await look(admin, dad.fence.rid) == "queued"


async def test_parent_and_child_ended_in_one_call_end_in_order(db: Database, admin: asyncpg.Connection) -> None:
    """80.4, 00.13 Whichever comes first in the batch; a third run beside them ends as usual."""
    for order in ((0, 1), (1, 0)):
        pair = await family(db, id=f"root{order[0]}")
        other = await running(db)
        await cancel(db, f"root{order[0]}")
        items = [
            (c.fence.rid, c.fence.fence, "completed", "1", None, None, None) for c in (*(pair[n] for n in order), other)
        ]
        rows = await batch(db, "finish_attempts", *items)
        assert [r["answer"] for r in rows] == ["cancelled", "cancelled", "committed"]
        assert await ended(admin, *pair, other) == ["cancelled", "cancelled", "completed"]
        assert [await look(admin, c.fence.rid, "value", table="late") for c in pair] == ["1", "1"]


async def test_the_value_kept_as_evidence_is_the_living_fences(db: Database, admin: asyncpg.Connection) -> None:
    """80.4, 40.3 Though a stale one stands before it in the batch."""
    root, _ = await family(db, id="root")
    await lose(db, await holder_of(admin, root.fence))
    new = await claim_by(db, admin, root.fence.rid)
    await cancel(db, "root")
    rows = await batch(
        db,
        "finish_attempts",
        *(
            (c.fence.rid, c.fence.fence, "completed", value, None, None, None)
            for c, value in ((root, '"old"'), (new, '"new"'))
        ),
    )
    assert [r["answer"] for r in rows] == ["stale", "cancelled"]
    assert await look(admin, root.fence.rid, "fence", "value", table="late") == (new.fence.fence, '"new"')


async def test_a_cancelling_run_is_ended_by_an_operator_as_cancelled(db: Database, admin: asyncpg.Connection) -> None:
    """80.4, 85.5 After `accepted` only `cancelled` can be stored, whoever ends it; its leg is fenced out."""
    mine = await running(db, "run")
    await cancel(db, "run")
    assert await terminal.end(db, "default", "run", by="ann", reason="now") == ("done", "cancelled")
    assert await finish(db, mine.fence) == Ended("already_terminal", "cancelled")


async def test_an_unknown_step_of_a_cancelled_run_stays_in_the_record(db: Database, admin: asyncpg.Connection) -> None:
    """80.4, 50.7 A redrive brings it along."""
    mine = await running(db, "run")
    await mark(db, mine.fence)
    await finish(db, mine.fence, "unknown")
    assert await cancel(db, "run") == ("accepted", "cancelled")
    assert await recovery.resolve(
        db, "default", "run", step="pay", ordinal=1, row_key=None, verdict="failed", value=ERROR, by="ann"
    ) == ("refused", "the run has ended")  # fmt: skip
    assert (await ledger_of(admin, mine.fence.rid))[-2:] == ["run.unknown", "run.cancelled"]
