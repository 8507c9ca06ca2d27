"""What wakes a fleet: nobody stampedes for one run, and work for everybody is not left to a few (00.10)."""

from __future__ import annotations

import asyncio
import uuid
from collections import Counter
from typing import Any

import asyncpg

from fencepost import admission, attempts
from fencepost.db import Database
from tests.support import admit_one, lane_of, launch, new_holder

FLEET = 200


async def asleep(db: Database, admin: asyncpg.Connection, fleet: int) -> Counter[str]:
    """So many workers that found nothing and sleep; the calls that reach each of them."""
    calls: Counter[str] = Counter()

    def heard(_connection: Any, _pid: int, channel: str, payload: object) -> None:
        calls[f"{channel} {payload}"] += 1

    lane = await lane_of(db)
    for _ in range(fleet):
        await admin.add_listener(await attempts.sleep(db, await new_holder(db), lane, asleep=True), heard)
    return calls


async def settle(admin: asyncpg.Connection) -> None:
    """Everything that was notified before has been heard: a later word on the same connection has."""
    channel, last = f"last_{uuid.uuid4().hex}", asyncio.Event()
    await admin.add_listener(channel, lambda *_: last.set())
    await admin.execute("select pg_notify($1, '')", channel)
    async with asyncio.timeout(10):
        await last.wait()


async def test_one_run_wakes_no_herd(db: Database, admin: asyncpg.Connection) -> None:
    """B139 Of two hundred that sleep at most three are called, so that at most three ask at once."""
    calls = await asleep(db, admin, FLEET)
    await admit_one(db)
    await settle(admin)
    assert 1 <= len(calls) <= 3
    assert all(call.endswith(" work") for call in calls)


async def test_many_runs_of_one_call_wake_as_many_as_there_is_work_for(db: Database, admin: asyncpg.Connection) -> None:
    """B87 Each sleeper is called on a channel of its own: no two calls are the same and so none is dropped as a repetition."""
    calls = await asleep(db, admin, 12)
    lane = await lane_of(db)
    await admission.admit(db, [launch(lane=lane) for _ in range(100)])
    await settle(admin)
    assert len(calls) == 12


async def test_many_admissions_of_one_transaction_wake_many(db: Database, admin: asyncpg.Connection, dsn: str) -> None:
    """B87 None of them sees what the others did, and all calls to one sleeper are one: whom each wakes is left to chance."""
    calls = await asleep(db, admin, 12)
    lane = await lane_of(db)
    other = await asyncpg.connect(dsn)
    try:
        async with other.transaction():
            for _ in range(100):
                await admission.admit_on(db, other, launch(lane=lane))
    finally:
        await other.close()
    await settle(admin)
    assert len(calls) >= 10
