"""Chapter 90: what happened, in order, and why a run waits."""

from __future__ import annotations

import asyncio
import contextlib
import random
import uuid
from datetime import UTC, datetime
from typing import Any

import asyncpg
import pytest

from fencepost import admission, attempts, ledger, words
from fencepost.db import Database
from fencepost.errors import BrokenLaw
from fencepost.explain import waits as waits_of
from fencepost.explain import words as explained
from fencepost.ledger import Outboxed
from fencepost.suspension import Armed, Here, Parked
from fencepost.testing import Clock
from fencepost.words import STALE, Fence
from tests.support import admit_one, claim_all, claim_one, lane_of, launch, look, new_holder, tables
from tests.support_runs import (
    arm,
    beat,
    cancel,
    child_of,
    drop,
    finish,
    holder_of,
    holding,
    keep,
    lose,
    mark,
    running,
    send,
    wait,
)  # fmt: skip

NOON = datetime(2031, 5, 6, 12, tzinfo=UTC)
pytestmark = pytest.mark.usefixtures("lawful")


# 90.1


async def test_every_transition_of_a_run_is_told_once_in_order(db: Database, admin: asyncpg.Connection) -> None:
    """90.1 One life, as the ledger tells it: no gap, no twin, and each entry names its attempt."""
    first = await running(db, "it", on_lost="fail")
    await attempts.begin(db, first.fence)
    await keep(db, first.fence, "read")
    await mark(db, first.fence, "pay")
    await keep(db, first.fence, "pay", ok=False, value='{"code":"STEP_FAILED"}')
    await finish(db, first.fence, "retry", delay_ms=0, most_tries=9)
    second = await claim_one(db)
    await wait(db, second.fence, arm("signal"), arm("sleep", "nap", ms=1000))
    await send(db, "it")
    third = await claim_one(db)
    await wait(db, third.fence, drop("sleep", "nap"), known=10**6, park=False)
    await finish(db, third.fence)
    events = await ledger.read_events(db, "default", "it", after=0)
    assert [event.seq for event in events] == list(range(1, len(events) + 1))
    assert [(event.type, event.number) for event in events] == [
        ("run.admitted", None), ("attempt.claimed", 1), ("attempt.begun", 1), ("step.kept", 1), ("step.marked", 1), ("step.failed", 1),
        ("attempt.retrying", 1), ("attempt.claimed", 2), ("wait.armed", 2), ("wait.armed", 2), ("attempt.parked", 2), ("signal.sent", 2),
        ("wait.arrived", 2), ("run.woken", 2), ("attempt.claimed", 3), ("wait.cancelled", 3), ("run.completed", 3),
    ]  # fmt: skip
    assert {event.type for event in events} <= words.EVENT_TYPES


async def test_an_event_is_written_in_the_transaction_of_its_transition(
    db: Database, admin: asyncpg.Connection
) -> None:
    """90.1 Rolled back together: there is no transition without its event and no event without its transition."""
    rid = await admit_one(db, on_lost="fail")
    claimed = await claim_one(db)
    before = await tables(admin)
    async with db.connection() as mine:
        for door, args in {
            "begin_attempts": ([rid], [claimed.fence.fence]),
            "keep_steps": ([rid], [claimed.fence.fence], ["step"], ["s"], [1], [""], [True], [True], ["1"]),
            "finish_attempts": ([rid], [claimed.fence.fence], ["completed"], ["1"], [None], [None], [None]),
        }.items():
            transaction = mine.transaction()
            await transaction.start()
            (row,) = await db.call_on(mine, door, *args)
            assert row["answer"] in {"begun", "kept", "committed"}
            await transaction.rollback()
            assert await tables(admin) == before, door
    xacts = await admin.fetch(
        "select e.tx, e.type, r.xmin::text::bigint as run from fencepost.transition e join fencepost.run r using (rid)"
    )
    assert [row["tx"] for row in xacts if row["type"] == "run.admitted"] == [xacts[0]["run"]]


