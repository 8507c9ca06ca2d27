"""The board: one file in shared memory that the handlers of every process stamp, and the runner reads.

Times are CLOCK_MONOTONIC nanoseconds, which the processes of one machine share. So a latency needs no database, and counting what ran
costs neither the worker nor the server anything that would be measured.
"""

from __future__ import annotations

import mmap
import struct
import time
from pathlib import Path
from typing import Final

WORKERS_MAX: Final = 64
SLOTS: Final = 20_000
_SLOT0: Final = WORKERS_MAX * 16
BYTES: Final = _SLOT0 + SLOTS * 8

# Where a probe writes: its slot for the latency itself, and beside it when it began (a lone workflow, a wait in memory).
BEGAN: Final = 10_000


class Board:
    """`hit`: a worker's handler ran, counted a worker. `stamp`: when the handler of a probe ran, by the probe's number."""

    def __init__(self, path: Path, *, create: bool = False) -> None:
        if create:
            with path.open("wb") as fresh:
                fresh.truncate(BYTES)
        self.path = path
        self._file = path.open("r+b")
        self._map = mmap.mmap(self._file.fileno(), BYTES)
        self._hits = 0

    def hit(self, worker: int) -> None:
        self._hits += 1
        if self._hits == 1:
            struct.pack_into("<q", self._map, worker * 16 + 8, time.monotonic_ns())
        struct.pack_into("<q", self._map, worker * 16, self._hits)

    def total(self) -> int:
        """How many handlers ran since the board was cleared."""
        return sum(struct.unpack_from("<q", self._map, worker * 16)[0] for worker in range(WORKERS_MAX))

    def first(self) -> int:
        """When the first of them ran; 0: none yet."""
        times = [struct.unpack_from("<q", self._map, worker * 16 + 8)[0] for worker in range(WORKERS_MAX)]
        return min((at for at in times if at), default=0)

    def stamp(self, slot: int) -> None:
        struct.pack_into("<q", self._map, _SLOT0 + slot * 8, time.monotonic_ns())

    def at(self, slot: int) -> int:
        """When a slot was stamped; 0: not yet."""
        return int(struct.unpack_from("<q", self._map, _SLOT0 + slot * 8)[0])

    def clear(self) -> None:
        """Called by the runner, when no worker lives."""
        self._map[:] = b"\0" * BYTES

    def close(self) -> None:
        self._map.close()
        self._file.close()
