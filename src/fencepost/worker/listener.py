"""The listener: hears hints on a connection of its own. Notifications only wake; polling is the truth (law 00.10)."""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections.abc import Awaitable, Callable
from functools import partial
from typing import Any, Final

import asyncpg

from fencepost import notes

HINTS: Final = frozenset({"work", "look"})
# A connection whose other end vanished says nothing: asked every ten seconds, with five to answer, that is seen within fifteen.
CHECK_SECONDS: Final = 10.0
ANSWER_SECONDS: Final = 5.0
PAUSE_SECONDS_MIN: Final = 0.2
PAUSE_SECONDS_MAX: Final = 10.0
NOTE_SECONDS: Final = 60.0


class Listener:
    """Listens on one channel, for ever. `connect` opens a connection that no transaction pooler stands behind."""

    def __init__(
        self, connect: Callable[[], Awaitable[asyncpg.Connection]], channel: str, heard: Callable[[str], None]
    ) -> None:
        self._connect = connect
        self._channel = channel
        self._heard = heard
        self._noted = float("-inf")
        self.alive = False  # LISTEN was answered, and the last check too
        self.malformed = 0
        self.connection: Any = None

    async def run(self) -> None:
        """Never returns and never raises: a lost connection is opened again."""
        pause = PAUSE_SECONDS_MIN
        loop = asyncio.get_running_loop()
        while True:
            started = loop.time()
            try:
                await self._listen()
            except Exception as error:  # weather of every kind; without a listener the worker polls
                self._note("the listener lost its connection", error=f"{type(error).__name__}: {error}")
            if loop.time() - started > PAUSE_SECONDS_MAX:
                pause = PAUSE_SECONDS_MIN
            await asyncio.sleep(pause)  # waits: the database may be on its way back
            pause = min(pause * 2, PAUSE_SECONDS_MAX)

    async def _listen(self) -> None:
        self.connection = await self._connect()
        connection: Any = self.connection
        ended = asyncio.Event()
        try:
            connection.add_termination_listener(partial(_set, ended))
            await asyncio.wait_for(connection.add_listener(self._channel, self._on_notify), ANSWER_SECONDS)
            self.alive = True
            for hint in sorted(HINTS):  # what was said while nobody listened is not said again
                self._heard(hint)
            while not await self._ends_within(ended, CHECK_SECONDS):
                rows = await connection.fetch("select pg_listening_channels()", timeout=ANSWER_SECONDS)
                if self._channel not in {row[0] for row in rows}:
                    raise ConnectionError("this session no longer listens")
            raise ConnectionError("the connection ended")
        finally:
            self.alive = False
            connection.terminate()

    @staticmethod
    async def _ends_within(ended: asyncio.Event, seconds: float) -> bool:
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(seconds):
                await ended.wait()
        return ended.is_set()

    def _on_notify(self, _connection: Any, _pid: int, _channel: str, payload: object) -> None:
        if payload in HINTS:
            self._heard(str(payload))
            return
        self.malformed += 1
        self._note("a notification means nothing here", payload=str(payload)[:80], count=self.malformed)

    def _note(self, what: str, **fields: Any) -> None:
        now = asyncio.get_running_loop().time()
        if now - self._noted >= NOTE_SECONDS:
            self._noted = now
            notes.say(what, level=logging.WARNING, **fields)


def _set(event: asyncio.Event, _: object) -> None:
    event.set()
