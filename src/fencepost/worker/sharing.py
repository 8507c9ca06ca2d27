"""Sharing: a call of a step of scope `org`. One run of the organisation does it, the others are given what came of it (law 50.9).

The call's own boundary records what it was given, so a replay needs nothing else. While another attempt holds the entry the call
waits for a signal, as any wait: the run parks, and asks again when it is woken.
"""

from __future__ import annotations

import contextlib
import hashlib
import math
from typing import Any, Final

from fencepost import faults, keys, shared, values
from fencepost.authoring import Absent, Found, Step, Unknown
from fencepost.errors import DatabaseUnavailable
from fencepost.shared import Entry, Given
from fencepost.words import Cancelling, Stale
from fencepost.worker.call import Call
from fencepost.worker.execution import Broke, OutOfSight, Ran, execute, found_value, look_up, look_up_mark
from fencepost.worker.keeping import Keeping, Kept3
from fencepost.worker.telling import Telling
from fencepost.worker.waits import Waits

NAME_CHARS: Final = 150  # of a step's name, in the name of the signal that wakes its askers


class Sharing:
    """The calls of shared steps of one pass through the code."""

    __slots__ = ("_answers", "_engine", "_keeping", "_leg", "_telling", "_waits")

    def __init__(self, keeping: Keeping, telling: Telling, waits: Waits) -> None:
        self._keeping = keeping
        self._telling = telling
        self._waits = waits
        self._leg = keeping.leg
        self._engine = keeping.engine
        # Of look-ups asked during replay, by step key: Found is final.
        self._answers: dict[str, Found[Any] | Absent | Unknown] = {}

    async def outcome(self, call: Call) -> tuple[str, str | None]:
        """What is stored of this call, in its turn: kept or failed, and the text."""
        engine = self._engine
        wait = wait_name(call)
        recorded = await engine.enter(call.place, call.hash)
        # In the order in which it came to pass: waits, being told that it is unknown, waits again, the result.
        await self._wait_again(wait, before=self._telling.last(*call.place))
        if recorded is not None:
            with engine.at_boundary():
                await self._telling.again(recorded, lambda _: self._is_still_unknown(call))
        await self._wait_again(wait)
        if recorded is not None and recorded.resolved:
            with engine.at_boundary():
                await engine.replay(recorded)
                return recorded.state, recorded.value
        while True:
            with engine.at_boundary():
                await engine.hold()
                done = await self._keeping.perform(self._do, call)
                if done is not None:
                    seq, state, text = done
                    await engine.in_order(seq)
                    return state, text
            await self._waits.wait_for("signal", wait, None)

    async def _wait_again(self, wait: str, *, before: float = math.inf) -> None:
        """The waits of earlier attempts, before this place in the history."""
        engine = self._engine
        while True:
            recorded = engine.recorded.get(("signal", wait, engine.counted("signal", wait) + 1))
            if recorded is None or recorded.state == "set_aside" or recorded.seq >= before:
                return
            await self._waits.wait_for("signal", wait, None)

    async def _do(self, call: Call) -> Kept3 | None:
        """What is kept of the call; None: another attempt holds the entry."""
        leg, step = self._leg, call.step
        asked = await self._ask(call)
        if isinstance(asked, Entry) and asked.how == "unknown":
            found = await self._resolve(call, asked)
            asked = await self._ask(call, again=True)
            if found is not None and isinstance(asked, Entry) and asked.how == "marked":
                return await self._keep(call, found)
        if isinstance(asked, Given):
            leg.committed()
            return asked.seq, asked.state, asked.value
        if asked.how == "wait":
            return None
        key = _key(step, asked)
        if faults.hook is not None:
            await faults.reach("step.marked", step=step.name, key=key)
        outcome = await execute(
            leg.face, leg.threads, step, key, call.args, call.kwargs, may_go_on=lambda: self._is_ours(call)
        )
        if isinstance(outcome, OutOfSight):
            answer = await look_up(step, key, call.args, call.kwargs)
            if not isinstance(answer, Found):
                await self._telling.unknown(*call.place)
            outcome = found_value(answer)
        return await self._keep(call, outcome)

    async def _ask(self, call: Call, *, again: bool = False) -> Given | Entry:
        leg, step = self._leg, call.step
        with self._engine.calling():
            answer = await shared.ask(
                leg.face.db, leg.fence, step.name, call.ordinal, hash=call.hash, key=key_of(call), epoch=epoch_of(step),
                repeatable=step.repeatable, timeout_ms=None if step.longest is None else int(step.longest * 1000), wait=wait_name(call),
                again=again,
            )  # fmt: skip
        if isinstance(answer, Stale | Cancelling):
            await leg.gone(answer)
        return answer

    async def _is_ours(self, call: Call) -> bool:
        """By a dead fence, or after a cancel, nothing more is begun (laws 40.4, 80.4)."""
        leg, step = self._leg, call.step
        answer = await shared.ask(
            leg.face.db, leg.fence, step.name, call.ordinal, hash=call.hash, key=key_of(call), epoch=epoch_of(step),
            repeatable=step.repeatable, timeout_ms=None, wait=wait_name(call), again=False,
        )  # fmt: skip
        return isinstance(answer, Entry) and answer.how == "marked"

    async def _keep(self, call: Call, outcome: Ran | Broke) -> Kept3:
        step = call.step
        kept = await self._keeping.keep("step", step.name, call.ordinal, call.hash, outcome, repeatable=step.repeatable)
        with contextlib.suppress(DatabaseUnavailable):  # whoever waits is woken by the next beat, then
            await shared.wake(self._leg.face.db, self._leg.fence.rid, step.name, call.ordinal)
        return kept

    async def _resolve(self, call: Call, entry: Entry) -> Ran | None:
        """Law 50.11, for a mark whose holder is gone. Found: its value. None: a run is permitted. Else StepOutcomeUnknown."""
        key = _key(call.step, entry)

        async def gone_ms() -> int | None:
            return entry.gone_ms

        answer = await look_up_mark(call.step, key, call.args, call.kwargs, self._answers.pop(key, None), gone_ms)
        if isinstance(answer, Unknown):
            await self._telling.unknown(*call.place)
        return found_value(answer) if isinstance(answer, Found) else None

    async def _is_still_unknown(self, call: Call) -> bool:
        """Nothing but Unknown would come of asking now. Raises nothing, records nothing."""
        recorded = self._engine.recorded[call.place]
        if recorded.state != "marked" or recorded.repeatable:
            return False
        entry = await shared.peek(self._leg.face.db, self._leg.fence.rid, call.step.name, call.ordinal)
        if entry is None or entry[0] != "unknown":
            return False
        key = keys.step_key(entry[1], "step", call.step.name, 1)
        answer = self._answers[key] = await look_up(call.step, key, call.args, call.kwargs)
        if isinstance(answer, Absent) and not call.step.key_honoured:
            return entry[2] is None
        return isinstance(answer, Unknown)


