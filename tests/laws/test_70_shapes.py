"""Chapter 70: long, wide and crossed plans; and what going on costs, counted by the server and not by a watch."""

from __future__ import annotations

import asyncio
import itertools
import random
import uuid
from collections.abc import AsyncIterator
from statistics import median_low
from typing import Any

import asyncpg
import pytest

from fencepost import attempts, terminal
from fencepost.db import Database
from tests.plan_table import Table, failure, maybe, result, retry, step, step_of
from tests.reads import reads_of
from tests.support import new_holder, next_request

STATE = "select state from fencepost.step where rid = $1 and id = $2"


@pytest.fixture
async def session(dsn: str) -> AsyncIterator[asyncpg.Connection]:
    """One session, so that its plans are kept and its counts can be asked for."""
    connection = await asyncpg.connect(dsn)
    yield connection
    await connection.close()


async def finish(table: Table, claimed: list[attempts.Claimed], how: str = "completed") -> None:
    """All of these in one call."""
    n = len(claimed)
    rows = await table.db.call(
        "finish_attempts", [c.fence.rid for c in claimed], [c.fence.fence for c in claimed], [how] * n,
        [result({"o": "1"}) if how == "completed" else failure()] * n, [None] * n, [None] * n, [None] * n,
    )  # fmt: skip
    assert {row["answer"] for row in rows} == {"committed"}


# ── shapes ───────────────────────────────────────────────────────────────────────────────────────────────────────────


@pytest.mark.usefixtures("lawful")
async def test_a_chain_of_two_hundred_is_walked_in_order(table: Table) -> None:
    """70.3 One at a time, each when the one before it has ended; and the run ends with the last (70.12)."""
    await table.admit("p", *(step(f"s{n}", *([f"s{n - 1}"] if n else [])) for n in range(200)), most=10)
    for n in range(200):
        claimed = await table.claim()
        assert list(claimed) == [f"s{n}"]
        await table.win(claimed[f"s{n}"])
    assert await table.status("p") == "completed"
    story = await table.story("p")
    assert story[1:-1] == [(f"plan.step_{w}", f"s{n}") for n in range(200) for w in ("started", "succeeded")]


@pytest.mark.usefixtures("lawful")
@pytest.mark.parametrize("at", [0, 100])
async def test_a_chain_of_two_hundred_that_breaks_is_skipped_to_its_end_at_once(table: Table, at: int) -> None:
    """70.3 In the transaction of the failure, however long what follows is."""
    await table.admit("p", *(step(f"s{n}", *([f"s{n - 1}"] if n else [])) for n in range(200)))
    for n in range(at):
        await table.win(await table.one(f"s{n}"))
    await table.fail(await table.one(f"s{at}"))
    seen = await table.plan("p")
    assert (seen["status"], seen["counts"].get("skipped")) == ("failed", 199 - at)


