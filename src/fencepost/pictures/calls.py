"""What a call of the Context records: its kind and its name, as `worker.context` gives them."""

from __future__ import annotations

import ast
from collections.abc import Callable
from typing import Any, Final

from fencepost.authoring import Step, Workflow
from fencepost.pictures.model import Arm, Call, Fork, Item
from fencepost.pictures.names import Scope, resolve, text_of

# Of the Context, and no boundary.
QUIET: Final = frozenset({"run_id", "org", "attempt", "progress", "log"})

Maker = Callable[[str, ast.Call, Scope], list[Item]]


def boundaries(verb: str, call: ast.Call, scope: Scope) -> list[Item] | None:
    """The boundaries of `ctx.verb(…)`; None for a method that this picture does not know."""
    if verb in QUIET:
        return []
    make = MAKERS.get(verb)
    return make(verb, call, scope) if make else None


def argument(call: ast.Call, place: int, name: str = "") -> ast.expr | None:
    """An argument by its place or its name; None where it is not said, or hides in a `*`."""
    given = call.args[: place + 1]
    if len(given) > place and not any(isinstance(arg, ast.Starred) for arg in given):
        return given[place]
    return next((keyword.value for keyword in call.keywords if name and keyword.arg == name), None)


def _named(
    verb: str, kind: str, call: ast.Call, node: ast.expr | None, scope: Scope, detail: str, before: str = ""
) -> Call:
    """A boundary named by an expression: a string, a Step or a Workflow."""
    found: Any = resolve(node, scope)
    if isinstance(found, Step) and not found.repeatable:
        once = "begun once, looked up when lost" if found.lookup is not None else "begun once"
        detail = ", ".join(part for part in (once, detail) if part)
    if isinstance(found, Step | Workflow):
        found = found.name
    if isinstance(found, str):
        return Call(verb, kind, before + str.__str__(found), known=True, line=call.lineno, detail=detail)
    said = text_of(node) if node is not None else text_of(call)
    return Call(verb, kind, before + said, known=False, line=call.lineno, detail=detail, high=None)


def _said(call: ast.Call, *names: str) -> str:
    """The options of a call that a person looks for, as they are written."""
    given = {keyword.arg: keyword.value for keyword in call.keywords}
    return ", ".join(f"{name} {text_of(given[name], 30)}" for name in names if name in given)


def _step(verb: str, call: ast.Call, scope: Scope) -> list[Item]:
    return [_named(verb, "step", call, argument(call, 0), scope, "")]


def _map(verb: str, call: ast.Call, scope: Scope) -> list[Item]:
    rows = argument(call, 1, "rows")
    over = f"over {text_of(rows, 30)}" if rows is not None else ""
    detail = ", ".join(part for part in (over, _said(call, "key", "concurrency", "tolerance", "out")) if part)
    return [_named(verb, "map", call, argument(call, 0, "step"), scope, detail)]


def _batch(verb: str, call: ast.Call, scope: Scope) -> list[Item]:
    rows = argument(call, 1, "rows")
    over = f"over {text_of(rows, 30)}" if rows is not None else ""
    detail = ", ".join(part for part in (over, _said(call, "size", "key", "concurrency", "tolerance")) if part)
    return [_named(verb, "map", call, argument(call, 0, "step"), scope, detail)]


def _waterfall(verb: str, call: ast.Call, scope: Scope) -> list[Item]:
    """Its steps in order, each with its verdict; the first that is accepted is the last that is asked."""
    name, given = argument(call, 0), argument(call, 1)
    steps = given.elts if isinstance(given, ast.List | ast.Tuple) else [given]
    arms: list[Arm] = []
    for node in steps:
        step = _named(verb, "step", call, node, scope, "")
        verdict = _named(verb, "value", call, name, scope, "", before="waterfall ")
        verdict.name, verdict.known = f"{verdict.name}: {step.name}", verdict.known and step.known
        verdict.high = verdict.high if step.known else None
        arms.append(Arm("or else" if arms else "first", [step, verdict]))
    return [Fork("waterfall", arms, call.lineno)]


def _sleep(verb: str, call: ast.Call, scope: Scope) -> list[Item]:
    long = argument(call, 1, "duration")
    return [
        _named(
            verb,
            "sleep",
            call,
            argument(call, 0, "name"),
            scope,
            f"for {text_of(long, 40)}" if long is not None else "",
        )
    ]


def _wait_for(verb: str, call: ast.Call, scope: Scope) -> list[Item]:
    return [_named(verb, "signal", call, argument(call, 0, "name"), scope, _said(call, "within"))]


def _first_of(verb: str, call: ast.Call, scope: Scope) -> list[Item]:
    arms: list[Arm] = []
    for arg in call.args:
        name = arg.elts[0] if isinstance(arg, ast.Tuple) and arg.elts else arg
        waits = _named(verb, "signal", call, name, scope, _said(call, "within"))
        arms.append(Arm("", [waits], direct=waits.known))
    return [Fork("first of", arms, call.lineno, parallel=True)]


def _signal(verb: str, call: ast.Call, scope: Scope) -> list[Item]:
    to = argument(call, 0, "run_id")
    detail = f"sent to {text_of(to, 40)}" if to is not None else "sent"
    return [_named(verb, "step", call, argument(call, 1, "name"), scope, detail, before="signal ")]


def _child(verb: str, call: ast.Call, scope: Scope) -> list[Item]:
    detail = ", ".join(p for p in ("goes on at once" if verb == "start_child" else "", _said(call, "id")) if p)
    return [_named(verb, "child", call, argument(call, 0), scope, detail)]


def _value(verb: str, call: ast.Call, scope: Scope) -> list[Item]:  # noqa: ARG001 - every maker takes the same
    return [Call(verb, "value", verb, known=True, line=call.lineno)]


def _changed(verb: str, call: ast.Call, scope: Scope) -> list[Item]:
    return [_named(verb, "value", call, argument(call, 0, "tag"), scope, "asked once", before="changed ")]


MAKERS: Final[dict[str, Maker]] = {
    "step": _step,
    "map": _map,
    "batch": _batch,
    "waterfall": _waterfall,
    "sleep": _sleep,
    "wait_for": _wait_for,
    "wait_for_first": _first_of,
    "signal": _signal,
    "run_child": _child,
    "start_child": _child,
    "now": _value,
    "random": _value,
    "uuid": _value,
    "changed": _changed,
}
