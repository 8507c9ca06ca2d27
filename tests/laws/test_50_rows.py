"""Chapter 50, maps: rows are stored before the first begins, and each commits by its key, once."""

from __future__ import annotations

from typing import Any

import asyncpg
import pytest

from fencepost import explain, ledger, recovery, steps
from fencepost.cli.documents import show_object
from fencepost.cli.showing import show_lines
from fencepost.db import Database
from fencepost.steps import Kept, OpenMap
from fencepost.words import CANCELLING, STALE, Fence
from tests.support import look, tables
from tests.support_runs import (
    ERROR,
    batch,
    cancel,
    claim_by,
    finish,
    holder_of,
    keep,
    ledger_of,
    lose,
    running,
    villain_of,
)

pytestmark = pytest.mark.usefixtures("lawful")


async def opened(
    db: Database,
    fence: Fence,
    *keys: str,
    start: int = 0,
    whole: bool = True,
    repeatable: bool = True,
    name: str = "rows",
) -> OpenMap:
    answer = await steps.open_map(
        db,
        fence,
        name,
        1,
        hash="h",
        start=start,
        keys=keys,
        inputs=[f'"{key}"' for key in keys],
        repeatable=repeatable,
        whole=whole,
    )
    assert isinstance(answer, OpenMap), answer
    return answer


async def states(db: Database, mid: int) -> list[tuple[str, str, str | None]]:
    return [(row.key, row.state, row.value) for row in await steps.read_rows(db, mid, -1, 10**6)]


async def test_every_row_is_stored_with_key_and_index_before_the_first_begins(
    db: Database, admin: asyncpg.Connection
) -> None:
    """50.6 In as many calls as their size asks for; repeating a call changes nothing."""
    mine = await running(db)
    first = await opened(db, mine.fence, "a", "b", whole=False)
    assert (first.total, first.whole, first.done) == (2, False, False)
    second = await opened(db, mine.fence, "c", start=2)
    assert (second.mid, second.total, second.whole) == (first.mid, 3, True)
    before = await tables(admin)
    assert await opened(db, mine.fence, "a", "b", whole=False) == second
    assert await opened(db, mine.fence, "c", start=2) == second
    assert await tables(admin) == before
    rows = await steps.read_rows(db, first.mid, -1, 10**6)
    assert [(r.index, r.key, r.input, r.state) for r in rows] == [
        (0, "a", '"a"', "waiting"), (1, "b", '"b"', "waiting"), (2, "c", '"c"', "waiting"),
    ]  # fmt: skip


async def test_a_chunk_that_was_half_stored_is_completed_not_doubled(db: Database) -> None:
    """50.6 A leg that was lost between two chunks: the next one sends other chunks."""
    mine = await running(db)
    await opened(db, mine.fence, "a", "b", whole=False)
    whole = await opened(db, mine.fence, "b", "c", "d", start=1)
    assert (whole.total, whole.whole) == (4, True)
    assert [key for key, _, _ in await states(db, whole.mid)] == ["a", "b", "c", "d"]


async def test_rows_commit_by_key_in_any_order_once(db: Database) -> None:
    """50.6 The first write wins; the same word again gets the same answer; results come in input order."""
    mine = await running(db)
    mid = (await opened(db, mine.fence, "a", "b", "c")).mid
    for index in (2, 0):
        assert await steps.mark_row(db, mine.fence, mid, index) == "marked"
    assert await steps.keep_row(db, mine.fence, mid, 2, "kept", "3") == "kept"
    assert await steps.keep_row(db, mine.fence, mid, 2, "kept", "3") == "kept"
    assert await steps.keep_row(db, mine.fence, mid, 2, "kept", "4") == "kept_before"
    assert await steps.keep_row(db, mine.fence, mid, 2, "failed", "3") == "kept_before"
    assert await steps.mark_row(db, mine.fence, mid, 2) == "done"
    assert await steps.keep_row(db, mine.fence, mid, 0, "failed", ERROR) == "kept"
    assert await states(db, mid) == [("a", "failed", ERROR), ("b", "waiting", None), ("c", "kept", "3")]