def _key(step: Step[..., Any], entry: Entry) -> str:
    """The key of the call: of the entry, whichever run makes it (law 50.3)."""
    return keys.step_key(entry.root, "step", step.name, 1)


def key_of(call: Call) -> str:
    """What the entry is kept under: what the step's `key` makes of the arguments, or a hash of them.

    Raises TypeError or ValueError for an unusable one.
    """
    step = call.step
    if step.key is None:
        return keys.hash_call(call.args, call.kwargs, size=16)
    found = step.key(*call.args, **call.kwargs)
    if isinstance(found, bool) or not isinstance(found, str | int):
        raise TypeError(f"step {step.name}: key gives a text or a whole number, not {found!r}")
    return values.check_name(str(found), f"step {step.name}: the key")


def epoch_of(step: Step[..., Any]) -> str:
    """The present epoch. Raises ValueError for an unusable one."""
    epoch = step.epoch() if callable(step.epoch) else step.epoch
    return values.check_name(epoch or "", f"step {step.name}: the epoch")


def wait_name(call: Call) -> str:
    """The signal that wakes this call."""
    name = call.step.name
    if len(name) > NAME_CHARS:
        name = f"{name[:NAME_CHARS]}.{hashlib.sha256(name.encode()).hexdigest()[:12]}"
    return f"org {name}#{call.ordinal}"
