"""Chapter 70: how a plan comes to be, which of its steps may be claimed, and how it ends."""

from __future__ import annotations

import asyncio
import json
from typing import Any

import asyncpg
import pytest

from fencepost import admission, attempts, plans, terminal
from fencepost.db import Database
from fencepost.testing import Clock
from tests.plan_table import Table, definition, hand, maybe, retry, step, step_of
from tests.support import admit_one, launch, look, new_holder, tables
from tests.support_runs import arm, cancel, wait

pytestmark = pytest.mark.usefixtures("lawful")


# ── it comes to be ───────────────────────────────────────────────────────────────────────────────────────────────────


async def test_a_plan_comes_to_be_with_its_steps_and_its_first_tries_at_once(table: Table) -> None:
    """70.2 Run, steps, first event, and what is ready: there when the door answers."""
    rid = await table.admit("p", step("a"), step("b"), step("c", "a", "b"), most=2)
    seen = await table.plan("p")
    assert (seen["status"], seen["max_concurrency"], seen["total"]) == ("running", 2, 3)
    assert await table.states("p") == {"a": "running", "b": "running", "c": "blocked"}
    assert await table.story("p") == [("run.admitted",), ("plan.step_started", "a"), ("plan.step_started", "b")]
    assert set(await table.claim()) == {"a", "b"}
    assert await look(table.admin, rid, "state", "park") == ("parked", "plan")


@pytest.mark.parametrize(
    "broken",
    [
        definition(step("a"), step("b", "nobody")),
        definition(step("a"), step("a")),
        definition(step("a"), step("b", "a", "a")),
        definition(step("a", kind="command") | {"kind": "dance"}),
        definition(step("a"), most=0),
        definition(step("a"), step("b", "a", handoffs=[hand("a.o") | {"mode": "whole"}])),
        '{"name": "p", "max_concurrency": 1, "steps": [{"id": null}]}',
        "[1, 2",
    ],
)
async def test_an_admission_that_fails_leaves_nothing(table: Table, broken: str) -> None:
    """70.2 One transaction: whatever of a definition the tables refuse, no row of the plan stays."""
    before = await tables(table.admin)
    with pytest.raises(asyncpg.PostgresError):
        await table.ask("p", broken)
    assert await tables(table.admin) == before
    await table.admit("p", step("a"))


@pytest.mark.parametrize(
    ("id", "text", "changed"),
    [
        ("", definition(step("a")), {}),
        ("x" * 200, definition(step("a")), {}),
        ("p\n", definition(step("a")), {}),
        ("p", definition(), {}),
        ("p", definition(step("a")), {"org": ""}),
        ("p", definition(step("a")), {"name": " "}),
        ("p", definition(step("a")), {"source": "nobody"}),
    ],
)
async def test_what_cannot_be_a_run_is_refused_before_any_write(
    table: Table, id: str, text: str, changed: dict[str, Any]
) -> None:
    """70.1 A plan without steps, a name nobody could read, an id whose tries would have none: refused, and nothing is there."""
    before = await tables(table.admin)
    made = await table.ask(id, text, **changed)
    assert (made.answer, made.rid) == ("refused", None)
    assert await tables(table.admin) == before


async def test_a_plan_that_joins_a_callers_transaction_goes_with_it(db: Database, table: Table, dsn: str) -> None:
    """70.2 Rolled back with its caller, it was never there."""
    before = await tables(table.admin)
    connection = await asyncpg.connect(dsn)
    try:
        transaction = connection.transaction()
        await transaction.start()
        made = await table.ask("p", definition(step("a")), connection=connection)
        assert made.answer == "created"
        await transaction.rollback()
    finally:
        await connection.close()
    assert await tables(table.admin) == before


