"""For tests of workflows: a migrated database, a clock that a test sets, a process stopped at a named place.

    async with database() as installation:           # an embedded server; or database("postgresql://...")
        await installation.clock.advance(3600)        # the hour a sleep waits for has come

    with pause_at("step.marked") as pause:            # in this process
        ...
        await pause.reached()
        pause.release()

    python -m fencepost.testing worker MODULE:APP --pause row.kept:1000 --report-fd 7

starts what `fencepost worker MODULE:APP` starts. The 1000th time it has kept a row (and every later time) the leg's
coroutine waits for ever while heartbeats go on, one JSON line {"point", "n", "pid", "facts"} goes to the descriptor,
and the parent kills the process when it likes. `--die POINT:N` needs no parent: the process kills itself there. Points
are those of `fencepost.faults.POINTS`; `POINT[name=value,...]:N` counts only what happens with those facts.
"""

from __future__ import annotations

import asyncio
import contextlib
import hashlib
import json
import os
import re
import signal
import sys
import uuid
from collections.abc import AsyncGenerator, Callable, Generator
from dataclasses import dataclass
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any, Final
from urllib.parse import urlsplit, urlunsplit

import asyncpg

from fencepost import faults, schema
from fencepost.schema import quote_ident

# ── a database ───────────────────────────────────────────────────────────────────────────────────────────────────────


class Clock:
    """The clock of a test installation: a row every session reads (law 00.1). Until first set, the database's own.

    Needs the owner of the schema; raises RuntimeError where the installation is not marked test.
    """

    def __init__(self, dsn: str, schema: str = "fencepost") -> None:
        self._dsn = dsn
        self._meta = f"{quote_ident(schema)}.meta"

    async def now(self) -> datetime:
        """What a transaction that began now would read."""
        return await self._ask(f"select coalesce(test_now, transaction_timestamp()) from {self._meta} where test")

    async def set(self, instant: datetime) -> datetime:
        """Stand still at an instant."""
        return await self._ask(f"update {self._meta} set test_now = $1 where test returning test_now", instant)

    async def advance(self, by: float | timedelta) -> datetime:
        """Stand still `by` (seconds) after the instant that was now."""
        step = by if isinstance(by, timedelta) else timedelta(seconds=by)
        text = f"update {self._meta} set test_now = coalesce(test_now, transaction_timestamp()) + $1 where test"
        return await self._ask(text + " returning test_now", step)

    async def _ask(self, text: str, *args: Any) -> datetime:
        connection = await asyncpg.connect(self._dsn, timeout=20)
        try:
            instant: datetime | None = await connection.fetchval(text, *args)
        finally:
            await connection.close()
        if instant is None:
            raise RuntimeError("only an installation that was migrated for tests has a clock that can be set")
        return instant


@dataclass(frozen=True, slots=True)
class Installation:
    """One migrated test installation, alone in its database."""

    dsn: str
    schema: str
    clock: Clock


class TemplateDatabase:
    """A migrated database, made once a server for one schema name and one text of the chapters, and cloned per test.

    `server`: a DSN of somebody who may create databases and roles. Any number of processes may make and clone at once.
    """

    __test__ = False  # not a test class, whatever its name begins with

    def __init__(self, server: str, schema: str = "fencepost") -> None:
        self.server = server
        self.schema = schema
        self._name: str | None = None

    async def make(self) -> str:
        """Migrate the template if nobody has; its name."""
        if self._name is None:
            texts = "\0".join([self.schema, *(script.text for script in schema.chapters())])
            name = f"fencepost_template_{hashlib.sha256(texts.encode()).hexdigest()[:16]}"
            if not await self._on_server("select exists (select from pg_database where datname = $1)", name):
                await self._build(name)
            self._name = name
        return self._name

    async def _build(self, name: str) -> None:
        building = f"fencepost_building_{uuid.uuid4().hex}"
        await self._on_server(f"create database {building} strategy file_copy")
        connection = await asyncpg.connect(with_database(self.server, building), timeout=20)
        try:
            await schema.migrate(connection, self.schema, roles=True, test=True)
        finally:
            await connection.close()
        try:
            await self._on_server(f"alter database {building} rename to {name}")
        except (asyncpg.DuplicateDatabaseError, asyncpg.UniqueViolationError):  # somebody was faster, or as fast
            await self._on_server(f"drop database {building} (force)")

    @contextlib.asynccontextmanager
    async def clone(self) -> AsyncGenerator[Installation]:
        """An installation of its own, dropped at the end with whoever is still connected."""
        name = f"fencepost_{uuid.uuid4().hex}"
        await self._on_server(f"create database {name} template {await self.make()} strategy file_copy")
        dsn = with_database(self.server, name)
        try:
            await self._settle(dsn)
            yield Installation(dsn, self.schema, Clock(dsn, self.schema))
        finally:
            await self._on_server(f"drop database if exists {name} (force)")

    async def _settle(self, dsn: str) -> None:
        # A clone is an installation, not a copy of one (law 45.4).
        connection = await asyncpg.connect(dsn, timeout=20)
        try:
            await connection.execute(
                f"update {quote_ident(self.schema)}.meta set installation = gen_random_uuid(), "
                "database_oid = (select oid from pg_database where datname = current_database())"
            )
        finally:
            await connection.close()

    async def _on_server(self, text: str, *args: Any) -> Any:
        connection = await asyncpg.connect(self.server, timeout=20)
        try:
            return await connection.fetchval(text, *args)
        finally:
            await connection.close()


