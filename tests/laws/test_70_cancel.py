"""Chapters 70, 80, 85: how a plan is cancelled, ended by an operator, unknown and resolved; what cannot be done to it."""

from __future__ import annotations

import asyncio
import json
from datetime import UTC, datetime

import asyncpg
import pytest

from fencepost import ledger, plans, recovery, terminal
from fencepost.db import Database
from fencepost.terminal import Ended
from fencepost.testing import Clock
from fencepost.words import STALE
from tests.plan_table import Table, failure, result, retry, step
from tests.support import claim_all, look, new_holder
from tests.support_runs import arm, cancel, child_of, finish, wait

pytestmark = pytest.mark.usefixtures("lawful")

NOON = datetime(2031, 5, 6, 12, tzinfo=UTC)


# ── cancelled ────────────────────────────────────────────────────────────────────────────────────────────────────────


async def test_what_has_not_begun_is_cancelled_at_once_and_what_runs_is_told(
    db: Database, table: Table, clock: Clock
) -> None:
    """70.11 Blocked, ready, waiting, queued: at once, in the transaction of the cancel. What runs is told by its worker's beat."""
    await clock.set(NOON)
    await table.admit(
        "p", step("runs"), step("waits", retry=retry(2, first=9000)), step("queued"), step("ready"), step("blocked", "runs"), most=2
    )  # fmt: skip
    claimed = await table.claim()
    await table.fail(claimed["waits"])
    assert await table.states("p") == {
        "runs": "running", "waits": "waiting", "queued": "running", "ready": "ready", "blocked": "blocked",
    }  # fmt: skip
    assert await cancel(db, "p", reason="enough") == ("accepted", "cancelling")
    seen = await table.steps("p")
    assert {name: s["state"] for name, s in seen.items()} == {
        "runs": "running", "waits": "cancelled", "queued": "cancelled", "ready": "cancelled", "blocked": "cancelled",
    }  # fmt: skip
    assert {s["reason"] for name, s in seen.items() if name not in {"runs", "queued"}} == {"enough"}
    answer = await table.beat(held=[claimed["runs"].fence])
    assert [(c.rid, c.reason) for c in answer.cancel] == [(claimed["runs"].fence.rid, "enough")]
    assert await table.claim() == {}
    await clock.advance(10)
    await table.beat(held=[claimed["runs"].fence])
    assert await table.claim() == {}, "the delay of a cancelled step is over, and nothing comes of it"
    assert await table.win(claimed["runs"], o="1") == Ended("cancelled", "cancelled")
    assert await table.status("p") == "cancelled"
    assert (await table.states("p"))["runs"] == "cancelled"


async def test_the_first_cancel_is_the_one_that_counts(db: Database, table: Table, clock: Clock) -> None:
    """70.11 Its reason and its time stay; asked again it is accepted again, also when it is over."""
    await clock.set(NOON)
    rid = await table.admit("p", step("a"), step("b", "a"))
    claimed = await table.one("a")
    assert await cancel(db, "p", reason="first", grace=30) == ("accepted", "cancelling")
    await clock.advance(5)
    assert await cancel(db, "p", reason="second", grace=3000) == ("accepted", "cancelling")
    assert await look(table.admin, rid, "cancel_reason") == "first"
    assert (await look(table.admin, rid, "cancel_until") - NOON).total_seconds() == 30
    assert await table.story("p", "run.cancelling") == [("run.cancelling",)]
    await clock.advance(25)
    await table.beat(held=[claimed.fence])
    assert await table.status("p") == "cancelled"
    assert json.loads((await table.plan("p"))["error"]) == {"code": "CANCELLED", "message": "first"}
    assert await cancel(db, "p", reason="third") == ("accepted", "cancelled")
    assert await table.win(claimed) == Ended("already_terminal", "cancelled")


async def test_after_the_grace_what_still_runs_is_fenced_out(db: Database, table: Table, clock: Clock) -> None:
    """70.11 Whatever it is: begun, not begun, a workflow with a child of its own; and not before."""
    await clock.set(NOON)
    await table.admit("p", step("a"), step("b"), step("w", kind="workflow"))
    claimed = await table.claim()
    await table.begin(claimed["a"])
    await child_of(db, claimed["w"].fence, "grandchild")
    await cancel(db, "p", grace=30)
    held = [c.fence for c in claimed.values()]
    await clock.advance(29.999)
    await table.beat(held=held)
    assert await table.status("p") == "cancelling"
    await clock.advance(0.001)
    for _ in range(2):
        await table.beat(held=held)
    assert await table.status("p") == "cancelled"
    assert set((await table.states("p")).values()) == {"cancelled"}
    for c in claimed.values():
        assert await finish(db, c.fence, "completed", result({})) == Ended("already_terminal", "cancelled")


