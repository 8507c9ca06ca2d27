"""Which database a command speaks to: the DSN that was said, else the embedded home."""

from __future__ import annotations

import asyncio
import contextlib
import gc
from collections.abc import AsyncGenerator, Callable, Coroutine, Generator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, Literal, TypeVar

import click

from fencepost.cli import say
from fencepost.cli.say import NO_DATABASE, Stop

if TYPE_CHECKING:
    from fencepost.db import Database
    from fencepost.settings import Settings

F = TypeVar("F", bound=Callable[..., Any])
T = TypeVar("T")

GC_OBJECTS: Final = 20_000  # new ones between two looks at the youngest

Homes = Literal["never", "existing", "create"]


@dataclass(frozen=True, slots=True)
class Place:
    """A database by its DSN. `embedded`: the directory of its home; None: somebody else's server."""

    settings: Settings
    dsn: str
    embedded: Path | None

    @property
    def release(self) -> str:
        """The release that this process works for."""
        from fencepost.settings import release_of

        return release_of(self.settings)

    @contextlib.asynccontextmanager
    async def database(self, *, ready: bool = True) -> AsyncGenerator[Database]:
        """The installation, its schema's version asserted first: a database that does not answer is told at once."""
        from fencepost.db import Database

        db = Database(self.dsn, self.settings.schema, name="fencepost cli")
        try:
            if ready:
                await db.ready()
            yield db
        finally:
            await db.close()


def database_options(function: F) -> F:
    """--dsn and --json, which every command that reads or acts has."""
    function = click.option("--json", "as_json", is_flag=True, help="Objects instead of words, on stdout.")(function)
    return click.option(
        "--dsn", metavar="DSN", help="The database; else FENCEPOST_DATABASE_URL, else the embedded home."
    )(function)


def org_option(function: F) -> F:
    """--org, which every command that takes a run's id has."""
    return click.option("--org", default="default", show_default=True, help="The run's organisation.")(function)


@contextlib.contextmanager
def opened(dsn: str | None, *, homes: Homes = "existing", embedded: bool = False) -> Generator[Place]:
    """The place to work in, leased while the block runs.

    `homes`: whether an embedded home may serve, and may be made. `embedded`: asked for, whatever the settings say.
    Raises Stop (5), with what to set; NoPostgres.
    """
    from fencepost.settings import read_settings

    settings = read_settings(dsn=dsn)
    if settings.origins["database_url"] == "argument":
        settings = replace(settings, listen_url=None)  # that is of the database in the environment
    if settings.database_url and not embedded:
        yield Place(settings, settings.database_url, None)
        return
    home = settings.home.absolute()
    if homes == "never" and not embedded:
        raise Stop(
            NO_DATABASE,
            "NO_DATABASE",
            "no database: set FENCEPOST_DATABASE_URL, or give --dsn (or --embedded for a home of this machine)",
        )
    if homes != "create" and not (home / "postgres" / "PG_VERSION").exists():
        raise Stop(
            NO_DATABASE, "NO_DATABASE",
            f"no database: set FENCEPOST_DATABASE_URL or give --dsn; there is no embedded home at {home} either"
            " (FENCEPOST_HOME; `fencepost run` and `fencepost dev` make one)",
        )  # fmt: skip
    from fencepost.postgres import open_home

    say.words(f"home: {home}")
    with open_home(home, create=homes == "create") as lease:
        files = home / "files" if settings.origins["files"] == "default" else settings.files
        yield Place(replace(settings, database_url=lease.dsn, listen_url=None, files=files), lease.dsn, home)


async def migrate_home(place: Place) -> None:
    """An embedded home is migrated by whoever is about to work in it; another's database never is."""
    if place.embedded is None:
        return
    import asyncpg

    from fencepost import schema

    connection = await asyncpg.connect(place.dsn, timeout=20)
    try:
        await schema.migrate(connection, place.settings.schema)
    finally:
        await connection.close()


def run_async(coroutine: Coroutine[Any, Any, T]) -> T:
    """Run a command's coroutine to its end."""
    return asyncio.run(coroutine)


def spare_collector() -> None:
    """What was imported for good is not walked again and again: legs leave no circles behind, so there is little to find."""
    gc.freeze()
    gc.set_threshold(GC_OBJECTS, 20, 50)


def run_long(coroutine: Coroutine[Any, Any, T]) -> T:
    """The same for a process that works for hours: on uvloop where it is installed (the extra `fast`)."""
    spare_collector()
    try:
        import uvloop
    except ImportError:
        return asyncio.run(coroutine)
    return uvloop.run(coroutine)
