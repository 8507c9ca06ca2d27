"""Laws 00.7-00.9 and 00.2 on the schema as a whole: how it comes to be, under any name, and what its catalogue says."""

from __future__ import annotations

import asyncio
import json
import re
import subprocess
import sys
import uuid
from typing import get_args

import asyncpg
import pytest

from fencepost import schema, words
from fencepost.db import Database
from fencepost.errors import FencepostError
from fencepost.schema import MigrationRefused, SchemaMismatch, migrate, quote_ident, role_names
from fencepost.testing import TemplateDatabase, with_database
from tests import catalogue
from tests.laws import doors
from tests.support import as_worker, connected, empty_database, until_blocked
from tests.tidy.freeze import FIRST, frozen


async def walk_as_worker(dsn: str) -> None:
    db = Database(as_worker(dsn), connections=2)
    try:
        await doors.walk(db)
    finally:
        await db.close()


# How it comes to be


async def test_installing_from_nothing_and_walking_the_migrations_give_identical_schemas(
    server: str, template: TemplateDatabase, admin: asyncpg.Connection
) -> None:
    """00.8 Two dumps of the catalogue are compared."""
    async with empty_database(server) as dsn, connected(dsn) as walked:
        applied = await migrate(walked, "fencepost", roles=True, test=True, by_migrations=True)
        assert applied == [script.name for script in schema.migrations()]
        by_migrations, by_chapters = await catalogue.dump(walked), await catalogue.dump(admin)
        for kind in by_chapters:
            assert by_migrations[kind] == by_chapters[kind], kind
        assert len(by_chapters["function"]) > 40
        await walk_as_worker(dsn)


def test_the_first_migration_is_the_chapters_while_it_is_the_only_one() -> None:
    """00.8 python -m tests.tidy.freeze writes it."""
    assert len(schema.migrations()) == schema.SCHEMA_VERSION
    if schema.SCHEMA_VERSION == 1:
        assert FIRST.read_text(encoding="utf-8") == frozen(), "the chapters changed: python -m tests.tidy.freeze"


TWENTY = """
import asyncio, asyncpg, json, os, sys
from fencepost.schema import migrate
async def once():
    connection = await asyncpg.connect(sys.argv[1])
    applied = await migrate(connection, "fencepost", roles=True, by_migrations=sys.argv[2] == "migrations")
    await connection.close()
    return applied
read, write = os.pipe()
children = []
for _ in range(20):
    child = os.fork()
    if not child:
        os.write(write, (json.dumps(asyncio.run(once())) + "\\n").encode())
        os._exit(0)
    children.append(child)
print(json.dumps([os.waitpid(child, 0)[1] for child in children]))
os.close(write)
print(os.fdopen(read).read())
"""


@pytest.mark.parametrize("how", ["chapters", "migrations"])
async def test_twenty_processes_migrating_at_once_apply_each_step_once(server: str, how: str) -> None:
    """00.8 Twenty real processes."""
    async with empty_database(server) as dsn:
        child = await asyncio.create_subprocess_exec(
            sys.executable, "-c", TWENTY, dsn, how, stdout=subprocess.PIPE, stderr=subprocess.PIPE
        )
        out, err = await child.communicate()
        assert child.returncode == 0, err.decode()
        ended, *applied = [json.loads(line) for line in out.decode().split("\n") if line]
        assert ended == [0] * 20, err.decode()
        steps = ["chapters"] if how == "chapters" else [script.name for script in schema.migrations()]
        assert sorted(step for steps in applied for step in steps) == steps
        assert len(applied) == 20
        async with connected(dsn) as owner:
            assert await owner.fetchval("select count(*) from fencepost.migration") == len(schema.migrations())


MIDDLE = """
import asyncio, asyncpg, sys
from fencepost import schema
chapters = schema.chapters()
half = len(chapters) // 2
wait = schema.Script(0, "wait", "select pg_advisory_xact_lock(4711)")
schema.chapters = lambda: [*chapters[:half], wait, *chapters[half:]]
async def main():
    connection = await asyncpg.connect(sys.argv[1])
    print(connection.get_server_pid(), flush=True)
    await schema.migrate(connection, "fencepost", roles=True)
asyncio.run(main())
"""


async def test_a_migration_killed_in_the_middle_left_nothing_and_is_done_by_the_next(
    server: str, template: TemplateDatabase
) -> None:
    """00.8, B97 The process is killed between two chapters, which a lock of ours holds open."""
    async with empty_database(server) as dsn, connected(dsn) as owner, connected(dsn) as watch:
        async with owner.transaction():
            await owner.execute("select pg_advisory_xact_lock(4711)")
            child = subprocess.Popen([sys.executable, "-c", MIDDLE, dsn], stdout=subprocess.PIPE)
            try:
                assert child.stdout
                line = await asyncio.to_thread(child.stdout.readline)
                await until_blocked(watch, int(line))
            finally:
                child.kill()
                child.communicate()
        assert await migrate(owner, "fencepost", roles=True) == ["chapters"]
        assert await migrate(owner, "fencepost", roles=True) == []
        await walk_as_worker(dsn)


