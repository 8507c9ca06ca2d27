"""A leg of a plan's step: one attempt of a command or a Python step, in a process of its own (laws 70.8–70.10).

The process is there and recorded before the attempt begins; from then on it is the supervisor's folder that knows what becomes of
it, whoever looks: this leg, or the leg of another worker of this host that adopted the attempt. What has ended is recorded until it is
recorded; it is never run again for that (70.7).
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import math
import socket
from collections.abc import Collection, Coroutine, Iterator, Sequence
from functools import partial
from pathlib import Path
from typing import Any, Final, Literal, TypeVar

from fencepost import attempts, faults, ledger, notes, plans, retention, terminal, values
from fencepost.attempts import Claimed
from fencepost.db import Database
from fencepost.plans import Carrier
from fencepost.store import DirectoryStore, Store, StoreAway, StoreFailed
from fencepost.words import Cancelling, Fence, Stale
from fencepost.worker import commands
from fencepost.worker.commands import Completed, Dead, Ended, Failed, LaunchRefused, NotStarted, Packet, Supervised

HOST_TROUBLE_SECONDS: Final = 5.0  # before somebody tries again what this host could not start
STORE_PAUSE_SECONDS: Final = (0.5, 15.0)  # first and longest, between two tries to keep an output, or to fetch an input
SWEPT_TOGETHER: Final = 500

T = TypeVar("T")

_LEFT: Final = {"lost": "stale", "stopping": "stopped"}


def _pauses() -> Iterator[float]:
    pause, longest = STORE_PAUSE_SECONDS
    while True:
        yield pause
        pause = min(pause * 2, longest)


def _run_of(name: str, ours: str) -> str | None:
    """The run in the name of an attempt's folder, or of what it kept; None: another installation's, or somebody else's folder."""
    head, _, rest = name.partition("-")
    rid = rest.partition("-")[0]
    return rid if head == ours and rid.isdecimal() else None


class Workshop:
    """What the step legs of a worker share: where attempts have their folders, and the content store."""

    def __init__(self, db: Database, files: Path, store: Store | None = None) -> None:
        self.db = db
        self.attempts = files.absolute() / "attempts"
        self.store: Store = store or DirectoryStore(files.absolute() / "store")
        self._installation: str | None = None

    async def name(self, fence: Fence) -> str:
        """The name of an attempt's folder: no two installations that share a disk meet in one."""
        return commands.attempt_name(await self._ours(), fence.rid, fence.number)

    async def sweep(self) -> int:
        """Remove the files of runs that are forgotten (law 95.1); how many folders went. Other installations' stay."""
        ours = await self._ours()
        gone = await commands.sweep(self.attempts, partial(self._known, ours))
        keys = await asyncio.to_thread(self.store.keys)
        for at in range(0, len(keys), SWEPT_TOGETHER):
            asked = keys[at : at + SWEPT_TOGETHER]
            stay = await self._known(ours, asked)
            for key in asked:
                if key not in stay:
                    gone += await asyncio.to_thread(self.store.forget, key)
        return gone

    async def _known(self, ours: str, names: Sequence[str]) -> Collection[str]:
        """Those of these folders (`installation-run…`) whose run is known, and all that are not ours to judge."""
        rids = {name: int(rid) for name in names if (rid := _run_of(name, ours)) is not None}
        known = await retention.known(self.db, sorted(set(rids.values()))) if rids else set[int]()
        return {name for name in names if name not in rids or rids[name] in known}

    async def _ours(self) -> str:
        if self._installation is None:
            facts = await ledger.read_installation(self.db)
            self._installation = str(facts["installation"]).replace("-", "")[:12]
        return self._installation


