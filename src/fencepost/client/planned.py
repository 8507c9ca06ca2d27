"""A plan before the door: admitted under its own id, or told what differs from the plan that the id has."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from fencepost import plans
from fencepost.admission import differences
from fencepost.client.launching import judge_words
from fencepost.db import Database
from fencepost.errors import LaunchConflict, LaunchRefused
from fencepost.planning import Definition
from fencepost.words import Source

if TYPE_CHECKING:
    import asyncpg


async def admit(
    db: Database, definition: Definition, *, run_id: str, org: str, lane: int, release: str, source: Source, priority: int | None,
    connection: asyncpg.Connection | None,
) -> None:  # fmt: skip
    """The run is there, created or found again (law 70.2). Raises LaunchConflict, with what differs; LaunchRefused."""
    judge_words(run_id, org, source)
    answer = await plans.admit(
        db, org=org, run_id=run_id, name=definition.name, lane=lane, release=release, source=source, definition=definition.canonical,
        priority=priority, connection=connection,
    )  # fmt: skip
    match answer.answer:
        case "created" | "replayed":
            return
        case "conflict":
            raise LaunchConflict(run_id, differing(answer.stored or {}, definition.normal()))
        case "refused":
            raise LaunchRefused(
                f"the database refused plan {run_id!r}: its id, organisation or name; with a step's id it must fit in 200 characters"
            )


def differing(stored: dict[str, Any], given: dict[str, Any]) -> list[dict[str, Any]]:
    """Where the launch on record and a normal form differ, by path; a step is called by its id, so that one more step is one difference."""
    if stored["kind"] != "plan":
        return [{"path": "$.kind", "stored": stored["kind"], "given": "plan"}]
    plan = stored["input"]
    found = list(differences("$", _by_id(plan), _by_id(given)))
    order, wanted = ([step["id"] for step in each["steps"]] for each in (plan, given))
    if sorted(order) == sorted(wanted) and order != wanted:
        found.append({"path": "$.steps", "stored": order, "given": wanted})
    return found


def _by_id(plan: dict[str, Any]) -> dict[str, Any]:
    return plan | {"steps": {step["id"]: step for step in plan["steps"]}}
