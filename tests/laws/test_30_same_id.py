"""Chapter 30: an id is its run's in every state that a run can have."""

from __future__ import annotations

from typing import Any

import asyncpg
import pytest

from fencepost import admission, attempts
from fencepost.admission import Admitted, Conflict
from fencepost.db import Database
from tests.support import admit_one, lane_of, launch, look, tables
from tests.support_runs import arm, cancel, claim_by, finish, lose, mark, running, wait

STATES = "queued delayed claimed begun parked backing_off deferred unknown unfit cancelling completed failed cancelled".split()


async def bring(db: Database, admin: asyncpg.Connection, state: str) -> int:
    """The run `mine`, in that state."""
    if state in {"queued", "delayed"}:
        return await admit_one(db, "mine", delay_ms=60_000 if state == "delayed" else None)
    mine = await running(db, "mine")
    if state in {"claimed", "deferred"}:
        if state == "deferred":
            await attempts.defer(db, mine.fence, reason="workflow_missing", dependency="x", delay_ms=60_000)
        return mine.fence.rid
    await attempts.begin(db, mine.fence)
    if state == "parked":
        await wait(db, mine.fence, arm("signal"))
    elif state == "unknown":
        await mark(db, mine.fence)
        await lose(db, await look(admin, mine.fence.rid, "holder"))
        again = await claim_by(db, admin, mine.fence.rid)
        await finish(db, again.fence, "failed")
    elif state in {"cancelling", "cancelled"}:
        await cancel(db, "mine")
        if state == "cancelled":
            await finish(db, mine.fence, "failed")
    elif state == "backing_off":
        await finish(db, mine.fence, "retry", delay_ms=60_000, most_tries=5)
    elif state == "unfit":
        await finish(db, mine.fence, "unfit", digest="d")
    elif state != "begun":
        await finish(db, mine.fence, "completed" if state == "completed" else "failed")
    return mine.fence.rid


@pytest.mark.parametrize("state", STATES)
async def test_the_same_launch_again_is_the_same_run_in_every_state(
    state: str, db: Database, admin: asyncpg.Connection
) -> None:
    """30.2, 30.3, B141 Replayed, another launch is a conflict, and neither changes anything."""
    rid = await bring(db, admin, state)
    before = await tables(admin)
    lane = await lane_of(db)
    one, two = [await ask(db, lane, value) for value in ("null", "2")]
    assert one == Admitted(rid, "replayed", repair_needed=False)
    assert isinstance(two, Conflict)
    assert await tables(admin) == before


async def ask(db: Database, lane: int, value: str) -> Any:
    return (await admission.admit(db, [launch(id="mine", lane=lane, input=value)]))[0]
