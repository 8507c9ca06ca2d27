"""Law 50.11: what a look-up says of a step that nobody knows of, and what each answer permits.

Effects are counted in a file outside the database.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
from collections.abc import Awaitable, Callable
from typing import Any

import pytest

from fencepost import Absent, App, Context, Found, Retry, Unknown, recovery, step_key
from fencepost.testing import pause_at
from tests.legs import Driver, Effects

pytestmark = pytest.mark.usefixtures("lawful")


LookUp = Callable[..., Awaitable[Any]]


async def _found(key: str) -> Any:
    return Found("found")


async def _absent(key: str) -> Any:
    return Absent()


async def _cannot_say(key: str) -> Any:
    return Unknown()


async def _raises(key: str) -> Any:
    raise ConnectionError("the provider is away")


async def _quits(key: str) -> Any:
    raise SystemExit(1)


async def _hangs(key: str) -> Any:
    await asyncio.Event().wait()


async def _nonsense(key: str) -> Any:
    return "found"


async def _unreadable(key: str) -> Any:
    return Found({"not": "a text"})


async def _unstorable(key: str) -> Any:
    return Found(object())


async def _cancels_itself(key: str) -> Any:
    raise asyncio.CancelledError


# look-up, key_honoured, holder gone for good -> (status, output, effects)
ASKED: list[tuple[LookUp, bool, bool, tuple[str, Any, int]]] = [
    (_found, False, False, ("completed", "found", 1)),
    (_found, False, True, ("completed", "found", 1)),
    (_found, True, False, ("completed", "found", 1)),
    (_absent, True, False, ("completed", "receipt", 2)),
    (_absent, True, True, ("completed", "receipt", 2)),
    (_absent, False, True, ("completed", "receipt", 2)),
    (_absent, False, False, ("unknown", None, 1)),
    (_cannot_say, True, True, ("unknown", None, 1)),
    (_raises, True, True, ("unknown", None, 1)),
    (_quits, True, True, ("unknown", None, 1)),
    (_hangs, True, True, ("unknown", None, 1)),
    (_nonsense, True, True, ("unknown", None, 1)),
    (_unreadable, True, True, ("unknown", None, 1)),
    (_unstorable, True, True, ("unknown", None, 1)),
    (_cancels_itself, True, True, ("unknown", None, 1)),
]


@pytest.mark.parametrize(("lookup", "honoured", "proven", "expected"), ASKED)
async def test_what_a_look_up_says_decides(
    driver: Driver,
    app: App,
    effects: Effects,
    lookup: LookUp,
    honoured: bool,
    proven: bool,
    expected: tuple[str, Any, int],
) -> None:
    """50.11, B131 Found is final; Absent permits a run when the key is honoured, or the holder's death is confirmed; nothing else does."""
    asked: list[str] = []
    keys: list[str] = []

    async def ask(key: str) -> Any:
        asked.append(key)
        return await lookup(key)

    @app.step(lookup=ask, lookup_timeout=0.02, settle=0.05, key_honoured=honoured)
    async def pay() -> str:
        effects.happen("pay")
        keys.append(step_key())
        return "receipt"

    @app.workflow()
    async def flow(ctx: Context) -> str:
        return await ctx.step(pay)

    run = await driver.start(flow)
    leg = await driver.one_leg()
    with pause_at("step.end") as pause:
        task = asyncio.create_task(leg.run())
        await pause.reached()
        leg.abort("lost")
        assert await task == "stale"
    if proven:
        await driver.bury(leg)
    else:  # its worker says so itself: ended, and not proven gone
        driver._holder = None
        await recovery.close_incarnation(driver.db, driver._holders[leg], patience=30)
    doc = await driver.run_until(run, "completed", "unknown")
    assert (doc["status"], doc["output"] and json.loads(doc["output"]), effects.count("pay")) == expected
    assert set(asked) == set(keys), "the look-up is asked with the step's key"


async def test_absent_counts_only_when_it_is_said_again_after_the_settle(
    driver: Driver, app: App, effects: Effects
) -> None:
    """50.11 What a dead holder sent may still arrive: the second answer decides, and the leg sleeps until then."""
    answers: list[Any] = [Absent(), Found("arrived late")]
    asked: list[float] = []
    loop = asyncio.get_running_loop()

    async def ask(key: str) -> Any:
        asked.append(loop.time())
        return answers.pop(0)

    @app.step(lookup=ask, settle=0.5)
    async def pay() -> str:
        effects.happen("pay")
        return "receipt"

    @app.workflow()
    async def flow(ctx: Context) -> str:
        return await ctx.step(pay)

    run = await driver.start(flow)
    before = loop.time()
    await driver.lose_at("step.end")
    await driver.run_until(run)
    assert await driver.output(run) == "arrived late"
    assert asked[1] - before > 0.5
    assert effects.count("pay") == 1


async def test_in_the_leg_that_marked_it_absent_counts_as_unknown(driver: Driver, app: App, effects: Effects) -> None:
    """50.11, 50.10 A time-out inside a step that is not repeatable makes it unknown, never failed, also where the key is honoured."""
    answers: list[Any] = [Absent(), Found("it did")]

    async def ask(key: str) -> Any:
        return answers.pop(0)

    @app.step(lookup=ask, timeout=0.02, key_honoured=True, retry=Retry(5, delay=0))
    async def pay() -> str:
        effects.happen("pay")
        with contextlib.suppress(asyncio.CancelledError):
            await asyncio.Event().wait()
        raise ValueError("it says that it failed, after its time was over")

    @app.workflow()
    async def flow(ctx: Context) -> str:
        return await ctx.step(pay)

    run = await driver.start(flow)
    assert await driver.run_one_leg() == "unknown"
    assert effects.count("pay") == 1
    assert (await driver.error(run))["code"] == "STEP_OUTCOME_UNKNOWN"
    await driver.resolve(run, "pay", "lookup")
    assert await driver.run_one_leg() == "completed"
    assert await driver.output(run) == "it did"
    assert effects.count("pay") == 1
