"""A worker and a database that is away, or slow to answer; and what the two say to each other."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator, Iterator
from pathlib import Path
from typing import Any

import asyncpg
import pytest

from fencepost import App, Context
from fencepost.db import Database
from fencepost.errors import BrokenLaw
from fencepost.settings import Settings
from fencepost.testing import pause_at, raise_at
from fencepost.worker import pulse
from fencepost.worker.loop import Worker
from tests.roads import inside
from tests.roads.crew import Crew, after, until, until_row
from tests.roads.inside import ends
from tests.roads.proxy import Line
from tests.support import admit_one, look

app = App("weather", release="dev")


@app.step(repeatable=True)
async def count(word: str) -> str:
    done.append(word)
    return word


done: list[str] = []


@app.workflow()
async def once(ctx: Context, word: str) -> str:
    return await ctx.step(count, word)


@app.step(repeatable=True)
async def wait_for_ever() -> None:
    done.append("waiting")
    try:
        await asyncio.Event().wait()
    except asyncio.CancelledError:
        done.append("cancelled")
        raise


@app.workflow()
async def endless(ctx: Context) -> None:
    ctx.progress(3, 10, "under way")
    await ctx.step(wait_for_ever)


@app.step(repeatable=True)
async def until_its_word_is_on_its_way() -> None:
    await on_its_way.wait()


on_its_way = asyncio.Event()


@app.workflow()
async def asks_a_person(ctx: Context) -> None:
    ctx.progress(1, 2, "asks a person")
    await ctx.step(until_its_word_is_on_its_way)
    await ctx.wait_for("verdict", str)


@app.workflow(on_lost="ask")
async def careful(ctx: Context, word: str) -> str:
    return await ctx.step(count, word)


@pytest.fixture
async def line(worker_dsn: str, tmp_path: Path) -> AsyncIterator[Line]:
    async with Line(worker_dsn, tmp_path) as made:
        yield made


@pytest.fixture
def crew(line: Line, tmp_path: Path) -> Iterator[Crew]:
    made = Crew(line.dsn, tmp_path)
    yield made
    made.end()


@contextlib.asynccontextmanager
async def working(dsn: str, **how: Any) -> AsyncIterator[Worker]:
    done.clear()
    async with inside.working(app, dsn, **how) as worker:
        yield worker


async def history(admin: asyncpg.Connection, rid: int) -> list[tuple[int, str]]:
    rows = await admin.fetch("select number, ended from fencepost.attempt where rid = $1 order by number", rid)
    return [tuple(row) for row in rows]


# Weather


async def test_an_idle_worker_asks_at_most_half_a_statement_a_second(crew: Crew, line: Line) -> None:
    """DESIGN 6.6: claims, beats and the listener's checks together."""
    member = await crew.start()
    await after(2.0)
    before = line.statements
    await after(24.0)
    assert member.poll() is None
    assert 6 <= line.statements - before <= 12


async def test_00_3_an_outage_longer_than_the_lease_ends_no_worker_and_no_run(
    crew: Crew, line: Line, db: Database, admin: asyncpg.Connection
) -> None:
    """B143, 85.3: the silence of the database is nobody's."""
    member = await crew.start(lease=2.5, beat=0.8)
    rid = await admit_one(db, name="holding", input='"a"')
    await crew.effect("hold", "a", member.pid)
    line.cut = True
    line.drop()
    await after(4.0)
    crew.go()
    await crew.effect("held", "a", member.pid)
    line.cut = False
    assert await ends(admin, rid) == "completed"
    assert await history(admin, rid) == [(1, "finished")]
    assert member.poll() is None
    assert crew.log(member).count("meets trouble") <= 2, "one line a minute, of each part"
    assert await ends(admin, await admit_one(db, name="quick", input='"b"')) == "completed"


async def test_40_12_a_beat_into_a_swallowed_connection_ends_by_its_own_deadline(
    crew: Crew, line: Line, admin: asyncpg.Connection
) -> None:
    """B33: nothing is reset, nothing answers; the next try has a new connection."""
    member = await crew.start(lease=30.0, beat=1.0)
    line.swallow()
    await after(2.0)
    line.answer_again()
    heard = await admin.fetchval("select heard_at from fencepost.incarnation")
    ask = "select heard_at > $1 from fencepost.incarnation"
    await until_row(lambda: admin.fetchval(ask, heard), "a beat on a new connection", 3.0)
    assert member.poll() is None


