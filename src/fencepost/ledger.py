"""Ledger and sight: what happened, in order, and how runs stand. Chapter 90_ledger.sql."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any

import msgspec

from fencepost.db import Database
from fencepost.words import Fence


@dataclass(frozen=True, slots=True)
class Event:
    """One transition of a run. `number`: the attempt it belongs to."""

    seq: int
    at: datetime
    type: str
    number: int | None
    data: dict[str, Any]


@dataclass(frozen=True, slots=True)
class Outboxed:
    """An event with its place in the outbox: (tx, rid, seq) is the cursor, (rid, seq) the key consumers are idempotent by."""

    tx: int
    rid: int
    org: str
    run_id: str
    event: Event


@dataclass(frozen=True, slots=True)
class Listed:
    """A line of `runs list`."""

    run_id: str
    org: str
    kind: str
    name: str
    status: str
    attempts: int
    tries: int
    submitted_at: datetime
    finished_at: datetime | None


@dataclass(frozen=True, slots=True)
class LiveWorker:
    """A worker of a lane heard within its lease."""

    id: str
    name: str
    pid: int
    heard_ms: int
    lease_ms: int
    workflows: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class UnknownRow:
    """A row of a map of which nobody knows what became."""

    map: str
    ordinal: int
    key: str


async def read_run(db: Database, org: str, run_id: str) -> dict[str, Any] | None:
    """Everything known of a run, as one document (see read_run in 90_ledger.sql); None: no such run. `output`, `error`, `input` are JSON text."""
    text = (await db.call("read_run", org, run_id))[0]["read_run"]
    return None if text is None else msgspec.json.decode(text)


async def read_runs(
    db: Database, *, org: str | None, statuses: Sequence[str] | None, name: str | None, before: datetime | None, limit: int
) -> list[Listed]:  # fmt: skip
    """Runs, newest first. Source: read_runs."""
    rows = await db.call("read_runs", org, list(statuses) if statuses else None, name, before, limit)
    return [Listed(*row.values()) for row in rows]


async def read_events(
    db: Database, org: str, run_id: str, *, after: int, limit: int = 1000, rows: bool = True
) -> list[Event]:
    """Events of a run after a sequence number, in order: a watch resumes from any of them (law 90.2). `rows` False: without what became
    of a map's rows, of which there may be a million. Source: read_events, read_run_events.
    """
    found = await db.call("read_events" if rows else "read_run_events", org, run_id, after, limit)
    return [
        Event(r["seq"], r["at"], r["type"], r["number"], msgspec.json.decode(r["data"]) if r["data"] else {})
        for r in found
    ]


async def read_outbox(db: Database, cursor: tuple[int, int, int], *, limit: int = 1000) -> list[Outboxed]:
    """Events of every run after a cursor (0, 0, 0 at first). It never passes a transaction that is still open (law 90.1). Source: read_outbox."""
    rows = await db.call("read_outbox", *cursor, limit)
    return [
        Outboxed(
            r["tx"],
            r["rid"],
            r["org"],
            r["run_id"],
            Event(r["seq"], r["at"], r["type"], r["number"], msgspec.json.decode(r["data"]) if r["data"] else {}),
        )
        for r in rows
    ]


async def read_unknown_rows(db: Database, org: str, run_id: str, *, limit: int = 1000) -> list[UnknownRow]:
    """The first unknown rows of a run's maps, in order; its document counts them all. Source: read_unknown_rows, law 50.6."""
    return [UnknownRow(*row.values()) for row in await db.call("read_unknown_rows", org, run_id, limit)]


async def read_installation(db: Database) -> dict[str, Any]:
    """Facts for start-up checks and doctor. Source: read_installation."""
    facts: dict[str, Any] = msgspec.json.decode((await db.call("read_installation"))[0]["read_installation"])
    return facts


async def read_workers(db: Database, lane: int) -> list[LiveWorker]:
    """Live workers of a lane. Source: read_workers."""
    rows = await db.call("read_workers", lane)
    return [
        LiveWorker(str(r["id"]), r["name"], r["pid"], r["heard_ms"], r["lease_ms"], tuple(r["workflows"])) for r in rows
    ]


async def note_progress(db: Database, notes: Sequence[tuple[Fence, str]]) -> int:
    """Show how far legs are; a hint, never awaited by a leg (law 90.3). Source: note_progress."""
    fences = [fence for fence, _ in notes]
    rows = await db.call(
        "note_progress", [f.rid for f in fences], [f.fence for f in fences], [text for _, text in notes], patience=1.0
    )
    n: int = rows[0]["note_progress"]
    return n
