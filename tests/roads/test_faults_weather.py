"""A server that turns read-only, sessions without limits, and every SQLSTATE that weather has: nobody above notices (00.3)."""

from __future__ import annotations

import asyncio
import itertools
from collections.abc import AsyncIterator, Iterator
from pathlib import Path

import asyncpg
import pytest

from fencepost import App, Context, limits, terminal
from fencepost.client import Client
from fencepost.db import Database
from fencepost.weather import is_weather
from tests.crash.proxy import Plan, Proxy
from tests.roads.crew import Crew, after, until, until_row
from tests.roads.inside import working
from tests.support import admit_one
from tests.support_runs import holding

app = App("faults", release="dev")


@app.workflow()
async def waits(ctx: Context) -> int:
    return await ctx.wait_for("go", int)


@pytest.fixture
def crew(worker_dsn: str, tmp_path: Path) -> Iterator[Crew]:
    made = Crew(worker_dsn, tmp_path)
    yield made
    made.end()


async def ends(admin: asyncpg.Connection, rid: int, seconds: float = 30.0) -> object:
    ask = "select status from fencepost.outcome where rid = $1"
    return await until_row(lambda: admin.fetchval(ask, rid), f"the end of run {rid}", seconds)


ENDS_OTHERS = "select count(pg_terminate_backend(pid)) from pg_stat_activity where datname = current_database() and pid <> pg_backend_pid()"
SESSIONS = (
    "select count(*) from pg_stat_activity where datname = current_database() and application_name like 'fencepost%'"
)


async def test_a_server_that_is_read_only_for_a_while_ends_no_worker_and_no_run(
    crew: Crew, db: Database, admin: asyncpg.Connection
) -> None:
    """B92 As after a failover: its sessions refuse every write until they are closed, also when the server takes writes again."""
    member = await crew.start(lease=9.0, beat=0.5)
    rid = await admit_one(db, name="holding", input='"a"')
    await crew.effect("hold", "a", member.pid)
    base = await admin.fetchval("select current_database()")
    await admin.execute(f"alter database {base} set default_transaction_read_only = on")
    await admin.fetchval(ENDS_OTHERS)
    crew.go()
    await crew.effect("held", "a", member.pid)
    await until_row(lambda: admin.fetchval(f"{SESSIONS} having count(*) >= 3"), "its sessions of another kind")
    await after(1.5)
    await admin.execute(f"alter database {base} reset default_transaction_read_only")
    assert await ends(admin, rid) == "completed"
    assert [tuple(row) for row in await admin.fetch("select number, ended from fencepost.attempt")] == [(1, "finished")]
    assert len(crew.effects("hold", "a")) == 1
    assert await ends(admin, await admit_one(db, name="quick", input='"b"')) == "completed"
    assert member.poll() is None


# What each class of SQLSTATE means to a call. Whatever is not named here is said to the caller at once.
RETRIED = {
    "08": "08000 08001 08003 08004 08006 08007 08P01",
    "25": "25006",
    "40": "40001 40003 40P01",
    "53": "53100 53200 53300 53400",
    "55": "55006 55P03",
    "57": "57014 57P01 57P02 57P03 57P05",
    "58": "58000 58030",
    "XX": "XX000",
}


def known(prefix: str) -> dict[str, type[asyncpg.PostgresError]]:
    """Every error of a class that the driver knows, by its SQLSTATE."""
    found: dict[str, type[asyncpg.PostgresError]] = {}
    for one in vars(asyncpg.exceptions).values():
        state = getattr(one, "sqlstate", None)
        if isinstance(state, str) and state.startswith(prefix):
            found[state] = one
    return found


@pytest.mark.parametrize("prefix", RETRIED)
def test_each_sqlstate_of_these_classes_is_retried_or_said(prefix: str) -> None:
    """B93 By the whole list of the driver's, so that a new one is judged by somebody."""
    states = known(prefix)
    assert states
    assert {state for state, error in states.items() if is_weather(error("x"))} == set(RETRIED[prefix].split())


def test_data_and_programming_errors_are_never_weather() -> None:
    """B93 Asking again would not mend them."""
    for prefix in ("21", "22", "23", "28", "2B", "3D", "3F", "42", "LW"):
        assert not [state for state, error in known(prefix).items() if is_weather(error("x"))]


async def test_every_session_has_its_limits(worker_dsn: str) -> None:
    """B105 Of the worker, its heartbeat, its listener, a client and its listener: as asked for when each was opened."""
    async with (
        Proxy(worker_dsn) as proxy,
        Client(Database(proxy.dsn, name="fencepost client"), "dev") as client,
        working(app, proxy.dsn, beat=0.5, lease=3.0) as worker,
    ):
        await until(lambda: worker.listening, "its listener")
        handle = await client.start(waits, None)
        waiter = asyncio.ensure_future(handle.result(timeout=20))
        await until(lambda: sum(link.listens for link in proxy.links) == 2, "the client's listener")
        seen = list(proxy.links)
        await handle.signal("go", 7)
        assert await waiter == 7
    assert {"fencepost worker", "fencepost heartbeat", "fencepost client"} <= {link.application for link in seen}
    for link in seen:
        assert 0 < int(link.settings["statement_timeout"]) <= limits.STATEMENT_SECONDS * 1000, link
        assert 0 < int(link.settings["idle_in_transaction_session_timeout"]) <= 60_000, link
        assert link.settings["default_transaction_isolation"] == "read committed", link


