"""What plans leave on disk goes when their runs are forgotten; an operator who ends a plan ends its tries."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from pathlib import Path

import asyncpg

from fencepost import attempts, lanes, ledger, plans, retention, terminal
from fencepost.db import Database
from fencepost.testing import Clock
from fencepost.worker.commands import attempt_name
from fencepost.worker.stepleg import Workshop
from tests.support import admit_one, new_holder

NOON = datetime(2031, 5, 6, 12, tzinfo=UTC)
PLAN = """{"name": "p", "max_concurrency": 2, "steps": [
  {"id": "a", "kind": "command", "needs": [], "handoffs": [], "retry": {"max_attempts": 1, "on": []}, "on_lost": "fail"},
  {"id": "b", "kind": "command", "needs": [{"step": "a"}], "handoffs": [], "retry": {"max_attempts": 1, "on": []}, "on_lost": "fail"}]}"""


async def admit_plan(db: Database, run_id: str) -> int:
    lane = await lanes.register(db, "dev")
    made = await plans.admit(
        db, org="default", run_id=run_id, name="p", lane=lane.lane, release="dev", source="program", definition=PLAN
    )
    assert made.rid is not None
    return made.rid


async def test_files_of_forgotten_runs_are_removed_and_no_others(db: Database, tmp_path: Path) -> None:
    """95.1 Neither those of known runs, nor another installation's that shares the disk, nor what is no attempt's folder."""
    known = await admit_one(db)
    workshop = Workshop(db, tmp_path)
    ours = str((await ledger.read_installation(db))["installation"]).replace("-", "")[:12]
    stay = [attempt_name(ours, known, 1), attempt_name("0" * 12, 999, 1), "notes", f"{ours}-x-1"]
    go = [attempt_name(ours, 999, 1), attempt_name(ours, 999, 2)]
    for name in [*stay, *go]:
        (workshop.attempts / name).mkdir(parents=True)
    for key in (f"{ours}-{known}", f"{ours}-999", "0" * 12 + "-999"):
        workshop.store.put(key, b"kept")
    assert await workshop.sweep() == 3
    assert sorted(one.name for one in workshop.attempts.iterdir()) == sorted(stay)
    assert workshop.store.keys() == sorted([f"{ours}-{known}", "0" * 12 + "-999"])
    assert await workshop.sweep() == 0


async def test_a_try_is_known_as_long_as_its_plan_is(db: Database, admin: asyncpg.Connection, clock: Clock) -> None:
    """95.1, 70.6 A result names what its try kept: a plan that took longer than the policy still has the files of its first step."""
    await clock.set(NOON)
    rid = await admit_plan(db, "slow")
    holder = await new_holder(db)
    (first,) = (await attempts.claim(db, holder, 1, lane=1, most=1, cursor="", alone=True, patience=9)).claimed
    await terminal.finish(db, first.fence, "completed", '{"outputs": {}}')
    await clock.advance(timedelta(days=40))
    await db.call("beat", holder, 1, [], [], [])
    (second,) = (await attempts.claim(db, holder, 2, lane=1, most=1, cursor="", alone=True, patience=9)).claimed
    await terminal.finish(db, second.fence, "completed", '{"outputs": {}}')
    assert await retention.retain(db) == (0, 0)
    assert await retention.known(db, [rid, first.fence.rid, 999]) == {rid, first.fence.rid}
    await clock.advance(timedelta(days=31))
    assert await retention.retain(db) == (0, 1)
    assert await retention.retain(db) == (0, 2), "then its tries"
    left = "select (select count(*) from fencepost.step) + (select count(*) from fencepost.definition) + (select count(*) from fencepost.run)"
    assert await admin.fetchval(left) == 0


async def test_an_operator_who_ends_a_plan_ends_its_tries(db: Database) -> None:
    """80.6, 70.12 Nothing of an ended plan runs on, and no further step begins."""
    await admit_plan(db, "p1")
    holder = await new_holder(db)
    (first,) = (await attempts.claim(db, holder, 1, lane=1, most=1, cursor="", alone=True, patience=9)).claimed
    carrier = plans.Carrier("boot", "4026531836", 1, "1", "host", "/folder")
    assert isinstance(await plans.begin(db, first.fence, carrier), str)
    assert await terminal.end(db, "default", "p1", by="me", reason="wrong plan") == ("done", "failed")
    assert await terminal.end(db, "default", "p1/a/1", by="me", reason="wrong plan") == ("done", "failed"), (
        "ended with it"
    )
    seen = await plans.read(db, "default", "p1")
    assert seen is not None
    assert (seen["status"], [step["state"] for step in seen["steps"]]) == ("failed", ["cancelled", "cancelled"])
    claim = await attempts.claim(db, holder, 2, lane=1, most=9, cursor="", alone=True, patience=9)
    assert claim.claimed == ()
