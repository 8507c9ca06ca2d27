"""Claiming: how much, when, and when not.

One request is in flight, with the next number only after the last was answered (law 40.14). A suspect runs alone, and none waits
for ever behind a busy worker (40.15). A worker that finds nothing says that it sleeps, looks once more, and waits for a hint; without
one it looks every five seconds, for a hint is never the truth (00.10).
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import random
from collections.abc import Callable, Sequence
from typing import Final
from uuid import UUID

from fencepost import attempts, limits, notes
from fencepost.attempts import Claim
from fencepost.db import Database
from fencepost.errors import DatabaseUnavailable
from fencepost.worker.held import Holding
from fencepost.worker.marks import Mark, Marks

TREE_POLL_SECONDS: Final = 0.5  # of a worker that runs one run and its descendants: somebody sits before it
EMPTIED_SECONDS: Final = 0.05  # between a look that emptied the line and the next one
NOTE_SECONDS: Final = 60.0


class Claims:
    """The requests of one incarnation. `only`: nothing but that run and its descendants. Times are on the loop's own clock."""

    def __init__(
        self, db: Database, incarnation: UUID, *, concurrency: int, lease_seconds: float, only: int | None,
        changed: Callable[[], None], beat_now: Callable[[], None], listening: Callable[[], bool],
    ) -> None:  # fmt: skip
        self._db = db
        self._incarnation = incarnation
        self._concurrency = concurrency
        self._lease = lease_seconds
        self._only = only
        self._changed = changed
        self._beat_now = beat_now
        self._listening = listening
        self._asleep = False
        self._whole = True  # of a tree: look also below what has ended, which is done after a rest
        self._cursor = ""
        self._marks = Marks()
        self._suspect_since: float | None = None
        self._noted = float("-inf")
        self._over = False
        self._orphans: Sequence[int] = ()
        self._work = asyncio.Event()
        self._room = asyncio.Event()
        self.answered = 0  # the newest request whose answer arrived; what it gave is held

    def look(self) -> None:
        """There may be something to claim."""
        self._work.set()

    def adopt(self, rids: Sequence[int]) -> None:
        """Attempts of plans' steps whose worker is gone, and whose processes ran on this host (law 70.10)."""
        self._orphans = rids
        self._work.set()
        self._room.set()

    def let_go(self, *, empty: bool) -> None:
        """Something that was held is not, or a suspect is none any more."""
        self._room.set()
        if empty and self._suspect_since is not None:
            self._work.set()

    def end(self) -> None:
        """No more claims; what is in flight is answered first."""
        self._over = True
        self._work.set()
        self._room.set()

    async def run(self, lane: int, holding: Holding) -> bool:
        """Claim while there is room and work, until ended: True. False: this incarnation was judged dead."""
        hinted = False
        while not self._over:
            self._room.clear()
            if self._orphans:
                if (await self._adopt(holding)).buried:
                    return False
                continue
            if not self._has_room(holding):
                await self._say_asleep(lane, asleep=False)
                await self._rest(self._room, limits.IDLE_POLL_SECONDS)
                continue
            self._work.clear()
            most = min(self._concurrency - len(holding), limits.CLAIM_RUNS_MAX)
            claim = await self._claim(lane, holding, most)
            if claim.buried:
                return False
            wants_hints = self._only is None and self._listening()
            if claim.claimed:
                self._whole = False
                if len(claim.claimed) >= most:
                    await self._say_asleep(lane, asleep=False)
                elif self._asleep and wants_hints and self._has_emptied(holding, len(claim.claimed), most):
                    # What comes now is hinted, and what somebody had locked is looked for in a while: the code of what was claimed begins
                    # before that, and no empty look is in the way of its first steps.
                    hinted |= await self._rest(self._work, EMPTIED_SECONDS)
            elif self._marks.partial:
                continue  # look from the front
            elif self._asleep != wants_hints:
                await self._say_asleep(lane, asleep=wants_hints)  # and look once more
            else:
                if hinted:
                    self._beat_now()  # woken for nothing: it may have an hour before it, which the beat's answer names
                seconds = limits.IDLE_POLL_SECONDS if self._only is None else TREE_POLL_SECONDS
                hinted = await self._rest(self._work, seconds)
                self._whole = not hinted
        return True

    def _has_room(self, holding: Holding) -> bool:
        """An eighth of the slots is free, no suspect is held, and none has waited here for longer than a lease."""
        held = len(holding)
        if held == 0:
            return True
        if holding.suspect or self._concurrency - held < max(1, self._concurrency // 8):
            return False
        since = self._suspect_since
        return since is None or asyncio.get_running_loop().time() - since <= self._lease

    def _has_emptied(self, holding: Holding, claimed: int, most: int) -> bool:
        """The claim left nothing in the line. Of k organisations each gave less than its share, `most` / k, for k is `claimed` at most
        (20.9); a suspect is claimed alone, whatever else is there (40.15), and marks do not look at all.
        """
        return claimed * claimed < most and not holding.suspect and not self._marks.partial

    async def _claim(self, lane: int, holding: Holding, most: int) -> Claim:
        """The next request, asked until it is answered. What it gave is held in the same instant in which it counts as answered."""
        request, clock = self.answered + 1, asyncio.get_running_loop().time
        marks = self._marks.ask(clock(), most)
        while True:
            try:
                claim = await self._ask(lane, request, most, marks, alone=len(holding) == 0)
                break
            except DatabaseUnavailable as error:
                self._note(error)
        self.answered = request
        holding.take(claim.claimed)
        if claim.claimed:
            self._cursor = claim.claimed[-1].org
        if marks:
            self._marks.went_on(marks, most, claim.claimed)
        elif claim.look_seconds is not None:
            self._marks.looked(clock(), claim.look_seconds, claim.claimed)
        if claim.suspect_since is None:
            self._suspect_since = None
        elif self._suspect_since is None:
            self._suspect_since = clock()
        self._changed()
        return claim

    async def _adopt(self, holding: Holding) -> Claim:
        """The next request, for orphans. They need no room: their processes run already."""
        request, rids = self.answered + 1, self._orphans
        while True:
            try:
                claim = await attempts.claim_orphans(
                    self._db, self._incarnation, request, rids, root=self._only, patience=self._lease
                )
                break
            except DatabaseUnavailable as error:
                self._note(error)
        self.answered = request
        self._orphans = ()
        holding.take(claim.claimed)
        self._changed()
        return claim

    async def _ask(self, lane: int, request: int, most: int, marks: list[Mark], *, alone: bool) -> Claim:
        if self._only is not None:
            return await attempts.claim_tree(
                self._db,
                self._incarnation,
                request,
                root=self._only,
                most=most,
                patience=self._lease,
                whole=self._whole,
            )
        return await attempts.claim(
            self._db, self._incarnation, request, lane=lane, most=most, cursor=self._cursor, alone=alone,
            patience=self._lease, marks=[(mark.org, mark.turn, mark.rid) for mark in marks],
        )  # fmt: skip

    async def _say_asleep(self, lane: int, *, asleep: bool) -> None:
        """Ask to be woken when there is work, or ask no more: whoever is full, or cannot hear, takes nobody's turn."""
        if asleep != self._asleep:
            with contextlib.suppress(DatabaseUnavailable):
                await attempts.sleep(self._db, self._incarnation, lane, asleep=asleep)
                self._asleep = asleep

    async def _rest(self, event: asyncio.Event, seconds: float) -> bool:
        """Until the event or the time is over; whether it was the event. The jitter keeps a fleet from polling in step."""
        late = False

        def wake() -> None:
            nonlocal late
            late = True
            event.set()

        timer = asyncio.get_running_loop().call_later(seconds * random.uniform(0.9, 1.0), wake)
        try:
            await event.wait()
        finally:
            timer.cancel()
        return not late

    def _note(self, error: DatabaseUnavailable) -> None:
        now = asyncio.get_running_loop().time()
        if now - self._noted >= NOTE_SECONDS:
            self._noted = now
            notes.say("claims meet trouble", level=logging.WARNING, trouble=error)
