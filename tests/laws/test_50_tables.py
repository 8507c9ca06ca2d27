"""Law 50.6 over tables: their rows, the file and the record, losses and the unknown."""

from __future__ import annotations

import csv
import hashlib
import json
from pathlib import Path
from typing import Any

import pytest

from fencepost import (
    App,
    ArrowFile,
    Context,
    Csv,
    JsonLines,
    Parquet,
    StepOutcomeUnknown,
    ledger,
    recovery,
)
from fencepost.sources.table import Table
from fencepost.testing import at_point
from tests.legs import ORG, Driver, Effects
from tests.tables import Port, arrow, mapping, parquet, ports, small_pieces

pytestmark = pytest.mark.usefixtures("lawful")


# Rows


@pytest.mark.parametrize("kind", ["csv", "jsonl", "parquet", "arrow", "arrows"])
async def test_rows_of_every_kind_become_what_the_step_takes(
    driver: Driver, app: App, effects: Effects, tmp_path: Path, kind: str
) -> None:
    """50.6 In input order, whatever order they were done in; the step's parameter type says what a text becomes."""
    rows = {"ident": [f"K{i}" for i in range(9)], "lat": [i / 4 for i in range(9)]}
    path = tmp_path / f"a.{kind}"
    tables: dict[str, Table] = {"csv": Csv(path), "jsonl": JsonLines(path), "parquet": Parquet(path)}
    match kind:
        case "csv":
            path.write_text(
                "ident,lat\n" + "".join(f"{k},{v}\n" for k, v in zip(rows["ident"], rows["lat"], strict=True))
            )
        case "jsonl":
            path.write_text(
                "\n".join(json.dumps({"ident": k, "lat": v}) for k, v in zip(rows["ident"], rows["lat"], strict=True))
            )
        case "parquet":
            parquet(rows)(path)
        case _:
            arrow(rows, stream=kind == "arrows")(path)
    run = await driver.start(mapping(app, effects, tables.get(kind, ArrowFile(path)), concurrency=3))
    assert await driver.run_one_leg() == "completed"
    output = await driver.output(run)
    assert output["found"] == [-i / 4 for i in range(9)]
    assert output["keys"] == rows["ident"]
    assert output["counts"] == [9, 0, 0, 9]
    assert sorted(effects.all()) == rows["ident"]


async def test_how_a_csv_file_is_read(driver: Driver, app: App, tmp_path: Path) -> None:
    """50.6 Another encoding and delimiter, no header, chosen columns, empty cells that are null, a key made by a function."""
    path = tmp_path / "a.csv"
    path.write_bytes("Zürich;1;;x\n\nGenève;2;n;y\n".encode("latin-1"))
    rows: list[dict[str, Any]] = []

    @app.step(repeatable=True)
    async def take(row: dict[str, Any]) -> str:
        rows.append(row)
        return str(row["name"])

    table = Csv(path, encoding="latin-1", delimiter=";", header=False, columns=["name", "n", "note", "z"], empty=None)

    @app.workflow()
    async def flow(ctx: Context) -> list[Any]:
        mapped = await ctx.map(take, table, key=lambda row: f"{row['name']}-{row['n']}", concurrency=1)
        return [pair async for pair in mapped.items()]

    run = await driver.start(flow)
    assert await driver.run_one_leg() == "completed"
    assert await driver.output(run) == [["Zürich-1", "Zürich"], ["Genève-2", "Genève"]]
    assert rows[0] == {"name": "Zürich", "n": "1", "note": None, "z": "x"}


@pytest.mark.parametrize("rows", [12, 600])
async def test_a_row_that_does_not_fit_the_step_fails_by_itself(
    driver: Driver, app: App, effects: Effects, tmp_path: Path, rows: int
) -> None:
    """50.6 It counts against the tolerance; every other row is done, on the first pass and after a loss."""
    path = ports(tmp_path / "a.csv", rows, bad=(3, 7))
    run = await driver.start(mapping(app, effects, Csv(path), repeatable=True, tolerance=2))
    await driver.lose_at("row.kept", nth=6)
    assert await driver.run_one_leg() == "completed"
    output = await driver.output(run)
    assert output["counts"] == [rows - 2, 2, 0, rows]
    assert output["failed"].keys() == {"K3", "K7"}
    assert "the row does not fit Port: $.lat: " in output["failed"]["K3"]
    assert output["found"] == [-i / 100 for i in range(rows) if i not in (3, 7)]


