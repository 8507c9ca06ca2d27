"""Chapters 70, 85, 86: opaque work whose worker is gone. Silence loses none of it; proof, a ceiling or an operator does, once."""

from __future__ import annotations

import asyncio
import uuid
from datetime import UTC, datetime

import asyncpg
import pytest

from fencepost import attempts, plans, terminal
from fencepost.errors import BrokenLaw
from fencepost.terminal import Ended
from fencepost.testing import Clock
from fencepost.words import STALE, Fence
from tests.plan_table import Table, maybe, result, retry, step
from tests.support import look, new_holder, next_request
from tests.support_runs import lose

pytestmark = pytest.mark.usefixtures("lawful")

NOON = datetime(2031, 5, 6, 12, tzinfo=UTC)
HOUR = 3600
SILENT = ("incarnation", "sleeper")  # what a beat may write although nothing happened


async def gone_worker(table: Table, name: str, **facts: object) -> tuple[uuid.UUID, plans.Fence]:
    """A try that has begun in the hands of a worker that says nothing any more."""
    worker = await new_holder(table.db, pid=41, **facts)
    claimed = await table.one(name, holder=worker)
    await table.begin(claimed)
    return worker, claimed.fence


# ── silence ──────────────────────────────────────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize("on_lost", ["fail", "replay", "ask"])
async def test_silence_of_any_length_loses_nothing_that_has_begun(table: Table, clock: Clock, on_lost: str) -> None:
    """85.7, 70.10 A lease, an hour, five hours of silence, a proven death of the worker, its own last word: the fence stays."""
    await clock.set(NOON)
    await table.admit("p", step("a", on_lost=on_lost), step("b", "a"))
    worker, fence = await gone_worker(table, "a", boot_id="another")
    story = await table.story("p/a/1")
    for seconds in (31, 31, HOUR, 2 * HOUR, 2 * HOUR):
        await clock.advance(seconds)
        me = await new_holder(table.db)
        for _ in range(2):
            await clock.advance(31)
            await table.beat(me)
    watcher = await new_holder(table.db, boot_id="another")
    await table.beat(watcher, dead=[worker])
    await lose(table.db, worker)
    assert await look(table.admin, fence.rid, "state", "fence", "holder", "losses", "tries") == (
        "running", fence.fence, worker, 0, 0,
    )  # fmt: skip
    assert await table.story("p/a/1") == story
    assert await table.states("p") == {"a": "running", "b": "blocked"}
    assert await terminal.finish(table.db, fence, "completed", result({})) == Ended("committed", "completed")


async def test_what_had_not_begun_is_given_to_another(table: Table) -> None:
    """70.10 Claimed, its process perhaps waiting for the word, and then silence: ready again, and no try is charged."""
    gone = await new_holder(table.db)
    await table.admit("p", step("a"))
    first = await table.one("a", holder=gone)
    await lose(table.db, gone)
    second = await table.one("a")
    assert (second.id, second.fence.number, second.tries) == ("p/a/1", 2, 0)
    assert await table.begin(first) is STALE
    assert (await table.steps("p"))["a"]["attempts"] == 1


async def test_what_a_worker_does_not_hold_and_has_begun_is_not_given_back(table: Table) -> None:
    """70.10 Its leg broke, or the adoption's answer was lost: the process may run. It is named to its own worker, which adopts it."""
    await table.admit("p", step("a"), step("b"))
    claimed = await table.claim()
    await table.begin(claimed["a"])
    request = await look(table.admin, claimed["a"].fence.rid, "request")
    answer = await table.beat(answered=request)
    assert answer.orphans == (claimed["a"].fence.rid,)
    assert await look(table.admin, claimed["a"].fence.rid, "state", "fence") == ("running", claimed["a"].fence.fence)
    assert await look(table.admin, claimed["b"].fence.rid, "state") == "queued", "it had not begun: 40.14"
    (again,) = await table.adopt(*answer.orphans)
    assert (again.fence, again.begun) == (claimed["a"].fence, True)
    assert (await table.beat(answered=request, held=[again.fence])).orphans == ()


# ── adoption ─────────────────────────────────────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize(
    ("facts", "listed"),
    [
        ({}, True),
        ({"boot_id": "later"}, False),
        ({"pid_namespace": "1"}, False),
        ({"boot_id": None}, False),
        ({"pid_namespace": None}, False),
        ({"boot_id": "later", "pid_namespace": "1"}, False),
    ],
)
async def test_orphans_are_told_to_workers_of_their_boot_and_namespace_only(
    table: Table, facts: dict[str, str | None], listed: bool
) -> None:
    """85.3 Whoever cannot look at the process is not told of it, and cannot adopt it."""
    await table.admit("p", step("a"))
    claimed = await table.orphan("a")
    other = await new_holder(table.db, **facts)
    assert (await table.beat(other)).orphans == ((claimed.fence.rid,) if listed else ())
    assert [c.fence for c in await table.adopt(claimed.fence.rid, holder=other)] == ([claimed.fence] if listed else [])


