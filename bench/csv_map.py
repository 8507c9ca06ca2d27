"""A map over a CSV file of many rows, by one real worker: its speed, and how much memory it takes beyond its start.

`measure` is what the benchmark calls. By hand: `python -m bench.csv_map 100000`. The database must be migrated.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

import asyncpg

from fencepost import App, Context, Csv, terminal
from fencepost.db import Database
from fencepost.postgres import open_home
from fencepost.schema import migrate

app = App("bench-csv", release="bench-csv")


@app.step(repeatable=True)
async def locate(row: dict[str, str]) -> dict[str, Any]:
    return {"south": -float(row["lat"]), "tz": row["tz"]}


@app.workflow()
async def enrich(ctx: Context, job: dict[str, Any]) -> dict[str, Any]:
    mapped = await ctx.map(locate, Csv(job["path"]), key="ident", concurrency=job["concurrency"], out=job["out"])
    return {"completed": mapped.completed, "total": mapped.total}


def write_table(path: Path, rows: int) -> None:
    """A CSV file of so many airports, 70 bytes each."""
    with path.open("w") as file:
        file.write("ident,name,lat,lon,tz\n")
        for i in range(rows):
            file.write(f"K{i},Airport number {i},{i * 0.01:.2f},{-i * 0.01:.2f},Europe/Berlin\n")


def rss_mb(pid: int, what: str) -> float:
    """VmRSS or VmHWM of a process, in MiB; 0 when it has gone."""
    with contextlib.suppress(OSError, StopIteration):
        lines = Path(f"/proc/{pid}/status").read_text().splitlines()
        return int(next(line for line in lines if line.startswith(what)).split()[1]) / 1024
    return 0.0


async def measure(
    dsn: str, rows: int, folder: Path, *, concurrency: int = 100, kill_at: float | None = None
) -> dict[str, Any]:
    """Map a table of `rows` rows with a worker process on this database; `kill_at`: at this share of them it is killed, and another goes on.

    Gives rows, seconds (from the launch to the end), per_second, start_mb and grown_mb (resident memory, the highest after the start),
    and of a killed one resume_seconds: until the next worker's first row.
    """
    path, out = folder / "in.csv", folder / "out.csv"
    write_table(path, rows)
    os.environ["FENCEPOST_DATABASE_URL"] = dsn
    db = Database(dsn)
    worker = await asyncio.to_thread(_worker, dsn)
    try:
        start = peak = rss_mb(worker.pid, "VmRSS")
        began = time.monotonic()
        handle = await app.start(enrich, {"path": str(path), "out": str(out), "concurrency": concurrency})
        killed, resumed, at_death = 0.0, None, 0
        while (outcome := await terminal.watch_outcome(db, "default", handle.id, None)) and outcome.output is None:
            assert outcome.error is None, outcome
            await asyncio.sleep(0.5)  # waits: how much memory it takes meanwhile is what is measured
            peak = max(peak, rss_mb(worker.pid, "VmHWM"))
            done = await _done(db, handle.id)
            if kill_at is not None and not killed and done >= kill_at * rows:
                worker.kill()
                worker.wait()
                killed, at_death = time.monotonic(), done
                worker = await asyncio.to_thread(_worker, dsn)
            elif killed and resumed is None and done > at_death:
                resumed = time.monotonic() - killed
        seconds = time.monotonic() - began
        found = {
            "rows": rows,
            "seconds": seconds,
            "per_second": rows / seconds,
            "start_mb": start,
            "grown_mb": peak - start,
        }
        return found | ({"resume_seconds": resumed} if killed else {})
    finally:
        worker.terminate()
        worker.wait()
        await db.close()


async def _done(db: Database, run: str) -> int:
    async with db.connection() as connection:
        text = await connection.fetchval(
            "select t.progress from fencepost.task t join fencepost.run r on r.rid = t.rid where r.id = $1", run
        )
    return int(json.loads(text)["done"]) if text else 0


def _worker(dsn: str) -> subprocess.Popen[bytes]:
    """A worker process that has said that it is ready."""
    worker = subprocess.Popen(
        [sys.executable, "-m", "fencepost", "worker", "bench.csv_map:app", "--dsn", dsn],
        stdout=subprocess.PIPE,
        env=os.environ | {"FENCEPOST_RELEASE": "bench-csv"},
    )
    assert worker.stdout is not None
    if not worker.stdout.readline():
        raise RuntimeError("the worker ended before it was ready")
    return worker


async def _main(rows: int, kill_at: float | None) -> None:
    with tempfile.TemporaryDirectory() as folder, open_home(Path(folder) / "home", create=True) as home:
        owner = await asyncpg.connect(home.dsn)
        await migrate(owner, "fencepost")
        await owner.close()
        print(await measure(home.dsn, rows, Path(folder), kill_at=kill_at))


if __name__ == "__main__":
    asyncio.run(_main(int(sys.argv[1]), float(sys.argv[2]) if len(sys.argv) > 2 else None))
