"""Law 50.8: a waterfall asks its steps in order; the first accepted answer stands, and an unknown one stops it.

Calls are counted in a file outside the database.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

import pytest

from fencepost import (
    Absent,
    Answer,
    App,
    Context,
    Found,
    NoAnswer,
    Retry,
    StepOutcomeUnknown,
    Unknown,
    recovery,
    step_key,
)
from tests.legs import ORG, Driver, Effects

pytestmark = pytest.mark.usefixtures("lawful")


def provider(app: App, effects: Effects, name: str, says: Callable[[], Any], **options: Any) -> Any:
    """A step that is asked by name; what it raises or gives is what `says` does."""

    @app.step(name=name, **options)
    async def ask(row: str) -> str | None:
        effects.happen(f"{name} {row}")
        found: str | None = says()
        return found

    return ask


def declines() -> Any:
    raise ValueError("no such account")


def shown(found: Answer[Any] | NoAnswer) -> Any:
    """As something that a run may give."""
    if isinstance(found, Answer):
        return [found.provider, found.value]
    return [[said.provider, said.how, said.why] for said in found.said]


# What the first of two says -> what the code is given, and who was asked.
FIRST: dict[str, tuple[Callable[[], Any], Any, list[str]]] = {
    "accepted": (lambda: "a@one", ["one", "a@one"], ["one r"]),
    "not accepted": (lambda: None, ["two", "a@two"], ["one r", "two r"]),
    "failed": (declines, ["two", "a@two"], ["one r", "two r"]),
}


@pytest.mark.parametrize("every", [0, 1])
@pytest.mark.parametrize("first", FIRST)
async def test_the_first_accepted_answer_stands_and_later_ones_are_not_asked(
    driver: Driver, app: App, effects: Effects, first: str, every: int
) -> None:
    """50.8 Kept is accepted or next, failed is next; the same on every replay, whatever is lost between."""
    says, expected, asked = FIRST[first]
    answers = {"one": says, "two": lambda: "a@two", "three": lambda: "a@three"}
    steps = [provider(app, effects, name, say, repeatable=bool(every)) for name, say in answers.items()]

    @app.workflow()
    async def flow(ctx: Context) -> Any:
        found = await ctx.waterfall("mail", steps, "r")
        await ctx.sleep("nap", 0)
        return shown(found)

    run = await driver.start(flow)
    doc = await (driver.run_losing(run, every) if every else driver.run_until(run))
    assert (json.loads(doc["output"]), sorted(set(effects.all()))) == (expected, asked)
    assert every or len(effects.all()) == len(asked)


async def test_when_none_is_accepted_the_code_is_told_who_said_what(driver: Driver, app: App, effects: Effects) -> None:
    """50.8 No exception: that nobody knows is an answer, and it says which failed and why."""
    steps = [provider(app, effects, "one", declines), provider(app, effects, "two", lambda: None)]

    @app.workflow()
    async def flow(ctx: Context) -> Any:
        return shown(await ctx.waterfall("mail", steps, "r"))

    run = await driver.start(flow)
    await driver.run_until(run)
    assert await driver.output(run) == [["one", "failed", "no such account"], ["two", "refused", ""]]


@pytest.mark.parametrize("answer", [None, Unknown(), Absent(), Found("a@late")])
async def test_an_unknown_member_stops_the_waterfall(driver: Driver, app: App, effects: Effects, answer: Any) -> None:
    """50.8, 50.2 Never the next provider: not in the leg that finds it so, and not in any later one. What a look-up finds goes on."""

    async def find(key: str, row: str) -> Any:
        return answer

    options: dict[str, Any] = {"lookup": find, "settle": 0} if answer is not None else {}
    steps = [provider(app, effects, "one", lambda: "a@one", **options), provider(app, effects, "two", lambda: "a@two")]
    told: list[str] = []

    @app.workflow()
    async def flow(ctx: Context) -> Any:
        try:
            return shown(await ctx.waterfall("mail", steps, "r"))
        except StepOutcomeUnknown as error:
            told.append(error.step)
            await ctx.sleep("nap", 0)
            raise

    run = await driver.start(flow)
    await driver.lose_at("step.end", when=lambda facts: facts["step"] == "one")
    doc = await driver.run_until(run, "completed", "unknown")
    if isinstance(answer, Found):
        assert (json.loads(doc["output"]), effects.all(), told) == (["one", "a@late"], ["one r"], [])
        return
    if isinstance(answer, Absent):  # its holder is gone for good, so it may run
        assert (json.loads(doc["output"]), effects.all()) == (["one", "a@one"], ["one r", "one r"])
        return
    assert (doc["status"], effects.all(), set(told)) == ("unknown", ["one r"], {"one"})
    await driver.resolve(run, "one", "completed", None)
    doc = await driver.run_until(run, seconds=10)
    assert (doc["status"], len(told)) == ("failed", 2), "it had gone on from there, and is told again"
    assert effects.count("two r") == 0


async def test_an_unknown_that_leaves_the_workflow_is_resolved_and_the_waterfall_goes_on(
    driver: Driver, app: App, effects: Effects
) -> None:
    """50.8, 85.5 An operator says that the first provider gave nothing: now, and only now, the second is asked."""
    steps = [provider(app, effects, "one", lambda: "a@one"), provider(app, effects, "two", lambda: "a@two")]

    @app.workflow()
    async def flow(ctx: Context) -> Any:
        return shown(await ctx.waterfall("mail", steps, "r"))

    run = await driver.start(flow)
    await driver.lose_at("step.end")
    assert (await driver.run_until(run, "completed", "unknown"))["status"] == "unknown"
    assert effects.all() == ["one r"]
    await driver.resolve(run, "one", "completed", None)
    await driver.run_until(run)
    assert (await driver.output(run), effects.all()) == (["two", "a@two"], ["one r", "two r"])


async def test_a_crash_between_a_members_answer_and_the_waterfalls_own_record_asks_nobody_again(
    driver: Driver, app: App, effects: Effects
) -> None:
    """50.8 The member's value is kept, so the verdict is made again from it."""
    steps = [provider(app, effects, "one", lambda: "a@one"), provider(app, effects, "two", lambda: "a@two")]

    @app.workflow()
    async def flow(ctx: Context) -> Any:
        return shown(await ctx.waterfall("mail", steps, "r"))

    run = await driver.start(flow)
    await driver.lose_at("statement.executed", when=lambda facts: facts["door"] == "keep_steps")
    assert list(await driver.states(run)) == ["step one#1"]
    await driver.run_until(run)
    assert (await driver.output(run), effects.all()) == (["one", "a@one"], ["one r"])


