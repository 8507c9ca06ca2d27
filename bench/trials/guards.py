"""What each guard costs: no-op runs with it, and with it taken away for the length of a drain."""

from __future__ import annotations

import contextlib
from collections.abc import AsyncIterator
from typing import Final

from bench.field import Side
from bench.trials.draining import drain as drained
from bench.trials.drains import filled

# Guard -> (taken away, put back). What is not a thing of its own in the catalogue (fences, the lock before the look, events, histories,
# fair turns) is part of a statement, and cannot be taken away without another statement.
GUARDS: Final[dict[str, tuple[str, str]]] = {
    "all": ("select 1", "select 1"),
    "moves": (
        "alter table fencepost.task disable trigger task_moves",
        "alter table fencepost.task enable trigger task_moves",
    ),
    "leaving": (
        "alter table fencepost.task disable trigger task_leaves",
        "alter table fencepost.task enable trigger task_leaves",
    ),
    "shapes": ("", ""),
}
_SHAPES: Final = """
select format('alter table %s drop constraint %I', c.conrelid::regclass, c.conname),
       format('alter table %s add constraint %I %s', c.conrelid::regclass, c.conname, pg_get_constraintdef(c.oid))
  from pg_constraint c where c.connamespace = 'fencepost'::regnamespace and c.contype = 'c'"""


async def guards(side: Side) -> dict[str, float]:
    """Server CPU (µs) and WAL (bytes) of a run without each guard; `all`: with every one."""
    found: dict[str, float] = {}
    n = side.sizes.runs
    for guard in GUARDS:
        await filled(side, "noop", n)
        async with _without(side, guard):
            seen = await drained(side, n)
        found[f"guard_{guard}_us"] = seen.server_us
        found[f"guard_{guard}_wal"] = seen.wal
    return found


@contextlib.asynccontextmanager
async def _without(side: Side, guard: str) -> AsyncIterator[None]:
    away, back = GUARDS[guard]
    if guard == "shapes":
        rows = [tuple(row) for row in await side.db.fetch(_SHAPES)]
        away, back = ("; ".join(row[place] for row in rows) for place in (0, 1))
    await side.db.execute(away)
    try:
        yield
    finally:
        await side.reset()
        await side.db.execute(back)
