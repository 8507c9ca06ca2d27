"""Chapter 60: branches of a workflow's code: when a leg parks, who wins a race, and what unwinding leaves behind."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Awaitable, Callable, Coroutine
from typing import Any

import asyncpg
import pytest

from fencepost import App, Arrived, Context, RunCancelled, StepFailed, TimedOut
from fencepost.testing import Clock, pause_at
from fencepost.worker.leg import Leg
from tests.legs import Driver, Effects, looked, overtaken, until

pytestmark = pytest.mark.usefixtures("lawful")


def run_of(leg: Leg) -> asyncio.Task[str]:
    return asyncio.create_task(leg.run(), name="the leg")


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
    await driver.run_until("slow one" if False else run, "parked")
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
