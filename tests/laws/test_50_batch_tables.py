"""Law 50.8 over tables: judged row by row, stored and committed batch by batch, never loaded whole."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import asyncpg
import pytest

from fencepost import App, Context, Csv, Parquet, StepOutcomeUnknown, recovery, values
from fencepost.keys import batch_key
from fencepost.sources import judging
from fencepost.steps import read_open_rows
from tests.legs import ORG, Driver, Effects
from tests.tables import Port, ports, small_pieces

pytestmark = pytest.mark.usefixtures("lawful")


def keys_of(start: int, stop: int) -> str:
    return batch_key([f"K{i}" for i in range(start, stop)])


def batching(app: App, effects: Effects, path: Path, *, size: int = 4, repeatable: bool = False, **options: Any) -> Any:
    """A workflow that hands a file of airports to its step in lists, counting outside the database which began."""

    async def locate(found: list[Port]) -> list[float]:
        effects.happen(",".join(port.ident for port in found))
        return [-port.lat for port in found]

    step = app.step(repeatable=repeatable)(locate)

    async def flow(ctx: Context) -> dict[str, Any]:
        done = await ctx.batch(step, Csv(path), size=size, key="ident", **{"concurrency": 2, **options})
        return {
            "found": [value async for value in done],
            "items": [[key, values] async for key, values in done.items()],
            "failed": [key async for key, _ in done.failures()],
            "unknown": list(done.unknown),
            "counts": [done.completed, done.failed, done.total],
        }

    return app.workflow()(flow)


@pytest.mark.parametrize("every", [0, 3, 7])
async def test_a_table_is_handed_over_in_lists_each_committed_once(
    driver: Driver, app: App, effects: Effects, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, every: int
) -> None:
    """50.8, 50.6 Ten rows in lists of four, whatever is lost between and wherever the file is cut to be stored; the last is shorter."""
    small_pieces(monkeypatch)
    run = await driver.start(batching(app, effects, ports(tmp_path / "a.csv", 10), repeatable=True))
    await (driver.run_losing(run, every) if every else driver.run_until(run))
    out = await driver.output(run)
    assert out["found"] == [-i / 100 for i in range(10)]
    assert [key for key, _ in out["items"]] == [keys_of(0, 4), keys_of(4, 8), keys_of(8, 10)]
    assert [len(values) for _, values in out["items"]] == [4, 4, 2]
    assert out["counts"] == [3, 0, 3]
    assert set(effects.all()) == {"K0,K1,K2,K3", "K4,K5,K6,K7", "K8,K9"}
    if not every:
        assert len(effects.all()) == 3


async def test_a_table_without_rows_has_no_batches(driver: Driver, app: App, effects: Effects, tmp_path: Path) -> None:
    """50.8 Nothing is asked."""
    run = await driver.start(batching(app, effects, ports(tmp_path / "a.csv", 0)))
    assert await driver.run_one_leg() == "completed"
    assert (await driver.output(run))["counts"] == [0, 0, 0]
    assert effects.all() == []


async def test_a_batch_that_does_not_fit_the_step_fails_by_itself(
    driver: Driver, app: App, effects: Effects, tmp_path: Path
) -> None:
    """50.8, 50.6 It counts as one against the tolerance."""
    path = ports(tmp_path / "a.csv", 10, bad=(5, 6))
    run = await driver.start(batching(app, effects, path, tolerance=1))
    assert await driver.run_one_leg() == "completed"
    out = await driver.output(run)
    assert out["failed"] == [keys_of(4, 8)]
    assert out["counts"] == [2, 1, 3]
    assert sorted(effects.all()) == ["K0,K1,K2,K3", "K8,K9"]


async def test_unknown_batches_of_a_table_are_told_together_and_resolved_by_key(
    driver: Driver, app: App, effects: Effects, tmp_path: Path
) -> None:
    """50.8, 50.6 The others are done first, once; each is resolved with the list that it gave."""
    run = await driver.start(batching(app, effects, ports(tmp_path / "a.csv", 12)))
    await driver.lose_at("step.end", nth=2, stand=1)
    assert await driver.run_one_leg() == "unknown"
    assert (await driver.error(run))["keys"] == [keys_of(0, 4), keys_of(4, 8)]
    await driver.resolve(run, "locate", "completed", [1.0] * 4, row=keys_of(0, 4))
    await driver.resolve(run, "locate", "completed", [2.0] * 4, row=keys_of(4, 8))
    assert await driver.run_one_leg() == "completed"
    assert (await driver.output(run))["found"] == [1.0] * 4 + [2.0] * 4 + [-i / 100 for i in range(8, 12)]
    assert sorted(effects.all()) == ["K0,K1,K2,K3", "K4,K5,K6,K7", "K8,K9,K10,K11"]


@pytest.mark.parametrize("change", ["size", "row by row"])
async def test_a_table_that_is_cut_otherwise_is_another(
    driver: Driver, app: App, effects: Effects, tmp_path: Path, change: str
) -> None:
    """50.8, 50.4 The run waits for code that fits; with the old size it goes on."""
    path = ports(tmp_path / "a.csv", 12)
    step = app.step(name="locate", repeatable=True)(lambda rows: rows)
    sizes: list[int | None] = [4, 5 if change == "size" else None, 4]

    @app.workflow()
    async def flow(ctx: Context) -> int:
        size = sizes.pop(0)
        if size is None:
            return (await ctx.map(step, Csv(path), key="ident")).total
        return (await ctx.batch(step, Csv(path), size=size, key="ident")).total

    run = await driver.start(flow)
    await driver.lose_at("row.kept", nth=2)
    assert await driver.run_one_leg() == "unfit"
    assert "read in another way" in (await driver.error(run))["message"]
    assert await recovery.wake(driver.db, ORG, run) == ("done", "queued")
    assert await driver.run_one_leg() == "completed"
    assert await driver.output(run) == 3


async def test_what_is_wrong_with_a_row_is_said_of_the_row(
    driver: Driver, app: App, effects: Effects, admin: asyncpg.Connection, tmp_path: Path
) -> None:
    """50.6, 50.8 A key twice in two batches is found, with both lines, before anything begins."""
    path = ports(tmp_path / "a.csv", 9)
    path.write_text(path.read_text() + "K1,1,\n")
    run = await driver.start(batching(app, effects, path, size=2))
    assert await driver.run_one_leg() == "failed"
    assert "line 11, column ident: the key 'K1' is the key of line 3 too" in (await driver.error(run))["message"]
    assert await admin.fetchval("select count(*) from fencepost.row") == 0


@pytest.mark.parametrize("bytes_more", [0, -1])
async def test_a_batch_of_too_many_bytes_is_refused_before_anything_begins(
    driver: Driver, app: App, effects: Effects, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, bytes_more: int
) -> None:
    """50.6, 50.8, 00.5 With the line where it starts; one that is just not too large is a batch."""
    path = ports(tmp_path / "a.csv", 8)
    last = values.encode([{"ident": f"K{i}", "lat": str(i / 100), "note": ""} for i in range(4, 8)])
    monkeypatch.setattr(judging, "PAYLOAD_BYTES", len(last) + bytes_more)
    run = await driver.start(batching(app, effects, path, size=4))
    if bytes_more == 0:
        assert await driver.run_one_leg() == "completed"
    else:
        assert await driver.run_one_leg() == "failed"
        said = (await driver.error(run))["message"]
        assert said.startswith(f"{path}, line 6: a batch of 4 rows from here on is over")
        assert effects.all() == []


async def test_without_the_extra_the_sentence_names_it(
    driver: Driver, app: App, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """50.6, 50.8 As of a map."""
    for name in [name for name in sys.modules if name.split(".")[0] == "pyarrow"]:
        monkeypatch.setitem(sys.modules, name, None)

    @app.step(repeatable=True)
    async def load(rows: list[Port]) -> list[int]:
        raise AssertionError("began")

    @app.workflow()
    async def flow(ctx: Context) -> None:
        await ctx.batch(load, Parquet(tmp_path / "none.parquet"), size=2, key="ident")

    run = await driver.start(flow)
    assert await driver.run_one_leg() == "failed"
    assert "fencepost[tables]" in (await driver.error(run))["message"]


async def test_of_a_large_table_few_batches_are_held(
    driver: Driver, app: App, effects: Effects, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """50.6, 50.8 Batches come from the database a page at a time."""
    asked: list[int] = []

    async def counted(*args: Any, **options: Any) -> Any:
        page = await read_open_rows(*args, **options)
        asked.append(len(page))
        return page

    monkeypatch.setattr("fencepost.steps.read_open_rows", counted)
    run = await driver.start(batching(app, effects, ports(tmp_path / "a.csv", 1500), size=2))
    assert await driver.run_one_leg() == "completed"
    assert (await driver.output(run))["counts"] == [750, 0, 750]
    assert max(asked) <= 256
    assert len(asked) >= 3


async def test_a_step_that_gives_no_list_is_said_where_its_results_are_read(
    driver: Driver, app: App, tmp_path: Path
) -> None:
    """50.8 What an annotation cannot tell before."""
    path = ports(tmp_path / "a.csv", 3)

    @app.step(repeatable=True)
    def count(rows: list[Port]) -> Any:
        return len(rows)

    @app.workflow()
    async def flow(ctx: Context) -> str:
        done = await ctx.batch(count, Csv(path), size=2, key="ident")
        try:
            return str([one async for one in done])
        except TypeError as error:
            return str(error)

    run = await driver.start(flow)
    assert await driver.run_one_leg() == "completed"
    assert await driver.output(run) == "batch of count: the step gave int, not a list of results"


async def test_code_that_goes_on_from_unknown_batches_is_told_them_again(
    driver: Driver, app: App, effects: Effects, tmp_path: Path
) -> None:
    """50.8, 50.4 On every replay the same keys, and nothing of them is asked again."""
    path = ports(tmp_path / "a.csv", 8)
    told: list[tuple[str, ...]] = []

    @app.step()
    async def locate(found: list[Port]) -> list[float]:
        effects.happen(found[0].ident)
        return [port.lat for port in found]

    @app.workflow()
    async def flow(ctx: Context) -> int:
        try:
            await ctx.batch(locate, Csv(path), size=4, key="ident", concurrency=1)
        except StepOutcomeUnknown as error:
            told.append(error.keys)
        return await ctx.wait_for("go", int)

    run = await driver.start(flow)
    await driver.lose_at("step.end", nth=1)
    assert await driver.run_one_leg() == "parked"
    await driver.signal(run, "go", 1)
    await driver.run_one_leg()
    assert told == [(keys_of(0, 4),)] * 2
    assert sorted(effects.all()) == ["K0", "K4"]
