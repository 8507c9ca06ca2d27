"""Short words for tests: a run, a claim, a holder, a look at the tables, the one wait with nothing to wait on."""

from __future__ import annotations

import asyncio
import itertools
import uuid
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import asyncpg

from fencepost import admission, attempts, lanes
from fencepost.admission import Admitted, Launch
from fencepost.attempts import Claimed
from fencepost.db import Database
from fencepost.testing import with_database

LOGIN = "fencepost_test_login"
_requests = itertools.count(1)


def as_worker(dsn: str) -> str:
    """The same database, as a login of the worker role."""
    return with_database(dsn, dsn.partition("?")[0].rpartition("/")[2], user=LOGIN)


@asynccontextmanager
async def empty_database(server: str, options: str = "strategy file_copy") -> AsyncIterator[str]:
    """The DSN of a database in which nothing of ours stands yet."""
    name = f"fencepost_empty_{uuid.uuid4().hex}"
    async with connected(server) as owner:
        await owner.execute(f"create database {name} {options}")
        try:
            yield with_database(server, name)
        finally:
            await owner.execute(f"drop database {name} (force)")


@asynccontextmanager
async def connected(dsn: str) -> AsyncIterator[asyncpg.Connection]:
    connection = await asyncpg.connect(dsn)
    try:
        yield connection
    finally:
        await connection.close()


def launch(**changed: Any) -> Launch:
    """A launch that can be admitted into lane 1, with what a test changes of it."""
    given: dict[str, Any] = {
        "org": "default", "id": f"run-{uuid.uuid4().hex}", "name": "work", "lane": 1, "release": "dev", "input": "null",
    }  # fmt: skip
    return Launch(**(given | changed))


async def lane_of(db: Database, release: str = "dev") -> int:
    return (await lanes.register(db, release)).lane


async def admit_one(db: Database, id: str | None = None, **changed: Any) -> int:
    """A new run of lane `dev` (or `release=`); its internal id."""
    if "lane" not in changed:
        changed["lane"] = await lane_of(db, changed.get("release", "dev"))
    answer = (await admission.admit(db, [launch(**(changed if id is None else changed | {"id": id}))]))[0]
    assert isinstance(answer, Admitted), answer
    assert answer.how == "created", answer
    return answer.rid


async def new_holder(
    db: Database, *, release: str = "dev", name: str = "worker", lease: float = 30.0, beat: float = 8.0, **facts: Any
) -> uuid.UUID:
    """A worker's incarnation. All have the same name: a name proves nothing (law 40.9)."""
    holder = uuid.uuid4()
    given = {"boot_id": "boot", "pid_namespace": "4026531836", "pid": 4242, "process_start": "77"} | facts
    await attempts.open_incarnation(
        db, holder, lane=await lane_of(db, release), name=name, lease_seconds=lease, heartbeat_seconds=beat, **given
    )
    return holder


def next_request() -> int:
    """A request number larger than any before, of whatever holder."""
    return next(_requests)


async def claim_all(
    db: Database, holder: uuid.UUID, *, most: int = 1, request: int | None = None, cursor: str = "", alone: bool = True,
    release: str = "dev",
) -> tuple[Claimed, ...]:  # fmt: skip
    """What a request gives, in order."""
    claim = await attempts.claim(
        db, holder, next_request() if request is None else request, lane=await lane_of(db, release), most=most,
        cursor=cursor, alone=alone, patience=30,
    )  # fmt: skip
    assert not claim.buried
    return claim.claimed


async def claim_one(db: Database, holder: uuid.UUID | None = None, **how: Any) -> Claimed:
    """The next run of the lane, for `holder` or a new one; there must be one."""
    claimed = await claim_all(db, await new_holder(db) if holder is None else holder, **how)
    assert len(claimed) == 1, claimed
    return claimed[0]


async def look(admin: asyncpg.Connection, rid: int, *columns: str, table: str = "task") -> Any:
    """A run's row in a table: one value for one column, else a tuple; None when there is no row."""
    row = await admin.fetchrow(f"select {', '.join(columns or ['state'])} from fencepost.{table} where rid = $1", rid)
    return None if row is None else row[0] if len(row) == 1 else tuple(row)


async def tables(admin: asyncpg.Connection, *, without: tuple[str, ...] = ()) -> dict[str, list[str]]:
    """Every row of every table, as text: for saying that nothing changed."""
    names = await admin.fetch(
        "select relname from pg_class where relnamespace = 'fencepost'::regnamespace and relkind = 'r' order by 1"
    )
    return {
        name: [r[0] for r in await admin.fetch(f"select x::text from fencepost.{name} x order by 1")]
        for (name,) in names
        if name not in without
    }


async def until_blocked(watch: asyncpg.Connection, pid: int, *, seconds: float = 10.0) -> None:
    """Wait until the backend `pid` waits for somebody's lock: PostgreSQL tells nobody, so it is asked."""
    async with asyncio.timeout(seconds):
        while not await watch.fetchval("select cardinality(pg_blocking_pids($1)) > 0", pid):  # noqa: ASYNC110 - see above
            await asyncio.sleep(0.005)  # waits: a lock wait begins without an event
