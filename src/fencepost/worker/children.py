"""Children: runs that a run starts, once each, and may wait for (laws 50.4, 60.10)."""

from __future__ import annotations

import hashlib
from typing import Any

from fencepost import keys, suspension, values
from fencepost.authoring import Workflow
from fencepost.errors import LaunchConflict, LaunchRefused
from fencepost.suspension import ChildRefused, Resolved, Started, Wait
from fencepost.worker.execution import Ran
from fencepost.worker.keeping import Keeping
from fencepost.worker.waits import Waits


class Children:
    """The children of one pass through the code."""

    __slots__ = ("_engine", "_keeping", "_leg", "_waits")

    def __init__(self, keeping: Keeping, waits: Waits) -> None:
        self._keeping = keeping
        self._waits = waits
        self._leg = keeping.leg
        self._engine = keeping.engine

    async def child(self, workflow: Workflow[Any, Any], input: Any, id: str | None, *, waits: bool) -> Resolved:
        """Start a child; `waits`: and wait for its end, whose document is the value. Else the value is its run id."""
        if not isinstance(workflow, Workflow):
            raise TypeError(f"a child is a workflow declared with @app.workflow, not {workflow!r}")
        engine = self._engine
        text = values.encode(input)
        ordinal = engine.count("child", workflow.name)
        hashed = keys.hash_args(values.encode([id, text, waits]))
        recorded = await engine.enter(("child", workflow.name, ordinal), hashed)
        with engine.at_boundary():
            await self._raise_recorded_refusal(workflow.name, ordinal, hashed)
            if recorded is not None and recorded.resolved:
                await engine.replay(recorded)
                return Resolved("child", workflow.name, ordinal, recorded.state, recorded.seq, recorded.value)
            await engine.hold()
            armed = recorded is not None and recorded.state == "armed"
            if not armed:
                child_id = id or _child_id(self._leg.claimed.id, workflow.name, ordinal)
                seq = await self._keeping.perform(
                    lambda: self._start(workflow, ordinal, hashed, child_id, text, waits=waits)
                )
                if not waits:
                    await engine.in_order(seq)
                    return Resolved("child", workflow.name, ordinal, "kept", seq, values.encode(child_id))
            wait = Wait(kind="child", name=workflow.name, ordinal=ordinal)
            return await self._keeping.perform(lambda: self._waits.wait(wait, armed=True))

    async def _start(
        self, workflow: Workflow[Any, Any], ordinal: int, hashed: str, child_id: str, text: str, *, waits: bool
    ) -> int:
        leg = self._leg
        with self._engine.calling():
            answer = await suspension.start_child(
                leg.face.db, leg.fence, workflow.name, ordinal, hash=hashed, waits=waits, child_id=child_id, child_name=workflow.name,
                input=text, on_lost=workflow.on_lost,
            )  # fmt: skip
        match answer:
            case Started(_, _, seq):
                leg.committed()
                return seq or 0
            case ChildRefused(why):
                refused = Ran(values.encode({"why": why, "id": child_id}))
                seq, _, doc = await self._keeping.keep(
                    "value", _refused_name(workflow.name, ordinal), 1, hashed, refused
                )
                await self._engine.in_order(seq)
                raise _refusal(workflow.name, doc)
            case gone:
                await leg.gone(gone)

    async def _raise_recorded_refusal(self, name: str, ordinal: int, hashed: str) -> None:
        """That a child could not be started is recorded: code that goes on from there replays the same way."""
        key = ("value", _refused_name(name, ordinal), 1)
        if key in self._engine.recorded:
            refused = await self._engine.enter(key, hashed)
            if refused is not None:
                await self._engine.replay(refused)
                raise _refusal(name, refused.value)


def _refused_name(name: str, ordinal: int) -> str:
    return f"refused child {name}#{ordinal}"


def _refusal(name: str, text: str | None) -> Exception:
    doc = values.decode(text or "{}", dict[str, str])
    if doc.get("why") == "conflict":
        return LaunchConflict(doc.get("id", ""), [{"path": "$", "given": {"name": name}}])
    return LaunchRefused(f"child {doc.get('id')!r}: an unusable id or name")


def _child_id(parent: str, name: str, ordinal: int) -> str:
    """A child's id says whose it is; one that would be too long is shortened by a hash of the whole."""
    whole = f"{parent}/{name}/{ordinal}"
    if len(whole) <= 200:
        return whole
    return f"{whole[:150]}…{hashlib.sha256(whole.encode()).hexdigest()[:32]}"
