"""`plan show` for a person: the document of `plans.read` as lines."""

from __future__ import annotations

import shlex
from collections.abc import Iterator
from typing import Any, Final

from fencepost.cli.plan_documents import reason_of
from fencepost.cli.say import clean
from fencepost.explain import command, error_of, part
from fencepost.spelling import instant, read_instant, span

HEAD: Final = ("run_id", "org", "name", "status", "reason", "lane", "release", "submitted_at", "finished_at")
COLUMNS: Final = ("STEP", "STATE", "ATTEMPTS", "OUTCOME", "ELAPSED", "AFTER")
STATES: Final = ("running", "ready", "waiting", "blocked", "unknown", "succeeded", "failed", "skipped", "cancelled")
ENDED: Final = frozenset({"succeeded", "failed", "skipped", "cancelled"})
DIGEST_CHARS: Final = 19  # of sha256:…, enough to tell two apart

Document = dict[str, Any]


def show_lines(doc: Document) -> Iterator[str]:
    """How it stands, its steps in written order, why some did not succeed, and what there is to hand on."""
    doc = doc | {"reason": reason_of(doc)}
    for key in HEAD:
        if doc.get(key):
            yield f"{key + ':':<14}{clean(instant(doc[key]) if key.endswith('_at') else doc[key])}"
    counts = part(doc, "counts")
    yield f"{'steps:':<14}" + ", ".join(f"{counts[state]} {state}" for state in STATES if counts.get(state))
    yield ""
    yield from _table([COLUMNS, *(_row(step, doc["now"]) for step in doc["steps"])])
    words = ((step["id"], why(step)) for step in doc["steps"])
    yield from _block("why", (each for each in words if each[1]))
    yield from _block("resolve with", (
        (step["id"], remedy(step, doc["run_id"], doc["org"])) for step in doc["steps"] if step["state"] == "unknown"
    ))  # fmt: skip
    yield from _block("children", ((step["id"], step["child"]) for step in doc["steps"] if step.get("child")))
    yield from _block("results", _results(doc))


def results(doc: Document) -> Iterator[str]:
    """A line an output: its name as `plan output` takes it, how large it is, and its digest."""
    found = list(_results(doc))
    width = max((len(name) for name, _ in found), default=0)
    yield from (clean(f"{name:<{width}}  {words}") for name, words in found)


def _results(doc: Document) -> Iterator[tuple[str, str]]:
    for step in doc["steps"]:
        for name, output in part(step, "outputs").items():
            digest = output["digest"][:DIGEST_CHARS]
            yield f"{step['id']}.{name}", f"{output['size']:>9,} bytes  {digest}…  {output['media_type']}"


def why(step: Document) -> str:
    """Why a step stands where it stands, where that needs words."""
    said = str(error_of(step.get("error")).get("message") or step.get("reason") or "")
    if step["state"] == "unknown":
        return "nobody knows what became of it" + (f" ({said})" if said else "")
    if step["state"] == "waiting":
        return f"tries again at {instant(step['due_at'])}" + (f", after: {said}" if said else "")
    return said


def remedy(step: Document, run: str, org: str) -> str:
    """What a person types for an unknown step."""
    if step["kind"] == "workflow":
        return command({"org": org, "run_id": step["child"]}, "explain")
    named = " ".join(shlex.quote(each) for each in (run, step["id"]))
    return f"fencepost plan resolve {named} completed|failed|again" + (
        "" if org == "default" else f" --org {shlex.quote(org)}"
    )


def elapsed(step: Document, now: str) -> str:
    """How long the newest try took, or has taken so far."""
    if not step.get("started_at"):
        return ""
    until = step.get("ended_at") or (None if step["state"] in ENDED else now)
    return "" if until is None else span((read_instant(until) - read_instant(step["started_at"])).total_seconds())


def _row(step: Document, now: str) -> tuple[str, ...]:
    needs = " ".join(need["step"] + ("?" if need["optional"] else "") for need in step["needs"])
    return (step["id"], step["state"], str(step["attempts"]), step.get("outcome") or "", elapsed(step, now), needs)


def _block(head: str, entries: Iterator[tuple[str, str]]) -> Iterator[str]:
    found = list(entries)
    if found:
        width = max(len(name) for name, _ in found)
        yield ""
        yield f"{head}:"
        yield from (clean(f"  {name:<{width}}  {words}") for name, words in found)


def _table(rows: list[tuple[str, ...]]) -> Iterator[str]:
    widths = [max(len(row[column]) for row in rows) for column in range(len(COLUMNS))]
    for row in rows:
        yield clean("  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip())
