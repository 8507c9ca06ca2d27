"""Chapter 90: a watch resumes from any sequence and misses and repeats nothing."""

from __future__ import annotations

import asyncpg
import pytest

from fencepost import ledger, steps
from fencepost.db import Database
from tests.reads import reads_of
from tests.support import claim_one
from tests.support_runs import finish, keep, mark, running

pytestmark = pytest.mark.usefixtures("lawful")


async def test_a_watch_resumes_from_any_sequence_and_misses_and_repeats_nothing(
    db: Database, admin: asyncpg.Connection
) -> None:
    """90.2 Cut anywhere, in pages of any size, also while the run goes on."""
    claimed = await running(db, "it")
    for n in range(1, 6):
        await mark(db, claimed.fence, "s", n)
        await keep(db, claimed.fence, "s", ordinal=n)
    whole = await ledger.read_events(db, "default", "it", after=0)
    assert len(whole) == 12
    for cut in range(13):
        assert await ledger.read_events(db, "default", "it", after=cut) == whole[cut:]
    for size in (1, 5):
        seen: list[ledger.Event] = []
        while page := await ledger.read_events(db, "default", "it", after=seen[-1].seq if seen else 0, limit=size):
            seen += page
        assert seen == whole
    await finish(db, claimed.fence)
    (last,) = await ledger.read_events(db, "default", "it", after=12)
    assert (last.seq, last.type) == (13, "run.completed")


async def test_whoever_waits_at_the_end_of_a_map_does_not_read_its_rows_again_and_again(
    db: Database, admin: asyncpg.Connection
) -> None:
    """90.2 The run's last number says that there is nothing more, while it lives and after its end."""
    claimed = await running(db, "it")
    keys = [f"k{n}" for n in range(500)]
    opened = await steps.open_map(
        db, claimed.fence, "m", 1, hash="h", start=0, keys=keys, inputs=keys, repeatable=True, whole=True
    )
    assert isinstance(opened, steps.OpenMap)
    for index in range(3):
        await steps.keep_row(db, claimed.fence, opened.mid, index, "kept", "1")
    for last in ("row.kept", "run.completed"):
        events = await ledger.read_events(db, "default", "it", after=0)
        assert events[-1].type == last
        read, rows = await reads_of(admin, "read_events", "default", "it", events[-1].seq, 100)
        assert rows == []
        assert read < 20, read
        await finish(db, claimed.fence)


@pytest.mark.parametrize("size", [1, 2, 100])
async def test_a_watch_passes_over_what_a_restored_history_lacks(
    db: Database, admin: asyncpg.Connection, size: int
) -> None:
    """90.2 A page is read by its numbers, for there are no gaps; one that is there all the same is no end."""
    claimed = await running(db, "it")
    await finish(db, claimed.fence, "retry", delay_ms=0, most_tries=9)
    await finish(db, (await claim_one(db)).fence)
    await admin.execute("drop trigger watch on fencepost.event; delete from fencepost.event where seq between 2 and 4")
    seen: list[int] = []
    while page := await ledger.read_events(db, "default", "it", after=seen[-1] if seen else 0, limit=size):
        seen += [event.seq for event in page]
    await admin.execute("truncate fencepost.run, fencepost.outcome")  # or the laws would be judged of it
    assert seen == [1, 5]
