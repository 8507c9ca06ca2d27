"""A walk through every door, as the worker role, with every answer looked at: for odd names, odd paths, odd weather."""

from __future__ import annotations

import asyncio
import contextlib
import uuid
from collections.abc import Iterator

from fencepost import (
    admission,
    attempts,
    lanes,
    ledger,
    plans,
    recovery,
    retention,
    shared,
    steps,
    suspension,
    terminal,
)
from fencepost.admission import Admitted, Launch
from fencepost.attempts import Claimed
from fencepost.db import Database
from fencepost.suspension import Here, Parked, Started, Wait
from fencepost.testing import at_point
from fencepost.words import Fence


@contextlib.contextmanager
def opened() -> Iterator[set[str]]:
    """The doors that answered meanwhile."""
    doors: set[str] = set()
    with at_point("statement.executed", lambda facts, _: doors.add(facts["door"])):
        yield doors


async def walk(db: Database) -> None:
    """One life of several runs. Expects an installation that nobody used; AssertionError where an answer is not the lawful one."""
    lane = await lanes.register(db, "dev")
    assert [known.name for known in await lanes.read(db)] == ["runs"]
    me = uuid.uuid4()
    await attempts.open_incarnation(
        db,
        me,
        lane=lane.lane,
        name="w",
        boot_id="b",
        pid_namespace="1",
        pid=1,
        process_start="1",
        lease_seconds=30,
        heartbeat_seconds=8,
    )
    requests = iter(range(1, 1000))

    async def admit(name: str) -> int:
        launch = Launch(org="default", id=name, name="work", lane=lane.lane, release="dev", input='{"a":1}')
        (answer,) = await admission.admit(db, [launch])
        assert isinstance(answer, Admitted)
        again = await admission.admit_together(db, [launch, launch], repair=True)
        assert again == [Admitted(answer.rid, "replayed", repair_needed=False)] * 2
        return answer.rid

    async def claim() -> Claimed:
        claim = await attempts.claim(db, me, next(requests), lane=lane.lane, most=1, cursor="", alone=True, patience=30)
        return claim.claimed[0]

    await admit("first")
    first = await claim()
    await _steps_and_rows(db, first.fence)
    await _waits(db, first.fence)
    again = await claim()
    assert again.fence.number == 2
    assert (await attempts.read_boundaries(db, again.fence.rid, -1, ""))[0] == again.boundaries
    assert await attempts.read_input(db, again.fence.rid) == '{"a":1}'
    await _child(db, again.fence, claim)
    assert (await terminal.finish(db, again.fence, "completed", "1")).how == "committed"  # type: ignore[union-attr]  # else it fails here
    outcome = await terminal.watch_outcome(db, "default", "first", "nobody")
    assert outcome is not None
    assert (outcome.status, outcome.output) == ("completed", "1")
    redriven = await recovery.redrive(db, "default", "first", new_id="anew", from_step=None, again=[], by="me")
    assert redriven == ("created", None)
    assert (await terminal.end(db, "default", "anew", by="me", reason=""))[0] == "done"
    await _odd_ends(db, admit, claim)
    await _tree(db, me, next(requests), await admit("tree"))
    await _from_sql(db)
    await _plan(db, me, lane.lane, requests)
    await _looks(db, lane.lane)
    assert (await attempts.sleep(db, me, lane.lane, asleep=True)).startswith("fp_")
    assert (await recovery.beat(db, me, answered=0, held=[], dead=[], patience=30)).buried is False
    assert await retention.retain(db) == (0, 0)
    assert await recovery.close_incarnation(db, me, patience=30) >= 0


