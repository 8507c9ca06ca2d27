"""Chapter 70 against an oracle that was written from the laws alone: invented plans, invented moves, compared after each.

Ten plans at a time share a database and a clock, each with a worker of its own. A difference names the number its plan and its moves came from:
FENCEPOST_PLAN_SEED plays that one alone. FENCEPOST_PLAN_GAMES asks for more plans.
"""

from __future__ import annotations

import asyncio
import os
from collections import Counter
from collections.abc import Iterator
from datetime import timedelta

import asyncpg
import pytest
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st

from fencepost import plans
from fencepost.db import Database
from fencepost.testing import TemplateDatabase
from tests.oracle_plans_play import SEEN, ZERO, Game
from tests.support import as_worker, lane_of, new_holder
from tests.support_invariants import WATCH, broken
from tests.support_runs import beat

TOGETHER = 10
GAMES = int(os.environ.get("FENCEPOST_PLAN_GAMES", "500"))
SEED = os.environ.get("FENCEPOST_PLAN_SEED")
# What must have come to pass.
MET = (
    "completed", "failed", "cancelled", "claim", "begin", "finish", "lose", "return", "resolve", "cancel", "time", "retried",
    "succeeded success", "failed failure", "failed timeout", "failed launch_error", "failed invalid_output", "failed lost",
    "skipped None", "cancelled cancelled",
)  # fmt: skip
MOVES = 2000  # a plan that takes more does not end


class Hall:
    """One database, one loop, one clock for all games of this module."""

    def __init__(self, template: TemplateDatabase) -> None:
        self.runner = asyncio.Runner()
        self._clone = template.clone()
        self.dsn = self.runner.run(self._clone.__aenter__()).dsn
        self.now = 0
        self.played = 0
        self.met: Counter[str] = Counter()
        self.runner.run(self._open())

    async def _open(self) -> None:
        self.owner = await asyncpg.connect(self.dsn)
        await self.owner.execute(WATCH)
        await self._set_clock()
        self.db = Database(as_worker(self.dsn), connections=4)
        self.lane = await lane_of(self.db)
        self.workers = [await new_holder(self.db) for _ in range(TOGETHER)]

    async def _set_clock(self) -> None:
        await self.owner.execute("update fencepost.meta set test_now = $1", ZERO + timedelta(milliseconds=self.now))

    def close(self) -> None:
        self.runner.run(self.owner.close())
        self.runner.run(self.db.close())
        self.runner.run(self._clone.__aexit__(None, None, None))
        self.runner.close()

    async def play(self, seeds: list[int]) -> None:
        """Each of these to its end, one move of each between two looks."""
        games = [Game(self.db, self.lane, me, seed, self.now) for me, seed in zip(self.workers, seeds, strict=False)]
        self.played += len(games)
        await asyncio.gather(*(game.admit() for game in games))
        await self._compare(games)
        for turn in range(MOVES):
            open_games = [game for game in games if not game.over]
            if not open_games:
                break
            for game, trouble in zip(
                open_games, await asyncio.gather(*(g.play() for g in open_games), return_exceptions=True), strict=True
            ):
                if trouble is not None:
                    raise AssertionError(f"seed {game.seed}: {game.moves}") from trouble
            if turn % 5 == 4:
                await self._pass_time(open_games)
            await self._compare(games)
        assert all(game.over for game in games), "70.13: a plan whose workers answer ends"
        await self._read(games)
        for game in games:
            self.met.update({game.oracle.status(), *(move[0] for move in game.moves)})
            self.met.update(f"{s.state} {s.outcome}" for s in game.oracle.steps.values())
            self.met.update("retried" for s in game.oracle.steps.values() if s.tries > 1)

    async def _pass_time(self, games: list[Game]) -> None:
        """To just before what is due next, or to it."""
        due = [
            d - self.now for game in games if not game.oracle.cancelling and (d := game.oracle.next_due()) is not None
        ]
        ms = min(due, default=0) - games[0].dice.randint(0, 1)
        if ms <= 0:
            return
        self.now += ms
        await self._set_clock()
        await asyncio.gather(*(beat(self.db, me) for me in self.workers))
        for game in games:
            game.moves.append(("time", ms))
            game.oracle.pass_time(ms)

    async def _compare(self, games: list[Game]) -> None:
        seen = {row["id"]: row for row in await self.owner.fetch(SEEN, [game.rid for game in games])}
        for game in games:
            try:
                game.compare(seen[game.id])
            except AssertionError as error:
                raise AssertionError(f"seed {game.seed}: {game.moves}: {error}") from error

    async def _read(self, games: list[Game]) -> None:
        """The same as a reader is told it; and every place of the ledger is filled."""
        for game in games:
            found = await plans.read(self.db, "default", game.id)
            assert found is not None
            assert found["status"] == game.oracle.status()
            assert {s["id"]: s["state"] for s in found["steps"]} == {n: s.state for n, s in game.oracle.steps.items()}
            named = {s["id"]: frozenset(s["outputs"] or ()) for s in found["steps"]}
            assert named == {n: s.outputs for n, s in game.oracle.steps.items()}


@pytest.fixture(scope="module")
def hall(template: TemplateDatabase) -> Iterator[Hall]:
    made = Hall(template)
    yield made
    made.close()


@pytest.mark.timeout(600)
def test_a_plan_does_what_the_oracle_says(hall: Hall) -> None:
    """70.3, 70.4, 70.7, 70.8, 70.10, 70.11, 70.12, 70.13 States, who may be claimed, tries, reasons and ends, after every move of 500 plans."""
    if SEED is not None:
        hall.runner.run(hall.play([int(SEED)]))
        return

    @settings(
        max_examples=-(-GAMES // TOGETHER), deadline=None, database=None, phases=[Phase.generate],
        suppress_health_check=list(HealthCheck),
    )  # fmt: skip
    @given(st.lists(st.integers(0, 2**64), min_size=TOGETHER, max_size=TOGETHER, unique=True))
    def games(seeds: list[int]) -> None:
        hall.runner.run(hall.play(seeds))

    games()
    assert hall.played >= GAMES
    never = [kind for kind in MET if not hall.met[kind]]  # the rarest is expected a dozen times
    assert not never, f"nothing was learnt of what never happened: {never}"
    assert hall.runner.run(broken(hall.owner)) == {}
