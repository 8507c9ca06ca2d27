"""The boundary of a map over a table: refused, answered from the record, or done; in every case what the code is given is what is stored."""

from __future__ import annotations

import itertools
from collections.abc import Awaitable, Callable
from typing import Any, NoReturn

from fencepost import limits, steps, values
from fencepost.authoring import Step
from fencepost.errors import SourceRefused
from fencepost.sources.judging import Key
from fencepost.sources.table import Table
from fencepost.steps import Row
from fencepost.worker.batches import parts
from fencepost.worker.execution import Ran, failure
from fencepost.worker.history import Recorded
from fencepost.worker.keeping import Keeping, Kept3
from fencepost.worker.mapped import MappedBatches, MappedTable, Reader
from fencepost.worker.outs import MapDoc, Out, needs_writing, write_again
from fencepost.worker.tables import TableRun, Unfit
from fencepost.worker.telling import Telling


class TableMaps:
    """The maps of tables, of one pass through the code."""

    __slots__ = ("_engine", "_keeping", "_leg", "_telling")

    def __init__(self, keeping: Keeping, telling: Telling) -> None:
        self._keeping = keeping
        self._telling = telling
        self._leg = keeping.leg
        self._engine = keeping.engine

    async def map(
        self, step: Step[..., Any], table: Table, key: Key, *, concurrency: int, tolerance: float, raises: bool, out: Out | None,
        batch: int | None = None,
    ) -> MappedTable[Any] | MappedBatches[Any]:  # fmt: skip
        """One boundary. `raises`: unknown rows are raised, not returned. `batch`: the step takes lists of so many rows."""
        engine = self._engine
        ordinal = engine.count("map", step.name)
        recorded = await engine.enter(("map", step.name, ordinal))
        # What a declared retry has set aside is no record, but its rows are there.
        before = engine.recorded.get(("map", step.name, ordinal))
        run = TableRun(self._leg, step, ordinal, table, key, concurrency, tolerance, out, batch)
        with engine.at_boundary():
            await self._raise_recorded_refusal(run)
            if recorded is not None:
                with engine.preparing(recorded):
                    await self._keeping.perform(lambda: self._fitting(lambda: run.recognise(recorded)))
                await self._telling.again(recorded, run.is_still_unknown)
            if recorded is not None and recorded.resolved:
                with engine.preparing(recorded):
                    mapped = await self._keeping.perform(lambda: self._collect(run, recorded.state, recorded.value))
                await engine.replay(recorded)
            else:
                await engine.hold()
                seq, state, text = await self._keeping.perform(lambda: self._do(run, before, raises=raises))
                await engine.in_order(seq)
                mapped = await self._keeping.perform(lambda: self._collect(run, state, text))
            if isinstance(mapped, Exception):
                raise mapped
            return mapped

    async def _do(self, run: TableRun, before: Recorded | None, *, raises: bool) -> Kept3:
        if before is None:
            try:
                await run.judge()
            except SourceRefused as error:
                await self._refuse(run, error)
        elif run.judged is None:
            await self._fitting(lambda: run.recognise(before))
        await self._fitting(run.store)
        if before is None:
            await run.run()
        else:
            await run.run(await steps.read_row_counts(self._leg.face.db, run.work.mid))
        if run.unknown and raises:
            await self._telling.unknown("map", run.step.name, run.ordinal, run.unknown_keys())
        assert run.judged is not None
        return await self._keeping.keep("map", run.step.name, run.ordinal, run.judged.hash, await run.outcome())

    async def _fitting(self, work: Callable[[], Awaitable[None]]) -> None:
        """A table that is not the record's ends the leg: the run is parked, the words shown, nothing else changed (law 50.4)."""
        try:
            await work()
        except Unfit as error:
            self._engine.end_unfit(str(error))
            await self._engine.never()

    # ── a table that is refused ──────────────────────────────────────────────────────────────────────────────────────

    async def _refuse(self, run: TableRun, error: SourceRefused) -> NoReturn:
        """That the table was refused is recorded: a file may be mended meanwhile, and the code must not see another past."""
        doc = [error.path, error.problem, error.line, error.column, error.unit]
        nth = len(self._refusals(run)) + 1
        name = _refused_name(run)
        seq, _, text = await self._keeping.keep("value", name, nth, "", Ran(values.encode(doc)))
        await self._engine.in_order(seq)
        raise _refusal(text)

    def _refusals(self, run: TableRun) -> list[Recorded]:
        known, name = self._engine.recorded, _refused_name(run)
        return [
            known["value", name, nth]
            for nth in itertools.takewhile(lambda n: ("value", name, n) in known, itertools.count(1))
        ]

    async def _raise_recorded_refusal(self, run: TableRun) -> None:
        """A declared retry and a redrive look at the file again."""
        every = self._refusals(run)
        for refused in every:
            refused.asked = True
        if every and not every[-1].loose:
            await self._engine.replay(every[-1])
            raise _refusal(every[-1].value)

    # ── what the code is given ───────────────────────────────────────────────────────────────────────────────────────

    async def _collect(
        self, run: TableRun, state: str, text: str | None
    ) -> MappedTable[Any] | MappedBatches[Any] | Exception:
        if state == "failed":
            return failure(run.step, text or "{}")
        doc = values.decode(text or "{}", MapDoc)
        if needs_writing(run.out, doc):
            await run.opened()
            await write_again(self._leg.face.db, run.work.mid, run.out, doc)
        kind: type[MappedTable[Any] | MappedBatches[Any]] = MappedTable if run.batch is None else MappedBatches
        return kind(
            self._reader(run), completed=doc.completed, failed=doc.failed, skipped=doc.skipped, total=doc.rows, unknown=doc.unknown, out=doc.out
        )  # fmt: skip

    def _reader(self, run: TableRun) -> Reader:
        async def page(after: int) -> list[Row]:
            if not run.work.mid:
                await run.opened()
            return await steps.read_rows(self._leg.face.db, run.work.mid, after, limits.ROWS_PAGE_BYTES)

        async def read(after: int) -> list[Row]:
            with self._engine.calling():  # no other branch is given a result before this one has its rows
                return await self._keeping.perform(lambda: page(after))

        async def value(text: str) -> Any:
            found = await self._keeping.decoded(f"map {run.step.name}", text, run.step.returns)
            return found if run.batch is None else parts(run.step, found)

        return Reader(read, value, lambda text: failure(run.step, text))


def _refused_name(run: TableRun) -> str:
    return f"refused map {run.step.name}#{run.ordinal}"


def _refusal(text: str | None) -> SourceRefused:
    path, problem, line, column, unit = values.decode(text or "[]", tuple[str, str, int | None, str, str])
    return SourceRefused(path, problem, line=line, column=column, unit=unit)
