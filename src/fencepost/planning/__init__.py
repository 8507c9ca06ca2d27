"""Plans, as they are written: a file or a `Plan` in Python becomes a `Definition`, or every fault of it is named (law 70.1).

Nothing here runs anything. What runs a plan is given the definition's normal form.
"""

from __future__ import annotations

from fencepost.errors import PlanFault, PlanInvalid
from fencepost.planning.builder import Plan, PlanStep, file, returned, stdout
from fencepost.planning.model import Definition, StepRetry, definition_of, step_of
from fencepost.planning.reading import read, read_text

__all__ = [
    "Definition",
    "Plan",
    "PlanFault",
    "PlanInvalid",
    "PlanStep",
    "StepRetry",
    "definition_of",
    "file",
    "read",
    "read_text",
    "returned",
    "stdout",
    "step_of",
]