async def test_a_thousand_fan_out_and_in_again(db: Database, table: Table) -> None:
    """70.4 Never more than the slots, first those that are written first; the last of a thousand ends lets the last step go."""
    most = 50
    fan = [step(f"f{n:04}", "a") for n in range(1000)]
    rid = await table.admit("p", step("z", *(f["id"] for f in fan)), *fan, step("a"), most=most)
    await table.through("a")
    order: list[str] = []
    dice = random.Random(7)
    held: list[attempts.Claimed] = []
    while len(order) < 1000 or held:
        got = list((await table.claim(most)).values())
        order += [step_of(c) for c in got]
        held += got
        assert len(held) <= most
        dice.shuffle(held)
        ends, held = held[: most // 2 or 1], held[most // 2 or 1 :]
        assert await table.admin.fetchval(STATE, rid, "z") == "blocked"
        await finish(table, ends)
    assert sorted(order) == order == [f["id"] for f in fan]
    await table.through("z")
    assert await table.status("p") == "completed"


async def test_a_thousand_that_fail_skip_what_needs_them_once(table: Table) -> None:
    """70.3 All in one transaction; and one that only needed them to end goes on."""
    fan = [step(f"f{n}") for n in range(1000)]
    await table.admit(
        "p", *fan, step("z", *(f["id"] for f in fan)), step("y", *(maybe(f["id"]) for f in fan)), most=1000
    )
    claim = await attempts.claim(
        table.db, table.me, next_request(), lane=table.lane, most=1000, cursor="", alone=True, patience=30
    )
    await finish(table, list(claim.claimed), "failed")
    states = await table.states("p")
    assert (states["z"], states["y"]) == ("skipped", "running")
    assert await table.story("p", "plan.step_skipped") == [("plan.step_skipped", "z")]
    await table.through("y")
    assert await table.status("p") == "failed"


@pytest.mark.usefixtures("lawful")
@pytest.mark.parametrize("first", ["b", "c"])
@pytest.mark.parametrize(
    ("b", "c", "end"),
    [
        ("completed", "completed", "running"),
        ("completed", "failed", "skipped"),
        ("failed", "completed", "skipped"),
        ("failed", "failed", "skipped"),
    ],
)
async def test_a_diamond(table: Table, first: str, b: str, c: str, end: str) -> None:
    """70.3 Whichever arm ends first, and however."""
    await table.admit("p", step("a"), step("b", "a"), step("c", "a"), step("d", "b", "c"))
    await table.through("a")
    claimed = await table.claim()
    how = {"b": b, "c": c}
    for name in (first, "c" if first == "b" else "b"):
        await finish(table, [claimed[name]], how[name])
    assert (await table.states("p"))["d"] == end
    if end == "running":
        await table.through("d")
    assert await table.status("p") == ("completed" if end == "running" else "failed")


@pytest.mark.usefixtures("lawful")
async def test_four_workers_on_one_plan_lose_nothing_and_do_nothing_twice(db: Database, table: Table) -> None:
    """70.4, 70.5 A layered plan, retries and optional edges; every claim by whoever is there, every end by another call."""
    dice = random.Random(11)
    layers = [[f"l{k}n{n}" for n in range(6)] for k in range(5)]
    steps: list[dict[str, Any]] = [step(name) for name in layers[0]]
    for above, layer in itertools.pairwise(layers):
        steps += [step(name, *(maybe(up) for up in dice.sample(above, 3)), retry=retry(2)) for name in layer]
    await table.admit("p", *steps, most=5)
    holders = [await new_holder(db) for _ in range(4)]
    executed: list[str] = []
    held: set[str] = set()

    async def work(holder: uuid.UUID) -> None:
        while await table.status("p") == "running":
            claimed = await table.claim(dice.randint(1, 3), holder=holder)
            executed.extend(c.id for c in claimed.values())
            held.update(c.id for c in claimed.values())
            assert len(held) <= 5
            await asyncio.gather(
                *(end(c) for c in claimed.values()), table.beat(holder, held=[c.fence for c in claimed.values()])
            )

    async def end(claimed: attempts.Claimed) -> None:
        fails = dice.random() < 0.2 and not step_of(claimed).startswith("l0")
        held.discard(claimed.id)  # the slot is free with the end, which another may see before we do
        await (table.fail if fails else table.win)(claimed)

    await asyncio.gather(*(work(holder) for holder in holders))
    assert len(set(executed)) == len(executed)
    seen = await table.steps("p")
    assert sum(s["attempts"] for s in seen.values()) == len(executed)


# ── what it costs ────────────────────────────────────────────────────────────────────────────────────────────────────


class Counted:
    """Calls of one session, and how many rows the server read for each."""

    def __init__(self, table: Table, session: asyncpg.Connection) -> None:
        self.table = table
        self.session = session

    async def advance(self, how: str) -> int:
        """One step of the plan claimed, begun and ended; the rows read by its begin and its end. The plan goes on."""
        (claimed,) = await self.session.fetch(
            "select * from fencepost.claim_attempts($1, $2, $3, 1, '', true) where answer = 'claimed'",
            self.table.me,
            next_request(),
            self.table.lane,
        )
        began, _ = await reads_of(
            self.session, "begin_steps", [claimed["rid"]], [claimed["fence"]], ["b"], ["n"], [1], ["1"], ["h"], ["/f"]
        )
        text = result({"o": "1"}) if how == "completed" else failure()
        reads, _ = await reads_of(
            self.session, "finish_attempts", [claimed["rid"]], [claimed["fence"]], [how], [text], [None], [None], [None]
        )
        return reads + began


def chains(n: int, width: int = 10) -> list[dict[str, Any]]:
    """`width` chains beside each other: each end makes one step ready."""
    return [step(f"s{k}", *([f"s{k - width}"] if k >= width else []), retry=retry(3)) for k in range(n)]


@pytest.mark.timeout(300)
@pytest.mark.parametrize("how", ["completed", "failed"])
async def test_going_on_reads_what_is_ready_and_not_what_the_plan_is_long(
    table: Table, session: asyncpg.Connection, how: str
) -> None:
    """70.12, 70.13 A success and a retry in a plan of ten steps and of five thousand: the same few rows, also half-way through."""
    counted = Counted(table, session)
    await table.admin.execute("analyze")
    reads: dict[int, int] = {}
    for n in (20, 5000):
        await table.admit(f"p{n}", *chains(n), most=5)
        await counted.advance(how)  # every statement is planned now
        reads[n] = median_low([await counted.advance(how) for _ in range(5)])
        assert (await terminal.end(table.db, "default", f"p{n}", by="me", reason="measured"))[0] == "done"
    assert reads[5000] <= reads[20] * 1.5 + 5, reads
    assert reads[5000] < 80, reads


@pytest.mark.timeout(300)
async def test_each_step_of_a_wide_plan_costs_the_same(table: Table, session: asyncpg.Connection) -> None:
    """70.13 Two thousand that need nothing, and one that needs them all: the first end reads as few rows as a late one."""
    counted = Counted(table, session)
    fan = [step(f"f{n:04}") for n in range(2000)]
    await table.admit("p", *fan, step("z", *(f["id"] for f in fan)), most=5)
    await counted.advance("completed")
    first = median_low([await counted.advance("completed") for _ in range(3)])
    for _ in range(15):
        claim = await attempts.claim(
            table.db, table.me, next_request(), lane=table.lane, most=5, cursor="", alone=True, patience=30
        )
        await finish(table, list(claim.claimed))
    late = median_low([await counted.advance("completed") for _ in range(3)])
    assert late <= first * 1.5 + 5, (first, late)
    assert first < 80, first
