"""Why a run stands where it stands, in words, from the document that `read_run` gives (law 90.4). Nothing is asked here."""

from __future__ import annotations

import json
import shlex
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any, cast

from fencepost import limits
from fencepost.ledger import UnknownRow
from fencepost.spelling import instant, read_instant, span

Document = dict[str, Any]


@dataclass(frozen=True, slots=True)
class Wait:
    """One thing that a run waits for. `what` completes "it waits for …"; `by`: who or what can end it, each a phrase or a command.

    `kind`: worker · time · signal · child · code · step · process · operator · grace · repair.
    """

    kind: str
    what: str
    since: str | None
    until: str | None
    by: tuple[str, ...]
    name: str | None = None
    ordinal: int | None = None

    def as_json(self) -> dict[str, Any]:
        """The same for machines; instants in UTC with milliseconds."""
        found = {
            "kind": self.kind,
            "what": self.what,
            "since": self.since,
            "until": self.until,
            "ended_by": list(self.by),
        }
        return (
            found
            | ({"name": self.name} if self.name is not None else {})
            | ({"ordinal": self.ordinal} if self.ordinal else {})
        )


def part(doc: Document, key: str) -> Document:
    """An object inside a document; empty where there is none."""
    return cast("Document", doc.get(key) or {})


def parts(doc: Document, key: str) -> list[Document]:
    """A list of objects inside a document; empty where there is none."""
    return cast("list[Document]", doc.get(key) or [])


def error_of(text: str | None) -> Document:
    """A stored error, or why a run was deferred."""
    return cast("Document", json.loads(text)) if text else {}


def command(doc: Document, verb: str, *rest: str) -> str:
    """The command that a person types for this run."""
    org = [] if doc["org"] == "default" else ["--org", shlex.quote(doc["org"])]
    return " ".join(["fencepost runs", verb, shlex.quote(doc["run_id"]), *rest, *org])


def words(doc: Document, rows: Sequence[UnknownRow] = ()) -> list[str]:
    """Lines of plain text: how the run stands, then each thing it waits for, since when, until when, and who can end it."""
    lines = [f"Run {doc['run_id']} of {doc['kind']} {doc['name']} is {_standing(doc)}"]
    for wait in waits(doc, rows):
        lines.append(f"It waits for {wait.what}")
        since = f"since {wait.since} ({_ago(doc, wait.since)})" if wait.since else None
        until = f"until {wait.until}" if wait.until else "without an end of its own"
        lines.append("  " + ", ".join(part for part in (since, until) if part))
        lines += [f"  ended by: {by}" for by in wait.by]
    return lines


def waits(doc: Document, rows: Sequence[UnknownRow] = ()) -> list[Wait]:
    """What the run waits for; nothing when it has ended."""
    if doc.get("finished_at"):
        return []
    if not doc.get("task"):
        return [_lost_entry(doc)]
    match doc["task"]["state"]:
        case "queued":
            return [_delay(doc) if doc["task"].get("due_at") else _claim(doc)]
        case "running":
            return [_process(doc)] if doc.get("process") else list(_running(doc))
        case "parked" if doc["task"].get("park") == "code":
            return [_code(doc)]
        case "cancelling":
            return [_cancelling(doc)]
        case _ if doc.get("plan"):
            return list(_plan(doc))
        case "parked":
            return list(_armed(doc))
        case _:
            return list(_unknown(doc, rows))


def unknowns(doc: Document, rows: Sequence[UnknownRow] = ()) -> list[dict[str, Any]]:
    """What nobody knows the outcome of: steps, rows of maps, or, where neither is, the attempt as a whole. Unknown rows that are not
    among `rows` are counted.
    """
    found: list[dict[str, Any]] = [
        {
            "kind": "step",
            "name": s["name"],
            "ordinal": s["ordinal"],
            "attempt": s["attempt"],
            "late_evidence": bool(s.get("late")),
        }
        for s in parts(doc, "steps")
        if s["kind"] == "step" and s["state"] == "unknown"
    ]
    found += [{"kind": "row", "name": r.map, "ordinal": r.ordinal, "key": r.key} for r in rows]
    if (more := int(part(doc, "rows").get("unknown") or 0) - len(rows)) > 0:
        found.append({"kind": "rows", "count": more})
    task, plan = part(doc, "task"), part(doc, "plan")
    found += [{"kind": "plan_step", "step": step} for step in plan.get("unknown_steps") or ()]
    if not found and task.get("state") == "unknown":
        found.append({"kind": "attempt", "attempt": task.get("number"), "code": task.get("unknown")})
    return found


