"""Correct uses of the author's face: both checkers accept every line, and infer what `assert_type` says."""

from __future__ import annotations

import asyncio
from datetime import datetime, timedelta
from typing import assert_type
from uuid import UUID

from fencepost import (
    Absent,
    Answer,
    App,
    Arrived,
    Context,
    Csv,
    Found,
    Handle,
    JsonLines,
    Mapped,
    MappedBatches,
    MappedTable,
    NoAnswer,
    Parquet,
    Plan,
    PlanStep,
    Retry,
    StepFailed,
    StepOutcomeUnknown,
    StepRetry,
    TimedOut,
    Unknown,
    Workflow,
    file,
    returned,
    stdout,
    step_key,
)
from tests.typing_.models import Line, Note, Receipt, Sheet

app = App("right", release="2026-11")


@app.step(
    repeatable=True,
    retry=Retry(4, on=(TimeoutError, OSError), delay=timedelta(seconds=1)),
    timeout=timedelta(minutes=1),
)
async def read(sheet: Sheet, *, skip: int = 0) -> list[Line]:
    return [Line(id=sheet.path, count=skip)]


@app.step(repeatable=True)
def count(line: Line) -> int:
    return line.count


async def find(key: str, lines: list[Line], note: Note | None = None) -> Found[Receipt] | Absent | Unknown:
    return Found(Receipt(number=key, lines=lines)) if note is None else Absent()


@app.step(lookup=find, errors=[ValueError], settle=10, key_honoured=True, timeout=5)
async def pay(lines: list[Line], note: Note | None = None) -> Receipt:
    return Receipt(number=step_key(), lines=lines)


@app.step(lookup=find)
def pay_in_thread(lines: list[Line], note: Note | None = None) -> Receipt:
    return Receipt(number="", lines=lines)


@app.step(unknown_on=[ConnectionError])
async def ring() -> None: ...


@app.step(repeatable=True, retry=Retry(3, after=lambda error: getattr(error, "seconds", None)))
async def first_note(line: Line) -> Note | None:
    return None


@app.step()
def second_note(line: Line) -> Note | None:
    return Note(text=line.id)


@app.step(repeatable=True)
async def load(lines: list[Line]) -> list[int]:
    return [line.count for line in lines]


@app.step(scope="org", epoch="2026-11", repeatable=True)
async def price(line: Line) -> int:
    return line.count


def name_of(lines: list[Line], note: Note | None = None) -> str:
    return lines[0].id


@app.step(scope="org", epoch=lambda: "2026-11", key=name_of, lookup=find)
async def pay_once(lines: list[Line], note: Note | None = None) -> Receipt:
    return Receipt(number=step_key(), lines=lines)


@app.workflow()
async def kid(ctx: Context, note: Note) -> Receipt:
    return await ctx.step(pay, [], note)


@app.workflow(retry=Retry(2), on_lost="ask")
async def nothing(ctx: Context) -> None:
    await ctx.step(ring)


