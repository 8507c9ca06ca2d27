"""Claims that go on from where they were: what they take, what they leave, and what they do not walk over (20.9, 40.14)."""

from __future__ import annotations

import asyncio
import uuid
from collections.abc import Sequence
from datetime import UTC, datetime

import asyncpg
import pytest

from fencepost import App, Context, admission, attempts
from fencepost.attempts import Claim, Claimed
from fencepost.client import Client
from fencepost.db import Database
from fencepost.testing import at_point
from fencepost.worker import marks
from fencepost.worker.marks import Mark, Marks
from tests.reads import reads_of
from tests.roads.inside import working
from tests.support import admit_one, claim_all, lane_of, launch, new_holder, next_request
from tests.support_runs import batch, lose

NOON = datetime(2031, 5, 6, 12, tzinfo=UTC).timestamp()


async def go_on(
    db: Database, holder: uuid.UUID, places: Sequence[tuple[str, float, int]], most: int
) -> tuple[Claimed, ...]:
    claim = await attempts.claim(
        db, holder, next_request(), lane=await lane_of(db), most=most, cursor="", alone=False, patience=30, marks=places
    )
    return claim.claimed


def place(one: Claimed) -> tuple[str, float, int]:
    return (one.org, one.turn, one.fence.rid)


@pytest.mark.usefixtures("lawful")
async def test_a_claim_from_marks_takes_what_is_behind_them_and_organisations_share_alike(db: Database) -> None:
    """20.9 Of organisations it names, each behind its mark, in turns; of others nothing, nor of another lane."""
    holder = await new_holder(db)
    admitted = {org: [(await admit_one(db, org=org)) for _ in range(6)] for org in ("a", "b", "c")}
    front = await claim_all(db, holder, most=2)
    assert [one.org for one in front] == ["a", "b"]
    later = await go_on(db, holder, [place(one) for one in front], 4)
    assert [one.org for one in later] == ["a", "b", "a", "b"]
    assert [one.fence.rid for one in later if one.org == "a"] == admitted["a"][1:3]
    far = await go_on(db, holder, [("c", NOON + 9000 * 86400, 1)], 4)
    assert far == ()
    mark = (await claim_all(db, holder, most=1, cursor="b"))[0]
    await admit_one(db, org="c", release="another")
    assert {one.fence.rid for one in await go_on(db, holder, [place(mark)], 99)} == set(admitted["c"][1:])


@pytest.mark.usefixtures("lawful")
async def test_a_mark_names_its_place_to_the_microsecond(db: Database, admin: asyncpg.Connection) -> None:
    """20.9 A place crosses as a number of seconds: rounded up, it would pass over the run behind it; down, it would give its own again."""
    rids = [await admit_one(db) for _ in range(100)]
    for away, rid in enumerate(reversed(rids)):  # by turn the last is first
        await admin.execute(
            "update fencepost.task set turn_at = timestamptz '2187-06-05 04:03:02.123457+00' + $1 * interval '1 us' where rid = $2",
            away,
            rid,
        )
    holder = await new_holder(db)
    (one,) = await claim_all(db, holder)
    met = [one.fence.rid]
    while len(met) < 100:
        assert await attempts.give_back(db, one.fence) == "given_back"
        (one,) = await go_on(db, holder, [place(one)], 1)
        met.append(one.fence.rid)
    assert met == rids[::-1]


@pytest.mark.usefixtures("lawful")
async def test_what_came_in_before_a_mark_is_found_by_a_look_from_the_front(db: Database) -> None:
    """20.9 A higher priority stands before the mark: a claim from the mark does not see it, the next look does."""
    holder = await new_holder(db)
    for _ in range(3):
        await admit_one(db)
    (first,) = await claim_all(db, holder)
    urgent = await admit_one(db, priority=100)
    (second,) = await go_on(db, holder, [place(first)], 1)
    assert second.fence.rid != urgent
    (third,) = await claim_all(db, holder)
    assert third.fence.rid == urgent


