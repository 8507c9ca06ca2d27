"""Chapter 60: branches of a workflow's code: when a leg parks, and which branch runs."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Coroutine
from typing import Any

import asyncpg
import pytest

from fencepost import App, Context, Retry
from fencepost.testing import Clock, pause_at
from tests.legs import Driver, looked, overtaken, run_of, until

pytestmark = pytest.mark.usefixtures("lawful")


# Waiting together


async def _gather(parts: list[Coroutine[Any, Any, Any]]) -> list[Any]:
    return list(await asyncio.gather(*parts))


async def _gather_all(parts: list[Coroutine[Any, Any, Any]]) -> list[Any]:
    return list(await asyncio.gather(*parts, return_exceptions=True))


async def _nested(parts: list[Coroutine[Any, Any, Any]]) -> list[Any]:
    first, *rest = parts
    (a, b), *_ = await asyncio.gather(asyncio.gather(first, asyncio.gather(*rest)))
    return [a, *b]


async def _group(parts: list[Coroutine[Any, Any, Any]]) -> list[Any]:
    async with asyncio.TaskGroup() as group:
        tasks = [group.create_task(part) for part in parts]
    return [task.result() for task in tasks]


async def _wait(parts: list[Coroutine[Any, Any, Any]]) -> list[Any]:
    tasks = [asyncio.create_task(part) for part in parts]
    await asyncio.wait(tasks)
    return [task.result() for task in tasks]


async def _wait_for(parts: list[Coroutine[Any, Any, Any]]) -> list[Any]:
    return list(await asyncio.wait_for(asyncio.gather(*(asyncio.wait_for(part, 60) for part in parts)), None))


async def _completed(parts: list[Coroutine[Any, Any, Any]]) -> list[Any]:
    tasks = [asyncio.create_task(part) for part in parts]
    for done in asyncio.as_completed(tasks):
        await done
    return [task.result() for task in tasks]


async def _shield(parts: list[Coroutine[Any, Any, Any]]) -> list[Any]:
    return list(await asyncio.shield(asyncio.gather(*(asyncio.shield(part) for part in parts))))


async def _tasks(parts: list[Coroutine[Any, Any, Any]]) -> list[Any]:
    tasks = [asyncio.create_task(part) for part in parts]
    return [await task for task in tasks]


TOGETHER: list[Callable[[list[Coroutine[Any, Any, Any]]], Awaitable[list[Any]]]] = [
    _gather, _gather_all, _nested, _group, _wait, _wait_for, _completed, _shield, _tasks,
]  # fmt: skip


@pytest.mark.parametrize("together", TOGETHER, ids=lambda f: f.__name__)
async def test_a_leg_parks_once_when_every_branch_waits_and_goes_on_with_each_signal(
    driver: Driver, app: App, admin: asyncpg.Connection, together: Any
) -> None:
    """60.11 Whatever of asyncio holds the branches together."""

    @app.workflow()
    async def flow(ctx: Context) -> list[int]:
        return await together([ctx.wait_for(name, int) for name in ("a", "b", "c")])  # type: ignore[no-any-return]  # of the table

    run = await driver.start(flow)
    assert await driver.run_one_leg() == "parked"
    for name, value in (("b", 2), ("a", 1)):
        await driver.signal(run, name, value)
        assert await driver.run_one_leg() == "parked"
    await driver.signal(run, "c", 3)
    assert await driver.run_one_leg() == "completed"
    assert await driver.output(run) == [1, 2, 3]
    assert await admin.fetchval("select count(*) from fencepost.attempt") == 4


async def test_a_leg_does_not_park_while_a_branch_is_in_a_step(driver: Driver, app: App) -> None:
    """60.11 The wait is armed and resolved in the leg; number and fence stay (40.8)."""
    go = asyncio.Event()

    @app.step(repeatable=True)
    async def work() -> int:
        await go.wait()
        return 1

    @app.workflow()
    async def flow(ctx: Context) -> list[int]:
        return list(await asyncio.gather(ctx.step(work), ctx.wait_for("s", int)))

    run = await driver.start(flow)
    leg = await driver.one_leg()
    task = run_of(leg)
    await until(leg, looked)
    await driver.signal(run, "s", 2)
    leg.hint()
    await until(leg, lambda one: not one.waits.pending)
    assert not task.done()
    go.set()
    assert await task == "completed"
    assert (await driver.show(run))["attempts"] == 1
    assert await driver.output(run) == [1, 2]


async def test_a_sleep_wins_over_a_longer_step_at_its_own_time_and_the_late_step_writes_nothing(
    driver: Driver, app: App, clock: Clock
) -> None:
    """60.11, B55 race(sleep 1 s, step): the winner is the sleep, on the first pass and on replay; the step leaves no result."""
    never = asyncio.Event()
    stopped: list[str] = []
    winners: list[str] = []

    @app.step(repeatable=True)
    async def long() -> str:
        try:
            await never.wait()
        finally:
            stopped.append("long")
        return "step"

    @app.step(repeatable=True)
    async def after(winner: str) -> str:
        return winner

    @app.workflow()
    async def flow(ctx: Context) -> str:
        async def nap() -> str:
            await ctx.sleep("nap", 1)
            return "sleep"

        tasks = [asyncio.create_task(nap()), asyncio.create_task(ctx.step(long))]
        done, pending = await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
        for task in pending:
            task.cancel()
        winners.append(done.pop().result())
        await ctx.step(after, winners[-1])
        return winners[-1]

    await clock.advance(0)
    run = await driver.start(flow)
    leg = await driver.one_leg()
    task = run_of(leg)
    await until(leg, looked)
    await clock.advance(0.9)
    leg.hint()
    await until(leg, looked)
    assert not winners
    await clock.advance(0.1)
    with pause_at("leg.ended") as pause:
        leg.hint()
        await pause.reached()
        leg.abort("lost")
    assert await task == "stale"
    assert stopped == ["long"]
    await driver.bury(leg)
    assert await driver.run_one_leg() == "completed"
    assert winners == ["sleep", "sleep"]
    assert "step long#1" not in await driver.states(run)


# What runs


async def test_a_branch_on_a_lock_runs_and_is_named_with_its_place(driver: Driver, app: App) -> None:
    """60.11 While it runs the leg does not park; once it waits, the leg parks at once."""
    door = asyncio.Event()

    async def at_the_door() -> None:
        await door.wait()

    @app.workflow()
    async def flow(ctx: Context) -> int:
        waiting = asyncio.create_task(ctx.wait_for("s", int))
        await at_the_door()
        return await waiting

    run = await driver.start(flow)
    leg = await driver.one_leg()
    task = run_of(leg)
    await until(leg, looked)
    assert leg.engine is not None
    assert "at_the_door" in (leg.engine.running_on() or "")
    assert __file__ in (leg.engine.running_on() or "")
    assert leg.blocked_on().startswith("a branch runs at ")
    assert not task.done()
    loop = asyncio.get_running_loop()
    began = loop.time()
    door.set()
    assert await task == "parked"
    assert loop.time() - began < 0.5, "it was not looked at again when what the branch awaited had ended"
    await driver.signal(run, "s", 5)
    await driver.run_until(run)
    assert await driver.output(run) == 5


async def test_a_branch_on_a_socket_runs_and_nothing_is_judged_meanwhile(driver: Driver, app: App) -> None:
    """60.11 On replay the recorded step is asked for only after the socket answered: that is waited for, not called nondeterminism."""
    answers = asyncio.Event()

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readline()
        await answers.wait()
        writer.write(b"7\n")
        await writer.drain()
        writer.close()

    server = await asyncio.start_server(serve, "127.0.0.1", 0)
    port = server.sockets[0].getsockname()[1]

    @app.step(repeatable=True)
    async def kept(n: int) -> int:
        return n

    @app.workflow()
    async def flow(ctx: Context) -> int:
        beside = asyncio.create_task(ctx.wait_for("s", int))
        reader, writer = await asyncio.open_connection("127.0.0.1", port)
        writer.write(b"?\n")
        got = int(await reader.readline())
        writer.close()
        return await ctx.step(kept, got) + await beside

    async with server:
        answers.set()
        run = await driver.start(flow)
        assert await driver.run_one_leg() == "parked"
        await driver.signal(run, "s", 1)
        answers.clear()
        leg = await driver.one_leg()
        task = run_of(leg)
        await until(leg, lambda one: one.engine is not None and "flow" in (one.engine.running_on() or ""))
        assert not task.done()
        answers.set()
        assert await task == "completed"
    assert await driver.output(run) == 8


async def test_locks_queues_and_events_between_branches_work_and_replay(driver: Driver, app: App) -> None:
    """60.11 They are no boundaries: they order the branches by the results that the branches are given."""
    seen: dict[int, list[Any]] = {}

    @app.step(repeatable=True)
    async def work(n: int) -> int:
        for _ in range(n * 3):
            await overtaken()
        return n

    @app.workflow()
    async def flow(ctx: Context) -> list[int]:
        log = seen[ctx.attempt] = []
        lock, queue, ready = asyncio.Lock(), asyncio.Queue[int](), asyncio.Event()

        async def producer(n: int) -> None:
            async with lock:
                log.append(("locked", n))
                await queue.put(await ctx.step(work, n))
            log.append(("unlocked", n))
            if n == 2:
                await ctx.sleep("nap", 0.001)
                ready.set()

        async def consumer() -> list[int]:
            got = [await ctx.step(work, await queue.get()) for _ in range(3)]
            log.append(("got", got))
            await ready.wait()
            return got

        async with asyncio.TaskGroup() as group:
            result = group.create_task(consumer())
            for n in (3, 2, 1):
                group.create_task(producer(n))
        return result.result()

    run = await driver.start(flow)
    await driver.run_losing(run, 1)
    assert sorted(await driver.output(run)) == [1, 2, 3]
    logs = [log for _, log in sorted(seen.items())]
    for log in logs:
        assert logs[-1][: len(log)] == log


async def test_what_may_stay_unasked_holds_nothing_while_a_branch_stands_at_a_queue(driver: Driver, app: App) -> None:
    """60.11, 50.4 Whoever is to serve the queue is held for what a try before recorded: where nothing moves for a while, that is passed
    over."""

    @app.step(repeatable=True)
    async def work(what: str) -> str:
        return what

    @app.workflow(retry=Retry(2, on=(OSError,), delay=0))
    async def flow(ctx: Context) -> str:
        if ctx.attempt == 1:
            await ctx.now()
            raise OSError("no route")
        ends: asyncio.Queue[str] = asyncio.Queue()

        async def serve() -> None:
            await ends.put(await ctx.step(work, "in the second try"))

        async with asyncio.TaskGroup() as group:
            group.create_task(serve())
            return await ends.get()

    run = await driver.start(flow)
    await driver.run_until(run)
    assert await driver.output(run) == "in the second try"
