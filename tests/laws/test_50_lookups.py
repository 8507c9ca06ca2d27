"""Chapter 50.11: what the database knows of a mark's holder. A look-up's `Absent` counts only after its confirmed death."""

from __future__ import annotations

import asyncpg
import pytest

from fencepost import recovery, steps
from fencepost.db import Database
from fencepost.testing import Clock
from tests.support import new_holder
from tests.support_runs import beat, cancel, holder_of, lose, mark, running, villain_of

pytestmark = pytest.mark.usefixtures("lawful")


async def ask(db: Database, rid: int) -> int | None:
    return await steps.ask_mark(db, rid, "pay", 1)


async def test_a_death_is_confirmed_by_proof_alone(db: Database, admin: asyncpg.Connection, clock: Clock) -> None:
    """50.11, 85.3 Not by an orderly end, not by silence, however long."""
    closed, silent = await running(db), await running(db)
    for claimed in (closed, silent):
        await mark(db, claimed.fence)
    who = await holder_of(admin, silent.fence)
    await lose(db, await holder_of(admin, closed.fence))
    await clock.advance(0)
    watcher = await new_holder(db)
    for _ in range(8):
        await clock.advance(10)
        await beat(db, watcher)
    assert await admin.fetchval("select ended from fencepost.incarnation where id = $1", who) == "silent"
    await clock.advance(10**6)
    assert await ask(db, closed.fence.rid) is None
    assert await ask(db, silent.fence.rid) is None


async def test_from_the_proof_on_time_is_counted_on_the_databases_clock(
    db: Database, admin: asyncpg.Connection, clock: Clock
) -> None:
    """50.11 Also when the holder was closed or silent before; the first proof stands."""
    mine = await running(db)
    await mark(db, mine.fence)
    who = await holder_of(admin, mine.fence)
    await lose(db, who)
    await clock.advance(0)
    watcher = await new_holder(db)
    await beat(db, watcher, dead=[who])
    assert await ask(db, mine.fence.rid) == 0
    await clock.advance(12.5)
    await beat(db, watcher, dead=[who])
    assert await ask(db, mine.fence.rid) == 12500


@pytest.mark.parametrize(
    "facts", [{"boot_id": "other"}, {"pid_namespace": "other"}, {"boot_id": None}, {"pid_namespace": None}], ids=str
)
async def test_what_another_host_or_namespace_says_proves_nothing(
    db: Database, admin: asyncpg.Connection, facts: dict[str, str | None]
) -> None:
    """50.11, 85.3 The same boot id and the same pid namespace, and both known; neither is anybody lost by it."""
    mine = await running(db)
    await mark(db, mine.fence)
    who = await holder_of(admin, mine.fence)
    teller = await new_holder(db, **facts)
    assert (await beat(db, teller, dead=[who])).peers == ()
    assert await ask(db, mine.fence.rid) is None
    assert await holder_of(admin, mine.fence) == who
    near = await new_holder(db)
    assert [peer.id for peer in (await beat(db, near)).peers] == [who]


async def test_a_holder_of_unknown_place_is_never_proven_gone(db: Database, admin: asyncpg.Connection) -> None:
    """50.11, 85.3 Where one of the facts could not be read there is no proof."""
    rid = (await running(db)).fence.rid
    blind = await new_holder(db, boot_id=None, pid_namespace=None)
    teller = await new_holder(db, boot_id=None, pid_namespace=None)
    await beat(db, teller, dead=[blind])
    assert await admin.fetchval("select gone_at from fencepost.incarnation where id = $1", blind) is None
    assert rid


async def test_the_mark_of_a_living_attempt_has_no_dead_holder(db: Database, admin: asyncpg.Connection) -> None:
    """50.11 The question is about the fence that the mark names, not about whoever held the run before."""
    mine = await running(db)
    await mark(db, mine.fence, "other")
    who = await holder_of(admin, mine.fence)
    new = await villain_of(db, admin, mine)
    await beat(db, await new_holder(db), dead=[who])
    await mark(db, new.fence)
    assert await ask(db, mine.fence.rid) is None
    assert await steps.ask_mark(db, mine.fence.rid, "other", 1) is not None
    assert await steps.ask_mark(db, mine.fence.rid, "nothing", 1) is None


async def test_a_redrive_knows_the_holders_of_its_origins_marks(db: Database, admin: asyncpg.Connection) -> None:
    """50.11, 85.5 Of whichever generation."""
    mine = await running(db, "first")
    await mark(db, mine.fence)
    who = await holder_of(admin, mine.fence)
    await lose(db, who)
    await cancel(db, "first")
    for origin, new in (("first", "second"), ("second", "third")):
        assert (await recovery.redrive(db, "default", origin, new_id=new, from_step=None, again=[], by="ann"))[
            0
        ] == "created"
        await cancel(db, new)
    rids = [r[0] for r in await admin.fetch("select rid from fencepost.run order by rid")]
    assert [await ask(db, rid) for rid in rids] == [None] * 3
    await beat(db, await new_holder(db), dead=[who])
    assert all(ms is not None for ms in [await ask(db, rid) for rid in rids])
