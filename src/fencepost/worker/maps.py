"""Maps: one step over many rows, each row kept by its key, once; to the workflow's code one boundary (law 50.6)."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from fencepost import faults, limits, steps, values
from fencepost.authoring import Step
from fencepost.errors import StepFailed
from fencepost.steps import Row
from fencepost.words import Cancelling, Stale
from fencepost.worker.execution import Broke, Ran, failure
from fencepost.worker.history import Recorded
from fencepost.worker.keeping import Keeping, Kept3
from fencepost.worker.mapped import Mapped
from fencepost.worker.outs import MapDoc, Out, needs_writing, with_file, write_again
from fencepost.worker.pace import Pace
from fencepost.worker.rows import Rows, chunk_end
from fencepost.worker.rowwork import RowWork
from fencepost.worker.telling import Telling

if TYPE_CHECKING:
    from fencepost.worker.leg import Leg


@dataclass(slots=True)
class MapRun:
    """One leg's work on a map of a list."""

    leg: Leg
    step: Step[..., Any]
    ordinal: int
    rows: Rows
    source: Sequence[Any]
    concurrency: int
    tolerance: int
    out: Out | None
    failures: int = 0
    unknown: list[int] = field(default_factory=list[int])
    texts: dict[int, str] = field(default_factory=dict[int, str])
    errors: dict[int, str] = field(default_factory=dict[int, str])
    work: RowWork = field(init=False)
    pace: Pace = field(init=False)

    def __post_init__(self) -> None:
        self.work = RowWork(self.leg, self.step, self.ordinal, self._note)
        self.pace = Pace(self.leg, self.step.name, len(self.source))

    async def store(self) -> None:
        """Store every row before the first begins, in calls of bounded size; what an earlier attempt stored stays."""
        start = 0
        while True:
            stop = chunk_end(self.rows.inputs, start)
            whole = stop == len(self.rows.inputs)
            answer = await steps.open_map(
                self.leg.face.db, self.leg.fence, self.step.name, self.ordinal, hash=self.rows.hash, start=start,
                keys=self.rows.keys[start:stop], inputs=self.rows.inputs[start:stop], repeatable=self.step.repeatable, whole=whole,
            )  # fmt: skip
            if isinstance(answer, Stale | Cancelling):
                await self.leg.gone(answer)
            self.work.mid = answer.mid
            if answer.whole or whole:
                return
            start = max(stop, answer.total)

    async def states(self) -> list[Row]:
        """Every row as an earlier attempt left it."""
        found: list[Row] = []
        while page := await steps.read_rows(
            self.leg.face.db, self.work.mid, found[-1].index if found else -1, limits.ROWS_PAGE_BYTES
        ):
            found += page
        if [row.key for row in found] != self.rows.keys:
            # Only after a declared retry, where other arguments are no fault by themselves: these rows cannot be told apart by place.
            assert self.leg.engine is not None
            self.leg.engine.end_unfit(
                f"map {self.step.name}#{self.ordinal} is asked for with other rows than are stored"
            )
            await self.leg.engine.never()
        return found

    async def is_still_unknown(self, told: Recorded) -> bool:
        """The rows that the code was told of stand as they stood, and there is nobody to ask."""
        if self.step.lookup is not None:
            return False
        await self.store()
        left = [row for row in await self.states() if row.state not in ("kept", "failed", "skipped")]
        keys = values.decode(told.value or "[]", list[str])
        return [row.key for row in left] == keys and all(row.state == "marked" for row in left)

    async def run(self, rows: list[Row] | None) -> None:
        """Do every row that is not done, at most `concurrency` at a time; stop handing out rows when more have failed than tolerated."""
        todo = iter(range(len(self.source)) if rows is None else self._open(rows))
        marked = set[int]() if rows is None else {row.index for row in rows if row.state == "marked"}
        self.work.done = len(self.texts)

        async def hand_out() -> None:
            for index in todo:
                if self.failures > self.tolerance:
                    return
                await self.work.row(index, self.rows.keys[index], (self.source[index],), marked=index in marked)

        try:
            async with asyncio.TaskGroup() as group:
                for _ in range(min(self.concurrency, len(self.source))):
                    group.create_task(hand_out())
        except ExceptionGroup as several:  # a row's failure is a result: what comes out here is a door's refusal
            raise several.exceptions[0] from None
        await faults.reach("map.done", step=self.step.name)

    def _open(self, rows: list[Row]) -> list[int]:
        todo: list[int] = []
        for row in rows:
            if row.state == "kept":
                self.texts[row.index] = row.value or "null"
            elif row.state == "failed":
                self.errors[row.index] = row.value or "{}"
                self.failures += 1
            elif row.state != "skipped":
                todo.append(row.index)
        return todo

    def _note(self, index: int, _: str, outcome: Ran | Broke | None) -> None:
        if isinstance(outcome, Ran):
            self.texts[index] = outcome.text
        elif isinstance(outcome, Broke):
            self.errors[index] = outcome.text
            self.failures += 1
        else:
            self.unknown.append(index)
        self.pace.tell(len(self.texts) + len(self.errors))

    async def collect(self, doc: MapDoc) -> Mapped[Any]:
        """The value that the code gets, decoded from what is stored."""
        unknown = set(doc.unknown)
        places = {place for place, key in enumerate(self.rows.keys) if key in unknown}
        if len(self.texts) + len(self.errors) + len(places) < len(self.rows.keys):
            await self.store()
            self._open(await self.states())
        step, keys = self.step, self.rows.keys
        return Mapped(
            [values.decode(text, step.returns) for place, text in sorted(self.texts.items()) if place not in places],
            failed={
                keys[place]: failure(step, text) for place, text in sorted(self.errors.items()) if place not in places
            },
            unknown=tuple(keys[place] for place in sorted(places)),
            out=doc.out,
        )

    def verdict(self) -> StepFailed | None:
        """None, or the failure of the whole map: more rows failed than are tolerated."""
        if self.failures <= self.tolerance:
            return None
        first = min(self.errors)
        why = values.decode(self.errors[first], dict[str, Any])
        many = f"{self.failures} of {len(self.source)} rows failed, {self.tolerance} tolerated"
        words = f"{many}; the first, {self.rows.keys[first]}: {why.get('message', '')}"
        return StepFailed("STEP_FAILED", words, step=self.step.name, type=str(why.get("type", "")))

    async def outcome(self) -> Ran | Broke:
        """What is kept of the map as a whole, its file of results written before."""
        verdict = self.verdict()
        if verdict is not None:
            return Broke(values.encode_error({"code": verdict.code, "message": verdict.message, "type": verdict.type}))
        doc = MapDoc(
            rows=len(self.rows.keys), completed=len(self.texts), failed=len(self.errors), unknown=self.unknown_keys()
        )
        return await with_file(self.leg.face.db, self.work.mid, self.out, doc)

    def unknown_keys(self) -> tuple[str, ...]:
        return tuple(self.rows.keys[i] for i in sorted(self.unknown))


