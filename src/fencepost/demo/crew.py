"""The demo's workers: processes of the real command, watched, killed by their id, and none left behind: a demo that is killed
itself takes the worker along.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import signal
import sys
from collections.abc import Awaitable, Coroutine
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import Any, Final, Self, TypeVar

from fencepost.demo.stage import TARGET, Stage
from fencepost.demo.trouble import CannotRun, WentWrong

T = TypeVar("T")

PATIENCE_SECONDS: Final = 120.0  # for any one thing to come; a whole demo takes a tenth
DRAIN_SECONDS: Final = 30.0


@dataclass(slots=True)
class WorkerProcess:
    """`number` counts from 1. `reports` is where a fault point says that it was reached."""

    number: int
    process: asyncio.subprocess.Process
    log: Path
    reports: asyncio.StreamReader | None

    @property
    def pid(self) -> int:
        return self.process.pid

    def end(self) -> str:
        """Words for how it ended: its exit code, and the last line it logged."""
        lines = self.log.read_text(errors="replace").split("\n") if self.log.exists() else []
        last = next((line.strip()[:300] for line in reversed(lines) if line.strip()), "it said nothing")
        return f"exit {self.process.returncode}: {last}"


class Crew:
    """At most one worker at a time. Left in whatever way, no process stays: `async with Crew(stage, ending) as crew`.

    `ending`: gives the words for how the run ended, once it has; nothing else comes after that.
    """

    def __init__(self, stage: Stage, ending: Coroutine[Any, Any, str]) -> None:
        self._stage = stage
        self._ending = asyncio.ensure_future(ending)
        self._workers: list[WorkerProcess] = []
        self._pipes: list[asyncio.BaseTransport] = []

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None
    ) -> None:
        alive = [worker for worker in self._workers if worker.process.returncode is None]
        for worker in alive:  # all of them before anything is awaited: a second Ctrl-C may come
            with contextlib.suppress(ProcessLookupError):
                os.kill(worker.pid, signal.SIGKILL)
        self._ending.cancel()
        for worker in alive:
            await worker.process.wait()
        await asyncio.gather(self._ending, return_exceptions=True)
        for pipe in self._pipes:
            pipe.close()

    async def start(self, *, pause: str | None = None) -> WorkerProcess:
        """Start the next worker; with `pause`, one that stops at this fault point and reports. Raises CannotRun."""
        stage = self._stage
        number = len(self._workers) + 1
        log = stage.scratch / f"worker-{number}.log"
        order = ["worker", TARGET, "--lane", stage.release, "--child-of", str(os.getpid())]
        order += ["--embedded"] if stage.home is not None else []
        environment = os.environ | ({"FENCEPOST_HOME": str(stage.home)} if stage.home is not None else {})
        reading, writing = os.pipe()
        try:
            if pause is None:
                command = ["-m", "fencepost", *order]
            else:
                command = ["-m", "fencepost.testing", *order, "--pause", pause, "--report-fd", str(writing)]
            with log.open("ab") as said:
                process = await asyncio.create_subprocess_exec(
                    sys.executable, *command, cwd=stage.example.folder, env=environment, pass_fds=[writing],
                    stdin=asyncio.subprocess.DEVNULL, stdout=said, stderr=said, start_new_session=True,
                )  # fmt: skip
        except OSError as error:
            os.close(reading)
            raise CannotRun(f"worker {number} cannot be started: {error.strerror or error}") from error
        finally:
            os.close(writing)
        worker = WorkerProcess(number, process, log, None)
        self._workers.append(worker)
        worker.reports = await self._read(reading)
        return worker

    async def until(self, worker: WorkerProcess, what: str, coming: Awaitable[T]) -> T:
        """What comes, while the worker lives and the run goes on. Raises WentWrong: one of them ended, or nothing came."""
        awaited = asyncio.ensure_future(coming)
        try:
            return await self._wait(worker, what, awaited)
        finally:
            awaited.cancel()
            await asyncio.gather(awaited, return_exceptions=True)

    async def until_ended(self, worker: WorkerProcess) -> str:
        """The words for the run's end, once it has come. Raises WentWrong: the worker ended first, or nothing came."""
        return await self._wait(worker, "the run ended", self._ending)

    async def _wait(self, worker: WorkerProcess, what: str, awaited: asyncio.Future[T]) -> T:
        gone = asyncio.ensure_future(worker.process.wait())
        try:
            waiting: list[asyncio.Future[Any]] = [awaited, gone, self._ending]
            await asyncio.wait(waiting, timeout=PATIENCE_SECONDS, return_when=asyncio.FIRST_COMPLETED)
        finally:
            gone.cancel()
            await asyncio.gather(gone, return_exceptions=True)
        if awaited.done():
            return awaited.result()
        if worker.process.returncode is not None:
            raise WentWrong(f"worker {worker.number} ended by itself before {what} ({worker.end()})")
        if self._ending.done():
            raise WentWrong(f"the run ended before {what}: {self._ending.result()}")
        raise WentWrong(f"waited {PATIENCE_SECONDS:.0f} s, and not yet {what}: see {worker.log}")

    async def reached(self, worker: WorkerProcess) -> dict[str, Any]:
        """The report of the fault point it was started with."""
        assert worker.reports is not None
        line = await worker.reports.readline()
        if not line:
            await worker.process.wait()
            raise WentWrong(f"worker {worker.number} ended by itself before its fault point ({worker.end()})")
        report: dict[str, Any] = json.loads(line)
        return report

    async def kill(self, worker: WorkerProcess) -> None:
        """Kill it by its process id, as a power cut would. Raises WentWrong if it was not that which ended it."""
        with contextlib.suppress(ProcessLookupError):
            os.kill(worker.pid, signal.SIGKILL)
        code = await worker.process.wait()
        if code != -signal.SIGKILL:
            raise WentWrong(f"worker {worker.number} ended by itself before it was killed ({worker.end()})")

    async def send_home(self, worker: WorkerProcess) -> None:
        """Ask it to drain. Raises WentWrong unless it ends in order."""
        with contextlib.suppress(ProcessLookupError):
            os.kill(worker.pid, signal.SIGTERM)
        try:
            async with asyncio.timeout(DRAIN_SECONDS):
                code = await worker.process.wait()
        except TimeoutError:
            raise WentWrong(
                f"worker {worker.number} did not drain within {DRAIN_SECONDS:.0f} s: see {worker.log}"
            ) from None
        if code != 0:
            raise WentWrong(f"worker {worker.number} did not end in order ({worker.end()})")

    async def _read(self, fd: int) -> asyncio.StreamReader:
        reader = asyncio.StreamReader()
        pipe, _ = await asyncio.get_running_loop().connect_read_pipe(
            lambda: asyncio.StreamReaderProtocol(reader), os.fdopen(fd, "rb", buffering=0)
        )
        self._pipes.append(pipe)
        return reader