async def test_a_success_committed_before_the_cancel_keeps_its_result(db: Database, table: Table) -> None:
    """70.11 And one that comes after it is kept as evidence only (80.4)."""
    await table.admit("p", step("a"), step("b"), step("c"))
    claimed = await table.claim()
    await table.win(claimed["a"], o="kept")
    await table.fail(claimed["b"])
    await cancel(db, "p")
    assert await table.win(claimed["c"], o="late") == Ended("cancelled", "cancelled")
    assert await table.states("p") == {"a": "succeeded", "b": "failed", "c": "cancelled"}
    assert (await plans.read_result(db, "default", "p", "a", "o")).text == "kept"  # type: ignore[union-attr]  # else it fails here
    assert await plans.read_result(db, "default", "p", "c", "o") is None
    assert await table.status("p") == "cancelled", "70.12: cancelled if cancelling, also when a step failed"
    late = (await ledger.read_run(db, "default", "p/c/1") or {})["late_results"]
    assert [(e["kind"], e["ok"]) for e in late] == [("run", True)]


async def test_a_plan_of_which_nothing_runs_ends_with_its_cancel(db: Database, table: Table, clock: Clock) -> None:
    """70.11 Nobody need come for it: its tries wait in the line, wait out a delay, are parked or unknown."""
    await clock.set(NOON)
    await table.admit("p", step("a"), step("b", "a"), step("c"), most=1)
    assert await cancel(db, "p") == ("accepted", "cancelled")
    assert set((await table.states("p")).values()) == {"cancelled"}
    await table.admit(
        "q", step("a", on_lost="ask"), step("b", retry=retry(2, first=9000)), step("w", kind="workflow"), step("z"), most=3
    )  # fmt: skip
    claimed = await table.claim(3)
    await table.begin(claimed["a"])
    await plans.lose(db, claimed["a"].fence, begun=True)
    await wait(db, claimed["w"].fence, arm("signal"))
    await table.fail(claimed["b"])
    assert await cancel(db, "q") == ("accepted", "cancelled")
    assert await table.states("q") == dict.fromkeys("abwz", "cancelled")
    assert await table.claim() == {}


async def test_a_cancel_that_comes_too_late_undoes_nothing(db: Database, table: Table) -> None:
    """80.4 Of a plan that succeeded, or failed: too_late, with the outcome; its results stay."""
    await table.admit("p", step("a"))
    await table.admit("q", step("b"))
    await table.win(await table.one("a"), o="1")
    await table.fail(await table.one("b"))
    assert await cancel(db, "p") == ("too_late", "completed")
    assert await cancel(db, "q") == ("too_late", "failed")
    assert (await plans.read_result(db, "default", "p", "a", "o")).text == "1"  # type: ignore[union-attr]  # else it fails here


async def test_a_cancel_reaches_what_a_step_started(db: Database, table: Table) -> None:
    """70.14, 80.4 Through the workflow step to its child; the plan ends when the last of them has stopped."""
    await table.admit("p", step("w", kind="workflow"))
    claimed = await table.one("w")
    await child_of(db, claimed.fence, "kid")
    (kid,) = await claim_all(db, table.me)
    await cancel(db, "p")
    assert await finish(db, claimed.fence) == Ended("cancelled", None)
    assert await table.status("p") == "cancelling"
    assert await finish(db, kid.fence) == Ended("cancelled", "cancelled")
    assert (await table.status("p"), await table.states("p")) == ("cancelled", {"w": "cancelled"})


@pytest.mark.parametrize("turn", range(4))
async def test_a_cancel_and_an_end_that_meet_leave_one_outcome(db: Database, table: Table, turn: int) -> None:
    """80.1 Whoever is first: cancelled whole, or ended whole; nothing of it is left."""
    await table.admit("p", step("a"), step("b"), most=turn % 2 + 1)
    claimed = await table.claim()
    given, *_ = await asyncio.gather(cancel(db, "p"), *(table.win(c) for c in claimed.values()))
    status = await table.status("p")
    if turn % 2 == 0:
        assert (given[0], status) == ("accepted", "cancelled"), "b had not begun, so it cannot have succeeded"
    assert (given[0], status) in {("accepted", "cancelled"), ("too_late", "completed")}
    assert await table.flying("p") == 0
    assert await table.claim() == {}


