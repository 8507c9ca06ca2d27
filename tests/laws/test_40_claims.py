"""Chapter 40: what a request gives, what a heartbeat says, and how long a run may be deferred, hung or lost."""

from __future__ import annotations

import asyncio
import json
import uuid
from datetime import UTC, datetime
from typing import Any

import asyncpg
import pytest

from fencepost import attempts, recovery
from fencepost.attempts import Claim, Claimed, Deferred
from fencepost.db import Database
from fencepost.testing import Clock
from fencepost.words import Fence
from tests.support import admit_one, claim_all, claim_one, lane_of, look, new_holder, next_request, until_blocked
from tests.support_runs import (
    arm,
    beat,
    cancel,
    finish,
    holder_of,
    holding,
    keep,
    lose,
    mark,
    outcome_of,
    running,
    send,
    wait,
)  # fmt: skip

NOON = datetime(2031, 5, 6, 12, tzinfo=UTC)
pytestmark = pytest.mark.usefixtures("lawful")


async def ask(
    db: Database, holder: uuid.UUID, request: int, *, most: int = 1, cursor: str = "", alone: bool = True
) -> Claim:
    return await attempts.claim(
        db, holder, request, lane=await lane_of(db), most=most, cursor=cursor, alone=alone, patience=30
    )


# 40.12


async def test_past_its_durable_deadline_and_a_lease_an_attempt_is_lost_however_healthy_its_heartbeat(
    db: Database, admin: asyncpg.Connection, clock: Clock
) -> None:
    """40.12 The holder beats all the time; another worker's beat, a lease after the deadline, fences the attempt out."""
    await clock.set(NOON)
    claimed = await running(db)
    holder, other = await holder_of(admin, claimed.fence), await new_holder(db)
    await mark(db, claimed.fence, timeout_ms=10_000, repeatable=True)

    async def pass_by(seconds: int) -> str:
        for _ in range(seconds):
            await clock.advance(1)
            if not (await beat(db, holder, held=[claimed.fence])).buried:
                await beat(db, other)
        return str(await look(admin, claimed.fence.rid, "state"))

    assert await pass_by(39) == "running"
    assert await pass_by(1) == "queued"
    history = await look(admin, claimed.fence.rid, "ended", "reason", table="attempt")
    assert history == ("lost", "deadline_passed")
    said = await beat(db, holder, held=[claimed.fence])
    assert [held.rid for held in said.lost] == [claimed.fence.rid]


async def test_without_a_deadline_a_hung_attempt_is_left_to_whoever_reads_explain(
    db: Database, admin: asyncpg.Connection, clock: Clock
) -> None:
    """40.12 Its holder is heard, so nobody guesses; a step that was kept in time has no deadline any more."""
    await clock.set(NOON)
    claimed = await running(db)
    holder, other = await holder_of(admin, claimed.fence), await new_holder(db)
    await mark(db, claimed.fence, "timed", timeout_ms=10_000)
    await keep(db, claimed.fence, "timed")
    await mark(db, claimed.fence, "free")
    for _ in range(60):
        await clock.advance(8)
        await beat(db, holder, held=[claimed.fence])
        await beat(db, other)
    assert await look(admin, claimed.fence.rid, "state", "fence") == ("running", claimed.fence.fence)


# 40.13


async def defer(db: Database, rid: int, **how: Any) -> Any:
    given = {"reason": "capacity", "dependency": "daytona", "delay_ms": 0} | how
    claim = await attempts.claim_tree(db, await new_holder(db), next_request(), root=rid, most=1, patience=30)
    answer = await attempts.defer(db, claim.claimed[0].fence, **given)
    if answer == Deferred(exhausted=False):
        await recovery.wake(db, "default", "it")
    return answer


