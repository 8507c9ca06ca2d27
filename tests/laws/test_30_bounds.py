"""Chapter 30: the policy of a source, and how long a run may wait to be claimed."""

from __future__ import annotations

import json
from datetime import UTC, datetime
from typing import Any

import asyncpg
import pytest

from fencepost import admission, terminal
from fencepost.admission import Admitted
from fencepost.db import Database
from fencepost.testing import Clock
from tests.support import claim_all, claim_one, lane_of, launch, look, new_holder
from tests.support_runs import beat, child_of, lose, running

NOON = datetime(2031, 5, 6, 12, tzinfo=UTC)
pytestmark = pytest.mark.usefixtures("lawful")


async def admit(db: Database, **changed: Any) -> Any:
    """One launch's answer."""
    given = {"lane": await lane_of(db)} | changed
    return (await admission.admit(db, [launch(**given)]))[0]


# 30.7

POLICY = {
    "api": (100, 10.0),
    "webhook": (0, None),
    "cron": (-10, 1800.0),
    "sql_listener": (-10, 1800.0),
    "async_child": (0, None),
    "program": (0, None),
    None: (100, 10.0),
}


@pytest.mark.parametrize("source", POLICY)
async def test_a_launch_has_the_policy_of_its_source(
    db: Database, admin: asyncpg.Connection, clock: Clock, source: Any
) -> None:
    """30.7 Priority and the longest wait to be claimed; no source at all is api."""
    await clock.set(NOON)
    made = await admit(db, source=source)
    priority, bound = POLICY[source]
    assert await look(admin, made.rid, "priority", "source", table="run") == (priority, source or "api")
    stored = await look(
        admin, made.rid, "priority", "extract(epoch from claim_by - $2)::float8".replace("$2", f"'{NOON}'::timestamptz")
    )
    assert stored == (priority, bound)


async def test_callers_may_override_the_policy(db: Database, admin: asyncpg.Connection, clock: Clock) -> None:
    """30.7 Also by the longest wait for a sandbox, as the table holds it."""
    await clock.set(NOON)
    made = await admit(db, source="api", priority=-7, claim_ms=60_000)
    assert await look(admin, made.rid, "priority", f"claim_by = '{NOON}'::timestamptz + interval '1 min'") == (-7, True)
    plain = await admit(db, source="cron")
    assert await look(admin, plain.rid, "priority") == -10
    unbound = await admit(db, source="api", claim_ms=-1)
    assert await look(admin, unbound.rid, "claim_by") is None
    rows = await admin.fetch("select source, sandbox_ms from fencepost.policy order by source")
    assert {row[0]: row[1] for row in rows} == {
        "api": 0, "webhook": None, "cron": 1_800_000, "sql_listener": 1_800_000, "async_child": None, "program": None,
    }  # fmt: skip


async def test_sql_callers_default_to_program(db: Database, admin: asyncpg.Connection) -> None:
    """30.7"""
    await db.call("admit_run", "work", "null", "it")
    row = await admin.fetchrow("select source, priority from fencepost.run")
    assert tuple(row) == ("program", 0)


# 30.8, 30.9


async def test_a_run_past_its_claim_bound_fails_when_anybody_asks_and_no_worker_is_needed(
    db: Database, admin: asyncpg.Connection, clock: Clock
) -> None:
    """30.8 Also 30.9: at the bound or after, never before; from then on ADMISSION_EXPIRED."""
    await clock.set(NOON)
    made = await admit(db, id="it", source="api")
    await clock.advance(9.999)
    assert await terminal.judge_bound(db, "default", "it") is False
    assert await look(admin, made.rid, "state") == "queued"
    await clock.advance(0.001)
    assert await terminal.judge_bound(db, "default", "it") is True
    assert await terminal.judge_bound(db, "default", "it") is True, "asked again"
    status, error = await look(admin, made.rid, "status", "error", table="outcome")
    assert (status, json.loads(error)["code"]) == ("failed", "ADMISSION_EXPIRED")
    assert await claim_all(db, await new_holder(db)) == ()


async def test_a_beat_judges_the_bound_too(db: Database, admin: asyncpg.Connection, clock: Clock) -> None:
    """30.9 Of every lane: whoever lives keeps everybody's hours."""
    await clock.set(NOON)
    made = await admit(db, source="api")
    worker = await new_holder(db, release="another")
    await clock.advance(9)
    await beat(db, worker)
    assert await look(admin, made.rid, "state") == "queued"
    await clock.advance(1)
    await beat(db, worker)
    assert await look(admin, made.rid, "status", table="outcome") == "failed"


async def test_the_claim_bound_ends_with_the_first_claim(db: Database, admin: asyncpg.Connection, clock: Clock) -> None:
    """30.8 A run that was claimed in time and lost, or given back, waits as long as it must."""
    await clock.set(NOON)
    made = await admit(db, id="it", source="api")
    holder = await new_holder(db)
    await claim_one(db, holder)
    await lose(db, holder)
    await clock.advance(3600)
    assert await terminal.judge_bound(db, "default", "it") is False
    await beat(db, await new_holder(db))
    assert await look(admin, made.rid, "state") == "queued"


async def test_the_bound_counts_from_the_instant_the_run_is_due(
    db: Database, admin: asyncpg.Connection, clock: Clock
) -> None:
    """30.8 Delayed by a minute, it may wait ten seconds from there."""
    await clock.set(NOON)
    made = await admit(db, id="it", source="api", delay_ms=60_000)
    await clock.advance(69.999)
    assert await terminal.judge_bound(db, "default", "it") is False
    assert await look(admin, made.rid, "state") == "queued"
    await clock.advance(0.001)
    assert await terminal.judge_bound(db, "default", "it") is True


async def test_inside_a_callers_transaction_the_bound_does_not_apply_unless_asked(
    db: Database, admin: asyncpg.Connection, clock: Clock
) -> None:
    """30.8 The caller commits when the caller likes."""
    await clock.set(NOON)
    lane = await lane_of(db)
    async with db.connection() as mine, mine.transaction():
        plain = await admission.admit_on(db, mine, launch(lane=lane, source="api"))
        asked = await admission.admit_on(db, mine, launch(lane=lane, source="api", claim_ms=5000))
        await db.call_on(mine, "admit_run", "work", "null", "from-sql", "default", "dev", "api")
    assert isinstance(plain, Admitted)
    assert isinstance(asked, Admitted)
    assert await look(admin, plain.rid, "claim_by") is None
    assert await look(admin, asked.rid, "claim_by") is not None
    assert await admin.fetchval("select count(*) from fencepost.task where claim_by is null") == 2


@pytest.mark.parametrize("source", ["webhook", "program", "async_child"])
async def test_a_webhook_a_child_and_a_program_run_never_end_for_want_of_capacity(
    db: Database, admin: asyncpg.Connection, clock: Clock, source: Any
) -> None:
    """30.9 Ten years in the line, with a worker that beats and never claims."""
    await clock.set(NOON)
    if source == "async_child":
        parent = await running(db, "dad")
        rid = (await child_of(db, parent.fence, "kid")).child
    else:
        rid = (await admit(db, source=source)).rid
    await clock.advance(10 * 365 * 86400)
    await beat(db, await new_holder(db))
    assert await terminal.judge_bound(db, "default", await look(admin, rid, "id", table="run")) is False
    assert await look(admin, rid, "state") == "queued"
