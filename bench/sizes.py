"""How much is measured."""

from __future__ import annotations

from dataclasses import dataclass, replace


@dataclass(frozen=True, slots=True)
class Sizes:
    """Counts of one measurement. `slow` stands beside the same count for systems that would take minutes for the large one."""

    one: int = 2_000  # enqueues of one caller
    sixteen: int = 6_000
    bulk: int = 30_000
    runs: int = 30_000  # no-op runs of a drain
    runs_slow: int = 8_000
    flows: int = 3_000  # workflows of ten steps
    flows_slow: int = 400
    probes: int = 100
    wakes: int = 50
    alone: int = 40
    idle: float = 30.0  # seconds
    many: int = 1_000_000  # pending, parked, ended
    few: int = 10_000
    backlog: int = 8_000  # of them, runs that are timed
    repeats: int = 3  # drains in the same tables
    long_drain: int = 60_000
    burst: int = 20_000
    imports: int = 5
    rows: int = 100_000  # of a map
    steps: int = 10_000  # of a plan
    lone: int = 40  # commands, one after the other
    commands: int = 200  # eight at a time
    patience: float = 600.0  # seconds for one child
    calm: float = 30.0  # seconds waited for a quiet machine before a measurement
    tries: int = 3  # a measurement that others disturbed is made again
    quick: bool = False
    seconds: float = 3 * 3600.0  # after which no further round begins
    rounds: int = 3


FULL = Sizes()

# Within 25 minutes on two quiet cores: what a target needs, and no more of the slow ones than that.
QUICK = replace(
    FULL, one=1_000, sixteen=4_000, bulk=20_000, runs=20_000, runs_slow=4_000, flows=1_500, flows_slow=150, probes=40, wakes=20,
    alone=20, repeats=2, idle=15.0, calm=5.0, tries=1, quick=True, seconds=19 * 60.0,
)  # fmt: skip

# For the benchmark's own test: shapes, not speeds.
TINY = replace(
    QUICK, one=20, sixteen=32, bulk=200, runs=200, runs_slow=200, flows=10, flows_slow=10, probes=3, wakes=2, alone=2, idle=1.0,
    many=300, few=200, backlog=100, repeats=1, long_drain=500, burst=200, imports=1, rows=500, steps=300, lone=3, commands=10, calm=0.0, rounds=1,
)  # fmt: skip

# Those of which the large counts are asked; the others are slower by an order of magnitude.
FAST = frozenset({"us", "pgqueuer", "floor"})
