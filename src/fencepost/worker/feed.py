"""A map's open rows, read ahead in bounded pages: what is committed is passed over unread, however much of it there is."""

from __future__ import annotations

import asyncio
from collections import deque

from fencepost import limits, steps
from fencepost.db import Database
from fencepost.steps import Undone


class Feed:
    """Rows one by one, for several takers. In memory are the page being taken and the one behind it."""

    __slots__ = ("_ahead", "_db", "_last", "_mid", "_page", "_size")

    def __init__(self, db: Database, mid: int, size: int) -> None:
        self._db = db
        self._mid = mid
        self._size = size
        self._page: deque[Undone] = deque()
        self._last = -1
        self._ahead: asyncio.Task[list[Undone]] | None = None

    async def take(self) -> Undone | None:
        """The next row; None when all were taken."""
        while not self._page:
            reading = self._ahead = self._ahead or self._read()
            page = await asyncio.shield(reading)
            if not page:
                return None
            if self._ahead is reading:
                self._page.extend(page)
                self._last = page[-1].index
                self._ahead = self._read()
        return self._page.popleft()

    def close(self) -> None:
        """Nothing is read any more."""
        if self._ahead is not None:
            self._ahead.cancel()

    def _read(self) -> asyncio.Task[list[Undone]]:
        return asyncio.ensure_future(
            steps.read_open_rows(
                self._db, self._mid, self._last, most=self._size, max_bytes=limits.ROWS_PAGE_BYTES // 2
            )
        )
