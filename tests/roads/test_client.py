"""The client and its handles, in one process with a worker that is real."""

from __future__ import annotations

import asyncio
import contextlib
import threading
from collections.abc import AsyncIterator, Callable
from dataclasses import dataclass, replace
from datetime import timedelta
from typing import Any

import asyncpg
import pytest
from pydantic import BaseModel, Field

from fencepost import (
    App,
    Context,
    LaunchConflict,
    LaunchRefused,
    RunCancelled,
    RunFailed,
    RunNotFound,
    RunUnknown,
    SignalRefused,
)
from fencepost import sync as synchronous
from fencepost.client import Client
from fencepost.db import Database
from fencepost.schema import SchemaMismatch
from fencepost.settings import BadSettings, read_settings
from fencepost.testing import Clock
from fencepost.values import Undecodable, Unstorable
from fencepost.worker.loop import run_worker
from tests.support import claim_one
from tests.support_runs import finish, mark

app = App("client", release="dev")


class Order(BaseModel):
    n: int
    note: str | None = None


class Tagged(BaseModel):
    n: int
    tag: float = Field(default_factory=lambda: next(_tags))


_tags = iter(range(1, 1000))


@dataclass
class Receipt:
    total: int


@app.workflow()
async def order(ctx: Context, given: Order) -> Receipt:
    return Receipt(given.n * 2)


@app.workflow()
async def tagged(ctx: Context, given: Tagged) -> float:
    return given.tag


@app.workflow()
async def fails(ctx: Context, n: int) -> int:
    raise ValueError(f"{n} is no good")


@app.workflow()
async def review(ctx: Context) -> list[int]:
    return [await ctx.wait_for("review", int), await ctx.wait_for("review", int)]


@pytest.fixture
async def client(worker_dsn: str) -> AsyncIterator[Client]:
    async with Client(Database(worker_dsn)) as made:
        yield made


@contextlib.asynccontextmanager
async def working(worker_dsn: str) -> AsyncIterator[None]:
    """A worker of this process; ready."""
    stop, ready = asyncio.Event(), asyncio.Event()
    settings = replace(read_settings({}, dsn=worker_dsn), lease_seconds=9.0, heartbeat_seconds=0.5)
    task = asyncio.ensure_future(run_worker(app, settings, stop=stop, on_ready=lambda _: ready.set()))
    waiting = asyncio.ensure_future(ready.wait())
    await asyncio.wait({task, waiting}, return_when=asyncio.FIRST_COMPLETED, timeout=20)
    assert ready.is_set(), task.exception() if task.done() else "not ready"
    try:
        yield
    finally:
        stop.set()
        assert await task == 0


async def test_start_gives_the_result_of_the_declared_type(client: Client, worker_dsn: str) -> None:
    async with working(worker_dsn):
        handle = await client.start(order, Order(n=21))
        assert handle.id.startswith("order-")
        assert await handle.result(timeout=20) == Receipt(42)
        assert await handle.status() == "completed"
        assert await client.handle(handle.id, returns=Receipt).result(timeout=20) == Receipt(42)
        assert await client.handle(handle.id, returns=order).result(timeout=20) == Receipt(42)
        assert await client.handle(handle.id).result(timeout=20) == {"total": 42}
        with pytest.raises(Undecodable):
            await client.handle(handle.id, returns=int).result(timeout=20)
        with pytest.raises(RunFailed) as failed:
            await (await client.start(fails, 7)).result(timeout=20)
    assert (failed.value.code, failed.value.message, failed.value.error["type"]) == (
        "WORKFLOW_ERROR",
        "7 is no good",
        "ValueError",
    )


