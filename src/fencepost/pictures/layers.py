"""A plan as SVG: a layer of boxes for each level, top to bottom, and lines from what is needed to what needs it.

A line that passes other layers has a place of its own in each of them, as a box has; so no line runs through a box.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Final

from fencepost.pictures import canvas
from fencepost.pictures.graph import Edge
from fencepost.pictures.plans import PlanGraph, what
from fencepost.planning.model import Step

MARGIN: Final = 20.0
SIDE: Final = 18.0  # between two boxes
BETWEEN: Final = 46.0  # between two layers
PAD: Final = 12.0
SWEEPS: Final = 6
PLACES_MAX: Final = 4000  # boxes, and lines passing layers: beyond, nobody could read the picture
CLASSES: Final = {"command": "step", "python": "map", "workflow": "child"}
LINES: Final = {"next": "line", "optional": "line often", "handoff": "line thick"}


class TooLarge(Exception):
    """The plan has more steps and long lines than a picture can show."""


@dataclass(slots=True, eq=False)
class Place:
    """A box, or (`step` None) where a line passes a layer."""

    step: Step | None
    kind: str = ""
    width: float = 10.0
    height: float = 0.0
    order: float = 0.0
    x: float = 0.0  # its middle
    top: float = 0.0
    floor: float = 0.0  # where its layer ends: below it lines may go aside
    above: list[Place] = field(default_factory=list["Place"])
    below: list[Place] = field(default_factory=list["Place"])


@dataclass(slots=True)
class Way:
    """An edge, from box to box, through the places where it passes layers."""

    edge: Edge
    places: list[Place]


def svg(found: PlanGraph) -> str:
    """The picture as a document. Raises TooLarge."""
    layers, ways = _placed(found)
    _ordered(layers)
    head = [(found.title, "strong"), *_legend(found)]
    wide = [canvas.width_of(said, canvas.SMALL if "small" in kind else canvas.CHAR) for said, kind in head]
    width = max([*wide, *(_width(layer) for layer in layers)]) + 2 * MARGIN
    parts: list[str] = []
    y = MARGIN
    for said, kind in head:
        parts.append(canvas.text(MARGIN, y + 12, said, kind))
        y += canvas.LINE
    y += 8
    for layer in layers:
        _laid(layer, width, y)
        y += max(place.height for place in layer) + BETWEEN
    parts += [line for way in ways for line in _line(way)]
    parts += [part for layer in layers for place in layer for part in _box(place)]
    return canvas.picture(width, y - BETWEEN + MARGIN, parts, found.title)


def _legend(found: PlanGraph) -> list[tuple[str, str]]:
    kinds = {edge.kind for edge in found.edges}
    said = [
        ("dashed: it waits for the end, whatever it was", "optional"),
        ("thick: only an output goes this way", "handoff"),
    ]
    return [(words, "faint small") for words, kind in said if kind in kinds]


def _placed(found: PlanGraph) -> tuple[list[list[Place]], list[Way]]:
    boxes = [_sized(Place(step, CLASSES[step.kind])) for step in found.definition.steps]
    layers = [[boxes[n] for n in level] for level in found.levels]
    number = {n: level for level, places in enumerate(found.levels) for n in places}
    count, ways = len(boxes), list[Way]()
    for edge in found.edges:
        source, target = int(edge.source[1:]), int(edge.target[1:])
        count += number[target] - number[source] - 1
        if count > PLACES_MAX:
            raise TooLarge(f"{len(boxes):,} steps and the lines between them are too many for a picture")
        through = [Place(None) for _ in range(number[source] + 1, number[target])]
        for level, place in enumerate(through, number[source] + 1):
            layers[level].append(place)
        way = Way(edge, [boxes[source], *through, boxes[target]])
        for above, below in zip(way.places, way.places[1:], strict=False):
            above.below.append(below)
            below.above.append(above)
        ways.append(way)
    return layers, ways


def _sized(place: Place) -> Place:
    said = _said(place)
    place.width = (
        max(canvas.width_of(line, canvas.SMALL if n else canvas.CHAR) for n, line in enumerate(said)) + 2 * PAD
    )
    place.height = 10.0 + canvas.LINE + 14 * (len(said) - 1)
    return place


def _said(place: Place) -> list[str]:
    """The lines in a box, its id first."""
    step = place.step
    if step is None:
        return [""]
    takes = [f"takes {handoff.step}.{handoff.output} as {handoff.mode}" for handoff in step.handoffs]
    more = [f"takes {len(takes) - 3:,} more"] if len(takes) > 4 else []
    return [step.id, what(step), *(takes[:3] if more else takes), *more]


def _ordered(layers: Sequence[list[Place]]) -> None:
    """Each place near the middle of what it is joined to, so that few lines cross."""
    for layer in layers:
        for n, place in enumerate(layer):
            place.order = n / len(layer)
    for sweep in range(SWEEPS):
        down = sweep % 2 == 0
        for layer in layers if down else reversed(layers):
            wanted = {place: _middle(place, place.above if down else place.below) for place in layer}
            layer.sort(key=wanted.__getitem__)
            for n, place in enumerate(layer):
                place.order = (n + 0.5) / len(layer)


def _middle(place: Place, joined: Sequence[Place]) -> float:
    return sum(other.order for other in joined) / len(joined) if joined else place.order


def _width(layer: Sequence[Place]) -> float:
    return sum(place.width for place in layer) + SIDE * (len(layer) - 1)


def _laid(layer: Sequence[Place], width: float, top: float) -> None:
    x, floor = (width - _width(layer)) / 2, top + max(place.height for place in layer)
    for place in layer:
        place.x, place.top, place.floor = x + place.width / 2, top, floor
        x += place.width + SIDE


def _line(way: Way) -> list[str]:
    """Straight between layers, upright where it passes one."""
    first, *through, last = way.places
    points = [
        (first.x, first.top + first.height),
        *([(first.x, first.floor)] if first.floor > first.top + first.height else []),
    ]
    for place in through:
        points += [(place.x, place.top), (place.x, place.floor)]
    points.append((last.x, last.top))
    return [canvas.path(points, LINES[way.edge.kind], arrow=True)]


def _box(place: Place) -> list[str]:
    if place.step is None:
        return []
    left = place.x - place.width / 2
    parts = [
        canvas.rect(left, place.top, place.width, place.height, place.kind, title=f"{place.step.kind} {place.step.id}")
    ]
    y = place.top + 17
    for n, line in enumerate(_said(place)):
        parts.append(canvas.text(place.x, y, line, "faint small" if n else "", "middle"))
        y += canvas.LINE - 2 if n == 0 else 14
    return parts
