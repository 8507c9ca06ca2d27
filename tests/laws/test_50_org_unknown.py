"""Law 50.9: what nobody knows of a step of scope org, nobody repeats; it is resolved once, for all.

Effects are counted in a file outside the database.
"""

from __future__ import annotations

import asyncio
import json
import uuid
from typing import Any

import pytest

from fencepost import Absent, App, Context, Found, Unknown, recovery, terminal
from fencepost.testing import pause_at
from tests.laws.org_world import World, world
from tests.legs import ORG, Driver, Effects

__all__ = ["world"]

pytestmark = pytest.mark.usefixtures("lawful")


async def unknown_to_two(driver: Driver, world: World) -> tuple[str, str]:
    """Two runs: the first was lost inside the step, the second asked afterwards."""
    first = await driver.start(world.flow, "a")
    await driver.lose_at("step.end")
    await driver.run_until(first, "unknown")
    second = await driver.start(world.flow, "a")
    await driver.run_until(second, "unknown")
    await driver.beat()
    assert (await driver.show(second))["status"] == "unknown", "nobody is woken to be told the same again"
    return first, second


@pytest.mark.parametrize("verdict", ["completed", "failed", "again"])
async def test_an_operator_resolves_it_once_for_everybody(
    driver: Driver, world: World, effects: Effects, verdict: str
) -> None:
    """50.9, 85.5 In the run that left it. Completed, all are given it. Failed or again, one of them does it, and the others are given that."""
    first, second = await unknown_to_two(driver, world)
    assert effects.all() == ["a"]
    await driver.resolve(first, "price", verdict, "by hand")
    for run in (first, second):
        await driver.run_until(run)
    given = [await driver.output(run) for run in (first, second)]
    expected = {"completed": ["by hand"] * 2, "failed": ["by hand", "price 2 of a"], "again": ["price 2 of a"] * 2}
    assert (given, effects.count("a")) == (expected[verdict], 1 if verdict == "completed" else 2)
    assert len(set(world.keys)) == 1, "whoever does it does it with the entry's key"


async def test_an_asker_resolved_by_itself_settles_nothing_for_others(
    driver: Driver, world: World, effects: Effects
) -> None:
    """50.9 The run that left it answers for it; what an operator says of another run is that run's alone."""
    first, second = await unknown_to_two(driver, world)
    await driver.resolve(second, "price", "completed", "by hand")
    await driver.run_until(second)
    assert await driver.output(second) == "by hand"
    third = await driver.start(world.flow, "a")
    await driver.run_until(third, "unknown")
    assert (await driver.show(first))["status"] == "unknown"
    assert effects.all() == ["a"]


async def test_late_evidence_accepted_in_the_run_that_left_it_is_given_to_all(
    driver: Driver, world: World, effects: Effects
) -> None:
    """50.9, 50.2 The dead holder came back with its value."""
    first = await driver.start(world.flow, "a")
    holding = await driver.one_leg()
    with pause_at("step.end") as pause:
        task = asyncio.create_task(holding.run())
        await pause.reached()
        await driver.bury(holding)  # nobody hears it, and it runs on
        pause.release()
        assert await task == "stale"
    await driver.run_until(first, "unknown")
    second = await driver.start(world.flow, "a")
    await driver.run_until(second, "unknown")
    await driver.resolve(first, "price", "late")
    for run in (first, second):
        await driver.run_until(run)
        assert await driver.output(run) == "price 1 of a"
    assert effects.all() == ["a"]


# What the look-up of a later asker says; the key honoured; its holder proven gone -> (status, output, effects)
ASKED: list[tuple[Any, bool, bool, tuple[str, str | None, int]]] = [
    (Found("found"), False, False, ("completed", "found", 1)),
    (Absent(), True, False, ("completed", "price 2 of a", 2)),
    (Absent(), False, True, ("completed", "price 2 of a", 2)),
    (Absent(), False, False, ("unknown", None, 1)),
    (Unknown(), True, True, ("unknown", None, 1)),
]


@pytest.mark.parametrize(("answer", "honoured", "proven", "expected"), ASKED, ids=str)
async def test_any_askers_look_up_resolves_it_for_all(
    driver: Driver, app: App, effects: Effects, answer: Any, honoured: bool, proven: bool, expected: tuple[str, str | None, int]
) -> None:  # fmt: skip
    """50.9, 50.11 It is asked with the entry's key. Found is final; Absent permits what it permits elsewhere."""
    asked: list[str] = []

    async def find(key: str, domain: str) -> Any:
        asked.append(key)
        return answer

    world = World(app, effects, lookup=find, settle=0.05, key_honoured=honoured)
    first = await driver.start(world.flow, "a")
    leg = await driver.one_leg()
    with pause_at("step.end") as pause:
        task = asyncio.create_task(leg.run())
        await pause.reached()
        leg.abort("lost")
        assert await task == "stale"
    assert await driver.cancel(first) == "accepted"
    if proven:
        await driver.bury(leg)
    else:
        driver._holder = None
        await recovery.close_incarnation(driver.db, driver._holders[leg], patience=30)
    second = await driver.start(world.flow, "a")
    doc = await driver.run_until(second, "completed", "unknown")
    assert (doc["status"], doc["output"] and json.loads(doc["output"]), effects.count("a")) == expected
    assert set(asked) == set(world.keys)
    third = await driver.start(world.flow, "a")
    doc = await driver.run_until(third, "completed", "unknown")
    assert (doc["status"], doc["output"] and json.loads(doc["output"]), effects.count("a")) == expected