async def test_after_twenty_deferrals_the_run_ends_in_the_transaction_of_the_refused_one(
    db: Database, admin: asyncpg.Connection, clock: Clock
) -> None:
    """40.13 RECOVERY_EXHAUSTED, naming the dependency, speaking of this leg only, never containing history."""
    await clock.set(NOON)
    first = await running(db, "it", input='"secret input"', on_lost="fail")
    await attempts.begin(db, first.fence)
    await keep(db, first.fence, value='"secret value"')
    await finish(
        db, first.fence, "retry", '{"code":"WORKFLOW_ERROR","message":"secret failure"}', delay_ms=0, most_tries=9
    )
    rid = first.fence.rid
    for _ in range(20):
        await clock.advance(1)
        assert await defer(db, rid) == Deferred(exhausted=False)
    assert await look(admin, rid, "deferrals", "tries") == (20, 1)
    assert await defer(db, rid) == Deferred(exhausted=True)
    status, _, error = await outcome_of(admin, rid) or (None, None, None)
    assert status == "failed"
    assert error is not None
    assert json.loads(error)["code"] == "RECOVERY_EXHAUSTED"
    assert json.loads(error)["dependency"] == "daytona"
    assert "secret" not in error
    assert await look(admin, rid, "number", "fence is not null", table="outcome") == (22, True)


async def test_half_an_hour_from_the_first_deferral_is_the_end_too(
    db: Database, admin: asyncpg.Connection, clock: Clock
) -> None:
    """40.13 At thirty minutes or after, not before."""
    await clock.set(NOON)
    rid = await admit_one(db, "it", on_lost="fail")
    await defer(db, rid)
    await clock.advance(30 * 60 - 1)
    assert await defer(db, rid) == Deferred(exhausted=False)
    await clock.advance(1)
    assert await defer(db, rid) == Deferred(exhausted=True)
    assert (await outcome_of(admin, rid) or "")[0] == "failed"


@pytest.mark.parametrize("on_lost", ["fail", "replay"])
@pytest.mark.parametrize("since", ["begun and lost", "begun and retried", "parked"])
async def test_the_budget_counts_since_an_attempt_last_began(
    db: Database, admin: asyncpg.Connection, clock: Clock, on_lost: Any, since: str
) -> None:
    """40.13 Nineteen deferrals, then an attempt whose code ran: the next ones are counted anew."""
    await clock.set(NOON)
    rid = await admit_one(db, "it", on_lost=on_lost)
    for _ in range(19):
        await defer(db, rid)
    holder = await new_holder(db)
    claim = await attempts.claim_tree(db, holder, next_request(), root=rid, most=1, patience=30)
    fence = claim.claimed[0].fence
    await attempts.begin(db, fence)
    assert await look(admin, rid, "deferrals") == (0 if on_lost == "fail" else 19), (
        "an inline claim is no proof of a beginning"
    )
    match since:
        case "begun and lost":
            if on_lost == "fail":  # such a loss ends the run; a retry is the way back
                await finish(db, fence, "retry", delay_ms=0, most_tries=9)
            else:
                await lose(db, holder)
        case "begun and retried":
            await finish(db, fence, "retry", delay_ms=0, most_tries=9)
        case _:
            await wait(db, fence, arm("signal"))
            await send(db, "it")
    await clock.advance(3600)
    for _ in range(20):
        assert await defer(db, rid) == Deferred(exhausted=False)
    assert await defer(db, rid) == Deferred(exhausted=True)


# 40.14


async def test_a_request_asked_again_gives_the_same_attempts(db: Database, admin: asyncpg.Connection) -> None:
    """40.14 The reply was lost: number, fence and input are the same; nothing more is claimed."""
    for n in range(4):
        await admit_one(db, input=str(n))
    holder = await new_holder(db)
    first = await ask(db, holder, 7, most=2)
    assert len(first.claimed) == 2
    again = await ask(db, holder, 7, most=2)
    assert sorted(again.claimed, key=lambda c: c.fence.rid) == sorted(first.claimed, key=lambda c: c.fence.rid)
    assert await admin.fetchval("select count(*) from fencepost.task where state = 'running'") == 2
    await finish(db, first.claimed[0].fence)
    assert [c.fence for c in (await ask(db, holder, 7, most=2)).claimed] == [first.claimed[1].fence]


async def test_a_request_older_than_the_newest_is_closed(db: Database, admin: asyncpg.Connection) -> None:
    """40.14 It gives nothing, neither old nor new."""
    for _ in range(3):
        await admit_one(db)
    holder = await new_holder(db)
    assert len((await ask(db, holder, 5)).claimed) == 1
    assert len((await ask(db, holder, 6)).claimed) == 1
    assert await ask(db, holder, 5) == Claim()
    assert await ask(db, holder, 4) == Claim()
    assert await admin.fetchval("select count(*) from fencepost.task where state = 'queued'") == 1