async def _steps_and_rows(db: Database, fence: Fence) -> None:
    assert await attempts.begin(db, fence) == "begun"
    assert await steps.mark(db, fence, "s", 1, hash="h", repeatable=False, timeout_ms=None, again=False) == "marked"
    assert await steps.ask_mark(db, fence.rid, "s", 1) is None
    assert await steps.deliver_late(db, fence, "s", 2, ok=True, value="1") is False
    await steps.keep(db, fence, "step", "s", 1, hash="h", repeatable=False, ok=True, value="1")
    asked = await shared.ask(
        db, fence, "o", 1, hash="h", key="k", epoch="e", repeatable=True, timeout_ms=None, wait="w", again=False
    )
    assert isinstance(asked, shared.Entry)
    assert await shared.peek(db, fence.rid, "o", 1) == ("held", asked.root, None)
    await steps.keep(db, fence, "step", "o", 1, hash="h", repeatable=True, ok=True, value="1")
    assert await shared.wake(db, fence.rid, "o", 1) == 0
    made = await steps.open_map(
        db, fence, "m", 1, hash="h", start=0, keys=["k"], inputs=["1"], repeatable=True, whole=True
    )
    assert isinstance(made, steps.OpenMap)
    assert [row.key for row in await steps.read_open_rows(db, made.mid, -1, most=9, max_bytes=1000)] == ["k"]
    assert await steps.mark_row(db, fence, made.mid, 0) == "marked"
    assert await steps.keep_row(db, fence, made.mid, 0, "kept", "2") == "kept"
    assert [row.value for row in await steps.read_rows(db, made.mid, -1, 1000)] == ["2"]
    assert (await steps.read_row_counts(db, made.mid)).kept == 1
    assert [row.value for row in await steps.read_run_rows(db, "default", "first")] == ["2"]
    await steps.keep(db, fence, "map", "m", 1, hash="h", repeatable=True, ok=True, value="[2]")
    assert await ledger.note_progress(db, [(fence, "half")]) == 1


async def _waits(db: Database, fence: Fence) -> None:
    assert isinstance(
        await suspension.wait(db, fence, [Wait("signal", "go", 1, ms=60000)], known_seq=0, park=True), Parked
    )
    assert await suspension.signal(db, "default", "first", "go", dedupe="1", payload="true") == "sent"
    assert await suspension.signal(db, "default", "first", "go", dedupe="1", payload="true") == "repeated"


async def _child(db: Database, fence: Fence, claim) -> None:
    started = await suspension.start_child(
        db, fence, "c", 1, hash="h", waits=True, child_id="child", child_name="work", input="1", on_lost=None
    )
    assert isinstance(started, Started)
    child = await claim()
    assert child.fence.rid == started.child
    assert (await terminal.finish(db, child.fence, "failed", '{"code":"WORKFLOW_ERROR"}')).how == "committed"
    assert isinstance(await suspension.wait(db, fence, [], known_seq=0, park=True), Here)


async def _odd_ends(db: Database, admit, claim) -> None:
    await admit("given")
    assert await attempts.give_back(db, (await claim()).fence) == "given_back"
    assert (
        await attempts.defer(db, (await claim()).fence, reason="workflow_missing", dependency="x", delay_ms=60000)
    ).exhausted is False
    assert await recovery.wake(db, "default", "given") == ("done", "queued")
    assert await terminal.cancel(db, "default", "given", reason="r", grace_ms=1) == ("accepted", "cancelled")
    await admit("lost")
    fence = (await claim()).fence
    await steps.mark(db, fence, "s", 1, hash="h", repeatable=False, timeout_ms=None, again=False)
    assert (await terminal.finish(db, fence, "unknown", "{}")).how == "unknown"
    resolved = await recovery.resolve(
        db, "default", "lost", step="s", ordinal=1, row_key=None, verdict="completed", value="1", by="me"
    )
    assert resolved == ("done", None)
    rows = await recovery.resolve_rows(
        db, "default", "lost", step=None, ordinal=None, keys=["k"], verdict="again", value=None, by="me"
    )
    assert rows == [("not_found", "no unknown row has this key")]
    assert await terminal.judge_bound(db, "default", "lost") is False
    assert (await terminal.end(db, "default", "lost", by="me", reason="r"))[0] == "done"


async def _tree(db: Database, me: uuid.UUID, request: int, root: int) -> None:
    assert await recovery.register_workflows(db, me, (await lanes.register(db, "dev")).lane, {"work": "digest"}) == 0
    (claimed,) = (await attempts.claim_tree(db, me, request, root=root, most=5, patience=30)).claimed
    assert (await terminal.finish(db, claimed.fence, "completed", None)).how == "committed"


async def _from_sql(db: Database) -> None:
    (made,) = await db.call("admit_run", "work")
    assert made["answer"] == "created"
    assert (await db.call("send_signal", made["run_id"], "x"))[0]["send_signal"] == "sent"
    assert (await terminal.end(db, "default", made["run_id"], by="me", reason="r"))[0] == "done"


