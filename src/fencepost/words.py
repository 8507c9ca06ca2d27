"""The nouns and the closed lists: the same words in the database, the API, the command line and the docs.

Lists that the database keeps too are compared with it by a test.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final, Literal, get_args
from uuid import UUID

import msgspec

State = Literal["queued", "running", "parked", "cancelling", "unknown"]
Status = Literal["queued", "running", "parked", "cancelling", "unknown", "completed", "failed", "cancelled"]
Terminal = Literal["completed", "failed", "cancelled"]
OnLost = Literal["replay", "fail", "ask"]
Source = Literal["api", "webhook", "cron", "sql_listener", "async_child", "program"]
BoundaryKind = Literal["step", "map", "sleep", "signal", "child", "value"]
BoundaryState = Literal[
    "marked", "kept", "failed", "armed", "arrived", "timed_out", "cancelled", "open", "set_aside", "again"
]
Verdict = Literal["completed", "failed", "again", "late", "lookup"]

ErrorCode = Literal[
    "LAUNCH_CONFLICT",
    "ADMISSION_EXPIRED",
    "CAPACITY_EXCEEDED",
    "RECOVERY_EXHAUSTED",
    "RUNNER_LOST",
    "LOST_TOO_OFTEN",
    "NONDETERMINISM",
    "UNSTORABLE_RESULT",
    "STEP_OUTCOME_UNKNOWN",
    "STEP_FAILED",
    "WORKFLOW_ERROR",
    "TRIES_EXHAUSTED",
    "TIMED_OUT",
    "UNDECODABLE",
    "OPERATOR_ENDED",
    "PLAN_STUCK",
    "LEGACY_ERROR",
    "PLAN_INVALID",
]

EventType = Literal[
    "run.admitted",
    "run.recovered",
    "run.woken",
    "run.cancelling",
    "run.unknown",
    "run.resolved",
    "run.completed",
    "run.failed",
    "run.cancelled",
    "attempt.claimed",
    "attempt.begun",
    "attempt.parked",
    "attempt.deferred",
    "attempt.given_back",
    "attempt.lost",
    "attempt.retrying",
    "attempt.unfit",
    "attempt.adopted",
    "plan.step_started",
    "plan.step_succeeded",
    "plan.step_failed",
    "plan.step_waiting",
    "plan.step_skipped",
    "plan.step_cancelled",
    "plan.step_unknown",
    "plan.step_resumed",
    "plan.stuck",
    "signal.sent",
    "late.accepted",
    "step.marked",
    "step.kept",
    "step.failed",
    "value.kept",
    "value.failed",
    "map.opened",
    "map.kept",
    "map.failed",
    "child.started",
    "child.kept",
    "wait.armed",
    "wait.arrived",
    "wait.timed_out",
    "wait.cancelled",
    "row.marked",
    "row.kept",
    "row.failed",
    "row.skipped",
]

STATES: Final[frozenset[str]] = frozenset(get_args(State))
STATUSES: Final[tuple[str, ...]] = get_args(Status)
TERMINAL: Final[frozenset[str]] = frozenset(get_args(Terminal))
SOURCES: Final[tuple[str, ...]] = get_args(Source)
BOUNDARY_KINDS: Final[frozenset[str]] = frozenset(get_args(BoundaryKind))
BOUNDARY_STATES: Final[frozenset[str]] = frozenset(get_args(BoundaryState))
ERROR_CODES: Final[frozenset[str]] = frozenset(get_args(ErrorCode))
EVENT_TYPES: Final[frozenset[str]] = frozenset(get_args(EventType))


class Fence(msgspec.Struct, frozen=True, gc=False):  # a dataclass takes eight times as long to make, once a run
    """Who acts: the run's internal id, the attempt's number, and the 128 bits that are the authority (law 40.2)."""

    rid: int
    number: int
    fence: UUID


@dataclass(frozen=True, slots=True)
class Stale:
    """Another fence is alive, or none. Nothing was written: drop everything and go home (law 40.3)."""


@dataclass(frozen=True, slots=True)
class Cancelling:
    """Nothing new may begin: a cancel was accepted. The leg ends; only `cancelled` can be stored (law 80.4)."""


STALE: Final = Stale()
CANCELLING: Final = Cancelling()
