"""Chapters 70, 90, 95, 97: what can be seen of a plan, by whom, in which words, and for how long."""

from __future__ import annotations

import json
from datetime import UTC, datetime

import asyncpg
import pytest

from fencepost import explain, ledger, plans, recovery, retention, terminal
from fencepost.cli.documents import show_object
from fencepost.cli.showing import show_lines
from fencepost.db import Database
from fencepost.testing import Clock
from tests.plan_table import Table, definition, hand, retry, step
from tests.support import look, new_holder, tables
from tests.support_runs import cancel

NOON = datetime(2031, 5, 6, 12, tzinfo=UTC)
DAY = 86400
TABLES = ("plan", "step", "definition", "edge", "binding", "result")


async def told(db: Database, run: str, org: str = "default") -> list[str]:
    return explain.words(await ledger.read_run(db, org, run) or {})


# ── events ───────────────────────────────────────────────────────────────────────────────────────────────────────────


@pytest.mark.usefixtures("lawful")
async def test_every_transition_of_a_step_is_an_event_of_the_plan(db: Database, table: Table, clock: Clock) -> None:
    """90.1 In their order, each once, without gaps; what the try did is told by the try's own."""
    await clock.set(NOON)
    await table.admit(
        "p", step("a", retry=retry(2, first=1000)), step("b", "a"), step("c", on_lost="ask"), step("d", "c"), step("e", initially_skipped=True)
    )  # fmt: skip
    claimed = await table.claim()
    await table.begin(claimed["c"])
    await plans.lose(db, claimed["c"].fence, begun=True)
    await table.fail(claimed["a"])
    await clock.advance(1)
    await table.beat()
    await table.through("a", o="1")
    await table.resolve("p/c/1", "again")
    await table.fail((await table.claim())["c"], "timeout")
    await cancel(db, "p", reason="enough")
    assert await table.story("p") == [
        ("run.admitted",), ("plan.step_started", "a"), ("plan.step_started", "c"), ("plan.step_unknown", "c"), ("plan.step_waiting", "a"),
        ("plan.step_started", "a"), ("plan.step_succeeded", "a"), ("plan.step_started", "b"), ("plan.step_resumed", "c"),
        ("plan.step_failed", "c"), ("plan.step_skipped", "d"), ("run.cancelling",),
    ]  # fmt: skip
    events = await ledger.read_events(db, "default", "p", after=0)
    assert [e.seq for e in events] == list(range(1, len(events) + 1))
    by_type = {e.type: e.data for e in events}
    assert by_type["plan.step_waiting"] == {"step": "a", "try": 1, "outcome": "failure", "delay_ms": 1000}
    assert by_type["plan.step_succeeded"] == {"step": "a", "try": 2, "outcome": "success"}
    assert by_type["plan.step_failed"] == {"step": "c", "try": 1, "outcome": "timeout"}
    assert by_type["plan.step_skipped"] == {"step": "d", "reason": "needs c, which failed"}
    assert {e.number for e in events} == {None}, "a plan has no attempt"
    assert await table.story("p/c/1") == [
        ("run.admitted",), ("attempt.claimed",), ("attempt.begun",), ("attempt.lost",), ("run.unknown",), ("run.resolved",), ("run.woken",),
        ("attempt.claimed",), ("run.failed",),
    ]  # fmt: skip


async def test_an_event_that_is_on_no_list_is_refused(table: Table, admin: asyncpg.Connection) -> None:
    """90.1 The list is closed, for plans too."""
    rid = await table.admit("p", step("a"))
    with pytest.raises(asyncpg.CheckViolationError):
        await admin.execute(
            "insert into fencepost.event (rid, seq, at, type) values ($1, 99, now(), 'plan.step_danced')", rid
        )


async def test_a_watch_of_a_plan_resumes_anywhere(db: Database, table: Table) -> None:
    """90.2 From any place it misses and repeats nothing."""
    await table.admit("p", *(step(f"s{n}", *([f"s{n - 1}"] if n else [])) for n in range(4)))
    await table.through("s0", "s1")
    whole = await ledger.read_events(db, "default", "p", after=0)
    for n in range(len(whole) + 1):
        assert await ledger.read_events(db, "default", "p", after=n) == whole[n:]


# ── words ────────────────────────────────────────────────────────────────────────────────────────────────────────────


