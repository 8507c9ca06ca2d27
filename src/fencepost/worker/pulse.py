"""The loop's side of the heartbeat: starting the process, publishing to it, hearing from it, starting another (law 40.12)."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import os
import socket
import sys
from collections.abc import Callable
from typing import Final
from uuid import UUID

from fencepost import notes
from fencepost.recovery import Beat
from fencepost.settings import Settings
from fencepost.worker.link import Heard, Link, Setup, Snapshot, decode_up, encode, pair

PUBLISH_SECONDS: Final = 0.1  # changes of that time travel together: a snapshot that is not the newest is safe
ASK_SECONDS: Final = 0.02  # and asking for a beat waits no longer than this
TICK_SECONDS_MIN: Final = 1.0  # of half an interval: a process takes a while to start on a busy machine
MUTE_TICKS: Final = 5  # ticks without a word: the process hangs
PAUSE_SECONDS_MAX: Final = 1.0
NOTE_SECONDS: Final = 60.0


class Pulse:
    """Keeps one heartbeat process alive for an incarnation.

    `read`: the newest claim answered and what is held, both of this instant. `heard`: called with each answer of the database.
    """

    def __init__(
        self, incarnation: UUID, settings: Settings, *, read: Callable[[], tuple[int, list[tuple[int, int]]]],
        heard: Callable[[Beat], None],
    ) -> None:  # fmt: skip
        self._incarnation = incarnation
        self._dsn = settings.need_database_url()
        self._schema = settings.schema
        self._interval = settings.heartbeat_seconds
        self._lease = settings.lease_seconds
        self._read = read
        self._on_beat = heard
        self._asks = 0
        self._link: Link | None = None
        self._scheduled: asyncio.TimerHandle | None = None
        self._spoke = False  # since the last tick
        self._lived = False  # since the process was started
        self._noted = float("-inf")
        self.process: asyncio.subprocess.Process | None = None
        self.first = asyncio.Event()  # the database answered once

    def changed(self) -> None:
        """What is held, or the newest answered claim, changed: publish it soon."""
        if self._scheduled is None and self._link is not None:
            self._scheduled = asyncio.get_running_loop().call_later(PUBLISH_SECONDS, self._publish)

    def beat_now(self) -> None:
        """Ask for a beat before its time."""
        self._asks += 1
        if self._link is None:
            return
        loop = asyncio.get_running_loop()
        if self._scheduled is not None:
            if self._scheduled.when() <= loop.time() + ASK_SECONDS:
                return
            self._scheduled.cancel()
        self._scheduled = loop.call_later(ASK_SECONDS, self._publish)

    async def keep(self) -> None:
        """Returns only when no heartbeat process could be had for half a lease: go home."""
        loop = asyncio.get_running_loop()
        failing_since, pause = loop.time(), 0.05
        while True:
            if await self._one_life():
                failing_since, pause = loop.time(), 0.05
            if loop.time() - failing_since > self._lease / 2:
                return
            notes.say(
                "the heartbeat process ended: starting another", level=logging.WARNING, incarnation=self._incarnation
            )
            await asyncio.sleep(pause)  # waits: what could not be started a moment ago
            pause = min(pause * 2, PAUSE_SECONDS_MAX)

    async def _one_life(self) -> bool:
        """Start a process and stay until it ends. Whether it ever spoke."""
        self._lived = False
        ours, theirs = pair()
        try:
            self.process = await self._start(theirs)
        except OSError as error:
            ours.close()
            notes.say("the heartbeat process could not be started", level=logging.ERROR, error=error)
            return False
        except BaseException:
            ours.close()
            raise
        finally:
            theirs.close()
        self._link = Link(ours, self._hear)
        setup = Setup(self._dsn, self._schema, self._incarnation, os.getpid(), self._interval, self._snapshot())
        self._link.say(encode(setup))
        try:
            await self._until_it_ends(self.process)
        finally:
            self._link.close()
            self._link = None
            await _end(self.process)
        return self._lived

    async def _start(self, theirs: socket.socket) -> asyncio.subprocess.Process:
        # Its modules come from where this process has its own; -P keeps the working directory's files from posing as some.
        places = os.pathsep.join(place for place in sys.path if place)
        return await asyncio.create_subprocess_exec(
            sys.executable, "-P", "-m", "fencepost.worker.heartbeat", str(theirs.fileno()), pass_fds=[theirs.fileno()],
            stdin=asyncio.subprocess.DEVNULL, stdout=asyncio.subprocess.DEVNULL, start_new_session=True,
            env=os.environ | {"PYTHONPATH": places},
        )  # fmt: skip

    async def _until_it_ends(self, process: asyncio.subprocess.Process) -> None:
        """Ticks are counted, not seconds: in time in which this process itself did not run nobody was mute."""
        mute = 0
        ended = asyncio.ensure_future(process.wait())
        try:
            while mute < MUTE_TICKS:
                self._spoke = False
                done, _ = await asyncio.wait({ended}, timeout=max(TICK_SECONDS_MIN, self._interval / 2))
                if done:
                    return
                mute = 0 if self._spoke else mute + 1
            notes.say("the heartbeat process is mute", level=logging.WARNING, incarnation=self._incarnation)
        finally:
            ended.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await ended

    def _hear(self, message: bytes) -> None:
        said = decode_up(message)
        self._spoke = self._lived = True
        if isinstance(said, Heard):
            self.first.set()
            self._on_beat(said.beat)
            return
        now = asyncio.get_running_loop().time()
        if now - self._noted >= NOTE_SECONDS:
            self._noted = now
            notes.say("the heartbeat meets trouble", level=logging.WARNING, trouble=said.text)

    def _snapshot(self) -> Snapshot:
        answered, held = self._read()
        return Snapshot(answered, held, self._asks)

    def _publish(self) -> None:
        self._scheduled = None
        if self._link is not None:
            self._link.say(encode(self._snapshot()))


async def _end(process: asyncio.subprocess.Process) -> None:
    if process.returncode is None:
        with contextlib.suppress(ProcessLookupError):
            process.kill()  # it has nothing to finish; a stopped one hears nothing gentler
    await process.wait()
