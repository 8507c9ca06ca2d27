"""Chapter 50: what a run has done is never done again in silence."""

from __future__ import annotations

import asyncio
import json

import asyncpg
import pytest

from fencepost import ledger, recovery, steps
from fencepost.attempts import Claimed
from fencepost.db import Database
from fencepost.steps import Kept, KeptBefore
from fencepost.suspension import Parked, Started
from fencepost.testing import Clock
from fencepost.words import CANCELLING, STALE
from tests.support import claim_all, lane_of, look, new_holder, tables
from tests.support_runs import (
    ERROR,
    arm,
    batch,
    beat,
    blocked_by,
    boundary,
    cancel,
    child_of,
    claim_by,
    drop,
    finish,
    history,
    holder_of,
    holding,
    keep,
    ledger_of,
    lose,
    mark,
    running,
    villain_of,
    wait,
)  # fmt: skip

pytestmark = pytest.mark.usefixtures("lawful", "company")


async def test_a_committed_value_is_the_text_it_was_encoded_to(db: Database, admin: asyncpg.Connection) -> None:
    """50.1 Not what some JSON type makes of it: order, blanks and digits stay."""
    mine = await running(db)
    text = '{"b":1.10,  "a":[1e3,"\\u00e9é"]}'
    assert isinstance(await keep(db, mine.fence, "calc", text, repeatable=True), Kept)
    assert await boundary(admin, mine.fence.rid, "calc", "value") == text
    new = await villain_of(db, admin, mine)
    assert [(r[1], r[3], r[8]) for r in history(new)] == [("calc", "kept", text)]


async def test_a_committed_value_never_changes(db: Database, admin: asyncpg.Connection) -> None:
    """50.1 The first write wins, of the same fence and of the next; a failure is kept like a value."""
    mine = await running(db)
    first = await keep(db, mine.fence, "calc", "1", repeatable=True)
    assert await keep(db, mine.fence, "calc", "2", repeatable=True) == KeptBefore(first.seq, "kept", "1")
    assert await keep(db, mine.fence, "calc", ERROR, ok=False, repeatable=True) == KeptBefore(first.seq, "kept", "1")
    await keep(db, mine.fence, "fall", ERROR, ok=False)
    new = await villain_of(db, admin, mine)
    assert await keep(db, new.fence, "calc", "3", repeatable=True) == KeptBefore(first.seq, "kept", "1")
    before = await keep(db, new.fence, "fall", "4")
    assert isinstance(before, KeptBefore)
    assert (before.state, before.value) == ("failed", ERROR)


async def test_a_keep_whose_answer_was_lost_is_asked_again_and_answered_the_same(
    db: Database, admin: asyncpg.Connection
) -> None:
    """50.1, 00.3 The same fence with the same value: the same place, and no second entry."""
    mine = await running(db)
    first = await keep(db, mine.fence, "calc", "1")
    seq = await look(admin, mine.fence.rid, "seq")
    assert await keep(db, mine.fence, "calc", "1") == first
    assert await look(admin, mine.fence.rid, "seq") == seq


async def test_a_kept_null_is_not_nothing(db: Database, admin: asyncpg.Connection) -> None:
    """50.1, 00.16 JSON null is a text; SQL null is no value."""
    mine = await running(db)
    await keep(db, mine.fence, "none", "null")
    await keep(db, mine.fence, "void", None)
    assert await boundary(admin, mine.fence.rid, "none", "value", "value is null") == ("null", False)
    assert await boundary(admin, mine.fence.rid, "void", "value is null") is True
    assert await keep(db, mine.fence, "void", "1") == KeptBefore(4, "kept", None)