class Maps:
    """The maps of lists, of one pass through the code."""

    __slots__ = ("_engine", "_keeping", "_leg", "_telling")

    def __init__(self, keeping: Keeping, telling: Telling) -> None:
        self._keeping = keeping
        self._telling = telling
        self._leg = keeping.leg
        self._engine = keeping.engine

    async def map(
        self, step: Step[..., Any], source: Sequence[Any], rows: Rows, *, concurrency: int, tolerance: int, raises: bool, out: Out | None
    ) -> Mapped[Any]:  # fmt: skip
        """One boundary; `rows`: the source, judged. `raises`: unknown rows are raised, not returned."""
        engine = self._engine
        ordinal = engine.count("map", step.name)
        recorded = await engine.enter(("map", step.name, ordinal), rows.hash)
        run = MapRun(self._leg, step, ordinal, rows, source, concurrency, tolerance, out)
        with engine.at_boundary():
            if recorded is not None:
                await self._telling.again(recorded, run.is_still_unknown)
            if recorded is not None and recorded.resolved:
                with engine.preparing(recorded):
                    mapped = await self._keeping.perform(lambda: self._collect(run, recorded.state, recorded.value))
                await engine.replay(recorded)
            else:
                await engine.hold()
                seq, state, text = await self._keeping.perform(lambda: self._do(run, raises=raises))
                await engine.in_order(seq)
                mapped = await self._keeping.perform(lambda: self._collect(run, state, text))
            if isinstance(mapped, Exception):
                raise mapped
            return mapped

    async def _do(self, run: MapRun, *, raises: bool) -> Kept3:
        await run.store()
        # What a declared retry has set aside is no record, but its rows are there.
        begun_before = ("map", run.step.name, run.ordinal) in self._engine.recorded
        await run.run(await run.states() if begun_before else None)
        if run.unknown and raises:
            await self._telling.unknown("map", run.step.name, run.ordinal, run.unknown_keys())
        return await self._keeping.keep("map", run.step.name, run.ordinal, run.rows.hash, await run.outcome())

    async def _collect(self, run: MapRun, state: str, text: str | None) -> Mapped[Any] | Exception:
        """What the code is given of a map: always from what is stored."""
        if state == "failed":
            return failure(run.step, text or "{}")
        doc = values.decode(text or "{}", MapDoc)
        try:
            mapped = await run.collect(doc)
        except values.Undecodable as error:
            await self._keeping.undecodable(f"map {run.step.name}", error)
        if needs_writing(run.out, doc):
            await run.store()
            await write_again(self._leg.face.db, run.work.mid, run.out, doc)
        return mapped
