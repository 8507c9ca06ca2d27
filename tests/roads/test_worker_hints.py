"""What a worker hears, and when it looks by itself: notifications only wake (law 00.10)."""

from __future__ import annotations

from typing import Any

import asyncpg
import pytest

from fencepost import App, Context, attempts
from fencepost.admission import admit
from fencepost.db import Database
from fencepost.testing import at_point
from tests.roads.crew import after, until, until_row
from tests.roads.inside import ends, working
from tests.support import admit_one, claim_all, launch, new_holder
from tests.support_runs import lose

app = App("hints", release="dev")


@app.step(repeatable=True)
async def say(word: str) -> str:
    return word


@app.workflow()
async def once(ctx: Context, word: str) -> str:
    return await ctx.step(say, word)


async def test_00_10_notifications_that_mean_nothing_are_counted_and_the_next_one_works(
    worker_dsn: str, db: Database, admin: asyncpg.Connection
) -> None:
    """B85."""
    async with working(app, worker_dsn) as worker:
        await until(lambda: worker.listening, "the listener")
        assert worker.listener is not None
        channel = await attempts.sleep(db, worker.incarnation, 1, asleep=True)
        for payload in ("{", "x" * 7999, ""):
            await admin.execute("select pg_notify($1, $2)", channel, payload)
        await until(lambda: worker.listener is not None and worker.listener.malformed == 3, "three of them")
        assert await ends(admin, await admit_one(db, name="once", input='"a"'), 3.0) == "completed"


async def test_00_10_a_listener_that_lost_its_connection_listens_again_and_looks_for_what_it_missed(
    worker_dsn: str, db: Database, admin: asyncpg.Connection
) -> None:
    async with working(app, worker_dsn) as worker:
        await until(lambda: worker.listening, "the listener")
        ended = "select count(pg_terminate_backend(pid)) from pg_stat_activity where query like 'LISTEN%' and pid <> pg_backend_pid()"
        assert await admin.fetchval(ended) >= 1
        await until(lambda: not worker.listening, "its end")
        rid = await admit_one(db, name="once", input='"a"')
        assert await ends(admin, rid, 3.0) == "completed"
        await until(lambda: worker.listening, "the next")


async def test_00_10_a_session_that_no_longer_listens_is_noticed(
    worker_dsn: str, admin: asyncpg.Connection, monkeypatch: Any
) -> None:
    """B83: a connection that lives and hears nothing, as behind a pooler that swaps servers."""
    monkeypatch.setattr("fencepost.worker.listener.CHECK_SECONDS", 0.3)
    async with working(app, worker_dsn) as worker:
        await until(lambda: worker.listening, "the listener")
        assert worker.listener is not None
        ours = worker.listener.connection
        assert ours is not None
        await ours.execute("unlisten *")
        await until(lambda: worker.listener is not None and worker.listener.connection is not ours, "its end", 3.0)
        await until(lambda: worker.listening, "the next", 3.0)


async def test_40_2_who_waits_for_a_hint_begins_what_it_claimed_before_it_looks_again(
    worker_dsn: str, db: Database, admin: asyncpg.Connection, monkeypatch: Any
) -> None:
    """An empty look costs as much as a claim: between a claim and its code's first step it would delay that step."""
    monkeypatch.setattr("fencepost.worker.claims.EMPTIED_SECONDS", 3600.0)
    async with working(app, worker_dsn) as worker:
        await until(lambda: worker.listening, "the listener")
        await until_row(lambda: admin.fetchval("select holder from fencepost.sleeper"), "its sleep", 5.0)
        said: list[tuple[str, str]] = []

        def note(point: str) -> Any:
            return at_point(point, lambda facts, _: said.append((point, facts["door"])))

        with note("statement.before"), note("statement.executed"):
            assert await ends(admin, await admit_one(db, name="once", input='"a"')) == "completed"
        before = said[: said.index(("statement.before", "keep_steps"))]
        claims = [point for point, door in before if door == "claim_attempts"]
        assert claims[-1] == "statement.executed", said


@pytest.mark.parametrize("line", ["shares", "suspects"])
async def test_40_15_20_9_who_waits_for_a_hint_leaves_nothing_in_the_line(
    worker_dsn: str, db: Database, admin: asyncpg.Connection, monkeypatch: Any, line: str
) -> None:
    """A claim that gives less than was asked for: shares of several organisations, and a suspect, which is claimed alone."""
    monkeypatch.setattr("fencepost.worker.claims.EMPTIED_SECONDS", 3600.0)
    gone = await new_holder(db)
    for _ in range(3):
        await admit_one(db, name="once", input='"a"')
    assert len(await claim_all(db, gone, most=3)) == 3
    async with working(app, worker_dsn) as worker:
        await until(lambda: worker.listening, "the listener")
        await until_row(lambda: admin.fetchval("select holder from fencepost.sleeper"), "its sleep", 5.0)
        await after(0.3)  # its last look
        if line == "shares":
            orgs = ["large"] * 200 + ["small"] * 20
            count = len(await admit(db, [launch(org=org, name="once", input='"a"') for org in orgs]))
        else:
            count = await lose(db, gone)
        ended = "select count(*) >= $1 or null from fencepost.outcome where status = 'completed'"
        await until_row(lambda: admin.fetchval(ended, count), "every end", 20.0)