async def test_a_mark_names_its_fence_and_stands_in_the_way_of_the_next(
    db: Database, admin: asyncpg.Connection
) -> None:
    """50.2 The next attempt, which looks exactly like the last, is told `standing`; marking again is harmless for its owner alone."""
    mine = await running(db)
    assert await mark(db, mine.fence) == "marked"
    assert await mark(db, mine.fence) == "marked"
    assert await boundary(admin, mine.fence.rid, "pay", "state", "fence") == ("marked", mine.fence.fence)
    new = await villain_of(db, admin, mine)
    assert await mark(db, new.fence) == "standing"
    assert await boundary(admin, mine.fence.rid, "pay", "state", "fence") == ("marked", mine.fence.fence)
    assert [(r[1], r[3], r[9]) for r in history(new)] == [("pay", "marked", str(mine.fence.fence))]


async def test_a_mark_is_taken_over_only_when_the_taker_says_that_it_may(
    db: Database, admin: asyncpg.Connection
) -> None:
    """50.2, 50.11 And the old mark's place in the ledger is not lost."""
    mine = await running(db)
    await mark(db, mine.fence)
    new = await villain_of(db, admin, mine)
    assert await mark(db, new.fence, again=True) == "marked"
    assert await boundary(admin, mine.fence.rid, "pay", "fence", "number") == (new.fence.fence, 2)
    assert await keep(db, mine.fence) is STALE
    assert isinstance(await keep(db, new.fence), Kept)
    assert await mark(db, new.fence, again=True) == "done"
    assert [t for t in await ledger_of(admin, mine.fence.rid) if t.startswith("step.")] == [
        "step.marked",
        "step.marked",
        "step.kept",
    ]


async def test_a_dead_fence_keeps_and_marks_nothing(db: Database, admin: asyncpg.Connection) -> None:
    """50.2, 40.3 The usurper looks exactly like the holder; the tables stay as they are."""
    mine = await running(db)
    await mark(db, mine.fence)
    new = await villain_of(db, admin, mine)
    before = await tables(admin)
    assert await keep(db, mine.fence) is STALE
    assert await keep(db, mine.fence, "other", "2") is STALE
    assert await mark(db, mine.fence, "third") is STALE
    assert await steps.open_map(
        db, mine.fence, "rows", 1, hash="h", start=0, keys=["a"], inputs=["1"], repeatable=True, whole=True
    ) is STALE  # fmt: skip
    assert await tables(admin) == before
    assert new.fence.number == 2


async def test_a_late_commit_by_the_marks_fence_is_kept_as_evidence_once(
    db: Database, admin: asyncpg.Connection
) -> None:
    """50.2 The record does not change; asked again the answer is the same; another fence's evidence is nothing."""
    mine = await running(db)
    await mark(db, mine.fence)
    new = await villain_of(db, admin, mine)
    assert await steps.deliver_late(db, mine.fence, "pay", 1, ok=True, value='"paid"') is True
    assert await steps.deliver_late(db, mine.fence, "pay", 1, ok=True, value='"paid"') is True
    assert await steps.deliver_late(db, mine.fence, "pay", 1, ok=True, value='"twice"') is False
    assert await steps.deliver_late(db, new.fence, "pay", 1, ok=True, value='"forged"') is False
    assert await boundary(admin, mine.fence.rid, "pay", "state", "value") == ("marked", None)
    rows = await admin.fetch("select fence, ok, value, accepted from fencepost.late")
    assert [tuple(r) for r in rows] == [(mine.fence.fence, True, '"paid"', False)]


async def test_late_evidence_is_accepted_by_one_command(db: Database, admin: asyncpg.Connection) -> None:
    """50.2, 85.5 It becomes the value of the step, with an audit line, and the run continues."""
    mine = await running(db, "late", on_lost="replay")
    await mark(db, mine.fence)
    new = await villain_of(db, admin, mine)
    await finish(db, new.fence, "unknown")
    await steps.deliver_late(db, mine.fence, "pay", 1, ok=True, value='"paid"')
    answer = await recovery.resolve(
        db, "default", "late", step="pay", ordinal=1, row_key=None, verdict="late", value=None, by="ann"
    )
    assert answer == ("done", None)
    assert await boundary(admin, mine.fence.rid, "pay", "state", "value") == ("kept", '"paid"')
    assert (await ledger_of(admin, mine.fence.rid))[-3:] == ["step.kept", "late.accepted", "run.woken"]
    assert await look(admin, mine.fence.rid) == "queued"