@contextlib.asynccontextmanager
async def database(
    server: str | None = None, *, schema: str = "fencepost", home: Path | None = None
) -> AsyncGenerator[Installation]:
    """A migrated test installation for one test.

    `server`: a DSN of somebody who may create databases and roles; None: an embedded server in `home`
    (.fencepost/test), shared by all processes that test there. Raises NoPostgres when there is none to be had.
    """
    if server is not None:
        async with TemplateDatabase(server, schema).clone() as installation:
            yield installation
        return
    from fencepost.postgres import TEST_SETTINGS, open_home

    place = home or Path(".fencepost") / "test"
    lease = await asyncio.to_thread(open_home, place, create=True, settings=TEST_SETTINGS, idle_seconds=10.0)
    try:
        async with TemplateDatabase(lease.dsn, schema).clone() as installation:
            yield installation
    finally:
        lease.close()


def with_database(dsn: str, name: str, *, user: str | None = None) -> str:
    """The same server, another database, and if asked another user without a password."""
    parts = urlsplit(dsn)
    netloc = parts.netloc if user is None else f"{user}@{parts.netloc.rpartition('@')[2]}"
    return urlunsplit(parts._replace(netloc=netloc, path=f"/{name}"))


# ── fault points ─────────────────────────────────────────────────────────────────────────────────────────────────────

Action = Callable[[dict[str, Any], int], Any]
When = Callable[[dict[str, Any]], bool]

_watchers: list[_Watcher] = []


@dataclass(slots=True, eq=False)
class _Watcher:
    point: str
    when: When
    action: Action
    n: int = 0


async def _dispatch(point: str, facts: dict[str, Any]) -> None:
    for watcher in tuple(_watchers):  # one may leave while another is awaited
        if watcher.point == point and watcher.when(facts):
            watcher.n += 1
            found = watcher.action(facts, watcher.n)
            if asyncio.iscoroutine(found):
                await found


@contextlib.contextmanager
def at_point(point: str, action: Action, *, when: When | None = None) -> Generator[None]:
    """While open, each time this process reaches the point, `action(facts, n)` is called; n counts from 1.

    A coroutine is awaited; what is raised is raised there. Raises ValueError for a point that does not exist.
    """
    watcher = _watch(point, action, when)
    try:
        yield
    finally:
        _unwatch(watcher)


def _watch(point: str, action: Action, when: When | None) -> _Watcher:
    if point not in faults.POINTS:
        raise ValueError(f"there is no fault point {point!r}; there are: {', '.join(sorted(faults.POINTS))}")
    watcher = _Watcher(point, when or (lambda _: True), action)
    _watchers.append(watcher)
    faults.hook = _dispatch
    return watcher


def _unwatch(watcher: _Watcher) -> None:
    _watchers.remove(watcher)
    if not _watchers:
        faults.hook = None


class Pause:
    """What `pause_at` gives: whoever reaches the point waits until it is released."""

    def __init__(self) -> None:
        self._reached = asyncio.Event()
        self._released = asyncio.Event()
        self.facts: list[dict[str, Any]] = []

    async def reached(self, seconds: float = 30.0) -> dict[str, Any]:
        """Wait until somebody stands at the point; the facts of the first. Raises TimeoutError."""
        async with asyncio.timeout(seconds):
            await self._reached.wait()
        return self.facts[0]

    def release(self) -> None:
        """Let everybody go on, and nobody wait here again."""
        self._released.set()

    async def stand(self, facts: dict[str, Any]) -> None:
        """Be somebody who reached the point."""
        self.facts.append(facts)
        self._reached.set()
        await self._released.wait()