PLAN = """{"name": "p", "max_concurrency": 2, "steps": [
  {"id": "a", "kind": "command", "needs": [], "handoffs": [], "retry": {"max_attempts": 1, "on": []}, "timeout_ms": null, "on_lost": "replay"},
  {"id": "b", "kind": "workflow", "needs": [{"step": "a"}], "retry": {"max_attempts": 1, "on": []}, "on_lost": "replay", "workflow": "work",
   "input": null, "handoffs": [{"id": "i", "input": "i", "step": "a", "output": "o", "mode": "content", "required": true}]}]}"""


async def _plan(db: Database, me: uuid.UUID, lane: int, requests: Iterator[int]) -> None:
    made = await plans.admit(
        db, org="default", run_id="p1", name="p", lane=lane, release="dev", source="program", definition=PLAN
    )
    assert (made.answer, made.rid is not None) == ("created", True)
    other, carrier = uuid.uuid4(), plans.Carrier("b", "1", 1, "1", "host", "/folder")
    await attempts.open_incarnation(
        db, other, lane=lane, name="o", boot_id="b", pid_namespace="1", pid=2, process_start="1", lease_seconds=30,
        heartbeat_seconds=8,
    )  # fmt: skip
    (lost,) = (await attempts.claim(db, other, 1, lane=lane, most=1, cursor="", alone=True, patience=30)).claimed
    packet = await plans.begin(db, lost.fence, carrier)
    assert isinstance(packet, str)
    assert '"step" : "a"' in packet
    await recovery.close_incarnation(db, other, patience=30)
    orphans = await attempts.claim_orphans(db, me, next(requests), [lost.fence.rid], root=made.rid, patience=30)
    assert [one.fence for one in orphans.claimed] == [lost.fence]
    assert await plans.read_process(db, lost.fence) == (packet, 1, "1", "/folder")
    assert (await plans.declare_lost(db, "default", "p1", "a", by="me"))[0] == "refused"
    assert await plans.lose(db, lost.fence, begun=True) == "lost"
    await plans.clear_loose(db, lost.fence.rid, lost.fence.number)
    (again,) = (
        await attempts.claim(db, me, next(requests), lane=lane, most=1, cursor="", alone=True, patience=30)
    ).claimed
    assert isinstance(await plans.begin(db, again.fence, carrier), str)
    output = '{"outputs": {"o": {"media_type": "text/plain", "size": 1, "digest": "sha256:x", "text": "h"}}}'
    assert (await terminal.finish(db, again.fence, "completed", output)).status == "completed"
    result = await plans.read_result(db, "default", "p1", "a", "o")
    assert result is not None
    assert (result.text, result.rid) == ("h", made.rid)
    seen = await plans.read(db, "default", "p1")
    assert seen is not None
    assert [step["state"] for step in seen["steps"]] == ["succeeded", "running"]
    assert (await terminal.cancel(db, "default", "p1", reason="r", grace_ms=1))[1] == "cancelled"
    await plans.clear_loose(db, lost.fence.rid, lost.fence.number)
    assert await retention.known(db, [lost.fence.rid, 10**12]) == {lost.fence.rid}


async def _looks(db: Database, lane: int) -> None:
    assert (await ledger.read_run(db, "default", "first"))["status"] == "completed"
    assert {
        run.run_id
        for run in await ledger.read_runs(db, org=None, statuses=["failed"], name=None, before=None, limit=50)
    } >= {"child", "lost"}
    assert (await ledger.read_events(db, "default", "first", after=0))[0].type == "run.admitted"
    own = await ledger.read_events(db, "default", "first", after=0, rows=False)
    assert own == [
        e for e in await ledger.read_events(db, "default", "first", after=0) if not e.type.startswith("row.")
    ]
    async with asyncio.timeout(60):
        # Its horizon is the whole server's: another test's open transaction, in another database, holds it back.
        while not (outbox := await ledger.read_outbox(db, (0, 0, 0))):
            pass
    assert outbox[0].run_id == "first"
    assert await ledger.read_unknown_rows(db, "default", "first") == []
    assert (await ledger.read_installation(db))["schema_version"] == 1
    assert len(await ledger.read_workers(db, lane)) == 1
    assert (await db.call("read_clock"))[0]["read_clock"] is not None
