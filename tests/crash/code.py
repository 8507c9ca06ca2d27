"""The workflows of the scenarios. Every step notes in the log of effects when it begins and when its effect has happened."""

from __future__ import annotations

import asyncio
import contextlib
import os
import signal
from collections.abc import Awaitable, Callable
from typing import Any

from fencepost import Answer, App, Context, Retry
from fencepost.authoring import Absent, Found, Step, TimedOut, Unknown, step_key
from tests.crash import effects
from tests.crash.boundaries import spot

app = App("crash", release="dev")
changed = App("crash-changed", release="dev")  # the same workflow in other code


class Flaky(Exception):
    """What a provider says that may be asked again."""


async def _act(name: str, run: str) -> str:
    effects.note("begin", run, name)
    spot("code.begin", name)
    effects.note("effect", run, name, step_key())
    spot("code.effect", name)
    return name


def body(name: str) -> Callable[[str], Awaitable[str]]:
    async def act(run: str) -> str:
        return await _act(name, run)

    return act


def once(name: str, **options: Any) -> Step[[str], str]:
    """A step that may begin once."""
    return app.step(name=name, **options)(body(name))  # type: ignore[no-any-return]  # the decorator's own type is wider


def again(name: str, **options: Any) -> Step[[str], str]:
    """A step that may run twice."""
    return once(name, repeatable=True, **options)


async def ledger_says(key: str, run: str) -> Found[str] | Absent:
    """The provider's own book: which keys it has seen."""
    for effect in effects.read(run=run):
        if effect.word == "effect" and effect.key == key:
            return Found(effect.step)
    return Absent()


async def nobody_knows(key: str, run: str) -> Unknown:
    return Unknown()


a1, b1, c1 = once("a"), once("b"), once("c")
ra, rb, rc = again("ra"), again("rb"), again("rc")
paid = once("paid", lookup=ledger_says, settle=0.05)
honoured = once("honoured", lookup=ledger_says, key_honoured=True)
dark = once("dark", lookup=nobody_knows)


shared_a, shared_b = once("sa", scope="org", epoch="one"), again("sb", scope="org", epoch="one")


@app.step(name="breaks")
async def breaks(run: str) -> str:
    effects.note("begin", run, "breaks")
    spot("code.begin", "breaks")
    raise ValueError("not today")


@app.step(name="stumbles", repeatable=True, retry=Retry(3, on=(Flaky,), delay=0.01))
async def stumbles(run: str) -> str:
    """Fails twice, then does it."""
    return await _stumble("stumbles", run)


@app.step(name="trips", repeatable=True, errors=[Flaky])
async def trips(run: str) -> str:
    """Fails twice: the workflow is tried again."""
    return await _stumble("trips", run)


async def _stumble(name: str, run: str) -> str:
    failed = sum(e.word == "failed" and e.step == name for e in effects.read(run=run))
    if failed < 2:
        effects.note("begin", run, name)
        spot("code.begin", name)
        effects.note("failed", run, name)
        raise Flaky(f"{failed} failures before")
    return await _act(name, run)


@app.step(name="hold", repeatable=True)
async def hold(run: str) -> str:
    """Runs until it is cancelled."""
    effects.note("begin", run, "hold")
    spot("code.begin", "hold")
    await asyncio.get_running_loop().create_future()
    raise AssertionError("nobody completes this future")


@app.step(name="slow", repeatable=True)
async def slow(run: str) -> str:
    effects.note("begin", run, "slow")
    spot("code.begin", "slow")
    with contextlib.suppress(TimeoutError):
        async with asyncio.timeout(0.15):
            await asyncio.get_running_loop().create_future()
    effects.note("effect", run, "slow")
    return "slow"


@app.step(name="poison", repeatable=True)
async def poison(run: str) -> str:
    """Takes its process along."""
    effects.note("begin", run, "poison")
    os.kill(os.getpid(), signal.SIGKILL)
    return "never"


@app.step(name="row")
async def row(item: dict[str, str]) -> str:
    return await _act(f"row{item['key']}", item["run"])


@app.step(name="poisoned_row")
async def poisoned_row(item: dict[str, str]) -> str:
    if item["key"] == "2":
        effects.note("begin", item["run"], "row2")
        os.kill(os.getpid(), signal.SIGKILL)
    return await _act(f"row{item['key']}", item["run"])


# ── workflows ────────────────────────────────────────────────────────────────────────────────────────────────────────────


@app.workflow()
async def straight(ctx: Context) -> list[str]:
    return [await ctx.step(a1, ctx.run_id), await ctx.step(rb, ctx.run_id)]


@app.workflow()
async def falling(ctx: Context) -> list[str]:
    """The first is asked and passed over, the second is the answer, the third is never asked."""
    found = await ctx.waterfall("answer", [a1, rb, c1], ctx.run_id, accept=lambda value: value == "rb")
    assert isinstance(found, Answer)
    return [found.provider, await ctx.step(ra, ctx.run_id)]


@app.workflow()
async def sharing(ctx: Context) -> list[str]:
    return [
        await ctx.step(shared_a, ctx.run_id),
        await ctx.step(shared_b, ctx.run_id),
        await ctx.step(shared_a, ctx.run_id),
    ]


@app.workflow()
async def failing(ctx: Context) -> list[str]:
    return [await ctx.step(ra, ctx.run_id), await ctx.step(breaks, ctx.run_id)]


