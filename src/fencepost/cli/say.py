"""What every command says, and how: exit codes, refusals, data on stdout, words on stderr."""

from __future__ import annotations

import json
import sys
from typing import Any, Final, Literal, TextIO

import click

from fencepost.notes import escape

# Exit codes of the command line (one table for all commands).
DONE: Final = 0
FAILED: Final = 1  # following: the run failed, or the launch conflicts; acting: refused by the run's state
USAGE: Final = 2  # also unusable input, and what is not found
CANCELLED: Final = 3
NOT_ENDED: Final = 4
NO_DATABASE: Final = 5  # also a wrong schema, and no live worker of the lane
INTERRUPTED: Final = 130
BROKEN_PIPE: Final = 141

Code = Literal[
    "USAGE", "UNUSABLE_INPUT", "NOT_FOUND", "BAD_SETTINGS", "NO_DATABASE", "WRONG_SCHEMA", "NO_WORKER", "LAUNCH_CONFLICT", "REFUSED",
    "PLAN_INVALID", "UNREADABLE",
]  # fmt: skip


class Stop(Exception):
    """A command ends here: one clear sentence, its code, and the exit code. `more` stands in the JSON object's error."""

    def __init__(self, exit_code: int, code: Code, message: str, **more: Any) -> None:
        super().__init__(message)
        self.exit_code = exit_code
        self.code = code
        self.message = message
        self.more = more


def usage(error: click.ClickException) -> Stop:
    """A refusal of click's own, in our form."""
    hint = ""
    if isinstance(error, click.UsageError) and error.ctx is not None:
        hint = f" (see `{error.ctx.command_path} --help`)"
    return Stop(USAGE, "USAGE", error.format_message().rstrip(".") + hint)


def refuse(stop: Stop, *, as_json: bool) -> int:
    """Say why on stderr, and with --json as one object on stdout; the exit code."""
    for line in f"error: {stop.message}".splitlines():
        words(clean(line))
    if as_json:
        data({"error": {"code": stop.code, "message": stop.message, **stop.more}})
    return stop.exit_code


def words(text: str) -> None:
    """A line for a person, on stderr."""
    _line(sys.stderr, text)


def plain(text: str) -> None:
    """A line of a reading command's answer for a person, on stdout."""
    _line(sys.stdout, text)


def data(value: object) -> None:
    """One JSON line on stdout, at once."""
    _line(sys.stdout, json.dumps(value, ensure_ascii=False, separators=(",", ":")))


def pretty(value: object) -> None:
    """A JSON value on stdout as a person reads it."""
    _line(sys.stdout, json.dumps(value, ensure_ascii=False, indent=2))


def clean(value: object) -> str:
    """A stored value on one line: what it holds cannot steer a terminal or forge a line (law 97.3)."""
    return escape(value)


def table(heads: list[str], rows: list[list[str]]) -> None:
    """Columns for a person, on stdout, as wide as they need to be."""
    cells = [[clean(cell) for cell in row] for row in rows]
    widths = [max(len(head), *(len(row[i]) for row in cells)) if cells else len(head) for i, head in enumerate(heads)]
    for row in [heads, *cells]:
        plain("  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip())


def steady_streams() -> None:
    """Whatever the locale, a character it cannot write becomes a visible escape instead of an error."""
    for stream in (sys.stdout, sys.stderr):
        reconfigure = getattr(stream, "reconfigure", None)
        if reconfigure is not None:
            reconfigure(errors="backslashreplace")


def _line(stream: TextIO, text: str) -> None:
    stream.write(text + "\n")
    stream.flush()
