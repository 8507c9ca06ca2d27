"""Steps, boundaries, rows: what a run has done, so that it is never done again in silence. Chapter 50_steps.sql."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal
from uuid import UUID

import msgspec

from fencepost import limits
from fencepost.db import Database
from fencepost.hot import weight
from fencepost.words import CANCELLING, STALE, BoundaryKind, Cancelling, Fence, Stale


class Kept(msgspec.Struct, frozen=True, gc=False):
    """Committed. `seq` is the result's place among all results of the run: the order in which the code is given them (50.4)."""

    seq: int


class KeptBefore(msgspec.Struct, frozen=True, gc=False):
    """First write wins, and it was not this one: `state` (kept | failed) and `value` are the record."""

    seq: int
    state: str
    value: str | None


@dataclass(frozen=True, slots=True)
class OpenMap:
    """`mid` names the map's rows; `total` are stored so far, all of them once `whole`. `done`: its boundary is kept already."""

    mid: int
    total: int
    whole: bool
    done: bool


@dataclass(frozen=True, slots=True)
class Row:
    """A row of a map. `input` only while it is open; `fence` is whose mark it bears. States: waiting · marked · kept · failed · skipped · again."""

    index: int
    key: str
    state: str
    input: str | None
    value: str | None
    fence: UUID | None


Marking = Literal["marked", "standing", "done"]


async def mark(
    db: Database, fence: Fence, name: str, ordinal: int, *, hash: str, repeatable: bool, timeout_ms: int | None, again: bool
) -> Marking | Stale | Cancelling:  # fmt: skip
    """Record that a step is about to run, with its durable deadline. `again`: its look-up said Absent, and that permits it (50.11).

    standing: another fence's mark is in the way. done: it is committed. Source: mark_steps, laws 50.2, 40.12.
    """
    row = await db.ask("mark_steps", fence.rid, fence.fence, name, ordinal, hash, repeatable, timeout_ms, again)
    return _marking(row["answer"])


async def keep(
    db: Database, fence: Fence, kind: BoundaryKind, name: str, ordinal: int, *, hash: str, repeatable: bool, ok: bool, value: str | None
) -> Kept | KeptBefore | Stale:  # fmt: skip
    """Commit a result (`ok`) or a failure, once; first write wins. Source: keep_steps, laws 50.1, 50.10."""
    row = await db.ask(
        "keep_steps",
        fence.rid,
        fence.fence,
        kind,
        name,
        ordinal,
        hash,
        repeatable,
        ok,
        value,
        size=weight(value),
    )
    match row["answer"]:
        case "kept":
            return Kept(row["seq"])
        case "kept_before":
            return KeptBefore(row["seq"], row["state"], row["value"])
        case _:
            return STALE


async def deliver_late(db: Database, fence: Fence, name: str, ordinal: int, *, ok: bool, value: str | None) -> bool:
    """A commit after the fence died, kept as evidence if the step still bears this fence's mark. Source: deliver_late, law 50.2."""
    answer: str = (await db.call("deliver_late", fence.rid, fence.fence, name, ordinal, ok, value))[0]["deliver_late"]
    return answer == "evidence"


async def ask_mark(db: Database, rid: int, name: str, ordinal: int) -> int | None:
    """Milliseconds since the death of the mark's holder was confirmed; None while it is not. Source: ask_mark, law 50.11."""
    ms: int | None = (await db.call("ask_mark", rid, name, ordinal))[0]["ask_mark"]
    return ms


async def open_map(
    db: Database, fence: Fence, name: str, ordinal: int, *, hash: str, start: int, keys: Sequence[str], inputs: Sequence[str],
    repeatable: bool, whole: bool,
) -> OpenMap | Stale | Cancelling:  # fmt: skip
    """Store rows of a map from index `start`; `whole` with the last of them. Repeating a call changes nothing. Source: open_map, law 50.6."""
    row = (
        await db.call(
            "open_map",
            fence.rid,
            fence.fence,
            name,
            ordinal,
            hash,
            start,
            list(keys),
            list(inputs),
            repeatable,
            whole,
            patience=float("inf"),
        )
    )[0]
    match row["answer"]:
        case "open" | "done" as answer:
            return OpenMap(row["mid"], row["total"], row["whole"], answer == "done")
        case "cancelled":
            return CANCELLING
        case _:
            return STALE


async def mark_row(db: Database, fence: Fence, mid: int, index: int) -> Marking | Stale | Cancelling:
    """Record that a row is dispatched. Source: mark_rows, law 50.6."""
    return _marking((await db.ask("mark_rows", fence.rid, fence.fence, mid, index))["answer"])


async def keep_row(
    db: Database, fence: Fence, mid: int, index: int, state: Literal["kept", "failed", "skipped"], value: str | None
) -> Literal["kept", "kept_before"] | Stale:
    """Commit a row by key, once. Source: keep_rows, law 50.6."""
    answer = (await db.ask("keep_rows", fence.rid, fence.fence, mid, index, state, value, size=weight(value)))["answer"]
    return STALE if answer == "stale" else "kept" if answer == "kept" else "kept_before"


async def read_rows(db: Database, mid: int, after: int, max_bytes: int) -> list[Row]:
    """A page of rows after an index, in order; an empty one is the end. Source: read_rows."""
    rows = await db.call("read_rows", mid, after, max_bytes, patience=float("inf"))
    return [Row(r["index"], r["key"], r["state"], r["input"], r["value"], r["fence"]) for r in rows]


@dataclass(frozen=True, slots=True)
class Undone:
    """A row that is not committed. States: waiting · marked · again."""

    index: int
    key: str
    state: str
    input: str


@dataclass(frozen=True, slots=True)
class RowCounts:
    """How a map's rows stand; `first_key` and `first_error` are of the first that failed."""

    kept: int
    failed: int
    skipped: int
    open: int
    first_key: str | None
    first_error: str | None


@dataclass(frozen=True, slots=True)
class RunRow:
    """A row as whoever looks sees it. States: waiting · running · kept · failed · skipped · unknown · again."""

    mid: int
    map: str
    ordinal: int
    index: int
    key: str
    state: str
    value: str | None


async def read_open_rows(db: Database, mid: int, after: int, *, most: int, max_bytes: int) -> list[Undone]:
    """A page of rows after an index that are not committed, in order; an empty one is the end. Source: read_open_rows."""
    rows = await db.call("read_open_rows", mid, after, most, max_bytes, patience=float("inf"))
    return [Undone(r["index"], r["key"], r["state"], r["input"]) for r in rows]


async def read_row_counts(db: Database, mid: int) -> RowCounts:
    """How a map's rows stand. Source: read_row_counts."""
    return RowCounts(*(await db.call("read_row_counts", mid, patience=float("inf")))[0].values())


async def read_run_rows(
    db: Database, org: str, run_id: str, *, name: str | None = None, ordinal: int | None = None, states: Sequence[str] | None = None,
    after: tuple[int, int] = (0, -1), most: int = 1000, max_bytes: int = limits.ROWS_PAGE_BYTES,
) -> list[RunRow]:  # fmt: skip
    """A page of the rows of a run's maps, after (mid, index); an empty one is the end. Source: read_run_rows, law 50.6."""
    chosen = list(states) if states else None
    rows = await db.call("read_run_rows", org, run_id, name, ordinal, chosen, *after, most, max_bytes)
    return [RunRow(*row.values()) for row in rows]


def _marking(answer: str) -> Marking | Stale | Cancelling:
    match answer:
        case "marked" | "standing" | "done":
            return answer
        case "cancelled":
            return CANCELLING
        case _:
            return STALE
