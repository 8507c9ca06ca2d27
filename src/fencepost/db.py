"""The one way to the database: doors by name, weather retried below the surface, hot doors coalesced.

A door can be asked again (law 00.3), so a call that meets weather (a lost connection, a deadlock, a frozen or restarting
server, a standby that was promoted) is asked again until its patience ends; nobody above knows. An `LWnnn` is a BrokenLaw.
"""

from __future__ import annotations

import asyncio
import contextlib
import random
from collections import deque
from collections.abc import AsyncGenerator, Awaitable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Final, Protocol, cast
from urllib.parse import parse_qsl, urlencode, urlsplit, urlunsplit

import asyncpg

from fencepost import faults, limits
from fencepost.errors import BrokenLaw, Busy, DatabaseUnavailable
from fencepost.schema import installed_version, judge_version, quote_ident


class Record(Protocol):
    """A row of a door's answer, by column name."""

    def __getitem__(self, column: str, /) -> Any: ...
    def values(self) -> Iterator[Any]: ...


# SQLSTATE classes and codes that are neither's fault (FAULTS: B80, B92, B93). A connection that met one of the second list is dropped.
_WEATHER_CODES: Final = frozenset({"40001", "40P01", "55P03", "57014", "53300", "53400", "57P05", "55006"})
_WEATHER_LOST: Final = frozenset({"25006", "57P01", "57P02", "57P03", "XX000", "58000", "58030", "53100", "53200"})
_FOREVER: Final = float("inf")


def is_weather(error: BaseException) -> bool:
    """True when the same call may simply be asked again."""
    if isinstance(error, asyncpg.PostgresError):
        state = str(error.sqlstate or "")
        return state in _WEATHER_CODES or state in _WEATHER_LOST or state.startswith("08")
    if isinstance(error, asyncpg.InterfaceError):
        return "connection" in str(error) or "pool" in str(error)
    return isinstance(error, OSError | TimeoutError | asyncpg.InternalClientError | EOFError)


def _loses_connection(error: BaseException) -> bool:
    if isinstance(error, asyncpg.PostgresError):
        state = str(error.sqlstate or "")
        return state in _WEATHER_LOST or state.startswith("08")
    return True


def _pooled(dsn: str) -> tuple[str, bool]:
    """`?pooler=1` on the DSN says that a transaction pooler stands between: nothing may rest on the session."""
    parts = urlsplit(dsn)
    query = parse_qsl(parts.query, keep_blank_values=True)
    pooled = ("pooler", "1") in query
    kept = [(k, v) for k, v in query if k != "pooler"]
    if not parts.scheme or len(kept) == len(query):
        return dsn, pooled
    return urlunsplit(parts._replace(query=urlencode(kept))), pooled


