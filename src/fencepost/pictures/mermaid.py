"""A flow or a plan as a Mermaid flowchart, as GitHub and most wikis draw it."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from typing import Final, Protocol

from fencepost.notes import escape
from fencepost.pictures.graph import Edge, Node, Path

# kind -> what stands around its text
SHAPES: Final = {
    "step": ("[", "]"),
    "map": ("[[", "]]"),
    "sleep": ("(", ")"),
    "signal": ("(", ")"),
    "child": ("[/", "/]"),
    "command": ("[", "]"),
    "python": ("[[", "]]"),
    "workflow": ("[/", "/]"),
    "value": ("[", "]"),
    "start": ("([", "])"),
    "end": ("([", "])"),
    "fork": ("{", "}"),
    "loop": ("{{", "}}"),
    "not followed": (">", "]"),
}
ARROWS: Final = {
    "next": "-->", "again": "-.->", "rescue": "-.->", "beside": "==>", "optional": "-.->", "handoff": "==>",
}  # fmt: skip
WAITS: Final = frozenset({"sleep", "signal", "child"})
UNSAFE: Final = re.compile(r"[^\w .,:;+*/=()'?!#·…-]|#(?=\w+;)")


def quoted(text: str) -> str:
    """A label: what could end it, or be read as Markdown or HTML, is written as a character's number."""
    return '"' + UNSAFE.sub(lambda found: f"#{ord(found.group())};", escape(text)) + '"'


class Drawable(Protocol):
    """What has nodes and edges: a workflow's graph, or a plan's."""

    @property
    def nodes(self) -> Sequence[Node]: ...
    @property
    def edges(self) -> Sequence[Edge]: ...


def lines(graph: Drawable) -> Iterator[str]:
    """The flowchart."""
    yield "flowchart TD"
    open_: Path = ()
    for node in graph.nodes:
        yield from _moved(open_, node.groups)
        open_ = node.groups
        yield "  " * (len(open_) + 1) + _node(node)
    yield from _moved(open_, ())
    for edge in graph.edges:
        yield f"  {_edge(edge)}"
    if waits := [node.key for node in graph.nodes if node.kind in WAITS]:
        yield "  classDef wait stroke-dasharray:4 3"
        yield f"  class {','.join(waits)} wait"


def _moved(here: Path, there: Path) -> Iterator[str]:
    """Out of the groups that end, into those that begin."""
    same = 0
    while same < min(len(here), len(there)) and here[same] == there[same]:
        same += 1
    for depth in range(len(here), same, -1):
        yield "  " * depth + "end"
    for depth in range(same, len(there)):
        number, title = there[depth]
        yield "  " * (depth + 1) + f"subgraph g{number}[{quoted(title)}]"


def _node(node: Node) -> str:
    before, after = SHAPES.get(node.kind, ("[", "]"))
    text = quoted(node.text)
    if detail := node.detail if node.call is None else node.call.detail:
        text = f"{text[:-1]}<br/>{quoted(detail)[1:]}"
    return f"{node.key}{before}{text}{after}"


def _edge(edge: Edge) -> str:
    label = f"|{quoted(edge.label)}|" if edge.label else ""
    return f"{edge.source} {ARROWS[edge.kind]}{label} {edge.target}"