async def test_a_verdict_is_made_once_and_a_later_deployment_changes_nothing(
    driver: Driver, app: App, effects: Effects
) -> None:
    """50.8, 60.6 What was not accepted stays passed over, though the next release would take it."""
    judged: list[str | None] = []

    def release(app: App, accept: Callable[[str | None], bool]) -> Any:
        steps = [provider(app, effects, "one", lambda: "a@one"), provider(app, effects, "two", lambda: "a@two")]

        @app.workflow()
        async def flow(ctx: Context) -> Any:
            found = await ctx.waterfall("mail", steps, "r", accept=accept)
            await ctx.wait_for("go", int)
            return shown(found)

        return flow

    def strict(value: str | None) -> bool:
        judged.append(value)
        return value == "a@two"

    run = await driver.start(release(app, strict))
    assert await driver.run_one_leg() == "parked"
    driver.app = App("waterfall")
    release(driver.app, lambda value: value == "a@one")
    await driver.signal(run, "go", 1)
    await driver.run_until(run)
    assert (await driver.output(run), judged) == (["two", "a@two"], ["a@one", "a@two"])
    assert effects.all() == ["one r", "two r"]


@pytest.mark.parametrize("how", ["declared retry", "redrive"])
async def test_an_answer_that_stands_is_not_asked_for_again_by_a_retry(
    driver: Driver, app: App, effects: Effects, how: str
) -> None:
    """50.8, 50.10 Failures are set aside and asked again, but not those before an answer that was accepted: it is remembered."""
    steps = [provider(app, effects, "one", declines), provider(app, effects, "two", lambda: "a@two")]
    tries: list[int] = []
    retry = Retry(2, on=(OSError,), delay=0) if how == "declared retry" else None

    @app.workflow(retry=retry)
    async def flow(ctx: Context) -> Any:
        found = await ctx.waterfall("mail", steps, "r")
        tries.append(1)
        if len(tries) == 1:
            raise OSError("not yet")
        second = await ctx.waterfall("mail", steps, "s")
        return [shown(found), shown(second)]

    run = await driver.start(flow)
    doc = await driver.run_until(run)
    if how == "redrive":
        assert doc["status"] == "failed"
        done = await recovery.redrive(driver.db, ORG, run, new_id="again", from_step=None, again=[], by="a person")
        assert done == ("created", None)
        run = "again"
        await driver.run_until(run)
    assert await driver.output(run) == [["two", "a@two"], ["two", "a@two"]]
    assert effects.all() == ["one r", "two r", "one s", "two s"]


