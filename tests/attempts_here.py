"""Attempts of commands without a database: packets by hand, real supervisors, effects counted in files outside."""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import signal
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

from fencepost.store import DirectoryStore
from fencepost.worker import commands, process
from fencepost.worker.commands import Completed, Dead, Ended, Failed, NotStarted, Packet, Supervised

JSON = "application/json"
TEXT = "text/plain; charset=utf-8"


def packet(definition: dict[str, Any], inputs: dict[str, Any] | None = None, *, try_: int = 1) -> Packet:
    """A packet as `plans.begin` gives it; `definition` holds what differs from the defaults."""
    step = {"id": "step", "kind": "command", "on_lost": "fail", "outputs": {}, **definition}
    whole = {"run": "run-1", "org": "acme", "plan": "plan", "step": "step", "try": try_, "attempt": 1}
    return commands.read_packet(json.dumps({**whole, "definition": step, "inputs": inputs or {}}))


def shell(script: str, **definition: Any) -> Packet:
    """A packet whose command is a line of sh."""
    return packet({"command": ["sh", "-c", script], **definition})


def python(code: str, **definition: Any) -> Packet:
    """A packet whose command is a few lines of Python."""
    return packet({"command": [sys.executable, "-c", code], **definition})


def gone(pid: int, start: str | None = None) -> bool:
    return process.is_gone(pid, start)


class Place:
    """Attempts and a store below one folder. What still runs at the end is killed."""

    def __init__(self, root: Path) -> None:
        self.attempts = root / "attempts"
        self.store = DirectoryStore(root / "store")
        self.effects = root / "effects"
        self.number = 0
        self.all: list[Supervised] = []

    async def start(self) -> Supervised:
        self.number += 1
        supervised = await commands.start(self.attempts, commands.attempt_name("inst", 7, self.number))
        self.all.append(supervised)
        return supervised

    async def go(self, packet: Packet) -> Supervised:
        supervised = await self.start()
        await supervised.go(packet, self.store)
        return supervised

    async def run(self, packet: Packet) -> Completed | Failed:
        """Start, go, wait, settle."""
        supervised = await self.go(packet)
        return await self.settle(packet, supervised, await ended(supervised))

    async def settle(self, packet: Packet, supervised: Supervised, found: Ended) -> Completed | Failed:
        return await commands.settle(self.store, packet, supervised.folder, found)

    async def fails(self, packet: Packet) -> dict[str, Any]:
        """The error of a try that fails."""
        outcome = await self.run(packet)
        assert isinstance(outcome, Failed), outcome
        return outcome.error

    async def outputs(self, packet: Packet) -> dict[str, Any]:
        """The outputs of a try that succeeds."""
        outcome = await self.run(packet)
        assert isinstance(outcome, Completed), outcome
        found: dict[str, Any] = json.loads(outcome.text)["outputs"]
        return found

    def count(self) -> int:
        """Effects that happened: a command writes a line for each."""
        return len(self.effects.read_text().splitlines()) if self.effects.exists() else 0

    def pid(self, supervised: Supervised) -> int:
        """The command's process."""
        found: int = json.loads((supervised.folder / "command.json").read_text())["pid"]
        return found

    def end(self) -> None:
        for supervised in self.all:
            if not gone(supervised.facts.pid, supervised.facts.process_start):
                with contextlib.suppress(ProcessLookupError):
                    os.kill(supervised.facts.pid, signal.SIGKILL)
            supervised.close()


async def verdict(supervised: Supervised) -> Ended | Dead | NotStarted:
    async with asyncio.timeout(60):
        return await supervised.ended()


async def ended(supervised: Supervised) -> Ended:
    found = await verdict(supervised)
    assert isinstance(found, Ended), found
    return found


async def until(condition: Callable[[], object], seconds: float = 30) -> None:
    """Wait for what another process does."""
    async with asyncio.timeout(seconds):
        while not condition():  # noqa: ASYNC110 - another process tells nobody here
            await asyncio.sleep(0.01)  # waits: see above


async def is_pending(supervised: Supervised, seconds: float = 0.3) -> bool:
    """Whether there is no answer yet."""
    try:
        async with asyncio.timeout(seconds):
            await supervised.ended()
    except TimeoutError:
        return True
    return False
