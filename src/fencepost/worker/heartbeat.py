"""The heartbeat, as a process: `python -m fencepost.worker.heartbeat FD`. Started by the worker, never by a person.

It has its own interpreter and its own connection, so code that blocks the worker's loop or holds its interpreter loses no
lease (law 40.12). It beats only while the worker exists and is not stopped, names the newest snapshot it was given (40.14),
looks after the peers of its host (85.3), and does everybody's due sweeps, first of all when it starts. Trouble with the database
never ends it.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import random
import signal
import socket
import sys
from typing import Final
from uuid import UUID

import msgspec

from fencepost import limits, notes, recovery, retention
from fencepost.db import Database
from fencepost.worker import process
from fencepost.worker.link import Heard, Link, Setup, Snapshot, Trouble, decode_down, encode

SETUP_SECONDS: Final = 15.0  # a worker that has not spoken by then died in between
GAP_SECONDS: Final = 0.5  # between two beats, however many are asked for: a herd of 500 a beat is 1 000 a second (60.9)
RETAIN_SECONDS: Final = 600.0
RETAIN_RUNS_MIN: Final = 10


class Heart:
    """One incarnation's heartbeat."""

    def __init__(self, setup: Setup, link: Link) -> None:
        self._setup = setup
        self._link = link
        self._db = Database(setup.dsn, setup.schema, connections=1, name="fencepost heartbeat")
        self._interval = setup.heartbeat_seconds
        self._gap = min(GAP_SECONDS, self._interval / 2)
        self._snapshot = setup.snapshot
        self._asked = asyncio.Event()
        self._dead: list[UUID] = []
        self._retain_at = asyncio.get_running_loop().time() + random.uniform(0.1, 1.0) * RETAIN_SECONDS
        self._retain_most = limits.RETAIN_RUNS_MAX

    def publish(self, snapshot: Snapshot) -> None:
        """The loop's newest word."""
        if snapshot.asks > self._snapshot.asks:
            self._asked.set()
        self._snapshot = snapshot

    async def beat_for_ever(self) -> None:
        """Until the worker is gone."""
        loop = asyncio.get_running_loop()
        while os.getppid() == self._setup.parent:
            started = loop.time()
            if process.is_stopped(self._setup.parent):
                pause = min(self._interval, 1.0)
            else:
                pause = await self._beat()
                await self._retain()
            await self._rest(started, pause)

    async def _beat(self) -> float:
        """One try, shorter than the interval. Seconds from its start to the next."""
        seconds = self._interval * 0.9
        said = self._snapshot
        self._asked.clear()
        try:
            async with asyncio.timeout(seconds):
                beat = await recovery.beat(
                    self._db,
                    self._setup.incarnation,
                    answered=said.answered,
                    held=said.held,
                    dead=self._dead,
                    patience=seconds,
                )
        except Exception as error:  # weather, a changed password, a schema taken away: all may pass
            self._link.say(encode(Trouble(f"{type(error).__name__}: {notes.escape(error)[:300]}")))
            return self._interval / 2
        known, self._dead = self._dead, [p.id for p in beat.peers if process.is_gone(p.pid, p.process_start)]
        self._link.say(encode(Heard(msgspec.structs.replace(beat, peers=()))))
        if set(self._dead) - set(known):
            return 0.0
        return self._interval if beat.due_ms is None else min(self._interval, max(self._gap, beat.due_ms / 1000))

    async def _rest(self, started: float, pause: float) -> None:
        """Until the next beat is due, or asked for and not too close to the last."""
        loop = asyncio.get_running_loop()
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout_at(started + pause):
                await self._asked.wait()
        if pause and (early := started + self._gap - loop.time()) > 0:
            await asyncio.sleep(early)  # waits: a beat just went out

    async def _retain(self) -> None:
        """A bounded pass of retention behind a beat; shorter when the last took too long for the next beat."""
        loop = asyncio.get_running_loop()
        if loop.time() < self._retain_at:
            return
        try:
            async with asyncio.timeout(self._interval / 2):
                done = await retention.retain(self._db, most=self._retain_most)
        except TimeoutError:
            self._retain_most = max(RETAIN_RUNS_MIN, self._retain_most // 2)
            return
        except Exception as error:
            self._link.say(encode(Trouble(f"retention: {notes.escape(error)[:300]}")))
            done = (0, 0)
        if max(done) < self._retain_most:
            self._retain_at = loop.time() + random.uniform(0.8, 1.2) * RETAIN_SECONDS
            self._retain_most = limits.RETAIN_RUNS_MAX


async def live(end: socket.socket) -> None:
    """Hear the set-up, then beat."""
    loop = asyncio.get_running_loop()
    first: asyncio.Future[Setup] = loop.create_future()
    hearts: list[Heart] = []

    def hear(message: bytes) -> None:
        said = decode_down(message)
        if isinstance(said, Snapshot):
            for heart in hearts:
                heart.publish(said)
        elif not first.done():
            first.set_result(said)
            hearts.append(Heart(said, link))

    link = Link(end, hear)
    async with asyncio.timeout(SETUP_SECONDS):
        setup = await first
    process.end_with(setup.parent)
    await hearts[0].beat_for_ever()


def main() -> None:
    """Signals meant for the worker's whole group are not for its heartbeat: a drain needs one to its end (law 40.11)."""
    for ignored in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
        signal.signal(ignored, signal.SIG_IGN)
    end = socket.socket(fileno=int(sys.argv[1]))
    end.setblocking(False)
    with contextlib.suppress(TimeoutError):
        asyncio.run(live(end))
    os._exit(0)  # nothing is left to do that a closing connection would add


if __name__ == "__main__":
    main()
