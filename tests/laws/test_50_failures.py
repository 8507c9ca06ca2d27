"""Law 50.10: a step that fails, is out of time, is cancelled from within, or returns what cannot be kept."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Awaitable, Callable
from datetime import datetime
from typing import Any

import pytest

from fencepost import App, Context, Retry, StepFailed, StepOutcomeUnknown
from fencepost.testing import pause_at
from fencepost.values import Unstorable
from tests.legs import Driver, Effects

pytestmark = pytest.mark.usefixtures("lawful")


class Rejected(Exception):
    def __init__(self, code: int, *, why: str = "") -> None:
        super().__init__(code, why)
        self.code = code


class Odd(Exception):
    """Its constructor does not take what it hands on."""

    def __init__(self, *, only: str) -> None:
        super().__init__(f"said: {only}", 7)


class Plain(Exception):
    pass


class Below(Plain):
    pass


def _refuses(error: Exception) -> Callable[[], Awaitable[None]]:
    async def step() -> None:
        raise error

    return step


@pytest.mark.parametrize(
    ("error", "seen"),
    [
        (Rejected(3), "Rejected(3, '')"),
        (Odd(only="x"), "Odd('said: x', 7)"),
        (Plain("quote " * 5000 + '"' * 15000), None),
        (Plain(object()), None),
        (Plain("a\0b"), None),
        (Plain(), "Plain()"),
        (Below("not declared itself"), "StepFailed('STEP_FAILED', 'not declared itself')"),
        (KeyError("k"), "StepFailed('STEP_FAILED', \"'k'\")"),
    ],
    ids=lambda value: type(value).__name__,
)
async def test_a_declared_class_is_raised_as_itself_on_the_first_pass_and_on_replay(
    driver: Driver, app: App, error: Exception, seen: str | None
) -> None:
    """50.10 Whatever its constructor takes and however long its words are; every other exception is StepFailed, both times."""
    caught: list[BaseException] = []
    step = app.step(name="bad", repeatable=True, errors=[Rejected, Odd, Plain])(_refuses(error))

    @app.workflow()
    async def flow(ctx: Context) -> str:
        try:
            await ctx.step(step)
        except Exception as raised:
            caught.append(raised)
        return "ok"

    run = await driver.start(flow)
    await driver.run_losing(run, 1)
    assert len(caught) > 1
    assert len({repr(one) for one in caught}) == 1
    assert repr(caught[0]) == seen or (seen is None and type(caught[0]) is type(error))


async def test_the_authors_time_out_is_a_failure_and_the_declared_one_says_so(driver: Driver, app: App) -> None:
    """50.10 TimeoutError of the author's: STEP_FAILED, at once; the declared time-out of a repeatable step: TIMED_OUT, after its retries."""
    tries: list[str] = []

    @app.step(repeatable=True, timeout=30)
    async def authors() -> None:
        tries.append("authors")
        async with asyncio.timeout(0.01):
            await asyncio.Event().wait()

    @app.step(repeatable=True, timeout=0.02, retry=Retry(2, on=(TimeoutError,), delay=0))
    async def declared() -> None:
        tries.append("declared")
        await asyncio.Event().wait()

    @app.step(repeatable=True, timeout=0.02, errors=[TimeoutError])
    async def itself() -> None:
        await asyncio.Event().wait()

    @app.workflow()
    async def flow(ctx: Context) -> list[str]:
        said = []
        for step in (authors, declared):
            try:
                await ctx.step(step)
            except StepFailed as error:
                said.append(f"{error.code} {error.type}")
        try:
            await ctx.step(itself)
        except TimeoutError as error:
            said.append(str(error))
        return said

    run = await driver.start(flow)
    await driver.run_losing(run, 2)
    assert await driver.output(run) == [
        "STEP_FAILED TimeoutError",
        "TIMED_OUT TimeoutError",
        "it did not return within 0.02 s",
    ]
    assert tries.count("declared") % 2 == 0


