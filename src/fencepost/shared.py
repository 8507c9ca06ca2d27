"""Steps of scope `org`, done once for an organisation. Chapter 55_shared.sql; what wakes who waits is in 85_recovery.sql."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal
from uuid import UUID

from fencepost.db import Database
from fencepost.words import CANCELLING, STALE, Cancelling, Fence, Stale


@dataclass(frozen=True, slots=True)
class Given:
    """The call's record, made now or before: `state` (kept | failed) and `value`; `seq` is its place (50.4)."""

    seq: int
    state: str
    value: str | None


@dataclass(frozen=True, slots=True)
class Entry:
    """How the entry stands for the asker. marked: run it. wait: another attempt holds it. unknown: nobody knows whether it was done.

    `root`: what its key is made of. `gone_ms`: milliseconds since the death of the mark's holder was confirmed; None while it is not.
    """

    how: Literal["marked", "wait", "unknown"]
    root: UUID
    gone_ms: int | None


async def ask(
    db: Database, fence: Fence, name: str, ordinal: int, *, hash: str, key: str, epoch: str, repeatable: bool, timeout_ms: int | None,
    wait: str, again: bool,
) -> Given | Entry | Stale | Cancelling:  # fmt: skip
    """Ask for the organisation's entry of a step; take it on where it is free. Source: ask_shared, law 50.9.

    `wait`: the name of the signal that wakes this call. `again`: its look-up permits to take an unknown over (50.11).
    """
    row = (
        await db.call("ask_shared", fence.rid, fence.fence, name, ordinal, hash, key, epoch, repeatable, timeout_ms, wait, again)
    )[0]  # fmt: skip
    match row["answer"]:
        case "given":
            return Given(row["seq"], row["state"], row["value"])
        case "marked" | "wait" | "unknown" as how:
            return Entry(how, row["root"], row["gone_ms"])
        case "cancelled":
            return CANCELLING
        case _:
            return STALE


async def peek(db: Database, rid: int, name: str, ordinal: int) -> tuple[str, UUID, int | None] | None:
    """How the entry of a call stands (held · kept · free · unknown), its root, and `gone_ms`; None: it is bound to none. Source: peek_shared."""
    rows = await db.call("peek_shared", rid, name, ordinal)
    return (rows[0]["how"], rows[0]["root"], rows[0]["gone_ms"]) if rows else None


async def wake(db: Database, rid: int, name: str, ordinal: int) -> int:
    """Wake who waits for what this call has just kept. A hint: every beat does it for all. Source: wake_askers, law 50.9."""
    woken: int = (await db.call("wake_askers", rid, name, ordinal))[0]["wake_askers"]
    return woken
