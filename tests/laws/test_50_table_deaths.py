"""Law 50.6 over a table whose worker is killed, that is asked again, or whose run is cancelled: nothing kept or unknown runs again."""

from __future__ import annotations

import asyncio
import contextlib
import csv
import hashlib
import os
import signal
import subprocess
import sys
import threading
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import asyncpg
import pytest

from fencepost import App, Context, Csv, Retry, recovery, steps
from fencepost.db import Database
from tests.laws import table_worker
from tests.legs import ORG, Driver, Effects
from tests.tables import Port, mapping, ports

pytestmark = pytest.mark.usefixtures("lawful")
ROWS = 5_000


class Workers:
    """Worker processes of one test."""

    def __init__(self, dsn: str, folder: Path) -> None:
        self.effects = folder / "effects"
        self._environ = os.environ | {
            "FENCEPOST_DATABASE_URL": dsn, "FENCEPOST_LEASE_SECONDS": "9", "FENCEPOST_HEARTBEAT_SECONDS": "0.5", "EFFECTS": str(self.effects),
            "TABLE": str(folder / "in.csv"),
        }  # fmt: skip
        self._folder = folder
        self.all: list[subprocess.Popen[bytes]] = []

    def start(self) -> subprocess.Popen[bytes]:
        with (self._folder / f"log-{len(self.all)}").open("wb") as log:
            command = [sys.executable, "-m", "fencepost", "worker", "tests.laws.table_worker:app"]
            self.all.append(subprocess.Popen(command, env=self._environ, stdout=log, stderr=log))
        return self.all[-1]

    def begun(self) -> list[str]:
        return self.effects.read_text().splitlines() if self.effects.exists() else []

    def end(self) -> None:
        for worker in self.all:
            with contextlib.suppress(ProcessLookupError):
                worker.kill()
            worker.wait()
            print((self._folder / f"log-{self.all.index(worker)}").read_text())


@pytest.fixture
def workers(dsn: str, tmp_path: Path) -> Iterator[Workers]:
    made = Workers(dsn, tmp_path)
    try:
        yield made
    finally:
        made.end()


async def kept(admin: asyncpg.Connection) -> int:
    return int(await admin.fetchval("select count(*) from fencepost.row where state = 'kept'"))


async def stands(driver: Driver, run: str, *statuses: str) -> dict[str, Any]:
    """Wait until the run stands so; its document."""
    async with asyncio.timeout(100):
        while (doc := await driver.show(run))["status"] not in statuses:  # noqa: ASYNC110 - another process tells nobody here
            await asyncio.sleep(0.2)  # waits: see above
    return doc


@pytest.mark.timeout(240)
async def test_a_killed_worker_s_rows_are_each_begun_at_most_once(
    db: Database, admin: asyncpg.Connection, workers: Workers, tmp_path: Path
) -> None:
    """50.6, 50.2 5,000 rows, SIGKILL in the middle: the next worker does the others; those in flight are unknown, and resolve in bulk."""
    ports(tmp_path / "in.csv", ROWS)
    driver = Driver(db, table_worker.app)
    run = await driver.start(table_worker.payday)
    first = workers.start()
    async with asyncio.timeout(90):
        while len(workers.begun()) < ROWS // 3:  # noqa: ASYNC110 - a file tells nobody
            await asyncio.sleep(0.02)  # waits: see above
    first.send_signal(signal.SIGKILL)
    first.wait()
    begun = Counter(workers.begun())
    assert ROWS // 3 <= len(begun) < ROWS
    done_before = await kept(admin)
    assert done_before > 0
    workers.start()
    doc = await stands(driver, run, "unknown", "completed", "failed")
    assert doc["status"] == "unknown"
    unknown = [row.key for row in await steps.read_run_rows(db, ORG, run, states=["unknown"])]
    assert 1 <= len(unknown) <= 20, "as many as were in flight"
    begun = Counter(workers.begun())
    assert max(begun.values()) == 1
    assert set(begun) | set(unknown) == {f"K{i}" for i in range(ROWS)}
    assert doc["rows"] == {
        "completed": ROWS - len(unknown),
        "failed": 0,
        "unknown": len(unknown),
        "skipped": 0,
        "total": ROWS,
    }
    assert not (tmp_path / "in.csv.out.csv").exists()
    answers = await recovery.resolve_rows(
        db, ORG, run, step=None, ordinal=None, keys=unknown, verdict="completed", value='{"receipt":"by hand"}', by="a person"
    )  # fmt: skip
    assert answers == [("done", None)] * len(unknown)
    await stands(driver, run, "completed")
    output = await driver.output(run)
    content = (tmp_path / "in.csv.out.csv").read_bytes()
    assert output == {"completed": ROWS, "sha256": hashlib.sha256(content).hexdigest()}
    rows = dict(csv.reader(content.decode().splitlines()))
    assert list(rows) == ["ident", *(f"K{i}" for i in range(ROWS))]
    assert all(rows[key] == ("by hand" if key in unknown else f"for {key}") for key in rows if key != "ident")
    assert max(Counter(workers.begun()).values()) == 1


