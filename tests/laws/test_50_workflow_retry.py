"""Law 50.10: a declared workflow retry sets failures aside and keeps successes."""

from __future__ import annotations

import asyncio

import pytest

from fencepost import App, Context, Retry, StepFailed
from tests.legs import Driver, looked, until

pytestmark = pytest.mark.usefixtures("lawful")


async def test_a_declared_retry_sets_failures_aside_keeps_successes_and_asks_again(driver: Driver, app: App) -> None:
    """50.10 What succeeded is not run again, what it makes superfluous may stay unasked, and a later asking still finds it."""
    ran: list[str] = []

    @app.step(repeatable=True)
    async def good(name: str) -> str:
        ran.append(name)
        return name

    @app.step(repeatable=True)
    async def flaky() -> str:
        ran.append("flaky")
        if ran.count("flaky") < 3:
            raise OSError("not yet")
        return "flaky"

    @app.workflow(retry=Retry(30, on=(StepFailed,), delay=0))  # a loss is a try too (40.7)
    async def flow(ctx: Context) -> list[str]:
        first = await ctx.step(good, "first")
        try:
            mended = await ctx.step(flaky)
        except StepFailed:
            if len(ran) < 4:
                await ctx.step(good, "after a failure")
            raise
        return [first, mended, await ctx.step(good, "after a failure"), await ctx.step(good, "last")]

    run = await driver.start(flow)
    doc = await driver.run_losing(run, 2)
    assert await driver.output(run) == ["first", "flaky", "after a failure", "last"]
    assert [ran.count(name) for name in ("first", "flaky", "after a failure", "last")] == [1, 3, 1, 1]
    assert [one["ended"] for one in doc["attempt_history"]].count("retrying") == 2


async def test_a_retry_ends_with_its_tries(driver: Driver, app: App) -> None:
    """50.10 TRIES_EXHAUSTED names the last failure; an exception that the rule does not name fails at once."""

    @app.step(repeatable=True)
    async def bad() -> None:
        raise OSError("never")

    @app.workflow(retry=Retry(2, on=(StepFailed,), delay=0))
    async def flow(ctx: Context) -> None:
        await ctx.step(bad)

    @app.workflow(retry=Retry(2, on=(KeyError,), delay=0))
    async def other(ctx: Context) -> None:
        await ctx.step(bad)

    run = await driver.start(flow)
    assert (await driver.run_until(run))["attempts"] == 2
    error = await driver.error(run)
    assert (error["code"], error["last"]["code"]) == ("TRIES_EXHAUSTED", "STEP_FAILED")
    run = await driver.start(other)
    assert (await driver.run_until(run))["attempts"] == 1
    assert (await driver.error(run))["code"] == "STEP_FAILED"


@pytest.mark.parametrize("parks", [True, False])
async def test_a_wait_armed_before_a_declared_retry_is_answered_when_it_is_asked_for_again(
    driver: Driver, app: App, parks: bool
) -> None:
    """50.10, 60.2 Also if its signal came while the code was somewhere else: nobody's look throws away what is asked for later."""
    tries: list[int] = []
    go = asyncio.Event()

    @app.step(repeatable=True)
    async def first_fails() -> int:
        tries.append(1)
        if len(tries) == 1:
            raise OSError("once")
        return 1

    @app.step(repeatable=True)
    async def keeps_the_leg() -> None:
        await go.wait()

    @app.workflow(retry=Retry(2, on=(StepFailed,), delay=0))
    async def flow(ctx: Context) -> list[int]:
        if not tries:
            waits = asyncio.create_task(ctx.wait_for("s", int))
            await ctx.sleep("nap", 0.001)
            await ctx.step(first_fails)
            return [await waits]
        await ctx.step(first_fails)
        beside = asyncio.create_task(ctx.sleep("nap", 0) if parks else ctx.step(keeps_the_leg))
        other = await ctx.wait_for("t", int)
        await beside
        return [other, await ctx.wait_for("s", int)]

    run = await driver.start(flow)
    while not tries:
        if legs := await driver.claim():
            await driver.finish(legs[0])
        else:
            await driver.beat()
    assert driver.endings[-1] == "retrying"
    leg = await driver.one_leg()
    task = asyncio.create_task(leg.run())
    if parks:
        assert await task == "parked"
        await driver.signal(run, "s", 1)
        for leg in await driver.claim():
            assert await driver.finish(leg) == "parked"
        await driver.signal(run, "t", 2)
        await driver.run_until(run)
    else:
        await until(leg, looked)
        await driver.signal(run, "s", 1)
        leg.hint()
        await until(leg, looked)
        await driver.signal(run, "t", 2)
        leg.hint()
        await until(leg, lambda one: not one.waits.pending)
        go.set()
        assert await task == "completed"
    assert await driver.output(run) == [2, 1]


@pytest.mark.parametrize("permits", [1, 2])
async def test_a_retry_within_a_lock_asks_the_failure_again_though_others_stand_at_the_lock(
    driver: Driver, app: App, permits: int
) -> None:
    """50.10, 60.11 Who failed holds the lock and is held until replay is done; what the others kept may stay unasked until then."""
    ran: list[str] = []

    @app.step(repeatable=True)
    async def flaky(n: int) -> int:
        ran.append(f"flaky {n}")
        if len(ran) <= permits:
            raise OSError("not yet")
        return n

    @app.step(repeatable=True)
    async def good(n: int) -> int:
        ran.append(f"good {n}")
        return n

    @app.workflow(retry=Retry(5, on=(StepFailed,), delay=0))
    async def flow(ctx: Context) -> list[int]:
        lock = asyncio.Semaphore(permits)

        async def one(n: int) -> int:
            async with lock:
                return await ctx.step(flaky if n < permits else good, n)

        found = await asyncio.gather(*map(one, range(4)), return_exceptions=True)
        for each in found:
            if isinstance(each, BaseException):
                raise each
        return [each for each in found if isinstance(each, int)]

    run = await driver.start(flow)
    await driver.run_until(run)
    assert await driver.output(run) == [0, 1, 2, 3]
    assert sorted(ran) == sorted(f"{'flaky' if n < permits else 'good'} {n}" for n in [*range(permits), *range(4)])
