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
from tests.oracle_shrink import shrink
from tests.oracle_table import Table
from tests.support import as_worker
from tests.support_invariants import WATCH, broken

SEEDS = Path(__file__).parent.parent / "seeds"
FAILED = Path(".hypothesis") / "oracle-failed.json"
GAMES = int(os.environ.get("FENCEPOST_ORACLE_GAMES", "200"))
STEPS = 40
SHRINK_SECONDS = float(os.environ.get("FENCEPOST_ORACLE_SHRINK_SECONDS", "60"))

KINDS = st.sampled_from(
    ["again", "patient", "once", "once", "careful", "declared", "doubtful", "found", "found", "honoured", "unsure"]
)
FAILS = st.sampled_from([0, 0, 0, 0, 1, 1, 9])
GATES = st.sampled_from([None, None, "before", "after"])
NAMES = st.sampled_from(["a", "b"])
WITHIN = st.sampled_from([None, 10, 60])
WHICH = st.integers(0, 11)
PHASE = st.sampled_from(["before", "after"])
THEN = st.sampled_from([True, True, False])
STEP = st.fixed_dictionaries(
    {"do": st.just("step"), "kind": KINDS, "fails": FAILS, "gate": GATES, "caught": st.booleans()}
)
WAITS = st.one_of(
    st.fixed_dictionaries({"do": st.just("sleep"), "seconds": st.sampled_from([10, 60])}),
    st.fixed_dictionaries({"do": st.just("wait"), "name": NAMES, "within": WITHIN}),
    st.fixed_dictionaries({"do": st.just("first"), "names": st.just(["a", "b"]), "within": WITHIN}),
)
RAISE = st.fixed_dictionaries({"do": st.just("raise")})


def _map(kind: str, tolerance: st.SearchStrategy[int]) -> st.SearchStrategy[dict[str, Any]]:
    row = st.fixed_dictionaries({"fails": FAILS, "gate": GATES})
    rows = st.lists(row, min_size=3, max_size=3).map(
        lambda rows: [{"key": key, **r} for key, r in zip("xyz", rows, strict=True)]
    )
    return st.fixed_dictionaries(
        {"do": st.just("map"), "kind": st.just(kind), "rows": rows, "tolerance": tolerance, "caught": st.booleans()}
    )


# Whether unknown rows or too many failures are told first is nobody's law: rows that can be unknown fail within the tolerance.
MAP = _map("row_again", st.integers(0, 1)) | _map("row_once", st.just(3))
LEAF = st.one_of(STEP, STEP, STEP, WAITS, WAITS, MAP, RAISE)


def _child(ops: st.SearchStrategy[list[dict[str, Any]]]) -> st.SearchStrategy[dict[str, Any]]:
    return st.fixed_dictionaries(
        {
            "do": st.just("child"), "kind": st.sampled_from(["plain", "plain", "retrying", "failing"]), "ops": ops,
            "waits": st.sampled_from([True, True, False]), "caught": st.booleans(),
        }
    )  # fmt: skip


LEAVES = st.lists(LEAF, min_size=1, max_size=3)
CHILD = _child(LEAVES)
PARENTS = st.lists(LEAF | CHILD | _child(st.lists(LEAF | CHILD, min_size=1, max_size=2)), min_size=1, max_size=4)
# Whether a workflow retry asks for a failed child again is nobody's law either: those that retry have none.
PROGRAMS = st.one_of(
    st.tuples(st.just("plain"), PARENTS),
    st.tuples(st.just("plain"), st.lists(STEP | MAP, min_size=1, max_size=4)),
    st.tuples(st.just("retrying"), LEAVES),
    st.tuples(st.sampled_from(["failing", "asking"]), PARENTS),
)


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

    @initialize(program=PROGRAMS)
    def begin(self, program: Any) -> None:
        self.do("start", workflow=program[0], ops=program[1])
        self.do("settle")

    def do_and(self, then: bool, name: str, /, **how: Any) -> None:
        """A move, and perhaps at once what a worker makes of it."""
        self.do(name, **how)
        if then:
            self.do("settle")

    @rule(
        program=PROGRAMS,
        delay=st.sampled_from([0, 0, 0, 30]),
        how=st.sampled_from(["plain", "plain", "many", "rolled_back", "committed"]),
        then=THEN,
    )
    def start(self, program: Any, delay: int, how: str, then: bool) -> None:
        if len(self.game.oracle.runs) < 8:
            self.do_and(then, "start", workflow=program[0], ops=program[1], delay=delay, how=how)

    @rule(which=WHICH, changed=st.sampled_from(["nothing", "name", "input"]))
    def start_again(self, which: int, changed: str) -> None:
        self.do("start_again", which=which, changed=changed)

    @rule(
        which=WHICH,
        name=NAMES,
        payload=st.integers(0, 99),
        dedupe=st.sampled_from([None, None, "one", "two"]),
        then=THEN,
    )
    def signal(self, which: int, name: str, payload: int, dedupe: str | None, then: bool) -> None:
        self.do_and(then, "signal", which=which, name=name, payload=payload, dedupe=dedupe)

    @rule(which=WHICH)
    def cancel(self, which: int) -> None:
        self.do("cancel", which=which)

    @rule(which=WHICH)
    def cancel_inside(self, which: int) -> None:
        self.do("cancel_inside", which=which)

    @rule(seconds=st.sampled_from([1, 10, 100, 4000]), then=THEN)
    def advance(self, seconds: int, then: bool) -> None:
        self.do_and(then, "advance", seconds=seconds)

    @rule(most=st.integers(1, 3))
    def work(self, most: int) -> None:
        self.do("work", most=most)

    @rule()
    def settle(self) -> None:
        self.do("settle")

    @rule(which=WHICH, op=WHICH, phase=PHASE)
    def gate(self, which: int, op: int, phase: str) -> None:
        self.do("gate", which=which, op=op, phase=phase)

    @rule(which=WHICH, then=THEN)
    def release(self, which: int, then: bool) -> None:
        self.do_and(then, "release", which=which)

    @rule(which=WHICH, silent=st.booleans(), then=THEN)
    def lose(self, which: int, silent: bool, then: bool) -> None:
        self.do_and(then, "lose", which=which, silent=silent)

    @rule(which=WHICH)
    def release_zombie(self, which: int) -> None:
        self.do("release_zombie", which=which)

    @rule(which=WHICH, phase=PHASE, soon=st.booleans())
    def haunt(self, which: int, phase: str, soon: bool) -> None:
        self.do("haunt", which=which, phase=phase, soon=soon)

    @rule(which=WHICH, phase=PHASE)
    def batter(self, which: int, phase: str) -> None:
        self.do("batter", which=which, phase=phase)

    @rule(which=WHICH)
    def end(self, which: int) -> None:
        self.do("end", which=which)

    @rule(which=WHICH)
    def wake(self, which: int) -> None:
        self.do("wake", which=which)

    @rule(which=WHICH, place=WHICH, verdict=st.sampled_from(["completed", "failed", "again", "late"]), then=THEN)
    def resolve(self, which: int, place: int, verdict: str, then: bool) -> None:
        self.do_and(then, "resolve", which=which, place=place, verdict=verdict)

    @rule(which=WHICH, start=st.none() | st.integers(0, 3), name_all=st.booleans(), then=THEN)
    def redrive(self, which: int, start: int | None, name_all: bool, then: bool) -> None:
        self.do_and(then, "redrive", which=which, start=start, name_all=name_all)


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
