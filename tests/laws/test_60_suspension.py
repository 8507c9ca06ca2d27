"""Chapter 60: waiting without holding anything; a wait resolves once, a signal is delivered once."""

from __future__ import annotations

import asyncpg
import pytest

from fencepost import admission, recovery
from fencepost.db import Database
from fencepost.suspension import Armed, Here, Parked, Resolved
from fencepost.testing import Clock
from fencepost.words import CANCELLING, STALE
from tests.support import admit_one, claim_all, launch, look, new_holder, tables
from tests.support_runs import (
    arm,
    batch,
    beat,
    boundary,
    cancel,
    claim_by,
    drop,
    finish,
    history,
    keep,
    ledger_of,
    running,
    send,
    villain_of,
    wait,
)

pytestmark = pytest.mark.usefixtures("lawful")


def signal(value: str, *, seq: int, name: str = "review", ordinal: int = 1, state: str = "arrived") -> Resolved:
    return Resolved("signal", name, ordinal, state, seq, value)


async def test_parking_arms_gives_everything_back_and_says_so_in_one(db: Database, admin: asyncpg.Connection) -> None:
    """60.1 Fence, holder and request are gone, the leg stands in the history, the claim does not see the run."""
    mine = await running(db)
    assert await wait(db, mine.fence, arm("signal", ms=5000), arm("sleep", "nap", ms=9000)) == Parked()
    rid = mine.fence.rid
    assert await look(admin, rid, "state", "park", "fence", "holder", "request", "begun") == (
        "parked",
        "wait",
        None,
        None,
        None,
        False,
    )
    assert await look(admin, rid, "ended", "fence", table="attempt") == ("parked", mine.fence.fence)
    assert (await ledger_of(admin, rid))[2:] == ["wait.armed", "wait.armed", "attempt.parked"]
    assert await claim_all(db, await new_holder(db)) == ()
    assert await admin.fetchval("select due_at - ready_at < interval '6 s' from fencepost.task") is True


async def test_what_is_parked_stands_in_no_index_of_the_claim(db: Database, admin: asyncpg.Connection) -> None:
    """60.1 It costs the claim path nothing."""
    mine = await running(db)
    await wait(db, mine.fence, arm("signal"))
    conditions = await admin.fetch(
        "select pg_get_expr(indpred, indrelid) from pg_index where indexrelid::regclass::text in ('fencepost.task_line', 'fencepost.task_suspect')"
    )
    assert len(conditions) == 2
    for (condition,) in conditions:
        assert await admin.fetchval(f"select count(*) from fencepost.task where {condition}") == 0


async def test_a_park_whose_answer_was_lost_is_asked_again_and_answered_the_same(
    db: Database, admin: asyncpg.Connection
) -> None:
    """60.1, 00.3, B37 By the fence that parked; one that was lost is stale."""
    mine = await running(db, "nap")
    assert await wait(db, mine.fence, arm("signal")) == Parked()
    before = await tables(admin)
    assert await wait(db, mine.fence, arm("signal")) == Parked()
    assert await tables(admin) == before
    await send(db, "nap")
    new = await claim_by(db, admin, mine.fence.rid)
    assert await wait(db, mine.fence, arm("signal")) == Parked()
    newer = await villain_of(db, admin, new)
    assert await wait(db, new.fence, arm("signal")) is STALE
    assert await look(admin, mine.fence.rid, "fence") == newer.fence.fence


@pytest.mark.parametrize("when", ["before", "armed", "parked"])
async def test_a_signal_is_delivered_whenever_it_is_sent(db: Database, admin: asyncpg.Connection, when: str) -> None:
    """60.2, B44 Before the wait exists, while the leg still looks, and after it parked; once each time."""
    mine = await running(db, "run")
    if when == "before":
        assert await send(db, "run", payload='{"ok": 1}') == "sent"
        assert await wait(db, mine.fence, arm("signal")) == Here((signal('{"ok": 1}', seq=5),))
        return
    if when == "armed":
        assert isinstance(await wait(db, mine.fence, arm("signal"), park=False), Armed)
        assert await send(db, "run", payload='{"ok": 1}') == "sent"
        assert await wait(db, mine.fence, arm("signal")) == Here((signal('{"ok": 1}', seq=5),))
        assert isinstance(
            await wait(db, mine.fence, arm("signal"), arm("signal", ordinal=2), known=5, park=False), Armed
        )
        return
    assert await wait(db, mine.fence, arm("signal")) == Parked()
    assert await send(db, "run", payload='{"ok": 1}') == "sent"
    new = await claim_by(db, admin, mine.fence.rid)
    assert [(r[1], r[3], r[8]) for r in history(new)] == [("review", "arrived", '{"ok": 1}')]


