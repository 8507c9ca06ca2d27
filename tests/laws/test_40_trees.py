"""Law 40.2 where a worker claims one run and its descendants only: everybody below it, and not at the price of all that ever was."""

from __future__ import annotations

from fencepost import attempts, terminal
from fencepost.db import Database
from tests.plan_table import Table, step
from tests.reads import reads_of
from tests.support import new_holder, next_request
from tests.support_runs import child_of, family


async def claim(db: Database, root: int, *, whole: bool) -> list[str]:
    found = await attempts.claim_tree(
        db, await new_holder(db), next_request(), root=root, most=9, patience=30, whole=whole
    )
    return [claimed.id for claimed in found.claimed]


async def test_who_lives_below_a_run_that_has_ended_is_of_the_tree(db: Database) -> None:
    """40.2, 60.10 A child that nobody waits for outlives its parent; a look that must be quick passes it over, and the next finds it."""
    root, child = await family(db, waits=False)
    await child_of(db, child.fence, "left behind", waits=False)
    assert await claim(db, root.fence.rid, whole=False) == ["left behind"], "its parent lives"
    await child_of(db, child.fence, "later", ordinal=2, waits=False)
    await terminal.finish(db, child.fence, "completed", "1")
    assert await claim(db, root.fence.rid, whole=False) == []
    assert await claim(db, root.fence.rid, whole=True) == ["later"]


async def test_a_claim_of_a_plan_that_goes_on_reads_what_lives_and_not_what_was(db: Database, table: Table) -> None:
    """40.2, 70.13 After ten ends and after five hundred, while a step runs."""
    rid = await table.admit("p", step("runs"), *(step(f"s{n:03}") for n in range(600)), most=4)
    await table.one("runs")
    session = table.admin
    reads: dict[int, int] = {}
    for n in range(1, 501):
        (one,) = (await table.claim(1)).values()
        await table.win(one)
        if n in (10, 500):
            holder = await new_holder(db)
            await session.execute("vacuum fencepost.task")  # entries of the dead are not what is counted
            reads[n], rows = await reads_of(session, "claim_tree", holder, 1, rid, 1, False)
            assert len(rows) == 1
            await terminal.finish(
                db, attempts.Fence(rows[0]["rid"], rows[0]["number"], rows[0]["fence"]), "completed", '{"outputs": {}}'
            )
    assert reads[500] < reads[10] * 2 + 20, reads
