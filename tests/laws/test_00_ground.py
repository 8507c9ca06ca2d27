"""Chapter 00: the clock, the locks, and the way to the database."""

from __future__ import annotations

import asyncio
import uuid
from datetime import UTC, datetime, timedelta
from typing import Any

import asyncpg
import pytest

from fencepost import admission, attempts, limits, terminal
from fencepost.admission import Admitted
from fencepost.db import Database
from fencepost.errors import BrokenLaw, Busy
from fencepost.schema import installed_version, migrate, quote_ident
from fencepost.testing import Clock
from tests.laws import doors
from tests.support import (
    admit_one,
    claim_all,
    claim_one,
    connected,
    empty_database,
    lane_of,
    launch,
    look,
    new_holder,
    tables,
    until_blocked,
)
from tests.support_runs import ERROR, batch, holding, running, villain_of

NOON = datetime(2031, 5, 6, 12, tzinfo=UTC)


# 00.1


async def test_a_transaction_reads_the_clock_once(db: Database, admin: asyncpg.Connection) -> None:
    """00.1 Two doors of one transaction, a moment apart, write the same instant; another transaction's is later."""
    await write_twice_and_once(db, admin)


async def test_an_installation_that_was_not_made_for_tests_reads_no_clock_but_the_databases(server: str) -> None:
    """00.1 Nor when somebody writes another one into the row by hand."""
    async with empty_database(server) as dsn, connected(dsn) as owner:
        await migrate(owner, "fencepost")
        db = Database(dsn, connections=2)
        try:
            await write_twice_and_once(db, owner)
            await owner.execute("update fencepost.meta set test = true, test_now = $1", NOON)
            assert await look(owner, await admit_one(db), "submitted_at < now()", table="run") is True
        finally:
            await db.close()


async def write_twice_and_once(db: Database, admin: asyncpg.Connection) -> None:
    await lane_of(db)
    async with db.connection() as connection, connection.transaction():
        first = await admission.admit_on(db, connection, launch())
        await connection.execute("select pg_sleep(0.02)")
        second = await admission.admit_on(db, connection, launch())
    third = await admit_one(db)
    assert isinstance(first, Admitted)
    assert isinstance(second, Admitted)
    instants = [await look(admin, rid, "submitted_at", table="run") for rid in (first.rid, second.rid, third)]
    assert instants[0] == instants[1] < instants[2]


async def test_every_session_reads_the_clock_that_a_test_set(
    db: Database, clock: Clock, admin: asyncpg.Connection
) -> None:
    """00.1, B41 And nothing of a machine's own clock: noon is decades away from every instant written."""
    await clock.set(NOON)
    await doors.walk(db)
    for table, column in (
        ("run", "submitted_at"), ("outcome", "ended_at"), ("attempt", "claimed_at"), ("attempt", "ended_at"), ("boundary", "at"),
        ("event", "at"), ("signal", "sent_at"), ("incarnation", "heard_at"), ("lane", "registered_at"), ("row", "at"),
    ):  # fmt: skip
        found = await admin.fetch(f"select distinct {column} from fencepost.{table} where {column} is not null")
        assert [row[0] for row in found] == [NOON], (table, column)


async def test_a_clock_that_is_not_the_databases_exists_only_in_a_test_installation(
    db: Database, clock: Clock, admin: asyncpg.Connection
) -> None:
    """00.1 A constraint: where the mark is taken away the clock must go first, and none can be set."""
    await clock.set(NOON)
    with pytest.raises(asyncpg.CheckViolationError):
        await admin.execute("update fencepost.meta set test = false")
    await admin.execute("update fencepost.meta set test = false, test_now = null")
    with pytest.raises(asyncpg.CheckViolationError):
        await admin.execute("update fencepost.meta set test_now = now()")


# 00.10, 00.14


@pytest.mark.parametrize("isolation", ["serializable", "repeatable read"])
async def test_engine_doors_run_read_committed_and_refuse_anything_else(
    db: Database, admin: asyncpg.Connection, isolation: str
) -> None:
    """00.14 Also 00.10: under another isolation a look after a lock would be a look at the past. A caller's bug: a broken law."""
    await admit_one(db)
    claimed = await claim_one(db)
    async with db.connection() as connection:
        for door, args in (
            ("begin_attempts", ([claimed.fence.rid], [claimed.fence.fence])),
            (
                "finish_attempts",
                ([claimed.fence.rid], [claimed.fence.fence], ["completed"], ["1"], [None], [None], [None]),
            ),
            ("cancel_run", ("default", claimed.id, "", 0)),
        ):
            async with connection.transaction(isolation=isolation.replace(" ", "_")):
                with pytest.raises(BrokenLaw) as broken:
                    await db.call_on(connection, door, *args)
                assert broken.value.sqlstate == "LW003"
                await connection.execute("rollback; begin")
    assert await look(admin, claimed.fence.rid, "state") == "running"


