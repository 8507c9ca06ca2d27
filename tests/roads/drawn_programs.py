"""Random workflows as source text, for what is drawn of them and what they record.

Which way a program goes is decided by its input, a list of booleans used up one by one; after the last, every condition is false, so
every loop ends.
"""

from __future__ import annotations

import re
import textwrap
from dataclasses import dataclass
from typing import Any

from hypothesis import strategies as st

HEAD = """\
import asyncio
import contextlib

from fencepost import App, Context, StepFailed

app = App("drawn")


@app.step(repeatable=True)
async def one(n: int = 0) -> int:
    return n


@app.step(name="the-other", repeatable=True)
async def two(n: int = 0) -> int:
    return n


@app.step()
async def boom(n: int = 0) -> int:
    raise ValueError(n)


def flip(bits) -> bool:
    return next(bits, False)


async def retried(make):
    try:
        return await make()
    except StepFailed:
        return await make()


async def both(ctx, step, then):
    await ctx.step(step)
    if then:
        return await then()
    return await ctx.step(step)


async def down(ctx, bits, step):
    await ctx.step(step)
    if flip(bits):
        await down(ctx, bits, two)
        await ctx.step(one)


async def numbers(ctx, bits):
    yield await ctx.step(one)
    if flip(bits):
        yield await ctx.step(two)


@contextlib.asynccontextmanager
async def around(ctx):
    await ctx.step(one)
    yield
    await ctx.step(one)


@app.workflow()
async def drawn(ctx: Context, flips: list[bool]) -> None:
    bits = iter(flips)
"""


@dataclass(frozen=True)
class Part:
    """A piece of source: what it says, with `{0}`, `{1}` … where blocks of other pieces go."""

    text: str
    parts: tuple[tuple[Part, ...], ...] = ()

    def lines(self) -> list[str]:
        found: list[str] = []
        for line in textwrap.dedent(self.text).strip("\n").splitlines():
            if re.fullmatch(r" *\{\d\}", line) is None:
                found.append(line)
                continue
            before = line.partition("{")[0]
            inner = [deeper for part in self.parts[int(line.strip(" {}"))] for deeper in part.lines()]
            found += [before + deeper for deeper in inner or ["pass"]]
        return found


CALLS = (
    "ctx.step(one)", "ctx.step(two)", "ctx.step(one, 2)", "ctx.now()", "ctx.uuid()", "ctx.sleep('nap', 0)",
    "ctx.map(one, [1, 2], key=str)", "ctx.map(two, [], key=str)",
)  # fmt: skip

STRAIGHT = ("await {}", "value = await {}", "value = [await {}, 1]")

LEAVES = (
    "await ctx.step(boom)", "if flip(bits):\n    raise ValueError('out')", "if flip(bits):\n    return", "await both(ctx, one, None)",
    "await both(ctx, two, lambda: ctx.step(one))",
    "await retried(lambda: retried(lambda: ctx.step(boom)))", "await down(ctx, bits, one)", "await retried(lambda: ctx.step(boom))",
    "await asyncio.gather(ctx.step(one), both(ctx, one, None), ctx.step(one), ctx.step(two))",
    "await asyncio.gather(*[ctx.step(one, i) for i in range(2)], ctx.step(one))",
    "async with asyncio.TaskGroup() as group:\n    group.create_task(ctx.step(one))\n    group.create_task(ctx.step(two))",
    "async with asyncio.TaskGroup() as group:\n    group.create_task(both(ctx, one, None))\n    await ctx.step(one)",
    "task = asyncio.create_task(ctx.step(one))\nawait ctx.step(one)\nawait task",
    "later = ctx.step(two)\nawait ctx.step(two)\nawait later",
    "if flip(bits):\n    async def way():\n        await ctx.step(one)\nelse:\n    def way():\n        return ctx.step(two)\nawait way()",
    "value = await ctx.step(one) if flip(bits) else await ctx.step(two)", "value = flip(bits) and await ctx.step(one)",
    "value = [await ctx.step(one) for _ in range(2) if flip(bits)]", "await asyncio.wait_for(ctx.step(one), 60)",
    "await asyncio.shield(both(ctx, two, None))", "async for _ in numbers(ctx, bits):\n    await ctx.step(one)",
    "async with around(ctx):\n    await ctx.step(one)", "await ctx.sleep(f'nap {flip(bits)}', 0)",
    "for name in ('a', 'b'):\n    await ctx.sleep(name, 0)",
)  # fmt: skip

BLOCKS = (
    "if flip(bits):\n    {0}\nelse:\n    {1}",
    "if flip(bits):\n    {0}\nelif flip(bits):\n    {1}",
    "for i in range(2):\n    {0}\n    if flip(bits):\n        break\n    {1}\nelse:\n    {2}",
    "while flip(bits):\n    {0}\n    if flip(bits):\n        continue\n    {1}",
    "try:\n    {0}\n    await ctx.step(boom)\nexcept (StepFailed, ValueError):\n    {1}\nfinally:\n    {2}",
    "try:\n    {0}\nfinally:\n    {1}",
    "with contextlib.suppress(StepFailed, ValueError):\n    {0}\n    await ctx.step(boom)\n    {1}",
    "match (flip(bits), flip(bits)):\n    case (True, _):\n        {0}\n    case (_, True):\n        {1}",
    "async with asyncio.timeout(60):\n    {0}",
    "async def local():\n    {0}\n    if flip(bits):\n        return\n    {1}\nawait local()\nawait asyncio.gather(local(), local())",
)


def programs(*, straight: bool = False) -> st.SearchStrategy[Any]:
    """Programs of a few pieces, one inside the other; `straight`: calls only, one after the other."""
    calls = st.builds(lambda form, call: Part(form.format(call)), st.sampled_from(STRAIGHT), st.sampled_from(CALLS))
    if straight:
        return st.lists(calls, min_size=1, max_size=8).map(tuple)
    leaf = st.one_of(calls, st.sampled_from(LEAVES).map(Part))

    def inside(parts: st.SearchStrategy[Part]) -> st.SearchStrategy[Part]:
        several = st.lists(parts, min_size=0, max_size=2).map(tuple)
        return st.builds(Part, st.sampled_from(BLOCKS), st.tuples(several, several, several))

    return st.lists(st.recursive(leaf, inside, max_leaves=8), min_size=1, max_size=4).map(tuple)


def source_of(program: tuple[Part, ...]) -> str:
    """The module."""
    return HEAD + "".join(f"    {line}\n" for part in program for line in part.lines())