async def test_a_process_whose_place_was_not_recorded_is_nobodys_to_adopt(table: Table) -> None:
    """85.3 A fact that is missing is equal to no other missing fact."""
    await table.admit("p", step("a"))
    claimed = await table.orphan("a", boot_id=None, pid_namespace=None)
    other = await new_holder(table.db, boot_id=None, pid_namespace=None)
    assert (await table.beat(other)).orphans == ()
    assert await table.adopt(claimed.fence.rid, holder=other) == ()


async def test_an_attempt_that_is_adopted_keeps_its_number_and_its_fence(table: Table) -> None:
    """70.10 Another holder, the same attempt: no new claim, no try, one event; asked again with the same request it is the same."""
    rid = await table.admit("p", step("a"), step("b", "a"))
    claimed = await table.orphan("a")
    request = next_request()
    for _ in range(2):
        claim = await attempts.claim_orphans(table.db, table.me, request, [claimed.fence.rid], root=rid, patience=30)
        (adopted,) = claim.claimed
        assert (adopted.fence, adopted.begun, adopted.opaque, adopted.id) == (claimed.fence, True, True, "p/a/1")
    assert await look(table.admin, claimed.fence.rid, "holder", "state", "tries") == (table.me, "running", 0)
    assert await table.story("p/a/1", "attempt.claimed", "attempt.adopted") == [
        ("attempt.claimed",),
        ("attempt.adopted",),
    ]
    assert (await table.beat()).orphans == ()
    assert await table.win(adopted, o="1") == Ended("committed", "completed")
    await table.through("b")


async def test_only_what_is_asked_for_and_only_orphans_are_adopted(table: Table) -> None:
    """70.10 Not what a living worker holds, not what waits, has not begun, has ended or is another plan's; and nobody twice."""
    await table.admit("q", step("z"))
    rid = await table.admit("p", step("a"), step("b"), step("c"), step("d"), most=9)
    other_plan = await table.orphan("z")
    orphan = await table.orphan("a")
    held, asleep = await table.one("b"), await table.one("c")
    await table.begin(held)
    rids = [c.fence.rid for c in (other_plan, orphan, held, asleep)] + [rid]
    second = await new_holder(table.db)
    assert [c.fence for c in await table.adopt(*rids, holder=second, root=rid)] == [orphan.fence]
    third = await new_holder(table.db)
    assert await table.adopt(*rids, holder=third, root=rid) == ()
    assert await table.adopt(holder=third) == ()
    assert [c.fence for c in await table.adopt(*rids, holder=third)] == [other_plan.fence]


async def test_of_two_who_adopt_at_once_one_does(table: Table) -> None:
    """85.1 The other gets nothing."""
    await table.admit("p", *(step(f"s{n}") for n in range(4)), most=9)
    gone = await new_holder(table.db)
    claimed = await table.claim(holder=gone)
    for c in claimed.values():
        await table.begin(c)
    await lose(table.db, gone)
    holders = [await new_holder(table.db) for _ in range(4)]
    rids = [c.fence.rid for c in claimed.values()]
    got = await asyncio.gather(*(table.adopt(*rids, holder=h) for h in holders))
    assert sorted(c.fence.rid for found in got for c in found) == sorted(rids)


async def test_a_buried_worker_adopts_nothing(table: Table) -> None:
    """40.9 It is told so."""
    await table.admit("p", step("a"))
    claimed = await table.orphan("a")
    await lose(table.db, table.me)
    claim = await attempts.claim_orphans(
        table.db, table.me, next_request(), [claimed.fence.rid], root=None, patience=30
    )
    assert (claim.buried, claim.claimed) == (True, ())


async def test_the_old_holders_late_word_and_the_new_ones_are_one_word(table: Table, admin: asyncpg.Connection) -> None:
    """70.10, 80.2 Both settle the same process under the same fence: whoever is second gets the answer of the first."""
    await table.admit("p", step("a"), step("b"))
    first = await table.orphan("a")
    (adopted,) = await table.adopt(first.fence.rid)
    assert await table.win(first, o="1") == Ended("committed", "completed")
    assert await table.win(adopted, o="1") == Ended("committed", "completed")
    assert await plans.lose(table.db, adopted.fence, begun=True) == "stale"
    with pytest.raises(BrokenLaw, match="LW801"):
        await table.win(adopted, o="2")
    assert await admin.fetchval("select count(*) from fencepost.result") == 1