async def test_evidence_after_the_step_was_resolved_is_nothing(db: Database, admin: asyncpg.Connection) -> None:
    """50.2 What is settled is settled."""
    mine = await running(db, "gone")
    await mark(db, mine.fence)
    new = await villain_of(db, admin, mine)
    await mark(db, new.fence, again=True)
    assert await steps.deliver_late(db, mine.fence, "pay", 1, ok=True, value="1") is False


def kept_item(claimed: Claimed, name: str, value: str) -> tuple[object, ...]:
    return (claimed.fence.rid, claimed.fence.fence, "step", name, 1, "h", True, True, value)


async def test_results_have_their_places_in_the_order_of_their_commits(db: Database, admin: asyncpg.Connection) -> None:
    """50.4 Across steps, waits and children; a batch gives places in the order of its items; the claim hands them out in that order."""
    mine = await running(db, "order")
    rows = await batch(
        db, "keep_steps", *(kept_item(mine, name, value) for name, value in (("c", "3"), ("a", "1"), ("b", "2")))
    )
    assert [(r["answer"], r["seq"]) for r in rows] == [("kept", 3), ("kept", 4), ("kept", 5)]
    await wait(db, mine.fence, arm("sleep", "nap", ms=0), park=False)
    await keep(db, mine.fence, "d", "4", repeatable=True)
    new = await villain_of(db, admin, mine)
    assert [r[1] for r in history(new)] == ["c", "a", "b", "nap", "d"]
    seqs = [r[4] for r in history(new)]
    assert seqs == sorted(seqs)


async def test_the_same_boundary_twice_in_a_batch_is_one_boundary(db: Database, admin: asyncpg.Connection) -> None:
    """50.4, 00.13 The second is told to ask alone, and neither delays the third."""
    mine = await running(db)
    rows = await batch(
        db, "keep_steps", *(kept_item(mine, name, value) for name, value in (("a", "1"), ("a", "2"), ("b", "3")))
    )
    assert [r["answer"] for r in rows] == ["kept", "again", "kept"]
    assert await boundary(admin, mine.fence.rid, "a", "value") == "1"


async def test_in_a_batch_a_locked_run_is_again_even_when_every_one_is(db: Database, dsn: str) -> None:
    """50.4, 00.13 Nobody acts on a row it did not lock; nobody waits for a neighbour's."""
    one, two = await running(db), await running(db)
    items = [kept_item(one, "a", "1"), kept_item(two, "a", "1")]
    async with holding(dsn, one.fence.rid, two.fence.rid):
        assert [r["answer"] for r in await batch(db, "keep_steps", *items)] == ["again", "again"]
    async with holding(dsn, one.fence.rid):
        assert [r["answer"] for r in await batch(db, "keep_steps", *items)] == ["again", "kept"]


async def unfit(db: Database, claimed: Claimed, digest: str = "d1") -> None:
    ended = await finish(
        db, claimed.fence, "unfit", json.dumps({"code": "NONDETERMINISM", "message": "x"}), digest=digest
    )
    assert ended.how == "parked"


async def test_a_history_that_does_not_fit_parks_the_run_on_its_code_and_changes_nothing_else(
    db: Database, admin: asyncpg.Connection
) -> None:
    """50.4 The error is shown; no try is charged; boundaries stay."""
    mine = await running(db, "odd")
    await keep(db, mine.fence, "a")
    before = await admin.fetch("select * from fencepost.boundary")
    await unfit(db, mine)
    assert await admin.fetch("select * from fencepost.boundary") == before
    assert await look(admin, mine.fence.rid, "state", "park", "code_digest", "tries", "fence", "due_at") == (
        "parked",
        "code",
        "d1",
        0,
        None,
        None,
    )
    shown = await ledger.read_run(db, "default", "odd")
    assert shown is not None
    assert "NONDETERMINISM" in shown["error"]
    assert await claim_all(db, await new_holder(db)) == ()


