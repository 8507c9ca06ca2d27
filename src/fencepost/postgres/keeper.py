"""The keeper: the detached process that is the parent of an embedded server (`python -m fencepost.postgres.keeper ORDER`).

It makes the data when there is none, starts `postgres` as its own child, starts it again after a crash, and stops it
when it can take the lease alone for `idle_seconds`. One line of JSON on standard output says `{"socket": …}` or
`{"error": …}`; from then on it only writes to keeper.log. When it dies the kernel tells the server to stop (Linux), and
the next keeper waits for `server.lock`, which every process of the old server holds, before it touches the data.
"""

from __future__ import annotations

import contextlib
import fcntl
import json
import os
import select
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, Final, NoReturn

from fencepost.postgres.data import choose_socket_dir, ensure_data, last_complaint
from fencepost.postgres.files import PORT, SOCKET_NAME, NoPostgres, explain, handshake, lock, open_file, plain
from fencepost.postgres.identity import LIBC, LINUX, Program, choose_program, environment

SETTINGS: Final[Mapping[str, str]] = {
    "shared_buffers": "32MB",
    "max_connections": "200",
    "cluster_name": "fencepost",
    "timezone": "UTC",
    "log_timezone": "UTC",
}
START_SECONDS: Final = 300.0  # a crash recovery is waited for
ORPHAN_SECONDS: Final = 5.0  # how long children of a dead server may take to notice
STOP_SECONDS: Final = 20.0  # then without a checkpoint
STARTS_MAX: Final = 3
CRASHES_MAX: Final = 5  # within CRASH_SECONDS
CRASH_SECONDS: Final = 60.0
LOG_BYTES_MAX: Final = 16 * 2**20

_PR_SET_CHILD_SUBREAPER: Final = 36


