"""Chapter 85.5: somebody who knows says what became of the unknown, once; and ended work is done again, never silently twice."""

from __future__ import annotations

import json
from typing import Any

import asyncpg
import pytest

from fencepost import attempts, recovery, steps
from fencepost.attempts import Claimed
from fencepost.db import Database
from fencepost.steps import Kept, KeptBefore, OpenMap
from fencepost.suspension import Here
from fencepost.terminal import Ended
from fencepost.words import Verdict
from tests.support import admit_one, look, tables
from tests.support_runs import (
    ERROR,
    arm,
    boundary,
    cancel,
    child_of,
    claim_by,
    family,
    finish,
    history,
    holder_of,
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


async def resolve(
    db: Database, verdict: Verdict, value: str | None = None, *, step: str | None = "pay", ordinal: int | None = 1, key: str | None = None,
    run: str = "run", by: str = "ann",
) -> tuple[str, str | None]:  # fmt: skip
    return await recovery.resolve(db, "default", run, step=step, ordinal=ordinal, row_key=key, verdict=verdict, value=value, by=by)


async def unknown(db: Database, *names: str, run: str = "run") -> Claimed:
    """A run that is unknown for these steps."""
    mine = await running(db, run)
    for name in names:
        await mark(db, mine.fence, name)
    assert await finish(db, mine.fence, "unknown") == Ended("unknown", None)
    return mine


@pytest.mark.parametrize(
    ("verdict", "value", "expected"),
    [
        ("completed", '"paid"', ("kept", '"paid"')),
        ("completed", None, ("kept", "null")),
        ("failed", ERROR, ("failed", ERROR)),
        ("again", None, ("again", None)),
    ],
)
async def test_an_unknown_step_is_resolved_once_with_an_audit_line_and_the_run_continues(
    db: Database, admin: asyncpg.Connection, verdict: Verdict, value: str | None, expected: tuple[str, str | None]
) -> None:
    """85.5 Asked again after a lost reply, the same word gets the same answer; another word is too late."""
    mine = await unknown(db, "pay")
    rid = mine.fence.rid
    assert await resolve(db, verdict, value) == ("done", None)
    assert await boundary(admin, rid, "pay", "state", "value") == expected
    assert await look(admin, rid) == "queued"
    before = await tables(admin)
    assert await resolve(db, verdict, value) == ("done", None)
    assert (await resolve(db, "completed", '"other"'))[0] == "refused"
    assert (await resolve(db, verdict, value, by="bob"))[0] == "refused"
    assert await tables(admin) == before
    (line,) = await admin.fetch("select data from fencepost.event where type = 'run.resolved'")
    said = json.loads(line[0])
    assert (said["verdict"], said["step"], said["by"]) == (verdict, "pay", "ann")
    new = await claim_by(db, admin, rid)
    assert await resolve(db, verdict, value) == ("done", None)
    answer = await mark(db, new.fence)
    assert answer == ("marked" if verdict == "again" else "done")
    assert "step.marked" in await ledger_of(admin, rid)


async def test_the_run_continues_when_nothing_of_it_is_unknown_any_more(db: Database, admin: asyncpg.Connection) -> None:
    """85.5 Two steps: the first resolution alone wakes nobody."""
    mine = await unknown(db, "pay", "mail")
    await resolve(db, "completed", "1")
    assert await look(admin, mine.fence.rid) == "unknown"
    await resolve(db, "again", step="mail")
    assert await look(admin, mine.fence.rid) == "queued"


async def test_a_lookup_asked_for_lets_the_run_ask_at_once(db: Database, admin: asyncpg.Connection) -> None:
    """85.5 Though its step is still unknown: the next leg asks."""
    mine = await unknown(db, "pay", "mail")
    assert await resolve(db, "lookup") == ("done", None)
    assert await look(admin, mine.fence.rid) == "queued"
    assert await resolve(db, "lookup", step="else") == ("refused", "the run is queued, not unknown: it asks by itself")
    new = await claim_by(db, admin, mine.fence.rid)
    assert await mark(db, new.fence) == "standing"
    await finish(db, new.fence, "failed")
    assert await resolve(db, "lookup", step=None, ordinal=None) == ("done", None)
    assert await look(admin, mine.fence.rid) == "queued"


@pytest.mark.parametrize("verdict", ["completed", "failed", "again", "late", "lookup"])
async def test_what_is_not_unknown_is_not_resolved(db: Database, admin: asyncpg.Connection, verdict: Verdict) -> None:
    """85.5 A kept step, a repeatable mark, a step nobody recorded, another run's; a running attempt; an ended run."""
    mine = await unknown(db, "pay", run="other")
    await running(db, "busy")
    await finish(db, (await running(db, "ended")).fence)
    mixed = await running(db, "mixed")
    await keep(db, mixed.fence, "kept")
    await mark(db, mixed.fence, "twice", repeatable=True)
    await finish(db, mixed.fence, "unknown")
    before = await tables(admin)
    value = ERROR if verdict in ("completed", "failed") else None
    for run, step in (("busy", "pay"), ("ended", "pay"), ("mixed", "kept"), ("mixed", "twice"), ("mixed", "never"), ("busy", None), ("ended", None)):
        assert (await resolve(db, verdict, value, run=run, step=step))[0] == "refused", (run, step)
    assert await resolve(db, verdict, value, run="nobody") == ("unknown_run", None)
    assert await tables(admin) == before
    assert mine.fence.number == 1


@pytest.mark.parametrize(("verdict", "value"), [("failed", None), ("maybe", "1"), (None, None), ("late", None)])
async def test_a_word_that_resolves_nothing_is_refused_not_raised(
    db: Database, admin: asyncpg.Connection, verdict: Any, value: str | None
) -> None:
    """85.5, 00.4 No error to a failure, no such verdict, no evidence."""
    await unknown(db, "pay")
    before = await tables(admin)
    assert (await resolve(db, verdict, value))[0] == "refused"
    assert (await resolve(db, verdict, value, step=None))[0] == "refused"
    assert (await resolve(db, verdict, value, step=None, key="a"))[0] == "refused"
    assert await tables(admin) == before


async def test_evidence_of_a_failure_is_accepted_as_a_failure(db: Database, admin: asyncpg.Connection) -> None:
    """85.5, 50.2 Of the fence that the mark names; asked again it is the same answer."""
    mine = await unknown(db, "pay")
    await steps.deliver_late(db, mine.fence, "pay", 1, ok=False, value=ERROR)
    for _ in range(2):
        assert await resolve(db, "late") == ("done", None)
    assert await boundary(admin, mine.fence.rid, "pay", "state", "value") == ("failed", ERROR)
    assert (await ledger_of(admin, mine.fence.rid))[-3:] == ["step.failed", "late.accepted", "run.woken"]


@pytest.mark.parametrize(
    ("verdict", "value", "status"), [("completed", '"done"', "completed"), ("completed", None, "completed"), ("failed", ERROR, "failed")]
)
async def test_a_lost_attempt_without_an_unknown_step_is_resolved_as_a_whole(
    db: Database, admin: asyncpg.Connection, verdict: Verdict, value: str | None, status: str
) -> None:
    """85.5 The operator's word is the outcome; a parent that waits is told; a zombie observes it."""
    dad = await running(db, "dad")
    kid = await claim_by(db, admin, (await child_of(db, dad.fence, "run", on_lost="ask")).child)
    await attempts.begin(db, kid.fence)
    await wait(db, dad.fence)
    await lose(db, await holder_of(admin, kid.fence))
    for _ in range(2):
        assert await resolve(db, verdict, value, step=None, ordinal=None) == ("done", None)
    found = await outcome_of(admin, kid.fence.rid)
    assert found == (status, value if status == "completed" else None, value if status == "failed" else None)
    assert await look(admin, dad.fence.rid) == "queued"
    assert await finish(db, kid.fence, "completed", '"zombie"') == Ended("already_terminal", status)


async def test_an_attempt_is_not_resolved_over_its_unknown_steps(db: Database, admin: asyncpg.Connection) -> None:
    """85.5 First the steps; then nothing is left to resolve, and the run continues by itself."""
    mine = await running(db, "run", on_lost="ask")
    await attempts.begin(db, mine.fence)
    await mark(db, mine.fence)
    await lose(db, await holder_of(admin, mine.fence))
    for verdict in ("completed", "failed", "again"):
        answer = await resolve(db, verdict, ERROR, step=None)  # type: ignore[arg-type]  # one of the verdicts
        assert answer == ("refused", "resolve its unknown steps and rows first")
    await resolve(db, "completed", "1")
    assert await look(admin, mine.fence.rid) == "queued"


async def test_an_unknown_step_of_a_run_that_waits_may_be_resolved(db: Database, admin: asyncpg.Connection) -> None:
    """85.5 Its code dealt with the unknown and went on; no attempt runs; its wait is not disturbed."""
    mine = await running(db, "run")
    await mark(db, mine.fence)
    new = await villain_of(db, admin, mine)
    await wait(db, new.fence, arm("signal"))
    assert await resolve(db, "completed", "1") == ("done", None)
    assert await look(admin, mine.fence.rid) == "parked"
    await send(db, "run")
    again = await claim_by(db, admin, mine.fence.rid)
    assert [(r[1], r[3]) for r in history(again)] == [("pay", "kept"), ("review", "arrived")]


# Redrive


async def redrive(
    db: Database, new: str = "new", *, origin: str = "run", start: tuple[str, int] | None = None, again: tuple[str, ...] = ()
) -> tuple[str, str | None]:
    return await recovery.redrive(db, "default", origin, new_id=new, from_step=start, again=again, by="ann")


async def rid_of(admin: asyncpg.Connection, run: str) -> int:
    return await admin.fetchval("select rid from fencepost.run where id = $1", run)


async def test_a_redrive_starts_from_the_origins_committed_steps_with_their_keys(db: Database, admin: asyncpg.Connection) -> None:
    """85.5, 50.3 It names its origin; failures are asked again, what is unknown comes along unknown; asked again it is the same run."""
    mine = await running(db, "run", input='{"n": 1}', priority=7)
    await keep(db, mine.fence, "good", '{"a":  1}', repeatable=True)
    await mark(db, mine.fence, "charged")
    await keep(db, mine.fence, "charged", '"ok"')
    await keep(db, mine.fence, "bad", ERROR, ok=False)
    await mark(db, mine.fence, "unknown")
    await wait(db, mine.fence, arm("sleep", "nap", ms=0), arm("signal", "never"), park=False)
    await keep(db, mine.fence, "tag", "true", kind="value", repeatable=True)
    assert await redrive(db) == ("refused", "the run has not ended")
    await finish(db, mine.fence, "unknown")
    await cancel(db, "run")
    assert await redrive(db) == ("created", None)
    assert await redrive(db) == ("replayed", None)
    rid = await rid_of(admin, "new")
    same = ("org", "kind", "name", "lane", "release", "source", "priority", "input", "contract", "on_lost", "key_root")
    assert await look(admin, rid, *same, table="run") == await look(admin, mine.fence.rid, *same, table="run")
    assert await look(admin, rid, "origin", table="run") == mine.fence.rid
    new = await claim_by(db, admin, rid)
    assert [(r[0], r[1], r[3], r[6], r[8]) for r in history(new)] == [
        ("step", "good", "kept", True, '{"a":  1}'), ("step", "charged", "kept", True, '"ok"'), ("step", "unknown", "marked", True, None),
        ("sleep", "nap", "arrived", True, None), ("value", "tag", "kept", True, "true"),
    ]  # fmt: skip
    assert await mark(db, new.fence, "unknown") == "standing"
    assert await mark(db, new.fence, "charged") == "done"
    assert isinstance(await keep(db, new.fence, "bad", "2"), Kept)
    assert await keep(db, new.fence, "good", "9", repeatable=True) == KeptBefore(2, "kept", '{"a":  1}')


async def test_an_id_that_is_taken_or_unusable_is_refused(db: Database, admin: asyncpg.Connection) -> None:
    """85.5, 30.6 And an origin that does not exist, or another organisation's, is not there."""
    await finish(db, (await running(db, "run")).fence)
    await admit_one(db, "taken")
    before = await tables(admin)
    assert (await redrive(db, "taken"))[0] == "refused"
    assert (await redrive(db, " "))[0] == "refused"
    assert (await redrive(db, "run"))[0] == "refused"
    assert (await redrive(db, start=("never", 1)))[0] == "refused"
    assert await redrive(db, origin="nobody") == ("unknown_run", None)
    assert (await recovery.redrive(db, "else", "run", new_id="x", from_step=None, again=[], by="ann"))[0] == "unknown_run"
    assert await tables(admin) == before


async def test_starting_earlier_sets_aside_what_came_after_and_repeats_nothing_silently(db: Database, admin: asyncpg.Connection) -> None:
    """85.5 Refused while a step that is not repeatable is among that, kept or unknown, unless each is named."""
    mine = await running(db, "run")
    for name, repeatable in (("one", True), ("two", True), ("pay", False), ("three", True)):
        if not repeatable:
            await mark(db, mine.fence, name)
        await keep(db, mine.fence, name, f'"{name}"', repeatable=repeatable)
    await mark(db, mine.fence, "mail")
    await finish(db, mine.fence)
    answer, why = await redrive(db, start=("two", 1))
    assert answer == "refused"
    assert "mail#1, pay#1" in (why or "")
    assert (await redrive(db, start=("two", 1), again=("pay#1",)))[0] == "refused"
    assert (await redrive(db, start=("two", 1), again=("pay#2", "mail#1")))[0] == "refused"
    assert [r["answer"] for r in await db.call("redrive_run", "default", "run", "x", "two", None, None, "ann")] == ["refused"]
    assert await redrive(db, start=("two", 1), again=("pay#1", "mail#1")) == ("created", None)
    assert await redrive(db, "later", start=("three", 1), again=("mail#1",)) == ("created", None)
    assert [r[1] for r in history(await claim_by(db, admin, await rid_of(admin, "new")))] == ["one"]
    assert [r[1] for r in history(await claim_by(db, admin, await rid_of(admin, "later")))] == ["one", "two", "pay"]


async def rows_of(db: Database, admin: asyncpg.Connection, claimed: Claimed, name: str = "rows") -> tuple[OpenMap, dict[str, str]]:
    opened = await steps.open_map(
        db, claimed.fence, name, 1, hash="h", start=0, keys=["a", "b", "c", "d"], inputs=["1", "2", "3", "4"], repeatable=False, whole=True
    )
    assert isinstance(opened, OpenMap)
    return opened, {row.key: row.state for row in await steps.read_rows(db, opened.mid, -1, 10**6)}


@pytest.mark.parametrize("whole", [False, True])
async def test_a_redrive_repeats_no_row_that_the_origin_committed_or_left_unknown(
    db: Database, admin: asyncpg.Connection, whole: bool
) -> None:
    """85.5, 50.6 Failed rows are done again, unless their map was kept, tolerating them."""
    mine = await running(db, "run")
    opened, _ = await rows_of(db, admin, mine)
    for index in range(3):
        await steps.mark_row(db, mine.fence, opened.mid, index)
    await steps.keep_row(db, mine.fence, opened.mid, 0, "kept", '"A"')
    await steps.keep_row(db, mine.fence, opened.mid, 1, "failed", ERROR)
    if whole:
        await steps.keep_row(db, mine.fence, opened.mid, 2, "kept", '"C"')
        await steps.keep_row(db, mine.fence, opened.mid, 3, "kept", '"D"')
        await keep(db, mine.fence, "rows", "null", kind="map")
    await finish(db, mine.fence, "failed")
    await cancel(db, "run")
    assert await redrive(db) == ("created", None)
    new = await claim_by(db, admin, await rid_of(admin, "new"))
    again, states = await rows_of(db, admin, new)
    assert (again.mid != opened.mid, again.done) == (True, whole)
    if whole:
        assert states == {"a": "kept", "b": "failed", "c": "kept", "d": "kept"}
        return
    assert states == {"a": "kept", "b": "waiting", "c": "marked", "d": "waiting"}
    assert [await steps.mark_row(db, new.fence, again.mid, index) for index in range(4)] == ["done", "marked", "standing", "marked"]
    await finish(db, new.fence, "unknown")
    assert await recovery.resolve(
        db, "default", "new", step=None, ordinal=None, row_key="c", verdict="completed", value="1", by="ann"
    ) == ("done", None)  # fmt: skip


async def test_starting_before_a_map_of_rows_that_are_not_repeatable_is_refused_unless_it_is_named(
    db: Database, admin: asyncpg.Connection
) -> None:
    """85.5 Named, every row waits again."""
    mine = await running(db, "run")
    await keep(db, mine.fence, "one", repeatable=True)
    opened, _ = await rows_of(db, admin, mine)
    await steps.keep_row(db, mine.fence, opened.mid, 0, "kept", '"A"')
    await finish(db, mine.fence, "failed")
    assert (await redrive(db, start=("one", 1)))[0] == "refused"
    assert (await redrive(db, start=("rows", 1)))[0] == "refused"
    assert await redrive(db, start=("rows", 1), again=("rows#1",)) == ("created", None)
    new = await claim_by(db, admin, await rid_of(admin, "new"))
    assert [r[1] for r in history(new)] == ["one"]
    assert set((await rows_of(db, admin, new))[1].values()) == {"waiting"}


async def test_a_redrive_brings_the_results_of_children_and_starts_none_twice(db: Database, admin: asyncpg.Connection) -> None:
    """85.5, 60.10 A child that arrived is answered from the record."""
    dad, kid = await family(db, id="run")
    await finish(db, kid.fence, "completed", '"kid"')
    assert isinstance(await wait(db, dad.fence), Here)
    await finish(db, dad.fence, "failed")
    await redrive(db)
    new = await claim_by(db, admin, await rid_of(admin, "new"))
    assert [(r[0], r[1], r[3], r[10]) for r in history(new)] == [("child", "kid", "arrived", kid.fence.rid)]
    assert (await child_of(db, new.fence, "run-1")).how == "replayed"


async def test_a_redrive_of_a_redrive_names_the_one_before(db: Database, admin: asyncpg.Connection) -> None:
    """85.5 And keeps the first one's keys."""
    await finish(db, (await running(db, "run")).fence, "failed")
    await redrive(db, "second")
    await cancel(db, "second")
    assert await redrive(db, "third", origin="second") == ("created", None)
    roots = {await look(admin, await rid_of(admin, run), "key_root", table="run") for run in ("run", "second", "third")}
    assert len(roots) == 1
    assert await look(admin, await rid_of(admin, "third"), "origin", table="run") == await rid_of(admin, "second")
