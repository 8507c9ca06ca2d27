"""Chapter 85: what becomes of work whose worker is gone. Silence is observed, a verdict is given once, and one rule says what follows."""

from __future__ import annotations

import json
import uuid

import asyncpg
import pytest

from fencepost import attempts, terminal
from fencepost.attempts import Claimed
from fencepost.db import Database
from fencepost.testing import Clock
from fencepost.words import STALE, OnLost
from tests.support import admit_one, claim_all, lane_of, look, new_holder, tables
from tests.support_runs import (
    arm,
    beat,
    child_of,
    claim_by,
    family,
    finish,
    holder_of,
    holding,
    keep,
    ledger_of,
    lose,
    mark,
    outcome_of,
    running,
    villain_of,
    wait,
)  # fmt: skip

pytestmark = pytest.mark.usefixtures("lawful")

LEASE = 30.0


async def silence(db: Database, clock: Clock, watcher: uuid.UUID, *, seconds: float = LEASE, every: float = 8.0) -> int:
    """Time passes, and the watcher is never deaf in it. How many it reaped."""
    reaped, left = 0, seconds
    while left > 0:
        await clock.advance(min(every, left))
        left -= every
        reaped += (await beat(db, watcher)).reaped
    return reaped


# 85.7, the rule of loss


@pytest.mark.parametrize("by", ["silence", "proof", "its own word"])
@pytest.mark.parametrize(
    ("on_lost", "begun", "unknown", "expected"),
    [
        ("replay", True, False, ("queued", None, 1)),
        ("replay", True, True, ("queued", None, 1)),
        ("fail", False, False, ("queued", None, 0)),
        ("ask", False, False, ("queued", None, 0)),
        ("fail", True, False, ("failed", "RUNNER_LOST", 1)),
        ("fail", True, True, ("unknown", "RUNNER_LOST", 1)),
        ("ask", True, False, ("unknown", "RUNNER_LOST", 1)),
        ("ask", True, True, ("unknown", "RUNNER_LOST", 1)),
    ],
)
async def test_a_lost_attempt_becomes_what_its_run_declared(
    db: Database,
    admin: asyncpg.Connection,
    clock: Clock,
    on_lost: OnLost,
    begun: bool,
    unknown: bool,
    expected: tuple[str, str | None, int],
    by: str,
) -> None:
    """85.7 Not begun: back, no try charged. Begun: replay, fail or ask; with an unknown step, never a failure. However the loss was found."""
    await clock.advance(0)
    mine = await running(db, "run", on_lost=on_lost)
    who = await holder_of(admin, mine.fence)
    if begun:
        assert await attempts.begin(db, mine.fence) == "begun"
    if unknown:
        await mark(db, mine.fence)
    watcher = await new_holder(db)
    match by:
        case "silence":
            assert await silence(db, clock, watcher) == 1
        case "proof":
            assert (await beat(db, watcher, dead=[who])).reaped == 1
        case _:
            assert await lose(db, who) == 1
    state, code, tries = expected
    rid = mine.fence.rid
    if state == "failed":
        status, _, error = await outcome_of(admin, rid) or ("", None, "")
        assert (status, json.loads(error or "")["code"]) == (state, code)
        assert await look(admin, rid, "tries", table="outcome") == tries
    else:
        assert await look(admin, rid, "state", "unknown", "tries", "fence") == (state, code, tries, None)
    assert await look(admin, rid, "ended", "begun", table="attempt") == ("lost" if begun else "given_back", begun)
    assert await keep(db, mine.fence) is STALE


async def test_undeclared_is_decided_at_admission_and_stored(db: Database, admin: asyncpg.Connection) -> None:
    """85.7 Inline: replay."""
    rid = await admit_one(db, "run", on_lost=None)
    assert await look(admin, rid, "on_lost", table="run") == "replay"
    assert await look(admin, rid, "on_lost") == "replay"


# 85.1, 85.2


async def test_ten_sweeps_by_two_reconcilers_charge_one_try(db: Database, admin: asyncpg.Connection) -> None:
    """85.1, B13 However often the same death is told."""
    mine = await running(db)
    who = await holder_of(admin, mine.fence)
    watchers = [await new_holder(db), await new_holder(db)]
    reaped = [(await beat(db, watchers[n % 2], dead=[who])).reaped for n in range(10)]
    assert reaped == [1] + [0] * 9
    assert await look(admin, mine.fence.rid, "tries", "losses", "state") == (1, 1, "queued")
    assert (await ledger_of(admin, mine.fence.rid)).count("attempt.lost") == 1


async def test_a_verdict_finds_nothing_to_write_when_its_attempt_is_over(
    db: Database, admin: asyncpg.Connection
) -> None:
    """85.2, B01 Finished, parked or claimed by another meanwhile: the dead holder's name is on nothing any more."""
    done, parked, moved = await running(db), await running(db), await running(db)
    dead = [await holder_of(admin, c.fence) for c in (done, parked, moved)]
    await finish(db, done.fence)
    await wait(db, parked.fence, arm("signal"))
    new = await villain_of(db, admin, moved)
    before = await tables(admin, without=("incarnation",))
    assert (await beat(db, await new_holder(db), dead=dead)).reaped == 0
    assert await tables(admin, without=("incarnation",)) == before
    assert await look(admin, moved.fence.rid, "fence") == new.fence.fence


