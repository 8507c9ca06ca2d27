"""Stepping: one call of a step. Mark it, execute it, look up what went out of sight, keep what came of it (laws 50.1-50.4, 50.10, 50.11)."""

from __future__ import annotations

from collections.abc import Awaitable
from typing import Any

from fencepost import faults, keys, steps
from fencepost.authoring import Absent, Found, Step, Unknown
from fencepost.words import Cancelling, Stale
from fencepost.worker.call import Call
from fencepost.worker.execution import Broke, OutOfSight, Ran, execute, failure, found_value, look_up, look_up_mark
from fencepost.worker.history import Recorded
from fencepost.worker.keeping import Keeping, Kept3
from fencepost.worker.sharing import Sharing
from fencepost.worker.telling import Telling
from fencepost.worker.waits import Waits


class Stepping:
    """The step calls of one pass through the code."""

    __slots__ = ("_answers", "_engine", "_keeping", "_leg", "_sharing", "_telling", "_waits")

    def __init__(self, keeping: Keeping, telling: Telling, waits: Waits) -> None:
        self._keeping = keeping
        self._waits = waits
        self._sharing: Sharing | None = None  # opened by the first step of scope org
        self._telling = telling
        self._leg = keeping.leg
        self._engine = keeping.engine
        # Of look-ups asked during replay, by step key: Found is final.
        self._answers: dict[str, Found[Any] | Absent | Unknown] = {}

    async def step(self, step: Step[..., Any], hashed: str, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        """What the code is given of this call: the stored value, or the stored failure raised. `hashed`: of the arguments."""
        state, text = await self.outcome(step, hashed, args, kwargs)
        return await self.given(step, state, text)

    async def outcome(
        self, step: Step[..., Any], hashed: str, args: tuple[Any, ...], kwargs: dict[str, Any]
    ) -> tuple[str, str | None]:
        """What is stored of this call, in its turn: kept or failed, and the text."""
        engine = self._engine
        call = Call(step, engine.count("step", step.name), hashed, args, kwargs)
        if step.scope == "org":
            self._sharing = self._sharing or Sharing(self._keeping, self._telling, self._waits)
            return await self._sharing.outcome(call)
        recorded = await engine.enter(call.place, hashed)
        with engine.at_boundary():
            if recorded is not None:
                await self._telling.again(recorded, lambda _: self._is_still_unknown(call))
                if recorded.resolved:
                    await engine.replay(recorded)
                    return recorded.state, recorded.value
            await engine.hold()
            seq, state, text = await self._keeping.perform(self._do, call, recorded)
            await engine.in_order(seq)
            return state, text

    def has_record(self, step: Step[..., Any]) -> bool:
        """The next call of this step is recorded, and nothing has set that aside."""
        recorded = self._engine.recorded.get(("step", step.name, self._engine.counted("step", step.name) + 1))
        return recorded is not None and recorded.state != "set_aside"

    async def given(self, step: Step[..., Any], state: str, text: str | None) -> Any:
        """What the code is given of a stored result: always the decoded stored value (law 50.1)."""
        if state == "failed":
            raise failure(step, text or "{}")
        return await self._keeping.decoded(f"step {step.name}", text, step.returns)

    async def _do(self, call: Call, recorded: Recorded | None) -> Kept3:
        leg, step = self._leg, call.step
        key = self._key(call)
        marked_before = recorded is not None and recorded.state == "marked"
        if marked_before and recorded is not None and not recorded.repeatable:
            found = await self._resolve_mark(call, str(key))
            if isinstance(found, Ran):
                return await self._keep(call, found)

        async def may_go_on() -> bool:  # by a dead fence, or after a cancel, nothing more is begun (laws 40.4, 80.4)
            return isinstance(await self._mark(call, again=False), str)

        if not step.repeatable or step.timeout is not None:
            marking = await self._mark(call, again=marked_before)
            if not isinstance(marking, str):
                await leg.gone(marking)
            elif marking != "marked":
                await self._telling.unknown("step", step.name, call.ordinal)
            if faults.hook is not None:
                await faults.reach("step.marked", step=step.name, key=str(key))
        outcome = await execute(
            leg.face, leg.threads, step, key, call.args, call.kwargs, may_go_on=None if step.repeatable else may_go_on
        )
        if isinstance(outcome, OutOfSight):
            # Absent counts as Unknown here: its code may still run (law 50.11).
            answer = await look_up(step, str(key), call.args, call.kwargs)
            if not isinstance(answer, Found):
                await self._telling.unknown("step", step.name, call.ordinal)
            outcome = found_value(answer)
        return await self._keep(call, outcome)

    def _key(self, call: Call) -> keys.CallKey:
        return keys.CallKey(self._leg.claimed.key_root, "step", call.step.name, call.ordinal)

    def _mark(self, call: Call, *, again: bool) -> Awaitable[steps.Marking | Stale | Cancelling]:
        leg, step = self._leg, call.step
        timeout_ms = None if step.longest is None else int(step.longest * 1000)
        return steps.mark(
            leg.face.db, leg.fence, step.name, call.ordinal, hash=call.hash, repeatable=step.repeatable, timeout_ms=timeout_ms, again=again
        )  # fmt: skip

    def _keep(self, call: Call, outcome: Ran | Broke) -> Awaitable[Kept3]:
        step = call.step
        return self._keeping.keep("step", step.name, call.ordinal, call.hash, outcome, repeatable=step.repeatable)

    async def _resolve_mark(self, call: Call, key: str) -> Ran | None:
        """Law 50.11, for a mark of an earlier attempt. Found: its value. None: a run is permitted. Else StepOutcomeUnknown."""
        leg, step = self._leg, call.step
        answer = await look_up_mark(
            step, key, call.args, call.kwargs, self._answers.pop(key, None),
            lambda: steps.ask_mark(leg.face.db, leg.fence.rid, step.name, call.ordinal),
        )  # fmt: skip
        if isinstance(answer, Unknown):
            await self._telling.unknown("step", step.name, call.ordinal)
        return found_value(answer) if isinstance(answer, Found) else None

    async def _is_still_unknown(self, call: Call) -> bool:
        """Nothing but Unknown would come of resolving this step's mark now. Raises nothing, records nothing."""
        step = call.step
        recorded = self._engine.recorded["step", step.name, call.ordinal]
        if recorded.state != "marked" or recorded.repeatable:
            return False
        key = str(self._key(call))
        answer = self._answers[key] = await look_up(step, key, call.args, call.kwargs)
        if isinstance(answer, Absent) and not step.key_honoured:
            return await steps.ask_mark(self._leg.face.db, self._leg.fence.rid, step.name, call.ordinal) is None
        return isinstance(answer, Unknown)