@pytest.mark.usefixtures("lawful")
async def test_a_claim_says_how_long_it_looked_from_the_front_and_nothing_where_it_did_not(db: Database) -> None:
    """20.9, 40.14, 40.15 Going on from marks, asked again, or given the suspect that waited, nobody looked."""
    holder, lane = await new_holder(db), await lane_of(db)
    poison = await admit_one(db)
    lost = await new_holder(db)
    assert [one.fence.rid for one in await claim_all(db, lost)] == [poison]
    await lose(db, lost)
    await admit_one(db)

    async def ask(request: int, *, alone: bool = False, places: Sequence[tuple[str, float, int]] = ()) -> Claim:
        return await attempts.claim(
            db, holder, request, lane=lane, most=1, cursor="", alone=alone, patience=30, marks=places
        )

    request = next_request()
    looked = await ask(request)
    assert looked.look_seconds is not None
    assert 0 < looked.look_seconds < 5
    again = await ask(request)
    assert (again.claimed, again.look_seconds) == (looked.claimed, None)
    assert (await ask(next_request(), places=[place(looked.claimed[0])])).look_seconds is None
    suspect = await ask(next_request(), alone=True)
    assert ([one.fence.rid for one in suspect.claimed], suspect.look_seconds) == ([poison], None)
    nothing = await ask(next_request())
    assert nothing.claimed == ()
    assert nothing.look_seconds is not None


async def test_a_claim_from_marks_walks_over_no_work_that_is_done(
    db: Database, admin: asyncpg.Connection, dsn: str
) -> None:
    """20.9 Behind a snapshot that nobody lets go, three thousand done runs stand before the next one in the index (B98)."""
    lane, holder = await lane_of(db), await new_holder(db)
    last: Claimed | None = None
    other = await asyncpg.connect(dsn)
    try:
        async with other.transaction(isolation="repeatable_read"):
            await other.fetchval("select count(*) from fencepost.run")
            await admission.admit(db, [launch(lane=lane) for _ in range(3000)])
            while claimed := await claim_all(db, holder, most=64):
                last = claimed[-1]
                ended = [(one.fence.rid, one.fence.fence, "completed", "1", None, None, None) for one in claimed]
                await batch(db, "finish_attempts", *ended)
            assert last is not None
            await admission.admit(db, [launch(lane=lane) for _ in range(2)])
            asked = (holder, next_request(), lane, 1, "", True)
            marked, _ = await reads_of(admin, "claim_attempts", *asked, *([one] for one in place(last)), by="task_line")
            asked = (holder, next_request(), lane, 1, "", True)
            whole, _ = await reads_of(admin, "claim_attempts", *asked, [], [], [], by="task_line")
    finally:
        await other.close()
    assert whole > 2000  # or this measures nothing
    assert marked < 50


def claimed(org: str, minute: int, rid: int) -> Claimed:
    return Claimed(
        fence=attempts.Fence(rid, 1, uuid.uuid4()), org=org, id=f"run-{rid}", name="work", input="null", key_root=uuid.uuid4(),
        begun=True, tries=0, losses=0, boundaries=None, more=False, parent=None, turn=NOON + 60 * minute,
        opaque=False,
    )  # fmt: skip