async def test_when_none_was_accepted_a_retry_asks_those_again_that_failed(
    driver: Driver, app: App, effects: Effects
) -> None:
    """50.8, 50.10 And not those that gave a value, which is kept with its verdict."""
    says: list[Callable[[], Any]] = [declines, lambda: "a@one"]

    def again() -> Any:
        return says.pop(0)()

    steps = [provider(app, effects, "two", lambda: None), provider(app, effects, "one", again)]

    @app.workflow(retry=Retry(2, on=(OSError,), delay=0))
    async def flow(ctx: Context) -> Any:
        found = await ctx.waterfall("mail", steps, "r")
        if isinstance(found, NoAnswer):
            raise OSError("nobody knows yet")
        return shown(found)

    run = await driver.start(flow)
    await driver.run_until(run)
    assert (await driver.output(run), effects.all()) == (["one", "a@one"], ["two r", "one r", "one r"])


async def test_members_are_ordinary_steps_with_keys_of_their_own(driver: Driver, app: App) -> None:
    """50.8, 50.3 Every call of every member has its key, and waterfalls of one name are told apart."""
    seen: list[str] = []

    def asked(name: str) -> Any:
        @app.step(name=name, repeatable=True)
        async def ask(row: str) -> str | None:
            seen.append(step_key())
            return row if row == name else None

        return ask

    steps = [asked("one"), asked("two")]

    @app.workflow()
    async def flow(ctx: Context) -> Any:
        return [shown(await ctx.waterfall("mail", steps, row)) for row in ("two", "one", "none")]

    run = await driver.start(flow)
    await driver.run_losing(run, 1)
    assert (await driver.output(run))[:2] == [["two", "two"], ["one", "one"]]
    assert len(set(seen)) == 5


@pytest.mark.parametrize(
    ("name", "members", "accept"),
    [("mail", 0, None), ("mail", 2, None), ("", 1, None), ("a: b", 1, None), ("mail", 1, lambda _: "yes")],
)
async def test_what_is_no_waterfall_is_refused(
    driver: Driver, app: App, effects: Effects, name: str, members: int, accept: Any
) -> None:
    """50.8 No step, one twice, no name; a verdict that is none (an async accept would be true whatever it found)."""
    one = provider(app, effects, "one", lambda: "a@one")

    @app.workflow()
    async def flow(ctx: Context) -> str:
        try:
            await ctx.waterfall(name, [one] * members, "r", **({} if accept is None else {"accept": accept}))
        except (TypeError, ValueError) as error:
            return type(error).__name__
        return "accepted"

    run = await driver.start(flow)
    await driver.run_until(run)
    assert await driver.output(run) == ("TypeError" if accept else "ValueError")
    assert len(effects.all()) == (1 if accept else 0)
