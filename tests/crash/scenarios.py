"""The scenarios, each with what must have come of it. Numbers are those of the list of faults this project attacks itself with."""

from __future__ import annotations

from fencepost import App
from tests.crash import code
from tests.crash.clients import Admits, Cancels, CancelsTree, InTransaction, Migrates, Retains, Signals, ThreeCallers
from tests.crash.plans import PLANS
from tests.crash.scenario import Scenario
from tests.crash.workers import (
    AtTheHour,
    CancelledTree,
    CancelledWhileRunning,
    Changed,
    Children,
    Drains,
    Fails,
    LooksUp,
    MayFail,
    Reaps,
    Signalled,
)  # fmt: skip


def apps() -> dict[str, App]:
    return {"main": code.app, "changed": code.changed}


WORDS: list[Scenario] = [
    Scenario("S01", code.straight, output=["a", "rb"], once=("a",), again=("rb",), startup=True, hearts=True),
    Admits("S01c", code.straight, output=["a", "rb"], once=("a",), again=("rb",)),
    ThreeCallers("S02", code.straight, output=["a", "rb"], once=("a",), again=("rb",)),
    InTransaction("S03", code.straight, output=["a", "rb"], once=("a",), again=("rb",)),
    Fails("S04", code.failing, status="failed"),
    Scenario("S05", code.tripping, output=["a", "trips", "b"], once=("a", "b"), again=("trips",), claims=4),
    Scenario("S05s", code.stumbling, output=["stumbles", "a"], once=("a",), again=("stumbles",)),
    Scenario("S06", code.careful, output=["a", "rb"], once=("a",), again=("rb",)),
    MayFail("S06f", code.brittle, output=["ra", "rb"], again=("ra", "rb"), asks=False),
    Scenario("S07", code.repeatable, output=["ra", "rb"], again=("ra", "rb"), asks=False),
    Reaps("S07b", code.repeatable, output=["ra", "rb"], again=("ra", "rb"), asks=False),
    Scenario("S08", code.sleepy, output=["ra", "b"], once=("b",), again=("ra",), claims=3),
    Signalled("S09", code.waiting, output=[7, "a"], once=("a",), parked=False),
    Signals("S09c", code.waiting, output=[7, "a"], once=("a",)),
    Signalled("S10", code.waiting, output=[7, "a"], once=("a",), claims=3),
    Signals("S10c", code.waiting, output=[7, "a"], once=("a",), waits_first=True),
    AtTheHour("S11", code.racing, asks=False, claims=3),
    Signalled("S12", code.either, output=[1, 2], signals=(("right", 1), ("left", 2)), asks=False, claims=3),
    Signals("S12c", code.either, output=[1, 2], signals=(("right", 1), ("left", 2)), waits_first=True),
    Scenario("S13", code.five, output=["a", "ra", "b", "rb", "c"], once=("a", "b", "c"), again=("ra", "rb")),
    Scenario("S13m", code.rows, output=["row0", "row1", "row2", "row3", "ra"], once=("row0", "row1", "row2", "row3"), again=("ra",)),
    Scenario("S13w", code.falling, output=["rb", "ra"], once=("a",), again=("rb", "ra")),
    Scenario("S13o", code.sharing, output=["sa", "sb", "sa"], once=("sa",), again=("sb",)),
    Scenario("B31", code.twenty, output=[s.name for s in code.twenty_steps], again=tuple(s.name for s in code.twenty_steps), asks=False),
    Changed("S14", code.changing, output=["a", 7, "rb"], once=("a",), again=("rb",), asks=False, doubles=False),
    Cancels("S15q", code.straight, status="cancelled", how={"delay": 3600.0}, healer_works=False),
    Cancels("S15p", code.waiting, status="cancelled", reaches="parked"),
    Cancels("S15b", code.backing_off, status="cancelled", reaches="backing off"),
    Cancels("S15r", code.holding, status="cancelled", reaches="begun"),
    CancelledWhileRunning("S15w", code.holding, status="cancelled", asks=False),
    CancelsTree("S16c", code.root, status="cancelled", reaches="parked"),
    CancelledTree("S16", code.root, status="cancelled", asks=False, claims=5),
    Children("S16k", code.parent, output=["a", "rb"], claims=4),
    LooksUp("S21", code.paying, output=["paid", "ra"], paid="paid"),
    LooksUp("S21h", code.honouring, output=["honoured", "ra"], paid="honoured"),
    Scenario("S22", code.darkly, output=["dark", "ra"], once=("dark",), again=("ra",)),
    *PLANS,
    Retains("S36", code.spawning, doubles=False),
    Migrates("S37", code.repeatable, output=["ra", "rb"], again=("ra", "rb")),
    Drains("S38", code.draining, output=["slow", "ra"], order={"grace": 5.0}),
    Drains("S38g", code.draining, output=["slow", "ra"], order={"grace": 0.02}),
]  # fmt: skip
SCENARIOS = {scenario.name: scenario for scenario in WORDS}
