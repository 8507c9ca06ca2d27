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
