"""Law 50.4, by random programs: run undisturbed, and with losses after every k-th commit, the code sees the same."""

from __future__ import annotations

import asyncio
import contextlib
from collections import defaultdict
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import pytest
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st

from fencepost import App, Arrived, Context, Found, Mapped, StepFailed, StepOutcomeUnknown, TimedOut
from fencepost.db import Database
from tests.legs import ENDED, Driver, overtaken

# What the glue of a run decided and saw, by run and attempt.
logs: defaultdict[str, dict[int, list[Any]]] = defaultdict(dict)
app = App("programs")


# The language


@dataclass(frozen=True)
class Op:
    """`do` says what; `n` is its number; `parts` are programs inside."""

    do: str
    n: int = 0
    parts: tuple[Op, ...] = ()

    def json(self) -> list[Any]:
        return [self.do, self.n, [part.json() for part in self.parts]]


def parsed(doc: list[Any]) -> Op:
    return Op(doc[0], doc[1], tuple(parsed(part) for part in doc[2]))


def programs(*more: str) -> st.SearchStrategy[Op]:
    leaves = st.sampled_from(
        "same other sync boom once sleep late signal first value clock map child start".split() + list(more)
    )
    leaf = st.builds(Op, leaves, st.integers(0, 3))

    def inside(parts: st.SearchStrategy[Op]) -> st.SearchStrategy[Op]:
        several = st.lists(parts, min_size=2, max_size=3).map(tuple)
        return st.builds(
            Op, st.sampled_from("seq seq gather group race wait limit lock".split()), st.integers(0, 3), several
        )

    return st.recursive(leaf, inside, max_leaves=9)


# Its meaning


@app.step(repeatable=True)
async def same(n: int) -> int:
    for _ in range(n):
        await overtaken()
    return n


@app.step(repeatable=True, timeout=60)
async def other(n: int) -> int:
    return n


@app.step(repeatable=True)
def sync(n: int) -> int:
    return n


@app.step(repeatable=True)
async def boom(n: int) -> int:
    raise ValueError(n)


@app.step(name="row", repeatable=True)
async def row_of(row: dict[str, int]) -> int:
    return row["n"]


async def always(key: str, n: int) -> Any:
    return Found(n)


@app.step(lookup=always)
async def once(n: int) -> int:
    return n


@app.step()
async def risky(n: int) -> int:
    return n


@app.step()
async def bold(n: int) -> int:
    return n


async def play(ctx: Context, op: Op, path: str, say: Callable[..., None]) -> int:
    """Run a program; its sum, which does not depend on who wins a race."""
    value = await LEAVES[op.do](ctx, op) if op.do in LEAVES else await GLUE[op.do](ctx, op, path, say)
    say(path, op.do, value)
    return op.n if op.do in ("value", "late", "clock", "start", "risky", "bold", "first") else value


async def _boom(ctx: Context, op: Op) -> int:
    try:
        return await ctx.step(boom, op.n)
    except StepFailed as error:
        return len(error.message)


async def _late(ctx: Context, op: Op) -> Any:
    found = await ctx.wait_for(f"never {op.n}", int, within=0.002 * op.n)
    return "timed out" if isinstance(found, TimedOut) else found


async def _sleep(ctx: Context, op: Op) -> int:
    await ctx.sleep("nap", 0.001 * op.n)
    return op.n


async def _signal(ctx: Context, op: Op) -> int:
    await ctx.signal(ctx.run_id, "ping", 7)
    return await ctx.wait_for("ping", int)


async def _map(ctx: Context, op: Op) -> int:
    found: Mapped[int] = await ctx.map(row_of, [{"id": i, "n": i} for i in range(op.n)], key="id")
    return sum(found)


async def _child(ctx: Context, op: Op) -> int:
    return await ctx.run_child(played, Op("seq", 0, (Op("same", op.n), Op("sleep", 1), Op("same", op.n))).json())


async def _start(ctx: Context, op: Op) -> str:
    return await ctx.start_child(played, Op("same", op.n).json())


