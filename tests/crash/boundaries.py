"""Boundaries: what they are called, how they are counted, and how a process stops dead at one."""

from __future__ import annotations

import json
import os
import re
import signal
from collections import Counter
from dataclasses import dataclass
from typing import Any

from fencepost import faults

_NAMED = re.compile(r"(?P<point>[a-z_.]+)\[(?P<what>[^\]]*)\]:(?P<n>\d+)")


@dataclass(frozen=True, slots=True, order=True)
class Boundary:
    """The nth time that a process reaches a point with a door, a step or nothing of its own.

    Counted by its own name, not among all others: a heartbeat or a poll more or less changes no other boundary's name.
    """

    point: str
    what: str
    n: int

    def __str__(self) -> str:
        return f"{self.point}[{self.what}]:{self.n}"

    @staticmethod
    def parse(text: str) -> Boundary:
        found = _NAMED.fullmatch(text)
        if found is None:
            raise ValueError(f"{text!r} is no boundary: say POINT[WHAT]:N")
        return Boundary(found["point"], found["what"], int(found["n"]))


class Watch:
    """A process's fault hook. Says where it stops (or, counting, everywhere it was), on a pipe that its parent reads.

    `target`: stop there. `nth`: stop at the nth boundary, whatever it is. `counting`: say each one and go on. `pause`: be stopped there
    by SIGSTOP, until somebody sends SIGCONT.
    """

    def __init__(
        self,
        token: str,
        report_fd: int,
        *,
        target: Boundary | None = None,
        nth: int | None = None,
        counting: bool = False,
        pause: Boundary | None = None,
    ) -> None:
        self._token = token
        self._fd = report_fd
        self._target = target
        self._nth = nth
        self._pause = pause
        self._counting = counting
        self._counts: Counter[tuple[str, str]] = Counter()
        self._all = 0
        self._part = ""
        self.marks: set[str] = set()

    def install(self) -> None:
        faults.hook = self._hear

    def enter_part(self, part: str) -> None:
        """From now on this is another process of the same worker: its boundaries have names of their own."""
        self._part = part + ":"
        self._counts.clear()

    def say(self, **facts: Any) -> None:
        """One line to the harness, short enough to be written whole."""
        line = json.dumps({"token": self._token, "pid": os.getpid(), **facts}) + "\n"
        assert len(line) < 4096, "a pipe keeps short lines whole"
        os.write(self._fd, line.encode())

    async def _hear(self, point: str, facts: dict[str, Any]) -> None:
        self.reach(point, str(facts.get("door") or facts.get("step") or ""))

    def reach(self, point: str, what: str = "") -> None:
        """Be at a boundary."""
        what = self._part + what
        self._counts[point, what] += 1
        here = Boundary(point, what, self._counts[point, what])
        if f"{point}[{what}]" in self.marks:
            self.say(mark=f"{point}[{what}]")
        if self._counting:
            self.say(boundary=str(here))
        if here == self._pause:
            self.say(mark="paused")
            os.kill(os.getpid(), signal.SIGSTOP)
        if self._nth is not None and not what.startswith("heart:"):
            self._all += 1
        if here == self._target or (self._nth is not None and self._all == self._nth):
            self.say(hit=str(here))
            while True:  # nothing of this process goes on: what is killed here has done nothing since
                signal.pause()


watch: Watch | None = None


def spot(point: str, what: str = "") -> None:
    """A boundary inside author code, or in code that has no fault points of its own. Nothing where nobody watches."""
    if watch is not None:
        watch.reach(point, what)
