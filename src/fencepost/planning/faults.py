"""What is wrong with a plan, collected: every fault with its place, none of them ends the reading (law 70.1)."""

from __future__ import annotations

import difflib
import re
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from typing import Final, TypeAlias

from fencepost.errors import PlanFault, PlanInvalid
from fencepost.notes import escape
from fencepost.shown import clip

# Where in the document, keys and indexes from 0: ("step", 1, "retry", "backoff").
At: TypeAlias = tuple[str | int, ...]
# The line of a place, or of the nearest place around it that has one; None: there is no text.
Line: TypeAlias = Callable[[At], "int | None"]

WORD: Final = re.compile(r"[A-Za-z0-9_-]+")
HINTS_MAX: Final = 50  # likenesses are looked for that often in one plan: beyond, a person has seen what it is
LIKELY_MAX: Final = 2000


@dataclass(slots=True)
class Faults:
    """The faults of one document. `named` gives the id of a step by its index, for the paths."""

    named: Callable[[int], str] = lambda _: ""
    found: list[tuple[At, str]] = field(default_factory=list[tuple[At, str]])
    hints: int = 0

    def add(self, at: At, message: str) -> None:
        """One more: the place, and what to do there."""
        self.found.append((at, message))

    def like(self, word: str, known: Iterable[str]) -> str:
        """`; did you mean 'notes'?` where one of the known words is like this one, else nothing."""
        near = self.nearest(word, known)
        return f"; did you mean {near!r}?" if near else ""

    def nearest(self, word: str, known: Iterable[str]) -> str | None:
        """The known word that is most like this one."""
        self.hints += 1
        if self.hints > HINTS_MAX:
            return None
        likely: list[str] = []
        for other in known:
            if abs(len(other) - len(word)) <= 3:
                likely.append(other)
                if len(likely) >= LIKELY_MAX:
                    break
        near = difflib.get_close_matches(word[:200], likely, 1, 0.6)
        return near[0] if near else None

    def path(self, at: At) -> str:
        """`step[2] notes: retry.backoff`; steps and entries counted from 1, as a person does."""
        head, rest = "", at
        if len(at) >= 2 and at[0] == "step" and isinstance(at[1], int):
            name = self.named(at[1])
            head, rest = f"step[{at[1] + 1}]{' ' if name else ''}{escape(clip(name, 100))}", at[2:]
        tail = ""
        for part in rest:
            if isinstance(part, int):
                tail += f"[{part + 1}]"
            else:
                word = part if WORD.fullmatch(part) else repr(clip(part, 100))
                tail += f"{'.' if tail else ''}{word}"
        return f"{head}: {tail}" if head and tail else head + tail

    def invalid(self, place: str, line: Line) -> PlanInvalid:
        """The refusal, its faults in the order of their lines."""
        told = [PlanFault(line(at), self.path(at), message) for at, message in self.found]
        return PlanInvalid(place, sorted(told, key=lambda fault: fault.line or 0))


def quoted(words: Sequence[str]) -> str:
    """`'a', 'b' or 'c'`; of many, the first."""
    shown = [repr(clip(word, 80)) for word in words[:12]]
    if len(words) > 12:
        return ", ".join(shown) + " …"
    return " or ".join([", ".join(shown[:-1]), shown[-1]]) if len(shown) > 1 else "".join(shown)
