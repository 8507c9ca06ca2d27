"""Plans under real kills and pauses: workers race for the steps, are killed, stopped past their lease and woken, and supervisors die.

What happened is counted outside the database, by the commands themselves; what was committed must be what they say.
"""

from __future__ import annotations

import asyncio
import contextlib
import random
import signal
from collections.abc import Callable
from typing import Any

import pytest

from fencepost.planning.model import CommandStep
from fencepost.runner import tree
from tests.crash.stage import Child
from tests.races.plans_stage import LEASE, Yard, by_id, yard
from tests.roads.crew import after
from tests.support_plans import DIAMOND, admit, begins, chain, counted, diamond, fan, kill, step, until

__all__ = ["yard"]

pytestmark = pytest.mark.timeout(180)

HOLD = "sleep 0.1\n"
SHAPES: dict[str, tuple[Callable[..., list[CommandStep]], int]] = {
    "diamond": (diamond, 4),
    "fan-out of 30": (lambda **how: fan(30, **how), 8),
    "chain of 20": (lambda **how: chain(20, **how), 4),
}


class Trouble:
    """A worker or a supervisor meets a fault, then another; each worker that is lost is replaced."""

    def __init__(self, yard: Yard, workers: list[Child], seed: int) -> None:
        self.yard = yard
        self.workers = workers
        self.chance = random.Random(seed)
        self.supervisors = 3  # five losses of one run are a question to its operator (law 40.15)
        self.done: list[str] = []

    async def make(self, times: int) -> None:
        for _ in range(times):
            await asyncio.sleep(self.chance.uniform(0.1, 0.5))  # waits: for a moment that nobody chose
            what = self.chance.choice(("kill", "pause", "supervisor", "both"))
            living = self.yard.stage.supervisors()
            victim = self.chance.choice(self.workers)
            if what in {"supervisor", "both"} and living and self.supervisors:
                self.supervisors -= 1
                pid = self.chance.choice(sorted(living))
                tree.kill(pid, living[pid])
            if what == "pause":
                await self._pause(victim)
            elif what != "supervisor":
                await self.yard.stage.dismiss(victim)
                self.workers.remove(victim)
            if len(self.workers) < 2 or victim.ended.is_set():
                self.workers.append(await self.yard.worker(concurrency=4))
            self.done.append(what)

    async def _pause(self, victim: Child) -> None:
        """Past its lease: others take over what it holds, and then it is there again."""
        victim.signal(signal.SIGSTOP)
        await after(self.chance.uniform(1.2, 1.8) * LEASE)
        victim.signal(signal.SIGCONT)
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(0.3):
                await victim.ended.wait()
        if victim.ended.is_set() and victim in self.workers:
            self.workers.remove(victim)


@pytest.mark.parametrize(
    ("shape", "workers", "seed"), [("diamond", 2, 1), ("diamond", 4, 2), ("fan-out of 30", 4, 3), ("chain of 20", 2, 4)]
)
async def test_workers_that_race_and_are_killed_and_paused_run_each_attempt_once(
    yard: Yard, shape: str, workers: int, seed: int
) -> None:
    """I1–I4, I10, I12, I16, I18 of a plan of repeatable steps, with two and four workers."""
    steps, most = SHAPES[shape]
    crew = [await yard.worker(concurrency=4) for _ in range(workers)]
    await admit(yard.stage, "raced", steps(code=HOLD, on_lost="replay"), most=most)
    trouble = Trouble(yard, crew, seed)
    await trouble.make(5)
    assert len(trouble.done) == 5
    document = await yard.ended("raced")
    assert document["status"] == "completed", document
    assert set(document["counts"]) == {"succeeded"}, document["counts"]
    assert all(found["attempts"] == 1 for found in document["steps"]), "a loss is no try of a step's"


