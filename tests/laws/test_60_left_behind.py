"""Chapter 60: what unwinding leaves behind: branches that nobody awaits, steps cut short, and code that swallows the end of its leg."""

from __future__ import annotations

import asyncio
import contextlib

import asyncpg
import pytest

from fencepost import App, Context, StepFailed
from fencepost.testing import pause_at
from tests.legs import Driver, Effects, run_of

pytestmark = pytest.mark.usefixtures("lawful")


# What is left behind


async def test_a_background_branch_nobody_awaits_ends_with_the_code(driver: Driver, app: App, effects: Effects) -> None:
    """60.11 It is unwound; a step that it had not begun never begins, and the run completes with what it did in the record."""
    done = asyncio.Event()

    @app.step()
    async def begun(n: int) -> int:
        effects.happen(f"begun {n}")
        done.set()
        return n

    @app.step(repeatable=True)
    async def front() -> int:
        await done.wait()
        return 1

    @app.workflow()
    async def flow(ctx: Context) -> int:
        async def back() -> None:
            await ctx.step(begun, 1)
            try:
                await ctx.wait_for("never", int)
            finally:
                await ctx.step(begun, 2)

        keep = asyncio.create_task(back())
        await ctx.step(front)
        await ctx.sleep("nap", 0.01)
        late = asyncio.create_task(ctx.step(begun, 3))
        return 1 if keep is not late else 0

    run = await driver.start(flow)
    while (await driver.states(run)).get("sleep nap#1") != "arrived":
        if not (legs := await driver.claim()):
            await driver.beat()
        elif await driver.finish(legs[0]) == "completed":
            break
    if (await driver.show(run))["status"] != "completed":
        await driver.lose_at("leg.ended")
        assert await driver.run_one_leg() == "completed"
    assert effects.all() == ["begun 1"]
    states = await driver.states(run)
    assert "step begun#2" not in states
    assert "step begun#3" not in states
    assert states["signal never#1"] == "cancelled"


async def test_a_branch_cancelled_inside_a_step_that_is_not_repeatable_leaves_it_unknown(
    driver: Driver, app: App, effects: Effects
) -> None:
    """60.11, 50.10 Marked for ever; the run may succeed all the same, and it fails as `unknown` only (40.6)."""
    inside = asyncio.Event()

    @app.step()
    async def pay(how: str) -> None:
        effects.happen(f"pay {how}")
        inside.set()
        try:
            await asyncio.Event().wait()
        except asyncio.CancelledError:
            if how == "raises":
                raise ValueError("it says that it failed") from None
            raise

    @app.workflow()
    async def flow(ctx: Context, how: list[str]) -> str:
        task = asyncio.create_task(ctx.step(pay, how[0]))
        await ctx.wait_for("go", int)
        task.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await task
        assert task.cancelled()
        if how[1] == "fails":
            raise RuntimeError("no")
        return "ok"

    for raises in ("lets go", "raises"):
        for end, status in (("succeeds", "completed"), ("fails", "unknown")):
            inside.clear()
            run = await driver.start(flow, [raises, end])
            task = run_of(await driver.one_leg())
            await inside.wait()
            await driver.signal(run, "go", 1)
            assert await task == status
            assert (await driver.states(run))["step pay#1"] == "unknown"
    assert len(effects.all()) == 4


async def test_a_step_that_swallows_its_cancellation_is_kept_and_its_branch_is_cancelled_all_the_same(
    driver: Driver, app: App
) -> None:
    """50.4 On replay there is no code to swallow it: both passes must see the cancellation."""
    inside = asyncio.Event()
    seen: list[str] = []

    @app.step(repeatable=True)
    async def stubborn() -> str:
        inside.set()
        try:
            await asyncio.Event().wait()
        except asyncio.CancelledError:
            return "I go on"
        return ""

    @app.step(repeatable=True)
    async def after(n: int) -> int:
        return n

    @app.workflow()
    async def flow(ctx: Context) -> int:
        async def branch() -> None:
            try:
                await ctx.step(stubborn)
                seen.append("value")
                await ctx.step(after, 1)
            except asyncio.CancelledError:
                seen.append("cancelled")
                raise

        task = asyncio.create_task(branch())
        await ctx.wait_for("go", int)
        task.cancel()
        await asyncio.wait({task})
        return await ctx.step(after, 2)

    run = await driver.start(flow)
    leg = await driver.one_leg()
    task = run_of(leg)
    await inside.wait()
    await driver.signal(run, "go", 1)
    with pause_at("leg.ended") as pause:
        await pause.reached()
        leg.abort("lost")
    assert await task == "stale"
    await driver.bury(leg)
    assert await driver.run_one_leg() == "completed"
    assert seen == ["cancelled", "cancelled"]
    assert (await driver.states(run))["step stubborn#1"] == "kept"


# Swallowing


async def test_except_exception_does_not_catch_a_suspension(driver: Driver, app: App) -> None:
    """60.8"""
    caught: list[str] = []

    @app.workflow()
    async def flow(ctx: Context) -> int:
        try:
            return await ctx.wait_for("s", int)
        except Exception as error:
            caught.append(repr(error))
            raise

    run = await driver.start(flow)
    assert await driver.run_one_leg() == "parked"
    await driver.signal(run, "s", 1)
    assert await driver.run_one_leg() == "completed"
    assert not caught