async def test_a_type_that_is_not_of_the_list_cannot_be_written_nor_a_place_twice(
    db: Database, admin: asyncpg.Connection
) -> None:
    """90.1 Closed by constraint; (run, sequence) is the key that consumers are idempotent by."""
    rid = (await running(db)).fence.rid
    insert = "insert into fencepost.event (rid, seq, at, type) values ($1, $2, now(), $3)"
    for seq, hoped in ((3, "run.hoped"), (1, "run.woken")):  # the first place is the run's own row's
        with pytest.raises(asyncpg.CheckViolationError):
            await admin.execute(insert, rid, seq, hoped)
    with pytest.raises(asyncpg.UniqueViolationError):
        await admin.execute(insert, rid, 2, "run.woken")


async def test_heartbeats_are_not_events(db: Database, admin: asyncpg.Connection, clock: Clock) -> None:
    """90.1 A hundred beats of two workers leave no entry and no sequence number."""
    await clock.set(NOON)
    claimed = await running(db)
    holder, other = await holder_of(admin, claimed.fence), await new_holder(db)
    before = await tables(admin, without=("incarnation", "meta"))
    for _ in range(50):
        await clock.advance(5)
        await beat(db, holder, held=[claimed.fence])
        await beat(db, other)
    assert await tables(admin, without=("incarnation", "meta")) == before


@pytest.mark.parametrize("seed", range(4))
async def test_whatever_is_done_in_whatever_order_the_sequences_have_no_gaps(
    db: Database, admin: asyncpg.Connection, clock: Clock, seed: int
) -> None:
    """90.1 A random walk over the doors, legal and not; `lawful` judges every run's sequences in the end."""
    rng = random.Random(seed)
    await clock.set(NOON)
    runs: list[str] = []
    fences: list[Fence] = []
    holders: list[uuid.UUID] = []
    for n in range(160):
        fence = rng.choice(fences[-6:]) if fences else None
        name, ordinal = rng.choice(["a", "b"]), rng.randint(1, 2)
        if await admin.fetchval("select count(*) from fencepost.task where state in ('queued', 'running')") < 3:
            runs.append(f"run-{n}")
            await admit_one(db, runs[-1], on_lost=rng.choice(["replay", "fail", "ask"]))
        match rng.randrange(16):
            case 0 | 1 | 2:
                holders.append(await new_holder(db))
                fences += [c.fence for c in await claim_all(db, holders[-1], most=2)]
            case 3 if fence:
                await mark(db, fence, name, ordinal, repeatable=rng.random() < 0.7, again=rng.random() < 0.5)
            case 4 | 5 if fence:
                await keep(db, fence, name, ordinal=ordinal, ok=rng.random() < 0.7)
            case 6 if fence:
                waits = [
                    arm(rng.choice(["signal", "sleep"]), name, ordinal, ms=rng.choice([None, 500, 5000]))
                    for _ in range(2)
                ]
                await wait(db, fence, *waits, known=rng.randrange(40), park=rng.random() < 0.6)
            case 7 if fence:
                await wait(
                    db, fence, drop(rng.choice(["signal", "sleep"]), name, ordinal), known=rng.randrange(40), park=False
                )
            case 8:
                await send(db, rng.choice(runs), name)
            case 9 if fence:
                ending: Any = rng.choice(["retry", "retry", "unknown", "unfit", "failed", "completed"])
                await finish(db, fence, ending, delay_ms=rng.choice([0, 1000]), most_tries=50)
            case 10 if holders:
                await lose(db, rng.choice(holders))
            case 11 if fence:
                with contextlib.suppress(BrokenLaw):  # its code has begun (40.5)
                    await attempts.defer(db, fence, reason="capacity", dependency="x", delay_ms=rng.choice([0, 1000]))
            case 12 if fence:
                await attempts.give_back(db, fence)
            case 13:
                await clock.advance(rng.choice([0.3, 2, 40]))
                await beat(db, await new_holder(db))
            case 14 if fence:
                await child_of(db, fence, f"kid-{rng.randrange(3)}", ordinal=ordinal, waits=rng.random() < 0.5)
            case 15 if fence and rng.random() < 0.2:
                await cancel(db, rng.choice(runs), grace=rng.choice([0, 1]))
            case _:
                await attempts.begin(db, fence) if fence else None
    count = await admin.fetchval("select count(*) from fencepost.ledger")
    assert count > 30, "the walk went somewhere"