async def test_when_the_run_that_left_it_has_ended_the_next_asker_answers_for_it(
    driver: Driver, world: World, effects: Effects
) -> None:
    """50.9, 85.5 Somebody can always resolve it for all."""
    first = await driver.start(world.flow, "a")
    await driver.lose_at("step.end")
    await driver.run_until(first, "unknown")
    assert (await terminal.end(driver.db, ORG, first, by="a person", reason="enough"))[0] == "done"
    second = await driver.start(world.flow, "a")
    third = await driver.start(world.flow, "a")
    for run in (second, third):
        await driver.run_until(run, "unknown")
    await driver.resolve(second, "price", "completed", "by hand")
    for run in (second, third):
        await driver.run_until(run)
        assert await driver.output(run) == "by hand"
    assert effects.all() == ["a"]


async def test_a_call_stays_with_the_epoch_of_its_first_asking(driver: Driver, app: App, effects: Effects) -> None:
    """50.9, 50.2 A mark of November is no permission to do it again in December."""
    epoch = "2026-11"
    asked: list[str] = []

    async def find(key: str, domain: str) -> Any:
        asked.append(key)
        return Unknown()

    world = World(app, effects, epoch=lambda: epoch, lookup=find)
    first = await driver.start(world.flow, "a")
    await driver.lose_at("step.end")
    epoch = "2026-12"
    await driver.run_until(first, "unknown")
    assert effects.all() == ["a"]
    assert set(asked) == set(world.keys), "it is looked up by November's key"
    later = await driver.start(world.flow, "a")
    await driver.run_until(later)
    assert (await driver.output(later), effects.all()) == ("price 2 of a", ["a", "a"])


async def test_a_redrive_into_a_later_epoch_does_not_do_what_its_origin_may_have_done(
    driver: Driver, app: App, effects: Effects
) -> None:
    """50.9, 85.5 The mark came along; for others the epoch is free."""
    epoch = "2026-11"
    world = World(app, effects, epoch=lambda: epoch)
    first = await driver.start(world.flow, "a")
    await driver.lose_at("step.end")
    await driver.run_until(first, "unknown")
    await terminal.end(driver.db, ORG, first, by="a person", reason="enough")
    epoch = "2026-12"
    again = f"again-{uuid.uuid4().hex}"
    answer = await recovery.redrive(driver.db, ORG, first, new_id=again, from_step=None, again=[], by="a person")
    assert answer == ("created", None)
    await driver.run_until(again, "unknown")
    assert effects.all() == ["a"]
    other = await driver.start(world.flow, "a")
    await driver.run_until(other)
    assert effects.all() == ["a", "a"]


async def test_told_woken_made_to_wait_and_told_again_a_run_replays_it_all(
    driver: Driver, app: App, effects: Effects
) -> None:
    """50.9, 50.4 Every time that it was told, and every wait between, has its place in the run's history."""
    world = World(app, effects)

    @app.workflow()
    async def patient(ctx: Context, domain: str) -> str:
        found: str = await ctx.step(world.price, domain)
        await ctx.sleep("nap", 0.01)
        return found

    first = await driver.start(world.flow, "a")
    await driver.lose_at("step.end")
    await driver.run_until(first, "unknown")
    second = await driver.start(patient, "a")
    await driver.run_until(second, "unknown")
    await driver.resolve(first, "price", "again")
    await driver.beat()
    leg = await driver.one_leg()
    assert leg.claimed.id == first
    with pause_at("step.end") as pause:
        task = asyncio.create_task(leg.run())
        await pause.reached()
        driver._holder = None
        assert await driver.run_one_leg() == "parked"
        await driver.lose(leg, task)
    for run in (first, second):
        await driver.run_until(run, "unknown")
    await driver.resolve(first, "price", "completed", "by hand")
    await driver.run_until(second)
    states = list(await driver.states(second))
    assert (await driver.output(second), effects.count("a")) == ("by hand", 2)
    assert [name for name in states if name.startswith("value unknown")] == [
        "value unknown step price#1#1",
        "value unknown step price#1#2",
    ]
    assert "signal org price#1#1" in states