async def test_a_plan_says_what_it_waits_for(db: Database, table: Table, clock: Clock) -> None:
    """90.4 How many steps run, until when one waits, whom it needs for what is unknown; and nothing when it has ended."""
    await clock.set(NOON)
    await table.admit(
        "my plan", step("a", on_lost="ask"), step("b", retry=retry(2, first=60_000)), step("c"), step("d", "c")
    )
    claimed = await table.claim()
    await table.fail(claimed["b"])
    await table.begin(claimed["a"])
    await plans.lose(db, claimed["a"].fence, begun=True)
    words = "\n".join(await told(db, "my plan"))
    assert "Run my plan of plan p is running" in words
    assert "It waits for 1 steps that run, of 4 that have not ended" in words
    assert "It waits for the next try of 1 steps, the first of which is due then\n  until 2031-05-06T12:01:00" in words
    assert "It waits for somebody who knows what became of step a" in words
    assert "ended by: fencepost plan resolve 'my plan' a failed --error TEXT" in words
    await table.win(claimed["c"])
    await table.through("d")
    await clock.advance(60)
    await table.beat()
    await table.through("b")
    doc = await ledger.read_run(db, "default", "my plan") or {}
    assert doc["status"] == "unknown"
    assert [w.kind for w in explain.waits(doc)] == ["operator"]
    assert explain.unknowns(doc) == [{"kind": "plan_step", "step": "a"}]
    assert "unknown:      plan_step a" in list(show_lines(show_object(doc, ())))
    await table.resolve("my plan/a/1", "failed", '{"code": "X", "message": "m"}')
    assert explain.waits(await ledger.read_run(db, "default", "my plan") or {}) == []


async def test_a_plan_that_is_stuck_or_cancelled_says_so(db: Database, table: Table) -> None:
    """90.4, 70.13 And who can end it."""
    await table.admit("p", step("a", "b"), step("b", "a"))
    (wait,) = explain.waits(await ledger.read_run(db, "default", "p") or {})
    assert wait.what == (
        "nothing that can come: 2 steps have not ended, and nothing that runs or waits can make them ready"
    )
    assert wait.by == ("fencepost runs cancel p", "fencepost runs end p")
    await table.admit("q", step("c"))
    await table.one("c")
    await cancel(db, "q", reason="enough")
    (wait,) = explain.waits(await ledger.read_run(db, "default", "q") or {})
    assert (wait.kind, wait.what) == ("grace", "1 child runs to end (cancelled: enough)")


async def test_a_try_says_which_process_it_waits_for(db: Database, table: Table, clock: Clock) -> None:
    """90.4 In the line, begun, without its worker, unknown: each with who can end it."""
    await clock.set(NOON)
    worker = await new_holder(db)
    await table.admit("p", step("a", on_lost="ask", timeout_ms=1000), org="acme")
    assert "ended by: any of 1 live workers, when it is this run's turn" in "\n".join(await told(db, "p/a/1", "acme"))
    claimed = await table.one("a", holder=worker)
    await table.begin(claimed)
    words = "\n".join(await told(db, "p/a/1", "acme"))
    assert "the end of process 7 on h, which carries attempt 1\n" in words
    assert "until 2031-05-06T12:01:01" in words
    assert "plan lost" not in words
    await recovery.close_incarnation(db, worker, patience=30)
    words = "\n".join(await told(db, "p/a/1", "acme"))
    assert "its worker is gone, and nothing is lost by that" in words
    assert "ended by: fencepost plan lost p a --org acme (once nobody can find the process)" in words
    await plans.lose(db, claimed.fence, begun=True)
    words = "\n".join(await told(db, "p/a/1", "acme"))
    assert "somebody who decides what becomes of attempt 1 (RUNNER_LOST)" in words
    assert "ended by: fencepost plan resolve p a again --org acme (runs it again)" in words


async def test_read_run_counts_the_steps_of_a_plan(db: Database, table: Table) -> None:
    """90.4 From its own row, however long it is."""
    await table.admit("p", *(step(f"s{n}", on_lost="ask") for n in range(5)), step("t", "s0"), most=3)
    claimed = await table.claim()
    await table.win(claimed["s0"])
    await table.fail(claimed["s1"])
    await table.begin(claimed["s2"])
    await plans.lose(db, claimed["s2"].fence, begun=True)
    assert (await ledger.read_run(db, "default", "p") or {})["plan"] == {
        "steps": 6, "open": 4, "running": 2, "unknown": 1, "failed": 1, "succeeded": 1, "max_concurrency": 3, "waiting": 0,
        "unknown_steps": ["s2"],
    }  # fmt: skip
    assert (await ledger.read_run(db, "default", "p/s0/1") or {}).get("plan") is None


# ── whose it is ──────────────────────────────────────────────────────────────────────────────────────────────────────


