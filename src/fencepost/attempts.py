"""Attempts: who may act for a run, and until when. Chapters 40_attempts.sql and 41_claims.sql."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Literal
from uuid import UUID

import msgspec

from fencepost.db import Database
from fencepost.errors import BrokenLaw
from fencepost.hot import Record
from fencepost.words import CANCELLING, STALE, Cancelling, Fence, Stale


class Claimed(msgspec.Struct, frozen=True, gc=False):
    """All that is needed to run an attempt: after the fence, the columns of `claimed_` in their order.

    `boundaries` is the JSON page that replay reads; `more`: read_boundaries has the rest.
    `input` None: it did not fit into the claim; `read_input` has it. `begun`: recorded with the claim (loss means replay). `turn`: its
    place in its organisation's line, in seconds since 1970.
    """

    fence: Fence
    org: str
    id: str
    name: str
    input: str | None
    key_root: UUID
    begun: bool
    tries: int
    losses: int
    boundaries: str | None
    more: bool
    parent: int | None
    turn: float
    opaque: bool  # a plan's command or Python step: it runs in a process of its own (law 70.10)

    @property
    def suspect(self) -> bool:
        """Lost since its last committed boundary: it runs alone until it commits one, parks or ends (law 40.15)."""
        return self.losses > 0


@dataclass(frozen=True, slots=True)
class Claim:
    """What a request gave. `buried`: this incarnation was judged dead, go home. `suspect_since`: one waits for an empty worker.

    `look_seconds`: how long the database looked from the front of the lines; None: it did not, or did so when first asked.
    """

    claimed: tuple[Claimed, ...] = ()
    buried: bool = False
    suspect_since: datetime | None = None
    look_seconds: float | None = None


@dataclass(frozen=True, slots=True)
class Deferred:
    """Back in the line, not before its delay; `exhausted`: the run ended RECOVERY_EXHAUSTED instead (law 40.13)."""

    exhausted: bool


async def open_incarnation(
    db: Database, incarnation: UUID, *, lane: int, name: str, boot_id: str | None, pid_namespace: str | None, pid: int,
    process_start: str | None, lease_seconds: float, heartbeat_seconds: float,
) -> None:  # fmt: skip
    """Record a worker process's start, with what proof of its death needs (laws 40.9, 85.3). Source: open_incarnation."""
    await db.call(
        "open_incarnation", incarnation, lane, name, boot_id, pid_namespace, pid, process_start,
        int(lease_seconds * 1000), int(heartbeat_seconds * 1000),
    )  # fmt: skip


async def claim(
    db: Database, holder: UUID, request: int, *, lane: int, most: int, cursor: str, alone: bool, patience: float,
    marks: Sequence[tuple[str, float, int]] = (),
) -> Claim:  # fmt: skip
    """Take up to `most` runs of the lane, in fair turns from the organisation after `cursor`. Asked again with the same request
    number it gives the same attempts. `alone`: the holder holds nothing, so a suspect may be among what it gets. `marks`: only these
    organisations, each behind the place (turn, rid) of its line. Source: claim_attempts, laws 40.2, 40.14, 40.15, 20.9.
    """
    places = [list(column) for column in zip(*marks, strict=True)] or [[], [], []]
    return _claim(
        await db.call("claim_attempts", holder, request, lane, most, cursor, alone, *places, patience=patience)
    )


async def claim_tree(
    db: Database, holder: UUID, request: int, *, root: int, most: int, patience: float, whole: bool = True
) -> Claim:
    """The same for one run and its descendants only; `whole` False: those whose parents live, which costs the same however much of the
    tree has ended. Source: claim_tree.
    """
    return _claim(await db.call("claim_tree", holder, request, root, most, whole, patience=patience))


async def claim_orphans(
    db: Database, holder: UUID, request: int, rids: Sequence[int], *, root: int | None, patience: float
) -> Claim:
    """Adopt attempts whose worker is gone and whose processes ran on this host: the same numbers, the same fences (law 70.10).

    `root`: only those of this plan. Source: claim_orphans.
    """
    return _claim(await db.call("claim_orphans", holder, request, list(rids), root, patience=patience))


async def begin(db: Database, fence: Fence) -> Literal["begun"] | Stale | Cancelling:
    """The durable begun mark, before author code, where loss does not mean replay. Source: begin_attempts."""
    answer = (await db.ask("begin_attempts", fence.rid, fence.fence))["answer"]
    return "begun" if answer == "begun" else CANCELLING if answer == "cancelled" else STALE


async def defer(db: Database, fence: Fence, *, reason: str, dependency: str, delay_ms: int) -> Deferred | Stale:
    """Give a run back before its code began, not to be claimed before `delay_ms`. Source: defer_attempts, laws 40.5, 40.13.

    Raises BrokenLaw LW401 for an attempt whose code may have run.
    """
    answer = (await db.ask("defer_attempts", fence.rid, fence.fence, reason, dependency, delay_ms))["answer"]
    if answer == "LW401":
        raise BrokenLaw(
            "LW401", f"attempt {fence.number} of run {fence.rid} has begun: there is no proof that its code did not run"
        )
    return STALE if answer == "stale" else Deferred(answer == "exhausted")


async def give_back(db: Database, fence: Fence) -> Literal["given_back"] | Stale:
    """Give back what was never dispatched: no try is charged. Source: give_back_attempts, law 40.11."""
    answer = (await db.ask("give_back_attempts", fence.rid, fence.fence))["answer"]
    return STALE if answer == "stale" else "given_back"


async def sleep(db: Database, holder: UUID, lane: int, *, asleep: bool) -> str:
    """Say that this worker sleeps (or is awake again); the channel on which it is woken. Source: sleep_worker."""
    channel: str = (await db.call("sleep_worker", holder, lane, asleep))[0]["sleep_worker"]
    return channel


async def read_boundaries(db: Database, rid: int, after_seq: int, after_place: str) -> tuple[str, bool]:
    """The next page of a run's recorded boundaries, and whether more follow. Source: read_boundaries."""
    row = (await db.call("read_boundaries", rid, after_seq, after_place))[0]
    return row["boundaries"], row["more"]


async def read_input(db: Database, rid: int) -> str:
    """An input that did not fit into the claim. Source: read_input."""
    text: str = (await db.call("read_input", rid))[0]["read_input"]
    return text


def _claim(rows: Sequence[Record]) -> Claim:
    if rows and rows[0]["answer"] == "buried":
        return Claim(buried=True)
    claimed: list[Claimed] = []
    since: datetime | None = None
    look: float | None = None
    for row in rows:
        # By place, all at once: to look each up by its name costs a run as much as to decode it.
        answer, rid, number, fence, *facts, waits_since, look_us = row.values()
        match answer:
            case "looked":
                look = look_us / 1_000_000
            case "suspect":
                since = waits_since
            case _:
                claimed.append(Claimed(Fence(rid, number, fence), *facts))
    return Claim(tuple(claimed), suspect_since=since, look_seconds=look)
