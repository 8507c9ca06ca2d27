"""What became of a try: what its supervisor wrote, what is proven without it, and what the database is told."""

from __future__ import annotations

from typing import Any

import msgspec

from fencepost.planning.model import Outcome


class Found(msgspec.Struct, frozen=True):
    """An output as the supervisor found it when the command had ended: its digest, or what is wrong with it."""

    size: int = 0  # bytes
    digest: str = ""  # sha256:…
    path: str = ""
    problem: str | None = None  # missing · plain words


class Log(msgspec.Struct, frozen=True):
    """A stream as it was kept: `size` bytes were written by the command, `dropped` of them are not in the file."""

    size: int
    dropped: int


class Ended(msgspec.Struct, frozen=True, kw_only=True):
    """The supervisor's own word, as it stands in result.json: the command has ended, and all that it left running."""

    exit_code: int | None = None
    signal: int | None = None
    timed_out: bool = False
    stopped: str | None = None  # why it was told to stop
    launch_error: str | None = None
    outputs: dict[str, Found] = {}
    stdout: Log
    stderr: Log
    ended_at: str  # this machine's clock, for people
    seconds: float  # monotonic, from the launch to the end of the command
    left: tuple[int, ...] = ()  # processes that could not be ended (somebody else's)


class Dead(msgspec.Struct, frozen=True):
    """Proven: neither the supervisor nor the command lives, and no result was written. The command had been let go."""

    reason: str


class NotStarted(msgspec.Struct, frozen=True):
    """Proven: the supervisor is gone, and nothing of the author's ever ran in this folder."""

    reason: str


class Completed(msgspec.Struct, frozen=True):
    """The try succeeded. `text`: the result document, for `finish_attempts`."""

    text: str
    outcome: Outcome = "success"


class Failed(msgspec.Struct, frozen=True):
    """The try did not. `error`: {code, outcome, message, exit_code?, signal?}."""

    error: dict[str, Any]

    @property
    def outcome(self) -> Outcome:
        """One of failure · timeout · launch_error · invalid_output · cancelled · lost."""
        found: Outcome = self.error["outcome"]
        return found