class Keeper:
    """One server, from its first start to its last."""

    def __init__(self, order: Mapping[str, Any]) -> None:
        self.home = Path(order["home"])
        self.data = self.home / "postgres"
        self.bin_dir = Path(order["bin_dir"])
        self.create = bool(order["create"])
        self.idle_seconds = float(order["idle_seconds"])
        self.settings = {**SETTINGS, **order["settings"]}
        self.socket_dir = Path()
        self.server = 0  # process id, 0: none
        self.ended: dict[int, int] = {}  # process id: wait status
        self.leave = False
        self.wake, self.waker = os.pipe()
        for fd in (self.wake, self.waker):
            os.set_blocking(fd, False)
        signal.set_wakeup_fd(self.waker, warn_on_full_buffer=False)
        signal.signal(signal.SIGCHLD, _noted)
        for stop in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
            signal.signal(stop, self._told_to_leave)

    def _told_to_leave(self, *_: object) -> None:
        self.leave = True

    # -- the life of a keeper

    def run(self, answer: Callable[[Mapping[str, str]], None]) -> None:
        """Start, answer, keep, stop. Raises NoPostgres when the server cannot be started, or not again."""
        self.keeper_lock = open_file(self.home, "keeper.lock")
        if not lock(self.keeper_lock, fcntl.LOCK_EX, STOP_SECONDS):
            raise NoPostgres(f"another keeper has {self.home}")
        if LINUX:  # orphans of a dead server become ours and do not stay zombies where no init reaps
            LIBC.prctl(_PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0)
        try:
            self.start()
            answer({"socket": str(self.socket_dir)})
            self.create = False
            threading.Thread(target=self.outwait_leases, daemon=True).start()
            crashes: list[float] = []
            while not self.leave:
                self.pause(3600.0)
                self.bound_log()
                if self.server in self.ended and not self.leave:
                    crashes = [t for t in crashes if time.monotonic() - t < CRASH_SECONDS] + [time.monotonic()]
                    note("the server died; starting it again")
                    if len(crashes) > CRASHES_MAX:
                        raise NoPostgres(f"the server of {self.home} died {len(crashes)} times in a minute")
                    self.start()
        finally:
            self.stop()

    def outwait_leases(self) -> None:
        """Leave when no client has been there for `idle_seconds`; then the lease stays ours, and newcomers wait."""
        fd = open_file(self.home, "lease")
        while True:
            fcntl.flock(fd, fcntl.LOCK_EX)
            touched = os.fstat(fd).st_mtime_ns
            fcntl.flock(fd, fcntl.LOCK_UN)
            time.sleep(self.idle_seconds)  # waits: the grace itself
            # A client that came and went meanwhile has touched the file: the grace begins anew.
            if lock(fd, fcntl.LOCK_EX, 0) and os.fstat(fd).st_mtime_ns == touched:
                break
        self.leave = True
        os.write(self.waker, b"L")

    def pause(self, seconds: float) -> None:
        """Wait for a signal, a child's end or the leases' end; reap."""
        if select.select([self.wake], [], [], seconds)[0]:
            with contextlib.suppress(BlockingIOError):
                while os.read(self.wake, 512):
                    pass
        with contextlib.suppress(ChildProcessError):
            while (ended := os.waitpid(-1, os.WNOHANG))[0] != 0:
                if ended[0] == self.server:
                    self.ended = {ended[0]: ended[1]}

    # -- starting

    def start(self) -> None:
        """Make what is missing and start the server; return when it answers. If killed meanwhile, again."""
        for _ in range(STARTS_MAX):
            if self.start_once():
                return
        raise NoPostgres(f"the server of {self.home} was killed {STARTS_MAX} times while it started")

    def start_once(self) -> bool:
        """Whether it answers; False: it was killed. Raises NoPostgres when it has refused."""
        self.server, self.ended = 0, {}
        fd = open_file(self.home, "server.lock")
        try:
            self.await_orphans(fd)
            program = choose_program(self.home, self.data, self.bin_dir)
            ensure_data(self.data, program, self.settings, create=self.create, lock_fd=fd)
            self.socket_dir = choose_socket_dir(self.home, program)
            self.remove_leftovers()
            self.launch(program, fd)
        finally:
            os.close(fd)  # from here on the server and its children alone hold the lock
        # Before it answers: whoever is answered by this server is not told of the one before.
        self.write_place(program.version)
        return self.await_answer()

    def await_orphans(self, fd: int) -> None:
        """Take server.lock: wait until every process of an earlier server is gone."""
        if lock(fd, fcntl.LOCK_EX, 0):
            return
        patience = ORPHAN_SECONDS
        if (pid := self.server_pid()) in self.attached():
            # The kernel has asked it to stop when its keeper died; where it cannot, we do.
            patience = STOP_SECONDS
            with contextlib.suppress(OSError):
                os.kill(pid, signal.SIGINT)
        # As their server would have done; the memory they shared is never looked at again.
        self.end_orphans(signal.SIGQUIT)
        if lock(fd, fcntl.LOCK_EX, patience):
            return
        self.end_orphans(signal.SIGKILL)
        if not lock(fd, fcntl.LOCK_EX, ORPHAN_SECONDS):
            pids = ", ".join(map(str, self.attached())) or "unknown"
            raise NoPostgres(
                f"processes of an earlier PostgreSQL still use {self.data} (process {pids}), stopped or hanging: "
                "end them with kill -9 and try again; the data are safe"
            )

    def end_orphans(self, how: signal.Signals) -> None:
        """Signal the children of our own dead server: they became ours. Those of another keeper's are left to notice by themselves."""
        for pid in self.attached():
            with contextlib.suppress(OSError, ValueError, IndexError):
                # The name stands in brackets and may hold anything; the parent is the second field behind them.
                parent = int(Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[1])
                if parent == os.getpid() and pid != self.server:
                    os.kill(pid, how)

    def server_pid(self) -> int:
        """The process that postmaster.pid names; 0: none."""
        try:
            return int((self.data / "postmaster.pid").read_text().split("\n", 1)[0])
        except (OSError, ValueError):
            return 0

    def attached(self) -> list[int]:
        """Living processes that work in the data directory (PostgreSQL's do). Empty where there is no /proc."""
        found: list[int] = []
        for entry in Path("/proc").glob("[0-9]*/cwd") if LINUX else ():
            with contextlib.suppress(OSError):
                if entry.readlink() == self.data:
                    found.append(int(entry.parent.name))
        return found

    def remove_leftovers(self) -> None:
        """Remove lock files that name the dead. Holding server.lock we know that no server of ours lives."""
        pid = self.server_pid()
        if pid and pid in self.attached():
            raise NoPostgres(f"a PostgreSQL that is not ours (process {pid}) serves {self.data}: stop it and try again")
        if pid and not LINUX:
            return  # PostgreSQL decides by itself
        # Zombies and recycled numbers would make PostgreSQL refuse.
        socket = self.socket_dir / SOCKET_NAME
        for path in (self.data / "postmaster.pid", socket, socket.with_name(f"{SOCKET_NAME}.lock")):
            path.unlink(missing_ok=True)

    def launch(self, program: Program, fd: int) -> None:
        """Start `postgres` as our child, with `fd` (server.lock) in its hands."""
        ours = {
            "listen_addresses": "",
            "port": str(PORT),
            "unix_socket_directories": str(self.socket_dir),
            "unix_socket_permissions": "0700",
            "logging_collector": "off",
            "log_destination": "stderr",
        }
        command = [str(program.bin_dir / "postgres"), "-D", str(self.data)]
        for key, value in {**self.settings, **ours}.items():
            command += ["-c", f"{key}={value}"]
        log = open_file(self.home, "postgres.log", os.O_WRONLY | os.O_APPEND)
        self.log_began = os.fstat(log).st_size
        try:
            child = subprocess.Popen(
                command, stdin=subprocess.DEVNULL, stdout=log, stderr=log, cwd="/", env=environment(), pass_fds=[fd],
                preexec_fn=program.identity.enter(signal.SIGINT),  # noqa: PLW1509 what it does is safe in a fork
            )  # fmt: skip
        finally:
            os.close(log)
        self.server = child.pid
        child.returncode = 0  # we reap it, Popen need not

    def await_answer(self) -> bool:
        """True: a startup message is answered. False: the server was killed. Raises NoPostgres if it refused."""
        deadline = time.monotonic() + START_SECONDS
        while not (self.says_ready() and handshake(str(self.socket_dir))):
            # The server tells its readiness to nobody; its end wakes us at once.
            self.pause(0.005)
            if self.server in self.ended or self.leave or time.monotonic() > deadline:
                with (self.home / "postgres.log").open(errors="replace") as log:
                    log.seek(self.log_began)
                    said = log.read()
                if os.WIFSIGNALED(self.ended.get(self.server, 0)) or "terminated by signal" in said:
                    return False
                raise NoPostgres(explain(said, self.home) or f"PostgreSQL did not start: {last_complaint(said)}")
        return True

    def says_ready(self) -> bool:
        """What postmaster.pid says. Asked first, so as not to fill the log with refused handshakes."""
        with contextlib.suppress(OSError):
            return "\nready" in (self.data / "postmaster.pid").read_text(errors="replace")
        return False

    def write_place(self, version: str) -> None:
        """Tell later clients where the server listens."""
        fresh = self.home / "server.json.new"
        fd = open_file(self.home, fresh.name, os.O_WRONLY | os.O_TRUNC)
        with os.fdopen(fd, "w") as file:
            place = {"socket": str(self.socket_dir), "keeper": os.getpid(), "server": self.server, "version": version}
            json.dump(place, file)
        fresh.rename(self.home / "server.json")

    # -- keeping and stopping

    def bound_log(self) -> None:
        """Empty a log that has grown too long (it is open for appending, so writers go on at its beginning)."""
        for name in ("postgres.log", "keeper.log"):
            with contextlib.suppress(OSError):
                if (self.home / name).stat().st_size > LOG_BYTES_MAX:
                    os.truncate(self.home / name, 0)

    def stop(self) -> None:
        """Stop the server in order; if it will not, without its checkpoint, which costs a recovery and no data."""
        for how in (signal.SIGINT, signal.SIGQUIT):
            if not self.server or self.server in self.ended:
                break
            with contextlib.suppress(ProcessLookupError):
                os.kill(self.server, how)
            deadline = time.monotonic() + STOP_SECONDS
            while self.server not in self.ended and time.monotonic() < deadline:
                self.pause(deadline - time.monotonic())
        if self.socket_dir.parent != self.home and self.socket_dir.name:
            with contextlib.suppress(OSError):
                self.socket_dir.rmdir()


