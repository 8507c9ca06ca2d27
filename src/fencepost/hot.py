"""One statement for many callers who come at the same time (coalescing): hot doors, and launches (client/launching.py)."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Awaitable, Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Final, Generic, Protocol, TypeVar

from fencepost import limits
from fencepost.errors import DatabaseUnavailable

Item = TypeVar("Item")
Answer = TypeVar("Answer")

_FOREVER: Final = float("inf")
# Doors that spread what is said once, but for their first two arrays: whose the items are.
_SPREADS: Final = frozenset({"finish_attempts", "keep_steps", "mark_steps"})


class Record(Protocol):
    """A row of a door's answer, by column name."""

    def __getitem__(self, column: str, /) -> Any: ...
    def values(self) -> Iterator[Any]: ...


def columns(items: Iterable[Sequence[Any]]) -> list[list[Any]]:
    """Items as the parallel arrays of a set-based door. A column of nothing but nulls travels empty: `unnest` pads it, and every element
    of an array costs the driver as much as a whole argument does.
    """
    return [list(column) if column.count(None) < len(column) else [] for column in zip(*items, strict=True)]


def once(column: list[Any]) -> list[Any]:
    """A column that says the same of every item, for a door that spreads what is said once."""
    same = column and column[0] == column[-1] and column.count(column[0]) == len(column)
    return column[:1] if same else column


def weight(text: str | None) -> int:
    """Bytes of a text on its way."""
    return 0 if text is None else len(text) if text.isascii() else len(text.encode("utf-8", "surrogatepass"))


@dataclass(slots=True)
class _Ask(Generic[Item, Answer]):
    item: Item
    bytes: int
    future: asyncio.Future[Answer]


class Coalescer(Generic[Item, Answer]):
    """Coalescing without waiting: idle, an item goes out at once; while one batch is in flight later ones gather and leave together.

    The next batch is sent before the callers of the last one go on: client and server work at the same time. What `together` does not
    answer (None), and each item of a batch whose error `goes_apart(error, items)`, is asked `alone`, for as long as that answers None:
    so that one item's wait or fault is nobody else's (law 00.13). A caller who goes away takes back what has not been sent, no more.
    """

    __slots__ = ("_alone", "_apart", "_flying", "_goes_apart", "_loop", "_queue", "_sender", "_together")

    def __init__(
        self,
        together: Callable[[Sequence[Item]], Awaitable[Sequence[Answer | None]]],
        alone: Callable[[Item], Awaitable[Answer | None]],
        goes_apart: Callable[[Exception, int], bool],
    ) -> None:
        self._together = together
        self._alone = alone
        self._goes_apart = goes_apart
        self._loop: asyncio.AbstractEventLoop | None = None
        self._queue: deque[_Ask[Item, Answer]] = deque()
        self._flying: list[_Ask[Item, Answer]] = []
        self._sender: asyncio.Task[None] | None = None
        self._apart: dict[asyncio.Task[None], _Ask[Item, Answer]] = {}

    def ask(self, item: Item, size: int) -> asyncio.Future[Answer]:
        """An item's answer, or the error it meets alone. `size`: bytes of its payload."""
        loop = self._loop
        if loop is None:
            loop = self._loop = asyncio.get_running_loop()  # once: every asking is a system call before Python 3.12
        future: asyncio.Future[Answer] = loop.create_future()
        self._queue.append(_Ask(item, size, future))
        if self._sender is None:  # it begins in the loop's next turn: who comes in this one comes along
            self._sender = loop.create_task(self._send_all())
        return future

    def stop(self, error: Exception | None = None) -> None:
        """End what is under way. Its callers meet the error; without one they are cancelled."""
        asks = [*self._flying, *self._queue, *self._apart.values()]
        tasks = [*self._apart, *([self._sender] if self._sender is not None else [])]
        self._queue.clear()
        self._flying, self._sender = [], None
        for ask in asks:
            if error is None:
                ask.future.cancel()
            elif not ask.future.done():
                ask.future.set_exception(error)
        for task in tasks:
            task.cancel()

    async def _send_all(self) -> None:
        try:
            while self._gather():
                batch = self._flying
                answers: Sequence[Answer | None] = [None] * len(batch)
                error: Exception | None = None
                try:
                    answers = await self._together([ask.item for ask in batch])
                except Exception as caught:
                    error = caught
                self._tell(batch, answers, error)
        except asyncio.CancelledError:
            self.stop()  # (by the end of the loop: who stopped us has told everybody)
            raise
        self._sender = None

    def _gather(self) -> bool:
        """Take the next batch off the queue."""
        self._flying = []
        size = 0
        while self._queue and len(self._flying) < limits.COALESCE_ITEMS_MAX:
            head = self._queue[0]
            if self._flying and size + head.bytes > limits.COALESCE_BYTES_MAX:
                break
            self._queue.popleft()
            if not head.future.done():  # its caller went away before it was sent
                self._flying.append(head)
                size += head.bytes
        return bool(self._flying)

    def _tell(self, batch: list[_Ask[Item, Answer]], answers: Sequence[Answer | None], error: Exception | None) -> None:
        apart = error is None or self._goes_apart(error, len(batch))
        for ask, answer in zip(batch, answers, strict=True):
            if ask.future.done():
                continue
            if answer is not None:
                ask.future.set_result(answer)
            elif error is not None and not apart:
                ask.future.set_exception(error)
            else:
                task = asyncio.ensure_future(self._ask_alone(ask))
                self._apart[task] = ask
                task.add_done_callback(self._apart.pop)

    async def _ask_alone(self, ask: _Ask[Item, Answer]) -> None:
        try:
            while not ask.future.done():
                answer = await self._alone(ask.item)
                if answer is not None and not ask.future.done():
                    ask.future.set_result(answer)
        except asyncio.CancelledError:
            ask.future.cancel()
            raise
        except Exception as error:
            if not ask.future.done():
                ask.future.set_exception(error)


def hot_door(call: Callable[..., Awaitable[list[Record]]], door: str) -> Coalescer[tuple[Any, ...], Record]:
    """A set-based door for callers with one item each. An item that is answered `again` (its row is locked elsewhere) is asked alone,
    where it may wait; a batch that meets an error which is not weather is asked again item by item, so that a poison item fails alone.
    """
    spreads = door in _SPREADS

    async def together(items: Sequence[tuple[Any, ...]]) -> list[Record | None]:
        arrays = columns(items)
        if spreads:
            arrays[2:] = map(once, arrays[2:])
        rows = await call(door, *arrays, patience=_FOREVER)
        found = {row["ord"]: row for row in rows if row["answer"] != "again"}
        return [found.get(place) for place in range(1, len(items) + 1)]

    async def alone(item: tuple[Any, ...]) -> Record | None:
        return (await together([item]))[0]

    def goes_apart(error: Exception, items: int) -> bool:
        return items > 1 and not isinstance(error, DatabaseUnavailable)

    return Coalescer(together, alone, goes_apart)
