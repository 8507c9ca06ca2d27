"""Chapter 00: in a set-based door no item suffers for another."""

from __future__ import annotations

import asyncio
import uuid
from collections.abc import Sequence
from typing import Any

import asyncpg
import pytest

from fencepost import App, Context, admission, attempts, limits, terminal
from fencepost.admission import Admitted, Conflict, Refused
from fencepost.client import Client
from fencepost.client.launching import desk
from fencepost.db import Database
from fencepost.errors import DatabaseUnavailable
from fencepost.hot import Coalescer
from fencepost.ledger import read_run
from fencepost.testing import pause_at
from fencepost.words import STALE, Fence
from tests.support import admit_one, claim_all, lane_of, launch, new_holder
from tests.support_runs import batch, holding

app = App("batches")


@app.workflow()
async def work(ctx: Context) -> None: ...


NOBODY = uuid.UUID(int=4)


async def test_in_a_batch_what_is_wrong_with_one_item_is_nobody_elses(db: Database, admin: asyncpg.Connection) -> None:
    """00.13 A refused, a conflicting, a repeated and a twin item among good ones."""
    lane = await lane_of(db)
    await admit_one(db, "known", input="1")
    answers = await admission.admit(
        db,
        [
            launch(id="a", lane=lane),
            launch(id="bad\n", lane=lane),
            launch(id="known", input="2", lane=lane),
            launch(id="b", lane=lane),
            launch(id="known", input="1", lane=lane),
            launch(id="a", lane=lane),
            launch(id="b", input="9", lane=lane),
            launch(id="c", source="who?", lane=lane),
            launch(id="d", lane=lane),
        ],
    )
    kinds = [a.how if isinstance(a, Admitted) else type(a) for a in answers]
    assert kinds == ["created", Refused, Conflict, "created", "replayed", "replayed", Conflict, Refused, "created"]
    assert await admin.fetchval("select count(*) from fencepost.task") == 4


async def test_an_item_that_cannot_be_stored_at_all_is_refused_alone(db: Database) -> None:
    """00.13 One that the database itself refuses (a priority out of range) fails for its own caller only."""
    lane = await lane_of(db)
    counter = desk(db)
    good = [counter.ask(launch(lane=lane), 4) for _ in range(3)]
    found = await asyncio.gather(*good, counter.ask(launch(lane=lane, priority=10**7), 4), return_exceptions=True)
    assert [type(f) for f in found] == [Admitted, Admitted, Admitted, asyncpg.CheckViolationError]
    counter.stop()


@pytest.mark.parametrize("through", ["desk", "many"])
async def test_a_twin_that_is_not_committed_elsewhere_delays_its_own_item_only(db: Database, through: str) -> None:
    """00.13 Two neighbours, before and behind it in the batch, are answered while it waits."""
    lane = await lane_of(db)
    launches = [launch(id=name, lane=lane) for name in ("before", "twin", "zebra")]
    counter = desk(db)
    async with db.connection() as mine, mine.transaction():
        await admission.admit_on(db, mine, launch(id="twin", lane=lane))
        if through == "desk":
            asked = [counter.ask(one, 4) for one in launches]
            async with asyncio.timeout(10):
                assert [(await asked[n]).how for n in (0, 2)] == ["created", "created"]
            assert not asked[1].done()
            rest = asked[1]
        else:
            rest = asyncio.ensure_future(admission.admit(db, launches))
            async with asyncio.timeout(10):
                while await read_run(db, "default", "zebra") is None:  # each look is a round trip: no spinning
                    assert not rest.done()
    answer = await asyncio.wait_for(rest, 10)
    answer = answer if through == "desk" else answer[1]
    assert answer.how == "replayed"
    counter.stop()


@pytest.mark.parametrize(
    ("door", "item", "answer"),
    [
        ("begin_attempts", (), "begun"),
        ("defer_attempts", ("workflow_missing", "w", 1), "deferred"),
        ("give_back_attempts", (), "given_back"),
        ("mark_steps", ("s", 1, "", False, None, False), "marked"),
        ("keep_steps", ("step", "s", 1, "", True, True, "1"), "kept"),
        (
            "park_attempts",
            ('[{"op":"arm","kind":"signal","name":"x","ordinal":1,"ms":null,"hash":""}]', 0, True, None),
            "parked",
        ),
        ("finish_attempts", ("completed", "1", None, None, None), "committed"),
        ("start_children", ("c", 1, "", True, "kid-", "work", "1", None), "started"),
    ],
)
async def test_in_a_batch_stale_and_locked_items_delay_and_change_no_other(
    db: Database, dsn: str, door: str, item: tuple[Any, ...], answer: str
) -> None:
    """00.13 A stale item and one whose row somebody holds stand among good ones."""
    for _ in range(4):
        await admit_one(db, on_lost="fail")
    fences = [c.fence for c in await claim_all(db, await new_holder(db), most=4)]

    def asked(n: int, fence: Any) -> tuple[Any, ...]:
        return (fences[n].rid, fence, *(f"kid-{n}" if part == "kid-" else part for part in item))

    items = [asked(n, uuid.uuid4() if n == 1 else fences[n].fence) for n in range(4)]
    async with holding(dsn, fences[2].rid), asyncio.timeout(10):
        assert [row["answer"] for row in await batch(db, door, *items)] == [answer, "stale", "again", answer]
    assert [row["answer"] for row in await batch(db, door, items[2])] == [answer]