async def test_a_lost_worker_loses_no_committed_row_and_repeats_none_that_is_unknown(
    db: Database, admin: asyncpg.Connection
) -> None:
    """50.6 The next attempt looks exactly like the last: a row that is not repeatable and was marked stands."""
    mine = await running(db)
    mid = (await opened(db, mine.fence, "done", "unknown", "fresh", repeatable=False)).mid
    for index in (0, 1):
        await steps.mark_row(db, mine.fence, mid, index)
    await steps.keep_row(db, mine.fence, mid, 0, "kept", "1")
    new = await villain_of(db, admin, mine)
    assert await opened(db, new.fence, "done", "unknown", "fresh", repeatable=False) == OpenMap(
        mid, 3, whole=True, done=False
    )
    assert [await steps.mark_row(db, new.fence, mid, index) for index in range(3)] == ["done", "standing", "marked"]
    assert await steps.keep_row(db, mine.fence, mid, 1, "kept", '"late"') is STALE
    assert await steps.mark_row(db, mine.fence, mid, 1) is STALE
    assert await states(db, mid) == [("done", "kept", "1"), ("unknown", "marked", None), ("fresh", "marked", None)]


async def test_a_repeatable_row_is_marked_again_by_the_next_attempt(db: Database, admin: asyncpg.Connection) -> None:
    """50.6, 50.11 And the first mark keeps its place in the ledger."""
    mine = await running(db)
    mid = (await opened(db, mine.fence, "a")).mid
    await steps.mark_row(db, mine.fence, mid, 0)
    new = await villain_of(db, admin, mine)
    assert await steps.mark_row(db, new.fence, mid, 0) == "marked"
    assert await steps.keep_row(db, new.fence, mid, 0, "kept", "1") == "kept"
    assert [t for t in await ledger_of(admin, mine.fence.rid) if t.startswith("row.")] == [
        "row.marked",
        "row.marked",
        "row.kept",
    ]


async def test_a_fence_reaches_no_row_of_another_run(db: Database) -> None:
    """50.6, 40.3 Whatever map it names."""
    mine, other = await running(db), await running(db)
    mid = (await opened(db, other.fence, "a")).mid
    await steps.mark_row(db, mine.fence, mid, 0)
    assert await steps.keep_row(db, mine.fence, mid, 0, "kept", '"forged"') == "kept_before"
    assert await states(db, mid) == [("a", "waiting", None)]


async def test_rows_of_several_runs_in_one_batch_keep_their_own_sequences(
    db: Database, admin: asyncpg.Connection
) -> None:
    """50.6, 00.13 A stale one among them changes nothing and delays nobody."""
    one, two, dead = await running(db), await running(db), await running(db)
    mids = [(await opened(db, c.fence, "a", "b")).mid for c in (one, two, dead)]
    await villain_of(db, admin, dead)
    items = [
        (c.fence.rid, c.fence.fence, mid, index)
        for index in (1, 0)
        for c, mid in zip((two, dead, one), (mids[1], mids[2], mids[0]), strict=True)
    ]
    assert [r["answer"] for r in await batch(db, "mark_rows", *items)] == ["marked", "stale", "marked"] * 2
    kept = await batch(db, "keep_rows", *((*item, "kept", "1") for item in items))
    assert [r["answer"] for r in kept] == ["kept", "stale", "kept"] * 2
    assert await states(db, mids[2]) == [("a", "waiting", None), ("b", "waiting", None)]


async def test_the_code_sees_a_map_as_one_boundary(db: Database, admin: asyncpg.Connection) -> None:
    """50.6 Once it is kept, opening it again says done, and stores nothing."""
    mine = await running(db)
    mid = (await opened(db, mine.fence, "a")).mid
    await steps.keep_row(db, mine.fence, mid, 0, "kept", "1")
    assert isinstance(await keep(db, mine.fence, "rows", "null", kind="map"), Kept)
    new = await villain_of(db, admin, mine)
    assert await opened(db, new.fence, "a") == OpenMap(mid, 1, whole=True, done=True)
    assert [t for t in await ledger_of(admin, mine.fence.rid) if t.startswith(("map.", "row."))] == [
        "map.opened",
        "row.kept",
        "map.kept",
    ]


async def test_a_run_reports_its_rows_by_outcome_also_after_its_end(db: Database, admin: asyncpg.Connection) -> None:
    """50.6 Completed, failed, unknown, skipped, and all of them."""
    mine = await running(db, "report")
    mid = (await opened(db, mine.fence, "a", "b", "c", "d", "e", repeatable=False)).mid
    for index, state in ((0, "kept"), (1, "failed"), (2, "skipped")):
        await steps.keep_row(db, mine.fence, mid, index, state, "1" if state == "kept" else ERROR)  # type: ignore[arg-type]  # one of the states
    await steps.mark_row(db, mine.fence, mid, 3)
    new = await villain_of(db, admin, mine)
    expected = {"completed": 1, "failed": 1, "unknown": 1, "skipped": 1, "total": 5}
    assert ((await ledger.read_run(db, "default", "report")) or {})["rows"] == expected
    await finish(db, new.fence)
    assert ((await ledger.read_run(db, "default", "report")) or {})["rows"] == expected
    assert [r.key for r in await ledger.read_unknown_rows(db, "default", "report")] == ["d"]


