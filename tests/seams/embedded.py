"""Tools and fixtures for the tests of the embedded PostgreSQL; real processes only."""

from __future__ import annotations

import asyncio
import contextlib
import fcntl
import functools
import json
import os
import select
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import asyncpg
import pytest

from fencepost import postgres
from fencepost.postgres import TEST_SETTINGS, find_binaries, open_home
from fencepost.postgres.files import lock

SOURCES = str(Path(postgres.__file__).resolve().parent.parent)
IDLE = 0.05
# Dozens of databases are made here; on a slow disk that takes longer than all else. One test copies programs there.
_SHM = Path("/dev/shm")
MEMORY = _SHM if os.access(_SHM, os.W_OK) and not os.statvfs(_SHM).f_flag & os.ST_NOEXEC else None
# Without the wait for the disk, but what was committed is in the kernel's hands when the server is killed; what such a
# server leaves of its memory lies in the home and goes with it.
KILLABLE = {**TEST_SETTINGS, "synchronous_commit": "on", "dynamic_shared_memory_type": "mmap"}
ROOT = os.geteuid() == 0
LINUX = sys.platform.startswith("linux")
NOBODY = 65534
needs_root = pytest.mark.skipif(not (ROOT and LINUX), reason="changes users or mounts: root on Linux only")
needs_linux = pytest.mark.skipif(not LINUX, reason="looks into /proc")

CLIENT = """
import json, os, sys
from pathlib import Path
from fencepost.postgres import NoPostgres, open_home
order = json.loads(sys.argv[1])
try:
    home = open_home(Path(order.pop("path")), **order)
except NoPostgres as error:
    print("refused", error, flush=True)
else:
    print("ready", home.dsn, flush=True)
    sys.stdin.read()
    home.close()
"""


class Client:
    """A process that leases a home until it is told to leave."""

    def __init__(
        self, path: Path, *, python: str = sys.executable, then: dict[str, Any] | None = None, **order: Any
    ) -> None:
        order = {"path": str(path), "create": True, "idle_seconds": IDLE, "settings": KILLABLE} | order
        popen: dict[str, Any] = {"env": dict(os.environ)} | (then or {})
        popen["env"] = popen["env"] | {"PYTHONPATH": SOURCES + os.pathsep + popen["env"].get("PYTHONPATH", "")}
        self.process = subprocess.Popen(
            [python, "-c", CLIENT, json.dumps(order)],
            stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, **popen,
        )  # fmt: skip

    def answer(self) -> str:
        assert self.process.stdout is not None
        return str(self.process.stdout.readline()).strip()

    def dsn(self) -> str:
        word, _, rest = self.answer().partition(" ")
        assert word == "ready", rest
        return rest

    def refusal(self) -> str:
        word, _, rest = self.answer().partition(" ")
        assert word == "refused", rest
        return rest

    def kill(self) -> None:
        self.process.kill()
        self.leave()

    def leave(self) -> None:
        self.process.communicate(timeout=60)


def ask(dsn: str, sql: str) -> Any:
    async def once() -> Any:
        connection = await asyncpg.connect(dsn, timeout=20)
        try:
            return await connection.fetchval(sql)
        finally:
            await connection.close()

    return asyncio.run(once())


def ask_patiently(dsn: str, sql: str) -> Any:
    """As a client would: the server is away for a moment, and only asking tells when it is back."""
    deadline = time.monotonic() + 30
    while True:
        try:
            return ask(dsn, sql)
        except (OSError, asyncpg.PostgresError, asyncpg.InterfaceError):
            if time.monotonic() > deadline:
                raise
            time.sleep(0.02)  # waits: only asking tells


def place(home: Path) -> dict[str, Any]:
    return dict(json.loads((home / "server.json").read_text()))


def attached(home: Path) -> list[int]:
    """Living PostgreSQL processes of a home."""
    found = []
    for entry in Path("/proc").glob("[0-9]*/cwd"):
        with contextlib.suppress(OSError):
            if entry.readlink() == home / "postgres":
                found.append(int(entry.parent.name))
    return found


def servers(home: Path) -> list[int]:
    """Those of them that are nobody's child: one that was just forked still has its server's command line."""
    there, found = attached(home), []
    for pid in there:
        with contextlib.suppress(OSError):  # it has just ended
            parent = int(Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[1])
            named = str(home / "postgres").encode() in Path(f"/proc/{pid}/cmdline").read_bytes()
            if named and parent not in there:
                found.append(pid)
    return found


