"""What the clients of an embedded server and its keeper share: files, locks, the handshake, plain words."""

from __future__ import annotations

import contextlib
import fcntl
import os
import re
import socket
import struct
import threading
from collections.abc import Generator
from pathlib import Path
from typing import Final

PORT: Final = 5432
SOCKET_NAME: Final = f".s.PGSQL.{PORT}"
HANDSHAKE_SECONDS: Final = 2.0


class NoPostgres(Exception):
    """There is no embedded server to be had; the message is one sentence saying why and what to do."""


def open_file(home: Path, name: str, flags: int = os.O_RDWR) -> int:
    """Open or create a small file of a home, never inheritable; made by root, it belongs to the home's owner."""
    fd = os.open(home / name, flags | os.O_CREAT | os.O_CLOEXEC, 0o600)
    if os.geteuid() == 0 and os.fstat(fd).st_uid != (owner := home.stat()).st_uid:
        os.fchown(fd, owner.st_uid, owner.st_gid)
    return fd


@contextlib.contextmanager
def opened(home: Path, name: str) -> Generator[int, None, None]:
    """The file for a while, and any lock taken on it no longer."""
    fd = open_file(home, name)
    try:
        yield fd
    finally:
        # Said aloud, for a fork in another thread may have copied the descriptor, and the lock with it.
        fcntl.flock(fd, fcntl.LOCK_UN)
        os.close(fd)


def lock(fd: int, how: int, seconds: float) -> bool:
    """Take a flock within `seconds` (0: only if it is free now). The kernel waits, in a thread that can be left."""
    try:
        fcntl.flock(fd, how | fcntl.LOCK_NB)
    except BlockingIOError:
        if seconds <= 0:
            return False
    else:
        return True
    # A duplicate shares the lock (it belongs to the open file) and may outlive our interest in it.
    copy, guard, state = os.dup(fd), threading.Lock(), {"left": False, "have": False}

    def wait() -> None:
        try:
            fcntl.flock(copy, how)
            with guard:
                state["have"] = not state["left"]
                if state["left"]:
                    fcntl.flock(copy, fcntl.LOCK_UN)
        finally:
            os.close(copy)

    waiter = threading.Thread(target=wait, name="fencepost-flock", daemon=True)
    waiter.start()
    waiter.join(seconds)
    with guard:
        state["left"] = not state["have"]
    return state["have"]


def handshake(socket_dir: str) -> bool:
    """Whether a session could begin now: a startup message is answered. A listening socket or a pid may both lie."""
    words = b"user\0postgres\0database\0postgres\0\0"
    try:
        with socket.socket(socket.AF_UNIX) as wire:
            wire.settimeout(HANDSHAKE_SECONDS)
            wire.connect(f"{socket_dir}/{SOCKET_NAME}")
            wire.sendall(struct.pack("!II", len(words) + 8, 196608) + words)
            answer = wire.recv(4096)
            if answer[:1] == b"R":
                wire.sendall(b"X\0\0\0\4")
                return True
            return b"C53300\0" in answer  # too many connections: it lives, and is busy
    except OSError:
        return False


def plain(error: OSError, home: Path) -> NoPostgres:
    """One sentence for what the file system refused."""
    words = error.strerror or str(error)
    return NoPostgres(explain(words, home) or f"{home} cannot be used: {words}")


def explain(words: str, home: Path) -> str | None:
    """The remedy for what the system or the server said, if it is one of the known refusals."""
    known = {
        r"No space left on device|[Qq]uota exceeded|File too large": f"the disk (or quota) of {home} is full: "
        "free some space there and try again",
        r"Read-only file system": f"{home} is on a read-only file system: "
        "set FENCEPOST_HOME to a directory you can write",
        r"Permission denied|Operation not permitted": f"{home} cannot be read and written by user {os.geteuid()}: "
        "change its owner, or set FENCEPOST_HOME to a directory of yours",
        r"File exists|Not a directory": f"{home} (or something above it) is not a directory: set FENCEPOST_HOME to one",
        r"No locks available|Operation not supported": f"the file system of {home} has no file locks: "
        "set FENCEPOST_HOME to a directory on a local disk",
        r"pre-existing shared memory block|lock file \S+ already exists": "a process of an earlier PostgreSQL still "
        f"uses {home / 'postgres'}: end it and try again",
    }
    return next((remedy for pattern, remedy in known.items() if re.search(pattern, words)), None)