def test_marks_are_used_only_once_a_look_has_become_slow() -> None:
    """20.9 The strict order is left only where it costs several times what it did; and looked at again soon."""
    known = Marks()
    known.looked(0.0, 0.003, [claimed("a", 1, 1)])
    assert known.ask(0.0, 64) == []
    known.looked(1.0, 0.05, [claimed("a", 2, 2), claimed("b", 1, 3), claimed("a", 3, 4)])
    asked = known.ask(1.1, 64)
    assert asked == [Mark("b", NOON + 60, 3), Mark("a", NOON + 180, 4)]
    assert known.ask(1.1, 1) == asked[:1]
    assert known.ask(1.0 + max(marks.LOOK_SECONDS, marks.LOOK_SHARE * 0.05), 64) == []
    known.went_on(asked, 1, [claimed("b", 5, 9)])
    assert [mark.org for mark in known.ask(1.1, 64)] == ["b"]  # `a` gave nothing
    known.went_on(known.ask(1.1, 64), 2, [claimed("b", 6, 10)])
    assert known.ask(1.1, 64) == []  # less than was asked for: there may be more before the marks
    spread = Marks()
    spread.looked(0.0, 0.0002, [claimed("a", 1, 1)])
    spread.looked(1.0, 0.004, [claimed(f"org-{n}", 2, n) for n in range(100)])
    assert spread.ask(1.0, 64) == []  # to find a hundred lines takes its time, whatever lies dead
    for seconds, thick in ((0.0009, False), (0.004, True)):
        spread.looked(2.0, seconds, [claimed("a", 3, 2)])
        assert bool(spread.ask(2.0, 64)) == thick
    steady = Marks()
    for at, seconds in enumerate((0.003, 0.0055)):
        steady.looked(at, seconds, [claimed("a", at, at)])
        assert steady.ask(at, 64) == []
    known.looked(9.0, 0.004, [])
    assert known.ask(9.0, 64) == []


def test_a_look_that_found_nothing_is_no_measure_of_one_that_finds_much() -> None:
    """20.9 An idle worker's looks are quick; the first of a burst over many organisations is no reason to leave the order."""
    known = Marks()
    known.looked(0.0, 0.02, [claimed("a", 1, 1)])
    known.looked(1.0, 0.0002, [])
    known.looked(2.0, 0.03, [claimed("a", 2, 2)])
    assert known.ask(2.0, 64) == []
    known.looked(3.0, 0.2, [claimed("a", 3, 3)])
    assert len(known.ask(3.0, 64)) == 1


app = App("marks")


@app.workflow()
async def seen(ctx: Context, n: int) -> int:
    return n


async def test_a_worker_that_goes_on_from_marks_leaves_nothing_behind(
    db: Database, dsn: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """20.9 Every look counts as slow: what came in before the marks, and other organisations, are done all the same."""
    monkeypatch.setattr(marks, "SLOWER", 0)
    monkeypatch.setattr(marks, "SLOW_SECONDS", -1.0)
    client = Client(db)
    went_on = 0
    asks = Marks.ask

    def counted(self: Marks, now: float, most: int) -> list[Mark]:
        nonlocal went_on
        found = asks(self, now, most)
        went_on += bool(found)
        return found

    monkeypatch.setattr(Marks, "ask", counted)
    handles = [await client.start(seen, n, org=f"org-{n % 3}", id=f"run-{n}") for n in range(60)]
    async with working(app, dsn, concurrency=4):
        handles += [await client.start(seen, n, org="late", id=f"late-{n}", priority=50) for n in range(10)]
        async with asyncio.timeout(60):
            results = [await handle.result() for handle in handles]
    assert results == [*range(60), *range(10)]
    assert went_on > 5


async def test_only_the_databases_own_look_makes_a_worker_leave_the_order(
    db: Database, dsn: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """20.9 A claim whose answer is long on its way, or waits for a busy worker, looked no longer than another."""
    seen_seconds: list[float] = []
    looked = Marks.looked

    def heard(self: Marks, now: float, seconds: float, claimed: Sequence[Claimed]) -> None:
        seen_seconds.append(seconds)
        looked(self, now, seconds, claimed)

    async def dawdle(_: object, __: int) -> None:
        await asyncio.sleep(1)  # waits: this is the slowness

    monkeypatch.setattr(Marks, "looked", heard)
    client = Client(db)
    handles = [await client.start(seen, n) for n in range(3)]
    with at_point("statement.executed", dawdle, when=lambda facts: facts["door"] == "claim_attempts"):
        async with working(app, dsn, concurrency=1):
            assert [await handle.result() for handle in handles] == [0, 1, 2]
    assert len(seen_seconds) >= 3
    assert max(seen_seconds) < 1