async def test_a_run_parked_on_its_code_is_claimed_again_by_other_code_of_its_lane_only(
    db: Database, admin: asyncpg.Connection
) -> None:
    """50.4 Not by the same digest, another workflow, or another lane; and by an operator."""
    mine = await running(db, "odd")
    await unfit(db, mine)
    lane, other = await lane_of(db), await lane_of(db, "r2")
    worker = await new_holder(db)
    assert await recovery.register_workflows(db, worker, lane, {"work": "d1"}) == 0
    assert await recovery.register_workflows(db, worker, lane, {"works": "d2"}) == 0
    assert await recovery.register_workflows(db, worker, other, {"work": "d2"}) == 0
    assert await look(admin, mine.fence.rid) == "parked"
    assert await recovery.register_workflows(db, worker, lane, {"else": "d1", "work": "d2"}) == 1
    assert await look(admin, mine.fence.rid, "state", "park", "code_digest", "trouble") == ("queued", None, None, None)
    again = await claim_by(db, admin, mine.fence.rid)
    await unfit(db, again, "d2")
    assert await recovery.wake(db, "default", "odd") == ("done", "queued")
    assert (await claim_by(db, admin, mine.fence.rid)).fence.number == 3


async def test_a_wait_of_a_run_parked_on_its_code_does_not_wake_it(
    db: Database, clock: Clock, admin: asyncpg.Connection
) -> None:
    """50.4 Neither its hour nor its signal: its code would not fit either."""
    mine = await running(db, "odd")
    await wait(db, mine.fence, arm("sleep", "nap", ms=1000), arm("signal"), park=False)
    await unfit(db, mine)
    await clock.advance(3600)
    await beat(db, await new_holder(db))
    assert await look(admin, mine.fence.rid, "state", "park") == ("parked", "code")


async def test_registering_waits_for_a_run_that_somebody_has_locked(
    db: Database, dsn: str, admin: asyncpg.Connection
) -> None:
    """50.4 A run that is locked for a moment is not passed over: nobody would come back for it."""
    mine = await running(db, "odd")
    await unfit(db, mine)
    lane, worker = await lane_of(db), await new_holder(db)
    async with holding(dsn, mine.fence.rid) as other:
        asking = asyncio.create_task(recovery.register_workflows(db, worker, lane, {"work": "d2"}))
        await blocked_by(admin, other)
        assert not asking.done()
    assert await asking == 1


async def test_a_declared_retry_keeps_successes_and_asks_failures_again(
    db: Database, admin: asyncpg.Connection
) -> None:
    """50.10, 50.4 All that was recorded may stay unasked; what failed is done anew, and its place in the ledger stays."""
    mine = await running(db)
    await keep(db, mine.fence, "good", "1", repeatable=True)
    await mark(db, mine.fence, "bad")
    await keep(db, mine.fence, "bad", ERROR, ok=False)
    await mark(db, mine.fence, "half", repeatable=True)
    assert (await finish(db, mine.fence, "retry", delay_ms=0, most_tries=3)).how == "retrying"
    new = await claim_by(db, admin, mine.fence.rid)
    assert [(r[1], r[3], r[6]) for r in history(new)] == [
        ("good", "kept", True),
        ("bad", "set_aside", True),
        ("half", "marked", True),
    ]
    assert await mark(db, new.fence, "bad") == "marked"
    assert isinstance(await keep(db, new.fence, "bad", "2"), Kept)
    assert await keep(db, new.fence, "good", "9", repeatable=True) == KeptBefore(3, "kept", "1")
    assert [t for t in await ledger_of(admin, mine.fence.rid) if t.startswith("step.")] == [
        "step.kept", "step.marked", "step.failed", "step.marked", "step.marked", "step.kept",
    ]  # fmt: skip


