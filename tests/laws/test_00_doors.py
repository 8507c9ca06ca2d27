"""Chapter 00: what every door promises."""

from __future__ import annotations

import asyncio
import uuid
from datetime import UTC, datetime
from typing import Any, ClassVar

import asyncpg
import pytest

from fencepost import admission, attempts, terminal
from fencepost.admission import Admitted
from fencepost.db import Database
from fencepost.errors import BrokenLaw, DatabaseUnavailable
from fencepost.ledger import read_run
from fencepost.testing import Clock, raise_at
from tests import catalogue
from tests.laws import doors
from tests.support import admit_one, claim_one, lane_of, launch, look, tables
from tests.support_runs import holding

NOON = datetime(2031, 5, 6, 12, tzinfo=UTC)


# 00.3, 00.4


class Twice(Database):
    """Asks every door a second time, as after a lost reply, and compares what was answered and what stands in the tables."""

    owner: asyncpg.Connection
    # The second answer names the same record in its own word; all other answers are the same.
    NAMES_THE_RECORD: ClassVar = {
        "created": "replayed",
        "started": "replayed",
        "kept": "kept_before",
        "sent": "repeated",
    }
    # Without an id of the sender a repeat is another one (60.3).
    ANOTHER = frozenset({"send_signal", "admit_run"})

    async def _once(self, door: str, args: Any) -> list[Any]:
        first = await super()._once(door, args)
        if door not in self.ANOTHER:
            before = await tables(self.owner)
            second = await super()._once(door, args)
            assert await tables(self.owner) == before, f"{door} asked again changed something"
            assert self._answers(second) == self._answers(first), door
        return first

    def _answers(self, rows: list[Any]) -> list[dict[str, Any]]:
        # How long a claim looked is a fact of the asking: asked again, nobody looks.
        return [self._meaning(row) for row in rows if row.get("answer") != "looked"]

    def _meaning(self, row: Any) -> dict[str, Any]:
        found = dict(row)
        for column in ("answer", *((next(iter(found)),) if len(found) == 1 else ())):
            if isinstance(said := found.get(column), str):
                found[column] = self.NAMES_THE_RECORD.get(said, said)
        if found.get("answer") == "parked":  # whoever parked has nothing to wait for
            found.pop("due_ms")
        if found.get("answer") == "kept_before":  # it carries the record, the first did not
            found = {column: found[column] for column in found if column not in {"state", "value"}}
        return found


async def test_a_door_asked_again_has_no_second_effect_and_gives_the_same_answer(
    worker_dsn: str, admin: asyncpg.Connection, clock: Clock
) -> None:
    """00.3 A whole life of runs, every door asked twice."""
    await clock.set(NOON)
    db = Twice(worker_dsn, connections=2)
    db.owner = admin
    try:
        await doors.walk(db)
    finally:
        await db.close()


NOBODY = uuid.UUID(int=4)


