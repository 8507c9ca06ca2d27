"""Telling: nobody knows what became of a step or of rows, and the code is told so, again on every replay while it is so."""

from __future__ import annotations

import itertools
from collections.abc import Awaitable, Callable
from typing import NoReturn

from fencepost import values
from fencepost.errors import StepOutcomeUnknown
from fencepost.worker.execution import Ran
from fencepost.worker.history import Recorded, told_name
from fencepost.worker.keeping import Keeping


class Telling:
    """The unknown outcomes that one pass through the code is told of."""

    __slots__ = ("_engine", "_keeping", "_leg")

    def __init__(self, keeping: Keeping) -> None:
        self._keeping = keeping
        self._leg = keeping.leg
        self._engine = keeping.engine

    async def unknown(self, kind: str, name: str, ordinal: int, keys: tuple[str, ...] = ()) -> NoReturn:
        """Tell the code that nobody knows. That it was told is recorded: code that goes on from here replays the same way."""
        self._leg.met_unknown = True
        nth = len(self._told(kind, name, ordinal)) + 1
        seq, _, _ = await self._keeping.keep("value", told_name(kind, name, ordinal), nth, "", Ran(values.encode(keys)))
        await self._engine.in_order(seq)
        raise StepOutcomeUnknown(name, ordinal, keys)

    def _told(self, kind: str, name: str, ordinal: int) -> list[Recorded]:
        """When earlier attempts were told so of this step or map, in order."""
        known, name = self._engine.recorded, told_name(kind, name, ordinal)
        return [
            known["value", name, nth]
            for nth in itertools.takewhile(lambda n: ("value", name, n) in known, itertools.count(1))
        ]

    def last(self, kind: str, name: str, ordinal: int) -> float:
        """The place of the last time that earlier attempts were told so; those before it are passed over. 0: never."""
        every = self._told(kind, name, ordinal)
        for told in every[:-1]:
            told.asked = True
        return every[-1].seq if every else 0

    async def again(self, recorded: Recorded, is_still_so: Callable[[Recorded], Awaitable[bool]]) -> None:
        """Where an earlier attempt was told Unknown and that is still so, say it again, in its place among the results.

        Where it is not so any more, the step is answered or asked afresh. The leg overrules this where the history fits the other
        way only (ways.py). Being told once more is recorded anew: what was told last counts.
        """
        leg, engine = self._leg, self._engine
        every = self._told(recorded.kind, recorded.name, recorded.ordinal)
        for told in every:
            told.asked = True
        if not every:
            return
        told = every[-1]
        is_told = leg.ways.meet(told.key)
        if is_told is None:
            with engine.preparing(told):
                is_told = not recorded.resolved and await self._keeping.perform(lambda: is_still_so(told))
            leg.ways.take(told.key, told=is_told)
        if not is_told:
            return
        await engine.replay(told)
        # Unresolved still (law 40.6)? Of a map's rows only the door that ends the leg knows.
        leg.met_unknown |= recorded.state == "marked"
        raise StepOutcomeUnknown(recorded.name, recorded.ordinal, values.decode(told.value or "[]", list[str]))
