"""The field: a database a system on one server, the board, and the one way to run a child of a system on them."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import asyncpg

from bench.board import Board
from bench.load import Machine
from bench.processes import Child, ChildFailed, child
from bench.server import database
from bench.sizes import Sizes
from bench.systems import system_class


@dataclass(slots=True)
class Field:
    """What every trial of a run shares."""

    dsn: str
    board: Board
    machine: Machine
    sizes: Sizes
    files: Path  # where workers may write, on the disk of the server's data
    versions: dict[str, dict[str, str]] = field(default_factory=dict[str, dict[str, str]])
    missing: dict[str, str] = field(default_factory=dict[str, str])
    statements: bool = False  # pg_stat_statements is there

    async def enter(self, names: list[str]) -> None:
        """A database each for the systems that are installed."""
        for name in names:
            async with child(name, "info") as one:
                said = await one.next()
            if "missing" in said:
                self.missing[name] = said["missing"]
                continue
            admin = await asyncpg.connect(self.dsn)
            await admin.execute(f"create database bench_{name}")
            await admin.close()
            side = Side(self, name, await asyncpg.connect(database(self.dsn, f"bench_{name}")))
            try:
                if self.statements:
                    await side.db.execute("create extension pg_stat_statements")
                await side.run("install")
                self.versions[name] = said["versions"]
            except ChildFailed as error:
                self.missing[name] = str(error)
            finally:
                await side.db.close()

    @contextlib.asynccontextmanager
    async def side(self, name: str) -> AsyncIterator[Side]:
        """One system's side, empty."""
        one = Side(self, name, await asyncpg.connect(database(self.dsn, f"bench_{name}")))
        try:
            await one.reset()
            yield one
        finally:
            await one.db.close()


class Side:
    """One system on the field."""

    def __init__(self, where: Field, name: str, db: asyncpg.Connection) -> None:
        self.field = where
        self.sizes = where.sizes
        self.board = where.board
        self.name = name
        self.db = db
        self.cls = system_class(name)

    async def reset(self) -> None:
        """No rows. The checkpoint comes before what is filled in: after it, every page that is touched is written to the WAL whole."""
        await self.db.execute(f"truncate {', '.join(self.cls.tables)} cascade")
        await self.db.execute("checkpoint")
        self.board.clear()

    def words(self, role: str, trial: str = "", **words: Any) -> list[str]:
        made = [
            self.name,
            role,
            "--dsn",
            database(self.field.dsn, f"bench_{self.name}"),
            "--board",
            str(self.board.path),
            "--files",
            str(self.field.files),
        ]
        made += ["--trial", trial]
        for word, value in words.items():
            made += [f"--{word}"] if value is True else [f"--{word}", str(value)]
        return made

    async def run(self, role: str, trial: str = "", **words: Any) -> dict[str, Any]:
        """A child to its end; what it said."""
        one = await Child.start(*self.words(role, trial, **words))
        return await one.finish(self.sizes.patience)

    async def settle(self, *, written: bool = False) -> None:
        """As after a while: vacuumed and analysed; `written`: the dirty pages too, where there are so many that the server would."""
        await self.db.execute("vacuum analyze")
        if written:
            await self.db.execute("checkpoint")

    async def fill_rows(self, pending: int, parked: int = 0, ended: int = 0, orgs: int = 1) -> None:
        """Rows by SQL; nobody sweeps behind while they are written, and `settle` does it then."""
        async with self.unswept():
            for statement in self.cls.fill_sql(pending, parked, ended, orgs):
                await self.db.execute(statement)

    @contextlib.asynccontextmanager
    async def unswept(self) -> AsyncIterator[None]:
        """No autovacuum, of no database of the server."""
        for statement in ("alter system set autovacuum = off", "select pg_reload_conf()"):
            await self.db.execute(statement)
        try:
            yield
        finally:
            for statement in ("alter system reset autovacuum", "select pg_reload_conf()"):
                await self.db.execute(statement)

    @contextlib.asynccontextmanager
    async def workers(self, n: int, trial: str) -> AsyncIterator[list[Child]]:
        """So many worker processes, ready; stopped at the end."""
        async with contextlib.AsyncExitStack() as stack:
            started = [await stack.enter_async_context(child(*self.words("worker", trial, worker=k))) for k in range(n)]
            try:
                await asyncio.gather(*(one.next() for one in started))
                yield started
            finally:
                await asyncio.gather(*(one.stop() for one in started))

    async def backends(self) -> list[int]:
        """The server's processes of this database, but for this connection's."""
        rows = await self.db.fetch(
            "select pid from pg_stat_activity where datname = current_database() and pid <> pg_backend_pid()"
        )
        return [row["pid"] for row in rows]

    async def left(self) -> bool:
        """Whether a live task is left."""
        return await self.db.fetchval(self.cls.left_sql) is not None

    async def wal(self) -> int:
        """Bytes of WAL since the server was made."""
        return int(await self.db.fetchval("select pg_wal_lsn_diff(pg_current_wal_lsn(), '0/0')::bigint"))
