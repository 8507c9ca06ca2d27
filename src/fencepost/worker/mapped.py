"""What a map gives the workflow's code: a list of results, or, of a table, counts and results that are read as they are wanted."""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable, Iterable
from dataclasses import dataclass
from typing import Any, Generic, TypeVar

from fencepost.sources.results import Written
from fencepost.steps import Row

R = TypeVar("R")
R_co = TypeVar("R_co", covariant=True)


class Mapped(list[R]):
    """A map's results in input order, failed and unknown rows left out; `failed` and `unknown` say which those are, by key.

    `out`: the file of results, where one was asked for.
    """

    failed: dict[str, Exception]
    unknown: tuple[str, ...]
    out: Written | None

    def __init__(
        self, results: Iterable[R] = (), *, failed: dict[str, Exception] | None = None, unknown: tuple[str, ...] = (), out: Written | None = None
    ) -> None:  # fmt: skip
        super().__init__(results)
        self.failed = failed or {}
        self.unknown = unknown
        self.out = out


@dataclass(frozen=True, slots=True)
class Reader:
    """How a finished map's rows are read: a page after an index, a stored result as the step declares it, a stored failure."""

    page: Callable[[int], Awaitable[list[Row]]]
    value: Callable[[str], Awaitable[Any]]
    failure: Callable[[str], Exception]


class _OfTable:
    """Counts, failures and unknown keys: what a map and a batch over a table tell alike."""

    __slots__ = ("_reader", "completed", "failed", "out", "skipped", "total", "unknown")

    def __init__(
        self, reader: Reader, *, completed: int, failed: int, skipped: int, total: int, unknown: tuple[str, ...], out: Written | None
    ) -> None:  # fmt: skip
        self._reader = reader
        self.completed = completed
        self.failed = failed
        self.skipped = skipped
        self.total = total
        self.unknown = unknown
        self.out = out

    def __repr__(self) -> str:
        return f"{type(self).__name__}(completed={self.completed}, failed={self.failed}, unknown={len(self.unknown)}, total={self.total})"

    async def failures(self) -> AsyncIterator[tuple[str, Exception]]:
        """Key and exception of every row that failed, in input order."""
        async for row in self._rows("failed"):
            yield row.key, self._reader.failure(row.value or "{}")

    async def _rows(self, state: str) -> AsyncIterator[Row]:
        # What was resolved later is for the record: every replay is given what the first pass was (law 50.4).
        unknown = frozenset(self.unknown)
        after = -1
        while page := await self._reader.page(after):
            for row in page:
                if row.state == state and row.key not in unknown:
                    yield row
            after = page[-1].index


class MappedTable(_OfTable, Generic[R_co]):
    """What became of a table's rows. Results are no list in memory: `async for result in mapped` reads them in input order, in windows.

    `completed`, `failed`, `skipped`, `total`: counts. `unknown`: keys, as they were when the map ended. `out`: the file of results,
    where one was asked for.
    """

    __slots__ = ()

    async def __aiter__(self) -> AsyncIterator[R_co]:
        """Every result, in input order."""
        async for row in self._rows("kept"):
            yield await self._reader.value(row.value or "null")

    async def items(self) -> AsyncIterator[tuple[str, R_co]]:
        """Key and result of every row that is completed, in input order."""
        async for row in self._rows("kept"):
            yield row.key, await self._reader.value(row.value or "null")


class MappedBatches(_OfTable, Generic[R_co]):
    """What became of a table's rows that a step took in batches: all as `MappedTable` has it, with batches for rows."""

    __slots__ = ()

    async def __aiter__(self) -> AsyncIterator[R_co]:
        """Every result of every batch, in input order."""
        async for row in self._rows("kept"):
            for result in await self._reader.value(row.value or "null"):
                yield result

    async def items(self) -> AsyncIterator[tuple[str, list[R_co]]]:
        """Key and results of every batch that is completed, in input order."""
        async for row in self._rows("kept"):
            yield row.key, await self._reader.value(row.value or "null")
