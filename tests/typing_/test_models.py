"""Law 50.1: models of four kinds go through every door of a run and come out as themselves, on the first pass and on replay."""

from __future__ import annotations

from typing import Any

from fencepost import App, Arrived, Context, TimedOut
from fencepost.db import Database
from tests.legs import Driver
from tests.typing_.models import Line, Note, Receipt, Sheet

app = App("models")
seen: list[Any] = []


@app.step(repeatable=True)
async def lines_of(sheet: Sheet) -> list[Line]:
    seen.append(sheet)
    return [Line(id=f"{sheet.path} {n}", count=n, tags=["a"] * n) for n in range(sheet.limit or 0)]


@app.step(repeatable=True)
def receipt_of(line: Line) -> Receipt:
    seen.append(line)
    return Receipt(number=line.id, lines=[line])


@app.step()
async def note_of(receipt: Receipt, note: Note | None = None) -> Note:
    seen.append(receipt)
    return note or {"text": receipt.number}


@app.workflow()
async def kid(ctx: Context, receipt: Receipt) -> Sheet:
    seen.append(receipt)
    return Sheet(path=receipt.number)


@app.workflow()
async def flow(ctx: Context, sheet: Sheet) -> dict[str, Receipt | None]:
    lines = await ctx.step(lines_of, sheet)
    seen.extend(lines)
    receipts = await ctx.map(receipt_of, lines, key="id")
    seen.extend(receipts)
    note = await ctx.step(note_of, receipts[0])
    seen.append(note["text"])
    seen.append(await ctx.wait_for("sheet", Sheet))
    first = await ctx.wait_for_first(("line", Line), ("other", Line))
    assert isinstance(first, Arrived)
    seen.append(first.value)
    late = await ctx.wait_for("never", Receipt, within=0.001)
    assert isinstance(late, TimedOut)
    seen.append(await ctx.run_child(kid, receipts[1]))
    return {"first": receipts[0], "none": None}


async def test_models_come_out_as_themselves(db: Database) -> None:
    """50.1 The code is given the decoded stored value on the first pass too."""
    driver = Driver(db, app)
    run = await driver.start(flow, Sheet(path="p", limit=2))
    await driver.signal(run, "sheet", Sheet(path="signal"))
    await driver.signal(run, "line", Line(id="signal", tags=["x"]))
    await driver.run_losing(run, 1)
    line = Line(id="p 0")
    assert await driver.output(run) == {
        "first": {"number": "p 0", "lines": [{"id": "p 0", "count": 0, "tags": []}]},
        "none": None,
    }
    for one in (
        Sheet(path="p", limit=2), line, Line(id="p 1", count=1, tags=["a"]), Receipt("p 0", [line]), "p 0", Sheet(path="signal"),
        Line(id="signal", tags=["x"]), Sheet(path="p 1"),
    ):  # fmt: skip
        assert seen.count(one) >= 1, one
    assert {type(one) for one in seen} == {Sheet, Line, Receipt, str}


async def test_what_a_step_is_given_and_gives_is_a_copy(db: Database) -> None:
    """50.1 What the code does with a value changes nothing that is stored, and what a step keeps a hand on changes nothing in the code."""
    kept: list[list[int]] = []
    app = App("copies")

    @app.step(repeatable=True)
    async def give() -> list[int]:
        kept.append([1])
        return kept[-1]

    @app.workflow()
    async def flow(ctx: Context) -> list[list[int]]:
        first = await ctx.step(give)
        kept[-1].append(2)
        first.append(3)
        return [first, await ctx.step(give)]

    driver = Driver(db, app)
    run = await driver.start(flow)
    await driver.run_losing(run, 1)
    assert await driver.output(run) == [[1, 3], [1]]
