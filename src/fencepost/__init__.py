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
    RunCancelled,
    RunFailed,
    RunNotFound,
    RunUnknown,
    SignalRefused,
    StepFailed,
    StepOutcomeUnknown,
)

if TYPE_CHECKING:
    from fencepost.client import Client, Handle
    from fencepost.worker.context import Context
    from fencepost.worker.maps import Mapped

__all__ = [
    "Absent",
    "App",
    "Arrived",
    "BrokenLaw",
    "Busy",
    "Client",
    "Context",
    "DatabaseUnavailable",
    "FencepostError",
    "Found",
    "Handle",
    "LaunchConflict",
    "LaunchRefused",
    "Mapped",
    "Retry",
    "RunCancelled",
    "RunFailed",
    "RunNotFound",
    "RunUnknown",
    "SignalRefused",
    "Step",
    "StepFailed",
    "StepOutcomeUnknown",
    "TimedOut",
    "Unknown",
    "Workflow",
    "step_key",
]

_LATER = {
    "Client": "fencepost.client",
    "Handle": "fencepost.client",
    "Context": "fencepost.worker.context",
    "Mapped": "fencepost.worker.maps",
}


def __getattr__(name: str) -> Any:
    """What needs the driver or the worker is imported when it is first named: importing fencepost stays fast."""
    if name in _LATER:
        from importlib import import_module

        return getattr(import_module(_LATER[name]), name)
    raise AttributeError(f"module 'fencepost' has no attribute {name!r}")
