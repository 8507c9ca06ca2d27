"""Chapter 70: what an attempt of a step brings, when it is tried again, and what may be recorded late."""

from __future__ import annotations

import asyncio
import json
from datetime import UTC, datetime, timedelta

import asyncpg
import pytest

from fencepost import attempts, plans, terminal
from fencepost.db import Database
from fencepost.errors import BrokenLaw
from fencepost.terminal import Ended
from fencepost.testing import Clock
from fencepost.words import STALE
from tests.plan_table import JSON, TEXT, Table, digest_of, failure, result, retry, step
from tests.support import look, new_holder, next_request
from tests.support_runs import arm, cancel, lose, mark, wait

pytestmark = pytest.mark.usefixtures("lawful")

NOON = datetime(2031, 5, 6, 12, tzinfo=UTC)


# ── results ──────────────────────────────────────────────────────────────────────────────────────────────────────────


async def test_a_succeeded_attempt_commits_its_named_outputs(db: Database, table: Table) -> None:
    """70.6 With media type, size, digest, and the text verbatim; in the transaction that ends the step."""
    rid = await table.admit("p", step("a"), step("b", "a"))
    text = ' {"a": 1}\n☃ '
    assert await table.win(await table.one("a"), notes=text, empty="") == Ended("committed", "completed")
    found = await plans.read_result(db, "default", "p", "a", "notes")
    assert found == plans.Result(TEXT, len(text.encode()), digest_of(text), text, None, rid)
    assert (await plans.read_result(db, "default", "p", "a", "empty")).text == ""  # type: ignore[union-attr]  # else it fails here
    assert await plans.read_result(db, "default", "p", "a", "other") is None
    seen = (await table.steps("p"))["a"]
    assert (seen["state"], seen["outcome"], set(seen["outputs"])) == ("succeeded", "success", {"notes", "empty"})
    assert seen["outputs"]["notes"]["digest"] == digest_of(text)


async def test_a_large_output_is_named_by_its_place(db: Database, table: Table) -> None:
    """70.6 What lies in the content store has its digest here, and no text."""
    await table.admit("p", step("a"))
    made = {"big": {"media_type": "application/x-tar", "size": 10**10, "digest": "sha256:ab", "place": "ab/cd"}}
    claimed = await table.one("a")
    await terminal.finish(db, claimed.fence, "completed", json.dumps({"outputs": made}))
    found = await plans.read_result(db, "default", "p", "a", "big")
    assert found is not None
    assert (found.size, found.digest, found.text, found.place) == (10**10, "sha256:ab", None, "ab/cd")


async def test_a_result_is_written_once(db: Database, table: Table, admin: asyncpg.Connection) -> None:
    """70.6 The same word again gets the same answer (80.2); another result of the same fence breaks the law; the first stands."""
    await table.admit("p", step("a"), step("b", "a"))
    claimed = await table.one("a")
    for _ in range(3):
        assert await table.win(claimed, o="1") == Ended("committed", "completed")
    with pytest.raises(BrokenLaw, match="LW801"):
        await table.win(claimed, o="2")
    with pytest.raises(BrokenLaw, match="LW801"):
        await table.fail(claimed)
    assert (await plans.read_result(db, "default", "p", "a", "o")).text == "1"  # type: ignore[union-attr]  # else it fails here
    assert await admin.fetchval("select count(*) from fencepost.result") == 1
    assert (await table.states("p"))["a"] == "succeeded"


async def test_an_attempt_that_did_not_succeed_commits_no_result(db: Database, table: Table) -> None:
    """70.6 Failed, retried, and succeeded: the one result is the last try's."""
    await table.admit("p", step("a", retry=retry(2)), step("b"))
    claimed = await table.claim()
    error = failure()[:-1] + ', "outputs": {"o": {"media_type": "text/plain", "size": 1, "digest": "sha256:x"}}}'
    await terminal.finish(db, claimed["a"].fence, "failed", error)
    assert await plans.read_result(db, "default", "p", "a", "o") is None
    await table.win(await table.one("a"), o="second")
    assert (await plans.read_result(db, "default", "p", "a", "o")).text == "second"  # type: ignore[union-attr]  # else it fails here
    assert (await table.steps("p"))["a"]["child"] == "p/a/2"


