"""Maps of tables: rows that were never a list in memory (law 50.6).

The file is judged whole, then its rows are stored, then they are read from the database a few at a time: from there on the file is
not needed. Its digest is the boundary's argument (law 50.4): a file that has changed is other arguments.
"""

from __future__ import annotations

import asyncio
import inspect
import threading
from collections.abc import AsyncIterator, Callable
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, TypeVar

from fencepost import faults, steps, values
from fencepost.authoring import Step, type_hints
from fencepost.errors import SourceRefused
from fencepost.sources.judging import Judged, Key, Stopped, judge, pieces_of, read_as
from fencepost.sources.results import judge_place
from fencepost.sources.table import Table
from fencepost.steps import OpenMap, RowCounts, Undone
from fencepost.words import Cancelling, Stale
from fencepost.worker.execution import Broke, Ran
from fencepost.worker.feed import Feed
from fencepost.worker.history import Recorded
from fencepost.worker.outs import MapDoc, Out, with_file
from fencepost.worker.pace import Pace
from fencepost.worker.rowwork import RowWork

if TYPE_CHECKING:
    from fencepost.worker.leg import Leg

T = TypeVar("T")
_PAGE_ROWS_MIN = 256
_NONE = RowCounts(0, 0, 0, 0, None, None)


class Unfit(Exception):
    """The table is not the one that the record was made from; the words say so."""


@dataclass(slots=True)
class TableRun:
    """One leg's work on a map of a table."""

    leg: Leg
    step: Step[..., Any]
    ordinal: int
    table: Table
    key: Key
    concurrency: int
    tolerance: float
    out: Out | None
    batch: int | None = None  # so many rows are one, to the record
    judged: Judged | None = None
    failures: int = 0
    unknown: dict[int, str] = field(default_factory=dict[int, str])
    work: RowWork = field(init=False)
    pace: Pace = field(init=False)

    def __post_init__(self) -> None:
        self.work = RowWork(self.leg, self.step, self.ordinal, self._note)
        self.pace = Pace(self.leg, self.step.name, 0)

    @property
    def words(self) -> str:
        return f"map {self.step.name}#{self.ordinal}"

    # ── the file ─────────────────────────────────────────────────────────────────────────────────────────────────────

    async def judge(self) -> None:
        """The whole file, before anything begins. Raises SourceRefused."""
        if self.out is not None:
            judge_place(self.out.table, self.table)
        self.judged = await _in_thread(lambda stop: judge(self.table, self.key, stop, batch=self.batch))

    async def recognise(self, recorded: Recorded) -> None:
        """That the table is the one that the record was made from. A file that is gone is not needed once its rows are stored. Raises Unfit."""
        known = Judged.of(recorded.hash)
        if known is None:
            raise Unfit(f"{self.words} is asked for with a table, and its record was made from a list")
        self.judged = known
        if known.read_as != read_as(self.table, self.key, self.batch):
            raise Unfit(
                f"{self.words}: {self.table.name} is to be read in another way than it was (kind, columns, delimiter, encoding, key, size …)"
            )
        try:
            sha256 = await asyncio.to_thread(self.table.digest)
        except FileNotFoundError:
            if not recorded.resolved and not (await self.opened()).whole:
                raise Unfit(
                    f"{self.words}: {self.table.name} is gone, and not all of its rows had been stored: put it back and wake the run"
                ) from None
        else:
            if sha256 != known.sha256:
                raise Unfit(
                    f"{self.words}: {self.table.name} has changed since the map began: its SHA-256 was {known.sha256} and is {sha256}. "
                    "Put the old file back and wake the run, or give the new file to a new run"
                )

    async def store(self) -> None:
        """Every row, before the first begins, in calls of bounded size; what an earlier attempt stored stays. Raises Unfit."""
        have = await self.opened()
        if have.whole:
            return
        try:
            judged = await self._with_pieces()
            start = 0
            async for keys, inputs in self._pieces(judged):
                stop = start + len(keys)
                if stop > have.total or stop == judged.total:
                    await self.opened(start, keys, inputs, whole=stop == judged.total)
                start = stop
        except SourceRefused as error:
            raise Unfit(f"{self.words}: {error}") from None

    async def _with_pieces(self) -> Judged:
        """The table as it was judged, each piece of it known: only what was judged is stored. Raises SourceRefused."""
        known = self.judged
        assert known is not None
        if known.pieces:
            return known
        self.judged = await _in_thread(lambda stop: judge(self.table, self.key, stop, batch=self.batch))
        if self.judged != known:
            raise self.table.refused("it was changed while it was being read")
        return self.judged

    async def _pieces(self, judged: Judged) -> AsyncIterator[tuple[list[str], list[str]]]:
        stop = threading.Event()
        pieces = pieces_of(self.table, self.key, judged, stop, batch=self.batch)
        try:
            while (piece := await asyncio.to_thread(next, pieces, None)) is not None:
                yield piece
        finally:
            stop.set()

    async def opened(
        self, start: int = 0, keys: list[str] | None = None, inputs: list[str] | None = None, *, whole: bool = False
    ) -> OpenMap:
        """Store rows, or none; how much is stored."""
        assert self.judged is not None or keys is None
        answer = await steps.open_map(
            self.leg.face.db, self.leg.fence, self.step.name, self.ordinal, hash=self.judged.hash if self.judged else "", start=start,
            keys=keys or [], inputs=inputs or [], repeatable=self.step.repeatable, whole=whole,
        )  # fmt: skip
        if isinstance(answer, Stale | Cancelling):
            await self.leg.gone(answer)
        self.work.mid = answer.mid
        return answer

    # ── the rows ─────────────────────────────────────────────────────────────────────────────────────────────────────

    async def run(self, before: RowCounts = _NONE) -> None:
        """Do every row that is not done, at most `concurrency` at a time; stop handing out rows when more have failed than tolerated."""
        self.failures, self.work.done = before.failed, before.kept
        feed = Feed(self.leg.face.db, self.work.mid, max(_PAGE_ROWS_MIN, 2 * self.concurrency))
        row_type = _row_type(self.step)

        async def hand_out() -> None:
            while self.failures <= self.allowed and (row := await feed.take()) is not None:
                await self._row(row, row_type)

        try:
            async with asyncio.TaskGroup() as group:
                for _ in range(self.concurrency):
                    group.create_task(hand_out())
        except ExceptionGroup as several:  # a row's failure is a result: what comes out here is a door's refusal
            raise several.exceptions[0] from None
        finally:
            feed.close()
        await faults.reach("map.done", step=self.step.name)

    async def _row(self, row: Undone, row_type: Any) -> None:
        marked = row.state == "marked"
        try:
            value = values.decode(row.input, row_type, texts=self.table.texts)
        except values.Undecodable as error:
            if marked and not self.step.repeatable:  # it began with code that could read it
                self._note(row.index, row.key, None)
                return
            why = f"the row does not fit {error.what}: {error.problem}"
            doc = {"code": "STEP_FAILED", "message": why, "type": "Undecodable"}
            await self.work.keep(row.index, row.key, Broke(values.encode_error(doc)))
        else:
            await self.work.row(row.index, row.key, (value,), marked=marked)

    def _note(self, index: int, key: str, outcome: Ran | Broke | None) -> None:
        self.failures += isinstance(outcome, Broke)
        if outcome is None:
            self.unknown[index] = key
        self.pace.tell(self.work.done + self.failures, self.total)

    async def is_still_unknown(self, told: Recorded) -> bool:
        """The rows that the code was told of stand as they stood, and there is nobody to ask."""
        if self.step.lookup is not None:
            return False
        await self.opened()
        keys = values.decode(told.value or "[]", list[str])
        feed = Feed(self.leg.face.db, self.work.mid, _PAGE_ROWS_MIN)
        try:
            for key in keys:
                row = await feed.take()
                if row is None or row.key != key or row.state != "marked":
                    return False
            return await feed.take() is None
        finally:
            feed.close()

    # ── what came of it ──────────────────────────────────────────────────────────────────────────────────────────────

    @property
    def total(self) -> int:
        assert self.judged is not None
        return self.judged.total

    @property
    def allowed(self) -> int:
        """How many rows may fail: a number, or a share of all."""
        return allowed(self.tolerance, self.total)

    async def outcome(self) -> Ran | Broke:
        """What is kept of the map as a whole, its file of results written before."""
        counts = await steps.read_row_counts(self.leg.face.db, self.work.mid)
        if counts.failed > self.allowed:
            why = values.decode(counts.first_error or "{}", dict[str, Any])
            many = f"{counts.failed} of {self.total} rows failed, {self.allowed} tolerated"
            words = f"{many}; the first, {counts.first_key}: {why.get('message', '')}"
            return Broke(values.encode_error({"code": "STEP_FAILED", "message": words, "type": str(why.get("type", ""))}))  # fmt: skip
        doc = MapDoc(
            rows=self.total, completed=counts.kept, failed=counts.failed, skipped=counts.skipped, unknown=self.unknown_keys()
        )  # fmt: skip
        return await with_file(self.leg.face.db, self.work.mid, self.out, doc)

    def unknown_keys(self) -> tuple[str, ...]:
        """In input order."""
        return tuple(key for _, key in sorted(self.unknown.items()))