async def test_a_sweep_never_claims(db: Database, admin: asyncpg.Connection) -> None:
    """85.2 It leaves what it found in the line."""
    mine = await running(db)
    watcher = await new_holder(db)
    await beat(db, watcher, dead=[await holder_of(admin, mine.fence)])
    assert await look(admin, mine.fence.rid, "state", "holder") == ("queued", None)


# 85.3, 40.10


async def test_an_expired_lease_puts_nobody_out(db: Database, admin: asyncpg.Connection, clock: Clock) -> None:
    """85.3, 40.10 While nobody observed it; and a late finish counts when nobody challenged it."""
    await clock.advance(0)
    mine, other = await running(db), await running(db)
    await clock.advance(10 * LEASE)
    watcher = await new_holder(db)
    assert (await beat(db, watcher)).reaped == 0
    assert (await finish(db, mine.fence)).how == "committed"
    assert await look(admin, other.fence.rid, "fence") == other.fence.fence


async def test_silence_is_a_full_lease_observed_by_one_incarnation(
    db: Database, admin: asyncpg.Connection, clock: Clock
) -> None:
    """85.3, B15 Counted from the later of its last word and the observer's own beginning; not a moment less."""
    await clock.advance(0)
    mine = await running(db)
    await clock.advance(25)
    watcher = await new_holder(db)
    assert await silence(db, clock, watcher, seconds=29.9) == 0
    assert await look(admin, mine.fence.rid, "fence") == mine.fence.fence
    assert await silence(db, clock, watcher, seconds=0.1) == 1
    assert await admin.fetchval("select ended from fencepost.incarnation order by started_at limit 1") == "silent"


async def test_time_in_which_the_observer_was_deaf_is_silence_of_nobody(
    db: Database, admin: asyncpg.Connection, clock: Clock
) -> None:
    """85.3 After an outage a fresh interval starts, however long everybody had been silent."""
    await clock.advance(0)
    mine = await running(db)
    watcher = await new_holder(db)
    for _ in range(5):
        await clock.advance(17)
        assert (await beat(db, watcher)).reaped == 0
    assert await silence(db, clock, watcher, seconds=29) == 0
    assert await silence(db, clock, watcher, seconds=1) == 1
    assert await look(admin, mine.fence.rid) == "queued"


async def test_who_is_heard_in_time_is_not_lost(db: Database, admin: asyncpg.Connection, clock: Clock) -> None:
    """85.3 Nor is whoever was heard once, a moment before its lease: the interval starts anew."""
    await clock.advance(0)
    mine = await running(db)
    holder, watcher = await holder_of(admin, mine.fence), await new_holder(db)
    for _ in range(4):
        assert await silence(db, clock, watcher, seconds=29) == 0
        await beat(db, holder, held=[mine.fence])
    assert await look(admin, mine.fence.rid, "fence") == mine.fence.fence


async def test_each_holders_own_lease_counts(db: Database, admin: asyncpg.Connection, clock: Clock) -> None:
    """85.3 Not the observer's."""
    await clock.advance(0)
    await lane_of(db)
    rids = [await admit_one(db) for _ in range(2)]
    short, long = await new_holder(db, lease=10, beat=3), await new_holder(db, lease=100, beat=3)
    assert [c.fence.rid for c in (*await claim_all(db, short), *await claim_all(db, long))] == rids
    assert await silence(db, clock, await new_holder(db), seconds=12) == 1
    assert [await look(admin, rid) for rid in rids] == ["queued", "running"]


async def test_a_buried_incarnation_is_told_so_by_every_door_of_its_own(
    db: Database, admin: asyncpg.Connection
) -> None:
    """85.3, 40.9 Judged dead, it beats and claims no more; a successor of the same name shields nothing of it."""
    mine = await running(db)
    who = await holder_of(admin, mine.fence)
    successor = await new_holder(db)
    await beat(db, successor, dead=[who])
    assert (await beat(db, who, held=[mine.fence])).buried
    assert (await attempts.claim(db, who, 10**6, lane=1, most=1, cursor="", alone=True, patience=30)).buried
    assert (await beat(db, uuid.uuid4())).buried
    assert await look(admin, mine.fence.rid, "fence") is None


async def test_silence_is_observed_on_the_real_clock(db: Database, admin: asyncpg.Connection) -> None:
    """85.3 Once without a virtual clock, with a lease of a fifth of a second."""
    rid = await admit_one(db)
    (mine,) = await claim_all(db, await new_holder(db, lease=0.2, beat=0.06))
    watcher = await new_holder(db, lease=3600, beat=1200)
    assert (await beat(db, watcher)).reaped == 0
    await admin.fetchval("select pg_sleep(0.25)")
    assert (await beat(db, watcher)).reaped == 1
    assert await look(admin, rid, "state", "number") == ("queued", mine.fence.number)


