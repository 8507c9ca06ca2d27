"""Law 97.1 for the doors there are: another organisation's run is met exactly as one that does not exist."""

from __future__ import annotations

from typing import Any

import asyncpg
import pytest

from fencepost import attempts, steps
from fencepost.db import Database
from tests.support import tables
from tests.support_runs import lose, mark, running, send

# Door -> its arguments for a run of an organisation. A door that takes an organisation and is not here is a fault of this list.
DOORS: dict[str, Any] = {
    "cancel_run": lambda org, run: (org, run, "enough", 1000),
    "end_run": lambda org, run: (org, run, "me", "enough"),
    "judge_bound": lambda org, run: (org, run),
    "watch_outcome": lambda org, run: (org, run, "nobody"),
    "wake_run": lambda org, run: (org, run),
    "resolve_unknown": lambda org, run: (org, run, "pay", 1, None, "completed", "1", "me"),
    "resolve_rows": lambda org, run: (org, run, "m", 1, ["a"], "completed", "1", "me"),
    "redrive_run": lambda org, run: (org, run, "anew", None, None, [], "me"),
    "read_run": lambda org, run: (org, run),
    "read_run_rows": lambda org, run: (org, run, "m", 1, None, 0, -1, 100, 100_000),
    "read_unknown_rows": lambda org, run: (org, run, 100),
    "read_events": lambda org, run: (org, run, 0, 100),
    "read_run_events": lambda org, run: (org, run, 0, 100),
    "send_signals": lambda org, run: ([org], [run], ["go"], ["k"], ["1"]),
    "send_signal": lambda org, run: (run, "go", "1", "k", org),
}
# They take an organisation and no run: what they make or list is that organisation's.
# What has nothing to say of one's own run then either.
SAY_NOTHING = {("read_unknown_rows", "running"), ("read_unknown_rows", "queued")}
OF_AN_ORGANISATION = {"admit_launch", "admit_launches", "admit_run", "admit_plan", "read_runs"}
OF_A_PLAN = {"read_plan", "read_result", "declare_lost"}  # test_70_sight.py tries them, on a plan
# A worker's: it takes the work of every organisation of its lane, and says from where.
OF_EVERY_ORGANISATION = {"claim_attempts"}


async def doors_of_organisations(admin: asyncpg.Connection) -> dict[str, list[str]]:
    """Every door with an organisation among its arguments -> those."""
    rows = await admin.fetch(
        """select proname, proargnames[1:pronargs] from pg_proc
            where pronamespace = 'fencepost'::regnamespace and right(proname, 1) <> '_'
              and proargnames[1:pronargs] && array['_org', '_orgs', 'org', 'orgs']"""
    )
    return {row[0]: list(row[1]) for row in rows}


async def test_every_door_that_names_an_organisation_is_tried_here(admin: asyncpg.Connection) -> None:
    """97.1, B133 So that a new one is, too."""
    assert (
        set(await doors_of_organisations(admin)) == set(DOORS) | OF_AN_ORGANISATION | OF_A_PLAN | OF_EVERY_ORGANISATION
    )


@pytest.mark.parametrize("state", ["queued", "running", "unknown"])
@pytest.mark.parametrize("door", DOORS)
async def test_anothers_run_is_as_good_as_none(door: str, state: str, db: Database, admin: asyncpg.Connection) -> None:
    """97.1, B133 The same answer, the same nothing in the tables."""
    mine = await running(db, "mine", org="acme", on_lost="ask")
    await attempts.begin(db, mine.fence)
    await mark(db, mine.fence)
    made = await steps.open_map(
        db, mine.fence, "m", 1, hash="h", start=0, keys=["a"], inputs=["1"], repeatable=False, whole=True
    )
    assert isinstance(made, steps.OpenMap)
    await steps.mark_row(db, mine.fence, made.mid, 0)
    holder = await admin.fetchval("select holder from fencepost.task")
    if state == "unknown":
        await lose(db, holder)
    elif state == "queued":
        await admin.execute("delete from fencepost.boundary")
        await lose(db, holder)
        await db.call("wake_run", "acme", "mine")
    before = await tables(admin)
    args = DOORS[door]
    there = await db.call(door, *args("other", "mine"))
    nowhere = await db.call(door, *args("other", "nowhere"))
    assert [tuple(row.values()) for row in there] == [tuple(row.values()) for row in nowhere]
    assert await tables(admin) == before
    assert len(await db.call("read_runs", "other", None, None, None, 100)) == 0
    if (door, state) not in SAY_NOTHING and door != "judge_bound":
        own = await db.call(door, *args("acme", "mine"))
        assert [tuple(row.values()) for row in own] != [tuple(row.values()) for row in nowhere], "it was no question"


async def test_the_same_id_is_another_run_in_each_organisation(db: Database, admin: asyncpg.Connection) -> None:
    """97.1, B133"""
    for org in ("acme", "other"):
        await running(db, "same", org=org)
    await send(db, "same", org="acme")
    found = await admin.fetch("select r.org from fencepost.signal s join fencepost.run r using (rid)")
    assert [row[0] for row in found] == ["acme"]
