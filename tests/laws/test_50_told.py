"""Laws 50.2, 85.5: code that was told Unknown, what it did next, and what resolves it.

Effects are counted in a file outside the database.
"""

from __future__ import annotations

import asyncio
import contextlib
import itertools
from typing import Any

import pytest

from fencepost import App, Context, StepOutcomeUnknown
from tests.legs import Driver, Effects, until

pytestmark = pytest.mark.usefixtures("lawful")


async def test_code_that_catches_an_unknown_and_goes_on_replays_the_same_also_after_it_was_resolved(
    driver: Driver, app: App, effects: Effects
) -> None:
    """50.2, 50.4 What it did next stands in the history; the operator's word is for the record, and for a later asking."""
    seen: list[str] = []

    @app.step()
    async def pay() -> str:
        effects.happen("pay")
        return "receipt"

    @app.step(repeatable=True)
    async def note(what: str) -> str:
        return what

    @app.workflow()
    async def flow(ctx: Context) -> str:
        try:
            got = await ctx.step(pay)
        except StepOutcomeUnknown as error:
            got = f"nobody knows {error.step}#{error.ordinal}"
        seen.append(got)
        await ctx.step(note, got)
        await ctx.wait_for("go", int)
        return await ctx.step(note, f"{got}, still")

    run = await driver.start(flow)
    await driver.lose_at("step.end")
    await driver.lose_at("statement.executed", nth=2, when=lambda facts: facts["door"] == "keep_steps")
    assert await driver.run_one_leg() == "parked"
    await driver.resolve(run, "pay", "completed", "by hand")
    await driver.signal(run, "go", 1)
    await driver.run_losing(run, 1)
    assert await driver.output(run) == "nobody knows pay#1, still"
    assert set(seen) == {"nobody knows pay#1"}
    assert effects.count("pay") == 1


@pytest.mark.parametrize("order", list(itertools.permutations(("left", "right"))))
async def test_two_unknown_steps_of_one_gather_are_resolved_one_after_the_other(
    driver: Driver, app: App, effects: Effects, order: tuple[str, str]
) -> None:
    """50.2, 85.5 The first is told, the second is still unknown; the run goes on when both are resolved."""

    @app.step()
    async def pay(what: str) -> str:
        effects.happen(what)
        return what

    @app.workflow()
    async def flow(ctx: Context) -> list[str]:
        return list(await asyncio.gather(ctx.step(pay, "left"), ctx.step(pay, "right")))

    run = await driver.start(flow)
    await driver.lose_at("step.end", nth=2, stand=1)
    assert await driver.run_one_leg() == "unknown"
    states = await driver.states(run)
    assert [states["step pay#1"], states["step pay#2"]] == ["unknown", "unknown"]
    for what in order:
        assert (await driver.show(run))["status"] == "unknown"
        await driver.resolve(run, "pay", "completed", f"{what} by hand", ordinal=1 + (what == "right"))
    assert await driver.run_one_leg() == "completed"
    assert await driver.output(run) == ["left by hand", "right by hand"]
    assert sorted(effects.all()) == ["left", "right"]


@pytest.mark.parametrize("exceptions", [False, True], ids=["gather", "gather(return_exceptions)"])
@pytest.mark.parametrize("verdict", ["completed", "failed", "again"])
async def test_an_unknown_beside_steps_that_went_on_is_resolved_all_the_same(
    driver: Driver, app: App, effects: Effects, verdict: str, exceptions: bool
) -> None:
    """50.2, 85.5 Results that a neighbour recorded after the code was told are no proof that the code went on from there."""

    @app.step()
    async def pay() -> str:
        effects.happen("pay")
        return f"receipt {effects.count('pay')}"

    @app.step(repeatable=True)
    async def note(n: int) -> int:
        return n

    @app.workflow()
    async def flow(ctx: Context) -> list[Any]:
        async def beside() -> int:
            for n in range(4):
                await ctx.step(note, n)
            return 4

        found = await asyncio.gather(ctx.step(pay), beside(), return_exceptions=exceptions)
        for one in found:
            if isinstance(one, BaseException):
                raise one
        return list(found)

    run = await driver.start(flow)
    await driver.lose_at("step.end", when=lambda facts: facts["step"] == "pay")
    assert await driver.run_one_leg() == "unknown"
    await driver.resolve(run, "pay", verdict, "by hand")
    doc = await driver.run_until(run, "completed", "failed", "unknown")
    if verdict == "failed":
        assert doc["status"] == "failed"
        assert (await driver.error(run))["message"].endswith("by hand (STEP_FAILED)")
    else:
        assert await driver.output(run) == ["by hand" if verdict == "completed" else "receipt 2", 4]


async def test_a_result_that_came_after_the_loss_is_evidence_and_is_accepted_by_one_word(
    driver: Driver, app: App, effects: Effects
) -> None:
    """50.2, B132 The mark names its fence: the dead fence's commit is kept as evidence; the record does not change by it."""
    go = asyncio.Event()

    @app.step()
    async def pay() -> str:
        effects.happen("pay")
        while not go.is_set():
            with contextlib.suppress(asyncio.CancelledError):
                await go.wait()
        return "receipt"

    @app.workflow()
    async def flow(ctx: Context) -> str:
        return await ctx.step(pay)

    run = await driver.start(flow)
    leg = await driver.one_leg()
    task = asyncio.create_task(leg.run())
    await until(leg, lambda _: effects.count("pay") == 1)
    await driver.bury(leg)
    leg.abort("lost")
    await until(leg, lambda one: any(branch.cancelling() for branch in one.engine.branches))  # type: ignore[union-attr]  # it runs
    go.set()
    assert await task == "stale"
    assert await driver.run_one_leg() == "unknown"
    assert effects.count("pay") == 1
    (late,) = (await driver.show(run))["late_results"]
    assert (late["name"], late["ok"], late["value"]) == ("pay", True, '"receipt"')
    await driver.resolve(run, "pay", "late")
    assert await driver.run_one_leg() == "completed"
    assert await driver.output(run) == "receipt"
    assert effects.count("pay") == 1


async def test_of_two_unknown_steps_that_are_to_be_run_again_both_are(
    driver: Driver, app: App, effects: Effects
) -> None:
    """50.4, 85.5 The code caught the first and went on to the second, which is void: nothing binds it to what it saw of the first."""

    @app.step()
    async def pay(what: str) -> str:
        effects.happen(what)
        return what

    @app.workflow()
    async def flow(ctx: Context) -> list[str]:
        try:
            first = await ctx.step(pay, "first")
        except StepOutcomeUnknown:
            first = "unknown"
        return [first, await ctx.step(pay, "second")]

    run = await driver.start(flow)
    await driver.lose_at("step.end")
    await driver.lose_at("step.end")
    assert await driver.run_one_leg() == "unknown"
    await driver.resolve(run, "pay", "again", ordinal=1)
    await driver.resolve(run, "pay", "again", ordinal=2)
    assert await driver.run_one_leg() == "completed"
    assert await driver.output(run) == ["first", "second"]
    assert effects.all() == ["first", "second"] * 2
