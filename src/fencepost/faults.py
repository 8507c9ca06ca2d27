"""Fault points: named places where a test may watch, pause or break a process. Off in production: one global that is None.

A point is either a statement boundary (`db`: phases before · executed · after, with the door's name) or a named place of the
list below. Only `fencepost.testing` sets the hook.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Any, Final

POINTS: Final = frozenset(
    {
        "statement.before",  # about to be sent
        "statement.executed",  # the server has answered; nobody here has seen it yet
        "statement.after",  # its callers have been told
        "leg.claimed",  # the loop has a claimed attempt in its hands
        "leg.replayed",  # every recorded boundary has been answered
        "leg.ended",  # author code returned or raised; nothing reported yet
        "step.marked",  # a step that is not repeatable is about to run
        "step.begin",  # author code of a step is about to run
        "step.end",  # it returned or raised; nothing kept yet
        "step.kept",
        "row.kept",
        "map.done",
        "park.asked",
        "drain.begun",
        "step.started",  # the process of a plan's step exists and waits
        "step.begun",  # it is on record, and the attempt has begun
        "step.gone",  # it was told to go
        "step.ended",  # it is known what became of it; nothing reported yet
        "step.told",  # the database was told
    }
)

Hook = Callable[[str, dict[str, Any]], Awaitable[None]]

hook: Hook | None = None


async def reach(point: str, **facts: Any) -> None:
    """Tell whoever watches; returns at once when nobody does."""
    if hook is not None:
        assert point in POINTS, point
        await hook(point, facts)
