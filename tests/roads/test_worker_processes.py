"""Workers as real processes: killed, stopped, starved, told to go home."""

from __future__ import annotations

import asyncio
import os
import signal
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import asyncpg
import pytest

from fencepost import terminal
from fencepost.db import Database
from tests.roads.crew import Crew, after, hearts_of, is_away, until, until_row
from tests.support import admit_one, look

LEASE, BEAT = 2.5, 0.8


@pytest.fixture
def crew(worker_dsn: str, tmp_path: Path) -> Iterator[Crew]:
    made = Crew(worker_dsn, tmp_path)
    yield made
    made.end()


async def ends(admin: asyncpg.Connection, rid: int, seconds: float = 20.0) -> str:
    """How the run ended."""
    return str(
        await until_row(
            lambda: admin.fetchval("select status from fencepost.outcome where rid = $1", rid),
            f"the end of run {rid}",
            seconds,
        )
    )


async def history(admin: asyncpg.Connection, rid: int) -> list[tuple[int, str, bool, str | None]]:
    rows = await admin.fetch(
        "select number, ended, begun, reason from fencepost.attempt where rid = $1 order by number", rid
    )
    return [tuple(row) for row in rows]


async def closed(admin: asyncpg.Connection, pid: int) -> Any:
    """How the incarnation of a process ended."""
    return await admin.fetchval("select ended from fencepost.incarnation where pid = $1", pid)


# Death


async def test_40_9_a_killed_workers_run_is_taken_over_at_the_next_beat_of_its_host(
    crew: Crew, db: Database, admin: asyncpg.Connection
) -> None:
    """85.3: proof of death is not waited for: the lease is half a minute, the take-over a beat."""
    first = await crew.start(beat=1.0)
    rid = await admit_one(db, name="holding", input='"a"')
    await crew.effect("hold", "a", first.pid)
    second = await crew.start(beat=1.0)
    (heart,) = hearts_of(first.pid)
    first.send_signal(signal.SIGKILL)
    first.wait()
    await crew.effect("hold", "a", second.pid, seconds=8)
    await is_away(heart)
    crew.go()
    assert await ends(admin, rid) == "completed"
    assert [h[:2] for h in await history(admin, rid)] == [(1, "lost"), (2, "finished")]
    assert len(crew.effects("note", "a")) == 1, "what was kept is not done again"
    assert await closed(admin, first.pid) == "proven"


async def test_40_12_a_starting_worker_beats_first_and_so_recovers_from_its_dead_predecessor(
    crew: Crew, db: Database, admin: asyncpg.Connection
) -> None:
    first = await crew.start()
    rid = await admit_one(db, name="holding", input='"a"')
    await crew.effect("hold", "a", first.pid)
    (heart,) = hearts_of(first.pid)
    first.send_signal(signal.SIGKILL)
    first.wait()
    await is_away(heart, 3.0)
    second = await crew.start()  # a beat every eight seconds, a lease of thirty
    await crew.effect("hold", "a", second.pid, seconds=5)
    assert (await look(admin, rid, "number")) == 2


async def test_40_10_a_stopped_worker_is_out_after_an_observed_lease_and_writes_nothing_when_it_goes_on(
    crew: Crew, db: Database, admin: asyncpg.Connection
) -> None:
    """40.3, 85.3, B06, B132: a process that is only stopped is not gone: its silence is waited for."""
    first = await crew.start(lease=LEASE, beat=BEAT)
    rid = await admit_one(db, name="holding", input='"a"')
    await crew.effect("hold", "a", first.pid)
    second = await crew.start(lease=LEASE, beat=BEAT)
    first.send_signal(signal.SIGSTOP)
    await crew.effect("hold", "a", second.pid, seconds=20)
    silent = await admin.fetchval(
        "select extract(epoch from i.ended_at - i.heard_at)::float from fencepost.incarnation i where i.pid = $1",
        first.pid,
    )
    assert silent >= LEASE
    assert await closed(admin, first.pid) == "silent"
    before = await look(admin, rid, "number", "fence", "seq")
    first.send_signal(signal.SIGCONT)
    assert await crew.ended(first) == 5
    assert crew.effects("cancelled", "a", first.pid), "its code was aborted"
    assert await look(admin, rid, "number", "fence", "seq") == before
    crew.go()
    assert await ends(admin, rid) == "completed"
    assert [h[:2] for h in await history(admin, rid)] == [(1, "lost"), (2, "finished")]


