"""Every exception of the public face, drawn as a tree.

FencepostError
├── StepFailed             a step ended in an exception after its retries (law 50.10)
├── StepOutcomeUnknown     a step that is not repeatable was marked, then lost: nobody knows what became of it (50.2)
├── RunFailed              `handle.result()`: the run failed
├── RunCancelled           `handle.result()`: the run was cancelled
├── RunUnknown             `handle.result()`: the run waits for somebody who knows what became of a step
├── LaunchConflict         admission: the id has another launch (30.3)
├── LaunchRefused          admission: an unusable id, name or value (30.6)
├── SourceRefused          a table of rows that a map was given is not usable: nothing has begun (50.6)
├── PlanInvalid            a plan is not usable, and nothing was written: every fault of it, with line and path (70.1)
├── RunNotFound            there is no such run in this organisation
├── SignalRefused          the run has ended, or has too many undelivered signals
├── Busy                   the process's connections are all in use (00.11)
├── DatabaseUnavailable    the database did not answer for as long as this call rides out weather
└── BrokenLaw              only a bug can raise it: LWnnn. Never catch it; fix the caller
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any


class FencepostError(Exception):
    """The root of every exception that Fencepost raises to its users."""


class StepFailed(FencepostError):
    """A step raised after its retries, and that failure is committed: replay raises it again (law 50.10).

    `code` is `STEP_FAILED`, or the code of the failure stored; `type` the class name of what the step raised.
    """

    def __init__(self, code: str, message: str = "", *, step: str = "", type: str = "") -> None:
        super().__init__(code, message)
        self.code = code
        self.message = message
        self.step = step
        self.type = type

    def __str__(self) -> str:
        return f"{self.step or 'step'} failed: {self.type + ': ' if self.type else ''}{self.message} ({self.code})"


class StepOutcomeUnknown(FencepostError):
    """A step that is not repeatable was marked, then lost, cancelled or timed out; its look-up does not know either.

    It is never repeated silently. Let it leave the workflow and the run becomes `unknown`, for an operator to resolve.
    `keys` are the unknown rows of a map; empty for a step.
    """

    def __init__(self, step: str, ordinal: int = 1, keys: Sequence[str] = ()) -> None:
        super().__init__(step, ordinal, tuple(keys))
        self.step = step
        self.ordinal = ordinal
        self.keys = tuple(keys)

    def __str__(self) -> str:
        rows = f" (rows {', '.join(self.keys[:10])}{' …' if len(self.keys) > 10 else ''})" if self.keys else ""
        return f"nobody knows what became of step {self.step}#{self.ordinal}{rows}"


class RunFailed(FencepostError):
    """The run ended `failed`. `code` is one of the closed list of error codes, `error` the whole stored error."""

    def __init__(self, run_id: str, code: str, message: str, error: dict[str, Any] | None = None) -> None:
        super().__init__(run_id, code, message)
        self.run_id = run_id
        self.code = code
        self.message = message
        self.error = error or {}

    def __str__(self) -> str:
        return f"run {self.run_id} failed: {self.message} ({self.code})"


class RunCancelled(FencepostError):
    """The run ended `cancelled`."""

    def __init__(self, run_id: str, reason: str = "") -> None:
        super().__init__(run_id, reason)
        self.run_id = run_id
        self.reason = reason


class RunUnknown(FencepostError):
    """The run is `unknown`, and stays so until its look-up, a rule or an operator resolves it (`fencepost runs resolve`)."""

    def __init__(self, run_id: str, error: dict[str, Any] | None = None) -> None:
        super().__init__(run_id)
        self.run_id = run_id
        self.error = error or {}

    def __str__(self) -> str:
        return f"run {self.run_id} is unknown: {self.error.get('message', 'see `fencepost runs explain`')}"


class LaunchConflict(FencepostError):
    """The id has a run with another launch; nothing changed. `differs` lists {path, stored, given} (law 30.3)."""

    def __init__(self, run_id: str, differs: list[dict[str, Any]]) -> None:
        super().__init__(run_id, differs)
        self.run_id = run_id
        self.differs = differs

    def __str__(self) -> str:
        what = ", ".join(str(d["path"]) for d in self.differs[:5])
        return f"run {self.run_id} exists with another launch (differs in {what})"


class LaunchRefused(FencepostError):
    """The launch cannot be stored: an unusable id, name, organisation or value. Nothing was written."""


class SourceRefused(FencepostError, ValueError):
    """A table of rows is not usable, and no row of it has begun (law 50.6): what is wrong, and where.

    `line` counts from 1 (of Parquet and Arrow files it is the row, `unit` says so); `column` is a name, or a path below one.
    """

    def __init__(
        self, path: str, problem: str, *, line: int | None = None, column: str = "", unit: str = "line"
    ) -> None:
        super().__init__(path, problem, line, column, unit)
        self.path = path
        self.problem = problem
        self.line = line
        self.column = column
        self.unit = unit

    def __str__(self) -> str:
        where = f", {self.unit} {self.line}" if self.line is not None else ""
        return f"{self.path}{where}{f', column {self.column}' if self.column else ''}: {self.problem}"


@dataclass(frozen=True, slots=True)
class PlanFault:
    """One thing that is wrong with a plan: where, and what to do.

    `line` counts from 1, None for a plan made in Python; `path` is as `step[2] notes: retry.backoff`, steps and entries counted from 1.
    """

    line: int | None
    path: str
    message: str

    def __str__(self) -> str:
        where = "" if self.line is None else f"line {self.line}: "
        return f"{where}{self.path}{': ' if self.path else ''}{self.message}"


class PlanInvalid(FencepostError, ValueError):
    """A plan is not usable, and nothing was written (law 70.1). `faults` names all that is wrong with it, in the order of its lines."""

    def __init__(self, place: str, faults: Sequence[PlanFault]) -> None:
        super().__init__(place, tuple(faults))
        self.place = place
        self.faults = tuple(faults)

    def __str__(self) -> str:
        return "\n".join(f"{self.place}: {fault}" for fault in self.faults)


class RunNotFound(FencepostError):
    """There is no such run in this organisation; one that exists elsewhere looks exactly the same (law 97.1)."""

    def __init__(self, run_id: str, org: str) -> None:
        super().__init__(run_id, org)
        self.run_id = run_id
        self.org = org

    def __str__(self) -> str:
        return f"there is no run {self.run_id!r} in organisation {self.org!r}"


class SignalRefused(FencepostError):
    """The signal was not stored. `answer`: ended · full · refused."""

    def __init__(self, run_id: str, name: str, answer: str) -> None:
        super().__init__(run_id, name, answer)
        self.run_id = run_id
        self.name = name
        self.answer = answer

    def __str__(self) -> str:
        why = {"ended": "the run has ended", "full": "the run has 1000 undelivered signals"}.get(
            self.answer, "its name or payload is unusable"
        )
        return f"signal {self.name!r} to run {self.run_id} was refused: {why}"


class Busy(FencepostError):
    """Every connection of this process is in use and too many callers wait already (law 00.11). Ask again later."""


class DatabaseUnavailable(FencepostError):
    """The database did not answer for as long as this call rides out weather; whether it acted is not known here.

    Every door can be asked again: repeat the same call with the same id.
    """


class BrokenLaw(FencepostError):
    """The database refused what no correct caller does. Never catch it; fix the caller.

    LW001 unlawful move · LW002 a number that shrinks · LW003 wrong isolation ·
    LW401 a deferral after code began · LW801 one fence, two endings · LW802 no ending.
    """

    def __init__(self, sqlstate: str, message: str) -> None:
        super().__init__(sqlstate, message)
        self.sqlstate = sqlstate
