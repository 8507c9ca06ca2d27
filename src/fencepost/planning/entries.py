"""What a step waits for, is handed, and when it is tried again: the lists and tables inside a step of the document."""

from __future__ import annotations

from typing import Any, Final, cast

from fencepost.planning import model
from fencepost.planning.faults import quoted
from fencepost.planning.fields import Table, kind_of
from fencepost.shown import clip

NOT_RETRIED: Final = {
    "lost": "cannot be listed: a lost attempt follows the step's on_lost; say on_lost = \"replay\" for a command that may run twice",
    "success": "is no reason to try again: leave it out",
    "cancelled": "is no reason to try again: who cancels wants no more tries; leave it out",
}  # fmt: skip


def needs(table: Table) -> list[tuple[int, model.Need]]:
    """What a step needs, each with its index as written."""
    found: list[tuple[int, model.Need]] = []
    for n, raw in enumerate(table.items("needs", 'needs = ["log"]')):
        at = (*table.at, "needs", n)
        if isinstance(raw, str):
            found.append((n, model.Need(raw)))
            continue
        if not isinstance(raw, dict):
            table.faults.add(
                at, f'is {kind_of(raw)}: write a step\'s id, such as "log", or {{ step = "log", optional = true }}'
            )
            continue
        entry = Table(table.faults, at, cast("dict[str, Any]", raw))
        meant = entry.known(("step", "optional"))
        step, optional = entry.text("step", empty=True), entry.flag("optional", default=False)
        if step is not None:
            found.append((n, model.Need(step, optional)))
        elif entry.values.get("step") is None and "step" not in meant:
            table.faults.add(at, 'names no step: write { step = "log", optional = true }')
    return found


def handoffs(table: Table) -> list[tuple[int, model.Handoff]]:
    """What a step is handed, each with its index as written."""
    found: list[tuple[int, model.Handoff]] = []
    inputs, bindings = set[str](), set[str]()
    for n, raw in enumerate(table.items("handoffs", 'handoffs = [{ input = "log", from = "log.log" }]')):
        entry = Table.of(table.faults, (*table.at, "handoffs", n), raw, '{ input = "log", from = "log.log" }')
        handoff = None if entry is None else _handoff(entry)
        if entry is None or handoff is None:
            continue
        found.append((n, handoff))
        if handoff.input in inputs:
            entry.fault(
                "input", f"{handoff.input!r} is given by an earlier hand-off too: an input comes from one place"
            )
        elif handoff.id in bindings:
            entry.fault("id", f"{handoff.id!r} is the id of an earlier hand-off too: give each its own")
        inputs.add(handoff.input)
        bindings.add(handoff.id)
    return found


def _handoff(entry: Table) -> model.Handoff | None:
    meant = entry.known(("input", "from", "mode", "required", "id", "description"))
    input_, source = entry.name("input"), entry.text("from")
    for key, like in (("input", 'input = "log"'), ("from", 'from = "log.log" (STEP.OUTPUT)')):
        if entry.values.get(key) is None and key not in meant:
            entry.faults.add(entry.at, f"has no {key}: write {like}")
    step, dot, output = (source or "").partition(".")
    if source is not None and not (step and dot and output):
        entry.fault("from", f'{clip(source, 100)!r} does not name an output: write STEP.OUTPUT, such as "log.log"')
    mode = cast("model.Mode", entry.word("mode", model.MODES, "content"))
    required, id_ = entry.flag("required", default=True), entry.name("id")
    description = entry.text("description", empty=True, chars=2000) or ""
    if input_ is None:
        return None
    return model.Handoff(
        id=id_ or input_, input=input_, step=step if output else "", output=output, mode=mode, required=required, description=description
    )  # fmt: skip


def retry(table: Table) -> model.StepRetry:
    """When a step is tried again."""
    raw = table.values.get("retry")
    entry = None if raw is None else Table.of(table.faults, (*table.at, "retry"), raw, "{ max_attempts = 3 }")
    if entry is None:
        return model.StepRetry()
    entry.known(("max_attempts", "backoff", "initial_delay_ms", "max_delay_ms", "on"))
    found = model.StepRetry(
        max_attempts=entry.whole("max_attempts", 1, model.ATTEMPTS_MAX, 1),
        backoff=cast("model.Backoff", entry.word("backoff", model.BACKOFFS, "none")),
        initial_delay_ms=entry.whole("initial_delay_ms", 0, model.DELAY_MS_MAX, 0),
        max_delay_ms=entry.whole("max_delay_ms", 0, model.DELAY_MS_MAX, 0),
        on=_on(entry),
    )
    if 0 < found.max_delay_ms < found.initial_delay_ms:
        entry.fault(
            "max_delay_ms", f"is less than initial_delay_ms ({found.initial_delay_ms:,}): raise it, or leave it out"
        )
    return found


def _on(entry: Table) -> tuple[model.Retryable, ...]:
    if entry.values.get("on") is None:
        return ("failure",)
    found = list[str]()
    raws = entry.items("on", 'on = ["failure", "timeout"]')
    for n, raw in enumerate(raws):
        at = (*entry.at, "on", n)
        if not isinstance(raw, str):
            entry.faults.add(at, f"is {kind_of(raw)}: write {quoted(model.RETRYABLE)}")
        elif raw in NOT_RETRIED:
            entry.faults.add(at, f"{raw!r} {NOT_RETRIED[raw]}")
        elif raw not in model.RETRYABLE:
            like = entry.faults.like(raw, model.RETRYABLE)
            entry.faults.add(at, f"{clip(raw, 80)!r} is no outcome: write {quoted(model.RETRYABLE)}{like}")
        elif raw in found:
            entry.faults.add(at, f"{raw!r} stands there already: take it out")
        else:
            found.append(raw)
    if isinstance(entry.values["on"], list) and not raws:
        entry.fault("on", "is empty, so that nothing is tried again: name outcomes, or leave it out")
    # It is a set: the same set is the same plan, in whatever order it was written.
    return cast("tuple[model.Retryable, ...]", tuple(word for word in model.RETRYABLE if word in found))
