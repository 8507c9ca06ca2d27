"""Law 50.9 under fire: runs that ask for one entry at once; and the holder's process killed, with effects counted outside the database."""

from __future__ import annotations

import asyncio
import itertools
import json
import signal
import uuid
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import asyncpg
import pytest

from fencepost import shared, steps
from fencepost.db import Database
from fencepost.shared import Entry, Given
from fencepost.words import Fence
from tests.roads.crew import Crew, until_row
from tests.support import admit_one, look
from tests.support_races import together, transaction, waiting
from tests.support_runs import arm, cancel, finish, holder_of, lose, running, send, wait

pytestmark = pytest.mark.usefixtures("lawful")


@pytest.fixture
def crew(worker_dsn: str, tmp_path: Path) -> Iterator[Crew]:
    made = Crew(worker_dsn, tmp_path)
    yield made
    made.end()


async def ask(db: Database, fence: Fence, key: str = "k", *, repeatable: bool = True, again: bool = False) -> Any:
    return await shared.ask(
        db, fence, "pay", 1, hash="", key=key, epoch="e", repeatable=repeatable, timeout_ms=None, wait="w", again=again
    )


async def keep(db: Database, fence: Fence, value: str = '"mine"') -> None:
    kept = await steps.keep(db, fence, "step", "pay", 1, hash="", repeatable=True, ok=True, value=value)
    assert isinstance(kept, steps.Kept)
    await shared.wake(db, fence.rid, "pay", 1)


async def sweep(admin: asyncpg.Connection) -> int:
    """What every beat does for whoever waits."""
    woken: int = await admin.fetchval(
        "select fencepost.wake_askers_(fencepost.entries_asked_(500), fencepost.now_(), 500)"
    )
    return woken


async def test_of_many_who_ask_at_once_one_does_it(db: Database, rival: Database) -> None:
    """50.9 Twelve runs from two processes: one mark, eleven waits; then one value for all."""
    fences = [(await running(db, f"run-{n}")).fence for n in range(12)]
    pairs = list(zip(fences, itertools.cycle((db, rival)), strict=False))
    answers = await together(*(lambda f=f, d=d: ask(d, f) for f, d in pairs))
    assert sorted(a.how for a in answers) == ["marked"] + ["wait"] * 11
    assert len({a.root for a in answers}) == 1
    winner = next(f for f, a in zip(fences, answers, strict=True) if a.how == "marked")
    await keep(db, winner)
    given = await together(*(lambda f=f, d=d: ask(d, f) for f, d in pairs))
    assert {g.value for g in given} == {'"mine"'}
    for fence in fences:
        await finish(db, fence)


async def test_the_run_is_locked_before_the_entry(
    db: Database, rival: Database, dsn: str, admin: asyncpg.Connection
) -> None:
    """50.9, 00.14 Whoever waits for the entry holds its own run's row only; a signal to another asker is not in its way."""
    one, two = (await running(db, "one")).fence, (await running(db, "two")).fence
    assert (await ask(db, one)).how == "marked"
    async with transaction(dsn) as gate:
        await gate.execute("select from fencepost.shared for update")
        blocked = asyncio.ensure_future(ask(rival, two))
        await waiting(admin, 1)
        with pytest.raises(asyncpg.LockNotAvailableError):
            await gate.execute("select from fencepost.task where rid = $1 for update nowait", two.rid)
    assert (await blocked).how == "wait"
    assert await send(db, "one") == "sent"
    await keep(db, one)
    assert isinstance(await ask(db, two), Given)


async def test_of_two_who_may_take_an_unknown_over_one_does(
    db: Database, rival: Database, admin: asyncpg.Connection
) -> None:
    """50.9, 50.11 Both look-ups said Absent, and both were permitted: the second finds it held."""
    first = (await running(db, "first")).fence
    assert (await ask(db, first, repeatable=False)).how == "marked"
    await lose(db, await holder_of(admin, first))
    one, two = (await running(db, "one")).fence, (await running(db, "two")).fence
    for fence in (one, two):
        assert (await ask(db, fence, repeatable=False)).how == "unknown"
    answers = await together(
        lambda: ask(db, one, repeatable=False, again=True), lambda: ask(rival, two, repeatable=False, again=True)
    )
    assert sorted(a.how for a in answers) == ["marked", "wait"]


async def test_a_completion_and_a_new_waiter_meet(db: Database, rival: Database, admin: asyncpg.Connection) -> None:
    """50.9, 60.2 Whoever asked just before it was kept is woken: at once, or by the next sweep."""
    for n in range(8):
        holder, asker = (await running(db, f"h{n}")).fence, (await running(db, f"a{n}")).fence
        assert (await ask(db, holder, f"k{n}")).how == "marked"
        _, answer = await together(lambda f=holder: keep(db, f), lambda f=asker, n=n: ask(rival, f, f"k{n}"))
        if isinstance(answer, Entry):
            assert answer.how == "wait"
            await sweep(admin)
            sent = "select count(*) from fencepost.signal where rid = $1 and name = 'w'"
            assert await admin.fetchval(sent, asker.rid) == 1
            answer = await ask(db, asker, f"k{n}")
        assert answer.value == '"mine"'


async def test_a_sweep_passes_over_a_waiter_that_is_locked(db: Database, dsn: str, admin: asyncpg.Connection) -> None:
    """50.9, 85.6 It waits for nobody; the next one finds it."""
    one, two = (await running(db, "one")).fence, (await running(db, "two")).fence
    assert (await ask(db, one)).how == "marked"
    assert (await ask(db, two)).how == "wait"
    async with transaction(dsn) as gate:
        await gate.execute("select from fencepost.task where rid = $1 for update", two.rid)
        await keep(db, one)
        assert await admin.fetchval("select count(*) from fencepost.signal") == 0
    assert await sweep(admin) == 1
    assert await admin.fetchval("select how from fencepost.asker where rid = $1", two.rid) == "woken"


