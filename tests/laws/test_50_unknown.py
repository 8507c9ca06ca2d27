"""Laws 50.2, 50.10: what can happen to a step, as one table.

Effects are counted in a file outside the database.
"""

from __future__ import annotations

import contextlib
import json
import uuid
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import Any, Literal

import pytest

from fencepost import Answer, App, Context, Retry, Step, StepFailed, StepOutcomeUnknown, recovery, step_key, terminal
from tests.legs import ORG, Driver, Effects

pytestmark = pytest.mark.usefixtures("lawful")

Outcome = Literal["kept", "failed", "unknown"]


@dataclass
class World:
    """One step and its workflow. `mended`: the world has changed, and what failed would work now."""

    driver: Driver
    app: App
    effects: Effects
    outcome: Outcome
    mended: bool = False
    keys: tuple[str, ...] = ()

    def pay(self, **options: Any) -> Step[..., str]:
        async def pay(row: str = "") -> str:
            self.effects.happen(f"pay {row}".strip())
            self.keys += (step_key(),)
            if self.outcome == "failed" and not self.mended and row in ("", "b"):
                raise ValueError("declined")
            return f"receipt {row}".strip()

        step: Step[..., str] = self.app.step(**options)(pay)
        return step

    async def first_leg(self) -> None:
        """The leg in which the step comes to its outcome; lost after it."""
        if self.outcome == "unknown":
            await self.driver.lose_at("step.end", when=lambda facts: facts["step"] == "pay")
        else:
            await self.driver.lose_at("statement.executed", when=lambda facts: facts["door"] == "keep_steps")


def told(error: BaseException) -> str:
    return f"{type(error).__name__}: {getattr(error, 'type', '')}"


# The table: act -> outcome -> (what the code sees at last, status, effects)

TABLE: dict[str, dict[Outcome, tuple[Any, str, int]]] = {
    "replay": {
        "kept": ("receipt", "completed", 1),
        "failed": ("StepFailed: ValueError", "completed", 1),
        "unknown": ("StepOutcomeUnknown: ", "unknown", 1),
    },
    "declared retry": {
        "kept": ("receipt", "completed", 1),
        "failed": ("receipt", "completed", 2),
        "unknown": ("StepOutcomeUnknown: ", "unknown", 1),
    },
    "map": {
        "kept": (["receipt a", "receipt b", "receipt c"], "completed", 3),
        "failed": (["receipt a", "receipt c", "b: StepFailed: ValueError"], "completed", 3),
        "unknown": ("StepOutcomeUnknown: a b c", "unknown", 3),
    },
    "waterfall": {
        "kept": ("pay: receipt", "completed", 1),
        "failed": ("other: receipt of another", "completed", 2),
        "unknown": ("StepOutcomeUnknown: ", "unknown", 1),
    },
    "cancel": {
        "kept": ("kept", "cancelled", 1),
        "failed": ("failed", "cancelled", 1),
        "unknown": ("unknown", "cancelled", 1),
    },
    "redrive": {
        "kept": ("receipt", "completed", 1),
        "failed": ("receipt", "completed", 2),
        "unknown": ("StepOutcomeUnknown: ", "unknown", 1),
    },
    "operator": {
        "kept": ("no unknown step has this name and number", "completed", 1),
        "failed": ("no unknown step has this name and number", "completed", 1),
        "unknown": ("by hand", "completed", 1),
    },
}


async def _replay(world: World) -> Any:
    pay, seen = world.pay(), list[str]()

    @world.app.workflow()
    async def flow(ctx: Context) -> str:
        try:
            seen.append(await ctx.step(pay))
        except (StepFailed, StepOutcomeUnknown) as error:
            seen.append(told(error))
            if world.outcome == "unknown":
                raise
        return seen[-1]

    run = await world.driver.start(flow)
    await world.first_leg()
    doc = await world.driver.run_until(run, "completed", "unknown")
    assert len(set(seen)) == 1
    return seen[-1], doc["status"]


async def _declared_retry(world: World) -> Any:
    pay, seen = world.pay(), list[str]()

    @world.app.workflow(retry=Retry(9, delay=0))
    async def flow(ctx: Context) -> str:
        try:
            seen.append(await ctx.step(pay))
        except StepOutcomeUnknown as error:
            seen.append(told(error))
            raise KeyError("whatever it raises") from error
        if not world.mended:
            world.mended = True
            raise OSError("try again")
        return seen[-1]

    run = await world.driver.start(flow)
    if world.outcome == "unknown":
        await world.first_leg()
    elif world.outcome == "failed":
        assert await world.driver.run_one_leg() == "retrying"
        world.mended = True
    doc = await world.driver.run_until(run, "completed", "unknown")
    assert doc["status"] != "unknown" or (await world.driver.error(run))["code"] == "STEP_OUTCOME_UNKNOWN"
    return seen[-1], doc["status"]


