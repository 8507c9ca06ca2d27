"""What the oracle remembers of runs, and the few numbers that the laws and the tests' programs give it."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

TERMINAL = {"completed", "failed", "cancelled"}
REPEATABLE = {"again", "patient", "row_again"}
STEP_TRIES = {"patient": 3, "careful": 3}
WORKFLOW_TRIES = 3
RETRY_SPAN = (10.0, 20.0)  # a delay of 20 s, with jitter
LOSSES = 5  # 40.15


class Disagreement(AssertionError):
    """The product did what no law permits."""


class Rest(Exception):
    """The leg rests: it parked, stands at a gate, or is over."""


class Raised(Exception):
    """What the workflow's code sees raised. `shown` as the program tells it when it catches it."""

    def __init__(self, *shown: Any) -> None:
        self.shown = list(shown)


class AnyOf:
    """Equal to each of its values; without values, to everything."""

    def __init__(self, *values: Any) -> None:
        self.values = values

    def __eq__(self, other: object) -> bool:
        return not self.values or any(value == other for value in self.values)

    __hash__ = None  # type: ignore[assignment]  # equal to many, so it has none

    def __repr__(self) -> str:
        return f"AnyOf{self.values}"


@dataclass
class Record:
    """A boundary, or a row of a map, by its place in the program."""

    state: str  # marked · kept · failed · armed · arrived · timed_out
    value: Any = None
    due: float | None = None
    names: tuple[str, ...] = ()
    proven: bool = False  # the mark's holder is dead by proof, not only silent


@dataclass
class Inside:
    """Where a leg stands: in the n-th call of the step at this place, before or after its effect."""

    place: str
    n: int
    phase: str
    failed: int


@dataclass
class Run:
    id: str
    tag: str
    workflow: str
    ops: list[dict[str, Any]]
    ready: tuple[float, float]  # not before, surely from
    parent: tuple[Run, str] | None = None
    children: list[Run] = field(default_factory=list)
    state: str = "queued"
    attempts: int = 0
    tries: Any = 0
    losses: int = 0
    history: dict[str, Record] = field(default_factory=dict)
    signals: list[tuple[int, str, int]] = field(default_factory=list)  # undelivered: order, name, payload
    delivered: list[tuple[int, str, int]] = field(default_factory=list)  # to waits that lost their race
    dedupes: set[tuple[str, str | None]] = field(default_factory=set)
    late: dict[str, Any] = field(default_factory=dict)
    cancelling: bool = False
    by_operator: bool = False  # said what became of it
    held: bool = False
    inside: Inside | None = None
    answers: dict[str, Raised] = field(default_factory=dict)  # unknowns that this leg was told
    told: dict[str, Raised] = field(default_factory=dict)  # unknowns that the code was told, and went on from
    opened: set[str] = field(default_factory=set)  # maps
    ever_told: set[str] = field(default_factory=set)
    results: dict[str, int] = field(
        default_factory=dict
    )  # in which order places had a result, or the code was told Unknown there
    met_unknown: bool = False  # in this leg, and nobody has resolved it
    output: Any = None
    code: Any = None
    loose: bool = False  # a leg went on that was to end: how far, its repeatable steps may tell

    @property
    def ended(self) -> bool:
        return self.state in TERMINAL

    def unknown(self) -> list[str]:
        """Places marked, not committed, and nobody at work on them."""
        return [
            p for p, r in self.history.items() if r.state == "marked" and not (self.inside and self.inside.place == p)
        ]

    def has_result(self, place: str) -> None:
        self.results[place] = max(self.results.values(), default=0) + 1

    def sees_what_was_resolved(self, place: str) -> bool:
        """The code was told Unknown here, and had nothing else before an operator said what became of it: so it may have been told that."""
        record = self.history.get(place)
        if record is None or record.state not in {"kept", "failed"}:
            return False
        later = [n for p, n in self.results.items() if "/" not in p and int(p) > int(place)]
        return self.results[place] < min(later, default=self.results[place] + 1)

    def op(self, place: str) -> dict[str, Any]:
        return self.ops[int(place.partition("/")[0])]

    def kind(self, place: str) -> str:
        return self.op(place)["kind"]