async def test_a_statement_that_waits_for_a_lock_ends_by_its_limit_and_is_asked_again(
    worker_dsn: str, dsn: str, db: Database, admin: asyncpg.Connection, monkeypatch: pytest.MonkeyPatch
) -> None:
    """B105 The server ends it, so that no session waits on when its caller has gone; the call has its true answer all the same."""
    monkeypatch.setattr(limits, "STATEMENT_SECONDS", 0.4)
    rid = await admit_one(db, "run")
    caller = Database(worker_dsn, name="fencepost caller")
    try:
        async with holding(dsn, rid):
            asked = asyncio.ensure_future(terminal.cancel(caller, "default", "run", reason="enough", grace_ms=1000))
            ask = "select query_start from pg_stat_activity where application_name = 'fencepost caller' and wait_event_type = 'Lock'"
            first = await until_row(lambda: admin.fetchval(ask), "a wait for the row")
            await until_row(lambda: admin.fetchval(f"{ask} and query_start > $1", first), "a second wait")
        assert await asked == ("accepted", "cancelled")
    finally:
        await caller.close()


# Heartbeats


async def test_beats_stay_close_however_busy_worker_and_database_are(
    crew: Crew, db: Database, admin: asyncpg.Connection, dsn: str
) -> None:
    """B17 The longest gap between two beats that were committed is a third of the lease at most."""
    await admin.execute(
        """create table heard (at timestamptz not null default clock_timestamp());
           create function watch_beats() returns trigger language plpgsql security definer as
             'begin insert into public.heard default values; return null; end';
           create trigger watch_beats after update of heard_at on fencepost.incarnation for each row execute function watch_beats()"""
    )
    member = await crew.start(lease=9.0, beat=1.0, concurrency=100)
    burners = [await asyncpg.connect(dsn) for _ in range(2)]
    burn = [asyncio.ensure_future(b.execute("select count(*) from generate_series(1, 100000000)")) for b in burners]
    for n in range(300):
        await admit_one(db, name="quick", input=f'"{n}"')
    await admit_one(db, name="blocking", input="2.5")
    await after(6.0)
    for one in burn:
        one.cancel()
    await asyncio.gather(*burn, return_exceptions=True)
    for burner in burners:
        burner.terminate()
    assert member.poll() is None
    at = [row[0] for row in await admin.fetch("select at from heard order by at")]
    gaps = [(b - a).total_seconds() for a, b in itertools.pairwise(at)]
    assert len(gaps) >= 4
    assert max(gaps) <= 3.0, gaps


OF_A_WORKER = {
    "read_version": "fencepost worker",
    "register_lane": "fencepost worker",
    "open_incarnation": "fencepost worker",
    "register_workflows": "fencepost worker",
    "listen": "fencepost worker",
    "sleep_worker": "fencepost worker",
    "claim_attempts": "fencepost worker",
    "beat": "heartbeat",
    "close_incarnation": "fencepost worker",
}


@pytest.mark.parametrize("statement", OF_A_WORKER)
async def test_weather_at_any_statement_of_a_workers_own_is_ridden_out(
    statement: str, worker_dsn: str, client: Client, admin: asyncpg.Connection
) -> None:
    """B92, B93 From its first question to its last word: a server that restarts or was one to read from keeps no worker away."""
    async with Proxy(worker_dsn) as proxy:
        for n, state in enumerate(("25006", "57P03", "40001")):
            plan = proxy.plan(Plan(statement, 1, f"error:{state}", of=OF_A_WORKER[statement]))
            async with working(app, proxy.dsn, beat=1.0, lease=4.0) as worker:
                handle = await client.start(waits, id=f"run-{state}")
                await handle.signal("go", n)
                assert await handle.result(timeout=20) == n
                await until(lambda: worker.listening, "its listener")
                await until(lambda: plan.done.is_set() or statement == "close_incarnation", f"{state}")  # noqa: B023  # the same
            assert plan.done.is_set()
    rows = await admin.fetch("select ended from fencepost.incarnation")
    assert [row["ended"] for row in rows] == ["closed"] * 3
    assert await admin.fetchval("select count(*) from fencepost.attempt where ended in ('lost', 'given_back')") == 0


@pytest.fixture
async def client(worker_dsn: str) -> AsyncIterator[Client]:
    """A client that no proxy stands before."""
    async with Client(Database(worker_dsn), "dev") as made:
        yield made
