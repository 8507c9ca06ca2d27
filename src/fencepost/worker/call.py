"""A call of a step, on its way through its boundary."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from fencepost.authoring import Step
from fencepost.worker.history import Key


@dataclass(slots=True)
class Call:
    """One call of a step, with the arguments it is made with."""

    step: Step[..., Any]
    ordinal: int
    hash: str
    args: tuple[Any, ...]
    kwargs: dict[str, Any]

    @property
    def place(self) -> Key:
        return ("step", self.step.name, self.ordinal)
