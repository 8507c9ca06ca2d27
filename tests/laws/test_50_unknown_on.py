"""Law 50.10: what a step's exception says about what happened, where the author declares that it says nothing."""

from __future__ import annotations

from pathlib import Path

import pytest

from fencepost import Absent, App, Context, Found, StepFailed, StepOutcomeUnknown, Unknown
from fencepost.db import Database
from fencepost.errors import BrokenLaw
from tests.legs import Driver, Effects

pytestmark = pytest.mark.usefixtures("lawful")


class AnswerLostError(ConnectionError):
    """The request left; what became of it nobody told us."""


@pytest.mark.parametrize(("knows", "ends"), [("found", "completed"), ("absent", "unknown"), ("cannot say", "unknown")])
async def test_an_exception_declared_to_leave_it_unknown_is_looked_up_and_never_a_failure(
    db: Database, tmp_path: Path, knows: str, ends: str
) -> None:
    """50.10 As after a loss, but in the leg that marked it Absent counts as Unknown (50.11)."""
    app, effects = App("lost answers"), Effects(tmp_path / "effects")

    async def find(key: str) -> Found[str] | Absent | Unknown:
        return {"found": Found(f"looked up {key[:2]}"[:9]), "absent": Absent(), "cannot say": Unknown()}[knows]

    @app.step(lookup=find, unknown_on=[AnswerLostError])
    async def pay() -> str:
        effects.happen("paid")
        raise AnswerLostError("the line broke")

    @app.workflow()
    async def sell(ctx: Context) -> str:
        return await ctx.step(pay)

    driver = Driver(db, app)
    run = await driver.start(sell)
    shown = await driver.run_until(run, ends)
    assert shown["status"] == ends
    assert effects.count("paid") == 1
    assert [s["state"] for s in shown["steps"] if s["name"] == "pay"] == ["kept" if ends == "completed" else "unknown"]
    if ends == "completed":
        assert await driver.output(run) == "looked up"


async def test_every_other_exception_of_the_step_says_that_it_failed(db: Database) -> None:
    """50.10"""
    app = App("failures")

    @app.step(unknown_on=[AnswerLostError])
    async def pay() -> str:
        raise ConnectionError("refused before anything left")

    @app.workflow()
    async def sell(ctx: Context) -> str:
        try:
            return await ctx.step(pay)
        except StepFailed as failed:
            return failed.type

    driver = Driver(db, app)
    run = await driver.start(sell)
    await driver.run_until(run, "completed")
    assert await driver.output(run) == "ConnectionError"


async def test_code_that_catches_the_unknown_may_go_on_and_the_step_stays_in_the_record(db: Database) -> None:
    """50.10 The run ends as success; the mark stays (40.6)."""
    app = App("catches")

    @app.step(unknown_on=[AnswerLostError])
    async def pay() -> str:
        raise AnswerLostError("the line broke")

    @app.step(repeatable=True)
    async def tell() -> str:
        return "told"

    @app.workflow()
    async def sell(ctx: Context) -> str:
        try:
            return await ctx.step(pay)
        except StepOutcomeUnknown:
            return await ctx.step(tell)

    driver = Driver(db, app)
    run = await driver.start(sell)
    await driver.run_until(run, "completed")
    assert await driver.output(run) == "told"


def test_a_repeatable_step_has_nothing_to_leave_unknown() -> None:
    """50.10"""
    with pytest.raises(ValueError, match="unknown_on says nothing"):
        App("a").step(repeatable=True, unknown_on=[AnswerLostError])(lambda: 1)


async def test_what_a_door_refuses_inside_a_step_is_not_for_author_code_to_catch(
    db: Database, monkeypatch: pytest.MonkeyPatch
) -> None:
    """00.4 A broken law ends the attempt; `except Exception` in a workflow never sees it."""
    app, caught = App("broken"), []

    @app.step(repeatable=True)
    async def add() -> int:
        return 1

    @app.workflow()
    async def sum_up(ctx: Context) -> int:
        try:
            return await ctx.step(add)
        except Exception as error:
            caught.append(error)
            return 0

    driver = Driver(db, app)
    await driver.start(sum_up)
    ask = db.ask

    async def refuse(door: str, *item: object, size: int = 0) -> object:
        if door == "keep_steps":
            raise BrokenLaw("LW001", "made up by the test")
        return await ask(door, *item, size=size)

    monkeypatch.setattr(db, "ask", refuse)
    with pytest.raises(BrokenLaw):
        await driver.run_one_leg()
    assert caught == []
