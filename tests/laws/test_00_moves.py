"""Chapter 00: the moves a state may make, and the shapes it may have."""

from __future__ import annotations

import itertools

import asyncpg
import pytest

from fencepost import words
from fencepost.db import Database
from tests.support import admit_one, claim_one, look

# 00.2

FENCED = {"fence": "gen_random_uuid()", "holder": "gen_random_uuid()", "claimed_at": "now()", "request": "1"}
PLAIN = dict.fromkeys(
    "fence holder claimed_at request due_at claim_by park unknown cancel_until code_digest".split(), "null"
) | {"begun": "false"}
SHAPES = {
    state: ", ".join(f"{column} = {value}" for column, value in (PLAIN | changed).items())
    for state, changed in {
        "queued": {},
        "running": FENCED,
        "parked": {"park": "'wait'"},
        "cancelling": {"cancel_until": "now()"},
        "unknown": {"unknown": "'RUNNER_LOST'"},
    }.items()
}
F = ", ".join(f"{column} = {value}" for column, value in FENCED.items())
NO_F = ", ".join(f"{column} = null" for column in FENCED)


async def force(admin: asyncpg.Connection, rid: int, state: str) -> None:
    """Put a task into a state, as nobody can: the trigger is off."""
    await admin.execute("alter table fencepost.task disable trigger user")
    await admin.execute(f"update fencepost.task set {SHAPES[state]}, state = $2 where rid = $1", rid, state)
    await admin.execute("alter table fencepost.task enable trigger user")


async def leave(admin: asyncpg.Connection, rid: int, status: str | None) -> None:
    async with admin.transaction():
        if status:
            await admin.execute(
                "insert into fencepost.outcome (rid, status, error, number, tries, seq, ended_at) values ($1, $2, $3, 0, 0, 9, now())",
                rid, status, "{}" if status == "failed" else None,
            )  # fmt: skip
        await admin.execute("delete from fencepost.task where rid = $1", rid)


async def test_a_move_that_is_no_row_of_the_table_is_refused_whoever_asks(
    db: Database, admin: asyncpg.Connection
) -> None:
    """00.2 Every pair of states is tried, by the owner, in the shape that the new state wants; those of the table pass."""
    lawful = {(row["was"], row["becomes"]) for row in await admin.fetch("select was, becomes from fencepost.move")}
    tried = 0
    for was, becomes in itertools.permutations([*SHAPES, *sorted(words.TERMINAL)], 2):
        if was in words.TERMINAL:
            continue
        rid = await admit_one(db)
        await force(admin, rid, was)
        if becomes in words.TERMINAL:
            move = leave(admin, rid, becomes)
        else:
            move = admin.execute(
                f"update fencepost.task set {SHAPES[becomes]}, state = $2 where rid = $1", rid, becomes
            )
        if (was, becomes) in lawful:
            await move
        else:
            with pytest.raises(asyncpg.PostgresError) as refused:
                await move
            assert refused.value.sqlstate == "LW001", (was, becomes)
            assert f"{was} -> {becomes}" in str(refused.value)
            assert await look(admin, rid, "state") == was
        tried += 1
    assert tried == 35


@pytest.mark.parametrize("state", SHAPES)
async def test_a_run_leaves_only_to_an_outcome(db: Database, admin: asyncpg.Connection, state: str) -> None:
    """00.2 A task deleted without a terminal beside it would be a run that nobody remembers to end."""
    rid = await admit_one(db)
    await force(admin, rid, state)
    with pytest.raises(asyncpg.PostgresError) as refused:
        await leave(admin, rid, None)
    assert refused.value.sqlstate == "LW001"


@pytest.mark.parametrize("change", ["number = number - 1", "seq = seq - 1", "rid = rid + 1000"])
async def test_numbers_only_grow_and_a_row_stays_its_runs(db: Database, admin: asyncpg.Connection, change: str) -> None:
    """00.2 Also 40.2: a number that was used is never used again."""
    claimed = await claim_one(db, request=1) if await admit_one(db) else None
    assert claimed
    with pytest.raises(asyncpg.PostgresError) as refused:
        await admin.execute(f"update fencepost.task set {change} where rid = $1", claimed.fence.rid)
    assert refused.value.sqlstate == "LW002"


