"""`runs rows` and `runs resolve` over many rows: paged, written as tables, resolved in bulk; exit codes and counts."""

from __future__ import annotations

import csv
import hashlib
import re

import pyarrow.parquet as pa_parquet
import pytest

from fencepost.cli.progress import Pace
from tests.roads.command import Said, Shop

SHEET = """
import asyncio
from pathlib import Path

from fencepost import App, Context, Csv

app = App("sheet")


@app.step(timeout=0.3)
async def pay(row: dict[str, str]) -> dict[str, str]:
    if int(row["n"]) % 10 == 3:
        await asyncio.Event().wait()
    if int(row["n"]) % 10 == 4:
        raise LookupError("nobody lives there\\x1b[2J")
    return {"receipt": "r" + row["n"]}


@app.workflow()
async def payday(ctx: Context, n: int) -> int:
    mapped = await ctx.map(pay, Csv("in.csv"), key="n", tolerance=0.2, concurrency=50)
    return mapped.completed
"""


SLOW = """
import asyncio

from fencepost import App, Context, Csv

app = App("sheet")


@app.step(repeatable=True)
async def pay(row: dict[str, str]) -> str:
    await asyncio.sleep(0.1)
    return row["n"]


@app.workflow()
async def payday(ctx: Context, n: int) -> int:
    return (await ctx.map(pay, Csv("in.csv"), key="n", concurrency=3)).completed
"""


@pytest.fixture
async def paid(shop: Shop) -> Said:
    """A run with 40 rows: 4 unknown, 4 failed, 32 completed."""
    (shop.place / "sheet.py").write_text(SHEET)
    (shop.place / "in.csv").write_text("n\n" + "".join(f"{n}\n" for n in range(40)))
    said = await shop("run", "sheet:payday", "--input", "1", "--here", "--id", "p1", "--json")
    assert said.code == 4
    assert said.object["status"] == "unknown"
    return said


async def test_rows_are_shown_by_state_in_input_order(shop: Shop, paid: Said) -> None:
    """NDJSON, or a table of a bounded number of lines."""
    rows = (await shop("runs", "rows", "p1", "--unknown", "--json")).lines
    assert rows == [{"map": "pay", "ordinal": 1, "key": f"{n}3", "state": "unknown"} for n in ("", 1, 2, 3)]
    rows = (await shop("runs", "rows", "p1", "--json")).lines
    assert [row["key"] for row in rows] == "3 4 13 14 23 24 33 34".split()
    assert rows[1]["error"]["message"] == "nobody lives there\x1b[2J"
    rows = (await shop("runs", "rows", "p1", "--completed", "--failed", "--json", "--limit", "5")).lines
    assert [(row["key"], row["state"]) for row in rows] == [(str(n), "completed") for n in (0, 1, 2)] + [
        ("4", "failed"), ("5", "completed"),
    ]  # fmt: skip
    assert rows[0]["value"] == {"receipt": "r0"}
    assert len((await shop("runs", "rows", "p1", "--all", "--map", "pay#1", "--json")).lines) == 40
    assert (await shop("runs", "rows", "p1", "--all", "--map", "pay#2", "--json")).lines == []
    shown = await shop("runs", "rows", "p1", "--failed")
    assert "pay#1  4    failed  nobody lives there" in shown.out
    assert "\x1b" not in shown.out
    assert (await shop("runs", "rows", "p1", "--limit", "0")).code == 2
    assert (await shop("runs", "rows", "p2", "--all")).code == 2
    assert (await shop("runs", "rows", "p1", "--org", "other")).code == 2


async def test_rows_are_written_as_a_table(shop: Shop, paid: Said) -> None:
    """With map and state; what cannot be written is a refusal (2)."""
    said = await shop("runs", "rows", "p1", "--all", "--out", "all.csv", "--json")
    content = (shop.place / "all.csv").read_bytes()
    assert said.object == {"path": "all.csv", "rows": 40, "sha256": hashlib.sha256(content).hexdigest()}
    with (shop.place / "all.csv").open(newline="") as file:
        rows = list(csv.DictReader(file))
    assert rows[0] == {"key": "0", "map": "pay#1", "state": "completed", "receipt": "r0", "error": "", "error_code": ""}
    assert (rows[3]["state"], rows[4]["state"], rows[4]["error_code"]) == ("unknown", "failed", "STEP_FAILED")
    assert (await shop("runs", "rows", "p1", "--unknown", "--out", "un.parquet")).code == 0
    assert pa_parquet.read_table(shop.place / "un.parquet")["key"].to_pylist() == ["3", "13", "23", "33"]
    for wrong in ("rows.xlsx", "none/rows.csv", "."):
        assert (await shop("runs", "rows", "p1", "--out", wrong, "--json")).object["error"]["code"] == "UNUSABLE_INPUT"


