"""What all games of the oracle's test share, and what each compares after every move."""

from __future__ import annotations

import asyncio
import itertools
import uuid
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from datetime import datetime
from typing import Any

import asyncpg

from fencepost import Client, RunCancelled, RunFailed, RunUnknown, ledger, limits, recovery, terminal
from fencepost.attempts import Claimed
from fencepost.db import Database
from fencepost.hot import Record
from fencepost.testing import Clock
from fencepost.words import ERROR_CODES, EVENT_TYPES
from fencepost.worker.execution import WorkerFace
from fencepost.worker.leg import Leg
from tests import oracle_workflows
from tests.oracle import Oracle
from tests.oracle_records import REPEATABLE, Disagreement, Run

_games = itertools.count(1)


class QuickClock(Clock):
    """The same clock over a connection that stays."""

    def __init__(self, connection: asyncpg.Connection) -> None:
        super().__init__("")
        self._connection = connection

    async def _ask(self, text: str, *args: Any) -> datetime:
        return await self._connection.fetchval(text, *args)


class Watched(Database):
    """It knows when nobody asks it anything: a leg that stands at a gate may have a row's result under way."""

    def __init__(self, dsn: str, *, connections: int) -> None:
        super().__init__(dsn, connections=connections)
        self._under_way = 0
        self._idle_again = asyncio.Event()

    async def call(self, door: str, *args: Any, patience: float = limits.CLIENT_PATIENCE_SECONDS) -> list[Record]:
        self._under_way += 1
        try:
            return await super().call(door, *args, patience=patience)
        finally:
            self._under_way -= 1
            self._idle_again.set()

    async def quiet(self) -> None:
        """Wait until nothing is under way, nor about to be."""
        turns = 0
        while turns < 10:
            await asyncio.sleep(0)  # waits: a turn, in which whoever was answered goes on
            turns += 1
            while self._under_way:
                turns = 0
                self._idle_again.clear()
                await self._idle_again.wait()


@dataclass
class Table:
    """What all games share: one database, one client, one worker's face."""

    db: Watched
    owner: asyncpg.Connection
    clock: QuickClock
    client: Client
    face: WorkerFace
    lane: int

    @staticmethod
    async def lay(worker_dsn: str, owner_dsn: str) -> Table:
        db = Watched(worker_dsn, connections=4)
        owner = await asyncpg.connect(owner_dsn)
        client = Client(db, "dev")
        clock = QuickClock(owner)
        await clock.set(await clock.now())
        face = WorkerFace(db, ThreadPoolExecutor(1), 30.0)
        return Table(db, owner, clock, client, face, await client.lane())

    async def clear(self) -> None:
        self.face.threads.shutdown()
        await self.client.close()
        await self.db.close()
        await self.owner.close()


@dataclass(eq=False)
class Held:
    """A leg at a gate, alone in its incarnation."""

    leg: Leg
    task: asyncio.Task[str]
    holder: uuid.UUID
    claimed: Claimed
    request: int