@contextlib.contextmanager
def pause_at(point: str, *, when: When | None = None, nth: int = 1) -> Generator[Pause]:
    """Whoever reaches the point for the nth time, or later, waits until released; `when(facts)`: which times count."""
    pause = Pause()
    with at_point(point, lambda facts, n: pause.stand(facts) if n >= nth else None, when=when):
        try:
            yield pause
        finally:
            pause.release()


@contextlib.contextmanager
def raise_at(point: str, error: BaseException, *, when: When | None = None, nth: int = 1) -> Generator[None]:
    """The nth time the point is reached, and only then, `error` is raised there."""

    def action(_: dict[str, Any], n: int) -> None:
        if n == nth:
            raise error

    with at_point(point, action, when=when):
        yield


# ── a process with a fault point ─────────────────────────────────────────────────────────────────────────────────────

_SPOT: Final = re.compile(r"(?P<point>[a-z.]+)(?:\[(?P<facts>[^\]]*)\])?(?::(?P<n>[1-9]\d*))?")


@dataclass(frozen=True, slots=True)
class Spot:
    """A fault point as the command line says it: `row.kept:1000`, `statement.executed[door=claim_attempts]:2`."""

    point: str
    facts: tuple[tuple[str, str], ...] = ()
    n: int = 1

    @staticmethod
    def parse(text: str) -> Spot:
        """Raises ValueError, saying what is wrong."""
        found = _SPOT.fullmatch(text)
        if found is None or found["point"] not in faults.POINTS:
            known = ", ".join(sorted(faults.POINTS))
            raise ValueError(f"{text!r} is no fault point; say POINT[name=value,...]:N with one of {known}")
        facts = (fact.partition("=") for fact in (found["facts"] or "").split(",") if fact)
        return Spot(found["point"], tuple((name, value) for name, _, value in facts), int(found["n"] or 1))

    def matches(self, facts: dict[str, Any]) -> bool:
        """Whether what happened has every fact that was asked for."""
        return all(str(facts.get(name)) == value for name, value in self.facts)


def report(fd: int, spot: Spot, facts: dict[str, Any], n: int) -> None:
    """One JSON line to the parent: short enough to be written whole."""
    said = {name: str(value)[:200] for name, value in facts.items()}
    os.write(fd, (json.dumps({"point": spot.point, "n": n, "pid": os.getpid(), "facts": said}) + "\n").encode())


def arm(spot: Spot, *, die: bool, report_fd: int | None) -> Callable[[], None]:
    """Stop this process's legs at a spot for ever, or end the process there by SIGKILL. What is returned disarms it."""

    async def act(facts: dict[str, Any], n: int) -> None:
        if n < spot.n:
            return
        if n == spot.n and report_fd is not None:
            report(report_fd, spot, facts, n)
        if die:
            os.kill(os.getpid(), signal.SIGKILL)
        await asyncio.Event().wait()

    watcher = _watch(spot.point, act, spot.matches)
    return lambda: _unwatch(watcher)


def main(words: list[str]) -> None:
    """`worker MODULE:APP [--pause SPOT]... [--die SPOT]... [--report-fd N] [what fencepost worker takes]`."""
    import argparse
    import importlib

    parser = argparse.ArgumentParser("python -m fencepost.testing", description="a worker that stops at a fault point")
    parser.add_argument("command", choices=["worker"])
    parser.add_argument("--pause", action="append", default=[], type=Spot.parse, metavar="SPOT")
    parser.add_argument("--die", action="append", default=[], type=Spot.parse, metavar="SPOT")
    parser.add_argument("--report-fd", type=int, metavar="N")
    said, rest = parser.parse_known_args(words)
    for spots, die in ((said.pause, False), (said.die, True)):
        for spot in spots:
            arm(spot, die=die, report_fd=said.report_fd)
    # The command itself, as a user starts it. By name: this floor is below the command line.
    sys.argv = ["fencepost", "worker", *rest]
    sys.exit(importlib.import_module("fencepost.cli").main())


if __name__ == "__main__":
    main(sys.argv[1:])
