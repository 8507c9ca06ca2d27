"""Where is measured: a fresh database with the settings of earnest use, and worker processes on it."""

from __future__ import annotations

import asyncio
import contextlib
import os
import signal
import sys
import tempfile
import uuid
from collections.abc import AsyncIterator
from dataclasses import dataclass
from pathlib import Path
from urllib.parse import urlsplit, urlunsplit

import asyncpg

from fencepost import lanes
from fencepost.db import Database
from fencepost.lanes import Lane
from fencepost.postgres import open_home
from fencepost.schema import migrate

SETTINGS = {"shared_buffers": "512MB", "max_wal_size": "4GB"}


@dataclass(frozen=True, slots=True)
class Place:
    dsn: str
    db: Database
    lane: Lane
    admin: asyncpg.Connection

    async def ended(self) -> int:
        return await self.admin.fetchval("select count(*) from fencepost.outcome")

    async def server_figures(self) -> tuple[float, int]:
        """Bytes of WAL so far, and the number of committed transactions of this database."""
        row = await self.admin.fetchrow(
            "select pg_wal_lsn_diff(pg_current_wal_lsn(), '0/0')::bigint as wal, "
            "(select xact_commit from pg_stat_database where datname = current_database()) as commits"
        )
        return row["wal"], row["commits"]


@contextlib.asynccontextmanager
async def place() -> AsyncIterator[Place]:
    """FENCEPOST_DATABASE_URL's server, else an embedded one in a folder that is taken away again; a database of its own on it."""
    with contextlib.ExitStack() as stack:
        server = os.environ.get("FENCEPOST_DATABASE_URL", "")
        if not server:
            folder = stack.enter_context(tempfile.TemporaryDirectory(prefix="fencepost-bench-"))
            server = stack.enter_context(
                await asyncio.to_thread(open_home, Path(folder), create=True, settings=SETTINGS)
            ).dsn
        name = f"bench_{uuid.uuid4().hex[:12]}"
        top = await asyncpg.connect(server)
        await top.execute(f"create database {name}")
        dsn = urlunsplit(urlsplit(server)._replace(path=f"/{name}"))
        admin = await asyncpg.connect(dsn)
        await migrate(admin, "fencepost")
        db = Database(dsn, connections=16)
        try:
            yield Place(dsn, db, await lanes.register(db, "dev"), admin)
        finally:
            await db.close()
            await admin.close()
            await top.execute(f"drop database {name} with (force)")
            await top.close()


@dataclass(slots=True)
class WorkerProcess:
    process: asyncio.subprocess.Process

    def cpu_seconds(self) -> float:
        fields = Path(f"/proc/{self.process.pid}/stat").read_text().rpartition(")")[2].split()
        return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


@contextlib.asynccontextmanager
async def worker(where: Place, *, concurrency: int = 256) -> AsyncIterator[WorkerProcess]:
    """One real worker process, ready."""
    process = await asyncio.create_subprocess_exec(
        sys.executable, "-m", "fencepost", "worker", "bench.flows:app", "--concurrency", str(concurrency),
        env={**os.environ, "FENCEPOST_DATABASE_URL": where.dsn}, stdout=asyncio.subprocess.PIPE,
    )  # fmt: skip
    assert process.stdout is not None
    try:
        async with asyncio.timeout(60):
            while b"ready" not in (line := await process.stdout.readline()):
                if not line:
                    raise RuntimeError("the worker ended before it was ready")
        yield WorkerProcess(process)
    finally:
        if process.returncode is None:
            process.send_signal(signal.SIGTERM)
            await process.wait()
