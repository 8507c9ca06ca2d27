"""The worker: one incarnation from its start to its end.

It claims what it has room for (claims.py), holds it (held.py) and keeps a heartbeat process that keeps the lease (pulse.py). Told to
stop, it gives back what it has not dispatched, drains, and records what still runs as lost itself (law 40.11).
"""

from __future__ import annotations

import asyncio
import contextvars
import logging
import random
import socket
import uuid
from collections.abc import Callable, Coroutine
from typing import Any, Final

from fencepost import attempts, faults, lanes, limits, notes, recovery
from fencepost.app import App
from fencepost.attempts import Claimed
from fencepost.db import Database
from fencepost.errors import FencepostError
from fencepost.lanes import Lane
from fencepost.recovery import Beat
from fencepost.settings import Settings, check_worker, release_of
from fencepost.store import StoreFailed, store_of
from fencepost.words import Fence
from fencepost.worker import process
from fencepost.worker.claims import Claims
from fencepost.worker.execution import WorkerFace
from fencepost.worker.held import Holding
from fencepost.worker.leftovers import Leftovers
from fencepost.worker.link import HELD_MAX
from fencepost.worker.listener import Listener
from fencepost.worker.progress import ProgressBoard
from fencepost.worker.pulse import Pulse
from fencepost.worker.stepleg import Workshop
from fencepost.worker.threads import StepThreads

EXITS: Final = {"stopped": 0, "threads": 1}
HUNG_SECONDS: Final = 3.0  # no thread has come back for so long: nobody's step will run here
EXIT_LOST: Final = 5  # judged dead, without a heartbeat, or broken
SWEEP_SECONDS: Final = 900.0
UNWIND_SECONDS: Final = 4.0  # for legs that were aborted
CLOSE_SECONDS: Final = 3.0  # for the last word to the database


