"""What is measured, each trial as one function of a system's side that gives figures by their keys."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import Final, Literal

from bench.field import Side
from bench.trials import admissions, backlog, drains, extras, guards, idle, imports, latencies, plans

Figures = dict[str, float]


@dataclass(frozen=True, slots=True)
class Trial:
    """`steps`: for systems with durable steps only. `full`, `quick`: how often it is made in a run of that kind.

    `all`: in every round · `once`: in the first · `theirs once`: ours in every round, the others in the first · `ours`: ours
    alone, for its target is a bound · `never`.
    """

    name: str
    test: str  # its letter
    run: Callable[[Side], Awaitable[Figures]]
    full: Literal["all", "once"] = "all"
    quick: Literal["all", "theirs once", "ours", "never"] = "all"
    steps: bool = False
    only: frozenset[str] = frozenset()

    def asked(self, name: str, turn: int, *, quick: bool) -> bool:
        """Whether a system is measured in this round."""
        if self.only and name not in self.only:
            return False
        first, ours = turn == 1, name == "us"
        match self.quick if quick else self.full:
            case "all":
                return True
            case "once":
                return first
            case "theirs once":
                return first or ours
            case "ours":
                return ours
            case "never":
                return False


TRIALS: Final = (
    Trial("admissions", "A", admissions.admissions),
    Trial("drain", "B", drains.drain),
    Trial("flows", "C", drains.flows, steps=True),
    Trial("marked", "C", drains.marked, only=frozenset({"us"})),
    Trial("latencies", "D", latencies.latencies, quick="theirs once"),
    Trial("pending", "E", backlog.pending, full="once", quick="ours"),
    Trial("history", "E", backlog.history, full="once", quick="ours"),
    Trial("snapshot", "E", backlog.snapshot, full="once", quick="ours"),
    Trial("cold", "E", backlog.cold, full="once", quick="ours"),
    Trial("idle", "F", idle.idle, quick="theirs once"),
    Trial("imports", "G", imports.imports, quick="theirs once"),
    Trial("workers", "B", extras.workers, quick="never"),
    Trial("payloads", "B", extras.payloads, quick="never"),
    Trial("rows", "C", extras.rows, quick="never", only=frozenset({"us"})),
    Trial("plans", "H", plans.plans, quick="never", only=frozenset({"us"})),
    Trial("guards", "B", guards.guards, full="once", quick="never", only=frozenset({"us"})),
)
