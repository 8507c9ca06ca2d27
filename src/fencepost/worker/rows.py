"""Rows: a map's input, judged and encoded before anything begins (law 50.6)."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Any, cast

from fencepost import limits, values
from fencepost.authoring import Step
from fencepost.hot import weight


@dataclass(frozen=True, slots=True)
class Rows:
    """A map's input, as it is stored."""

    keys: list[str]
    inputs: list[str]

    @property
    def hash(self) -> str:
        digest = hashlib.blake2b(digest_size=8)
        for key, text in zip(self.keys, self.inputs, strict=True):
            digest.update(f"{len(key)}:{key}{len(text)}:{text}".encode("utf-8", "surrogatepass"))
        return digest.hexdigest()


def refuse_shared(step: Step[..., Any]) -> None:
    """Rows are a run's own. Raises TypeError for a step of scope org."""
    if step.scope == "org":
        raise TypeError(
            f"{step.name} is of scope org: call it with ctx.step, or in a waterfall; a map's rows are the run's own"
        )


def judge_rows(step: Step[..., Any], rows: Iterable[Any], key: str | Callable[[Any], object]) -> Rows:
    """Encode rows and find their keys before anything begins. Raises ValueError (a missing, unusable or twice used key, with the row's
    place) and Unstorable (with the row's place in its path).
    """
    keys: list[str] = []
    inputs: list[str] = []
    seen: dict[str, int] = {}
    for place, row in enumerate(rows):
        name = _key_of(step, row, key, place)
        if name in seen:
            raise ValueError(f"map of {step.name}: rows {seen[name]} and {place} have the same key {name!r}")
        seen[name] = place
        keys.append(name)
        try:
            inputs.append(values.encode(row))
        except values.Unstorable as error:
            raise values.Unstorable(f"$[{place}]{error.path.removeprefix('$')}", error.problem) from None
    return Rows(keys, inputs)


def _key_of(step: Step[..., Any], row: Any, key: str | Callable[[Any], object], place: int) -> str:
    found: object
    if callable(key):
        found = key(row)
    elif isinstance(row, dict):
        found = cast("dict[str, Any]", row).get(key)
    else:
        found = getattr(row, key, None)
    if found is None or not isinstance(found, str | int) or isinstance(found, bool):
        raise ValueError(
            f"map of {step.name}: row {place} has no usable key {key if isinstance(key, str) else '(key=…)'!r} (a text or a whole number)"
        )
    return values.check_name(str(found), f"map of {step.name}: the key of row {place}")


def chunk_end(inputs: Sequence[str], start: int) -> int:
    """Where a call that stores rows from `start` on must end, for its size to stay in bounds."""
    size = 0
    for place in range(start, len(inputs)):
        size += weight(inputs[place])
        if size > limits.COALESCE_BYTES_MAX // 2 and place > start:
            return place
    return len(inputs)
