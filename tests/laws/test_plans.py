"""What the hot doors read. The trap of this field is a plan made while a table was empty: the same statements, eighty times slower.

Rows read are counted by the server itself, so the bounds hold on any machine. Each door asserts it in the worst order: planned on
analysed, empty tables, kept for the session, then a burst comes and nobody analyses.
"""

from __future__ import annotations

import json
import uuid
from collections import defaultdict
from collections.abc import AsyncIterator, Sequence
from functools import partial

import asyncpg
import pytest

from fencepost.db import Database
from fencepost.hot import columns
from tests.reads import reads_of
from tests.roads.crew import until_row
from tests.support import lane_of, launch, new_holder, next_request

BATCH = 64
# A vacuum that comes by analyses again, and while it looks keeps the dead alive.
STILL = """
do $$ declare t regclass; begin
  for t in select c.oid from pg_class c join pg_namespace n on n.oid = c.relnamespace where n.nspname = 'fencepost' and c.relkind = 'r' loop
    execute format('alter table %s set (autovacuum_enabled = off)', t);
  end loop;
end $$"""
PASSED = "select true where pg_snapshot_xmin(pg_current_snapshot()) > $1::text::xid8"
OTHERS = """
with r as (insert into fencepost.run (org, id, kind, name, lane, release, source, priority, input, on_lost, key_root, submitted_at)
           select 'default', 'old-' || n, 'workflow', 'work', $1, 'dev', 'program', 0, 'null', 'replay', gen_random_uuid(), now()
             from generate_series(1, $2::integer * 2) n returning rid, lane, org),
  t as (insert into fencepost.task (rid, lane, org, state, priority, ready_at, turn_at, due_at, seq, number, on_lost, park)
        select r.rid, r.lane, r.org, 'parked', 0, now(), now(), now() + interval '30 days', 4, 1, 'replay', 'wait' from r where r.rid % 2 = 0),
  b as (insert into fencepost.boundary (rid, kind, name, ordinal, state, opened_seq, number, until, at)
        select r.rid, 'sleep', 'nap', 1, 'armed', 3, 1, now() + interval '30 days', now() from r where r.rid % 2 = 0)
insert into fencepost.outcome (rid, status, output, number, tries, seq, ended_at)
select r.rid, 'completed', '1', 1, 1, 3, now() from r where r.rid % 2 = 1"""


@pytest.fixture
async def session(dsn: str) -> AsyncIterator[asyncpg.Connection]:
    """One session, so that its plans are kept and its counts can be asked for."""
    connection = await asyncpg.connect(dsn)
    yield connection
    await connection.close()


