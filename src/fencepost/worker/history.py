"""A run's history: its boundaries, as the claim brought them."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

import msgspec

from fencepost.words import BOUNDARY_KINDS, BOUNDARY_STATES

Key = tuple[str, str, int]

RESOLVED: Final = frozenset({"kept", "failed", "arrived", "timed_out"})
TOLD: Final = "unknown "  # the beginning of a recorded value's name: the code was told Unknown


@dataclass(slots=True)
class Recorded:
    """A boundary of the run's history, as the claim brought it."""

    kind: str
    name: str
    ordinal: int
    state: str
    seq: int
    hash: str
    loose: bool
    repeatable: bool
    value: str | None
    fence: str | None
    child: int | None
    asked_ms: int | None
    asked: bool = False

    @property
    def key(self) -> Key:
        return (self.kind, self.name, self.ordinal)

    @property
    def resolved(self) -> bool:
        return self.state in RESOLVED

    @property
    def is_told(self) -> bool:
        """That the code was told of an outcome nobody knows."""
        return self.kind == "value" and self.name.startswith(TOLD)

    def words(self) -> str:
        return f"{self.kind} {self.name}#{self.ordinal}"


def read_page(page: str) -> list[Recorded]:
    """The boundaries of a page. Raises ValueError for a kind or state this build does not know: neither counts as resolved (law 50.5)."""
    found: list[Recorded] = []
    for item in msgspec.json.decode(page):
        recorded = Recorded(*item)
        if recorded.kind not in BOUNDARY_KINDS or recorded.state not in BOUNDARY_STATES:
            raise ValueError(
                f"boundary {recorded.name}#{recorded.ordinal} has kind {recorded.kind!r} and state {recorded.state!r}, which this build does not know"
            )
        found.append(recorded)
    return found


def loosen(recorded: list[Recorded]) -> None:
    """Of a step that is to be run again, that the code was told Unknown of it tells the code nothing: it may stay unasked (law 50.4)."""
    again = {told_name(r.kind, r.name, r.ordinal) for r in recorded if r.state == "again"}
    if again:  # which is rare, and a history long
        for told in recorded:
            told.loose |= told.is_told and told.name in again


def told_name(kind: str, name: str, ordinal: int) -> str:
    """The recorded value which says that the code was told Unknown of this step or map."""
    return f"{TOLD}{kind} {name}#{ordinal}"
