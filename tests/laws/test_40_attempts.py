"""Chapter 40: who may act for a run, and until when."""

from __future__ import annotations

import asyncio
import uuid
from datetime import UTC, datetime

import asyncpg
import pytest

from fencepost import admission, attempts, recovery, steps, suspension, terminal
from fencepost.attempts import Claim
from fencepost.db import Database
from fencepost.ledger import note_progress, read_run
from fencepost.testing import Clock
from fencepost.words import STALE, Fence
from tests.support import admit_one, claim_all, claim_one, lane_of, launch, look, new_holder, next_request, tables
from tests.support_runs import (
    arm,
    batch,
    beat,
    cancel,
    finish,
    holder_of,
    holding,
    keep,
    lose,
    mark,
    running,
    send,
    villain_of,
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


# 40.1, 40.2


@pytest.mark.parametrize("ending", ["completed", "failed", "cancelled", "ended"])
async def test_a_terminal_run_is_never_claimed(db: Database, admin: asyncpg.Connection, ending: str) -> None:
    """40.1 However it ended, no claim finds it, and its row is gone from every queue."""
    claimed = await running(db, "it")
    match ending:
        case "cancelled":
            await cancel(db, "it")
            await finish(db, claimed.fence)
        case "ended":
            await terminal.end(db, "default", "it", by="me", reason="")
        case _:
            await finish(db, claimed.fence, ending)  # type: ignore[arg-type]  # one of the two
    assert await claim_all(db, await new_holder(db), most=9) == ()
    claim = await attempts.claim_tree(
        db, await new_holder(db), next_request(), root=claimed.fence.rid, most=9, patience=30
    )
    assert claim == Claim()
    assert await look(admin, claimed.fence.rid) is None


async def test_each_run_of_a_claim_has_a_fence_of_its_own_and_none_comes_twice(db: Database) -> None:
    """40.2 The fences of a claim come out of one seed: neither two of them nor those of two claims are the same."""
    for _ in range(4):
        await admit_one(db)
    holder, seen = await new_holder(db), set[uuid.UUID]()
    for _ in range(3):
        claimed = await claim_all(db, holder, most=4)
        for one in claimed:
            assert await attempts.give_back(db, one.fence) == "given_back"
        seen |= {one.fence.fence for one in claimed}
    assert len(seen) == 12


@pytest.mark.parametrize("state", ["queued", "parked", "unknown"])
@pytest.mark.usefixtures("company")
async def test_without_a_claim_nothing_can_be_written(db: Database, admin: asyncpg.Connection, state: str) -> None:
    """40.1 No fence, not even null, is anybody's right while no attempt lives."""
    claimed = await running(db, "it")
    rid = claimed.fence.rid
    if state == "parked":
        await wait(db, claimed.fence, arm("signal"))
    elif state == "unknown":
        await finish(db, claimed.fence, "unknown")
    else:
        await attempts.give_back(db, claimed.fence)
    before = await tables(admin)
    for fence in (None, uuid.uuid4()):
        for door, item in {
            "begin_attempts": (),
            "mark_steps": ("s", 1, "", False, None, True),
            "keep_steps": ("step", "s", 1, "", True, True, "1"),
            "finish_attempts": ("completed", "1", None, None, None),
            "give_back_attempts": (),
        }.items():
            (row,) = await batch(db, door, (rid, fence, *item))
            assert row["answer"] == "stale", door
    assert await tables(admin) == before


@pytest.mark.parametrize(("runs", "orgs", "most"), [(10, 1, 1), (1500, 300, 3)])
async def test_of_many_racing_claimants_at_most_one_wins(
    db: Database, worker_dsn: str, runs: int, orgs: int, most: int
) -> None:
    """40.2 Six workers, a few runs at a time until nothing is left: each run is claimed once, under one fence."""
    lane = await lane_of(db)
    await admission.admit(db, [launch(lane=lane, org=f"org-{n % orgs}") for n in range(runs)])
    ways = [Database(worker_dsn, connections=1) for _ in range(6)]
    holders = [await new_holder(db) for _ in ways]

    async def take(way: Database, holder: uuid.UUID) -> list[attempts.Claimed]:
        found: list[attempts.Claimed] = []
        while got := await claim_all(way, holder, most=most):
            found += got
        return found

    taken = [c for found in await asyncio.gather(*map(take, ways, holders)) for c in found]
    assert len({c.fence.rid for c in taken}) == len(taken) == runs
    assert len({c.fence.fence for c in taken}) == runs
    assert {c.fence.number for c in taken} == {1}
    for way in ways:
        await way.close()


async def test_claimants_pass_by_a_row_that_another_is_taking(db: Database, dsn: str) -> None:
    """40.2 A row somebody has locked is not waited for, and not claimed twice."""
    first, second = await admit_one(db), await admit_one(db)
    async with holding(dsn, first), asyncio.timeout(10):
        assert [c.fence.rid for c in await claim_all(db, await new_holder(db), most=9)] == [second]
    assert [c.fence.rid for c in await claim_all(db, await new_holder(db), most=9)] == [first]


async def test_numbers_are_one_two_three_whatever_ended_the_legs(db: Database, admin: asyncpg.Connection) -> None:
    """40.2, B09 A give-back, a deferral, a park, a retry, a loss: each next claim has the next number and a fence never seen."""
    rid = await admit_one(db, "it")
    fences = []
    for number, how in enumerate(["give", "defer", "park", "retry", "lose", "end"], start=1):
        holder = await new_holder(db)
        claim = await attempts.claim_tree(db, holder, next_request(), root=rid, most=1, patience=30)
        fence = claim.claimed[0].fence
        assert fence.number == number, how
        fences.append(fence.fence)
        match how:
            case "give":
                await attempts.give_back(db, fence)
            case "defer":
                await attempts.defer(db, fence, reason="workflow_missing", dependency="w", delay_ms=0)
                await recovery.wake(db, "default", "it")
            case "park":
                await wait(db, fence, arm("signal"))
                await send(db, "it")
            case "retry":
                await finish(db, fence, "retry", delay_ms=0, most_tries=9)
            case "lose":
                await lose(db, holder)
            case _:
                await finish(db, fence)
    assert len(set(fences)) == 6
    history = await admin.fetch("select number, fence from fencepost.attempt where rid = $1 order by number", rid)
    assert [tuple(row) for row in history] == list(enumerate(fences, start=1))


# 40.3, 40.4


@pytest.mark.usefixtures("company")
async def test_a_dead_fence_changes_nothing_and_is_told_that_it_is_stale(
    db: Database, admin: asyncpg.Connection
) -> None:
    """40.3, B06, B07 The villain's row looks exactly as it did when it was the writer's own: same worker name, same state, begun or not."""
    old = await running(db, "it", on_lost="replay")
    await mark(db, old.fence, "done", repeatable=True)
    new = await villain_of(db, admin, old)
    made = await steps.open_map(
        db, new.fence, "m", 1, hash="", start=0, keys=["k"], inputs=["1"], repeatable=True, whole=True
    )
    assert isinstance(made, steps.OpenMap)
    before = await tables(admin)
    dead = old.fence
    assert await attempts.begin(db, dead) == STALE
    assert await attempts.give_back(db, dead) == STALE
    assert await attempts.defer(db, dead, reason="capacity", dependency="x", delay_ms=1) == STALE
    assert await mark(db, dead) == STALE
    assert await keep(db, dead) == STALE
    assert (
        await steps.open_map(db, dead, "n", 1, hash="", start=0, keys=[], inputs=[], repeatable=True, whole=True)
        == STALE
    )
    assert await steps.mark_row(db, dead, made.mid, 0) == STALE
    assert await steps.keep_row(db, dead, made.mid, 0, "kept", "1") == STALE
    assert await wait(db, dead, arm("signal")) == STALE
    assert await suspension.start_child(
        db, dead, "c", 1, hash="", waits=True, child_id="kid", child_name="w", input="1", on_lost=None
    ) == STALE  # fmt: skip
    for ending in ("completed", "failed", "retry", "unknown", "unfit"):
        assert await finish(db, dead, ending) == STALE, ending  # type: ignore[arg-type]  # all of them
    assert await note_progress(db, [(dead, "mine!")]) == 0
    assert await tables(admin) == before
    assert (await finish(db, new.fence)).how == "committed"


@pytest.mark.parametrize(
    "wrong", ["another run's living fence", "the right fence, one number on", "a fence nobody was given"]
)
async def test_a_wrong_fence_is_as_good_as_none(db: Database, admin: asyncpg.Connection, wrong: str) -> None:
    """40.3 The 128 bits are the authority: a living fence of another run opens nothing here."""
    mine, other = await running(db), await running(db)
    fence = {
        "another run's living fence": Fence(mine.fence.rid, mine.fence.number, other.fence.fence),
        "the right fence, one number on": Fence(other.fence.rid, 2, mine.fence.fence),
        "a fence nobody was given": Fence(mine.fence.rid, mine.fence.number, uuid.uuid4()),
    }[wrong]
    before = await tables(admin)
    assert await finish(db, fence) == STALE
    assert await keep(db, fence) == STALE
    assert await tables(admin) == before


async def test_what_a_dead_fence_may_still_do_is_deliver_evidence_and_observe(
    db: Database, admin: asyncpg.Connection
) -> None:
    """40.4 The evidence stands beside the record and changes nothing of it."""
    old = await running(db, "it")
    await mark(db, old.fence, "pay")
    new = await villain_of(db, admin, old)
    before = await tables(admin, without=("late",))
    assert await steps.deliver_late(db, old.fence, "pay", 1, ok=True, value="7") is True
    assert await steps.deliver_late(db, old.fence, "pay", 1, ok=True, value="7") is True, "asked again"
    assert await steps.deliver_late(db, new.fence, "pay", 1, ok=True, value="8") is False, "the mark is not its own"
    assert await tables(admin, without=("late",)) == before
    found = await read_run(db, "default", "it")
    assert found is not None
    assert [(late["name"], late["value"], late["accepted"]) for late in found["late_results"]] == [("pay", "7", False)]
    assert await finish(db, old.fence) == STALE


# 40.9, 40.10, 40.11


async def test_a_restarted_process_of_the_same_name_is_a_stranger(
    db: Database, admin: asyncpg.Connection, clock: Clock
) -> None:
    """40.9, B07, B25 Same name, same host, same pid: it does not renew, shield or release its predecessor's attempts, nor answer for them."""
    await clock.set(NOON)
    rid = await admit_one(db)
    first = await new_holder(db, name="w")
    fence = (await claim_one(db, first)).fence
    second = await new_holder(db, name="w")
    await clock.advance(20)
    said = await beat(db, second, held=[fence])
    assert [held.rid for held in said.lost] == [rid], "what it believes to hold is not its own"
    assert await admin.fetchval("select heard_at from fencepost.incarnation where id = $1", first) == NOON
    assert await lose(db, second) == 0
    assert await look(admin, rid, "holder", "fence") == (first, fence.fence)
    third = await new_holder(db, name="w")
    for _ in range(5):
        await clock.advance(8)
        await beat(db, third)
    assert await look(admin, rid, "state") == "queued", "its silence is judged as any other's"
    assert (await beat(db, first, held=[fence])).buried


async def test_a_late_but_unchallenged_finish_counts(db: Database, admin: asyncpg.Connection, clock: Clock) -> None:
    """40.10, B132 Ten leases late and nobody asked; and a holder that is silent for long, heard again, still holds."""
    await clock.set(NOON)
    claimed = await running(db)
    await clock.advance(300)
    said = await beat(db, await holder_of(admin, claimed.fence), held=[claimed.fence])
    assert (said.buried, said.lost) == (False, ())
    await clock.advance(300)
    assert await mark(db, claimed.fence) == "marked"
    assert (await finish(db, claimed.fence)).how == "committed"


async def test_a_stopping_worker_gives_back_what_it_never_dispatched_and_loses_the_rest_itself(
    db: Database, admin: asyncpg.Connection
) -> None:
    """40.11 The undispatched is claimed by the next worker at once, no try charged; what still ran at the end is charged."""
    rids = [await admit_one(db, on_lost="ask") for _ in range(3)]
    holder = await new_holder(db)
    claimed = {c.fence.rid: c.fence for c in await claim_all(db, holder, most=3)}
    await attempts.begin(db, claimed[rids[1]])
    assert await attempts.give_back(db, claimed[rids[0]]) == "given_back"
    assert (await claim_one(db)).fence.rid == rids[0]
    assert await lose(db, holder) == 2
    assert await look(admin, rids[0], "state", "tries") == ("running", 0)
    assert await look(admin, rids[1], "state", "unknown", "tries") == ("unknown", "RUNNER_LOST", 1)
    assert await look(admin, rids[2], "state", "tries") == ("queued", 0)
    claim = await ask(db, holder, next_request())
    assert claim.buried
    assert (await beat(db, holder)).buried