def wait_free(home: Path, name: str, seconds: float = 40) -> None:
    fd = os.open(home / name, os.O_RDWR)
    try:
        assert lock(fd, fcntl.LOCK_SH, seconds), f"{name} of {home} is still held"
    finally:
        os.close(fd)


def wait_stopped(home: Path) -> None:
    wait_free(home, "keeper.lock")
    wait_free(home, "server.lock")
    assert not LINUX or attached(home) == []


def end(pid: int, how: signal.Signals = signal.SIGKILL) -> None:
    """Send a signal and, if it is the last one, wait for the end."""
    fd = os.pidfd_open(pid)
    try:
        signal.pidfd_send_signal(fd, how)
        if how == signal.SIGKILL:
            assert ended(fd, 20)
    finally:
        os.close(fd)


def ended(pidfd: int, seconds: float) -> bool:
    poll = select.poll()
    poll.register(pidfd, select.POLLIN)
    return bool(poll.poll(seconds * 1000))


def keeper_of(home: Path) -> int:
    """The keeper that is at work, also before it has said so."""
    for entry in Path("/proc").glob("[0-9]*/cmdline"):
        with contextlib.suppress(OSError):
            words = entry.read_bytes()
            if b"fencepost.postgres.keeper" in words and f'"home": "{home}"'.encode() in words:
                return int(entry.parent.name)
    return 0


def as_user(uid: int) -> dict[str, Any]:
    return {"user": uid, "group": uid, "extra_groups": [], "cwd": "/"}


def public_python() -> str:
    """An interpreter that every user can run, with our packages within reach."""
    python = shutil.which("python3", path="/usr/bin")
    if python is None:
        pytest.skip("no interpreter that other users can run")
    probe = subprocess.run(
        [python, "-c", "import sys, fencepost.postgres as p; p.find_binaries(); sys.exit(sys.version_info < (3, 11))"],
        env=public_environment(), capture_output=True, check=False, **as_user(NOBODY),
    )  # fmt: skip
    if probe.returncode != 0:
        pytest.skip("the sources or binaries are out of reach of other users")
    return python


def public_environment() -> dict[str, str]:
    packages = find_binaries().parent.parent.parent
    return {"PATH": "/usr/bin:/bin", "PYTHONPATH": f"{SOURCES}{os.pathsep}{packages}", "PYTHONDONTWRITEBYTECODE": "1"}


@pytest.fixture
def folder() -> Iterator[Path]:
    """A short, public place; whatever runs in a home below it must be gone in the end."""
    path = Path(tempfile.mkdtemp(prefix="fp-", dir=MEMORY)).resolve()
    path.chmod(0o755)
    yield path
    for keeper_lock in (*path.glob("*/keeper.lock"), *path.glob("*/*/keeper.lock")):
        wait_stopped(keeper_lock.parent)
    shutil.rmtree(path)


@pytest.fixture
def home(folder: Path) -> Path:
    return folder / "home"


@pytest.fixture
def client(home: Path) -> Iterator[Callable[..., Client]]:
    """Starts clients of `home` (or of another path) that are gone in the end."""
    clients: list[Client] = []

    def start(path: Path = home, **order: Any) -> Client:
        clients.append(Client(path, **order))
        return clients[-1]

    yield start
    for one in clients:
        one.kill()


def wait_new_keeper(home: Path, old: int) -> None:
    deadline = time.monotonic() + 30
    while keeper_of(home) in (0, old) or place(home)["keeper"] == old:
        assert time.monotonic() < deadline
        time.sleep(0.01)  # waits: nobody is told that a keeper was started for somebody else


def wait_reaped(pid: int) -> None:
    deadline = time.monotonic() + 20
    while Path(f"/proc/{pid}").exists():
        assert time.monotonic() < deadline, f"process {pid} is still there, perhaps as a zombie"
        time.sleep(0.01)  # waits: a zombie's end is told to its parent alone


def let_pass(seconds: float) -> None:
    """For tests of what time itself does."""
    time.sleep(seconds)  # waits: that is the test


open_test = functools.partial(open_home, create=True, settings=KILLABLE, idle_seconds=IDLE)
