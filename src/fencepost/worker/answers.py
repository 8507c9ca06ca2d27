"""What a waterfall gives: the answer with the step that gave it, or who said what when none was accepted (law 50.8)."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Generic, Literal, TypeVar

R_co = TypeVar("R_co", covariant=True)


@dataclass(frozen=True, slots=True)
class Answer(Generic[R_co]):
    """The first value that was accepted; `provider` names the step that gave it."""

    value: R_co
    provider: str


@dataclass(frozen=True, slots=True)
class Said:
    """What one step of a waterfall came to. `why`: of a failure its message, else nothing."""

    provider: str
    how: Literal["failed", "refused"]
    why: str = ""


@dataclass(frozen=True, slots=True)
class NoAnswer:
    """Every step was asked and none gave a value that was accepted. `said`: one entry a step, in order."""

    said: tuple[Said, ...]
