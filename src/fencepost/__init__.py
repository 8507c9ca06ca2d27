"""Fencepost: durable execution on PostgreSQL that never guesses.

A step that may have happened is not repeated: it is kept, failed, or *unknown* and resolved by its look-up,
a declared rule or an operator. Everything public is named here; nothing else is.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from fencepost.app import App
from fencepost.authoring import Absent, Arrived, Found, Retry, Step, TimedOut, Unknown, Workflow, step_key
from fencepost.errors import (
    BrokenLaw,
    Busy,
    DatabaseUnavailable,
    FencepostError,
    LaunchConflict,
    LaunchRefused,
    PlanFault,
    PlanInvalid,
    RunCancelled,
    RunFailed,
    RunNotFound,
    RunUnknown,
    SignalRefused,
    SourceRefused,
    StepFailed,
    StepOutcomeUnknown,
)

if TYPE_CHECKING:
    from fencepost.client import Client, Handle
    from fencepost.planning import Plan, PlanStep, StepRetry, file, returned, stdout
    from fencepost.sources import ArrowFile, Csv, JsonLines, Parquet
    from fencepost.worker.answers import Answer, NoAnswer, Said
    from fencepost.worker.context import Context
    from fencepost.worker.mapped import Mapped, MappedBatches, MappedTable

__all__ = [
    "Absent",
    "Answer",
    "App",
    "Arrived",
    "ArrowFile",
    "BrokenLaw",
    "Busy",
    "Client",
    "Context",
    "Csv",
    "DatabaseUnavailable",
    "FencepostError",
    "Found",
    "Handle",
    "JsonLines",
    "LaunchConflict",
    "LaunchRefused",
    "Mapped",
    "MappedBatches",
    "MappedTable",
    "NoAnswer",
    "Parquet",
    "Plan",
    "PlanFault",
    "PlanInvalid",
    "PlanStep",
    "Retry",
    "RunCancelled",
    "RunFailed",
    "RunNotFound",
    "RunUnknown",
    "Said",
    "SignalRefused",
    "SourceRefused",
    "Step",
    "StepFailed",
    "StepOutcomeUnknown",
    "StepRetry",
    "TimedOut",
    "Unknown",
    "Workflow",
    "file",
    "returned",
    "stdout",
    "step_key",
]

_LATER = {
    "Client": "fencepost.client",
    "Handle": "fencepost.client",
    "Plan": "fencepost.planning",
    "PlanStep": "fencepost.planning",
    "StepRetry": "fencepost.planning",
    "file": "fencepost.planning",
    "returned": "fencepost.planning",
    "stdout": "fencepost.planning",
    "ArrowFile": "fencepost.sources",
    "Csv": "fencepost.sources",
    "JsonLines": "fencepost.sources",
    "Parquet": "fencepost.sources",
    "Answer": "fencepost.worker.answers",
    "NoAnswer": "fencepost.worker.answers",
    "Said": "fencepost.worker.answers",
    "Context": "fencepost.worker.context",
    "Mapped": "fencepost.worker.mapped",
    "MappedBatches": "fencepost.worker.mapped",
    "MappedTable": "fencepost.worker.mapped",
}


def __getattr__(name: str) -> Any:
    """What needs the driver or the worker is imported when it is first named: importing fencepost stays fast."""
    if name in _LATER:
        from importlib import import_module

        return getattr(import_module(_LATER[name]), name)
    raise AttributeError(f"module 'fencepost' has no attribute {name!r}")
