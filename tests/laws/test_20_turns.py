"""Chapter 20, as far as chapter 40 keeps it: the order in which a lane's work is taken."""

from __future__ import annotations

import itertools
import uuid
from datetime import UTC, datetime

import asyncpg
import pytest
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st

from fencepost.db import Database
from fencepost.testing import Clock
from tests.support import admit_one, claim_all, connected, new_holder

NOON = datetime(2031, 5, 6, 12, tzinfo=UTC)
pytestmark = pytest.mark.usefixtures("lawful")


async def turns(db: Database, holder: uuid.UUID, *, most: int, times: int) -> list[list[str]]:
    """The organisations that requests give, each request beginning after the last one's last organisation."""
    found: list[list[str]] = []
    cursor = ""
    for _ in range(times):
        got = await claim_all(db, holder, most=most, cursor=cursor)
        found.append([c.org for c in got])
        cursor = got[-1].org if got else cursor
    return found


@settings(max_examples=15, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(orgs=st.lists(st.integers(4, 14), min_size=2, max_size=4), most=st.integers(1, 5), loud=st.integers(-100, 100))
@example(orgs=[13, 10, 14, 9], most=5, loud=0)  # the last of a claim that cannot be shared evenly
async def test_organisations_with_a_backlog_take_fair_turns(
    db: Database, admin: asyncpg.Connection, orgs: list[int], most: int, loud: int
) -> None:
    """20.9 While both have a backlog, two organisations differ by at most one in any 2k claims of one worker, whatever their
    priorities and however many runs one of them has. Also 40.2: nothing is claimed twice."""
    await admin.execute(
        "drop schema if exists watch cascade; truncate fencepost.run, fencepost.task, fencepost.event, fencepost.attempt"
    )
    for n, runs in enumerate(orgs):
        for _ in range(runs):
            await admit_one(db, org=f"org-{n}", priority=loud if n == 0 else 0)
    holder = await new_holder(db)
    line = [org for got in await turns(db, holder, most=most, times=60 // most + 1) for org in got]
    assert len(line) == sum(orgs)
    names = sorted(set(line))
    while len(names) > 1:
        backlog = min(max(i for i, org in enumerate(line) if org == name) for name in names)
        window = [org for org in line[: backlog + 1] if org in names]
        for start, end in itertools.combinations(range(len(window) + 1), 2):
            part = window[start:end]
            if len(part) % len(names) == 0:
                counts = [part.count(name) for name in names]
                assert max(counts) - min(counts) <= 1, (names, window)
        totals = [window.count(name) for name in names]
        assert max(totals) - min(totals) <= 1, (names, window)
        names.remove(line[backlog])


async def test_within_an_organisation_priority_then_readiness_and_waiting_counts_as_priority(
    db: Database, admin: asyncpg.Connection, clock: Clock
) -> None:
    """20.9 Priority plus one per minute waited: an old plain run passes a newer one that is a little louder."""
    await clock.set(NOON)
    order = {
        "old": await admit_one(db, priority=0),
        "loud": await admit_one(db, priority=50),
    }
    await clock.advance(600)
    order["ten louder, ten minutes younger"] = await admit_one(db, priority=10)
    order["nine louder, ten minutes younger"] = await admit_one(db, priority=9)
    order["eleven louder, ten minutes younger"] = await admit_one(db, priority=11)
    names = {rid: name for name, rid in order.items()}
    got = await claim_all(db, await new_holder(db), most=9)
    assert [names[c.fence.rid] for c in got] == [
        "loud",
        "eleven louder, ten minutes younger",
        "old",
        "ten louder, ten minutes younger",
        "nine louder, ten minutes younger",
    ]


async def test_a_claim_never_asks_for_more_than_it_was_told_to(db: Database) -> None:
    """20.9 Also with more organisations than places, and with nothing to give."""
    for n in range(7):
        await admit_one(db, org=f"org-{n}")
    holder = await new_holder(db)
    assert [len(got) for got in await turns(db, holder, most=3, times=4)] == [3, 3, 1, 0]
    assert await claim_all(db, holder, most=0) == ()
    for n in range(6):
        await admit_one(db, org=f"org-{n % 2}")
    assert [len(got) for got in await turns(db, holder, most=3, times=3)] == [3, 3, 0]


@pytest.mark.parametrize("most", [2, 4])
async def test_of_many_organisations_the_head_of_each_line_is_taken_or_the_next_where_another_has_it(
    db: Database, admin: asyncpg.Connection, dsn: str, most: int
) -> None:
    """20.9 The loudest first; where another claim holds the head of a line, nobody waits for it."""
    lines = {org: [await admit_one(db, org=org, priority=p) for p in (1, 3, 2)] for org in ("a", "b")}
    async with connected(dsn) as other, other.transaction():
        await other.execute("select from fencepost.task where rid = $1 for no key update", lines["a"][1])
        got = await claim_all(db, await new_holder(db), most=most)
    taken = [c.fence.rid for c in got]
    assert taken == [lines["a"][2], lines["b"][1], lines["a"][0], lines["b"][2]][:most]


async def test_behind_the_head_of_a_line_stands_nothing_but_what_waits_in_it(
    db: Database, admin: asyncpg.Connection
) -> None:
    """20.9, 10.7, 40.15 Not what rides another lane, what is delayed, what is suspect or what another has."""
    holder = await new_holder(db)
    taken = await admit_one(db)
    assert [c.fence.rid for c in await claim_all(db, await new_holder(db))] == [taken]
    head = await admit_one(db, priority=2)
    await admit_one(db, release="another")
    await admit_one(db, delay_ms=60_000)
    suspect, last = await admit_one(db), await admit_one(db)
    await admin.execute("update fencepost.task set losses = 5 where rid = $1", suspect)
    assert [c.fence.rid for c in await claim_all(db, holder, most=9, alone=False)] == [head, last]


@pytest.mark.parametrize("cursor", ["", "z"])
@pytest.mark.parametrize("most", [1, 9])
async def test_no_head_of_another_lane_is_come_by(db: Database, most: int, cursor: str) -> None:
    """10.7, 20.9 Neither on the way nor after the last organisation, from where the scan begins again."""
    await admit_one(db, org="a")
    own = await admit_one(db, org="b", release="another")
    got = await claim_all(db, await new_holder(db), most=most, cursor=cursor, release="another")
    assert [c.fence.rid for c in got] == [own]


async def test_a_worker_that_holds_nothing_takes_the_only_run_and_of_several_those_whose_turn_it_is(
    db: Database,
) -> None:
    """20.9, 10.7 Of one run no turns are taken. What is another lane's or delayed is none; where there are two, all that is asked for is given."""
    holder = await new_holder(db)
    await admit_one(db, release="another")
    await admit_one(db, org="a", delay_ms=60_000)
    assert await claim_all(db, holder, most=9) == ()
    only = await admit_one(db, org="b")
    assert [one.fence.rid for one in await claim_all(db, holder, most=9)] == [only]
    for org in ("a", "a", "a", "b"):
        await admit_one(db, org=org)
    assert [one.org for one in await claim_all(db, holder, most=2)] == ["a", "b"]
    assert [one.org for one in await claim_all(db, holder, most=9)] == ["a", "a"]
