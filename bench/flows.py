"""The workflows that are measured."""

from __future__ import annotations

from fencepost import App, Context

app = App("bench")


@app.step(repeatable=True)
async def add(a: int, b: int) -> int:
    return a + b


@app.step()
async def add_marked(a: int, b: int) -> int:
    return a + b


@app.workflow()
async def noop(ctx: Context) -> int:
    return 1


@app.workflow()
async def ten(ctx: Context) -> int:
    total = 0
    for n in range(10):
        total = await ctx.step(add, total, n)
    return total


@app.workflow()
async def ten_marked(ctx: Context) -> int:
    total = 0
    for n in range(10):
        total = await ctx.step(add_marked, total, n)
    return total


@app.workflow()
async def waiter(ctx: Context) -> int:
    await ctx.wait_for("go", int)
    return 1
