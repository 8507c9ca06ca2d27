"""`runs show` for a person: the object of `runs show --json` as lines."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any, Final

from fencepost.cli.say import clean

VALUE_CHARS: Final = 200
HEAD: Final = (
    "run_id", "org", "kind", "name", "status", "lane", "release", "source", "priority", "submitted_at", "started_at", "finished_at",
    "attempts", "tries", "parent", "origin", "progress",
)  # fmt: skip


def show_lines(found: dict[str, Any]) -> Iterator[str]:
    """The lines, in the order a person asks: what it is, how it stands, what it did."""
    for key in HEAD:
        if found.get(key) is not None:
            yield f"{key + ':':<14}{clean(found[key])}"
    yield f"{'input:':<14}{_short(found['input'])}"
    if "output" in found:
        yield f"{'output:':<14}{_short(found['output'])}"
    if found["error"]:
        yield f"{'error:':<14}{clean(found['error'].get('message', ''))} ({clean(found['error'].get('code', ''))})"
    if found["rows"]["total"]:
        yield f"{'rows:':<14}" + ", ".join(f"{count} {word}" for word, count in found["rows"].items())
    for wait in found["waiting_for"]:
        yield clean(f"{'waiting for:':<14}{wait['what']}" + (f", until {wait['until']}" if wait["until"] else ""))
    for item in found["unknown"]:
        yield clean(f"{'unknown:':<14}{_unknown(item)}")
    if found["steps"]:
        yield "steps:"
        yield from (_step(step) for step in found["steps"])
    if found["attempt_history"]:
        yield "attempts:"
        for leg in found["attempt_history"]:
            yield clean(
                f"  {leg['number']:>4}  {leg['claimed_at']} - {leg['ended_at']}  {leg['ended']}{' (' + leg['reason'] + ')' if leg['reason'] else ''}"
            )


def _unknown(item: dict[str, Any]) -> str:
    match item["kind"]:
        case "rows":
            return f"{item['count']} more rows"
        case "plan_step":
            return f"plan_step {item['step']}"
        case "attempt":
            return f"attempt {item['attempt']}"
        case kind:
            return f"{kind} {item['name']}#{item['ordinal']}{' row ' + item['key'] if 'key' in item else ''}"


def _step(step: dict[str, Any]) -> str:
    value = step.get("value", step.get("error"))
    said = f"  {json.dumps(value, ensure_ascii=False)}" if value is not None else ""
    return clean(
        f"  {step['seq']:>4}  {step['at']}  {step['kind']:<6}  {step['name']}#{step['ordinal']}  {step['state']}{said}"[
            :VALUE_CHARS
        ]
    )


def _short(value: Any) -> str:
    text = json.dumps(value, ensure_ascii=False)
    return clean(text if len(text) <= VALUE_CHARS else text[:VALUE_CHARS] + " … (--json shows all)")
