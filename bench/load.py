"""CPU time, from /proc: of processes, and of everybody else while we measured."""

from __future__ import annotations

import asyncio
import os
import time
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Final

TICK: Final = 1 / os.sysconf("SC_CLK_TCK")
PAUSE_SECONDS: Final = 0.5


@dataclass(frozen=True, slots=True)
class Process:
    """`cpu`: seconds of its own; `reaped`: of its children that ended and were waited for."""

    pid: int
    parent: int
    cpu: float
    reaped: float


def processes() -> dict[int, Process]:
    """Every process that /proc shows."""
    found: dict[int, Process] = {}
    for place in Path("/proc").glob("[0-9]*"):
        if (seen := process(int(place.name))) is not None:
            found[seen.pid] = seen
    return found


def process(pid: int) -> Process | None:
    try:
        fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    except OSError:
        return None
    user, system, reaped_user, reaped_system = (int(word) for word in fields[11:15])
    return Process(pid, int(fields[1]), (user + system) * TICK, (reaped_user + reaped_system) * TICK)


def tree_cpu(roots: Iterable[int]) -> float:
    """Seconds of these processes and all below them, the dead ones too as far as somebody waited for them."""
    everyone = processes()
    children: dict[int, list[int]] = {}
    for one in everyone.values():
        children.setdefault(one.parent, []).append(one.pid)
    waiting, seconds, seen = list(roots), 0.0, set[int]()
    while waiting:
        pid = waiting.pop()
        if pid in seen or pid not in everyone:
            continue
        seen.add(pid)
        seconds += everyone[pid].cpu + everyone[pid].reaped
        waiting += children.get(pid, [])
    return seconds


def each_cpu(pids: Iterable[int]) -> dict[int, float]:
    """Seconds of each of these processes alone."""
    return {pid: one.cpu for pid in pids if (one := process(pid)) is not None}


@dataclass(frozen=True, slots=True)
class Moment:
    at: float
    busy: float
    ours: float


class Machine:
    """What others use of it, in cores: all that was busy, less this process's tree and the server's."""

    def __init__(self, postmaster: int, budget: float) -> None:
        self._roots = (os.getpid(), postmaster)
        self._budget = budget  # seconds that may be waited for quiet, in all
        self.waited = 0.0

    def moment(self) -> Moment:
        words = [int(word) for word in Path("/proc/stat").read_text().partition("\n")[0].split()[1:]]
        user, nice, system, _idle, _io, irq, soft = words[:7]
        return Moment(time.monotonic(), (user + nice + system + irq + soft) * TICK, tree_cpu(self._roots))

    @staticmethod
    def foreign(before: Moment, after: Moment) -> float:
        passed = max(after.at - before.at, 1e-9)
        return max(0.0, ((after.busy - before.busy) - (after.ours - before.ours)) / passed)

    async def wait_quiet(self, limit: float, patience: float) -> None:
        """Until others use less than `limit` cores, `patience` seconds at most, and no longer than the whole budget."""
        began = time.monotonic()
        end = began + min(patience, self._budget - self.waited)
        while time.monotonic() < end:
            before = self.moment()
            await asyncio.sleep(PAUSE_SECONDS)  # waits: load is what happened meanwhile
            if self.foreign(before, self.moment()) < limit:
                break
        self.waited += time.monotonic() - began
