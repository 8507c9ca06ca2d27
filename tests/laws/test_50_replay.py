"""Law 50.4: code sees the same history in the same order, on the first pass and on every replay; what does not fit is parked."""

from __future__ import annotations

import asyncio
import uuid
from typing import Any

import pytest

from fencepost import App, Context, Retry, StepFailed, recovery, step_key
from fencepost.testing import pause_at
from fencepost.worker.history import read_page
from fencepost.worker.replay import Engine
from tests.legs import Driver, overtaken, until

pytestmark = pytest.mark.usefixtures("lawful")


def same_beginnings(logs: dict[int, list[Any]]) -> None:
    """Whatever an attempt saw is the beginning of what the last one saw."""
    *attempts, last = [log for _, log in sorted(logs.items())]
    for log in attempts:
        assert last[: len(log)] == log


# Order


@pytest.mark.parametrize("every", [1, 2, 3])
async def test_two_branches_with_the_same_names_replay_whatever_order_their_results_had(
    driver: Driver, app: App, every: int
) -> None:
    """50.4 The ordinal counts calls in the order the code makes them: each branch gets its own results again."""
    logs: dict[int, list[Any]] = {}

    @app.step(repeatable=True)
    async def work(base: int, n: int) -> int:
        for _ in range((base * 7 + n * 5) % 6):
            await overtaken()
        return base + n

    @app.workflow()
    async def flow(ctx: Context) -> list[list[int]]:
        log = logs[ctx.attempt] = []

        async def branch(base: int) -> list[int]:
            got = []
            for n in range(4):
                got.append(await ctx.step(work, base, n))
                log.append((base, n))
            return got

        return list(await asyncio.gather(branch(10), branch(20)))

    run = await driver.start(flow)
    await driver.run_losing(run, every)
    assert await driver.output(run) == [[10, 11, 12, 13], [20, 21, 22, 23]]
    assert len(logs) > 3
    same_beginnings(logs)


@pytest.mark.parametrize("first", ["left", "right"])
async def test_the_winner_of_a_race_of_two_steps_is_the_same_on_every_replay(
    driver: Driver, app: App, first: str
) -> None:
    """50.4 Killed after every boundary; on a replay both results are there, or the loser's never was."""
    winners: dict[int, list[Any]] = {}
    ahead = asyncio.Event()

    @app.step(repeatable=True)
    async def left() -> str:
        await _second("left")
        return "left"

    @app.step(repeatable=True)
    async def right() -> str:
        await _second("right")
        return "right"

    async def _second(name: str) -> None:
        if name == first:
            ahead.set()
        else:
            await ahead.wait()
            await overtaken()

    @app.step(repeatable=True)
    async def after(winner: str) -> str:
        return winner

    @app.workflow()
    async def flow(ctx: Context) -> str:
        tasks = [asyncio.create_task(ctx.step(step)) for step in (left, right)]
        done, pending = await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
        assert len(done) == 1, "the code comes to rest between two results"
        for task in pending:
            task.cancel()
        winner = done.pop().result()
        winners[ctx.attempt] = [winner]
        await ctx.step(after, winner)
        await ctx.sleep("nap", 0.001)
        return await ctx.step(after, winner)

    run = await driver.start(flow)
    await driver.run_losing(run, 1)
    assert await driver.output(run) == winners[max(winners)][0]
    same_beginnings(winners)
    assert len(winners) > 2


async def test_two_results_of_one_batch_reach_the_code_one_by_one_with_the_code_at_rest_between(
    driver: Driver, app: App
) -> None:
    """50.4 In the order of their sequence, also when the later one's caller was woken first; lost between, the replay says the same."""
    logs: dict[int, list[Any]] = {}
    gate = asyncio.Event()

    @app.step(repeatable=True)
    async def together(n: int) -> int:
        await gate.wait()
        return n

    @app.workflow()
    async def flow(ctx: Context) -> list[int]:
        log = logs[ctx.attempt] = []

        async def branch(n: int) -> int:
            got = await ctx.step(together, n)
            log.append(("given", n))
            for _ in range(25):  # nobody else is given anything before this branch waits again
                await overtaken()
            log.append(("rested", n))
            if len(log) == 4 and ctx.attempt == 1:
                leg.abort("lost")
            if n == 0:
                return got + await ctx.step(together, 10)
            return got

        return list(await asyncio.gather(*(branch(n) for n in range(5))))

    run = await driver.start(flow)
    leg = await driver.one_leg()
    task = asyncio.create_task(leg.run())
    await until(leg, lambda one: one.engine is not None and one.engine.performing == 5)
    gate.set()
    assert await task == "stale"
    await driver.bury(leg)
    await driver.run_losing(run, 1)
    assert await driver.output(run) == [10, 1, 2, 3, 4]
    last = logs[max(logs)]
    assert [what for what, _ in last] == ["given", "rested"] * 5
    same_beginnings(logs)


