"""B: no-op runs by one worker process. C: workflows of ten steps, repeatable ones and marked ones."""

from __future__ import annotations

from bench.field import Side
from bench.sizes import FAST
from bench.trials.draining import Drained
from bench.trials.draining import drain as drained


async def filled(side: Side, kind: str, n: int, *, size: int = 0) -> None:
    """`n` tasks, enqueued through the system's own client, and the tables as they are after a while."""
    await side.reset()
    await side.run("fill", kind=kind, n=n, size=size)
    await side.settle()


async def drain(side: Side) -> dict[str, float]:
    """No-op runs a second, and what one costs."""
    n = side.sizes.runs if side.name in FAST else side.sizes.runs_slow
    await filled(side, "noop", n)
    seen = await drained(side, n)
    return {"B": seen.rate, "cpu_run_us": seen.client_us, "server_run_us": seen.server_us, "wal_run_b": seen.wal}


async def _flows(side: Side, kind: str) -> Drained:
    n = side.sizes.flows if side.name in FAST else side.sizes.flows_slow
    await filled(side, kind, n)
    return await drained(side, n, trial="flows")


async def flows(side: Side) -> dict[str, float]:
    """Steps a second, and what one costs, its share of the workflow's start and end included."""
    seen = await _flows(side, "steps")
    return {
        "C": seen.rate * 10, "cpu_step_us": seen.client_us / 10, "server_step_us": seen.server_us / 10, "wal_step_b": seen.wal / 10,
    }  # fmt: skip


async def marked(side: Side) -> dict[str, float]:
    """The same with steps that may not run twice: each is marked before it runs."""
    seen = await _flows(side, "marked")
    return {"Cmarked": seen.rate * 10}
