"""Retention: what may be forgotten, and when. Chapter 95_retention.sql."""

from __future__ import annotations

from collections.abc import Sequence

from fencepost import limits
from fencepost.db import Database


async def retain(
    db: Database,
    *,
    scratch_seconds: int = limits.SCRATCH_SECONDS,
    runs_seconds: int = limits.RUNS_SECONDS,
    most: int = limits.RETAIN_RUNS_MAX,
) -> tuple[int, int]:
    """One bounded pass: how many runs lost their scratch, and how many were forgotten. Nothing parked or unknown is touched (law 95.1)."""
    row = (await db.call("retain", scratch_seconds, runs_seconds, most))[0]
    return row["scratched"], row["forgotten"]


async def known(db: Database, rids: Sequence[int]) -> set[int]:
    """Which of these runs are not forgotten: the files of the others may go. Source: read_known."""
    rows = await db.call("read_known", list(rids))
    return set(rows[0]["read_known"])
