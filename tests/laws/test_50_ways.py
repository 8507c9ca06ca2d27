"""Laws 50.2, 60.11: a history in which the code was told Unknown is read in the way that fits."""

from __future__ import annotations

import asyncio
import contextlib
import itertools

import pytest

from fencepost import App, Context, StepOutcomeUnknown
from fencepost.worker.replay import STILL_SECONDS
from tests.legs import Driver, Effects

pytestmark = pytest.mark.usefixtures("lawful")


async def test_code_that_went_on_from_an_unknown_within_a_lock_goes_on_whatever_was_resolved_since(
    driver: Driver, app: App, effects: Effects
) -> None:
    """50.2, 60.11 Who stands at the lock waits for who is held, and that one until the other has asked: the other way of reading the
    history is tried."""

    @app.step()
    async def pay() -> str:
        effects.happen("pay")
        return "receipt"

    @app.step(repeatable=True)
    async def note(what: str) -> str:
        return what

    @app.workflow()
    async def flow(ctx: Context) -> list[str]:
        lock = asyncio.Lock()

        async def paid() -> str:
            async with lock:
                try:
                    return await ctx.step(pay)
                except StepOutcomeUnknown:
                    return "nobody knows"

        async def noted() -> str:
            async with lock:
                return await ctx.step(note, "noted")

        found = await asyncio.gather(paid(), noted())
        await ctx.wait_for("go", int)
        return list(found)

    run = await driver.start(flow)
    await driver.lose_at("step.end")
    assert await driver.run_one_leg() == "parked"
    await driver.resolve(run, "pay", "again")
    await driver.signal(run, "go", 1)
    assert await driver.run_one_leg() == "completed"
    assert await driver.output(run) == ["nobody knows", "noted"]
    assert effects.count("pay") == 1


@pytest.mark.parametrize("seconds", [0.1, STILL_SECONDS * 2.5])
async def test_an_unknown_that_left_the_workflow_is_seen_resolved_also_beside_a_branch_that_another_hand_sets_free(
    driver: Driver, app: App, seconds: float
) -> None:
    """60.11, 85.5 It awaits what is no branch's: it runs, and nothing is judged until it has asked; a way of reading the history in which
    it stands as well is no better one."""

    @app.step()
    async def pay() -> int:
        return 1

    @app.step(repeatable=True)
    async def count() -> int:
        return 2

    @app.workflow()
    async def flow(ctx: Context) -> int:
        opened = asyncio.Event()
        asyncio.get_running_loop().call_later(seconds, opened.set)

        async def later() -> int:
            await opened.wait()
            return await ctx.step(count)

        found = await asyncio.gather(ctx.step(pay), later(), return_exceptions=True)
        for one in found:
            if isinstance(one, BaseException):
                raise one
        return sum(one for one in found if isinstance(one, int))

    run = await driver.start(flow)
    await driver.lose_at("step.end")
    assert await driver.run_one_leg() == "unknown"
    await driver.resolve(run, "pay", "completed", 5)
    assert await driver.run_one_leg() == "completed"
    assert await driver.output(run) == 7


@pytest.mark.parametrize("caught", list(itertools.product((False, True), repeat=3)), ids=str)
async def test_what_left_the_workflow_is_seen_resolved_and_what_was_caught_is_told_again_whatever_their_order(
    driver: Driver, app: App, caught: tuple[bool, ...]
) -> None:
    """50.2 Each unknown outcome of a history is read in the way that it fits, and turning one turns no other for good."""

    @app.step()
    async def pay(nth: int) -> str:
        return f"paid {nth}"

    @app.step(repeatable=True)
    async def note(what: str) -> str:
        return what

    @app.workflow()
    async def flow(ctx: Context) -> list[str]:
        notes = []
        for nth, catches in enumerate(caught):
            try:
                seen = await ctx.step(pay, nth)
            except StepOutcomeUnknown:
                if not catches:
                    raise
                seen = "nobody knows"
            notes.append(await ctx.step(note, f"{nth}: {seen}"))
        await ctx.wait_for("go", int)
        return notes

    run = await driver.start(flow)
    open_: list[int] = []

    async def resolve_all() -> None:
        while open_:
            nth = open_.pop()
            await driver.resolve(run, "pay", "completed", "too late" if caught[nth] else "by hand", ordinal=nth + 1)

    for nth, catches in enumerate(caught):
        await driver.lose_at("step.end", when=lambda facts: facts["step"] == "pay")
        open_.append(nth)
        if not catches:
            assert await driver.run_one_leg() == "unknown"
            await resolve_all()
    assert await driver.run_one_leg() == "parked"
    await resolve_all()
    await driver.signal(run, "go", 1)
    await driver.run_losing(run, 1)
    assert await driver.output(run) == [f"{n}: {'nobody knows' if c else 'by hand'}" for n, c in enumerate(caught)]