async def test_40_12_code_that_blocks_the_loop_or_holds_the_interpreter_for_three_leases_loses_nothing(
    crew: Crew, db: Database, admin: asyncpg.Connection
) -> None:
    """B16"""
    first = await crew.start(lease=LEASE, beat=BEAT)
    rid = await admit_one(db, name="blocking", input=str(3 * LEASE))
    await crew.effect("block", first.pid)
    second = await crew.start(lease=LEASE, beat=BEAT)
    await crew.effect("grip", first.pid, seconds=5 * LEASE)
    assert await ends(admin, rid, 6 * LEASE) == "completed"
    assert [h[:2] for h in await history(admin, rid)] == [(1, "finished")]
    assert second.poll() is None
    assert first.poll() is None


# The heartbeat process


@pytest.mark.parametrize("how", [signal.SIGKILL, signal.SIGSTOP])
async def test_40_12_a_worker_whose_heartbeat_process_ends_or_hangs_starts_another(
    crew: Crew, db: Database, admin: asyncpg.Connection, how: signal.Signals
) -> None:
    member = await crew.start(lease=6.0, beat=0.6)
    rid = await admit_one(db, name="holding", input='"a"')
    await crew.effect("hold", "a", member.pid)
    (heart,) = hearts_of(member.pid)
    os.kill(heart, how)
    await until(lambda: hearts_of(member.pid) not in ([], [heart]), "another heartbeat process")
    heard = await admin.fetchval("select heard_at from fencepost.incarnation")
    await until_row(lambda: admin.fetchval("select heard_at > $1 from fencepost.incarnation", heard), "its beat")
    await is_away(heart)
    crew.go()
    assert await ends(admin, rid) == "completed"
    assert [h[:2] for h in await history(admin, rid)] == [(1, "finished")]


async def test_40_12_a_worker_that_can_have_no_heartbeat_for_half_a_lease_goes_home(
    crew: Crew, db: Database, tmp_path: Path
) -> None:
    """Its own interpreter vanishes from under it: no process can be started any more."""
    python = tmp_path / "python"
    python.symlink_to(os.path.realpath("/proc/self/exe"))
    member = await crew.start(lease=3.0, beat=0.6, HEARTBEAT_PYTHON=python)
    await admit_one(db, name="holding", input='"a"')
    await crew.effect("hold", "a", member.pid)
    python.unlink()
    (heart,) = hearts_of(member.pid)
    os.kill(heart, signal.SIGKILL)
    assert await crew.ended(member) == 5
    assert crew.effects("cancelled", "a", member.pid)
    assert "lost its attempts why=heartbeat" in crew.log(member)


# Told to stop


@pytest.mark.parametrize("loop", ["asyncio", "uvloop"])
async def test_40_11_an_idle_worker_told_to_stop_closes_and_exits_0(
    crew: Crew, db: Database, admin: asyncpg.Connection, loop: str
) -> None:
    member = await crew.start(LOOP=loop)
    assert await ends(admin, await admit_one(db, name="quick", input='"a"')) == "completed"
    (heart,) = hearts_of(member.pid)
    member.send_signal(signal.SIGTERM)
    assert await crew.ended(member, 5) == 0
    assert await closed(admin, member.pid) == "closed"
    await is_away(heart)


async def test_40_11_what_runs_is_drained_within_the_grace_and_the_heart_beats_until_then(
    crew: Crew, db: Database, admin: asyncpg.Connection
) -> None:
    member = await crew.start(lease=LEASE, beat=BEAT)
    rid = await admit_one(db, name="holding", input='"a"')
    await crew.effect("hold", "a", member.pid)
    member.send_signal(signal.SIGTERM)
    later = await admit_one(db, name="quick", input='"b"')
    hearts = hearts_of(member.pid)
    os.kill(hearts[0], signal.SIGTERM)  # a service manager signals the whole group
    await after(1.5 * LEASE)
    assert hearts_of(member.pid) == hearts
    assert await closed(admin, member.pid) is None
    assert (await look(admin, rid, "state", "number")) == ("running", 1)
    crew.go()
    assert await crew.ended(member) == 0
    assert await ends(admin, rid) == "completed"
    assert await look(admin, later) == "queued", "nothing more is claimed"


