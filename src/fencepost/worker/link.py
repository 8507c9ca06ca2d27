"""Between the loop and its heartbeat process: a pair of datagram sockets, and the messages that cross it.

Each datagram is one whole message, so none is torn and none overtakes another. Neither side ever waits for the other: what
cannot be sent yet is replaced by what is newer. A snapshot that is not the newest is always safe (law 40.14).
"""

from __future__ import annotations

import asyncio
import contextlib
import socket
from collections.abc import Callable
from typing import Final
from uuid import UUID

import msgspec

from fencepost.recovery import Beat

BUFFER_BYTES: Final = 1024 * 1024
HELD_MAX: Final = 10_000  # attempts whose list fits into one datagram, whatever the system's buffers


class Snapshot(msgspec.Struct, frozen=True, tag="snapshot"):
    """What the loop publishes: the newest claim answered and what it holds, both of one instant.

    A beat is asked for whenever `asks` is larger than before.
    """

    answered: int
    held: list[tuple[int, int]]
    asks: int = 0


class Setup(msgspec.Struct, frozen=True, tag="setup"):
    """The first message to a heartbeat process. It crosses the socket and no command line, for a DSN holds a password."""

    dsn: str
    schema: str
    incarnation: UUID
    parent: int
    heartbeat_seconds: float
    snapshot: Snapshot


class Heard(msgspec.Struct, frozen=True, tag="heard"):
    """From the heartbeat process: the database answered."""

    beat: Beat


class Trouble(msgspec.Struct, frozen=True, tag="trouble"):
    """From the heartbeat process: it lives, and the database did not answer."""

    text: str


encode: Final = msgspec.msgpack.Encoder().encode
decode_down: Final = msgspec.msgpack.Decoder(Setup | Snapshot).decode
decode_up: Final = msgspec.msgpack.Decoder(Heard | Trouble).decode


def pair() -> tuple[socket.socket, socket.socket]:
    """Two connected ends."""
    ends = socket.socketpair(socket.AF_UNIX, socket.SOCK_DGRAM)
    for end in ends:
        end.setblocking(False)
        with contextlib.suppress(OSError):
            end.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, BUFFER_BYTES)
    return ends


class Link:
    """One end of the pair. `heard` is called with each message, on this loop."""

    def __init__(self, end: socket.socket, heard: Callable[[bytes], None]) -> None:
        self._end = end
        self._heard = heard
        self._newest: bytes | None = None
        self._waiting = False
        self._loop = asyncio.get_running_loop()
        self._loop.add_reader(end.fileno(), self._read)

    def say(self, message: bytes) -> None:
        """Send, or keep until the other end has room; what was kept before is forgotten."""
        self._newest = message
        if not self._waiting:
            self._send()

    def close(self) -> None:
        """Say and hear nothing more."""
        if self._end.fileno() < 0:
            return
        self._loop.remove_reader(self._end.fileno())
        self._loop.remove_writer(self._end.fileno())
        self._end.close()

    def _send(self) -> None:
        message = self._newest
        if message is None or self._end.fileno() < 0:
            return
        try:
            self._end.send(message)
        except (BlockingIOError, InterruptedError):
            if not self._waiting:
                self._waiting = True
                self._loop.add_writer(self._end.fileno(), self._send)
            return
        except OSError:
            pass  # the other end is gone: whoever watches the process sees it
        self._newest = None
        if self._waiting:
            self._waiting = False
            self._loop.remove_writer(self._end.fileno())

    def _read(self) -> None:
        while self._end.fileno() >= 0:
            try:
                message = self._end.recv(BUFFER_BYTES)
            except OSError:
                return
            self._heard(message)