async def test_of_one_request_asked_twice_at_once_the_second_waits_and_gets_the_same(
    db: Database, worker_dsn: str, admin: asyncpg.Connection
) -> None:
    """40.14 The first is on its way, its transaction open, when it is given up and asked again."""
    for _ in range(4):
        await admit_one(db)
    holder, lane = await new_holder(db), await lane_of(db)
    first, second = await asyncpg.connect(worker_dsn), await asyncpg.connect(worker_dsn)
    asked = (holder, 1, lane, 2, "", True)
    async with first.transaction():
        one = await db.call_on(first, "claim_attempts", *asked)
        again = asyncio.ensure_future(db.call_on(second, "claim_attempts", *asked))
        await until_blocked(admin, second.get_server_pid())
    two = await again
    gave = [[row["fence"] for row in rows if row["answer"] == "claimed"] for rows in (one, two)]
    assert sorted(gave[0]) == sorted(gave[1])
    assert len(gave[0]) == 2
    for connection in (first, second):
        await connection.close()


async def test_what_an_answered_request_gave_and_the_worker_does_not_hold_goes_back(
    db: Database, admin: asyncpg.Connection
) -> None:
    """40.14 No try charged; what it holds stays, and so does what a request not answered yet gave."""
    rids = [await admit_one(db) for _ in range(3)]
    holder = await new_holder(db)
    held, dropped = [c.fence for c in (await ask(db, holder, 1, most=2)).claimed]
    unanswered = (await ask(db, holder, 2)).claimed[0].fence
    said = await beat(db, holder, answered=1, held=[held])
    assert (said.lost, said.cancel) == ((), ())
    assert await look(admin, held.rid, "fence") == held.fence
    assert await look(admin, unanswered.rid, "fence") == unanswered.fence
    assert await look(admin, dropped.rid, "state", "tries", "losses") == ("queued", 0, 0)
    assert await look(admin, dropped.rid, "ended", "reason", table="attempt") == ("given_back", "not_held")
    await beat(db, holder, answered=2, held=[held])
    assert await look(admin, unanswered.rid, "state") == "queued"
    assert len(rids) == 3


async def test_a_heartbeat_is_told_what_to_stop_and_what_it_holds_no_longer(
    db: Database, admin: asyncpg.Connection
) -> None:
    """40.14, B63 With the reason; another number of the same run is no longer held either."""
    claimed = [await running(db, name) for name in ("stays", "cancelled", "ended")]
    holder = await new_holder(db)
    await admin.execute("update fencepost.task set holder = $1, request = 9", holder)
    await cancel(db, "cancelled", reason="not needed")
    await finish(db, claimed[2].fence)
    older = Fence(claimed[0].fence.rid, 7, claimed[0].fence.fence)
    said = await beat(db, holder, answered=1, held=[*(c.fence for c in claimed), older])
    assert [(one.rid, one.reason) for one in said.cancel] == [(claimed[1].fence.rid, "not needed")]
    assert sorted((one.rid, one.number) for one in said.lost) == [(older.rid, 7), (claimed[2].fence.rid, 1)]


async def test_a_beat_waits_for_no_row_that_somebody_holds(db: Database, dsn: str, admin: asyncpg.Connection) -> None:
    """40.14, B39 Being heard must not depend on anybody else's transaction."""
    await admit_one(db)
    holder = await new_holder(db)
    fence = (await ask(db, holder, 1)).claimed[0].fence
    async with holding(dsn, fence.rid), asyncio.timeout(10):
        said = await beat(db, holder, answered=1, held=[])
    assert said.buried is False
    await beat(db, holder, answered=1, held=[])
    assert await look(admin, fence.rid, "state") == "queued", "the next beat does it"


# 40.15


async def lose_again(db: Database, rid: int) -> Claimed:
    holder = await new_holder(db)
    claimed = (await attempts.claim_tree(db, holder, next_request(), root=rid, most=1, patience=30)).claimed[0]
    await lose(db, holder)
    return claimed