async def test_code_that_went_on_from_an_unknown_while_another_branch_stands_at_a_queue_goes_on(
    driver: Driver, app: App, effects: Effects
) -> None:
    """50.2, 60.11 Who stands at a queue may be served from elsewhere; where nothing moves for a while, the other way is tried."""

    @app.step()
    async def pay() -> str:
        effects.happen("pay")
        return "receipt"

    @app.step(repeatable=True)
    async def note(what: str) -> str:
        return what

    @app.workflow()
    async def flow(ctx: Context) -> str:
        ends: asyncio.Queue[str] = asyncio.Queue()

        async def paid() -> None:
            try:
                got = await ctx.step(pay)
            except StepOutcomeUnknown:
                got = "nobody knows"
            await ends.put(await ctx.step(note, got))

        async with asyncio.TaskGroup() as group:
            group.create_task(paid())
            found = await ends.get()
        await ctx.wait_for("go", int)
        return found

    run = await driver.start(flow)
    await driver.lose_at("step.end")
    assert await driver.run_one_leg() == "parked"
    await driver.resolve(run, "pay", "again")
    await driver.signal(run, "go", 1)
    assert await driver.run_one_leg() == "completed"
    assert await driver.output(run) == "nobody knows"
    assert effects.count("pay") == 1


async def test_code_that_has_changed_is_parked_also_where_its_history_can_be_read_in_very_many_ways(
    driver: Driver, app: App
) -> None:
    """50.4, 60.11 Not every way is tried where none is nearer than another; the report is that of the way that is read first."""
    outcomes, ends = 18, ["as before"]

    @app.step()
    async def pay(nth: int) -> int:
        return nth

    @app.step(repeatable=True)
    async def note(what: str) -> str:
        return what

    @app.workflow()
    async def flow(ctx: Context) -> None:
        for nth in range(outcomes):
            with contextlib.suppress(StepOutcomeUnknown):
                await ctx.step(pay, nth)
            await ctx.step(note, f"{nth}")
        await ctx.step(note, ends[-1])
        await ctx.wait_for("go", int)

    run = await driver.start(flow)
    for _ in range(outcomes):  # each is resolved before anything shows what the code makes of it: both ways fit
        await driver.lose_at("step.end", when=lambda facts: facts["step"] == "pay")
        await driver.lose_at("statement.executed", when=lambda facts: facts["door"] == "keep_steps")
        await driver.resolve_all(run, "completed", 0)
    assert await driver.run_one_leg() == "parked"
    ends.append("changed")
    await driver.signal(run, "go", 1)
    assert await driver.run_one_leg() == "unfit"
    assert f"step note#{outcomes + 1} is asked for with other arguments" in (await driver.error(run))["message"]


async def test_what_shows_the_way_may_come_after_several_unknowns_side_by_side(driver: Driver, app: App) -> None:
    """50.2 Every way of reading them together is tried."""

    @app.step()
    async def pay(nth: int) -> str:
        return f"paid {nth}"

    @app.step(repeatable=True)
    async def note(what: list[str]) -> None:
        return None

    @app.workflow()
    async def flow(ctx: Context) -> list[str]:
        async def paid(nth: int) -> str:
            try:
                return await ctx.step(pay, nth)
            except StepOutcomeUnknown:
                return f"nobody knows {nth}"

        seen = list(await asyncio.gather(paid(1), paid(2)))
        await ctx.step(note, seen)
        await ctx.wait_for("go", int)
        return seen

    run = await driver.start(flow)
    await driver.lose_at("step.end", nth=2, stand=1)
    assert await driver.run_one_leg() == "parked"
    await driver.resolve_all(run, "completed", "too late")
    await driver.signal(run, "go", 1)
    await driver.run_losing(run, 1)
    assert await driver.output(run) == ["nobody knows 1", "nobody knows 2"]
