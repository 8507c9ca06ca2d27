"""A flow as nodes and edges: what `--json` gives, and what Mermaid draws."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any, Literal, TypeAlias

from fencepost.pictures.model import Call, Exit, Flow, Fork, Group, Item, Loop, Note
from fencepost.pictures.text import ENDED

EdgeKind = Literal["next", "again", "rescue", "beside", "optional", "handoff"]
End: TypeAlias = tuple[str, str, EdgeKind]  # node, label, kind of the edge that leaves it
Path: TypeAlias = tuple[tuple[int, str], ...]  # the groups a node stands in, outer ones first: (number, title)


@dataclass(frozen=True, slots=True)
class Node:
    """A boundary, or where ways part (fork), meet again (loop), begin (start) or end (return, raise, end); or a step of a plan.

    `key` is unique here. `detail` of a boundary is its call's.
    """

    key: str
    kind: str
    text: str
    line: int
    groups: Path
    call: Call | None = None
    detail: str = ""

    def as_json(self) -> dict[str, Any]:
        """A boundary has an `id` and the bounds of its ordinal; null: open. `name_known` false: the name is an expression."""
        found: dict[str, Any] = {"key": self.key, "kind": self.kind, "line": self.line}
        found |= {"groups": [title for _, title in self.groups]} if self.groups else {}
        if self.call is None:
            return found | {"text": self.text} | ({"detail": self.detail} if self.detail else {})
        call = self.call
        return found | {
            "id": call.id, "name": call.name, "name_known": call.known, "ordinals": [call.low, call.high], "asked_by": call.verb,
            "detail": call.detail,
        }  # fmt: skip


@dataclass(frozen=True, slots=True)
class Edge:
    """One node after another. again: back to a loop's head; rescue: by an exception; beside: at the same time as others.

    Of a plan: next: the step waits for its success; optional: for its end; handoff: only an output goes this way.
    """

    source: str
    target: str
    label: str
    kind: EdgeKind

    def as_json(self) -> dict[str, str]:
        found = {"from": self.source, "to": self.target, "kind": self.kind}
        return found | ({"label": self.label} if self.label else {})


@dataclass(frozen=True, slots=True)
class Graph:
    """The picture of a flow."""

    flow: Flow
    nodes: list[Node]
    edges: list[Edge]

    def as_json(self) -> dict[str, Any]:
        """What `graph --json` prints. `complete` false: something was given the Context and could not be followed."""
        opaque = [{"text": note.text, "line": note.line} for note in self.flow.opaque]
        return {
            "workflow": self.flow.workflow, "source": self.flow.source, "complete": not opaque, "not_followed": opaque,
            "nodes": [node.as_json() for node in self.nodes], "edges": [edge.as_json() for edge in self.edges],
        }  # fmt: skip


def graph(flow: Flow) -> Graph:
    """Nodes and edges of a flow."""
    return _Builder(flow).built()


@dataclass(slots=True)
class _Builder:
    flow: Flow
    nodes: list[Node] = field(default_factory=list[Node])
    edges: list[Edge] = field(default_factory=list[Edge])
    loops: list[tuple[str, list[End]]] = field(default_factory=list[tuple[str, list[End]]])  # head, breaks
    returns: list[list[End]] = field(default_factory=lambda: [list[End]()])
    path: Path = ()
    groups: int = 0

    def built(self) -> Graph:
        start = self._node("start", self.flow.workflow, 0, [])
        ends = self._all(self.flow.items, [(start, "", "next")])
        self._node("end", "end", 0, [*ends, *self.returns[0]])
        return Graph(self.flow, self.nodes, self.edges)

    def _node(self, kind: str, text: str, line: int, ends: Sequence[End], call: Call | None = None) -> str:
        key = f"n{len(self.nodes)}"
        self.nodes.append(Node(key, kind, text, line, self.path, call))
        self._lead(ends, key)
        return key

    def _lead(self, ends: Sequence[End], target: str, *, again: bool = False) -> None:
        for source, label, kind in ends:
            edge = Edge(source, target, label, "again" if again else kind)
            if edge not in self.edges:
                self.edges.append(edge)

    def _all(self, items: Sequence[Item], ends: list[End]) -> list[End]:
        for item in items:
            ends = self._item(item, ends)
        return ends

    def _item(self, item: Item, ends: list[End]) -> list[End]:
        match item:
            case Call():
                return [(self._node(item.kind, item.id, item.line, ends, item), "", "next")]
            case Note():
                return [(self._node("not followed" if item.opaque else "code", item.text, item.line, ends), "", "next")]
            case Exit():
                return self._exit(item, ends)
            case Fork():
                return self._fork(item, ends)
            case Loop():
                return self._loop(item, ends)
            case Group():
                return self._group(item, ends)

    def _exit(self, item: Exit, ends: list[End]) -> list[End]:
        node = self._node(item.word, f"{item.word} {item.text}".rstrip(), item.line, ends)
        match item.word:
            case "return":
                self.returns[-1].append((node, "", "next"))
            case "break" if self.loops:
                self.loops[-1][1].append((node, "", "next"))
            case "continue" if self.loops:
                self._lead([(node, "", "next")], self.loops[-1][0], again=True)
            case _:
                pass
        return []

    def _fork(self, item: Fork, ends: list[End]) -> list[End]:
        node = self._node("fork", item.word, item.line, ends)
        found: list[End] = []
        for arm in item.arms:
            kind: EdgeKind = "rescue" if arm.rescue else "beside" if item.parallel else "next"
            found += self._all(arm.items, [(node, arm.label, kind)])
        return found

    def _loop(self, item: Loop, ends: list[End]) -> list[End]:
        head = self._node("loop", item.label, item.line, ends)
        breaks: list[End] = []
        self.loops.append((head, breaks))
        self._lead(self._all(item.items, [(head, "each time", "next")]), head, again=True)
        self.loops.pop()
        if item.orelse:
            return [*self._all(item.orelse, [(head, ENDED, "next")]), *breaks]
        return [(head, "then", "next"), *breaks]

    def _group(self, item: Group, ends: list[End]) -> list[End]:
        outer = self.path
        self.groups += 1
        self.path = (*outer, (self.groups, item.title))
        if item.call:
            self.returns.append([])
        if item.final:
            ends = [(source, label or "finally", kind) for source, label, kind in ends]
        inner: list[End] = [(source, label, "beside") for source, label, _ in ends] if item.loose else ends
        found = self._all(item.items, inner)
        if item.call:
            found = [*found, *self.returns.pop()]
        self.path = outer
        return ends if item.loose else found