@app.workflow()
async def flow(ctx: Context, sheet: Sheet) -> Receipt:
    lines = await ctx.step(read, sheet, skip=1)
    assert_type(lines, list[Line])
    mapped = await ctx.map(count, lines, key="id", concurrency=5, tolerance=1, unknown="return")
    assert_type(mapped, Mapped[int])
    assert_type(mapped.failed, dict[str, Exception])
    assert_type(mapped.unknown, tuple[str, ...])
    by_function = await ctx.map(count, (line for line in lines), key=lambda line: line.id)
    assert_type(by_function[0], int)
    table = await ctx.map(count, Csv("lines.csv", columns=["id"]), key="id", tolerance=0.02, out="counts.parquet")
    assert_type(table, MappedTable[int])
    assert_type([n async for n in table], list[int])
    assert_type([pair async for pair in table.items()], list[tuple[str, int]])
    assert_type([pair async for pair in table.failures()], list[tuple[str, Exception]])
    assert_type((table.completed, table.total, table.unknown), tuple[int, int, tuple[str, ...]])
    await ctx.map(count, JsonLines("lines.jsonl"), key=lambda row: row["id"], out=Parquet("counts.parquet"))
    assert_type(await ctx.batch(load, lines, size=100, key="id", tolerance=1), Mapped[int])
    batches = await ctx.batch(load, Csv("lines.csv"), size=100, key="id", unknown="return")
    assert_type(batches, MappedBatches[int])
    assert_type([n async for n in batches], list[int])
    assert_type([pair async for pair in batches.items()], list[tuple[str, list[int]]])
    found = await ctx.waterfall("note", [first_note, second_note], lines[0])
    assert_type(found, Answer[Note] | NoAnswer)
    if isinstance(found, NoAnswer):
        raise StepFailed(found.said[0].provider)
    assert_type((found.value, found.provider), tuple[Note, str])
    assert_type(await ctx.waterfall("sum", [count], line=lines[0]), Answer[int] | NoAnswer)
    judged = await ctx.waterfall("note", [first_note, second_note], lines[0], accept=lambda note: note is not None)
    assert_type(judged, Answer[Note | None] | NoAnswer)
    await ctx.sleep("nap", timedelta(seconds=2))
    await ctx.sleep("nap", 2.5)
    always = await ctx.wait_for("review", Note)
    assert_type(always, Note)
    perhaps = await ctx.wait_for("review", Note, within=timedelta(days=3))
    assert_type(perhaps, Note | TimedOut)
    if isinstance(perhaps, TimedOut):
        raise StepFailed("late")
    first = await ctx.wait_for_first(("yes", Note), ("no", Note), within=60)
    assert_type(first, Arrived[Note] | TimedOut)
    try:
        receipt = await ctx.step(pay, lines, {"text": "ok"})
    except StepOutcomeUnknown as error:
        assert_type(error.keys, tuple[str, ...])
        raise
    assert_type(receipt, Receipt)
    assert_type(await ctx.step(pay_in_thread, lines), Receipt)
    assert_type(await ctx.step(pay_once, lines), Receipt)
    assert_type(await ctx.waterfall("price", [price, count], lines[0]), Answer[int] | NoAnswer)
    both = await asyncio.gather(ctx.step(count, lines[0]), ctx.step(pay, lines))
    assert_type(both[1], Receipt)
    async with asyncio.TaskGroup() as group:
        task = group.create_task(ctx.step(count, lines[0]))
    assert_type(task.result(), int)
    assert_type(await ctx.run_child(kid, Note(text="hello")), Receipt)
    assert_type(await ctx.run_child(kid, Note(text="hello"), id="kid"), Receipt)
    await ctx.run_child(nothing)
    assert_type(await ctx.start_child(nothing, id="later"), str)
    await ctx.signal("run", "go", {"text": "now"})
    assert_type(await ctx.now(), datetime)
    assert_type(await ctx.random(), float)
    assert_type(await ctx.uuid(), UUID)
    assert_type(await ctx.changed("tag"), bool)
    ctx.progress(1, 2, "half")
    ctx.log("done", lines=len(lines))
    return receipt


async def outside() -> None:
    assert_type(await read(Sheet(path="x"), skip=1), list[Line])
    assert_type(count(Line("a")), int)
    assert_type(flow, Workflow[Sheet, Receipt])
    handle = await app.start(flow, Sheet(path="x"), id="one", org="acme", priority=3, delay=1.5)
    assert_type(handle, Handle[Receipt])
    assert_type(await handle.result(), Receipt)
    await app.start(nothing)


def summary(text: str) -> str:
    return text


def plans() -> None:
    plan = Plan("notes", max_concurrency=2)
    log = plan.command("log", ["git", "log"], outputs={"log": stdout()}, env={"LANG": "C"}, cwd="/tmp", stdin="")
    assert_type(log, PlanStep)
    notes = plan.python(
        "notes", summary, needs=[log], inputs={"log": log.output("log").content()}, outputs={"result": returned(), "notes": file("notes.md")},
        retry=StepRetry(max_attempts=3, backoff="exponential", initial_delay_ms=500, on=("failure", "timeout")), timeout=timedelta(minutes=2),
        on_lost="replay",
    )  # fmt: skip
    plan.python("more", "module:function", input={"n": [1]})
    plan.workflow(
        "flow",
        flow,
        needs=[notes, log.optional()],
        inputs={"n": notes.output().reference(required=False)},
        input={"path": "x"},
    )
    plan.workflow("other", "registered", needs=(log,))
    assert_type([fault.line for fault in plan.validate()], list[int | None])
    assert_type(plan.definition().digest, str)
