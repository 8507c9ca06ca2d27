"""Law 50.10 and the threads of sync steps: a call that ends while it waits for a free thread never began."""

from __future__ import annotations

import asyncio
import contextlib
import threading
from collections.abc import Iterator
from concurrent.futures import Future
from typing import Any

import pytest

from fencepost import App, Context, Retry, StepFailed
from fencepost.worker.leg import Leg
from fencepost.worker.threads import StepThreads
from tests.legs import Driver, Effects, until

pytestmark = pytest.mark.usefixtures("lawful")


class Crowded:
    """A worker with one thread, which something else has until it is let `go`."""

    def __init__(self, driver: Driver) -> None:
        self.pool = StepThreads(1, used_up=lambda _: None)
        self._free = threading.Event()
        self._driver = driver
        driver.threads = self.pool
        self._other: Future[Any] = self.pool.submit(self._free.wait, 30)

    async def leg(self) -> Leg:
        leg = await self._driver.one_leg()
        object.__setattr__(leg.face, "on_thread_lost", self.pool.lose)
        return leg

    async def run_one_leg(self) -> str:
        return await self._driver.finish(await self.leg())

    async def go(self) -> None:
        """Free the thread; everything that waits in its line, and may still begin, has ended then."""
        self._free.set()
        async with asyncio.timeout(10):
            await asyncio.wrap_future(self._other)
            await asyncio.wrap_future(self.pool.submit(int))

    def close(self) -> None:
        self._free.set()
        self.pool.shutdown()


@pytest.fixture
def crowded(driver: Driver) -> Iterator[Crowded]:
    crowd = Crowded(driver)
    yield crowd
    crowd.close()


@pytest.mark.parametrize("declared", [(), (TimeoutError,)], ids=["plain", "unknown_on"])
async def test_a_step_that_times_out_before_it_has_a_thread_has_failed(
    driver: Driver, app: App, effects: Effects, crowded: Crowded, declared: tuple[type[Exception], ...]
) -> None:
    """50.10, 50.1 Nothing happened, and that is certain: a committed failure, not unknown, also on replay."""
    seen: list[StepFailed] = []

    @app.step(timeout=0.05, unknown_on=declared)
    def pay() -> None:
        effects.happen("pay")

    @app.workflow()
    async def flow(ctx: Context) -> str:
        try:
            await ctx.step(pay)
        except StepFailed as error:
            seen.append(error)
        await ctx.sleep("nap", 0.001)
        return "not paid"

    run = await driver.start(flow)
    assert await crowded.run_one_leg() == "parked"
    await crowded.go()
    await driver.run_until(run)
    assert await driver.output(run) == "not paid"
    assert {(e.code, e.message) for e in seen} == {("TIMED_OUT", "it did not begin within 0.05 s: no thread was free")}
    assert len(seen) == 2, "on the first pass and on the second"
    assert (await driver.states(run))["step pay#1"] == "failed"
    assert effects.all() == []


async def test_one_that_began_is_unknown_all_the_same(
    driver: Driver, app: App, effects: Effects, crowded: Crowded
) -> None:
    """50.10 In its thread when the time was up: nobody knows, however full the line behind it is."""
    hang = threading.Event()

    @app.step(timeout=0.2)
    def pay(how: str) -> None:
        effects.happen(f"pay {how}")
        hang.wait(20)

    @app.workflow()
    async def flow(ctx: Context) -> list[str]:
        said = await asyncio.gather(*(ctx.step(pay, how) for how in ("first", "second")), return_exceptions=True)
        return [type(one).__name__ for one in said]

    await crowded.go()
    run = await driver.start(flow)
    try:
        assert await crowded.run_one_leg() == "completed"
    finally:
        hang.set()
    assert await driver.output(run) == ["StepOutcomeUnknown", "StepFailed"]
    states = await driver.states(run)
    assert (states["step pay#1"], states["step pay#2"]) == ("unknown", "failed")
    await crowded.go()
    assert effects.all() == ["pay first"]


async def test_its_declared_retry_begins_once_a_thread_is_free(
    driver: Driver, app: App, effects: Effects, crowded: Crowded
) -> None:
    """50.10 A retry rule for time-outs covers the one that is known to have done nothing."""

    @app.step(timeout=0.5, retry=Retry(20, on=(TimeoutError,), delay=0))
    def pay() -> str:
        effects.happen("pay")
        return "receipt"

    @app.workflow()
    async def flow(ctx: Context) -> str:
        return await ctx.step(pay)

    run = await driver.start(flow)
    task = asyncio.create_task(driver.finish(leg := await crowded.leg()))
    await until(leg, lambda one: len(one.threads.running) == 1)
    first = set(leg.threads.running)
    await until(leg, lambda one: bool(one.threads.running) and not first & one.threads.running)  # its second try waits
    await crowded.go()
    assert await task == "completed"
    assert await driver.output(run) == "receipt"
    assert effects.all() == ["pay"]


