"""F: what an idle worker asks of the server, with defaults."""

from __future__ import annotations

import asyncio

from bench.field import Side
from bench.trials.latencies import warm

QUIET_SECONDS = 3.0

# What the worker's connections sent, as pg_stat_statements counts it: no autovacuum, and not ourselves.
SENT = """select coalesce(sum(s.calls), 0)::bigint from pg_stat_statements s join pg_database d on d.oid = s.dbid
           where d.datname = current_database() and s.toplevel and s.query !~ 'pg_stat_statements'"""


async def idle(side: Side) -> dict[str, float]:
    """Statements a second of one worker, its heartbeat's among them. Nothing where the extension is missing."""
    if not side.field.statements:
        return {}
    async with side.workers(1, "idle"):
        await warm(side)
        await asyncio.sleep(QUIET_SECONDS)  # waits: until it sleeps
        before = await side.db.fetchval(SENT)
        await asyncio.sleep(side.sizes.idle)  # waits: the time that is measured
        after = await side.db.fetchval(SENT)
    return {"F": (after - before) / side.sizes.idle}