@dataclass(slots=True)
class _Ask:
    item: tuple[Any, ...]
    bytes: int
    future: asyncio.Future[Record]


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
        self._hot: dict[str, _HotDoor] = {}
        self._texts: dict[tuple[str, int], str] = {}
        self._ready: asyncio.Task[None] | None = None
        self._closed = False

    # ── calls ────────────────────────────────────────────────────────────────────────────────────────────────────────

    async def call(self, door: str, *args: Any, patience: float = limits.CLIENT_PATIENCE_SECONDS) -> list[Record]:
        """Ask a door; its rows. `patience`: seconds for which weather is ridden out, then DatabaseUnavailable.

        Raises BrokenLaw, Busy, DatabaseUnavailable, and what PostgreSQL says of data that no caller of ours sends.
        """
        pause = limits.WEATHER_PAUSE_SECONDS_MIN
        loop = asyncio.get_running_loop()
        until = loop.time() + patience
        while True:
            try:
                return await self._once(door, args)
            except (
                asyncpg.PostgresError,
                asyncpg.InterfaceError,
                asyncpg.InternalClientError,
                OSError,
                EOFError,
            ) as error:
                _raise_law(error)
                if not is_weather(error):
                    raise
                if self._closed or loop.time() + pause > until:
                    raise DatabaseUnavailable(
                        f"{door}: the database did not answer within {patience:g} s ({error})"
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
            hot = self._hot[door] = _HotDoor(self, door)
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
        async with self.connection() as connection:
            judge_version(await installed_version(connection, self.schema), self.schema)

    # ── connections ──────────────────────────────────────────────────────────────────────────────────────────────────

    @contextlib.asynccontextmanager
    async def connection(self) -> AsyncGenerator[asyncpg.Connection]:
        """A connection of this process's budget; one that met an error which ends it is not used again."""
        connection = await self._acquire()
        keep = True
        try:
            yield connection
        except BaseException as error:
            keep = isinstance(error, asyncpg.PostgresError) and not _loses_connection(error)
            raise
        finally:
            self._release(connection, keep=keep)

    async def connect(self, dsn: str | None = None) -> asyncpg.Connection:
        """A connection outside the budget (the listener's, the heartbeat's): the caller closes it."""
        settings = {
            "application_name": self._name,
            "default_transaction_isolation": "read committed",
            "statement_timeout": str(int(limits.STATEMENT_SECONDS * 1000)),
            "idle_in_transaction_session_timeout": "60000",
        }
        if self.pooled and dsn is None:
            return await asyncpg.connect(
                self.dsn, statement_cache_size=0, timeout=10, command_timeout=limits.STATEMENT_SECONDS
            )
        return await asyncpg.connect(
            dsn or self.dsn, server_settings=settings, timeout=10, command_timeout=limits.STATEMENT_SECONDS
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

    def _release(self, connection: asyncpg.Connection, *, keep: bool) -> None:
        if keep and not connection.is_closed() and not self._closed:
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
            if self.pooled:
                # Behind a transaction pooler a session setting is somebody else's: the isolation is said in the transaction.
                async with connection.transaction(isolation="read_committed"):
                    rows = await connection.fetch(self._text(door, len(args)), *args)
            else:
                rows = await connection.fetch(self._text(door, len(args)), *args)
        if faults.hook is not None:
            await faults.reach("statement.executed", door=door)
            asyncio.get_running_loop().call_soon(_tell_after, door)
        return cast("list[Record]", rows)


def _tell_after(door: str) -> None:
    task = asyncio.ensure_future(faults.reach("statement.after", door=door))
    _told.add(task)
    task.add_done_callback(_told.discard)


_told: set[asyncio.Task[None]] = set()


def _raise_law(error: BaseException) -> None:
    if isinstance(error, asyncpg.PostgresError) and str(error.sqlstate or "").startswith("LW"):
        raise BrokenLaw(str(error.sqlstate), str(error)) from error


class _HotDoor:
    """Coalescing without waiting: idle, a call goes out at once; while one is in flight later callers gather and leave together.

    The next batch is sent before the callers of the last one are woken: client and server work at the same time. A batch that
    meets an error which is not weather is asked again item by item, so that a poison item fails alone; an item that is answered
    `again` (its row is locked elsewhere) is asked alone, where it may wait.
    """

    __slots__ = ("_busy", "_db", "_door", "_kicked", "_queue", "_tasks")

    def __init__(self, db: Database, door: str) -> None:
        self._db = db
        self._door = door
        self._queue: deque[_Ask] = deque()
        self._busy = False
        self._kicked = False
        self._tasks: set[asyncio.Task[None]] = set()

    def ask(self, item: tuple[Any, ...], size: int) -> asyncio.Future[Record]:
        loop = asyncio.get_running_loop()
        future: asyncio.Future[Record] = loop.create_future()
        self._queue.append(_Ask(item, size, future))
        if not self._busy and not self._kicked:
            self._kicked = True
            loop.call_soon(self._kick)
        return future

    def stop(self) -> None:
        for task in self._tasks:
            task.cancel()

    def _kick(self) -> None:
        self._kicked = False
        if self._busy or not self._queue:
            return
        batch: list[_Ask] = []
        size = 0
        while self._queue and len(batch) < limits.COALESCE_ITEMS_MAX:
            head = self._queue[0]
            if batch and size + head.bytes > limits.COALESCE_BYTES_MAX:
                break
            self._queue.popleft()
            if not head.future.done():  # its caller went away before it was sent
                batch.append(head)
                size += head.bytes
        if batch:
            self._busy = True
            self._start(self._run(batch))

    def _start(self, coroutine: Any) -> None:
        task = asyncio.ensure_future(coroutine)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def _send(self, batch: list[_Ask]) -> dict[int, Record]:
        columns = [list(column) for column in zip(*(ask.item for ask in batch), strict=True)]
        rows = await self._db.call(self._door, *columns, patience=_FOREVER)
        return {row["ord"]: row for row in rows}

    async def _run(self, batch: list[_Ask]) -> None:
        rows: dict[int, Record] = {}
        error: BaseException | None = None
        try:
            rows = await self._send(batch)
        except asyncio.CancelledError:
            for ask in batch:
                ask.future.cancel()
            raise
        except BaseException as caught:
            error = caught
        self._busy = False
        self._kick()
        asyncio.get_running_loop().call_soon(self._wake, batch, rows, error)

    def _wake(self, batch: list[_Ask], rows: dict[int, Record], error: BaseException | None) -> None:
        for place, ask in enumerate(batch, start=1):
            if ask.future.done():
                continue
            row = rows.get(place)
            if row is not None and row["answer"] != "again":
                ask.future.set_result(row)
            elif error is not None and (len(batch) == 1 or isinstance(error, DatabaseUnavailable)):
                ask.future.set_exception(error)
            else:
                self._start(self._alone(ask))

    async def _alone(self, ask: _Ask) -> None:
        try:
            while not ask.future.done():
                rows = await self._send([ask])
                row = rows.get(1)
                if row is not None and row["answer"] != "again":
                    if not ask.future.done():
                        ask.future.set_result(row)
                    return
        except asyncio.CancelledError:
            ask.future.cancel()
            raise
        except BaseException as error:
            if not ask.future.done():
                ask.future.set_exception(error)
