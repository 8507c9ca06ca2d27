"""Law 50.8: a batch commits per batch; to the record each is a row of a map."""

from __future__ import annotations

from typing import Any

import pytest

from fencepost import App, Context, Csv, StepOutcomeUnknown
from fencepost.keys import batch_key
from tests.legs import Driver, Effects

pytestmark = pytest.mark.usefixtures("lawful")

ROWS = [{"id": f"r{i}", "n": i} for i in range(10)]


def keys_of(start: int, stop: int) -> str:
    return batch_key([f"r{i}" for i in range(start, stop)])


@pytest.mark.parametrize("every", [0, 1, 3])
async def test_each_batch_is_committed_once_and_results_come_in_input_order(
    driver: Driver, app: App, effects: Effects, every: int
) -> None:
    """50.8, 50.6 Ten rows in lists of four: three calls, whatever is lost between; the last is shorter."""

    @app.step(repeatable=True)
    async def load(rows: list[dict[str, Any]]) -> list[int]:
        effects.happen(",".join(row["id"] for row in rows))
        return [row["n"] for row in rows]

    @app.workflow()
    async def flow(ctx: Context) -> list[int]:
        return list(await ctx.batch(load, ROWS, size=4, key="id", concurrency=1))

    run = await driver.start(flow)
    await (driver.run_losing(run, every) if every else driver.run_until(run))
    assert await driver.output(run) == list(range(10))
    assert set(effects.all()) == {"r0,r1,r2,r3", "r4,r5,r6,r7", "r8,r9"}
    if not every:
        assert len(effects.all()) == 3
    assert await driver.states(run) == {"map load#1": "kept"}


async def test_unknown_batches_are_told_together_when_the_others_are_done(
    driver: Driver, app: App, effects: Effects
) -> None:
    """50.8, 50.6 And each is resolved by its key, with the list that it gave."""

    @app.step()
    async def pay(rows: list[dict[str, Any]]) -> list[str]:
        effects.happen(rows[0]["id"])
        return [f"paid {row['id']}" for row in rows]

    told: list[tuple[str, ...]] = []

    @app.workflow()
    async def flow(ctx: Context) -> list[str]:
        try:
            return list(await ctx.batch(pay, ROWS, size=3, key="id", concurrency=2))
        except StepOutcomeUnknown as error:
            told.append(error.keys)
            raise

    run = await driver.start(flow)
    await driver.lose_at("step.end", nth=2, stand=1)
    assert (await driver.run_until(run, "completed", "unknown"))["status"] == "unknown"
    assert told[-1] == (keys_of(0, 3), keys_of(3, 6))
    assert sorted(effects.all()) == ["r0", "r3", "r6", "r9"]
    await driver.resolve(run, "pay", "completed", ["by hand"] * 3, row=keys_of(0, 3))
    await driver.resolve(run, "pay", "failed", "the bank says no", row=keys_of(3, 6))
    doc = await driver.run_until(run)
    assert doc["status"] == "failed", "a failed batch counts against the tolerance"
    assert sorted(effects.all()) == ["r0", "r3", "r6", "r9"]


async def test_failed_and_unknown_batches_are_named_by_their_keys(driver: Driver, app: App) -> None:
    """50.8, 50.6 Where they are tolerated and asked for, the results of the others are given."""

    @app.step(unknown_on=[ConnectionError])
    async def pay(rows: list[dict[str, Any]]) -> list[int]:
        if rows[0]["id"] == "r0":
            raise ValueError("declined")
        if rows[0]["id"] == "r4":
            raise ConnectionError("cut")
        return [row["n"] for row in rows]

    @app.workflow()
    async def flow(ctx: Context) -> Any:
        found = await ctx.batch(pay, ROWS, size=4, key="id", tolerance=1, unknown="return")
        return [list(found), list(found.failed), list(found.unknown)]

    run = await driver.start(flow)
    await driver.run_until(run)
    assert await driver.output(run) == [[8, 9], [keys_of(0, 4)], [keys_of(4, 8)]]


def test_the_key_of_a_batch_says_which_rows_are_in_it() -> None:
    """50.8, 50.3 Other rows, another order or another cut are other batches; keys that could be spelled alike are not."""
    keys = [batch_key(cut) for cut in (["a"], ["a", "b"], ["b", "a"], ["a", "c", "b"], ["a..b", "c"], ["a", "b..c"])]
    assert len(set(keys)) == len(keys)
    assert len(batch_key(["k" * 200, "l" * 200])) <= 200
    assert keys[1].startswith("a..b.")


async def test_rows_cut_otherwise_are_not_taken_for_the_stored_ones(driver: Driver, app: App) -> None:
    """50.8, 50.4 A release that changes the size under a running batch waits for code that fits."""

    def release(app: App, size: int) -> Any:
        @app.step(repeatable=True)
        async def load(rows: list[dict[str, Any]]) -> list[int]:
            return [row["n"] for row in rows]

        @app.workflow()
        async def flow(ctx: Context) -> list[int]:
            return list(await ctx.batch(load, ROWS, size=size, key="id"))

        return flow

    run = await driver.start(release(app, 4))
    await driver.lose_at("row.kept", nth=2)
    driver.app = App("batch")
    release(driver.app, 5)
    assert await driver.run_one_leg() == "unfit"
    assert (await driver.show(run))["status"] == "parked"


async def test_what_is_no_batch_is_refused_before_anything_begins(driver: Driver, app: App) -> None:
    """50.8 A size that means nothing, a key twice, a table that is not there, a step that gives no list."""

    @app.step(repeatable=True)
    async def load(rows: list[dict[str, Any]]) -> list[int]:
        raise AssertionError("began")

    @app.step(repeatable=True)
    async def count(rows: list[dict[str, Any]]) -> int:
        raise AssertionError("began")

    @app.workflow()
    async def flow(ctx: Context) -> list[str]:
        said: list[str] = []
        given: list[tuple[Any, Any, Any]] = [
            (load, ROWS, 0), (load, ROWS, True), (load, [*ROWS, ROWS[0]], 4), (load, Csv("rows.csv"), 4), (count, ROWS, 4),
        ]  # fmt: skip
        for step, rows, size in given:
            try:
                await ctx.batch(step, rows, size=size, key="id")
            except (TypeError, ValueError) as error:
                said.append(type(error).__name__)
        return said

    run = await driver.start(flow)
    await driver.run_until(run)
    assert await driver.output(run) == ["ValueError", "ValueError", "ValueError", "SourceRefused", "TypeError"]
