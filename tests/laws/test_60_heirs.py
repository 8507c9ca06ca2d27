"""Law 60.3: a signal that reached a wait which the code has left is another wait's, on every pass the same."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from fencepost import App, Arrived, Context
from fencepost.db import Database
from tests.legs import ENDED, Driver

pytestmark = pytest.mark.usefixtures("lawful")


@pytest.mark.parametrize("every", [1, 2, 3, 100])
@pytest.mark.parametrize("races", [2, 3])
async def test_both_signals_of_a_race_reach_the_waits_that_were_there(db: Database, races: int, every: int) -> None:
    """60.3, 50.4 Delivered to both waits of the first race, the one that loses is given to a race that waits already."""
    app = App("heirs")
    seen: dict[int, list[tuple[int, str, int]]] = {}

    @app.step(repeatable=True)
    async def note(name: str) -> str:
        return name

    @app.workflow()
    async def flow(ctx: Context) -> list[int]:
        said = seen[ctx.attempt] = []

        async def race(place: int) -> int:
            first = await ctx.wait_for_first(("heads", int), ("tails", int))
            assert isinstance(first, Arrived)
            said.append((place, await ctx.step(note, first.name), first.value))
            return first.value

        return await asyncio.gather(*(race(place) for place in range(races)))

    driver = Driver(db, app)
    run = await driver.start(flow)
    for value in range(races):
        await driver.signal(run, "tails" if value % 2 else "heads", value)
    doc = await driver.run_losing(run, every, *ENDED, seconds=30)
    assert doc["status"] == "completed"
    output: list[Any] = await driver.output(run)
    assert sorted(output) == list(range(races)), "each signal to one wait"
    *attempts, last = (log for _, log in sorted(seen.items()))
    assert all(last[: len(log)] == log for log in attempts), seen


@pytest.mark.parametrize("every", [1, 2, 100])
@pytest.mark.parametrize("left", [(0,), (1,), (0, 1), (1, 0)], ids=str)
async def test_what_reached_a_wait_that_was_left_is_the_next_ones_in_the_order_sent(
    driver: Driver, app: App, left: tuple[int, ...], every: int
) -> None:
    """60.3 Whichever of two waits was left first, and whether the next one stands there already, with a later signal of its own, or comes."""

    @app.step(repeatable=True)
    async def note(value: int) -> int:
        return value

    @app.workflow()
    async def flow(ctx: Context) -> list[int]:
        go = asyncio.create_task(ctx.wait_for("go", int))
        waits = [asyncio.create_task(ctx.wait_for("s", int)) for _ in range(2)]
        await go
        for one in left:
            waits[one].cancel()
        await asyncio.wait([waits[one] for one in left])
        seen = [await wait for wait in waits if not wait.cancelled()]
        await ctx.step(note, len(seen))
        return [*seen, *[await ctx.wait_for("s", int) for _ in left]]

    run = await driver.start(flow)
    for name, value in (("go", 0), ("s", 1), ("s", 2)):
        await driver.signal(run, name, value)
    await driver.run_losing(run, every)
    assert await driver.output(run) == [1, 2]
