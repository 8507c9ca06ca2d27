"""Chapters 70, 85, 86: the ceiling of opaque work, an operator's word of it, and what silence may not do to it."""

from __future__ import annotations

import asyncio
import json
from datetime import UTC, datetime, timedelta

import asyncpg
import pytest

from fencepost import attempts, plans, terminal
from fencepost.errors import BrokenLaw
from fencepost.terminal import Ended
from fencepost.testing import Clock
from tests.plan_table import Table, failure, maybe, result, retry, step
from tests.support import look, new_holder, tables
from tests.support_runs import beat, cancel, lose

pytestmark = pytest.mark.usefixtures("lawful")

NOON = datetime(2031, 5, 6, 12, tzinfo=UTC)
HOUR = 3600
SILENT = ("incarnation", "sleeper")  # what a beat may write although nothing happened


# ── the ceiling ──────────────────────────────────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize(("timeout", "seconds"), [(None, 6 * HOUR + 60), (1000, 61), (86_400_000, 86_460)])
async def test_silent_past_its_ceiling_it_is_lost(
    table: Table, clock: Clock, timeout: int | None, seconds: int
) -> None:
    """70.10 Its time-out, or six hours, and a minute: counted from its begin on the database's clock, and not a millisecond less."""
    await clock.set(NOON)
    await table.admit("p", step("a", timeout_ms=timeout), step("b", maybe("a")))
    await table.orphan("a")
    await clock.set(NOON + timedelta(seconds=seconds, milliseconds=-1))
    me = await new_holder(table.db)
    assert (await table.beat(me)).reaped == 0
    await clock.set(NOON + timedelta(seconds=seconds))
    assert (await table.beat(me)).reaped == 1
    seen = (await table.steps("p"))["a"]
    assert (seen["state"], seen["outcome"], seen["reason"]) == (
        "failed", "lost", "attempt 1 was lost (ceiling_passed)",
    )  # fmt: skip
    assert (await table.beat(me)).reaped == 0
    assert (await table.one("b", holder=me)).id == "p/b/1"


async def test_a_worker_that_lives_has_a_lease_more(table: Table, clock: Clock) -> None:
    """85.3 It ends its process at the ceiling itself, and says so; only when it has said nothing for a lease is the attempt lost."""
    await clock.set(NOON)
    await table.admit("p", step("a", timeout_ms=1000))
    claimed = await table.one("a")
    await table.begin(claimed)
    for seconds, reaped in ((61, 0), (29.9, 0), (0.1, 1)):
        await clock.advance(seconds)
        assert (await table.beat(held=[claimed.fence])).reaped == reaped
    assert (await table.steps("p"))["a"]["outcome"] == "lost"


async def test_a_locked_ceiling_hides_no_other(table: Table, clock: Clock, dsn: str) -> None:
    """85.6 A hundred that somebody has locked, older than the one that can be reaped."""
    await clock.set(NOON)
    await table.admit("p", *(step(f"s{n}", timeout_ms=1000 + n) for n in range(101)), most=101)
    gone = await new_holder(table.db)
    claimed = await table.claim(101, holder=gone)
    for c in claimed.values():
        await table.begin(c)
    await table.admit("q", step("z", timeout_ms=5000))
    z = await table.one("z", holder=gone)
    await table.begin(z)
    await lose(table.db, gone)
    await clock.advance(HOUR)
    connection = await asyncpg.connect(dsn)
    try:
        async with connection.transaction():
            await connection.execute(
                "select from fencepost.task where rid = any ($1) for update", [c.fence.rid for c in claimed.values()]
            )
            me = await new_holder(table.db)
            assert (await table.beat(me)).reaped == 1
    finally:
        await connection.close()
    assert await table.status("q") == "failed"
    for _ in range(2):
        await table.beat(me)
    assert await table.status("p") == "failed"


async def test_an_adoption_past_the_ceiling_has_a_lease(table: Table, clock: Clock, dsn: str) -> None:
    """85.2 While it is being adopted a sweep steps back, and afterwards its worker has a lease to say what became of it."""
    await clock.set(NOON)
    await table.admit("p", step("a", timeout_ms=1000))
    claimed = await table.orphan("a")
    await clock.advance(61)
    me, other = await new_holder(table.db), await new_holder(table.db)
    connection = await asyncpg.connect(dsn)
    try:
        transaction = connection.transaction()
        await transaction.start()
        adopted = await connection.fetch(
            "select * from fencepost.claim_orphans($1, 1, $2, null)", other, [claimed.fence.rid]
        )
        assert len(adopted) == 1
        assert (await table.beat(me)).reaped == 0, "somebody has it"
        await transaction.commit()
    finally:
        await connection.close()
    assert (await table.beat(me)).reaped == 0
    assert await table.states("p") == {"a": "running"}


# ── an operator's word ───────────────────────────────────────────────────────────────────────────────────────────────


async def test_an_operator_may_say_that_a_process_is_gone(table: Table) -> None:
    """70.10 When its worker is: the host is gone, and nobody can look. Said twice it is said once."""
    await table.admit("p", step("a"), step("b", "a"))
    claimed = await table.orphan("a")
    for _ in range(2):
        assert await plans.declare_lost(table.db, "default", "p", "a", by="me") == ("done", None)
    seen = (await table.steps("p"))["a"]
    assert (seen["outcome"], seen["reason"]) == ("lost", "attempt 1 was lost (operator)")
    assert await table.story("p/a/1", "run.resolved") == [("run.resolved",)]
    assert await table.win(claimed) == Ended("already_terminal", "failed")
    assert (await plans.declare_lost(table.db, "default", "p", "a", by="you"))[0] == "refused"


