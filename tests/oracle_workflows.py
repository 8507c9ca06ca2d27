"""Workflows for the oracle's test: each runs a small program, so that the test can invent as many as it likes.

A program is a list of operations, given as the run's input. What steps do to the world is counted in `WORLD`, plain Python
outside the database: nothing that is counted there can be taken back by a transaction.
"""

from __future__ import annotations

import asyncio
from collections import Counter, defaultdict
from typing import Any, TypedDict

from fencepost import (
    Absent,
    App,
    Arrived,
    Context,
    Found,
    Retry,
    RunCancelled,
    RunFailed,
    StepFailed,
    StepOutcomeUnknown,
    TimedOut,
    Unknown,
    Workflow,
)

app = App("oracle", release="dev")


class Flaky(Exception):
    """Declared by the steps that retry: when this was raised, nothing happened."""


class Rejected(Exception):
    """Declared by the step `declared`: raised to the workflow as itself."""


class Broken(Exception):
    """Nobody declares this one."""


class Doubt(Exception):
    """Declared by the step `doubtful`: when this was raised, nobody knows."""


class World:
    """What steps have begun and done, and the gates they stand at: (tag of the run, place in its program)."""

    def __init__(self) -> None:
        self.begun: Counter[tuple[str, str]] = Counter()
        self.effects: dict[tuple[str, str], int] = {}
        self.gates: dict[tuple[str, str], str] = {}
        self.standing: dict[tuple[str, str, int], asyncio.Event] = {}
        self.reached: defaultdict[str, asyncio.Event] = defaultdict(asyncio.Event)

    async def act(self, tag: str, place: str, fails: int, error: type[Exception]) -> str:
        """One call of a step: counted, stopped at its gate if it has one, failing `fails` times before it has an effect."""
        self.begun[tag, place] += 1
        n = self.begun[tag, place]
        gate = self.gates.pop((tag, place), None)
        if gate == "before":
            await self._stand(tag, place, n)
        if n <= fails:
            raise error(f"{place}@{n}")
        self.effects[tag, place] = n
        if gate == "after":
            await self._stand(tag, place, n)
        return f"{place}@{n}"

    async def _stand(self, tag: str, place: str, n: int) -> None:
        opened = self.standing[tag, place, n] = asyncio.Event()
        self.reached[tag].set()
        try:
            await opened.wait()
        finally:
            self.standing.pop((tag, place, n), None)


WORLD = World()


@app.step(repeatable=True)
async def again(tag: str, place: str, fails: int) -> str:
    return await WORLD.act(tag, place, fails, Broken)


@app.step(repeatable=True, retry=Retry(3, on=(Flaky,), delay=0.001, factor=1))
async def patient(tag: str, place: str, fails: int) -> str:
    return await WORLD.act(tag, place, fails, Flaky)


@app.step()
async def once(tag: str, place: str, fails: int) -> str:
    return await WORLD.act(tag, place, fails, Broken)


@app.step(retry=Retry(3, on=(Flaky,), delay=0.001, factor=1))
async def careful(tag: str, place: str, fails: int) -> str:
    return await WORLD.act(tag, place, fails, Flaky)


@app.step(errors=[Rejected])
async def declared(tag: str, place: str, fails: int) -> str:
    return await WORLD.act(tag, place, fails, Rejected)


@app.step(unknown_on=[Doubt])
async def doubtful(tag: str, place: str, fails: int) -> str:
    return await WORLD.act(tag, place, fails, Doubt)


async def look(key: str, tag: str, place: str, fails: int) -> Found[str] | Absent | Unknown:
    n = WORLD.effects.get((tag, place))
    return Absent() if n is None else Found(f"{place}@{n}")


async def shrug(key: str, tag: str, place: str, fails: int) -> Found[str] | Absent | Unknown:
    return Unknown()


@app.step(lookup=look, settle=0.02)
async def found(tag: str, place: str, fails: int) -> str:
    return await WORLD.act(tag, place, fails, Broken)


