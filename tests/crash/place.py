"""A server for the harness alone, in memory where there is some, and a folder for its logs."""

from __future__ import annotations

import contextlib
import os
import shutil
import tempfile
from collections.abc import Iterator
from pathlib import Path

import asyncpg

from fencepost import schema
from fencepost.postgres import TEST_SETTINGS, open_home
from fencepost.testing import TemplateDatabase
from tests.support import LOGIN


def fast_place() -> Path:
    memory = Path("/dev/shm")
    with contextlib.suppress(OSError):
        if os.access(memory, os.W_OK) and shutil.disk_usage(memory).free > 2**30:
            return memory
    return Path(tempfile.gettempdir())


@contextlib.contextmanager
def server() -> Iterator[str]:
    """DSN of a server that is gone afterwards."""
    folder = Path(tempfile.mkdtemp(prefix="fp-crash-", dir=fast_place()))
    programs = os.environ.get("FENCEPOST_TEST_PG_BIN")
    try:
        with open_home(
            folder / "home",
            create=True,
            settings=TEST_SETTINGS,
            idle_seconds=0,
            bin_dir=Path(programs) if programs else None,
        ) as home:
            yield home.dsn
    finally:
        shutil.rmtree(folder, ignore_errors=True)


async def template(server: str) -> TemplateDatabase:
    """The migrated database, and the login that is a worker and nothing else."""
    made = TemplateDatabase(server)
    await made.make()
    owner = await asyncpg.connect(server)
    try:
        with contextlib.suppress(asyncpg.DuplicateObjectError, asyncpg.UniqueViolationError):
            await owner.execute(f'create role {LOGIN} login in role "{schema.role_names(made.schema)[0]}"')
    finally:
        await owner.close()
    return made
