"""Terminal: how a leg ends, and how a run ends once. Chapter 80_terminal.sql."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

import msgspec

from fencepost.db import Database
from fencepost.errors import BrokenLaw
from fencepost.hot import weight
from fencepost.words import STALE, Fence, Stale

Ending = Literal["completed", "failed", "retry", "unknown", "unfit"]


class Ended(msgspec.Struct, frozen=True, gc=False):
    """What became of the run's leg: committed (the run ended as asked, `status` says how) · retrying · unknown · parked (on its code) ·
    cancelled (a cancel had been accepted) · already_terminal (somebody else ended it; `status`).
    """

    how: Literal["committed", "retrying", "unknown", "parked", "cancelled", "already_terminal"]
    status: str | None


@dataclass(frozen=True, slots=True)
class Outcome:
    """A run as somebody who waits for it sees it. `status` is the task's state until it is terminal."""

    rid: int
    status: str
    output: str | None
    error: str | None


async def finish(
    db: Database, fence: Fence, ending: Ending, value: str | None, *, delay_ms: int | None = None, most_tries: int | None = None,
    digest: str | None = None,
) -> Ended | Stale:  # fmt: skip
    """End the leg, once, if its fence is alive; asked again it gives the answer it gave (law 80.2).

    `value` is the output of `completed`, else the error. `retry`: a declared workflow retry, after `delay_ms`, unless `most_tries` are
    charged. `unfit`: the history does not fit the code whose `digest` is given. Source: finish_attempts. Raises BrokenLaw LW801.
    """
    row = await db.ask(
        "finish_attempts",
        fence.rid,
        fence.fence,
        ending,
        value,
        delay_ms,
        most_tries,
        digest,
        size=weight(value),
    )
    match row["answer"]:
        case "stale":
            return STALE
        case "LW801":
            raise BrokenLaw(
                "LW801", f"attempt {fence.number} of run {fence.rid} ended the run twice with different values"
            )
        case "LW802":
            raise BrokenLaw("LW802", f"attempt {fence.number} of run {fence.rid}: a leg does not end as {ending!r}")
        case answer:
            return Ended(answer, row["status"])


async def cancel(
    db: Database, org: str, run_id: str, *, reason: str, grace_ms: int
) -> tuple[Literal["accepted", "too_late", "unknown_run"], str | None]:
    """Cancel a run and every descendant. `accepted`: only `cancelled` can be stored from now on. Source: cancel_run, law 80.4."""
    row = (await db.call("cancel_run", org, run_id, reason, grace_ms))[0]
    return row["answer"], row["status"]


async def end(
    db: Database, org: str, run_id: str, *, by: str, reason: str
) -> tuple[Literal["done", "too_late", "unknown_run"], str | None]:
    """An operator ends any run that is not terminal: OPERATOR_ENDED. Source: end_run, law 85.5."""
    row = (await db.call("end_run", org, run_id, by, reason))[0]
    return row["answer"], row["status"]


async def judge_bound(db: Database, org: str, run_id: str) -> bool:
    """Ask whether the run is past its claim bound; True when that ended it now. Source: judge_bound, laws 30.8, 30.9."""
    expired: bool = (await db.call("judge_bound", org, run_id))[0]["judge_bound"]
    return expired


async def watch_outcome(db: Database, org: str, run_id: str, channel: str | None) -> Outcome | None:
    """How the run stands; a `channel` is notified once when it ends (a hint, polling is the truth). None: no such run. Source: watch_outcome."""
    rows = await db.call("watch_outcome", org, run_id, channel)
    return Outcome(rows[0]["rid"], rows[0]["status"], rows[0]["output"], rows[0]["error"]) if rows else None
