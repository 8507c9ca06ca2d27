"""The JSON objects of `fencepost plan`, made from the document that `plans.read` gives. Their keys are a promise."""

from __future__ import annotations

import json
from typing import Any, Final

from fencepost.explain import error_of, part
from fencepost.spelling import instant

Document = dict[str, Any]

STEP_FACTS: Final = ("kind", "child", "child_state", "number", "host", "pid", "folder", "progress")
STEP_INSTANTS: Final = ("started_at", "ended_at", "due_at", "ceiling_at")


def plan_object(doc: Document) -> Document:
    """What `plan run --json` ends with."""
    found = {key: doc[key] for key in ("run_id", "org", "name", "status")}
    found["reason"] = reason_of(doc)
    found["error"] = error_of(doc.get("error")) or None
    return found | {"steps": {step["id"]: step_object(step) for step in doc["steps"]}}


def reason_of(doc: Document) -> str | None:
    """Why the plan stands where it stands, where that needs a word: `all_skipped`, or what its error says."""
    found = error_of(doc.get("output")).get("reason") or error_of(doc.get("error")).get("message")
    return str(found) if found else None


def step_object(step: Document) -> Document:
    """How a step stands. `reason` and `error` are there only when there is one."""
    found: Document = {key: step.get(key) for key in ("state", "attempts", "outcome")}
    if step.get("reason"):
        found["reason"] = step["reason"]
    if step.get("error"):
        found["error"] = error_of(step["error"])
    return found | {"outputs": {name: output_object(output) for name, output in part(step, "outputs").items()}}


def output_object(output: Document) -> Document:
    """A named output. `value`: what it is, as JSON or as text, where it is small enough to stand in its row (law 70.6)."""
    found: Document = {key: output[key] for key in ("media_type", "size", "digest")}
    if output.get("text") is not None:
        found["value"] = value_of(output["media_type"], output["text"])
    return found


def value_of(media_type: str, text: str) -> Any:
    """The value of an output's text: decoded when it is JSON."""
    kind = media_type.partition(";")[0].strip().lower()
    if kind == "application/json" or kind.endswith("+json"):
        try:
            return json.loads(text)
        except ValueError:  # its media type was said by who wrote it
            return text
    return text


def show_object(doc: Document) -> Document:
    """What `plan show --json` prints: the same, with what led there."""
    found = plan_object(doc)
    found |= {key: _at(doc.get(key)) for key in ("submitted_at", "finished_at")}
    found |= {key: doc[key] for key in ("lane", "release", "max_concurrency", "counts")}
    for step in doc["steps"]:
        shown = found["steps"][step["id"]]
        shown |= {key: step[key] for key in STEP_FACTS if step.get(key) is not None}
        shown |= {key: _at(step[key]) for key in STEP_INSTANTS if step.get(key)}
        shown["needs"] = step["needs"]
    return found


def _at(value: str | None) -> str | None:
    return instant(value) if value else None
