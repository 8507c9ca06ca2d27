"""Chapter 69: what the rows of a plan can never look like, whoever writes them."""

from __future__ import annotations

import asyncpg
import pytest

from fencepost import plans
from tests.plan_table import Table, step
from tests.support import look


@pytest.mark.parametrize(
    "changed",
    [
        "kind = 'dance'",
        "state = 'dancing'",
        "outcome = 'so so'",
        "state = 'succeeded', outcome = 'success'",
        "state = 'failed', outcome = 'failure'",
        "ended_at = now()",
        "state = 'succeeded', outcome = 'failure', ended_at = now()",
        "state = 'waiting'",
        "due_at = now()",
        "child = null",
        "state = 'unknown', child = null",
        "try = 0",
        "state = 'blocked', needs = 0",
        "needs = -1",
    ],
)
async def test_no_row_of_a_step_looks_like_nothing_that_can_be(table: Table, changed: str) -> None:
    """00.2 Not even its owner can write it: an end has its hour, a delay too, a step that runs its try."""
    rid = await table.admit("p", step("a"))
    with pytest.raises(asyncpg.CheckViolationError):
        await table.admin.execute(f"update fencepost.step set {changed} where rid = $1", rid)


@pytest.mark.parametrize(
    "changed", ["flying = 3", "flying = -1", "open = -1", "unknown = 2", "unknown = -1", "most = 0"]
)
async def test_more_tries_than_slots_are_impossible(table: Table, changed: str) -> None:
    """70.4 Nor fewer than none, nor more unknown ones than live."""
    rid = await table.admit("p", step("a"), step("b"), step("c"), most=2)
    await table.win(await table.one("a"))
    assert await look(table.admin, rid, "flying", "unknown", "most", table="plan") == (2, 0, 2)
    if changed == "unknown = 2":
        await table.win(await table.one("b"))
    with pytest.raises(asyncpg.CheckViolationError):
        await table.admin.execute(f"update fencepost.plan set {changed} where rid = $1", rid)


async def test_a_step_has_one_result_of_a_name(table: Table) -> None:
    """70.6 The key is the law: a second one cannot be written beside it."""
    rid = await table.admit("p", step("a"), step("b"))
    await table.win(await table.one("a"), o="1")
    with pytest.raises(asyncpg.UniqueViolationError):
        await table.admin.execute("insert into fencepost.result select * from fencepost.result where rid = $1", rid)
    found = await plans.read_result(table.db, "default", "p", "a", "o")
    assert found is not None
    assert found.text == "1"


async def test_an_id_is_one_steps_and_a_number_too(table: Table) -> None:
    """70.1 Two steps of one name, or of one place, are no plan."""
    rid = await table.admit("p", step("a"), step("b"))
    for changed in ("id = 'a'", "no = 1"):
        with pytest.raises(asyncpg.UniqueViolationError):
            await table.admin.execute(f"update fencepost.step set {changed} where rid = $1 and id = 'b'", rid)