async def drain(
    db: Database, cursor: tuple[int, int, int], into: list[Outboxed], *, limit: int = 3
) -> tuple[int, int, int]:
    while page := await ledger.read_outbox(db, cursor, limit=limit):
        into += page
        cursor = (page[-1].tx, page[-1].rid, page[-1].event.seq)
    return cursor


async def drain_to(total: int, db: Database, cursor: tuple[int, int, int], into: list[Outboxed]) -> None:
    """All of them: the horizon is the whole server's, so another test's open transaction may hold some back for a while."""
    async with asyncio.timeout(60):
        while len(into) < total:
            cursor = await drain(db, cursor, into)


async def test_a_cursor_never_passes_a_transaction_that_is_still_open(
    db: Database, dsn: str, admin: asyncpg.Connection
) -> None:
    """90.1 An older transaction that commits later is not skipped: until then what came after it is held back."""
    lane = await lane_of(db)
    seen: list[Outboxed] = []
    async with db.connection() as slow, slow.transaction():
        await admission.admit_on(db, slow, launch(id="slow", lane=lane))
        await admit_one(db, "quick")
        cursor = await drain(db, (0, 0, 0), seen)
        assert seen == []
    await drain_to(2, db, cursor, seen)
    assert [one.run_id for one in seen] == ["slow", "quick"]


async def test_a_consumer_of_the_outbox_misses_and_repeats_nothing(
    db: Database, worker_dsn: str, admin: asyncpg.Connection
) -> None:
    """90.1 Four writers, some of them slow to commit, and a consumer that never stops asking."""
    lane = await lane_of(db)
    writers = [Database(worker_dsn, connections=1) for _ in range(4)]
    done = asyncio.Event()
    seen: list[Outboxed] = []

    async def write(way: Database, n: int) -> None:
        rng = random.Random(n)
        for _ in range(8):
            async with way.connection() as mine, mine.transaction():
                for _ in range(rng.randint(1, 3)):
                    await admission.admit_on(way, mine, launch(lane=lane))
                    await mine.execute("select pg_sleep($1)", rng.random() / 100)

    async def consume() -> None:
        cursor = (0, 0, 0)
        while not done.is_set():
            cursor = await drain(db, cursor, seen)
        await drain_to(await admin.fetchval("select count(*) from fencepost.transition"), db, cursor, seen)

    consumer = asyncio.ensure_future(consume())
    await asyncio.gather(*(write(way, n) for n, way in enumerate(writers)))
    done.set()
    await consumer
    keys = [(one.rid, one.event.seq) for one in seen]
    assert len(keys) == len(set(keys))
    assert sorted(keys) == sorted(tuple(row) for row in await admin.fetch("select rid, seq from fencepost.transition"))
    for way in writers:
        await way.close()


# 90.3


async def test_progress_waits_for_nobody_and_is_no_transition(
    db: Database, dsn: str, admin: asyncpg.Connection
) -> None:
    """90.3 A locked row is passed by, a dead fence's word is dropped and counted as such, the newest word of a leg stays."""
    mine, other = await running(db), await running(db)
    before = await tables(admin, without=("task",))
    async with holding(dsn, other.fence.rid), asyncio.timeout(10):
        dead = Fence(mine.fence.rid, 1, uuid.uuid4())
        said = [(mine.fence, "half"), (other.fence, "held"), (mine.fence, "three quarters"), (dead, "mine!")]
        assert await ledger.note_progress(db, said[:3]) == 1
        assert await ledger.note_progress(db, said[3:]) == 0
    assert await look(admin, mine.fence.rid, "progress") == "three quarters"
    assert await look(admin, other.fence.rid, "progress") is None
    assert await tables(admin, without=("task",)) == before


