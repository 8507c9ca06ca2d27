"""Replay: what makes a workflow's code see the same history in the same order, on the first pass and on every later one.

THE IDEA. A *branch* is a task of the workflow's code. Every branch is, at any moment, inside a boundary (a step, a wait, …), or
awaiting other branches, or doing something else. The engine gives results to the code one at a time, in the order of their
sequence numbers, and between two of them lets the code come to *rest* (law 50.4). While recorded results are still to come, what
is not recorded is held. When every branch waits and the next recorded result has not been asked for, code and history do not
fit: the run is parked on its code.

Every sequence number of a leg is given by one of the leg's own calls, so on the first pass the order is known as soon as no call
is under way: results are held until then. A leg with one branch needs none of this and pays for none of it.
"""

from __future__ import annotations

import asyncio
import contextlib
import heapq
from collections.abc import Callable, Coroutine, Generator
from contextvars import Context as Variables
from contextvars import Token, copy_context
from typing import Any, Final, NoReturn

from fencepost import limits, notes
from fencepost.worker.branches import Branches
from fencepost.worker.history import Key, Recorded
from fencepost.worker.tasks import _engine, branch_context, current
from fencepost.worker.turns import AtBoundary, Calling, Turn

QUIET_TURNS: Final = 3  # of the loop, with nothing runnable: a callback between two futures is seen in one of them
STILL_SECONDS: Final = 0.5  # nothing moves, and who stands at an event or a queue may be served from elsewhere
REFUSALS_MAX: Final = 100  # code that swallows the end of its leg more often than this is left waiting


def _never() -> bool:
    return False


