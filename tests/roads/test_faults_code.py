"""What callers and author code do at the worst moment: a cancelled wait, a cancel behind a return, failures by the hundred."""

from __future__ import annotations

import asyncio
import logging
import random
import threading
from collections.abc import AsyncIterator

import asyncpg
import pytest

from fencepost import App, Context, RunFailed, Step, limits
from fencepost.client import Client
from fencepost.db import Database
from fencepost.errors import BrokenLaw
from fencepost.testing import raise_at
from fencepost.worker.execution import Ran, Threads, WorkerFace, execute
from fencepost.worker.threads import StepThreads
from tests.legs import Driver
from tests.roads.crew import until
from tests.roads.inside import working
from tests.support_invariants import broken

app = App("worst", release="dev")
returned = threading.Event()


@app.step(repeatable=True)
def soon() -> int:
    """Returns at once, and says so just before."""
    returned.set()
    return 1


@app.workflow()
async def waits(ctx: Context) -> int:
    return await ctx.wait_for("go", int)


@app.workflow()
async def fails(ctx: Context, n: int) -> None:
    raise ValueError(f"no {n}")


@app.workflow()
async def fine(ctx: Context, n: int) -> int:
    return n


@pytest.fixture
async def client(worker_dsn: str) -> AsyncIterator[Client]:
    async with Client(Database(worker_dsn, name="waiter"), "dev") as made:
        yield made


async def test_a_wait_that_is_cancelled_anywhere_leaves_nothing_behind(
    client: Client, worker_dsn: str, admin: asyncpg.Connection
) -> None:
    """B51 After so many turns of the loop, from none to where it sleeps: no connection is used up, and the same wait works again."""
    handle = await client.start(waits)
    for turns in range(60):
        task = asyncio.ensure_future(handle.result())
        for _ in range(turns):
            await asyncio.sleep(0)  # waits: one turn of the loop
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
    async with asyncio.timeout(10):
        await asyncio.gather(*(handle.status() for _ in range(20)))
    sessions = (
        "select count(*) from pg_stat_activity where application_name = 'waiter' and datname = current_database()"
    )
    assert await admin.fetchval(sessions) <= 3, "two of its budget and one that listens"
    assert await admin.fetchval("select count(*) from fencepost.watcher") <= 60
    async with working(app, worker_dsn):
        await handle.signal("go", 7)
        assert await handle.result(timeout=10) == 7
    assert await admin.fetchval("select count(*) from fencepost.watcher") == 0
    assert await broken(admin) == {}


async def test_a_cancel_that_comes_as_the_code_returns_takes_no_thread_along(db: Database) -> None:
    """B59 A thousand times, each at another moment around the return: as many threads as before, and the next step runs."""
    said: list[str] = []
    pool = StepThreads(2, used_up=said.append)
    face = WorkerFace(db, pool, 30.0, on_thread_lost=pool.lose)
    ends = {"ran": 0, "cancelled": 0}
    dice = random.Random(59)
    for _ in range(1000):
        returned.clear()
        task = asyncio.ensure_future(execute(face, Threads(), soon, "key", (), {}))
        while not returned.is_set() and dice.random() < 0.97:  # noqa: ASYNC110  # a thread tells no loop
            await asyncio.sleep(0)  # waits: one turn of the loop
        turns = dice.choice([0, 1, 2, 100_000])
        while turns and not task.done():  # nor does what its future does then
            turns -= 1
            await asyncio.sleep(0)  # waits: one turn of the loop
        task.cancel()
        try:
            assert await task == Ran("1")
            ends["ran"] += 1
        except asyncio.CancelledError:
            ends["cancelled"] += 1
    assert min(ends.values()) > 10, ends
    await until(lambda: pool.lost == 0, "the return of every thread")
    assert said == []
    assert sum(thread.name.startswith("fencepost step") for thread in threading.enumerate()) == 2
    for _ in range(3):
        assert await execute(face, Threads(), soon, "key", (), {}) == Ran("1")
    pool.shutdown()


async def test_failures_of_code_are_no_trouble_of_the_worker_and_its_own_are_never_left_out(
    client: Client, worker_dsn: str, caplog: pytest.LogCaptureFixture
) -> None:
    """B137 Three hundred runs fail without one line above `info`; then the engine breaks as often as it likes, and every time is told."""
    with caplog.at_level(logging.DEBUG, "fencepost"):
        async with working(app, worker_dsn):
            for handle in await client.start_many(fails, range(300)):
                with pytest.raises(RunFailed):
                    await handle.result(timeout=30)
            loud = [record.getMessage() for record in caplog.records if record.levelno > logging.INFO]
            assert loud == []
            for n in range(5):
                with raise_at("leg.claimed", BrokenLaw("LW001", f"no such move {n}")):
                    handle = await client.start(fine, n)
                    with pytest.raises(RunFailed):
                        await handle.result(timeout=30)
    for n in range(5):
        told = [record for record in caplog.records if f"no such move {n}" in record.getMessage()]
        assert told, n
        assert max(record.levelno for record in told) >= logging.ERROR


NAMES = ["pay", "Pay", "pay ", " pay", "p\u0430y", "caf\u00e9", "cafe\u0301", "pay#1", "pay/1", "pa\u200by"]
did: list[str] = []


def named(name: str) -> Step[[int], list[object]]:
    """A step of that name, which says what it did."""

    async def does(n: int) -> list[object]:
        did.append(f"{name} {n}")
        return [name, n]

    return app.step(name=name, repeatable=True)(does)


twins = [named(name) for name in NAMES]


@app.workflow()
async def twice(ctx: Context) -> list[list[object]]:
    """Every name twice in a loop, and again in two branches."""
    found = [await ctx.step(step, n) for n in range(2) for step in twins]
    found += await asyncio.gather(*(ctx.step(step, n) for n in (2, 3) for step in twins))
    return found


@pytest.mark.parametrize("every", [1, 7])
async def test_two_steps_share_no_record_however_alike_their_names_are(db: Database, every: int) -> None:
    """B117 Twice in a loop, in two branches, in another case, normal form or with a blank: each has its own value, on every replay."""
    did.clear()
    driver = Driver(db, app)
    run = await driver.start(twice)
    await driver.run_losing(run, every)
    expected = [[name, n] for n in range(4) for name in NAMES]
    assert await driver.output(run) == expected
    assert set(did) == {f"{name} {n}" for name, n in expected}


async def test_a_run_that_never_stops_recording_ends_with_the_number_it_may_have(
    db: Database, admin: asyncpg.Connection, monkeypatch: pytest.MonkeyPatch
) -> None:
    """B114 Small steps by the million: refused where they pass the bound, in words, and not asked again."""
    monkeypatch.setattr(limits, "BOUNDARIES_MAX", 12)
    did.clear()
    driver = Driver(db, app)
    run = await driver.start(twice)
    await driver.run_until(run, "failed")
    assert "at most 12 boundaries" in (await driver.error(run))["message"]
    assert len(did) == 12
    assert await admin.fetchval("select count(*) from fencepost.boundary") == 12
    assert driver.endings == ["failed"]