async def test_an_unknown_row_is_named_however_many_failed_before_it_and_those_not_named_are_counted(
    db: Database, admin: asyncpg.Connection
) -> None:
    """50.6, 90.4 Of thirty failed rows nobody waits for a word."""
    mine = await running(db, "many")
    keys = [f"r{n:02}" for n in range(60)]
    mid = (await opened(db, mine.fence, *keys, repeatable=False)).mid
    for index in range(60):
        await (
            steps.keep_row(db, mine.fence, mid, index, "failed", ERROR)
            if index < 30
            else steps.mark_row(db, mine.fence, mid, index)
        )
    new = await villain_of(db, admin, mine)
    error = '{"code":"STEP_OUTCOME_UNKNOWN","message":"rows"}'
    assert (await finish(db, new.fence, "unknown", error)).how == "unknown"
    doc = await ledger.read_run(db, "default", "many") or {}
    some = await ledger.read_unknown_rows(db, "default", "many", limit=20)
    assert [row.key for row in some] == keys[30:50]
    said = explain.unknowns(doc, some)
    assert [one["key"] for one in said[:-1]] == keys[30:50]
    assert said[-1] == {"kind": "rows", "count": 10}
    assert "what became of 10 more rows" in " ".join(explain.words(doc, some))
    assert list(show_lines(show_object(doc, some))).count("unknown:      10 more rows") == 1
    assert explain.unknowns(doc) == [{"kind": "rows", "count": 30}]
    assert explain.unknowns(doc, await ledger.read_unknown_rows(db, "default", "many"))[-1]["key"] == keys[-1]


async def test_unknown_rows_resolve_by_key_and_then_the_run_continues(db: Database, admin: asyncpg.Connection) -> None:
    """50.6, 85.5 Each once: completed, failed, or to run again."""
    mine = await running(db, "rows")
    mid = (await opened(db, mine.fence, "a", "b", "c", repeatable=False)).mid
    for index in range(3):
        await steps.mark_row(db, mine.fence, mid, index)
    assert (await finish(db, mine.fence, "unknown")).how == "unknown"

    async def resolve(key: str, verdict: str, value: str | None = None) -> tuple[str, str | None]:
        return await recovery.resolve(
            db, "default", "rows", step=None, ordinal=None, row_key=key, verdict=verdict, value=value, by="ann",  # type: ignore[arg-type]  # one of the verdicts
        )  # fmt: skip

    assert (await resolve("d", "completed", "1"))[0] == "refused"
    assert (await resolve("a", "late"))[0] == "refused"
    assert await resolve("a", "completed", "1") == ("done", None)
    assert (await resolve("a", "completed", "2"))[0] == "refused"
    assert await resolve("b", "failed", ERROR) == ("done", None)
    assert await look(admin, mine.fence.rid) == "unknown"
    assert await resolve("c", "again") == ("done", None)
    assert await look(admin, mine.fence.rid) == "queued"
    new = await claim_by(db, admin, mine.fence.rid)
    assert [await steps.mark_row(db, new.fence, mid, index) for index in range(3)] == ["done", "done", "marked"]
    assert await states(db, mid) == [("a", "kept", "1"), ("b", "failed", ERROR), ("c", "marked", None)]


