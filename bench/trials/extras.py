"""What the full table has besides: more worker processes, payloads, maps."""

from __future__ import annotations

from bench.field import Side
from bench.sizes import FAST
from bench.trials.draining import drain as drained
from bench.trials.drains import filled


async def workers(side: Side) -> dict[str, float]:
    """B with two and with four worker processes."""
    n = side.sizes.runs if side.name in FAST else side.sizes.runs_slow
    found: dict[str, float] = {}
    for processes in (2, 4):
        await filled(side, "noop", n)
        found[f"B_{processes}workers"] = (await drained(side, n, processes=processes)).rate
    return found


async def payloads(side: Side) -> dict[str, float]:
    """B with inputs of 1 kB and of 100 kB."""
    found: dict[str, float] = {}
    for size, n in ((1_000, side.sizes.runs_slow), (100_000, side.sizes.runs_slow // 10)):
        await filled(side, "noop", n, size=size)
        found[f"B_{size // 1000}kB"] = (await drained(side, n)).rate
    return found


async def rows(side: Side) -> dict[str, float]:
    """Rows a second of one map."""
    n = side.sizes.rows
    await side.reset()
    await side.run("fill", kind="rows", n=1, rows=n)
    await side.settle()
    return {"rows": (await drained(side, n, trial="flows")).rate}
