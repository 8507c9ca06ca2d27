"""One row of a map: marked when it is dispatched, run, kept by its index; or looked up, where an earlier attempt had marked it (law 50.6)."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from fencepost import faults, keys, steps
from fencepost.authoring import Absent, Found, Step
from fencepost.words import Cancelling, Stale
from fencepost.worker.execution import Broke, Ran, execute, found_value, look_up

if TYPE_CHECKING:
    from fencepost.worker.leg import Leg

Note = Callable[[int, str, Ran | Broke | None], None]  # index, key, what came of it; None: nobody knows


@dataclass(slots=True)
class RowWork:
    """What rows of one map have in common. `note` is told what became of each."""

    leg: Leg
    step: Step[..., Any]
    ordinal: int
    note: Note
    mid: int = 0
    done: int = 0  # kept, by this leg and before

    async def row(self, index: int, key: str, args: tuple[Any, ...], *, marked: bool) -> None:
        """Do a row that is not committed. `marked`: by an earlier attempt."""
        step = self.step
        step_key = keys.step_key(self.leg.claimed.key_root, "row", step.name, self.ordinal, key)
        if marked and not step.repeatable:
            answer = await look_up(step, step_key, args, {})
            if isinstance(answer, Found):
                await self.keep(index, key, found_value(answer))
            elif isinstance(answer, Absent) and step.key_honoured:
                # The mark stays its old holder's: it is the same call.
                await self._do(index, key, step_key, args)
            else:
                self.note(index, key, None)
            return
        marking = await steps.mark_row(self.leg.face.db, self.leg.fence, self.mid, index)
        if isinstance(marking, Stale | Cancelling):
            await self.leg.gone(marking)
        if marking == "standing":  # marked when the step was declared not repeatable
            self.note(index, key, None)
            return
        if marking == "done":
            raise AssertionError(f"row {key} of map {step.name} is committed: it must not run again")
        await self._do(index, key, step_key, args)

    async def _do(self, index: int, key: str, step_key: str, args: tuple[Any, ...]) -> None:
        leg, step = self.leg, self.step

        async def may_go_on() -> bool:
            return isinstance(await steps.mark_row(leg.face.db, leg.fence, self.mid, index), str)

        outcome = await execute(
            leg.face, leg.threads, step, step_key, args, {}, may_go_on=None if step.repeatable else may_go_on
        )
        if isinstance(outcome, Ran | Broke):
            await self.keep(index, key, outcome)
            return
        answer = await look_up(step, step_key, args, {})
        if isinstance(answer, Found):
            await self.keep(index, key, found_value(answer))
        else:
            self.note(index, key, None)

    async def keep(self, index: int, key: str, outcome: Ran | Broke) -> None:
        """Commit what came of a row."""
        ok = isinstance(outcome, Ran)
        answer = await steps.keep_row(
            self.leg.face.db, self.leg.fence, self.mid, index, "kept" if ok else "failed", outcome.text
        )
        if isinstance(answer, Stale):
            await self.leg.gone(answer)
        self.done += ok
        self.note(index, key, outcome)
        self.leg.committed()
        await faults.reach("row.kept", step=self.step.name, key=key, done=self.done)