@pytest.mark.parametrize("how", ["the grace ends", "a second signal"])
async def test_40_11_what_still_runs_at_the_end_is_lost_by_its_own_workers_word(
    crew: Crew, db: Database, admin: asyncpg.Connection, how: str
) -> None:
    member = await crew.start(GRACE=0.5 if how == "the grace ends" else 600)
    replayed = await admit_one(db, name="holding", input='"a"')
    asked = await admit_one(db, name="careful", input='"b"', on_lost="ask")
    await crew.effect("hold", "a", member.pid)
    await crew.effect("hold", "b", member.pid)
    member.send_signal(signal.SIGTERM)
    if how == "a second signal":
        await until(lambda: "draining" in crew.log(member), "the drain")
        member.send_signal(signal.SIGTERM)
    assert await crew.ended(member) == 0
    assert await look(admin, replayed, "state", "losses", "tries") == ("queued", 1, 1)
    assert await look(admin, asked, "state", "tries") == ("unknown", 1)
    assert await history(admin, replayed) == [(1, "lost", True, "worker_stopped")]
    assert {line[1] for line in crew.effects("cancelled")} == {"a", "b"}
    assert await admin.fetchval("select count(*) from fencepost.task where state = 'running'") == 0


@pytest.mark.parametrize("loop", ["asyncio", "uvloop"])
async def test_40_11_a_program_that_breaks_beside_its_worker_says_nothing_of_the_runs_but_that_they_are_lost(
    crew: Crew, db: Database, admin: asyncpg.Connection, loop: str
) -> None:
    """asyncio.run cancels every task when its main one has ended: the worker's, its legs', and those of the code."""
    member = await crew.start(LOOP=loop, BREAKS=1, CONCURRENCY=200)
    names = ["holding", "tidying", "resisting"] * 30
    runs = [await admit_one(db, name=name, input=f'"{place}"') for place, name in enumerate(names)]
    asked = await admit_one(db, name="careful", input='"b"', on_lost="ask")
    await crew.effect("hold", n=len(runs) + 1)
    async with admin.transaction():  # its last word waits, and whatever else it would say could come first
        await admin.execute("select 1 from fencepost.incarnation where pid = $1 for update", member.pid)
        member.send_signal(signal.SIGUSR1)
        await after(1.0)
    assert await crew.ended(member) == 1
    for rid in runs:
        assert await history(admin, rid) == [(1, "lost", True, "worker_stopped")]
        assert await look(admin, rid, "state", "losses", "tries") == ("queued", 1, 1)
    assert await look(admin, asked, "state", "tries") == ("unknown", 1)
    assert not crew.effects("note", "tidied")
    assert await closed(admin, member.pid) == "closed"


async def test_40_11_a_stop_at_any_moment_of_the_start_is_obeyed(crew: Crew, admin: asyncpg.Connection) -> None:
    """B27: nothing that starts later erases it."""
    for step in range(12):
        member = await crew.start(ready=False)
        await after(0.12 * step)
        member.send_signal(signal.SIGTERM)
        code = await crew.ended(member, 10)
        assert code in {0, -signal.SIGTERM}, crew.log(member)  # the second: Python itself had not started yet
    left = await admin.fetchval("select count(*) from fencepost.incarnation where ended is null")
    assert left == 0


async def test_40_12_when_hung_steps_use_up_all_threads_it_drains_and_exits_1_naming_the_step(
    crew: Crew, db: Database, admin: asyncpg.Connection
) -> None:
    member = await crew.start(THREADS=1)
    rid = await admit_one(db, name="hanging", input='"a"')
    assert await crew.ended(member) == 1
    assert "used up" in crew.log(member)
    assert "step=hang" in crew.log(member)
    assert await ends(admin, rid) == "failed"


async def test_an_optimised_interpreter_is_refused(crew: Crew) -> None:
    member = await crew.start(ready=False, flags=("-O",))
    assert await crew.ended(member) == 1
    assert "python -O" in crew.log(member)


# Waking


async def test_00_10_without_a_listener_a_run_is_found_by_polling_and_a_cancel_by_the_beat(
    worker_dsn: str, tmp_path: Path, db: Database, admin: asyncpg.Connection
) -> None:
    """B43, B61: behind a transaction pooler and without a way around it nobody listens."""
    crew = Crew(worker_dsn + ("&" if "?" in worker_dsn else "?") + "pooler=1", tmp_path)
    try:
        member = await crew.start(beat=1.0, CONCURRENCY=1)
        rid = await admit_one(db, name="holding", id="a", input='"a"')
        await crew.effect("hold", "a", member.pid, seconds=7)
        assert await terminal.cancel(db, "default", "a", reason="enough", grace_ms=30_000) == ("accepted", "cancelling")
        await crew.effect("cancelled", "a", member.pid, seconds=3)
        assert await ends(admin, rid) == "cancelled"
    finally:
        crew.end()


