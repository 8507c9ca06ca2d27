"""Batches: a map whose rows are lists of rows, for a step that takes several at once (law 50.8).

To the record a batch is one row of a map: marked when it is dispatched, committed once, unknown when it is lost. Its key says which
rows are in it, so the same rows cut otherwise are other batches, and an operator can name one.
"""

from __future__ import annotations

import collections.abc
import hashlib
import typing
from collections.abc import Callable, Iterable
from typing import Any, Final

from fencepost.authoring import Step
from fencepost.worker.mapped import Mapped
from fencepost.worker.rows import Rows, judge_rows, refuse_shared

LISTS: Final = (list, tuple, collections.abc.Sequence, Any)
SHOWN_CHARS: Final = 80  # of a row's key, in the key of its batch


def judge_batches(
    step: Step[..., Any], rows: Iterable[Any], key: str | Callable[[Any], object], size: int
) -> tuple[list[list[Any]], Rows]:
    """The batches, and how they are stored. Raises what a map's rows do, and ValueError for a size that means nothing."""
    if isinstance(size, bool) or not isinstance(size, int) or size < 1:
        raise ValueError(f"batch of {step.name}: size is a whole number of at least 1, not {size!r}")
    refuse_shared(step)
    returned = typing.get_origin(step.returns) or step.returns
    if returned not in LISTS:
        raise TypeError(f"batch of {step.name}: the step gives a list of results, not {step.returns!r}")
    source = list(rows)
    keys = judge_rows(step, source, key).keys
    batches = [source[start : start + size] for start in range(0, len(source), size)]
    names = iter([batch_key(keys[start : start + size]) for start in range(0, len(source), size)])
    return batches, judge_rows(step, batches, lambda _: next(names))


def batch_key(keys: list[str]) -> str:
    """The key of a batch: its first and its last row's, and 12 hex digits of all of them."""
    digest = hashlib.sha256("".join(f"{len(key)}:{key}" for key in keys).encode("utf-8", "surrogatepass")).hexdigest()
    return f"{keys[0][:SHOWN_CHARS]}..{keys[-1][:SHOWN_CHARS]}.{digest[:12]}"


def flat(step: Step[..., Any], mapped: Mapped[Any]) -> Mapped[Any]:
    """The results of every batch, one after the other; `failed` and `unknown` name batches."""
    results: list[Any] = []
    for part in mapped:
        if not isinstance(part, list | tuple):
            raise TypeError(f"batch of {step.name}: the step gave {type(part).__name__}, not a list of results")
        results += part
    return Mapped(results, failed=mapped.failed, unknown=mapped.unknown)
