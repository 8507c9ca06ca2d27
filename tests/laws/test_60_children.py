"""Chapter 60.10: a child's end wakes its parent in the transaction that ends the child."""

from __future__ import annotations

import json

import asyncpg
import pytest

from fencepost import recovery, terminal
from fencepost.attempts import Claimed
from fencepost.db import Database
from fencepost.suspension import Armed, ChildRefused, Here, Parked, Started
from fencepost.words import CANCELLING, STALE
from tests.support import admit_one, look, new_holder
from tests.support_runs import (
    ERROR,
    arm,
    batch,
    boundary,
    cancel,
    child_of,
    claim_by,
    drop,
    family,
    finish,
    history,
    holder_of,
    keep,
    ledger_of,
    lose,
    outcome_of,
    running,
    send,
    villain_of,
    wait,
)  # fmt: skip

pytestmark = pytest.mark.usefixtures("lawful")


def told(claimed: Claimed) -> list[dict[str, object]]:
    """What the claim's history says of children."""
    return [json.loads(r[8]) for r in history(claimed) if r[0] == "child" and r[3] == "arrived"]


async def test_a_childs_end_wakes_the_parent_that_waits_for_it(db: Database, admin: asyncpg.Connection) -> None:
    """60.10 With its status, output and error; the wait is resolved by the time the child's end is seen."""
    dad, kid = await family(db)
    assert await wait(db, dad.fence) == Parked()
    await finish(db, kid.fence, "completed", '{"n":  1}')
    assert await look(admin, dad.fence.rid) == "queued"
    assert told(await claim_by(db, admin, dad.fence.rid)) == [
        {"status": "completed", "has_output": True, "output": {"n": 1}, "error": None}
    ]


@pytest.mark.parametrize(
    ("end", "status"),
    [
        ("failed", "failed"),
        ("cancelled", "cancelled"),
        ("operator", "failed"),
        ("lost", "failed"),
        ("no output", "completed"),
    ],
)
async def test_every_end_of_a_child_wakes_its_parent(
    db: Database, admin: asyncpg.Connection, end: str, status: str
) -> None:
    """60.10 Whoever brings it about; no output is told apart from null."""
    dad = await running(db, "dad")
    started = await child_of(db, dad.fence, "kid", on_lost="fail")
    kid = await claim_by(db, admin, started.child)
    await db.call("begin_attempts", [kid.fence.rid], [kid.fence.fence])
    assert await wait(db, dad.fence) == Parked()
    match end:
        case "failed":
            await finish(db, kid.fence, "failed")
        case "cancelled":
            await cancel(db, "kid")
            await finish(db, kid.fence)
        case "operator":
            await terminal.end(db, "default", "kid", by="ann", reason="no more")
        case "lost":
            await lose(db, await holder_of(admin, kid.fence))
        case _:
            await terminal.finish(db, kid.fence, "completed", None)
    new = await claim_by(db, admin, dad.fence.rid)
    (said,) = told(new)
    assert said["status"] == status
    assert (said["has_output"], said["output"]) == (False, None)
    assert (said["error"] is None) == (status == "completed")


async def test_a_child_that_ends_before_its_parent_parks_is_not_missed(db: Database, admin: asyncpg.Connection) -> None:
    """60.10 The parent's look finds it; nobody gives a running leg a result behind its back (50.4)."""
    dad, kid = await family(db)
    seq = await look(admin, dad.fence.rid, "seq")
    await finish(db, kid.fence)
    assert await look(admin, dad.fence.rid, "state", "seq") == ("running", seq)
    here = await wait(db, dad.fence)
    assert isinstance(here, Here)
    assert [(r.kind, r.name, r.state) for r in here.resolved] == [("child", "kid", "arrived")]


async def test_a_child_that_ended_before_it_is_waited_for_again_is_found(
    db: Database, admin: asyncpg.Connection
) -> None:
    """60.10 A parent lost between the child's start and its own look."""
    dad, kid = await family(db)
    await lose(db, await holder_of(admin, dad.fence))
    await finish(db, kid.fence)
    new = await claim_by(db, admin, dad.fence.rid)
    started = await child_of(db, new.fence, "dad-1")
    assert started == Started("replayed", kid.fence.rid, None)
    assert isinstance(await wait(db, new.fence), Here)


