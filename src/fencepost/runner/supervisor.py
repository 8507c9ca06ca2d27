"""The supervisor of one attempt's command: one thread, the standard library, and the files of its folder."""

from __future__ import annotations

import contextlib
import errno
import fcntl
import json
import os
import select
import signal
import time

from fencepost.runner import child, tree
from fencepost.runner.kept import Sink, digest_of, reach, write_durably

TYPE_CHECKING = False  # typing itself is not imported: a supervisor is to be there at once
if TYPE_CHECKING:
    from typing import Any, Final

CHUNK: Final = 65536
KILL_SECONDS: Final = 10.0  # how long what SIGKILL was sent to may take to go
LOOK_SECONDS: Final = 0.05  # between two looks at processes whose end nobody tells us
WRITES_MAX: Final = 600  # a second apart, when the disk is full
LADDER: Final = (signal.SIGINT, signal.SIGTERM, signal.SIGKILL)


class Supervisor:
    """One command, from its launch to its result."""

    def __init__(self, order: dict[str, Any]) -> None:
        self.order = order
        self.command = 0  # its process id; a zombie until all is over, so that its group's number is nobody else's
        self.status: int | None = None
        self.told = False
        self.stopped: str | None = None
        self.timed_out = False
        self.rung = -1
        self.began = self.next_rung = time.monotonic()
        self.sinks = {name: Sink(name, order["bounds"][name], order["ending"]) for name in ("stdout", "stderr")}
        self.pipes: dict[int, Sink] = {}
        self.errors = -1
        self.wake, waker = os.pipe()
        for fd in (self.wake, waker):
            os.set_blocking(fd, False)
        signal.set_wakeup_fd(waker, warn_on_full_buffer=False)
        signal.signal(signal.SIGCHLD, _noted)
        signal.signal(signal.SIGTERM, self._tell)
        self.poll = select.poll()
        self.poll.register(self.wake, select.POLLIN)

    def run(self) -> None:
        """Launch, wait, clear up, report."""
        if os.path.exists("stop"):  # noqa: PTH110 - pathlib is not imported: a start costs more than it saves
            self.stopped = _reason()
        try:
            if self.stopped is None:
                self._launch()
                while not self._has_ended():
                    self._climb()
                    self._wait(self.next_rung - time.monotonic())
            seconds = time.monotonic() - self.began
            left = self._clear()
        except BaseException:
            self._clear()
            raise
        reach("ended")
        self._report(seconds, left)

    def _tell(self, *_: object) -> None:
        """SIGTERM: somebody wants it ended."""
        self.told = True

    # -- the command

    def _launch(self) -> None:
        """Fork; say durably who the command is; only then let it go (law 70.10: no word of it means that it never ran)."""
        hold, release = os.pipe()
        self.errors, errors = os.pipe()
        streams = [os.pipe() for _ in self.sinks]
        me = os.getpid()
        signal.pthread_sigmask(signal.SIG_BLOCK, LADDER[:2])  # none is lost on a child that does not hear yet
        self.command = os.fork()
        if self.command == 0:
            child.become(self.order, me, hold, release, [writer for _, writer in streams], errors)
        with contextlib.suppress(OSError):
            os.setpgid(self.command, self.command)  # the child does so too: whoever is first
        signal.pthread_sigmask(signal.SIG_UNBLOCK, LADDER[:2])
        for fd in (hold, errors, *(writer for _, writer in streams)):
            os.close(fd)
        for (reader, _), sink in zip(streams, self.sinks.values(), strict=True):
            os.set_blocking(reader, False)
            self.poll.register(reader, select.POLLIN)
            self.pipes[reader] = sink
        os.set_blocking(self.errors, False)
        reach("forked")
        write_durably("command.json", {"pid": self.command, "process_start": tree.start_of(self.command)})
        self.began = time.monotonic()
        self.next_rung = self.began + self.order["ceiling_ms"] / 1000
        with contextlib.suppress(BrokenPipeError):
            os.write(release, b"g")
        os.close(release)
        reach("released")

    def _has_ended(self) -> bool:
        """Whether the command has; it is not reaped yet."""
        if self.status is None and self.command:
            with contextlib.suppress(ChildProcessError):
                self.status = child.status_of(self.command)
        return self.status is not None

    def _climb(self) -> None:
        """The ladder: at the ceiling or when told, SIGINT, SIGTERM, SIGKILL, each after its grace."""
        if self.rung < 0 and self.told:
            self.stopped = _reason()
            self.next_rung = 0.0
        if time.monotonic() < self.next_rung:
            return
        self.timed_out = self.timed_out or (self.rung < 0 and self.stopped is None)
        self.rung = min(self.rung + 1, len(LADDER) - 1)
        if LADDER[self.rung] == signal.SIGKILL:
            self._kill_all()
        else:
            self._signal(LADDER[self.rung])
            self._signal(signal.SIGCONT)  # a stopped process hears nothing else
        graces = [*self.order["graces_ms"], 1000]
        self.next_rung = time.monotonic() + graces[self.rung] / 1000

    def _signal(self, how: signal.Signals) -> None:
        """To the command and what stayed in its process group."""
        try:
            os.killpg(self.command, how)
        except OSError:
            with contextlib.suppress(OSError):
                if self.status is None:  # unreaped: the number is nobody else's
                    os.kill(self.command, how)

    # -- what it left behind

    def _clear(self) -> list[int]:
        """End what the command left running, after a moment in which it may end by itself. Those that could not be ended."""
        left: list[int] = []
        if self.command:
            linger = time.monotonic() + (self.order["linger_ms"] / 1000 if self.rung < 0 else 0)
            while self._others() and not self.told and (rest := linger - time.monotonic()) > 0:
                self._wait(min(rest, LOOK_SECONDS))
            until = time.monotonic() + KILL_SECONDS
            while left := [*self._others(), *(() if self._has_ended() else (self.command,))]:
                if time.monotonic() > until:
                    break
                self._kill_all()
                self._wait(LOOK_SECONDS)
            self._signal(signal.SIGKILL)  # where none of the others can be seen
            if self._has_ended():
                with contextlib.suppress(ChildProcessError):
                    os.waitpid(self.command, 0)
        for fd in list(self.pipes):
            while self._drain(fd):
                pass
        return left

    def _kill_all(self) -> None:
        """SIGKILL to the group, at once, and to every descendant, wherever it went."""
        self._signal(signal.SIGKILL)
        for pid, start in self._others().items():
            tree.kill(pid, start)

    def _others(self) -> dict[int, str]:
        """Living descendants but the command itself. Linux only: elsewhere none is seen."""
        tree.reap(self.command)
        if tree.children(os.getpid()) == [self.command] and self._has_ended():
            return {}
        return {pid: start for pid, start in tree.descendants(os.getpid()).items() if pid != self.command}

    # -- waiting

    def _wait(self, seconds: float) -> None:
        """Until a process ended, a stream spoke, somebody told us, or the time is up; whatever is there is taken."""
        for fd, _ in self.poll.poll(max(0.0, min(seconds, 3600.0)) * 1000 + 1):
            if fd == self.wake:
                with contextlib.suppress(BlockingIOError):
                    while os.read(fd, 512):
                        pass
                tree.reap(self.command)  # what fell to us while the command runs does not stay a zombie
            else:
                self._drain(fd)

    def _drain(self, fd: int) -> bool:
        """Take a piece of a stream. False: there is none now, or there will be none."""
        try:
            chunk = os.read(fd, CHUNK)
        except BlockingIOError:
            return False
        if chunk:
            self.pipes[fd].take(chunk)
            return True
        self.poll.unregister(fd)
        self.pipes.pop(fd)
        os.close(fd)
        return False

    # -- the result

    def _report(self, seconds: float, left: list[int]) -> None:
        """Digests, then the result: whoever sees result.json sees all of it."""
        failed = self._failed()
        ran = self.status is not None and not failed
        result: dict[str, Any] = {
            "outcome": "exited",
            "exit_code": self.status if ran and self.status is not None and self.status >= 0 else None,
            "signal": -self.status if ran and self.status is not None and self.status < 0 else None,
            "timed_out": self.timed_out,
            "stopped": self.stopped,
            "launch_error": child.words(failed, self.order) if failed else None,
            "seconds": round(seconds, 3),
            "left": left,
            # For people: nothing is ever decided by this machine's clock.
            "ended_at": time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime(time.clock_gettime(time.CLOCK_REALTIME))),
        }
        result |= {name: sink.close() for name, sink in self.sinks.items()}
        wanted: list[dict[str, str]] = self.order["outputs"] if ran and self.status == 0 else []
        result["outputs"] = {output["name"]: digest_of(output["path"], output["home"]) for output in wanted}
        reach("digested")
        for _ in range(WRITES_MAX):
            try:
                write_durably("result.json", result)
            except OSError as error:
                if error.errno not in {errno.ENOSPC, errno.EDQUOT}:
                    raise
                time.sleep(1.0)  # waits: for room on the disk, of which nobody tells us
            else:
                return

    def _failed(self) -> str:
        """What the child said when it could not become the command; nothing: it could."""
        if self.errors < 0:
            return ""
        try:
            return os.read(self.errors, 512).decode(errors="replace")
        except BlockingIOError:
            return ""


def _reason() -> str:
    """Why we were told to stop: the first reason; nothing, where somebody outside sent the signal."""
    try:
        with open("stop", encoding="utf-8") as file:  # noqa: PTH123 - as above
            return file.read(200)
    except OSError:
        return ""


def _noted(*_: object) -> None:
    """A signal that only has to wake the loop."""


def main(folder: str) -> None:
    """Wait for the word, then supervise."""
    umask = os.umask(0o077)
    os.chdir(folder)
    for unheard in (signal.SIGINT, signal.SIGHUP):  # a terminal's; the command hears them again
        signal.signal(unheard, signal.SIG_IGN)
    fcntl.flock(os.open("alive", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600), fcntl.LOCK_EX)
    tree.adopt_orphans()
    reach("waiting")
    word = b""
    while not word.endswith(b"\n"):
        if not (piece := os.read(0, 16)):
            return
        word += piece
    if word != b"go\n":
        return
    reach("told")
    with open("order.json", encoding="utf-8") as file:  # noqa: PTH123 - as above
        order: dict[str, Any] = json.load(file)
    Supervisor({**order, "umask": umask}).run()
