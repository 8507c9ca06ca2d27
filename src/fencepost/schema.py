"""The schema: chapters for a fresh installation, migrations for a running one, and the proof of which stands (law 00.8).

A worker, gateway or client never runs any of this: it asserts the version (`assert_current`) and says what to run.
"""

from __future__ import annotations

import asyncio
import contextlib
import hashlib
import re
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from fencepost.notes import escape

if TYPE_CHECKING:
    import asyncpg

SCHEMA_VERSION: Final = 1
# A door stays one release after its last caller, so code of one version back still runs on this schema.
OLDEST_CODE_VERSION: Final = 1
LOCK_TIMEOUT_MS: Final = 3000
LOCK_TRIES: Final = 40

# What `render` looks at: a comment (left alone: a schema's name may hold a line break), a role, a name in a literal, a name.
_NAMED: Final = re.compile(
    r"(?m)^\s*--[^\n]*| -- [^\n]*|'fencepost_(?P<role>worker|reader)'|'fencepost\.(?P<name>\w+(?:\(\))?)'|\bfencepost\."
)


@dataclass(frozen=True, slots=True)
class Script:
    """One SQL file. `version` is 0 for a chapter."""

    version: int
    name: str
    text: str

    @property
    def sha256(self) -> str:
        return hashlib.sha256(self.text.encode()).hexdigest()


class SchemaMismatch(Exception):
    """The schema is not the one this code runs on. The message says what to run."""


class MigrationRefused(Exception):
    """A migration cannot be applied: a recorded one was changed, or the lock could not be had."""


def quote_ident(name: str) -> str:
    """A name as SQL writes it."""
    return '"' + name.replace('"', '""') + '"'


def quote_literal(text: str) -> str:
    """A text as SQL writes it."""
    escaped = text.replace("'", "''")
    return f"E'{escaped.replace(chr(92), chr(92) * 2)}'" if "\\" in escaped else f"'{escaped}'"


def role_names(schema: str) -> tuple[str, str]:
    """The worker's and the reader's role of an installation: roles belong to the whole cluster, so the schema is in the name."""
    if len(schema.encode()) <= 40:
        return f"{schema}_worker", f"{schema}_reader"
    digest = hashlib.sha256(schema.encode()).hexdigest()[:16]
    return f"fencepost_{digest}_worker", f"fencepost_{digest}_reader"


def render(text: str, schema: str) -> str:
    """The SQL of a chapter or migration for an installation's schema (any legal name, law 00.7)."""
    worker, reader = role_names(schema)
    qualified = quote_ident(schema) + "."
    if "$" in schema:
        digest = hashlib.sha256(schema.encode()).hexdigest()[:8]
        text = re.sub(r"\$([a-z]+)\$", rf"$\g<1>_{digest}$", text)

    def name(found: re.Match[str]) -> str:
        if found["role"]:
            return quote_literal(worker if found["role"] == "worker" else reader)
        if found["name"]:
            return quote_literal(qualified + found["name"])
        return qualified if found[0] == "fencepost." else found[0]

    return _NAMED.sub(name, text)


def _read(folder: str) -> list[tuple[str, str]]:
    from importlib import resources

    root = resources.files("fencepost") / "sql"
    found = (root / folder if folder else root).iterdir()
    return sorted((f.name, f.read_text(encoding="utf-8")) for f in found if f.name.endswith(".sql"))


def chapters() -> list[Script]:
    """What a fresh installation runs, in order."""
    return [Script(0, name, text) for name, text in _read("")]


def migrations() -> list[Script]:
    """What a running installation walks, in order."""
    return [Script(int(name.split("_", 1)[0]), name, text) for name, text in _read("migrations")]


async def installed_version(connection: asyncpg.Connection, schema: str) -> int | None:
    """The version that stands in the schema; None when nothing of ours does."""
    if await connection.fetchval("select to_regclass($1)", f"{quote_ident(schema)}.meta") is None:
        return None
    version: int = await connection.fetchval(f"select {quote_ident(schema)}.read_version()")
    return version