def _noted(*_: object) -> None:
    """For a signal that only has to wake us."""


def note(words: str) -> None:
    """A line in keeper.log; a full disk must not end the keeper."""
    with contextlib.suppress(OSError):
        stamp = time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime())
        sys.stderr.write(f"{stamp} [{os.getpid()}] {words}\n")
        sys.stderr.flush()


def main() -> NoReturn:
    """Detach and keep the server that the order (JSON, the first argument) describes."""
    order = json.loads(sys.argv[1])
    if os.fork() != 0:
        os._exit(0)  # whoever asked reaps this process now, and never has the keeper for a child
    os.umask(0o077)
    os.chdir("/")
    answered = False

    def answer(words: Mapping[str, str]) -> None:
        nonlocal answered
        with contextlib.suppress(OSError):  # the client may have died
            os.write(1, json.dumps(words).encode() + b"\n")
        os.dup2(2, 1)
        answered = True

    home = Path(order["home"])
    failure: str | None = None
    try:
        Keeper(order).run(answer)
    except NoPostgres as error:
        failure = str(error)
    except OSError as error:
        failure = str(plain(error, home))
    except Exception as error:  # the client is told in one line whatever happened; the log has the rest
        failure = f"the keeper of {home} failed ({type(error).__name__}: {error}); see {home}/keeper.log"
        with contextlib.suppress(OSError):
            sys.excepthook(type(error), error, error.__traceback__)
    if failure is not None:
        note(failure)
        if not answered:
            answer({"error": failure})
    os._exit(0 if failure is None else 1)  # not sys.exit: a thread may wait for a lock that will never come


if __name__ == "__main__":
    main()
