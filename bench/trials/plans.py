"""H: what a run costs more as a step of a plan; and what a step that is a process takes."""

from __future__ import annotations

import asyncio
import statistics
import time
from typing import Final

from bench.field import Side
from bench.trials.draining import SECONDS_MAX, Unfinished
from bench.trials.draining import drain as drained
from bench.trials.drains import filled

SHAPES: Final = ("wide", "layers")
LOOK_SECONDS: Final = 0.05  # what is measured here stands in the rows: nothing hangs on when it is seen

# By the database's clock: a step begins when what it needs has ended, and ends when its result is committed.
LONE: Final = """
select percentile_cont(0.5) within group (order by extract(epoch from s.ended_at - s.started_at) * 1000)::float8
  from fencepost.step s join fencepost.run r on r.rid = s.rid where r.name = 'lone'"""
RATE: Final = """
select count(*) / extract(epoch from max(s.ended_at) - min(s.started_at))::float8
  from fencepost.step s join fencepost.run r on r.rid = s.rid where r.name = 'commands'"""
NOT_DONE: Final = (
    "select string_agg(distinct coalesce(s.reason, s.state), '; ') from fencepost.step s where s.state <> 'succeeded'"
)


async def plans(side: Side) -> dict[str, float]:
    """A plan of so many no-op steps ÷ as many independent no-op runs, each between two drains of those: the machine's pace changes."""
    alone = [await _runs(side)]
    found: dict[str, float] = {}
    for shape in SHAPES:
        rate = await _plan(side, shape)
        alone.append(await _runs(side))
        found[f"Plan_{shape}"] = rate / statistics.mean(alone[-2:])
    return found | await _commands(side)


async def _runs(side: Side) -> float:
    await filled(side, "noop", side.sizes.steps)
    return (await drained(side, side.sizes.steps, trial="plans")).rate


async def _plan(side: Side, shape: str) -> float:
    await side.reset()
    await side.run("fill", kind=shape, n=1, rows=side.sizes.steps)
    await side.settle()
    rate = (await drained(side, side.sizes.steps, trial="plans")).rate
    await _judge(side)
    return rate


async def _commands(side: Side) -> dict[str, float]:
    """A lone command step, the median of some; and many, eight at a time."""
    sizes = side.sizes
    await side.reset()
    async with side.workers(1, "plans"):
        for kind, n in (("lone", sizes.lone), ("commands", sizes.commands)):
            await side.run("fill", kind=kind, n=1, rows=n)
            await _over(side)
    await _judge(side)
    return {"Command_ms": await side.db.fetchval(LONE), "Commands": await side.db.fetchval(RATE)}


async def _over(side: Side) -> None:
    end = time.monotonic() + SECONDS_MAX
    while await side.left():
        if time.monotonic() > end:
            raise Unfinished(f"a plan did not end within {SECONDS_MAX:g} s")
        await asyncio.sleep(LOOK_SECONDS)  # waits: a plan's end rings nobody here


async def _judge(side: Side) -> None:
    """What failed was not measured."""
    if (why := await side.db.fetchval(NOT_DONE)) is not None:
        raise Unfinished(f"steps did not succeed: {why[:400]}")