async def test_the_same_plan_again_is_the_same_run_and_another_one_a_conflict(table: Table) -> None:
    """70.2 Whatever order its keys come in; while it runs and when it has ended."""
    text = definition(step("a"), step("b", "a"))
    first = await table.ask("p", text)
    turned = json.dumps(dict(reversed(list(json.loads(text).items()))), indent=1)
    for last in ("a", "b"):
        again = await table.ask("p", turned)
        assert (again.answer, again.rid, again.stored) == ("replayed", first.rid, None)
        for other in (definition(step("a"), step("b")), definition(step("a"), step("b", "a"), most=5)):
            changed = await table.ask("p", other)
            assert (changed.answer, changed.rid) == ("conflict", first.rid)
            assert changed.stored == {"kind": "plan", "name": "p", "input": json.loads(text)}
        assert (await table.ask("p", text, name="another")).answer == "conflict"
        await table.through(last)
    assert await table.status("p") == "completed"
    assert (await table.ask("p", turned)).answer == "replayed"
    assert await table.claim() == {}


async def test_a_plan_does_not_take_the_place_of_another_kind_of_run(db: Database, table: Table) -> None:
    """70.2 The id belongs to whoever was first."""
    rid = await admit_one(db, "p", input='{"a":1}')
    made = await table.ask("p", definition(step("a")))
    assert (made.answer, made.rid) == ("conflict", rid)
    assert made.stored == {"kind": "workflow", "name": "work", "input": {"a": 1}}
    text = definition(step("a"))
    alike = await admit_one(db, "q", name="p", input=text)
    made = await table.ask("q", text)
    assert (made.answer, made.rid) == ("conflict", alike)


async def test_a_workflow_does_not_take_the_place_of_a_plan(db: Database, table: Table) -> None:
    """30.3, 70.2 With the same name and the same input it is another launch all the same."""
    text = definition(step("a"))
    first = await table.ask("p", text, name="work")
    [answer] = await admission.admit(db, [launch(id="p", name="work", input=text, lane=table.lane)])
    assert answer == admission.Conflict([{"path": "$.kind", "stored": "plan", "given": "workflow"}])
    assert (await table.ask("p", text, name="work")).rid == first.rid


async def test_a_plan_admitted_by_ten_at_once_is_admitted_once(db: Database, table: Table) -> None:
    """70.2 One creates it, the others meet it."""
    text = definition(*(step(f"s{n}") for n in range(20)))
    made = await asyncio.gather(*(table.ask("p", text) for _ in range(10)))
    assert sorted(m.answer for m in made) == ["created"] + ["replayed"] * 9
    assert len({m.rid for m in made}) == 1
    assert await table.flying("p") == 4


# ── what may be claimed ──────────────────────────────────────────────────────────────────────────────────────────────


async def test_a_step_is_ready_when_all_it_needs_has_succeeded_and_not_before(table: Table) -> None:
    """70.3 A diamond with a longer arm: the end waits for the last of its dependencies."""
    await table.admit("p", step("a"), step("b", "a"), step("c", "a"), step("c2", "c"), step("d", "b", "c2"))
    await table.through("a")
    both = await table.claim()
    assert list(both) == ["b", "c"]
    await table.win(both["b"])
    assert (await table.states("p"))["d"] == "blocked"
    assert await table.claim() == {}
    await table.win(both["c"])
    await table.through("c2", "d")
    assert await table.status("p") == "completed"


@pytest.mark.parametrize("how", ["failed", "skipped", "cancelled", "lost"])
async def test_an_optional_dependency_only_has_to_end(db: Database, table: Table, how: str) -> None:
    """70.3 However it ends; one that is not optional skips the step with the reason."""
    await table.admit("p", step("a", initially_skipped=how == "skipped"), step("b", maybe("a")), step("c", "a"))
    if how != "skipped":
        assert (await table.states("p"))["b"] == "blocked"
    if how == "failed":
        await table.fail(await table.one("a"))
    elif how == "lost":
        claimed = await table.orphan("a")
        assert await plans.lose(db, claimed.fence, begun=True) == "lost"
    elif how == "cancelled":
        assert await cancel(db, "p/a/1") == ("accepted", "cancelled")
    seen = await table.steps("p")
    assert (seen["b"]["state"], seen["c"]["state"]) == ("running", "skipped")
    assert seen["c"]["reason"] == ("needs a, which was skipped" if how == "skipped" else "needs a, which failed")
    await table.through("b")
    assert await table.status("p") == ("completed" if how == "skipped" else "failed")


