"""Law 50.6: a map's rows are kept by key, once; a loss takes no committed row and repeats none that is unknown."""

from __future__ import annotations

import asyncio
from typing import Any

import asyncpg
import pytest

from fencepost import Absent, App, Context, Found, Retry, StepFailed, StepOutcomeUnknown, recovery
from fencepost.db import Database
from fencepost.testing import pause_at
from tests.legs import Driver, Effects, overtaken
from tests.support_runs import rows_of

pytestmark = pytest.mark.usefixtures("lawful")

ROWS = [{"id": f"r{i}", "n": i} for i in range(12)]


# Losses


@pytest.mark.parametrize("every", [1, 4])
async def test_rows_of_a_repeatable_step_are_kept_once_whatever_is_lost(
    driver: Driver, app: App, effects: Effects, every: int
) -> None:
    """50.6 No committed row runs again; results come in input order, whatever order they were done in."""

    @app.step(repeatable=True)
    async def work(row: dict[str, Any]) -> str:
        for _ in range((row["n"] * 7) % 5):
            await overtaken()
        effects.happen(row["id"])
        return f"done {row['n']}"

    @app.workflow()
    async def flow(ctx: Context) -> list[str]:
        found = await ctx.map(work, ROWS, key="id", concurrency=3)
        assert (found.failed, found.unknown) == ({}, ())
        return list(found)

    run = await driver.start(flow)
    doc = await driver.run_losing(run, every)
    assert await driver.output(run) == [f"done {i}" for i in range(12)]
    assert doc["rows"] == {"completed": 12, "failed": 0, "unknown": 0, "skipped": 0, "total": 12}
    # At most the rows that were in flight when a leg was lost ran again.
    losses = len([one for one in doc["attempt_history"] if one["ended"] == "lost"])
    assert losses > 2
    assert len(effects.all()) <= 12 + 3 * losses
    assert set(effects.all()) == {row["id"] for row in ROWS}


async def test_unknown_rows_are_raised_together_when_every_other_row_is_done(
    driver: Driver, app: App, effects: Effects, admin: asyncpg.Connection
) -> None:
    """50.6 Lost with three rows in flight: none of them runs again, all others do, once; one error names the three; they resolve by key."""
    told: list[tuple[str, ...]] = []

    @app.step()
    async def pay(row: dict[str, Any]) -> str:
        effects.happen(row["id"])
        return f"receipt {row['n']}"

    @app.workflow()
    async def flow(ctx: Context) -> list[str]:
        try:
            return list(await ctx.map(pay, ROWS, key="id", concurrency=3))
        except StepOutcomeUnknown as error:
            told.append(error.keys)
            raise

    run = await driver.start(flow)
    await driver.lose_at("step.end", nth=7, stand=5)
    kept = [key for key, state in await rows_of(admin, "key", "state") if state == "kept"]
    marked = [key for key, state in await rows_of(admin, "key", "state") if state == "marked"]
    assert len(kept) >= 2
    assert marked
    assert await driver.run_one_leg() == "unknown"
    assert told == [tuple(marked)]
    assert sorted(effects.all()) == sorted(row["id"] for row in ROWS)
    doc = await driver.show(run)
    assert (doc["rows"]["completed"], doc["rows"]["unknown"]) == (12 - len(marked), len(marked))
    error = await driver.error(run)
    assert error["keys"] == marked
    for i, key in enumerate(marked):
        assert (await driver.show(run))["status"] == "unknown"
        await driver.resolve(run, "pay", "completed" if i else "again", f"{key} by hand", row=key)
    assert await driver.run_one_leg() == "completed"
    output = await driver.output(run)
    for row in ROWS:
        by_hand = row["id"] in marked[1:]
        assert output[int(row["n"])] == (f"{row['id']} by hand" if by_hand else f"receipt {row['n']}")
    assert effects.count(marked[0]) == 2
    assert all(effects.count(row["id"]) == 1 for row in ROWS if row["id"] != marked[0])


async def test_unknown_rows_are_returned_when_asked_for_and_stay_so_for_the_code(
    driver: Driver, app: App, effects: Effects
) -> None:
    """50.6, 50.4 The map is kept with them: a later resolution is for the record, and every replay sees what the first pass saw."""
    seen: list[Any] = []

    @app.step()
    async def pay(row: dict[str, Any]) -> int:
        effects.happen(row["id"])
        return int(row["n"])

    @app.workflow()
    async def flow(ctx: Context) -> list[Any]:
        found = await ctx.map(pay, ROWS[:4], key="id", unknown="return")
        seen.append((list(found), sorted(found.failed), found.unknown))
        await ctx.wait_for("go", int)
        return [list(found), list(found.unknown)]

    run = await driver.start(flow)
    await driver.lose_at("step.end", nth=4, stand=3)
    assert await driver.run_one_leg() == "parked"
    unknown = seen[0][2]
    assert 2 <= len(unknown) <= 4
    for i, key in enumerate(unknown):
        await driver.resolve(run, "pay", "failed" if i else "completed", 99, row=key)
    await driver.signal(run, "go", 1)
    await driver.run_losing(run, 1)
    assert len(seen) > 1
    assert all(one == seen[0] for one in seen)
    assert (await driver.output(run))[1] == list(unknown)