async def test_an_adopted_attempt_is_an_orphan_again_when_its_adopter_goes(table: Table) -> None:
    """85.4 A second fault, and a third: each time the next worker finds it, with the same fence."""
    await table.admit("p", step("a"))
    claimed = await table.orphan("a")
    for _ in range(3):
        worker = await new_holder(table.db)
        assert (await table.beat(worker)).orphans == (claimed.fence.rid,)
        (adopted,) = await table.adopt(claimed.fence.rid, holder=worker)
        assert adopted.fence == claimed.fence
        await lose(table.db, worker)
    await table.win(claimed)
    assert await table.status("p") == "completed"


# ── proof ────────────────────────────────────────────────────────────────────────────────────────────────────────────


async def test_a_process_that_never_got_the_word_is_tried_again_free_of_charge(table: Table) -> None:
    """70.10 Dead and not begun: ready again under its next number, no try and no loss; asked again it is the same answer (00.3)."""
    await table.admit("p", step("a"), step("b", "a"))
    claimed = await table.orphan("a")
    (adopted,) = await table.adopt(claimed.fence.rid)
    for _ in range(3):
        assert await plans.lose(table.db, adopted.fence, begun=False) == "given_back"
    again = await table.one("a")
    assert (again.id, again.fence.number, again.tries, again.losses) == ("p/a/1", 2, 0, 0)
    assert await plans.lose(table.db, adopted.fence, begun=False) == "given_back"
    assert await plans.lose(table.db, Fence(adopted.fence.rid, 1, uuid.uuid4()), begun=True) == "stale"
    assert await look(table.admin, again.fence.rid, "fence") == again.fence.fence


@pytest.mark.parametrize(
    ("on_lost", "states", "status"),
    [
        ("fail", {"a": "failed", "b": "skipped", "c": "running"}, "running"),
        ("replay", {"a": "running", "b": "blocked", "c": "blocked"}, "running"),
        ("ask", {"a": "unknown", "b": "blocked", "c": "blocked"}, "unknown"),
    ],
)
async def test_what_a_loss_means_was_declared(table: Table, on_lost: str, states: dict[str, str], status: str) -> None:
    """70.10, 85.7 Dead and begun: the outcome is lost, however many tries are left; ten words of it are one (85.1)."""
    everything = retry(9, on=["failure", "timeout", "launch_error", "invalid_output"])
    await table.admit("p", step("a", on_lost=on_lost, retry=everything), step("b", "a"), step("c", maybe("a")))
    claimed = await table.orphan("a")
    (adopted,) = await table.adopt(claimed.fence.rid)
    words = await asyncio.gather(*(plans.lose(table.db, adopted.fence, begun=True) for _ in range(10)))
    assert set(words) == {"lost"}
    assert (await table.states("p"), await table.status("p")) == (states, status)
    seen = (await table.steps("p"))["a"]
    assert (seen["attempts"], seen["child"]) == (1, "p/a/1")
    assert seen["outcome"] == ("lost" if on_lost == "fail" else None)
    if on_lost == "fail":
        assert seen["reason"] == "attempt 1 was lost (process_gone)"
    if on_lost == "replay":
        again = await table.one("a")
        assert (again.fence.number, again.losses, again.tries) == (2, 1, 1)
        await table.begin(again)
        await table.win(again)
    assert await table.win(adopted) != Ended("committed", "completed")


async def test_a_worker_that_lives_may_bring_the_proof_itself(table: Table) -> None:
    """70.10 Its own process is gone without a word: nobody needs to adopt it for that."""
    await table.admit("p", step("a"))
    claimed = await table.one("a")
    await table.begin(claimed)
    assert await plans.lose(table.db, claimed.fence, begun=True) == "lost"
    assert await table.status("p") == "failed"


async def test_after_five_losses_somebody_has_to_look(table: Table) -> None:
    """40.15, 70.12 A step that is declared repeatable and kills five workers is unknown, and so is its plan."""
    await table.admit("p", step("a", on_lost="replay"), step("b"))
    for n in range(1, 6):
        claimed = (await table.claim())["a"]
        assert claimed.fence.number == n
        await table.begin(claimed)
        assert await plans.lose(table.db, claimed.fence, begun=True) == "lost"
        if n == 1:
            assert await table.states("p") == {"a": "running", "b": "running"}
    assert await table.status("p") == "running", "b moves"
    b = await table.admin.fetchrow("select rid, number, fence from fencepost.task where state = 'running'")
    await terminal.finish(table.db, Fence(b["rid"], b["number"], b["fence"]), "completed", result({}))
    assert (await table.status("p"), await table.states("p")) == ("unknown", {"a": "unknown", "b": "succeeded"})
    assert await look(table.admin, claimed.fence.rid, "unknown") == "LOST_TOO_OFTEN"