async def test_many_rows_are_resolved_at_once(shop: Shop, paid: Said) -> None:
    """By name, by a file of keys, or all that are unknown; each its audit line; 0, 1 where one is refused, 2 where one is no row."""
    (shop.place / "keys").write_text("3\r\n\n13\n13\nnobody\n4\n")
    said = await shop(
        "runs", "resolve", "p1", "completed", "--value", '{"receipt": "by hand"}', "--rows", "@keys", "--json"
    )
    assert said.code == 1
    assert said.object == {
        "run_id": "p1", "org": "default", "resolved": 2, "refused": 1, "not_found": 1,
        "refusals": [
            {"row": "nobody", "answer": "not_found", "why": "no unknown row has this key"},
            {"row": "4", "answer": "refused", "why": "no unknown row has this key"},
        ],
    }  # fmt: skip
    said = await shop("runs", "resolve", "p1", "failed", "--error", "lost", "--row", "23", "--row", "nobody")
    assert (said.code, "resolved 1, refused 0, not found 1" in said.err) == (2, True)
    said = await shop("runs", "resolve", "p1", "late", "--all-unknown", "--json")
    assert (said.code, said.object["refused"]) == (1, 1)
    assert said.object["refusals"][0]["why"] == "a row is resolved completed, failed or again"
    said = await shop(
        "runs", "resolve", "p1", "completed", "--value", "{}", "--all-unknown", "--step", "pay#1", "--json"
    )
    assert (said.code, said.object) == (
        0,
        {"run_id": "p1", "org": "default", "resolved": 1, "refused": 0, "not_found": 0},
    )
    said = await shop("run", "sheet:payday", "--input", "1", "--here", "--id", "p1", "--json")
    assert (said.code, said.object["output"]) == (0, 35)
    events = (await shop("runs", "watch", "p1", "--json")).lines
    assert [e["data"]["row"] for e in events if e["type"] == "run.resolved"] == ["3", "13", "23", "33"]
    said = await shop("runs", "resolve", "p1", "completed", "--value", "{}", "--all-unknown", "--json")
    assert (said.code, said.object["resolved"]) == (0, 0)


async def test_what_names_no_rows_is_a_usage_error(shop: Shop, paid: Said) -> None:
    """Exit code 2, and nothing is resolved."""
    (shop.place / "empty").write_text("\n\n")
    (shop.place / "latin").write_bytes(b"3\n\xff\n")
    for wrong in (["--rows", "3"], ["--rows", "@none"], ["--rows", "@empty"], ["--rows", "@latin"], ["--rows", "@keys", "--all-unknown"],
                  ["--row", "3", "--all-unknown"]):  # fmt: skip
        assert (await shop("runs", "resolve", "p1", "again", *wrong)).code == 2, wrong
    assert (await shop("runs", "resolve", "p2", "again", "--all-unknown")).code == 2
    assert (await shop("runs", "resolve", "p2", "again", "--row", "3", "--row", "4")).code == 2
    assert len((await shop("runs", "rows", "p1", "--unknown", "--json")).lines) == 4
    said = await shop("runs", "resolve", "p1", "lookup", "--all-unknown", "--json")
    assert (said.code, said.object["answer"]) == (0, "done")


def test_the_pace_of_rows_is_that_of_late() -> None:
    """Rows of all, a rate from the second look on, and what is left."""
    pace = Pace()
    assert pace.words(0, 5000, 100.0) == "0/5,000 rows"
    assert pace.words(1200, 5000, 104.0) == "1,200/5,000 rows, 300/s, 13s left"
    assert pace.words(5000, 5000, 110.0) == "5,000/5,000 rows, 500/s"
    slow = Pace()
    slow.words(0, 100, 0.0)
    assert slow.words(1, 100, 120.0) == "1/100 rows, 0.5/min, 3h18m left"
    for n in range(30):
        found = slow.words(2 + n * 2, 100, 121.0 + n)
    assert found == "60/100 rows, 2/s, 20s left"


async def test_a_watch_may_leave_the_rows_out(shop: Shop, paid: Said) -> None:
    """Whoever follows a run need not read a million rows."""
    every = (await shop("runs", "watch", "p1", "--json")).lines
    said = await shop("runs", "watch", "p1", "--no-rows", "--json")
    assert said.code == 4
    assert said.lines == [event for event in every if not event["type"].startswith("row.")]
    assert len(every) > len(said.lines) + 40
    assert "row." not in paid.err


async def test_without_a_terminal_rows_are_told_now_and_then(shop: Shop) -> None:
    """A line with how many of how many, the rate, and what is left; the same count is not said twice."""
    (shop.place / "sheet.py").write_text(SLOW)
    (shop.place / "in.csv").write_text("n\n" + "".join(f"{n}\n" for n in range(60)))
    (shop.place / "sitecustomize.py").write_text("import fencepost.cli.progress as p\np.LINE_SECONDS = 0.3\n")
    shop.environ["PYTHONPATH"] = str(shop.place)
    said = await shop("run", "sheet:payday", "--input", "1", "--here", "--json")
    assert (said.code, said.object["output"]) == (0, 60)
    lines = re.findall(r"^(\d+)/60 rows(?:, [\d.,]+/(?:s|min)(?:, \w+ left)?)?$", said.err, re.MULTILINE)
    assert len(lines) >= 2
    assert len(set(lines)) == len(lines)
    assert re.search(r"^\d+/60 rows, [\d.,]+/s, \w+ left$", said.err, re.MULTILINE)
