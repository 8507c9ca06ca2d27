"""Law 50.9, played at random: runs of one organisation ask for the same entries, beside each other, and legs are lost anywhere."""

from __future__ import annotations

import asyncio
import random
from collections import Counter
from pathlib import Path
from typing import Any

import pytest

from fencepost import App, Context
from fencepost.db import Database
from fencepost.worker.leg import Leg
from tests.legs import Driver, Effects

pytestmark = pytest.mark.usefixtures("lawful")

RUNS, KEYS, PATIENCE = 5, "abc", 60


class Play:
    """Some runs, each asking for all entries in an order of its own, some of them at once."""

    def __init__(self, db: Database, seed: int, folder: Path) -> None:
        self.rng = random.Random(seed)
        self.app = App("losses")
        self.driver = Driver(db, self.app)
        self.effects = Effects(folder / "effects")
        self.again = 0  # operators' words that permit another run
        self.repeatable = seed % 2 == 0

        @self.app.step(scope="org", epoch="one", repeatable=self.repeatable)
        async def lend(key: str) -> str:
            self.effects.happen(key)
            await asyncio.sleep(self.rng.random() / 50)  # waits: so that others ask meanwhile
            return f"{key}{self.effects.count(key)}"

        @self.app.workflow()
        async def flow(ctx: Context, keys: list[str]) -> list[str]:
            first = await ctx.step(lend, keys[0])
            return sorted([first, *await asyncio.gather(*(ctx.step(lend, key) for key in keys[1:]))])

        self.flow: Any = flow

    async def run(self) -> list[Any]:
        """Every run's output."""
        runs = [await self.driver.start(self.flow, self.rng.sample(KEYS, len(KEYS))) for _ in range(RUNS)]
        async with asyncio.timeout(PATIENCE):
            while {(await self.driver.show(run))["status"] for run in runs} != {"completed"}:
                legs = await self.driver.claim(most=RUNS)
                await asyncio.gather(*(self.leg(leg) for leg in legs))
                await self.driver.beat()
                for run in runs:
                    await self.resolve(run)
        return [await self.driver.output(run) for run in runs]

    async def leg(self, leg: Leg) -> None:
        """Run it to its end, or lose it somewhere."""
        task = asyncio.create_task(self.driver.finish(leg))
        if self.rng.random() < 0.4:
            await asyncio.wait({task}, timeout=self.rng.random() / 10)
            leg.abort("lost")
        if await task == "stale":
            await self.driver.bury(leg)

    async def resolve(self, run: str) -> None:
        """An operator permits what a lost leg of this run began to be run again; and a run that was lost too often to go on."""
        shown = await self.driver.show(run)
        if shown["status"] == "unknown":
            self.again += sum(step["state"] == "unknown" for step in shown["steps"])
            await self.driver.resolve_all(run)


@pytest.mark.parametrize("seed", range(6))
async def test_whatever_is_lost_all_are_given_the_same_and_nothing_is_done_unasked(
    db: Database, tmp_path: Path, seed: int
) -> None:
    """50.9, 50.2, 50.4 Not repeatable: once for each entry, and once more for each word of an operator at most."""
    play = Play(db, seed, tmp_path)
    outputs = await play.run()
    assert len({tuple(output) for output in outputs}) == 1, outputs
    begun = Counter(play.effects.all())
    assert set(begun) == set(KEYS)
    if not play.repeatable:
        assert sum(begun.values()) <= len(KEYS) + play.again