async def test_a_leg_that_parks_leaves_its_last_word_behind_and_nothing_that_is_dead_does(
    db: Database, admin: asyncpg.Connection
) -> None:
    """90.3 It travels with the park, for the fence is dead then; a park without one leaves what is shown."""
    first = await running(db)
    rid = first.fence.rid
    assert await wait(db, first.fence, arm("signal"), said="half", park=False) == Armed(None)
    assert await look(admin, rid, "progress") is None
    assert await wait(db, first.fence, arm("signal"), said="half") == Parked()
    assert await look(admin, rid, "progress") == "half"
    assert await wait(db, first.fence, arm("signal"), said="a dead fence's") == Parked(), "its own park, asked again"
    await send(db, first.id)
    second = await claim_one(db, await new_holder(db))
    assert await wait(db, Fence(rid, 2, uuid.uuid4()), arm("signal", "other"), said="nobody's") is STALE
    assert isinstance(await wait(db, second.fence, arm("signal", "other"), said="later"), Here)
    assert await look(admin, rid, "progress") == "half"
    assert await wait(db, second.fence, arm("signal", "other"), known=2**31 - 1) == Parked()
    assert await look(admin, rid, "progress") == "half"


# 90.4


async def explain(db: Database, run: str) -> tuple[str, dict[str, Any]]:
    doc = await ledger.read_run(db, "default", run)
    assert doc is not None
    rows = await ledger.read_unknown_rows(db, "default", run)
    (one, *_) = [wait.as_json() for wait in waits_of(doc, rows)]
    return " ".join(explained(doc, rows)), one


async def test_whatever_waits_is_explained_by_durable_facts(
    db: Database, admin: asyncpg.Connection, clock: Clock
) -> None:
    """90.4 For each place where a run can stand: what it waits for, since when, until when, and who can end it."""
    await clock.set(NOON)

    async def queued() -> None:
        await admit_one(db, "queued", source="api")

    async def delayed() -> None:
        await admit_one(db, "delayed", delay_ms=60_000)

    async def deferred() -> None:
        await attempts.defer(
            db, (await running(db, "deferred")).fence, reason="capacity", dependency="daytona", delay_ms=5000
        )

    async def busy() -> None:
        await mark(db, (await running(db, "busy")).fence, "charge card")

    async def asleep() -> None:
        await wait(db, (await running(db, "asleep")).fence, arm("sleep", "cool-off", ms=120_000))

    async def listening() -> None:
        await wait(db, (await running(db, "listening")).fence, arm("signal", "review", ms=3_600_000))

    async def parent() -> None:
        fence = (await running(db, "parent")).fence
        await child_of(db, fence, "the-child")
        await wait(db, fence)

    async def unfit() -> None:
        await finish(db, (await running(db, "unfit")).fence, "unfit", digest="d")

    async def unknown() -> None:
        fence = (await running(db, "unknown")).fence
        await mark(db, fence, "charge card")
        await finish(db, fence, "unknown")

    async def cancelling() -> None:
        await running(db, "cancelling")
        await cancel(db, "cancelling", grace=30, reason="too dear")

    expected = {
        queued: ("worker", NOON, 10, None),
        delayed: ("time", NOON, 60, None),
        deferred: ("time", None, 5, "daytona"),
        busy: ("attempt", NOON, None, "charge card"),
        asleep: ("time", NOON, 120, "cool-off"),
        listening: ("signal", NOON, 3600, "review"),
        parent: ("child", NOON, None, "the-child"),
        unfit: ("code", NOON, None, None),
        unknown: ("operator", NOON, None, "charge card"),
        cancelling: ("grace", None, 30, None),
    }
    for make, (kind, since, seconds, named) in expected.items():
        await make()
        text, found = await explain(db, make.__name__)
        assert found["kind"] == kind, (make.__name__, found)
        if since is not None:
            assert found["since"] is not None, (make.__name__, found)
            assert datetime.fromisoformat(found["since"]) == since, (make.__name__, found)
        until = found["until"] and datetime.fromisoformat(found["until"]).timestamp() - NOON.timestamp()
        assert until == seconds, (make.__name__, found)
        assert found["ended_by"], (make.__name__, "somebody or something can end it")
        assert named is None or named in text, (make.__name__, text)
