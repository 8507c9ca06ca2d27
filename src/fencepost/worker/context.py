"""The Context: what a workflow's code says to Fencepost. Every durable act is a boundary: (kind, name, ordinal)."""

from __future__ import annotations

import asyncio
import hashlib
import itertools
import random
import uuid
from collections.abc import Awaitable, Callable, Iterable
from datetime import datetime, timedelta
from typing import TYPE_CHECKING, Any, Literal, NoReturn, TypeVar, cast, overload

import asyncpg

from fencepost import faults, notes, steps, suspension, values
from fencepost.authoring import Absent, Arrived, Found, P, R, Step, TimedOut, Unknown, Workflow, make_step, seconds
from fencepost.errors import (
    BrokenLaw,
    DatabaseUnavailable,
    LaunchConflict,
    LaunchRefused,
    RunCancelled,
    RunFailed,
    SignalRefused,
    StepOutcomeUnknown,
)
from fencepost.steps import Kept, KeptBefore
from fencepost.suspension import ChildRefused, Resolved, Started, Wait
from fencepost.words import BoundaryKind, Cancelling, Stale
from fencepost.worker.execution import Broke, OutOfSight, Ran, execute, failure, found_value, look_up
from fencepost.worker.history import Recorded, told_name
from fencepost.worker.maps import Mapped, MapRun, judge_rows
from fencepost.worker.replay import Engine

if TYPE_CHECKING:
    from fencepost.worker.leg import Leg

T = TypeVar("T")
In = TypeVar("In")
Out = TypeVar("Out")

Kept3 = tuple[int, str, str | None]  # sequence, state, text


