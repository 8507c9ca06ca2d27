"""Recording: values that differ from pass to pass (the clock, chance, which code this is), recorded once."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from datetime import datetime
from typing import Any, cast

from fencepost import values
from fencepost.worker.execution import Ran
from fencepost.worker.keeping import Keeping, Kept3


class Recording:
    """The recorded values of one pass through the code."""

    __slots__ = ("_changed", "_engine", "_keeping")

    def __init__(self, keeping: Keeping) -> None:
        self._keeping = keeping
        self._engine = keeping.engine
        self._changed: dict[str, bool] = {}

    async def value(self, name: str, make: Callable[[], Any], type_: Any) -> Any:
        """What `make` (a function, or one that gives a coroutine) gave when it was first asked."""
        return await self.at(name, self._engine.count("value", name), make, type_)

    async def at(self, name: str, ordinal: int, make: Callable[[], Any], type_: Any) -> Any:
        """The same, where the caller has counted."""
        engine = self._engine
        recorded = await engine.enter(("value", name, ordinal))
        with engine.at_boundary():
            if recorded is not None and recorded.resolved:
                await engine.replay(recorded)
                text = recorded.value
            else:
                await engine.hold()
                seq, _, text = await self._keeping.perform(lambda: self._make(name, ordinal, make))
                await engine.in_order(seq)
            return await self._keeping.decoded(name, text, type_)

    async def _make(self, name: str, ordinal: int, make: Callable[[], Any]) -> Kept3:
        made = make()
        made = await made if asyncio.iscoroutine(made) else made
        return await self._keeping.keep("value", name, ordinal, "", Ran(values.encode(made)))

    async def clock(self) -> datetime:
        """The database's time, not recorded."""
        row = (await self._keeping.leg.face.db.call("read_clock", patience=float("inf")))[0]
        return cast("datetime", row["read_clock"])

    async def changed(self, tag: str) -> bool:
        """False while recorded history is still to come, else True, and recorded (law 50.4)."""
        if tag not in self._changed:
            known = ("value", f"changed {tag}", 1) in self._engine.recorded
            self._changed[tag] = (
                bool(await self.value(f"changed {tag}", lambda: True, bool)) if known or self._at_the_end() else False
            )
        return self._changed[tag]

    def _at_the_end(self) -> bool:
        """No recorded boundary is still to be asked for."""
        return self._engine.live or self._engine.unasked() is None