async def test_signals_of_one_name_are_delivered_in_the_order_sent_each_to_one_wait(
    db: Database, admin: asyncpg.Connection
) -> None:
    """60.3 Names do not mix; what is delivered is the stored payload, byte for byte."""
    mine = await running(db, "run")
    for name, payload in (("a", '"a1"'), ("b", '{"b":  1}'), ("a", '"a2"'), ("a", '"a3"')):
        assert await send(db, "run", name, payload) == "sent"
    here = await wait(db, mine.fence, arm("signal", "b"), arm("signal", "a"), arm("signal", "a", 2))
    assert isinstance(here, Here)
    assert [(r.name, r.ordinal, r.value) for r in here.resolved] == [
        ("a", 1, '"a1"'),
        ("b", 1, '{"b":  1}'),
        ("a", 2, '"a2"'),
    ]
    assert await admin.fetchval("select count(*) from fencepost.signal where taken is null") == 1


async def test_a_senders_id_makes_its_repeats_harmless(db: Database, admin: asyncpg.Connection) -> None:
    """60.3 While it waits, after it was delivered, after the run ended; within one call too. Other runs and names are others."""
    mine = await running(db, "run")
    await running(db, "other")
    assert await send(db, "run", dedupe="d") == "sent"
    assert await send(db, "run", dedupe="d") == "repeated"
    assert await send(db, "run", "else", dedupe="d") == "sent"
    assert await send(db, "other", dedupe="d") == "sent"
    items = [("default", "run", "review", "e", "2"), ("default", "run", "review", "e", "2")]
    assert [r["answer"] for r in await batch(db, "send_signals", *items)] == ["sent", "repeated"]
    await wait(db, mine.fence, arm("signal"))
    await finish(db, mine.fence)
    assert await send(db, "run", dedupe="d") == "repeated"
    assert await send(db, "run", dedupe="f") == "ended"
    assert await admin.fetchval("select count(*) from fencepost.signal") == 4


async def test_an_sql_caller_without_an_id_accepts_repeats(db: Database, admin: asyncpg.Connection) -> None:
    """60.3 And may send inside its own transaction: rolled back, nothing was sent."""
    await running(db, "run")
    for _ in range(2):
        assert await admin.fetchval("""select fencepost.send_signal('run', 'review', '{"a":1}')""") == "sent"
    transaction = admin.transaction()
    await transaction.start()
    await admin.fetchval("select fencepost.send_signal('run', 'review')")
    await transaction.rollback()
    assert await admin.fetchval("select count(*) from fencepost.signal") == 2


async def test_undelivered_signals_are_bounded(db: Database) -> None:
    """60.3 The thousand and first is told so, and taken once there is room."""
    mine = await running(db, "run")
    await batch(db, "send_signals", *(("default", "run", "other", str(n), "1") for n in range(999)))
    assert await send(db, "run", payload="1") == "sent"
    assert await send(db, "run", payload="2") == "full"
    assert isinstance(await wait(db, mine.fence, arm("signal")), Here)
    assert await send(db, "run", payload="2") == "sent"


async def test_unusable_signals_are_refused_and_unknown_runs_named(db: Database, admin: asyncpg.Connection) -> None:
    """60.3, 00.13 Beside a good one in the same call, which is sent."""
    await running(db, "run")
    items = [
        ("default", "run", "", "a", "1"), ("default", "run", "x\n", "b", "1"), ("default", "nobody", "review", "c", "1"),
        ("else", "run", "review", "d", "1"), ("default", "run", "review", "e", None), ("default", "run", "review", "f", "1"),
    ]  # fmt: skip
    answers = [r["answer"] for r in await batch(db, "send_signals", *items)]
    assert answers == ["refused", "refused", "unknown_run", "unknown_run", "refused", "sent"]
    assert await admin.fetchval("select count(*) from fencepost.signal") == 1


