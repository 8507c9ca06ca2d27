"""The one way to the database: doors by name, weather retried below the surface, hot doors coalesced.

A door can be asked again (law 00.3), so a call that meets weather (a lost connection, a deadlock, a frozen or restarting
server, a standby that was promoted) is asked again until its patience ends; nobody above knows. An `LWnnn` is a BrokenLaw.
"""

from __future__ import annotations

import asyncio
import contextlib
import random
from collections import deque
from collections.abc import Awaitable, Callable, Sequence
from typing import Any, Final, TypeVar, cast
from urllib.parse import parse_qsl, urlencode, urlsplit, urlunsplit

import asyncpg

from fencepost import faults, limits
from fencepost.errors import BrokenLaw, Busy, DatabaseUnavailable
from fencepost.hot import Coalescer, Record, hot_door
from fencepost.schema import installed_version, judge_version, quote_ident
from fencepost.weather import is_weather, loses_connection

T = TypeVar("T")

_SETTINGS: Final = {
    "default_transaction_isolation": "read committed",
    "statement_timeout": str(int(limits.STATEMENT_SECONDS * 1000)),
    "idle_in_transaction_session_timeout": "60000",
}
# Behind a transaction pooler a session belongs to somebody else after each transaction: what it needs is said in each.
_BEGIN_POOLED: Final = "begin isolation level read committed; " + "; ".join(
    f"set local {name} = {value}" for name, value in _SETTINGS.items() if name != "default_transaction_isolation"
)


def _pooled(dsn: str) -> tuple[str, bool]:
    """`?pooler=1` on the DSN says that a transaction pooler stands between: nothing may rest on the session."""
    parts = urlsplit(dsn)
    query = parse_qsl(parts.query, keep_blank_values=True)
    pooled = ("pooler", "1") in query
    kept = [(k, v) for k, v in query if k != "pooler"]
    if not parts.scheme or len(kept) == len(query):
        return dsn, pooled
    return urlunsplit(parts._replace(query=urlencode(kept))), pooled


