"""Laws 50.2, 50.10, 50.11: what can happen to a step, as one table; then what an unknown is asked, told and resolved by.

Effects are counted in a file outside the database.
"""

from __future__ import annotations

import asyncio
import contextlib
import itertools
import json
import threading
import uuid
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import Any, Literal

import pytest

from fencepost import (
    Absent,
    Answer,
    App,
    Context,
    Found,
    Retry,
    Step,
    StepFailed,
    StepOutcomeUnknown,
    Unknown,
    recovery,
    step_key,
    terminal,
)
from fencepost.testing import pause_at
from tests.legs import ORG, Driver, Effects, until

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


# Look-ups

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


# Failures


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
        left = (_instant(step["until"]) - _instant(doc["now"])).total_seconds()
        assert 30 < left <= 36
        inside.set()
        pause.release()
    assert await task == "completed"


def _instant(text: str) -> Any:
    from datetime import datetime

    return datetime.fromisoformat(text)


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
    from fencepost.values import Unstorable

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


# Threads


async def test_a_sync_step_whose_thread_outlives_its_time_out(driver: Driver, app: App, effects: Effects) -> None:
    """50.10, 40.12, B62 Not repeatable: unknown; repeatable: failed, and its next try may run beside it. The worker is told each time."""
    go = threading.Event()
    lost: list[str] = []

    @app.step(timeout=0.05)
    def pay() -> str:
        effects.happen("pay")
        go.wait(20)
        effects.happen("paid")
        return "receipt"

    @app.step(repeatable=True, timeout=0.05, retry=Retry(2, on=(TimeoutError,), delay=0))
    def look() -> str:
        effects.happen("look")
        go.wait(20)
        return "seen"

    @app.workflow()
    async def flow(ctx: Context) -> str:
        with pytest.raises(StepFailed):
            await ctx.step(look)
        return await ctx.step(pay)

    run = await driver.start(flow)
    leg = await driver.one_leg()
    object.__setattr__(leg.face, "on_thread_lost", lost.append)
    assert await driver.finish(leg) == "unknown"
    assert lost == ["look", "look", "pay"]
    assert effects.all() == ["look", "look", "pay"]
    go.set()
    async with asyncio.timeout(10):
        await leg.threads.wait()
    assert effects.count("paid") == 1
    assert (await driver.states(run))["step pay#1"] == "unknown"


async def test_a_cancel_is_final_only_when_the_threads_have_ended(driver: Driver, app: App, effects: Effects) -> None:
    """50.10, 80.4, B62"""
    go, inside = threading.Event(), threading.Event()

    @app.step()
    def pay() -> None:
        inside.set()
        go.wait(20)

    @app.workflow()
    async def flow(ctx: Context) -> None:
        await ctx.step(pay)

    run = await driver.start(flow)
    leg = await driver.one_leg()
    task = asyncio.create_task(leg.run())
    await asyncio.to_thread(inside.wait, 10)
    assert await driver.cancel(run) == "accepted"
    leg.abort("cancelled", "enough")
    await until(leg, lambda one: one.engine is not None and not one.engine.branches)
    assert not task.done()
    assert (await driver.show(run))["status"] == "cancelling"
    go.set()
    assert await task == "cancelled"
    assert (await driver.show(run))["status"] == "cancelled"


# Told, and what comes after


async def test_code_that_catches_an_unknown_and_goes_on_replays_the_same_also_after_it_was_resolved(
    driver: Driver, app: App, effects: Effects
) -> None:
    """50.2, 50.4 What it did next stands in the history; the operator's word is for the record, and for a later asking."""
    seen: list[str] = []

    @app.step()
    async def pay() -> str:
        effects.happen("pay")
        return "receipt"

    @app.step(repeatable=True)
    async def note(what: str) -> str:
        return what

    @app.workflow()
    async def flow(ctx: Context) -> str:
        try:
            got = await ctx.step(pay)
        except StepOutcomeUnknown as error:
            got = f"nobody knows {error.step}#{error.ordinal}"
        seen.append(got)
        await ctx.step(note, got)
        await ctx.wait_for("go", int)
        return await ctx.step(note, f"{got}, still")

    run = await driver.start(flow)
    await driver.lose_at("step.end")
    await driver.lose_at("statement.executed", nth=2, when=lambda facts: facts["door"] == "keep_steps")
    assert await driver.run_one_leg() == "parked"
    await driver.resolve(run, "pay", "completed", "by hand")
    await driver.signal(run, "go", 1)
    await driver.run_losing(run, 1)
    assert await driver.output(run) == "nobody knows pay#1, still"
    assert set(seen) == {"nobody knows pay#1"}
    assert effects.count("pay") == 1


