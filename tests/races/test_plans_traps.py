"""What controllers before this one fell into, each with real workers: a run that stalls, a step that runs again because its success could
not be written down, a lost lease that wedges or polls, a late cancel, a wrong clock, one run that takes others along.
"""

from __future__ import annotations

import itertools
from collections import Counter

import pytest

from fencepost import terminal
from tests.crash.stage import Child
from tests.races.plans_stage import Yard, by_id, yard
from tests.roads.crew import after
from tests.support_plans import BULK, admit, begins, chain, counted, fan, retried, step, until

__all__ = ["yard"]

pytestmark = pytest.mark.timeout(120)

# 100 KB: an output that no row holds.
BIG = "head -c 100000 /dev/zero | tr '\\\\0' 'x' > \"$FENCEPOST_OUTPUTS/bulk\"\n"


def statements(worker: Child, since: int) -> int:
    """What it asked the database in three seconds: beats, four a second, and looks at the line, one in five seconds."""
    return sum(text.startswith("statement.before") for text in worker.counted[since:])


async def test_a_failed_step_before_a_chain_of_four_ends_the_run(yard: Yard) -> None:
    """70.3, 70.12 Skips go to the end in one transaction; the run does not stall."""
    await yard.worker()
    steps = chain(6)
    steps[1] = step("k01", "k00", code="exit 3\n")
    await admit(yard.stage, "fails", steps)
    document = await yard.ended("fails")
    assert document["status"] == "failed", document
    assert document["counts"] == {"succeeded": 1, "failed": 1, "skipped": 4}
    assert {found["reason"] for found in document["steps"][3:]} == {
        "needs k02, which was skipped", "needs k03, which was skipped", "needs k04, which was skipped",
    }  # fmt: skip


@pytest.mark.parametrize("dies", [False, True], ids=["the worker lives", "the worker is killed meanwhile"])
async def test_a_success_that_cannot_be_kept_is_kept_later_and_never_run_again(yard: Yard, dies: bool) -> None:
    """70.7 The store's place is taken by a file for a while: recording is tried again, execution is not."""
    stage = yard.stage
    worker = await yard.worker()
    stage.files.mkdir(exist_ok=True)
    (stage.files / "store").write_text("no folder")
    await admit(stage, "kept", [step("bulky", code=BIG, outputs=BULK), step("next", "bulky")])
    await stage.until_noted("kept", "effect", "bulky")
    await yard.gone((await yard.pids("kept"))[0])
    if dies:
        await stage.dismiss(worker)
        await yard.held_by("kept/bulky/1", await yard.worker())
    await after(1.2)
    assert by_id(await yard.read("kept"))["bulky"]["state"] == "running"
    (stage.files / "store").unlink()
    document = await yard.ended("kept")
    assert document["status"] == "completed", document
    bulky = by_id(document)["bulky"]
    assert (bulky["number"], bulky["attempts"], bulky["outputs"]["bulk"]["size"]) == (1, 1, 100_000)
    assert (stage.files / "store" / bulky["outputs"]["bulk"]["place"]).stat().st_size == 100_000
    assert counted(stage, "kept")["begin", "bulky"] == counted(stage, "kept")["effect", "bulky"] == 1


async def test_a_server_that_is_away_while_a_success_is_told_hears_it_later(yard: Yard) -> None:
    """70.7 Every connection is cut, again and again, while commands end: nothing runs twice, nothing fails."""
    stage = yard.stage
    await yard.worker()
    await admit(stage, "cut", fan(12, code="sleep 0.05\n"))
    for _ in range(10):
        await stage.value(
            """select count(pg_terminate_backend(pid)) from pg_stat_activity
                where datname = current_database() and pid <> pg_backend_pid() and application_name <> 'crash harness'"""
        )
        await after(0.1)
    document = await yard.ended("cut")
    assert document["status"] == "completed", document
    assert set(Counter(e.step for e in stage.noted("cut") if e.word == "begin").values()) == {1}


