"""The public face against an oracle that was written from the laws alone: invented programs, invented moves.

A game that is lost is made shorter, and its moves are written to `.hypothesis/oracle-failed.json`. They are kept by moving that
file to `tests/seeds/<what it shows>.json`: every file there is a test. FENCEPOST_ORACLE_GAMES and
FENCEPOST_ORACLE_SEED ask for more games, or for others.
"""

from __future__ import annotations

import asyncio
import json
import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, Phase, seed, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, rule, run_state_machine_as_test

from fencepost.testing import TemplateDatabase
from tests.oracle_play import Game
from tests.oracle_programs import choose, invent
from tests.oracle_shrink import shrink
from tests.oracle_table import Table
from tests.support import as_worker
from tests.support_invariants import WATCH, broken

SEEDS = Path(__file__).parent.parent / "seeds"
FAILED = Path(".hypothesis") / "oracle-failed.json"
GAMES = int(os.environ.get("FENCEPOST_ORACLE_GAMES", "200"))
STEPS = 40
SHRINK_SECONDS = float(os.environ.get("FENCEPOST_ORACLE_SHRINK_SECONDS", "60"))

NUMBERS = st.integers(
    0, 2**64
)  # a move is made from one: so each has its weight, and none is a hundredth variation of the simplest


class Tables:
    """One database and one loop for all games of this module."""

    def __init__(self, template: TemplateDatabase) -> None:
        self.runner = asyncio.Runner()
        self._clone = template.clone()
        installation = self.runner.run(self._clone.__aenter__())
        self.table = self.runner.run(Table.lay(as_worker(installation.dsn), installation.dsn))
        self.runner.run(self.table.owner.execute(WATCH))

    def close(self) -> None:
        self.runner.run(self.table.clear())
        self.runner.run(self._clone.__aexit__(None, None, None))
        self.runner.close()

    def lawful(self) -> None:
        assert self.runner.run(broken(self.table.owner)) == {}


@pytest.fixture(scope="module")
def tables(template: TemplateDatabase) -> Iterator[Tables]:
    made = Tables(template)
    yield made
    made.close()


class Machine(RuleBasedStateMachine):
    """Moves in any order. Each is made on both sides, and then everything that a caller can see is compared."""

    def __init__(self, tables: Tables) -> None:
        super().__init__()
        self.tables = tables
        self.game = Game(tables.table)
        self.failed = False

    def do(self, name: str, /, **how: Any) -> None:
        try:
            self.tables.runner.run(self.game.move(name, **how))
        except BaseException as error:
            self.failed = True
            self.tables.runner.run(self.game.leave())
            moves = self.tables.runner.run(shrink(self.tables.table, self.game.moves, error, seconds=SHRINK_SECONDS))
            FAILED.parent.mkdir(exist_ok=True)
            FAILED.write_text("[\n" + ",\n".join(json.dumps(move) for move in moves) + "\n]\n")
            error.add_note(f"{FAILED}:\n{FAILED.read_text()}")
            raise

    def teardown(self) -> None:
        if not self.failed:
            try:
                self.tables.runner.run(self.game.over())
            finally:
                self.tables.runner.run(self.game.leave())

    @initialize(number=NUMBERS)
    def begin(self, number: int) -> None:
        workflow, ops = invent(number)
        self.do("start", workflow=workflow, ops=ops)

    @rule(number=NUMBERS)
    def move(self, number: int) -> None:
        name, how = choose(number, self.game)
        self.do(name, **how)


@pytest.mark.timeout(900)
def test_whatever_callers_workers_and_operators_do_the_face_shows_what_the_laws_say(tables: Tables) -> None:
    """40.2, 40.5, 40.6, 50.1, 50.2, 50.10, 60.2, 60.3, 60.5, 80.1, 80.4, 85.5, 85.7, 90.1: in games of random moves."""
    chosen = settings(
        max_examples=GAMES, stateful_step_count=STEPS, deadline=None, database=None, print_blob=False, report_multiple_bugs=False,
        suppress_health_check=list(HealthCheck), phases=[Phase.generate],
        derandomize="FENCEPOST_ORACLE_SEED" not in os.environ,
    )  # fmt: skip

    def machine() -> Machine:
        return Machine(tables)

    if "FENCEPOST_ORACLE_SEED" in os.environ:
        machine = seed(int(os.environ["FENCEPOST_ORACLE_SEED"]))(machine)
    run_state_machine_as_test(machine, settings=chosen)
    tables.lawful()


@pytest.mark.parametrize("kept", sorted(SEEDS.glob("*.json")), ids=lambda path: path.stem)
def test_a_game_that_once_was_lost(tables: Tables, kept: Path) -> None:
    """40.2, 50.2, 80.1 and whatever else its file's name says: moves that once showed a disagreement."""

    async def replay() -> None:
        game = Game(tables.table)
        try:
            for name, how in json.loads(kept.read_text()):
                await game.move(name, **how)
            await game.over()
        finally:
            await game.leave()

    tables.runner.run(replay())