# ── ended by an operator ─────────────────────────────────────────────────────────────────────────────────────────────


async def test_an_operator_who_ends_a_plan_ends_what_runs_of_it(db: Database, table: Table, clock: Clock) -> None:
    """85.5, 80.6 Its tries are fenced out with it; nothing of it is claimed, retried or woken afterwards."""
    await clock.set(NOON)
    await table.admit(
        "p", step("a"), step("b", on_lost="ask"), step("w", retry=retry(2, first=1000)), step("z"), step("y", "a"), most=4
    )  # fmt: skip
    claimed = await table.claim(3)
    await table.begin(claimed["a"])
    await table.begin(claimed["b"])
    await plans.lose(db, claimed["b"].fence, begun=True)
    await table.fail(claimed["w"])
    assert await terminal.end(db, "default", "p", by="me", reason="enough") == ("done", "failed")
    assert await terminal.end(db, "default", "p", by="me", reason="enough") == ("done", "failed")
    assert await table.flying("p") == 0
    assert await finish(db, claimed["a"].fence, "completed", result({})) == Ended("already_terminal", "failed")
    await clock.advance(2)
    await table.beat()
    assert await table.claim() == {}
    seen = await table.plan("p")
    assert (seen["status"], json.loads(seen["error"])["code"]) == ("failed", "OPERATOR_ENDED")
    assert set(seen["counts"]) <= {"failed", "cancelled"}


async def test_an_operator_who_ends_a_try_ends_that_step(db: Database, table: Table) -> None:
    """85.5 The plan goes on as after any failure."""
    await table.admit("p", step("a"), step("b", "a"), step("c"))
    claimed = await table.claim()
    assert await terminal.end(db, "default", "p/a/1", by="me", reason="r") == ("done", "failed")
    assert await table.states("p") == {"a": "failed", "b": "skipped", "c": "running"}
    assert await table.win(claimed["a"]) == Ended("already_terminal", "failed")
    await table.win(claimed["c"])
    assert await table.status("p") == "failed"


# ── unknown ──────────────────────────────────────────────────────────────────────────────────────────────────────────


async def unknown(table: Table, name: str = "a") -> str:
    """The next try of this step is begun, and lost; its run's id."""
    claimed = (await table.claim(1))[name]
    await table.begin(claimed)
    assert await plans.lose(table.db, claimed.fence, begun=True) == "lost"
    return claimed.id


async def test_a_plan_is_unknown_when_nothing_moves_but_what_nobody_knows(table: Table, clock: Clock) -> None:
    """70.12 Not while a step runs, is ready for a slot, or waits out a delay; then it is, until it is resolved."""
    await clock.set(NOON)
    await table.admit(
        "p", step("a", on_lost="ask"), step("b", retry=retry(2, first=5000)), step("c", "b"), step("d", "a"), most=2
    )
    await unknown(table)
    assert await table.status("p") == "running"
    await table.fail(await table.one("b"))
    assert (await table.states("p"))["b"] == "waiting"
    assert await table.status("p") == "running"
    await clock.advance(5)
    await table.beat()
    await table.through("b")
    assert (await table.status("p"), (await table.states("p"))["c"]) == ("running", "running")
    await table.through("c")
    seen = await table.plan("p")
    assert (seen["status"], seen["counts"]) == ("unknown", {"unknown": 1, "succeeded": 2, "blocked": 1})
    assert json.loads(seen["error"]) == {"code": "STEP_OUTCOME_UNKNOWN", "message": "1 of its steps are unknown"}
    assert await table.story("p", "run.unknown") == [("run.unknown",)]
    assert await table.resolve("p/a/1", "completed", result({})) == ("done", None)
    await table.through("d")
    assert await table.status("p") == "completed"


async def test_what_is_ready_and_finds_every_slot_unknown_does_not_move(table: Table) -> None:
    """70.12 An unknown step holds its slot (its process may run): the plan is unknown although a step is ready."""
    await table.admit("p", step("a", on_lost="ask"), step("b"), most=1)
    await unknown(table)
    assert (await table.status("p"), await table.states("p")) == ("unknown", {"a": "unknown", "b": "ready"})
    assert await table.claim() == {}
    assert await table.resolve("p/a/1", "failed", failure("timeout", "I looked")) == ("done", None)
    await table.through("b")
    assert await table.status("p") == "failed"


