"""Law 50.4: a history that does not fit the code parks the run; and how code says that it has changed."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import asyncpg
import pytest

from fencepost import App, Context, recovery
from fencepost.db import Database
from fencepost.worker.history import read_page
from tests.legs import Driver
from tests.support import lane_of, new_holder, tables

pytestmark = pytest.mark.usefixtures("lawful")


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