def _standing(doc: Document) -> str:
    error = error_of(doc.get("error"))
    said = f": {error.get('message', '')} ({error['code']})" if error.get("code") else ""
    if doc.get("finished_at"):
        return f"{doc['status']} since {instant(doc['finished_at'])}{said if doc['status'] == 'failed' else _reason(error)}"
    progress = part(doc, "task").get("progress")
    return f"{doc['status']}{said}" + (f", last progress: {progress}" if progress else "")


def _reason(error: dict[str, Any]) -> str:
    return f": {error['message']}" if error.get("message") else ""


def _ago(doc: Document, since: str) -> str:
    return span((read_instant(doc["now"]) - read_instant(since)).total_seconds())


def _at(value: str | None) -> str | None:
    return instant(value) if value else None


def _last_leg(doc: Document) -> str:
    history = parts(doc, "attempt_history")
    return str(history[-1]["ended_at"] if history else doc["submitted_at"])


def _lost_entry(doc: Document) -> Wait:
    return Wait(
        "repair", "an entry in the queue: it has none (restored or repaired by hand), so no worker will find it", _at(doc["submitted_at"]), None,
        ("admitting the same launch again with repair asked for",),
    )  # fmt: skip


def _claim(doc: Document) -> Wait:
    task, lane, release, name = part(doc, "task"), doc["lane"], doc["release"], doc["name"]
    now = read_instant(doc["now"])
    live = [
        w for w in parts(doc, "workers")
        if (now - read_instant(w["heard_at"])).total_seconds() <= w.get("lease_ms", limits.LEASE_SECONDS * 1000) / 1000
    ]  # fmt: skip
    able = [w for w in live if w["runs_it"] or doc["kind"] == "step"]  # any worker runs a plan's commands
    if not live:
        what = f"a worker: no live worker serves lane {lane} (release {release})"
        by = f"a worker of release {release}: fencepost worker MODULE:APP"
    elif not able:
        what = f"a worker that has workflow {name}: {len(live)} live in lane {lane}, none has it"
        by = f"a worker of release {release} whose app declares {name}"
    elif task["losses"]:
        what = f"a worker that holds nothing else: lost {task['losses']} times since its last committed boundary, it runs alone until the next"
        by = f"any of {len(able)} live workers, once it is empty"
    else:
        what = f"its turn in lane {lane}"
        having = "" if doc["kind"] == "step" else f" that have workflow {name}"
        by = f"any of {len(able)} live workers{having}, when it is this run's turn"
    bound = ("its claim bound: unclaimed then, it fails with ADMISSION_EXPIRED",) if task.get("claim_by") else ()
    return Wait("worker", what, _at(task["ready_at"]), _at(task.get("claim_by")), (by, *bound, command(doc, "cancel")))


def _delay(doc: Document) -> Wait:
    task = part(doc, "task")
    trouble = error_of(task.get("trouble"))
    if trouble.get("reason") == "workflow_missing":
        what = (
            f"a worker that has workflow {doc['name']}: the last one that claimed it does not; it is offered again then"
        )
    elif trouble.get("reason"):
        what = f"its next try: a worker deferred it for want of {trouble.get('dependency')} ({trouble['reason']})"
    elif trouble.get("code") and task["number"]:
        what = f"the delay of its declared retry, after {trouble.get('message', '')} ({trouble['code']})"
    else:
        what = "its time: it was asked to start later"
    by = ("that instant, by any live worker's beat", command(doc, "wake"), command(doc, "cancel"))
    return Wait("time", what, _at(_last_leg(doc)), _at(task["due_at"]), by)