# What is asked again


async def test_40_14_a_claim_whose_reply_was_lost_gives_the_same_attempts(
    worker_dsn: str, db: Database, admin: asyncpg.Connection
) -> None:
    rids = [await admit_one(db, name="once", input=f'"{n}"') for n in range(3)]
    lost = raise_at(
        "statement.executed", ConnectionResetError("cut"), when=lambda facts: facts["door"] == "claim_attempts"
    )
    with lost:
        async with working(worker_dsn):
            for rid in rids:
                assert await ends(admin, rid) == "completed"
    assert sorted(done) == ["0", "1", "2"]
    assert [await history(admin, rid) for rid in rids] == [[(1, "finished")]] * 3


async def test_40_14_what_a_beat_is_told_of_is_never_given_back_under_a_slow_claim(
    worker_dsn: str, db: Database, admin: asyncpg.Connection
) -> None:
    """The reply is under way for three beats: the request is not answered yet, so its attempts are not missed."""
    rid = await admit_one(db, name="once", input='"a"')
    with pause_at("statement.executed", when=lambda facts: facts["door"] == "claim_attempts") as pause:
        async with working(worker_dsn, lease=2.0, beat=0.5) as worker:
            await pause.reached()
            worker.pulse.changed()  # as the end of another attempt would
            await after(1.8)
            assert await look(admin, rid, "state", "number") == ("running", 1)
            pause.release()
            assert await ends(admin, rid) == "completed"
    assert await history(admin, rid) == [(1, "finished")]