# 85.4, 85.6


async def test_a_beat_finishes_what_an_earlier_one_began(db: Database, admin: asyncpg.Connection) -> None:
    """85.4, B25, B39 An incarnation that was ended long ago and still holds; one whose record is gone; a close that was cut off."""
    made = [await running(db) for _ in range(3)]
    who = [await holder_of(admin, c.fence) for c in made]
    await admin.execute(
        "update fencepost.incarnation set ended_at = fencepost.now_() - interval '90 days', ended = 'silent' where id = $1",
        who[0],
    )
    await admin.execute(
        "update fencepost.incarnation set ended_at = fencepost.now_(), ended = 'closed' where id = $1", who[1]
    )
    await admin.execute("delete from fencepost.incarnation where id = $1", who[2])
    assert (await beat(db, await new_holder(db))).reaped == 3
    assert [await look(admin, c.fence.rid) for c in made] == ["queued"] * 3
    assert await lose(db, who[1]) == 0


async def many(db: Database, n: int, *, lease: float = LEASE) -> tuple[uuid.UUID, list[Claimed]]:
    holder = await new_holder(db, lease=lease)
    for _ in range(n):
        await admit_one(db)
    claimed = list(await claim_all(db, holder, most=n))
    assert len(claimed) == n
    return holder, claimed


async def test_rows_that_somebody_has_locked_hide_none_that_can_be_reaped(
    db: Database, dsn: str, admin: asyncpg.Connection
) -> None:
    """85.6 A hundred and one, of which a page is locked, the oldest first; the locked ones follow when they are free."""
    holder, claimed = await many(db, 101)
    rids = sorted(c.fence.rid for c in claimed)
    watcher = await new_holder(db)
    async with holding(dsn, *rids[:100]):
        assert (await beat(db, watcher, dead=[holder])).reaped == 1
        assert await look(admin, rids[100]) == "queued"
    assert (await beat(db, watcher)).reaped == 100


async def test_a_locked_deadline_hides_no_other(
    db: Database, dsn: str, admin: asyncpg.Connection, clock: Clock
) -> None:
    """85.6, 40.12 The sweep of deadlines pages on past a hundred and one that somebody has locked."""
    await clock.advance(0)
    _, claimed = await many(db, 102)
    last = claimed[-1].fence
    for one in claimed:
        await mark(db, one.fence, timeout_ms=1500 if one.fence == last else 1000, repeatable=True)
    await clock.advance(60)
    async with holding(dsn, *(c.fence.rid for c in claimed[:-1])):
        assert (await beat(db, await new_holder(db))).reaped == 1
    assert await look(admin, last.rid) == "queued"


async def test_a_locked_grace_hides_no_other(db: Database, dsn: str, admin: asyncpg.Connection, clock: Clock) -> None:
    """85.6, 80.4 So does the sweep of graces."""
    await clock.advance(0)
    _, claimed = await many(db, 102)
    for place, one in enumerate(claimed):
        await terminal.cancel(db, "default", one.id, reason="x", grace_ms=1000 + place // 101)
    await clock.advance(2)
    async with holding(dsn, *(c.fence.rid for c in claimed[:-1])):
        await beat(db, await new_holder(db))
    assert await look(admin, claimed[-1].fence.rid, "status", table="outcome") == "cancelled"


async def test_sweeps_are_bounded(db: Database, admin: asyncpg.Connection) -> None:
    """85.6 No beat loses more than a few hundred; the next goes on."""
    holder, _ = await many(db, 230)
    watcher = await new_holder(db)
    reaped = [(await beat(db, watcher, dead=[holder])).reaped for _ in range(4)]
    assert sum(reaped) == 230
    assert max(reaped) <= 200
    assert await admin.fetchval("select count(*) from fencepost.task where state = 'queued'") == 230


async def test_a_lost_child_of_an_ended_parent_is_reaped_like_any_other(
    db: Database, admin: asyncpg.Connection
) -> None:
    """85.4 By silence's sweep, by the deadline's, by the grace's."""
    dad, kid = await family(db)
    await finish(db, dad.fence)
    assert (await beat(db, await new_holder(db), dead=[await holder_of(admin, kid.fence)])).reaped == 1
    assert await look(admin, kid.fence.rid) == "queued"


async def test_a_child_lost_for_good_wakes_its_parent(db: Database, admin: asyncpg.Connection) -> None:
    """85.7, 60.10 In the transaction of the verdict."""
    dad = await running(db, "dad")
    kid = await claim_by(db, admin, (await child_of(db, dad.fence, "kid", on_lost="fail")).child)
    await attempts.begin(db, kid.fence)
    await wait(db, dad.fence)
    await beat(db, await new_holder(db), dead=[await holder_of(admin, kid.fence)])
    assert await look(admin, dad.fence.rid) == "queued"
