"""Law 50.4: code sees the same history in the same order, on the first pass and on every replay; what does not fit is parked."""

from __future__ import annotations

import asyncio
import uuid
from collections.abc import Callable
from typing import Any

import asyncpg
import pytest

from fencepost import App, Context, Retry, StepFailed, recovery, step_key
from fencepost.db import Database
from fencepost.testing import pause_at
from fencepost.worker.history import read_page
from fencepost.worker.replay import Engine
from tests.legs import Driver, looked, overtaken, until
from tests.support import lane_of, new_holder, tables

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


# What does not fit


def _v1(app: App) -> None:
    @app.step(repeatable=True)
    async def a(n: int) -> int:
        return n

    @app.step(repeatable=True)
    async def b(n: int) -> int:
        return n

    @app.workflow()
    async def flow(ctx: Context) -> int:
        await ctx.step(a, 1)
        await ctx.step(b, 1)
        await ctx.wait_for("go", int)
        return await ctx.step(a, 2)


Body = Callable[[Context, Any, Any, Any], Any]


async def _inserted(ctx: Context, a: Any, b: Any, new: Any) -> int:
    await ctx.step(a, 1)
    await ctx.step(new, 1)
    await ctx.step(b, 1)
    return await ctx.wait_for("go", int)


async def _removed(ctx: Context, a: Any, b: Any, new: Any) -> int:
    await ctx.step(a, 1)
    await ctx.wait_for("go", int)
    return await ctx.step(a, 2)


async def _renamed(ctx: Context, a: Any, b: Any, new: Any) -> int:
    await ctx.step(a, 1)
    await ctx.step(new, 1)
    await ctx.wait_for("go", int)
    return await ctx.step(a, 2)


async def _arguments(ctx: Context, a: Any, b: Any, new: Any) -> int:
    await ctx.step(a, 1)
    await ctx.step(b, 17)
    return await ctx.wait_for("go", int)


async def _swapped(ctx: Context, a: Any, b: Any, new: Any) -> int:
    await ctx.step(b, 1)
    await ctx.step(a, 1)
    return await ctx.wait_for("go", int)


async def _ended(ctx: Context, a: Any, b: Any, new: Any) -> int:
    return await ctx.step(a, 1)


async def _raised(ctx: Context, a: Any, b: Any, new: Any) -> int:
    raise ValueError("the new code is broken")


async def _other_wait(ctx: Context, a: Any, b: Any, new: Any) -> int:
    await ctx.step(a, 1)
    await ctx.step(b, 1)
    return await ctx.wait_for("come", int)


@pytest.mark.parametrize(
    ("body", "said"),
    [
        (_inserted, "step b#1"), (_removed, "step b#1"), (_renamed, "step b#1"), (_arguments, "other arguments"), (_ended, "step b#1"),
        (_raised, "step a#1"), (_other_wait, "signal go#1"), (_swapped, "step a#1"),
    ],
    ids=lambda value: value.__name__ if callable(value) else "",
)  # fmt: skip
async def test_code_that_does_not_fit_parks_the_run_and_the_old_code_runs_it_on(
    db: Database, admin: asyncpg.Connection, body: Body, said: str
) -> None:
    """50.4 NONDETERMINISM with both histories; nothing else changed; claimed again when a worker registers another digest."""
    old, new = App("old"), App("new")
    _v1(old)

    @new.step(repeatable=True)
    async def a(n: int) -> int:
        return n

    @new.step(repeatable=True)
    async def b(n: int) -> int:
        return n

    @new.step(name="new", repeatable=True)
    async def unheard_of(n: int) -> int:
        raise AssertionError("what is not recorded is held until what is recorded has been asked for")

    @new.workflow()
    async def flow(ctx: Context) -> int:
        return int(await body(ctx, a, b, unheard_of))

    driver = Driver(db, old)
    run = await driver.start("flow")
    assert await driver.run_one_leg() == "parked"
    await driver.signal(run, "go", 7)
    before = await tables(admin, without=("task", "attempt", "event", "incarnation"))
    driver.app = new
    assert await driver.run_one_leg() == "unfit"
    assert await tables(admin, without=("task", "attempt", "event", "incarnation")) == before
    doc = await driver.show(run)
    assert (doc["status"], doc["task"]["park"], doc["tries"]) == ("parked", "code", 0)
    error = await driver.error(run)
    assert error["code"] == "NONDETERMINISM"
    assert said in error["message"]
    assert error["recorded"] == ["step a#1", "step b#1", "signal go#1"]
    assert error["asked"] != error["recorded"]
    worker, lane = await new_holder(db), await lane_of(db)
    assert await driver.claim() == []
    assert await recovery.register_workflows(db, worker, lane, {"flow": new.registry.workflows["flow"].digest}) == 0
    assert await recovery.register_workflows(db, worker, lane, {"flow": "another"}) == 1
    driver.app = old
    assert await driver.run_one_leg() == "completed"
    assert await driver.output(run) == 2


