"""Chapter 85.5: ended work is done again from what was committed, and nothing is silently done twice."""

from __future__ import annotations

import json

import asyncpg
import pytest

from fencepost import App, Context, recovery, steps, terminal
from fencepost.attempts import Claimed
from fencepost.db import Database
from fencepost.steps import Kept, KeptBefore, OpenMap
from fencepost.suspension import Here
from tests.legs import Driver
from tests.support import admit_one, look, tables
from tests.support_runs import (
    ERROR,
    arm,
    cancel,
    child_of,
    claim_by,
    family,
    finish,
    history,
    keep,
    mark,
    running,
    wait,
)  # fmt: skip

pytestmark = pytest.mark.usefixtures("lawful")


# Redrive


async def redrive(
    db: Database,
    new: str = "new",
    *,
    origin: str = "run",
    start: tuple[str, int] | None = None,
    again: tuple[str, ...] = (),
) -> tuple[str, str | None]:
    return await recovery.redrive(db, "default", origin, new_id=new, from_step=start, again=again, by="ann")


async def rid_of(admin: asyncpg.Connection, run: str) -> int:
    return await admin.fetchval("select rid from fencepost.run where id = $1", run)


async def test_a_redrive_starts_from_the_origins_committed_steps_with_their_keys(
    db: Database, admin: asyncpg.Connection
) -> None:
    """85.5, 50.3 It names its origin; failures are asked again, what is unknown comes along unknown; asked again it is the same run."""
    mine = await running(db, "run", input='{"n": 1}', priority=7)
    await keep(db, mine.fence, "good", '{"a":  1}', repeatable=True)
    await mark(db, mine.fence, "charged")
    await keep(db, mine.fence, "charged", '"ok"')
    await keep(db, mine.fence, "bad", ERROR, ok=False)
    await mark(db, mine.fence, "unknown")
    await wait(db, mine.fence, arm("sleep", "nap", ms=0), arm("signal", "never"), park=False)
    await keep(db, mine.fence, "tag", "true", kind="value", repeatable=True)
    assert await redrive(db) == ("refused", "the run has not ended")
    await finish(db, mine.fence, "unknown")
    await cancel(db, "run")
    assert await redrive(db) == ("created", None)
    assert await redrive(db) == ("replayed", None)
    rid = await rid_of(admin, "new")
    same = ("org", "kind", "name", "lane", "release", "source", "priority", "input", "contract", "on_lost", "key_root")
    assert await look(admin, rid, *same, table="run") == await look(admin, mine.fence.rid, *same, table="run")
    assert await look(admin, rid, "origin", table="run") == mine.fence.rid
    new = await claim_by(db, admin, rid)
    assert [(r[0], r[1], r[3], r[6], r[8]) for r in history(new)] == [
        ("step", "good", "kept", True, '{"a":  1}'), ("step", "charged", "kept", True, '"ok"'), ("step", "unknown", "marked", True, None),
        ("sleep", "nap", "arrived", True, None), ("value", "tag", "kept", True, "true"),
    ]  # fmt: skip
    assert await mark(db, new.fence, "unknown") == "standing"
    assert await mark(db, new.fence, "charged") == "done"
    assert isinstance(await keep(db, new.fence, "bad", "2"), Kept)
    assert await keep(db, new.fence, "good", "9", repeatable=True) == KeptBefore(2, "kept", '{"a":  1}')


async def test_an_id_that_is_taken_or_unusable_is_refused(db: Database, admin: asyncpg.Connection) -> None:
    """85.5, 30.6 And an origin that does not exist, or another organisation's, is not there."""
    await finish(db, (await running(db, "run")).fence)
    await admit_one(db, "taken")
    before = await tables(admin)
    assert (await redrive(db, "taken"))[0] == "refused"
    assert (await redrive(db, " "))[0] == "refused"
    assert (await redrive(db, "run"))[0] == "refused"
    assert (await redrive(db, start=("never", 1)))[0] == "refused"
    assert await redrive(db, origin="nobody") == ("unknown_run", None)
    assert (await recovery.redrive(db, "else", "run", new_id="x", from_step=None, again=[], by="ann"))[
        0
    ] == "unknown_run"
    assert await tables(admin) == before