async def test_engine_transactions_set_their_own_isolation(worker_dsn: str, admin: asyncpg.Connection) -> None:
    """00.14 A database whose default is SERIALIZABLE, and durable only later, changes nothing."""
    base = await admin.fetchval("select current_database()")
    await admin.execute(f"alter database {quote_ident(base)} set default_transaction_isolation = 'serializable'")
    await admin.execute(f"alter database {quote_ident(base)} set synchronous_commit = 'off'")
    db = Database(worker_dsn, connections=2)
    await doors.walk(db)
    await db.close()


@pytest.mark.parametrize("items", [1, 2])
async def test_what_is_judged_after_waiting_for_a_lock_is_judged_anew(
    db: Database, dsn: str, admin: asyncpg.Connection, items: int
) -> None:
    """00.14 While the door waits for the row, the fence changes hands: the answer is `stale`, and the new fence is not begun."""
    await admit_one(db, on_lost="fail")
    claimed = await claim_one(db)
    other = await asyncpg.connect(dsn)
    async with db.connection() as mine:
        async with other.transaction():
            await other.execute("update fencepost.task set fence = gen_random_uuid() where rid = $1", claimed.fence.rid)
            asked = asyncio.ensure_future(
                db.call_on(mine, "begin_attempts", [claimed.fence.rid] * items, [claimed.fence.fence] * items)
            )
            await until_blocked(admin, mine.get_server_pid())
        assert [row["answer"] for row in await asked] == ["stale"] * items
    await other.close()
    assert await look(admin, claimed.fence.rid, "begun") is False


async def test_locks_are_taken_in_ascending_order_so_that_two_doors_never_meet_head_on(
    db: Database, dsn: str, admin: asyncpg.Connection
) -> None:
    """00.14 A door about one run waits for its row with nothing else in hand; a batch waits for none."""
    rids = [await admit_one(db, on_lost="fail") for _ in range(2)]
    claimed = {c.fence.rid: c.fence for c in await claim_all(db, await new_holder(db), most=2)}
    async with holding(dsn, rids[0]):
        rows = await batch(db, "begin_attempts", *[(rid, claimed[rid].fence) for rid in reversed(rids)])
        assert [row["answer"] for row in rows] == ["begun", "again"]
    rows = await batch(db, "begin_attempts", *[(rid, claimed[rid].fence) for rid in reversed(rids)])
    assert [row["answer"] for row in rows] == ["begun", "begun"]


async def test_a_stale_a_replayed_and_a_refused_item_change_nothing(
    db: Database, admin: asyncpg.Connection, clock: Clock
) -> None:
    """00.14"""
    await clock.set(NOON)
    known = launch(lane=await lane_of(db))
    await admission.admit(db, [known])
    claimed = await claim_one(db)
    before = await tables(admin)
    await admission.admit(db, [known, launch(id="", lane=1), launch(id=known.id, input="7", lane=1)])
    wrong = uuid.uuid4()
    asked: dict[str, tuple[Any, ...]] = {
        "begin_attempts": (),
        "give_back_attempts": (),
        "defer_attempts": ("capacity", "x", 1),
        "finish_attempts": ("completed", "1", None, None, None),
        "mark_steps": ("s", 1, "", False, None, False),
        "keep_steps": ("step", "s", 1, "", True, True, "1"),
        "park_attempts": ("[]", 0, True, None),
    }
    for door, item in asked.items():
        rows = await batch(db, door, (claimed.fence.rid, wrong, *item))
        assert rows[0]["answer"] == "stale", door
    assert await tables(admin) == before


async def test_what_is_the_same_of_a_whole_batch_is_said_once(db: Database, admin: asyncpg.Connection) -> None:
    """00.13 An element of an array costs the caller as much as an argument does: the door spreads what it is told once."""
    three = [await running(db) for _ in range(3)]

    async def ask(door: str, *said: list[Any]) -> set[str]:
        rows = await db.call(door, [c.fence.rid for c in three], [c.fence.fence for c in three], *said)
        return {row["answer"] for row in rows}

    assert await ask("mark_steps", ["m"], [2], ["h"], [False], [60_000], [False]) == {"marked"}
    assert await ask("keep_steps", ["step"], ["s"], [3], ["i"], [True], [False], [ERROR]) == {"kept"}
    assert await ask("keep_steps", ["value"], ["v"], [1], [""], [False], [True], ["7"]) == {"kept"}
    rows = await admin.fetch(
        "select kind, name, ordinal, hash, repeatable, state, value, until is not null from fencepost.boundary order by name, rid"
    )
    marked = ("step", "m", 2, "h", False, "marked", None, True)
    failed, kept = ("step", "s", 3, "i", True, "failed", ERROR, False), ("value", "v", 1, "", False, "kept", "7", False)
    assert [tuple(row) for row in rows] == [marked] * 3 + [failed] * 3 + [kept] * 3
    three = [await villain_of(db, admin, c) for c in three]
    assert await ask("mark_steps", ["m"], [2], ["h"], [False], [], [True]) == {"marked"}


