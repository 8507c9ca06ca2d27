"""Law 50.6 over a table whose worker is killed: nothing kept runs again, nothing unknown runs again, all else is done."""

from __future__ import annotations

import asyncio
import contextlib
import csv
import hashlib
import os
import signal
import subprocess
import sys
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import asyncpg
import pytest

from fencepost import recovery, steps
from fencepost.db import Database
from tests.laws import table_worker
from tests.legs import ORG, Driver
from tests.tables import ports

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
