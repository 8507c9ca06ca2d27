"""A leg: one attempt of a workflow run, in this process, from its claim to its end.

It replays and runs the author's code through the engine (replay.py), records what happened through the doors, and ends in one of:
completed, failed, retrying, unknown, parked, unfit, cancelled, stale, stopped. Whatever author code does, only a BrokenLaw leaves it.
"""

from __future__ import annotations

import asyncio
from dataclasses import dataclass
from typing import Any, Final, Literal, NoReturn

from fencepost import attempts, faults, limits, notes, suspension, terminal, values
from fencepost.attempts import Claimed
from fencepost.authoring import Workflow
from fencepost.errors import StepFailed, StepOutcomeUnknown
from fencepost.suspension import Armed, Here, Parked, Resolved, Wait
from fencepost.words import CANCELLING, Cancelling, Stale
from fencepost.worker.context import Context
from fencepost.worker.execution import Threads, WorkerFace
from fencepost.worker.replay import Engine, Key, Recorded, Suspending, Turn, branch_context, read_page, watch_tasks

UNWIND_ROUNDS: Final = 3
UNWIND_SECONDS: Final = 1.0
WAIT_KINDS: Final = frozenset({"sleep", "signal", "child"})


@dataclass(slots=True)
class PendingWait:
    """A branch that waits for a sleep, a signal or a child."""

    wait: Wait
    turn: Turn
    armed: bool
    resolved: Resolved | None = None