async def test_code_that_swallows_a_suspension_changes_nothing(
    driver: Driver, app: App, effects: Effects, admin: asyncpg.Connection
) -> None:
    """60.8 It may go on as it likes, in a loop too: its leg is over, and neither the worker's loop nor the run notices."""
    released: list[bool] = []

    @app.step()
    async def pay() -> None:
        effects.happen("pay")

    @app.workflow()
    async def flow(ctx: Context) -> str:
        while ctx.attempt > 1 or not released:
            try:
                return f"got {await ctx.wait_for('s', int)}"
            except BaseException:
                with contextlib.suppress(BaseException):
                    await ctx.step(pay)
        return "at last"

    @app.workflow()
    async def swallower(ctx: Context) -> str:
        try:
            return f"got {await ctx.wait_for('s', int)}"
        except BaseException:
            return "swallowed"

    run = await driver.start(swallower)
    assert await driver.run_one_leg() == "parked"
    await driver.signal(run, "s", 1)
    assert await driver.run_one_leg() == "completed"
    assert await driver.output(run) == "got 1"
    run = await driver.start(flow)
    assert await driver.run_one_leg() == "parked"
    released.append(True)
    assert effects.all() == []
    assert await admin.fetchval("select count(*) from fencepost.boundary where kind = 'step'") == 0
    await driver.signal(run, "s", 2)
    assert await driver.run_one_leg() == "completed"
    assert await driver.output(run) == "got 2"
    assert effects.all() == []


async def test_ctx_inside_a_step_is_refused(driver: Driver, app: App) -> None:
    """50.4 A step gets plain arguments: a boundary inside a boundary would have no place of its own."""
    held: list[Context] = []

    @app.step(repeatable=True)
    async def within() -> str:
        await held[0].step(plain)
        return "no"

    @app.step(repeatable=True)
    async def beside() -> str:
        await asyncio.create_task(held[0].sleep("nap", 1))
        return "no"

    @app.step(repeatable=True)
    def thread() -> str:
        asyncio.run(held[0].step(plain))
        return "no"

    @app.step(repeatable=True)
    async def plain() -> int:
        return 1

    @app.workflow()
    async def flow(ctx: Context) -> list[str]:
        held[:] = [ctx]
        errors = []
        for step in (within, beside, thread):
            try:
                await ctx.step(step)
            except StepFailed as error:
                errors.append(error.message)
        return errors

    run = await driver.start(flow)
    assert await driver.run_one_leg() == "completed"
    errors = await driver.output(run)
    assert len(errors) == 3
    assert all("outside its workflow's code" in error for error in errors)
    assert list(await driver.states(run)) == ["step within#1", "step beside#1", "step thread#1"]


async def test_a_request_to_exit_ends_the_run_and_never_the_worker(driver: Driver, app: App) -> None:
    """50.10 SystemExit in a step fails the step; in a branch or the workflow itself, the run; in a task of a step, the step."""

    @app.step(repeatable=True)
    async def quits() -> None:
        raise SystemExit(3)

    @app.step(repeatable=True)
    def thread() -> None:
        raise SystemExit(3)

    @app.step(repeatable=True)
    async def spawns() -> None:
        async def quit() -> None:
            raise KeyboardInterrupt

        await asyncio.create_task(quit())

    @app.workflow()
    async def steps(ctx: Context) -> int:
        failed = 0
        for step in (quits, thread, spawns):
            with contextlib.suppress(StepFailed):
                await ctx.step(step)
                continue
            failed += 1
        return failed

    @app.workflow()
    async def itself(ctx: Context) -> None:
        raise SystemExit(3)

    @app.workflow()
    async def branch(ctx: Context) -> None:
        async def quit() -> None:
            await ctx.sleep("nap", 0.001)
            raise SystemExit(3)

        await asyncio.gather(quit(), ctx.wait_for("never", int))

    run = await driver.start(steps)
    assert await driver.run_one_leg() == "completed"
    assert await driver.output(run) == 3
    for flow in (itself, branch):
        run = await driver.start(flow)
        assert (await driver.run_until(run))["status"] == "failed"
        assert "asked the worker to exit: SystemExit" in (await driver.error(run))["message"]


# Others in the same process


@pytest.mark.parametrize("door", ["keep_steps", "read_clock"])
async def test_a_leg_that_ends_does_not_take_calls_of_its_neighbours_along(driver: Driver, app: App, door: str) -> None:
    """60.11 Unwinding cancels the whole leg from outside, and the leg only: a batch of calls is shared by many."""

    @app.step(repeatable=True)
    async def work(n: int) -> int:
        return n

    @app.workflow()
    async def flow(ctx: Context) -> int:
        await ctx.random()
        await ctx.now()
        return await ctx.step(work, 1)

    runs = [await driver.start(flow) for _ in range(3)]
    legs = await driver.claim(most=3)
    with pause_at("statement.executed", when=lambda facts: facts["door"] == door) as pause:
        tasks = [run_of(leg) for leg in legs]
        await pause.reached()
        legs[0].abort("lost")
        assert await tasks[0] == "stale"
        pause.release()
        async with asyncio.timeout(10):
            assert await asyncio.gather(*tasks[1:]) == ["completed", "completed"]
    await driver.bury(legs[0])
    for run in runs:
        await driver.run_until(run)
