"""Plans: DAGs whose steps are child runs. Chapters 70_plans.sql and 86_inquiry.sql."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal

import msgspec

from fencepost import limits
from fencepost.db import Database
from fencepost.words import CANCELLING, STALE, Cancelling, Fence, Source, Stale

if TYPE_CHECKING:
    import asyncpg


@dataclass(frozen=True, slots=True)
class PlanAdmission:
    """`answer`: created · replayed · conflict (then `stored` is the launch on record) · refused. `rid` None: refused."""

    answer: Literal["created", "replayed", "conflict", "refused"]
    rid: int | None
    stored: dict[str, Any] | None = None


@dataclass(frozen=True, slots=True)
class Carrier:
    """The process that carries an attempt: what proof of its death needs (law 85.3), and where it writes."""

    boot_id: str | None
    pid_namespace: str | None
    pid: int
    process_start: str | None
    host: str
    folder: str


@dataclass(frozen=True, slots=True)
class Result:
    """A named output as it was committed (law 70.6). `text`: verbatim, if it was small; else `place` in the content store."""

    media_type: str
    size: int
    digest: str
    text: str | None
    place: str | None
    rid: int


async def admit(
    db: Database, *, org: str, run_id: str, name: str, lane: int, release: str, source: Source, definition: str,
    priority: int | None = None, connection: asyncpg.Connection | None = None,
) -> PlanAdmission:  # fmt: skip
    """Admit a plan: its run, its steps and the first that are ready, in one transaction (law 70.2). `definition`: the normal form as
    JSON text. `connection`: join the caller's transaction. Source: admit_plan.
    """
    given = (org, run_id, name, lane, release, source, priority, definition)
    rows = await (db.call_on(connection, "admit_plan", *given) if connection else db.call("admit_plan", *given))
    stored = rows[0]["stored"]
    return PlanAdmission(rows[0]["answer"], rows[0]["rid"], msgspec.json.decode(stored) if stored else None)


async def begin(db: Database, fence: Fence, carrier: Carrier) -> str | Stale | Cancelling:
    """The begun mark of a step's attempt, with the process that will carry it; its packet as JSON text (laws 70.8–70.10).

    Asked again by the same fence it gives the same packet. Source: begin_steps.
    """
    row = await db.ask(
        "begin_steps", fence.rid, fence.fence, carrier.boot_id, carrier.pid_namespace, carrier.pid,
        carrier.process_start, carrier.host, carrier.folder,
    )  # fmt: skip
    if row["answer"] == "begun":
        packet: str = row["packet"]
        return packet
    return CANCELLING if row["answer"] == "cancelled" else STALE


async def read_process(
    db: Database, fence: Fence, *, patience: float = limits.CLIENT_PATIENCE_SECONDS
) -> tuple[str, int, str | None, str] | None:
    """Packet, process id, its start, and folder of an attempt that was adopted; None when its fence is dead. Source: read_process."""
    rows = await db.call("read_process", fence.rid, fence.fence, patience=patience)
    return (
        (rows[0]["packet"], rows[0]["pid"], rows[0]["process_start"], rows[0]["folder"])
        if rows and rows[0]["packet"]
        else None
    )


async def lose(db: Database, fence: Fence, *, begun: bool, patience: float = limits.CLIENT_PATIENCE_SECONDS) -> str:
    """Proof that an attempt's process is gone and left no word; `begun` False: its command never ran, so no try is charged.

    Answers lost (what that means the plan declared), given_back or stale. Source: lose_step, laws 70.10, 85.7.
    """
    while True:
        rows = await db.call("lose_step", fence.rid, fence.fence, begun, patience=patience)
        answer: str = rows[0]["lose_step"]
        if answer != "again":
            return answer


async def clear_loose(db: Database, rid: int, number: int) -> None:
    """The process of an attempt whose fence is dead was seen to have ended: nobody looks for it any more. Source: clear_loose."""
    await db.call("clear_loose", [rid], [number])


async def declare_lost(
    db: Database, org: str, run_id: str, step: str, *, by: str
) -> tuple[Literal["done", "refused", "unknown_run"], str | None]:
    """An operator's word that the process of a step's newest try is gone. Source: declare_lost, law 70.10."""
    row = (await db.call("declare_lost", org, run_id, step, by))[0]
    return row["answer"], row["why"]


async def read(db: Database, org: str, run_id: str, *, busy: bool = False) -> dict[str, Any] | None:
    """Everything known of a plan; None: no such plan. `busy`: of its steps only those that run, wait or are unknown. Source: read_plan."""
    text = (await db.call("read_plan", org, run_id, busy))[0]["read_plan"]
    return msgspec.json.decode(text) if text else None


async def read_result(db: Database, org: str, run_id: str, step: str, output: str) -> Result | None:
    """One committed output; None: there is none. Source: read_result."""
    rows = await db.call("read_result", org, run_id, step, output)
    if not rows:
        return None
    row = rows[0]
    return Result(row["media_type"], row["size"], row["digest"], row["text"], row["place"], row["rid"])