def _running(doc: Document) -> Iterator[Wait]:
    task, holder = part(doc, "task"), part(doc, "holder")
    heard = read_instant(holder["heard_at"]) if holder else None
    who = f"worker {holder.get('name')} (pid {holder.get('pid')})" if holder else "its worker"
    silent = heard and (read_instant(doc["now"]) - heard).total_seconds() * 1000 > holder["lease_ms"]
    what = f"attempt {task['number']} on {who}, last heard {instant(holder['heard_at']) if holder else 'never'}"
    if silent:
        what += ": silent for longer than its lease"
    inside = [s for s in parts(doc, "steps") if s["state"] == "marked"]
    yield Wait("attempt", what, _at(task["claimed_at"]), None, (
        "its own end", *(("any live worker's beat, which judges the silence",) if silent else ()), command(doc, "cancel"), command(doc, "end")
    ))  # fmt: skip
    for step in inside:
        deadline = ("its time-out",) if step.get("until") else ()
        yield Wait(
            "step", f"step {step['name']}#{step['ordinal']}, which has begun", _at(step["at"]), _at(step.get("until")),
            ("its own end", *deadline), step["name"], step["ordinal"],
        )  # fmt: skip
    yield from _armed(doc)


def _armed(doc: Document) -> Iterator[Wait]:
    for b in parts(doc, "steps"):
        if b["state"] != "armed":
            continue
        until, name = _at(b.get("until")), f"{b['name']}#{b['ordinal']}"
        match b["kind"]:
            case "sleep":
                kind, what, by = (
                    "time",
                    f"the end of sleep {name}",
                    ("that instant, by any live worker's beat", command(doc, "cancel")),
                )
            case "signal":
                kind, what = "signal", f"signal {b['name']!r}"
                by = (
                    command(doc, "signal", shlex.quote(b["name"]), "JSON"),
                    *(("its time-out",) if until else ()),
                    command(doc, "cancel"),
                )
                if b["name"].startswith("org ") and "#" in b["name"]:  # a call of a step of scope org (law 50.9)
                    what = f"another run of the organisation, which does step {b['name'][4:]}"
                    by = ("that run's keeping it, or its loss", command(doc, "cancel"))
            case _:
                child = {"org": doc["org"], "run_id": b.get("child") or b["name"]}
                kind, what = "child", f"the end of child run {child['run_id']}"
                by = ("that run's end (see " + command(child, "explain") + ")", command(doc, "cancel"))
        yield Wait(kind, what, _at(b["at"]), until, by, b["name"], b["ordinal"])


def of_plan(verb: str, org: str, run_id: str, step: str = "", *rest: str) -> str:
    """The command that a person types for a plan, or a step of it."""
    words = ["fencepost plan", verb, shlex.quote(run_id), *([shlex.quote(step)] if step else []), *rest]
    return " ".join(words + ([] if org == "default" else ["--org", shlex.quote(org)]))


def _plan(doc: Document) -> Iterator[Wait]:
    plan, task, stop = part(doc, "plan"), part(doc, "task"), command(doc, "cancel")
    if plan["running"]:
        what = f"{plan['running']} steps that run, of {plan['open']} that have not ended"
        yield Wait(
            "step",
            what,
            None,
            None,
            ("the ends of their runs (see " + of_plan("show", doc["org"], doc["run_id"]) + ")", stop),
        )
    if plan["waiting"]:
        what = f"the next try of {plan['waiting']} steps, the first of which is due then"
        yield Wait("time", what, None, _at(task["due_at"]), ("that instant, by any live worker's beat", stop))
    for step in plan["unknown_steps"]:
        yield Wait(
            "operator",
            f"somebody who knows what became of step {step}",
            None,
            None,
            _step_verdicts(doc["org"], doc["run_id"], step),
        )
    if not (plan["running"] or plan["waiting"] or plan["unknown"]):
        trouble = error_of(task.get("trouble"))
        yield Wait(
            "operator",
            f"nothing that can come: {trouble.get('message', 'none of its steps moves')}",
            None,
            None,
            (stop, command(doc, "end")),
        )


def _step_verdicts(org: str, run_id: str, step: str) -> tuple[str, ...]:
    return (
        of_plan("resolve", org, run_id, step, "completed", "--output", "NAME=TEXT"),
        of_plan("resolve", org, run_id, step, "failed", "--error", "TEXT"),
        of_plan("resolve", org, run_id, step, "again") + " (runs it again)",
    )