async def test_a_declared_retry_does_failed_and_skipped_rows_again_and_no_kept_one(
    db: Database, admin: asyncpg.Connection
) -> None:
    """50.10, 50.6 Of a map that failed, and of one that was still open; the rows of one that was kept stay as they are."""
    mine = await running(db)
    bad, good = (await opened(db, mine.fence, "a", "b", "c")).mid, (await opened(db, mine.fence, "x", name="fine")).mid
    half = (await opened(db, mine.fence, "x", "y", name="half")).mid
    for mid, index, state, value in (
        (bad, 0, "kept", "1"),
        (bad, 1, "failed", ERROR),
        (bad, 2, "skipped", None),
        (good, 0, "failed", ERROR),
        (half, 0, "failed", ERROR),
        (half, 1, "skipped", None),
    ):
        await steps.mark_row(db, mine.fence, mid, index)
        await steps.keep_row(db, mine.fence, mid, index, state, value)  # type: ignore[arg-type]  # one of the states
    await keep(db, mine.fence, "rows", ERROR, ok=False, kind="map")
    await keep(db, mine.fence, "fine", "null", kind="map")
    assert (await finish(db, mine.fence, "retry", delay_ms=0)).how == "retrying"
    new = await claim_by(db, admin, mine.fence.rid)
    assert await opened(db, new.fence, "a", "b", "c") == OpenMap(bad, 3, whole=True, done=False)
    assert [await steps.mark_row(db, new.fence, bad, index) for index in range(3)] == ["done", "marked", "marked"]
    assert await steps.mark_row(db, new.fence, good, 0) == "done"
    assert [await steps.mark_row(db, new.fence, half, index) for index in range(2)] == ["marked", "marked"]
    assert await steps.keep_row(db, new.fence, bad, 1, "kept", "2") == "kept"
    assert await states(db, bad) == [("a", "kept", "1"), ("b", "kept", "2"), ("c", "marked", None)]


async def test_nothing_of_a_cancelling_map_begins_and_what_happened_is_kept(db: Database) -> None:
    """50.6, 80.4 Rows dispatched before the cancel may still commit."""
    mine = await running(db, "stop")
    mid = (await opened(db, mine.fence, "a", "b")).mid
    await steps.mark_row(db, mine.fence, mid, 0)
    await cancel(db, "stop")
    assert await steps.mark_row(db, mine.fence, mid, 1) is CANCELLING
    assert await steps.keep_row(db, mine.fence, mid, 0, "kept", "1") == "kept"
    assert await steps.open_map(
        db, mine.fence, "more", 1, hash="h", start=0, keys=["a"], inputs=["1"], repeatable=True, whole=True
    ) is CANCELLING  # fmt: skip


async def test_pages_of_rows_are_bounded_in_bytes_and_miss_none(db: Database) -> None:
    """50.6 A row larger than a page travels alone; inputs of done rows stay at home."""
    mine = await running(db)
    mid = (await opened(db, mine.fence, "a", "b" * 150, "c")).mid
    await steps.keep_row(db, mine.fence, mid, 0, "kept", "1")
    seen, after = [], -1
    while page := await steps.read_rows(db, mid, after, 20):
        seen += [(row.index, row.input is None) for row in page]
        after = page[-1].index
    assert seen == [(0, True), (1, False), (2, False)]


async def test_rows_of_a_run_are_paged_by_map_and_index(db: Database, admin: asyncpg.Connection) -> None:
    """50.6 However small the pages: every row once, of all maps or of one, in any state or in these."""
    mine = await running(db, "paged")
    mids = [
        (await opened(db, mine.fence, *"abc", name="first", repeatable=False)).mid,
        (await opened(db, mine.fence, name="empty")).mid,
        (await opened(db, mine.fence, *"bcde", name="second")).mid,
    ]
    assert await steps.mark_row(db, mine.fence, mids[0], 1) == "marked"
    assert await steps.keep_row(db, mine.fence, mids[2], 0, "kept", '"x"') == "kept"
    assert await steps.keep_row(db, mine.fence, mids[2], 2, "failed", ERROR) == "kept"

    async def pages(most: int, max_bytes: int, **asked: Any) -> list[str]:
        found: list[str] = []
        after = (0, -1)
        while page := await steps.read_run_rows(
            db, "default", "paged", after=after, most=most, max_bytes=max_bytes, **asked
        ):
            assert len(page) <= most
            found += [f"{row.map}.{row.key} {row.state}" for row in page]
            after = (page[-1].mid, page[-1].index)
        return found

    every = [
        "first.a waiting", "first.b running", "first.c waiting",
        "second.b kept", "second.c waiting", "second.d failed", "second.e waiting",
    ]  # fmt: skip
    for most, size in ((1, 10**6), (2, 10**6), (3, 1), (100, 10**6)):
        assert await pages(most, size) == every
        assert await pages(most, size, name="second", ordinal=1) == every[3:]
        assert await pages(most, size, name="second", ordinal=2) == []
        assert await pages(most, size, states=["waiting", "failed"]) == [
            row for row in every if not row.endswith(("running", "kept"))
        ]
    await lose(db, await holder_of(admin, mine.fence))
    assert await pages(1, 10**6, states=["unknown"]) == ["first.b unknown"]
