"""Waits: sleeps, signals and children that the code waits for. They are armed, looked at and parked on together (laws 60.1-60.3, 60.11)."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass
from typing import Final, Literal

from fencepost import faults, limits, suspension, values
from fencepost.suspension import Armed, Here, Parked, Resolved, Wait
from fencepost.words import Cancelling, Stale
from fencepost.worker.history import Key, Recorded
from fencepost.worker.keeping import Keeping
from fencepost.worker.turns import Turn

KINDS: Final = frozenset({"sleep", "signal", "child"})


@dataclass(slots=True)
class PendingWait:
    """A branch that waits for a sleep, a signal or a child."""

    wait: Wait
    turn: Turn
    armed: bool
    own: Resolved | None = None  # what it came to, not given yet
    inherited: Resolved | None = None  # a signal of a wait that lost

    @property
    def resolved(self) -> Resolved | None:
        return self.inherited or self.own

    def would_take(self, signal: Resolved) -> bool:
        """It waits for signals of this name, and none that came before is its own."""
        if self.wait.kind != "signal" or self.wait.name != signal.name or self.turn.future.done():
            return False
        return self.inherited is None and (self.own is None or self.own.seq > signal.seq)


class Waits:
    """The waits of one pass through the code. `hint` comes from outside, `rest` from the engine."""

    def __init__(self, keeping: Keeping) -> None:
        self._keeping = keeping
        self._leg = keeping.leg
        self._engine = keeping.engine
        self.pending: dict[Key, PendingWait] = {}
        self._replaying: dict[Key, PendingWait] = {}  # recorded, or held until replay is done
        self.hinted = False
        self.looking: asyncio.Task[None] | None = None
        self.timer: asyncio.TimerHandle | None = None
        self._cancels: list[Wait] = []
        self._early: dict[Key, Resolved] = {}  # resolved, and the code has not asked for them yet
        self._abandoned: set[Key] = set()  # armed, or being armed, when their branch was cancelled
        # Signals delivered to waits that were cancelled before the code saw them.
        self._orphans: dict[str, list[Resolved]] = {}
        known = self._engine.recorded
        self._known_seq = (
            max((r.seq for r in known.values() if r.kind in KINDS and r.resolved), default=0) if known else 0
        )

    # ── for the code ─────────────────────────────────────────────────────────────────────────────────────────────────

    async def wait_for(self, kind: Literal["sleep", "signal"], name: str, ms: int | None) -> Resolved:
        """One boundary: a sleep of `ms`, or a signal with an hour after `ms`, None: for ever."""
        values.check_name(name, f"the name of a {kind}")
        engine = self._engine
        ordinal = engine.count(kind, name)
        if kind == "signal":
            # waits: for a branch that was cancelled just now to leave the signal that it had (60.3)
            await asyncio.sleep(0)
        recorded = await engine.enter((kind, name, ordinal))
        wait = Wait(kind=kind, name=name, ordinal=ordinal, ms=ms)
        armed = recorded is not None and recorded.state == "armed"
        found = (
            None
            if recorded is None or not recorded.resolved
            else Resolved(kind, name, ordinal, recorded.state, recorded.seq, recorded.value)
        )
        with engine.at_boundary():
            if kind == "signal" and (orphan := self._orphan(name, found)) is not None:
                self._abandon(wait, found, armed=armed)
                return await self._inherit(orphan)
            if not engine.live:
                found = await self._replay(wait, recorded, found, armed=armed)
            if found is not None:
                return found
            return await self._keeping.perform(lambda: self.wait(wait, armed=armed))

    async def _replay(
        self, wait: Wait, recorded: Recorded | None, own: Resolved | None, *, armed: bool
    ) -> Resolved | None:
        """The recorded result, or the signal of a wait that lost, in its turn. None: replay is done, and there was neither."""
        engine = self._engine
        turn = engine.held() if own is None or recorded is None else engine.place_of(recorded)
        if turn is None:
            return own
        key = (wait.kind, wait.name, wait.ordinal)
        one = self._replaying[key] = PendingWait(wait, turn, armed, own)
        engine.stir()
        try:
            await turn.future
        except asyncio.CancelledError:
            self._abandon(wait, one.resolved, armed=armed)
            raise
        finally:
            del self._replaying[key]
        return one.resolved

    async def _inherit(self, orphan: Resolved) -> Resolved:
        """In its place in the order, on every pass: who came before the signal was there had it in that place, too."""
        turn = self._engine.turn()
        self._engine.arrive(turn, orphan.seq)
        try:
            await turn.future
        except asyncio.CancelledError:
            self._adopt(orphan)
            raise
        return orphan

    async def first(self, names: list[str], ms: int | None) -> Resolved:
        """Whichever signal comes first, each waited for in a branch of its own; the others are cancelled."""
        branches = [asyncio.ensure_future(self.wait_for("signal", name, ms)) for name in names]
        try:
            await asyncio.wait(branches, return_when=asyncio.FIRST_COMPLETED)
        finally:
            for branch in branches:
                if not branch.done():
                    branch.cancel()
        return next(branch.result() for branch in branches if branch.done() and not branch.cancelled())

    async def wait(self, wait: Wait, *, armed: bool) -> Resolved:
        """Wait, live, until a wait resolves and it is its turn. A branch cancelled meanwhile takes its wait along."""
        key = (wait.kind, wait.name, wait.ordinal)
        pending = self.pending[key] = PendingWait(wait, self._engine.turn(), armed)
        if key in self._early:
            self._resolve(pending, self._early.pop(key))
        self._engine.stir()
        try:
            await pending.turn.future
        except asyncio.CancelledError:
            self._abandon(wait, pending.resolved, armed=pending.armed)
            raise
        finally:
            self.pending.pop(key, None)
        assert pending.resolved is not None
        return pending.resolved

    # ── waits whose branch was cancelled ─────────────────────────────────────────────────────────────────────────────

    def _abandon(self, wait: Wait, resolved: Resolved | None, *, armed: bool) -> None:
        """The code does not see what a wait came to. A signal that was delivered to it is the next wait's."""
        if self._engine.is_ending:
            return
        if resolved is not None:
            self._adopt(resolved)
        elif armed:
            self._abandoned.add((wait.kind, wait.name, wait.ordinal))
            self._cancels.append(Wait(kind=wait.kind, name=wait.name, ordinal=wait.ordinal, op="cancel"))

    def _orphan(self, name: str, own: Resolved | None) -> Resolved | None:
        """The oldest signal of this name that was delivered and never seen, if it came before the wait's own."""
        waiting = self._orphans.get(name)
        if not waiting:
            return None
        oldest = min(waiting, key=lambda one: one.seq)
        if own is not None and own.seq < oldest.seq:
            return None
        waiting.remove(oldest)
        return oldest

    def _adopt(self, found: Resolved) -> None:
        """A signal reached a wait that the code left: the next wait of the name has it, one that waits already before others."""
        if found.kind != "signal" or found.state != "arrived":
            return
        heir = next((p for p in (*self._replaying.values(), *self.pending.values()) if p.would_take(found)), None)
        if heir is None:
            self._orphans.setdefault(found.name, []).append(found)
            return
        heir.inherited = found
        self._engine.arrive(heir.turn, found.seq)
        self._abandon(heir.wait, heir.own, armed=heir.armed)
        heir.armed = True  # or never to be

    def _resolve(self, pending: PendingWait, found: Resolved) -> None:
        pending.own = found
        self._engine.arrive(pending.turn, found.seq)

    # ── looking ──────────────────────────────────────────────────────────────────────────────────────────────────────

    def hint(self) -> None:
        """What an armed wait waits for may be here."""
        self.hinted = True
        self._engine.stir()

    def close(self) -> None:
        """The pass is over: nobody looks any more."""
        if self.timer is not None:
            self.timer.cancel()

    def restless(self) -> bool:
        """There is something to look for, or to take back."""
        return bool(self.pending or self._cancels)

    def rest(self, all_wait: bool) -> None:  # noqa: FBT001 - the engine's callback
        """The code is at rest, live, with nothing to be given."""
        if self.looking is not None or not self._engine.is_settled():
            return
        if all_wait and self._engine.performing == len(self.pending) and self.pending:
            self._look(park=True)
        elif self._cancels or (self.pending and self._is_look_due()):
            self._look(park=False)

    def _is_look_due(self) -> bool:
        """Told to look, or a wait is not armed yet; without a timer nobody has looked in this leg: an earlier one armed them all."""
        return self.hinted or self.timer is None or any(not p.armed for p in self.pending.values())

    def _look(self, *, park: bool) -> None:
        engine = self._engine
        if self.timer is not None:
            self.timer.cancel()
            self.timer = None
        self.hinted = False
        new = [p for p in self.pending.values() if not p.armed]
        for pending in new:
            pending.armed = True  # whatever becomes of the call: a branch that is cancelled meanwhile takes it back
        asked = [*self._cancels, *(p.wait for p in new)]
        self._cancels = []
        self.looking = engine.loop.create_task(self._ask(asked, park=park), context=engine.outside.copy())

    async def _ask(self, asked: list[Wait], *, park: bool) -> None:
        leg, engine = self._leg, self._engine
        try:
            with engine.calling():
                if park:
                    await faults.reach("park.asked", run=leg.claimed.id)
                answer = await suspension.wait(
                    leg.face.db,
                    leg.fence,
                    asked,
                    known_seq=self._known_seq,
                    park=park,
                    said=leg.face.said(leg.fence) if park else None,
                )
            self._heard(answer)
        except Exception as error:
            engine.break_off(error)
        finally:
            self.looking = None
            engine.stir()

    def _heard(self, answer: Here | Armed | Parked | Stale | Cancelling) -> None:
        engine = self._engine
        match answer:
            case Here(resolved):
                for found in resolved:
                    self._known_seq = max(self._known_seq, found.seq)
                    key = (found.kind, found.name, found.ordinal)
                    pending = self.pending.get(key)
                    if pending is not None and pending.resolved is None:
                        self._resolve(pending, found)
                    elif key in self._abandoned:
                        self._adopt(found)
                    elif pending is None:
                        self._early[key] = found
            case Armed(due_ms):
                pause = limits.LOOK_SECONDS if due_ms is None else min(limits.LOOK_SECONDS, due_ms / 1000)
                self.timer = engine.loop.call_later(pause, self.hint)
            case Parked():
                engine.end("parked")
            case Stale():
                engine.end("stale")
            case Cancelling():
                engine.end("cancelled", {"message": "cancelled"})
