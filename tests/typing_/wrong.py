"""Typical mistakes. Each must be an error of both checkers, on its line, marked `# wrong`."""

from __future__ import annotations

# ruff: noqa: B018, F841
from fencepost import (
    Absent,
    App,
    Context,
    Csv,
    Found,
    Mapped,
    MappedTable,
    Plan,
    Retry,
    StepRetry,
    Unknown,
    file,
    stdout,
)
from tests.typing_.models import Line, Receipt, Sheet

app = App("wrong")


@app.step(repeatable=True)
async def read(sheet: Sheet, *, skip: int = 0) -> list[Line]:
    return []


@app.step(repeatable=True)
def count(line: Line) -> int:
    return line.count


@app.step(repeatable=True)
def name(line: Line) -> str:
    return line.id


@app.step(repeatable=True)
async def load(lines: list[Line]) -> list[int]:
    return []


async def find_other(key: str, lines: list[Sheet]) -> Found[Receipt] | Absent | Unknown:
    return Absent()


async def find_text(key: str, lines: list[Line]) -> Found[str] | Absent | Unknown:
    return Found(key)


async def find_nothing(key: str, lines: list[Line]) -> str:
    return key


@app.step(lookup=find_other)  # wrong
async def pay(lines: list[Line]) -> Receipt:
    return Receipt(number="", lines=lines)


@app.step(lookup=find_text)  # wrong
async def pay_text(lines: list[Line]) -> Receipt:
    return Receipt(number="", lines=lines)


@app.step(lookup=find_nothing)  # wrong
async def pay_nothing(lines: list[Line]) -> Receipt:
    return Receipt(number="", lines=lines)


@app.step(lookup=find_text)  # wrong
def pay_in_thread(lines: list[Line]) -> Receipt:
    return Receipt(number="", lines=lines)


@app.step(retry=4)  # wrong
async def retried() -> None: ...


@app.step(timeout="5s")  # wrong
async def timed() -> None: ...


@app.step(errors=["ValueError"])  # wrong
async def named() -> None: ...


def name_of(sheet: Sheet) -> str:
    return sheet.path


async def find_receipt(key: str, lines: list[Line]) -> Found[Receipt] | Absent | Unknown:
    return Absent()


@app.step(scope="team", epoch="2026-11")  # wrong
async def scoped() -> None: ...


@app.step(scope="org", epoch=3)  # wrong
async def dated() -> None: ...


@app.step(scope="org", epoch="2026-11", key=name_of, lookup=find_receipt)  # wrong
async def pay_once(lines: list[Line]) -> Receipt:
    return Receipt(number="", lines=lines)


@app.workflow(on_lost="again")  # wrong
async def lost(ctx: Context) -> None: ...


@app.workflow()  # wrong
async def three(ctx: Context, a: int, b: int) -> None: ...


@app.workflow()  # wrong
def not_async(ctx: Context, a: int) -> None: ...


@app.workflow()
async def kid(ctx: Context, line: Line) -> Receipt:
    return Receipt(number="", lines=[line])


@app.workflow()
async def flow(ctx: Context, sheet: Sheet) -> Receipt:
    await ctx.step(read, "path")  # wrong
    await ctx.step(read)  # wrong
    await ctx.step(read, sheet, skip="no")  # wrong
    await ctx.step(read, sheet, jump=1)  # wrong
    await ctx.step(read(sheet))  # wrong
    await ctx.step(count(Line("a")))  # wrong
    await count(Line("a"))  # wrong
    text: str = await ctx.step(count, Line("a"))  # wrong
    lines = ctx.step(read, sheet)
    lines.append(Line("a"))  # wrong
    await ctx.map(count, [sheet], key="path")  # wrong
    await ctx.map(count, [Line("a")])  # wrong
    await ctx.map(count, [Line("a")], key=lambda line: line.nothing)  # wrong
    numbers: list[str] = await ctx.map(count, [Line("a")], key="id")  # wrong
    await ctx.map(count, [Line("a")], key="id", unknown="ignore")  # wrong
    await ctx.map(count, Csv("lines.csv"))  # wrong
    await ctx.map(count, Csv("lines.csv"), key="id", tolerance="2%")  # wrong
    listed: Mapped[int] = await ctx.map(count, Csv("lines.csv"), key="id")  # wrong
    texts: MappedTable[str] = await ctx.map(count, Csv("lines.csv"), key="id")  # wrong
    await ctx.batch(count, [Line("a")], size=2, key="id")  # wrong
    await ctx.batch(load, [sheet], size=2, key="path")  # wrong
    await ctx.batch(load, [Line("a")], key="id")  # wrong
    await ctx.batch(load, Csv("lines.csv"), key="id")  # wrong
    flat: MappedTable[int] = await ctx.batch(load, Csv("lines.csv"), size=2, key="id")  # wrong
    await ctx.waterfall("x", [count, name], Line("a"))  # wrong
    await ctx.waterfall("x", [count, read], Line("a"))  # wrong
    await ctx.waterfall("x", [count])  # wrong
    await ctx.waterfall("x", [count], sheet)  # wrong
    await ctx.waterfall("x", [count], Line("a"), accept=lambda n: n.nothing)  # wrong
    answer = await ctx.waterfall("x", [count], Line("a"))
    answer.value  # wrong
    await ctx.sleep(2)  # wrong
    await ctx.sleep("nap", "2s")  # wrong
    note: Line = await ctx.wait_for("note", Line, within=3)  # wrong
    await ctx.wait_for(Line)  # wrong
    first = await ctx.wait_for_first(("a", Line), within=3)
    first.value.count  # wrong
    await ctx.run_child(kid)  # wrong
    await ctx.run_child(kid, sheet)  # wrong
    await ctx.run_child(count, Line("a"))  # wrong
    done: Line = await ctx.run_child(kid, Line("a"))  # wrong
    await ctx.signal("run", 3)  # wrong
    return "a receipt"  # wrong


async def outside() -> None:
    await app.start(flow, "sheet")  # wrong
    await app.start(flow)  # wrong
    handle = await app.start(flow, Sheet(path=""))
    text: str = await handle.result()  # wrong
    Retry()  # wrong
    Retry(2, on=TimeoutError)  # wrong


def plans() -> None:
    plan = Plan("wrong")
    log = plan.command("log", ["git", "log"], outputs={"log": stdout()})
    plan.command("a", ["x"], needs=["log"])  # wrong
    plan.command("b", ["x"], needs=log)  # wrong
    plan.command("c", ["x"], needs=[log.output("log")])  # wrong
    plan.command("d", ["x"], inputs={"log": log})  # wrong
    plan.command("e", ["x"], inputs={"log": log.output("log")})  # wrong
    plan.command("f", ["x"], inputs={"log": "log.log"})  # wrong
    plan.command("g", ["x"], outputs={"notes": "notes.md"})  # wrong
    plan.command("h", ["x"], timeout="2m")  # wrong
    plan.command("i", ["x"], retry=Retry(3))  # wrong
    plan.command("j", ["x"], retry=StepRetry(backoff="expo"))  # wrong
    plan.command("k", ["x"], retry=StepRetry(on=("lost",)))  # wrong
    plan.command("l", ["x"], on_lost="retry")  # wrong
    plan.command("m", ["x", 3])  # wrong
    plan.python("n", 3)  # wrong
    plan.workflow("o", read)  # wrong
    plan.workflow("p", flow, timeout=3)  # wrong
    file()  # wrong
