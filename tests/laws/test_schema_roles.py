"""Laws 00.7, 00.9: who may do what: the worker's role acts through doors, the reader's sees views, and no superuser is needed."""

from __future__ import annotations

import uuid

import asyncpg
import pytest

from fencepost.db import Database
from fencepost.schema import migrate, role_names
from fencepost.testing import with_database
from tests import catalogue
from tests.laws import doors
from tests.support import connected, empty_database


async def test_the_worker_role_acts_through_doors_only(db: Database, admin: asyncpg.Connection) -> None:
    """00.9 No table is readable or writable, no inner room open, nothing can be made; every door is."""
    async with db.connection() as worker:
        relations = [
            row[0]
            for row in await admin.fetch(
                "select oid::regclass::text from pg_class where relnamespace = 'fencepost'::regnamespace and relkind in ('r', 'v', 'S')"
            )
        ]
        assert len(relations) > 15
        for relation in relations:
            for verb in ("select", "insert", "update", "delete", "truncate", "references", "trigger"):
                if relation.endswith("_seq") and verb not in {"select", "update"}:
                    continue
                kind = "sequence" if relation.endswith("_seq") else "table"
                assert not await worker.fetchval(f"select has_{kind}_privilege($1, $2)", relation, verb), (
                    relation,
                    verb,
                )
        for name, function in (await catalogue.functions(admin)).items():
            open_ = await worker.fetchval("select has_function_privilege($1, 'execute')", function["signature"])
            assert open_ == (not name.endswith("_")), name
            assert not function["public"], name
        assert not await worker.fetchval("select has_schema_privilege('fencepost', 'create')")
        for text in (
            "create table fencepost.x ()",
            "update fencepost.task set fence = gen_random_uuid()",
            "table fencepost.run",
        ):
            with pytest.raises(asyncpg.InsufficientPrivilegeError):
                await worker.execute(text)


async def test_the_reader_sees_views_and_reads_and_nothing_else(admin: asyncpg.Connection) -> None:
    """00.9"""
    _, reader = role_names("fencepost")
    views = await admin.fetch(
        """select c.relname from pg_class c where c.relnamespace = 'fencepost'::regnamespace and c.relkind in ('r', 'v')
            and has_table_privilege($1, c.oid, 'select')""",
        reader,
    )
    assert {row[0] for row in views} == {"runs", "ledger"}
    allowed = {
        name
        for name, function in (await catalogue.functions(admin)).items()
        if await admin.fetchval("select has_function_privilege($1, $2, 'execute')", reader, function["signature"])
    }
    assert allowed == {
        name for name in await catalogue.functions(admin) if name.startswith("read_") and not name.endswith("_")
    }


async def test_every_door_runs_as_the_owner_on_a_pinned_path(admin: asyncpg.Connection) -> None:
    """00.7 And 00.9: what a door does is the owner's right, and its words are looked up in one place."""
    for name, function in (await catalogue.functions(admin)).items():
        if not name.endswith("_"):
            assert function["definer"], name
            assert "search_path=pg_catalog, pg_temp" in function["settings"], name


async def test_without_roles_everything_works_too(server: str) -> None:
    """00.9"""
    async with empty_database(server) as dsn, connected(dsn) as owner:
        assert await migrate(owner, "bare", roles=False) == ["chapters"]
        db = Database(dsn, "bare", connections=2)
        await doors.walk(db)
        await db.close()
        assert await migrate(owner, "bare", roles=True) == ["grants"]
        assert await owner.fetchval("select has_schema_privilege($1, 'bare', 'usage')", role_names("bare")[0])
        await owner.execute("drop schema bare cascade; drop role bare_worker; drop role bare_reader")


async def test_who_migrates_owns_and_needs_to_be_no_superuser(server: str) -> None:
    """00.9 A database's owner who may create roles can install; the doors then act with no more than that right."""
    async with empty_database(server) as dsn, connected(dsn) as superuser:
        role = f"owner_{uuid.uuid4().hex}"
        base = await superuser.fetchval("select current_database()")
        await superuser.execute(f"create role {role} login createrole; alter database {base} owner to {role}")
        async with connected(with_database(dsn, base, user=role)) as owner:
            await migrate(owner, "humble", roles=True)
            assert (
                await owner.fetchval("select nspowner::regrole::text from pg_namespace where nspname = 'humble'")
                == role
            )
        login = f"{role}_w"
        await superuser.execute(f"create role {login} login in role humble_worker")
        db = Database(with_database(dsn, base, user=login), "humble", connections=2)
        await doors.walk(db)
        await db.close()
        await superuser.execute(
            f"drop role {login}; drop schema humble cascade; drop role humble_worker; drop role humble_reader"
        )
        await superuser.execute(f"alter database {base} owner to postgres; drop owned by {role}; drop role {role}")
