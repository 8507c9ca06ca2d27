"""A plan as nodes and edges, and as lines for a terminal: what Mermaid and the drawn picture (layers.py) are made of."""

from __future__ import annotations

import shlex
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, Final

from rich.cells import cell_len

from fencepost.notes import escape
from fencepost.pictures.graph import Edge, Node
from fencepost.planning.edges import components
from fencepost.planning.model import CommandStep, Definition, PythonStep, Step, WorkflowStep

WHAT_CHARS_MAX: Final = 60


@dataclass(frozen=True, slots=True)
class PlanGraph:
    """The picture of a plan. `levels`: the indexes of its steps, those that wait for nothing first; a step waits for earlier levels only."""

    definition: Definition
    nodes: list[Node]
    edges: list[Edge]
    levels: list[list[int]]

    @property
    def title(self) -> str:
        """What stands above the picture."""
        count, most = len(self.nodes), self.definition.max_concurrency
        return f"plan {self.definition.name}   {count:,} step{'s' if count != 1 else ''}, at most {most:,} at a time"

    def as_json(self) -> dict[str, Any]:
        """What `plan graph --json` prints."""
        level = {place: number for number, places in enumerate(self.levels, 1) for place in places}
        steps = self.definition.steps
        nodes = [
            {"key": node.key, "step": steps[n].id, "kind": node.kind, "what": what(steps[n]), "level": level[n]}
            for n, node in enumerate(self.nodes)
        ]
        return {
            "plan": self.definition.name, "max_concurrency": self.definition.max_concurrency, "digest": self.definition.digest,
            "run_id": self.definition.run_id, "nodes": nodes, "edges": [edge.as_json() for edge in self.edges],
        }  # fmt: skip


def graph(definition: Definition) -> PlanGraph:
    """Nodes, edges and levels of a plan; in written order."""
    steps = definition.steps
    place = {step.id: n for n, step in enumerate(steps)}
    nodes = [Node(f"n{n}", step.kind, step.id, 0, (), detail=what(step)) for n, step in enumerate(steps)]
    edges = [edge for n, step in enumerate(steps) for edge in _edges(n, step, place)]
    level = [0] * len(steps)
    for [here] in components([[place[need.step] for need in step.needs] for step in steps]):
        level[here] = 1 + max((level[place[need.step]] for need in steps[here].needs), default=-1)
    levels: list[list[int]] = [[] for _ in range(max(level, default=-1) + 1)]
    for n, number in enumerate(level):
        levels[number].append(n)
    return PlanGraph(definition, nodes, edges, levels)


def _edges(n: int, step: Step, place: dict[str, int]) -> Iterator[Edge]:
    given: dict[str, list[str]] = {}
    for handoff in step.handoffs:
        given.setdefault(handoff.step, []).append(handoff.output)
    for need in step.needs:
        label = ", ".join(dict.fromkeys(given.pop(need.step, [])))
        yield Edge(f"n{place[need.step]}", f"n{n}", label, "optional" if need.optional else "next")
    for source, outputs in given.items():
        yield Edge(f"n{place[source]}", f"n{n}", ", ".join(dict.fromkeys(outputs)), "handoff")


def what(step: Step) -> str:
    """What a step does, in one short line."""
    match step:
        case CommandStep():
            said = shlex.join(step.command)
        case PythonStep():
            said = step.python
        case WorkflowStep():
            said = f"workflow {step.workflow}"
    said = escape(said)
    return said if len(said) <= WHAT_CHARS_MAX else said[: WHAT_CHARS_MAX - 1] + "…"


def lines(found: PlanGraph) -> Iterator[str]:
    """The plan level by level: steps of one level wait for none of each other."""
    steps = found.definition.steps
    yield escape(found.title)
    wide = len(str(len(found.levels)))
    ids = max((cell_len(step.id) for step in steps), default=0)
    whats = max((cell_len(what(step)) for step in steps), default=0)
    for number, places in enumerate(found.levels, 1):
        for n, place in enumerate(places):
            head = f"{number:>{wide}}" if n == 0 else " " * wide
            sign = "─" if len(places) == 1 else "┬" if n == 0 else "└" if n == len(places) - 1 else "├"
            said = what(steps[place])
            more = _more(steps[place])
            row = f"{head} {sign} {steps[place].id.ljust(ids)}  {said}{' ' * (whats - cell_len(said))}  {more}"
            yield escape(row).rstrip()
    yield from legend(found)


def _more(step: Step) -> str:
    """What it waits for, and what it is handed."""
    needs = [need.step + ("?" if need.optional else "") for need in step.needs]
    takes = [f"{handoff.step}.{handoff.output}" for handoff in step.handoffs]
    said = [f"after {_few(needs)}"] if needs else []
    said += [f"takes {_few(takes)}"] if takes else []
    said += [f"up to {step.retry.max_attempts} tries"] if step.retry.max_attempts > 1 else []
    said += ["skipped at first"] if step.initially_skipped else []
    return "; ".join(said)


def _few(words: list[str]) -> str:
    return ", ".join(words) if len(words) <= 8 else f"{', '.join(words[:7])} and {len(words) - 7:,} more"


def legend(found: PlanGraph) -> Iterator[str]:
    """What a reader cannot guess."""
    if any(edge.kind == "optional" for edge in found.edges):
        yield "?  optional: it waits for that step's end, whatever it was"
