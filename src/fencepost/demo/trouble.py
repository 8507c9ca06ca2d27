"""How a demo ends that does not end well: a sentence for a person, and the exit code."""

from __future__ import annotations


class CannotRun(Exception):
    """This machine does not let the demo run: the message says what is missing."""


class WentWrong(Exception):
    """The demo began, and something came otherwise than it must."""
