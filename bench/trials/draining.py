"""Draining: workers on tables that were filled, from the start of their loops until nothing is left."""

from __future__ import annotations

import asyncio
import time
from dataclasses import dataclass
from typing import Final

from bench.field import Side
from bench.load import each_cpu, tree_cpu

SECONDS_MAX: Final = 180.0
LOOK_SECONDS: Final = 0.003


class Unfinished(Exception):
    """A drain did not end in time."""


@dataclass(frozen=True, slots=True)
class Drained:
    """`rate`: until all was written as ended. `steady`: from the first handler to the last, without the start.

    CPU in microseconds and WAL in bytes, a task. `marks`: when the fifths were reached, in seconds.
    """

    rate: float
    steady: float
    client_us: float
    server_us: float
    wal: float
    marks: tuple[float, ...]


async def drain(side: Side, n: int, *, trial: str = "drain", processes: int = 1, part: int | None = None) -> Drained:
    """Until `n` tasks were handled and no live one is left; with `part`, until so many of them were handled.

    Raises Unfinished, ChildFailed.
    """
    board, want = side.board, part or n
    board.clear()
    wal = await side.wal()
    backends = each_cpu(await side.backends())
    async with side.workers(processes, trial) as workers:
        ready = min(one.said[0]["ready"] for one in workers)
        pids = [one.pid for one in workers]
        cpu = tree_cpu(pids)
        try:
            marks = await _marks(side, want)
        except Unfinished as error:
            raise Unfinished(f"{error}; the workers said: {' / '.join(one.last_words() for one in workers)}") from None
        handled = time.monotonic_ns()
        while part is None and await side.left():
            if time.monotonic_ns() - ready > SECONDS_MAX * 1e9:
                raise Unfinished(f"tasks are left after {SECONDS_MAX:g} s")
            await asyncio.sleep(LOOK_SECONDS)  # waits: the last endings are being written
        ended = time.monotonic_ns()
        done = board.total()
        cpu = tree_cpu(pids) - cpu
        now = each_cpu(await side.backends())
        server = sum(seconds - backends.get(pid, 0.0) for pid, seconds in now.items())
        wal = await side.wal() - wal
        first = board.first()
    return Drained(
        rate=done / ((ended - ready) / 1e9), steady=done / (max(handled - first, 1) / 1e9), client_us=cpu / done * 1e6,
        server_us=server / done * 1e6, wal=wal / done,
        marks=tuple((mark - first) / 1e9 for mark in marks),
    )  # fmt: skip


async def _marks(side: Side, want: int) -> list[int]:
    """The instants at which one, two … five fifths were handled."""
    marks: list[int] = []
    end = time.monotonic() + SECONDS_MAX
    while len(marks) < 5:
        total, now = side.board.total(), time.monotonic_ns()
        while len(marks) < 5 and total * 5 >= want * (len(marks) + 1):
            marks.append(now)
        if time.monotonic() > end:
            raise Unfinished(f"{total} of {want} handled in {SECONDS_MAX:g} s")
        await asyncio.sleep(LOOK_SECONDS)  # waits: the board is shared memory, nobody rings
    return marks
