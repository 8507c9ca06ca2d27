"""Behind a transaction pooler: sessions are lent for a transaction, and what one of them was told the next does not know."""

from __future__ import annotations

import asyncio
import tempfile
from collections.abc import Iterator
from pathlib import Path

import asyncpg
import pytest

from fencepost import limits
from fencepost.client import Client
from fencepost.db import Database
from tests.roads.command import Shop
from tests.roads.crew import Crew
from tests.roads.pooler import Pooler, needs_pooler
from tests.roads.worker_process import napping

pytestmark = needs_pooler


@pytest.fixture
def folder() -> Iterator[Path]:
    """One that other users can come to."""
    with tempfile.TemporaryDirectory(prefix="fp-pooler-") as made:
        yield Path(made)


async def test_00_14_each_transaction_is_told_what_it_needs_and_leaves_nothing_behind(
    worker_dsn: str, folder: Path, admin: asyncpg.Connection
) -> None:
    """Its isolation and its bounds; the server's own say something else."""
    name = await admin.fetchval("select current_database()")
    await admin.execute(f"alter database {name} set default_transaction_isolation = 'serializable'")
    ask = (
        "select current_setting('transaction_isolation'), current_setting('statement_timeout'), "
        "current_setting('idle_in_transaction_session_timeout')"
    )
    async with Pooler(worker_dsn, folder) as pooler:
        db = Database(pooler.dsn, connections=1)
        other = await asyncpg.connect(db.dsn, statement_cache_size=0)
        for _ in range(4):  # both sessions, in turn
            async with db.connection() as connection:
                assert tuple(await connection.fetchrow(ask)) == (
                    "read committed",
                    f"{limits.STATEMENT_SECONDS:g}s",
                    "1min",
                )
            async with other.transaction():
                assert tuple(await other.fetchrow(ask)) == ("serializable", "0", "0")
        await other.close()
        for _ in range(2):  # after an error the next transaction is a new one, on the same connection
            with pytest.raises(asyncpg.DivisionByZeroError):
                async with db.connection() as connection:
                    await connection.execute("select 1/0")
        async with db.connection() as again:
            assert again is connection
            assert await again.fetchval("select 1") == 1
        await db.close()


async def test_00_10_runs_wait_are_woken_and_end_over_two_sessions(
    worker_dsn: str, folder: Path, tmp_path: Path
) -> None:
    """Clients, a worker and its heartbeat, eight times as many as there are sessions."""
    async with Pooler(worker_dsn, folder) as pooler:
        crew = Crew(pooler.dsn, tmp_path)
        clients = [Client(Database(pooler.dsn)) for _ in range(12)]
        try:
            await crew.start(beat=1.0)
            handles = await asyncio.gather(*(client.start(napping, 0.5) for client in clients for _ in range(4)))
            async with asyncio.timeout(60):
                assert set(await asyncio.gather(*(handle.result() for handle in handles))) == {"woken"}
            assert len(crew.effects("note", "woken")) == len(handles)
        finally:
            crew.end()
            for client in clients:
                await client.close()


async def test_a_schema_is_migrated_through_it_while_others_use_it(
    shop: Shop, dsn: str, folder: Path, admin: asyncpg.Connection
) -> None:
    """Twice: what there is to do, and that there is nothing to do; and the doctor looks."""
    await admin.execute("drop schema fencepost cascade")
    async with Pooler(dsn, folder) as pooler:
        shop.environ["FENCEPOST_DATABASE_URL"] = pooler.dsn
        said = await asyncio.gather(*(shop("migrate", "--roles", "--json") for _ in range(3)))
        assert [one.code for one in said] == [0, 0, 0], [one.err for one in said]
        assert sorted(len(one.object["applied"]) for one in said) == [0, 0, 1]
        for words in (("migrate", "--roles"), ("migrate", "--check", "--roles"), ("migrate", "--sql")):
            assert (await shop(*words)).code == 0
        said = await shop("doctor", "--json")
        assert said.object["database"]["roles"] is True
        assert "nothing can listen" in str(said.object["notes"])
