"""The wire is cut at every statement, before the server gets it and after it has committed; or goes deaf; or freezes.

Whoever asked ends with the true outcome: nothing happens twice, and nothing is called done that was not.
"""

from __future__ import annotations

import asyncio
import contextlib
import itertools
import json
import uuid
from collections import Counter
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import asyncpg
import pytest

from fencepost import limits, suspension
from fencepost.client import Client, ears
from fencepost.db import Database
from fencepost.errors import BrokenLaw
from fencepost.settings import read_settings
from fencepost.worker import claims, listener
from fencepost.worker.loop import Worker
from tests.crash import code, effects
from tests.crash.proxy import Plan, Proxy
from tests.support_invariants import broken

# What a worker asks whenever it likes: no part of a run.
NOISE = {"sleep_worker", "register_workflows", "register_lane", "open_incarnation", "read_version", "close_incarnation"}
SCENARIOS: dict[str, tuple[Any, Any]] = {
    "S01": (code.straight, ["a", "rb"]),
    "S08": (code.sleepy, ["ra", "b"]),
    "S10": (code.waiting, [7, "a"]),
    "S13": (code.five, ["a", "ra", "b", "rb", "c"]),
    "S13m": (code.rows, ["row0", "row1", "row2", "row3", "ra"]),
    "S16k": (code.parent, ["a", "rb"]),
    "S21": (code.paying, ["paid", "ra"]),
}


@pytest.fixture
async def proxy(worker_dsn: str) -> AsyncIterator[Proxy]:
    async with Proxy(worker_dsn) as made:
        yield made


@pytest.fixture
async def client(worker_dsn: str) -> AsyncIterator[Client]:
    """A client that nothing stands before."""
    async with Client(Database(worker_dsn), "dev") as made:
        yield made


@pytest.fixture
async def through(proxy: Proxy) -> AsyncIterator[Client]:
    """A client behind the proxy."""
    async with Client(Database(proxy.dsn, name="caller"), "dev") as made:
        await made.lane()
        yield made


@contextlib.asynccontextmanager
async def working(dsn: str, *, lease: float = 30.0, beat: float = 8.0) -> AsyncIterator[Worker]:
    """A worker of this process, ready, and drained at the end."""
    environ = {"FENCEPOST_LEASE_SECONDS": str(lease), "FENCEPOST_HEARTBEAT_SECONDS": str(beat)}
    worker = Worker(code.app, read_settings(environ, dsn=dsn), release="dev", concurrency=8, threads=2)
    stop, ready = asyncio.Event(), asyncio.Event()
    task = asyncio.create_task(worker.run(stop, on_ready=lambda _: ready.set()))
    try:
        async with asyncio.timeout(30):
            await ready.wait()
        yield worker
    finally:
        stop.set()
        async with asyncio.timeout(30):
            await task


async def record(admin: asyncpg.Connection, run: str) -> list[tuple[Any, ...]]:
    """What a run and its children have recorded, without when and by whom."""
    rows = await admin.fetch(
        """select replace(r.id, $1, 'run'), b.kind, b.name, b.ordinal, b.state, replace(b.value, $1, 'run')
             from fencepost.boundary b join fencepost.run r using (rid) where r.id = $1 or r.id like $1 || '/%' order by 1, 2, 3, 4""",
        run,
    )
    return [tuple(row) for row in rows]


async def perform(client: Client, name: str, run: str) -> None:
    """Admit a run, do what others do, and see it end as it must."""
    workflow, output = SCENARIOS[name]
    handle = await client.start(workflow, id=run)
    if name == "S10":
        await suspension.signal(client.db, "default", run, "go", dedupe="1", payload="7")
    assert await handle.result(timeout=25) == output