class Engine:
    """One leg's order of results. Created per leg; knows nothing of the database or of what a boundary does. `cancelled`: the whole worker is."""

    def __init__(
        self, recorded: list[Recorded], loop: asyncio.AbstractEventLoop, cancelled: Callable[[], bool] = _never
    ) -> None:
        self.loop = loop
        self._cancelled = cancelled
        self.outside: Variables = copy_context()
        self.recorded: dict[Key, Recorded] = {r.key: r for r in recorded}
        self.history: list[Recorded] = sorted([r for r in recorded if r.resolved], key=lambda r: r.seq)
        self.place = 0  # in `history`: the next result to be given
        self.live = not self.history and all(r.loose for r in recorded)
        self.code = Branches(self.stir, self._ended, self.outside)
        self.branches = self.code.all
        self.inside = self.code.inside  # branches at a boundary
        self.problem: Exception | None = None
        self.main: asyncio.Task[Any] | None = None  # the workflow's own branch: with its end the code has ended
        self.performing = 0  # boundaries whose work is under way
        self.calls = 0  # calls under way whose answers carry sequence numbers
        self.over: tuple[str, dict[str, Any] | None] | None = None  # how the leg ended, if not by its code's end
        self.passed: asyncio.Future[None] = self.loop.create_future()  # its code has ended, or the leg is over
        self.restless: Callable[[], bool] = _never  # whether `on_rest` has anything to do
        self.on_rest: Callable[[bool], None] | None = None  # live, at rest, nothing to give: (every branch waits)
        self.has_other_way: Callable[[], bool] = _never  # in which the history can be read
        self._counts: dict[tuple[str, str], int] = {}
        self._asked: list[Key] = []  # in order, for the report of a history that does not fit
        self._waiting: dict[Key, Turn] = {}  # recorded results that were asked for
        self._preparing: set[Key] = set()  # those whose value is still being read
        self._held: list[Turn] = []  # what is not recorded, until replay is done
        self._arrived: list[Turn] = []  # live results, a heap by seq
        self._quiet = 0
        self._pumping = False
        self._stillness: asyncio.TimerHandle | None = None
        self._is_still = False  # for STILL_SECONDS
        self._refusals = 0
        self._left = False  # its branches are nobody's any more

    # ── what the context asks ────────────────────────────────────────────────────────────────────────────────────────

    def count(self, kind: str, name: str) -> int:
        """The ordinal of this call of (kind, name), in the order the code makes them."""
        ordinal = self._counts[kind, name] = self._counts.get((kind, name), 0) + 1
        if len(self._asked) == limits.BOUNDARIES_WARN:
            notes.say(
                "run.long",
                boundaries=limits.BOUNDARIES_WARN,
                hint="history is replayed whole: split the work into children or a map",
            )
        if len(self._asked) >= limits.BOUNDARIES_MAX:
            raise RuntimeError(f"a run may have at most {limits.BOUNDARIES_MAX} boundaries: use ctx.map or child runs")
        return ordinal

    def counted(self, kind: str, name: str) -> int:
        """How many calls of (kind, name) the code has made."""
        return self._counts.get((kind, name), 0)

    async def enter(self, key: Key, hash: str = "") -> Recorded | None:
        """Note that the code asks for a boundary; what is recorded of it. Ends the leg where that does not fit."""
        task = asyncio.current_task()
        if task is None or task not in self.branches or current() is not self:
            raise RuntimeError(
                f"ctx was used outside its workflow's code (asking for {key[0]} {key[1]}): a step gets plain arguments, not the context"
            )
        if task.cancelling() and self._cancelled():
            self.end("stopped")  # (its leg, which is cancelled as well, may not have had its turn yet)
        if self.is_ending:
            await self.refuse()
        self._asked.append(key)
        recorded = self.recorded.get(key)
        if recorded is None or recorded.state == "set_aside":
            return None
        recorded.asked = True
        if hash and recorded.hash and recorded.hash != hash and not recorded.loose:
            self.end_unfit(f"{recorded.words()} is asked for with other arguments than its record has")
            await self.never()
        return recorded

    async def replay(self, recorded: Recorded) -> None:
        """Wait until it is this recorded result's turn."""
        turn = self.place_of(recorded)
        if turn is not None:
            await self._wait(turn)

    def place_of(self, recorded: Recorded) -> Turn | None:
        """Its turn. None for a loose record that was passed over before: it is answered when asked for."""
        if self.live or self.place == len(self.history) or recorded.seq < self.history[self.place].seq:
            return None
        return self._waiting.setdefault(recorded.key, self.turn(recorded.seq))

    @contextlib.contextmanager
    def preparing(self, recorded: Recorded) -> Generator[None]:
        """While a recorded result is being read: its turn waits for it, for in its turn it must reach the code at once."""
        self._preparing.add(recorded.key)
        try:
            yield
        finally:
            self._preparing.discard(recorded.key)
            self.stir()

    async def hold(self) -> None:
        """Wait until replay is done: nothing that is not recorded happens before."""
        if not self.live:
            await self._wait(self.held(), stays_inside=True)

    def held(self) -> Turn:
        """A turn that comes when replay is done; or before, where it is given something (`arrive`)."""
        turn = self.turn(0)
        self._held.append(turn)
        return turn

    async def in_order(self, seq: int) -> None:
        """Wait until every result with a smaller number has been given and the code is at rest."""
        if len(self.branches) == 1 and not self._arrived:
            return
        turn = self.turn(seq)
        heapq.heappush(self._arrived, turn)
        await self._wait(turn)

    def at_boundary(self) -> AtBoundary:
        """While a branch is here it waits, whatever is being done for it."""
        return AtBoundary(self)

    def calling(self) -> Calling:
        """While a call is under way whose answer will carry a sequence number."""
        return Calling(self)

    def step_inside(self) -> Token[Engine | None]:
        """A boundary's work begins: what the branch does now is not the workflow's code."""
        self.performing += 1
        return _engine.set(None)

    def step_outside(self, token: Token[Engine | None]) -> None:
        """Back in the workflow's code."""
        self.performing -= 1
        _engine.reset(token)
        self.stir()

    # ── how a leg ends ───────────────────────────────────────────────────────────────────────────────────────────────

    def end(self, how: str, doc: dict[str, Any] | None = None) -> None:
        """The leg is over, for this reason; the first one stands."""
        if self.over is None:
            self.over = (how, doc)
            self._pass()

    def run(self, code: Coroutine[Any, Any, Any], name: str) -> asyncio.Task[Any]:
        """Set the workflow's own branch going."""
        self.main = self.loop.create_task(code, name=name, context=branch_context(self))
        return self.main

    def _ended(self, branch: asyncio.Task[Any]) -> None:
        if branch is self.main:
            self._pass()
        self.stir()

    def _pass(self) -> None:
        if not self.passed.done():
            self.passed.set_result(None)

    def close(self) -> None:
        """The pass is over and judged. What points in a circle is cut, so that no collector must come for it."""
        self.over = self.over or ("ended", None)
        self._left = True
        self.main = self.on_rest = None
        self.restless = self.has_other_way = _never
        self._move()
        self.code.close()

    def break_off(self, problem: Exception) -> None:
        """A bug of ours (a broken law, data that a door refuses) ends the leg loudly; author code never sees it."""
        self.problem = problem
        self.end("broken")

    def end_unfit(self, why: str, code: str = "NONDETERMINISM") -> None:
        recorded = [r.words() for r in sorted(self.recorded.values(), key=lambda r: r.seq)]
        asked = [f"{kind} {name}#{ordinal}" for kind, name, ordinal in self._asked]
        self.end("unfit", {"code": code, "message": why, "recorded": recorded[-200:], "asked": asked[-200:]})

    def unasked(self) -> Recorded | None:
        """A recorded boundary that must be asked for and was not. One that is to be run again tells the code nothing."""
        return next(
            (
                r
                for r in self.recorded.values()
                if not r.asked and not r.loose and r.state not in ("set_aside", "cancelled", "again")
            ),
            None,
        )

    @property
    def is_ending(self) -> bool:
        """The leg is over, or its code has ended and only branches are left that nobody awaits."""
        return self.over is not None or (self.main is not None and self.main.done())

    async def refuse(self) -> NoReturn:
        """The leg is over, and its code asks for more. Not an Exception, so that `except Exception:` cannot eat it (law 60.8)."""
        self._refusals += 1
        if self._refusals > REFUSALS_MAX:  # code that swallows everything would spin for ever
            await self.loop.create_future()
        raise asyncio.CancelledError("the leg is over")

    async def never(self) -> NoReturn:
        """The leg is over: its branches wait here to be unwound from outside; who comes later finds nobody who would."""
        if not self._left:
            await self.loop.create_future()
        await self.refuse()

    def running_on(self) -> str | None:
        """Words for a branch that runs: where its code is. None: every branch waits."""
        return self.code.running_on()

    # ── giving results ───────────────────────────────────────────────────────────────────────────────────────────────

    def turn(self, seq: int = 0) -> Turn:
        """The present branch, as one that waits for a result."""
        task = asyncio.current_task()
        assert task is not None
        return Turn(seq, self.loop.create_future(), task)

    def arrive(self, turn: Turn, seq: int) -> None:
        """A wait has resolved: its result takes its place in the order. Of several places of a branch the first counts."""
        heapq.heappush(self._arrived, Turn(seq, turn.future, turn.task))
        self.stir()

    def is_settled(self) -> bool:
        """Live, and no result is on its way to the code."""
        return self.live and not self._arrived and self.calls == 0

    async def _wait(self, turn: Turn, *, stays_inside: bool = False) -> None:
        self.stir()
        await turn.future
        if not stays_inside:
            self.inside.discard(turn.task)

    def stir(self) -> None:
        """Something changed: look, in a coming turn of the loop, whether a result can be given."""
        self._quiet = 0
        if self._stillness is not None:
            self._move()
        if self._pumping or (self.live and not self._arrived and not self.restless()):
            return
        if not self.is_ending:
            self._pumping = True
            self.loop.call_soon(self._pump, context=self.outside)

    def _pump(self) -> None:
        self._pumping = False
        if self.is_ending:
            return
        if not self.code.at_rest():
            self._again(0)
            return
        if self._quiet < QUIET_TURNS and len(self.branches) > 1:
            self._again(self._quiet + 1)
            return
        self._advance()

    def _again(self, quiet: int) -> None:
        self._quiet = quiet
        self._pumping = True
        self.loop.call_soon(self._pump, context=self.outside)

    def _advance(self) -> None:
        if not self.live:
            self._advance_replay()
        elif self._arrived and self.calls == 0:
            self._give(heapq.heappop(self._arrived))
        elif not self._arrived and self.on_rest is not None:
            self.on_rest(self.code.all_wait())

    def _advance_replay(self) -> None:
        while self._arrived or self.place < len(self.history):
            head = self.history[self.place] if self.place < len(self.history) else None
            if self._arrived and (head is None or self._arrived[0].seq <= head.seq):
                if self._give(heapq.heappop(self._arrived)):  # a recorded signal that another wait has inherited
                    return
                continue
            assert head is not None
            if head.key in self._preparing:
                return
            turn = self._waiting.pop(head.key, None)
            if turn is not None:
                self.place += 1
                if self._give(turn):
                    return
                continue
            if head.asked:  # its branch was cancelled before its turn, on the first pass as well
                self.place += 1
                continue
            if not self._stands_still():
                return  # a branch runs, or is about to be given what was passed over: it may still ask
            if not head.loose:
                self._does_not_fit(
                    f"the history's next result is {head.words()}, and the code, with every branch waiting, has not asked for it"
                )
                return
            self.place += 1
        missing = self.unasked()
        if missing is not None:
            if self._stands_still():
                self._does_not_fit(
                    f"{missing.words()} is recorded ({missing.state}), and the code, with every branch waiting, has not asked for it"
                )
            return
        self.live = True
        held, self._held = self._held, []
        for turn in held:
            if not turn.future.done():
                turn.future.set_result(None)
        self.stir()

    def _stands_still(self) -> bool:
        """Every branch waits, or stands at a lock: whoever has that waits too, so nothing more is asked while he is held. Or it stands
        at an event or a queue, which may be served from elsewhere, and nothing has moved for a while.
        """
        if self._preparing:
            return False
        if self.code.all_wait() or (standing := self.code.standing()) == "locked":
            return True
        if standing == "met" and self._stillness is None:
            self._stillness = self.loop.call_later(STILL_SECONDS, self._still, context=self.outside)
        return self._is_still

    def _still(self) -> None:
        self._is_still = True
        if not self._pumping and not self.is_ending:
            self._again(QUIET_TURNS)

    def _move(self) -> None:
        if self._stillness is not None:
            self._stillness.cancel()
            self._stillness = None
        self._is_still = False

    def _does_not_fit(self, why: str) -> None:
        """Code is judged only when every branch waits (law 60.11); where the history can be read another way, that is tried before."""
        if self.code.all_wait():
            self.end_unfit(why)
        elif self.has_other_way():
            self.end("stuck")

    def _give(self, turn: Turn) -> bool:
        """True when the code got it; False when its branch had gone."""
        if turn.future.done():
            self.stir()
            return False
        self.inside.discard(turn.task)
        turn.future.set_result(None)
        self.stir()
        return True