async def test_signals_reach_the_run_in_order_and_a_watch_misses_and_repeats_nothing(
    client: Client, worker_dsn: str
) -> None:
    """60.3, 90.2"""
    async with working(worker_dsn):
        handle = await client.start(review)
        assert await handle.signal("review", 1, dedupe="one") == "sent"
        assert await handle.signal("review", 1, dedupe="one") == "repeated"
        seen = []
        async for event in handle.watch():
            seen.append(event)
            if event.type == "attempt.parked":
                await handle.signal("review", 2)
        assert await handle.result(timeout=20) == [1, 2]
        with pytest.raises(SignalRefused):
            await handle.signal("review", 3)
    assert [event.seq for event in seen] == list(range(1, len(seen) + 1))
    assert seen[-1].type == "run.completed"
    middle = len(seen) // 2
    assert [event async for event in handle.watch(after=middle)] == seen[middle:]
    assert [event async for event in handle.watch(after=len(seen))] == []


async def until_watched(admin: asyncpg.Connection, waiting: asyncio.Future[Any]) -> None:
    """Somebody waits for an end: its row is there."""
    async with asyncio.timeout(20):
        while not await admin.fetchval("select count(*) from fencepost.watcher"):
            await asyncio.wait({waiting}, timeout=0.01)


async def test_an_end_wakes_who_waits_without_a_poll(
    client: Client, db: Database, admin: asyncpg.Connection, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The notification is enough; the poll behind it (here an hour away) is for the day it is lost."""
    monkeypatch.setattr("fencepost.client.ears.POLL_SECONDS_MAX", 3600.0)
    monkeypatch.setattr("fencepost.client.ears.POLL_SECONDS_MIN", 3600.0)
    for n in range(3):
        handle = await client.start(review)
        waiting = asyncio.ensure_future(handle.result(timeout=20))
        await until_watched(admin, waiting)
        claimed = await claim_one(db)
        await finish(db, claimed.fence, "completed", f"[{n}]")
        assert await waiting == [n]


async def test_a_lost_listener_is_replaced_and_nobody_waits_for_ever(
    client: Client, db: Database, admin: asyncpg.Connection
) -> None:
    handle = await client.start(review)
    waiting = asyncio.ensure_future(handle.result(timeout=20))
    claimed = await claim_one(db)
    await until_watched(admin, waiting)
    await admin.execute(
        "select pg_terminate_backend(pid) from pg_stat_activity where datname = current_database() and pid <> pg_backend_pid()"
    )
    await finish(db, claimed.fence, "completed", "[1]")
    assert await waiting == [1]


async def test_unknown_and_cancelled_are_exceptions_of_their_own(client: Client, db: Database) -> None:
    handle = await client.start(review)
    claimed = await claim_one(db)
    await mark(db, claimed.fence)
    with pytest.raises(TimeoutError):
        await handle.result(timeout=0.2)
    await finish(db, claimed.fence, "failed")
    with pytest.raises(RunUnknown):
        await handle.result(timeout=20)
    assert "fencepost runs resolve" in await handle.explain()
    assert await handle.cancel("enough") == "accepted"
    with pytest.raises(RunCancelled) as cancelled:
        await handle.result(timeout=20)
    assert cancelled.value.reason == "enough"
    assert await handle.cancel() == "accepted"


async def test_a_run_that_is_nowhere_or_in_another_organisation_is_not_found(client: Client) -> None:
    """97.1"""
    await client.start(review, id="r", org="acme")
    for handle in (client.handle("r"), client.handle("r", org="other")):
        calls: list[Callable[[], Any]] = [
            handle.status, handle.result, handle.explain, handle.cancel, lambda h=handle: h.signal("x"), lambda h=handle: anext(h.watch()),
        ]  # fmt: skip
        for call in calls:
            with pytest.raises(RunNotFound):
                await call()
    with pytest.raises(RunNotFound):
        client.handle("\0")
    assert await client.handle("r", org="acme").status() == "queued"


async def test_the_same_id_is_the_same_run_and_another_launch_conflicts(client: Client) -> None:
    """30.2, 30.3"""
    first = await client.start(order, Order(n=1), id="o")
    assert (await client.start(order, Order(n=1), id="o")).id == first.id
    with pytest.raises(LaunchConflict) as conflict:
        await client.start(order, Order(n=2), id="o")
    assert conflict.value.differs == [{"path": "$.input.n", "stored": 1, "given": 2}]
    with pytest.raises(LaunchConflict):
        await client.start(review, id="o")


async def test_a_models_defaults_are_no_part_of_the_launch(client: Client, admin: asyncpg.Connection) -> None:
    """30.4: a default that is the same whenever it is read is left out; one that is another each time is kept."""
    await client.start(order, Order(n=1), id="o")
    assert await admin.fetchval("select input from fencepost.run where id = 'o'") == '{"n":1}'
    await client.start_text(order, '{"n": 1}', id="o")
    with pytest.raises(LaunchConflict):
        await client.start(order, Order(n=1, note=None), id="o")
    given = Tagged(n=1)
    await client.start(tagged, given, id="t")
    assert await admin.fetchval("select (input::jsonb ->> 'tag')::float from fencepost.run where id = 't'") == given.tag


@pytest.mark.parametrize("run_id", ["", " ", "x" * 201, "a\nb", "a\0b", "a\ud800"])
async def test_an_unusable_id_is_refused_before_any_write(client: Client, run_id: str) -> None:
    """30.6"""
    with pytest.raises(LaunchRefused):
        await client.start(review, id=run_id)
    with pytest.raises(LaunchRefused):
        await client.start(review, org=run_id)


async def test_an_unusable_value_is_refused_with_its_path(client: Client) -> None:
    """00.5"""
    handle = await client.start(review, id="r")
    calls: list[Callable[[], Any]] = [
        lambda: client.start(fails, float("nan")),  # type: ignore[arg-type]  # the villain's type
        lambda: handle.signal("review", {"a": ["\0"]}),
        lambda: handle.cancel("a\0b"),
        lambda: client.start_many(fails, [1, "\ud800"]),  # type: ignore[list-item]  # the same
    ]
    for call, path in zip(calls, ("$", "$.a[0]", "$", "$"), strict=True):
        with pytest.raises(Unstorable) as refused:
            await call()
        assert refused.value.path == path


async def test_a_start_inside_a_transaction_is_part_of_it(client: Client, worker_dsn: str) -> None:
    """30.10, 30.8"""
    connection = await asyncpg.connect(worker_dsn)
    try:
        with contextlib.suppress(ZeroDivisionError):
            async with connection.transaction():
                gone = await client.start(review, conn=connection)
                raise ZeroDivisionError
        with pytest.raises(RunNotFound):
            await gone.status()
        async with connection.transaction():
            kept = await client.start(review, conn=connection, source="api")
            with pytest.raises(RunNotFound):
                await kept.status()
        assert await kept.status() == "queued"
    finally:
        await connection.close()


async def test_concurrent_starts_leave_in_few_commits_and_each_gets_its_own_answer(
    client: Client, admin: asyncpg.Connection
) -> None:
    """00.13"""
    await client.start(order, Order(n=0), id="taken")
    starts = [client.start(order, Order(n=n), id=f"o{n}") for n in range(300)]
    answers = await asyncio.gather(
        *starts,
        client.start(order, Order(n=1), id="taken"),
        client.start(order, Order(n=5), id="o5"),
        return_exceptions=True,
    )
    assert isinstance(answers[300], LaunchConflict)
    assert [answer.id for answer in answers[:300] if not isinstance(answer, BaseException)] == [
        f"o{n}" for n in range(300)
    ]
    assert await admin.fetchval("select count(*) from fencepost.run") == 301
    assert await admin.fetchval("select count(distinct tx) from fencepost.run") <= 10


async def test_a_twin_that_is_not_committed_yet_delays_nobody_but_itself(
    client: Client, worker_dsn: str, admin: asyncpg.Connection
) -> None:
    """00.13, 30.2"""
    connection = await asyncpg.connect(worker_dsn)
    try:
        transaction = connection.transaction()
        await transaction.start()
        await client.start(order, Order(n=1), id="twin", conn=connection)
        twin = asyncio.ensure_future(client.start(order, Order(n=1), id="twin"))
        others = [client.start(order, Order(n=n), id=f"o{n}") for n in range(20)]
        async with asyncio.timeout(10):
            await asyncio.gather(*others)
        assert not twin.done()
        await transaction.commit()
        assert (await twin).id == "twin"
    finally:
        await connection.close()


async def test_start_many_admits_in_bounded_batches(client: Client, admin: asyncpg.Connection) -> None:
    handles = await client.start_many(order, (Order(n=n) for n in range(2500)), ids=[f"o{n}" for n in range(2500)])
    assert [handle.id for handle in handles[:3]] == ["o0", "o1", "o2"]
    assert await admin.fetchval("select count(*) from fencepost.run") == 2500
    assert await admin.fetchval("select count(distinct tx) from fencepost.run") == 2
    assert len(await client.start_many(order, [Order(n=1), Order(n=2)])) == 2
    with pytest.raises(LaunchConflict):
        await client.start_many(order, [Order(n=9), Order(n=7)], ids=["o1", "new"])
    assert await client.handle("new").status() == "queued", "one conflict hurts no other"
    with pytest.raises(LaunchRefused):
        await client.start_many(order, [Order(n=9)], ids=["a", "b"])


async def test_who_waits_asks_for_the_verdict_of_the_claim_bound(client: Client, clock: Clock) -> None:
    """30.8, 30.9: no worker is needed."""
    await clock.advance(0)
    handle = await client.start(review, source="api")
    await clock.advance(timedelta(seconds=9))
    with pytest.raises(TimeoutError):
        await handle.result(timeout=0.3)
    await clock.advance(timedelta(seconds=1))
    with pytest.raises(RunFailed) as failed:
        await handle.result(timeout=20)
    assert failed.value.code == "ADMISSION_EXPIRED"
    webhook = await client.start(review, source="webhook")
    await clock.advance(timedelta(days=9))
    with pytest.raises(TimeoutError):
        await webhook.result(timeout=0.3)


async def test_a_delayed_run_cannot_be_claimed_before_its_time(client: Client, db: Database, clock: Clock) -> None:
    await clock.advance(0)
    handle = await client.start(review, delay=timedelta(minutes=5))
    assert "asked to start later" in await handle.explain()
    with pytest.raises(AssertionError):
        await claim_one(db)
    with pytest.raises(ValueError, match="delay"):
        await client.start(review, delay=-1)


async def test_a_schema_that_is_not_there_says_what_to_run(client: Client, admin: asyncpg.Connection) -> None:
    """00.8, 00.12: a failure is not remembered."""
    version = await admin.fetchval("update fencepost.meta set schema_version = 0 returning 1")
    with pytest.raises(SchemaMismatch, match="fencepost migrate"):
        await client.start(review)
    await admin.execute("update fencepost.meta set schema_version = $1", version)
    assert await (await client.start(review)).status() == "queued"


def test_without_settings_the_client_names_what_is_missing(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("FENCEPOST_DATABASE_URL", raising=False)
    with pytest.raises(BadSettings, match="FENCEPOST_DATABASE_URL"):
        Client.from_settings()


async def test_the_synchronous_client_starts_waits_signals_and_cancels(worker_dsn: str) -> None:
    settings = read_settings({}, dsn=worker_dsn)

    def use() -> None:
        with synchronous.Client.from_settings(settings) as client:
            assert client.start(order, Order(n=4)).result(timeout=20) == Receipt(8)
            handle = client.start(review)
            assert handle.signal("review", 1) == "sent"
            with pytest.raises(TimeoutError):
                handle.result(timeout=0.2)
            assert handle.cancel("enough") == "accepted"
            with pytest.raises(RunCancelled):
                handle.result(timeout=20)
            assert handle.status() == "cancelled"
        assert "fencepost-client" not in [thread.name for thread in threading.enumerate()]
        client.close()
        with pytest.raises(RuntimeError, match="closed"):
            handle.status()

    async with working(worker_dsn):
        await asyncio.to_thread(use)