async def test_a_lease_that_is_lost_in_mid_run_neither_wedges_nor_polls(yard: Yard) -> None:
    """70.10, 70.13 Only a worker of another host is left: it asks no more than an idle one does, and grows no ledger."""
    stage = yard.stage
    worker = await yard.worker()
    await admit(stage, "away", [step("held", code=until(yard.go)), step("next", "held")])
    await yard.begun("away", "held")
    await stage.dismiss(worker)
    other = await yard.worker(host="another", counting=True, hearts=True)
    await stage.until("select exists (select from fencepost.incarnation where ended = 'silent')", seconds=15)
    events, asked = await yard.events("away"), len(other.counted)
    await after(3.0)
    assert statements(other, asked) <= 18
    assert await yard.events("away") == events
    assert await yard.holder("away/held/1") == worker.ready.result(), "another host took it over"
    yard.go.touch()
    back = await yard.worker()
    document = await yard.ended("away")
    assert document["status"] == "completed", document
    assert counted(stage, "away")["begin", "held"] == 1
    assert not back.ended.is_set()


async def test_heartbeats_grow_no_ledger(yard: Yard) -> None:
    """40.12 A step that runs for twelve beats leaves what it left when it began, and its worker asks for nothing but beats."""
    worker = await yard.worker(counting=True, hearts=True)
    await admit(yard.stage, "long", [step("held", code=until(yard.go))])
    await yard.begun("long", "held")
    events, asked = await yard.events("long"), len(worker.counted)
    beats = await yard.stage.value("select max(heard_at) from fencepost.incarnation")
    await after(3.0)
    assert await yard.stage.value("select max(heard_at) - $1 > interval '2 s' from fencepost.incarnation", beats)
    assert await yard.events("long") == events
    assert statements(worker, asked) <= 18
    yard.go.touch()
    assert (await yard.ended("long"))["status"] == "completed"


async def test_a_late_cancel_does_not_undo_a_run_that_has_ended(yard: Yard) -> None:
    """80.1, 80.4 It is told that it came too late, and nothing is another; nor does one of a step's own run undo its result."""
    stage = yard.stage
    await yard.worker()
    await admit(stage, "done", chain(2))
    document = await yard.ended("done")
    for run in ("done", "done/k00/1"):
        assert (await terminal.cancel(stage.db, "default", run, reason="late", grace_ms=0))[0] == "too_late"
    assert {**await yard.read("done"), "now": None} == {**document, "now": None}


@pytest.mark.parametrize("hours", [-30.0, 30.0])
async def test_a_wrong_clock_of_a_worker_shifts_no_retry(yard: Yard, hours: float) -> None:
    """70.7 Delays are counted by the database, from the end that it wrote down."""
    await yard.worker(hours=hours)
    broken = step("tries", code='[ "$FENCEPOST_ATTEMPT" -ge 3 ] || exit 7\n', retry=retried(3, 400))
    await admit(yard.stage, "clock", [broken])
    document = await yard.ended("clock")
    assert document["status"] == "completed", document
    rows = await yard.stage.rows(
        """select o.ended_at, p.begun_at from fencepost.process p join fencepost.outcome o using (rid) order by p.begun_at"""
    )
    assert len(rows) == 3
    for before, then in itertools.pairwise(rows):
        waited = (then["begun_at"] - before["ended_at"]).total_seconds()
        assert 0.4 <= waited < 3, waited


async def test_the_lost_claim_of_one_run_disturbs_no_other(yard: Yard) -> None:
    """One run is fenced out under its worker, which goes on with the other's command."""
    stage = yard.stage
    worker = await yard.worker()
    for run in ("lost", "other"):
        await admit(stage, run, [step("held", code=until(yard.go)), step("next", "held")])
        await yard.begun(run, "held")
    [taken], [kept] = await yard.pids("lost"), await yard.pids("other")
    assert (await terminal.cancel(stage.db, "default", "lost", reason="now", grace_ms=0))[0] == "accepted"
    assert (await yard.ended("lost"))["status"] == "cancelled"
    await yard.gone(taken)
    assert kept in stage.supervisors()
    yard.go.touch()
    document = await yard.ended("other")
    assert document["status"] == "completed", document
    assert by_id(document)["held"]["number"] == 1
    assert not worker.ended.is_set()
    assert begins(stage, "lost", "next") == 0