@pytest.mark.parametrize("name", SCENARIOS)
@pytest.mark.timeout(300)
async def test_a_worker_whose_statement_is_cut_does_nothing_twice(
    name: str, proxy: Proxy, client: Client, admin: asyncpg.Connection, tmp_path: Path
) -> None:
    """B80"""
    effects.write_to(tmp_path / "effects")
    async with working(proxy.dsn):
        await perform(client, name, "clean")
        proxy.counts.clear()
        await perform(client, name, "counted")
        statements = [
            (door, n + 1)
            for door, most in proxy.counts.items()
            if "_" in door and door not in NOISE
            for n in range(most)
        ]
        statements = [(door, n) for door, n in statements if door != "claim_attempts" or n == 1]
        expected = await record(admin, "counted")
        assert len(statements) >= 4, statements
        for door, n in statements:
            for act in ("before", "after"):
                run = f"{door}-{n}-{act}"
                plan = proxy.plan(Plan(door, n, act, of="fencepost worker"))
                await perform(client, name, run)
                assert plan.done.is_set(), f"never hit: {run}"
                proxy.forget()
                assert await record(admin, run) == expected, run
                times = Counter((e.word, e.step) for e in effects.read(run=run))
                assert set(times.values()) == {1}, (run, times)
    lost = await admin.fetch("select * from fencepost.attempt where ended in ('lost', 'given_back')")
    assert not lost, "a wire is no process: nothing was lost"
    assert await broken(admin) == {}


@pytest.mark.parametrize("act", ["before", "after"])
async def test_a_heartbeat_that_is_cut_costs_nobody_a_lease(
    act: str, proxy: Proxy, client: Client, admin: asyncpg.Connection, tmp_path: Path
) -> None:
    """B91"""
    effects.write_to(tmp_path / "effects")
    async with working(proxy.dsn, lease=3, beat=0.3) as worker:
        for n in range(3):
            plan = proxy.plan(Plan("beat", 1, act, of="heartbeat"))
            await perform(client, "S08", f"run{n}")
            async with asyncio.timeout(10):
                await plan.done.wait()
        heart = worker.pulse.process
        assert heart is not None
        assert heart.returncode is None
    assert await admin.fetchval("select count(*) from fencepost.attempt where ended = 'lost'") == 0
    assert await broken(admin) == {}


# ── clients ──────────────────────────────────────────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize("act", ["before", "after"])
async def test_a_launch_whose_commit_is_ambiguous_is_one_run(
    act: str, proxy: Proxy, through: Client, admin: asyncpg.Connection
) -> None:
    """B71, B80"""
    plan = proxy.plan(Plan("admit_launch", 1, act))
    await through.start(code.straight, id="one")
    assert plan.done.is_set()
    assert await admin.fetchval("select count(*) from fencepost.run where id = 'one'") == 1
    plan = proxy.plan(Plan("admit_launches", 1, act))
    await through.start_many(code.straight, [None, None, None], ids=["x", "y", "z"])
    assert plan.done.is_set()
    assert await admin.fetchval("select count(*) from fencepost.run where id in ('x', 'y', 'z')") == 3
    assert await broken(admin) == {}


@pytest.mark.parametrize("act", ["before", "after"])
async def test_a_signal_whose_commit_is_ambiguous_is_one_signal_and_a_cancel_one_cancel(
    act: str, proxy: Proxy, through: Client, admin: asyncpg.Connection
) -> None:
    """B80"""
    handle = await through.start(code.waiting, id="one")
    plan = proxy.plan(Plan("send_signals", 1, act))
    assert await handle.signal("go", 7) == ("sent" if act == "before" else "repeated")
    assert plan.done.is_set()
    assert await admin.fetchval("select count(*) from fencepost.signal") == 1
    plan = proxy.plan(Plan("cancel_run", 1, act))
    assert await handle.cancel("no more") == "accepted"
    assert plan.done.is_set()
    plan = proxy.plan(Plan("watch_outcome", 1, act))
    assert await handle.status() == "cancelled"
    assert plan.done.is_set()
    assert await broken(admin) == {}


@pytest.mark.parametrize("act", ["before", "after"])
async def test_an_ambiguous_commit_of_the_callers_own_transaction_is_told_and_can_be_repeated(
    act: str, proxy: Proxy, through: Client, admin: asyncpg.Connection
) -> None:
    """B80"""
    connection = await asyncpg.connect(proxy.dsn)
    plan = proxy.plan(Plan("commit", 1, act))
    with pytest.raises((OSError, asyncpg.PostgresError, asyncpg.InterfaceError)):
        async with connection.transaction():
            await through.start(code.straight, id="one", conn=connection)
    connection.terminate()
    assert plan.done.is_set()
    assert await admin.fetchval("select count(*) from fencepost.run") == (act == "after")
    await through.start(code.straight, id="one")
    assert await admin.fetchval("select count(*) from fencepost.run") == 1
    assert await broken(admin) == {}


