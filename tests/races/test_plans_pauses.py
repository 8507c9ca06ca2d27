"""A worker is stopped at a boundary of a step's attempt, past its lease; another goes on; then the first wakes and goes on as well."""

from __future__ import annotations

import os
import signal
from functools import partial

import pytest

from fencepost.worker import process
from tests.races.plans_stage import Yard, by_id, yard
from tests.roads.crew import until as until_true
from tests.support_plans import ATTEMPTS, admit, chain, counted, kill, step, until

__all__ = ["yard"]

pytestmark = pytest.mark.timeout(180)

# Where the first worker is stopped -> the attempt that commits: its own is adopted once it is on record, else another is claimed. Woken
# before it said "go" it may still say it, or hear first that it was judged dead: then nothing has run.
POINTS = {
    "step.started[k00]:1": {2},
    "statement.before[begin_steps]:1": {2},
    "statement.executed[begin_steps]:1": {1, 2},
    "step.begun[k00]:1": {1, 2},
    "step.gone[k00]:1": {1},
    "step.ended[k00]:1": {1},
    "statement.before[finish_attempts]:1": {1},
    "statement.executed[finish_attempts]:1": {1},
}


async def test_a_worker_that_wakes_at_any_boundary_of_an_attempt_runs_nothing_twice(yard: Yard) -> None:
    stage = yard.stage
    for place, (point, numbers) in enumerate(POINTS.items()):
        run = f"paused{place}"
        first = await yard.worker(pause=point)
        await admit(stage, run, chain(2))
        await stage.within(first.mark("paused").wait(), point)
        second = await yard.worker()
        if numbers == {2} or point.endswith("executed[finish_attempts]:1"):
            await stage.within(stage.settled(run), f"the end of {run}")
        else:
            await stage.until(
                "select exists (select from fencepost.event e join fencepost.run r using (rid) where r.id = $1 and e.type = 'attempt.adopted')",
                f"{run}/k00/1", what=f"an adoption at {point}",
            )  # fmt: skip
        await stage.until("select count(*) > $1 from fencepost.incarnation where ended = 'silent'", place, seconds=15)
        first.signal(signal.SIGCONT)
        assert await yard.exit(first) == 5, point
        document = await yard.ended(run)
        assert document["status"] == "completed", (point, document)
        found = by_id(document)
        assert found["k00"]["attempts"] == 1, (point, found["k00"])
        assert found["k00"]["number"] in numbers, (point, found["k00"], await yard.events(run))
        for id in ("k00", "k01"):
            assert counted(stage, run)["begin", id] == counted(stage, run)["effect", id] == 1, (point, id)
        await stage.dismiss(second)


# Where a supervisor is stopped, and killed together with its worker -> the attempt that commits, and how often the command began by then.
DEATHS = {
    "waiting": (2, 1), "told": (2, 1), "before command.json": (2, 1), "after command.json": (2, 1), "ended": (2, 2),
    "before result.json": (2, 2), "after result.json": (1, 1),
}  # fmt: skip


async def test_a_supervisor_and_its_worker_that_die_together_at_any_point_are_settled_by_the_next(yard: Yard) -> None:
    """70.10 Never begun: run, and no try charged; begun: lost, and run again as declared; ended: its outcome is settled."""
    stage = yard.stage
    for place, (point, (number, begins)) in enumerate(DEATHS.items()):
        run = f"dies{place}"
        first = await yard.worker(environ={"FENCEPOST_SUPERVISOR_STOP_AT": point})
        await admit(stage, run, [step("held", on_lost="replay"), step("next", "held")])
        await stage.until(f"select exists ({ATTEMPTS})", run, what=f"a beginning of {run}")
        [supervisor] = await yard.pids(run)
        await until_true(partial(process.is_stopped, supervisor), f"a supervisor stopped at {point}")
        await stage.dismiss(first)
        kill(supervisor)
        second = await yard.worker()
        document = await yard.ended(run)
        assert document["status"] == "completed", (point, document)
        assert by_id(document)["held"]["number"] == number, point
        assert counted(stage, run)["begin", "held"] == begins, point
        lost = (await yard.events(run)).count("attempt.lost")
        assert lost == (point in {"after command.json", "ended", "before result.json"}), (point, lost)
        await stage.dismiss(second)


@pytest.mark.parametrize("kept", ["its worker", "another worker"])
async def test_a_stopped_supervisor_hears_of_a_cancel(yard: Yard, kept: str) -> None:
    """70.11 Somebody stopped it, and its command runs on: it is woken to end it."""
    stage = yard.stage
    worker = await yard.worker()
    await admit(stage, "frozen", [step("held", code=until(yard.go))])
    await yard.begun("frozen", "held")
    [supervisor] = await yard.pids("frozen")
    os.kill(supervisor, signal.SIGSTOP)
    if kept == "another worker":
        await stage.dismiss(worker)
        await yard.held_by("frozen/held/1", await yard.worker())
    assert await stage.client.handle("frozen").cancel("enough", grace=20) == "accepted"
    assert (await yard.ended("frozen"))["status"] == "cancelled"
    await until_true(lambda: supervisor not in stage.supervisors(), "the supervisor's end")
    assert counted(stage, "frozen")["effect", "held"] == 0