@app.step(lookup=look, key_honoured=True)
async def honoured(tag: str, place: str, fails: int) -> str:
    return await WORLD.act(tag, place, fails, Broken)


@app.step(lookup=shrug)
async def unsure(tag: str, place: str, fails: int) -> str:
    return await WORLD.act(tag, place, fails, Broken)


class Row(TypedDict):
    key: str
    tag: str
    place: str
    fails: int


@app.step(repeatable=True)
async def row_again(row: Row) -> str:
    return await WORLD.act(row["tag"], row["place"], row["fails"], Broken)


@app.step()
async def row_once(row: Row) -> str:
    return await WORLD.act(row["tag"], row["place"], row["fails"], Broken)


STEPS: dict[str, Any] = {
    step.name: step
    for step in (again, patient, once, careful, declared, doubtful, found, honoured, unsure, row_again, row_once)
}


async def _perform(ctx: Context, tag: str, place: str, op: dict[str, Any]) -> Any:
    match op["do"]:
        case "step":
            return await ctx.step(STEPS[op["kind"]], tag, place, op["fails"])
        case "sleep":
            await ctx.sleep(f"nap-{place}", op["seconds"])
            return ["slept"]
        case "wait":
            value = await ctx.wait_for(op["name"], int, within=op["within"])
            return ["timed out"] if isinstance(value, TimedOut) else ["signal", op["name"], value]
        case "first":
            first = await ctx.wait_for_first(*((name, int) for name in op["names"]), within=op["within"])
            assert isinstance(first, TimedOut | Arrived)
            return ["timed out"] if isinstance(first, TimedOut) else ["signal", first.name, first.value]
        case "child":
            workflow, given = WORKFLOWS[op["kind"]], {"tag": f"{tag}.{place}", "ops": op["ops"]}
            if op["waits"]:
                return ["child", await ctx.run_child(workflow, given, id=f"{tag}.{place}")]
            return ["started", await ctx.start_child(workflow, given, id=f"{tag}.{place}")]
        case "map":
            rows: list[Row] = [
                {"key": row["key"], "tag": tag, "place": f"{place}/{row['key']}", "fails": row["fails"]}
                for row in op["rows"]
            ]
            done = await ctx.map(STEPS[op["kind"]], rows, key="key", concurrency=1, tolerance=op["tolerance"])
            return ["map", list(done), sorted(done.failed)]
        case _:
            raise Broken(place)


async def _program(ctx: Context, given: dict[str, Any]) -> list[Any]:
    told: list[Any] = []
    for number, op in enumerate(given["ops"]):
        try:
            told.append(await _perform(ctx, given["tag"], str(number), op))
        except (StepFailed, Rejected, StepOutcomeUnknown, RunFailed, RunCancelled) as error:
            if not op.get("caught"):
                raise
            told.append(_shown(error))
    return told


def _shown(error: Exception) -> list[Any]:
    match error:
        case StepFailed():
            return ["failed", error.code]
        case Rejected():
            return ["rejected"]
        case StepOutcomeUnknown():
            return ["unknown", sorted(error.keys)]
        case RunFailed():
            return ["child failed", error.code]
        case _:
            return ["child cancelled"]


@app.workflow()
async def plain(ctx: Context, given: dict[str, Any]) -> list[Any]:
    return await _program(ctx, given)


@app.workflow(retry=Retry(3, on=(StepFailed, Rejected, Broken), delay=20, factor=1))
async def retrying(ctx: Context, given: dict[str, Any]) -> list[Any]:
    return await _program(ctx, given)


@app.workflow(on_lost="fail")
async def failing(ctx: Context, given: dict[str, Any]) -> list[Any]:
    return await _program(ctx, given)


@app.workflow(on_lost="ask")
async def asking(ctx: Context, given: dict[str, Any]) -> list[Any]:
    return await _program(ctx, given)


WORKFLOWS: dict[str, Workflow[dict[str, Any], list[Any]]] = {
    "plain": plain, "retrying": retrying, "failing": failing, "asking": asking,
}  # fmt: skip