class Line:
    """Runs through every hot door, in batches, and how many rows each door read for one run."""

    def __init__(self, session: asyncpg.Connection, lane: int, holder: uuid.UUID) -> None:
        self.session = session
        self.lane = lane
        self.holder = holder
        self.reads: defaultdict[str, list[int]] = defaultdict(list)

    async def door(self, door: str, *columns: list, size: int) -> Sequence[asyncpg.Record]:
        """Ask it, and count."""
        reads, rows = await reads_of(self.session, door, *columns)
        self.reads[door].append(-(-reads // size))
        return rows

    async def claim(self, size: int) -> list[asyncpg.Record]:
        rows = await self.door(
            "claim_attempts", self.holder, next_request(), self.lane, size, "", True, [], [], [], size=size
        )
        claimed = [row for row in rows if row["answer"] == "claimed"]
        assert len(claimed) == size
        return claimed

    async def batch(self, size: int) -> None:
        runs = [launch(lane=self.lane) for _ in range(size)]
        await self.door(
            "admit_launches", *columns(runs), False, 50, size=size,
        )  # fmt: skip
        claimed = await self.claim(size)
        who = ([r["rid"] for r in claimed], [r["fence"] for r in claimed])
        steps = (["pay"] * size, [1] * size, ["h"] * size, [False] * size)
        marked = await self.door("mark_steps", *who, *steps, [None] * size, [False] * size, size=size)
        assert {r["answer"] for r in marked} == {"marked"}
        kept = await self.door("keep_steps", *who, ["step"] * size, *steps, [True] * size, ["1"] * size, size=size)
        assert {r["answer"] for r in kept} == {"kept"}
        half = size // 2
        waits = json.dumps([{"kind": "signal", "name": "go", "ordinal": 1, "ms": None, "hash": "h", "op": "arm"}])
        early = ([*who[0][:half]], [*who[1][:half]])
        parked = await self.door(
            "park_attempts", *early, [waits] * half, [2**31 - 1] * half, [True] * half, [None] * half, size=half
        )
        assert {r["answer"] for r in parked} == {"parked"}, parked
        ids = [r["id"] for r in claimed[:half]]
        sent = await self.door(
            "send_signals", ["default"] * half, ids, ["go"] * half, [None] * half, ["1"] * half, size=half
        )
        assert {r["answer"] for r in sent} == {"sent"}
        again = await self.claim(half)
        rids, fences = [*who[0][half:]], [*who[1][half:]]
        rids += [r["rid"] for r in again]
        fences += [r["fence"] for r in again]
        n = len(rids)
        nothing = [None] * n
        ended = await self.door("finish_attempts", rids, fences, ["completed"] * n, ["1"] * n, *[nothing] * 3, size=n)
        assert {r["answer"] for r in ended} == {"committed"}


async def burst(line: Line, batches: int) -> dict[str, int]:
    """Of each door the least, each batch begun when nobody can see any more what is dead: a neighbour that connects or writes, also in
    another database of the server, keeps it in the indexes until then, and a plan that reads too much does so in each.
    """
    line.reads.clear()
    for _ in range(batches):
        here: str = await line.session.fetchval("select pg_current_xact_id()::text")
        await until_row(partial(line.session.fetchval, PASSED, here), "the end of what our neighbours write")
        await line.batch(BATCH)
    return {door: min(reads) for door, reads in line.reads.items()}


async def test_no_hot_door_reads_more_for_a_run_than_the_run_has_whatever_it_was_planned_on(
    db: Database, admin: asyncpg.Connection, session: asyncpg.Connection
) -> None:
    """60.1 Planned on empty tables, and then beside thousands that are parked or have ended: each reads the same few rows a run."""
    lane, holder = await lane_of(db), await new_holder(db)
    await admin.execute("analyze")
    await admin.execute(STILL)
    line = Line(session, lane, holder)
    for _ in range(2):
        await line.batch(8)  # every statement is planned now
    fresh = await burst(line, 6)
    await session.execute(OTHERS, lane, 4000)
    beside = await burst(line, 6)
    assert {door: reads for door, reads in beside.items() if reads > 40} == {}
    assert {door: (fresh[door], reads) for door, reads in beside.items() if reads > fresh[door] * 1.5 + 2} == {}


async def test_retention_reads_a_page_of_what_is_shared_and_not_all_that_stays(
    db: Database, session: asyncpg.Connection
) -> None:
    """95.1, 85.6 Entries whose epoch is the last of their kind stay for good: a hundred thousand of them are not walked at every pass,
    and hide none that may go.
    """
    line = Line(session, await lane_of(db), await new_holder(db))
    await session.execute(
        """insert into fencepost.shared (org, name, key, epoch, made_at, asked_at)
           select 'default', 'price-' || n, 'k', 'one', now() - interval '40 days', now() - interval '40 days' from generate_series(1, 100000) n;
           insert into fencepost.shared (org, name, key, epoch, made_at, asked_at)
           select 'default', 'price-' || n, 'k', 'two', now() - interval '35 days', now() - interval '35 days' from generate_series(51, 55) n;
           analyze fencepost.shared"""
    )
    left = "select count(*) from fencepost.shared where epoch = 'one' and name in (select name from fencepost.shared where epoch = 'two')"
    for _ in range(1000):
        await line.door("retain", 3600, 30 * 86400, 200, size=1)
        if await session.fetchval(left) == 0:
            break
    assert await session.fetchval(left) == 0
    assert max(line.reads["retain"]) < 20_000, line.reads