class StepLeg:
    """One attempt. `run` it once; `abort` and `hint` come from the worker's loop."""

    def __init__(self, workshop: Workshop, claimed: Claimed) -> None:
        self.workshop = workshop
        self.claimed = claimed
        self.fence = claimed.fence
        self.suspect = claimed.suspect
        self._supervised: Supervised | None = None
        self._aborted: tuple[Literal["lost", "cancelled", "stopping"], str] | None = None
        self._told = asyncio.Event()  # `abort` was called
        self._left: asyncio.Future[None] = asyncio.get_running_loop().create_future()  # nothing more is told here

    # ── from the loop ────────────────────────────────────────────────────────────────────────────────────────────────

    def abort(self, reason: Literal["lost", "cancelled", "stopping"], text: str = "") -> None:
        """End the leg from outside. cancelled: its process is told to stop, and its end is reported. lost, stopping: nothing is
        reported; the process goes on for whoever adopts it, unless its fence is dead.
        """
        self._aborted = (reason, text)
        self._told.set()
        if reason == "cancelled":
            if self._supervised is not None:
                self._supervised.stop(text or "cancelled")
        elif not self._left.done():
            self._left.set_result(None)

    def hint(self) -> None:
        """It waits for nothing that a signal brings."""

    def blocked_on(self) -> str:
        """Words for what it waits for."""
        return "its process is being started" if self._supervised is None else "its process runs"

    # ── the leg ──────────────────────────────────────────────────────────────────────────────────────────────────────

    async def run(self) -> str:
        """Run the attempt to its end, or go on with one that was adopted."""
        try:
            packet = await (self._adopt() if self.claimed.begun else self._begin())
            if isinstance(packet, str):
                return packet
            return await self._follow(packet)
        except Exception:  # a bug of ours ends the attempt (held.py): its process does not outlive it
            if self._supervised is not None:
                self._supervised.stop("its worker's part of it broke")
            raise
        finally:
            if self._supervised is not None:
                self._supervised.close()

    async def _begin(self) -> Packet | str:
        """A process that waits, its record and the begun mark, the word to go: in this order (law 70.10)."""
        try:
            supervised = await commands.start(self.workshop.attempts, await self.workshop.name(self.fence))
        except OSError as error:
            return await self._host_trouble(error)
        self._supervised = supervised
        await self._reach("step.started")
        facts = supervised.facts
        carrier = Carrier(
            facts.boot_id, facts.pid_namespace, facts.pid, facts.process_start, socket.gethostname(),
            str(supervised.folder),
        )  # fmt: skip
        text = await plans.begin(self.workshop.db, self.fence, carrier)
        await self._reach("step.begun")
        if isinstance(text, Stale):
            return "stale"
        if isinstance(text, Cancelling):
            return await self._cancelled()
        packet = commands.read_packet(text)
        how = await self._go(supervised, packet)
        if how is not None:
            return how
        await self._reach("step.gone")
        if self._aborted is not None and self._aborted[0] == "cancelled":
            supervised.stop(self._aborted[1] or "cancelled")
        return packet

    async def _go(self, supervised: Supervised, packet: Packet) -> str | None:
        """None: it was told to go, or the leg is to leave. A store that is away is asked again: that is no fault of the step's."""
        pauses = _pauses()
        while True:
            try:
                return await self._or_left(supervised.go(packet, self.workshop.store))
            except LaunchRefused as refused:
                return await self._finish(
                    Failed({"code": "STEP_FAILED", "outcome": "launch_error", "message": str(refused)})
                )
            except StoreAway as error:
                notes.say("an input cannot be fetched", level=logging.ERROR, run=self.claimed.id, error=error)
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(next(pauses)):
                    await self._told.wait()
            if self._aborted is not None:
                return await (self._cancelled() if self._aborted[0] == "cancelled" else self._leave())

    async def _adopt(self) -> Packet | str:
        """The process that another worker's leg left behind on this host."""
        found = await plans.read_process(self.workshop.db, self.fence, patience=math.inf)
        if found is None:
            return "stale"
        text, pid, start, folder = found
        notes.say("adopted", run=self.claimed.id, number=self.fence.number, pid=pid)
        self._supervised = commands.meet(Path(folder), pid, start)
        if self._aborted is not None and self._aborted[0] == "cancelled":
            self._supervised.stop(self._aborted[1] or "cancelled")
        return commands.read_packet(text)

    async def _follow(self, packet: Packet) -> str:
        assert self._supervised is not None
        ended = await self._or_left(self._supervised.ended())
        if ended is None or self._left.done():
            return await self._leave()
        await self._reach("step.ended")
        if isinstance(ended, Ended):
            return await self._settle(packet, ended)
        return await self._lost(ended)

    async def _settle(self, packet: Packet, ended: Ended) -> str:
        """Keep what it made, and say so. A store that cannot keep it now is asked again: nothing is run for that (law 70.7)."""
        assert self._supervised is not None
        pauses = _pauses()
        while True:
            try:
                outcome = await self._or_left(
                    commands.settle(self.workshop.store, packet, self._supervised.folder, ended)
                )
                return await (self._leave() if outcome is None else self._finish(outcome))
            except StoreFailed as error:
                notes.say("an output cannot be kept", level=logging.ERROR, run=self.claimed.id, error=error)
            await asyncio.wait({self._left}, timeout=next(pauses))

    async def _or_left(self, work: Coroutine[Any, Any, T]) -> T | None:
        """What the work gives; None: the leg is told to leave first. A thread of it ends by itself."""
        task = asyncio.ensure_future(work)
        try:
            either: set[asyncio.Future[Any]] = {task, self._left}
            await asyncio.wait(either, return_when=asyncio.FIRST_COMPLETED)
            return task.result() if task.done() else None
        finally:
            task.cancel()
            await asyncio.gather(task, return_exceptions=True)

    async def _finish(self, outcome: Completed | Failed) -> str:
        if self._aborted is not None and self._aborted[0] == "cancelled" and not isinstance(outcome, Completed):
            return await self._cancelled()
        if isinstance(outcome, Completed):
            return await self._tell("completed", outcome.text)
        return await self._tell("failed", values.encode_error(outcome.error))

    async def _cancelled(self) -> str:
        # Not "failed": that would be kept as a result that came too late, and it is none.
        return await self._tell("unknown", values.encode_error({"code": "WORKFLOW_ERROR", "message": "cancelled"}))

    async def _tell(self, ending: terminal.Ending, text: str) -> str:
        answer = await terminal.finish(self.workshop.db, self.fence, ending, text)
        await self._reach("step.told")
        if isinstance(answer, Stale) or answer.how == "already_terminal":
            return "stale"
        return answer.status or "completed" if answer.how == "committed" else answer.how

    async def _lost(self, ended: Dead | NotStarted) -> str:
        notes.say("a process is gone and left no word", level=logging.WARNING, run=self.claimed.id, why=ended.reason)
        # As long as it takes: what ends a leg is its fence, not the database's absence.
        return await plans.lose(self.workshop.db, self.fence, begun=isinstance(ended, Dead), patience=math.inf)

    async def _leave(self) -> str:
        """Nothing more is told here. Where the fence is dead nobody will adopt the process: it is stopped (law 70.11)."""
        assert self._supervised is not None
        assert self._aborted is not None
        if self._aborted[0] == "lost":
            with contextlib.suppress(Exception):
                if await plans.read_process(self.workshop.db, self.fence) is None:
                    self._supervised.stop("its attempt was fenced out")
        return _LEFT[self._aborted[0]]

    async def _host_trouble(self, error: OSError) -> str:
        """Nothing of the attempt has run: another worker, or a later hour, may have what this host lacks (law 40.5)."""
        notes.say("a step's process could not be started", level=logging.ERROR, run=self.claimed.id, error=error)
        answer = await attempts.defer(
            self.workshop.db, self.fence, reason="host", dependency=f"{socket.gethostname()}: {error.strerror or error}"[:200],
            delay_ms=int(HOST_TROUBLE_SECONDS * 1000),
        )  # fmt: skip
        return "stale" if isinstance(answer, Stale) else "deferred"

    async def _reach(self, point: str) -> None:
        if faults.hook is not None:
            await faults.reach(point, run=self.claimed.id, number=self.fence.number, step=self.claimed.name)
