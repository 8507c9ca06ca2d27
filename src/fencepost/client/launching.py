"""A launch before the door: its words are judged, its input becomes text as given, and concurrent launches leave together."""

from __future__ import annotations

import json
from collections.abc import Iterable
from typing import Any, cast

import msgspec

from fencepost import admission
from fencepost.admission import Admission, Launch
from fencepost.authoring import Workflow
from fencepost.db import Database
from fencepost.decoding import Undecodable, decode, is_model
from fencepost.errors import LaunchRefused
from fencepost.hot import Coalescer
from fencepost.values import check_name, encode
from fencepost.words import SOURCES


def judge_words(run_id: str, org: str, source: str) -> None:
    """Raises LaunchRefused for an id, an organisation or a source that cannot be stored (law 30.6)."""
    try:
        check_name(run_id, "a run's id")
        check_name(org, "an organisation")
    except ValueError as error:
        raise LaunchRefused(str(error)) from None
    if source not in SOURCES:
        raise LaunchRefused(f"source {source!r} is none of {', '.join(SOURCES)}")


def as_given(value: object, type_: Any) -> str:
    """The input's text, as it was given: a model's defaults are no part of the launch (law 30.4).

    A field of a pydantic model that nobody set is left out, where reading the text back fills in the very same value; a default
    that is another each time (a new id, an instant) stays in. Other classes do not tell what was given: they are kept whole.
    Raises Unstorable, with the path.
    """
    whole = encode(value)
    if not _has_model(value):
        return whole
    given = msgspec.json.encode(_without_defaults(value, json.loads(whole))).decode()
    if given == whole:
        return whole
    try:
        same = encode(decode(given, type(value) if type_ is Any else type_)) == whole
    except (Undecodable, TypeError, ValueError):
        same = False
    return given if same else whole


def judge_input(workflow: Workflow[Any, Any], text: str) -> None:
    """Raises Undecodable, with the path, unless the JSON text fits the input that the workflow declares."""
    if workflow.takes_input:
        decode(text, workflow.input_type)
    elif text != "null":
        raise Undecodable(f"workflow {workflow.name}", "$: the workflow takes no input")


def _has_model(value: object) -> bool:
    if isinstance(value, list | tuple):
        return any(map(_has_model, cast("Iterable[object]", value)))
    if isinstance(value, dict):
        return any(map(_has_model, cast("dict[str, object]", value).values()))
    return _is_set_model(value)


def _is_set_model(value: object) -> bool:
    return is_model(type(value)) and hasattr(value, "model_fields_set")


def _without_defaults(value: object, dumped: object) -> object:
    """What was dumped, less the fields of models that nobody set. Where a dump has a shape of its own it stays as it is."""
    if _is_set_model(value) and isinstance(dumped, dict):
        return _as_set(value, cast("dict[str, object]", dumped))
    if isinstance(value, list | tuple) and isinstance(dumped, list):
        given, inside = list(cast("Iterable[object]", value)), cast("list[object]", dumped)
        same = len(given) == len(inside)
        return [_without_defaults(v, d) for v, d in zip(given, inside, strict=True)] if same else inside
    if not isinstance(dumped, dict):
        return dumped
    fields = cast("dict[str, object]", dumped)
    if isinstance(value, dict):
        parts = cast("dict[str, object]", value)
        return {key: _without_defaults(parts.get(key), part) for key, part in fields.items()}
    return fields


def _as_set(model: Any, fields: dict[str, object]) -> dict[str, object]:
    """A model's fields, without those that nobody set."""
    unset = set(model.__class__.model_fields) - set(model.model_fields_set)
    return {key: _without_defaults(getattr(model, key, None), part) for key, part in fields.items() if key not in unset}


def desk(db: Database) -> Coalescer[Launch, Admission]:
    """Where concurrent launches leave together. A batch that cannot be answered together (one of its launches meets a twin that is not
    committed yet, or cannot be stored) is asked again one by one (law 00.13).
    """
    return Coalescer(
        lambda launches: admission.admit_together(db, launches),
        lambda launch: admission.admit_alone(db, launch),
        admission.goes_apart,
    )