async def test_a_signal_for_one_run_wakes_no_other(db: Database, admin: asyncpg.Connection) -> None:
    """60.4 One that waits for the same name, and one of the same id in another organisation, sleep on."""
    waiting = [await running(db, "a"), await running(db, "b"), await running(db, "a", org="else")]
    for claimed in waiting:
        assert await wait(db, claimed.fence, arm("signal")) == Parked()
    await send(db, "a")
    assert [await look(admin, c.fence.rid) for c in waiting] == ["queued", "parked", "parked"]


async def test_a_message_of_an_old_attempt_neither_wakes_nor_cancels_for_the_new_one(
    db: Database, admin: asyncpg.Connection
) -> None:
    """60.4, 40.3 The old leg's arms, cancels and parks come too late; the usurper looks exactly like it."""
    mine = await running(db, "run")
    await wait(db, mine.fence, arm("signal"), park=False)
    new = await villain_of(db, admin, mine)
    before = await tables(admin)
    assert await wait(db, mine.fence, drop("signal", "review"), arm("sleep", "nap", ms=1), park=False) is STALE
    assert await wait(db, mine.fence, arm("signal")) is STALE
    assert await tables(admin) == before
    await send(db, "run")
    assert isinstance(await wait(db, new.fence, arm("signal")), Here)


async def test_a_wait_that_timed_out_stays_so_and_the_late_signal_stays_for_the_next(
    db: Database, admin: asyncpg.Connection, clock: Clock
) -> None:
    """60.5, B45 In its own column, never inferred from a null value."""
    mine = await running(db, "run")
    await clock.advance(0)
    assert await wait(db, mine.fence, arm("signal", ms=1000)) == Parked()
    await clock.advance(1)
    assert (await beat(db, await new_holder(db))).woken == 1
    assert await send(db, "run", payload='"late"') == "sent"
    new = await claim_by(db, admin, mine.fence.rid)
    assert [(r[1], r[3], r[8]) for r in history(new)] == [("review", "timed_out", None)]
    here = await wait(db, new.fence, arm("signal", ms=1000), arm("signal", ordinal=2), known=history(new)[0][4])
    assert isinstance(here, Here)
    assert [(r.ordinal, r.state, r.value) for r in here.resolved] == [(2, "arrived", '"late"')]
    assert await boundary(admin, mine.fence.rid, "review", kind="signal") == "timed_out"


async def test_a_signal_that_came_in_time_is_delivered_though_the_hour_has_passed(db: Database, clock: Clock) -> None:
    """60.5, 60.2 First the signal is looked for."""
    mine = await running(db, "run")
    await clock.advance(0)
    assert await wait(db, mine.fence, arm("signal", ms=1000), park=False) == Armed(1000)
    await send(db, "run", payload="1")
    await clock.advance(2)
    assert await wait(db, mine.fence) == Here((signal("1", seq=5),))


async def test_a_null_payload_is_an_arrival(db: Database) -> None:
    """60.5 JSON null arrived; it did not time out."""
    mine = await running(db, "run")
    await send(db, "run", payload="null")
    assert await wait(db, mine.fence, arm("signal", ms=0)) == Here((signal("null", seq=5),))


async def test_a_resolved_sleep_keeps_what_was_asked_and_when_it_ended(
    db: Database, admin: asyncpg.Connection, clock: Clock
) -> None:
    """60.5 Not before its hour: at it, whoever looks; a process is not needed."""
    mine = await running(db, "run")
    begun = await clock.advance(0)
    assert await wait(db, mine.fence, arm("sleep", "nap", ms=60_000)) == Parked()
    watcher = await new_holder(db)
    await clock.advance(59.999)
    said = await beat(db, watcher)
    assert (said.woken, said.due_ms) == (0, 1)
    await clock.advance(0.001)
    assert (await beat(db, watcher)).woken == 1
    state, asked, at, until = await boundary(
        admin, mine.fence.rid, "nap", "state", "asked_ms", "at", "until", kind="sleep"
    )
    assert (state, asked, (at - begun).total_seconds(), until) == ("arrived", 60_000, 60, at)