async def test_of_those_who_could_take_it_on_one_is_woken_at_a_time(db: Database, admin: asyncpg.Connection) -> None:
    """50.9, 60.9 No herd for what one of them will do; where there is a value, it is for all."""
    first = (await running(db, "first")).fence
    assert (await ask(db, first)).how == "marked"
    others = [(await running(db, f"run-{n}")).fence for n in range(4)]
    for fence in others:
        assert (await ask(db, fence)).how == "wait"
    await finish(db, first, "failed")  # with its mark standing, repeatable
    assert await sweep(admin) == 1
    assert await sweep(admin) == 1, "should that one never come"
    assert (await ask(db, others[0])).how == "marked"
    assert await sweep(admin) == 0
    await keep(db, others[0])
    assert [r["how"] for r in await admin.fetch("select how from fencepost.asker order by rid")] == [
        "holds",
        "holds",
        *["woken"] * 3,
    ]


async def test_a_cancelled_waiter_is_forgotten_by_the_sweep(db: Database, admin: asyncpg.Connection) -> None:
    """50.9, 80.6 What has ended is nobody's to wake."""
    one, two = (await running(db, "one")).fence, (await running(db, "two")).fence
    assert (await ask(db, one)).how == "marked"
    assert (await ask(db, two)).how == "wait"
    assert type(await wait(db, two, arm("signal", "w"))).__name__ == "Parked"
    assert (await cancel(db, "two"))[0] == "accepted"
    await sweep(admin)
    assert await look(admin, two.rid, "count(*)", table="asker") == 0
    assert (await look(admin, one.rid, "how", table="asker")) == "holds"


# Processes


async def ended(admin: asyncpg.Connection, rid: int) -> Any:
    query = """select coalesce(o.output, t.state) from fencepost.run r
      left join fencepost.outcome o using (rid) left join fencepost.task t using (rid) where r.rid = $1"""

    async def asked() -> Any:
        state = await admin.fetchval(query, rid)
        return None if state in ("queued", "running", "parked") else state

    return await until_row(asked, f"the end of run {rid}", 30)


async def two_ask(crew: Crew, db: Database, admin: asyncpg.Connection, name: str) -> tuple[Any, Any, int, int]:
    """Two workers with a place each, a run in each; the first holds the entry, the second waits."""
    word = uuid.uuid4().hex
    workers = [await crew.start(beat=0.5, lease=20, CONCURRENCY=1)]
    first = await admit_one(db, name=name, input=json.dumps(word))
    await crew.effect("hold", word, n=1)
    workers.append(await crew.start(beat=0.5, lease=20, CONCURRENCY=1))
    second = await admit_one(db, name=name, input=json.dumps(word))
    await until_row(
        lambda: admin.fetchval("select true from fencepost.task where rid = $1 and state = 'parked'", second), "a park"
    )
    return workers[0], workers[1], first, second


async def test_two_workers_ask_and_one_does_it(crew: Crew, db: Database, admin: asyncpg.Connection) -> None:
    """50.9 The other's run parks meanwhile, and is given the value."""
    holder, _, first, second = await two_ask(crew, db, admin, "lending_once")
    crew.go()
    outputs = [json.loads(await ended(admin, rid)) for rid in (first, second)]
    assert outputs[0] == outputs[1]
    assert outputs[0].endswith(f"by {holder.pid}")
    assert len(crew.effects("hold")) == 1


@pytest.mark.parametrize("name", ["lending", "lending_once"])
async def test_the_holder_is_killed(crew: Crew, db: Database, admin: asyncpg.Connection, name: str) -> None:
    """50.9, 50.7, B131 Repeatable, the waiter does it and both have its value. If not, it is unknown to both, and nobody repeats it."""
    holder, other, first, second = await two_ask(crew, db, admin, name)
    holder.send_signal(signal.SIGKILL)
    holder.wait()
    if name == "lending":
        await crew.effect("hold", n=2, seconds=20)
        crew.go()
        outputs = [json.loads(await ended(admin, rid)) for rid in (first, second)]
        assert outputs[0] == outputs[1]
        assert outputs[0].endswith(f"by {other.pid}")
        assert len(crew.effects("hold")) == 2
    else:
        assert [await ended(admin, rid) for rid in (first, second)] == ["unknown", "unknown"]
        assert len(crew.effects("hold")) == 1


async def test_a_page_of_entries_is_bounded_and_none_is_left_out_for_good(
    db: Database, admin: asyncpg.Connection
) -> None:
    """85.6, 50.9 Nine entries with waiters, four at a time: every one comes, though all of them stay held."""
    for n in range(9):
        holder, asker = (await running(db, f"h{n}")).fence, (await running(db, f"a{n}")).fence
        assert (await ask(db, holder, f"k{n}")).how == "marked"
        assert (await ask(db, asker, f"k{n}")).how == "wait"
    entries = {row["eid"] for row in await admin.fetch("select eid from fencepost.shared")}
    pages = [await admin.fetchval("select fencepost.entries_asked_(4)") for _ in range(200)]
    assert {len(page) for page in pages} == {4}
    assert all(len(set(page)) == 4 for page in pages)
    assert {eid for page in pages for eid in page} == entries
    assert set(await admin.fetchval("select fencepost.entries_asked_(500)")) == entries
