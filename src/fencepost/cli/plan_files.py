"""A plan's file as a command is given it: read, its workflows found, and what differs from the plan that an id already has."""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any

from fencepost.cli.say import Stop

if TYPE_CHECKING:
    from fencepost.app import App
    from fencepost.planning import Definition


@dataclass(frozen=True, slots=True)
class Given:
    """A plan that was read. `app` declares the workflows that the file spells MODULE:WORKFLOW; others are some worker's."""

    definition: Definition
    app: App


def read_given(file: str) -> Given:
    """The plan of a file, or of stdin for `-`, its workflows by their registered names. Raises PlanInvalid with every fault."""
    from fencepost.app import App
    from fencepost.planning.reading import read

    app = App("plans")
    return Given(read(file, resolve=partial(_join, app)), app)


def workflows_of(definition: Definition) -> set[str]:
    """The registered names of the workflows that the plan's steps start."""
    from fencepost.planning.model import WorkflowStep

    return {step.workflow for step in definition.steps if isinstance(step, WorkflowStep)}


def differences(stored: dict[str, Any], given: dict[str, Any]) -> list[dict[str, Any]]:
    """Where the launch on record and a normal form differ, by path; a step is called by its id, so that one more step is one difference
    (law 70.2).
    """
    from fencepost.admission import _differences as differ

    if stored["kind"] != "plan":
        return [{"path": "$.kind", "stored": stored["kind"], "given": "plan"}]
    plan = stored["input"]
    found = list(differ("$", _by_id(plan), _by_id(given)))
    order, wanted = ([step["id"] for step in each["steps"]] for each in (plan, given))
    if sorted(order) == sorted(wanted) and order != wanted:
        found.append({"path": "$.steps", "stored": order, "given": wanted})
    return found


def _by_id(plan: dict[str, Any]) -> dict[str, Any]:
    return plan | {"steps": {step["id"]: step for step in plan["steps"]}}


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
