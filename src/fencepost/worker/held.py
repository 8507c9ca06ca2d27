"""What a worker holds: each attempt from its claim until the door that ended it has answered (law 40.14)."""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Final, Literal

from fencepost import attempts, limits, notes, terminal, values
from fencepost.app import App
from fencepost.attempts import Claimed
from fencepost.errors import FencepostError
from fencepost.recovery import Beat
from fencepost.worker.execution import WorkerFace
from fencepost.worker.leg import Leg
from fencepost.worker.stepleg import StepLeg, Workshop

# What may have left an hour behind that no beat knows of yet.
_TIMED = frozenset({"parked", "retrying", "deferred"})
LOOK_BACK_SECONDS: Final = 5.0


@dataclass(slots=True, eq=False)
class Slot:
    """One attempt.

    `beginning`: it asks for the begun mark. `leg`: once its code may run. `told`: of its cancel. `gone`: it is not ours any
    more. `over`: no end of it can be told here; it stays held, for what is not held is given back as if it had never begun.
    """

    claimed: Claimed
    task: asyncio.Task[None] | None = None
    leg: Leg | StepLeg | None = None
    beginning: bool = False
    told: bool = False
    gone: bool = False
    over: bool = False

    @property
    def suspect(self) -> bool:
        return self.claimed.suspect if self.leg is None else self.leg.suspect


