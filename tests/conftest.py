"""What every test may ask for: one server a session, one database a test.

A session uses the embedded PostgreSQL, or with FENCEPOST_TEST_PG_BIN the server whose programs lie in that folder.
Processes of pytest-xdist share one server: its place is said by the process that started them.
"""

from __future__ import annotations

import asyncio
import contextlib
import fcntl
import os
import shutil
import signal
import uuid
from collections.abc import AsyncIterator, Iterator
from pathlib import Path

import asyncpg
import pytest

from fencepost import schema
from fencepost.db import Database
from fencepost.postgres import TEST_SETTINGS, open_home
from fencepost.postgres.files import lock
from fencepost.testing import Clock, Installation, TemplateDatabase
from tests import mutants
from tests.places import HOME, fast_place, sweep
from tests.support import LOGIN, as_worker

_mine: list[Path] = []


def pytest_configure(config: pytest.Config) -> None:
    if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
        # A shell has its background jobs ignore Ctrl-C, and what they start: the processes under test are not to inherit it.
        signal.signal(signal.SIGINT, signal.default_int_handler)
    if HOME not in os.environ:
        sweep()
        place = fast_place() / f"fp-tests-{uuid.uuid4().hex[:12]}"
        os.environ[HOME] = str(place)
        _mine.append(place)
    mutants.wear(schema)


def pytest_unconfigure(config: pytest.Config) -> None:
    for place in _mine:
        del os.environ[HOME]
        if not place.exists():
            continue
        for name in ("keeper.lock", "server.lock"):
            with contextlib.suppress(OSError), (place / name).open() as held:
                lock(held.fileno(), fcntl.LOCK_EX, 20)
        shutil.rmtree(place, ignore_errors=True)
    _mine.clear()


@pytest.fixture(scope="session")
def server() -> Iterator[str]:
    """DSN of the session's server, as its superuser."""
    programs = os.environ.get("FENCEPOST_TEST_PG_BIN")
    with open_home(
        Path(os.environ[HOME]), create=True, settings=TEST_SETTINGS, bin_dir=Path(programs) if programs else None
    ) as home:
        yield home.dsn


@pytest.fixture(scope="session")
def template(server: str) -> TemplateDatabase:
    """The migrated database of this session, and a login that is a worker and nothing else."""
    made = TemplateDatabase(server)

    async def prepare() -> None:
        await made.make()
        owner = await asyncpg.connect(server)
        try:
            worker, _ = schema.role_names(made.schema)
            with contextlib.suppress(asyncpg.DuplicateObjectError, asyncpg.UniqueViolationError):
                await owner.execute(f'create role {LOGIN} login in role "{worker}"')
        finally:
            await owner.close()

    asyncio.run(prepare())
    return made


@pytest.fixture
async def installation(template: TemplateDatabase) -> AsyncIterator[Installation]:
    """A migrated database of one's own."""
    async with template.clone() as made:
        yield made


@pytest.fixture
def dsn(installation: Installation) -> str:
    """The owner's way to it."""
    return installation.dsn


@pytest.fixture
def worker_dsn(installation: Installation) -> str:
    """The worker's way to it: doors only (law 00.9)."""
    return as_worker(installation.dsn)


@pytest.fixture
def clock(installation: Installation) -> Clock:
    """Until it is set, time passes by itself."""
    return installation.clock


@pytest.fixture
async def db(worker_dsn: str) -> AsyncIterator[Database]:
    """The installation as a process of the worker role sees it."""
    made = Database(worker_dsn, connections=4)
    yield made
    await made.close()


@pytest.fixture
async def admin(dsn: str) -> AsyncIterator[asyncpg.Connection]:
    """A connection of the owner, who may look at every table."""
    connection = await asyncpg.connect(dsn)
    yield connection
    await connection.close()
