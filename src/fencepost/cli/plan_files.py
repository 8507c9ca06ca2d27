"""A plan as a command is given it, in a file or in Python: read, and its workflows found."""

from __future__ import annotations

import re
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Final

from fencepost.cli.say import Stop

if TYPE_CHECKING:
    from fencepost.app import App
    from fencepost.planning import Definition

IN_PYTHON: Final = re.compile(r"[^\W\d]\w*(?:\.[^\W\d]\w*)*:[^\W\d]\w*(?:\.[^\W\d]\w*)*")


@dataclass(frozen=True, slots=True)
class Given:
    """A plan that was read. `app` declares the workflows that the file spells MODULE:WORKFLOW; others are some worker's."""

    definition: Definition
    app: App


def read_given(file: str) -> Given:
    """The plan of a file, of stdin for `-`, or of MODULE:PLAN, its workflows by their registered names.

    Raises PlanInvalid with every fault; Stop (2) for what is no plan.
    """
    from fencepost.app import App
    from fencepost.planning.reading import read

    if IN_PYTHON.fullmatch(file) and not Path(file).exists():
        return _made(file)
    app = App("plans")
    return Given(read(file, resolve=partial(_join, app)), app)


def _made(target: str) -> Given:
    """The plan that MODULE:PLAN names. Its workflows are those of the Apps that its module holds."""
    from fencepost.app import App
    from fencepost.cli.targets import find_plan

    plan, apps = find_plan(target)
    definition, app = plan.definition(), App("plans")
    for name in sorted(workflows_of(definition)):
        theirs = next((each for each in apps if name in each.registry.workflows), None)
        if theirs is not None:
            app.registry.workflows[name] = theirs.registry.workflows[name]
            app.release = app.release or theirs.release
    return Given(definition, app)


def workflows_of(definition: Definition) -> set[str]:
    """The registered names of the workflows that the plan's steps start."""
    from fencepost.planning.model import WorkflowStep

    return {step.workflow for step in definition.steps if isinstance(step, WorkflowStep)}


def _join(app: App, target: str) -> str:
    """Add the workflow that MODULE:WORKFLOW names to the app; its registered name. Raises ValueError in plain words."""
    from fencepost.cli.targets import find_workflow

    try:
        theirs, workflow = find_workflow(target)
    except Stop as stop:
        raise ValueError(stop.message) from None
    known = app.registry.workflows
    if known.setdefault(workflow.name, workflow) is not workflow:
        raise ValueError(f"{target}: another workflow of this plan has the name {workflow.name!r} too")
    if app.release not in {None, theirs.release}:
        raise ValueError(f"{target} is of release {theirs.release!r}, another workflow of {app.release!r}")
    app.release = theirs.release
    return workflow.name
