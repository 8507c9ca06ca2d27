"""Batches: a map whose rows are lists of rows, for a step that takes several at once (law 50.8).

To the record a batch is one row of a map: marked when it is dispatched, committed once, unknown when it is lost. Its key says which
rows are in it, so the same rows cut otherwise are other batches, and an operator can name one.
"""

from __future__ import annotations

import collections.abc
import typing
from collections.abc import Callable, Iterable
from typing import Any, Final, cast

from fencepost.authoring import Step
from fencepost.keys import batch_key
from fencepost.worker.mapped import Mapped
from fencepost.worker.rows import Rows, judge_rows, refuse_shared

LISTS: Final = (list, tuple, collections.abc.Sequence, Any)


def judge_batch(step: Step[..., Any], size: int) -> None:
    """Raises ValueError for a size that means nothing, TypeError for a step that takes no batches."""
    if isinstance(size, bool) or not isinstance(size, int) or size < 1:
        raise ValueError(f"batch of {step.name}: size is a whole number of at least 1, not {size!r}")
    refuse_shared(step)
    returned = typing.get_origin(step.returns) or step.returns
    if returned not in LISTS:
        raise TypeError(f"batch of {step.name}: the step gives a list of results, not {step.returns!r}")


def cut(
    step: Step[..., Any], rows: Iterable[Any], key: str | Callable[[Any], object], size: int
) -> tuple[list[list[Any]], Rows]:
    """The batches of a list, and how they are stored. Raises what a map's rows do."""
    source = list(rows)
    keys = judge_rows(step, source, key).keys
    batches = [source[start : start + size] for start in range(0, len(source), size)]
    names = iter([batch_key(keys[start : start + size]) for start in range(0, len(source), size)])
    return batches, judge_rows(step, batches, lambda _: next(names))


def flat(step: Step[..., Any], mapped: Mapped[Any]) -> Mapped[Any]:
    """The results of every batch, one after the other; `failed` and `unknown` name batches."""
    results: list[Any] = []
    for part in mapped:
        results += parts(step, part)
    return Mapped(results, failed=mapped.failed, unknown=mapped.unknown)


def parts(step: Step[..., Any], result: object) -> list[Any]:
    """The results that a step gave for a batch. Raises TypeError where they are no list."""
    if not isinstance(result, list | tuple):
        raise TypeError(f"batch of {step.name}: the step gave {type(result).__name__}, not a list of results")
    return list(cast("Iterable[Any]", result))
