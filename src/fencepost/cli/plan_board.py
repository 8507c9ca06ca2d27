"""How the steps of a plan stand, kept from its events: each event costs what it changes, whatever the plan is long."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field
from datetime import datetime
from typing import TYPE_CHECKING, Final

from fencepost.cli.follow import event_line
from fencepost.ledger import Event
from fencepost.spelling import instant, span

if TYPE_CHECKING:
    from fencepost.planning import Definition

STEP: Final = "plan.step_"
BECOMES: Final = {"started": "running", "resumed": "running"}  # other events are called as the state is
ENDED: Final = frozenset({"succeeded", "failed", "skipped", "cancelled"})
MOVING: Final = ("running", "waiting", "unknown")


@dataclass(slots=True)
class Standing:
    """One step. `left`: needs that have not ended; `since`: when it came to stand so."""

    id: str
    depth: int
    needs: tuple[str, ...]
    left: int
    state: str
    followers: list[str] = field(default_factory=list[str])
    tries: int = 0
    most: int = 1
    started: datetime | None = None
    since: datetime | None = None
    words: str = ""
    runs_here: bool = True  # a program with a folder, not a workflow
    folder: str | None = None


class Board:
    """Every step of the plan in written order. `moving`: those that run, wait for their next try, or are unknown."""

    def __init__(self, definition: Definition) -> None:
        from fencepost.planning.model import WorkflowStep

        self.name = definition.name
        self.steps: dict[str, Standing] = {}
        depths = _depths(definition)
        for step in definition.steps:
            needs = tuple(need.step for need in step.needs)
            state = "skipped" if step.initially_skipped else "blocked" if needs else "ready"
            self.steps[step.id] = Standing(
                step.id, depths[step.id], needs, len(needs), state, most=step.retry.max_attempts,
                runs_here=not isinstance(step, WorkflowStep),
            )  # fmt: skip
        for standing in self.steps.values():
            for need in standing.needs:
                self.steps[need].followers.append(standing.id)
        self.counts = Counter(standing.state for standing in self.steps.values())
        self.moving: dict[str, Standing] = {}
        self.first: datetime | None = None
        self.last: datetime | None = None
        for standing in [each for each in self.steps.values() if each.state == "skipped"]:
            self._ended(standing)

    def apply(self, event: Event) -> str:
        """Take the event in; what it tells, as a line for a person."""
        self.first = self.first or event.at
        self.last = event.at
        standing = self.steps.get(str(event.data.get("step"))) if event.type.startswith(STEP) else None
        if standing is None:
            return event_line(event)
        word = event.type.removeprefix(STEP)
        self._move(standing, BECOMES.get(word, word), event)
        return f"{instant(event.at)} {standing.id}: {standing.words}"

    def _move(self, standing: Standing, state: str, event: Event) -> None:
        self.counts[standing.state] -= 1
        self.counts[state] += 1
        standing.state, standing.since = state, event.at
        standing.tries = int(event.data.get("try") or standing.tries)
        standing.words = _words(standing, event)
        if state == "running":
            standing.started = (
                event.at if standing.started is None or event.type.endswith("started") else standing.started
            )
            standing.folder = None
        if state in MOVING:
            self.moving[standing.id] = standing
        else:
            self.moving.pop(standing.id, None)
        if state in ENDED:
            self._ended(standing)

    def _ended(self, standing: Standing) -> None:
        for name in standing.followers:
            follower = self.steps[name]
            follower.left -= 1
            if follower.left == 0 and follower.state == "blocked":
                follower.state = "ready"
                self.counts["blocked"] -= 1
                self.counts["ready"] += 1


def _words(standing: Standing, event: Event) -> str:
    """`succeeded after 1.2s`, `running (try 2 of 3)`, `skipped: needs log, which failed`."""
    outcome = event.data.get("outcome")
    of = f" of {standing.most}" if standing.most > 1 else ""
    match standing.state:
        case "running":
            again = "goes on" if event.type.endswith("resumed") else "running"
            return again + (f" (try {standing.tries}{of})" if standing.tries > 1 or of else "")
        case "waiting":
            delay = int(event.data.get("delay_ms") or 0) / 1000
            return f"try {standing.tries}{of} ended in {outcome}, tries again " + (
                f"in {span(delay)}" if delay else "at once"
            )
        case "succeeded":
            return "succeeded" + _after(standing, event)
        case "failed":
            return f"failed ({outcome})" + _after(standing, event)
        case state:
            return state + (f": {event.data['reason']}" if event.data.get("reason") else "")


def _after(standing: Standing, event: Event) -> str:
    return f" after {span((event.at - standing.started).total_seconds())}" if standing.started else ""


def _depths(definition: Definition) -> dict[str, int]:
    """Of each step the length of the longest way to it."""
    left = {step.id: len(step.needs) for step in definition.steps}
    followers: dict[str, list[str]] = {step.id: [] for step in definition.steps}
    for step in definition.steps:
        for need in step.needs:
            followers[need.step].append(step.id)
    depths = dict.fromkeys(left, 0)
    free = [name for name, needs in left.items() if not needs]
    for name in free:  # grows while it is walked
        for follower in followers[name]:
            depths[follower] = max(depths[follower], depths[name] + 1)
            left[follower] -= 1
            if not left[follower]:
                free.append(follower)
    return depths
