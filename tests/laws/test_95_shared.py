"""Laws 50.9 and 95.1: what an organisation's runs share, when the runs are forgotten."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

import asyncpg

from fencepost import App, retention, terminal
from fencepost.db import Database
from fencepost.testing import Clock
from tests.laws.org_world import World, world
from tests.legs import ORG, Driver, Effects

__all__ = ["world"]

NOON = datetime(2031, 5, 6, 12, tzinfo=UTC)


async def test_what_was_shared_outlives_its_run_until_a_later_epoch_has_taken_its_place(
    driver: Driver, app: App, effects: Effects, admin: asyncpg.Connection, clock: Clock, db: Database
) -> None:
    """50.9, 95.1 The run is forgotten, the price is not; an epoch that nobody asks for any more goes, if nothing living is bound to it."""
    await clock.set(NOON)
    epoch = "one"
    world = World(app, effects, epoch=lambda: epoch)
    await driver.run_until(await driver.start(world.flow, "a", id="first"))
    await clock.advance(timedelta(days=31).total_seconds())
    assert await retention.retain(db) == (0, 1)
    assert await admin.fetchval("select count(*) from fencepost.run") == 0
    await driver.run_until(await driver.start(world.flow, "a", id="second"))
    assert (await driver.output("second"), effects.all()) == ("price 1 of a", ["a"])
    await clock.advance(timedelta(days=31).total_seconds())
    await retention.retain(db)
    assert await admin.fetchval("select count(*) from fencepost.shared") == 1, "its epoch is still the last"
    epoch = "two"
    await driver.run_until(await driver.start(world.flow, "a", id="third"))
    await retention.retain(db)
    assert [r[0] for r in await admin.fetch("select epoch from fencepost.shared")] == ["two"]
    assert (
        await admin.fetchval("select count(*) from fencepost.asker where rid not in (select rid from fencepost.run)")
        == 0
    )


async def test_an_unknown_that_is_forgotten_with_its_run_stays_unknown(
    driver: Driver, world: World, effects: Effects, clock: Clock, db: Database
) -> None:
    """50.9, 50.7 Forgetting is no permission."""
    await clock.set(NOON)
    first = await driver.start(world.flow, "a")
    await driver.lose_at("step.end")
    await driver.run_until(first, "unknown")
    await terminal.end(driver.db, ORG, first, by="a person", reason="enough")
    await clock.advance(timedelta(days=31).total_seconds())
    assert (await retention.retain(db))[1] == 1
    second = await driver.start(world.flow, "a")
    third = await driver.start(world.flow, "a")
    for run in (second, third):
        await driver.run_until(run, "unknown")
    await driver.resolve(second, "price", "completed", "by hand")
    await driver.run_until(third)
    assert (await driver.output(third), effects.all()) == ("by hand", ["a"])
