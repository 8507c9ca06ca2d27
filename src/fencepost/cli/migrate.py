"""`fencepost migrate`: the schema, brought to this code's version, shown as SQL, or only looked at."""

from __future__ import annotations

import contextlib
from collections.abc import AsyncGenerator
from typing import TYPE_CHECKING

import click

from fencepost.cli import say
from fencepost.cli.place import Place, database_options, opened, run_async
from fencepost.cli.say import DONE, FAILED, USAGE, Stop

if TYPE_CHECKING:
    import asyncpg


@click.command()
@click.option(
    "--sql",
    "as_sql",
    is_flag=True,
    help="Print what would run, and run nothing. Without a database: an installation from nothing.",
)
@click.option("--check", is_flag=True, help="Only say what is pending or was changed; exit 1 when something is.")
@click.option("--roles", is_flag=True, help="Also create the worker's and the reader's role.")
@database_options
def migrate(as_sql: bool, check: bool, roles: bool, dsn: str | None, as_json: bool) -> int:
    """Bring the schema to this code's version. Any number of processes may do so at once: each step is applied once."""
    from fencepost.settings import read_settings

    if as_sql and check:
        raise Stop(USAGE, "USAGE", "--sql prints what --check counts: give one of them")
    settings = read_settings(dsn=dsn)
    if as_sql and settings.database_url is None:
        from fencepost.cli.script import script

        say.plain(script(None, settings.schema, roles=roles))
        return DONE
    with opened(dsn) as place:
        return run_async(_migrate(place, as_sql=as_sql, check=check, roles=roles, as_json=as_json))


async def _migrate(place: Place, *, as_sql: bool, check: bool, roles: bool, as_json: bool) -> int:
    from fencepost import schema

    name = place.settings.schema
    async with _connected(place) as connection:
        if as_sql or check:
            async with connection.transaction():
                if as_sql:
                    return await _say_script(connection, name, roles=roles)
                return await _check(connection, name, roles=roles, as_json=as_json)
        applied = await schema.migrate(connection, name, roles=roles)
        async with connection.transaction():
            version = await schema.installed_version(connection, name)
    say.words(f"applied: {', '.join(applied)}" if applied else "nothing to apply")
    say.words(f"schema {name} is version {version}")
    if as_json:
        say.data({"schema": name, "version": version, "applied": applied})
    return DONE


async def _say_script(connection: asyncpg.Connection, name: str, *, roles: bool) -> int:
    from fencepost import schema
    from fencepost.cli.script import script

    version = await schema.installed_version(connection, name)
    if version is not None and (changed := await schema.changed_migrations(connection, name)):
        raise schema.MigrationRefused(schema.refusal(changed))
    say.plain(script(version, name, roles=roles))
    return DONE


async def _check(connection: asyncpg.Connection, name: str, *, roles: bool, as_json: bool) -> int:
    from fencepost import schema

    version = await schema.installed_version(connection, name)
    if version is not None and version > schema.SCHEMA_VERSION:
        schema.judge_version(version, name)
    changed = await schema.changed_migrations(connection, name) if version is not None else []
    pending = [step.name for step in schema.migrations() if step.version > (version or 0)]
    if roles and not await has_roles(connection, name):
        pending.append("roles")
    if as_json:
        say.data({"schema": name, "version": version, "pending": pending, "changed": changed})
    else:
        for step in pending:
            say.plain(step)
    if changed:
        say.words(schema.refusal(changed))
    elif pending:
        say.words(f"{len(pending)} pending: run `fencepost migrate`")
    else:
        say.words(f"schema {name} is version {version}: nothing is pending")
    return FAILED if pending or changed else DONE


async def has_roles(connection: asyncpg.Connection, name: str) -> bool:
    """The worker's and the reader's role exist."""
    from fencepost.schema import role_names

    count: int = await connection.fetchval(
        "select count(*) from pg_roles where rolname = any ($1)", list(role_names(name))
    )
    return count == len(role_names(name))


@contextlib.asynccontextmanager
async def _connected(place: Place) -> AsyncGenerator[asyncpg.Connection]:
    """A connection without time-outs of ours: a migration takes as long as it takes. What is read or done is done in transactions, and no
    statement is prepared by name: behind a transaction pooler nothing else stays together.
    """
    import asyncpg

    async with place.database(ready=False) as db:
        connection = await asyncpg.connect(db.dsn, timeout=20, statement_cache_size=0)
        try:
            yield connection
        finally:
            await connection.close()
