"""Admission: how a run comes to be. Chapter 30_admission.sql."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Literal, NamedTuple, TypeGuard, cast

import asyncpg

from fencepost import limits
from fencepost.db import Database
from fencepost.errors import DatabaseUnavailable
from fencepost.hot import Record, columns, once
from fencepost.words import OnLost, Source


class Launch(NamedTuple):
    """A finished launch: nothing outside it is read when it is admitted (law 30.1). Its fields are the doors' arguments, in their order.

    `input` is JSON text as the edge encoded it. `priority` and `claim_ms` None: by the source's policy (30.7); `claim_ms` -1: no
    bound. `delay_ms`: not claimable before, from now on the database's clock. `contract` None: the empty one, `{}`.
    """

    org: str
    id: str
    name: str
    lane: int
    release: str
    input: str
    source: Source | None = "program"
    priority: int | None = None
    on_lost: OnLost | None = None
    claim_ms: int | None = None
    delay_ms: int | None = None
    contract: str | None = None


@dataclass(frozen=True, slots=True)
class Admitted:
    """`how`: created, replayed (it was there) or recovered (re-entered on request). `repair_needed`: it is there, and in no queue."""

    rid: int
    how: Literal["created", "replayed", "recovered"]
    repair_needed: bool


@dataclass(frozen=True, slots=True)
class Conflict:
    """The id has another launch. `differs`: [{path, stored, given}] (law 30.3)."""

    differs: list[dict[str, Any]]


@dataclass(frozen=True, slots=True)
class Refused:
    """An unusable id, name, organisation or source (law 30.6): a caller that checked its words never meets it."""


Admission = Admitted | Conflict | Refused


async def admit(db: Database, launches: Sequence[Launch], *, repair: bool = False) -> list[Admission]:
    """Admit launches, each on its own merits, in one commit a batch; one answer a launch, in order.

    A twin that is still uncommitted elsewhere is waited for alone, so that it delays nobody's launch but its own (law 00.13).
    Source: admit_launch, admit_launches, laws 30.1-30.7.
    """
    if len(launches) > 1:
        try:
            return await admit_together(db, launches, repair=repair)
        except Exception as error:
            if not goes_apart(error, len(launches)):
                raise
    return await asyncio.gather(*(admit_alone(db, launch, repair=repair) for launch in launches))


async def admit_alone(
    db: Database, launch: Launch, *, repair: bool = False, patience: float = limits.CLIENT_PATIENCE_SECONDS
) -> Admission:
    """One launch, in a commit of its own. Source: admit_launch."""
    (row,) = await db.call("admit_launch", *launch, repair, limits.ADMISSION_PATIENCE_MS, patience=patience)
    return _answer(launch, row)


async def admit_together(db: Database, launches: Sequence[Launch], *, repair: bool = False) -> list[Admission]:
    """All of them in one commit, or an exception: for callers who then ask one by one, and concurrently. Source: admit_launches."""
    if len(launches) == 1:
        return [await admit_alone(db, launches[0], repair=repair, patience=limits.TOGETHER_PATIENCE_SECONDS)]
    rows = await db.call(
        "admit_launches", *_columns(launches), repair, limits.ADMISSION_PATIENCE_MS, patience=limits.TOGETHER_PATIENCE_SECONDS
    )  # fmt: skip
    return [_answer(launch, row) for launch, row in zip(launches, rows, strict=True)]


def goes_apart(error: Exception, launches: int) -> bool:
    """Whether each of so many launches is asked alone, and learns for itself what is wrong with its own: it was weather (a twin that is not
    committed yet), or something of one of several. A broken law is no launch's fault, and is not asked again.
    """
    own = isinstance(error, asyncpg.PostgresError | asyncpg.InterfaceError)
    return isinstance(error, DatabaseUnavailable) or (own and launches > 1)


async def admit_on(db: Database, connection: asyncpg.Connection, launch: Launch) -> Admission:
    """Admit inside the caller's own transaction: rolled back, no run existed (law 30.10). The claim bound does not apply unless asked (30.8)."""
    unbound = launch if launch.claim_ms is not None else launch._replace(claim_ms=-1)
    (row,) = await db.call_on(connection, "admit_launch", *unbound, False, None)
    return _answer(launch, row)


def _columns(launches: Sequence[Launch]) -> list[list[Any]]:
    """The arrays of admit_launches: what is the same of all launches is said once, but for the ids, which say how many there are."""
    orgs, ids, *others = columns(launches)
    return [once(orgs), ids, *map(once, others)]


def _answer(launch: Launch, row: Record) -> Admission:
    match row["answer"]:
        case "created" | "replayed" | "recovered" as how:
            return Admitted(row["rid"], how, bool(row["repair_needed"]))
        case "conflict":
            stored = json.loads(row["stored"])
            given = {
                "kind": "workflow",
                "name": launch.name,
                "input": json.loads(launch.input),
                "contract": json.loads(launch.contract or "{}"),
            }
            return Conflict(list(differences("$", stored, given)))
        case _:
            return Refused()


def differences(path: str, stored: Any, given: Any) -> list[dict[str, Any]]:
    """Every place where two JSON values differ, by path; a missing key is told apart from null by its absence from the entry."""
    if isinstance(stored, dict) and isinstance(given, dict):
        return _in_objects(path, cast("dict[str, Any]", stored), cast("dict[str, Any]", given))
    if _is_list(stored) and _is_list(given) and len(stored) == len(given):
        pairs = zip(stored, given, strict=True)
        return [d for i, (s, g) in enumerate(pairs) for d in differences(f"{path}[{i}]", s, g)]
    return (
        []
        if stored == given and isinstance(stored, bool) == isinstance(given, bool)
        else [{"path": path, "stored": stored, "given": given}]
    )


def _in_objects(path: str, stored: dict[str, Any], given: dict[str, Any]) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = []
    for key in sorted(stored.keys() | given.keys()):
        here = f"{path}.{key}"
        if key not in stored:
            found.append({"path": here, "given": given[key]})
        elif key not in given:
            found.append({"path": here, "stored": stored[key]})
        else:
            found += differences(here, stored[key], given[key])
    return found


def _is_list(value: Any) -> TypeGuard[list[Any]]:
    return isinstance(value, list)