async def test_starting_a_child_twice_starts_one(db: Database, admin: asyncpg.Connection) -> None:
    """60.10, 00.3 Asked again, and by the next attempt; waited for or not."""
    dad = await running(db, "dad")
    first, free = await child_of(db, dad.fence, "a"), await child_of(db, dad.fence, "b", name="free", waits=False)
    assert (first.how, first.seq, free.how) == ("started", None, "started")
    assert await child_of(db, dad.fence, "a") == Started("replayed", first.child, None)
    assert await child_of(db, dad.fence, "b", name="free", waits=False) == Started("replayed", free.child, free.seq)
    new = await villain_of(db, admin, dad)
    assert await child_of(db, new.fence, "a") == Started("replayed", first.child, None)
    assert await admin.fetchval("select count(*) from fencepost.run where parent = $1", dad.fence.rid) == 2
    assert await boundary(admin, dad.fence.rid, "free", "state", "value", kind="child") == ("kept", '"b"')


async def test_a_child_of_a_dead_fence_is_never_admitted(db: Database, admin: asyncpg.Connection) -> None:
    """60.10, 40.3 Nor one of a cancelling parent (80.4)."""
    dad = await running(db, "dad")
    new = await villain_of(db, admin, dad)
    assert await child_of(db, dad.fence, "ghost") is STALE
    await cancel(db, "dad")
    assert await child_of(db, new.fence, "ghost") is CANCELLING
    assert await admin.fetchval("select count(*) from fencepost.run") == 1


async def test_an_id_that_another_launch_has_is_a_conflict(db: Database, admin: asyncpg.Connection) -> None:
    """60.10, 30.3 Somebody else's run, another parent's child, the same child with another input; and unusable ids are refused."""
    dad = await running(db, "dad")
    await admit_one(db, "taken")
    assert await child_of(db, dad.fence, "taken") == ChildRefused("conflict")
    await child_of(db, dad.fence, "kid", input='{"a": 1}')
    assert await child_of(db, dad.fence, "kid", ordinal=2, input='{"a":1}') == Started(
        "started", await rid_of(admin, "kid"), None
    )
    assert await child_of(db, dad.fence, "kid", ordinal=3, input='{"a":2}') == ChildRefused("conflict")
    assert await child_of(db, (await running(db, "mum")).fence, "kid", input='{"a":1}') == ChildRefused("conflict")
    assert await child_of(db, dad.fence, " ", ordinal=4) == ChildRefused("refused")
    assert await boundary(admin, dad.fence.rid, "kid", kind="child", ordinal=3) is None


async def rid_of(admin: asyncpg.Connection, run: str) -> int:
    return await admin.fetchval("select rid from fencepost.run where id = $1", run)


async def test_a_child_rides_its_parents_lane_and_release(db: Database, admin: asyncpg.Connection) -> None:
    """60.10, 10.1 And organisation; it is queued in the transaction that arms the wait."""
    dad = await running(db, "dad", release="r7", org="o")
    started = await child_of(db, dad.fence, "kid")
    mine, kids = [
        await look(admin, rid, "org", "lane", "release", table="run") for rid in (dad.fence.rid, started.child)
    ]
    assert mine == kids
    assert await look(admin, started.child, "state", "lane", "parent") == ("queued", mine[1], dad.fence.rid)


async def test_only_the_parent_that_waits_is_woken(db: Database, admin: asyncpg.Connection) -> None:
    """60.10, 60.4 A child nobody waits for, and a wait that lost its race, wake nobody."""
    dad, kid = await family(db, waits=False)
    await wait(db, dad.fence, arm("signal"))
    mum, other = await family(db, id="mum")
    await wait(db, mum.fence, drop("child", "kid"), arm("signal"))
    for claimed in (kid, other):
        await finish(db, claimed.fence)
    assert [await look(admin, c.fence.rid) for c in (dad, mum)] == ["parked", "parked"]


async def test_a_parent_of_two_is_woken_by_the_first_and_loses_neither(db: Database, admin: asyncpg.Connection) -> None:
    """60.10, 60.5, B47 Ended together in one call, both have arrived."""
    dad = await running(db, "dad")
    kids = [await claim_by(db, admin, (await child_of(db, dad.fence, f"kid-{n}", ordinal=n)).child) for n in (1, 2, 3)]
    await wait(db, dad.fence, park=True)
    answers = await batch(
        db,
        "finish_attempts",
        *((k.fence.rid, k.fence.fence, "completed", str(n), None, None, None) for n, k in enumerate(kids[:2])),
    )
    assert [r["answer"] for r in answers] == ["committed", "committed"]
    new = await claim_by(db, admin, dad.fence.rid)
    assert sorted(str(said["output"]) for said in told(new)) == ["0", "1"]
    assert await wait(db, new.fence, known=max(r[4] for r in history(new)), park=False) == Armed(None)
    await finish(db, kids[2].fence)
    assert isinstance(await wait(db, new.fence, known=max(r[4] for r in history(new))), Here)


