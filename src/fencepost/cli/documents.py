"""The JSON objects of the command line, made from the document that `read_run` gives. Their keys are a promise."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any

from fencepost import explain
from fencepost.ledger import Event, Listed, UnknownRow
from fencepost.spelling import instant
from fencepost.steps import RunRow

Document = dict[str, Any]


def run_object(doc: Document) -> dict[str, Any]:
    """What `run --json` prints. `output` is there only when there is one: a JSON null is an output (law 00.16)."""
    found: dict[str, Any] = {key: doc[key] for key in ("run_id", "org", "kind", "name", "status")}
    if doc.get("output") is not None:
        found["output"] = json.loads(doc["output"])
    found["error"] = json.loads(doc["error"]) if doc.get("error") else None
    return found | {"attempts": doc["attempts"], "tries": doc["tries"]}


def show_object(doc: Document, rows: Sequence[UnknownRow]) -> dict[str, Any]:
    """What `runs show --json` prints."""
    found = run_object(doc)
    found |= {key: doc[key] for key in ("lane", "release", "source", "priority")}
    found |= {key: _at(doc.get(key)) for key in ("submitted_at", "started_at", "finished_at")}
    found |= {key: doc[key] for key in ("parent", "origin") if doc.get(key)}
    found["input"] = json.loads(doc["input"])
    found["waiting_for"] = [wait.as_json() for wait in explain.waits(doc, rows)]
    found["unknown"] = explain.unknowns(doc, rows)
    found["steps"] = [_step(step) for step in explain.parts(doc, "steps")]
    found["rows"] = doc["rows"]
    found["attempt_history"] = [
        entry | {"claimed_at": _at(entry["claimed_at"]), "ended_at": _at(entry["ended_at"])}
        for entry in explain.parts(doc, "attempt_history")
    ]
    progress = explain.part(doc, "task").get("progress")
    return found | ({"progress": progress} if progress else {})


def _step(step: dict[str, Any]) -> dict[str, Any]:
    """A boundary; `value` is there only when one is kept, and `error` stands for it in a failure."""
    found = {key: step[key] for key in ("name", "ordinal", "kind", "state", "attempt", "repeatable", "seq")}
    found["at"] = _at(step["at"])
    found |= {key: _at(step[key]) for key in ("until",) if step.get(key)}
    found |= {key: step[key] for key in ("asked_ms", "child") if step.get(key) is not None}
    if step.get("late"):
        found["late_evidence"] = True
    if step.get("value") is not None:
        found["error" if step["state"] == "failed" else "value"] = json.loads(step["value"])
    return found


def listed_object(run: Listed) -> dict[str, Any]:
    """A line of `runs list --json`."""
    return {
        "run_id": run.run_id, "org": run.org, "kind": run.kind, "name": run.name, "status": run.status, "attempts": run.attempts, "tries": run.tries,
        "submitted_at": instant(run.submitted_at), "finished_at": instant(run.finished_at) if run.finished_at else None,
    }  # fmt: skip


def event_object(event: Event) -> dict[str, Any]:
    """A line of `runs watch --json`."""
    return {
        "seq": event.seq,
        "at": instant(event.at),
        "type": event.type,
        "attempt": event.number,
        "data": event_data(event),
    }


def event_data(event: Event) -> dict[str, Any]:
    """What an event tells, its instants in UTC with milliseconds."""
    return event.data | {key: instant(event.data[key]) for key in ("until",) if event.data.get(key)}


def row_object(row: RunRow) -> dict[str, Any]:
    """A line of `runs rows --json`: `value` of a row that is completed, `error` of one that failed."""
    found: dict[str, Any] = {"map": row.map, "ordinal": row.ordinal, "key": row.key, "state": row_state(row)}
    if row.value is None:
        return found
    return found | {"value" if row.state == "kept" else "error": json.loads(row.value)}


def row_state(row: RunRow) -> str:
    """As the counts of `runs show` call it."""
    return "completed" if row.state == "kept" else row.state


def _at(value: str | None) -> str | None:
    return instant(value) if value else None