async def test_a_failed_step_with_a_chain_of_dependents_ends_the_run_at_once(table: Table) -> None:
    """70.3 Every one of five is skipped in the transaction that ended the first, each for the one before it, and the run has ended (70.12)."""
    chain = [step("s1", "a"), *(step(f"s{n}", f"s{n - 1}") for n in range(2, 6))]
    await table.admit("p", *reversed(chain), step("a"))
    claimed = await table.one("a")
    assert (await table.fail(claimed)).status == "failed"
    seen = await table.steps("p")
    assert {name: s["state"] for name, s in seen.items()} == {"a": "failed"} | {f"s{n}": "skipped" for n in range(1, 6)}
    assert seen["s1"]["reason"] == "needs a, which failed"
    assert [seen[f"s{n}"]["reason"] for n in range(2, 6)] == [f"needs s{n - 1}, which was skipped" for n in range(2, 6)]
    plan = await table.plan("p")
    assert plan["status"] == "failed"
    assert json.loads(plan["error"])["message"] == "1 of its steps failed, the first: a (failure: it exited with 3)"
    assert await table.claim() == {}


async def test_a_step_that_two_failures_reach_is_skipped_once(table: Table) -> None:
    """70.3 Also when both ends come together, and when the second comes later."""
    await table.admit("p", step("a"), step("b"), step("c", "a", "b"), step("d", "c", maybe("b")))
    claimed = await table.claim()
    await table.fail(claimed["b"])
    await table.fail(claimed["a"])
    assert await table.states("p") == {"a": "failed", "b": "failed", "c": "skipped", "d": "skipped"}
    assert [s for s in await table.story("p") if s[0] == "plan.step_skipped"] == [
        ("plan.step_skipped", "c"),
        ("plan.step_skipped", "d"),
    ]
    assert (await table.steps("p"))["c"]["reason"] == "needs b, which failed"


async def test_no_more_than_max_concurrency_are_claimed_in_written_order(db: Database, table: Table) -> None:
    """70.4 By four claimers at once, and again after each end: a slot that is free goes to the first that is written."""
    await table.admit("p", *(step(f"s{n}") for n in range(9)), most=3)
    holders = [await new_holder(db) for _ in range(4)]
    got = [c for found in await asyncio.gather(*(table.claim(holder=h) for h in holders)) for c in found.values()]
    assert {step_of(c) for c in got} == {"s0", "s1", "s2"}
    by_step = {step_of(c): c for c in got}
    for ends, starts in (("s1", "s3"), ("s0", "s4"), ("s3", "s5")):
        await (table.win if ends != "s0" else table.fail)(by_step[ends])
        assert await table.flying("p") == 3
        by_step[starts] = await table.one(starts)
        assert await table.claim() == {}


async def test_a_free_slot_goes_to_the_first_that_is_written(table: Table) -> None:
    """70.4 Not to who has just become ready; and not to who was ready before, if it is written later."""
    await table.admit("p", step("a"), step("b"), step("c", "a"), most=1)
    await table.through("a", "b", "c")
    await table.admit("q", step("c", "a"), step("a"), step("b"), most=1)
    await table.through("a", "c", "b")


