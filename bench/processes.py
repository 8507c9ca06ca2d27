"""A child process of the benchmark, as the runner holds it."""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import signal
import sys
import tempfile
from collections.abc import AsyncIterator
from pathlib import Path
from typing import IO, Any, Final

ROOT: Final = Path(__file__).resolve().parents[1]
READY_SECONDS: Final = 90.0
STOP_SECONDS: Final = 45.0


class ChildFailed(Exception):
    """A child ended without saying what it was started for; its last words."""


class Child:
    """Started with `start`; its stdin is held open, for it ends when that ends."""

    def __init__(self, process: asyncio.subprocess.Process, errors: IO[bytes]) -> None:
        self._process = process
        self._errors = errors
        self.said: list[dict[str, Any]] = []

    @classmethod
    async def start(cls, *words: str) -> Child:
        errors = tempfile.TemporaryFile()  # noqa: SIM115 - closed when it has ended
        process = await asyncio.create_subprocess_exec(
            sys.executable, "-m", "bench.child", *words, cwd=ROOT, stdin=asyncio.subprocess.PIPE,
            stdout=asyncio.subprocess.PIPE, stderr=errors, start_new_session=True,
        )  # fmt: skip
        return cls(process, errors)

    @property
    def pid(self) -> int:
        return self._process.pid

    async def next(self, seconds: float = READY_SECONDS) -> dict[str, Any]:
        """What it says next. Raises ChildFailed."""
        assert self._process.stdout is not None
        try:
            async with asyncio.timeout(seconds):
                while line := await self._process.stdout.readline():
                    with contextlib.suppress(ValueError):
                        said = json.loads(line)
                        if isinstance(said, dict):
                            self.said.append(said)
                            return said
        except TimeoutError:
            raise ChildFailed(f"said nothing within {seconds:g} s: {self.last_words()}") from None
        raise ChildFailed(self.last_words())

    async def finish(self, seconds: float) -> dict[str, Any]:
        """What it says at its end. Raises ChildFailed."""
        try:
            return await self.next(seconds)
        finally:
            await self.end()

    async def stop(self) -> dict[str, Any]:
        """Ask a worker to stop, and what it says then."""
        if self._process.returncode is None:
            with contextlib.suppress(ProcessLookupError):
                self._process.send_signal(signal.SIGTERM)
        try:
            return await self.next(STOP_SECONDS)
        except ChildFailed:
            return {}
        finally:
            await self.end()

    async def end(self) -> None:
        """It is gone when this returns."""
        if self._process.stdin is not None:
            self._process.stdin.close()
        try:
            async with asyncio.timeout(5):
                await self._process.wait()
        except (TimeoutError, asyncio.CancelledError):
            with contextlib.suppress(ProcessLookupError):
                self._process.kill()
            await self._process.wait()
        with contextlib.suppress(ProcessLookupError):
            os.killpg(
                self._process.pid, signal.SIGKILL
            )  # the session was its own: helpers that some libraries leave behind
        assert self._process.stdout is not None
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(2):
                await self._process.stdout.read()  # to its end, so that the loop lets go of it
        self._process._transport.close()  # type: ignore[attr-defined]  # noqa: SLF001 - else one whose pipe somebody inherited outlives the loop
        self._errors.close()

    def last_words(self) -> str:
        """The end of its stderr."""
        self._errors.seek(0)
        return self._errors.read().decode(errors="replace").strip()[-1200:] or "it said nothing"


@contextlib.asynccontextmanager
async def child(*words: str) -> AsyncIterator[Child]:
    """A child that is gone at the end."""
    one = await Child.start(*words)
    try:
        yield one
    finally:
        await one.end()