RETRIED = "08000 08003 08006 25006 40001 40P01 53100 53200 53300 53400 55006 55P03 57014 57P01 57P02 57P03 57P05 58000 58030 XX000".split()
SURFACED = "22023 22P02 23505 25001 28000 3F000 42501 42P01 42883".split()


@pytest.mark.parametrize("state", RETRIED)
async def test_weather_at_any_statement_of_a_launch_is_ridden_out(
    state: str, proxy: Proxy, admin: asyncpg.Connection
) -> None:
    """B93"""
    async with Client(Database(proxy.dsn, name="caller"), "dev") as client:
        plans = [
            proxy.plan(Plan(door, 1, f"error:{state}")) for door in ("register_lane", "admit_launch", "watch_outcome")
        ]
        handle = await client.start(code.straight, id="one")
        assert await handle.status() == "queued"
    assert all(plan.done.is_set() for plan in plans)
    assert await admin.fetchval("select count(*) from fencepost.run") == 1


@pytest.mark.parametrize("state", SURFACED)
async def test_what_asking_again_cannot_mend_is_said_at_once(state: str, proxy: Proxy, through: Client) -> None:
    """B93"""
    plan = proxy.plan(Plan("admit_launch", 1, f"error:{state}"))
    with pytest.raises(asyncpg.PostgresError) as caught:
        await through.start(code.straight, id="one")
    assert caught.value.sqlstate == state
    assert plan.done.is_set()


async def test_what_is_wrong_with_one_of_a_batch_is_said_of_that_one(proxy: Proxy, through: Client) -> None:
    """00.13, B93 The others are asked alone, and admitted."""
    plan = proxy.plan(Plan("admit_launches", 1, "error:22023"))
    own = proxy.plan(Plan("admit_launch", 2, "error:22023"))
    found = await asyncio.gather(
        *(through.start(code.straight, id=f"it {n}") for n in range(3)), return_exceptions=True
    )
    assert plan.done.is_set()
    assert own.done.is_set()
    assert [getattr(one, "sqlstate", "admitted") for one in found].count("22023") == 1


async def test_a_broken_law_is_a_broken_law_through_the_wire(
    proxy: Proxy, through: Client, admin: asyncpg.Connection
) -> None:
    """Of one launch, of launches that left together and of a batch: nothing is asked again, for it is no launch's fault."""
    proxy.plan(Plan("admit_launch", 1, "error:LW001"))
    with pytest.raises(BrokenLaw):
        await through.start(code.straight, id="one")
    proxy.plan(Plan("admit_launches", 1, "error:LW001"))
    found = await asyncio.gather(
        *(through.start(code.straight, id=f"it {n}") for n in range(3)), return_exceptions=True
    )
    assert [type(one) for one in found] == [BrokenLaw] * 3
    proxy.plan(Plan("admit_launches", 1, "error:LW001"))
    with pytest.raises(BrokenLaw):
        await through.start_many(code.straight, [None, None], ids=["x", "y"])
    assert await admin.fetchval("select count(*) from fencepost.run") == 0


@pytest.mark.timeout(300)
async def test_one_transient_error_at_each_call_leaves_the_record_of_a_clean_run(
    proxy: Proxy, client: Client, admin: asyncpg.Connection, tmp_path: Path
) -> None:
    """B81, B93"""
    effects.write_to(tmp_path / "effects")
    doors = {"claim_attempts": 1, "mark_steps": 1, "keep_steps": 2, "finish_attempts": 1}
    async with working(proxy.dsn):
        for name, states, most in (
            ("S13", ["40001"], doors | {"mark_steps": 3, "keep_steps": 5}),
            ("S01", RETRIED, doors),
        ):
            await perform(client, name, f"clean-{name}")
            expected = await record(admin, f"clean-{name}")
            for state, door in itertools.product(states, most):
                for n in range(1, most[door] + 1):
                    plan = proxy.plan(Plan(door, n, f"error:{state}", of="fencepost worker"))
                    run = f"{name}-{state}-{door}-{n}"
                    await perform(client, name, run)
                    assert plan.done.is_set(), run
                    proxy.forget()
                    assert await record(admin, run) == expected, run
                    times = Counter((e.word, e.step) for e in effects.read(run=run))
                    assert set(times.values()) == {1}, (run, times)
    assert await admin.fetchval("select count(*) from fencepost.attempt where ended in ('lost', 'given_back')") == 0
    assert await broken(admin) == {}


