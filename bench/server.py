"""The server under the benchmark: the project's own embedded PostgreSQL in a folder of this run, with the settings of earnest use."""

from __future__ import annotations

import contextlib
import fcntl
import os
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Final
from urllib.parse import urlsplit, urlunsplit

from fencepost.postgres import find_binaries, open_home
from fencepost.postgres.files import lock, opened

SETTINGS: Final = {
    "fsync": "on",
    "synchronous_commit": "on",
    "full_page_writes": "on",
    "shared_buffers": "1GB",
    "max_wal_size": "16GB",
    "checkpoint_timeout": "1h",  # none falls into a measurement; each reset makes one
    "max_connections": "200",
}
STOP_SECONDS: Final = 60.0


@contextlib.contextmanager
def served(results: Path) -> Iterator[tuple[str, dict[str, str]]]:
    """A server's DSN and its settings; taken away at the end, folder and all. Blocks: call it before the event loop.

    FENCEPOST_BENCH_PG_BIN: other binaries. Beside the results, so that fsync is that of the disk where the checkout lies.
    """
    named = os.environ.get("FENCEPOST_BENCH_PG_BIN")
    bin_dir = find_binaries(Path(named) if named else None)
    settings = dict(SETTINGS)
    if _has_statements(bin_dir):
        settings["shared_preload_libraries"] = "pg_stat_statements"
    mine = home(results)
    mine.parent.mkdir(parents=True, exist_ok=True)
    sweep(mine.parent)
    try:
        with open_home(mine, create=True, settings=settings, bin_dir=bin_dir, idle_seconds=0.2) as lease:
            yield lease.dsn, settings
    finally:
        _remove(mine, STOP_SECONDS)


def home(results: Path) -> Path:
    """The folder of this run's server. What its workers write lies in it too, and is removed with it."""
    return results / "tmp" / f"server-{os.getpid()}"


def sweep(homes: Path) -> None:
    """Remove what runs left that were killed: a home whose server is gone."""
    for left in homes.glob("server-*"):
        _remove(left, 0)


def _remove(place: Path, seconds: float) -> None:
    """Once no process of its server lives. A folder that is still in use stays for the next run's sweep."""
    if not place.exists():
        return
    with opened(place, "keeper.lock") as keeper, opened(place, "server.lock") as server:
        gone = lock(keeper, fcntl.LOCK_EX, seconds) and lock(server, fcntl.LOCK_EX, seconds)
    if gone:
        shutil.rmtree(place, ignore_errors=True)


def _has_statements(bin_dir: Path) -> bool:
    libraries = (bin_dir.parent / "lib", bin_dir.parent / "lib" / "postgresql")
    return any((folder / "pg_stat_statements.so").exists() for folder in libraries)


def database(dsn: str, name: str) -> str:
    """The DSN of another database of the same server."""
    return urlunsplit(urlsplit(dsn)._replace(path=f"/{name}"))