async def test_a_stale_result_commits_nothing(db: Database, table: Table, admin: asyncpg.Connection) -> None:
    """70.9 Of a claim that was given back, of a try that ended, with the fence of another step: nothing is written."""
    await table.admit("p", step("a", retry=retry(2)), step("b"), step("c", "a"))
    claimed = await table.claim()
    old = claimed["a"]
    await attempts.give_back(db, old.fence)
    assert await table.win(old, o="late") is STALE
    new = await table.one("a")
    crossed = type(new.fence)(new.fence.rid, new.fence.number, claimed["b"].fence.fence)
    assert await terminal.finish(db, crossed, "completed", result({"o": "another's"})) is STALE
    assert await table.win(old, o="late") is STALE
    await table.fail(new)
    assert await table.fail(old) == Ended("already_terminal", "failed")
    assert (await table.win(old, o="late")) == Ended("already_terminal", "failed")
    assert await admin.fetchval("select count(*) from fencepost.result") == 0
    assert (await table.states("p")) == {"a": "running", "b": "running", "c": "blocked"}


async def test_a_success_whose_answer_was_lost_is_recorded_again_and_not_run_again(table: Table) -> None:
    """70.7 The worker says it until it is answered; nothing is executed for that: one try, one result."""
    await table.admit("p", step("a", retry=retry(5, on=["failure", "timeout", "launch_error", "invalid_output"])))
    claimed = await table.one("a")
    answers = await asyncio.gather(*(table.win(claimed, o="1") for _ in range(5)))
    assert set(answers) == {Ended("committed", "completed")}
    assert await table.claim() == {}
    assert (await table.steps("p"))["a"]["attempts"] == 1


# ── retries ──────────────────────────────────────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize("outcome", ["failure", "timeout", "launch_error", "invalid_output"])
async def test_a_step_is_tried_again_for_an_outcome_it_lists(table: Table, outcome: str) -> None:
    """70.7 And for no other."""
    others = [o for o in ("failure", "timeout", "launch_error", "invalid_output") if o != outcome]
    await table.admit("p", step("a", retry=retry(2, on=[outcome])), step("b", retry=retry(2, on=others)))
    claimed = await table.claim()
    await table.fail(claimed["a"], outcome)
    await table.fail(claimed["b"], outcome)
    seen = await table.steps("p")
    assert (seen["a"]["state"], seen["b"]["state"], seen["b"]["outcome"]) == ("running", "failed", outcome)
    await table.win(await table.one("a"))
    assert (await table.steps("p"))["a"]["attempts"] == 2


async def test_an_error_without_an_outcome_is_a_failure(db: Database, table: Table) -> None:
    """70.7 A workflow's own error; one that names an outcome that is none, or that no worker reports."""
    await table.admit("p", *(step(f"s{n}", retry=retry(2, on=["timeout"])) for n in range(4)))
    claimed = await table.claim()
    for name, error in zip(
        claimed,
        (
            {"code": "WORKFLOW_ERROR", "message": "m"},
            {"code": "STEP_FAILED", "message": "m", "outcome": "lost"},
            {"code": "STEP_FAILED", "message": "m", "outcome": "success"},
            {"code": "TIMED_OUT", "message": "m"},
        ),
        strict=True,
    ):
        await terminal.finish(db, claimed[name].fence, "failed", json.dumps(error))
    seen = await table.steps("p")
    assert [(s["state"], s["outcome"]) for s in seen.values()] == [("failed", "failure")] * 3 + [("running", None)]


async def test_a_step_is_tried_max_attempts_times(table: Table) -> None:
    """70.7 Executed tries; what was given back is none."""
    await table.admit("p", step("a", retry=retry(3)))
    for n in (1, 2, 3):
        claimed = await table.one("a")
        await attempts.give_back(table.db, claimed.fence)
        claimed = await table.one("a")
        assert claimed.id == f"p/a/{n}"
        await table.fail(claimed)
    assert await table.claim() == {}
    seen = (await table.steps("p"))["a"]
    assert (seen["state"], seen["attempts"], seen["outcome"]) == ("failed", 3, "failure")
    assert seen["reason"] == "it exited with 3"


