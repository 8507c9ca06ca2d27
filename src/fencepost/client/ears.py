"""Hints for whoever waits: one listening connection a client, opened when somebody waits. Polling is the truth behind it."""

from __future__ import annotations

import asyncio
import contextlib
import secrets
from collections.abc import AsyncGenerator
from typing import Any, Final

import asyncpg

from fencepost.db import Database

POLL_SECONDS_MIN: Final = 0.05
POLL_SECONDS_MAX: Final = 1.0
ANSWER_SECONDS: Final = 5.0  # a listener whose other end vanished keeps nobody waiting for longer
DEAF_SECONDS: Final = 10.0  # after a listener could not be had, waiters only poll for so long


class Ear:
    """One waiter's channel. `channel` None: nobody will call, ask often."""

    def __init__(self, channel: str | None) -> None:
        self.channel = channel
        self.called = asyncio.Event()
        self._pause = POLL_SECONDS_MIN if channel is None else POLL_SECONDS_MAX

    async def wait(self) -> None:
        """Until called, at most for the pause before the next look, which grows from 0.05 s to 1 s while nobody would call."""
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(self._pause):
                await self.called.wait()
        self.called.clear()
        self._pause = min(self._pause * 2, POLL_SECONDS_MAX)

    def fresh(self) -> None:
        """Something was seen: look again soon."""
        self._pause = POLL_SECONDS_MIN


class Ears:
    """The channels of one client on one connection outside its budget. A channel is lent to one waiter at a time, then to the next."""

    def __init__(self, db: Database, listen_dsn: str | None = None) -> None:
        self._db = db
        self._dsn = listen_dsn
        self._prefix = "fp_c" + secrets.token_hex(12)
        self._connection: asyncpg.Connection | None = None
        self._opening = asyncio.Lock()
        self._free: list[str] = []
        self._made = 0
        self._lent: dict[str, Ear] = {}
        self._deaf_until = float("inf") if db.pooled and listen_dsn is None else 0.0

    @contextlib.asynccontextmanager
    async def hear(self) -> AsyncGenerator[Ear]:
        """Lend a channel that is listened to already, or none if it cannot be had now."""
        ear = Ear(await self._channel())
        if ear.channel is not None:
            self._lent[ear.channel] = ear
        try:
            yield ear
        finally:
            if ear.channel is not None and self._lent.pop(ear.channel, None) is not None:
                self._free.append(ear.channel)

    async def close(self) -> None:
        """Close the connection; who still waits goes on by polling."""
        connection, self._connection = self._connection, None
        self._deaf_until = float("inf")
        if connection is not None:
            connection.terminate()

    async def _channel(self) -> str | None:
        loop = asyncio.get_running_loop()
        if loop.time() < self._deaf_until:
            return None
        async with self._opening:
            try:
                async with asyncio.timeout(ANSWER_SECONDS):
                    return await self._listen()
            except (OSError, TimeoutError, asyncpg.PostgresError, asyncpg.InterfaceError, asyncpg.InternalClientError):
                self._deaf_until = loop.time() + DEAF_SECONDS
                connection, self._connection = self._connection, None
                if connection is not None:
                    connection.terminate()
                return None

    async def _listen(self) -> str:
        """A channel that is listened to and lent to nobody."""
        if self._connection is None or self._connection.is_closed():
            self._free.clear()
            self._connection = await self._db.connect(self._dsn)
            self._connection.add_termination_listener(self._went)
        if self._free:
            return self._free.pop()
        self._made += 1
        channel = f"{self._prefix}_{self._made}"
        await self._connection.add_listener(channel, self._heard)
        return channel

    def _heard(self, _connection: Any, _pid: int, channel: str, _payload: object) -> None:
        ear = self._lent.get(channel)
        if ear is not None:
            ear.called.set()

    def _went(self, _connection: Any) -> None:
        # Nobody calls these any more: they look now, and then by themselves.
        lent, self._lent = self._lent, {}
        for ear in lent.values():
            ear.fresh()
            ear.called.set()