async def test_a_cancelled_wait_takes_no_signal(db: Database, admin: asyncpg.Connection) -> None:
    """60.5 It resolved, as cancelled; cancelling again, or what has arrived, changes nothing."""
    mine = await running(db, "run")
    await wait(db, mine.fence, arm("signal"), arm("signal", "other"), park=False)
    await wait(db, mine.fence, drop("signal", "review"), park=False)
    await send(db, "run")
    await send(db, "run", "other")
    assert isinstance(await wait(db, mine.fence, drop("signal", "review"), park=False), Here)
    await wait(db, mine.fence, drop("signal", "other"), park=False)
    assert await boundary(admin, mine.fence.rid, "review", kind="signal") == "cancelled"
    assert await boundary(admin, mine.fence.rid, "other", kind="signal") == "arrived"
    assert await admin.fetchval("select count(*) from fencepost.signal where taken is null") == 1


async def test_what_a_wait_means_is_what_was_armed(db: Database, admin: asyncpg.Connection, clock: Clock) -> None:
    """60.6 Later code that asks otherwise changes neither its hour nor what was asked."""
    mine = await running(db, "run")
    await clock.advance(0)
    await wait(db, mine.fence, arm("signal", ms=1000, hash="old"), park=False)
    new = await villain_of(db, admin, mine)
    await clock.advance(0.5)
    assert await wait(db, new.fence, arm("signal", ms=999_000, hash="new"), park=False) == Armed(500)
    assert await boundary(admin, mine.fence.rid, "review", "asked_ms", "hash", kind="signal") == (1000, "old")


async def test_a_suspension_that_was_swallowed_changes_nothing(db: Database, admin: asyncpg.Connection) -> None:
    """60.8 The fence that parked is dead: what its code does now is stale, though the run waits like before."""
    mine = await running(db, "run")
    await wait(db, mine.fence, arm("signal"))
    before = await tables(admin)
    assert await keep(db, mine.fence) is STALE
    assert await finish(db, mine.fence) is STALE
    assert await wait(db, mine.fence, arm("signal", "else"), park=False) is STALE
    assert await tables(admin) == before


async def test_a_herd_is_woken_at_most_a_thousand_a_second_oldest_first_by_anybody(
    db: Database, admin: asyncpg.Connection, clock: Clock
) -> None:
    """60.9 By whichever worker's beats; every lane has its own thousand."""
    await clock.advance(0)
    first = await admit_one(db, "first", delay_ms=1)
    other = await admit_one(db, "elsewhere", release="r2", delay_ms=5)
    await admission.admit(db, [launch(id=f"run-{n}", delay_ms=10 + n) for n in range(2200)])
    first_worker, second_worker, elsewhere = (
        await new_holder(db),
        await new_holder(db),
        await new_holder(db, release="r2"),
    )
    await clock.advance(60)
    woken = [(await beat(db, worker)).woken for worker in (first_worker, second_worker, first_worker, second_worker)]
    assert woken == [500, 500, 0, 0]
    assert (await beat(db, elsewhere)).woken == 1
    assert (await look(admin, first, "due_at"), await look(admin, other, "due_at")) == (None, None)
    newest = "select max(substr(id, 5)::int) from fencepost.run join fencepost.task using (rid) where id like 'run-%' and due_at is null"
    assert await admin.fetchval(newest) == 998
    await clock.advance(0.9)
    assert (await beat(db, first_worker)).woken == 0
    await clock.advance(0.1)
    assert [(await beat(db, worker)).woken for worker in (first_worker, second_worker, first_worker)] == [500, 500, 0]
    await clock.advance(1)
    assert (await beat(db, second_worker)).woken == 201
    assert (await beat(db, second_worker)).due_ms is None