@pytest.mark.parametrize(
    ("how", "delays"),
    [
        (retry(5, "none", 700), [700, 700, 700, 700]),
        (retry(5, "linear", 700), [700, 1400, 2100, 2800]),
        (retry(5, "exponential", 700), [700, 1400, 2800, 5600]),
        (retry(5, "linear", 700, 1500), [700, 1400, 1500, 1500]),
        (retry(5, "exponential", 700, 2801), [700, 1400, 2800, 2801]),
        (retry(5, "none", 700, 300), [300, 300, 300, 300]),
        (retry(3, "none"), [0, 0]),
        (retry(5, "exponential", 86_400_000 * 3), [86_400_000 * days for days in (3, 6, 7, 7)]),
    ],
)
async def test_a_retry_waits_its_delay_on_the_databases_clock(
    table: Table, clock: Clock, how: dict, delays: list[int]
) -> None:
    """70.7 To the millisecond: not before its end and its delay, and then at the next beat."""
    await clock.set(NOON)
    await table.admit("p", step("a", retry=how))
    ended = NOON
    for n, delay in enumerate(delays, 1):
        await table.fail(await table.one("a"))
        if delay:
            seen = (await table.steps("p"))["a"]
            due = ended + timedelta(milliseconds=delay)
            assert (seen["state"], datetime.fromisoformat(seen["due_at"])) == ("waiting", due)
            await clock.set(due - timedelta(milliseconds=1))
            me = await new_holder(table.db)  # nobody has been silent for these days
            answer = await table.beat(me)
            assert (answer.woken, answer.due_ms, await table.claim(holder=me)) == (0, 1, {})
            ended = await clock.set(due)
            await table.beat(me)
            table.me = me
        assert (await table.steps("p"))["a"]["attempts"] == n + 1
    assert (await table.story("p", "plan.step_waiting")) == [("plan.step_waiting", "a")] * len(delays)


async def test_a_worker_with_a_wrong_clock_shifts_no_retry(
    table: Table, clock: Clock, monkeypatch: pytest.MonkeyPatch
) -> None:
    """70.7 Its own hour is nowhere asked."""
    await clock.set(NOON)
    await table.admit("p", step("a", retry=retry(2, first=60_000)))
    claimed = await table.one("a")
    monkeypatch.setattr("time.time", lambda: 0.0)
    monkeypatch.setattr("time.time_ns", lambda: 0)
    await table.fail(claimed)
    monkeypatch.undo()
    assert datetime.fromisoformat((await table.steps("p"))["a"]["due_at"]) == NOON + timedelta(seconds=60)


async def test_retries_of_many_steps_are_due_each_at_its_own_time(table: Table, clock: Clock) -> None:
    """70.13 The plan's timer is always the next of them, and gone with the last."""
    await clock.set(NOON)
    rid = await table.admit("p", *(step(f"s{n}", retry=retry(2, first=n * 1000)) for n in (3, 1, 2)), step("z"))
    for claimed in (await table.claim(3)).values():
        await table.fail(claimed)
    for n in (1, 2, 3):
        assert await look(table.admin, rid, "due_at") == NOON + timedelta(seconds=n)
        await clock.set(NOON + timedelta(seconds=n))
        await table.beat()
        assert "plan.step_started" in [s[0] for s in (await table.story("p"))[-1:]]
    assert await look(table.admin, rid, "due_at") is None


async def test_what_lost_and_cancelled_lists_is_not_retried(db: Database, table: Table) -> None:
    """70.10 `lost` cannot be listed; where a definition that got past the edge lists it, it means nothing."""
    both = retry(5, on=["lost", "cancelled"])
    await table.admit("p", step("a", retry=both), step("b", retry=both))
    claimed = await table.claim()
    await table.begin(claimed["a"])
    assert await plans.lose(db, claimed["a"].fence, begun=True) == "lost"
    assert await cancel(db, "p/b/1") == ("accepted", "cancelling")
    assert await table.win(claimed["b"]) == Ended("cancelled", "cancelled")
    seen = await table.steps("p")
    assert [(s["state"], s["outcome"]) for s in seen.values()] == [("failed", "lost"), ("failed", "cancelled")]
    assert await table.status("p") == "failed"


