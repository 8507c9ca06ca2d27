"""Verbs for tests of doors: mark, keep, park, finish, lose; and the villain, who looks exactly like the rightful holder."""

from __future__ import annotations

import asyncio
import json
import uuid
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from typing import Any, Literal

import asyncpg

from fencepost import attempts, recovery, steps, suspension, terminal
from fencepost.attempts import Claimed
from fencepost.db import Database
from fencepost.recovery import Beat
from fencepost.suspension import Started, Wait
from fencepost.words import Fence, OnLost
from tests.support import admit_one, look, new_holder, next_request

ERROR = json.dumps({"code": "WORKFLOW_ERROR", "message": "it broke"})


async def mark(
    db: Database, fence: Fence, name: str = "pay", ordinal: int = 1, *, repeatable: bool = False, again: bool = False,
    timeout_ms: int | None = None,
) -> Any:  # fmt: skip
    return await steps.mark(
        db, fence, name, ordinal, hash="h", repeatable=repeatable, timeout_ms=timeout_ms, again=again
    )


async def keep(
    db: Database, fence: Fence, name: str = "pay", value: str | None = "1", *, ordinal: int = 1, ok: bool = True,
    repeatable: bool = False, kind: Any = "step",
) -> Any:  # fmt: skip
    return await steps.keep(db, fence, kind, name, ordinal, hash="h", repeatable=repeatable, ok=ok, value=value)


async def finish(
    db: Database, fence: Fence, ending: terminal.Ending = "completed", value: str | None = None, **how: Any
) -> Any:
    if value is None:
        value = "1" if ending == "completed" else ERROR
    return await terminal.finish(db, fence, ending, value, **how)


def drop(kind: Literal["sleep", "signal", "child"], name: str, ordinal: int = 1) -> Wait:
    """A wait that lost a race."""
    return Wait(kind, name, ordinal, op="cancel")


def arm(
    kind: Literal["sleep", "signal", "child"],
    name: str = "review",
    ordinal: int = 1,
    ms: int | None = None,
    hash: str = "h",
) -> Wait:
    return Wait(kind, name, ordinal, ms, hash)


async def wait(
    db: Database, fence: Fence, *waits: Wait, known: int = 0, park: bool = True, said: str | None = None
) -> Any:
    return await suspension.wait(db, fence, waits, known_seq=known, park=park, said=said)


async def send(
    db: Database, run: str, name: str = "review", payload: str = "1", *, dedupe: str | None = None, org: str = "default"
) -> str:
    return await suspension.signal(db, org, run, name, dedupe=dedupe or uuid.uuid4().hex, payload=payload)


async def child_of(
    db: Database, fence: Fence, child_id: str, *, name: str = "kid", ordinal: int = 1, waits: bool = True, input: str = "null",
    on_lost: OnLost | None = None,
) -> Any:  # fmt: skip
    return await suspension.start_child(
        db,
        fence,
        name,
        ordinal,
        hash="h",
        waits=waits,
        child_id=child_id,
        child_name="kid",
        input=input,
        on_lost=on_lost,
    )


async def cancel(db: Database, run: str, *, grace: float = 30, reason: str = "enough") -> tuple[str, str | None]:
    return await terminal.cancel(db, "default", run, reason=reason, grace_ms=int(grace * 1000))


async def beat(
    db: Database, holder: uuid.UUID, *, answered: int = 0, held: Sequence[Fence] = (), dead: Sequence[uuid.UUID] = ()
) -> Beat:
    return await recovery.beat(
        db, holder, answered=answered, held=[(f.rid, f.number) for f in held], dead=list(dead), patience=30
    )


async def lose(db: Database, holder: uuid.UUID) -> int:
    """What this holder has is lost, by its own worker's word."""
    return await recovery.close_incarnation(db, holder, patience=30)


async def holder_of(admin: asyncpg.Connection, fence: Fence) -> uuid.UUID:
    found = await look(admin, fence.rid, "holder")
    assert found is not None
    return found


async def claim_by(db: Database, admin: asyncpg.Connection, rid: int) -> Claimed:
    """Claim this very run, by a new holder of the usual name."""
    claim = await attempts.claim_tree(db, await new_holder(db), next_request(), root=rid, most=1, patience=30)
    assert [c.fence.rid for c in claim.claimed] == [rid], claim
    return claim.claimed[0]