def _process(doc: Document) -> Wait:
    process, holder, task = part(doc, "process"), part(doc, "holder"), part(doc, "task")
    what = f"the end of process {process['pid']} on {process['host']}, which carries attempt {task['number']}"
    plan, step, _ = doc["run_id"].rsplit("/", 2)
    by: tuple[str, ...] = ("its own end", "its ceiling, past which it is lost")
    if not holder or holder.get("ended"):
        what += "; its worker is gone, and nothing is lost by that"
        lost = of_plan("lost", doc["org"], plan, step) + " (once nobody can find the process)"
        by = ("a worker of that host, which adopts it and looks", "its ceiling, past which it is lost", lost)
    return Wait("process", what, _at(process["begun_at"]), _at(process["ceiling_at"]), (*by, command(doc, "cancel")))


def _code(doc: Document) -> Wait:
    trouble = error_of(doc["task"].get("trouble"))
    said = trouble.get("message", "no reason was kept")
    return Wait(
        "code", f"other code: its history does not fit the workflow it met ({said})", _at(_last_leg(doc)), None,
        (f"a worker that starts with other code of {doc['name']}", command(doc, "wake") + " (tries the same code again)", command(doc, "cancel")),
    )  # fmt: skip


def _cancelling(doc: Document) -> Wait:
    task = part(doc, "task")
    children = parts(doc, "children")
    left = "its code to stop" if task.get("holder") else f"{len(children)} child runs to end"
    reason = f" (cancelled: {task['cancel_reason']})" if task.get("cancel_reason") else ""
    return Wait(
        "grace", left + reason, _at(doc.get("cancelling_at")), _at(task.get("cancel_until")),
        ("its own end", "the grace, by any live worker's beat", command(doc, "end")),
    )  # fmt: skip


def _unknown(doc: Document, rows: Sequence[UnknownRow]) -> Iterator[Wait]:
    since = _at(_last_leg(doc))
    for item in unknowns(doc, rows):
        match item["kind"]:
            case "step":
                step = shlex.quote(f"{item['name']}#{item['ordinal']}")
                by = [
                    *_verdicts(doc, "--step", step),
                    command(doc, "resolve", "--step", step, "lookup") + " (asks its look-up again, where it has one)",
                ]
                if item["late_evidence"]:
                    by.append(
                        command(doc, "resolve", "--step", step, "late") + " (accepts the evidence that came late)"
                    )
                name, ordinal = item["name"], item["ordinal"]
                what = f"somebody who knows what became of step {name}#{ordinal} (begun in attempt {item['attempt']}, then lost)"
                yield Wait("operator", what, since, None, tuple(by), name, ordinal)
            case "row":
                what = f"somebody who knows what became of row {item['key']} of map {item['name']}#{item['ordinal']}"
                yield Wait(
                    "operator",
                    what,
                    since,
                    None,
                    _verdicts(doc, "--row", shlex.quote(item["key"])),
                    item["name"],
                    item["ordinal"],
                )
            case "rows":
                count = f"{item['count']} {'more ' if rows else ''}rows"
                what = f"somebody who knows what became of {count} (see {command(doc, 'rows', '--unknown')})"
                yield Wait("operator", what, since, None, _verdicts(doc, "--row", "KEY"))
            case _:
                what = f"somebody who decides what becomes of attempt {item['attempt']} ({item['code']})"
                verdicts = _verdicts(doc)
                if doc["kind"] == "step":
                    plan, step, _ = doc["run_id"].rsplit("/", 2)
                    verdicts = (*_step_verdicts(doc["org"], plan, step), command(doc, "end"))
                yield Wait("operator", what, since, None, verdicts)


def _verdicts(doc: Document, *which: str) -> tuple[str, ...]:
    return (
        command(doc, "resolve", *which, "completed", "--value", "JSON"),
        command(doc, "resolve", *which, "failed", "--error", "TEXT"),
        command(doc, "resolve", *which, "again") + " (runs it again)",
        command(doc, "end"),
    )