class Seat:
    """One game's place at the table: both sides, and the eyes that compare them."""

    def __init__(self, table: Table) -> None:
        self.table = table
        self.oracle = Oracle()
        self.world = oracle_workflows.WORLD = oracle_workflows.World()
        self.org = f"game-{next(_games)}-{uuid.uuid4().hex[:8]}"
        self.moves: list[list[Any]] = []
        self.holder: uuid.UUID | None = None
        self.holders: list[uuid.UUID] = []
        self.request = 0
        self.held: dict[str, Held] = {}
        self.zombies: list[tuple[Held, tuple[str, str, int]]] = []
        self.events: dict[str, list[str]] = {}
        self.listed: dict[str, tuple[str, int, int]] = {}
        self.results: set[str] = set()

    # ── what must agree ──────────────────────────────────────────────────────────────────────────────────────────────

    async def _listed(self) -> list[ledger.Listed]:
        return await ledger.read_runs(self.table.db, org=self.org, statuses=None, name=None, before=None, limit=500)

    async def heed_ended(self) -> None:
        """A leg may hear of its cancel before its worker's beat does: by any door that it asks, or by looking after its waits."""
        ended = []
        for id, held in self.held.items():
            if self.oracle.runs[id].cancelling and await self._handle(self.oracle.runs[id]).status() == "cancelled":
                await held.task
                ended.append(id)
        for id in ended:
            del self.held[id]
        self.oracle.heed(ended)

    async def compare(self) -> None:
        runs, listed = self.oracle.runs, {line.run_id: line for line in await self._listed()}
        if any(runs[id].cancelling and listed[id].status == "cancelled" for id in self.held):
            await self.heed_ended()
            return await self.compare()
        assert set(listed) == set(runs), f"runs {set(listed) ^ set(runs)} are known to one side only"
        for id, run in runs.items():
            line = listed[id]
            seen, told = (line.status, line.attempts, line.tries), (run.state, run.attempts, run.tries)
            if seen != told:
                document = (await ledger.read_run(self.table.db, self.org, id) or {}) | {"workers": ...}
                raise Disagreement(f"{id} is {seen}, the oracle says {told}: {run}\n{document}")
            if (run.ended or run.state == "unknown") and id not in self.results:
                await self._compare_result(run)
            if seen != self.listed.get(id):
                await self._compare_events(run)
                self.listed[id] = seen
        self._compare_begun()
        return None

    def _compare_begun(self) -> None:
        for at in self.world.begun.keys() | self.oracle.begun.keys():
            seen, told = self.world.begun[at], self.oracle.begun[at]
            if seen == told:
                continue
            runs = [r for r in self.oracle.runs.values() if r.tag == at[0]]
            if seen > told and runs[0].kind(at[1]) in REPEATABLE and any(run.loose for run in runs):
                self.oracle.begun[at] = seen
                continue
            raise Disagreement(f"step {at} was begun {seen} times, the oracle says {told}: {runs}")

    async def _compare_result(self, run: Run) -> None:
        seen: tuple[str, Any]
        try:
            seen = ("completed", await self._handle(run).result(timeout=10))
        except RunFailed as failed:
            assert failed.code in ERROR_CODES, failed.code
            seen = ("failed", failed.code)
        except RunCancelled:
            seen = ("cancelled", None)
        except RunUnknown:
            seen = ("unknown", None)
        told = (run.state, run.output if run.state == "completed" else run.code if run.state == "failed" else None)
        assert seen == told, f"{run.id} gave {seen}, the oracle says {told}: {run}"
        if run.ended:
            self.results.add(run.id)

    async def _compare_events(self, run: Run) -> None:
        """90.1: a closed list, 1..n without gaps, one end, and as many claims as attempts."""
        types = self.events.setdefault(run.id, [])
        for event in await ledger.read_events(self.table.db, self.org, run.id, after=len(types)):
            types.append(event.type)
            assert event.seq == len(types), f"event {event.seq} of {run.id} follows {len(types) - 1}"
            assert event.type in EVENT_TYPES, event
        assert types[0] == "run.admitted", types
        assert types.count("attempt.claimed") == run.attempts, types
        ends = [t for t in types if t in {"run.completed", "run.failed", "run.cancelled"}]
        assert ends == ([f"run.{run.state}"] if run.ended else []), types

    async def over(self) -> None:
        """The last look: everything that has ended still says what it said."""
        self.results.clear()
        self.listed.clear()
        await self.compare()

    async def leave(self) -> None:
        """Nothing of this game may be claimed or woken in the next one."""
        for held in [*self.held.values(), *(zombie for zombie, _ in self.zombies)]:
            held.leg.abort("lost")
            await held.task
        for holder in self.holders:
            await recovery.close_incarnation(self.table.db, holder, patience=30)
        for line in await self._listed():
            if line.finished_at is None:
                await terminal.end(self.table.db, self.org, line.run_id, by="operator", reason="the game is over")
