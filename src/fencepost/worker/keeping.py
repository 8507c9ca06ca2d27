"""Keeping: what came of a boundary is committed, and the code is given what is stored, on the first pass too (law 50.1)."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING, Any, NoReturn, ParamSpec, TypeVar

import asyncpg

from fencepost import faults, steps, values
from fencepost.errors import BrokenLaw, DatabaseUnavailable
from fencepost.steps import Kept, KeptBefore
from fencepost.words import BoundaryKind
from fencepost.worker.execution import Broke, Ran
from fencepost.worker.replay import Engine

if TYPE_CHECKING:
    from fencepost.worker.leg import Leg

W = ParamSpec("W")
T = TypeVar("T")

Kept3 = tuple[int, str, str | None]  # sequence, state, text


class Keeping:
    """What every boundary of one pass through the code needs: its leg, its engine, and the way to the record and back."""

    __slots__ = ("engine", "leg")

    def __init__(self, leg: Leg, engine: Engine) -> None:
        self.leg = leg
        self.engine = engine

    async def perform(self, work: Callable[W, Awaitable[T]], *args: W.args, **kwargs: W.kwargs) -> T:
        """Do a boundary's work, outside the workflow's own variables: tasks that author code starts inside a step are not branches.

        What a door refuses there is a bug of ours, and not for author code to catch.
        """
        engine = self.engine
        token = engine.step_inside()
        try:
            return await work(*args, **kwargs)
        except (BrokenLaw, DatabaseUnavailable, asyncpg.PostgresError) as error:
            engine.break_off(error)
            await engine.never()
        finally:
            engine.step_outside(token)

    async def keep(
        self, kind: BoundaryKind, name: str, ordinal: int, hashed: str, outcome: Ran | Broke, *, repeatable: bool = True
    ) -> Kept3:
        """Commit a result; what is stored, which is another where an earlier write won. By a dead fence it never returns."""
        leg = self.leg
        ok = isinstance(outcome, Ran)
        with self.engine.calling():
            answer = await steps.keep(
                leg.face.db,
                leg.fence,
                kind,
                name,
                ordinal,
                hash=hashed,
                repeatable=repeatable,
                ok=ok,
                value=outcome.text,
            )
            if isinstance(answer, Kept):
                leg.committed()
                if faults.hook is not None:
                    await faults.reach("step.kept", step=name)
        match answer:
            case Kept(seq):
                return seq, "kept" if ok else "failed", outcome.text
            case KeptBefore(seq, state, value):
                return seq, state, value
            case stale:
                if not repeatable:
                    await steps.deliver_late(leg.face.db, leg.fence, name, ordinal, ok=ok, value=outcome.text)
                await leg.gone(stale)

    async def decoded(self, what: str, text: str | None, type_: Any) -> Any:
        """A stored value as the code declares it. One it cannot read ends the leg: it waits for code that can (law 50.4)."""
        try:
            return values.decode(text if text is not None else "null", type_)
        except values.Undecodable as error:
            await self.undecodable(what, error)

    async def undecodable(self, what: str, error: values.Undecodable) -> NoReturn:
        """Nothing is lost: the run waits for code that can read its history."""
        self.engine.end_unfit(f"{what}: {error}", code="UNDECODABLE")
        await self.engine.never()