async def test_a_row_that_never_began_has_failed(driver: Driver, app: App, effects: Effects, crowded: Crowded) -> None:
    """50.10, 50.6 The same for the rows of a map."""

    @app.step(timeout=0.05)
    def pay(row: dict[str, str]) -> None:
        effects.happen(row["id"])

    @app.workflow()
    async def flow(ctx: Context) -> dict[str, str]:
        found = await ctx.map(pay, [{"id": "a"}, {"id": "b"}], key="id", tolerance=2, unknown="return")
        assert found.unknown == ()
        return {key: error.code for key, error in found.failed.items() if isinstance(error, StepFailed)}

    run = await driver.start(flow)
    assert await crowded.run_one_leg() == "completed"
    assert await driver.output(run) == {"a": "TIMED_OUT", "b": "TIMED_OUT"}
    await crowded.go()
    assert effects.all() == []


async def test_a_branch_cancelled_while_its_step_waits_for_a_thread_leaves_the_mark(
    driver: Driver, app: App, effects: Effects, crowded: Crowded
) -> None:
    """60.11, 50.7, 50.2 Its branch takes no answer any more: what is marked stays so, and is told as unknown, never as absent."""

    @app.step()
    def pay() -> None:
        effects.happen("pay")

    @app.workflow()
    async def flow(ctx: Context) -> str:
        task = asyncio.create_task(ctx.step(pay))
        await ctx.wait_for("go", int)
        task.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await task
        assert task.cancelled()
        raise RuntimeError("no")

    run = await driver.start(flow)
    task = asyncio.create_task(driver.finish(leg := await crowded.leg()))
    await until(leg, lambda one: len(one.threads.running) == 1)
    await driver.signal(run, "go", 1)
    leg.hint()
    assert await task == "unknown"
    assert (await driver.states(run))["step pay#1"] == "unknown"
    await crowded.go()
    assert effects.all() == [], "taken out of the line, it never begins"


async def test_a_sync_step_whose_thread_outlives_its_time_out(driver: Driver, app: App, effects: Effects) -> None:
    """50.10, 40.12, B62 Not repeatable: unknown; repeatable: failed, and its next try may run beside it. The worker is told each time."""
    go = threading.Event()
    lost: list[str] = []

    @app.step(timeout=0.05)
    def pay() -> str:
        effects.happen("pay")
        go.wait(20)
        effects.happen("paid")
        return "receipt"

    @app.step(repeatable=True, timeout=0.05, retry=Retry(2, on=(TimeoutError,), delay=0))
    def look() -> str:
        effects.happen("look")
        go.wait(20)
        return "seen"

    @app.workflow()
    async def flow(ctx: Context) -> str:
        with pytest.raises(StepFailed):
            await ctx.step(look)
        return await ctx.step(pay)

    run = await driver.start(flow)
    leg = await driver.one_leg()
    object.__setattr__(leg.face, "on_thread_lost", lost.append)
    assert await driver.finish(leg) == "unknown"
    assert lost == ["look", "look", "pay"]
    assert effects.all() == ["look", "look", "pay"]
    go.set()
    async with asyncio.timeout(10):
        await leg.threads.wait()
    assert effects.count("paid") == 1
    assert (await driver.states(run))["step pay#1"] == "unknown"


async def test_a_cancel_is_final_only_when_the_threads_have_ended(driver: Driver, app: App, effects: Effects) -> None:
    """50.10, 80.4, B62"""
    go, inside = threading.Event(), threading.Event()

    @app.step()
    def pay() -> None:
        inside.set()
        go.wait(20)

    @app.workflow()
    async def flow(ctx: Context) -> None:
        await ctx.step(pay)

    run = await driver.start(flow)
    leg = await driver.one_leg()
    task = asyncio.create_task(leg.run())
    await asyncio.to_thread(inside.wait, 10)
    assert await driver.cancel(run) == "accepted"
    leg.abort("cancelled", "enough")
    await until(leg, lambda one: one.engine is not None and not one.engine.branches)
    assert not task.done()
    assert (await driver.show(run))["status"] == "cancelling"
    go.set()
    assert await task == "cancelled"
    assert (await driver.show(run))["status"] == "cancelled"
