"""E: what a full table, an old snapshot and plans made on empty tables do to the rate. Each figure is a ratio: with it ÷ without."""

from __future__ import annotations

import statistics
import time

from bench.field import Side
from bench.server import database
from bench.trials.draining import SECONDS_MAX, Unfinished
from bench.trials.draining import drain as drained
from bench.trials.latencies import warm


async def _rates(side: Side, pending: int, parked: int = 0, ended: int = 0, orgs: int = 1) -> list[float]:
    """The rates of some drains of a few thousand runs out of `pending`, beside so many parked and ended ones."""
    sizes = side.sizes
    rates: list[float] = []
    for turn in range(sizes.repeats):
        small = pending <= sizes.few
        if turn == 0 or (small and not parked):
            await side.reset()
            await side.fill_rows(pending, parked, ended, orgs)
        elif small:
            await side.fill_rows(sizes.backlog)  # as many as the last drain took
        await side.settle(written=True)
        rates.append((await drained(side, pending, trial="backlog", part=min(sizes.backlog, pending))).steady)
    return rates


async def pending(side: Side) -> dict[str, float]:
    """A million pending over 1 organisation, and over 1 000 where there are such, ÷ 10 000 pending. The lower of the two is the figure."""
    sizes = side.sizes
    few = await _rates(side, sizes.few)
    many = {"Epending1": await _rates(side, sizes.many)}
    if side.name == "us":
        many["Epending1000"] = await _rates(side, sizes.many, orgs=1000)
    few += await _rates(side, sizes.few)  # before and after: the machine's pace may have changed
    found = {key: statistics.median(rates) / statistics.median(few) for key, rates in many.items()}
    return found | {"Epending": min(found.values())}


async def history(side: Side) -> dict[str, float]:
    """A million parked and a million ended ÷ none."""
    sizes = side.sizes
    none = await _rates(side, sizes.few)
    full = await _rates(side, sizes.few, sizes.many, sizes.many)
    none += await _rates(side, sizes.few)
    return {"Ehistory": statistics.median(full) / statistics.median(none)}


async def snapshot(side: Side) -> dict[str, float]:
    """The last fifth of a long drain while somebody holds an old snapshot ÷ nobody does."""
    import asyncpg

    n = side.sizes.long_drain
    speeds: list[float] = []
    for held in (False, True):
        await side.reset()
        await side.fill_rows(n)
        await side.settle()
        reader = await asyncpg.connect(database(side.field.dsn, f"bench_{side.name}"))
        if held:
            await reader.execute("begin isolation level repeatable read; select 1 from pg_class limit 1")
        marks = (await drained(side, n)).marks
        await reader.close()
        speeds.append(1 / max(marks[4] - marks[3], 1e-9))
    return {"Esnapshot": speeds[1] / speeds[0]}


async def cold(side: Side) -> dict[str, float]:
    """A burst on plans that were made while the tables were empty ÷ on plans of full ones. Nobody analyses meanwhile."""
    if not side.cls.bulk:
        return {}
    speeds = [await _burst(side, full=full) for full in (True, False)]
    return {"Ecold": speeds[1] / speeds[0]}


async def _burst(side: Side, *, full: bool) -> float:
    """Tasks a second, from the bulk call to the last handler, after a warm-up that caches every plan."""
    sizes = side.sizes
    await side.reset()
    if full:
        await side.fill_rows(sizes.burst)
    await side.settle()
    async with side.unswept(), side.workers(1, "backlog"):
        if full:
            await _handled(side, sizes.burst)
        await warm(side)
        before = side.board.total()
        began = int((await side.run("burst", n=sizes.burst, warm=200, handled=before))["began"])
        await _handled(side, before + 200 + sizes.burst)
        return sizes.burst / ((time.monotonic_ns() - began) / 1e9)


async def _handled(side: Side, n: int) -> None:
    import asyncio

    end = time.monotonic() + SECONDS_MAX
    while side.board.total() < n:
        if time.monotonic() > end:
            raise Unfinished(f"{side.board.total()} of {n} handled in {SECONDS_MAX:g} s")
        await asyncio.sleep(0.003)  # waits: the board is shared memory, nobody rings