async def test_another_organisation_meets_a_plan_as_if_it_were_not_there(db: Database, table: Table) -> None:
    """97.1 Every verb on every id of it: read, results, events, words, cancel, end, resolve, declared lost, redriven."""
    await table.admit("p", step("a"), step("b", on_lost="ask"), step("c"), org="theirs")
    await table.admit("mine", step("z"), org="mine")
    claimed = await table.claim()
    await table.win(claimed["a"], o="secret")
    await table.begin(claimed["b"])
    await plans.lose(db, claimed["b"].fence, begun=True)
    await table.begin(claimed["c"])
    before = await tables(table.admin)
    for id in ("p", "p/a/1", "p/b/1", "p/c/1", "nowhere"):
        assert await plans.read(db, "mine", id) is None
        assert await ledger.read_run(db, "mine", id) is None
        assert await ledger.read_events(db, "mine", id, after=0) == []
        assert await terminal.watch_outcome(db, "mine", id, None) is None
        assert await terminal.cancel(db, "mine", id, reason="r", grace_ms=0) == ("unknown_run", None)
        assert await terminal.end(db, "mine", id, by="me", reason="r") == ("unknown_run", None)
        assert await recovery.wake(db, "mine", id) == ("unknown_run", None)
        assert await recovery.resolve(
            db, "mine", id, step=None, ordinal=None, row_key=None, verdict="completed", value="null", by="me"
        ) == ("unknown_run", None)
        assert await recovery.redrive(db, "mine", id, new_id="n", from_step=None, again=[], by="me") == (
            "unknown_run", None,
        )  # fmt: skip
        for name in ("a", "b", "c"):
            assert await plans.read_result(db, "mine", id, name, "o") is None
            assert await plans.declare_lost(db, "mine", id, name, by="me") == ("unknown_run", None)
    assert await tables(table.admin) == before
    assert (await table.ask("p", definition(step("q")), org="mine")).answer == "created", (
        "an id is an organisation's own"
    )


async def test_steps_and_results_of_one_plan_are_not_another_ones(db: Database, table: Table) -> None:
    """97.1 The same id in two organisations: each sees its own."""
    for org in ("mine", "theirs"):
        await table.admit("p", step("a"), org=org)
        await table.win(await table.one("a"), o=org)
    for org in ("mine", "theirs"):
        found = await plans.read_result(db, org, "p", "a", "o")
        assert found is not None
        assert found.text == org
        assert (await plans.read(db, org, "p") or {})["org"] == org


# ── how long ─────────────────────────────────────────────────────────────────────────────────────────────────────────


async def ended_plan(table: Table, id: str) -> list[int]:
    """A plan that left a row in every table; its runs."""
    rid = await table.admit(id, step("a"), step("b", "a", handoffs=[hand("a.o")], retry=retry(2)), step("c", "b"))
    await table.through("a", o="1")
    claimed = await table.one("b")
    await table.begin(claimed)
    await table.fail(claimed)
    claimed = await table.one("b")
    await table.begin(claimed)
    await table.win(claimed)
    await table.through("c")
    assert await table.status(id) == "completed"
    return [rid, *[r[0] for r in await table.admin.fetch("select rid from fencepost.run where parent = $1", rid)]]


async def test_retention_forgets_a_plan_whole_and_nothing_of_a_living_one(
    db: Database, table: Table, admin: asyncpg.Connection, clock: Clock
) -> None:
    """95.1 No crumb stays in any table; of a plan that lives, waits or is unknown nothing goes, however old its parts are."""
    await clock.set(NOON)
    runs = await ended_plan(table, "old")
    await table.admit("living", step("a"), step("b", "a", handoffs=[hand("a.o")]), step("u", on_lost="ask"))
    claimed = await table.claim()
    await table.win(claimed["a"], o="1")
    await table.begin(claimed["u"])
    await plans.lose(db, claimed["u"].fence, begun=True)
    b = await table.one("b")
    await table.begin(b)
    living = await table.plan("living")
    await clock.advance(31 * DAY)
    table.me = await new_holder(db)
    young = await ended_plan(table, "young")
    kept = {t: await look(admin, young[0], "count(*)", table=t) for t in TABLES}
    assert all(kept.values()), kept
    while (await retention.retain(db))[1]:
        pass
    for name in [r[0] for r in await admin.fetch(
        "select c.table_name::text from information_schema.columns c join information_schema.tables t using (table_schema, table_name) "
        "where c.table_schema = 'fencepost' and c.column_name = 'rid' and t.table_type = 'BASE TABLE'"
    )]:  # fmt: skip
        assert await admin.fetchval(f"select count(*) from fencepost.{name} where rid = any ($1)", runs) == 0, name
    assert await plans.read(db, "default", "old") is None
    assert {t: await look(admin, young[0], "count(*)", table=t) for t in TABLES} == kept
    now = await table.plan("living")
    assert {k: v for k, v in now.items() if k not in {"now", "steps"}} == {
        k: v for k, v in living.items() if k not in {"now", "steps"}
    }
    assert [s["outputs"] for s in now["steps"]] == [s["outputs"] for s in living["steps"]]
    assert (await plans.read_process(db, b.fence)) is not None
    await table.win(b)
    assert await table.status("living") == "unknown"


async def test_a_try_is_known_as_long_as_its_plan(db: Database, table: Table, clock: Clock) -> None:
    """95.1 A step that ended a month before the plan did: its run is referenced by the plan's results."""
    await clock.set(NOON)
    await table.admit("p", step("a"), step("b", "a"))
    await table.through("a", o="1")
    b = await table.one("b")
    await clock.advance(40 * DAY)
    await table.win(b)
    assert (await retention.retain(db))[1] == 0
    seen = (await table.steps("p"))["a"]
    assert (seen["child"], seen["child_state"]) == ("p/a/1", "completed")
    assert json.loads((await table.plan("p"))["output"])["succeeded"] == 2
