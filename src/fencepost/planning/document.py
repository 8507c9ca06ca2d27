"""A plan's document, `{name, max_concurrency, step: […]}`, becomes a Definition, or every fault of it is collected (law 70.1).

Files and the builder in Python both come here: what is a fault in one is the same fault in the other.
"""

from __future__ import annotations

import contextlib
import gc
from collections.abc import Generator
from typing import Any, Final, cast

from fencepost.limits import PAYLOAD_BYTES_MAX
from fencepost.planning import edges, model
from fencepost.planning.faults import Faults
from fencepost.planning.fields import Table, kind_of
from fencepost.planning.steps import Resolve, draft
from fencepost.values import check_name

KEYS: Final = ("name", "max_concurrency", "step")
LARGE: Final = 5000


def judge(document: dict[str, Any], resolve: Resolve | None = None) -> model.Definition | Faults:
    """The definition, or all that keeps it from being one."""
    raws = document.get("step")
    steps = cast("list[object]", raws) if isinstance(raws, list) else []
    faults = Faults(named=lambda place: _id(steps, place))
    table = Table(faults, (), document)
    meant = table.known(KEYS)
    name = _name(table, meant)
    if raws is not None and not isinstance(raws, list):
        table.fault("step", f"is {kind_of(raws)}: write each step as a table of its own, below [[step]]")
    elif not steps and "step" not in meant:
        faults.add((), "has no step: write one, below [[step]]")
    elif len(steps) > model.STEPS_MAX:
        table.fault(
            "step", f"stands {len(steps):,} times, and {model.STEPS_MAX:,} steps are the limit: make several plans"
        )
        return faults
    most = table.whole("max_concurrency", 1, model.CONCURRENCY_MAX, model.CONCURRENCY_DEFAULT)
    with _uncollected(len(steps)):
        drafts = [draft(faults, place, raw, resolve) for place, raw in enumerate(steps)]
        edges.judge(faults, drafts)
    if faults.found:
        return faults
    made = tuple(found.step for found in drafts if found.step is not None)
    definition = model.Definition(name=name, max_concurrency=most, steps=made)
    size = len(definition.canonical.encode())
    if size > PAYLOAD_BYTES_MAX:
        faults.add(
            (),
            f"is {size:,} bytes in all, and {PAYLOAD_BYTES_MAX:,} is the limit: make several plans, or hand large texts over as files",
        )
        return faults
    return definition


@contextlib.contextmanager
def _uncollected(steps: int) -> Generator[None]:
    """No search for garbage while a large plan is judged: what is made here lives on, and searches would take two fifths of the time."""
    pause = steps > LARGE and gc.isenabled()
    if pause:
        gc.disable()
    try:
        yield
    finally:
        if pause:
            gc.enable()


def _name(table: Table, meant: set[str]) -> str:
    given = table.text("name", empty=True)
    if given is None:
        if table.values.get("name") is None and "name" not in meant:
            table.faults.add((), 'has no name: write one, such as name = "release-notes"')
        return ""
    try:
        name = check_name(given, "the plan's name")
    except ValueError as error:
        table.fault("name", str(error))
        return ""
    if len(name) > model.NAME_CHARS_MAX:
        table.fault("name", f"has {len(name)} characters, and {model.NAME_CHARS_MAX} is the limit")
    elif "/" in name:
        table.fault("name", "holds a /, which parts a run from its steps in their ids: write - instead")
    return name


def _id(steps: list[object], place: int) -> str:
    raw = steps[place]
    found = cast("dict[str, object]", raw).get("id") if isinstance(raw, dict) else None
    return found if isinstance(found, str) else ""