async def _first(ctx: Context, op: Op) -> Any:
    """One that nobody answers waits for names of its own: it would take what another waits for without end."""
    heads, tails = ("heads", "tails") if op.n else ("no heads", "no tails")
    if op.n:
        await asyncio.gather(*(ctx.signal(ctx.run_id, name, op.n) for name in (heads, tails)[: op.n]))
    first = await ctx.wait_for_first((heads, int), (tails, int), within=None if op.n else 0.001)
    return first.name if isinstance(first, Arrived) else "nothing"


async def _risky(ctx: Context, op: Op) -> Any:
    try:
        return await ctx.step(risky, op.n)
    except StepOutcomeUnknown as error:
        return f"nobody knows {error.step}#{error.ordinal}"
    except StepFailed as error:
        return error.message


async def _bold(ctx: Context, op: Op) -> Any:
    """An outcome that nobody knows leaves the workflow."""
    try:
        return await ctx.step(bold, op.n)
    except StepFailed as error:
        return error.message


async def _clock(ctx: Context, op: Op) -> str:
    return str(await ctx.now())


async def _value(ctx: Context, op: Op) -> Any:
    return await ctx.random() if op.n else str(await ctx.uuid())


LEAVES: dict[str, Callable[[Context, Op], Any]] = {
    "same": lambda ctx, op: ctx.step(same, op.n), "other": lambda ctx, op: ctx.step(other, op.n), "sync": lambda ctx, op: ctx.step(sync, op.n),
    "once": lambda ctx, op: ctx.step(once, op.n), "boom": _boom, "late": _late, "sleep": _sleep, "signal": _signal, "map": _map, "child": _child,
    "value": _value, "clock": _clock, "start": _start, "first": _first, "risky": _risky, "bold": _bold,
}  # fmt: skip


async def _seq(ctx: Context, op: Op, path: str, say: Callable[..., None]) -> int:
    return sum([await play(ctx, part, f"{path}.{i}", say) for i, part in enumerate(op.parts)])


async def _gather(ctx: Context, op: Op, path: str, say: Callable[..., None]) -> int:
    return sum(await asyncio.gather(*(play(ctx, part, f"{path}|{i}", say) for i, part in enumerate(op.parts))))


async def _group(ctx: Context, op: Op, path: str, say: Callable[..., None]) -> int:
    async with asyncio.TaskGroup() as group:
        tasks = [group.create_task(play(ctx, part, f"{path}|{i}", say)) for i, part in enumerate(op.parts)]
    return sum(task.result() for task in tasks)


async def _wait(ctx: Context, op: Op, path: str, say: Callable[..., None]) -> int:
    tasks = [asyncio.create_task(play(ctx, part, f"{path}|{i}", say)) for i, part in enumerate(op.parts)]
    left = set(tasks)
    while left:
        done, left = await asyncio.wait(left, return_when=asyncio.FIRST_COMPLETED)
        say(path, "ended", [i for i, task in enumerate(tasks) if task in done])
    return sum(task.result() for task in tasks)


async def _limit(ctx: Context, op: Op, path: str, say: Callable[..., None]) -> int:
    return int(await asyncio.wait_for(asyncio.shield(_gather(ctx, op, path, say)), 600))


async def _lock(ctx: Context, op: Op, path: str, say: Callable[..., None]) -> int:
    lock, ends = asyncio.Lock(), asyncio.Queue[int]()

    async def one(i: int, part: Op) -> None:
        async with lock:
            say(path, "in", i)
            value = await play(ctx, part, f"{path}|{i}", say)
        await ends.put(value)

    async with asyncio.TaskGroup() as group:
        for i, part in enumerate(op.parts):
            group.create_task(one(i, part))
        return sum([await ends.get() for _ in op.parts])


async def _race(ctx: Context, op: Op, path: str, say: Callable[..., None]) -> int:
    tasks = [asyncio.create_task(play(ctx, part, f"{path}|{i}", say)) for i, part in enumerate(op.parts)]
    done, _ = await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
    say(path, "won", [i for i, task in enumerate(tasks) if task in done])
    for task in tasks:
        task.cancel()
    for task in tasks:
        with contextlib.suppress(asyncio.CancelledError):
            await asyncio.gather(task, return_exceptions=True)
    return op.n


