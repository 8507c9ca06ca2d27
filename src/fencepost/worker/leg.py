"""A leg: one attempt of a workflow run, in this process, from its claim to its end.

It replays and runs the author's code through the engine (replay.py) and the Context (context.py), records what happened through
the doors, and ends in one of: completed, failed, retrying, unknown, parked, unfit, cancelled, stale, stopped. Whatever author code
does, only a BrokenLaw leaves it.
"""

from __future__ import annotations

import asyncio
from typing import Any, Final, Literal, NoReturn

from fencepost import attempts, faults, notes, terminal, values
from fencepost.attempts import Claimed
from fencepost.authoring import Workflow
from fencepost.errors import StepFailed, StepOutcomeUnknown
from fencepost.words import CANCELLING, Cancelling, Stale
from fencepost.worker.context import Context
from fencepost.worker.execution import Threads, WorkerFace
from fencepost.worker.history import Recorded, loosen, read_page
from fencepost.worker.keeping import Keeping
from fencepost.worker.replay import Engine
from fencepost.worker.tasks import watch_tasks
from fencepost.worker.waits import Waits
from fencepost.worker.ways import Ways

UNWIND_ROUNDS: Final = 3
UNWIND_SECONDS: Final = 1.0
_LEFT: Final = {"lost": "stale", "stopping": "stopped"}  # what becomes of a leg whose end is not told


