"""Workflows to be drawn: a module made of a text, and one small workflow for each control structure."""

from __future__ import annotations

import importlib.util
import itertools
import sys
import textwrap
from pathlib import Path
from typing import Any

from fencepost.pictures import flow
from fencepost.pictures.model import Flow

HEAD = """\
import asyncio
import contextlib
import functools
from datetime import timedelta

from fencepost import App, Context, StepFailed, TimedOut

app = App("drawn")
REVIEW = "review"


@app.step(repeatable=True)
async def one(n: int = 0) -> int:
    return n


@app.step(name="the-other", repeatable=True)
async def two(n: int = 0) -> int:
    return n


@app.step()
async def boom(n: int = 0) -> int:
    raise ValueError(n)


@app.workflow()
async def kid(ctx: Context, n: int) -> int:
    return await ctx.step(one, n)


async def pair(ctx, step, name="nap"):
    await ctx.step(step, 1)
    await ctx.sleep(name, 0)


async def down(ctx, n, step):
    await ctx.step(step, n)
    if n:
        await down(ctx, n - 1, two)


def sent(ctx):
    return ctx.step(one, 1)


async def numbers(ctx):
    yield await ctx.step(one, 1)
    yield await ctx.step(one, 2)


async def twice(make):
    await make()
    return await make()


class Outside:
    async def work(self, ctx):
        await ctx.step(one)


outside = Outside()
"""

_numbers = itertools.count()


def module_of(source: str, place: Path) -> Any:
    """Import a text as a module of its own."""
    name = f"drawn_{next(_numbers)}"
    file = place / f"{name}.py"
    file.write_text(source)
    spec = importlib.util.spec_from_file_location(name, file)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[name] = module
    spec.loader.exec_module(module)
    return module


def workflow_of(body: str, place: Path) -> Any:
    """A workflow `drawn(ctx, n)` with this body."""
    source = f"{HEAD}\n\n@app.workflow()\nasync def drawn(ctx: Context, n: int):\n{textwrap.indent(textwrap.dedent(body), '    ')}"
    return module_of(source, place).drawn


def flow_of(body: str, place: Path, *, all_: bool = False) -> Flow:
    """What is drawn of it."""
    return flow.read(workflow_of(body, place), all_=all_)


CASES: dict[str, str] = {
    "if, elif, else": """
        if n == 1:
            await ctx.step(one)
        elif n == 2:
            await ctx.step(two)
        else:
            await ctx.step(one)
        await ctx.step(one)
    """,
    "an early return": """
        if n:
            await ctx.step(one)
            return 1
        await ctx.step(one)
    """,
    "ways that meet": """
        if n:
            await ctx.step(one)
        await ctx.step(one)
    """,
    "a for loop": """
        for i in range(n):
            if i == 3:
                break
            if i == 2:
                continue
            await ctx.step(one, i)
        else:
            await ctx.step(two)
        await ctx.step(one)
    """,
    "a while loop": """
        while await ctx.step(one):
            await ctx.now()
    """,
    "try, except, finally": """
        try:
            await ctx.step(boom)
        except StepFailed as error:
            await ctx.step(two)
        else:
            await ctx.step(one)
        finally:
            await ctx.step(two)
    """,
    "try, finally": """
        try:
            await ctx.step(one)
        finally:
            await ctx.step(two)
    """,
    "suppress": """
        with contextlib.suppress(StepFailed):
            await ctx.step(boom)
            await ctx.step(one)
        await ctx.step(one)
    """,
    "match": """
        match n:
            case 1:
                await ctx.step(one)
            case 2 | 3 if n > 2:
                await ctx.run_child(kid, n)
            case _:
                raise ValueError("no")
    """,
    "with": """
        async with asyncio.timeout(5):
            await ctx.wait_for(REVIEW, int, within=timedelta(days=3))
    """,
    "gather": """
        await asyncio.gather(ctx.step(one, 1), ctx.step(one, 2), *[ctx.step(two, i) for i in range(n)])
        await ctx.step(one, 3)
    """,
    "a task group": """
        async with asyncio.TaskGroup() as group:
            group.create_task(ctx.step(one, 1))
            task = group.create_task(pair(ctx, one))
            if n:
                group.create_task(ctx.step(one, 2))
        await ctx.step(one, 3)
    """,
    "tasks": """
        task = asyncio.create_task(ctx.step(one, 1))
        await ctx.step(one, 2)
        await task
    """,
    "comprehensions": """
        a = [await ctx.step(one, i) for i in range(n)]
        b = {k: await ctx.step(two, k) for k in a if await ctx.random() > 0.5}
    """,
    "conditions inside expressions": """
        a = await ctx.step(one) if n else await ctx.step(two)
        b = n > 3 and await ctx.uuid()
        c = await ctx.now() or await ctx.random()
    """,
    "functions inside": """
        async def local(k):
            await ctx.step(one, k)

        named = lambda k: ctx.step(two, k)
        await local(1)
        await local(2)
        await named(1)
    """,
    "a function that returns early": """
        async def local(k):
            if k:
                return await ctx.step(one, k)
            await ctx.now()

        await local(n)
        await ctx.step(one)
    """,
    "functions that are passed on": """
        async def local():
            await ctx.step(one)

        await twice(local)
        await twice(lambda: ctx.step(two))
        await asyncio.gather(*map(lambda k: ctx.step(boom, k), [1, 2]))
    """,
    "a function that is defined twice": """
        if n:
            async def way():
                await ctx.step(one)
        else:
            def way():
                return ctx.step(two)
        await way()
    """,
    "a function within itself": """
        await twice(lambda: twice(lambda: ctx.step(one)))
    """,
    "helpers": """
        await pair(ctx, one)
        await pair(ctx, two, name="rest")
        await pair(ctx, *[one])
        await sent(ctx)
    """,
    "recursion": """
        await down(ctx, n, one)
        await ctx.step(one)
    """,
    "a generator": """
        async for number in numbers(ctx):
            await ctx.step(one, number)
    """,
    "every word": """
        await ctx.map(one, [1, 2], key=str, concurrency=2)
        await ctx.sleep("nap", timedelta(seconds=1))
        await ctx.wait_for("go", int)
        await ctx.wait_for_first(("a", int), ("b", int), within=3)
        await ctx.signal("other-run", "go", 1)
        await ctx.run_child(kid, 1)
        await ctx.start_child(kid, 2, id="k")
        await ctx.now()
        await ctx.random()
        await ctx.uuid()
        if await ctx.changed("v2"):
            ctx.log("new")
        if await ctx.changed("v2"):
            ctx.progress(1, 2)
    """,
    "data plays": """
        await ctx.batch(one, [1, 2], size=2, key=str)
        await ctx.waterfall("mail", [one, two], n)
        await ctx.waterfall("mail", steps, n)
        await ctx.step(one)
    """,
    "names that are expressions": """
        await ctx.sleep(f"nap {n}", 0)
        await ctx.sleep("nap 1", 0)
        await ctx.sleep(f"nap {REVIEW}", 0)
        step = one if n else two
        await ctx.step(step)
        await ctx.step(one)
    """,
    "what is not followed": """
        await ctx.step(one)
        await outside.work(ctx)
        await ctx.step(one)
        run = functools.partial(ctx.step, two)
    """,
    "nothing": """
        return n + 1
    """,
}