async def migrate(
    connection: asyncpg.Connection, schema: str, *, roles: bool = False, test: bool = False, by_migrations: bool = False
) -> list[str]:
    """Bring the schema to this code's version; returns the names of what was applied, in order.

    `roles` also creates the worker and reader roles (law 00.9). Twenty processes at once apply each script once: each script
    is its own transaction under a transaction-scoped lock, and waits at most three seconds for any other lock before it steps
    back and tries again, so that it never queues the whole table behind a dump.

    `by_migrations` walks every migration from nothing instead of running the chapters; the two give identical schemas.
    A schema of the next release is left as it is: this code runs on it.
    Raises MigrationRefused, SchemaMismatch (the schema is newer than that, or its release must do what is asked).
    """
    if roles:
        await _create_roles(connection, schema)
    applied: list[str] = []
    while True:
        step = await _with_lock_retries(connection, schema, roles=roles, test=test, by_migrations=by_migrations)
        if step is None:
            return applied
        applied.append(step)


async def _with_lock_retries(
    connection: asyncpg.Connection, schema: str, *, roles: bool, test: bool, by_migrations: bool
) -> str | None:
    import asyncpg

    for turn in range(LOCK_TRIES):
        try:
            return await _apply_next(connection, schema, roles=roles, test=test, by_migrations=by_migrations)
        except (asyncpg.LockNotAvailableError, asyncpg.DeadlockDetectedError):
            pause = min(0.05 * 2**turn, 1.0)
            await asyncio.sleep(pause)  # waits: another session holds a lock; nothing announces its release
    message = f"a lock could not be had in {LOCK_TRIES} tries ({await _holders(connection, schema)}); run `fencepost migrate` again"
    raise MigrationRefused(message)


async def _holders(connection: asyncpg.Connection, schema: str) -> str:
    """Who has locks now that a migration waits for: its own lock, or one on a relation of the schema."""
    rows = await connection.fetch(
        """select distinct a.pid, a.application_name as name, a.state from pg_locks l join pg_stat_activity a on a.pid = l.pid
            where l.granted and l.pid <> pg_backend_pid() and l.database = (select d.oid from pg_database d where d.datname = current_database())
              and (l.relation in (select c.oid from pg_class c join pg_namespace n on n.oid = c.relnamespace where n.nspname = $1)
                   or l.locktype = 'advisory' and (l.classid::bigint << 32) + l.objid::bigint = hashtextextended($2, 0))
            order by a.pid limit 5""",
        schema,
        _lock_name(schema),
    )
    if not rows:
        return "nobody holds one any more"
    return "held by " + ", ".join(f"pid {row['pid']} {escape(row['name'])!r} {row['state']}" for row in rows)


def _lock_name(schema: str) -> str:
    """What the advisory lock of an installation's migrations is the hash of."""
    return "fencepost migrate " + schema


async def _apply_next(
    connection: asyncpg.Connection, schema: str, *, roles: bool, test: bool, by_migrations: bool
) -> str | None:
    async with connection.transaction(isolation="read_committed"):
        await connection.execute(f"set local lock_timeout = {LOCK_TIMEOUT_MS}")
        await connection.execute("set local search_path = pg_catalog, pg_temp")
        await connection.execute("select pg_advisory_xact_lock(hashtextextended($1, 0))", _lock_name(schema))
        version = await installed_version(connection, schema)
        scripts = migrations()
        if version is not None:
            if changed := await changed_migrations(connection, schema):
                raise MigrationRefused(refusal(changed))
            if version > SCHEMA_VERSION:
                judge_version(version, schema)
                if roles and await _lacks_grants(connection, schema):
                    raise SchemaMismatch(_too_new(version))
                return None
        if version is None and not by_migrations:
            await connection.execute(f"create schema if not exists {quote_ident(schema)}")
            for chapter in chapters():
                await connection.execute(render(chapter.text, schema))
            await _record(connection, schema, scripts, test=test)
            return "chapters"
        pending = [s for s in scripts if s.version > (version or 0)]
        if not pending:
            if roles and await _lacks_grants(connection, schema):
                await connection.execute(render(chapters()[-1].text, schema))
                return "grants"
            return None
        if version is None:
            await connection.execute(f"create schema if not exists {quote_ident(schema)}")
        await connection.execute(render(pending[0].text, schema))
        # Doors that a migration made or replaced are doors only once the grants have run over them.
        await connection.execute(render(chapters()[-1].text, schema))
        await _record(connection, schema, pending[:1], test=test)
        return pending[0].name