async def villain_of(db: Database, admin: asyncpg.Connection, old: Claimed) -> Claimed:
    """The old attempt is lost and the run claimed again by a worker of the same name: a stale write now meets a row that looks
    exactly as it did when it was the writer's own, but for number, fence and incarnation."""
    before = await look(admin, old.fence.rid, "state", "begun", "park", "due_at")
    name = await admin.fetchval(
        "select name from fencepost.incarnation where id = $1", await holder_of(admin, old.fence)
    )
    await lose(db, await holder_of(admin, old.fence))
    new = await claim_by(db, admin, old.fence.rid)
    assert await look(admin, old.fence.rid, "state", "begun", "park", "due_at") == before
    assert (
        await admin.fetchval("select name from fencepost.incarnation where id = $1", await holder_of(admin, new.fence))
        == name
    )
    return new


async def running(db: Database, id: str | None = None, **launch: Any) -> Claimed:
    """A new run in the hands of a new holder, and nothing else claimed."""
    rid = await admit_one(db, id, **launch)
    claim = await attempts.claim_tree(db, await new_holder(db), next_request(), root=rid, most=1, patience=30)
    assert len(claim.claimed) == 1, claim
    return claim.claimed[0]


async def family(db: Database, *, waits: bool = True, id: str = "dad", depth: int = 1) -> list[Claimed]:
    """A running parent with a running child, and so on: each in the hands of its own holder."""
    found = [await running(db, id)]
    for level in range(1, depth + 1):
        started = await child_of(db, found[-1].fence, f"{id}-{level}", waits=waits)
        assert isinstance(started, Started), started
        claim = await attempts.claim_tree(
            db, await new_holder(db), next_request(), root=started.child, most=1, patience=30
        )
        found += claim.claimed
    assert len(found) == depth + 1
    return found


async def ledger_of(admin: asyncpg.Connection, rid: int) -> list[str]:
    """The types of what happened, in order."""
    return [r[0] for r in await admin.fetch("select type from fencepost.ledger where rid = $1 order by seq", rid)]


async def outcome_of(admin: asyncpg.Connection, rid: int) -> tuple[str, str | None, str | None] | None:
    return await look(admin, rid, "status", "output", "error", table="outcome")


async def blocked_by(watch: asyncpg.Connection, other: asyncpg.Connection) -> None:
    """Wait until somebody waits for a lock of this connection's."""
    pid = other.get_server_pid()
    async with asyncio.timeout(10):
        query = "select exists (select from pg_stat_activity where $1 = any (pg_blocking_pids(pid)))"
        while not await watch.fetchval(query, pid):  # noqa: ASYNC110 - PostgreSQL tells nobody
            await asyncio.sleep(0.005)  # waits: a lock wait begins without an event


async def boundary(
    admin: asyncpg.Connection, rid: int, name: str, *columns: str, kind: str = "step", ordinal: int = 1
) -> Any:
    row = await admin.fetchrow(
        f"select {', '.join(columns or ['state'])} from fencepost.boundary where rid = $1 and kind = $2 and name = $3 and ordinal = $4",
        rid, kind, name, ordinal,
    )  # fmt: skip
    return None if row is None else row[0] if len(row) == 1 else tuple(row)


async def rows_of(admin: asyncpg.Connection, *columns: str) -> list[Any]:
    """Of every row of every map, in order: these columns; one alone is no tuple."""
    found = await admin.fetch(f"select {', '.join(columns)} from fencepost.row order by mid, index")
    return [row[0] if len(columns) == 1 else tuple(row) for row in found]


def history(claimed: Claimed) -> list[list[Any]]:
    """The recorded boundaries that the claim brought: [kind, name, ordinal, state, seq, hash, loose, repeatable, value, …]."""
    return json.loads(claimed.boundaries) if claimed.boundaries else []


async def batch(db: Database, door: str, *items: tuple[Any, ...]) -> list[Any]:
    """Ask a set-based door about several items in one call; its rows in the order of the items."""
    rows = await db.call(door, *(list(column) for column in zip(*items, strict=True)))
    return sorted(rows, key=lambda row: row["ord"])


@asynccontextmanager
async def holding(dsn: str, *rids: int) -> AsyncIterator[asyncpg.Connection]:
    """Meanwhile somebody else's transaction has the runs' rows locked."""
    other = await asyncpg.connect(dsn)
    try:
        async with other.transaction():
            await other.execute("select from fencepost.task where rid = any ($1) order by rid for update", list(rids))
            yield other
    finally:
        await other.close()
