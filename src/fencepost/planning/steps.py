"""One step of a plan's document: its fields judged, each for itself. What concerns several steps is judged in `edges`."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Final, TypeAlias

from fencepost.planning import entries, model, outputs
from fencepost.planning.faults import At, Faults
from fencepost.planning.fields import Table, bad_text, kind_of
from fencepost.planning.texts import Texts
from fencepost.shown import clip

# The name a workflow is registered under, of the MODULE:WORKFLOW that a file gives. Raises ValueError or LookupError in plain words.
Resolve: TypeAlias = Callable[[str], str]

COMMON: Final = ("id", "needs", "handoffs", "retry", "timeout", "on_lost", "initially_skipped", "outputs")
OWN: Final[Mapping[str, tuple[str, ...]]] = {
    "command": ("command", "env", "cwd", "stdin"),
    "python": ("python", "env", "cwd", "input"),
    "workflow": ("workflow", "input"),
}
EVERY: Final = tuple(dict.fromkeys((*COMMON, *OWN["command"], *OWN["python"], *OWN["workflow"])))
OWNERS: Final = {
    key: " and ".join(kind for kind, keys in OWN.items() if key in keys) + " steps"
    for key in EVERY
    if key not in COMMON
}
KEYS: Final = {kind: COMMON + own for kind, own in OWN.items()}
FOREIGN: Final = {kind: {key: OWNERS[key] for key in OWNERS if key not in own} for kind, own in OWN.items()}
FUNCTION: Final = re.compile(r"[^\W\d]\w*(?:\.[^\W\d]\w*)*:[^\W\d]\w*(?:\.[^\W\d]\w*)*")


@dataclass(slots=True)
class Draft:
    """A step as far as it could be read. `outputs` None: what it has is not known, so nobody is told that it lacks one."""

    place: int
    id: str | None
    needs: list[tuple[int, model.Need]]
    handoffs: list[tuple[int, model.Handoff]]
    outputs: dict[str, model.Output] | None
    step: model.Step | None

    @property
    def at(self) -> At:
        return ("step", self.place)


def draft(faults: Faults, place: int, raw: object, resolve: Resolve | None) -> Draft:
    """One entry of `step`. Its faults are named; what could be read of it is there all the same."""
    table = Table.of(faults, ("step", place), raw, '[[step]] with id = "log" below it')
    if table is None:
        return Draft(place, None, [], [], None, None)
    kind, keys = _kind(table)
    meant = table.known(keys, None if kind is None else FOREIGN[kind])
    if kind is None and not any(table.values.get(one) is not None or one in meant for one in OWN):
        table.faults.add(table.at, "does nothing: give it one of command, python or workflow")
    id_ = table.name("id")
    if table.values.get("id") is None and "id" not in meant:
        table.faults.add(table.at, 'has no id: write one, such as id = "log"')
    needs, handoffs = entries.needs(table), entries.handoffs(table)
    modes = {handoff.input: handoff.mode for _, handoff in handoffs}
    found = outputs.read(table, kind) if "outputs" not in meant and kind is not None else None
    common: dict[str, Any] = {
        "id": id_ or "", "needs": tuple(need for _, need in needs), "handoffs": tuple(h for _, h in handoffs), "retry": entries.retry(table),
        "timeout_ms": _timeout(table, kind), "initially_skipped": table.flag("initially_skipped", default=False),
        "on_lost": table.word("on_lost", model.ON_LOST, "replay" if kind == "workflow" else "fail"), "outputs": found or {},
    }  # fmt: skip
    step = None if kind is None else _MAKERS[kind](table, common, Texts(table, modes, found), resolve)
    return Draft(place, id_, needs, handoffs, found, step)


def _kind(table: Table) -> tuple[str | None, tuple[str, ...]]:
    """What a step does, and the keys it may have for that."""
    given = [kind for kind in OWN if table.values.get(kind) is not None]
    if len(given) == 1:
        return given[0], KEYS[given[0]]
    for kind in given[1:]:
        table.fault(kind, f"cannot stand beside {given[0]}: a step does one thing; make two steps of it")
    return None, EVERY


def _timeout(table: Table, kind: str | None) -> int | None:
    if kind == "workflow" and table.values.get("timeout") is not None:
        table.fault("timeout", "is for command and python steps: a workflow sets its own; take it out")
        return None
    return table.span_ms("timeout", model.TIMEOUT_MS_MAX)


def _command(table: Table, common: dict[str, Any], texts: Texts, _: Resolve | None) -> model.Step:
    argv = list[str]()
    raws = table.items("command", 'command = ["git", "log"]')
    for n, raw in enumerate(raws):
        at = (*table.at, "command", n)
        if not isinstance(raw, str):
            table.faults.add(at, f"is {kind_of(raw)}: write text, in quotes; every argument is one")
        elif (problem := bad_text(raw)) is not None:
            table.faults.add(at, f"cannot be given to a program: {problem}")
        elif n == 0 and not raw.strip():
            table.faults.add(at, "is empty: the first entry is the program")
        else:
            argv.append(texts.judged(at, raw))
    if isinstance(table.values["command"], list) and not raws:
        table.fault("command", 'is empty: write the program and its arguments, such as ["git", "log"]')
    stdin = texts.text("stdin", empty=True, one=False)
    return model.CommandStep(**common, command=tuple(argv), env=texts.env(), cwd=texts.text("cwd"), stdin=stdin)


def _python(table: Table, common: dict[str, Any], texts: Texts, _: Resolve | None) -> model.Step:
    function = table.text("python")
    if function is not None and not FUNCTION.fullmatch(function):
        table.fault(
            "python", f'{clip(function, 100)!r} names no function: write MODULE:FUNCTION, such as "reports.notes:write"'
        )
    given = table.tree("input", '{ since = "2026-11-01" }') or {}
    return model.PythonStep(**common, python=function or "", env=texts.env(), cwd=texts.text("cwd"), input=given)


def _workflow(table: Table, common: dict[str, Any], _: Texts, resolve: Resolve | None) -> model.Step:
    given = table.text("workflow", chars=500)
    name = given or ""
    if given is not None and ":" in given:
        name = ""
        if resolve is None:
            table.fault(
                "workflow",
                "is a place in the code, which is not looked at here: write the name the workflow is registered under",
            )
        else:
            try:
                name = resolve(given)
            except (ValueError, LookupError) as error:
                table.fault("workflow", str(error))
    if len(name) > 200:
        table.fault("workflow", f"has {len(name):,} characters, and 200 is the limit of a workflow's name")
    return model.WorkflowStep(**common, workflow=name, input=table.tree("input", '{ tag = "v2" }'))  # fmt: skip


_MAKERS: Final[Mapping[str, Callable[[Table, dict[str, Any], Texts, Resolve | None], model.Step]]] = {
    "command": _command,
    "python": _python,
    "workflow": _workflow,
}
