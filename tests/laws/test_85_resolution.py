"""Chapter 85.5: somebody who knows says what became of the unknown, once; and ended work is done again, never silently twice."""

from __future__ import annotations

import json
from typing import Any

import asyncpg
import pytest

from fencepost import attempts, recovery, steps
from fencepost.attempts import Claimed
from fencepost.db import Database
from fencepost.terminal import Ended
from fencepost.words import Verdict
from tests.support import look, tables
from tests.support_runs import (
    ERROR,
    arm,
    boundary,
    child_of,
    claim_by,
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
    return await recovery.resolve(
        db, "default", run, step=step, ordinal=ordinal, row_key=key, verdict=verdict, value=value, by=by
    )


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


async def test_the_run_continues_when_nothing_of_it_is_unknown_any_more(
    db: Database, admin: asyncpg.Connection
) -> None:
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
    busy = await running(db, "busy")
    await mark(db, busy.fence)
    await villain_of(db, admin, busy)
    await finish(db, (await running(db, "ended")).fence)
    mixed = await running(db, "mixed")
    await keep(db, mixed.fence, "kept")
    await mark(db, mixed.fence, "twice", repeatable=True)
    await finish(db, mixed.fence, "unknown")
    before = await tables(admin)
    value = ERROR if verdict in ("completed", "failed") else None
    for run, step in (
        ("busy", "pay"),
        ("ended", "pay"),
        ("mixed", "kept"),
        ("mixed", "twice"),
        ("mixed", "never"),
        ("busy", None),
        ("ended", None),
    ):
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
    ("verdict", "value", "status"),
    [("completed", '"done"', "completed"), ("completed", None, "completed"), ("failed", ERROR, "failed")],
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