@pytest.mark.parametrize(
    ("verdict", "value", "state", "reason"),
    [
        ("completed", result({"o": "1"}), "succeeded", None),
        ("failed", failure("timeout", "I looked"), "failed", "I looked"),
        ("again", None, "running", None),
    ],
)
async def test_an_unknown_step_is_resolved_once_and_the_plan_goes_on(
    table: Table, verdict: str, value: str | None, state: str, reason: str | None
) -> None:
    """85.5 Each way; the same word again has no second effect, another one is refused."""
    await table.admit("p", step("a", on_lost="ask"), step("b", "a"))
    await unknown(table)
    assert await table.status("p") == "unknown"
    for _ in range(2):
        assert await table.resolve("p/a/1", verdict, value) == ("done", None)  # type: ignore[arg-type]  # a verdict of the table above
    seen = await table.steps("p")
    assert (seen["a"]["state"], seen["a"]["reason"]) == (state, reason)
    assert await table.status("p") == ("failed" if verdict == "failed" else "running")
    assert (await table.resolve("p/a/1", "completed", "{}"))[0] == "refused"
    assert await table.story("p/a/1", "run.resolved") == [("run.resolved",)]
    if verdict == "again":
        assert await table.story("p", "plan.step_resumed") == [("plan.step_resumed", "a")]
        claimed = await table.one("a")
        assert (claimed.id, claimed.fence.number, claimed.losses) == ("p/a/1", 2, 0)
        await table.win(claimed)
    if verdict != "failed":
        await table.through("b")
    assert await table.status("p") == ("failed" if verdict == "failed" else "completed")


@pytest.mark.parametrize("verdict", ["completed", "failed", "again", "lookup"])
async def test_a_plan_itself_is_not_resolved(table: Table, verdict: str) -> None:
    """85.5 Its steps are: it has no code that could be run again, and no outcome but theirs."""
    rid = await table.admit("p", step("a", on_lost="ask"), step("b", "a"))
    await unknown(table)
    answer, why = await table.resolve("p", verdict, '{"code": "X", "message": "m"}')  # type: ignore[arg-type]  # a verdict of the table above
    assert (answer, why) == ("refused", "a plan is resolved by its steps: p/a/1")
    assert await look(table.admin, rid) == "unknown"
    assert await table.claim() == {}


@pytest.mark.parametrize(
    "value",
    ['{"outputs": 1}', '{"outputs": {"o": 1}}', '{"outputs": {"o": {"text": "1"}}}', '{"outputs": []}', "1", "null"],
)
async def test_an_operator_who_brings_no_outputs_is_told_how_they_look(table: Table, value: str) -> None:
    """85.5 A value that a step cannot have is refused in words; one without outputs is a step without outputs."""
    await table.admit("p", step("a", on_lost="ask"), step("b", "a"))
    await unknown(table)
    answer, why = await table.resolve("p/a/1", "completed", value)
    if value in {"1", "null"}:
        assert answer == "done"
        return
    assert answer == "refused"
    assert why is not None
    assert why.startswith('a step ends with {"outputs": {NAME: {"media_type"')
    assert await table.status("p") == "unknown"


async def test_a_plan_is_not_woken_redriven_or_claimed(table: Table, admin: asyncpg.Connection) -> None:
    """85.5 What is an operator's verb for workflows is refused for a plan, in words; no worker ever holds one."""
    await table.admit("p", step("a"))
    assert await recovery.wake(table.db, "default", "p") == ("refused", "parked")
    await table.through("a")
    assert await recovery.redrive(table.db, "default", "p", new_id="q", from_step=None, again=[], by="me") == (
        "refused",
        "only workflows are redriven: run the plan again under another id",
    )
    assert await recovery.redrive(table.db, "default", "p/a/1", new_id="q", from_step=None, again=[], by="me") == (
        "refused",
        "only workflows are redriven: run the plan again under another id",
    )
    assert (
        await admin.fetchval(
            "select count(*) from fencepost.event e join fencepost.run r using (rid) where r.id = 'p' and e.type like 'attempt.%'"
        )
        == 0
    )


async def test_a_lost_answer_to_a_cancel_is_asked_again_by_a_worker_that_lives(db: Database, table: Table) -> None:
    """00.3 The stop that its worker makes of it ends it once; a stale word of the same try is stale."""
    await table.admit("p", step("a"))
    worker = await new_holder(db)
    claimed = await table.one("a", holder=worker)
    await cancel(db, "p")
    for _ in range(3):
        assert (await finish(db, claimed.fence, "unknown")).how == "cancelled"
    assert await table.status("p") == "cancelled"
    assert await finish(db, type(claimed.fence)(claimed.fence.rid, 1, worker)) in {
        STALE, Ended("already_terminal", "cancelled"),
    }  # fmt: skip
