"""Hot doors: one statement for many callers who come at the same time (coalescing)."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Awaitable, Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Final, Protocol

from fencepost import limits
from fencepost.errors import DatabaseUnavailable

_FOREVER: Final = float("inf")


class Record(Protocol):
    """A row of a door's answer, by column name."""

    def __getitem__(self, column: str, /) -> Any: ...
    def values(self) -> Iterator[Any]: ...


def columns(items: Iterable[Sequence[Any]]) -> list[list[Any]]:
    """Items as the parallel arrays of a set-based door. A column of nothing but nulls travels empty: `unnest` pads it, and every element
    of an array costs the driver as much as a whole argument does.
    """
    return [list(column) if column.count(None) < len(column) else [] for column in zip(*items, strict=True)]


def weight(text: str | None) -> int:
    """Bytes of a text on its way."""
    return 0 if text is None else len(text) if text.isascii() else len(text.encode("utf-8", "surrogatepass"))


@dataclass(slots=True)
class _Ask:
    item: tuple[Any, ...]
    bytes: int
    future: asyncio.Future[Record]


class HotDoor:
    """Coalescing without waiting: idle, a call goes out at once; while one is in flight later callers gather and leave together.

    The next batch is sent before the callers of the last one are woken: client and server work at the same time. A batch that
    meets an error which is not weather is asked again item by item, so that a poison item fails alone; an item that is answered
    `again` (its row is locked elsewhere) is asked alone, where it may wait.
    """

    __slots__ = ("_busy", "_call", "_door", "_kicked", "_loop", "_queue", "_tasks")

    def __init__(self, call: Callable[..., Awaitable[list[Record]]], door: str) -> None:
        self._call = call
        self._door = door
        self._loop = asyncio.get_running_loop()  # asked once: every asking is a system call before Python 3.12
        self._queue: deque[_Ask] = deque()
        self._busy = False
        self._kicked = False
        self._tasks: set[asyncio.Task[None]] = set()

    def ask(self, item: tuple[Any, ...], size: int) -> asyncio.Future[Record]:
        future: asyncio.Future[Record] = self._loop.create_future()
        self._queue.append(_Ask(item, size, future))
        if not self._busy and not self._kicked:
            self._kicked = True
            self._loop.call_soon(self._kick)
        return future

    def stop(self) -> None:
        for task in self._tasks:
            task.cancel()

    def _kick(self) -> None:
        self._kicked = False
        if self._busy or not self._queue:
            return
        batch: list[_Ask] = []
        size = 0
        while self._queue and len(batch) < limits.COALESCE_ITEMS_MAX:
            head = self._queue[0]
            if batch and size + head.bytes > limits.COALESCE_BYTES_MAX:
                break
            self._queue.popleft()
            if not head.future.done():  # its caller went away before it was sent
                batch.append(head)
                size += head.bytes
        if batch:
            self._busy = True
            self._start(self._run(batch))

    def _start(self, coroutine: Any) -> None:
        task = self._loop.create_task(coroutine)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def _send(self, batch: list[_Ask]) -> dict[int, Record]:
        rows = await self._call(self._door, *columns(ask.item for ask in batch), patience=_FOREVER)
        return {row["ord"]: row for row in rows}

    async def _run(self, batch: list[_Ask]) -> None:
        rows: dict[int, Record] = {}
        error: BaseException | None = None
        try:
            rows = await self._send(batch)
        except asyncio.CancelledError:
            for ask in batch:
                ask.future.cancel()
            raise
        except BaseException as caught:
            error = caught
        self._busy = False
        self._kick()
        self._loop.call_soon(self._wake, batch, rows, error)

    def _wake(self, batch: list[_Ask], rows: dict[int, Record], error: BaseException | None) -> None:
        for place, ask in enumerate(batch, start=1):
            if ask.future.done():
                continue
            row = rows.get(place)
            if row is not None and row["answer"] != "again":
                ask.future.set_result(row)
            elif error is not None and (len(batch) == 1 or isinstance(error, DatabaseUnavailable)):
                ask.future.set_exception(error)
            else:
                self._start(self._alone(ask))

    async def _alone(self, ask: _Ask) -> None:
        try:
            while not ask.future.done():
                rows = await self._send([ask])
                row = rows.get(1)
                if row is not None and row["answer"] != "again":
                    if not ask.future.done():
                        ask.future.set_result(row)
                    return
        except asyncio.CancelledError:
            ask.future.cancel()
            raise
        except BaseException as error:
            if not ask.future.done():
                ask.future.set_exception(error)
