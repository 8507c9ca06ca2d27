"""The embedded PostgreSQL, as its clients see it: one server per home, started on demand, shared, stopped when left.

A home is a directory. Beside the data (`postgres/`) lie five small files whose kernel locks (flock) say who lives; the
kernel drops them at any death, so nothing here trusts a process number:

    lease         shared by every client; the keeper takes it alone when the last one has left
    start.lock    held by the one client that is starting a keeper
    keeper.lock   held by the keeper (fencepost.postgres.keeper), the parent of the server
    server.lock   held by the server and every process it forks, however orphaned; nobody starts a server without it
    server.json   where the server listens

Who holds a `Home` also guards it: when the keeper dies, the first client to see the freed lock starts another.
"""

from __future__ import annotations

import contextlib
import fcntl
import json
import logging
import os
import select
import subprocess
import sys
import threading
import time
import urllib.parse
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from types import MappingProxyType, TracebackType
from typing import Any, Final, Self

from fencepost.postgres.binaries import find_binaries
from fencepost.postgres.files import PORT, NoPostgres, explain, handshake, lock, open_file, opened, plain

__all__ = ["TEST_SETTINGS", "Home", "NoPostgres", "find_binaries", "lease_free_fds", "open_home"]

log = logging.getLogger("fencepost.postgres")

ANSWER_SECONDS: Final = 120.0  # how long a client waits for a server that a living keeper is starting
KEEPER_SECONDS: Final = 600.0  # how long a client waits for the answer of the keeper it started
RETRY_SECONDS_MAX: Final = 30.0
STARTS_MAX: Final = 3  # a keeper that dies without a word is tried again

#: For throw-away databases. The last commits may be lost when the *server* is killed (that is `synchronous_commit`;
#: set it on where that is tested), everything when the power is; killed clients lose nothing.
TEST_SETTINGS: Final[Mapping[str, str]] = MappingProxyType(
    {
        "fsync": "off",
        "full_page_writes": "off",
        "synchronous_commit": "off",
        "autovacuum": "off",
        "wal_level": "minimal",
        "max_wal_senders": "0",
        "max_connections": "300",
    }
)


# `python -m fencepost.postgres.keeper` without the rest of the package, site-packages and the working directory: it needs the
# standard library only, starts in a fifth of the time, and nobody's json.py becomes part of it.
_KEEPER: Final = """
import sys, types
above = sys.argv.pop(1)
for name in ("fencepost", "fencepost.postgres"):
    package = sys.modules[name] = types.ModuleType(name)
    package.__path__ = [above + name.removeprefix("fencepost").replace(".", "/")]
from fencepost.postgres.keeper import main
main()
"""


class _Killed(Exception):
    """The keeper ended without an answer."""


class _Lease:
    """The share of this process in a home: an open, locked, never inherited descriptor."""

    __slots__ = ("fd", "home")

    def __init__(self, home: Path, fd: int) -> None:
        self.home, self.fd = home, fd


@dataclass(slots=True)
class _Guard:
    """How many leases this process has on one home, and the order by which its keeper is started again."""

    order: dict[str, Any]
    count: int = 0
    left: threading.Event = field(default_factory=threading.Event)


def _give_up(lease: _Lease) -> bool:
    with _mutex:
        if lease not in _leases:
            return False
        _leases.discard(lease)
        os.close(lease.fd)
        return True


_leases: set[_Lease] = set()
_guards: dict[Path, _Guard] = {}
_mutex = threading.RLock()


def lease_free_fds() -> None:
    """Close every lease descriptor this process came by, without giving up the lease of the process that took it.

    Runs by itself in a child of `fork` (a lock belongs to the open file, so a copy would hold it). Children begun by
    exec never have one: the descriptors are close-on-exec. A forked child that wants the server opens the home itself.
    """
    global _mutex  # noqa: PLW0603 - the thread that held it may not exist here
    _mutex = threading.RLock()
    for lease in _leases:
        with contextlib.suppress(OSError):
            os.close(lease.fd)
        lease.fd = -1
    _leases.clear()
    _guards.clear()