async def test_workers_alone_are_killed_and_nothing_is_lost(yard: Yard) -> None:
    """70.10 A command outlives its worker: whoever dies, each runs once, though none is repeatable."""
    crew = [await yard.worker(concurrency=2) for _ in range(2)]
    await admit(yard.stage, "kept", diamond(code=HOLD))
    for id in ("a", "c", "f"):
        await yard.begun("kept", id)
        await yard.stage.dismiss(crew.pop(0))
        crew.append(await yard.worker(concurrency=2))
    document = await yard.ended("kept")
    assert document["status"] == "completed", document
    for id, *_ in DIAMOND:
        assert counted(yard.stage, "kept")["begin", id] == 1, id
    assert "attempt.adopted" in await yard.events("kept"), "nobody was killed in the middle of a command"


@pytest.mark.parametrize("wakes", ["before the command has ended", "after it was settled"])
async def test_a_worker_that_was_stopped_past_its_lease_comes_back_too_late(yard: Yard, wakes: str) -> None:
    """70.10 Another adopts its command, with its number and its fence; woken, it goes, and the command goes on."""
    stage = yard.stage
    stopped = await yard.worker()
    await admit(stage, "stopped", [step("held", code=until(yard.go)), step("after", "held")])
    await yard.begun("stopped", "held")
    stopped.signal(signal.SIGSTOP)
    other = await yard.worker()
    await yard.held_by("stopped/held/1", other)
    if wakes == "before the command has ended":
        stopped.signal(signal.SIGCONT)
        assert await yard.exit(stopped) == 5
        yard.go.touch()
        document = await yard.ended("stopped")
    else:
        yard.go.touch()
        document = await yard.ended("stopped")
        stopped.signal(signal.SIGCONT)
        assert await yard.exit(stopped) == 5
        await stage.judge()
    assert document["status"] == "completed", document
    held = by_id(document)["held"]
    assert (held["number"], held["attempts"]) == (1, 1), "another attempt than the one that was adopted"
    assert counted(stage, "stopped")["begin", "held"] == 1
    assert "attempt.lost" not in await yard.events("stopped")


LOST: dict[tuple[str, str], tuple[str, int]] = {
    (who, on_lost): (status, begins)
    for who in ("the supervisor", "both")
    for on_lost, status, begins in (("fail", "failed", 1), ("replay", "completed", 2), ("ask", "unknown", 1))
}


@pytest.mark.parametrize(("who", "on_lost"), LOST)
async def test_a_command_whose_supervisor_is_killed_is_lost_as_its_step_declared(
    yard: Yard, who: str, on_lost: Any
) -> None:
    """70.10, 85.7 Proof of death: lost now, and what that means the step says."""
    stage = yard.stage
    worker = await yard.worker()
    await admit(stage, "lost", [step("held", code=until(yard.go), on_lost=on_lost), step("after", "held")])
    await yard.begun("lost", "held")
    [supervisor] = await yard.pids("lost")
    if who == "both":
        await stage.dismiss(worker)
    kill(supervisor)
    if who == "both":
        await yard.worker()
    status, began = LOST[who, on_lost]
    if status == "completed":
        await yard.begun("lost", "held", 2)
        yard.go.touch()
    if status == "unknown":
        outcome = await stage.within(stage.settled("lost"), "the question")
        assert outcome.status == "unknown", outcome
        document = await yard.read("lost")
    else:
        document = await yard.ended("lost")
    assert document["status"] == status, document
    assert begins(stage, "lost", "held") == began
    held, behind = (by_id(document)[id] for id in ("held", "after"))
    wanted: dict[str, tuple[str, str | None, str]] = {
        "failed": ("failed", "lost", "skipped"),
        "completed": ("succeeded", "success", "succeeded"),
        "unknown": ("unknown", None, "blocked"),
    }
    assert (held["state"], held["outcome"], behind["state"]) == wanted[status]
    assert counted(stage, "lost")["effect", "held"] == (status == "completed")
    await stage.judge()