class Database:
    """One installation as one process sees it. Opens at most `connections` connections, and only when asked."""

    def __init__(
        self, dsn: str, schema: str = "fencepost", *, connections: int = limits.CONNECTIONS, name: str = "fencepost"
    ) -> None:
        self.dsn, self.pooled = _pooled(dsn)
        self.schema = schema
        self._qualified = quote_ident(schema)
        self._name = name
        self._budget = connections
        self._opened = 0
        self._idle: list[asyncpg.Connection] = []
        self._waiters: deque[asyncio.Future[None]] = deque()
        self._hot: dict[str, Coalescer[tuple[Any, ...], Record]] = {}
        self._texts: dict[tuple[str, int], str] = {}
        self._ready: asyncio.Task[None] | None = None
        self._closed = False

    # ── calls ────────────────────────────────────────────────────────────────────────────────────────────────────────

    async def call(self, door: str, *args: Any, patience: float = limits.CLIENT_PATIENCE_SECONDS) -> list[Record]:
        """Ask a door; its rows. `patience`: seconds for which weather is ridden out, then DatabaseUnavailable.

        Raises BrokenLaw, Busy, DatabaseUnavailable, and what PostgreSQL says of data that no caller of ours sends.
        """
        return await self._through(door, lambda: self._once(door, args), patience)

    async def _through(
        self, what: str, work: Callable[[], Awaitable[T]], patience: float, *, absence: bool = True
    ) -> T:
        """Do it again while the weather is bad and the patience lasts. `absence`: a server that cannot be reached is weather too."""
        pause = limits.WEATHER_PAUSE_SECONDS_MIN
        loop = asyncio.get_running_loop()
        until = loop.time() + patience
        while True:
            try:
                return await work()
            except (
                asyncpg.PostgresError,
                asyncpg.InterfaceError,
                asyncpg.InternalClientError,
                OSError,
                EOFError,
            ) as error:
                _raise_law(error)
                if not is_weather(error) or (isinstance(error, OSError) and not absence):
                    raise
                if self._closed or loop.time() + pause > until:
                    raise DatabaseUnavailable(
                        f"{what}: the database did not answer within {patience:g} s ({error})"
                    ) from error
            rest = pause * random.uniform(0.5, 1.0)
            await asyncio.sleep(rest)  # waits: weather passes by itself, nothing announces its end
            pause = min(pause * 2, limits.WEATHER_PAUSE_SECONDS_MAX)

    def ask(self, door: str, *item: Any, size: int = 0) -> Awaitable[Record]:
        """Ask a set-based door about one item; concurrent callers leave together. The item's answer row (never `again`).

        `size`: bytes of the item's payload, measured before it joins a batch (00.13). Weather is ridden out without end: the
        caller is a leg, and what ends a leg is its fence, not the database's absence.
        """
        hot = self._hot.get(door)
        if hot is None:
            hot = self._hot[door] = hot_door(self.call, door)
        return hot.ask(item, size)

    async def call_on(self, connection: asyncpg.Connection, door: str, *args: Any) -> list[Record]:
        """Ask a door inside the caller's own connection and transaction: nothing is retried, errors are the caller's."""
        try:
            return cast("list[Record]", await connection.fetch(self._text(door, len(args)), *args))
        except asyncpg.PostgresError as error:
            _raise_law(error)
            raise

    async def ready(self) -> None:
        """Assert once that the schema is one this code runs on; shared by concurrent callers; a failure is not remembered.

        Raises SchemaMismatch, which says what to run (law 00.8, 00.12).
        """
        if self._ready is None:
            self._ready = asyncio.ensure_future(self._assert_version())
        try:
            await asyncio.shield(self._ready)
        except BaseException:
            self._forget_failure()
            raise

    def _forget_failure(self) -> None:
        if self._ready is not None and self._ready.done():
            self._ready = None

    async def _assert_version(self) -> None:
        """A server that answers is waited for while it starts or changes its role; one that is not there is told at once."""

        async def asked() -> int | None:
            async with self.connection() as connection:
                return await installed_version(connection, self.schema)

        version = await self._through("the schema's version", asked, limits.CLIENT_PATIENCE_SECONDS, absence=False)
        judge_version(version, self.schema)

    # ── connections ──────────────────────────────────────────────────────────────────────────────────────────────────

    def connection(self) -> Borrowed:
        """A connection of this process's budget; one that met an error which ends it is not used again.

        Behind a transaction pooler the block is one transaction.
        """
        return Borrowed(self._acquire, self._release, begin=_BEGIN_POOLED if self.pooled else "")

    async def connect(self, dsn: str | None = None) -> asyncpg.Connection:
        """A connection outside the budget (the listener's, the heartbeat's): the caller closes it."""
        if self.pooled and dsn is None:
            return await asyncpg.connect(
                self.dsn, statement_cache_size=0, timeout=10, command_timeout=limits.STATEMENT_SECONDS
            )
        return await asyncpg.connect(
            dsn or self.dsn,
            server_settings={"application_name": self._name, **_SETTINGS},
            timeout=10,
            command_timeout=limits.STATEMENT_SECONDS,
        )

    async def close(self) -> None:
        """Close every connection; calls under way end in weather that nobody rides out."""
        self._closed = True
        for hot in self._hot.values():
            hot.stop()
        idle, self._idle = self._idle, []
        for connection in idle:
            self._opened -= 1
            try:
                await connection.close(timeout=2)
            except (OSError, TimeoutError, asyncpg.PostgresError, asyncpg.InterfaceError):
                connection.terminate()

    async def _acquire(self) -> asyncpg.Connection:
        while True:
            if self._closed:
                raise asyncpg.InterfaceError("the connection is closed: this Database was closed")
            while self._idle:
                connection = self._idle.pop()
                if not connection.is_closed():
                    return connection
                self._opened -= 1
            if self._opened < self._budget:
                self._opened += 1
                try:
                    return await self.connect()
                except BaseException:
                    self._opened -= 1
                    self._wake_one()
                    raise
            if len(self._waiters) >= limits.WAITERS_MAX:
                raise Busy(f"all {self._budget} connections are in use and {len(self._waiters)} callers wait")
            waiter: asyncio.Future[None] = asyncio.get_running_loop().create_future()
            self._waiters.append(waiter)
            try:
                await waiter
            except asyncio.CancelledError:
                if waiter.done() and not waiter.cancelled():
                    self._wake_one()  # the turn was ours already: it goes to the next
                raise
            finally:
                if not waiter.done() or waiter.cancelled():
                    with contextlib.suppress(ValueError):
                        self._waiters.remove(waiter)

    def _release(self, connection: asyncpg.Connection, error: BaseException | None) -> None:
        sound = error is None or (isinstance(error, asyncpg.PostgresError) and not loses_connection(error))
        if sound and not connection.is_closed() and not self._closed:
            self._idle.append(connection)
        else:
            self._opened -= 1
            connection.terminate()
        self._wake_one()

    def _wake_one(self) -> None:
        while self._waiters:
            waiter = self._waiters.popleft()
            if not waiter.done():
                waiter.set_result(None)
                return

    def _text(self, door: str, n: int) -> str:
        text = self._texts.get((door, n))
        if text is None:
            marks = ", ".join(f"${i}" for i in range(1, n + 1))
            text = self._texts[door, n] = f"select * from {self._qualified}.{door}({marks})"
        return text

    async def _once(self, door: str, args: Sequence[Any]) -> list[Record]:
        if faults.hook is not None:
            await faults.reach("statement.before", door=door)
        async with self.connection() as connection:
            rows = await connection.fetch(self._text(door, len(args)), *args)
        if faults.hook is not None:
            await faults.reach("statement.executed", door=door)
            asyncio.get_running_loop().call_soon(_tell_after, door)
        return cast("list[Record]", rows)


class Borrowed:
    """A connection for as long as the block lasts. (A class, for every statement goes through it: a generator costs three times as much.)

    `begin`: how a transaction begins that lasts as long; empty: none does.
    """

    __slots__ = ("_acquire", "_begin", "_connection", "_release")

    def __init__(
        self,
        acquire: Callable[[], Awaitable[asyncpg.Connection]],
        release: Callable[[asyncpg.Connection, BaseException | None], None],
        *,
        begin: str,
    ) -> None:
        self._acquire = acquire
        self._release = release
        self._begin = begin

    async def __aenter__(self) -> asyncpg.Connection:
        self._connection = await self._acquire()
        if self._begin:
            await self._say(self._begin)
        return self._connection

    async def __aexit__(self, kind: object, error: BaseException | None, trace: object) -> None:
        if self._begin and (error is None or isinstance(error, asyncpg.PostgresError)):
            await self._say("rollback" if error else "commit")
        self._release(self._connection, error)

    async def _say(self, text: str) -> None:
        try:
            await self._connection.execute(text)
        except BaseException as error:
            self._connection.terminate()  # whatever state its transaction is in
            self._release(self._connection, error)
            raise


def _tell_after(door: str) -> None:
    task = asyncio.ensure_future(faults.reach("statement.after", door=door))
    _told.add(task)
    task.add_done_callback(_told.discard)


_told: set[asyncio.Task[None]] = set()


def _raise_law(error: BaseException) -> None:
    if isinstance(error, asyncpg.PostgresError) and str(error.sqlstate or "").startswith("LW"):
        raise BrokenLaw(str(error.sqlstate), str(error)) from error
