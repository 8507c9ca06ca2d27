"""Gates for races: calls are made to wait for one row in a chosen order, then let go. No sleeps: lock waits are looked at."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from typing import Any

import asyncpg

Call = Callable[[], Awaitable[Any]]


async def waiting(watch: asyncpg.Connection, n: int) -> None:
    """Until n backends of this database wait for locks."""
    query = "select count(*) from pg_stat_activity where datname = current_database() and cardinality(pg_blocking_pids(pid)) > 0"
    async with asyncio.timeout(10):
        while await watch.fetchval(query) < n:  # noqa: ASYNC110 - PostgreSQL tells nobody
            await asyncio.sleep(0.005)  # waits: a lock wait begins without an event


@asynccontextmanager
async def transaction(dsn: str, isolation: Any = "read_committed") -> AsyncIterator[asyncpg.Connection]:
    """Somebody else's transaction: committed when the block ends, unless it was ended inside."""
    connection = await asyncpg.connect(dsn)
    try:
        async with connection.transaction(isolation=isolation):
            yield connection
    finally:
        await connection.close()


async def in_order(dsn: str, watch: asyncpg.Connection, rid: int, *calls: Call) -> list[Any]:
    """Each call waits for the run's row behind the one before it; then the row is free. Their answers or exceptions, as given."""
    tasks: list[asyncio.Task[Any]] = []
    async with transaction(dsn) as gate:
        await gate.execute("select from fencepost.task where rid = $1 for update", rid)
        for n, call in enumerate(calls, start=1):
            tasks.append(asyncio.ensure_future(call()))
            await waiting(watch, n)
    return await asyncio.gather(*tasks, return_exceptions=True)


async def together(*calls: Call) -> list[Any]:
    """All at once, from one barrier."""
    barrier = asyncio.Barrier(len(calls))

    async def one(call: Call) -> Any:
        await barrier.wait()
        return await call()

    return await asyncio.gather(*(one(call) for call in calls))


async def raced(dsn: str, admin: asyncpg.Connection, rid: int, turned: bool, first: Call, second: Call) -> list[Any]:
    """The two answers, first's and second's, after they met at the row in the asked order."""
    answers = await in_order(dsn, admin, rid, *((second, first) if turned else (first, second)))
    return answers[::-1] if turned else answers
