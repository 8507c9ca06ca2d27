"""How fast a map goes: shown, at most once a second, and never waited for (law 90.3)."""

from __future__ import annotations

import time
from collections import deque
from typing import TYPE_CHECKING, Final

from fencepost import values

if TYPE_CHECKING:
    from fencepost.worker.leg import Leg

_EVERY_SECONDS: Final = 1.0
_WINDOW: Final = 30  # notes: the rate is that of about the last half minute


class Pace:
    """Rows done of all, and the rate of late. The author's own `ctx.progress` takes the same place: the last word stands."""

    __slots__ = ("_leg", "_marks", "_name", "_next", "_total")

    def __init__(self, leg: Leg, name: str, total: int) -> None:
        self._leg = leg
        self._name = name
        self._total = total
        self._next = 0.0
        self._marks: deque[tuple[float, int]] = deque(maxlen=_WINDOW)

    def tell(self, done: int, total: int | None = None) -> None:
        """So many rows are done now."""
        now = time.monotonic()
        if now < self._next:
            return
        self._next = now + _EVERY_SECONDS
        self._total = self._total if total is None else total
        self._marks.append((now, done))
        (then, before) = self._marks[0]
        doc: dict[str, object] = {"done": done, "total": self._total, "note": f"map {self._name}"}
        if now > then and done > before:
            rate = (done - before) / (now - then)
            doc |= {"per_second": round(rate, 1), "left_seconds": round((self._total - done) / rate)}
        self._leg.face.progress(self._leg.fence, values.encode_error(doc))