async def test_a_step_that_waits_for_time_holds_no_slot(table: Table, clock: Clock) -> None:
    """70.4 While one waits out its delay another runs; when its hour comes it waits for the next slot, in written order."""
    await clock.advance(0)
    await table.admit("p", step("a", retry=retry(2, first=60000)), step("b"), step("c"), most=1)
    await table.fail(await table.one("a"))
    assert await table.states("p") == {"a": "waiting", "b": "running", "c": "ready"}
    await clock.advance(61)
    await table.beat()
    assert await table.states("p") == {"a": "ready", "b": "running", "c": "ready"}
    assert await table.flying("p") == 1
    await table.through("b", "a", "c")
    assert await table.status("p") == "completed"


async def test_a_step_that_waits_for_its_child_run_counts(db: Database, table: Table) -> None:
    """70.4 A workflow step holds its slot while its run is parked; so does one that is unknown."""
    await table.admit("p", step("w", kind="workflow"), step("b", on_lost="ask"), step("c"), most=2)
    claimed = await table.claim()
    await wait(db, claimed["w"].fence, arm("sleep", ms=9_000_000))
    await table.begin(claimed["b"])
    assert await plans.lose(db, claimed["b"].fence, begun=True) == "lost"
    assert await table.states("p") == {"w": "running", "b": "unknown", "c": "ready"}
    assert await table.claim() == {}


async def test_each_claim_of_each_try_has_its_own_fence(table: Table, admin: asyncpg.Connection) -> None:
    """70.5 Two steps, three tries, a try that was given back: no fence is seen twice, and numbers count the claims of a try."""
    await table.admit("p", step("a", retry=retry(3)), step("b"))
    seen = []
    for _ in range(2):
        claimed = await table.one("a")
        assert await attempts.give_back(table.db, claimed.fence) == "given_back"
        seen.append(claimed)
        both = await table.claim()
        claimed = both["a"]
        seen += both.values()
        if "b" in both:
            await table.win(both["b"])
        await table.fail(claimed)
    seen.append(await table.one("a"))
    assert len({c.fence.fence for c in seen}) == len(seen)
    assert [(c.id, c.fence.number) for c in seen if step_of(c) == "a"] == [
        ("p/a/1", 1), ("p/a/1", 2), ("p/a/2", 1), ("p/a/2", 2), ("p/a/3", 1),
    ]  # fmt: skip


# ── how it ends ──────────────────────────────────────────────────────────────────────────────────────────────────────


async def test_a_run_ends_with_its_last_step(table: Table) -> None:
    """70.12 Succeeded in the transaction that ends it, not before; what it made is counted."""
    await table.admit("p", step("a"), step("b"), step("c", initially_skipped=True))
    claimed = await table.claim()
    await table.win(claimed["b"])
    assert await table.status("p") == "running"
    await table.win(claimed["a"])
    seen = await table.plan("p")
    assert (seen["status"], seen["counts"]) == ("completed", {"succeeded": 2, "skipped": 1})
    assert json.loads(seen["output"]) == {"steps": 3, "succeeded": 2}
    assert (await table.story("p"))[-2:] == [("plan.step_succeeded", "a"), ("run.completed",)]


async def test_any_failure_fails_the_run_but_only_when_all_else_has_ended(table: Table) -> None:
    """70.12 The other branch goes on to its end; then the run has failed, with the steps that did."""
    await table.admit("p", step("a"), step("b"), step("c", "b"))
    claimed = await table.claim()
    await table.fail(claimed["a"], "timeout", "it took too long")
    await table.win(claimed["b"])
    assert await table.status("p") == "running"
    await table.through("c")
    seen = await table.plan("p")
    assert seen["status"] == "failed"
    assert json.loads(seen["error"])["steps"] == [{"step": "a", "outcome": "timeout"}]


async def test_a_plan_of_which_every_step_was_skipped_says_so(table: Table) -> None:
    """70.12 At once, in the transaction that admits it: succeeded, with the reason all_skipped."""
    rid = await table.admit("p", step("a", initially_skipped=True), step("b", "a"), step("c", "b", maybe("a")))
    seen = await table.plan("p")
    assert (seen["status"], json.loads(seen["output"])["reason"]) == ("completed", "all_skipped")
    assert [s["reason"] for s in seen["steps"]] == [
        "initially_skipped", "needs a, which was skipped", "needs b, which was skipped",
    ]  # fmt: skip
    assert await look(table.admin, rid, "state") is None