async def test_a_failure_set_aside_may_be_kept_without_a_mark(db: Database, admin: asyncpg.Connection) -> None:
    """50.10 As a repeatable step's is."""
    mine = await running(db)
    await keep(db, mine.fence, "bad", ERROR, ok=False, repeatable=True)
    await finish(db, mine.fence, "retry", delay_ms=0)
    new = await claim_by(db, admin, mine.fence.rid)
    assert isinstance(await keep(db, new.fence, "bad", "2", repeatable=True), Kept)
    assert await boundary(admin, mine.fence.rid, "bad", "state", "value", "loose") == ("kept", "2", False)


async def test_a_wait_that_lost_a_race_is_armed_again_after_a_declared_retry(
    db: Database, admin: asyncpg.Connection
) -> None:
    """50.10, 60.5 Otherwise the code would wait for what can never come."""
    mine = await running(db, "race")
    await wait(db, mine.fence, arm("signal", "loser", ms=500), park=False)
    await wait(db, mine.fence, drop("signal", "loser"), park=False)
    assert await boundary(admin, mine.fence.rid, "loser", kind="signal") == "cancelled"
    await finish(db, mine.fence, "retry", delay_ms=0)
    new = await claim_by(db, admin, mine.fence.rid)
    assert isinstance(await wait(db, new.fence, arm("signal", "loser", ms=700)), Parked)
    assert await boundary(admin, mine.fence.rid, "loser", "state", "asked_ms", kind="signal") == ("armed", 700)
    types = await ledger_of(admin, mine.fence.rid)
    assert [t for t in types if t.startswith("wait.")] == ["wait.armed", "wait.cancelled", "wait.armed"]


async def test_a_child_that_lost_a_race_is_waited_for_again_after_a_declared_retry(
    db: Database, admin: asyncpg.Connection
) -> None:
    """50.10, 60.10 The same child: a second is never started."""
    mine = await running(db, "race")
    started = await child_of(db, mine.fence, "race-kid")
    await wait(db, mine.fence, drop("child", "kid"), park=False)
    await finish(db, mine.fence, "retry", delay_ms=0)
    new = await claim_by(db, admin, mine.fence.rid)
    again = await child_of(db, new.fence, "race-kid")
    assert isinstance(again, Started)
    assert again.child == started.child
    assert await boundary(admin, mine.fence.rid, "kid", kind="child") == "armed"
    assert await admin.fetchval("select count(*) from fencepost.run") == 2


async def test_a_mark_without_its_fence_stays_marked_and_nothing_deletes_it(
    db: Database, admin: asyncpg.Connection
) -> None:
    """50.7 After a failed terminal and after fence loss: leased by nobody, unknown from then on, also in what is shown."""
    lost, failed = await running(db, "lost", on_lost="fail"), await running(db, "failed", on_lost="ask")
    for claimed in (lost, failed):
        await mark(db, claimed.fence)
        await lose(db, await holder_of(admin, claimed.fence))
    await db.call("end_run", "default", "failed", "ann", "enough")
    for run, claimed in (("lost", lost), ("failed", failed)):
        assert await boundary(admin, claimed.fence.rid, "pay", "state", "fence") == ("marked", claimed.fence.fence)
        shown = await ledger.read_run(db, "default", run)
        assert shown is not None
        assert [(s["name"], s["state"]) for s in shown["steps"]] == [("pay", "unknown")]
        assert await look(admin, claimed.fence.rid, "fence") is None
    await db.call("retain", 0, 10**9, 100)
    assert await admin.fetchval("select count(*) from fencepost.boundary where state = 'marked'") == 2


async def test_nothing_is_marked_in_a_cancelling_run_and_what_happened_is_kept(
    db: Database, admin: asyncpg.Connection
) -> None:
    """50.2, 80.4 Nothing new may begin; a step that was done was done."""
    mine = await running(db, "stop")
    await mark(db, mine.fence, "before")
    assert (await cancel(db, "stop"))[0] == "accepted"
    assert await mark(db, mine.fence, "after") is CANCELLING
    assert await boundary(admin, mine.fence.rid, "after") is None
    assert isinstance(await keep(db, mine.fence, "before"), Kept)