async def test_after_five_losses_without_a_new_boundary_the_run_is_unknown(
    db: Database, admin: asyncpg.Connection
) -> None:
    """40.15 LOST_TOO_OFTEN; a committed boundary in between starts the count anew."""
    rid = await admit_one(db)
    for _ in range(4):
        await lose_again(db, rid)
    assert await look(admin, rid, "state", "losses") == ("queued", 4)
    claimed = await claim_one(db)
    await keep(db, claimed.fence)
    assert await look(admin, rid, "losses") == 0
    await lose(db, await holder_of(admin, claimed.fence))
    for _ in range(3):
        await lose_again(db, rid)
    assert await look(admin, rid, "state", "losses") == ("queued", 4)
    await lose_again(db, rid)
    assert await look(admin, rid, "state", "unknown", "losses") == ("unknown", "LOST_TOO_OFTEN", 5)


async def test_a_suspect_is_claimed_only_by_a_worker_that_holds_nothing_else(
    db: Database, admin: asyncpg.Connection
) -> None:
    """40.15 To one that holds something it is only told that a suspect waits; to one that does not it is given, alone."""
    suspect = await admit_one(db)
    await lose_again(db, suspect)
    healthy = [await admit_one(db) for _ in range(3)]
    busy, idle = await new_holder(db), await new_holder(db)
    claim = await ask(db, busy, 1, most=9, alone=False)
    assert sorted(c.fence.rid for c in claim.claimed) == healthy
    assert claim.suspect_since is not None
    for rid in [await admit_one(db) for _ in range(2)]:
        assert await look(admin, rid, "state") == "queued"
    claim = await ask(db, idle, 1, most=9, alone=True)
    assert [(c.fence.rid, c.suspect) for c in claim.claimed] == [(suspect, True)]


async def test_without_a_suspect_nobody_is_told_of_one(db: Database, admin: asyncpg.Connection) -> None:
    """40.15"""
    holder = await new_holder(db)
    nothing = await ask(db, holder, 1, alone=False)
    assert nothing == Claim(look_seconds=nothing.look_seconds)
    await admit_one(db)
    assert (await ask(db, holder, 2, alone=False)).suspect_since is None


@pytest.mark.parametrize("text", ["x" * 3_000_000, "é" * 2_000_000], ids=["ascii", "two bytes a character"])
async def test_a_large_input_travels_alone(db: Database, text: str) -> None:
    """40.14 A claim carries at most 8 MiB of inputs, asked again too; what does not fit is read by itself, and is the same."""
    big = json.dumps(text, ensure_ascii=False)
    for _ in range(3):
        await admit_one(db, input=big)
    holder = await new_holder(db)
    for claim in (await ask(db, holder, 1, most=3), await ask(db, holder, 1, most=3)):
        got = sorted(claim.claimed, key=lambda one: one.fence.rid)
        assert [c.input is None for c in got] == [False, False, True]
        assert await attempts.read_input(db, got[2].fence.rid) == big


async def test_the_histories_of_many_runs_share_one_claim(db: Database) -> None:
    """40.14 A claim carries at most 8 MiB of boundaries, asked again too: of eighty runs each gets less than of one, and reads on by itself."""
    value = json.dumps("x" * 60_000)
    for n in range(80):
        fence = (await running(db, f"run-{n}")).fence
        await keep(db, fence, "first", value)
        await keep(db, fence, "second", value)
        await wait(db, fence, arm("signal"))
        await send(db, f"run-{n}")
    holder = await new_holder(db)
    for claim in (await ask(db, holder, 1, most=80), await ask(db, holder, 1, most=80)):
        assert len(claim.claimed) == 80
        assert all(claimed.more for claimed in claim.claimed), "the second does not fit"
        assert sum(len(claimed.boundaries or "") for claimed in claim.claimed) <= 8 * 1024 * 1024
    one = claim.claimed[0]
    kind, name, ordinal, _, seq, *_ = json.loads(one.boundaries or "")[-1]
    rest, more = await attempts.read_boundaries(db, one.fence.rid, seq, f"{kind} {name} {ordinal}")
    assert ([found[1] for found in json.loads(rest)], more) == (["second", "review"], False)


async def test_of_claimants_that_race_for_the_only_run_one_gets_it(db: Database, worker_dsn: str) -> None:
    """40.2 Between seeing that there is one run and locking it, somebody else may have taken it."""
    ways = [Database(worker_dsn, connections=1) for _ in range(6)]
    holders = [await new_holder(db) for _ in ways]
    for _ in range(80):
        await admit_one(db)
        got = await asyncio.gather(*(claim_all(way, holder, most=9) for way, holder in zip(ways, holders, strict=True)))
        assert sum(map(len, got)) == 1
    for way in ways:
        await way.close()