@pytest.mark.parametrize("order", list(itertools.permutations(("left", "right"))))
async def test_two_unknown_steps_of_one_gather_are_resolved_one_after_the_other(
    driver: Driver, app: App, effects: Effects, order: tuple[str, str]
) -> None:
    """50.2, 85.5 The first is told, the second is still unknown; the run goes on when both are resolved."""

    @app.step()
    async def pay(what: str) -> str:
        effects.happen(what)
        return what

    @app.workflow()
    async def flow(ctx: Context) -> list[str]:
        return list(await asyncio.gather(ctx.step(pay, "left"), ctx.step(pay, "right")))

    run = await driver.start(flow)
    await driver.lose_at("step.end", nth=2, stand=1)
    assert await driver.run_one_leg() == "unknown"
    states = await driver.states(run)
    assert [states["step pay#1"], states["step pay#2"]] == ["unknown", "unknown"]
    for what in order:
        assert (await driver.show(run))["status"] == "unknown"
        await driver.resolve(run, "pay", "completed", f"{what} by hand", ordinal=1 + (what == "right"))
    assert await driver.run_one_leg() == "completed"
    assert await driver.output(run) == ["left by hand", "right by hand"]
    assert sorted(effects.all()) == ["left", "right"]


@pytest.mark.parametrize("exceptions", [False, True], ids=["gather", "gather(return_exceptions)"])
@pytest.mark.parametrize("verdict", ["completed", "failed", "again"])
async def test_an_unknown_beside_steps_that_went_on_is_resolved_all_the_same(
    driver: Driver, app: App, effects: Effects, verdict: str, exceptions: bool
) -> None:
    """50.2, 85.5 Results that a neighbour recorded after the code was told are no proof that the code went on from there."""

    @app.step()
    async def pay() -> str:
        effects.happen("pay")
        return f"receipt {effects.count('pay')}"

    @app.step(repeatable=True)
    async def note(n: int) -> int:
        return n

    @app.workflow()
    async def flow(ctx: Context) -> list[Any]:
        async def beside() -> int:
            for n in range(4):
                await ctx.step(note, n)
            return 4

        found = await asyncio.gather(ctx.step(pay), beside(), return_exceptions=exceptions)
        for one in found:
            if isinstance(one, BaseException):
                raise one
        return list(found)

    run = await driver.start(flow)
    await driver.lose_at("step.end", when=lambda facts: facts["step"] == "pay")
    assert await driver.run_one_leg() == "unknown"
    await driver.resolve(run, "pay", verdict, "by hand")
    doc = await driver.run_until(run, "completed", "failed", "unknown")
    if verdict == "failed":
        assert doc["status"] == "failed"
        assert (await driver.error(run))["message"].endswith("by hand (STEP_FAILED)")
    else:
        assert await driver.output(run) == ["by hand" if verdict == "completed" else "receipt 2", 4]


async def test_a_result_that_came_after_the_loss_is_evidence_and_is_accepted_by_one_word(
    driver: Driver, app: App, effects: Effects
) -> None:
    """50.2, B132 The mark names its fence: the dead fence's commit is kept as evidence; the record does not change by it."""
    go = asyncio.Event()

    @app.step()
    async def pay() -> str:
        effects.happen("pay")
        while not go.is_set():
            with contextlib.suppress(asyncio.CancelledError):
                await go.wait()
        return "receipt"

    @app.workflow()
    async def flow(ctx: Context) -> str:
        return await ctx.step(pay)

    run = await driver.start(flow)
    leg = await driver.one_leg()
    task = asyncio.create_task(leg.run())
    await until(leg, lambda _: effects.count("pay") == 1)
    await driver.bury(leg)
    leg.abort("lost")
    await until(leg, lambda one: any(branch.cancelling() for branch in one.engine.branches))  # type: ignore[union-attr]  # it runs
    go.set()
    assert await task == "stale"
    assert await driver.run_one_leg() == "unknown"
    assert effects.count("pay") == 1
    (late,) = (await driver.show(run))["late_results"]
    assert (late["name"], late["ok"], late["value"]) == ("pay", True, '"receipt"')
    await driver.resolve(run, "pay", "late")
    assert await driver.run_one_leg() == "completed"
    assert await driver.output(run) == "receipt"
    assert effects.count("pay") == 1
