"""Marks: how far this worker's claims have come in each organisation's line.

Entries of work that is done stay in the claim's index till the next vacuum, and longer while anybody's snapshot could still see them: a
dump, a forgotten psql. A claim that looks from the front walks over all of them, and gets slower with every run. When a look has become
twice as slow as it was, claims go on from the marks, and look from the front only now and then: for what came in before a mark (a higher
priority, a commit that was late, another organisation). The database says how long it looked, for all else that a claim does costs the
same whatever lies dead, and would hide it.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

from fencepost.attempts import Claimed

SLOWER: Final = 2  # times its usual duration: the dead lie thick
SLOW_SECONDS: Final = 0.001  # what is quicker is no matter,
ORG_SECONDS: Final = 0.00005  # nor what each organisation of the claim takes, whose line must be found
LOOK_SECONDS: Final = 0.05  # between two looks from the front, at least
LOOK_SHARE: Final = 10  # and so many times as long as one takes
FORGETS: Final = 1.0005  # the usual duration grows by this with each look, for a machine may have become slower


@dataclass(frozen=True, slots=True)
class Mark:
    """The place of the last run that was taken of an organisation."""

    org: str
    turn: float
    rid: int


class Marks:
    """What one worker knows of the lines it takes from. Times are on the loop's own clock, in seconds."""

    def __init__(self) -> None:
        self._marks: dict[str, Mark] = {}  # in the order of their turns
        self._usual = float("inf")
        self._thick = False
        self._look_at = 0.0
        self.partial = False  # the last claim went on from marks: what it did not give may stand before them

    def ask(self, now: float, most: int) -> list[Mark]:
        """The marks to go on from, whose turn it is first; none: look from the front."""
        if not self._thick or now >= self._look_at:
            return []
        return [mark for mark, _ in zip(self._marks.values(), range(most), strict=False)]

    def looked(self, now: float, seconds: float, claimed: Sequence[Claimed]) -> None:
        """What a look from the front gave, and how long it took the database. Marks are kept from a slow one on: only then are they asked for."""
        if claimed:  # a look that finds nothing is quick, and no measure of one that finds much
            self._usual = min(self._usual * FORGETS, seconds)
        orgs = len({one.org for one in claimed})
        self._thick = seconds > max(SLOWER * self._usual, SLOW_SECONDS + ORG_SECONDS * orgs)
        self._look_at = now + max(LOOK_SECONDS, LOOK_SHARE * seconds)
        self._marks = {}
        self.partial = False
        if self._thick:
            self._move(claimed)

    def went_on(self, asked: Sequence[Mark], most: int, claimed: Sequence[Claimed]) -> None:
        """What a claim from these marks gave. An organisation that gave nothing is forgotten until the next look."""
        for mark in asked:
            self._marks.pop(mark.org, None)
        self._move(claimed)
        self.partial = True
        if len(claimed) < most:
            self._look_at = 0.0

    def _move(self, claimed: Sequence[Claimed]) -> None:
        newest: dict[str, Claimed] = {}  # a claim gives the runs of an organisation in the order of their line
        for one in claimed:
            newest.pop(one.org, None)  # its turn comes after those of all others
            newest[one.org] = one
        for org, one in newest.items():
            here = Mark(org, one.turn, one.fence.rid)
            before = self._marks.pop(org, here)
            self._marks[org] = max(before, here, key=lambda mark: (mark.turn, mark.rid))
