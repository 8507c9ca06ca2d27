"""Progress: how far runs are, shown and never waited for (law 90.3).

A leg's newest word replaces its earlier one; at most once a second the newest words leave in one call. A full board drops, and
counts what it dropped.
"""

from __future__ import annotations

import asyncio
import contextlib
from typing import Final

from fencepost import ledger
from fencepost.db import Database
from fencepost.errors import FencepostError
from fencepost.words import Fence

FLUSH_SECONDS: Final = 1.0
LEGS_MAX: Final = 10_000


class ProgressBoard:
    """The newest word of each leg of a worker."""

    def __init__(self, db: Database) -> None:
        self.dropped = 0
        self._db = db
        self._words: dict[Fence, str] = {}
        self._leaving: dict[Fence, str] = {}  # sent, and not answered yet
        self._timer: asyncio.TimerHandle | None = None
        self._flushing: asyncio.Task[None] | None = None

    def note(self, fence: Fence, text: str) -> None:
        """Remember a leg's word; it leaves within about a second."""
        if fence not in self._words and len(self._words) >= LEGS_MAX:
            self.dropped += 1
            return
        self._words[fence] = text
        if self._timer is None and self._flushing is None:
            self._timer = asyncio.get_running_loop().call_later(FLUSH_SECONDS, self._flush)

    def __len__(self) -> int:
        """Words that have not left yet."""
        return len(self._words)

    def newest(self, fence: Fence) -> str | None:
        """A leg's word that may not be shown yet: a leg that parks takes it along, for its fence is dead then (law 40.3)."""
        return self._words.get(fence) or self._leaving.get(fence)

    def forget(self, fence: Fence) -> None:
        """Its leg is over: a word that has not left is said no more, for the fence is dead (laws 40.3, 80.5)."""
        self._words.pop(fence, None)

    def close(self) -> None:
        """Nothing is said any more."""
        if self._timer is not None:
            self._timer.cancel()
        if self._flushing is not None:
            self._flushing.cancel()

    def _flush(self) -> None:
        self._timer = None
        self._flushing = asyncio.ensure_future(self._send())

    async def _send(self) -> None:
        self._leaving, self._words = self._words, {}
        try:
            if not self._leaving:
                return
            with contextlib.suppress(FencepostError, OSError):
                await ledger.note_progress(self._db, list(self._leaving.items()))
        finally:
            self._flushing, self._leaving = None, {}
        if self._words:
            self._timer = asyncio.get_running_loop().call_later(FLUSH_SECONDS, self._flush)
