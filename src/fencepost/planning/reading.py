"""A plan from a file: TOML, or the same as JSON. Every fault of it is named at once, with its line (law 70.1)."""

from __future__ import annotations

import json
import re
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any, Final, Literal, NoReturn, cast

from fencepost.errors import PlanFault, PlanInvalid
from fencepost.planning import document, lines
from fencepost.planning.faults import At, Faults
from fencepost.planning.model import Definition
from fencepost.planning.steps import Resolve

BYTES_MAX: Final = 256 * 1024 * 1024
FORMATS = Literal["toml", "json"]


def read(place: str | Path, *, resolve: Resolve | None = None) -> Definition:
    """The plan that a file holds, or stdin for `-`.

    A name that ends in `.json` holds JSON, any other TOML; stdin holds JSON where it begins with a bracket. `resolve` gives the
    registered name of a `workflow = "MODULE:WORKFLOW"`; without it only registered names can be used.

    Raises    PlanInvalid: every fault, with its line. A file that cannot be read is one too.
    """
    shown = "stdin" if place == "-" else str(place)
    try:
        raw = _bytes(place)
    except OSError as error:
        raise _whole(shown, f"cannot be read: {error.strerror or error}") from None
    except ValueError as error:  # a name with a NUL in it
        raise _whole(shown, f"cannot be read: {error}") from None
    if len(raw) > BYTES_MAX:
        raise _whole(shown, f"is larger than {BYTES_MAX // 2**20} MiB: make several plans")
    try:
        text = raw.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        line = raw.count(b"\n", 0, error.start) + 1
        raise _whole(shown, f"is not UTF-8 (byte {error.start}): save it as UTF-8", line) from None
    is_json = text.lstrip().startswith("{") if place == "-" else shown.lower().endswith(".json")
    return read_text(text, "json" if is_json else "toml", place=shown, resolve=resolve)


def read_text(
    text: str, format: FORMATS = "toml", *, place: str = "the plan", resolve: Resolve | None = None
) -> Definition:
    """The plan that a text holds; `place` is how its faults call it. Raises PlanInvalid."""
    if not text.strip():
        raise _whole(place, 'is empty: write name = "…" and [[step]]')
    found, scan = (_json if format == "json" else _toml)(place, text)
    judged = document.judge(found, resolve)
    if isinstance(judged, Definition):
        return judged
    try:
        line: Callable[[At], int | None] = scan().line
    except RecursionError:
        line = _no_line
    raise judged.invalid(place, line)


def _no_line(_: At) -> None:
    return None


def _bytes(place: str | Path) -> bytes:
    if place == "-":
        return sys.stdin.buffer.read(BYTES_MAX + 1)
    with Path(place).open("rb") as file:
        return file.read(BYTES_MAX + 1)


def _whole(place: str, message: str, line: int | None = None) -> PlanInvalid:
    return PlanInvalid(place, [PlanFault(line, "", message)])


def _toml(place: str, text: str) -> tuple[dict[str, Any], Callable[[], lines.Lines]]:
    import tomllib

    try:
        found = tomllib.loads(text)
    except tomllib.TOMLDecodeError as error:
        said = str(error)
        where = re.search(r" \(at (?:line (\d+), column (\d+)|end of document)\)$", said)
        line = text.count("\n") + (not text.endswith("\n")) if where is None or where[1] is None else int(where[1])
        column = f" (column {where[2]})" if where is not None and where[2] else ""
        raise _whole(place, f"is not TOML: {said[: where.start()] if where else said}{column}", line) from None
    except RecursionError:
        raise _whole(place, "is nested too deep") from None
    except ValueError as error:  # a number or a date out of range
        raise _whole(place, f"is not TOML: {error}") from None
    return found, lambda: lines.of_toml(text)


def _json(place: str, text: str) -> tuple[dict[str, Any], Callable[[], lines.Lines]]:
    twice: list[str] = []

    def table(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
        found = dict(pairs)
        if len(found) != len(pairs):
            twice.append("")
        return found

    try:
        found = json.loads(text, object_pairs_hook=table, parse_constant=_no_constant)
    except json.JSONDecodeError as error:
        raise _whole(place, f"is not JSON: {error.msg} (column {error.colno})", error.lineno) from None
    except RecursionError:
        raise _whole(place, "is nested too deep") from None
    except ValueError as error:
        raise _whole(place, f"is not JSON: {error}") from None
    if twice:
        _refuse_twice(place, text)
    if not isinstance(found, dict):
        raise _whole(place, 'is no plan: write an object, {"name": …, "step": [ … ]}', 1)
    return cast("dict[str, Any]", found), lambda: lines.of_json(text)


def _refuse_twice(place: str, text: str) -> NoReturn:
    """As TOML does: of two values nobody knows which one is meant."""
    told = [
        PlanFault(line, Faults().path(at), "stands twice in one object: take one away")
        for at, line in lines.of_json(text).twice
    ]
    raise PlanInvalid(place, told)


def _no_constant(word: str) -> NoReturn:
    raise ValueError(f"{word} is no number that JSON knows")