async def test_what_a_caller_can_meet_is_an_answer(db: Database, admin: asyncpg.Connection) -> None:
    """00.4 Every door that takes a fence, a run or a worker is asked about one that never was."""
    lane, rid, none = await lane_of(db), 10**12, [None]
    asked: dict[str, tuple[tuple[Any, ...], object]] = {
        "admit_launch": (("", "x", "n", lane, "dev", "1", "api", None, None, None, None, None, False, 50), "refused"),
        "admit_launches": (
            ([""], ["x"], ["n"], [lane], ["dev"], ["1"], ["api"], none, none, none, none, none, False, 50),
            "refused",
        ),
        "ask_mark": ((rid, "s", 1), None),
        "beat": ((NOBODY, 0, [], [], []), '{"buried": true}'),
        "begin_attempts": (([rid], [NOBODY]), "stale"),
        "begin_steps": (([rid], [NOBODY], none, none, [1], none, ["h"], ["/f"]), "stale"),
        "cancel_run": (("o", "r", "x", 1), "unknown_run"),
        "claim_attempts": ((NOBODY, 1, lane, 1, "", True), "buried"),
        "claim_orphans": ((NOBODY, 1, [rid], None), "buried"),
        "claim_tree": ((NOBODY, 1, rid, 1, True), "buried"),
        "ask_shared": ((rid, NOBODY, "s", 1, "", "k", "e", True, None, "w", False), "stale"),
        "clear_loose": (([rid], [1]), 0),
        "close_incarnation": ((NOBODY,), 0),
        "declare_lost": (("o", "r", "s", "me"), "unknown_run"),
        "defer_attempts": (([rid], [NOBODY], ["capacity"], ["x"], [1]), "stale"),
        "deliver_late": ((rid, NOBODY, "s", 1, True, "1"), "nothing"),
        "end_run": (("o", "r", "me", "x"), "unknown_run"),
        "finish_attempts": (([rid], [NOBODY], ["completed"], ["1"], none, none, none), "stale"),
        "give_back_attempts": (([rid], [NOBODY]), "stale"),
        "judge_bound": (("o", "r"), False),
        "keep_rows": (([rid], [NOBODY], [1], [0], ["kept"], ["1"]), "stale"),
        "keep_steps": (([rid], [NOBODY], ["step"], ["s"], [1], [""], [True], [True], ["1"]), "stale"),
        "lose_step": ((rid, NOBODY, True), "stale"),
        "mark_rows": (([rid], [NOBODY], [1], [0]), "stale"),
        "mark_steps": (([rid], [NOBODY], ["s"], [1], [""], [True], none, [False]), "stale"),
        "note_progress": (([rid], [NOBODY], ["x"]), 0),
        "open_map": ((rid, NOBODY, "m", 1, "", 0, ["k"], ["1"], True, True), "stale"),
        "park_attempts": (([rid], [NOBODY], ["[]"], [0], [True], [None]), "stale"),
        "peek_shared": ((rid, "s", 1), None),
        "read_events": (("o", "r", 0, 10), None),
        "read_input": ((rid,), None),
        "read_run": (("o", "r"), None),
        "read_open_rows": ((1, -1, 10, 10), None),
        "read_row_counts": ((1,), 0),
        "read_run_events": (("o", "r", 0, 10), None),
        "read_run_rows": (("o", "r", None, None, none, 0, -1, 10, 10), None),
        "read_unknown_rows": (("o", "r", 9), None),
        "redrive_run": (("o", "r", "n", None, None, [], "me"), "unknown_run"),
        "register_lane": (("",), "refused_blank"),
        "register_workflows": ((NOBODY, lane, ["w"], ["d"]), 0),
        "resolve_rows": (("o", "r", None, None, ["k"], "again", None, "me"), "unknown_run"),
        "resolve_unknown": (("o", "r", "s", 1, None, "completed", "1", "me"), "unknown_run"),
        "send_signal": (("r", "n"), "unknown_run"),
        "send_signals": ((["o"], ["r"], ["n"], ["d"], ["1"]), "unknown_run"),
        "start_children": (([rid], [NOBODY], ["c"], [1], [""], [True], ["i"], ["n"], ["1"], none), "stale"),
        "wake_askers": ((rid, "s", 1), 0),
        "wake_run": (("o", "r"), "unknown_run"),
        "watch_outcome": (("o", "r", "c"), None),
    }
    before = await tables(admin)
    for door, (args, answer) in asked.items():
        rows = await db.call(door, *args)
        said = rows[0]["answer"] if rows and "answer" in rows[0] else rows[0][0] if rows else None
        assert said == answer, door
    assert await tables(admin) == before, "an answer about nobody changes nothing"
    about_nobody = {
        "open_incarnation",
        "sleep_worker",
        "retain",
        "admit_run",
        "admit_plan",
        "read_boundaries",
        "read_rows",
    }
    rest = {d for d in await catalogue.functions(admin) if not d.endswith("_")} - set(asked) - about_nobody
    assert all(door.startswith("read_") for door in rest), f"a door that is not asked here: {rest}"


# 00.15


class Durable(Database):
    """Says of every door whether its transaction, if it wrote, waits for the disk."""

    hasty: set[str]

    async def _once(self, door: str, args: Any) -> list[Any]:
        async with self.connection() as connection, connection.transaction():
            await connection.execute("set local synchronous_commit = off")
            rows = await self.call_on(connection, door, *args)
            wrote, waits = await connection.fetchrow(
                "select pg_current_xact_id_if_assigned() is not null, current_setting('synchronous_commit') <> 'off'"
            )
            if wrote and not waits:
                self.hasty.add(door)
        return rows


