"""Suspension: waiting without holding anything. Chapter 60_suspension.sql."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Literal

import msgspec

from fencepost.db import Database
from fencepost.hot import weight
from fencepost.words import CANCELLING, STALE, Cancelling, Fence, OnLost, Stale


class Wait(msgspec.Struct, frozen=True):
    """One wait of a leg. `ms`: until its hour, from arming, on the database's clock; None: for ever. `op` cancel: it lost a race."""

    kind: Literal["sleep", "signal", "child"]
    name: str
    ordinal: int
    ms: int | None = None
    hash: str = ""
    op: Literal["arm", "cancel"] = "arm"


@dataclass(frozen=True, slots=True)
class Resolved:
    """A wait that resolved: arrived | timed_out. `value` is the stored payload, as text."""

    kind: str
    name: str
    ordinal: int
    state: str
    seq: int
    value: str | None


@dataclass(frozen=True, slots=True)
class Here:
    """Some waits resolved: number and fence stay, the code goes on (law 40.8). In the order of their sequence."""

    resolved: tuple[Resolved, ...]


@dataclass(frozen=True, slots=True)
class Armed:
    """Armed and looked at, nothing here yet. `due_ms`: until the earliest hour."""

    due_ms: int | None


@dataclass(frozen=True, slots=True)
class Parked:
    """Everything was given back; the fence is dead."""


@dataclass(frozen=True, slots=True)
class Started:
    """A child exists: `how` started | replayed. `seq` of the boundary where the parent does not wait; None while the wait is armed."""

    how: Literal["started", "replayed"]
    child: int
    seq: int | None


@dataclass(frozen=True, slots=True)
class ChildRefused:
    """conflict: the child's id has another launch. refused: its id or name is unusable."""

    why: Literal["conflict", "refused"]


SignalAnswer = Literal["sent", "repeated", "full", "ended", "unknown_run", "refused"]


async def wait(
    db: Database, fence: Fence, waits: Sequence[Wait], *, known_seq: int, park: bool, said: str | None = None
) -> Here | Armed | Parked | Stale | Cancelling:
    """Arm what is new, cancel what lost, look for all of them under the run's lock, and park if asked and nothing is here.

    `waits`: those to arm or cancel (armed before: harmless). `known_seq`: the newest sequence among wait results the leg has been told.
    `said`: its newest progress, if it was not shown yet: parked, it is.
    Source: park_attempts, laws 60.1, 60.2, 60.5, 60.11.
    """
    row = await db.ask(
        "park_attempts", fence.rid, fence.fence, msgspec.json.encode(waits).decode(), known_seq, park, said
    )
    match row["answer"]:
        case "here":
            found: list[list[Any]] = msgspec.json.decode(row["resolved"])
            return Here(tuple(Resolved(*item) for item in found))
        case "armed":
            return Armed(row["due_ms"])
        case "parked":
            return Parked()
        case "cancelled":
            return CANCELLING
        case _:
            return STALE


async def start_child(
    db: Database, fence: Fence, name: str, ordinal: int, *, hash: str, waits: bool, child_id: str, child_name: str, input: str,
    on_lost: OnLost | None,
) -> Started | ChildRefused | Stale | Cancelling:  # fmt: skip
    """Admit a child and, if `waits`, arm the wait for its end, in one transaction. Source: start_children, law 60.10."""
    row = await db.ask(
        "start_children",
        fence.rid,
        fence.fence,
        name,
        ordinal,
        hash,
        waits,
        child_id,
        child_name,
        input,
        on_lost,
        size=weight(input),
    )
    match row["answer"]:
        case "started" | "replayed" as how:
            return Started(how, row["child"], row["seq"])
        case "conflict" | "refused" as why:
            return ChildRefused(why)
        case "cancelled":
            return CANCELLING
        case _:
            return STALE


async def signal(db: Database, org: str, run_id: str, name: str, *, dedupe: str, payload: str) -> SignalAnswer:
    """Send a signal; with the same `dedupe` a repeat is harmless. Source: send_signals, laws 60.2-60.4."""
    answer: SignalAnswer = (await db.call("send_signals", [org], [run_id], [name], [dedupe], [payload]))[0]["answer"]
    return answer
