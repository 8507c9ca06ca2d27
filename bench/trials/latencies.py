"""D, with defaults: from a durable enqueue to the handler's first line; from an event to the line after a durable wait.

And of C the lone workflow: what a step takes when there is nothing to share a commit with.
"""

from __future__ import annotations

import asyncio

from bench.field import Side
from bench.processes import ChildFailed

WARM = 200
SETTLE_SECONDS = 2.0


async def warm(side: Side) -> None:
    """A worker that has worked, and is idle now."""
    want = side.board.total() + WARM
    await side.run("fill", n=WARM)
    async with asyncio.timeout(60):
        while side.board.total() < want:
            await asyncio.sleep(0.01)  # waits: the board is shared memory, nobody rings
    await asyncio.sleep(SETTLE_SECONDS)  # waits: what follows work is no part of idleness


async def latencies(side: Side) -> dict[str, float]:
    """Milliseconds."""
    async with side.workers(1, "latencies") as (worker,):
        try:
            await warm(side)
            return await _probed(side)
        except ChildFailed as error:  # who asked in vain does not know why; who was to answer may
            raise ChildFailed(f"{error}; the worker said: {worker.last_words()}") from None


async def _probed(side: Side) -> dict[str, float]:
    sizes = side.sizes
    seen = await side.run("probe", "latencies", n=sizes.probes, alone=sizes.alone if side.cls.durable else 0)
    found = {"Dstart_ms": seen["start"]["p50"], "Dstart99_ms": seen["start"]["p99"]}
    if seen["alone"] is not None:
        found["Calone_ms"] = seen["alone"]
    if side.cls.events:
        seen = await side.run("wake", "latencies", n=sizes.wakes)
        found |= {"Dwake_ms": seen["wake"]["p50"], "Dwake99_ms": seen["wake"]["p99"]}
    return found
