"""Ids of runs that nobody named: each another, and each beside the last one in the index."""

from __future__ import annotations

import asyncpg

from fencepost import App, Context
from fencepost.client import Client
from fencepost.db import Database
from tests.support import lane_of

app = App("ids", release="dev")


@app.workflow()
async def work(ctx: Context) -> None: ...


async def test_ids_that_nobody_gave_follow_one_another_and_none_comes_twice(
    db: Database, admin: asyncpg.Connection
) -> None:
    """30.2 In the order of time, from Python and from SQL: ids by chance write a page each after every checkpoint, once there are many."""
    await lane_of(db)
    client = Client(db)
    started: list[str] = []
    admitted: list[str] = []
    for _ in range(8):
        started.append((await client.start(work)).id)
        admitted.append(await admin.fetchval("select run_id from fencepost.admit_run('work')"))
        await admin.execute("select pg_sleep(0.002)")  # ids of one millisecond have no order
    assert started == sorted(started)
    assert admitted == sorted(admitted)
    many = [handle.id for handle in await client.start_many(work, [None] * 500)]
    assert len({*many, *started, *admitted}) == 516
    assert {len(one) for one in many} == {len("work-") + 32}


async def test_launches_of_a_batch_have_key_roots_of_their_own(db: Database, admin: asyncpg.Connection) -> None:
    """50.3 Two that shared one would hand the same keys to a provider, which would do one call for both."""
    await lane_of(db)
    client = Client(db)
    for _ in range(2):
        await client.start_many(work, [None] * 20)
    assert await admin.fetchval("select count(distinct key_root) from fencepost.run") == 40
