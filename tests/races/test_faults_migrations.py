"""A migration beside a dump, beside workers, and beside another that was killed: it steps back, tries again, and is done once."""

from __future__ import annotations

import asyncio
import uuid

import asyncpg
import pytest

from fencepost import attempts, limits, schema, terminal
from fencepost.db import Database
from fencepost.schema import MigrationRefused, Script, migrate
from fencepost.testing import TemplateDatabase
from tests import catalogue
from tests.support import admit_one, claim_all, new_holder, until_blocked
from tests.support_invariants import broken

NEXT = Script(
    2,
    "0002_next.sql",
    "alter table fencepost.task add column note text; create index task_note on fencepost.task (note);"
    "update fencepost.meta set schema_version = 2;",
)


@pytest.fixture
def next_release(monkeypatch: pytest.MonkeyPatch) -> None:
    """Code of one version on, which has something to alter in the hottest table."""
    known = schema.migrations()
    monkeypatch.setattr(schema, "migrations", lambda: [*known, NEXT])
    monkeypatch.setattr(schema, "SCHEMA_VERSION", 2)


async def works(db: Database, until: asyncio.Event) -> list[float]:
    """Runs admitted, claimed and ended, one after the other; how long the slowest call took in each."""
    loop = asyncio.get_running_loop()
    took: list[float] = []
    while not until.is_set():
        longest = 0.0
        holder = uuid.UUID(int=0)
        claimed: tuple[attempts.Claimed, ...] = ()
        for call in ("open", "admit", "claim", "finish"):
            began = loop.time()
            if call == "open":
                holder = await new_holder(db)
            elif call == "admit":
                await admit_one(db)
            elif call == "claim":
                claimed = await claim_all(db, holder, request=1)
            else:
                for one in claimed:
                    await terminal.finish(db, one.fence, "completed", "1")
            longest = max(longest, loop.time() - began)
        took.append(longest)
    return took


@pytest.mark.usefixtures("next_release")
async def test_a_migration_behind_a_dump_stops_nobody_for_long_and_is_applied_once(
    dsn: str, worker_dsn: str, admin: asyncpg.Connection, monkeypatch: pytest.MonkeyPatch
) -> None:
    """B95 A dump's lock is waited for in short pieces: between them work goes on, on the old schema and in the same sessions on the new."""
    assert schema.LOCK_TIMEOUT_MS <= 3000
    assert schema.LOCK_TIMEOUT_MS / 1000 < limits.LEASE_SECONDS / 3
    monkeypatch.setattr(schema, "LOCK_TIMEOUT_MS", 400)
    crowd = [Database(worker_dsn, connections=2) for _ in range(8)]
    dump, migrating = await asyncpg.connect(dsn), await asyncpg.connect(dsn)
    enough = asyncio.Event()
    try:
        before = dump.transaction()
        await before.start()
        await dump.execute("lock table fencepost.task in access share mode")
        at_work = [asyncio.ensure_future(works(db, enough)) for db in crowd]
        asked = asyncio.ensure_future(migrate(migrating, "fencepost", roles=True))
        done = "select count(*) from fencepost.outcome"
        for _ in range(3):  # three times it waits, and three times it has stepped back
            await until_blocked(admin, migrating.get_server_pid())
            ended = await admin.fetchval(done)
            async with asyncio.timeout(20):
                while await admin.fetchval(done) < ended + 8:  # noqa: ASYNC110  # others' commits tell nobody
                    await asyncio.sleep(0.02)  # waits: for work behind the migration's back
        assert not asked.done()
        await before.rollback()
        assert await asked == ["0002_next.sql"]
        ended = await admin.fetchval(done)
        async with asyncio.timeout(20):
            while await admin.fetchval(done) < ended + 16:  # noqa: ASYNC110  # the same
                await asyncio.sleep(0.02)  # waits: for work on the new schema
        assert await migrate(migrating, "fencepost", roles=True) == []
    finally:
        enough.set()
        took = await asyncio.gather(*at_work, return_exceptions=True)
        for one in (dump, migrating):
            await one.close()
        for db in crowd:
            await db.close()
    slowest = 0.0
    for times in took:
        assert isinstance(times, list), times
        slowest = max(slowest, *times)
    assert slowest < 10.0, "a call stood behind one short wait of the migration, not behind the dump"
    assert await broken(admin) == {}


@pytest.mark.usefixtures("next_release")
async def test_a_migration_that_is_killed_and_begun_again_gives_the_same_schema(
    dsn: str, admin: asyncpg.Connection, template: TemplateDatabase
) -> None:
    """B97 Its backend is ended in the middle, between two changes of one migration; then it is applied from its beginning."""
    other, migrating = await asyncpg.connect(dsn), await asyncpg.connect(dsn)
    clean = await catalogue.dump(admin)
    async with other.transaction():
        await other.execute("lock table fencepost.meta in access share mode")
        await other.execute("select from fencepost.meta for update")
        asked = asyncio.ensure_future(migrate(migrating, "fencepost", roles=True))
        await until_blocked(admin, migrating.get_server_pid())
        assert await admin.fetchval("select pg_terminate_backend($1)", migrating.get_server_pid())
        with pytest.raises((asyncpg.PostgresError, asyncpg.InterfaceError, OSError)):
            await asked
    await other.close()
    assert await catalogue.dump(admin) == clean, "nothing of it stands"
    assert await migrate(admin, "fencepost", roles=True) == ["0002_next.sql"]
    async with template.clone() as undisturbed:
        smooth = await asyncpg.connect(undisturbed.dsn)
        try:
            assert await migrate(smooth, "fencepost", roles=True) == ["0002_next.sql"]
            assert await catalogue.dump(smooth) == await catalogue.dump(admin)
        finally:
            await smooth.close()


@pytest.mark.parametrize("what", ["the migrations' own lock", "a table"])
@pytest.mark.usefixtures("next_release")
async def test_a_lock_that_is_never_let_go_ends_the_migration_with_the_name_of_its_holder(
    what: str, dsn: str, admin: asyncpg.Connection, monkeypatch: pytest.MonkeyPatch
) -> None:
    """B89 It does not wait for ever for a session that somebody forgot, and says which that is; nothing was changed."""
    monkeypatch.setattr(schema, "LOCK_TIMEOUT_MS", 50)
    monkeypatch.setattr(schema, "LOCK_TRIES", 3)
    before = await catalogue.dump(admin)
    forgotten = await asyncpg.connect(dsn, server_settings={"application_name": "for\x1bgotten"})
    try:
        async with forgotten.transaction():
            if what == "a table":
                await forgotten.execute("lock table fencepost.task in access share mode")
            else:
                await forgotten.execute(
                    "select pg_advisory_xact_lock(hashtextextended('fencepost migrate fencepost', 0))"
                )
            with pytest.raises(MigrationRefused) as refused:
                await migrate(admin, "fencepost")
            assert f"pid {forgotten.get_server_pid()} " in str(refused.value)
            assert "gotten" in str(refused.value)
            assert str(refused.value).isprintable()
    finally:
        await forgotten.close()
    assert await catalogue.dump(admin) == before
