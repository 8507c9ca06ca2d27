"""What the demo claims, counted from what was recorded: the row log, the press, the ledger, the written file."""

from __future__ import annotations

import hashlib
import json
from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from fencepost import ledger
from fencepost.db import Database
from fencepost.ledger import Event

PAGE: Final = 10_000


@dataclass(frozen=True, slots=True)
class Kill:
    """A worker that was killed by `pid`, and where it was."""

    worker: int
    pid: int
    boundary: str

    def as_json(self) -> dict[str, Any]:
        return {"worker": self.worker, "pid": self.pid, "boundary": self.boundary}


@dataclass(frozen=True, slots=True)
class Begins:
    """How often each row was begun, by the log that the step itself wrote."""

    count: Counter[str]

    @property
    def once(self) -> int:
        return sum(n == 1 for n in self.count.values())

    @property
    def again(self) -> int:
        return len(self.count) - self.once


def read_begins(log: Path) -> Begins:
    """Count the row log."""
    return Begins(Counter(log.read_text(encoding="utf-8").split()))


def read_keys(posts: Path) -> list[str]:
    """The key of each post in the press's file."""
    return [json.loads(line)["key"] for line in posts.read_text(encoding="utf-8").splitlines()]


def sha256(path: Path) -> str:
    """The hash of a file's bytes."""
    return hashlib.sha256(path.read_bytes()).hexdigest()


async def read_ledger(db: Database, org: str, run_id: str) -> list[Event]:
    """Every event of a run, in order."""
    events: list[Event] = []
    while page := await ledger.read_events(db, org, run_id, after=events[-1].seq if events else 0, limit=PAGE):
        events += page
    return events


def resolutions(events: Iterable[Event], once_only: Iterable[str]) -> dict[tuple[str, int], str | None]:
    """The steps of these names that became unknown, each with what resolved it; None: nothing did.

    Unknown is a mark that stood when its attempt was lost. What keeps it later without marking it again has looked it up,
    unless an operator's resolution stands between.
    """
    names = frozenset(once_only)
    marked: set[tuple[str, int]] = set()
    found: dict[tuple[str, int], str | None] = {}
    by_operator = False
    for event in events:
        if event.type == "attempt.lost":
            found |= {key: found.get(key) for key in marked}
            marked.clear()
        by_operator = by_operator or event.type in ("run.resolved", "late.accepted")
        key = (str(event.data.get("name")), int(event.data.get("ordinal") or 0))
        if key[0] not in names or not event.type.startswith("step."):
            continue
        if event.type == "step.marked":
            marked.add(key)
            if key in found and found[key] is None:
                found[key] = "again"
        else:
            marked.discard(key)
            if key in found and found[key] is None:
                found[key] = "operator" if by_operator else "lookup"
    return found