class Holding:
    """The attempts in hand. `changed` is called when the list is another; `timed` when an ended one may have left an hour behind;
    `ended` with each that has ended.
    """

    def __init__(
        self, face: WorkerFace, app: App, workshop: Workshop, *, changed: Callable[[], None], timed: Callable[[], None],
        ended: Callable[[Claimed], None],
    ) -> None:  # fmt: skip
        self._face = face
        self._workshop = workshop
        self._app = app
        self._changed = changed
        self._timed = timed
        self._ended = ended
        self._slots: dict[tuple[int, int], Slot] = {}
        self._suspects: set[Slot] = set()  # those that were claimed as such
        self._empty = asyncio.Event()
        self._empty.set()
        self._draining = False
        self._leaving = False

    def __len__(self) -> int:
        return len(self._slots)

    def names(self) -> list[tuple[int, int]]:
        """(run, attempt number) of each."""
        return list(self._slots)

    def legs(self) -> list[Leg | StepLeg]:
        """Those whose code may run."""
        return [slot.leg for slot in self._slots.values() if slot.leg is not None]

    @property
    def suspect(self) -> bool:
        """One of them is to be alone (law 40.15)."""
        return any(slot.suspect for slot in self._suspects)

    async def empty(self) -> None:
        """Until nothing is held whose end can still be told."""
        await self._empty.wait()

    def take(self, claimed: Sequence[Claimed]) -> None:
        """Hold what a claim gave, and set each going; while draining, to give it back."""
        for one in claimed:
            name = (one.fence.rid, one.fence.number)
            if name in self._slots:
                continue  # the same request answered twice
            slot = self._slots[name] = Slot(one)
            if one.suspect:
                self._suspects.add(slot)
            self._empty.clear()
            slot.task = self._face.loop.create_task(self._drive(slot), name=f"attempt {one.fence.number} of {one.id}")

    def hint(self) -> None:
        """Something that a leg waits for may be there."""
        for leg in self.legs():
            leg.hint()

    def apply(self, beat: Beat) -> None:
        """What the heartbeat's answer says of attempts; each is told once."""
        for lost in beat.lost:
            slot = self._slots.get((lost.rid, lost.number))
            if slot is None or slot.gone:
                continue
            slot.gone = True
            if slot.over:
                self._drop(slot)
            elif slot.leg is not None:
                slot.leg.abort("lost")
        for cancelled in beat.cancel:
            slot = self._slots.get((cancelled.rid, cancelled.number))
            if slot is not None and slot.leg is not None and not slot.told:
                slot.told = True
                slot.leg.abort("cancelled", cancelled.reason or "")

    def give_back(self) -> None:
        """From now on nothing begins: what has not been dispatched goes back at once (law 40.11)."""
        self._draining = True
        for slot in self._slots.values():
            if slot.beginning and slot.task is not None:
                slot.task.cancel()

    def abort(self, reason: Literal["lost", "stopping"]) -> None:
        """End every leg from outside."""
        for slot in self._slots.values():
            slot.gone = True
            if slot.leg is not None:
                slot.leg.abort(reason)

    async def leave(self) -> None:
        """Stop waiting for whatever did not end."""
        self._leaving = True
        left = [slot.task for slot in self._slots.values() if slot.task is not None and not slot.task.done()]
        for task in left:
            task.cancel()
        if left:
            await asyncio.wait(left, timeout=1.0)

    async def _drive(self, slot: Slot) -> None:
        became: str | None
        try:
            leg = await self._dispatch(slot)
            became = leg if isinstance(leg, str) else await leg.run()
        except asyncio.CancelledError:
            if self._leaving or self._face.cancelled():
                raise  # it stays held: the worker's last word records it as lost
            became = await self._bury(slot, RuntimeError("a cancellation escaped from the leg"))
        except Exception as error:
            became = await self._bury(slot, error)
        if became is None or became == "stopped":
            slot.leg, slot.over = None, True
            self._judge_empty()
            return
        if became == "stale":
            await self._look_back(slot.claimed)
        self._face.over(slot.claimed.fence)
        self._drop(slot)
        self._ended(slot.claimed)
        tries_again = became == "failed" and slot.claimed.parent is not None  # its plan may, after a delay
        if tries_again or became in _TIMED:
            self._timed()

    async def _dispatch(self, slot: Slot) -> Leg | StepLeg | str:
        """A leg whose code may run, or the word for why there is none: then nothing of the attempt has run."""
        db, claimed = self._face.db, slot.claimed
        if claimed.opaque:
            return await self._dispatch_step(slot)
        try:
            workflow = self._app.registry.workflows.get(claimed.name)
            if workflow is None and not self._draining:
                notes.say("workflow missing", level=logging.WARNING, run=claimed.id, workflow=claimed.name)
                delay_ms = int(limits.WORKFLOW_MISSING_SECONDS * 1000)
                await attempts.defer(
                    db, claimed.fence, reason="workflow_missing", dependency=claimed.name, delay_ms=delay_ms
                )
                return "deferred"
            if workflow is not None and not self._draining and not slot.gone:
                slot.beginning = not claimed.begun
                begun = await attempts.begin(db, claimed.fence) if slot.beginning else "begun"
                slot.beginning = False
                if begun == "begun" and not self._draining and not slot.gone:
                    slot.leg = Leg(self._face, claimed, workflow)
                    return slot.leg
        except asyncio.CancelledError:
            if not self._draining or slot.gone:
                raise
            slot.beginning = False  # told to stop before its code began
        if not slot.gone:
            await attempts.give_back(db, claimed.fence)
        return "given_back"

    async def _dispatch_step(self, slot: Slot) -> StepLeg | str:
        """A plan's step begins by itself, once its process is there. One that was adopted has begun: it is never given back."""
        if not self._draining and not slot.gone:
            slot.leg = StepLeg(self._workshop, slot.claimed)
            return slot.leg
        if slot.claimed.begun:
            return "stopped"
        if not slot.gone:
            await attempts.give_back(self._face.db, slot.claimed.fence)
        return "given_back"

    async def _bury(self, slot: Slot, error: Exception) -> str | None:
        """A bug of ours ended the leg: the run fails and says so. Begun code is never given back, or it would be repeated.

        None when not even that can be told: the attempt stays held, so that nobody repeats it.
        """
        slot.leg = None
        fence, words = slot.claimed.fence, values.describe_error(error, "WORKFLOW_ERROR")
        facts = {"run": slot.claimed.id, "rid": fence.rid, "number": fence.number}
        notes.say("a leg broke", level=logging.CRITICAL, error=f"{words['type']}: {words['message']}", **facts)
        try:
            await terminal.finish(self._face.db, fence, "failed", values.encode_error(words))
        except Exception as worse:
            notes.say("its end could not be told: the attempt stays held", level=logging.CRITICAL, error=worse, **facts)
            return None
        return "failed"

    async def _look_back(self, claimed: Claimed) -> None:
        """What became of a run whose fence was lost, for whoever reads the log; nothing of it can be changed here (law 80.5).

        Marks of the attempt need no release: what they leased ended with the fence (law 50.7).
        """
        status = None
        with contextlib.suppress(FencepostError, OSError):
            async with asyncio.timeout(LOOK_BACK_SECONDS):
                outcome = await terminal.watch_outcome(self._face.db, claimed.org, claimed.id, None)
                status = outcome.status if outcome is not None else None
        notes.say("an attempt was overtaken", run=claimed.id, number=claimed.fence.number, status=status)

    def _drop(self, slot: Slot) -> None:
        self._slots.pop((slot.claimed.fence.rid, slot.claimed.fence.number), None)
        self._suspects.discard(slot)
        self._judge_empty()
        self._changed()

    def _judge_empty(self) -> None:
        for slot in self._slots.values():  # (a loop, for the first one tells nearly always)
            if not slot.over:
                return
        self._empty.set()
