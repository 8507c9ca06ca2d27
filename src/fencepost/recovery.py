"""Recovery: the beat, and how the unknown is resolved. Chapter 85_recovery.sql."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal
from uuid import UUID

import msgspec

from fencepost.db import Database
from fencepost.words import Verdict


class Held(msgspec.Struct, frozen=True):
    """An attempt, as the heartbeat speaks of it."""

    rid: int
    number: int


class ToCancel(msgspec.Struct, frozen=True):
    """An attempt whose run is cancelling: its code is aborted, with this reason."""

    rid: int
    number: int
    reason: str | None = None


class Peer(msgspec.Struct, frozen=True):
    """An incarnation of this host whose death is not confirmed: look at its process, and say so in the next beat if it is gone."""

    id: UUID
    pid: int
    process_start: str | None = None


class Loose(msgspec.Struct, frozen=True):
    """The supervisor of an attempt whose fence died before anybody saw it end, on this host: it is to be ended (law 70.11)."""

    rid: int
    number: int
    pid: int
    folder: str
    process_start: str | None = None


class Beat(msgspec.Struct, frozen=True):
    """The answer to a heartbeat. `buried`: this incarnation was judged dead. `lost`: what the worker believed to hold and does not.
    `due_ms`: until the lane's next due instant. `woken`, `reaped`: what this beat's sweeps did. `orphans`: runs of plans' steps whose
    worker is gone and whose processes ran on this host (law 70.10). `loose`: processes of this host that nobody's attempt are any more.
    """

    buried: bool
    lost: tuple[Held, ...] = ()
    cancel: tuple[ToCancel, ...] = ()
    peers: tuple[Peer, ...] = ()
    due_ms: int | None = None
    woken: int = 0
    reaped: int = 0
    orphans: tuple[int, ...] = ()
    loose: tuple[Loose, ...] = ()


async def beat(
    db: Database,
    incarnation: UUID,
    *,
    answered: int,
    held: Sequence[tuple[int, int]],
    dead: Sequence[UUID],
    patience: float,
) -> Beat:
    """Be heard, and do everybody's due sweeps. `answered` and `held` were published together by the loop (law 40.14); `dead` are peers
    whose process was seen to be gone (85.3). Source: beat.
    """
    rows = await db.call(
        "beat",
        incarnation,
        answered,
        [rid for rid, _ in held],
        [number for _, number in held],
        list(dead),
        patience=patience,
    )
    return msgspec.json.decode(rows[0]["beat"], type=Beat)


async def close_incarnation(db: Database, incarnation: UUID, *, patience: float) -> int:
    """The drain is over: what still runs is lost, by its own worker's word. How many. Source: close_incarnation, law 40.11."""
    n: int = (await db.call("close_incarnation", incarnation, patience=patience))[0]["close_incarnation"]
    return n


async def register_workflows(db: Database, incarnation: UUID, lane: int, digests: dict[str, str]) -> int:
    """Say what this worker runs, by name and code digest; runs parked on other code of these names are claimed again. How many.
    Source: register_workflows, law 50.4.
    """
    n: int = (await db.call("register_workflows", incarnation, lane, list(digests), list(digests.values())))[0][
        "register_workflows"
    ]
    return n


async def wake(db: Database, org: str, run_id: str) -> tuple[Literal["done", "refused", "unknown_run"], str | None]:
    """An operator's word: try again what is parked on its code, or waits out a delay. Source: wake_run."""
    row = (await db.call("wake_run", org, run_id))[0]
    return row["answer"], row["state"]


async def resolve(
    db: Database, org: str, run_id: str, *, step: str | None, ordinal: int | None, row_key: str | None, verdict: Verdict, value: str | None, by: str
) -> tuple[Literal["done", "refused", "unknown_run"], str | None]:  # fmt: skip
    """Say what became of an unknown step, row, or (neither named) attempt; once, with an audit line. `value`: output or error as JSON text.
    Answers done, or refused with the reason. Source: resolve_unknown, law 85.5.
    """
    row = (await db.call("resolve_unknown", org, run_id, step, ordinal, row_key, verdict, value, by))[0]
    return row["answer"], row["why"]


async def resolve_rows(
    db: Database, org: str, run_id: str, *, step: str | None, ordinal: int | None, keys: Sequence[str], verdict: Verdict, value: str | None, by: str
) -> list[tuple[Literal["done", "refused", "not_found", "unknown_run"], str | None]]:  # fmt: skip
    """Say what became of many unknown rows, in one transaction; an answer per key, in order, with the reason of a refusal. The caller
    bounds the batch. Source: resolve_rows, law 85.5.
    """
    rows = await db.call("resolve_rows", org, run_id, step, ordinal, list(keys), verdict, value, by)
    return [(row["answer"], row["why"]) for row in rows]


async def redrive(
    db: Database, org: str, run_id: str, *, new_id: str, from_step: tuple[str, int] | None, again: Sequence[str], by: str
) -> tuple[Literal["created", "replayed", "refused", "unknown_run"], str | None]:  # fmt: skip
    """A new run from an ended one's committed steps, with their keys. `again`: NAME#N of steps that may be repeated though they are not
    repeatable. Source: redrive_run, law 85.5.
    """
    name, ordinal = from_step or (None, None)
    row = (await db.call("redrive_run", org, run_id, new_id, name, ordinal, list(again), by))[0]
    return row["answer"], row["why"]