async def test_40_12_a_beat_that_is_asked_for_waits_for_no_other(
    worker_dsn: str, admin: asyncpg.Connection, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A cancel may be waiting: neither the next beat, nor what is to be published later, is waited for."""
    monkeypatch.setattr(pulse, "PUBLISH_SECONDS", 3600.0)
    heard = "select heard_at from fencepost.incarnation"
    async with working(worker_dsn, lease=200.0, beat=60.0) as worker:
        last = await admin.fetchval(heard)
        for _ in range(3):
            worker.pulse.changed()
            worker.pulse.beat_now()
            last = await until_row(lambda last=last: admin.fetchval(f"{heard} where heard_at > $1", last), "a beat", 10)


async def test_40_11_what_was_claimed_and_not_begun_is_given_back_at_once_and_charged_no_try(
    worker_dsn: str, db: Database, admin: asyncpg.Connection
) -> None:
    """B21, B23: told to stop between the claim and the begun mark."""
    rids = [await admit_one(db, name="careful", input=f'"{n}"', on_lost="ask") for n in range(10)]
    with pause_at("statement.before", when=lambda facts: facts["door"] == "begin_attempts") as pause:
        async with working(worker_dsn):
            await pause.reached()
            assert await admin.fetchval("select count(*) from fencepost.task where state = 'running'") == 10
    for rid in rids:
        assert await look(admin, rid, "state", "number", "tries", "begun") == ("queued", 1, 0, False)
        assert await history(admin, rid) == [(1, "given_back")]
    assert done == []


async def test_40_11_a_claim_that_is_answered_after_the_stop_is_given_back(
    worker_dsn: str, db: Database, admin: asyncpg.Connection
) -> None:
    rid = await admit_one(db, name="once", input='"a"')
    with pause_at("statement.executed", when=lambda facts: facts["door"] == "claim_attempts") as pause:
        async with working(worker_dsn) as worker:
            await pause.reached()
            worker.stop("stopped")
            pause.release()
    assert await look(admin, rid, "state", "tries") == ("queued", 0)
    assert done == []


async def test_40_11_what_was_stopped_counts_as_held_until_it_is_recorded_as_lost(
    worker_dsn: str, db: Database, admin: asyncpg.Connection
) -> None:
    """40.7: a beat in between would give it back as if its code had never run, and charge nothing."""
    rid = await admit_one(db, name="endless")
    with pause_at("statement.before", when=lambda facts: facts["door"] == "close_incarnation") as pause:
        async with working(worker_dsn, lease=2.0, beat=0.3, grace_seconds=0.1) as worker:
            await until(lambda: done, "its code")
            worker.stop("stopped")
            await pause.reached()
            await after(1.0)
            assert await look(admin, rid, "state", "number") == ("running", 1)
            pause.release()
    assert await look(admin, rid, "state", "tries", "losses") == ("queued", 1, 1)
    assert await history(admin, rid) == [(1, "lost")]


async def test_40_11_a_worker_that_is_cancelled_takes_the_code_of_its_runs_along(
    worker_dsn: str, db: Database, admin: asyncpg.Connection
) -> None:
    """Its loop lives on: a step that nobody waits for any more would go on with it, beside the next attempt."""
    done.clear()
    rid = await admit_one(db, name="endless")
    worker = Worker(app, Settings(database_url=worker_dsn))
    running = asyncio.ensure_future(worker.run(asyncio.Event()))
    await until(lambda: done, "its code")
    running.cancel()
    with pytest.raises(asyncio.CancelledError):
        await running
    await until(lambda: done == ["waiting", "cancelled"], "the end of its code")
    assert await look(admin, rid, "state", "tries", "losses") == ("queued", 1, 1)


async def test_40_5_a_workflow_this_worker_does_not_have_goes_back_for_half_a_minute(
    worker_dsn: str, db: Database, admin: asyncpg.Connection
) -> None:
    rid = await admit_one(db, name="unheard_of")
    async with working(worker_dsn):
        await until_row(lambda: admin.fetchval("select due_at from fencepost.task"), "the deferral")
    assert await look(admin, rid, "state", "tries", "deferrals") == ("queued", 0, 0)
    assert await admin.fetchval(
        "select extract(epoch from due_at - now())::float between 25 and 30 from fencepost.task"
    )


async def test_a_leg_that_breaks_fails_its_run_and_never_the_worker(
    worker_dsn: str, db: Database, admin: asyncpg.Connection
) -> None:
    broken = await admit_one(db, name="once", input='"a"')
    with raise_at("leg.claimed", BrokenLaw("LW001", "no such move")):
        async with working(worker_dsn) as worker:
            assert await ends(admin, broken) == "failed"
            assert await ends(admin, await admit_one(db, name="once", input='"b"')) == "completed"
            await until(lambda: len(worker.holding) == 0, "empty hands")
    assert done == ["b"]


async def test_90_3_progress_is_shown_and_starts_nothing_in_the_leg(
    worker_dsn: str, db: Database, admin: asyncpg.Connection
) -> None:
    await admit_one(db, name="endless")
    with pause_at("statement.before", when=lambda facts: facts["door"] == "note_progress") as pause:
        async with working(worker_dsn, grace_seconds=0.1) as worker:
            await pause.reached()
            (leg,) = worker.holding.legs()
            assert leg.engine is not None
            assert len(leg.engine.branches) == 1, "its code"
            pause.release()
            said = await until_row(lambda: admin.fetchval("select progress from fencepost.task"), "its word")
            assert '"done":3' in str(said)
            worker.stop("stopped")


@pytest.mark.parametrize("word", ["has not left yet", "is on its way"])
async def test_90_3_who_parks_shows_what_its_code_said_last(
    worker_dsn: str, db: Database, admin: asyncpg.Connection, word: str
) -> None:
    """A run says what it waits for, and rests: its words leave once a second, and its fence is dead by then."""
    run = await admit_one(db, name="asks_a_person")
    on_its_way.clear()
    with pause_at("statement.before", when=lambda facts: facts["door"] == "note_progress") as pause:
        async with working(worker_dsn):
            if word == "is on its way":
                await pause.reached()
            on_its_way.set()
            await until_row(
                lambda: admin.fetchval("select true from fencepost.task where state = 'parked'"), "its rest"
            )
            pause.release()
            assert '"asks a person"' in str(await look(admin, run, "progress"))


async def test_40_2_one_run_and_its_descendants_only(worker_dsn: str, db: Database, admin: asyncpg.Connection) -> None:
    """What `fencepost run` starts claims nothing else of the lane."""
    other = await admit_one(db, name="once", input='"other"')
    mine = await admit_one(db, name="once", input='"mine"')
    async with working(worker_dsn, only=mine):
        assert await ends(admin, mine) == "completed"
        await after(0.8)
    assert await look(admin, other) == "queued"
    assert done == ["mine"]
