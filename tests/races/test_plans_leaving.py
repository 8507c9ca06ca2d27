"""Workers that leave in order, commands that are to be stopped, and processes whose host has no worker: who ends what, and when."""

from __future__ import annotations

import signal

import pytest

from fencepost import plans, terminal
from tests.races.plans_stage import Yard, by_id, yard
from tests.roads.crew import after
from tests.support_plans import admit, begins, counted, step, until

__all__ = ["yard"]

pytestmark = pytest.mark.timeout(120)

DEAF = "trap '' INT TERM\n"


async def test_a_worker_that_drains_leaves_its_command_to_the_next(yard: Yard) -> None:
    """40.11, 70.10 After its grace it goes; the command goes on, and the next worker of the host commits the same attempt."""
    stage = yard.stage
    first = await yard.worker(grace=0.3)
    await admit(stage, "drained", [step("held", code=until(yard.go)), step("next", "held")])
    await yard.begun("drained", "held")
    [supervisor] = await yard.pids("drained")
    first.signal(signal.SIGTERM)
    assert await yard.exit(first) == 0
    assert supervisor in stage.supervisors()
    assert by_id(await yard.read("drained"))["held"]["state"] == "running"
    second = await yard.worker()
    await yard.held_by("drained/held/1", second)
    yard.go.touch()
    document = await yard.ended("drained")
    assert document["status"] == "completed", document
    assert by_id(document)["held"]["number"] == 1
    assert counted(stage, "drained")["begin", "held"] == 1
    events = await yard.events("drained")
    assert events.count("attempt.adopted") == 1
    assert "attempt.lost" not in events


async def test_a_worker_that_drains_waits_for_a_command_that_ends_within_its_grace(yard: Yard) -> None:
    first = await yard.worker(grace=20.0)
    await admit(yard.stage, "drained", [step("held", code=until(yard.go))])
    await yard.begun("drained", "held")
    first.signal(signal.SIGTERM)
    await after(0.3)
    assert not first.ended.is_set()
    yard.go.touch()
    assert await yard.exit(first) == 0
    document = await yard.ended("drained")
    assert (document["status"], by_id(document)["held"]["number"]) == ("completed", 1)


async def test_a_command_that_hears_no_gentle_signal_is_killed_and_the_plan_cancelled(yard: Yard) -> None:
    """70.11, 80.4 The ladder ends it within the grace, and `cancelled` is said when it has stopped."""
    stage = yard.stage
    await yard.worker(graces=(200, 200))
    await admit(stage, "deaf", [step("held", code=DEAF + until(yard.go)), step("next", "held")])
    await yard.begun("deaf", "held")
    [supervisor] = await yard.pids("deaf")
    assert await stage.client.handle("deaf").cancel("enough", grace=20) == "accepted"
    document = await yard.ended("deaf")
    assert supervisor not in stage.supervisors()
    assert document["status"] == "cancelled", document
    assert by_id(document)["held"]["state"] == "cancelled"
    assert counted(stage, "deaf")["effect", "held"] == begins(stage, "deaf", "next") == 0


async def test_a_command_that_outlives_the_grace_of_a_cancel_is_stopped_all_the_same(yard: Yard) -> None:
    """The grace is shorter than the ladder: the attempt is fenced out, and its process goes on down the ladder."""
    stage = yard.stage
    worker = await yard.worker(graces=(700, 700))
    await admit(stage, "deaf", [step("held", code=DEAF + until(yard.go))])
    await yard.begun("deaf", "held")
    [supervisor] = await yard.pids("deaf")
    assert await stage.client.handle("deaf").cancel("enough", grace=0.2) == "accepted"
    assert (await yard.ended("deaf"))["status"] == "cancelled"
    await yard.gone(supervisor)
    assert not worker.ended.is_set()


async def test_a_cancel_reaches_a_command_whose_worker_is_dead(yard: Yard) -> None:
    """The next worker of the host adopts it, hears of the cancel and stops it, within the grace."""
    stage = yard.stage
    worker = await yard.worker()
    await admit(stage, "orphan", [step("held", code=until(yard.go)), step("next", "held")])
    await yard.begun("orphan", "held")
    [supervisor] = await yard.pids("orphan")
    await stage.dismiss(worker)
    assert await stage.client.handle("orphan").cancel("enough", grace=60) == "accepted"
    await yard.worker()
    document = await yard.ended("orphan")
    assert document["status"] == "cancelled", document
    assert supervisor not in stage.supervisors()
    assert counted(stage, "orphan")["effect", "held"] == 0


@pytest.mark.parametrize("how", ["cancelled", "declared lost", "past its ceiling", "ended by an operator"])
async def test_a_process_whose_attempt_was_fenced_out_is_stopped_when_its_host_has_a_worker_again(
    yard: Yard, how: str
) -> None:
    """70.10, 70.11 No worker of another host adopts it or calls it dead; when it is over, whoever comes to its host ends it."""
    stage = yard.stage
    worker = await yard.worker()
    await admit(
        stage, "left", [step("held", code=until(yard.go), on_lost="fail", timeout_ms=600_000), step("next", "held")]
    )
    await yard.begun("left", "held")
    [supervisor] = await yard.pids("left")
    await stage.dismiss(worker)
    other = await yard.worker(host="another")
    await stage.until("select exists (select from fencepost.incarnation where ended = 'silent')", seconds=15)
    assert await yard.holder("left/held/1") == worker.ready.result()
    match how:
        case "cancelled":
            assert await stage.client.handle("left").cancel("enough", grace=0.3) == "accepted"
        case "declared lost":
            assert await plans.declare_lost(stage.db, "default", "left", "held", by="me") == ("done", None)
        case "ended by an operator":
            assert (await terminal.end(stage.db, "default", "left/held/1", by="me", reason="enough"))[0] == "done"
        case _:
            await stage.installation.clock.advance(601)
            assert by_id(await yard.read("left"))["held"]["state"] == "running"
            await stage.installation.clock.advance(60)
    document = await yard.ended("left")
    assert document["status"] == ("cancelled" if how == "cancelled" else "failed"), document
    assert supervisor in stage.supervisors(), "a worker of another host cannot have ended it"
    await yard.worker()
    await yard.gone(supervisor)
    await stage.until("select not exists (select from fencepost.process where loose)", seconds=15)
    assert counted(stage, "left")["begin", "held"] == 1
    assert counted(stage, "left")["effect", "held"] == begins(stage, "left", "next") == 0
    assert not other.ended.is_set()


async def test_a_step_that_was_declared_lost_is_run_again_beside_no_living_twin(yard: Yard) -> None:
    """70.10 `replay`: another host runs it; the first process is ended by the next worker of its host and commits nothing."""
    stage = yard.stage
    worker = await yard.worker()
    await admit(stage, "again", [step("held", code=until(yard.go), on_lost="replay"), step("next", "held")])
    await yard.begun("again", "held")
    [supervisor] = await yard.pids("again")
    await stage.dismiss(worker)
    await yard.worker(host="another")
    await stage.until("select exists (select from fencepost.incarnation where ended = 'silent')", seconds=15)
    assert await plans.declare_lost(stage.db, "default", "again", "held", by="me") == ("done", None)
    await yard.begun("again", "held", 2)
    await yard.worker()
    await yard.gone(supervisor)
    yard.go.touch()
    document = await yard.ended("again")
    assert document["status"] == "completed", document
    assert by_id(document)["held"]["number"] == 2
    assert counted(stage, "again")["begin", "held"] == 2
    assert counted(stage, "again")["effect", "held"] == 1
