"""Maps: one step over many rows, each row kept by its key, once; to the workflow's code one boundary (law 50.6)."""

from __future__ import annotations

import asyncio
import hashlib
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, TypeVar, cast

from fencepost import faults, limits, steps, values
from fencepost.authoring import Absent, Found, Step
from fencepost.errors import StepFailed
from fencepost.steps import Row
from fencepost.words import Cancelling, Stale
from fencepost.worker.execution import Broke, Ran, execute, failure, found_value, look_up

if TYPE_CHECKING:
    from fencepost.worker.history import Recorded
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


@dataclass(frozen=True, slots=True)
class Rows:
    """A map's input, as it is stored."""

    keys: list[str]
    inputs: list[str]

    @property
    def hash(self) -> str:
        digest = hashlib.blake2b(digest_size=8)
        for key, text in zip(self.keys, self.inputs, strict=True):
            digest.update(f"{len(key)}:{key}{len(text)}:{text}".encode("utf-8", "surrogatepass"))
        return digest.hexdigest()


def judge_rows(step: Step[..., Any], rows: Iterable[Any], key: str | Callable[[Any], object]) -> Rows:
    """Encode rows and find their keys before anything begins. Raises ValueError (a missing, unusable or twice used key, with the row's
    place) and Unstorable (with the row's place in its path).
    """
    keys: list[str] = []
    inputs: list[str] = []
    seen: dict[str, int] = {}
    for place, row in enumerate(rows):
        name = _key_of(step, row, key, place)
        if name in seen:
            raise ValueError(f"map of {step.name}: rows {seen[name]} and {place} have the same key {name!r}")
        seen[name] = place
        keys.append(name)
        try:
            inputs.append(values.encode(row))
        except values.Unstorable as error:
            raise values.Unstorable(f"$[{place}]{error.path.removeprefix('$')}", error.problem) from None
    return Rows(keys, inputs)


def _key_of(step: Step[..., Any], row: Any, key: str | Callable[[Any], object], place: int) -> str:
    found: object
    if callable(key):
        found = key(row)
    elif isinstance(row, dict):
        found = cast("dict[str, Any]", row).get(key)
    else:
        found = getattr(row, key, None)
    if found is None or not isinstance(found, str | int) or isinstance(found, bool):
        raise ValueError(
            f"map of {step.name}: row {place} has no usable key {key if isinstance(key, str) else '(key=…)'!r} (a text or a whole number)"
        )
    return values.check_name(str(found), f"map of {step.name}: the key of row {place}")


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
            stop = _chunk_end(self.rows.inputs, start)
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
        key = values.step_key(self.leg.claimed.key_root, "row", step.name, self.ordinal, self.rows.keys[index])
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


def _chunk_end(inputs: Sequence[str], start: int) -> int:
    size = 0
    for place in range(start, len(inputs)):
        size += len(inputs[place])
        if size > limits.COALESCE_BYTES_MAX // 2 and place > start:
            return place
    return len(inputs)
