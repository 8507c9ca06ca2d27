"""The data plays of the Context that are made of steps and maps: the waterfall and the batch (law 50.8)."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Any, Literal, TypeVar, cast, overload

from fencepost import keys
from fencepost.authoring import P, R, Step
from fencepost.sources.table import Table
from fencepost.worker.answers import Answer, NoAnswer
from fencepost.worker.batches import cut, flat, judge_batch
from fencepost.worker.mapped import Mapped, MappedBatches
from fencepost.worker.rooms import Rooms
from fencepost.worker.tables import allowed, judge_tolerance
from fencepost.worker.waterfall import Accept

T = TypeVar("T")
A = TypeVar("A")
B = TypeVar("B")
C = TypeVar("C")


class Plays(Rooms):
    """Part of the Context."""

    @overload
    async def waterfall(
        self, name: str, steps: Sequence[Step[P, R | None]], /, *args: P.args, **kwargs: P.kwargs
    ) -> Answer[R] | NoAnswer: ...
    @overload
    async def waterfall(
        self, name: str, steps: Sequence[Step[P, R]], /, *args: P.args, **kwargs: P.kwargs
    ) -> Answer[R] | NoAnswer: ...
    @overload
    async def waterfall(
        self, name: str, steps: Sequence[Step[[], R]], /, *, accept: Callable[[R], bool]
    ) -> Answer[R] | NoAnswer: ...
    @overload
    async def waterfall(
        self, name: str, steps: Sequence[Step[[A], R]], a: A, /, *, accept: Callable[[R], bool]
    ) -> Answer[R] | NoAnswer: ...
    @overload
    async def waterfall(
        self, name: str, steps: Sequence[Step[[A, B], R]], a: A, b: B, /, *, accept: Callable[[R], bool]
    ) -> Answer[R] | NoAnswer: ...
    @overload
    async def waterfall(
        self, name: str, steps: Sequence[Step[[A, B, C], R]], a: A, b: B, c: C, /, *, accept: Callable[[R], bool]
    ) -> Answer[R] | NoAnswer: ...
    async def waterfall(self, name: str, steps: Sequence[Any], /, *args: Any, **kwargs: Any) -> Answer[Any] | NoAnswer:
        """Ask steps that take the same arguments, in order, until one gives a value that is accepted: not None, or what `accept` says.

        A step that failed, or whose value is not accepted, is passed over; after the last one it is a NoAnswer that says who said what.
        An unknown step stops the waterfall: StepOutcomeUnknown, and the next one is not asked (law 50.8). `accept` is pure, and asked
        once: its verdict is recorded. With it arguments are positional.
        """
        accept: Accept | None = kwargs.pop("accept", None)
        hashed = keys.hash_call(args, kwargs)
        return await self._waterfalls.fall(name, steps, accept, hashed, args, kwargs)

    @overload
    async def batch(
        self, step: Step[[list[Any]], list[R]], rows: Table, *, size: int, key: str | Callable[[dict[str, Any]], object], concurrency: int = 20,
        tolerance: float = 0, unknown: Literal["raise", "return"] = "raise",
    ) -> MappedBatches[R]: ...  # fmt: skip
    @overload
    async def batch(
        self, step: Step[[list[T]], list[R]], rows: Iterable[T], *, size: int, key: str | Callable[[T], object], concurrency: int = 20,
        tolerance: float = 0, unknown: Literal["raise", "return"] = "raise",
    ) -> Mapped[R]: ...  # fmt: skip
    async def batch(
        self, step: Step[[list[Any]], list[R]], rows: Iterable[Any] | Table, *, size: int, key: str | Callable[[Any], object],
        concurrency: int = 20, tolerance: float = 0, unknown: Literal["raise", "return"] = "raise",
    ) -> Mapped[R] | MappedBatches[R]:  # fmt: skip
        """Run a step over lists of at most `size` rows, each list committed once; its results, concatenated, in input order (law 50.8).

        One boundary, and all else as `map` has it, with batches for rows: `tolerance` counts batches, `.failed` and `.unknown` name
        them by the keys of their first and last row. A table is never loaded whole, and a batch of it that does not fit the step's
        parameter fails by itself.
        """
        if concurrency < 1:
            raise ValueError(f"concurrency must be at least 1, not {concurrency}")
        judge_tolerance(tolerance)
        judge_batch(step, size)
        raises = unknown == "raise"
        if isinstance(rows, Table):
            rows.ready()
            return cast(
                "MappedBatches[R]",
                await self._tables.map(
                    step, rows, key, concurrency=concurrency, tolerance=tolerance, raises=raises, out=None, batch=size
                ),
            )
        batches, judged = cut(step, rows, key, size)
        mapped = await self._maps.map(
            step, batches, judged, concurrency=concurrency, tolerance=allowed(tolerance, len(batches)), raises=raises, out=None
        )  # fmt: skip
        return flat(step, mapped)