@pytest.mark.parametrize(
    ("stands", "says"),
    [
        (0, "older than this code's 1: run `fencepost migrate`"),
        (3, "install the release that migrated it, or a later one"),
    ],
)
async def test_code_refuses_a_schema_it_does_not_run_on_and_says_what_to_run(
    db: Database, admin: asyncpg.Connection, stands: int, says: str
) -> None:
    """00.8 A failure is not remembered (00.12): once the schema is right, the same process starts."""
    await admin.execute("update fencepost.meta set schema_version = $1", stands)
    with pytest.raises(SchemaMismatch, match=re.escape(says)):
        await db.ready()
    await admin.execute("update fencepost.meta set schema_version = 1")
    await db.ready()


async def test_the_code_of_one_release_back_runs_on_the_next_schema(db: Database, admin: asyncpg.Connection) -> None:
    """00.8"""
    await admin.execute("update fencepost.meta set schema_version = 2")
    await db.ready()


async def test_without_a_schema_code_says_what_to_run_and_makes_nothing(server: str) -> None:
    """00.8 A starting worker, gateway or client executes no DDL."""
    async with empty_database(server) as dsn, connected(dsn) as owner:
        db = Database(dsn)
        with pytest.raises(SchemaMismatch, match="run `fencepost migrate`"):
            await db.ready()
        await db.close()
        assert await owner.fetchval("select count(*) from pg_namespace where nspname = 'fencepost'") == 0


async def test_migrate_refuses_a_newer_schema_and_a_migration_that_was_changed(admin: asyncpg.Connection) -> None:
    """00.8"""
    await admin.execute("update fencepost.meta set schema_version = 3")
    with pytest.raises(SchemaMismatch, match="newer than this code's 1"):
        await migrate(admin, "fencepost", roles=True)
    await admin.execute("update fencepost.meta set schema_version = 1")
    await admin.execute("update fencepost.migration set sha256 = 'other'")
    with pytest.raises(MigrationRefused, match=r"migration 0001_first\.sql of this code changed after this schema was"):
        await migrate(admin, "fencepost", roles=True)


async def test_starting_processes_take_no_lock_that_a_migration_would_wait_for(
    db: Database, admin: asyncpg.Connection
) -> None:
    """00.8 While the migrations' lock is held by another, a process starts."""
    async with admin.transaction():
        await admin.execute("select pg_advisory_xact_lock(hashtextextended($1, 0))", "fencepost migrate fencepost")
        await asyncio.wait_for(db.ready(), 10)


# Under any name

ODD = [
    "Fence post",
    'a"b',
    "x;drop",
    "it's",
    "$law$",
    "$t$ $role$",
    "100%s %I",
    "back\\slash\\1",
    "line\nbreak -- '",
    "zäune ✓ 柵",
    "fencepost.fencepost",
    "x" * 63,
    "é" * 31,
]


@pytest.mark.parametrize("name", ODD)
async def test_any_legal_schema_name_works(server: str, name: str) -> None:
    """00.7, B103 Every door is opened, as the worker role, under each odd name."""
    async with empty_database(server) as dsn, connected(dsn) as owner:
        assert await migrate(owner, name, roles=True, test=True) == ["chapters"]
        assert await migrate(owner, name, roles=True, test=True) == []
        login = f"odd_{uuid.uuid4().hex}"
        await owner.execute(f"create role {login} login in role {quote_ident(role_names(name)[0])}")
        db = Database(with_database(dsn, dsn.partition("?")[0].rpartition("/")[2], user=login), name, connections=2)
        try:
            await db.ready()
            with doors.opened() as opened:
                await doors.walk(db)
        finally:
            await db.close()
        doors_there = {door for door in await catalogue.functions(owner, name) if not door.endswith("_")}
        assert opened | {"read_version"} == doors_there  # that one was asked by ready()
        others = await owner.fetch(
            """select relname from pg_class c join pg_namespace n on n.oid = relnamespace
                where nspname not in ($1, 'pg_catalog', 'information_schema', 'pg_toast') and nspname !~ '^pg_temp'""",
            name,
        )
        assert others == []
        await owner.execute(f"drop schema {quote_ident(name)} cascade; drop role {login}")
        for role in role_names(name):
            await owner.execute(f"drop role {quote_ident(role)}")


def test_the_roles_of_every_schema_are_its_own_and_fit_a_name() -> None:
    """00.7"""
    names = [*ODD, "x" * 62 + "y", "é" * 30 + "xx"]
    roles = [role for name in names for role in role_names(name)]
    assert len(set(roles)) == 2 * len(names)
    assert max(len(role.encode()) for role in roles) <= 63