async def test_rows_are_looked_up_by_their_own_keys(driver: Driver, app: App, effects: Effects) -> None:
    """50.6, 50.11 Found: kept. Absent with an honoured key: run again, with the key it had. Anything else: unknown."""
    from fencepost import step_key

    keys: dict[str, set[str]] = {}
    asked: dict[str, str] = {}

    async def ask(key: str, row: dict[str, Any]) -> Any:
        asked[row["id"]] = key
        if row["n"] == 0:
            return Found("found")
        if row["n"] == 1:
            return Absent()
        raise ConnectionError("away")

    @app.step(lookup=ask, key_honoured=True)
    async def pay(row: dict[str, Any]) -> str:
        effects.happen(row["id"])
        keys.setdefault(row["id"], set()).add(step_key())
        return "paid"

    @app.workflow()
    async def flow(ctx: Context) -> list[Any]:
        found = await ctx.map(pay, ROWS[:3], key="id", unknown="return")
        return [*found, *found.unknown]

    run = await driver.start(flow)
    await driver.lose_at("step.end", nth=3, stand=1)
    assert await driver.run_one_leg() == "completed"
    assert await driver.output(run) == ["found", "paid", "r2"]
    assert {key: {asked[key]} for key in asked} == keys
    assert [effects.count(row["id"]) for row in ROWS[:3]] == [1, 2, 1]


async def test_a_time_out_inside_a_row_makes_the_row_unknown(driver: Driver, app: App) -> None:
    """50.6, 50.10 Not failed: it counts against no tolerance."""

    @app.step(timeout=0.05)
    async def pay(row: dict[str, Any]) -> int:
        if row["n"] == 1:
            await asyncio.Event().wait()
        return int(row["n"])

    @app.workflow()
    async def flow(ctx: Context) -> list[int]:
        return list(await ctx.map(pay, ROWS[:3], key="id"))

    run = await driver.start(flow)
    assert await driver.run_one_leg() == "unknown"
    assert (await driver.error(run))["keys"] == ["r1"]


# Failures


async def test_more_failures_than_are_tolerated_fail_the_map_and_stop_it(
    driver: Driver, app: App, effects: Effects
) -> None:
    """50.6, 50.10 StepFailed, the same on replay; rows that were not begun never begin. Within the tolerance they are in `.failed`."""
    said: list[str] = []

    @app.step(repeatable=True)
    async def work(row: dict[str, Any]) -> int:
        effects.happen(row["id"])
        if row["n"] % 3 == 0:
            raise ValueError(f"row {row['n']}")
        return int(row["n"])

    @app.workflow()
    async def flow(ctx: Context) -> list[Any]:
        try:
            await ctx.map(work, ROWS, key="id", concurrency=1, tolerance=1)
        except StepFailed as error:
            said.append(str(error))
        some = await ctx.map(work, ROWS[:4], key="id", tolerance=2)
        said.append(" ".join(sorted(f"{key}:{failed}" for key, failed in some.failed.items())))
        return list(some)

    run = await driver.start(flow)
    await driver.run_losing(run, 3)
    assert await driver.output(run) == [1, 2]
    assert len(set(said)) == 2
    assert "2 of 12 rows failed, 1 tolerated; the first, r0: row 0" in said[0]
    assert "r11" not in effects.all()


async def test_a_declared_retry_asks_failed_rows_again_and_no_kept_one(
    driver: Driver, app: App, effects: Effects
) -> None:
    """50.10, 50.6 Also of a step that is not repeatable: what is kept never runs again, whatever was set aside around it."""

    @app.step()
    async def pay(row: dict[str, Any]) -> int:
        effects.happen(row["id"])
        if row["n"] == 2 and effects.count("r2") < 3:
            raise OSError("not yet")
        return int(row["n"])

    @app.workflow(retry=Retry(5, on=(StepFailed,), delay=0))
    async def flow(ctx: Context) -> list[int]:
        return list(await ctx.map(pay, ROWS[:5], key="id", concurrency=1))

    run = await driver.start(flow)
    doc = await driver.run_until(run, "completed", "unknown", "failed")
    assert doc["status"] == "completed", doc["error"]
    assert await driver.output(run) == [0, 1, 2, 3, 4]
    assert [effects.count(row["id"]) for row in ROWS[:5]] == [1, 1, 3, 1, 1]
    assert doc["attempts"] == 3