class Leg:
    """One attempt. `run` it once; `abort` and `hint` come from the worker's loop."""

    def __init__(self, face: WorkerFace, claimed: Claimed, workflow: Workflow[Any, Any]) -> None:
        self.face = face
        self.claimed = claimed
        self.workflow = workflow
        self.fence = claimed.fence
        self.suspect = claimed.suspect
        self.met_unknown = False
        self.threads = Threads()
        self.engine: Engine | None = None
        self._aborted: tuple[str, str] | None = None
        self._lost = asyncio.Event()
        self._waits: dict[Key, PendingWait] = {}
        self._cancels: list[Wait] = []
        self._known_seq = 0
        self._looking: asyncio.Task[None] | None = None
        self._timer: asyncio.TimerHandle | None = None

    # ── from the loop ────────────────────────────────────────────────────────────────────────────────────────────────

    def abort(self, reason: Literal["lost", "cancelled", "stopping"], text: str = "") -> None:
        """End the leg from outside. lost: nothing more is written. cancelled: the end is reported once the code has stopped.
        stopping: nothing is reported, the worker does it.
        """
        if reason != "cancelled":
            self._lost.set()
        if self.engine is None:
            self._aborted = (reason, text)
        else:
            self.engine.end({"lost": "stale", "stopping": "stopped"}.get(reason, reason), {"message": text})

    def hint(self) -> None:
        """What an armed wait waits for may be here."""
        if self._waits and self._looking is None and self.engine is not None and self.engine.live:
            self._look(park=False)

    def blocked_on(self) -> str:
        """Words for where the code is: what it waits for, or which branch runs on something that is no boundary."""
        if self.engine is None:
            return "its history is being read"
        running = self.engine.running_on()
        if running is not None:
            return f"a branch runs at {running}"
        if self._waits:
            return "waits for " + ", ".join(f"{kind} {name}#{ordinal}" for kind, name, ordinal in self._waits)
        return "a step runs" if self.engine.performing else "its code runs"

    # ── the leg ──────────────────────────────────────────────────────────────────────────────────────────────────────

    async def run(self) -> str:
        """Run the attempt to its end. Raises BrokenLaw only."""
        loop = asyncio.get_running_loop()
        watch_tasks(loop)
        await faults.reach("leg.claimed", run=self.claimed.id, number=self.fence.number)
        recorded, problem = await self._history()
        engine = self.engine = Engine(recorded)
        if self._aborted is not None:
            self.abort(*self._aborted)  # type: ignore[arg-type]  # stored as it came
        engine.on_rest = self._rest
        self._known_seq = max((r.seq for r in recorded if r.kind in WAIT_KINDS and r.resolved), default=0)
        main: asyncio.Task[Any] | None = None
        if problem is None and not engine.over.done():
            try:
                arguments = await self._arguments()
            except values.Undecodable as error:
                problem = {"code": "UNDECODABLE", "message": str(error)}
            else:
                main = loop.create_task(
                    _guarded(self.workflow, arguments), name=f"run {self.claimed.id}", context=branch_context(engine)
                )
        if problem is not None:
            return await self._refuse(problem, has_history=bool(recorded))
        if main is not None:
            await asyncio.wait({main, engine.over}, return_when=asyncio.FIRST_COMPLETED)
        try:
            return await self._end(engine, main)
        finally:
            if self._timer is not None:
                self._timer.cancel()

    async def _history(self) -> tuple[list[Recorded], dict[str, Any] | None]:
        recorded: list[Recorded] = []
        page, more = self.claimed.boundaries, self.claimed.more
        try:
            while page is not None:
                recorded += read_page(page)
                if not more:
                    break
                last = recorded[-1]
                page, more = await attempts.read_boundaries(
                    self.face.db, self.fence.rid, last.seq, f"{last.kind} {last.name} {last.ordinal}"
                )
        except ValueError as error:
            return recorded, {"code": "UNDECODABLE", "message": str(error)}
        return recorded, None

    async def _arguments(self) -> tuple[Any, ...]:
        context = Context(self)
        if not self.workflow.takes_input:
            return (context,)
        text = self.claimed.input
        if text is None:
            text = await attempts.read_input(self.face.db, self.fence.rid)
        return (context, values.decode(text, self.workflow.input_type))

    async def _refuse(self, problem: dict[str, Any], *, has_history: bool) -> str:
        """A launch that the code cannot read fails; with a history, the run waits for code that can (law 50.4)."""
        if has_history:
            return await self._finish("unfit", values.encode_error(problem))
        return await self._finish("failed", values.encode_error(problem))

    async def _end(self, engine: Engine, main: asyncio.Task[Any] | None) -> str:
        if not engine.over.done() and main is not None:
            # Branches that the code left behind end with it; what they left unasked is judged before its end is believed.
            await self._unwind(engine)
            return await self._conclude(engine, main)
        how, doc = engine.over.result()
        await self._unwind(engine)
        match how:
            case "unfit":
                return await self._finish("unfit", values.encode_error(doc or {}))
            case "cancelled":
                await self._until_threads_ended()
                if self._lost.is_set():
                    return "stale"
                return await self._finish(
                    "failed", values.encode_error({"code": "WORKFLOW_ERROR", "message": "cancelled"})
                )
            case _:
                return how

    async def _conclude(self, engine: Engine, main: asyncio.Task[Any]) -> str:
        if engine.over.done():
            return await self._end(engine, None)
        await faults.reach("leg.ended", run=self.claimed.id)
        missing = engine.unasked()
        if missing is not None and not self.met_unknown:
            engine.end_unfit(f"the code ended, and {missing.words()} of its history was never asked for")
            return await self._finish("unfit", values.encode_error(engine.over.result()[1] or {}))
        error = asyncio.CancelledError("the code cancelled itself") if main.cancelled() else main.exception()
        if error is None:
            try:
                return await self._finish("completed", values.encode(main.result()))
            except values.Unstorable as unstorable:
                return await self._finish("failed", values.unstorable_result(unstorable, main.result()))
        return await self._fail(error)

    async def _fail(self, error: BaseException) -> str:
        if self.met_unknown:  # whatever it raised (law 40.6)
            doc: dict[str, Any] = {**values.describe_error(error, "STEP_OUTCOME_UNKNOWN")}
            doc["code"] = "STEP_OUTCOME_UNKNOWN"
            if isinstance(error, StepOutcomeUnknown):
                doc["step"], doc["ordinal"], doc["keys"] = error.step, error.ordinal, list(error.keys)[:1000]
            return await self._finish("unknown", values.encode_error(doc))
        doc = values.describe_error(error, error.code if isinstance(error, StepFailed) else "WORKFLOW_ERROR")
        retry = self.workflow.retry
        if retry is not None and isinstance(error, retry.on):
            pause = retry.pause(self.claimed.tries + 1, 0.5)
            return await self._finish(
                "retry", values.encode_error(doc), delay_ms=int(pause * 1000), most_tries=retry.tries
            )
        return await self._finish("failed", values.encode_error(doc))

    async def _finish(
        self, ending: terminal.Ending, text: str, *, delay_ms: int | None = None, most_tries: int | None = None
    ) -> str:
        answer = await terminal.finish(
            self.face.db,
            self.fence,
            ending,
            text,
            delay_ms=delay_ms,
            most_tries=most_tries,
            digest=self.workflow.digest,
        )
        if isinstance(answer, Stale):
            return "stale"
        match answer.how:
            case "committed":
                return answer.status or "completed"
            case "parked":
                notes.say("run.unfit", run=self.claimed.id, workflow=self.claimed.name, why=text)
                return "unfit"
            case "already_terminal":
                return "stale"
            case how:
                return how

    async def _unwind(self, engine: Engine) -> None:
        """Cancel every branch from outside. Code that will not stop is left behind: its fence is dead, what it writes is refused."""
        for _ in range(UNWIND_ROUNDS):
            left = {task for task in engine.branches if not task.done()}
            if not left:
                return
            for task in left:
                task.cancel()
            await asyncio.wait(left, timeout=UNWIND_SECONDS)
        stuck = [task.get_name() for task in engine.branches if not task.done()]
        if stuck:
            notes.say("leg.stuck", run=self.claimed.id, number=self.fence.number, branches=len(stuck))

    async def _until_threads_ended(self) -> None:
        """A cancel is final when code has stopped; a thread that will not is fenced out at the grace's end, and then this is lost (80.4)."""
        ended = asyncio.ensure_future(self.threads.wait())
        lost = asyncio.ensure_future(self._lost.wait())
        await asyncio.wait({ended, lost}, return_when=asyncio.FIRST_COMPLETED)
        for task in (ended, lost):
            task.cancel()

    # ── for the context ──────────────────────────────────────────────────────────────────────────────────────────────

    async def gone(self, answer: Stale | Cancelling) -> NoReturn:
        """A door said that this leg is over. Never returns."""
        assert self.engine is not None
        self.engine.end("cancelled" if answer is CANCELLING else "stale", {"message": "cancelled"})
        await self.engine.never()

    def committed(self) -> None:
        """A boundary was committed: no suspect any more (law 40.15)."""
        if self.suspect:
            self.suspect = False
            self.face.publish()

    async def wait(self, wait: Wait, *, armed: bool) -> Resolved:
        """Wait, live, until a wait resolves and it is its turn. A branch cancelled meanwhile takes its wait along."""
        assert self.engine is not None
        key = (wait.kind, wait.name, wait.ordinal)
        pending = self._waits[key] = PendingWait(wait, self.engine.turn(), armed)
        self.engine.stir()
        try:
            await pending.turn.future
        except asyncio.CancelledError:
            if pending.armed and not self.engine.over.done():
                self._cancels.append(Wait(kind=wait.kind, name=wait.name, ordinal=wait.ordinal, op="cancel"))
            raise
        finally:
            self._waits.pop(key, None)
        assert pending.resolved is not None
        return pending.resolved

    def _rest(self, all_wait: bool) -> None:  # noqa: FBT001 - the engine's callback
        engine = self.engine
        assert engine is not None
        if self._looking is not None or not engine.is_settled():
            return
        if all_wait and engine.performing == len(self._waits) and self._waits:
            self._look(park=True)
        elif self._cancels or any(not p.armed for p in self._waits.values()):
            self._look(park=False)

    def _look(self, *, park: bool) -> None:
        assert self.engine is not None
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        self._looking = asyncio.get_running_loop().create_task(self._ask(park=park), context=self.engine.outside.copy())

    async def _ask(self, *, park: bool) -> None:
        engine = self.engine
        assert engine is not None
        new = [p for p in self._waits.values() if not p.armed]
        cancels, self._cancels = self._cancels, []
        try:
            if park:
                await faults.reach("park.asked", run=self.claimed.id)
            with engine.calling():
                answer = await suspension.wait(
                    self.face.db, self.fence, [*cancels, *(p.wait for p in new)], known_seq=self._known_seq, park=park
                )
            for pending in new:
                pending.armed = True
            self._heard(engine, answer)
        except Exception as error:  # a door's refusal of data is a bug of ours: end this leg loudly, never the worker
            notes.say(
                "leg.broken", run=self.claimed.id, error=values.describe_error(error, "WORKFLOW_ERROR")["message"]
            )
            engine.end("stale")
        finally:
            self._looking = None
            engine.stir()

    def _heard(self, engine: Engine, answer: Here | Armed | Parked | Stale | Cancelling) -> None:
        match answer:
            case Here(resolved):
                for found in resolved:
                    self._known_seq = max(self._known_seq, found.seq)
                    pending = self._waits.get((found.kind, found.name, found.ordinal))
                    if pending is not None and pending.resolved is None:
                        pending.resolved = found
                        engine.arrive(pending.turn, found.seq)
            case Armed(due_ms):
                pause = limits.LOOK_SECONDS if due_ms is None else min(limits.LOOK_SECONDS, due_ms / 1000)
                self._timer = engine.loop.call_later(pause, self.hint)
            case Parked():
                engine.end("parked")
            case Stale():
                engine.end("stale")
            case Cancelling():
                engine.end("cancelled", {"message": "cancelled"})


async def _guarded(workflow: Workflow[Any, Any], arguments: tuple[Any, ...]) -> Any:
    """The workflow's code; a request to exit from it ends the run, never the worker."""
    try:
        return await workflow.function(*arguments)
    except (SystemExit, KeyboardInterrupt) as error:
        raise RuntimeError(f"author code asked the worker to exit: {type(error).__name__}") from error
    except Suspending:
        raise asyncio.CancelledError("the leg is over") from None
