"""Plans, as a program of its users makes them: of the benchmark's no-op workflow, and of a command that does nothing."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from bench.system import Kind
from fencepost import Plan, PlanStep

KINDS: Final[frozenset[Kind]] = frozenset({"wide", "layers", "lone", "commands"})
CHAINS: Final = 100
WIDE: Final = 1000  # child runs at a time: no fewer than a worker holds, so that its concurrency is what binds
COMMANDS: Final = 8  # processes at a time


def plan_of(kind: Kind, steps: int) -> Plan:
    """`wide`: no-ops that need nothing. `layers`: each needs the one a hundred before it. `lone`: commands, one after the other.
    `commands`: eight at a time.
    """
    match kind:
        case "wide" | "layers":
            return _noops(kind, steps)
        case "lone" | "commands":
            return _commands(kind, steps)
        case _:
            raise ValueError(f"{kind} is no kind of plan")


def _noops(kind: Kind, steps: int) -> Plan:
    plan = Plan(kind, max_concurrency=WIDE)
    made: list[PlanStep] = []
    for n in range(steps):
        needs = made[n - CHAINS : n - CHAINS + 1] if kind == "layers" and n >= CHAINS else []
        made.append(plan.workflow(f"s{n}", "noop", needs=needs))
    return plan


def _commands(kind: Kind, steps: int) -> Plan:
    plan = Plan(kind, max_concurrency=COMMANDS)
    before: Sequence[PlanStep] = ()
    for n in range(steps):
        made = plan.command(f"s{n}", ["true"], needs=before)
        before = [made] if kind == "lone" else ()
    return plan