async def test_the_durable_deadline_leaves_room_for_every_try(driver: Driver, app: App) -> None:
    """40.12, 50.10 A neighbour's beat must not put out a step whose later try is within its time."""

    @app.step(timeout=10, retry=Retry(3, on=(OSError,), delay=2, factor=2))
    async def slow() -> None:
        await inside.wait()

    inside = asyncio.Event()
    assert slow.longest == 10 * 3 + 2 + 4

    @app.workflow()
    async def flow(ctx: Context) -> None:
        await ctx.step(slow)

    run = await driver.start(flow)
    with pause_at("step.begin") as pause:
        task = asyncio.create_task(driver.run_one_leg())
        await pause.reached()
        doc = await driver.show(run)
        (step,) = doc["steps"]
        left = (datetime.fromisoformat(step["until"]) - datetime.fromisoformat(doc["now"])).total_seconds()
        assert 30 < left <= 36
        inside.set()
        pause.release()
    assert await task == "completed"


async def test_a_retry_on_a_step_that_is_not_repeatable_says_that_nothing_happened(
    driver: Driver, app: App, effects: Effects
) -> None:
    """50.10 Its own class is tried again under the same mark; any other exception is a failure, and not tried again."""

    class Busy(Exception):
        pass

    @app.step(retry=Retry(3, on=(Busy,), delay=0))
    async def pay(error: str) -> str:
        effects.happen(error)
        if effects.count(error) < 3:
            raise Busy if error == "busy" else ValueError(error)
        return "receipt"

    @app.workflow()
    async def flow(ctx: Context) -> list[str]:
        paid = await ctx.step(pay, "busy")
        try:
            await ctx.step(pay, "wrong")
        except StepFailed as error:
            return [paid, error.type]
        return []

    run = await driver.start(flow)
    assert await driver.run_one_leg() == "completed"
    assert await driver.output(run) == ["receipt", "ValueError"]
    assert effects.all() == ["busy"] * 3 + ["wrong"]


async def test_a_class_declared_to_leave_it_unknown_does(driver: Driver, app: App, effects: Effects) -> None:
    """50.10 It is as after a loss: looked up, else unknown, never failed and never tried again."""

    @app.step(unknown_on=[ConnectionError], retry=Retry(3, delay=0))
    async def pay() -> None:
        effects.happen("pay")
        raise ConnectionResetError("while waiting for the answer")

    @app.workflow()
    async def flow(ctx: Context) -> None:
        await ctx.step(pay)

    await driver.start(flow)
    assert await driver.run_one_leg() == "unknown"
    assert effects.count("pay") == 1


async def test_a_result_that_cannot_be_stored_is_a_typed_failure_for_steps_rows_and_runs(
    driver: Driver, app: App
) -> None:
    """50.10, 00.5, B106 With the path of what is wrong; the same on replay; an argument is refused before anything begins."""

    @app.step(repeatable=True)
    async def bad() -> Any:
        return {"rows": [1, {2}, object()]}

    @app.workflow()
    async def flow(ctx: Context) -> Any:
        said = []
        try:
            await ctx.step(bad)
        except StepFailed as error:
            said.append(error.code)
        with pytest.raises(Unstorable, match=r"\$\[0\]\[0\]"):
            await ctx.step(bad, object())  # type: ignore[call-arg]  # what a checker would refuse
        return [*said, object()]

    run = await driver.start(flow)
    await driver.run_losing(run, 1)
    error = await driver.error(run)
    assert (error["code"], error["path"]) == ("UNSTORABLE_RESULT", "$[1]")
    assert json.loads((await driver.show(run))["steps"][0]["value"])["path"] == "$.rows[2]"


async def test_a_cancellation_from_within_a_step_is_its_own_affair(driver: Driver, app: App, effects: Effects) -> None:
    """50.10 A repeatable step failed; one that is not is unknown, for nobody can say how far it came; the branch was not cancelled."""

    @app.step(repeatable=True)
    async def repeatable() -> None:
        raise asyncio.CancelledError

    @app.step()
    async def pay() -> None:
        effects.happen("pay")
        inner = asyncio.ensure_future(asyncio.Event().wait())
        inner.cancel()
        await inner

    @app.workflow()
    async def flow(ctx: Context) -> str:
        with pytest.raises(StepFailed, match="cancelled from within"):
            await ctx.step(repeatable)
        with pytest.raises(StepOutcomeUnknown):
            await ctx.step(pay)
        return "ok"

    run = await driver.start(flow)
    assert await driver.run_one_leg() == "completed"
    assert (await driver.states(run))["step pay#1"] == "unknown"