GLUE: dict[str, Callable[..., Any]] = {
    "seq": _seq,
    "gather": _gather,
    "group": _group,
    "wait": _wait,
    "race": _race,
    "limit": _limit,
    "lock": _lock,
}


@app.workflow()
async def played(ctx: Context, doc: list[Any]) -> int:
    log = logs[ctx.run_id][ctx.attempt] = []
    total = await play(ctx, parsed(doc), "", lambda *what: log.append(what))
    logs[ctx.run_id][ctx.attempt] = [*log, ("total", total)]  # what a branch that was left behind says now is nobody's
    return total


# The law


async def undisturbed(db: Database, op: Op) -> int:
    driver = Driver(db, app)
    run = await driver.start(played, op.json())
    await driver.run_until(run)
    total: int = await driver.output(run)
    judge(run)
    return total


async def disturbed(db: Database, op: Op, every: int) -> int:
    driver = Driver(db, app)
    run = await driver.start(played, op.json())
    while (doc := await driver.run_losing(run, every, "unknown", *ENDED))["status"] == "unknown":
        assert doc["task"]["unknown"] == "LOST_TOO_OFTEN", doc["task"]  # somebody looks at it, and says: again
        await driver.resolve_all(run)
    total: int = await driver.output(run)
    judge(run)
    return total


def judge(run: str) -> None:
    """What an attempt saw is the beginning of what the last one saw."""
    *attempts, last = [log for _, log in sorted(logs[run].items())]
    for log in attempts:
        assert last[: len(log)] == log, f"\n{log}\n{last}"


async def examine(db: Database, op: Op, every: int) -> None:
    assert await undisturbed(db, op) == await disturbed(db, op, every)
    logs.clear()


@settings(max_examples=120, deadline=None, suppress_health_check=list(HealthCheck))
@given(op=programs(), every=st.integers(1, 3))
@pytest.mark.timeout(600)
async def test_a_random_program_sees_the_same_on_every_replay_and_gives_the_same(
    db: Database, op: Op, every: int
) -> None:
    """50.4 What the glue sees of an earlier attempt is a beginning of what it sees of the next, whatever was lost between."""
    await examine(db, op, every)


UNKNOWNS = ("risky", "risky", "risky", "bold", "bold")
# Who holds the lock is held until the other asks.
LOCKED = Op("lock", 0, (Op("risky", 0), Op("child", 0)))
# Who stands at the queue of a lock's ends is served when who is held has come to an end.
SERVED = Op("lock", 2, (Op("risky", 3), Op("group", 2, (
    Op("seq", 2, (Op("risky", 3), Op("same", 0))), Op("seq", 1, (Op("value", 2), Op("clock", 0))),
    Op("limit", 0, (Op("child", 1), Op("risky", 2), Op("same", 0))),
))))  # fmt: skip


@settings(max_examples=100, deadline=None, suppress_health_check=list(HealthCheck))
@given(op=programs(*UNKNOWNS), every=st.integers(1, 3), word=st.sampled_from(["again", "completed", "failed"]))
@example(op=LOCKED, every=1, word="again")
@example(op=SERVED, every=1, word="again")
@pytest.mark.timeout(600)
async def test_a_program_that_meets_unknowns_sees_the_same_once_it_has_gone_on_from_there(
    db: Database, op: Op, every: int, word: str
) -> None:
    """50.2, 50.4 Until it has recorded more, it is asked afresh: the attempts since the operator's last word, which have the whole
    history, see the same."""
    driver = Driver(db, app)
    run = await driver.start(played, op.json())
    while (doc := await driver.run_losing(run, every, "unknown", *ENDED))["status"] == "unknown":
        assert doc["task"]["unknown"] in ("LOST_TOO_OFTEN", "STEP_OUTCOME_UNKNOWN"), doc["task"]
        logs[run].clear()
        driver.endings.clear()
        await driver.resolve_all(run, word, 5)
    assert doc["status"] == "completed", (doc["error"], doc["task"])
    whole = [log for _, log in sorted(logs[run].items()) if log and log[-1][0] == "total"]
    assert len(whole) >= 3
    for log in whole[1:]:
        assert log == whole[0], f"\n{whole[0]}\n{log}"
    logs.clear()
