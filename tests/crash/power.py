"""S33: the power goes. Workers, supervisors, commands and the server with all its processes are gone at once; then all starts again."""

from __future__ import annotations

import asyncio
import contextlib
import os
import shutil
import signal
import tempfile
from collections.abc import AsyncIterator
from pathlib import Path
from typing import TYPE_CHECKING

from fencepost.postgres import open_home
from fencepost.runner import tree
from tests import support_plans
from tests.crash import place
from tests.crash.boundaries import Boundary
from tests.crash.poison import Poison
from tests.crash.stage import Child, Stage
from tests.seams.embedded import KILLABLE, attached

if TYPE_CHECKING:
    from tests.crash.campaign import Tally

AT_ONCE = 4  # then the other scenarios have their turn
HOLD = "sleep 0.1\n"  # a command is in the middle of its work for so long


class PowerLoss(Poison):
    """Wherever it goes: what was committed stays, what ran is lost and, being repeatable, run again, and the plan ends."""

    def __init__(self, name: str, points: tuple[str, ...]) -> None:
        super().__init__(name, None, losses=0, code="")
        self.points = points

    async def play(self, stage: Stage, tally: Tally) -> None:
        if not tally.known:
            tally.known = [Boundary.parse(point) for point in self.points]
            tally.todo = list(tally.known)
        async with _opened() as (own, home):
            for _ in range(AT_ONCE):
                if tally.todo:
                    boundary = tally.todo.pop(0)
                    await _lose(own, home, f"{self.name}-{len(tally.todo)}", boundary)
                    tally.hit.add(boundary)
                    tally.crashes += 1


@contextlib.asynccontextmanager
async def _opened() -> AsyncIterator[tuple[Stage, Path]]:
    """A stage on a server of its own: nobody else's lights go out."""
    folder = Path(tempfile.mkdtemp(prefix="fp-power-", dir=place.fast_place()))
    programs = os.environ.get("FENCEPOST_TEST_PG_BIN")
    try:
        home = await asyncio.to_thread(
            open_home, folder / "home", create=True, settings=KILLABLE, idle_seconds=0, bin_dir=Path(programs) if programs else None
        )  # fmt: skip
        try:
            template = await place.template(home.dsn)
            async with template.clone() as installation, Stage(installation, folder, "power", heals=False) as own:
                yield own, folder / "home"
        finally:
            await asyncio.to_thread(home.close)
    finally:
        shutil.rmtree(folder, ignore_errors=True)


async def _lose(own: Stage, home: Path, run: str, boundary: Boundary) -> None:
    own.begin()
    await support_plans.admit(own, run, support_plans.diamond(code=HOLD, on_lost="replay"))
    worker = await own.fork(role="worker", app="main", target=str(boundary))
    await own.within(asyncio.shield(worker.hit), f"{boundary} of {run}")
    before = {(row["step"], row["name"]): tuple(row) for row in await own.rows(support_plans.RESULTS, run)}
    await _power_off(own, home, worker)
    await own.reconnect()
    workers = [await own.fork(role="worker", app="main") for _ in range(2)]
    outcome = await own.within(own.settled(run), f"the end of {run} after {boundary}", seconds=30)
    assert outcome.status == "completed", (boundary, outcome)
    document = await support_plans.judge(own, run)
    assert all(found["attempts"] == 1 for found in document["steps"]), "a loss is no try of a step's"
    after = {(row["step"], row["name"]): tuple(row) for row in await own.rows(support_plans.RESULTS, run)}
    assert before.items() <= after.items(), f"what was committed before {boundary} is another now"
    await own.judge()
    for one in workers:
        await own.dismiss(one)


async def _power_off(own: Stage, home: Path, worker: Child) -> None:
    """Everybody stands still, so that nobody sees another go; then everybody is gone."""
    server = attached(home)
    assert len(server) > 3, "a server of its own"
    places = [*own.supervisors(), *server, worker.pid]
    starts = {pid: start for pid in places if (start := tree.start_of(pid)) is not None}
    for pid in starts:
        with contextlib.suppress(ProcessLookupError):
            os.kill(pid, signal.SIGSTOP)
    for pid, start in starts.items():
        tree.kill(pid, start)
    await own.dismiss(worker)


POWER: list[Poison] = [
    PowerLoss("S33", (
        "step.started[a]:1", "statement.executed[begin_steps]:2", "step.gone[c]:1", "step.ended[e]:1",
        "statement.before[finish_attempts]:3", "statement.executed[finish_attempts]:4", "step.told[f]:1",
    )),
]  # fmt: skip