@pytest.mark.parametrize(("tolerance", "fails"), [(0.03, False), (0.02, True), (3, False), (2, True)])
@pytest.mark.parametrize("listed", [False, True])
async def test_tolerance_is_a_number_of_rows_or_a_share_of_all(
    driver: Driver, app: App, effects: Effects, tmp_path: Path, tolerance: float, fails: bool, listed: bool
) -> None:
    """50.6 Of 100 rows 3 fail."""
    path = ports(tmp_path / "a.csv", 100)

    @app.step(repeatable=True)
    async def locate(port: dict[str, str]) -> str:
        if port["ident"] in ("K1", "K50", "K99"):
            raise LookupError("nowhere")
        return port["ident"]

    @app.workflow()
    async def flow(ctx: Context) -> int:
        if listed:
            with path.open() as file:
                return len(await ctx.map(locate, list(csv.DictReader(file)), key="ident", tolerance=tolerance))
        return (await ctx.map(locate, Csv(path), key="ident", tolerance=tolerance)).completed

    run = await driver.start(flow)
    if fails:
        assert await driver.run_one_leg() == "failed"
        assert "3 of 100 rows failed, 2 tolerated; the first, K1: nowhere" in (await driver.error(run))["message"]
    else:
        assert await driver.run_one_leg() == "completed"
        assert await driver.output(run) == 97


@pytest.mark.parametrize("tolerance", [-1, 1.0, 0.0, 1.5, -0.1, float("nan"), float("inf"), True, "2%"])
async def test_a_tolerance_that_means_nothing_is_refused(
    driver: Driver, app: App, effects: Effects, tmp_path: Path, tolerance: Any
) -> None:
    """50.6 At the call, before anything begins."""
    path = ports(tmp_path / "a.csv", 3)
    run = await driver.start(mapping(app, effects, Csv(path), tolerance=tolerance))
    assert await driver.run_one_leg() == "failed"
    assert "tolerance" in (await driver.error(run))["message"]
    assert effects.all() == []


# The file and the record


async def test_a_file_that_changed_parks_the_run_and_says_so(
    driver: Driver, app: App, effects: Effects, tmp_path: Path
) -> None:
    """50.4, 50.6 Nothing else is changed; with the old file back the run goes on, and no row runs again."""
    path = ports(tmp_path / "a.csv", 40)
    old = path.read_bytes()
    run = await driver.start(mapping(app, effects, Csv(path), repeatable=True))
    await driver.lose_at("row.kept", nth=10)
    begun = effects.all()
    path.write_bytes(old + b"K40,1,\n")
    assert await driver.run_one_leg() == "unfit"
    error = await driver.error(run)
    assert error["code"] == "NONDETERMINISM"
    digests = [hashlib.sha256(data).hexdigest() for data in (old, path.read_bytes())]
    assert (
        f"{path} has changed since the map began: its SHA-256 was {digests[0]} and is {digests[1]}." in error["message"]
    )
    assert effects.all() == begun
    path.write_bytes(old)
    assert await recovery.wake(driver.db, ORG, run) == ("done", "queued")
    assert await driver.run_one_leg() == "completed"
    assert (await driver.output(run))["counts"] == [40, 0, 0, 40]
    assert len(effects.all()) <= 40 + 4
    assert all(effects.count(key) <= 2 for key in begun)


@pytest.mark.parametrize("change", ["columns", "delimiter", "key", "list"])
async def test_a_table_that_is_read_in_another_way_is_another(
    driver: Driver, app: App, effects: Effects, tmp_path: Path, change: str
) -> None:
    """50.4 Columns, delimiter and key are arguments like the bytes."""
    path = ports(tmp_path / "a.csv", 10)
    step = app.step(name="take", repeatable=True)(lambda row: row)
    asked: list[int] = []

    @app.workflow()
    async def flow(ctx: Context) -> int:
        asked.append(1)
        if len(asked) == 1 or change not in ("key", "list"):
            options: dict[str, Any] = {}
            if len(asked) > 1:
                options = {"columns": ["ident", "lat"]} if change == "columns" else {"delimiter": ";"}
            return (await ctx.map(step, Csv(path, **options), key="ident")).total
        if change == "key":
            return (await ctx.map(step, Csv(path), key="lat")).total
        return len(await ctx.map(step, [{"ident": "K0"}], key="ident"))

    run = await driver.start(flow)
    await driver.lose_at("row.kept", nth=3)
    assert await driver.run_one_leg() == "unfit"
    assert (await driver.error(run))["code"] == "NONDETERMINISM"


