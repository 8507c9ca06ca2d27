"""Law 50.9: a step of scope org is done once for an organisation and given to every later asker until its epoch.

Effects are counted in a file outside the database.
"""

from __future__ import annotations

import asyncio
import uuid
from typing import Any

import asyncpg
import pytest

from fencepost import App, Context, Retry, StepFailed, explain, shared
from fencepost.testing import pause_at
from fencepost.words import STALE, Fence
from tests.laws.org_world import World, world
from tests.legs import Driver, Effects

__all__ = ["world"]

pytestmark = pytest.mark.usefixtures("lawful")


async def test_it_is_done_once_and_given_to_every_later_asker(driver: Driver, world: World, effects: Effects) -> None:
    """50.9, 50.1 Five runs, two prices: by their arguments. What was given is each run's own record."""
    domains = ["a", "b", "a", "a", "b"]
    runs = [await driver.start(world.flow, domain) for domain in domains]
    for run in runs:
        await driver.run_until(run)
    assert [await driver.output(run) for run in runs] == [f"price {1 + (d == 'b')} of {d}" for d in domains]
    assert effects.all() == ["a", "b"]
    last = await driver.start(world.flow, "b")
    await driver.run_until(last)
    assert (await driver.states(last), effects.all()) == ({"step price#1": "kept"}, ["a", "b"])


async def test_another_organisation_another_key_and_another_epoch_are_other_entries(
    driver: Driver, app: App, effects: Effects
) -> None:
    """50.9, 97.1 The key may be a function of the arguments, the epoch one of the hour."""
    epoch = "one"

    world = World(app, effects, epoch=lambda: epoch, key=lambda domain: domain.lower())
    first = await driver.start(world.flow, "A")
    await driver.run_until(first)
    again = await driver.start(world.flow, "a")
    await driver.run_until(again)
    assert await driver.output(again) == await driver.output(first)
    await driver.start(world.flow, "a", org="other")
    assert await driver.run_one_leg() == "completed"
    assert effects.all() == ["A", "a"]
    epoch = "two"
    later = await driver.start(world.flow, "a")
    await driver.run_until(later)
    assert (await driver.output(later), effects.all()) == ("price 3 of a", ["A", "a", "a"])
    assert len(set(world.keys)) == 3


async def test_who_asks_while_another_holds_it_parks_and_is_woken_by_its_completion(
    driver: Driver, world: World, effects: Effects
) -> None:
    """50.9, 60.1 It holds nothing meanwhile; the replay of what it was given needs nothing else."""
    first = await driver.start(world.flow, "a")
    holding = await driver.one_leg()
    with pause_at("step.end") as pause:
        task = asyncio.create_task(driver.finish(holding))
        await pause.reached()
        second = await driver.start(world.flow, "a")
        driver._holder = None
        assert await driver.run_one_leg() == "parked"
        await driver.beat()
        shown = await driver.show(second)
        assert shown["status"] == "parked", "nobody has let go"
        assert [wait.what for wait in explain.waits(shown)] == [
            "another run of the organisation, which does step price#1"
        ]
        pause.release()
        assert await task == "completed"
    assert (await driver.show(second))["status"] == "queued", "woken by the completion, not by a sweep"
    await driver.run_until(second)
    assert await driver.output(second) == await driver.output(first) == "price 1 of a"
    assert effects.all() == ["a"]
    assert await driver.states(second) == {"signal org price#1#1": "arrived", "step price#1": "kept"}


@pytest.mark.parametrize("repeatable", [True, False])
async def test_a_lost_holder_lets_go_of_it(driver: Driver, app: App, effects: Effects, repeatable: bool) -> None:
    """50.9, 50.7, 50.11 Repeatable, the waiter does it, with the same key. If not, it is unknown to both, and nobody repeats it."""
    world = World(app, effects, repeatable=repeatable)
    first = await driver.start(world.flow, "a")
    holding = await driver.one_leg()
    with pause_at("step.end") as pause:
        task = asyncio.create_task(holding.run())
        await pause.reached()
        second = await driver.start(world.flow, "a")
        driver._holder = None
        assert await driver.run_one_leg() == "parked"
        await driver.lose(holding, task)
    for run in (second, first):
        await driver.run_until(run, "completed", "unknown")
    if repeatable:
        assert await driver.output(first) == await driver.output(second) == "price 2 of a"
        assert (effects.all(), len(set(world.keys))) == (["a", "a"], 1)
        return
    assert [(await driver.show(run))["status"] for run in (first, second)] == ["unknown", "unknown"]
    assert (effects.all(), set(world.told)) == (["a"], {first, second})


async def test_a_failure_is_the_askers_own_and_the_next_asker_tries(driver: Driver, app: App, effects: Effects) -> None:
    """50.9, 50.10 What failed has not been completed."""
    world = World(app, effects)
    world.fails = 1
    runs = [await driver.start(world.flow, "a") for _ in range(3)]
    for run in runs:
        await driver.run_until(run)
    assert [await driver.output(run) for run in runs] == ["no such domain", "price 2 of a", "price 2 of a"]
    assert effects.all() == ["a", "a"]


@pytest.mark.parametrize("every", [1, 2])
async def test_legs_may_be_lost_anywhere(driver: Driver, app: App, effects: Effects, every: int) -> None:
    """50.9, 50.4 Two branches of one run ask for one entry, another run for it too: all are given one price."""
    world = World(app, effects, repeatable=True)

    @app.workflow()
    async def both(ctx: Context, domain: str) -> list[str]:
        return list(await asyncio.gather(ctx.step(world.price, domain), ctx.step(world.price, domain)))

    run = await driver.start(both, "a")
    await driver.run_losing(run, every)
    other = await driver.start(world.flow, "a")
    await driver.run_until(other)
    assert set(await driver.output(run)) == {await driver.output(other)}
    assert len(set(world.keys)) == 1