class Context:
    """Handed to every workflow. Use it in the workflow's own code only, never inside a step.

    Code outside steps must be free of side effects: it runs again on every replay. A failure of a step is StepFailed (or its declared
    class); a step with an outcome nobody knows is StepOutcomeUnknown.
    """

    def __init__(self, leg: Leg) -> None:
        self._leg = leg
        self._changed: dict[str, bool] = {}
        self._answers: dict[
            str, Found[Any] | Absent | Unknown
        ] = {}  # of look-ups asked during replay, by step key: Found is final

    # ── what the run is ──────────────────────────────────────────────────────────────────────────────────────────────

    @property
    def run_id(self) -> str:
        return self._leg.claimed.id

    @property
    def org(self) -> str:
        return self._leg.claimed.org

    @property
    def attempt(self) -> int:
        """The attempt's number: 1, 2, 3 …, also after every park. For logs; code that depends on it does not replay."""
        return self._leg.fence.number

    @property
    def _engine(self) -> Engine:
        assert self._leg.engine is not None
        return self._leg.engine

    async def _perform(self, work: Callable[[], Awaitable[Any]]) -> Any:
        """Do a boundary's work. What a door refuses there is a bug of ours, and not for author code to catch."""
        try:
            return await self._engine.perform(work)
        except (BrokenLaw, DatabaseUnavailable, asyncpg.PostgresError) as error:
            self._engine.break_off(error)
            await self._engine.never()

    # ── steps ────────────────────────────────────────────────────────────────────────────────────────────────────────

    async def step(self, step: Step[P, R], /, *args: P.args, **kwargs: P.kwargs) -> R:
        """Run a declared step once, or give its kept result. Source: laws 50.1-50.4, 50.10, 50.11.

        Raises StepFailed (or a declared class), StepOutcomeUnknown, Unstorable (an argument that is no JSON value, with its path).
        """
        if not isinstance(step, Step):
            raise TypeError(f"ctx.step takes a function declared with @app.step, not {step!r}")
        _ = step.returns  # an annotation that cannot be resolved is refused before anything begins
        hashed = values.hash_args(values.encode([list(args), kwargs]))
        return cast("R", await self._step(step, hashed, args, kwargs))

    async def _step(self, step: Step[..., Any], hashed: str, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        engine = self._engine
        ordinal = engine.count("step", step.name)
        recorded = await engine.enter(("step", step.name, ordinal), hashed)
        with engine.at_boundary():
            if recorded is not None:
                await self._tell_again(recorded, lambda _: self._is_still_unknown(step, ordinal, args, kwargs))
                if recorded.resolved:
                    await engine.replay(recorded)
                    return await self._given(step, recorded.state, recorded.value)
            await engine.hold()
            seq, state, text = await self._perform(lambda: self._do(step, ordinal, hashed, recorded, args, kwargs))
            await engine.in_order(seq)
            return await self._given(step, state, text)

    async def _given(self, step: Step[..., Any], state: str, text: str | None) -> Any:
        """What the code is given of a stored result: always the decoded stored value (law 50.1)."""
        if state == "failed":
            raise failure(step, text or "{}")
        return await self._decoded(f"step {step.name}", text, step.returns)

    async def _decoded(self, what: str, text: str | None, type_: Any) -> Any:
        try:
            return values.decode(text if text is not None else "null", type_)
        except values.Undecodable as error:
            # The run waits for code that can read its history: nothing is lost (law 50.4).
            self._engine.end_unfit(f"{what}: {error}", code="UNDECODABLE")
            return await self._engine.never()

    async def _do(
        self, step: Step[..., Any], ordinal: int, hashed: str, recorded: Recorded | None, args: tuple[Any, ...], kwargs: dict[str, Any]
    ) -> Kept3:  # fmt: skip
        leg = self._leg
        key = values.step_key(leg.claimed.key_root, "step", step.name, ordinal)
        marked_before = recorded is not None and recorded.state == "marked"
        if marked_before and recorded is not None and not recorded.repeatable:
            found = await self._resolve_mark(step, ordinal, key, args, kwargs)
            if isinstance(found, Ran):
                return await self._keep("step", step.name, ordinal, hashed, found, repeatable=step.repeatable)
        timeout_ms = None if step.longest is None else int(step.longest * 1000)

        async def mark(*, again: bool) -> steps.Marking | Stale | Cancelling:
            return await steps.mark(
                leg.face.db, leg.fence, step.name, ordinal, hash=hashed, repeatable=step.repeatable, timeout_ms=timeout_ms, again=again
            )  # fmt: skip

        async def may_go_on() -> bool:  # by a dead fence, or after a cancel, nothing more is begun (laws 40.4, 80.4)
            return isinstance(await mark(again=False), str)

        if not step.repeatable or step.timeout is not None:
            marking = await mark(again=marked_before)
            if not isinstance(marking, str):
                await leg.gone(marking)
            elif marking != "marked":
                await self._unknown("step", step.name, ordinal)
            await faults.reach("step.marked", step=step.name, key=key)
        outcome = await execute(
            leg.face, leg.threads, step, key, args, kwargs, may_go_on=None if step.repeatable else may_go_on
        )
        if isinstance(outcome, OutOfSight):
            answer = await look_up(
                step, key, args, kwargs
            )  # Absent counts as Unknown here: its code may still run (law 50.11)
            if not isinstance(answer, Found):
                await self._unknown("step", step.name, ordinal)
            outcome = found_value(answer)
        return await self._keep("step", step.name, ordinal, hashed, outcome, repeatable=step.repeatable)

    async def _resolve_mark(
        self, step: Step[..., Any], ordinal: int, key: str, args: tuple[Any, ...], kwargs: dict[str, Any]
    ) -> Ran | None:
        """Law 50.11, for a mark of an earlier attempt. Found: its value. None: a run is permitted. Else StepOutcomeUnknown."""
        answer = self._answers.pop(key, None) or await look_up(step, key, args, kwargs)
        if isinstance(answer, Absent) and not step.key_honoured:
            gone_ms = await steps.ask_mark(self._leg.face.db, self._leg.fence.rid, step.name, ordinal)
            if gone_ms is None:
                await self._unknown("step", step.name, ordinal)
            left = max(0.0, step.settle - gone_ms / 1000)
            await asyncio.sleep(left)  # waits: what a dead holder sent may still arrive
            answer = await look_up(step, key, args, kwargs)
        if isinstance(answer, Found):
            return found_value(answer)
        if isinstance(answer, Absent):
            return None
        await self._unknown("step", step.name, ordinal)

    async def _keep(
        self, kind: BoundaryKind, name: str, ordinal: int, hashed: str, outcome: Ran | Broke, *, repeatable: bool = True
    ) -> Kept3:
        leg = self._leg
        ok = isinstance(outcome, Ran)
        with self._engine.calling():
            answer = await steps.keep(
                leg.face.db,
                leg.fence,
                kind,
                name,
                ordinal,
                hash=hashed,
                repeatable=repeatable,
                ok=ok,
                value=outcome.text,
            )
            if isinstance(answer, Kept):
                leg.committed()
                await faults.reach("step.kept", step=name)
        match answer:
            case Kept(seq):
                return seq, "kept" if ok else "failed", outcome.text
            case KeptBefore(seq, state, value):
                return seq, state, value
            case stale:
                if not repeatable:
                    await steps.deliver_late(leg.face.db, leg.fence, name, ordinal, ok=ok, value=outcome.text)
                await leg.gone(stale)

    # ── the unknown ──────────────────────────────────────────────────────────────────────────────────────────────────

    async def _unknown(self, kind: str, name: str, ordinal: int, keys: tuple[str, ...] = ()) -> NoReturn:
        """Tell the code that nobody knows. That it was told is recorded: code that goes on from here replays the same way."""
        self._leg.met_unknown = True
        nth = len(self._told(kind, name, ordinal)) + 1
        seq, _, _ = await self._keep("value", told_name(kind, name, ordinal), nth, "", Ran(values.encode(keys)))
        await self._engine.in_order(seq)
        raise StepOutcomeUnknown(name, ordinal, keys)

    def _told(self, kind: str, name: str, ordinal: int) -> list[Recorded]:
        """When earlier attempts were told so of this step or map, in order."""
        known, name = self._engine.recorded, told_name(kind, name, ordinal)
        return [
            known["value", name, nth]
            for nth in itertools.takewhile(lambda n: ("value", name, n) in known, itertools.count(1))
        ]

    async def _tell_again(self, recorded: Recorded, is_still_so: Callable[[Recorded], Awaitable[bool]]) -> None:
        """Where an earlier attempt was told Unknown and that is still so, say it again, in its place among the results.

        Where it is not so any more, the step is answered or asked afresh. The leg overrules this where the history fits the other
        way only (Leg._replayed). Being told once more is recorded anew: what was told last counts.
        """
        leg, engine = self._leg, self._engine
        every = self._told(recorded.kind, recorded.name, recorded.ordinal)
        for told in every:
            told.asked = True
        if not every or leg.tells.get(every[-1].key) is False:
            return
        told = every[-1]
        if told.key not in leg.tells:
            with engine.preparing(told):
                if recorded.resolved or not await self._perform(lambda: is_still_so(told)):
                    return
        leg.told.add(told.key)
        await engine.replay(told)
        # Unresolved still (law 40.6)? Of a map's rows only the door that ends the leg knows.
        leg.met_unknown |= recorded.state == "marked"
        raise StepOutcomeUnknown(recorded.name, recorded.ordinal, values.decode(told.value or "[]", list[str]))

    async def _is_still_unknown(
        self, step: Step[..., Any], ordinal: int, args: tuple[Any, ...], kwargs: dict[str, Any]
    ) -> bool:
        """Nothing but Unknown would come of resolving this step's mark now. Raises nothing, records nothing."""
        recorded = self._engine.recorded["step", step.name, ordinal]
        if recorded.state != "marked" or recorded.repeatable:
            return False
        key = values.step_key(self._leg.claimed.key_root, "step", step.name, ordinal)
        answer = self._answers[key] = await look_up(step, key, args, kwargs)
        if isinstance(answer, Absent) and not step.key_honoured:
            return await steps.ask_mark(self._leg.face.db, self._leg.fence.rid, step.name, ordinal) is None
        return isinstance(answer, Unknown)

    # ── maps ─────────────────────────────────────────────────────────────────────────────────────────────────────────

    async def map(
        self, step: Step[[T], R], rows: Iterable[T], *, key: str | Callable[[T], object], concurrency: int = 20, tolerance: int = 0,
        unknown: Literal["raise", "return"] = "raise",
    ) -> Mapped[R]:  # fmt: skip
        """Run a step once per row, each kept under its key; results in input order. One boundary (law 50.6).

        `key`: a field of the row, or a function of it. `concurrency`: rows in flight. `tolerance`: how many rows may fail before the map
        fails as a whole (StepFailed); unknown rows count against none. `unknown`: raise StepOutcomeUnknown with all unknown keys once every
        other row is done, or return them in `.unknown`. Raises ValueError for a missing or twice used key, before anything begins.
        """
        if concurrency < 1 or tolerance < 0:
            raise ValueError(
                f"concurrency must be at least 1 and tolerance at least 0, not {concurrency} and {tolerance}"
            )
        source = list(rows)
        _ = step.returns
        judged = judge_rows(step, source, cast("Any", key))
        engine = self._engine
        ordinal = engine.count("map", step.name)
        recorded = await engine.enter(("map", step.name, ordinal), judged.hash)
        run = MapRun(self._leg, step, ordinal, judged, source, concurrency, tolerance)
        with engine.at_boundary():
            if recorded is not None:
                await self._tell_again(recorded, run.is_still_unknown)
            if recorded is not None and recorded.resolved:
                with engine.preparing(recorded):
                    mapped = await self._perform(lambda: self._collect(run, recorded.state, recorded.value))
                await engine.replay(recorded)
            else:
                await engine.hold()
                seq, state, text = await self._perform(lambda: self._do_map(run, raises=unknown == "raise"))
                await engine.in_order(seq)
                mapped = await self._perform(lambda: self._collect(run, state, text))
            if isinstance(mapped, Exception):
                raise mapped
            return cast("Mapped[R]", mapped)

    async def _do_map(self, run: MapRun, *, raises: bool) -> Kept3:
        await run.store()
        # What a declared retry has set aside is no record, but its rows are there.
        begun_before = ("map", run.step.name, run.ordinal) in self._engine.recorded
        await run.run(await run.states() if begun_before else None)
        if run.unknown and raises:
            await self._unknown("map", run.step.name, run.ordinal, tuple(run.rows.keys[i] for i in sorted(run.unknown)))
        verdict = run.verdict()
        outcome: Ran | Broke
        if verdict is None:
            outcome = Ran(
                values.encode({"rows": len(run.rows.keys), "unknown": [run.rows.keys[i] for i in sorted(run.unknown)]})
            )
        else:
            outcome = Broke(
                values.encode_error({"code": verdict.code, "message": verdict.message, "type": verdict.type})
            )
        return await self._keep("map", run.step.name, run.ordinal, run.rows.hash, outcome)

    async def _collect(self, run: MapRun, state: str, text: str | None) -> Mapped[Any] | Exception:
        """What the code is given of a map: always from what is stored."""
        if state == "failed":
            return failure(run.step, text or "{}")
        unknown = set(values.decode(text or "{}", dict[str, Any]).get("unknown", ()))
        try:
            return await run.collect(unknown)
        except values.Undecodable as error:
            self._engine.end_unfit(f"map {run.step.name}: {error}", code="UNDECODABLE")
            return await self._engine.never()

    # ── waits ────────────────────────────────────────────────────────────────────────────────────────────────────────

    async def sleep(self, name: str, duration: timedelta | float) -> None:
        """Sleep durably, in the database's time; the run holds nothing meanwhile (law 60.1)."""
        ms = int(seconds(duration, f"sleep {name}", zero=True) * 1000)
        await self._wait("sleep", name, ms, hashed="")

    @overload
    async def wait_for(self, name: str, type_: type[T], /, *, within: None = None) -> T: ...
    @overload
    async def wait_for(self, name: str, type_: type[T], /, *, within: timedelta | float) -> T | TimedOut: ...
    async def wait_for(self, name: str, type_: type[T], /, *, within: timedelta | float | None = None) -> T | TimedOut:
        """Wait for a signal; its payload as `type_`, or TimedOut. Signals sent before are not lost, each goes to one wait (60.2, 60.3)."""
        ms = None if within is None else int(seconds(within, f"wait for {name}", zero=True) * 1000)
        found = await self._wait("signal", name, ms, hashed="")
        if found.state == "timed_out":
            return TimedOut()
        return cast("T", await self._decoded(f"signal {name}", found.value, type_))

    async def wait_for_first(
        self, *waits: tuple[str, type[T]], within: timedelta | float | None = None
    ) -> Arrived[T] | TimedOut:
        """Wait for whichever signal comes first; the other waits are cancelled, their signals stay for later waits."""
        if len({name for name, _ in waits}) != len(waits) or not waits:
            raise ValueError("wait_for_first takes at least one (name, type), each name once")
        ms = None if within is None else int(seconds(within, "wait_for_first: within", zero=True) * 1000)
        branches = [asyncio.ensure_future(self._wait("signal", name, ms, hashed="")) for name, _ in waits]
        try:
            await asyncio.wait(branches, return_when=asyncio.FIRST_COMPLETED)
        finally:
            for branch in branches:
                if not branch.done():
                    branch.cancel()
        found = next(branch.result() for branch in branches if branch.done() and not branch.cancelled())
        if found.state == "timed_out":
            return TimedOut()
        type_ = dict(waits)[found.name]
        return Arrived(found.name, cast("T", await self._decoded(f"signal {found.name}", found.value, type_)))

    async def _wait(self, kind: Literal["sleep", "signal"], name: str, ms: int | None, *, hashed: str) -> Resolved:
        values.check_name(name, f"the name of a {kind}")
        engine, leg = self._engine, self._leg
        ordinal = engine.count(kind, name)
        if kind == "signal":
            # waits: for a branch that was cancelled just now to leave the signal that it had (60.3)
            await asyncio.sleep(0)
        recorded = await engine.enter((kind, name, ordinal), hashed)
        wait = Wait(kind=kind, name=name, ordinal=ordinal, ms=ms, hash=hashed)
        armed = recorded is not None and recorded.state == "armed"
        found = (
            None
            if recorded is None or not recorded.resolved
            else Resolved(kind, name, ordinal, recorded.state, recorded.seq, recorded.value)
        )
        with engine.at_boundary():
            if found is None and kind == "signal" and (orphan := leg.orphan(name)) is not None:
                leg.abandon(wait, None, armed=armed)
                return orphan
            try:
                if recorded is not None and found is not None:
                    await engine.replay(recorded)
                    return found
                await engine.hold()
            except asyncio.CancelledError:
                leg.abandon(wait, found, armed=armed)
                raise
            return cast("Resolved", await self._perform(lambda: leg.wait(wait, armed=armed)))

    async def signal(self, run_id: str, name: str, payload: object = None, *, org: str | None = None) -> None:
        """Send a signal to another run, once: the step's key makes a repeat harmless. Raises SignalRefused."""
        text = values.encode(payload)
        sender = make_step(
            self._send, name=f"signal {name}", repeatable=True, retry=None, timeout=None, errors=(SignalRefused,), lookup=None,
            lookup_timeout=1, settle=0, key_honoured=False,
        )  # fmt: skip
        target = org or self.org
        await self._step(
            sender, values.hash_args(values.encode([target, run_id, name, text])), (target, run_id, name, text), {}
        )

    async def _send(self, org: str, run_id: str, name: str, text: str) -> str:
        from fencepost.authoring import step_key

        answer = await suspension.signal(self._leg.face.db, org, run_id, name, dedupe=step_key(), payload=text)
        if answer not in ("sent", "repeated"):
            raise SignalRefused(run_id, name, answer)
        return answer

    # ── children ─────────────────────────────────────────────────────────────────────────────────────────────────────

    @overload
    async def run_child(self, workflow: Workflow[None, Out], /, *, id: str | None = None) -> Out: ...
    @overload
    async def run_child(self, workflow: Workflow[In, Out], input: In, /, *, id: str | None = None) -> Out: ...
    async def run_child(self, workflow: Workflow[Any, Out], input: Any = None, /, *, id: str | None = None) -> Out:
        """Start a child run and wait for its end; its output. Raises RunFailed, RunCancelled, LaunchConflict (the id has another launch)."""
        found = await self._child(workflow, input, id, waits=True)
        doc: dict[str, Any] = values.decode(found.value or "{}", dict[str, Any])
        if doc["status"] == "completed":
            return cast(
                "Out", await self._decoded(f"child {workflow.name}", values.encode(doc["output"]), workflow.returns)
            )
        error: dict[str, Any] = doc.get("error") or {}
        if doc["status"] == "cancelled":
            raise RunCancelled(workflow.name, error.get("message", ""))
        raise RunFailed(workflow.name, error.get("code", "WORKFLOW_ERROR"), error.get("message", ""), error)

    @overload
    async def start_child(self, workflow: Workflow[None, Out], /, *, id: str | None = None) -> str: ...
    @overload
    async def start_child(self, workflow: Workflow[In, Out], input: In, /, *, id: str | None = None) -> str: ...
    async def start_child(self, workflow: Workflow[Any, Any], input: Any = None, /, *, id: str | None = None) -> str:
        """Start a child run and go on; its run id."""
        found = await self._child(workflow, input, id, waits=False)
        return cast("str", values.decode(found.value or "null", str))

    async def _child(self, workflow: Workflow[Any, Any], input: Any, id: str | None, *, waits: bool) -> Resolved:
        if not isinstance(workflow, Workflow):
            raise TypeError(f"a child is a workflow declared with @app.workflow, not {workflow!r}")
        engine = self._engine
        text = values.encode(input)
        ordinal = engine.count("child", workflow.name)
        hashed = values.hash_args(values.encode([id, text, waits]))
        recorded = await engine.enter(("child", workflow.name, ordinal), hashed)
        with engine.at_boundary():
            await self._raise_recorded_refusal(workflow.name, ordinal, hashed)
            if recorded is not None and recorded.resolved:
                await engine.replay(recorded)
                return Resolved("child", workflow.name, ordinal, recorded.state, recorded.seq, recorded.value)
            await engine.hold()
            armed = recorded is not None and recorded.state == "armed"
            if not armed:
                child_id = id or _child_id(self.run_id, workflow.name, ordinal)
                seq = await self._perform(lambda: self._start(workflow, ordinal, hashed, child_id, text, waits=waits))
                if not waits:
                    await engine.in_order(seq)
                    return Resolved("child", workflow.name, ordinal, "kept", seq, values.encode(child_id))
            wait = Wait(kind="child", name=workflow.name, ordinal=ordinal)
            return cast("Resolved", await self._perform(lambda: self._leg.wait(wait, armed=True)))

    async def _start(
        self, workflow: Workflow[Any, Any], ordinal: int, hashed: str, child_id: str, text: str, *, waits: bool
    ) -> int:
        leg = self._leg
        with self._engine.calling():
            answer = await suspension.start_child(
                leg.face.db, leg.fence, workflow.name, ordinal, hash=hashed, waits=waits, child_id=child_id, child_name=workflow.name,
                input=text, on_lost=workflow.on_lost,
            )  # fmt: skip
        match answer:
            case Started(_, _, seq):
                leg.committed()
                return seq or 0
            case ChildRefused(why):
                refused = Ran(values.encode({"why": why, "id": child_id}))
                seq, _, doc = await self._keep("value", _refused_name(workflow.name, ordinal), 1, hashed, refused)
                await self._engine.in_order(seq)
                raise _refusal(workflow.name, doc)
            case gone:
                await leg.gone(gone)

    async def _raise_recorded_refusal(self, name: str, ordinal: int, hashed: str) -> None:
        """That a child could not be started is recorded: code that goes on from there replays the same way."""
        key = ("value", _refused_name(name, ordinal), 1)
        if key in self._engine.recorded:
            refused = await self._engine.enter(key, hashed)
            if refused is not None:
                await self._engine.replay(refused)
                raise _refusal(name, refused.value)

    # ── recorded values ──────────────────────────────────────────────────────────────────────────────────────────────

    async def now(self) -> datetime:
        """The database's time (UTC), recorded: the same on every replay."""
        return cast("datetime", await self._value("now", self._clock, datetime))

    async def random(self) -> float:
        """A number in [0, 1), recorded."""
        return cast("float", await self._value("random", random.random, float))

    async def uuid(self) -> uuid.UUID:
        """A random UUID, recorded."""
        return cast("uuid.UUID", await self._value("uuid", uuid.uuid4, uuid.UUID))

    async def _clock(self) -> datetime:
        row = (await self._leg.face.db.call("read_clock", patience=float("inf")))[0]
        return cast("datetime", row["read_clock"])

    async def _value(self, name: str, make: Callable[[], Any], type_: Any) -> Any:
        engine = self._engine
        ordinal = engine.count("value", name)
        recorded = await engine.enter(("value", name, ordinal))
        with engine.at_boundary():
            if recorded is not None and recorded.resolved:
                await engine.replay(recorded)
                text = recorded.value
            else:
                await engine.hold()
                seq, _, text = await self._perform(lambda: self._make(name, ordinal, make))
                await engine.in_order(seq)
            return await self._decoded(name, text, type_)

    async def _make(self, name: str, ordinal: int, make: Callable[[], Any]) -> Kept3:
        made = make()
        made = await made if asyncio.iscoroutine(made) else made
        return await self._keep("value", name, ordinal, "", Ran(values.encode(made)))

    async def changed(self, tag: str) -> bool:
        """For code that changes under running runs: False while recorded history is still to come, else True, and recorded (law 50.4)."""
        values.check_name(tag, "a tag of ctx.changed")
        if tag not in self._changed:
            known = ("value", f"changed {tag}", 1) in self._engine.recorded
            self._changed[tag] = (
                bool(await self._value(f"changed {tag}", lambda: True, bool)) if known or self._at_the_end() else False
            )
        return self._changed[tag]

    def _at_the_end(self) -> bool:
        """No recorded boundary is still to be asked for."""
        return self._engine.live or self._engine.unasked() is None

    # ── saying things ────────────────────────────────────────────────────────────────────────────────────────────────

    def progress(self, done: int, total: int | None = None, note: str = "") -> None:
        """Show how far the run is. A hint: never awaited, dropped under pressure, not a boundary (law 90.3)."""
        self._leg.face.progress(self._leg.fence, values.encode_error({"done": done, "total": total, "note": note}))

    def log(self, message: str, **fields: Any) -> None:
        """Log a line with the run's id and attempt; not said again on replay."""
        if self._engine.live:
            notes.say(message, run=self.run_id, attempt=self.attempt, **fields)


def _refused_name(name: str, ordinal: int) -> str:
    return f"refused child {name}#{ordinal}"


def _refusal(name: str, text: str | None) -> Exception:
    doc = values.decode(text or "{}", dict[str, str])
    if doc.get("why") == "conflict":
        return LaunchConflict(doc.get("id", ""), [{"path": "$", "given": {"name": name}}])
    return LaunchRefused(f"child {doc.get('id')!r}: an unusable id or name")


def _child_id(parent: str, name: str, ordinal: int) -> str:
    """A child's id says whose it is; one that would be too long is shortened by a hash of the whole."""
    whole = f"{parent}/{name}/{ordinal}"
    if len(whole) <= 200:
        return whole
    return f"{whole[:150]}…{hashlib.sha256(whole.encode()).hexdigest()[:32]}"
