"""Chapter 60: signals that race, with a clock and with each other, and children that fail."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from fencepost import App, Arrived, Context, RunCancelled, TimedOut
from fencepost.testing import Clock
from tests.legs import Driver

pytestmark = pytest.mark.usefixtures("lawful")


# Races of signals


async def test_a_time_out_stays_one_on_replay_and_the_late_signal_is_the_next_waits(
    driver: Driver, app: App, clock: Clock
) -> None:
    """60.5, B45"""
    seen: list[Any] = []

    @app.workflow()
    async def flow(ctx: Context) -> list[Any]:
        first = await ctx.wait_for("s", int, within=1)
        seen.append(isinstance(first, TimedOut))
        second = await ctx.wait_for("s", int)
        return [isinstance(first, TimedOut), second]

    await clock.advance(0)
    run = await driver.start(flow)
    assert await driver.run_one_leg() == "parked"
    await clock.advance(2)
    await driver.beat()
    await driver.signal(run, "s", 5)
    await driver.lose_at("statement.executed", when=lambda facts: facts["door"] == "park_attempts")
    assert await driver.run_one_leg() == "completed"
    assert seen == [True, True]
    assert await driver.output(run) == [True, 5]


@pytest.mark.parametrize("before", [True, False], ids=["both were there", "one after the other"])
async def test_the_first_signal_wins_and_the_losers_stay_for_later_waits(
    driver: Driver, app: App, before: bool
) -> None:
    """60.5 Also when both were there at once: what was delivered to a wait that lost is the next wait's, now and on replay."""

    @app.step(repeatable=True)
    async def note(n: int) -> int:
        return n

    @app.workflow()
    async def flow(ctx: Context) -> list[Any]:
        first = await ctx.wait_for_first(("p", int), ("q", int))
        assert isinstance(first, Arrived)
        await ctx.step(note, first.value)
        rest = [await ctx.wait_for("q" if first.name == "p" else "p", int), await ctx.wait_for("q", int)]
        return [first.name, first.value, *rest]

    run = await driver.start(flow)
    if not before:
        assert await driver.run_one_leg() == "parked"
    for name, value in (("q", 1), ("p", 2), ("q", 3)):
        await driver.signal(run, name, value)
    await driver.run_losing(run, 1)
    # Settled in the order in which the waits were armed, where both are there.
    assert await driver.output(run) in (["p", 2, 1, 3], ["q", 1, 2, 3])


async def test_nothing_comes_first_when_nothing_comes(driver: Driver, app: App, clock: Clock) -> None:
    """60.5 The waits are closed with the time-out, and a signal that comes then is a later wait's."""

    @app.workflow()
    async def flow(ctx: Context) -> list[Any]:
        first = await ctx.wait_for_first(("p", int), ("q", int), within=1)
        return [isinstance(first, TimedOut), await ctx.wait_for("p", int)]

    await clock.advance(0)
    run = await driver.start(flow)
    assert await driver.run_one_leg() == "parked"
    await clock.advance(1)
    await driver.beat()
    assert await driver.run_one_leg() == "parked"
    await driver.signal(run, "p", 9)
    assert await driver.run_one_leg() == "completed"
    assert await driver.output(run) == [True, 9]


async def test_a_wait_cancelled_by_the_code_takes_no_signal_away(driver: Driver, app: App) -> None:
    """60.5 Lost before its cancellation was told, the next leg tells it: the armed wait of a dead branch is no grave for signals."""

    @app.step(repeatable=True)
    async def work() -> int:
        return 1

    @app.workflow()
    async def flow(ctx: Context) -> int:
        loser = asyncio.create_task(ctx.wait_for("s", int))
        await ctx.step(work)
        await ctx.sleep("nap", 0.001)
        loser.cancel()
        await asyncio.wait({loser})
        await ctx.step(work)
        return await ctx.wait_for("s", int)

    run = await driver.start(flow)
    await driver.run_losing(run, 1, "parked")
    while (await driver.states(run)).get("signal s#2") != "armed":
        await driver.run_losing(run, 1, "queued")
        await driver.run_losing(run, 1, "parked")
    await driver.signal(run, "s", 4)
    await driver.run_until(run)
    assert await driver.output(run) == 4
    assert (await driver.states(run))["signal s#1"] == "cancelled"


# Children


async def test_a_child_that_fails_is_cancelled_or_is_unknown(driver: Driver, app: App) -> None:
    """60.10 RunFailed and RunCancelled; a child that is unknown keeps its parent parked until somebody resolves it."""
    said: list[str] = []

    @app.step()
    async def pay() -> int:
        return 1

    @app.workflow()
    async def bad(ctx: Context) -> int:
        raise ValueError("no")

    @app.workflow()
    async def slow(ctx: Context) -> int:
        return await ctx.wait_for("never", int)

    @app.workflow()
    async def lost(ctx: Context) -> int:
        return await ctx.step(pay)

    @app.workflow()
    async def parent(ctx: Context) -> int:
        from fencepost import RunFailed

        try:
            await ctx.run_child(bad)
        except RunFailed as error:
            said.append(f"{error.code}: {error.message}")
        try:
            await ctx.run_child(slow, id="slow one")
        except RunCancelled as error:
            said.append(f"cancelled: {error.reason}")
        return await ctx.run_child(lost, id="lost one")

    run = await driver.start(parent)
    await driver.run_until(run, "parked")
    while (await driver.states(run)).get("child slow#1") != "armed":
        await driver.run_until(run, "queued")
        await driver.run_until(run, "parked")
    await driver.run_until("slow one", "parked")
    assert await driver.cancel("slow one") == "accepted"
    while (await driver.states(run)).get("child lost#1") != "armed":
        assert await driver.run_one_leg() == "parked"
    await driver.lose_at("step.marked")
    assert (await driver.run_until("lost one", "unknown"))["status"] == "unknown"
    assert (await driver.show(run))["status"] == "parked"
    await driver.resolve("lost one", "pay", "completed", 11)
    await driver.run_until(run)
    assert await driver.output(run) == 11
    assert said[-2:] == ["WORKFLOW_ERROR: no", "cancelled: enough"]


async def test_a_child_whose_id_is_taken_is_a_conflict_now_and_on_replay(driver: Driver, app: App) -> None:
    """60.10, 50.4 The refusal is recorded: code that catches it and goes on replays the same way, whatever became of the id since."""
    from fencepost import LaunchConflict

    @app.step(repeatable=True)
    async def note(n: int) -> int:
        return n

    @app.workflow()
    async def kid(ctx: Context, n: int) -> int:
        return n

    @app.workflow()
    async def parent(ctx: Context) -> str:
        try:
            await ctx.run_child(kid, 1, id="taken")
        except LaunchConflict as error:
            await ctx.step(note, 1)
            await ctx.sleep("nap", 0.001)
            return f"{error.run_id} is taken"
        return "no conflict"

    await driver.start(kid, 2, id="taken")
    run = await driver.start(parent)
    await driver.run_losing(run, 1)
    assert await driver.output(run) == "taken is taken"
