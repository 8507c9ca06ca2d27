"""Chapter 00: internal ids beyond 32 and beyond 53 bits are ids like any other, in every door."""

from __future__ import annotations

import asyncpg
import pytest

from fencepost import App, Context
from fencepost.client import Client
from fencepost.db import Database
from tests.laws import doors
from tests.roads.inside import working

app = App("wide", release="dev")

SEQUENCES = """
select quote_ident(schemaname) || '.' || quote_ident(sequencename), data_type::text <> 'bigint'
  from pg_sequences where schemaname = 'fencepost' order by 1"""


@app.step(repeatable=True)
async def double(n: int) -> int:
    return 2 * n


@app.workflow()
async def kid(ctx: Context, n: int) -> int:
    return await ctx.step(double, n)


@app.workflow()
async def everything(ctx: Context) -> list[object]:
    """Steps, rows, a child, a sleep and a signal, through as many legs as it takes."""
    rows = await ctx.map(double, [1, 2, 3], key=str)
    child = await ctx.run_child(kid, 4)
    await ctx.sleep("nap", 0.01)
    return [list(rows), child, await ctx.wait_for("go", int)]


@pytest.mark.parametrize("last", [2**31 - 2, 2**53 - 2], ids=["31 bits", "53 bits"])
async def test_ids_outgrow_no_type_anywhere(
    db: Database, worker_dsn: str, admin: asyncpg.Connection, last: int
) -> None:
    """00.3, B101 Every sequence stands just below the edge: every door answers on either side of it, and no run is another's."""
    sequences = [tuple(row) for row in await admin.fetch(SEQUENCES)]
    assert [name for name, narrow in sequences if narrow] == ["fencepost.lane_lane_seq"], "one number for each release"
    wide = [name for name, narrow in sequences if not narrow]
    assert len(wide) >= 4
    for name in wide:
        await admin.execute("select setval($1::regclass, $2)", name, last)
    await doors.walk(db)
    assert await admin.fetchval("select min(rid) < $1 and max(rid) > $1 from fencepost.run", last + 2)
    async with Client(Database(worker_dsn), "dev") as client, working(app, worker_dsn):
        handles = [await client.start(everything) for _ in range(3)]
        for n, handle in enumerate(handles):
            await handle.signal("go", n)
        for n, handle in enumerate(handles):
            assert await handle.result(timeout=30) == [[2, 4, 6], 8, n]
    assert await admin.fetchval("select count(*) = count(distinct rid) from fencepost.run")
