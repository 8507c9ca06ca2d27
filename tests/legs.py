"""Runs driven by hand: claim, run one leg, lose it, go on with the next. No worker, so nothing happens unasked.

A leg that a test may lose is claimed by an incarnation of its own, so that it is judged gone without its neighbours.
"""

from __future__ import annotations

import asyncio
import json
import os
import uuid
from collections.abc import Callable, Iterable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from fencepost import App, Workflow, admission, attempts, ledger, recovery, suspension, terminal, values
from fencepost.admission import Admitted, Launch
from fencepost.attempts import Claimed
from fencepost.db import Database
from fencepost.testing import at_point
from fencepost.worker.execution import WorkerFace
from fencepost.worker.leg import Leg
from tests.support import lane_of, new_holder, next_request

ORG = "default"
ENDED = frozenset({"completed", "failed", "cancelled"})
KEEPS = frozenset({"keep_steps", "keep_rows"})
LOOKS = frozenset({"start_children", "mark_steps", "mark_rows", "open_map", "park_attempts"})


class Effects:
    """Effects on the world, counted in a file outside the database: one line each, written by one call."""

    def __init__(self, path: Path) -> None:
        self._fd = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
        self._path = path

    def happen(self, what: str) -> None:
        os.write(self._fd, f"{what}\n".encode())

    def all(self) -> list[str]:
        return self._path.read_text().splitlines()

    def count(self, what: str) -> int:
        return self.all().count(what)


async def overtaken() -> None:
    """Wait for nothing: other branches may overtake."""
    await asyncio.sleep(0)  # waits: one turn of the loop


async def until(leg: Leg, condition: Callable[[Leg], bool], *, seconds: float = 10) -> None:
    """Wait until a leg stands so."""
    async with asyncio.timeout(seconds):
        while not condition(leg):  # noqa: ASYNC110 - a leg's rest has no event
            await asyncio.sleep(0.002)  # waits: see above


def run_of(leg: Leg) -> asyncio.Task[str]:
    return asyncio.create_task(leg.run(), name="the leg")


def looked(leg: Leg) -> bool:
    """Its waits are armed and were looked for, nothing has told it to look again, and it has not parked."""
    waits = leg.waits
    return waits is not None and waits.timer is not None and waits.looking is None and not waits.hinted