# ── deaf and frozen ──────────────────────────────────────────────────────────────────────────────────────────────────────


async def test_a_listener_in_a_black_hole_is_noticed_and_polling_takes_over(
    proxy: Proxy, client: Client, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """B19, B83"""
    assert listener.CHECK_SECONDS + listener.ANSWER_SECONDS <= 15
    monkeypatch.setattr(listener, "CHECK_SECONDS", 1.0)
    monkeypatch.setattr(listener, "ANSWER_SECONDS", 0.5)
    monkeypatch.setattr(limits, "IDLE_POLL_SECONDS", 0.3)
    effects.write_to(tmp_path / "effects")
    async with working(proxy.dsn) as worker:
        await perform(client, "S01", "before")
        assert worker.listening
        holed = [link for link in proxy.links if link.listens]
        assert len(holed) == 1
        holed[0].lost = True
        await perform(client, "S10", "deaf")  # the notification vanishes: the poll finds it
        async with asyncio.timeout(10):
            while not any(link.listens and link not in holed for link in proxy.links):
                await proxy.changed.wait()
        await perform(client, "S01", "after")
        assert worker.listening
    assert claims.TREE_POLL_SECONDS <= limits.LEASE_SECONDS


@pytest.mark.parametrize("when", ["while it begins", "later"])
async def test_who_waits_for_a_run_with_a_deaf_listener_hears_of_its_end_all_the_same(
    when: str,
    proxy: Proxy,
    through: Client,
    client: Client,
    worker_dsn: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(ears, "ANSWER_SECONDS", 0.5)
    effects.write_to(tmp_path / "effects")
    if when == "while it begins":
        proxy.plan(Plan("listen", 1, "hole"))
    handle = await through.start(code.waiting, id="one")
    result = asyncio.create_task(handle.result(timeout=20))
    async with asyncio.timeout(10):
        while not proxy.counts["watch_outcome"]:
            await proxy.changed.wait()
    for link in proxy.links:
        link.lost |= link.listens
    async with working(worker_dsn):
        await client.handle("one").signal("go", 7)
        started = asyncio.get_running_loop().time()
        assert await result == [7, "a"]
    assert asyncio.get_running_loop().time() - started < 10


async def test_a_frozen_server_hangs_no_heartbeat_and_costs_no_attempt(
    proxy: Proxy, client: Client, admin: asyncpg.Connection, tmp_path: Path
) -> None:
    effects.write_to(tmp_path / "effects")
    async with working(proxy.dsn, lease=6, beat=0.4) as worker:
        heart = worker.pulse.process
        assert heart is not None
        await client.start(code.waiting, id="one")
        proxy.freeze()
        last = await admin.fetchval("select heard_at from fencepost.incarnation")
        await client.handle("one").signal("go", 7)
        frozen = asyncio.get_running_loop().time() + 1.5
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout_at(frozen):
                await asyncio.Event().wait()
        proxy.thaw()
        assert await client.handle("one").result(timeout=20) == [7, "a"]
        async with asyncio.timeout(10):
            while await admin.fetchval("select heard_at from fencepost.incarnation") <= last:
                await proxy.changed.wait()
        assert worker.pulse.process is heart, "the heartbeat process was thrown away"
        assert heart.returncode is None
    assert await admin.fetchval("select count(*) from fencepost.attempt where ended in ('lost', 'given_back')") == 0
    assert await broken(admin) == {}


async def test_a_hole_in_the_middle_of_a_call_ends_with_its_time_and_the_call_is_asked_again(
    proxy: Proxy, monkeypatch: pytest.MonkeyPatch, admin: asyncpg.Connection
) -> None:
    """B33"""
    monkeypatch.setattr(limits, "STATEMENT_SECONDS", 0.5)
    async with Client(Database(proxy.dsn, name="caller"), "dev") as client:
        await client.lane()
        plan = proxy.plan(Plan("admit_launch", 1, "hole"))
        async with asyncio.timeout(20):
            await client.start(code.straight, id=f"one-{uuid.uuid4().hex}")
        assert plan.done.is_set()
    rows = await admin.fetch("select id, input from fencepost.run")
    assert [json.loads(row["input"]) for row in rows] == [None]