# Under the mutex a descriptor and its entry in `_leases` appear together, also to a fork in another thread.
os.register_at_fork(before=lambda: _mutex.acquire(), after_in_parent=lambda: _mutex.release())  # noqa: PLW0108 - rebound
os.register_at_fork(after_in_child=lease_free_fds)


@dataclass(frozen=True, slots=True)
class Home:
    """A lease on a running embedded server. The server stops when the last lease, of any process, is gone."""

    path: Path
    dsn: str
    _lease: _Lease | None = field(default=None, repr=False, compare=False)

    def close(self) -> None:
        """Give this lease up. Again: nothing happens."""
        with _mutex:
            if (lease := self._lease) is None or not _give_up(lease):
                return
            if (guard := _guards.get(lease.home)) is not None:
                guard.count -= 1
                if guard.count == 0:
                    guard.left.set()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self.close()


def open_home(
    path: Path,
    *,
    create: bool,
    settings: Mapping[str, str] | None = None,
    idle_seconds: float = 1.0,
    bin_dir: Path | None = None,
) -> Home:
    """Lease the server of a home, starting it (and, with `create`, making its data) when nobody has.

    Blocks until a startup handshake has been answered: call it before the event loop, or in a thread.
    Units     `idle_seconds`: how long the server outlives its last lease. It and `settings` count for who starts it.
    Raises    NoPostgres, and then nothing is left running for this process. Without `create` nothing is made either.
    """
    home = Path(os.path.realpath(path))
    try:
        has_data = (home / "postgres" / "PG_VERSION").exists()
        if not create and not has_data:
            raise NoPostgres(f"there is no database in {home}: nothing was created; check FENCEPOST_HOME")
        if not has_data:
            find_binaries(bin_dir)
        if not home.exists():
            # Root's server may run as another user, who must be able to pass through.
            home.mkdir(mode=0o711 if os.geteuid() == 0 else 0o700, parents=True, exist_ok=True)
            (home / ".gitignore").write_text("*\n")
        with _mutex:
            _leases.add(lease := _Lease(home, open_file(home, "lease")))
    except OSError as error:
        raise plain(error, home) from None
    order = {
        "home": str(home),
        "bin_dir": str(bin_dir) if bin_dir else None,
        "create": create,
        "idle_seconds": idle_seconds,
        "settings": dict(settings or {}),
    }
    try:
        # Waits only while a keeper stops the server, which it does with the lease to itself.
        if not lock(lease.fd, fcntl.LOCK_SH, ANSWER_SECONDS):
            raise NoPostgres(f"the server of {home} stops and stops: see {home}/keeper.log")
        os.utime(lease.fd)  # tells an idle keeper that somebody came, however briefly
        dsn = _dsn(_ensure(home, order))
    except BaseException as error:
        _give_up(lease)
        if isinstance(error, OSError):
            raise plain(error, home) from None
        raise
    with _mutex:
        _stand_guard(home, order | {"create": False})
    return Home(home, dsn, lease)


def _dsn(socket_dir: str) -> str:
    # Everything a PG* variable of the client could bend is said here.
    host = urllib.parse.quote(socket_dir, safe="/")
    return f"postgresql://postgres@/postgres?host={host}&port={PORT}&sslmode=disable"


def _keeper_lives(home: Path) -> bool:
    with opened(home, "keeper.lock") as fd:
        return not lock(fd, fcntl.LOCK_SH, 0)


def _serving(home: Path) -> str | None:
    """The socket directory of the server that answers now, if one does and somebody keeps it."""
    if not _keeper_lives(home):
        return None
    with contextlib.suppress(OSError, ValueError, KeyError, TypeError):
        place = str(json.loads((home / "server.json").read_text())["socket"])
        return place if handshake(place) else None
    return None


