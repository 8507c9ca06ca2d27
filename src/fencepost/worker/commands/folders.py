"""An attempt's folder: who writes what in it, reading its logs, and removing what nobody can ask about any more.

packet.json    the worker, before "go": what the command may read (FENCEPOST_PACKET)
inputs/NAME    the worker, before "go": the bytes of an input
taken.json     the worker, before "go": the packet as the database gave it, for whoever settles
order.json     the worker, before "go": what the supervisor is to do
alive          the supervisor: locked as long as it lives
command.json   the supervisor, durable before the command is let go: its process
stdout stderr  the supervisor
stop           whoever stops the try: the first reason
result.json    the supervisor, durable and whole, before it ends: the outcome
outputs/       the command (FENCEPOST_OUTPUTS); work/: its working folder; returns/: what a python step returned
"""

from __future__ import annotations

import asyncio
import contextlib
import fcntl
import os
import re
import secrets
import shutil
from collections.abc import Awaitable, Callable, Collection, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import cache
from pathlib import Path
from typing import Final, Literal, ParamSpec, TypeVar

Stream = Literal["stdout", "stderr"]

TAIL_BYTES_MAX: Final = 1024 * 1024  # of one answer
SWEEP_FOLDERS_MAX: Final = 500  # of one question

_NAME: Final = re.compile(r"(.+-\d+)-(\d+)")

P = ParamSpec("P")
T = TypeVar("T")


def attempt_name(installation: str, rid: int, number: int) -> str:
    """The name of an attempt's folder below the root."""
    return f"{installation}-{rid}-{number}"


def store_key(folder: Path) -> str:
    """The store's key for what an attempt made: the run's part of the folder's name."""
    matched = _NAME.fullmatch(folder.name)
    return matched[1] if matched else folder.name


def write(path: Path, content: bytes, mode: int = 0o600) -> None:
    """A new file of these bytes. Raises FileExistsError."""
    fd = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, mode)
    with os.fdopen(fd, "wb") as file:
        file.write(content)


def write_first(path: Path, content: bytes) -> bool:
    """The file appears whole with these bytes, unless it is there already. Whether ours is the one."""
    temporary = path.with_name(f".{path.name}.{secrets.token_hex(4)}")
    write(temporary, content)
    try:
        os.link(temporary, path)
    except FileExistsError:
        return False
    finally:
        temporary.unlink()
    return True


def tail(folder: Path, stream: Stream, from_byte: int = 0) -> tuple[bytes, int]:
    """What a stream holds from a byte on, at most TAIL_BYTES_MAX of it, and the byte to ask from next.

    Nothing there yet is no bytes. Where more was written than is kept, the file itself says how much was dropped.
    """
    try:
        with (folder / stream).open("rb") as file:
            file.seek(max(0, from_byte))
            found = file.read(TAIL_BYTES_MAX)
    except FileNotFoundError:
        return b"", from_byte
    return found, max(0, from_byte) + len(found)


async def sweep(root: Path, known: Callable[[Sequence[str]], Awaitable[Collection[str]]]) -> int:
    """Remove the folders of attempts that nobody knows any more; how many went.

    `known` is asked with names of folders (`attempt_name`), at most SWEEP_FOLDERS_MAX at a time, and answers those that stay. A folder
    whose supervisor lives stays, whatever it answers.
    """
    names = await in_thread(_names, root)
    gone = 0
    for start in range(0, len(names), SWEEP_FOLDERS_MAX):
        asked = names[start : start + SWEEP_FOLDERS_MAX]
        stay = await known(asked)
        gone += await in_thread(_remove, root, [name for name in asked if name not in stay])
    return gone


def _names(root: Path) -> list[str]:
    try:
        return sorted(entry.name for entry in os.scandir(root) if _NAME.fullmatch(entry.name))
    except FileNotFoundError:
        return []


def _remove(root: Path, names: list[str]) -> int:
    return sum(_remove_one(root / name) for name in names)


def _remove_one(folder: Path) -> bool:
    """A folder goes whole: renamed out of sight first, so that a reader never meets half of it."""
    with contextlib.suppress(FileNotFoundError):
        alive = os.open(folder / "alive", os.O_RDWR | os.O_CLOEXEC)
        try:
            fcntl.flock(alive, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            return False
        finally:
            os.close(alive)
    gone = folder.with_name(f".gone-{folder.name}")
    try:
        folder.rename(gone)
    except OSError:
        return False
    shutil.rmtree(gone, ignore_errors=True)
    return True


# Files are read and written in threads of our own: those of the loop may all be held by code of authors.


@cache
def _threads() -> ThreadPoolExecutor:
    return ThreadPoolExecutor(8, thread_name_prefix="fencepost-commands")


async def in_thread(work: Callable[P, T], /, *args: P.args, **kwargs: P.kwargs) -> T:
    """The work's value, done in a thread."""
    return await asyncio.get_running_loop().run_in_executor(_threads(), lambda: work(*args, **kwargs))