async def test_ends_that_are_the_same_of_a_whole_batch_are_said_once(db: Database, admin: asyncpg.Connection) -> None:
    """00.13 As above; each ending with what belongs to it."""
    for said, answer in (
        ((["completed"], ["9"], [], [], []), "committed"),
        ((["retry"], [ERROR], [60_000], [2], []), "retrying"),
        ((["retry"], [ERROR], [60_000], [1], []), "committed"),
        ((["unfit"], [ERROR], [], [], ["digest"]), "parked"),
    ):
        three = [await running(db) for _ in range(3)]
        whose = [c.fence.rid for c in three], [c.fence.fence for c in three]
        assert {row["answer"] for row in await db.call("finish_attempts", *whose, *said)} == {answer}
    counts = (
        "outcome where status = 'completed' and output = '9'",
        "outcome where error::json->>'code' = 'TRIES_EXHAUSTED'",
        "task where tries = 1 and due_at > now() + interval '50 s'",
        "task where code_digest = 'digest'",
    )
    for counted in counts:
        assert await admin.fetchval(f"select count(*) from fencepost.{counted}") == 3, counted


async def test_nothing_rests_on_a_notification(db: Database, admin: asyncpg.Connection) -> None:
    """00.10 A worker that hears nothing finds its work by looking."""
    holder = await new_holder(db)
    assert await claim_all(db, holder) == ()
    await attempts.sleep(db, holder, await lane_of(db), asleep=True)
    rid = await admit_one(db)  # its notification goes to a channel that nobody listens on
    assert (await claim_one(db, holder)).fence.rid == rid


@pytest.mark.parametrize("many", [1, 2], ids=["one launch", "a batch"])
async def test_a_worker_that_sleeps_is_told_of_work_in_its_lane_and_nobody_else_is(
    db: Database, admin: asyncpg.Connection, many: int
) -> None:
    """00.10 The hint is no truth, and comes all the same: without it work would wait for the next look."""
    lane, other = await lane_of(db), await lane_of(db, "other")
    heard: list[str] = []
    for of, name in ((lane, "dev"), (other, "other")):
        channel = await attempts.sleep(db, await new_holder(db, release=name), of, asleep=True)
        await admin.add_listener(channel, lambda *_, name=name: heard.append(name))
    awake = await new_holder(db)
    channel = await attempts.sleep(db, awake, lane, asleep=True)
    await admin.add_listener(channel, lambda *_: heard.append("awake"))
    await attempts.sleep(db, awake, lane, asleep=False)
    await admission.admit_together(db, [launch(lane=lane) for _ in range(many)])
    async with asyncio.timeout(10):
        while not heard:
            await admin.execute("select 1")
    assert heard == ["dev"]


async def test_a_lapsed_lease_alone_puts_nobody_out(db: Database, admin: asyncpg.Connection, clock: Clock) -> None:
    """00.10 Also 40.10: nobody asked, so a finish a year late counts."""
    await clock.set(NOON)
    rid = await admit_one(db)
    claimed = await claim_one(db)
    await clock.advance(timedelta(days=365))
    ended = await terminal.finish(db, claimed.fence, "completed", "1")
    assert ended == terminal.Ended("committed", "completed")
    assert await look(admin, rid, "status", table="outcome") == "completed"


# 00.11, 00.12


async def test_a_process_opens_no_more_connections_than_its_budget(
    worker_dsn: str, admin: asyncpg.Connection, monkeypatch: pytest.MonkeyPatch
) -> None:
    """00.11 And a full pool is the answer `busy`."""
    monkeypatch.setattr(limits, "WAITERS_MAX", 4)
    db = Database(worker_dsn, connections=2, name="budget")
    async with db.connection(), db.connection():
        waiting = [asyncio.ensure_future(db.call("read_lanes")) for _ in range(4)]
        await asyncio.sleep(0)  # waits: the four are in line after one turn of the loop
        with pytest.raises(Busy):
            await db.call("read_lanes")
        count = "select count(*) from pg_stat_activity where application_name = 'budget'"
        assert await admin.fetchval(count) == 2
    await asyncio.gather(*waiting)
    assert await admin.fetchval(count) == 2
    await db.close()


async def test_readiness_is_checked_once_and_shared_and_a_failure_is_not_remembered(
    db: Database, admin: asyncpg.Connection, monkeypatch: pytest.MonkeyPatch
) -> None:
    """00.12 Twenty callers at once, one look; after a failure the next caller looks again."""
    looked = 0
    real = installed_version

    async def counted(*args: Any) -> int | None:
        nonlocal looked
        looked += 1
        return await real(*args)

    monkeypatch.setattr("fencepost.db.installed_version", counted)
    await admin.execute("update fencepost.meta set schema_version = 9")
    found = await asyncio.gather(*(db.ready() for _ in range(20)), return_exceptions=True)
    assert looked == 1
    assert {type(e).__name__ for e in found} == {"SchemaMismatch"}
    await admin.execute("update fencepost.meta set schema_version = 1")
    await asyncio.gather(*(db.ready() for _ in range(20)))
    await db.ready()
    assert looked == 2
