"""Maps: one step over many rows, each row kept by its key, once; to the workflow's code one boundary (law 50.6)."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, TypeVar

from fencepost import faults, keys, limits, steps, values
from fencepost.authoring import Absent, Found, Step
from fencepost.errors import StepFailed
from fencepost.steps import Row
from fencepost.words import Cancelling, Stale
from fencepost.worker.execution import Broke, Ran, execute, failure, found_value, look_up
from fencepost.worker.history import Recorded
from fencepost.worker.keeping import Keeping, Kept3
from fencepost.worker.rows import Rows, chunk_end
from fencepost.worker.telling import Telling

if TYPE_CHECKING:
    from fencepost.worker.leg import Leg

R = TypeVar("R")


class Mapped(list[R]):
    """A map's results in input order, failed and unknown rows left out; `failed` and `unknown` say which those are, by key."""

    failed: dict[str, Exception]
    unknown: tuple[str, ...]

    def __init__(
        self, results: Iterable[R] = (), *, failed: dict[str, Exception] | None = None, unknown: tuple[str, ...] = ()
    ) -> None:
        super().__init__(results)
        self.failed = failed or {}
        self.unknown = unknown


@dataclass(slots=True)
class MapRun:
    """One leg's work on a map."""

    leg: Leg
    step: Step[..., Any]
    ordinal: int
    rows: Rows
    source: Sequence[Any]
    concurrency: int
    tolerance: int
    mid: int = 0
    failures: int = 0
    unknown: list[int] = field(default_factory=list[int])
    texts: dict[int, str] = field(default_factory=dict[int, str])
    errors: dict[int, str] = field(default_factory=dict[int, str])

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
            self.mid = answer.mid
            if answer.whole or whole:
                return
            start = max(stop, answer.total)

    async def states(self) -> list[Row]:
        """Every row as an earlier attempt left it."""
        found: list[Row] = []
        while page := await steps.read_rows(
            self.leg.face.db, self.mid, found[-1].index if found else -1, limits.ROWS_PAGE_BYTES
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
        known = {} if rows is None else {row.index: row for row in rows}

        async def hand_out() -> None:
            for index in todo:
                if self.failures > self.tolerance:
                    return
                await self._row(index, known.get(index))

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

    async def _row(self, index: int, known: Row | None) -> None:
        db, fence, step = self.leg.face.db, self.leg.fence, self.step
        key = keys.step_key(self.leg.claimed.key_root, "row", step.name, self.ordinal, self.rows.keys[index])
        args = (self.source[index],)
        if known is not None and known.state == "marked" and not step.repeatable:
            answer = await look_up(step, key, args, {})
            if isinstance(answer, Found):
                await self._keep(index, found_value(answer))
            elif (
                isinstance(answer, Absent) and step.key_honoured
            ):  # the mark stays its old holder's: it is the same call
                await self._do(index, key, args)
            else:
                self.unknown.append(index)
            return
        marking = await steps.mark_row(db, fence, self.mid, index)
        if isinstance(marking, Stale | Cancelling):
            await self.leg.gone(marking)
        if marking == "standing":  # marked when the step was declared not repeatable
            self.unknown.append(index)
            return
        if marking == "done":
            raise AssertionError(f"row {self.rows.keys[index]} of map {step.name} is committed: it must not run again")
        await self._do(index, key, args)

    async def _do(self, index: int, key: str, args: tuple[Any, ...]) -> None:
        leg, step = self.leg, self.step

        async def may_go_on() -> bool:
            return isinstance(await steps.mark_row(leg.face.db, leg.fence, self.mid, index), str)

        outcome = await execute(
            leg.face, leg.threads, step, key, args, {}, may_go_on=None if step.repeatable else may_go_on
        )
        if isinstance(outcome, Ran | Broke):
            await self._keep(index, outcome)
            return
        answer = await look_up(self.step, key, args, {})
        if isinstance(answer, Found):
            await self._keep(index, found_value(answer))
        else:
            self.unknown.append(index)

    async def _keep(self, index: int, outcome: Ran | Broke) -> None:
        ok = isinstance(outcome, Ran)
        answer = await steps.keep_row(
            self.leg.face.db, self.leg.fence, self.mid, index, "kept" if ok else "failed", outcome.text
        )
        if isinstance(answer, Stale):
            await self.leg.gone(answer)
        if ok:
            self.texts[index] = outcome.text
        else:
            self.errors[index] = outcome.text
            self.failures += 1
        self.leg.committed()
        await faults.reach("row.kept", step=self.step.name, key=self.rows.keys[index], done=len(self.texts))

    async def collect(self, unknown: set[str]) -> Mapped[Any]:
        """The value that the code gets, decoded from what is stored; `unknown`: the keys that were so when the map was kept."""
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

    def outcome(self) -> Ran | Broke:
        """What is kept of the map as a whole."""
        verdict = self.verdict()
        if verdict is None:
            return Ran(values.encode({"rows": len(self.rows.keys), "unknown": list(self.unknown_keys())}))
        return Broke(values.encode_error({"code": verdict.code, "message": verdict.message, "type": verdict.type}))

    def unknown_keys(self) -> tuple[str, ...]:
        return tuple(self.rows.keys[i] for i in sorted(self.unknown))


class Maps:
    """The maps of one pass through the code."""

    __slots__ = ("_engine", "_keeping", "_leg", "_telling")

    def __init__(self, keeping: Keeping, telling: Telling) -> None:
        self._keeping = keeping
        self._telling = telling
        self._leg = keeping.leg
        self._engine = keeping.engine

    async def map(
        self, step: Step[..., Any], source: Sequence[Any], rows: Rows, *, concurrency: int, tolerance: int, raises: bool
    ) -> Mapped[Any]:
        """One boundary; `rows`: the source, judged. `raises`: unknown rows are raised, not returned."""
        engine = self._engine
        ordinal = engine.count("map", step.name)
        recorded = await engine.enter(("map", step.name, ordinal), rows.hash)
        run = MapRun(self._leg, step, ordinal, rows, source, concurrency, tolerance)
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
        return await self._keeping.keep("map", run.step.name, run.ordinal, run.rows.hash, run.outcome())

    async def _collect(self, run: MapRun, state: str, text: str | None) -> Mapped[Any] | Exception:
        """What the code is given of a map: always from what is stored."""
        if state == "failed":
            return failure(run.step, text or "{}")
        unknown = set(values.decode(text or "{}", dict[str, Any]).get("unknown", ()))
        try:
            return await run.collect(unknown)
        except values.Undecodable as error:
            await self._keeping.undecodable(f"map {run.step.name}", error)