class Worker:
    """One incarnation of a worker. `run` it once.

    `release` (else the app's, else the settings') names its lane, unless `lane` is given. `only`: the internal id of a run:
    nothing but that run and its descendants is claimed. `grace_seconds`: for legs to end after a stop was asked for. No
    signal handlers are installed. Raises RuntimeError under `python -O`: what is proven here is asserted; ValueError,
    BadSettings.
    """

    def __init__(
        self, app: App, settings: Settings, *, concurrency: int = 100, threads: int = 32, lane: Lane | None = None,
        release: str | None = None, only: int | None = None, grace_seconds: float = limits.GRACE_ON_STOP_SECONDS,
    ) -> None:  # fmt: skip
        _judge(concurrency, threads)
        if lane is None and not (release or app.release):
            check_worker(settings)
        self.app = app
        self.settings = settings
        self.lane = lane
        self.incarnation = uuid.uuid4()
        self.hung = ""  # the step that used up the last thread
        self.listener: Listener | None = None
        self._only = only
        self._release = release or app.release or release_of(settings)
        self._grace = grace_seconds
        self._why = ""  # why it ends: stopped · threads · buried · heartbeat · broken
        self._ending = asyncio.Event()
        self._lost = asyncio.Event()  # nothing of what it holds is its own any more
        self._opened = False
        self._own: tuple[asyncio.Task[Any], int] | None = None  # the task it runs in, and its cancellations before
        self._tasks: list[asyncio.Task[Any]] = []
        self._db = Database(settings.need_database_url(), settings.schema, name="fencepost worker")
        self._threads = StepThreads(threads, self._on_threads_used_up)
        self._judging: asyncio.Task[None] | None = None
        self._board = ProgressBoard(self._db)
        self._leftovers = Leftovers(self._db)
        self._outside = contextvars.copy_context()
        self.pulse = Pulse(self.incarnation, settings, read=self._read, heard=self._on_beat)
        self.claims = Claims(
            self._db, self.incarnation, concurrency=concurrency, lease_seconds=settings.lease_seconds, only=only,
            changed=self.pulse.changed, beat_now=self.pulse.beat_now, listening=lambda: self.listening,
        )  # fmt: skip
        face = WorkerFace(
            db=self._db, threads=self._threads, lease_seconds=settings.lease_seconds, on_thread_lost=self._threads.lose,
            publish=self._on_changed, progress=self._on_progress, said=self._board.newest,
            over=self._board.forget, cancelled=self._is_cancelled,
        )  # fmt: skip
        self._workshop = Workshop(self._db, settings.files, store_of(settings))
        self.holding = Holding(
            face, app, self._workshop, changed=self._on_changed, timed=self.pulse.beat_now, ended=self._on_ended
        )

    @property
    def listening(self) -> bool:
        """Hints reach it; else it polls."""
        return self.listener is not None and self.listener.alive

    async def run(
        self, stop: asyncio.Event, *, hurry: asyncio.Event | None = None, on_ready: Callable[[Lane], None] | None = None
    ) -> int:
        """Work until `stop` is set, then drain; `hurry` ends the grace. The exit code: 0 drained, 1 threads used up, 5 lost.

        Raises what starting raises: SchemaMismatch, LaneRefused, DatabaseUnavailable.
        """
        task = asyncio.current_task()
        assert task is not None
        self._own = task, task.cancelling()
        self._spawn(self._watch(stop))
        try:
            lane = await self._start()
            if lane is not None:
                if on_ready is not None:
                    on_ready(lane)
                claiming = self._spawn(self._claim(lane))
                await self._ending.wait()
                await self._drain(claiming, hurry)
            return EXITS.get(self._why, EXIT_LOST)
        finally:
            await self._leave()

    # ── starting ─────────────────────────────────────────────────────────────────────────────────────────────────────

    async def _start(self) -> Lane | None:
        """Everything up to the first beat; a stop in between ends it wherever it stands: None."""
        starting = asyncio.ensure_future(self._open())
        ended = asyncio.ensure_future(self._ending.wait())
        try:
            await asyncio.wait({starting, ended}, return_when=asyncio.FIRST_COMPLETED)
            return starting.result() if starting.done() and not self._ending.is_set() else None
        finally:
            for task in (starting, ended):
                task.cancel()
            await asyncio.gather(starting, ended, return_exceptions=True)

    async def _open(self) -> Lane:
        await self._db.ready()
        lane = self.lane = self.lane or await lanes.register(self._db, self._release)
        facts = process.facts()
        self._opened = True
        await attempts.open_incarnation(
            self._db, self.incarnation, lane=lane.lane, name=socket.gethostname(), boot_id=facts.boot_id,
            pid_namespace=facts.pid_namespace, pid=facts.pid, process_start=facts.process_start,
            lease_seconds=self.settings.lease_seconds, heartbeat_seconds=self.settings.heartbeat_seconds,
        )  # fmt: skip
        self._spawn(self._keep_pulse())
        digests = {name: workflow.digest for name, workflow in self.app.registry.workflows.items()}
        await recovery.register_workflows(self._db, self.incarnation, lane.lane, digests)
        channel = await attempts.sleep(self._db, self.incarnation, lane.lane, asleep=False)
        if self.settings.listen_url or not self._db.pooled:
            self.listener = Listener(lambda: self._db.connect(self.settings.listen_url), channel, self._on_hint)
            self._spawn(self.listener.run())
        await self.pulse.first.wait()
        self._spawn(self._sweep())
        return lane

    # ── working ──────────────────────────────────────────────────────────────────────────────────────────────────────

    async def _claim(self, lane: Lane) -> None:
        if not await self.claims.run(lane.lane, self.holding):
            self.stop("buried", lost=True)

    async def _keep_pulse(self) -> None:
        await self.pulse.keep()
        self.stop("heartbeat", lost=True)

    async def _watch(self, stop: asyncio.Event) -> None:
        await stop.wait()
        self.stop("stopped")

    async def _sweep(self) -> None:
        """Files of runs that were forgotten go, as the runs did: now and then, and never in the way."""
        while True:
            pause = SWEEP_SECONDS * random.uniform(0.5, 1.0)
            await asyncio.sleep(pause)  # waits: nothing announces what retention forgot
            try:
                await self._workshop.sweep()
            except (FencepostError, OSError, StoreFailed) as error:
                notes.say("files could not be swept", level=logging.WARNING, error=error)

    def _is_cancelled(self) -> bool:
        return self._own is not None and self._own[0].cancelling() > self._own[1]

    def _read(self) -> tuple[int, list[tuple[int, int]]]:
        return self.claims.answered, self.holding.names()

    def _on_changed(self) -> None:
        self.claims.let_go(empty=len(self.holding) == 0)
        self.pulse.changed()

    def _on_ended(self, claimed: Claimed) -> None:
        # Its end may have let its parent go on, or the next step of its plan; of a run that is worked on alone nobody else is told.
        if claimed.parent is not None or self._only is not None:
            self.claims.look()

    def _on_progress(self, fence: Fence, text: str) -> None:
        # What the board starts is no branch of the leg that speaks.
        self._outside.run(self._board.note, fence, text)

    def _on_hint(self, hint: str) -> None:
        if hint == "work":
            self.claims.look()
        else:
            self.holding.hint()
            self.pulse.beat_now()  # a cancel may be waiting

    def _on_beat(self, beat: Beat) -> None:
        if beat.buried:
            if self._opened:  # a closed incarnation is buried too, by its own word
                self.stop("buried", lost=True)
            return
        self.holding.apply(beat)
        if beat.orphans:
            self.claims.adopt(beat.orphans)
        self._leftovers.end(beat.loose)
        if beat.woken or beat.reaped:
            self.claims.look()

    def _on_threads_used_up(self, step: str) -> None:
        if self._judging is None or self._judging.done():
            self._judging = self._spawn(self._judge_threads(step))

    async def _judge_threads(self, step: str) -> None:
        """Steps that were cancelled together use every thread up for the moment until they end: hung is what has not ended since."""
        freed = self._threads.freed
        await asyncio.sleep(HUNG_SECONDS)  # waits: for a thread to come back, or for none to
        if self._threads.used_up and self._threads.freed == freed:
            self.hung = step
            notes.say(
                "every thread is used up by steps that were given up and still run", level=logging.ERROR, step=step
            )
            self.stop("threads")

    # ── ending ───────────────────────────────────────────────────────────────────────────────────────────────────────

    def stop(self, why: str, *, lost: bool = False) -> None:
        """The first reason stands, unless everything is lost meanwhile."""
        if lost and not self._lost.is_set():
            notes.say("the worker lost its attempts", level=logging.ERROR, why=why, held=len(self.holding))
            self._why = why
            self._lost.set()
        self._why = self._why or why
        self._ending.set()
        self.claims.end()

    async def _drain(self, claiming: asyncio.Task[None], hurry: asyncio.Event | None) -> None:
        """Give back, wait within the grace, abort what is left (law 40.11)."""
        notes.say("draining", why=self._why, held=len(self.holding))
        self.holding.give_back()
        await faults.reach("drain.begun", why=self._why)
        drained = self._spawn(self._until_drained(claiming))
        enough: set[asyncio.Task[Any]] = {drained, self._spawn(self._lost.wait())}
        if hurry is not None:
            enough.add(self._spawn(hurry.wait()))
        await asyncio.wait(enough, timeout=self._grace, return_when=asyncio.FIRST_COMPLETED)
        if not drained.done():
            claiming.cancel()
            self.holding.abort("lost" if self._lost.is_set() else "stopping")
            await asyncio.wait({drained}, timeout=UNWIND_SECONDS)

    async def _until_drained(self, claiming: asyncio.Task[None]) -> None:
        await asyncio.wait({claiming})
        await self.holding.empty()

    async def _leave(self) -> None:
        """The last word to the database while the heartbeat still beats, then everything is taken down."""
        opened, self._opened = self._opened, False
        if opened:
            try:
                async with asyncio.timeout(CLOSE_SECONDS):
                    lost = await recovery.close_incarnation(self._db, self.incarnation, patience=CLOSE_SECONDS)
                notes.say("worker closed", why=self._why, lost=lost)
            except (
                Exception
            ) as error:  # whatever it was: the process goes home, and its silence or its death says the rest
                notes.say("the worker's end could not be told", level=logging.WARNING, error=error)
        await self.holding.leave()
        await self._leftovers.close()
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        self._board.close()
        self._threads.shutdown(wait=False)
        await self._db.close()

    def _spawn(self, coroutine: Coroutine[Any, Any, Any]) -> asyncio.Task[Any]:
        """A task of the worker's own. One that breaks ends the worker, in order."""
        task = asyncio.get_running_loop().create_task(coroutine)
        self._tasks.append(task)
        task.add_done_callback(self._on_task_done)
        return task

    def _on_task_done(self, task: asyncio.Task[Any]) -> None:
        if not task.cancelled() and (error := task.exception()) is not None:
            notes.say("a part of the worker broke", level=logging.CRITICAL, error=f"{type(error).__name__}: {error}")
            self.stop("broken")


def _judge(concurrency: int, threads: int) -> None:
    if not __debug__:
        raise RuntimeError(
            "a worker does not run under python -O or PYTHONOPTIMIZE: what guards its writes is asserted"
        )
    if not 1 <= concurrency <= HELD_MAX or threads < 1:
        raise ValueError(f"concurrency must be 1 to {HELD_MAX} and threads at least 1, not {concurrency} and {threads}")


async def run_worker(
    app: App, settings: Settings, *, stop: asyncio.Event, hurry: asyncio.Event | None = None, concurrency: int = 100,
    threads: int = 32, lane: Lane | None = None, release: str | None = None, only: int | None = None,
    grace_seconds: float = limits.GRACE_ON_STOP_SECONDS, on_ready: Callable[[Lane], None] | None = None,
) -> int:  # fmt: skip
    """A worker until `stop` is set, and its drain until it is over or `hurry` is set. The exit code; see Worker."""
    worker = Worker(
        app, settings, concurrency=concurrency, threads=threads, lane=lane, release=release, only=only,
        grace_seconds=grace_seconds,
    )  # fmt: skip
    return await worker.run(stop, hurry=hurry, on_ready=on_ready)