async def test_what_an_operator_says_follows_on_lost(table: Table) -> None:
    """85.7 Declared lost is lost: it is run again where that was declared; the same word again loses no second attempt."""
    await table.admit("p", step("a", on_lost="replay"))
    await table.orphan("a")
    assert await plans.declare_lost(table.db, "default", "p", "a", by="me") == ("done", None)
    again = await table.one("a")
    await table.begin(again)
    assert (await plans.declare_lost(table.db, "default", "p", "a", by="me"))[0] in {"done", "refused"}
    assert await table.win(again) == Ended("committed", "completed")


async def test_an_operators_word_is_refused_where_it_can_be_known(table: Table) -> None:
    """70.10 While its worker lives, before it has begun, when it has ended, while it waits; with the reason each time."""
    await table.admit("p", step("a"), step("b", "a"), step("c"))
    lost = plans.declare_lost
    nothing = "no process of this step runs, as far as anybody knows"
    assert await lost(table.db, "default", "p", "b", by="me") == ("refused", nothing)
    assert await lost(table.db, "default", "p", "a", by="me") == ("refused", nothing)
    claimed = await table.one("a")
    assert await lost(table.db, "default", "p", "a", by="me") == ("refused", nothing)
    await table.begin(claimed)
    answer, why = await lost(table.db, "default", "p", "a", by="me")
    assert (answer, why) == ("refused", "its worker is alive and looks after it: cancel the plan, or stop the worker")
    await table.win(claimed)
    assert await lost(table.db, "default", "p", "a", by="me") == ("refused", nothing)
    for run, name in (("p", "nobody"), ("nobody", "a")):
        assert await lost(table.db, "default", run, name, by="me") == ("unknown_run", None)


# ── what a loss may not do ───────────────────────────────────────────────────────────────────────────────────────────


async def test_a_thousand_beats_are_no_event(table: Table) -> None:
    """90.1 Of a plan with steps that run, wait and are orphans: nothing is written but who was heard."""
    await table.admit("p", step("a", retry=retry(2, first=HOUR * 1000)), step("b"), step("c"), step("d"))
    await table.fail((await table.claim(1))["a"])
    await table.orphan("b", boot_id="far")
    claimed = await table.one("c")
    await table.begin(claimed)
    await table.beat(held=[claimed.fence])
    before = await tables(table.admin, without=SILENT)
    for _ in range(10):
        await asyncio.gather(*(beat(table.db, table.me, held=[claimed.fence]) for _ in range(100)))
    assert await tables(table.admin, without=SILENT) == before


async def test_a_leg_that_has_begun_cannot_defer(table: Table) -> None:
    """40.13 Its process may have run: there is no proof that it did not, whatever on_lost says."""
    await table.admit("p", step("a", on_lost="replay"))
    claimed = await table.one("a")
    await table.begin(claimed)
    with pytest.raises(BrokenLaw, match="LW401"):
        await attempts.defer(table.db, claimed.fence, reason="workflow_missing", dependency="x", delay_ms=1)
    assert await look(table.admin, claimed.fence.rid, "fence") == claimed.fence.fence


async def test_a_cancelled_orphan_is_adopted_and_stopped_or_fenced_out_after_the_grace(
    table: Table, clock: Clock
) -> None:
    """80.4, 70.11 It is still told to whoever can look at it; when nobody comes, the grace ends it."""
    await clock.set(NOON)
    await table.admit("p", step("a"))
    claimed = await table.orphan("a")
    assert await cancel(table.db, "p", grace=30) == ("accepted", "cancelling")
    assert (await table.beat()).orphans == (claimed.fence.rid,)
    (adopted,) = await table.adopt(claimed.fence.rid)
    answer = await table.beat(held=[adopted.fence])
    assert [c.rid for c in answer.cancel] == [claimed.fence.rid]
    await clock.advance(30)
    await table.beat(held=[adopted.fence])
    assert await table.status("p") == "cancelled"
    assert await terminal.finish(table.db, adopted.fence, "failed", failure()) == Ended("already_terminal", "cancelled")


async def test_proof_of_death_in_a_cancelled_plan_ends_it(table: Table) -> None:
    """80.4 Nothing is run again, whatever on_lost says; the code is confirmed stopped, so it need not wait for the grace."""
    for n, (on_lost, begun) in enumerate((o, b) for o in ("fail", "replay", "ask") for b in (True, False)):
        id = f"p{n}"
        await table.admit(id, step("a", on_lost=on_lost), step("b", "a"))
        claimed = await table.orphan("a")
        await cancel(table.db, id)
        (adopted,) = await table.adopt(claimed.fence.rid)
        assert await plans.lose(table.db, adopted.fence, begun=begun) == ("lost" if begun else "given_back")
        assert (await table.status(id), await table.states(id)) == ("cancelled", {"a": "cancelled", "b": "cancelled"})


async def test_the_result_of_resolving_is_read_by_those_who_wait(table: Table) -> None:
    """70.12 An unknown step resolved: its value is its result, in the transaction that resolves it; and the audit is kept."""
    await table.admit("p", step("a", on_lost="ask"), step("b", "a"))
    claimed = await table.one("a")
    await table.begin(claimed)
    await plans.lose(table.db, claimed.fence, begun=True)
    assert await table.resolve("p/a/1", "completed", result({"o": "1"})) == ("done", None)
    assert (await plans.read_result(table.db, "default", "p", "a", "o")).text == "1"  # type: ignore[union-attr]  # else it fails here
    await table.through("b")
    assert await table.status("p") == "completed"
    assert json.loads((await table.plan("p"))["output"]) == {"steps": 2, "succeeded": 2}