def _ensure(home: Path, order: Mapping[str, Any]) -> str:
    """The socket directory of a server that answers; the caller holds a lease, so it stays."""
    deadline, killed = time.monotonic() + ANSWER_SECONDS, 0
    while True:
        if (place := _serving(home)) is not None:
            return place
        with opened(home, "start.lock") as fd:
            if not lock(fd, fcntl.LOCK_EX, KEEPER_SECONDS):
                raise NoPostgres(f"another process has been starting the server of {home} for too long; end it")
            if (place := _serving(home)) is not None:
                return place
            if not _keeper_lives(home):
                try:
                    return _start_keeper(home, order)
                except _Killed as error:
                    if (killed := killed + 1) >= STARTS_MAX:
                        raise NoPostgres(str(error)) from None
                    continue
        if time.monotonic() > deadline:
            raise NoPostgres(f"the server of {home} does not answer: see {home}/postgres.log and {home}/keeper.log")
        # waits: a keeper we did not start is (re)starting the server, and only the handshake tells when it is done
        time.sleep(0.02)


def _start_keeper(home: Path, order: Mapping[str, Any]) -> str:
    """Start a detached keeper and return what it answers: the socket directory, or why not."""
    bin_dir = find_binaries(Path(order["bin_dir"]) if order["bin_dir"] else None)
    order = {**order, "bin_dir": str(bin_dir)}
    command = [
        sys.executable,
        "-I",
        "-S",
        "-c",
        _KEEPER,
        str(Path(__file__).resolve().parent.parent),
        json.dumps(order),
    ]
    errors = open_file(home, "keeper.log", os.O_WRONLY | os.O_APPEND)
    try:
        began = os.fstat(errors).st_size
        child = subprocess.Popen(
            command,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=errors,
            start_new_session=True,
            close_fds=True,
        )
    finally:
        os.close(errors)
    assert child.stdout is not None
    with child.stdout as pipe:
        child.wait()  # the keeper proper is its child, and nobody's zombie
        said = _read_line(pipe.fileno(), KEEPER_SECONDS)
    if not said:
        with (home / "keeper.log").open(errors="replace") as told:
            told.seek(began)
            last = (told.read().strip().splitlines() or ["it said nothing"])[-1]
        raise _Killed(f"the keeper of {home} ended before the server ran: {explain(last, home) or last}")
    answer = json.loads(said)
    if "error" in answer:
        raise NoPostgres(answer["error"])
    return str(answer["socket"])


def _read_line(fd: int, seconds: float) -> bytes:
    poll, said, deadline = select.poll(), b"", time.monotonic() + seconds
    poll.register(fd, select.POLLIN)
    while not said.endswith(b"\n") and (left := deadline - time.monotonic()) > 0:
        if poll.poll(left * 1000):
            if not (more := os.read(fd, 65536)):
                return b""
            said += more
    return said if said.endswith(b"\n") else b""


def _stand_guard(home: Path, order: dict[str, Any]) -> None:
    """Count a lease; the first of a home starts the thread that outwaits the keeper. Called under the mutex."""
    if (guard := _guards.get(home)) is None:
        guard = _guards[home] = _Guard(order)
        threading.Thread(target=_guarding, args=(home, guard), name="fencepost-guard", daemon=True).start()
    guard.count += 1
    guard.left.clear()


def _guarding(home: Path, guard: _Guard) -> None:
    pause = 0.0
    while True:
        try:
            with opened(home, "keeper.lock") as fd:
                fcntl.flock(fd, fcntl.LOCK_SH)  # granted when the keeper is gone
        except OSError as error:
            log.warning("the embedded server of %s cannot be guarded any more: %s", home, error)
        with _mutex:
            if guard.count == 0:
                if _guards.get(home) is guard:
                    del _guards[home]
                return
        try:
            _ensure(home, guard.order)
            pause = 0.0
        except (NoPostgres, OSError) as error:
            pause = min(max(1.0, pause * 2), RETRY_SECONDS_MAX)
            log.warning("the embedded server of %s is down, next try in %.0f s: %s", home, pause, error)
            guard.left.wait(pause)