async def test_a_value_that_the_new_code_cannot_read_parks_the_run(db: Database) -> None:
    """50.4, 50.5, B111 UNDECODABLE: nothing is lost, and the code that can read it goes on; an input nobody ever read fails the run."""

    def version(type_: Any, input_type: Any = int) -> App:
        app = App("typed")

        async def give() -> Any:
            return {"n": 1}

        give.__annotations__["return"] = type_
        step = app.step(repeatable=True)(give)

        async def flow(ctx: Context, given: Any) -> Any:
            found = await ctx.step(step)
            await ctx.wait_for("go", int)
            return found

        flow.__annotations__["given"] = input_type
        app.workflow()(flow)
        return app

    driver = Driver(db, version(dict[str, int]))
    run = await driver.start("flow", 3)
    assert await driver.run_one_leg() == "parked"
    await driver.signal(run, "go", 1)
    for unfit in (version(list[str]), version(dict[str, int], list[int])):
        driver.app = unfit
        assert await driver.run_one_leg() == "unfit"
        assert (await driver.error(run))["code"] == "UNDECODABLE"
        assert await recovery.wake(db, "default", run) == ("done", "queued")
    driver.app = version(dict[str, int])
    assert await driver.run_one_leg() == "completed"
    run = await driver.start("flow", "three")
    assert await driver.run_one_leg() == "failed"
    assert (await driver.error(run))["code"] == "UNDECODABLE"


async def test_a_boundary_of_a_kind_that_this_build_does_not_know_parks_the_run(driver: Driver, app: App) -> None:
    """50.5, B53 It raises, and does not count as resolved."""

    @app.workflow()
    async def flow(ctx: Context) -> int:
        return await ctx.wait_for("go", int)

    await driver.start(flow)
    assert await driver.run_one_leg() == "parked"
    for bad in (
        '[["portal","x",1,"kept",3,"",false,true,"1",null,null,null]]',
        '[["signal","x",1,"perhaps",3,"",false,true,"1",null,null,null]]',
    ):
        with pytest.raises(ValueError, match="does not know"):
            read_page(bad)


# Changing code


def _changing(app: App, *, new: bool, log: list[Any]) -> None:
    @app.step(repeatable=True)
    async def a(n: int) -> int:
        return n

    @app.step(name="new", repeatable=True)
    async def better(n: int) -> int:
        return n * 100

    @app.workflow()
    async def flow(ctx: Context) -> int:
        total = 0
        for i in range(3):
            if new:
                changed = await ctx.changed(f"better {i}")
                assert await ctx.changed(f"better {i}") is changed
                log.append((i, changed))
                total += await ctx.step(better if changed else a, i + 1)
            else:
                total += await ctx.step(a, i + 1)
            await ctx.sleep("nap", 0.001)
        return total


async def test_changed_is_false_while_recorded_boundaries_are_still_to_come_and_then_true_and_recorded(
    db: Database,
) -> None:
    """50.4 A run that was half-way takes the new road where its history ends; every later replay takes the same."""
    old, new, log = App("v1"), App("v2"), list[Any]()
    _changing(old, new=False, log=log)
    _changing(new, new=True, log=log)
    driver = Driver(db, old)
    run = await driver.start("flow")
    while "sleep nap#1" not in await driver.states(run):
        await driver.lose_at(
            "statement.executed", nth=2, when=lambda facts: facts["door"] in ("keep_steps", "park_attempts")
        )
    driver.app = new
    await driver.run_losing(run, 1)
    assert await driver.output(run) == 1 + 200 + 300
    assert {entry for entry in log if entry[1]} == {(1, True), (2, True)}
    assert (0, False) in log
    assert (0, True) not in log


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


# A declared workflow retry


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
