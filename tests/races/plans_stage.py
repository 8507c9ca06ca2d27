"""A stage on which plans' workers are killed, paused and told to leave; every worker of it is the test's own."""

from __future__ import annotations

import asyncio
import contextlib
import signal
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any
from uuid import UUID

import pytest

from fencepost import plans
from fencepost.testing import TemplateDatabase
from fencepost.worker import process
from tests import support_plans
from tests.crash.stage import Child, Stage
from tests.roads.crew import until

LEASE, BEAT = 1.0, 0.25
SOON = 30.0  # seconds: far more than anything takes here, for a machine that does something else as well


class Yard:
    """Workers that carry out plans, started and ended one by one."""

    def __init__(self, stage: Stage, folder: Path) -> None:
        self.stage = stage
        self.go = folder / "go"  # commands that wait go on when it is there

    async def worker(self, **order: Any) -> Child:
        """A worker that has beaten once."""
        given = {"role": "worker", "app": "main", "lease": LEASE, "beat": BEAT} | order
        child = await self.stage.fork(**given)
        await self.stage.within(asyncio.shield(child.ready), "a worker's start", seconds=SOON)
        return child

    async def ended(self, run: str, *, seconds: float = SOON) -> dict[str, Any]:
        """The plan's document once it has ended; every invariant of it and of every other run here holds."""
        await self.stage.within(self.stage.settled(run), f"the end of {run}", seconds=seconds)
        document = await support_plans.judge(self.stage, run)
        await self.stage.judge()
        return document

    async def begun(self, run: str, step: str, n: int = 1) -> None:
        """Until a step's command has begun for the nth time."""
        await until(lambda: support_plans.begins(self.stage, run, step) >= n, f"beginning {n} of {step}", SOON)

    async def pids(self, run: str) -> list[int]:
        """The supervisors of a plan's attempts, in the order in which they began."""
        return [row["pid"] for row in await self.stage.rows(support_plans.ATTEMPTS, run)]

    async def gone(self, pid: int) -> None:
        await until(lambda: process.is_gone(pid, None), f"the end of process {pid}", SOON)

    async def exit(self, worker: Child) -> int | None:
        """A worker's exit code, once it has ended by itself."""
        await self.stage.within(worker.ended.wait(), "a worker's end", seconds=SOON)
        await asyncio.sleep(0.05)  # waits: for its last word, which may be read after its end
        return worker.exit

    async def events(self, run: str) -> list[str]:
        """The types of everything in the ledgers of a plan and its children, by run and place."""
        rows = await self.stage.rows(
            "select l.type from fencepost.ledger l join fencepost.run r using (rid) where r.id = $1 or r.id like $1 || '/%' order by r.rid, l.seq",
            run,
        )
        return [row["type"] for row in rows]

    async def holder(self, child: str) -> str | None:
        """Who holds a child run, as hex digits."""
        found = await self.stage.value("select holder from watch.live where id = $1", child)
        return None if found is None else found.hex

    async def held_by(self, child: str, worker: Child) -> None:
        """Until a worker holds a child run."""
        await self.stage.until(
            "select exists (select from watch.live where id = $1 and holder::text = $2)",
            child, str(UUID(worker.ready.result())), what=f"{child} held by its adopter", seconds=SOON,
        )  # fmt: skip

    async def read(self, run: str) -> dict[str, Any]:
        document = await plans.read(self.stage.db, "default", run)
        assert document is not None
        return document


def by_id(document: dict[str, Any]) -> dict[str, dict[str, Any]]:
    return {found["id"]: found for found in document["steps"]}


@pytest.fixture
async def yard(template: TemplateDatabase, tmp_path: Path) -> AsyncIterator[Yard]:
    async with template.clone() as installation, Stage(installation, tmp_path, "plans", heals=False) as stage:
        yield Yard(stage, tmp_path)
        for child in stage.children.values():  # what is stopped hears nothing but this
            with contextlib.suppress(ProcessLookupError):
                child.signal(signal.SIGCONT)
