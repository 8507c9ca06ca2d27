"""A small share of the long runs: retention that is too slow for its time."""

from __future__ import annotations

import asyncio
import contextlib
import os

import asyncpg
import pytest

from fencepost import limits
from fencepost.db import Database
from fencepost.worker import heartbeat
from fencepost.worker.heartbeat import Heart
from fencepost.worker.link import Link, Setup, Snapshot, pair
from tests.roads.crew import until_row
from tests.support import lane_of, new_holder

OLD = 300
ENDED_LONG_AGO = """
with r as (insert into fencepost.run (org, id, kind, name, lane, release, source, priority, input, on_lost, key_root, submitted_at)
           select 'default', 'old-' || n, 'workflow', 'work', 1, 'dev', 'program', 0, 'null', 'replay', gen_random_uuid(), now() - interval '90 days'
             from generate_series(1, $1) n returning rid)
insert into fencepost.outcome (rid, status, output, number, tries, seq, ended_at)
select rid, 'completed', '1', 1, 1, 3, now() - interval '90 days' from r"""
SLOW = """
create function watch_slowly() returns trigger language plpgsql as 'begin perform pg_sleep(0.002); return null; end';
create trigger watch_slowly after delete on fencepost.outcome for each row execute function watch_slowly();"""


async def test_retention_that_is_too_slow_for_its_time_asks_for_less_until_it_progresses(
    worker_dsn: str, admin: asyncpg.Connection, db: Database, monkeypatch: pytest.MonkeyPatch
) -> None:
    """B99 A batch that cannot be done between two beats is halved: all that is old goes, and no beat is missed for it."""
    await lane_of(db)
    await admin.execute(ENDED_LONG_AGO, OLD)
    await admin.execute(SLOW)
    monkeypatch.setattr(heartbeat, "RETAIN_SECONDS", 0.0)
    monkeypatch.setattr(limits, "STATEMENT_SECONDS", 0.3)  # what the whole batch takes twice over
    me = await new_holder(db, lease=6.0, beat=0.4)
    ours, theirs = pair()
    ends = [Link(ours, lambda _: None), Link(theirs, lambda _: None)]
    setup = Setup(worker_dsn, "fencepost", me, os.getppid(), 0.4, Snapshot(0, []))
    heart = Heart(setup, ends[0])
    beating = asyncio.ensure_future(heart.beat_for_ever())
    try:
        ask = "select count(*) = 0 from fencepost.outcome"
        await until_row(lambda: admin.fetchval(ask), "the end of what is old", 30)
        heard = "select transaction_timestamp() - heard_at < interval '3 s' from fencepost.incarnation where id = $1"
        assert await admin.fetchval(heard, me)
    finally:
        beating.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await beating
        await heart._db.close()  # a process has its end for that
        for end in ends:
            end.close()
    assert await admin.fetchval("select count(*) from fencepost.run") == 0