ILLEGAL = {
    "a queued run with a fence": ("queued", F),
    "a running one without": ("running", NO_F),
    "a parked one with": ("parked", F),
    "an unknown one with": ("unknown", F),
    "a fence of nobody": ("running", "holder = null"),
    "a holder without a fence": ("queued", "holder = gen_random_uuid()"),
    "a fence that was never claimed": ("running", "claimed_at = null"),
    "a fence of no request": ("running", "request = null"),
    "begun by nobody": ("queued", "begun = true"),
    "parked on nothing": ("parked", "park = null"),
    "parked on something else": ("parked", "park = 'whim'"),
    "a wait of a running one": ("running", "park = 'wait'"),
    "unknown without a reason": ("unknown", "unknown = null"),
    "a reason without unknown": ("queued", "unknown = 'RUNNER_LOST'"),
    "cancelling for ever": ("cancelling", "cancel_until = null"),
    "a grace of a running one": ("running", "cancel_until = now()"),
    "a timer of a running one": ("running", "due_at = now()"),
    "a timer of an unknown one": ("unknown", "due_at = now()"),
    "a timer of a cancelling one": ("cancelling", "due_at = now()"),
    "a timer of one parked on its code": ("parked", "park = 'code', due_at = now()"),
    "a code digest without that park": ("parked", "code_digest = 'x'"),
    "a claim bound after the claim": ("running", "claim_by = now()"),
    "a claim bound after a claim": ("queued", "claim_by = now(), number = 1"),
    "more tries than attempts": ("queued", "tries = number + 1"),
    "fewer than no losses": ("queued", "losses = -1"),
    "an unheard-of state": ("queued", "state = 'lost'"),
    "an unheard-of rule of loss": ("queued", "on_lost = 'hope'"),
}


async def test_a_shape_that_is_not_legal_is_impossible(db: Database, admin: asyncpg.Connection) -> None:
    """00.2 By constraint: no trigger and no door is asked."""
    for shape, (state, change) in ILLEGAL.items():
        rid = await admit_one(db)
        await force(admin, rid, state)
        await admin.execute("alter table fencepost.task disable trigger user")
        try:
            await admin.execute(f"update fencepost.task set {change} where rid = $1", rid)
        except (asyncpg.CheckViolationError, asyncpg.NotNullViolationError):
            continue
        pytest.fail(f"{shape} was possible")


RECORDS = {
    "boundary": "(rid, kind, name, ordinal, state, opened_seq, seq, number, at) "
    "values (1, {kind}, 'n', {ordinal}, {state}, {opened}, {seq}, 1, now())",
    "outcome": "(rid, status, output, error, number, tries, seq, ended_at) "
    "values (1, {status}, {output}, {error}, 1, 0, 1, now())",
    "attempt": "(rid, number, fence, holder, claimed_at, ended_at, ended, begun) "
    "values (1, {number}, gen_random_uuid(), gen_random_uuid(), now(), now(), {ended}, true)",
}
LEGAL: dict[str, dict[str, str]] = {
    "boundary": {"kind": "'step'", "ordinal": "1", "state": "'kept'", "opened": "null", "seq": "2"},
    "outcome": {"status": "'completed'", "output": "'1'", "error": "null"},
    "attempt": {"number": "1", "ended": "'finished'"},
}


@pytest.mark.parametrize(
    ("table", "changed"),
    [
        ("boundary", {"kind": "'dream'"}), ("boundary", {"state": "'lost'"}), ("boundary", {"ordinal": "0"}),
        ("boundary", {"seq": "null"}), ("boundary", {"state": "'marked'", "opened": "2"}),
        ("boundary", {"state": "'armed'", "seq": "null"}),
        ("outcome", {"status": "'lost'", "output": "null"}), ("outcome", {"status": "'failed'", "output": "null"}),
        ("outcome", {"error": "'{}'"}), ("outcome", {"status": "'cancelled'"}),
        ("attempt", {"number": "0"}), ("attempt", {"ended": "'tired'"}),
    ],
)  # fmt: skip
async def test_a_record_of_a_shape_that_is_not_legal_is_impossible(
    admin: asyncpg.Connection, table: str, changed: dict[str, str]
) -> None:
    """00.2 Of boundaries, outcomes and attempts too; the legal one beside it is let in."""
    insert = f"insert into fencepost.{table} {RECORDS[table]}"
    await admin.execute(insert.format(**LEGAL[table]))
    await admin.execute(f"delete from fencepost.{table}")
    with pytest.raises(asyncpg.CheckViolationError):
        await admin.execute(insert.format(**(LEGAL[table] | changed)))
