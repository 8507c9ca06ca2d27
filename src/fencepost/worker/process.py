"""Facts about processes: what proof of death needs (law 85.3), and nothing that can be mistaken for it; a child's tie to its parent.

Where a fact cannot be read it is None, and no proof follows from it. Linux has all of them; elsewhere silence decides.
"""

from __future__ import annotations

import contextlib
import os
import select
import threading
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Final

LOOK_SECONDS: Final = 1.0  # between two looks for a parent, where nothing tells of its end


@dataclass(frozen=True, slots=True)
class Facts:
    """This process, as an incarnation records it. `process_start` is in clock ticks since boot, as text."""

    boot_id: str | None
    pid_namespace: str | None
    pid: int
    process_start: str | None


@dataclass(frozen=True, slots=True)
class Seen:
    """A process as /proc shows it: its state's letter, its number of threads, and when it started."""

    state: str
    threads: int
    start: str


def facts() -> Facts:
    """What is known about this process."""
    pid = os.getpid()
    if not _proc_is_ours():
        return Facts(None, None, pid, None)
    seen = look(pid)
    return Facts(_read("/proc/sys/kernel/random/boot_id"), _namespaces(), pid, seen.start if seen else None)


def look(pid: int) -> Seen | None:
    """The process with this id, or None when /proc does not show it."""
    text = _read(f"/proc/{pid}/stat")
    # The name stands in brackets and may hold anything, brackets too: the fields begin after the last one.
    fields = text.rpartition(")")[2].split() if text else []
    try:
        return Seen(fields[0], int(fields[17]), fields[19])
    except (IndexError, ValueError):
        return None


def is_gone(pid: int, process_start: str | None) -> bool:
    """Proof that the process of this id and start time, of this boot and pid namespace, has ended.

    It is absent, a zombie, or another one. Stopped, or not to be signalled, is not gone; unreadable is no proof.
    """
    if pid <= 0:
        return False
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return True
    except (OSError, OverflowError):
        pass
    seen = look(pid) if _proc_is_ours() else None
    if seen is None:
        return False
    # A zombie whose other threads still run is a process whose first thread ended: not gone.
    return (seen.state in {"Z", "X"} and seen.threads <= 1) or (
        process_start is not None and seen.start != process_start
    )


def is_stopped(pid: int) -> bool:
    """True for a process that was stopped by a signal or a debugger; False also where that cannot be read."""
    seen = look(pid)
    return seen is not None and seen.state in {"T", "t"}


def end_with(parent: int) -> None:
    """From now on this process ends when its parent does, whatever its own threads are at, and says nothing more.

    `parent`: the parent's process id, as the parent gave it; one that has ended already ends this process too.
    """
    threading.Thread(target=_end_with, args=(parent,), name="fencepost-parent", daemon=True).start()


def _end_with(parent: int) -> None:
    with contextlib.suppress(AttributeError, OSError):  # older kernels, other systems
        watched = select.poll()
        watched.register(os.pidfd_open(parent), select.POLLIN)
        # Asked after the opening: an id that somebody else had got by then is not our parent's any more.
        if os.getppid() == parent:
            watched.poll()
    while os.getppid() == parent:
        time.sleep(LOOK_SECONDS)  # waits: nothing here tells of a parent's end
    os._exit(0)


def _proc_is_ours() -> bool:
    """A container may show the /proc of somebody else's pid namespace: its numbers mean other processes."""
    try:
        return str(Path("/proc/self").readlink()) == str(os.getpid())
    except OSError:
        return False


def _namespaces() -> str | None:
    """The pid namespace's inode; the time namespace's too, for start times are told apart by it."""
    try:
        pid = Path("/proc/self/ns/pid").stat().st_ino
    except OSError:
        return None
    try:
        return f"{pid}/{Path('/proc/self/ns/time').stat().st_ino}"
    except OSError:
        return str(pid)


def _read(path: str) -> str | None:
    try:
        return Path(path).read_text(encoding="utf-8", errors="replace").strip() or None
    except OSError:
        return None