async def test_a_pause_between_the_commit_and_the_code_lets_no_later_result_overtake(driver: Driver, app: App) -> None:
    """50.4 The first result is committed and its caller has not heard of it yet: the second waits."""
    order: list[int] = []

    @app.step(repeatable=True)
    async def one() -> int:
        return 1

    @app.step(repeatable=True)
    async def two() -> int:
        return 2

    @app.workflow()
    async def flow(ctx: Context) -> int:
        async def branch(step: Any) -> None:
            order.append(await ctx.step(step))

        await asyncio.gather(branch(one), branch(two))
        return 0

    await driver.start(flow)
    leg = await driver.one_leg()
    with pause_at("step.kept", when=lambda facts: facts["step"] == "one") as pause:
        task = asyncio.create_task(leg.run())
        await pause.reached()
        await until(leg, lambda one: one.engine is not None and one.engine.performing == 1)
        for _ in range(20):
            await overtaken()
        assert order == []
        pause.release()
        assert await task == "completed"
    assert order == [1, 2]


# Keys


async def test_a_steps_key_is_the_same_on_every_replay_and_in_every_retry_and_nobody_elses(
    driver: Driver, app: App
) -> None:
    """50.3 Different for every step, ordinal, row and run; a redrive keeps its origin's."""
    keys: dict[str, set[str]] = {}
    tries: list[int] = []

    @app.step(repeatable=True, retry=Retry(3, on=(OSError,), delay=0))
    async def call(n: int) -> int:
        keys.setdefault(f"call {n}", set()).add(step_key())
        tries.append(n)
        if tries.count(n) < 3:
            raise OSError(n)
        return n

    @app.step(repeatable=True)
    def thread(n: int) -> int:
        keys.setdefault(f"thread {n}", set()).add(step_key())
        return n

    @app.step(repeatable=True)
    async def row(key: str) -> str:
        keys.setdefault(f"row {key}", set()).add(step_key())
        return key

    @app.workflow()
    async def flow(ctx: Context, fails: bool) -> int:
        await ctx.step(call, 1)
        await asyncio.gather(ctx.step(call, 2), ctx.step(thread, 3), ctx.step(thread, 4))
        await ctx.map(row, ["a", "b"], key=str)
        await ctx.map(row, ["c"], key=str)
        if fails:
            raise ValueError("once")
        return 0

    run = await driver.start(flow, True)
    await driver.lose_at("step.end", nth=2)
    await driver.lose_at("row.kept")
    await driver.run_until(run)
    again = f"again-{uuid.uuid4().hex}"
    assert await recovery.redrive(
        driver.db, "default", run, new_id=again, from_step=("call", 1), again=[], by="a person"
    ) == ("created", None)
    await driver.run_until(again)
    assert all(len(found) == 1 for found in keys.values()), keys
    assert len(set.union(*keys.values())) == len(keys) == 7
    other = await driver.start(flow, False)
    mine = {what: set(found) for what, found in keys.items()}
    await driver.run_until(other)
    assert all(len(keys[what] - found) == 1 for what, found in mine.items())
    with pytest.raises(RuntimeError, match="inside a step only"):
        step_key()


# The engine by itself


async def test_a_result_that_was_passed_over_is_given_when_it_is_asked_for_after_the_last(
    driver: Driver, app: App
) -> None:
    """50.4, 50.10 Loose boundaries may stay unasked and are answered when asked for: also behind the end of history, on a replay."""
    ran: list[str] = []

    @app.step(repeatable=True)
    async def note(what: str) -> str:
        ran.append(what)
        return what

    @app.step(name="late", repeatable=True)
    async def noted_late() -> str:
        ran.append("late")
        return "late"

    @app.step(repeatable=True)
    async def fails_once() -> str:
        ran.append("fails")
        if ran.count("fails") == 1:
            raise OSError("once")
        return "mended"

    @app.workflow(retry=Retry(30, on=(StepFailed,), delay=0))
    async def flow(ctx: Context) -> list[str]:
        if "fails" not in ran:
            await ctx.step(noted_late)
        mended = await ctx.step(fails_once)
        return [mended, await ctx.step(noted_late), await ctx.step(note, "end")]

    run = await driver.start(flow)
    assert await driver.run_one_leg() == "retrying"
    await driver.run_losing(run, 1)
    assert await driver.output(run) == ["mended", "late", "end"]
    assert ran.count("late") == 1


async def test_an_engine_without_history_is_live_and_one_with_loose_history_only_too() -> None:
    """50.4"""
    loop = asyncio.get_running_loop()
    assert Engine([], loop).live
    loose = '[["signal","x",1,"armed",3,"",true,true,null,null,null,null]]'
    assert Engine(read_page(loose), loop).live
    assert not Engine(read_page(loose.replace("true,true", "false,true")), loop).live


async def test_values_of_the_run_are_recorded_and_a_line_is_not_said_again(
    driver: Driver, app: App, caplog: Any
) -> None:
    """50.4 now, random and uuid are what they were; ctx.log speaks on the first pass only."""
    seen: dict[int, list[Any]] = {}

    @app.workflow()
    async def flow(ctx: Context) -> list[str]:
        found = [str(await ctx.now()), str(await ctx.random()), str(await ctx.uuid())]
        ctx.log("said once", n=len(found))
        seen[ctx.attempt] = found
        await ctx.sleep("nap", 0.001)
        return found

    run = await driver.start(flow)
    with caplog.at_level("DEBUG"):
        await driver.run_losing(run, 1)
    assert len(seen) > 1
    same_beginnings(seen)
    assert await driver.output(run) == seen[max(seen)]