class Leg:
    """One attempt. `run` it once; `abort` and `hint` come from the worker's loop."""

    def __init__(self, face: WorkerFace, claimed: Claimed, workflow: Workflow[Any, Any]) -> None:
        self.face = face
        self.claimed = claimed
        self.workflow = workflow
        self.fence = claimed.fence
        self.suspect = claimed.suspect
        self.met_unknown = False
        self.ways = Ways()  # in which its history is read
        self.threads = Threads()
        self.engine: Engine | None = None  # of the present pass through the code, and its waits
        self.waits: Waits | None = None
        self._aborted: tuple[Literal["lost", "cancelled", "stopping"], str] | None = None
        self._lost = False
        self._hurry: asyncio.Future[None] | None = None  # done when it is lost while somebody waits for its threads

    # ── from the loop ────────────────────────────────────────────────────────────────────────────────────────────────

    def abort(self, reason: Literal["lost", "cancelled", "stopping"], text: str = "") -> None:
        """End the leg from outside. lost: nothing more is written. cancelled: the end is reported once the code has stopped.
        stopping: nothing is reported, the worker does it.
        """
        if reason != "cancelled":
            self._lost = True
            if self._hurry is not None and not self._hurry.done():
                self._hurry.set_result(None)
        self._aborted = (reason, text)
        if self.engine is not None:
            self.engine.end(_LEFT.get(reason, reason), {"message": text})

    def hint(self) -> None:
        """What an armed wait waits for may be here."""
        if self.waits is not None:
            self.waits.hint()

    def blocked_on(self) -> str:
        """Words for where the code is: what it waits for, or which branch runs on something that is no boundary."""
        if self.engine is None or self.waits is None:
            return "its history is being read"
        running = self.engine.running_on()
        if running is not None:
            return f"a branch runs at {running}"
        if self.waits.pending:
            return "waits for " + ", ".join(f"{kind} {name}#{ordinal}" for kind, name, ordinal in self.waits.pending)
        return "a step runs" if self.engine.performing else "its code runs"

    # ── the leg ──────────────────────────────────────────────────────────────────────────────────────────────────────

    async def run(self) -> str:
        """Run the attempt to its end. Raises BrokenLaw only."""
        watch_tasks(self.face.loop)
        if faults.hook is not None:
            await faults.reach("leg.claimed", run=self.claimed.id, number=self.fence.number)
        try:
            return await self._course()
        except asyncio.CancelledError:  # with it goes what it began
            self.abort("stopping")
            if self.engine is not None:
                await self._unwind(self.engine)
            raise
        finally:
            if self.engine is not None:
                self.engine.close()
            self.waits = None

    async def _course(self) -> str:
        recorded, problem = await self._history()
        if problem is None and self._aborted is None:
            try:
                text = await self._input()
                main = await self._replayed(recorded, text)
            except values.Undecodable as error:
                problem = {"code": "UNDECODABLE", "message": str(error)}
            else:
                return await self._end(main)
        if self._aborted is not None:
            return _LEFT.get(self._aborted[0]) or await self._cancelled()
        assert problem is not None
        return await self._refuse(problem, has_history=bool(recorded))

    async def _replayed(self, recorded: list[Recorded], text: str | None) -> asyncio.Task[Any]:
        """Run the code until it ends or the leg is over; every branch has ended then.

        Where an earlier attempt was told Unknown, the history can be read in two ways: they are tried until one fits (ways.py).
        """
        while True:
            main = await self._run_code(recorded, text)
            engine = self.engine
            assert engine is not None
            if engine.live or engine.over is None or engine.over[0] not in ("unfit", "stuck"):
                return main
            if not self.ways.turn(stuck=engine.over[0] == "stuck"):
                return main
            for one in recorded:
                one.asked = False

    async def _run_code(self, recorded: list[Recorded], text: str | None) -> asyncio.Task[Any]:
        engine = self.engine = Engine(recorded, self.face.loop, self.face.cancelled)
        keeping = Keeping(self, engine)
        waits = self.waits = Waits(keeping)
        engine.on_rest, engine.restless = waits.rest, waits.restless
        engine.has_other_way = self.ways.has_other
        self.met_unknown = False
        context = Context(self, keeping, waits)
        given = (
            (values.decode(text, self.workflow.input_type),) if self.workflow.takes_input and text is not None else ()
        )
        main = engine.run(self.workflow.function(context, *given), name=f"run {self.claimed.id}")
        if self._aborted is not None:
            self.abort(*self._aborted)
        await engine.passed
        # Branches that the code left behind end with it; what they left unasked is judged before its end is believed.
        await self._unwind(engine)
        if main.done() and not main.cancelled():
            main.exception()  # looked at, whoever else judges it: asyncio complains of one that nobody looked at
        waits.close()
        missing = engine.unasked()
        if missing is not None and engine.over is None:
            engine.end_unfit(f"the code ended, and {missing.words()} of its history was never asked for")
        return main

    async def _history(self) -> tuple[list[Recorded], dict[str, Any] | None]:
        recorded: list[Recorded] = []
        page, more = self.claimed.boundaries, self.claimed.more
        if page is None:
            return recorded, None
        try:
            while True:
                recorded += read_page(page)
                if not more:
                    break
                last = recorded[-1]
                page, more = await attempts.read_boundaries(
                    self.face.db, self.fence.rid, last.seq, f"{last.kind} {last.name} {last.ordinal}"
                )
        except ValueError as error:
            return recorded, {"code": "UNDECODABLE", "message": str(error)}
        loosen(recorded)
        return recorded, None

    async def _input(self) -> str | None:
        if not self.workflow.takes_input or self.claimed.input is not None:
            return self.claimed.input
        return await attempts.read_input(self.face.db, self.fence.rid)

    async def _refuse(self, problem: dict[str, Any], *, has_history: bool) -> str:
        """A launch that the code cannot read fails; with a history, the run waits for code that can (law 50.4)."""
        if has_history:
            return await self._finish("unfit", values.encode_error(problem))
        return await self._finish("failed", values.encode_error(problem))

    async def _end(self, main: asyncio.Task[Any]) -> str:
        assert self.engine is not None
        if self.engine.over is None and faults.hook is not None:
            await faults.reach("leg.ended", run=self.claimed.id)
        if self.engine.over is None:
            return await self._conclude(main)
        how, doc = self.engine.over
        match how:
            case "unfit":
                return await self._finish("unfit", values.encode_error(doc or {}))
            case "cancelled":
                return await self._cancelled()
            case "broken":
                assert self.engine.problem is not None
                raise self.engine.problem
            case _:
                return how

    async def _cancelled(self) -> str:
        await self._until_threads_ended()
        if self._lost:
            return "stale"
        # Not "failed": that would be kept as a result that came too late, and it is none.
        return await self._finish("unknown", values.encode_error({"code": "WORKFLOW_ERROR", "message": "cancelled"}))

    async def _conclude(self, main: asyncio.Task[Any]) -> str:
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
            digest=self.workflow.digest if ending == "unfit" else None,
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
            left = {task for task in engine.branches if not task.done()}  # (one that has ended leaves in a later turn)
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
        if self._lost:
            return
        self._hurry = asyncio.get_running_loop().create_future()
        ended = asyncio.ensure_future(self.threads.wait())
        await asyncio.wait({ended, self._hurry}, return_when=asyncio.FIRST_COMPLETED)
        ended.cancel()

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