@app.workflow()
async def stumbling(ctx: Context) -> list[str]:
    return [await ctx.step(stumbles, ctx.run_id), await ctx.step(a1, ctx.run_id)]


@app.workflow(retry=Retry(8, on=(Flaky,), delay=0.02))
async def tripping(ctx: Context) -> list[str]:
    return [await ctx.step(a1, ctx.run_id), await ctx.step(trips, ctx.run_id), await ctx.step(b1, ctx.run_id)]


@app.workflow(on_lost="ask")
async def careful(ctx: Context) -> list[str]:
    return [await ctx.step(a1, ctx.run_id), await ctx.step(rb, ctx.run_id)]


@app.workflow(on_lost="fail")
async def brittle(ctx: Context) -> list[str]:
    return [await ctx.step(ra, ctx.run_id), await ctx.step(rb, ctx.run_id)]


@app.workflow()
async def repeatable(ctx: Context) -> list[str]:
    return [await ctx.step(ra, ctx.run_id), await ctx.step(rb, ctx.run_id)]


@app.workflow()
async def sleepy(ctx: Context) -> list[str]:
    first = await ctx.step(ra, ctx.run_id)
    await ctx.sleep("nap", 0.05)
    return [first, await ctx.step(b1, ctx.run_id)]


@app.workflow()
async def waiting(ctx: Context) -> list[Any]:
    got = await ctx.wait_for("go", int)
    return [got, await ctx.step(a1, ctx.run_id)]


@app.workflow()
async def racing(ctx: Context) -> list[Any]:
    first = await ctx.wait_for("go", int, within=0.06)
    if not isinstance(first, TimedOut):
        return ["in time", first]
    return ["later", await ctx.wait_for("go", int)]


@app.workflow()
async def either(ctx: Context) -> list[Any]:
    first = await ctx.wait_for_first(("left", int), ("right", int))
    assert not isinstance(first, TimedOut)
    other = "right" if first.name == "left" else "left"
    return sorted([first.value, await ctx.wait_for(other, int)])


@app.workflow()
async def five(ctx: Context) -> list[str]:
    return [await ctx.step(step, ctx.run_id) for step in (a1, ra, b1, rb, c1)]


twenty_steps = [again(f"t{n:02}") for n in range(20)]


@app.workflow()
async def twenty(ctx: Context) -> list[str]:
    return [await ctx.step(step, ctx.run_id) for step in twenty_steps]


@app.workflow()
async def rows(ctx: Context) -> list[str]:
    done = await ctx.map(row, [{"key": str(n), "run": ctx.run_id} for n in range(4)], key="key", concurrency=2)
    return [*done, await ctx.step(ra, ctx.run_id)]


@app.workflow(name="changing")
async def changing(ctx: Context) -> list[Any]:
    return [await ctx.step(a1, ctx.run_id), await ctx.wait_for("go", int), await ctx.step(rb, ctx.run_id)]


@changed.workflow(name="changing")
async def changing_later(ctx: Context) -> list[Any]:
    return [await ctx.step(rc, ctx.run_id), await ctx.wait_for("go", int)]


changing_later.__dict__["digest"] = "0" * 32  # both stand in one file, whose text would name them alike


@app.workflow()
async def holding(ctx: Context) -> str:
    return await ctx.step(hold, ctx.run_id)


@app.workflow(retry=Retry(3, on=(Flaky,), delay=3600, most=3600))
async def backing_off(ctx: Context) -> str:
    raise Flaky("in an hour")


@app.workflow()
async def leaf(ctx: Context) -> int:
    return await ctx.wait_for("go", int)


@app.workflow()
async def middle(ctx: Context) -> int:
    return await ctx.run_child(leaf)


@app.workflow()
async def root(ctx: Context) -> int:
    return await ctx.run_child(middle)


@app.workflow()
async def kid(ctx: Context) -> str:
    return await ctx.step(a1, ctx.run_id)


@app.workflow()
async def parent(ctx: Context) -> list[str]:
    return [await ctx.run_child(kid), await ctx.step(rb, ctx.run_id)]


@app.workflow()
async def spawning(ctx: Context) -> str:
    return await ctx.start_child(leaf)


@app.workflow()
async def paying(ctx: Context) -> list[str]:
    return [await ctx.step(paid, ctx.run_id), await ctx.step(ra, ctx.run_id)]


@app.workflow()
async def honouring(ctx: Context) -> list[str]:
    return [await ctx.step(honoured, ctx.run_id), await ctx.step(ra, ctx.run_id)]


@app.workflow()
async def darkly(ctx: Context) -> list[str]:
    return [await ctx.step(dark, ctx.run_id), await ctx.step(ra, ctx.run_id)]


@app.workflow()
async def draining(ctx: Context) -> list[str]:
    return [await ctx.step(slow, ctx.run_id), await ctx.step(ra, ctx.run_id)]


@app.workflow()
async def poisoned(ctx: Context) -> str:
    return await ctx.step(poison, ctx.run_id)


@app.workflow()
async def poisoned_rows(ctx: Context) -> list[str]:
    done = await ctx.map(poisoned_row, [{"key": str(n), "run": ctx.run_id} for n in range(4)], key="key", concurrency=1)
    return [*done]
