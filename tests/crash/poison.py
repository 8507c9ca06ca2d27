"""S42: a run, or a row, that takes its process along each time. It is stopped, and nobody beside it comes to harm."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

from fencepost import recovery
from tests.crash import code, effects
from tests.crash.boundaries import Boundary
from tests.crash.scenario import Case, Scenario
from tests.crash.stage import Stage

if TYPE_CHECKING:
    from tests.crash.campaign import Tally


class Poison:
    """`losses`: so many processes die of it before it is stopped. What kills them is the code itself."""

    def __init__(self, name: str, workflow: Any, losses: int, code: str) -> None:
        self.name = name
        self.workflow = workflow
        self.losses = losses
        self.code = code

    async def play(self, stage: Stage, tally: Tally) -> None:
        """Worker after worker, until the poison is stopped; then its neighbours' ends, then its own."""
        run = f"{self.name}-{stage.name}"
        stage.begin()
        await stage.gate(False)
        neighbours = [f"{run}-neighbour{n}" for n in range(3)]
        for place, name in enumerate([neighbours[0], run, *neighbours[1:]]):
            await stage.client.start(self.workflow if name == run else code.straight, id=name, priority=-place)
        tally.known = [Boundary("died", "", n + 1) for n in range(self.losses)]
        for boundary in tally.known:
            await self._die(stage, run)
            tally.hit.add(boundary)
            tally.crashes += 1
        await self._stopped(stage, run)
        await stage.gate(True)
        for name in neighbours:
            outcome = await stage.within(stage.settled(name), f"the end of {name}")
            if outcome.status == "unknown":  # it was beside the poison when the process died, inside a step
                case = Case(stage, name, disturbed=True)
                await ask_operator(case)
                outcome = await stage.within(stage.settled(name), f"the end of {name}")
            assert outcome.status == "completed", outcome
            counted = effects.counted(stage.noted(name))
            assert counted["effect", "a"] == 1, counted
            losses = await stage.value(
                "select o.tries from fencepost.outcome o join fencepost.run r using (rid) where r.id = $1", name
            )
            assert losses <= 2, f"{name} was lost {losses} times for its neighbour's poison"
        await self._end(stage, run)
        await stage.judge()

    async def _die(self, stage: Stage, run: str) -> None:
        """A worker takes it, and dies of it."""
        worker = await stage.fork(role="worker", app="main", concurrency=4)
        try:
            await stage.within(worker.ended.wait(), f"the death by {run}")
        finally:
            await stage.dismiss(worker)
        assert worker.exit is None, "it ended by itself"
        await stage.look()

    async def _stopped(self, stage: Stage, run: str) -> None:
        worker = await stage.fork(role="worker", app="main")
        try:
            outcome = await stage.within(stage.settled(run), f"the end of {run}")
        finally:
            await stage.dismiss(worker)
        assert outcome.status == "unknown", outcome
        assert json.loads(outcome.error or "{}")["code"] == self.code, outcome
        poisoned = "poison" if self.code == "LOST_TOO_OFTEN" else "row2"
        begins = effects.counted(stage.noted(run))["begin", poisoned]
        assert begins == self.losses, f"{begins} begins"

    async def _end(self, stage: Stage, run: str) -> None:
        """An operator who knows: the run, or its row, failed."""
        error = json.dumps({"code": "STEP_FAILED", "message": "poison"})
        row = None if self.code == "LOST_TOO_OFTEN" else "2"
        answer = await recovery.resolve(
            stage.db, "default", run, step=None if row is None else "poisoned_row", ordinal=None if row is None else 1, row_key=row,
            verdict="failed", value=error, by="the harness",
        )  # fmt: skip
        assert answer[0] == "done", answer
        outcome = await stage.within(stage.settled(run), f"the end of {run}")
        assert outcome.status == "failed", outcome
        if row is not None:
            counted = effects.counted(stage.noted(run))
            assert all(counted["effect", f"row{n}"] == 1 for n in (0, 1)), counted
            assert counted["begin", "row2"] == 1, counted


async def ask_operator(case: Case) -> None:
    """The operator of the other scenarios."""
    await Scenario("operator").operate(case)


POISONS = [
    Poison("S42", code.poisoned, losses=5, code="LOST_TOO_OFTEN"),
    Poison("S42r", code.poisoned_rows, losses=1, code="STEP_OUTCOME_UNKNOWN"),
]