async def test_a_run_ends_once(db: Database, table: Table) -> None:
    """80.1 The last finish asked again, a cancel, an operator: nothing changes what was stored. 80.6 Nothing of it is left to claim."""
    rid = await table.admit("p", step("a"), step("b", "a"))
    await table.fail(await table.one("a"))
    before = await tables(table.admin, without=("incarnation", "sleeper"))
    assert await cancel(db, "p") == ("too_late", "failed")
    assert await terminal.end(db, "default", "p", by="me", reason="r") == ("too_late", "failed")
    await table.beat()
    assert await table.claim() == {}
    assert await tables(table.admin, without=("incarnation", "sleeper")) == before
    assert await table.admin.fetchval("select count(*) from fencepost.task where rid = $1 or parent = $1", rid) == 0


async def test_a_plan_that_cannot_go_on_says_so_and_polls_for_nothing(db: Database, table: Table) -> None:
    """70.13 A circle that got past the edge: plan.stuck with the reason, no timer; an operator ends it, or cancels it."""
    rid = await table.admit("p", step("a", "b"), step("b", "a"), step("c"))
    assert "plan.stuck" not in [s[0] for s in await table.story("p")], "c moves"
    await table.through("c")
    for _ in range(3):
        await table.beat()
    assert [s for s in await table.story("p") if s[0] == "plan.stuck"] == [("plan.stuck",)]
    seen = await table.plan("p")
    assert json.loads(seen["error"]) == {
        "code": "PLAN_STUCK",
        "message": "2 steps have not ended, and nothing that runs or waits can make them ready",
    }
    assert await look(table.admin, rid, "due_at") is None
    assert await cancel(db, "p") == ("accepted", "cancelled")
    assert await table.states("p") == {"a": "cancelled", "b": "cancelled", "c": "succeeded"}


async def test_a_plan_that_is_stuck_says_so_once(table: Table) -> None:
    """70.13 Also when somebody ends what had been resolved meanwhile."""
    await table.admit("p", step("a", "b"), step("b", "a"), step("c", on_lost="ask"))
    claimed = await table.one("c")
    await table.begin(claimed)
    await plans.lose(table.db, claimed.fence, begun=True)
    assert await table.story("p", "plan.stuck") == [], "unknown: that is what it waits for"
    await table.resolve("p/c/1", "again")
    await table.through("c")
    assert await table.story("p", "plan.stuck") == [("plan.stuck",)]
    rid = await look(table.admin, await table.admin.fetchval("select rid from fencepost.run where id = 'p'"), "rid")
    await table.admin.execute("select fencepost.advance_($1, '{}', '{}', now())", rid)
    assert await table.story("p", "plan.stuck") == [("plan.stuck",)]


async def test_an_id_that_another_run_has_fails_the_step_and_nothing_else(db: Database, table: Table) -> None:
    """70.14 `<run>/<step>/<try>` belongs to somebody: that try could not be started; the others run, and theirs is not touched."""
    theirs = await admit_one(db, "p/b/1", release="other")
    await table.admit("p", step("a"), step("b", retry=retry(3, on=["launch_error"])), step("c", "b"), step("d"), most=2)
    assert await table.states("p") == {"a": "running", "b": "failed", "c": "skipped", "d": "running"}
    seen = (await table.steps("p"))["b"]
    assert (seen["outcome"], seen["reason"], seen["attempts"]) == (
        "launch_error",
        "another run has the id of this try",
        0,
    )
    assert await look(table.admin, theirs) == "queued"
    await table.through("a", "d")
    assert await table.status("p") == "failed"
    assert await look(table.admin, theirs) == "queued"
