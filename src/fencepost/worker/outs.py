"""What is kept of a map as a whole, and its file of results: written before the map is kept, again only where it is gone or another."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeGuard

import msgspec

from fencepost import limits, notes, steps, values
from fencepost.authoring import Step
from fencepost.db import Database
from fencepost.sources import by_name
from fencepost.sources.results import Result, Results, Shape, Written, stands
from fencepost.sources.table import Table
from fencepost.worker.execution import Broke, Ran

if TYPE_CHECKING:
    from fencepost.worker.leg import Leg


@dataclass(frozen=True, slots=True)
class Out:
    """A file of results that a map was asked for. `key`: what its first column is called. `owner`: the map, for what a dead process left."""

    table: Table
    key: str
    owner: str


def make_out(leg: Leg, step: Step[..., Any], out: Table | str | None, key: object) -> Out | None:
    """The file that a call asked for. Raises ValueError where its name does not say what kind of table it is, ModuleNotFoundError."""
    if out is None:
        return None
    table = by_name(out) if isinstance(out, str) else out
    table.ready()
    return Out(table, key if isinstance(key, str) else "key", f"{leg.claimed.org}/{leg.claimed.id}/{step.name}")


class MapDoc(msgspec.Struct, frozen=True, omit_defaults=True):
    """The value of a map's boundary. Fields that a later build adds are passed over here; those that an earlier one had not are 0."""

    rows: int = 0
    completed: int = 0
    failed: int = 0
    skipped: int = 0
    unknown: tuple[str, ...] = ()
    out: Written | None = None


async def with_file(db: Database, mid: int, out: Out | None, doc: MapDoc) -> Ran | Broke:
    """The map's value, its file of results written first. A file that cannot be written fails the map; its rows stay kept."""
    if out is not None:
        try:
            doc = msgspec.structs.replace(doc, out=await _write(db, mid, out, doc))
        except (OSError, ModuleNotFoundError, UnicodeError) as error:
            why = f"every row is done, and {out.table.name} could not be written: {error}"
            return Broke(values.encode_error({"code": "STEP_FAILED", "message": why, "type": type(error).__name__}))
    return Ran(values.encode(doc))


def needs_writing(out: Out | None, doc: MapDoc) -> TypeGuard[Out]:
    """The file is not there, or is not the one that was written."""
    if out is None:
        return False
    if doc.out is None or doc.out.path != out.table.name:
        return not Path(out.table.path).exists()
    return not stands(doc.out)


async def write_again(db: Database, mid: int, out: Out, doc: MapDoc) -> None:
    """Write the file of a map that was kept before. The record stands whatever becomes of it."""
    try:
        await _write(db, mid, out, doc)
    except (OSError, ModuleNotFoundError, UnicodeError) as error:
        notes.say("map.out", path=out.table.name, error=str(error))


async def _write(db: Database, mid: int, out: Out, doc: MapDoc) -> Written:
    shape = Shape(out.key)
    unknown = frozenset(doc.unknown)
    async for page in _kept(db, mid, unknown):
        await asyncio.to_thread(shape.see, page)
    with Results(out.table, shape, out.owner) as results:
        async for page in _kept(db, mid, unknown):
            await asyncio.to_thread(results.add, page)
        return await asyncio.to_thread(results.finish)


async def _kept(db: Database, mid: int, unknown: frozenset[str]) -> AsyncIterator[list[Result]]:
    """Key and result of the rows that were completed when the map ended, in input order, a page at a time."""
    after = -1
    while page := await steps.read_rows(db, mid, after, limits.ROWS_PAGE_BYTES):
        yield [(row.key, row.value or "null") for row in page if row.state == "kept" and row.key not in unknown]
        after = page[-1].index
