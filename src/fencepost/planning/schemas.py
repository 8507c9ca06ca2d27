"""JSON Schemas: whether one is usable, and whether a value keeps it. Nothing is ever fetched, and no pattern runs away.

The library (jsonschema-rs) is imported when the first schema is met.
"""

from __future__ import annotations

from functools import lru_cache
from typing import TYPE_CHECKING, Any, Final

import msgspec

from fencepost.shown import clip

if TYPE_CHECKING:
    import jsonschema_rs

FAULTS_MAX: Final = 20
BACKTRACKS_MAX: Final = 1_000_000
MASK: Final = "…"  # stands for the value in what is said: it may be a secret, or huge


def check(schema: dict[str, Any]) -> list[tuple[tuple[str | int, ...], str]]:
    """What is wrong with a schema: where in it, and what."""
    try:
        return _check(msgspec.json.encode(schema, order="sorted"))
    except (TypeError, ValueError, OverflowError) as error:  # what JSON has not was named before
        return [((), f"is no JSON Schema: {clip(str(error), 300)}")]


def misfits(schema: dict[str, Any], value: object) -> list[tuple[str, str]]:
    """Where a value of JSON does not keep a schema, and how: `$.rows[3].name`, `is a required property`. Empty: it does.

    The value itself is not repeated in what is said. Raises ValueError for a schema that `check` refuses.
    """
    found: list[tuple[str, str]] = []
    for error in _validator(msgspec.json.encode(schema, order="sorted")).iter_errors(value):
        found.append((_path(error.instance_path), clip(error.message, 300)))
        if len(found) >= FAULTS_MAX:
            break
    return found


@lru_cache(maxsize=256)
def _check(text: bytes) -> list[tuple[tuple[str | int, ...], str]]:
    import jsonschema_rs

    try:
        _validator(text)
    except jsonschema_rs.ValidationError as error:
        return [(tuple(error.instance_path), f"is no JSON Schema: {clip(error.message, 300)}")]
    except (ValueError, jsonschema_rs.ReferencingError) as error:
        return [((), f"is no JSON Schema: {clip(str(error), 300)}")]
    return []


@lru_cache(maxsize=256)
def _validator(text: bytes) -> jsonschema_rs.Validator:
    import jsonschema_rs

    return jsonschema_rs.validator_for(
        msgspec.json.decode(text), offline=True, mask=MASK, pattern_options=jsonschema_rs.FancyRegexOptions(backtrack_limit=BACKTRACKS_MAX)
    )  # fmt: skip


def _path(steps: list[str | int]) -> str:
    return "$" + "".join(f"[{part}]" if isinstance(part, int) else f".{part}" for part in steps)