async def _record(connection: asyncpg.Connection, schema: str, scripts: list[Script], *, test: bool) -> None:
    name = quote_ident(schema)
    await connection.execute(
        f"""insert into {name}.meta (schema_version, system_identifier, database_oid, test)
            select $1, s.system_identifier::text, d.oid, $2 from pg_control_system() s, pg_database d where d.datname = current_database()
            on conflict (one) do update set schema_version = excluded.schema_version""",
        scripts[-1].version,
        test,
    )
    if test:  # its clock is a row every session reads (law 00.1)
        await connection.execute(
            f"create or replace function {name}.now_() returns timestamptz language sql stable as {quote_literal(f'select {name}.test_now_()')}"
        )
    await connection.executemany(
        f"insert into {name}.migration (version, name, sha256, applied_at) values ($1, $2, $3, transaction_timestamp())",
        [(s.version, s.name, s.sha256) for s in scripts],
    )


async def changed_migrations(connection: asyncpg.Connection, schema: str) -> list[str]:
    """The names of applied migrations that this code has with another text, in order; the schema must stand.

    One that this code does not have at all is of a later release: `judge_version` speaks of those.
    """
    known = {s.version: s.sha256 for s in migrations()}
    rows = await connection.fetch(f"select version, name, sha256 from {quote_ident(schema)}.migration order by version")
    return [row["name"] for row in rows if known.get(row["version"], row["sha256"]) != row["sha256"]]


def refusal(changed: list[str]) -> str:
    """The sentence for migrations that were changed after they were applied."""
    return (
        f"{'migration' if len(changed) == 1 else 'migrations'} {', '.join(changed)} of this code "
        "changed after this schema was made: install the release that made it"
    )


async def _create_roles(connection: asyncpg.Connection, schema: str) -> None:
    import asyncpg

    for role in role_names(schema):
        # Another migrating process may be faster.
        with contextlib.suppress(asyncpg.DuplicateObjectError, asyncpg.UniqueViolationError):
            async with connection.transaction():
                if not await connection.fetchval("select exists (select from pg_roles where rolname = $1)", role):
                    await connection.execute(f"create role {quote_ident(role)} nologin")


async def _lacks_grants(connection: asyncpg.Connection, schema: str) -> bool:
    worker, _ = role_names(schema)
    return not await connection.fetchval("select has_schema_privilege($1, $2, 'usage')", worker, schema)


def _too_new(version: int) -> str:
    return f"the schema is version {version}, newer than this code's {SCHEMA_VERSION}: install the release that migrated it, or a later one"


def judge_version(version: int | None, schema: str) -> None:
    """Law 00.8: raises SchemaMismatch, with what to run, unless this code runs on that version.

    Code one release back runs on a newer schema; the schema itself is never older than the code.
    """
    if version is None:
        message = f"there is no Fencepost schema {schema!r} in this database: run `fencepost migrate`"
        raise SchemaMismatch(message)
    if version < SCHEMA_VERSION:
        message = f"the schema is version {version}, older than this code's {SCHEMA_VERSION}: run `fencepost migrate`"
        raise SchemaMismatch(message)
    if version > SCHEMA_VERSION + 1:
        raise SchemaMismatch(_too_new(version))
