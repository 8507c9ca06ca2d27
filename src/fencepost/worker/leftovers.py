"""Processes of attempts whose fence died before anybody saw them end: whoever lives on their host ends them (law 70.11).

Each beat names them until one of the host's workers has seen the end and said so; that several do it at once does no harm.
"""

from __future__ import annotations

import asyncio
import functools
import logging
from collections.abc import Sequence
from pathlib import Path

from fencepost import notes, plans
from fencepost.db import Database
from fencepost.recovery import Loose
from fencepost.worker import commands

WHY = "its attempt was fenced out"


class Leftovers:
    """Those that this worker is ending."""

    def __init__(self, db: Database) -> None:
        self._db = db
        self._ending: dict[tuple[int, int], asyncio.Task[None]] = {}

    def end(self, loose: Sequence[Loose]) -> None:
        """Set about those that are not being ended here yet."""
        for one in loose:
            name = (one.rid, one.number)
            if name not in self._ending:
                task = self._ending[name] = asyncio.create_task(self._end(one), name=f"leftover {name}")
                task.add_done_callback(functools.partial(self._over, name))

    def _over(self, name: tuple[int, int], _: asyncio.Task[None]) -> None:
        self._ending.pop(name, None)

    async def close(self) -> None:
        """Wait for none of them any longer."""
        tasks = list(self._ending.values())
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    async def _end(self, one: Loose) -> None:
        supervised = commands.meet(Path(one.folder), one.pid, one.process_start)
        try:
            supervised.stop(WHY)
            await supervised.ended()
            await plans.clear_loose(self._db, one.rid, one.number)
            notes.say("a process that was nobody's any more has ended", rid=one.rid, number=one.number, pid=one.pid)
        except Exception as error:  # whatever it was: the next beat names it again
            notes.say("a process could not be ended", level=logging.WARNING, pid=one.pid, error=error)
        finally:
            supervised.close()
