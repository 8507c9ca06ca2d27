"""How many rows the server read for a call: what a plan costs, whatever the machine."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import asyncpg

# Of this transaction's own session. The server's views would count what another session did a while ago and told only now.
_READ = """
select coalesce(sum(pg_stat_get_xact_tuples_returned(c.oid)), 0)::bigint from pg_class c join pg_namespace n on n.oid = c.relnamespace
 where n.nspname = 'fencepost' and c.relkind in ('r', 'i') and ($1::text is null or c.relname = $1)"""


async def reads_of(
    session: asyncpg.Connection, door: str, *columns: Any, by: str | None = None
) -> tuple[int, Sequence[asyncpg.Record]]:
    """Ask a door in a transaction: the rows and index entries it read, dead ones too, and its answer. `by`: those of one index or table."""
    marks = ", ".join(f"${n}" for n in range(1, len(columns) + 1))
    async with session.transaction():
        before = await session.fetchval(_READ, by)
        rows = await session.fetch(f"select * from fencepost.{door}({marks})", *columns)
        return await session.fetchval(_READ, by) - before, rows
