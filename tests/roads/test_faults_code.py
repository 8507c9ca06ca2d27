"""What callers and author code do at the worst moment: a cancelled wait, a cancel behind a return, failures by the hundred."""

from __future__ import annotations

import asyncio
import logging
import random
import threading
import time
from collections.abc import AsyncIterator

import asyncpg
import pytest

from fencepost import App, Context, RunCancelled, RunFailed, Step, limits
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
    """Says that it is about to return, and does."""
    returned.set()
    time.sleep(0.0005)  # waits: so that a cancel may come while it still runs
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
    """B51 While it connects, listens, asks or sleeps: no connection and no channel is used up, and the same wait works again."""
    handle = await client.start(waits)
    sessions = (
        "select count(*) from pg_stat_activity where application_name = 'waiter' and datname = current_database()"
    )
    cut = {"before it heard": 0, "while it heard": 0}
    for n in range(120):
        if n % 30 == 0:  # and everything is to be opened anew
            await admin.fetchval(sessions.replace("count(*)", "count(pg_terminate_backend(pid))"))
        task = asyncio.ensure_future(handle.result())
        await asyncio.sleep(0.0008 * (n % 30))  # waits: to be cancelled at another place each time
        cut["while it heard" if client._ears._lent else "before it heard"] += 1
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        assert client._ears._lent == {}
    assert min(cut.values()) >= 5, cut
    async with asyncio.timeout(10):
        await asyncio.gather(*(handle.status() for _ in range(20)))
    assert await admin.fetchval(sessions) <= 3, "two of its budget and one that listens"
    async with working(app, worker_dsn):
        await handle.signal("go", 7)
        assert await handle.result(timeout=10) == 7
    assert await admin.fetchval("select count(*) from fencepost.watcher") == 0
    assert await broken(admin) == {}


async def test_a_cancel_that_comes_as_the_code_returns_takes_no_thread_along(db: Database) -> None:
    """B59 A thousand times, each at another moment around the return: as many threads as before, and the next step runs."""
    pool = StepThreads(2, used_up=lambda _: None)
    lost: list[str] = []

    def lose(step: str) -> None:
        pool.lose(step)
        if pool.lost:
            lost.append(step)

    face = WorkerFace(db, pool, 30.0, on_thread_lost=lose)
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
    assert lost, "no cancel came while the code ran"
    await until(lambda: pool.lost == 0, "the return of every thread")
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


released = threading.Event()


@app.step(repeatable=True)
def stands(n: int) -> int:
    """Until it is told to go on; it cannot be stopped."""
    did.append(f"stands {n}")
    released.wait(20)
    return n


@app.workflow()
async def standing(ctx: Context, n: int) -> int:
    return await ctx.step(stands, n)


async def test_cancels_of_everything_at_once_end_no_worker(client: Client, worker_dsn: str) -> None:
    """B59 Every thread runs a step that nobody waits for, for a moment: that is not hung, and the worker goes on."""
    did.clear()
    released.clear()
    async with working(app, worker_dsn) as worker:
        handles = await client.start_many(standing, range(2))
        await until(lambda: len(did) == 2, "both threads' code")
        for handle in handles:
            await handle.cancel()
        await until(lambda: worker._threads.used_up, "their cancels")
        released.set()
        for handle in handles:
            with pytest.raises(RunCancelled):
                await handle.result(timeout=10)
        assert await (await client.start(standing, 7)).result(timeout=10) == 7
        assert worker.hung == ""
