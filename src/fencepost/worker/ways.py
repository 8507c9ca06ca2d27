"""Ways: a history in which the code was told Unknown can be read in two ways at each such place, and one of them fits.

Code that caught it and recorded more replays only if it is told so again. Code that let it leave the workflow sees what was resolved
since (law 50.2). Nothing is written of which it was: a pass through the code shows it. A way that does not fit is turned at the last
place that was not turned yet, and what comes after that place is open again.
"""

from __future__ import annotations

from typing import Final

from fencepost.worker.history import Key

BACKS_MAX: Final = 100  # turns before the last place: code that has changed would be tried in every way there is


class Ways:
    """The ways in which a leg reads its history, one a pass."""

    def __init__(self) -> None:
        # Places that the present pass has come to, in order -> whether the code is told again.
        self._met: dict[Key, bool] = {}
        self._chosen: dict[Key, bool] = {}
        self._turned: set[Key] = set()
        self._left: dict[Key, bool] | None = None  # the first way in which branches stand for each other
        self._backs = 0
        self._last = False

    def meet(self, place: Key) -> bool | None:
        """The code comes to a place: whether it is told again. None: what is known now says it (`take`)."""
        self._met[place] = self._chosen.get(place, False)
        return self._chosen.get(place)

    def take(self, place: Key, *, told: bool) -> None:
        """What is known now said it."""
        self._met[place] = told

    def has_other(self) -> bool:
        """There is another way than the present one."""
        return not self._last and (self._left is not None or any(place not in self._turned for place in self._met))

    def turn(self, *, stuck: bool) -> bool:
        """Begin another way, after one that did not fit, or in which branches stand for each other. False: there is none.

        The last of all is the first one that was stuck, for whom a branch stands may come from elsewhere; else the first one of all, whose
        report says more than that of a way nobody would go.
        """
        if self._last or not self._met:
            return False
        if stuck and self._left is None:
            self._left = dict(self._met)
        places = list(self._met)
        at = next((n for n in reversed(range(len(places))) if places[n] not in self._turned), None)
        if at is not None and at < len(places) - 1:
            self._backs += 1
        if at is None or self._backs > BACKS_MAX:
            self._chosen, self._last = self._left or {}, True
        else:
            self._chosen = {place: self._met[place] for place in places[:at]} | {places[at]: not self._met[places[at]]}
            self._turned = {place for place in self._turned if place in self._chosen} | {places[at]}
        self._met = {}
        return True
