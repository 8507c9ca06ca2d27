"""What a branch holds while it waits: its place in the order of results, its time at a boundary, the time of a call."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from fencepost.worker.replay import Engine


@dataclass(slots=True)
class Turn:
    """A branch that waits for its place in the order of results."""

    seq: int
    future: asyncio.Future[None]
    task: asyncio.Task[Any]

    def __lt__(self, other: Turn) -> bool:
        return self.seq < other.seq


class AtBoundary:
    """A branch's time at a boundary.

    A branch that was cancelled there leaves with CancelledError, also where a step's code swallowed the cancellation: so it
    does on a replay, where no code of the step is there to swallow it.
    """

    __slots__ = ("_before", "_engine", "_task")

    def __init__(self, engine: Engine) -> None:
        task = asyncio.current_task()
        assert task is not None
        self._engine = engine
        self._task = task
        self._before = task.cancelling()

    def __enter__(self) -> None:
        self._engine.inside.add(self._task)

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, _: object) -> None:
        self._engine.inside.discard(self._task)
        self._engine.stir()
        if self._task.cancelling() > self._before and not isinstance(error, asyncio.CancelledError):
            raise asyncio.CancelledError from error


class Calling:
    """The time of one call."""

    __slots__ = ("_engine",)

    def __init__(self, engine: Engine) -> None:
        self._engine = engine

    def __enter__(self) -> None:
        self._engine.calls += 1

    def __exit__(self, *_: object) -> None:
        self._engine.calls -= 1
        self._engine.stir()