@pytest.mark.parametrize("verdict", ["end", "resolve", "cancel"])
async def test_what_no_worker_reported_is_not_tried_again(db: Database, table: Table, verdict: str) -> None:
    """70.7 An operator who ends a try, who says that it failed, or who cancels it, has not asked for another."""
    await table.admit("p", step("a", on_lost="ask", retry=retry(5)), step("b", "a"))
    claimed = await table.one("a")
    if verdict == "resolve":
        await table.begin(claimed)
        assert await plans.lose(db, claimed.fence, begun=True) == "lost"
        assert await table.resolve("p/a/1", "failed", failure()) == ("done", None)
    elif verdict == "end":
        assert (await terminal.end(db, "default", "p/a/1", by="me", reason="enough"))[0] == "done"
    else:
        assert await cancel(db, "p/a/1", grace=0) == ("accepted", "cancelled")
    seen = await table.steps("p")
    assert {name: s["state"] for name, s in seen.items()} == {"a": "failed", "b": "skipped"}
    assert seen["a"]["attempts"] == 1
    assert await table.status("p") == "failed"


async def test_one_run_that_loses_its_claim_disturbs_no_other(db: Database, table: Table) -> None:
    """70.9 Two plans with the same steps in the same hands: the loss of one's attempt, its retries and its end are its own."""
    for id in ("p", "q"):
        await table.admit(id, step("a"), step("b", "a"))
    claim = await attempts.claim(
        db, table.me, next_request(), lane=table.lane, most=9, cursor="", alone=True, patience=9
    )
    mine, other = claim.claimed
    assert (mine.id, other.id) == ("p/a/1", "q/a/1")
    await table.begin(mine)
    await table.begin(other)
    assert await plans.lose(db, mine.fence, begun=True) == "lost"
    assert await table.states("q") == {"a": "running", "b": "blocked"}
    assert await table.win(other, o="1") == Ended("committed", "completed")
    assert await table.states("p") == {"a": "failed", "b": "skipped"}
    assert (await table.one("b")).id == "q/b/1"


# ── workflows ────────────────────────────────────────────────────────────────────────────────────────────────────────


async def test_a_workflow_step_is_a_child_run(db: Database, table: Table, admin: asyncpg.Connection) -> None:
    """70.14 Id, source, lane and organisation; its output is the result, in the transaction that ends it; the child has its own fences."""
    lane = table.lane
    rid = await table.admit("p", step("w", kind="workflow", workflow="enrich", input={"a": 1}), step("b", "w"))
    claimed = await table.one("w")
    assert (claimed.id, claimed.name, json.loads(claimed.input or ""), claimed.parent) == (
        "p/w/1",
        "enrich",
        {"a": 1},
        rid,
    )
    assert (claimed.opaque, claimed.begun) == (False, True)  # loss means replay
    row = await admin.fetchrow("select kind, source, lane, org, release from fencepost.run where id = 'p/w/1'")
    assert tuple(row) == ("workflow", "async_child", lane, "default", "dev")
    await terminal.finish(db, claimed.fence, "completed", '{"x": [1, 2]}')
    found = await plans.read_result(db, "default", "p", "w", "result")
    text = '{"x": [1, 2]}'
    assert found == plans.Result(JSON, len(text), digest_of(text), text, None, rid)


async def test_a_workflow_step_that_returns_nothing_has_null_as_its_result(db: Database, table: Table) -> None:
    """70.14 An output is always there once it succeeded."""
    await table.admit("p", step("w", kind="workflow"))
    claimed = await table.one("w")
    await terminal.finish(db, claimed.fence, "completed", None)
    found = await plans.read_result(db, "default", "p", "w", "result")
    assert found is not None
    assert found.text == "null"


async def test_a_retry_of_a_workflow_step_is_a_new_child(db: Database, table: Table) -> None:
    """70.14 The first stays what it was; the second begins anew, with its own boundaries."""
    await table.admit("p", step("w", kind="workflow", input={"n": 1}, retry=retry(2)))
    first = await table.one("w")
    await mark(db, first.fence, repeatable=True)
    await terminal.finish(db, first.fence, "failed", json.dumps({"code": "WORKFLOW_ERROR", "message": "m"}))
    second = await table.one("w")
    assert (second.id, second.fence.number, second.input) == ("p/w/2", 1, first.input)
    assert second.key_root != first.key_root
    assert second.boundaries in {None, "[]"}
    await terminal.finish(db, second.fence, "completed", "1")
    assert await table.status("p") == "completed"