def allowed(tolerance: float, total: int) -> int:
    """How many of `total` rows may fail: a whole number as it is, a share rounded down."""
    return tolerance if isinstance(tolerance, int) else int(tolerance * total)


def judge_tolerance(tolerance: float) -> None:
    """Raises ValueError or TypeError for what is neither a number of rows nor a share of them."""
    if isinstance(tolerance, bool) or not isinstance(tolerance, int | float):
        raise TypeError(f"tolerance is how many rows may fail (5), or which share of them (0.02), not {tolerance!r}")
    if isinstance(tolerance, int) and tolerance < 0:
        raise ValueError(f"tolerance must be at least 0, not {tolerance}")
    if isinstance(tolerance, float) and not 0 < tolerance < 1:
        raise ValueError(
            f"tolerance as a share lies between 0 and 1 (0.02 is 2 in 100), not {tolerance}; give whole rows as a whole number"
        )


async def _in_thread(work: Callable[[threading.Event], T]) -> T:
    """In a thread, which is told to stop when nobody waits for it any more."""
    stop = threading.Event()
    try:
        return await asyncio.to_thread(work, stop)
    except Stopped:
        raise asyncio.CancelledError from None
    finally:
        stop.set()


def _row_type(step: Step[..., Any]) -> Any:
    """The annotation of the step's parameter; Any where the author gave none."""
    first = next(iter(inspect.signature(step.function).parameters), "")
    return type_hints(step.function).get(first, Any)
