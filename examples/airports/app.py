"""The example as a workflow. Its plain functions are in `work`, what is said to the press is in `press_client`."""

import hashlib
import os
from dataclasses import asdict, dataclass
from datetime import timedelta
from pathlib import Path

from fencepost import Absent, App, Context, Found, TimedOut, Unknown, step_key

from . import press_client, work
from .work import Located, Row, Summary

app = App("airports")
CONCURRENCY = 20  # rows under way at a time


@dataclass(frozen=True)
class Sheet:
    """What a run is given: a CSV, the press's address, where to write; and a log that gets a line for each row begun."""

    path: str
    press: str
    out: str
    log: str = os.devnull


@dataclass(frozen=True)
class Verdict:
    """What a reviewer says."""

    ok: bool


@app.step(repeatable=True)  # may run twice, even at the same time
def read(sheet: Sheet) -> list[Row]:
    """The rows of the sheet. They say where they are logged, for a row is all that `locate` is given."""
    return [row | {"log": sheet.log} for row in work.read_rows(sheet.path)]


@app.step(repeatable=True)
def locate(row: Row) -> Located:
    """One airport, with its country's name and a judgement of its time zone."""
    with open(row["log"], "a") as log:  # noqa: PTH123 - one write to a file opened to append: lines do not mix
        log.write(row["icao"] + "\n")
    return work.locate(row)


async def find_post(key: str, press: str, summary: Summary) -> Found[str] | Absent | Unknown:  # noqa: ARG001 - publish's
    """After a loss inside `publish`: was it printed? The press knows posts by the key that came with them."""
    url = await press_client.find(press, key)
    return Found(url) if url is not None else Absent()


# Not repeatable: begun once. When its worker is lost inside, or the press's answer is, it is looked up.
@app.step(lookup=find_post, unknown_on=[press_client.PressLost])
async def publish(press: str, summary: Summary) -> str:
    """Prints the summary. A second time would be a second post: the press does not look."""
    return await press_client.post(press, step_key(), work.canonical(asdict(summary)))


@app.step(repeatable=True)
def write(path: str, post: str, rows: list[Located]) -> str:
    """One JSON line an airport, the post's address last; the file's SHA-256."""
    text = "".join(work.canonical(line) + "\n" for line in [*map(asdict, rows), {"post": post}]).encode()
    Path(path).write_bytes(text)
    return hashlib.sha256(text).hexdigest()


@app.workflow()
async def enrich(ctx: Context, sheet: Sheet) -> str:
    """The main job, as a straight line. Killed anywhere, it goes on from what is kept."""
    rows = await ctx.step(read, sheet)
    located = await ctx.map(locate, rows, key=work.KEY, concurrency=CONCURRENCY)
    verdict = await ctx.wait_for("review", Verdict, within=timedelta(days=3))  # parked: no worker, no connection
    if isinstance(verdict, TimedOut) or not verdict.ok:
        raise PermissionError("not approved")
    post = await ctx.step(publish, sheet.press, work.summarise(located))
    return await ctx.step(write, sheet.out, post, located)