TRAP = """
create schema trap;
create function trap.now() returns timestamptz language sql as 'select timestamptz ''1970-01-01''';
create function trap.coalesce(anyelement, anyelement) returns anyelement language sql as 'select $2';
create function trap.cardinality(anyarray) returns integer language sql as 'select -1';
create function trap.left(text, integer) returns text language sql as 'select ''trapped''';
create function trap.replace(text, text, text) returns text language sql as 'select ''trapped''';
create function trap.wrong(text, text) returns boolean language sql immutable as 'select false';
create function trap.wrong(bigint, bigint) returns boolean language sql immutable as 'select false';
create operator trap.= (function = trap.wrong, leftarg = text, rightarg = text);
create operator trap.= (function = trap.wrong, leftarg = bigint, rightarg = bigint);
create table trap.task (rid bigint, fence uuid);
create type trap.held_ as (x integer);
grant usage on schema trap to public; grant all on all tables in schema trap to public;
"""


async def test_search_path_changes_nothing(server: str, template: TemplateDatabase) -> None:
    """00.7, B103 A hostile search_path of the migrating role and of every session: the schema is the same, every door works."""
    async with empty_database(server) as dsn, connected(dsn) as owner:
        await owner.execute(TRAP)
        base = await owner.fetchval("select current_database()")
        await owner.execute(f"alter database {base} set search_path = trap, pg_catalog, public")
        async with connected(dsn) as trapped:
            assert await trapped.fetchval("select 'a'::text = 'a'::text") is False  # the trap is open
            await migrate(trapped, "fencepost", roles=True)
        await walk_as_worker(dsn)
        assert await owner.fetchval("select count(*) from trap.task") == 0


# What the catalogue says


async def test_the_trigger_knows_the_moves_of_the_table_and_no_others(admin: asyncpg.Connection) -> None:
    """00.2 The trigger's list is made from the table: here the two are compared."""
    trigger = await admin.fetchval("select pg_get_triggerdef(oid) from pg_trigger where tgname = 'task_moves'")
    assert "may_move_(old.state, new.state)" in trigger
    source = await admin.fetchval("select prosrc from pg_proc where proname = 'may_move_'")
    rows = await admin.fetch("select was, becomes from fencepost.move")
    said = set(re.findall(r"\('(\w+)','(\w+)'\)", source))
    assert said == {(row["was"], row["becomes"]) for row in rows}
    states = words.STATES | words.TERMINAL
    assert {state for row in rows for state in (row["was"], row["becomes"])} == states
    assert not any(was in words.TERMINAL for was, _ in said), "terminal is final"


async def test_every_move_names_doors_that_exist(admin: asyncpg.Connection) -> None:
    """00.2 `by` is what a reader follows."""
    named = {door for row in await admin.fetch("select by from fencepost.move") for door in row["by"]}
    assert named <= {name for name in await catalogue.functions(admin) if not name.endswith("_")}


async def test_the_closed_lists_of_words_and_of_the_database_are_the_same(admin: asyncpg.Connection) -> None:
    """00.2 Also 90.1: event types are one closed list."""

    async def listed(table: str, column: str) -> set[str]:
        shape = await admin.fetchval(
            "select p.prosrc from pg_constraint c join pg_depend d on d.objid = c.oid join pg_proc p on p.oid = d.refobjid "
            "where c.conrelid = $1::text::regclass and c.contype = 'c' and p.proname = $2",
            f"fencepost.{table}",
            f"is_{table}_",
        )
        (words,) = re.findall(rf"(?:return|and) (?:_|_t\.){column} in \(([^()]*)\)", re.sub("--.*", "", shape))
        return set(re.findall(r"'([\w.]+)'", words))

    assert await listed("event", "type") == words.EVENT_TYPES
    assert await listed("task", "state") == words.STATES
    assert await listed("outcome", "status") == words.TERMINAL
    assert await listed("boundary", "kind") == words.BOUNDARY_KINDS
    assert await listed("boundary", "state") == words.BOUNDARY_STATES
    assert await listed("run", "on_lost") == set(get_args(words.OnLost))
    assert {r["source"] for r in await admin.fetch("select source from fencepost.policy")} == set(words.SOURCES)
    assert set(words.STATUSES) == words.STATES | words.TERMINAL


async def test_error_codes_that_the_database_writes_are_of_the_closed_list() -> None:
    """00.2 A code nobody knows would be an outcome nobody handles."""
    written = {
        code
        for script in schema.chapters()
        for code in re.findall(r"""["']code["']\s*[:,]\s*["']([A-Z_]+)["']|'([A-Z]+(?:_[A-Z]+)+)'""", script.text)
        for code in code
        if code
    }
    assert {"ADMISSION_EXPIRED", "RUNNER_LOST", "TRIES_EXHAUSTED"} <= written
    assert written <= words.ERROR_CODES | {"CANCELLED"}


def test_a_broken_law_is_no_answer_and_everything_else_is() -> None:
    """00.4 The tree of errors has one root, so that a caller can tell our exceptions from the driver's."""
    from fencepost import errors

    ours = [e for e in vars(errors).values() if isinstance(e, type) and issubclass(e, Exception)]
    assert len(ours) > 10
    assert all(issubclass(e, FencepostError) for e in ours)