async def test_callers_of_a_hot_door_that_meet_a_locked_row_wait_alone(db: Database, dsn: str) -> None:
    """00.13 The way to the database asks for an `again` alone, where it may wait; its neighbours have gone on."""
    for _ in range(3):
        await admit_one(db, on_lost="fail")
    fences = [c.fence for c in await claim_all(db, await new_holder(db), most=3)]
    async with holding(dsn, fences[1].rid):
        asked = [asyncio.ensure_future(attempts.begin(db, fence)) for fence in fences]
        async with asyncio.timeout(10):
            assert [await asked[0], await asked[2]] == ["begun", "begun"]
        assert not asked[1].done()
    assert await asyncio.wait_for(asked[1], 10) == "begun"


async def test_batches_are_bounded_in_items_and_in_bytes_measured_before(
    db: Database, monkeypatch: pytest.MonkeyPatch
) -> None:
    """00.13"""
    sent: list[int] = []
    real = db.call

    async def call(door: str, *args: Any, **how: Any) -> Any:
        sent.append(len(args[0]))
        return await real(door, *args, **how)

    monkeypatch.setattr(db, "call", call)
    monkeypatch.setattr(limits, "COALESCE_ITEMS_MAX", 10)
    monkeypatch.setattr(limits, "COALESCE_BYTES_MAX", 1000)
    nobody = Fence(10**12, 1, NOBODY)
    assert await asyncio.gather(*(attempts.begin(db, nobody) for _ in range(35))) == [STALE] * 35
    assert max(sent) == 10
    sent.clear()
    big = "1" * 600
    assert set(await asyncio.gather(*(terminal.finish(db, nobody, "completed", big) for _ in range(5)))) == {STALE}
    assert sent == [1] * 5, "two of 600 bytes are more than 1000"


@pytest.mark.parametrize("error", [None, DatabaseUnavailable("closed")])
async def test_whoever_waits_when_a_coalescer_stops_is_told(error: Exception | None) -> None:
    """00.13 In flight, gathered behind it, and asked alone: nobody waits for an answer that nobody brings."""
    asked: asyncio.Queue[list[str]] = asyncio.Queue()
    never: asyncio.Future[Any] = asyncio.get_running_loop().create_future()

    async def together(items: Sequence[str]) -> list[str | None]:
        asked.put_nowait(list(items))
        return [None] if items == ["alone"] else await never

    async def alone(item: str) -> str | None:
        asked.put_nowait([item, "by itself"])
        return await never

    def goes_apart(error: Exception, items: int) -> bool:
        return False

    counter = Coalescer(together, alone, goes_apart)
    async with asyncio.timeout(5):
        waiting = [counter.ask("alone", 5)]
        assert [await asked.get() for _ in range(2)] == [["alone"], ["alone", "by itself"]]
        waiting.append(counter.ask("flying", 6))
        assert await asked.get() == ["flying"]
        waiting.append(counter.ask("behind", 6))
    counter.stop(error)
    async with asyncio.timeout(5):
        found = await asyncio.gather(*waiting, return_exceptions=True)
    assert [type(f) for f in found] == [asyncio.CancelledError if error is None else DatabaseUnavailable] * 3


async def test_a_caller_who_goes_away_takes_back_what_was_not_sent_and_no_more(db: Database) -> None:
    """00.13 Its neighbours have their answers; what was on its way is admitted."""
    lane = await lane_of(db)
    counter = desk(db)
    first, neighbour = (counter.ask(launch(id=name, lane=lane), 4) for name in ("first", "neighbour"))
    unsent = counter.ask(launch(id="unsent", lane=lane), 4)
    unsent.cancel()
    with pause_at("statement.before", when=lambda facts: facts["door"] == "admit_launches") as pause:
        await pause.reached()  # the first two have left
        behind, left = (counter.ask(launch(id=name, lane=lane), 4) for name in ("behind", "left"))
        first.cancel()
        left.cancel()
    async with asyncio.timeout(10):
        assert [(await one).how for one in (neighbour, behind)] == ["created", "created"]
    found = [name for name in ("first", "neighbour", "unsent", "behind", "left") if await read_run(db, "default", name)]
    assert found == ["first", "neighbour", "behind"]


async def test_a_client_that_is_closed_tells_who_waits_for_a_launch(dsn: str) -> None:
    """00.13 The launch may have happened: the error says to start it again with the same id."""
    client = Client(Database(dsn))
    await client.start(work, id="before")
    with pause_at("statement.before", when=lambda facts: facts["door"] == "admit_launches") as pause:
        under_way = [asyncio.ensure_future(client.start(work, id=f"n{n}")) for n in range(3)]
        await pause.reached()
        await client.close()
        async with asyncio.timeout(10):
            found = await asyncio.gather(*under_way, return_exceptions=True)
    assert {type(f) for f in found} == {DatabaseUnavailable}
    assert all("with the same id" in str(f) for f in found)
