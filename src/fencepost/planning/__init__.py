"""Plans, as they are written: a file or a `Plan` in Python becomes a `Definition`, or every fault of it is named (law 70.1).

Nothing here runs anything. What runs a plan is given the definition's normal form.
"""

from __future__ import annotations

from fencepost.errors import PlanFault, PlanInvalid
from fencepost.planning.model import Definition, StepRetry, definition_of, step_of

__all__ = [
    "Definition",
    "PlanFault",
    "PlanInvalid",
    "StepRetry",
    "definition_of",
    "step_of",
]
