"""Chapter 80.5: what a worker does once the end of a leg is committed, or once its fence is lost: nothing that changes the end."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncGenerator
from concurrent.futures import ThreadPoolExecutor
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any, Self

import asyncpg
import pytest

from fencepost import App, Context, terminal
from fencepost.attempts import Claimed
from fencepost.db import Database
from fencepost.testing import pause_at
from fencepost.worker.execution import WorkerFace
from fencepost.worker.held import Holding
from fencepost.worker.progress import ProgressBoard
from fencepost.worker.stepleg import Workshop
from tests.legs import Driver
from tests.roads.proxy import Line
from tests.support import claim_one, look, tables
from tests.support_runs import holder_of, ledger_of, lose

pytestmark = pytest.mark.usefixtures("lawful")
CHANNEL = "somebody_waits"


@pytest.fixture
def app() -> App:
    app = App("after")

    @app.step()
    async def pay() -> int:
        return 7

    @app.workflow()
    async def flow(ctx: Context, fails: bool) -> int:
        paid = await ctx.step(pay)
        if fails:
            raise ValueError("no more")
        return paid

    return app


@asynccontextmanager
async def watched(db: Database, dsn: str) -> AsyncGenerator[asyncio.Queue[object]]:
    """What is told to somebody who waits for the run."""
    told: asyncio.Queue[object] = asyncio.Queue()
    await terminal.watch_outcome(db, "default", "run", CHANNEL)
    connection = await asyncpg.connect(dsn)

    def hear(_connection: Any, _pid: int, _channel: str, payload: object) -> None:
        told.put_nowait(payload)

    await connection.add_listener(CHANNEL, hear)
    try:
        yield told
    finally:
        await connection.close()


class Hands:
    """A worker's hands without its feet: what it holds, and what it has to say."""

    def __init__(self, db: Database, app: App) -> None:
        self.board = ProgressBoard(db)
        self.face = WorkerFace(db, ThreadPoolExecutor(1), 30.0, progress=self.board.note, over=self.board.forget)
        self.holding = Holding(
            self.face, app, Workshop(db, Path()), changed=lambda: None, timed=lambda: None, ended=lambda _: None
        )

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.holding.leave()
        self.board.close()

    async def empty(self) -> None:
        async with asyncio.timeout(20):
            await self.holding.empty()
        assert self.holding.names() == []


async def leased(admin: asyncpg.Connection, claimed: Claimed) -> int:
    """Marks that somebody would wait for: their fence is alive."""
    return await admin.fetchval(
        """select count(*) from fencepost.boundary b join fencepost.task t on t.rid = b.rid and t.fence = b.fence
            where b.rid = $1 and b.state = 'marked'""",
        claimed.fence.rid,
    )


@pytest.mark.parametrize("fails", [False, True])
async def test_a_worker_whose_line_breaks_right_after_the_end_reads_the_stored_end_and_tells_it_no_second_time(
    worker_dsn: str, dsn: str, db: Database, admin: asyncpg.Connection, app: App, tmp_path: Path, fails: bool
) -> None:
    """80.5 The end tells who waits in its own transaction, before the worker has an answer; asked again nothing changes."""
    async with Line(worker_dsn, tmp_path) as line, Hands(Database(line.dsn, connections=2), app) as hands:
        await Driver(db, app).start("flow", fails, id="run")
        mine = await claim_one(db)
        async with watched(db, dsn) as told:
            with pause_at("leg.ended") as pause:
                hands.holding.take([mine])
                await pause.reached()
                hands.board.note(mine.fence, '{"done":1}')
                line.deaf = True
            assert await asyncio.wait_for(told.get(), 20) == "ended"
            before = await tables(admin)
            assert await look(admin, mine.fence.rid, "status", table="outcome") == ("failed" if fails else "completed")
            assert hands.holding.names() == [(mine.fence.rid, 1)], "held until the door that ended it has answered"
            line.deaf = False
            line.drop()
            await hands.empty()
            assert await tables(admin) == before
            assert told.empty()
        assert len(hands.board) == 0
        assert (await ledger_of(admin, mine.fence.rid)).count("run.failed" if fails else "run.completed") == 1
        assert await leased(admin, mine) == 0
        await hands.face.db.close()


async def test_a_stale_holder_looks_at_the_stored_end_leaves_no_mark_leased_and_says_nothing_more(
    dsn: str, db: Database, admin: asyncpg.Connection, app: App, caplog: pytest.LogCaptureFixture
) -> None:
    """80.5, 40.4, 50.7 It was judged lost inside its step, and an operator ended the run: its late result is evidence only."""
    await Driver(db, app).start("flow", False, id="run")
    mine = await claim_one(db)
    async with watched(db, dsn) as told, Hands(db, app) as hands:
        with caplog.at_level(logging.INFO, "fencepost"), pause_at("step.end") as pause:
            hands.holding.take([mine])
            await pause.reached()
            assert await leased(admin, mine) == 1
            await lose(db, await holder_of(admin, mine.fence))
            assert await leased(admin, mine) == 0
            assert await terminal.end(db, "default", "run", by="ann", reason="no more") == ("done", "failed")
            assert await asyncio.wait_for(told.get(), 20) == "ended"
            before = await tables(admin, without=("late",))
            hands.board.note(mine.fence, '{"done":1}')
            pause.release()
            await hands.empty()
        assert await tables(admin, without=("late",)) == before
        assert await look(admin, mine.fence.rid, "ok", "value", "accepted", table="late") == (True, "7", False)
        assert told.empty()
    assert len(hands.board) == 0
    said = [getattr(record, "fencepost", {}) for record in caplog.records if "overtaken" in record.message]
    assert said == [{"run": "run", "number": 1, "status": "failed"}]
