"""Law 50.6 over tables: a file is judged whole, and nothing begins of one that is not usable."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import asyncpg
import pytest

from fencepost import (
    App,
    Context,
    Csv,
    Parquet,
    Retry,
    SourceRefused,
    StepFailed,
)
from fencepost.sources import judging
from fencepost.sources.table import Table
from tests.legs import Driver, Effects
from tests.tables import KINDS, Port, arrow, mapping, parquet, ports

pytestmark = pytest.mark.usefixtures("lawful")


# What a file can be that is no table

TORN = b"PAR1 and then nothing"
BAD: dict[str, tuple[str, bytes | Callable[[Path], None], str]] = {
    "too few fields": ("a.csv", b"ident,lat\nA,1\nB\n", "line 3: it has 1 fields, and there are 2 columns: field 2, 'lat', is missing"),
    "too many fields": ("a.csv", b'ident,lat\nA,"1\n"\nB,1,2\n', "line 4: it has 3 fields, and there are 2 columns: field 3 belongs to no column"),
    "another encoding": ("a.csv", b"ident,lat\nA,1\nZ\xfcrich,2\n", "line 3: byte 16 of the file, character 2 of the line, is not utf-8"),
    "an encoding cut off": ("a.csv", b"ident,lat\nA,1\nZ,2\xc3", "line 3: byte 18 of the file, character 4 of the line, is not utf-8"),
    "a column that is not there": ("a.csv", b"idents,lat\nA,1\n", "line 1: there is no column 'ident'; is it 'idents'? It has: idents, lat"),
    "a key that is empty": ("a.csv", b"ident,lat\nA,1\n\n,2\n", "line 4, column ident: the key is empty"),
    "a key twice": ("a.csv", b"ident,lat\nA,1\nB,1\nA,2\n", "line 4, column ident: the key 'A' is the key of line 2 too"),
    "a key that is no name": ("a.csv", b"ident,lat\nA\tB,1\n", "line 2, column ident: the key contains the control character U+0009"),
    "nothing": ("a.csv", b"", "line 1: it is empty: not even a header line is there"),
    "a column twice": ("a.csv", b"ident,lat,ident\nA,1,2\n", "line 1, column ident: fields 1 and 3 of the header have the same name"),
    "a column without a name": ("a.csv", b"ident,,lat\nA,1,2\n", "line 1: field 2 of the header is empty"),
    "NUL": ("a.csv", b"ident,lat\nA,1\nB,\0\n", "line 3, column lat: it cannot be stored: the text contains a NUL character"),
    "a quote left open": ("a.csv", b'ident,lat\nA,"1\nB,2\nC,3\n', "line 2: unexpected end of data; is a quote left open?"),
    "no file": ("none.csv", b"", "it cannot be read: No such file or directory"),
    "no JSON": ("a.jsonl", b'{"ident":"A"}\n{"ident":}\n', "line 2: it is not JSON: invalid character (byte 9)"),
    "no object": ("a.jsonl", b'{"ident":"A"}\n["ident"]\n', "line 2: it is no JSON object but list"),
    "a key missing": ("a.jsonl", b'{"ident":"A"}\n{"iden":"B"}\n', "line 2: there is no column 'ident'; is it 'iden'?"),
    "a key of another kind": ("a.jsonl", b'{"ident":[1]}\n', "line 1, column ident: the key is neither text nor a whole number: list"),
    "NUL in JSON": ("a.jsonl", b'{"ident":"A","x":{"y":["\\u0000"]}}\n', "line 1, column x.y[0]: it cannot be stored: the text contains a NUL"),
    "a lone surrogate": ("a.jsonl", b'{"ident":"A","x":"\\ud800 "}\n', "line 1: it is not JSON: "),
    "another encoding in JSON": ("a.jsonl", b'{"ident":"A"}\n{"ident":"\xfc"}\n', "line 2: byte 11 of the line is not utf-8"),
    "a row twice as long as a value": ("a.jsonl", b'{"ident":"' + b"x" * 4_200_000 + b'"}\n', "line 1: it is longer than 4,194,304 bytes"),
    "no Parquet": ("a.parquet", TORN, "it is not what it should be"),
    "no Arrow": ("a.arrow", TORN, "it is not what it should be"),
    "not a number": ("a.parquet", parquet({"ident": ["A", "B"], "lat": [1.0, float("nan")]}), "row 2, column lat: it cannot be stored: nan is no"),
    "bytes": ("a.parquet", parquet({"ident": ["A"], "lat": [b"1"]}), "row 1, column lat: it cannot be stored: bytes is not a type of JSON"),
    "a key twice in Parquet": ("a.parquet", parquet({"ident": [1, 2, 1]}), "row 3, column ident: the key '1' is the key of row 1 too"),
    "a key missing in Arrow": ("a.arrow", arrow({"ident": ["A", None]}, stream=True), "row 2, column ident: the key is empty"),
    "a column missing in Arrow": ("a.arrow", arrow({"id": ["A"]}, stream=False), "there is no column 'ident'"),
}  # fmt: skip


@pytest.mark.parametrize("case", BAD)
async def test_a_table_that_is_not_usable_is_refused_with_its_place_before_anything_begins(
    driver: Driver, app: App, effects: Effects, admin: asyncpg.Connection, tmp_path: Path, case: str
) -> None:
    """50.6, 00.5 No step begins, no row is stored, and one sentence says what is wrong and where."""
    name, content, said = BAD[case]
    path = tmp_path / name
    if callable(content):
        content(path)
    elif name != "none.csv":
        path.write_bytes(content)
    run = await driver.start(mapping(app, effects, KINDS[path.suffix](path)))
    assert await driver.run_one_leg() == "failed"
    error = await driver.error(run)
    assert error["message"].startswith(str(path)), error
    assert said in error["message"]
    assert error["type"] == "SourceRefused"
    assert effects.all() == []
    assert await admin.fetchval("select count(*) from fencepost.row") == 0
    assert await admin.fetchval("select count(*) from fencepost.map") == 0


@pytest.mark.parametrize(
    ("name", "content"),
    [("a.csv", b"ident,lat\n"), ("a.jsonl", b""), ("a.parquet", parquet({"ident": []}))],
)
async def test_a_table_without_rows_is_a_table(
    driver: Driver, app: App, effects: Effects, tmp_path: Path, name: str, content: Any
) -> None:
    """50.6 A header says that it is one; of JSON lines there is nothing to say it."""
    path = tmp_path / name
    if callable(content):
        content(path)
    else:
        path.write_bytes(content)
    run = await driver.start(mapping(app, effects, KINDS[path.suffix](path)))
    assert await driver.run_one_leg() == "completed"
    assert (await driver.output(run))["counts"] == [0, 0, 0, 0]


async def test_a_refusal_stays_what_it_was_when_the_file_is_mended(
    driver: Driver, app: App, effects: Effects, tmp_path: Path
) -> None:
    """50.4 Code that went on from a refusal sees it again on every replay; a declared retry looks at the file again."""
    path = tmp_path / "a.csv"
    path.write_text("ident,lat\nA\n")
    seen: list[str] = []

    @app.step(repeatable=True)
    async def locate(port: Port) -> float:
        effects.happen(port.ident)
        return port.lat

    @app.workflow(retry=Retry(2, on=(StepFailed,), delay=0))
    async def flow(ctx: Context) -> float:
        try:
            mapped = await ctx.map(locate, Csv(path), key="ident")
        except SourceRefused as error:
            assert (error.path, error.line) == (str(path), 2)
            seen.append(str(error))
            await ctx.wait_for("mended", int)
            raise StepFailed("MENDED") from None
        return sum([value async for value in mapped])

    run = await driver.start(flow)
    assert await driver.run_one_leg() == "parked"
    path.write_text("ident,lat\nA,7\n")
    await driver.signal(run, "mended", 1)
    assert await driver.run_one_leg() == "retrying"
    assert len(seen) == 2
    assert seen[0] == seen[1]
    assert await driver.run_one_leg() == "completed"
    assert await driver.output(run) == 7.0


@pytest.mark.parametrize(
    ("make", "said"),
    [
        (lambda: Csv("a", delimiter=";;"), "delimiter is one character"),
        (lambda: Csv("a", delimiter='"'), "delimiter is one character"),
        (lambda: Csv("a", encoding="klingon"), "there is no encoding 'klingon'"),
        (lambda: Csv("a", columns=[]), "columns are names"),
        (lambda: Csv("a", columns="abc"), "columns are names"),  # type: ignore[arg-type]  # as users do
        (lambda: Parquet("a", columns=["x", "x"]), "a column is named twice"),
        (lambda: Csv("a", header=False), "columns= names the fields"),
        (lambda: Csv("a", empty="-"), "empty cells are"),
    ],
)
def test_options_that_mean_nothing_are_refused(make: Callable[[], Table], said: str) -> None:
    """50.6 Where the table is named, not where it is read."""
    with pytest.raises(ValueError, match=said):
        make()


@pytest.mark.parametrize("same", [False, True])
def test_keys_whose_hashes_meet_are_compared_themselves(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, same: bool
) -> None:
    """50.6 Only eight bytes a key are remembered: two keys may share them."""
    import threading

    monkeypatch.setattr(judging, "hash", lambda name: len(name) % 3, raising=False)
    path = ports(tmp_path / "a.csv", 500)
    if same:
        with path.open("a") as file:
            file.write("K77,1,\n")
        with pytest.raises(SourceRefused, match="line 502, column ident: the key 'K77' is the key of line 79 too"):
            judging.judge(Csv(path), "ident", threading.Event())
    else:
        assert judging.judge(Csv(path), "ident", threading.Event()).total == 500