async def test_timers_fire_on_the_real_clock(db: Database, admin: asyncpg.Connection) -> None:
    """60.9, 60.5 Once without a virtual clock: a wait of no time is over for the next transaction."""
    mine = await running(db, "run")
    assert await wait(db, mine.fence, arm("signal", ms=1), park=True) == Parked()
    await admin.fetchval("select pg_sleep(0.01)")
    assert (await beat(db, await new_holder(db))).woken == 1
    assert await boundary(admin, mine.fence.rid, "review", kind="signal") == "timed_out"


async def test_waits_are_armed_and_resolved_while_the_leg_goes_on(
    db: Database, admin: asyncpg.Connection, clock: Clock
) -> None:
    """60.11, 40.8 A wait answered in place keeps number and fence bit for bit; each answer is told once."""
    mine = await running(db, "run")
    await clock.advance(0)
    assert await wait(db, mine.fence, arm("signal", ms=9000), arm("sleep", "nap", ms=4000), park=False) == Armed(4000)
    await clock.advance(4)
    here = await wait(db, mine.fence)
    assert here == Here((Resolved("sleep", "nap", 1, "arrived", 5, None),))
    assert await look(admin, mine.fence.rid, "number", "fence", "state") == (1, mine.fence.fence, "running")
    assert await wait(db, mine.fence, known=5, park=False) == Armed(5000)
    await send(db, "run")
    assert await wait(db, mine.fence, known=5) == Here((signal("1", seq=7),))


async def test_a_cancelling_run_neither_arms_nor_parks(db: Database, admin: asyncpg.Connection) -> None:
    """60.1, 80.4 It is told so."""
    mine = await running(db, "run")
    await cancel(db, "run")
    assert await wait(db, mine.fence, arm("signal")) is CANCELLING
    assert await boundary(admin, mine.fence.rid, "review", kind="signal") is None


async def test_a_deferred_run_with_waits_comes_back_at_its_hour(
    db: Database, admin: asyncpg.Connection, clock: Clock
) -> None:
    """60.9, 40.5 Also when a wait of it is due at the same instant: one look wakes it."""
    from fencepost import attempts

    mine = await running(db, "run")
    await clock.advance(0)
    await wait(db, mine.fence, arm("sleep", "nap", ms=500), park=False)
    await attempts.defer(db, mine.fence, reason="workflow_missing", dependency="work", delay_ms=1000)
    await clock.advance(1)
    assert (await beat(db, await new_holder(db))).woken == 1
    new = await claim_by(db, admin, mine.fence.rid)
    assert isinstance(await wait(db, new.fence), Here)


async def test_an_operator_may_wake_what_waits_out_a_delay_and_nothing_else(
    db: Database, admin: asyncpg.Connection
) -> None:
    """60.4 A wait is not an operator's to end by waking."""
    delayed, waiting, working = (
        await admit_one(db, "delayed", delay_ms=10**6),
        await running(db, "waiting"),
        await running(db, "working"),
    )
    await wait(db, waiting.fence, arm("signal"))
    assert await recovery.wake(db, "default", "delayed") == ("done", "queued")
    assert await look(admin, delayed, "due_at") is None
    assert await recovery.wake(db, "default", "waiting") == ("refused", "parked")
    assert await recovery.wake(db, "default", "working") == ("refused", "running")
    assert await recovery.wake(db, "default", "nobody") == ("unknown_run", None)
    await finish(db, working.fence)
    assert await recovery.wake(db, "default", "working") == ("refused", "completed")


async def test_a_signal_is_for_the_wait_of_its_name(db: Database, admin: asyncpg.Connection) -> None:
    """60.3 Signals of another name stay for their own wait, in the line and for a parked run alike."""
    claimed = await running(db, "it")
    await send(db, "it", "other", "7")
    assert isinstance(await wait(db, claimed.fence, arm("signal", "review")), Parked)
    await send(db, "it", "other", "8")
    assert await look(admin, claimed.fence.rid, "state") == "parked"
    await send(db, "it", "review", "9")
    assert await boundary(admin, claimed.fence.rid, "review", "state", "value", kind="signal") == ("arrived", "9")
    assert await admin.fetchval("select count(*) from fencepost.signal where taken is null") == 2
