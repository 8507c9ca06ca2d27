"""Law 50.6: the results of a map as a file, whole or not at all."""

from __future__ import annotations

import csv
import hashlib
import sys
from pathlib import Path
from typing import Any

import pytest

from fencepost import (
    App,
    Context,
    Csv,
    Parquet,
)
from fencepost.testing import at_point
from tests.legs import Driver, Effects
from tests.tables import KINDS, Port, mapping, ports

pytestmark = pytest.mark.usefixtures("lawful")


# Results as a file


async def test_results_are_written_in_input_order_and_only_where_they_are_not_there(
    driver: Driver, app: App, effects: Effects, tmp_path: Path
) -> None:
    """50.6 Key and result, whole or not at all; on a replay the file is made again only if it is gone or another."""
    path, out = ports(tmp_path / "a.csv", 300, bad=(5,)), tmp_path / "out.csv"
    seen: list[Any] = []

    @app.step(repeatable=True)
    async def locate(port: Port) -> dict[str, Any]:
        return {"ident": port.ident, "south": -port.lat, "near": [port.ident], "note": None}

    @app.workflow()
    async def flow(ctx: Context) -> int:
        mapped = await ctx.map(locate, Csv(path), key="ident", tolerance=1, concurrency=7, out=str(out))
        seen.append(mapped.out)
        for word in ("one", "two", "three"):
            await ctx.wait_for(word, int)
        return mapped.total

    run = await driver.start(flow)
    assert await driver.run_one_leg() == "parked"
    first = out.read_bytes()
    with out.open(newline="") as file:
        lines = list(csv.reader(file))
    assert lines[0] == ["ident", "south", "near", "note"]
    assert lines[1:3] == [["K0", "-0.0", '["K0"]', ""], ["K1", "-0.01", '["K1"]', ""]]
    assert [line[0] for line in lines[1:]] == [f"K{i}" for i in range(300) if i != 5]
    assert (seen[0].path, seen[0].sha256, seen[0].rows) == (str(out), hashlib.sha256(first).hexdigest(), 299)
    before = out.stat().st_mtime_ns
    await driver.signal(run, "one", 1)
    assert await driver.run_one_leg() == "parked"
    assert out.stat().st_mtime_ns == before, "it was there, and was written again"
    for word, spoil in (("two", out.unlink), ("three", lambda: out.write_bytes(first[:-1]))):
        spoil()
        await driver.signal(run, word, 1)
        assert await driver.run_one_leg() in ("parked", "completed")
        assert out.read_bytes() == first
    assert seen == [seen[0]] * 4
    assert sorted(one.name for one in tmp_path.iterdir()) == ["a.csv", "effects", "out.csv"]


@pytest.mark.parametrize("listed", [False, True])
@pytest.mark.parametrize("kind", ["parquet", "jsonl", "arrow"])
async def test_results_keep_their_types_where_the_file_has_them(
    driver: Driver, app: App, tmp_path: Path, kind: str, listed: bool
) -> None:
    """50.6 A result that is no object is a column `value`; a field of the key's name that is not the key has another name."""
    path, out = ports(tmp_path / "a.csv", 30), tmp_path / f"out.{kind}"
    results: dict[str, Any] = {
        "K0": {"n": 1, "x": 1, "ok": True, "ident": "mine", "mixed": "a"}, "K1": {"n": 2, "x": 0.5, "ok": None, "mixed": 1}, "K2": 7,
    }  # fmt: skip

    @app.step(repeatable=True)
    async def locate(row: dict[str, Any]) -> Any:
        return results.get(row["ident"], {"n": 3})

    @app.workflow()
    async def flow(ctx: Context) -> Any:
        if listed:
            return (await ctx.map(locate, [{"ident": f"K{i}"} for i in range(30)], key="ident", out=str(out))).out
        return (await ctx.map(locate, Csv(path), key="ident", out=str(out))).out

    run = await driver.start(flow)
    assert await driver.run_one_leg() == "completed"
    output = await driver.output(run)
    assert output["sha256"] == hashlib.sha256(out.read_bytes()).hexdigest()
    rows = [row for _, row in KINDS[out.suffix](out).read(lambda _: None, "ident")]
    assert rows[0] == {
        "ident": "K0",
        "n": 1,
        "x": 1.0,
        "ok": True,
        "result.ident": "mine",
        "mixed": '"a"',
        "value": None,
    }
    assert rows[1] == {"ident": "K1", "n": 2, "x": 0.5, "ok": None, "result.ident": None, "mixed": "1", "value": None}
    assert rows[2]["value"] == 7
    assert [row["n"] for row in rows[3:]] == [3] * 27


async def test_results_that_cannot_be_written_are_refused_before_anything_begins_or_fail_the_map(
    driver: Driver, app: App, effects: Effects, tmp_path: Path
) -> None:
    """50.6, 50.10 A folder that is not there is seen at the call; one that goes meanwhile fails the map, and its rows stay kept."""
    path, folder = ports(tmp_path / "a.csv", 5), tmp_path / "folder"
    flow = mapping(app, effects, Csv(path), out=str(folder / "out.csv"))
    run = await driver.start(flow)
    assert await driver.run_one_leg() == "failed"
    assert "there is no folder" in (await driver.error(run))["message"]
    assert effects.all() == []
    folder.mkdir()
    driver.app = App("tables")
    (tmp_path / "link.csv").symlink_to(path)
    run = await driver.start(mapping(driver.app, effects, Csv(path), out=str(tmp_path / "link.csv")))
    assert await driver.run_one_leg() == "failed"
    assert "over the table that they are made from" in (await driver.error(run))["message"]
    assert effects.all() == []
    driver.app = app
    run = await driver.start(flow)
    with at_point("map.done", lambda _, __: folder.rmdir()):
        assert await driver.run_one_leg() == "failed"
    assert "every row is done, and" in (await driver.error(run))["message"]
    assert (await driver.show(run))["rows"]["completed"] == 5


async def test_without_the_extra_the_sentence_names_it(
    driver: Driver, app: App, effects: Effects, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """50.6 pyarrow is asked for only by whoever names a file of its kinds."""
    path = ports(tmp_path / "a.csv", 3)
    for name in [name for name in sys.modules if name.split(".")[0] == "pyarrow"]:
        monkeypatch.setitem(sys.modules, name, None)
    run = await driver.start(mapping(app, effects, Parquet(path)))
    assert await driver.run_one_leg() == "failed"
    assert "fencepost[tables]" in (await driver.error(run))["message"]
    driver.app = App("tables")
    run = await driver.start(mapping(driver.app, effects, Csv(path), out=str(tmp_path / "out.parquet")))
    assert await driver.run_one_leg() == "failed"
    assert "fencepost[tables]" in (await driver.error(run))["message"]
    assert effects.all() == []
    driver.app = App("tables")
    run = await driver.start(mapping(driver.app, effects, Csv(path)))
    assert await driver.run_one_leg() == "completed"