async def test_two_branches_of_one_run_do_it_once(driver: Driver, app: App, effects: Effects) -> None:
    """50.9, 60.11 The second waits for the first while it runs, and the leg does not park."""
    world = World(app, effects)

    @app.workflow()
    async def both(ctx: Context, domain: str) -> list[str]:
        return list(await asyncio.gather(ctx.step(world.price, domain), ctx.step(world.price, domain)))

    run = await driver.start(both, "a")
    await driver.run_until(run)
    assert (await driver.output(run), effects.all()) == (["price 1 of a"] * 2, ["a"])


async def test_a_declared_retry_asks_again_for_what_failed(driver: Driver, app: App, effects: Effects) -> None:
    """50.9, 50.10 Its failure is set aside, and the entry is free."""
    world = World(app, effects)
    world.fails = 1

    @app.workflow(retry=Retry(2, on=(StepFailed,), delay=0))
    async def retried(ctx: Context, domain: str) -> str:
        return await ctx.step(world.price, domain)

    run = await driver.start(retried, "a")
    await driver.run_until(run)
    assert (await driver.output(run), effects.all()) == ("price 2 of a", ["a", "a"])


async def test_a_cancelled_waiter_disturbs_nobody(driver: Driver, world: World, effects: Effects) -> None:
    """50.9, 80.4 It is forgotten where it waited; who asked after it is served."""
    await driver.start(world.flow, "a")
    holding = await driver.one_leg()
    with pause_at("step.end") as pause:
        task = asyncio.create_task(driver.finish(holding))
        await pause.reached()
        waiters = [await driver.start(world.flow, "a") for _ in range(2)]
        driver._holder = None
        for _ in waiters:
            assert await driver.run_one_leg() == "parked"
            driver._holder = None
        assert await driver.cancel(waiters[0]) == "accepted"
        pause.release()
        await task
    await driver.run_until(waiters[1])
    assert await driver.output(waiters[1]) == "price 1 of a"
    assert (await driver.show(waiters[0]))["status"] == "cancelled"
    assert effects.all() == ["a"]


async def test_a_dead_fence_takes_nothing(driver: Driver, world: World, admin: asyncpg.Connection) -> None:
    """50.9, 40.3 Nor does a cancelling run; and nothing is written."""
    await driver.start(world.flow, "a")
    leg = await driver.one_leg()
    dead = Fence(leg.fence.rid, leg.fence.number, uuid.uuid4())
    ask: dict[str, Any] = {
        "hash": "", "key": "k", "epoch": "e", "repeatable": True, "timeout_ms": None, "wait": "w", "again": True,
    }  # fmt: skip
    assert await shared.ask(driver.db, dead, "price", 1, **ask) == STALE
    assert await driver.cancel(leg.claimed.id) == "accepted"
    answer = await shared.ask(driver.db, leg.fence, "price", 1, **ask)
    assert type(answer).__name__ == "Cancelling"
    assert await admin.fetchval("select count(*) from fencepost.shared") == 0
    await driver.lose(leg)


async def test_an_answer_that_was_lost_is_given_again(driver: Driver, world: World, admin: asyncpg.Connection) -> None:
    """50.9, 00.3 By the fence that holds it: marked again, and nothing is written twice."""
    await driver.start(world.flow, "a")
    leg = await driver.one_leg()
    ask: dict[str, Any] = {
        "hash": "", "key": "k", "epoch": "e", "repeatable": False, "timeout_ms": 5, "wait": "w", "again": False,
    }  # fmt: skip
    answers = [await shared.ask(driver.db, leg.fence, "price", 1, **ask) for _ in range(2)]
    assert answers[0] == answers[1]
    assert isinstance(answers[0], shared.Entry)
    assert answers[0].how == "marked"
    assert await admin.fetchval("select seq from fencepost.task") == 3  # admitted, claimed, marked
    assert await admin.fetchval("select until is not null from fencepost.boundary") is True
    await driver.lose(leg)


# Declarations


@pytest.mark.parametrize(
    "options",
    [{"scope": "org"}, {"scope": "run", "epoch": "e"}, {"key": str}, {"scope": "team"}, {"scope": "org", "epoch": ""}, {"scope": "org", "epoch": 3}],
    ids=str,
)  # fmt: skip
def test_a_declaration_that_means_nothing_is_refused(app: App, options: dict[str, Any]) -> None:
    """50.9 Without an epoch nobody could say until when; without the scope, key and epoch say nothing."""
    with pytest.raises((TypeError, ValueError)):

        @app.step(**options)
        async def price(domain: str) -> str: ...


async def test_a_map_takes_no_shared_step_and_an_unusable_key_or_epoch_is_the_codes_own_error(
    driver: Driver, app: App, effects: Effects
) -> None:
    """50.9 Before anything begins."""
    world = World(app, effects, epoch=lambda: "", key=lambda domain: 1.5 if domain == "float" else domain)

    @app.workflow()
    async def asks(ctx: Context, what: str) -> str:
        try:
            if what == "map":
                await ctx.map(world.price, ["a"], key=str)
            elif what == "batch":
                await ctx.batch(world.price, ["a"], size=1, key=str)
            else:
                await ctx.step(world.price, what)
        except (TypeError, ValueError) as error:
            return type(error).__name__
        return "given"

    for what, expected in (("map", "TypeError"), ("batch", "TypeError"), ("float", "TypeError"), ("a", "ValueError")):
        run = await driver.start(asks, what)
        await driver.run_until(run)
        assert await driver.output(run) == expected
    assert effects.all() == []
