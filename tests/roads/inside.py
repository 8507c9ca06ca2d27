"""A worker in the test's own process, from its first beat to its drain; and how its runs end."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator
from typing import Any

import asyncpg

from fencepost import App
from fencepost.settings import Settings
from fencepost.worker.loop import Worker
from tests.roads.crew import until_row


@contextlib.asynccontextmanager
async def working(app: App, dsn: str, *, lease: float = 30.0, beat: float = 8.0, **how: Any) -> AsyncIterator[Worker]:
    """Ready inside the block, drained behind it."""
    worker = Worker(app, Settings(database_url=dsn, lease_seconds=lease, heartbeat_seconds=beat), threads=2, **how)
    stop, ready = asyncio.Event(), asyncio.Event()
    running = asyncio.ensure_future(worker.run(stop, on_ready=lambda _: ready.set()))
    started = asyncio.ensure_future(ready.wait())
    try:
        await asyncio.wait({running, started}, return_when=asyncio.FIRST_COMPLETED)
        yield worker
    finally:
        started.cancel()
        stop.set()
        assert await running == 0


async def ends(admin: asyncpg.Connection, rid: int, seconds: float = 20.0) -> Any:
    """How a run ends."""
    ask = "select status from fencepost.outcome where rid = $1"
    return await until_row(lambda: admin.fetchval(ask, rid), f"the end of run {rid}", seconds)
