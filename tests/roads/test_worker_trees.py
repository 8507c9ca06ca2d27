"""A worker that runs one run and its descendants: what an end lets go on begins at once, and nobody waits for its look-about."""

from __future__ import annotations

import asyncpg
import pytest

from fencepost import App, Client, Context, Plan
from fencepost.db import Database
from fencepost.worker import claims
from tests.roads.crew import until_row
from tests.roads.inside import working
from tests.support import admit_one, look

app = App("trees", release="dev")


@app.workflow()
async def nothing(ctx: Context) -> int:
    return 1


@app.workflow()
async def above(ctx: Context) -> int:
    return await ctx.run_child(nothing) + await ctx.run_child(nothing)


@pytest.fixture(autouse=True)
def far_apart(monkeypatch: pytest.MonkeyPatch) -> None:
    """Between two looks for nothing."""
    monkeypatch.setattr(claims, "TREE_POLL_SECONDS", 600.0)


async def until_ended(admin: asyncpg.Connection, rid: int) -> str:
    return str(
        await until_row(lambda: admin.fetchval("select status from fencepost.outcome where rid = $1", rid), "its end")
    )


async def test_the_next_step_of_a_chain_is_claimed_with_the_end_of_the_last(
    worker_dsn: str, db: Database, admin: asyncpg.Connection
) -> None:
    """70.12, 40.2 Twelve steps after each other, and no look-about between them."""
    plan, last = Plan("chain"), None
    for n in range(12):
        last = plan.workflow(f"s{n}", nothing, needs=[last] if last else [])
    client = Client(db, "dev")
    await client.start_plan(plan, id="p")
    rid = await admin.fetchval("select rid from fencepost.run where id = 'p'")
    async with working(app, worker_dsn, only=rid):
        assert await until_ended(admin, rid) == "completed"


async def test_a_child_is_claimed_when_its_parent_parks_and_the_parent_when_the_child_ends(
    worker_dsn: str, db: Database, admin: asyncpg.Connection
) -> None:
    """60.10, 40.2 Two children, one after the other."""
    other, rid = await admit_one(db, name="nothing"), await admit_one(db, name="above")
    async with working(app, worker_dsn, only=rid):
        assert await until_ended(admin, rid) == "completed"
    assert await look(admin, other) == "queued"