async def test_60_9_a_due_wait_goes_on_within_a_second(crew: Crew, db: Database, admin: asyncpg.Connection) -> None:
    """Between two beats: the answer of the one before names the hour (DESIGN 6.6)."""
    await crew.start()
    rid = await admit_one(db, name="napping", input="2.0")
    assert await ends(admin, rid, 10) == "completed"
    late = await admin.fetchval(
        "select extract(epoch from w.at - p.at)::float - 2.0 from fencepost.event w, fencepost.event p "
        "where w.rid = $1 and p.rid = $1 and w.type = 'attempt.claimed' and w.number = 2 and p.type = 'attempt.parked'", rid,
    )  # fmt: skip
    assert late < 1.0, late


async def test_a_delayed_launch_begins_within_a_second_of_its_hour(
    crew: Crew, db: Database, admin: asyncpg.Connection
) -> None:
    """The hint it sent finds nothing to claim, and so asks for the hour."""
    await crew.start()
    await after(1.0)
    rid = await admit_one(db, name="quick", input='"later"', delay_ms=2500)
    assert await ends(admin, rid, 10) == "completed"
    late = await admin.fetchval(
        "select extract(epoch from c.at - r.submitted_at)::float - 2.5 from fencepost.event c join fencepost.run r using (rid) "
        "where c.rid = $1 and c.type = 'attempt.claimed'", rid,
    )  # fmt: skip
    assert late < 1.0, late


async def test_00_10_a_hint_wakes_an_idle_worker_and_a_cancel_reaches_code_between_beats(
    crew: Crew, db: Database, admin: asyncpg.Connection
) -> None:
    member = await crew.start()
    loop = asyncio.get_running_loop()
    took = []
    for turn in range(3):
        since = loop.time()
        rid = await admit_one(db, name="quick", input=f'"{turn}"')
        assert await ends(admin, rid) == "completed"
        took.append(loop.time() - since)
    assert min(took) < 2.0, took
    rid = await admit_one(db, name="holding", id="a", input='"a"')
    await crew.effect("hold", "a", member.pid)
    await terminal.cancel(db, "default", "a", reason="enough", grace_ms=30_000)
    await crew.effect("cancelled", "a", member.pid, seconds=4)
    assert await ends(admin, rid) == "cancelled"


async def test_40_15_a_suspect_that_waits_for_a_lease_stops_the_claims_of_a_busy_worker(
    crew: Crew, db: Database, admin: asyncpg.Connection
) -> None:
    member = await crew.start(lease=LEASE, beat=BEAT)
    busy = await admit_one(db, name="holding", input='"busy"')
    await crew.effect("hold", "busy", member.pid)
    suspect = await admit_one(db, name="quick", input='"suspect"', delay_ms=3_600_000)
    await admin.execute("update fencepost.task set losses = 1, due_at = null where rid = $1", suspect)
    early = await admit_one(db, name="quick", input='"early"')
    assert await ends(admin, early) == "completed"
    await after(LEASE + 0.5)
    late = await admit_one(db, name="quick", input='"late"')
    await after(6.0)
    assert (await look(admin, suspect), await look(admin, late)) == ("queued", "queued")
    crew.go()
    for rid in (busy, suspect, late):
        assert await ends(admin, rid, 4) == "completed"
    assert [line[1] for line in crew.effects("note")] == ["busy", "early", "suspect", "late"]


async def test_40_15_a_suspect_runs_alone_until_it_commits(crew: Crew, db: Database, admin: asyncpg.Connection) -> None:
    first = await crew.start(beat=1.0)
    suspect = await admit_one(db, name="holding", input='"a"')
    await crew.effect("hold", "a", first.pid)
    second = await crew.start(beat=1.0)
    first.send_signal(signal.SIGKILL)
    first.wait()
    await crew.effect("hold", "a", second.pid, seconds=8)
    neighbour = await admit_one(db, name="quick", input='"b"')
    await after(7.0)  # longer than a poll
    assert await look(admin, neighbour) == "queued"
    crew.go()
    assert await ends(admin, suspect) == "completed"
    assert await ends(admin, neighbour, 3) == "completed"
