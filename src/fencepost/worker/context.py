"""The Context: what a workflow's code says to Fencepost. Every durable act is a boundary: (kind, name, ordinal).

Here are the words and what they promise. What happens inside a boundary has rooms of its own: stepping.py, maps.py, waits.py,
children.py, recording.py, telling.py, waterfall.py; rooms.py opens them, and what they share is keeping.py.
"""

from __future__ import annotations

import random
import uuid
from collections.abc import Callable, Iterable
from datetime import datetime, timedelta
from typing import Any, Literal, TypeVar, cast, overload

from fencepost import keys, notes, suspension, values
from fencepost.authoring import Arrived, P, R, Step, TimedOut, Workflow, make_step, seconds, step_key
from fencepost.errors import RunCancelled, RunFailed, SignalRefused
from fencepost.sources.table import Table
from fencepost.worker.mapped import Mapped, MappedTable
from fencepost.worker.outs import make_out
from fencepost.worker.plays import Plays
from fencepost.worker.rows import judge_rows, refuse_shared
from fencepost.worker.tables import allowed, judge_tolerance

T = TypeVar("T")
In = TypeVar("In")
Out = TypeVar("Out")


class Context(Plays):
    """Handed to every workflow. Use it in the workflow's own code only, never inside a step.

    Code outside steps must be free of side effects: it runs again on every replay. A failure of a step is StepFailed (or its declared
    class); a step with an outcome nobody knows is StepOutcomeUnknown.
    """

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

    # ── steps ────────────────────────────────────────────────────────────────────────────────────────────────────────

    async def step(self, step: Step[P, R], /, *args: P.args, **kwargs: P.kwargs) -> R:
        """Run a declared step once, or give its kept result. Source: laws 50.1-50.4, 50.10, 50.11.

        Raises StepFailed (or a declared class), StepOutcomeUnknown, Unstorable (an argument that is no JSON value, with its path).
        """
        if not isinstance(step, Step):
            raise TypeError(f"ctx.step takes a function declared with @app.step, not {step!r}")
        _ = step.returns  # an annotation that cannot be resolved is refused before anything begins
        hashed = keys.hash_call(args, kwargs)
        return cast("R", await self._steps.step(step, hashed, args, kwargs))

    # ── maps ─────────────────────────────────────────────────────────────────────────────────────────────────────────

    @overload
    async def map(
        self, step: Step[[Any], R], rows: Table, *, key: str | Callable[[dict[str, Any]], object], concurrency: int = 20, tolerance: float = 0,
        unknown: Literal["raise", "return"] = "raise", out: Table | str | None = None,
    ) -> MappedTable[R]: ...  # fmt: skip
    @overload
    async def map(
        self, step: Step[[T], R], rows: Iterable[T], *, key: str | Callable[[T], object], concurrency: int = 20, tolerance: float = 0,
        unknown: Literal["raise", "return"] = "raise", out: Table | str | None = None,
    ) -> Mapped[R]: ...  # fmt: skip
    async def map(
        self, step: Step[[Any], R], rows: Iterable[Any] | Table, *, key: str | Callable[[Any], object], concurrency: int = 20, tolerance: float = 0,
        unknown: Literal["raise", "return"] = "raise", out: Table | str | None = None,
    ) -> Mapped[R] | MappedTable[R]:  # fmt: skip
        """Run a step once per row, each kept under its key; results in input order. One boundary (law 50.6).

        `rows`: a list, or a table (`Csv`, `JsonLines`, `Parquet`, `ArrowFile`) that is never loaded whole; its rows become the type of the
        step's parameter, and a row that does not fit fails by itself. `key`: a field of the row, or a function of it. `concurrency`: rows in
        flight. `tolerance`: how many rows may fail (5), or which share of them (0.02), before the map fails as a whole (StepFailed); unknown
        rows count against none. `unknown`: raise StepOutcomeUnknown with all unknown keys once every other row is done, or return them in
        `.unknown`. `out`: a file for keys and results, written in input order when the map ends.

        Raises ValueError for a missing or twice used key, SourceRefused (a ValueError, with line and column) for a table that is not
        usable: before anything begins.
        """
        if concurrency < 1:
            raise ValueError(f"concurrency must be at least 1, not {concurrency}")
        judge_tolerance(tolerance)
        refuse_shared(step)
        _ = step.returns
        raises = unknown == "raise"
        written = make_out(self._leg, step, out, key)
        if isinstance(rows, Table):
            rows.ready()
            return cast(
                "MappedTable[R]",
                await self._tables.map(
                    step, rows, key, concurrency=concurrency, tolerance=tolerance, raises=raises, out=written
                ),
            )
        source = list(rows)
        judged = judge_rows(step, source, key)
        mapped = await self._maps.map(
            step, source, judged, concurrency=concurrency, tolerance=allowed(tolerance, len(source)), raises=raises, out=written
        )  # fmt: skip
        return cast("Mapped[R]", mapped)

    # ── waits ────────────────────────────────────────────────────────────────────────────────────────────────────────

    async def sleep(self, name: str, duration: timedelta | float) -> None:
        """Sleep durably, in the database's time; the run holds nothing meanwhile (law 60.1)."""
        ms = int(seconds(duration, f"sleep {name}", zero=True) * 1000)
        await self._waits.wait_for("sleep", name, ms)

    @overload
    async def wait_for(self, name: str, type_: type[T], /, *, within: None = None) -> T: ...
    @overload
    async def wait_for(self, name: str, type_: type[T], /, *, within: timedelta | float) -> T | TimedOut: ...
    async def wait_for(self, name: str, type_: type[T], /, *, within: timedelta | float | None = None) -> T | TimedOut:
        """Wait for a signal; its payload as `type_`, or TimedOut. Signals sent before are not lost, each goes to one wait (60.2, 60.3)."""
        ms = None if within is None else int(seconds(within, f"wait for {name}", zero=True) * 1000)
        found = await self._waits.wait_for("signal", name, ms)
        if found.state == "timed_out":
            return TimedOut()
        return cast("T", await self._keeping.decoded(f"signal {name}", found.value, type_))

    async def wait_for_first(
        self, *waits: tuple[str, type[T]], within: timedelta | float | None = None
    ) -> Arrived[T] | TimedOut:
        """Wait for whichever signal comes first; the other waits are cancelled, their signals stay for later waits."""
        if len({name for name, _ in waits}) != len(waits) or not waits:
            raise ValueError("wait_for_first takes at least one (name, type), each name once")
        ms = None if within is None else int(seconds(within, "wait_for_first: within", zero=True) * 1000)
        found = await self._waits.first([name for name, _ in waits], ms)
        if found.state == "timed_out":
            return TimedOut()
        type_ = dict(waits)[found.name]
        return Arrived(found.name, cast("T", await self._keeping.decoded(f"signal {found.name}", found.value, type_)))

    async def signal(self, run_id: str, name: str, payload: object = None, *, org: str | None = None) -> None:
        """Send a signal to another run, once: the step's key makes a repeat harmless. Raises SignalRefused."""
        text = values.encode(payload)
        sender = make_step(
            self._send, name=f"signal {name}", repeatable=True, retry=None, timeout=None, errors=(SignalRefused,), lookup=None,
            lookup_timeout=1, settle=0, key_honoured=False,
        )  # fmt: skip
        target = org or self.org
        await self._steps.step(
            sender, keys.hash_call((target, run_id, name, text), {}), (target, run_id, name, text), {}
        )

    async def _send(self, org: str, run_id: str, name: str, text: str) -> str:
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
        """Start a child run and wait for its end; its output. Raises RunFailed, RunCancelled, LaunchConflict (the id has another launch).

        `id`: else the parent's, the workflow's name and its number. A redrive is given the child of its origin that has this id and launch,
        once it has ended (60.10).
        """
        found = await self._children.child(workflow, input, id, waits=True)
        doc: dict[str, Any] = values.decode(found.value or "{}", dict[str, Any])
        if doc["status"] == "completed":
            return cast(
                "Out",
                await self._keeping.decoded(f"child {workflow.name}", values.encode(doc["output"]), workflow.returns),
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
        found = await self._children.child(workflow, input, id, waits=False)
        return cast("str", values.decode(found.value or "null", str))

    # ── recorded values ──────────────────────────────────────────────────────────────────────────────────────────────

    async def now(self) -> datetime:
        """The database's time (UTC), recorded: the same on every replay."""
        return cast("datetime", await self._recorded.value("now", self._recorded.clock, datetime))

    async def random(self) -> float:
        """A number in [0, 1), recorded."""
        return cast("float", await self._recorded.value("random", random.random, float))

    async def uuid(self) -> uuid.UUID:
        """A random UUID, recorded."""
        return cast("uuid.UUID", await self._recorded.value("uuid", uuid.uuid4, uuid.UUID))

    async def changed(self, tag: str) -> bool:
        """For code that changes under running runs: False while recorded history is still to come, else True, and recorded (law 50.4)."""
        values.check_name(tag, "a tag of ctx.changed")
        return await self._recorded.changed(tag)

    # ── saying things ────────────────────────────────────────────────────────────────────────────────────────────────

    def progress(self, done: int, total: int | None = None, note: str = "") -> None:
        """Show how far the run is. A hint: never awaited, dropped under pressure, not a boundary (law 90.3)."""
        self._leg.face.progress(self._leg.fence, values.encode_error({"done": done, "total": total, "note": note}))

    def log(self, message: str, **fields: Any) -> None:
        """Log a line with the run's id and attempt; not said again on replay. A field `run`, `attempt` or `level` is said as `run_` …"""
        if self._keeping.engine.live:
            named = {
                f"{name}_" if name in ("run", "attempt", "level") else name: value for name, value in fields.items()
            }
            notes.say(message, run=self.run_id, attempt=self.attempt, **named)
