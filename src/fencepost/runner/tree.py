"""The processes below one: what /proc shows of them, and ending exactly those. Where there is no /proc of ours none are seen."""

from __future__ import annotations

import contextlib
import ctypes
import os
import signal
import sys

TYPE_CHECKING = False  # typing itself is not imported: a supervisor is to be there at once
if TYPE_CHECKING:
    from typing import Final

LINUX: Final = sys.platform == "linux"

_PR_SET_PDEATHSIG: Final = 1
_PR_SET_CHILD_SUBREAPER: Final = 36


def adopt_orphans() -> None:
    """From now on what loses its parent below us becomes our child."""
    if LINUX:
        ctypes.CDLL(None).prctl(_PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0)


def die_with_parent() -> None:
    """From now on the kernel kills this process when its parent ends."""
    if LINUX:
        ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0)


def start_of(pid: int) -> str | None:
    """When a process started, in clock ticks since boot; None where it cannot be read."""
    seen = _look(pid) if is_ours() else None
    return seen[2] if seen else None


def children(pid: int) -> list[int]:
    """The processes whose parent it is, zombies too."""
    if not is_ours():
        return []
    try:
        with open(f"/proc/{pid}/task/{pid}/children", encoding="ascii") as file:  # noqa: PTH123 - pathlib is not imported
            return [int(child) for child in file.read().split()]
    except (OSError, ValueError):
        return [other for other in _processes() if (seen := _look(other)) and seen[0] == pid]


def descendants(ancestor: int) -> dict[int, str]:
    """Everything alive below a process: its id, and when it started."""
    below: dict[int, list[tuple[int, str]]] = {}
    for pid in _processes() if is_ours() else ():
        if (seen := _look(pid)) is not None and seen[1]:
            below.setdefault(seen[0], []).append((pid, seen[2]))
    found: dict[int, str] = {}
    ahead = [ancestor]
    while ahead:
        next_ = below.get(ahead.pop(), [])
        found.update(next_)
        ahead += [pid for pid, _ in next_]
    return found


def reap(but: int) -> None:
    """Take leave of our children that have ended, but of one."""
    for pid in children(os.getpid()):
        if pid != but:
            with contextlib.suppress(ChildProcessError):
                os.waitpid(pid, os.WNOHANG)


def kill(pid: int, start: str) -> None:
    """SIGKILL to the process that started then, and to no later one of its number."""
    with contextlib.suppress(OSError):
        try:
            fd = os.pidfd_open(pid)
        except AttributeError:
            os.kill(pid, signal.SIGKILL)
            return
        try:
            if start_of(pid) == start:
                signal.pidfd_send_signal(fd, signal.SIGKILL)
        finally:
            os.close(fd)


def is_ours() -> bool:
    """Whether /proc speaks of our processes: a container may show the one of somebody else's pid namespace."""
    try:
        return os.readlink("/proc/self") == str(os.getpid())  # noqa: PTH115 - as above
    except OSError:
        return False


def _look(pid: int) -> tuple[int, bool, str] | None:
    """Parent, whether it lives, and start of a process; None: it is not there."""
    try:
        with open(f"/proc/{pid}/stat", encoding="utf-8", errors="replace") as file:  # noqa: PTH123 - as above
            # The name stands in brackets and may hold anything: the fields begin after the last one.
            fields = file.read().rpartition(")")[2].split()
        # A zombie whose other threads still run is a process whose first thread ended.
        return int(fields[1]), fields[0] not in {"Z", "X"} or int(fields[17]) > 1, fields[19]
    except (OSError, ValueError, IndexError):
        return None


def _processes() -> list[int]:
    try:
        return [int(name) for name in os.listdir("/proc") if name.isdigit()]  # noqa: PTH208 - as above
    except OSError:
        return []


def bearing(name: str, value: str) -> dict[int, str]:
    """Living processes with this in their environment, but ourselves: id and start. Those of other users are not seen."""
    wanted = os.fsencode(f"{name}={value}")
    found: dict[int, str] = {}
    for pid in _processes() if is_ours() else ():
        if pid == os.getpid():
            continue
        with contextlib.suppress(OSError):
            with open(f"/proc/{pid}/environ", "rb") as file:  # noqa: PTH123 - as above
                borne = wanted in file.read().split(b"\0")
            if borne and (seen := _look(pid)) is not None and seen[1]:
                found[pid] = seen[2]
    return found