@dataclass
class Driver:
    """A lane with no worker. `app` may be replaced by the next release's in the middle of a run."""

    db: Database
    app: App
    threads: ThreadPoolExecutor = field(default_factory=lambda: ThreadPoolExecutor(4))
    endings: list[str] = field(default_factory=list)  # what became of each leg
    _holders: dict[Leg, uuid.UUID] = field(default_factory=dict)
    _present: dict[str, Leg] = field(default_factory=dict)  # the leg of each run that ran last
    _holder: uuid.UUID | None = None  # of the next leg
    _watcher: uuid.UUID | None = None  # who beats
    _kept: bool = True  # the leg lost last had kept something

    async def start(
        self, workflow: Workflow[Any, Any] | str, input: Any = None, *, id: str | None = None, **launch: Any
    ) -> str:
        """Admit a run; its id."""
        name = workflow if isinstance(workflow, str) else workflow.name
        run = id or f"run-{uuid.uuid4().hex}"
        text = values.encode(input)
        given: dict[str, Any] = {
            "org": ORG,
            "id": run,
            "name": name,
            "lane": await lane_of(self.db),
            "release": "dev",
            "input": text,
        }
        if isinstance(workflow, Workflow) and workflow.on_lost is not None:
            given["on_lost"] = workflow.on_lost
        answer = (await admission.admit(self.db, [Launch(**(given | launch))]))[0]
        assert isinstance(answer, Admitted), answer
        return run

    async def claim(self, *, most: int = 1, together: bool = False) -> list[Leg]:
        """Legs for what waits in the line, not begun yet; `together`: held by one incarnation, not to be lost one by one."""
        legs: list[Leg] = []
        while len(legs) < most:
            holder = self._holder = self._holder or await self._incarnation()
            claim = await attempts.claim(
                self.db, holder, next_request(), lane=await lane_of(self.db), most=most if together else 1, cursor="",
                alone=not legs, patience=30,
            )  # fmt: skip
            if not claim.claimed:
                break
            legs += [self._leg(holder, claimed) for claimed in claim.claimed]
            if most > 1 and not together:
                self._holder = None
        return legs

    async def _incarnation(self) -> uuid.UUID:
        """One that nobody hears and nobody calls silent while a test runs."""
        return await new_holder(self.db, lease=3600, beat=1200)

    def _leg(self, holder: uuid.UUID, claimed: Claimed) -> Leg:
        face = WorkerFace(self.db, self.threads, 30.0)
        leg = Leg(face, claimed, self.app.registry.workflows[claimed.name])
        self._holders[leg] = holder
        return leg

    async def one_leg(self, seconds: float = 20) -> Leg:
        """The next leg in the line; there must be one. A claim passes over a row that a call of the dead still has locked."""
        for _ in range(100):
            if legs := await self.claim():
                return legs[0]
        raise AssertionError("nothing waits in the line")

    async def run_one_leg(self, seconds: float = 20) -> str:
        """Claim the next run and run its leg to the end; what became of it."""
        return await self.finish(await self.one_leg(), seconds)

    async def finish(self, leg: Leg, seconds: float = 20) -> str:
        """Run a leg to its end."""
        self._present[leg.claimed.id] = leg
        async with asyncio.timeout(seconds):
            ending = await leg.run()
        self.endings.append(ending)
        return ending

    async def run_until(self, run: str, *statuses: str, seconds: float = 30) -> dict[str, Any]:
        """Run legs (of this run, of its children, of whatever waits) until the run has one of the statuses; the run's document.

        Sweeps as any worker's beat would. Raises TimeoutError when nothing brings it there.
        """
        async with asyncio.timeout(seconds):
            while (doc := await self.show(run))["status"] not in (statuses or ENDED):
                await self._run_some()
        return doc

    async def _run_some(self) -> None:
        """What waits in the line, to its end; or a beat."""
        legs = await self.claim(most=8, together=True)
        if legs:
            endings = asyncio.gather(*(self.finish(leg) for leg in legs))
            await self._meanwhile(endings)
            for leg, ending in zip(legs, endings.result(), strict=True):
                if ending == "stale":
                    await self.bury(leg)
        else:
            await self.beat()

    async def _meanwhile(self, legs: asyncio.Future[Any]) -> None:
        """Wait for legs. One that does not park may wait for a child: somebody else must run it. (One that has just parked may be run there
        as well.)
        """
        try:
            while not (await asyncio.wait({legs}, timeout=0.05))[0]:
                self._holder = None
                await self._run_some()
        finally:
            legs.cancel()
        await legs

    async def beat(self, dead: Iterable[uuid.UUID] = ()) -> recovery.Beat:
        """One beat of somebody else on this host, with everybody's due sweeps."""
        watcher = self._watcher = self._watcher or await self._incarnation()
        return await recovery.beat(self.db, watcher, answered=0, held=[], dead=list(dead), patience=30)

    async def lose(self, leg: Leg, task: asyncio.Task[str] | None = None) -> None:
        """The leg's process dies: its tasks are gone, nothing is written, and a neighbour sees that it is gone."""
        leg.abort("lost")
        if task is not None:
            async with asyncio.timeout(20):
                assert await task == "stale"
        await self.bury(leg)

    async def bury(self, leg: Leg) -> None:
        """The holder of a leg is judged gone. A sweep passes over what a call of the dead still has locked: the next one finds it."""
        self._holder = None
        holder = self._holders[leg]
        await self.beat([holder])
        while ((await self.show(leg.claimed.id))["task"] or {}).get("holder") == str(holder):
            await self.beat()

    async def lose_at(
        self,
        point: str,
        *,
        nth: int = 1,
        stand: int | None = None,
        when: Callable[[dict[str, Any]], bool] | None = None,
    ) -> Leg:
        """Run the next leg until the point is reached for the nth time, and lose it there. `stand`: from which time on whoever
        reaches the point goes no further; unset, the nth.
        """
        leg = await self.one_leg()

        async def gone(_: dict[str, Any], n: int) -> None:
            if n == nth:
                leg.abort("lost")
            if n >= (stand or nth) and point.startswith(
                ("step.", "row.", "map.")
            ):  # it stands still, and is unwound there
                await asyncio.Event().wait()

        with at_point(point, gone, when=when):
            ending = await self.finish(leg)
        assert ending == "stale", (ending, "the point was not reached")
        await self.bury(leg)
        return leg

    async def run_losing(self, run: str, every: int, *statuses: str, seconds: float = 60) -> dict[str, Any]:
        """Like run_until, but each leg is lost after its every-th commit, and once more just before its end is told."""
        async with asyncio.timeout(seconds):
            while (doc := await self.show(run))["status"] not in (statuses or ENDED):
                legs = await self.claim()
                if legs:
                    await self._run_lossy(legs[0], every)
                else:
                    await self.beat()
        return doc

    async def _run_lossy(self, leg: Leg, every: int) -> None:
        """A mark or a look counts as a commit only where the leg before has kept something: else nothing would ever come of the run."""
        counted = KEEPS | LOOKS if self._kept else KEEPS
        at_its_end = f"lost at its end: {leg.claimed.id}"
        commits = 0
        self._kept = False

        def committed(facts: dict[str, Any], _: int) -> None:
            nonlocal commits
            self._kept |= facts["door"] in KEEPS
            commits += facts["door"] in counted
            if commits >= every:
                leg.abort("lost")

        def ended(facts: dict[str, Any], _: int) -> None:
            if facts["run"] == leg.claimed.id and self.endings.count(at_its_end) < 2:
                self._present[leg.claimed.id].abort("lost")
                self.endings.append(at_its_end)

        with at_point("statement.executed", committed), at_point("leg.ended", ended):
            await self._meanwhile(task := asyncio.ensure_future(self.finish(leg)))
        if task.result() == "stale":
            await self.bury(leg)

    async def signal(self, run: str, name: str, payload: Any = None) -> None:
        answer = await suspension.signal(
            self.db, ORG, run, name, dedupe=uuid.uuid4().hex, payload=values.encode(payload)
        )
        assert answer == "sent", answer

    async def cancel(self, run: str, *, grace: float = 30) -> str:
        return (await terminal.cancel(self.db, ORG, run, reason="enough", grace_ms=int(grace * 1000)))[0]

    async def resolve(
        self, run: str, step: str, verdict: Any, value: Any = None, *, ordinal: int = 1, row: str | None = None
    ) -> None:
        """An operator's word on an unknown step or row."""
        text = (
            values.encode(value)
            if verdict != "failed"
            else json.dumps({"code": "STEP_FAILED", "message": str(value), "type": "Ruled"})
        )
        done = await recovery.resolve(
            self.db, ORG, run, step=step, ordinal=ordinal, row_key=row, verdict=verdict, value=text, by="a person"
        )
        assert done == ("done", None), done

    async def resolve_all(self, run: str, verdict: str = "again", value: Any = None) -> None:
        """An operator's word on each unknown step, and then that the attempt as a whole is to go on."""
        for step in (await self.show(run))["steps"]:
            if step["state"] == "unknown":
                await self.resolve(run, step["name"], verdict, value, ordinal=step["ordinal"])
        if (await self.show(run))["status"] != "unknown":
            return
        done = await recovery.resolve(
            self.db, ORG, run, step=None, ordinal=None, row_key=None, verdict="again", value=None, by="a person"
        )
        assert done == ("done", None), done

    async def show(self, run: str) -> dict[str, Any]:
        doc = await ledger.read_run(self.db, ORG, run)
        assert doc is not None, run
        return doc

    async def output(self, run: str) -> Any:
        """What a completed run gave."""
        doc = await self.show(run)
        assert doc["status"] == "completed", (doc["status"], doc["error"], doc["task"])
        return json.loads(doc["output"])

    async def error(self, run: str) -> dict[str, Any]:
        """The error that a run shows."""
        error: dict[str, Any] = json.loads((await self.show(run))["error"])
        return error

    async def states(self, run: str) -> dict[str, str]:
        """Boundary -> state, in the order of the sequence: `step pay#1` -> `kept`."""
        steps = (await self.show(run))["steps"] or []
        return {f"{step['kind']} {step['name']}#{step['ordinal']}": step["state"] for step in steps}
