"""The waterfall: steps in order until one gives a value that is accepted (law 50.8).

Each step is a boundary of its own, so marks, look-ups, keys, retries and kept failures are what they are elsewhere. What the
waterfall adds is one recorded value for each value that it judged: the verdict, under the waterfall's name and the step's. The verdict
that accepts is the waterfall's answer; it stands also where a declared retry or a redrive set the failures before it aside.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from typing import Any

from fencepost import values
from fencepost.authoring import Step
from fencepost.worker.answers import Answer, NoAnswer, Said
from fencepost.worker.keeping import Keeping
from fencepost.worker.recording import Recording
from fencepost.worker.stepping import Stepping

Accept = Callable[[Any], bool]


class Waterfalls:
    """The waterfalls of one pass through the code."""

    __slots__ = ("_engine", "_recorded", "_steps")

    def __init__(self, keeping: Keeping, stepping: Stepping, recording: Recording) -> None:
        self._engine = keeping.engine
        self._steps = stepping
        self._recorded = recording

    async def fall(
        self, name: str, members: Sequence[Step[..., Any]], accept: Accept | None, hashed: str, args: tuple[Any, ...], kwargs: dict[str, Any]
    ) -> Answer[Any] | NoAnswer:  # fmt: skip
        """The first accepted value. An unknown member raises StepOutcomeUnknown here, and the next is not asked."""
        judge_members(name, members)
        engine = self._engine
        nth = engine.count("value", f"waterfall {name}")
        answered = next((step for step in members if self._has_accepted(name, step, nth)), None)
        said: list[Said] = []
        for step in members:
            if answered is not None and step is not answered and not self._steps.has_record(step):
                engine.count("step", step.name)  # passed over when it was answered, and set aside since
                continue
            state, text = await self._steps.outcome(step, hashed, args, kwargs)
            if state == "failed":
                why: dict[str, Any] = values.decode(text or "{}", dict[str, Any])
                said.append(Said(step.name, "failed", str(why.get("message", ""))))
                continue
            value = await self._steps.given(step, state, text)
            verdict = functools.partial(_judge, name, accept, value)
            if await self._recorded.at(_verdict(name, step), nth, verdict, bool):
                return Answer(value, step.name)
            said.append(Said(step.name, "refused"))
        return NoAnswer(tuple(said))

    def _has_accepted(self, name: str, step: Step[..., Any], nth: int) -> bool:
        recorded = self._engine.recorded.get(("value", _verdict(name, step), nth))
        return recorded is not None and recorded.resolved and recorded.value == "true"


def judge_members(name: str, members: Sequence[Step[..., Any]]) -> None:
    """Raises TypeError or ValueError, before anything begins, for what is no waterfall."""
    if ": " in values.check_name(name, "a waterfall's name"):
        raise ValueError(
            f"waterfall {name!r}: leave out ': ', which stands between its name and a step's in the record"
        )
    for step in members:
        if not isinstance(step, Step):
            raise TypeError(f"waterfall {name} takes functions declared with @app.step, not {step!r}")
        _ = step.returns
    if not members or len({step.name for step in members}) != len(members):
        raise ValueError(f"waterfall {name} takes at least one step, each once")


def _verdict(name: str, step: Step[..., Any]) -> str:
    return f"waterfall {name}: {step.name}"


def _judge(name: str, accept: Accept | None, value: Any) -> bool:
    verdict: object = value is not None if accept is None else accept(value)
    if not isinstance(verdict, bool):  # an async function's coroutine would be true whatever it found
        raise TypeError(f"waterfall {name}: accept gives True or False, not {type(verdict).__name__}")
    return verdict