async def test_children_that_are_ready_together_have_key_roots_of_their_own(
    db: Database, table: Table, admin: asyncpg.Connection
) -> None:
    """50.3, 70.14 Two that shared one would hand the same keys to a provider, which would do one call for both."""
    for plan in ("p", "q"):
        await table.admit(plan, *(step(name, kind="workflow") for name in "abc"))
    assert await admin.fetchval("select count(distinct key_root) from fencepost.run where kind = 'workflow'") == 6


async def test_what_is_unknown_of_a_workflow_step_is_unknown_of_the_plan(db: Database, table: Table) -> None:
    """70.14 It passes through: the plan is unknown while its child is, and goes on with it."""
    await table.admit("p", step("w", kind="workflow"), step("b", "w"))
    claimed = await table.one("w")
    await mark(db, claimed.fence)
    assert (await terminal.finish(db, claimed.fence, "completed", "1")).how == "committed"  # type: ignore[union-attr]  # 40.6: a success is one
    await table.through("b")
    await table.admit("q", step("w", kind="workflow"), step("b", "w"))
    claimed = await table.one("w")
    await mark(db, claimed.fence)
    await terminal.finish(db, claimed.fence, "failed", json.dumps({"code": "WORKFLOW_ERROR", "message": "m"}))
    assert (await table.status("q"), await table.states("q")) == ("unknown", {"w": "unknown", "b": "blocked"})
    from fencepost import recovery

    assert await recovery.resolve(
        db, "default", "q/w/1", step="pay", ordinal=1, row_key=None, verdict="completed", value="1", by="me"
    ) == ("done", None)
    assert (await table.status("q"), await table.states("q")) == ("running", {"w": "running", "b": "blocked"})
    again = await table.one("w")
    assert (again.id, again.fence.number) == ("q/w/1", 2)
    await terminal.finish(db, again.fence, "completed", "1")
    await table.through("b")
    assert await table.status("q") == "completed"


async def test_a_workflow_step_that_is_lost_is_replayed_as_workflows_are(db: Database, table: Table) -> None:
    """70.14 The same child, its next attempt; no try of the step is charged for it."""
    gone = await new_holder(db)
    await table.admit("p", step("w", kind="workflow"))
    first = await table.one("w", holder=gone)
    await lose(db, gone)
    again = await table.one("w")
    assert (again.id, again.fence.number, (await table.steps("p"))["w"]["attempts"]) == ("p/w/1", 2, 1)
    assert await terminal.finish(db, first.fence, "completed", "1") is STALE
    await terminal.finish(db, again.fence, "completed", "2")
    assert (await plans.read_result(db, "default", "p", "w", "result")).text == "2"  # type: ignore[union-attr]  # else it fails here


async def test_a_workflow_that_times_out_is_a_timeout(db: Database, table: Table) -> None:
    """70.14 Its own bound, as its error says; a step may list it."""
    await table.admit("p", step("w", kind="workflow", retry=retry(2, on=["timeout"])))
    claimed = await table.one("w")
    await terminal.finish(db, claimed.fence, "failed", json.dumps({"code": "TIMED_OUT", "message": "m"}))
    assert (await table.one("w")).id == "p/w/2"


async def test_a_childs_signal_and_sleep_are_its_own(db: Database, table: Table, clock: Clock) -> None:
    """70.14 The attempt parks; the plan stands as running, and the hour wakes the child, not the plan."""
    await clock.set(NOON)
    await table.admit("p", step("w", kind="workflow"), step("b", "w"))
    claimed = await table.one("w")
    await wait(db, claimed.fence, arm("sleep", ms=3_600_000))
    assert (await table.status("p"), await table.states("p")) == ("running", {"w": "running", "b": "blocked"})
    await clock.advance(3600)
    me = await new_holder(db)
    await table.beat(me)
    again = await table.one("w", holder=me)
    assert again.fence.number == 2
    await terminal.finish(db, again.fence, "completed", "1")
    assert (await table.states("p"))["b"] == "running"
