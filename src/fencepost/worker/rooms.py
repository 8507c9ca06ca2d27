"""The rooms behind the Context, each opened when the code first enters it: most workflows need few."""

from __future__ import annotations

from functools import cached_property
from typing import TYPE_CHECKING

from fencepost.worker.children import Children
from fencepost.worker.keeping import Keeping
from fencepost.worker.mapping import TableMaps
from fencepost.worker.maps import Maps
from fencepost.worker.recording import Recording
from fencepost.worker.stepping import Stepping
from fencepost.worker.telling import Telling
from fencepost.worker.waits import Waits
from fencepost.worker.waterfall import Waterfalls

if TYPE_CHECKING:
    from fencepost.worker.leg import Leg


class Rooms:
    """Of one pass through the code."""

    def __init__(self, leg: Leg, keeping: Keeping, waits: Waits) -> None:
        self._leg = leg
        self._keeping = keeping
        self._waits = waits

    @cached_property
    def _telling(self) -> Telling:
        return Telling(self._keeping)

    @cached_property
    def _steps(self) -> Stepping:
        return Stepping(self._keeping, self._telling, self._waits)

    @cached_property
    def _maps(self) -> Maps:
        return Maps(self._keeping, self._telling)

    @cached_property
    def _tables(self) -> TableMaps:
        return TableMaps(self._keeping, self._telling)

    @cached_property
    def _children(self) -> Children:
        return Children(self._keeping, self._waits)

    @cached_property
    def _recorded(self) -> Recording:
        return Recording(self._keeping)

    @cached_property
    def _waterfalls(self) -> Waterfalls:
        return Waterfalls(self._keeping, self._steps, self._recorded)