async def test_starting_earlier_sets_aside_what_came_after_and_repeats_nothing_silently(
    db: Database, admin: asyncpg.Connection
) -> None:
    """85.5 Refused while a step that is not repeatable is among that, kept or unknown, unless each is named."""
    mine = await running(db, "run")
    for name, repeatable in (("one", True), ("two", True), ("pay", False), ("three", True)):
        if not repeatable:
            await mark(db, mine.fence, name)
        await keep(db, mine.fence, name, f'"{name}"', repeatable=repeatable)
    await mark(db, mine.fence, "mail")
    await finish(db, mine.fence)
    answer, why = await redrive(db, start=("two", 1))
    assert answer == "refused"
    assert "mail#1, pay#1" in (why or "")
    assert (await redrive(db, start=("two", 1), again=("pay#1",)))[0] == "refused"
    assert (await redrive(db, start=("two", 1), again=("pay#2", "mail#1")))[0] == "refused"
    assert [r["answer"] for r in await db.call("redrive_run", "default", "run", "x", "two", None, None, "ann")] == [
        "refused"
    ]
    assert await redrive(db, start=("two", 1), again=("pay#1", "mail#1")) == ("created", None)
    assert await redrive(db, "later", start=("three", 1), again=("mail#1",)) == ("created", None)
    assert [r[1] for r in history(await claim_by(db, admin, await rid_of(admin, "new")))] == ["one"]
    assert [r[1] for r in history(await claim_by(db, admin, await rid_of(admin, "later")))] == ["one", "two", "pay"]


async def rows_of(
    db: Database, admin: asyncpg.Connection, claimed: Claimed, name: str = "rows"
) -> tuple[OpenMap, dict[str, str]]:
    opened = await steps.open_map(
        db,
        claimed.fence,
        name,
        1,
        hash="h",
        start=0,
        keys=["a", "b", "c", "d"],
        inputs=["1", "2", "3", "4"],
        repeatable=False,
        whole=True,
    )
    assert isinstance(opened, OpenMap)
    return opened, {row.key: row.state for row in await steps.read_rows(db, opened.mid, -1, 10**6)}


@pytest.mark.parametrize("whole", [False, True])
async def test_a_redrive_repeats_no_row_that_the_origin_committed_or_left_unknown(
    db: Database, admin: asyncpg.Connection, whole: bool
) -> None:
    """85.5, 50.6 Failed rows are done again, unless their map was kept, tolerating them."""
    mine = await running(db, "run")
    opened, _ = await rows_of(db, admin, mine)
    for index in range(3):
        await steps.mark_row(db, mine.fence, opened.mid, index)
    await steps.keep_row(db, mine.fence, opened.mid, 0, "kept", '"A"')
    await steps.keep_row(db, mine.fence, opened.mid, 1, "failed", ERROR)
    if whole:
        await steps.keep_row(db, mine.fence, opened.mid, 2, "kept", '"C"')
        await steps.keep_row(db, mine.fence, opened.mid, 3, "kept", '"D"')
        await keep(db, mine.fence, "rows", "null", kind="map")
    await finish(db, mine.fence, "failed")
    await cancel(db, "run")
    assert await redrive(db) == ("created", None)
    new = await claim_by(db, admin, await rid_of(admin, "new"))
    again, states = await rows_of(db, admin, new)
    assert (again.mid != opened.mid, again.done) == (True, whole)
    if whole:
        assert states == {"a": "kept", "b": "failed", "c": "kept", "d": "kept"}
        return
    assert states == {"a": "kept", "b": "waiting", "c": "marked", "d": "waiting"}
    assert [await steps.mark_row(db, new.fence, again.mid, index) for index in range(4)] == [
        "done",
        "marked",
        "standing",
        "marked",
    ]
    await finish(db, new.fence, "unknown")
    assert await recovery.resolve(
        db, "default", "new", step=None, ordinal=None, row_key="c", verdict="completed", value="1", by="ann"
    ) == ("done", None)  # fmt: skip


async def test_starting_before_a_map_of_rows_that_are_not_repeatable_is_refused_unless_it_is_named(
    db: Database, admin: asyncpg.Connection
) -> None:
    """85.5 Named, every row waits again."""
    mine = await running(db, "run")
    await keep(db, mine.fence, "one", repeatable=True)
    opened, _ = await rows_of(db, admin, mine)
    await steps.keep_row(db, mine.fence, opened.mid, 0, "kept", '"A"')
    await finish(db, mine.fence, "failed")
    assert (await redrive(db, start=("one", 1)))[0] == "refused"
    assert (await redrive(db, start=("rows", 1)))[0] == "refused"
    assert await redrive(db, start=("rows", 1), again=("rows#1",)) == ("created", None)
    new = await claim_by(db, admin, await rid_of(admin, "new"))
    assert [r[1] for r in history(new)] == ["one"]
    assert set((await rows_of(db, admin, new))[1].values()) == {"waiting"}