async def test_a_reply_means_durable(worker_dsn: str) -> None:
    """00.15 In a session whose synchronous_commit is off every door that writes turns it on, but for hints (90.3)."""
    db = Durable(worker_dsn, connections=2)
    db.hasty = set()
    await doors.walk(db)
    await db.close()
    hints = {"note_progress", "watch_outcome"}
    assert db.hasty <= hints | {"admit_run"}, "admit_run joins its caller's transaction"


async def test_after_an_ambiguous_commit_the_caller_ends_with_the_true_outcome(
    db: Database, admin: asyncpg.Connection
) -> None:
    """00.15 The reply of a committed door is lost: the same call learns what became of it."""
    await admit_one(db)
    claimed = await claim_one(db)
    with raise_at(
        "statement.executed", ConnectionResetError("lost"), when=lambda facts: facts["door"] == "finish_attempts"
    ):
        ended = await terminal.finish(db, claimed.fence, "completed", "1")
    assert ended == terminal.Ended("committed", "completed")
    known = launch(lane=await lane_of(db))
    with raise_at(
        "statement.executed", ConnectionResetError("lost"), when=lambda facts: facts["door"] == "admit_launch"
    ):
        (answer,) = await admission.admit(db, [known])
    assert isinstance(answer, Admitted)
    assert await admin.fetchval("select count(*) from fencepost.run where id = $1", known.id) == 1


async def test_a_backend_that_is_killed_under_a_call_is_weather(
    db: Database, dsn: str, admin: asyncpg.Connection
) -> None:
    """00.15 The call waits for a row, its backend is ended, and the caller still gets the true answer."""
    await admit_one(db, on_lost="fail")
    claimed = await claim_one(db)
    async with holding(dsn, claimed.fence.rid) as other:
        asked = asyncio.ensure_future(attempts.begin(db, claimed.fence))
        pid = None
        async with asyncio.timeout(10):
            while pid is None:  # each look is a round trip
                pid = await admin.fetchval(
                    "select pid from pg_stat_activity where $1 = any (pg_blocking_pids(pid))", other.get_server_pid()
                )
        assert await admin.fetchval("select pg_terminate_backend($1, 5000)", pid)
    assert await asyncio.wait_for(asked, 20) == "begun"


async def test_a_caller_whose_patience_ends_is_told_that_nobody_knows_here(server: str) -> None:
    """00.15 No invented outcome: DatabaseUnavailable, and the same call may be asked again."""
    db = Database(server.replace("/postgres?", "/there_is_no_such_database?"))
    with pytest.raises(asyncpg.InvalidCatalogNameError):
        await db.call("read_lanes")  # no weather: it will not pass
    await db.close()
    gone = Database("postgresql://postgres@127.0.0.1:1/postgres")
    with pytest.raises(DatabaseUnavailable, match="read_lanes: the database did not answer within"):
        await gone.call("read_lanes", patience=0.2)
    await gone.close()


# 00.16


@pytest.mark.parametrize("output", [None, "null", '"null"', "0"])
async def test_no_output_null_and_json_null_are_told_apart(
    db: Database, admin: asyncpg.Connection, output: str | None
) -> None:
    """00.16, B115 In the table, and in what every reader is given."""
    rid = await admit_one(db, "it")
    claimed = await claim_one(db)
    assert await terminal.watch_outcome(db, "default", "it", None) == terminal.Outcome(rid, "running", None, None)
    assert (await read_run(db, "default", "it"))["output"] is None
    await terminal.finish(db, claimed.fence, "completed", output)
    assert await look(admin, rid, "status", "output", table="outcome") == ("completed", output)
    assert await terminal.watch_outcome(db, "default", "it", None) == terminal.Outcome(rid, "completed", output, None)
    assert (await read_run(db, "default", "it"))["output"] == output
    row = await admin.fetchrow("select status, output, output is null as none from fencepost.runs where rid = $1", rid)
    assert tuple(row) == ("completed", output, output is None)


async def test_the_fence_that_ends_a_run_with_nothing_and_then_with_null_has_broken_the_law(db: Database) -> None:
    """00.16 Also 80.2: nothing is not null."""
    await admit_one(db)
    claimed = await claim_one(db)
    await terminal.finish(db, claimed.fence, "completed", None)
    assert await terminal.finish(db, claimed.fence, "completed", None) == terminal.Ended("committed", "completed")
    with pytest.raises(BrokenLaw):
        await terminal.finish(db, claimed.fence, "completed", "null")