async def test_a_file_is_not_needed_once_its_rows_are_stored(
    driver: Driver, app: App, effects: Effects, tmp_path: Path
) -> None:
    """50.6 The rows in the database are the record: another machine that has no such file goes on."""
    path = ports(tmp_path / "a.csv", 30)
    run = await driver.start(mapping(app, effects, Csv(path), repeatable=True))
    await driver.lose_at("row.kept", nth=10)
    path.unlink()
    assert await driver.run_one_leg() == "completed"
    assert (await driver.output(run))["counts"] == [30, 0, 0, 30]


async def test_a_file_that_is_gone_before_its_rows_are_stored_parks_the_run(
    driver: Driver, app: App, effects: Effects, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """50.4, 50.6 Half of the rows are no table; with the file back all of them are."""
    small_pieces(monkeypatch)
    path = ports(tmp_path / "a.csv", 30)
    content = path.read_bytes()
    run = await driver.start(mapping(app, effects, Csv(path)))
    await driver.lose_at("statement.executed", nth=3, when=lambda facts: facts["door"] == "open_map")
    path.unlink()
    assert await driver.run_one_leg() == "unfit"
    assert f"{path} is gone, and not all of its rows had been stored" in (await driver.error(run))["message"]
    assert effects.all() == []
    path.write_bytes(content)
    assert await recovery.wake(driver.db, ORG, run) == ("done", "queued")
    assert await driver.run_one_leg() == "completed"
    assert (await driver.output(run))["found"] == [-i / 100 for i in range(30)]


@pytest.mark.parametrize("change", ["longer", "much longer", "shorter", "first", "last", "worse"])
async def test_a_file_that_changes_between_the_two_readings_begins_nothing(
    driver: Driver, app: App, effects: Effects, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, change: str
) -> None:
    """50.6 What is stored is what was judged, to the byte."""
    small_pieces(monkeypatch)
    path = ports(tmp_path / "a.csv", 30)
    whole = path.read_bytes()
    changes = {
        "longer": whole + b"K30,1,\n",
        "much longer": whole + b"".join(b"L%d,1,\n" % i for i in range(99)),
        "shorter": whole[: len(whole) // 2],
        "first": whole.replace(b"K0,0.0", b"K0,9.0"),
        "last": whole.replace(b"K29,0.29", b"K29,0.30"),
        "worse": whole + b"K30\n",
    }
    run = await driver.start(mapping(app, effects, Csv(path)))

    def changed(_: dict[str, Any], n: int) -> None:
        if n == 1:
            path.write_bytes(changes[change])

    with at_point("statement.before", changed, when=lambda facts: facts["door"] == "open_map"):
        assert await driver.run_one_leg() == "unfit"
    assert "it was changed while it was being read" in (await driver.error(run))["message"]
    assert effects.all() == []
    path.write_bytes(whole)
    assert await recovery.wake(driver.db, ORG, run) == ("done", "queued")
    assert await driver.run_one_leg() == "completed"
    assert (await driver.output(run))["found"] == [-i / 100 for i in range(30)]


# Losses and the unknown


@pytest.mark.parametrize("every", [3, 7])
async def test_rows_of_a_table_are_kept_once_whatever_is_lost(
    driver: Driver, app: App, effects: Effects, tmp_path: Path, every: int
) -> None:
    """50.6, 90.2 As of a list: no committed row runs again; results in input order; whoever follows may leave the rows out."""
    path = ports(tmp_path / "a.csv", 12)
    run = await driver.start(mapping(app, effects, Csv(path), repeatable=True, concurrency=2))
    doc = await driver.run_losing(run, every)
    assert doc["status"] == "completed"
    assert (await driver.output(run))["found"] == [-i / 100 for i in range(12)]
    losses = len([one for one in doc["attempt_history"] if one["ended"] == "lost"])
    assert losses > 1
    assert len(effects.all()) <= 12 + 2 * losses
    every = await ledger.read_events(driver.db, ORG, run, after=0)
    own = [event for event in every if not event.type.startswith("row.")]
    assert await ledger.read_events(driver.db, ORG, run, after=0, rows=False) == own


async def test_unknown_rows_of_a_table_are_raised_together_and_resolve_in_bulk(
    driver: Driver, app: App, effects: Effects, tmp_path: Path
) -> None:
    """50.6, 85.5 Every other row is done first, once; one word resolves them all, each with its audit line."""
    path = ports(tmp_path / "a.csv", 25)
    run = await driver.start(mapping(app, effects, Csv(path)))
    await driver.lose_at("step.end", nth=9, stand=6)
    assert await driver.run_one_leg() == "unknown"
    keys = (await driver.error(run))["keys"]
    assert len(keys) == 4
    assert sorted(effects.all()) == sorted(f"K{i}" for i in range(25))
    # Woken in between, the code is told the same, and nothing of them runs.
    answers = await recovery.resolve_rows(
        driver.db, ORG, run, step="locate", ordinal=1, keys=[keys[0], "K0", "nobody", *keys[1:]], verdict="completed",
        value='{"south":0}', by="a person",
    )  # fmt: skip
    done = ("done", None)
    assert answers[0] == done
    assert answers[1:3] == [("refused", "no unknown row has this key"), ("not_found", "no unknown row has this key")]
    assert answers[3:] == [done] * 3
    assert await driver.run_one_leg() == "completed"
    output = await driver.output(run)
    assert output["counts"] == [25, 0, 0, 25]
    assert [output["found"][int(key[1:])] for key in keys] == [0] * 4
    assert len(effects.all()) == 25
    lines = [one for one in await ledger.read_events(driver.db, ORG, run, after=0) if one.type == "run.resolved"]
    assert [line.data["row"] for line in lines] == keys


async def test_unknown_rows_of_a_table_that_were_returned_stay_so_for_the_code(
    driver: Driver, app: App, effects: Effects, tmp_path: Path
) -> None:
    """50.4, 50.6 A later resolution is for the record: every replay is given what the first pass was."""
    path = ports(tmp_path / "a.csv", 8)
    seen: list[Any] = []

    @app.step()
    async def locate(port: Port) -> float:
        effects.happen(port.ident)
        return port.lat

    @app.workflow()
    async def flow(ctx: Context) -> int:
        mapped = await ctx.map(locate, Csv(path), key="ident", concurrency=3, unknown="return")
        seen.append(([value async for value in mapped], mapped.unknown, mapped.completed))
        await ctx.wait_for("go", int)
        return mapped.total

    run = await driver.start(flow)
    await driver.lose_at("step.end", nth=4, stand=3)
    assert await driver.run_one_leg() == "parked"
    unknown = seen[0][1]
    assert 1 <= len(unknown) <= 3
    assert seen[0][2] == 8 - len(unknown)
    for key in unknown:
        await driver.resolve(run, "locate", "completed", 99.0, row=key)
    await driver.signal(run, "go", 1)
    assert await driver.run_one_leg() == "completed"
    assert seen[1] == seen[0]


async def test_code_that_goes_on_from_unknown_rows_is_told_them_again(
    driver: Driver, app: App, effects: Effects, tmp_path: Path
) -> None:
    """50.2, 50.4 In its place, while it is still so."""
    path = ports(tmp_path / "a.csv", 8)
    told: list[tuple[str, ...]] = []

    @app.step()
    async def locate(port: Port) -> float:
        effects.happen(port.ident)
        return port.lat

    @app.workflow()
    async def flow(ctx: Context) -> str:
        try:
            await ctx.map(locate, Csv(path), key="ident", concurrency=3)
        except StepOutcomeUnknown as error:
            told.append(error.keys)
        return await ctx.wait_for("go", str)

    run = await driver.start(flow)
    await driver.lose_at("step.end", nth=4, stand=3)
    assert await driver.run_one_leg() == "parked"
    await driver.signal(run, "go", "on")
    await driver.run_one_leg()
    assert len(told) == 2
    assert told[0] == told[1]
    assert sorted(effects.all()) == sorted(f"K{i}" for i in range(8))