async def test_a_childs_end_wakes_up_the_tree_only_as_far_as_somebody_waits(
    db: Database, admin: asyncpg.Connection
) -> None:
    """60.10 Three generations."""
    grandad, dad, kid = await family(db, depth=2)
    for claimed in (grandad, dad):
        await wait(db, claimed.fence)
    await finish(db, kid.fence)
    assert [await look(admin, c.fence.rid) for c in (grandad, dad)] == ["parked", "queued"]
    await finish(db, (await claim_by(db, admin, dad.fence.rid)).fence, "failed")
    assert await look(admin, grandad.fence.rid) == "queued"
    assert (await ledger_of(admin, grandad.fence.rid))[-2:] == ["wait.arrived", "run.woken"]


async def test_a_child_outlives_a_parent_that_ended_and_wakes_nobody(db: Database, admin: asyncpg.Connection) -> None:
    """60.10, 80.6 The parent's wait ended with it."""
    dad, kid = await family(db)
    await finish(db, dad.fence, "failed")
    assert await boundary(admin, dad.fence.rid, "kid", kind="child") == "cancelled"
    assert (await finish(db, kid.fence)).how == "committed"
    assert (await outcome_of(admin, dad.fence.rid)) == ("failed", None, ERROR)


async def test_a_childs_end_reaches_a_parent_that_waits_in_the_line(db: Database, admin: asyncpg.Connection) -> None:
    """60.10 Woken by a signal and not yet claimed: the wait is still armed, and its next look finds the child."""
    dad, kid = await family(db)
    await wait(db, dad.fence, arm("signal"))
    await send(db, "dad")
    assert await look(admin, dad.fence.rid) == "queued"
    await finish(db, kid.fence)
    new = await claim_by(db, admin, dad.fence.rid)
    here = await wait(db, new.fence, known=max(r[4] for r in history(new) if r[3] == "arrived"))
    assert isinstance(here, Here)
    assert [r.kind for r in here.resolved] == ["child"]
    assert await new_holder(db)


async def test_a_childs_end_does_not_wake_a_parent_that_waits_for_its_code(
    db: Database, admin: asyncpg.Connection
) -> None:
    """60.10, 50.4 The wait is resolved; the code would still not fit."""
    dad, kid = await family(db)
    await finish(db, dad.fence, "unfit", digest="d")
    await finish(db, kid.fence)
    assert await look(admin, dad.fence.rid, "state", "park") == ("parked", "code")
    assert await boundary(admin, dad.fence.rid, "kid", kind="child") == "arrived"


async def test_a_redrive_is_given_the_child_that_its_origin_started_once_that_has_ended(
    db: Database, admin: asyncpg.Connection
) -> None:
    """60.10, 85.5 Under the same id and with the same launch: nothing runs twice. One that lives has another parent to wake."""
    mine = await running(db, "run")
    for name in ("kid", "late"):
        assert isinstance(await child_of(db, mine.fence, name, name=name, waits=False), Started)
    kid = await claim_by(db, admin, await admin.fetchval("select rid from fencepost.run where id = 'kid'"))
    await finish(db, kid.fence, "completed", '"done"')
    await keep(db, mine.fence, "after", "1", repeatable=True)
    await finish(db, mine.fence, "completed")
    stranger = await running(db, "stranger")
    assert await child_of(db, stranger.fence, "kid") == ChildRefused("conflict"), "no redrive of its parent"
    for origin, new, start, nth in (("run", "second", ("after", 1), 10), ("second", "third", None, 20)):
        answer = await recovery.redrive(db, "default", origin, new_id=new, from_step=start, again=[], by="ann")
        assert answer == ("created", None)
        again = await claim_by(db, admin, await admin.fetchval("select rid from fencepost.run where id = $1", new))
        runs = await admin.fetchval("select count(*) from fencepost.run")
        assert await child_of(db, again.fence, "kid", ordinal=nth, input="2") == ChildRefused("conflict"), (
            "another launch"
        )
        assert await child_of(db, again.fence, "late", ordinal=nth + 1) == ChildRefused("conflict"), "it lives"
        assert await child_of(db, again.fence, "kid", ordinal=nth + 2) == Started("started", kid.fence.rid, None)
        assert await admin.fetchval("select count(*) from fencepost.run") == runs
        here = await wait(db, again.fence)
        assert isinstance(here, Here)
        found = here.resolved[-1]
        assert json.loads(found.value or "")["output"] == "done"
        await finish(db, again.fence, "completed")
