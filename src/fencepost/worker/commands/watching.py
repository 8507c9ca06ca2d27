"""A supervisor as its worker sees it: started, told to go, waited for, stopped; met again by another worker."""

from __future__ import annotations

import asyncio
import contextlib
import dataclasses
import os
import signal
import subprocess
import sys
from collections import deque
from pathlib import Path
from typing import Final

from fencepost import runner
from fencepost.store import Store, StoreAway, StoreFailed
from fencepost.worker import process
from fencepost.worker.commands import folders, inquiry, orders
from fencepost.worker.commands.packets import LaunchRefused, Packet
from fencepost.worker.commands.reports import Dead, Ended, NotStarted

LOOK_SECONDS: Final = 1.0  # between two looks at what tells nobody of its end

_left: Final[deque[subprocess.Popen[bytes]]] = deque()  # children that nobody watches any more
_SCRIPT: Final = Path(runner.__file__).with_name("alone.py")


class Supervised:
    """The supervisor of one attempt. `facts`: its process, to be recorded before the attempt begins; `folder`: the attempt's."""

    def __init__(self, folder: Path, facts: process.Facts, child: subprocess.Popen[bytes] | None = None) -> None:
        self.folder = folder
        self.facts = facts
        self._child = child
        self._fd = -1  # of the supervisor's process, where the kernel gives one
        self._gone: asyncio.Event | None = None
        self._loop: asyncio.AbstractEventLoop | None = None

    async def go(self, packet: Packet, store: Store) -> None:
        """Write packet, inputs and order, and let the command run.

        Raises    LaunchRefused: nothing ran, the supervisor has left. StoreAway: it waits still, and may be told again.
        """
        try:
            await folders.in_thread(orders.prepare, self.folder, packet, store)
        except StoreAway:
            raise
        except (StoreFailed, OSError, ValueError, LookupError) as error:
            self._hang_up()
            raise LaunchRefused(orders.refusal(error)) from error
        self._say(b"go\n")

    async def ended(self) -> Ended | Dead | NotStarted:
        """Wait until it is known what became of the try. It may be asked by several, again and again."""
        while True:
            gone = self._is_gone()
            found = await folders.in_thread(inquiry.verdict, self.folder, gone=gone)
            if found is not None:
                return found
            if gone:
                await asyncio.sleep(LOOK_SECONDS / 10)  # waits: for what it left behind, which is told to nobody
            else:
                await self._until_gone()

    def stop(self, reason: str) -> None:
        """Have the command ended: SIGINT, SIGTERM, SIGKILL, each after its grace. The first reason stays. Idempotent."""
        with contextlib.suppress(OSError):
            folders.write_first(self.folder / "stop", (reason or "stopped").encode(errors="replace"))
        if self._child is not None and self._child.stdin is not None and not self._child.stdin.closed:
            self._hang_up()  # never told to go: nothing runs
        elif not self._is_gone():
            self._signal()

    def close(self) -> None:
        """Watch no longer. What was let go goes on without us; what was not ends with nothing run."""
        self._hang_up()
        self._forget()
        if self._child is not None and self._child.poll() is None:
            _left.append(self._child)  # reaped when the next one starts

    # -- the process

    def _say(self, word: bytes) -> None:
        if self._child is not None and self._child.stdin is not None and not self._child.stdin.closed:
            with contextlib.suppress(OSError):  # it has gone: `ended` finds out
                self._child.stdin.write(word)
                self._child.stdin.flush()
        self._hang_up()

    def _hang_up(self) -> None:
        if self._child is not None and self._child.stdin is not None:
            with contextlib.suppress(OSError):
                self._child.stdin.close()

    def _is_gone(self) -> bool:
        """Proof that the supervisor has ended; a child of ours is reaped."""
        if self._child is not None:
            return self._child.poll() is not None
        if self._gone is not None and self._gone.is_set():
            return True
        return process.is_gone(self.facts.pid, self.facts.process_start)

    def _signal(self) -> None:
        """SIGTERM to the supervisor and to no later process of its number."""
        with contextlib.suppress(OSError):
            try:
                fd = os.pidfd_open(self.facts.pid)
            except AttributeError:
                os.kill(self.facts.pid, signal.SIGTERM)
                return
            try:
                if not self._is_gone():  # asked after the opening: that number was nobody else's by then
                    signal.pidfd_send_signal(fd, signal.SIGTERM)
                    signal.pidfd_send_signal(fd, signal.SIGCONT)  # a stopped one hears nothing else
            finally:
                os.close(fd)

    async def _until_gone(self) -> None:
        """Return when the supervisor has ended, or may have. Where the kernel tells of no process's end, after a slow look."""
        if self._gone is None and not self._watch():
            if not self._is_gone():
                await asyncio.sleep(LOOK_SECONDS)  # waits: nothing here tells of the end of somebody else's process
            return
        assert self._gone is not None, "watched"
        await self._gone.wait()

    def _watch(self) -> bool:
        try:
            fd = os.pidfd_open(self.facts.pid)
        except (AttributeError, OSError):
            return False
        if self._is_gone():  # asked after the opening, as above
            os.close(fd)
            return False
        self._fd, self._gone, self._loop = fd, asyncio.Event(), asyncio.get_running_loop()
        self._loop.add_reader(fd, self._noted)
        return True

    def _noted(self) -> None:
        assert self._gone is not None, "watched"
        self._gone.set()
        self._forget()

    def _forget(self) -> None:
        if self._fd >= 0:
            if self._loop is not None and not self._loop.is_closed():
                self._loop.remove_reader(self._fd)
            os.close(self._fd)
            self._fd = -1


async def start(root: Path, name: str) -> Supervised:
    """Make the attempt's folder and start its supervisor, which waits for `go`. Raises OSError: nothing was started."""
    return await folders.in_thread(_start, root, name)


def _start(root: Path, name: str) -> Supervised:
    _reap()
    root.mkdir(mode=0o700, parents=True, exist_ok=True)
    folder = root.resolve() / name
    folder.mkdir(mode=0o700)
    log = os.open(folder / "supervisor.log", os.O_WRONLY | os.O_CREAT | os.O_CLOEXEC, 0o600)
    try:
        child = subprocess.Popen(
            [sys.executable, "-I", "-S", str(_SCRIPT), str(folder)], stdin=subprocess.PIPE, stdout=subprocess.DEVNULL,
            stderr=log, start_new_session=True, cwd="/", env=orders.environment(),
        )  # fmt: skip
    finally:
        os.close(log)
    seen = process.look(child.pid)
    facts = dataclasses.replace(process.facts(), pid=child.pid, process_start=seen.start if seen else None)
    return Supervised(folder, facts, child)


def _reap() -> None:
    """Take leave of those that have ended; every thread may."""
    with contextlib.suppress(IndexError):
        for _ in range(len(_left)):
            child = _left.popleft()
            if child.poll() is None:
                _left.append(child)


def meet(folder: Path, pid: int, process_start: str | None) -> Supervised:
    """The supervisor of an attempt that somebody else started on this host (same boot, same pid namespace: the caller has compared)."""
    return Supervised(folder, dataclasses.replace(process.facts(), pid=pid, process_start=process_start))
