"""What a person types becomes a value, or a sentence that says where it is wrong: JSON, durations, STEP#N."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any, NoReturn

import click

from fencepost.cli.say import USAGE, Stop
from fencepost.spelling import read_span


def json_text(given: str, what: str) -> str:
    """The JSON text of `JSON`, `@file` or `-` (stdin), judged as a value that can be kept. Raises Stop (2), with line and column."""
    from fencepost.values import Unstorable, encode

    place, text = _read(given, what)
    try:
        value = json.loads(text, parse_constant=_no_constant)
    except json.JSONDecodeError as error:
        raise Stop(
            USAGE,
            "UNUSABLE_INPUT",
            f"{place} is not JSON: line {error.lineno}, column {error.colno}: {error.msg}",
            line=error.lineno,
            column=error.colno,
        ) from None
    except RecursionError:
        raise Stop(USAGE, "UNUSABLE_INPUT", f"{place} is nested too deep", path="$") from None
    except ValueError as error:
        raise Stop(USAGE, "UNUSABLE_INPUT", f"{place} is not JSON: {error}") from None
    try:
        return encode(value)
    except Unstorable as error:
        raise Stop(USAGE, "UNUSABLE_INPUT", f"{place} cannot be kept: {error}", path=error.path) from None


def _read(given: str, what: str) -> tuple[str, str]:
    """(how it is called in a sentence, its text)"""
    if given != "-" and not given.startswith("@"):
        return what, given
    place = f"{what} from stdin" if given == "-" else f"{what} {given[1:]}"
    try:
        raw = sys.stdin.buffer.read() if given == "-" else Path(given[1:]).read_bytes()
        return place, raw.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        raise Stop(USAGE, "UNUSABLE_INPUT", f"{place} is not UTF-8 (byte {error.start})") from None
    except OSError as error:
        raise Stop(USAGE, "UNUSABLE_INPUT", f"{place} cannot be read: {error.strerror or error}") from None


def _no_constant(word: str) -> NoReturn:
    raise ValueError(f"{word} is not a number that JSON knows")


class Duration(click.ParamType[float]):
    """`90s`, `1h30m`, `2d`: seconds."""

    name = "duration"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> float:
        """Seconds over 0."""
        if isinstance(value, float):
            return value
        try:
            seconds = read_span(str(value))
        except ValueError as error:
            self.fail(str(error), param, ctx)
        if seconds <= 0:
            self.fail(f"{value!r} is no time at all", param, ctx)
        return seconds


def step(given: str) -> tuple[str, int]:
    """`NAME#N` (or `NAME`, the first): name and ordinal."""
    name, mark, number = given.rpartition("#")
    if mark and number.isascii() and number.isdigit() and int(number) > 0 and name:
        return name, int(number)
    return given, 1


def person() -> str:
    """Who acts, for the audit line."""
    import getpass
    import os

    try:
        return f"cli:{getpass.getuser()}"
    except (OSError, KeyError, ImportError):
        return f"cli:uid {os.getuid()}"