async def _map(world: World) -> Any:
    pay, seen = world.pay(), list[Any]()

    @world.app.workflow()
    async def flow(ctx: Context) -> list[str]:
        try:
            found = await ctx.map(pay, ["a", "b", "c"], key=str, tolerance=1)
        except StepOutcomeUnknown as error:
            seen.append(f"StepOutcomeUnknown: {' '.join(error.keys)}")
            raise
        seen.append([*found, *(f"{key}: {told(error)}" for key, error in found.failed.items())])
        return list(found)

    run = await world.driver.start(flow)
    if world.outcome == "unknown":
        await world.driver.lose_at("step.end", nth=3, stand=1)
    else:
        await world.driver.lose_at("statement.executed", when=lambda facts: facts["door"] == "keep_steps")
    doc = await world.driver.run_until(run, "completed", "unknown")
    assert all(one == seen[0] for one in seen)
    return seen[-1], doc["status"]


async def _waterfall(world: World) -> Any:
    pay, seen = world.pay(), list[str]()

    @world.app.step()
    async def other() -> str:
        world.effects.happen("pay another")
        return "receipt of another"

    @world.app.workflow()
    async def flow(ctx: Context) -> str:
        try:
            found = await ctx.waterfall("pay", [pay, other])
        except StepOutcomeUnknown as error:
            seen.append(told(error))
            raise
        assert isinstance(found, Answer)
        seen.append(f"{found.provider}: {found.value}")
        return seen[-1]

    run = await world.driver.start(flow)
    await world.first_leg()
    doc = await world.driver.run_until(run, "completed", "unknown")
    assert len(set(seen)) == 1
    return seen[-1], doc["status"]


async def _cancel(world: World) -> Any:
    pay = world.pay()

    @world.app.workflow()
    async def flow(ctx: Context) -> None:
        with contextlib.suppress(StepFailed):
            await ctx.step(pay)
        await ctx.wait_for("never", int)

    run = await world.driver.start(flow)
    await world.first_leg()
    assert await world.driver.cancel(run) == "accepted"
    return (await world.driver.states(run))["step pay#1"], (await world.driver.show(run))["status"]


async def _redrive(world: World) -> Any:
    pay, seen = world.pay(), list[str]()

    @world.app.workflow()
    async def flow(ctx: Context) -> str:
        try:
            seen.append(await ctx.step(pay))
        except StepOutcomeUnknown as error:
            seen.append(told(error))
            raise
        if not world.mended:
            raise OSError("the end of it")
        return seen[-1]

    run = await world.driver.start(flow)
    await world.first_leg()
    if world.outcome == "unknown":
        assert (await terminal.end(world.driver.db, ORG, run, by="a person", reason="enough"))[0] == "done"
    else:
        assert (await world.driver.run_until(run))["status"] == "failed"
    world.mended = True
    again = f"again-{uuid.uuid4().hex}"
    answer = await recovery.redrive(world.driver.db, ORG, run, new_id=again, from_step=None, again=[], by="a person")
    assert answer == ("created", None)
    doc = await world.driver.run_until(again, "completed", "unknown")
    assert len(set(world.keys)) == 1, "a redrive keeps its origin's keys"
    return seen[-1], doc["status"]


async def _operator(world: World) -> Any:
    pay = world.pay()

    @world.app.workflow()
    async def flow(ctx: Context) -> str:
        try:
            return await ctx.step(pay)
        except StepFailed as error:
            return error.code

    run = await world.driver.start(flow)
    await world.first_leg()
    if world.outcome == "unknown":
        await world.driver.run_until(run, "unknown")
        await world.driver.resolve(run, "pay", "completed", "by hand")
        doc = await world.driver.run_until(run)
        return json.loads(doc["output"]), doc["status"]
    answer = await recovery.resolve(
        world.driver.db,
        ORG,
        run,
        step="pay",
        ordinal=1,
        row_key=None,
        verdict="completed",
        value='"by hand"',
        by="a person",
    )
    doc = await world.driver.run_until(run)
    assert doc["output"] in ('"receipt"', '"STEP_FAILED"')
    return answer[1], doc["status"]


ACTS: dict[str, Callable[[World], Awaitable[Any]]] = {
    "replay": _replay, "declared retry": _declared_retry, "map": _map, "waterfall": _waterfall, "cancel": _cancel, "redrive": _redrive,
    "operator": _operator,
}  # fmt: skip
CELLS = [(act, outcome) for act, row in TABLE.items() for outcome in row]


@pytest.mark.parametrize(("act", "outcome"), CELLS, ids=str)
async def test_what_can_happen_to_a_step(
    driver: Driver, app: App, effects: Effects, act: str, outcome: Outcome
) -> None:
    """50.2, 50.10 The table of the pages, cell by cell."""
    seen, status = await ACTS[act](World(driver, app, effects, outcome))
    assert (seen, status, len(effects.all())) == TABLE[act][outcome]