async def test_a_redrive_brings_the_results_of_children_and_starts_none_twice(
    db: Database, admin: asyncpg.Connection
) -> None:
    """85.5, 60.10 A child that arrived is answered from the record."""
    dad, kid = await family(db, id="run")
    await finish(db, kid.fence, "completed", '"kid"')
    assert isinstance(await wait(db, dad.fence), Here)
    await finish(db, dad.fence, "failed")
    await redrive(db)
    new = await claim_by(db, admin, await rid_of(admin, "new"))
    assert [(r[0], r[1], r[3], r[10]) for r in history(new)] == [("child", "kid", "arrived", kid.fence.rid)]
    assert (await child_of(db, new.fence, "run-1")).how == "replayed"


@pytest.mark.parametrize("id", ["fixed", None], ids=["an id of its own", "the parent's"])
async def test_a_redrive_is_refused_while_a_child_that_was_waited_for_runs_and_has_its_end_afterwards(
    db: Database, admin: asyncpg.Connection, id: str | None
) -> None:
    """85.5, 60.10 Started again it would be in conflict, or done twice at once; its end is the redrive's, once it has come."""
    dad = await running(db, "run")
    name = id or "run/kid/1"
    started = await child_of(db, dad.fence, name)
    await finish(db, dad.fence, "failed")
    kid = await claim_by(db, admin, started.child)
    why = f"children of the run have not ended: {name} (redrive when they have, or cancel them)"
    before = await tables(admin)
    assert await redrive(db) == ("refused", why)
    assert await tables(admin) == before
    await finish(db, kid.fence, "completed", '"kid"')
    assert await redrive(db) == ("created", None)
    assert await redrive(db) == ("replayed", None)
    new = await claim_by(db, admin, await rid_of(admin, "new"))
    (told,) = history(new)
    assert (told[0], told[3], told[10], json.loads(told[8])["output"]) == ("child", "arrived", kid.fence.rid, "kid")
    assert (await child_of(db, new.fence, name)).how == "replayed"
    assert await admin.fetchval("select count(*) from fencepost.run") == 3


async def test_code_that_is_redriven_is_told_the_end_of_the_child_it_had_started_under_an_id_of_its_own(
    db: Database, admin: asyncpg.Connection
) -> None:
    """85.5, 60.10 The run was ended by an operator while it waited; the child ended by itself, once."""
    app = App("redriven")
    driver = Driver(db, app)
    ran: list[int] = []

    @app.step()
    async def pay(n: int) -> int:
        ran.append(n)
        return n * 2

    @app.workflow()
    async def kid(ctx: Context, n: int) -> int:
        return await ctx.step(pay, n)

    @app.workflow()
    async def dad(ctx: Context) -> int:
        return await ctx.run_child(kid, 21, id="the invoice of May")

    await driver.start(dad, id="run")
    assert await driver.run_one_leg() == "parked"
    assert await terminal.end(db, "default", "run", by="ann", reason="not now") == ("done", "failed")
    assert (await redrive(db))[0] == "refused"
    assert await driver.run_one_leg() == "completed"
    assert await redrive(db) == ("created", None)
    await driver.run_until("new", "completed")
    assert await driver.output("new") == 42
    assert ran == [21]


async def test_a_redrive_from_before_a_child_that_runs_is_refused_too(db: Database, admin: asyncpg.Connection) -> None:
    """85.5 What is set aside would be done again beside it; a cancel of the child ends that."""
    dad = await running(db, "run")
    await keep(db, dad.fence, "one", repeatable=True)
    await child_of(db, dad.fence, "kid")
    await finish(db, dad.fence, "failed")
    assert (await redrive(db, start=("one", 1)))[0] == "refused"
    await cancel(db, "kid")
    assert await redrive(db, start=("one", 1)) == ("created", None)
    assert history(await claim_by(db, admin, await rid_of(admin, "new"))) == []


async def test_a_redrive_of_a_redrive_names_the_one_before(db: Database, admin: asyncpg.Connection) -> None:
    """85.5 And keeps the first one's keys."""
    await finish(db, (await running(db, "run")).fence, "failed")
    await redrive(db, "second")
    await cancel(db, "second")
    assert await redrive(db, "third", origin="second") == ("created", None)
    roots = {await look(admin, await rid_of(admin, run), "key_root", table="run") for run in ("run", "second", "third")}
    assert len(roots) == 1
    assert await look(admin, await rid_of(admin, "third"), "origin", table="run") == await rid_of(admin, "second")