async def test_other_rows_after_a_declared_retry_are_never_given_the_values_of_the_old_ones(
    driver: Driver, app: App, effects: Effects
) -> None:
    """50.4 The map is stored by place: a list that changed under it parks the run, rather than mixing rows up."""

    @app.step(repeatable=True)
    async def work(row: str) -> str:
        effects.happen(row)
        if effects.count(row) == 1 and row == "b":
            raise OSError("once")
        return f"did {row}"

    @app.workflow(retry=Retry(2, on=(StepFailed,), delay=0))
    async def flow(ctx: Context) -> list[str]:
        return list(await ctx.map(work, ["a", "b"] if "b" not in effects.all() else ["b", "a"], key=str))

    run = await driver.start(flow)
    assert await driver.run_one_leg() == "retrying"
    assert await driver.run_one_leg() == "unfit"
    assert "other rows than are stored" in (await driver.error(run))["message"]


# As one boundary


async def test_every_row_is_stored_before_the_first_begins(driver: Driver, app: App, admin: asyncpg.Connection) -> None:
    """50.6 With its key and its place."""

    @app.step(repeatable=True)
    async def work(row: dict[str, Any]) -> int:
        return int(row["n"])

    @app.workflow()
    async def flow(ctx: Context) -> int:
        return len(await ctx.map(work, ROWS, key="id", concurrency=1))

    await driver.start(flow)
    with pause_at("step.begin") as pause:
        task = asyncio.create_task(driver.run_one_leg())
        await pause.reached()
        assert await rows_of(admin, "index", "key") == [(i, f"r{i}") for i in range(12)]
        assert (await rows_of(admin, "state")).count("waiting") == 11
        pause.release()
        assert await task == "completed"


async def test_a_map_is_one_boundary_in_the_order_of_results(driver: Driver, app: App) -> None:
    """50.6, 50.4 Beside another branch, which it must not let overtake on a replay, though its rows are read again there."""
    logs: dict[int, list[str]] = {}
    mapped = [asyncio.Event() for _ in range(4)]

    @app.step(repeatable=True)
    async def work(n: int) -> int:
        return n

    @app.step(repeatable=True)
    async def beside(n: int) -> int:
        await mapped[n].wait()
        return n

    @app.workflow()
    async def flow(ctx: Context) -> int:
        log = logs[ctx.attempt] = []

        async def branch(name: str, step: Any) -> int:
            total = 0
            for n in range(4):
                if step is work:
                    total += sum(await ctx.map(work, range(n + 1), key=lambda n: n))
                    mapped[n].set()
                else:
                    total += await ctx.step(beside, n)
                log.append(f"{name} {n}")
            return total

        return sum(await asyncio.gather(branch("map", work), branch("step", beside)))

    run = await driver.start(flow)
    await driver.run_losing(run, 2)
    assert await driver.output(run) == 10 + 6
    *attempts, last = [log for _, log in sorted(logs.items())]
    assert len(attempts) > 3
    for log in attempts:
        assert last[: len(log)] == log


async def test_a_map_whose_rows_the_new_code_cannot_read_parks_the_run(db: Database) -> None:
    """50.6, 50.4 UNDECODABLE, and not an exception for the code to swallow."""

    def version(type_: Any) -> App:
        app = App("typed")

        async def work(row: str) -> Any:
            return row

        work.__annotations__["return"] = type_
        step = app.step(repeatable=True)(work)

        @app.workflow()
        async def flow(ctx: Context) -> str:
            try:
                await ctx.map(step, ["a"], key=str)
            except Exception:
                return "swallowed"
            await ctx.wait_for("go", int)
            return "ok"

        return app

    driver = Driver(db, version(str))
    run = await driver.start("flow")
    assert await driver.run_one_leg() == "parked"
    await driver.signal(run, "go", 1)
    driver.app = version(int)
    assert await driver.run_one_leg() == "unfit"
    assert (await driver.error(run))["code"] == "UNDECODABLE"
    driver.app = version(str)
    assert await recovery.wake(db, "default", run) == ("done", "queued")
    assert await driver.run_one_leg() == "completed"


async def test_a_branch_cancelled_inside_a_map_leaves_its_rows_unknown(
    driver: Driver, app: App, effects: Effects
) -> None:
    """50.6, 60.11"""
    inside = asyncio.Event()

    @app.step()
    async def pay(row: str) -> None:
        effects.happen(row)
        inside.set()
        await asyncio.Event().wait()

    @app.workflow()
    async def flow(ctx: Context) -> str:
        task = asyncio.create_task(ctx.map(pay, ["a", "b"], key=str, concurrency=1))
        await ctx.wait_for("go", int)
        task.cancel()
        await asyncio.wait({task})
        assert task.cancelled()
        return "ok"

    run = await driver.start(flow)
    task = asyncio.create_task(driver.run_one_leg())
    await inside.wait()
    await driver.signal(run, "go", 1)
    assert await task == "completed"
    assert (await driver.show(run))["rows"]["unknown"] == 1
    assert effects.all() == ["a"]