async def test_two_tables_at_once_are_told_apart_whatever_is_lost(db: Database, tmp_path: Path) -> None:
    """50.4, 50.6 Ordinals are counted in the order of the calls, not in that in which the files were read."""
    effects = Effects(tmp_path / "effects")
    app = App("tables")
    driver = Driver(db, app)
    ports(tmp_path / "a.csv", 300)
    ports(tmp_path / "b.csv", 6)

    @app.step(repeatable=True)
    async def locate(port: Port) -> float:
        effects.happen(port.ident)
        return port.lat

    async def total(ctx: Context, name: str) -> float:
        mapped = await ctx.map(locate, Csv(tmp_path / name), key="ident", concurrency=2)
        return mapped.total + sum([value async for value in mapped])

    @app.workflow()
    async def flow(ctx: Context) -> list[float]:
        return list(await asyncio.gather(total(ctx, "a.csv"), total(ctx, "b.csv")))

    run = await driver.start(flow)
    await driver.run_losing(run, 100)
    assert await driver.output(run) == [pytest.approx(300 + 299 * 150 / 100), pytest.approx(6.15)]


@pytest.mark.parametrize("way", ["retry", "redrive"])
@pytest.mark.parametrize("file", ["there", "gone", "changed"])
async def test_rows_that_failed_are_asked_again_and_no_other(db: Database, tmp_path: Path, way: str, file: str) -> None:
    """50.10, 85.5 By a declared retry or a redrive; of another file nothing is asked."""
    effects = Effects(tmp_path / "effects")
    app = App("tables")
    driver = Driver(db, app)
    path = ports(tmp_path / "a.csv", 20)

    @app.step()
    async def locate(port: Port) -> float:
        effects.happen(port.ident)
        if port.ident in ("K3", "K11") and effects.count(port.ident) == 1:
            raise LookupError("not yet")
        return port.lat

    @app.workflow(retry=Retry(2, delay=0) if way == "retry" else None)
    async def flow(ctx: Context) -> int:
        return (await ctx.map(locate, Csv(path), key="ident", tolerance=1, concurrency=1)).completed

    run = await driver.start(flow)
    assert await driver.run_one_leg() == ("retrying" if way == "retry" else "failed")
    begun = len(effects.all())
    if way == "redrive":
        assert (await recovery.redrive(db, ORG, run, new_id="anew", from_step=None, again=[], by="me"))[0] == "created"
        run = "anew"
    if file == "gone":
        path.unlink()
    elif file == "changed":
        path.write_text(path.read_text() + "K20,1,\n")
    if file == "changed":
        assert await driver.run_one_leg() == "unfit"
        assert "has changed since the map began" in (await driver.error(run))["message"]
        assert len(effects.all()) == begun
        return
    assert await driver.run_one_leg() == "completed"
    assert await driver.output(run) == 20
    assert {key: n for key, n in Counter(effects.all()).items() if n != 1} == {"K3": 2, "K11": 2}


async def test_a_cancelled_run_stops_reading_its_table(db: Database, tmp_path: Path) -> None:
    """80.4, 50.6 Nothing begins of a table that was being judged, and the thread ends with the leg."""
    effects = Effects(tmp_path / "effects")
    app = App("tables")
    driver = Driver(db, app)
    judging_ = threading.Event()

    def slow(row: dict[str, str]) -> str:
        judging_.set()
        return row["ident"]

    run = await driver.start(mapping(app, effects, Csv(ports(tmp_path / "a.csv", 400_000)), key=slow))
    leg = await driver.one_leg()
    task = asyncio.ensure_future(leg.run())
    await asyncio.to_thread(judging_.wait, 20)
    assert await driver.cancel(run) == "accepted"
    leg.abort("cancelled")
    assert await task == "cancelled"
    assert (await driver.show(run))["status"] == "cancelled"
    async with asyncio.timeout(2):  # a reading to the end takes longer
        while any(map(_is_reading, threading.enumerate())):  # noqa: ASYNC110 - a thread's end tells nobody
            await asyncio.sleep(0.02)  # waits: see above
    assert effects.all() == []


def _is_reading(thread: threading.Thread) -> bool:
    frame = sys._current_frames().get(thread.ident or 0)
    while frame is not None:
        if frame.f_code.co_filename.endswith("judging.py"):
            return True
        frame = frame.f_back
    return False
