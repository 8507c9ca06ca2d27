"""Workers as processes: started, watched, and ended by their ids."""

from __future__ import annotations

import asyncio
import contextlib
import os
import signal
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

from fencepost.worker import process


class Crew:
    """Worker processes of one test, and what their code says it did."""

    def __init__(self, dsn: str, folder: Path) -> None:
        self.dsn = dsn
        self.folder = folder
        self.file = folder / "effects"
        self.members: list[subprocess.Popen[bytes]] = []

    async def start(
        self,
        *,
        lease: float = 30.0,
        beat: float = 8.0,
        ready: bool = True,
        flags: tuple[str, ...] = (),
        **environ: object,
    ) -> subprocess.Popen[bytes]:
        """A worker; with `ready` it has beaten once."""
        said = {name: str(value) for name, value in environ.items()}
        ours = {
            "FENCEPOST_DATABASE_URL": self.dsn, "EFFECTS": str(self.file), "FENCEPOST_LEASE_SECONDS": str(lease),
            "FENCEPOST_HEARTBEAT_SECONDS": str(beat),
        }  # fmt: skip
        with (self.folder / f"log-{len(self.members)}").open("wb") as log:
            member = subprocess.Popen(
                [sys.executable, *flags, "-m", "tests.roads.worker_process"],
                env=os.environ | ours | said,
                stdout=log,
                stderr=log,
            )
        self.members.append(member)
        if ready:
            await until(
                lambda: self.effects("ready", "runs", member.pid) or member.poll() is not None, "a worker's start", 30
            )
            assert member.poll() is None, "it ended instead"
        return member

    def log(self, member: subprocess.Popen[bytes]) -> str:
        return (self.folder / f"log-{self.members.index(member)}").read_text()

    def effects(self, *words: object) -> list[list[str]]:
        """Every line that begins with these words."""
        lines = self.file.read_text().splitlines() if self.file.exists() else []
        wanted = [str(word) for word in words]
        return [line.split() for line in lines if line.split()[: len(wanted)] == wanted]

    async def effect(self, *words: object, n: int = 1, seconds: float = 15.0) -> list[str]:
        """Wait for the nth such line."""
        await until(lambda: len(self.effects(*words)) >= n, f"effect {words}", seconds)
        return self.effects(*words)[n - 1]

    def go(self) -> None:
        """Whoever holds, ends."""
        Path(f"{self.file}.go").touch()

    async def ended(self, member: subprocess.Popen[bytes], seconds: float = 15.0) -> int:
        """Wait for the process to end; its exit code."""
        await until(lambda: member.poll() is not None, f"the end of {member.pid}", seconds)
        return member.returncode

    def end(self) -> None:
        """Kill whoever is left, and see that each heartbeat goes with its worker."""
        for member in self.members:
            if member.poll() is None:
                member.send_signal(signal.SIGKILL)
            member.wait()
            print(
                f"── worker {member.pid} ended {member.returncode}:\n{self.log(member)}"
            )  # pytest shows it when the test failed


def hearts_of(pid: int) -> list[int]:
    """The heartbeat processes that a process has started and that still live."""
    found: list[int] = []
    for place in Path("/proc").iterdir():
        if place.name.isdigit():
            with contextlib.suppress(OSError):
                parent = place.joinpath("stat").read_text().rpartition(")")[2].split()[1]
                if parent == str(pid) and b"fencepost.worker.heartbeat" in place.joinpath("cmdline").read_bytes():
                    found.append(int(place.name))
    return found


async def is_away(pid: int, seconds: float = 5.0) -> None:
    """Wait until nothing runs under this id."""
    await until(lambda: process.is_gone(pid, None), f"the end of {pid}", seconds)


async def until(condition: Callable[[], object], what: str, seconds: float = 15.0) -> None:
    """Wait for what tells nobody. Raises TimeoutError, saying for what."""
    try:
        async with asyncio.timeout(seconds):
            while not condition():  # noqa: ASYNC110  # processes and files set no event
                await asyncio.sleep(0.01)  # waits: other processes and files announce nothing
    except TimeoutError:
        raise TimeoutError(f"{what} did not come within {seconds} s") from None


async def until_row(ask: Callable[[], object], what: str, seconds: float = 15.0) -> object:
    """Ask (an awaitable each time) until the answer is true; the answer."""
    answer: object = None
    try:
        async with asyncio.timeout(seconds):
            while not answer:
                answer = await ask()  # type: ignore[misc]  # a coroutine each time
                await asyncio.sleep(0.02)  # waits: a row that somebody else writes
    except TimeoutError:
        raise TimeoutError(f"{what} did not come within {seconds} s") from None
    return answer


async def after(seconds: float) -> None:
    """Let time pass, for what must not happen meanwhile."""
    await asyncio.sleep(seconds)  # waits: for nothing to happen
