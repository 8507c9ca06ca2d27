"""A flow as SVG: boxes sized by their text, top to bottom; ways beside each other; loops and functions as frames around what is in them.

Structured code nests, so the layout does: each block is drawn into a rectangle of its own, and rectangles are put below or beside
each other. Nothing can overlap.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Final

from fencepost.pictures import canvas
from fencepost.pictures.model import Call, Exit, Flow, Fork, Group, Item, Loop, Note, walk
from fencepost.pictures.text import ENDED, legend

GAP: Final = 24.0  # between two blocks, one below the other
SIDE: Final = 22.0  # between two ways
PAD: Final = 14.0
MARGIN: Final = 20.0
HEAD: Final = 24.0  # of a frame's title

CLASSES: Final = {"step": "step", "map": "map", "sleep": "wait", "signal": "wait", "child": "child", "value": "value"}


@dataclass(slots=True)
class Block:
    """Something drawn, its left upper corner at (0, 0). One goes in and out at x = `port`; `falls`: what is below comes next."""

    width: float
    height: float
    port: float
    falls: bool = True
    parts: list[tuple[float, float, str]] = field(default_factory=list[tuple[float, float, str]])

    def put(self, block: Block, x: float, y: float) -> None:
        """Draw another block into this one."""
        self.parts += [(x + dx, y + dy, part) for dx, dy, part in block.parts]

    def draw(self, *parts: str) -> None:
        """Draw in this block's own coordinates."""
        self.parts += [(0.0, 0.0, part) for part in parts]

    def drawn(self) -> list[str]:
        """The parts, each where it belongs."""
        return [
            part if not (x or y) else f'<g transform="translate({x:.1f} {y:.1f})">{part}</g>'
            for x, y, part in self.parts
        ]


def svg(flow: Flow) -> str:
    """The picture as a document."""
    returns = any(isinstance(item, Exit) and item.word == "return" for item in walk(flow.items))
    body = _column([_box(["start"], "plain", round_=True), *_blocks(flow.items)])
    if body.falls:
        body = _below(body, _box(["end"], "plain", round_=True))
    head = [(flow.workflow, "strong"), (flow.source, "faint small")]
    foot = [(line, "faint small") for line in legend(flow)]
    foot += [("return  ends the run, or the function whose frame it is in", "faint small")] if returns else []
    width = max(
        [
            body.width,
            *(canvas.width_of(said, canvas.SMALL if "small" in kind else canvas.CHAR) for said, kind in head + foot),
        ]
    )
    whole = Block(width + 2 * MARGIN, 0, 0)
    y = MARGIN
    for said, kind in head:
        whole.draw(canvas.text(MARGIN, y + 12, said, kind))
        y += canvas.LINE
    whole.put(body, MARGIN + (width - body.width) / 2, y + 6)
    y += body.height + GAP
    for said, kind in foot:
        whole.draw(canvas.text(MARGIN, y + 12, said, kind))
        y += canvas.LINE
    return canvas.picture(whole.width, y + MARGIN, whole.drawn(), f"workflow {flow.workflow}")


def _blocks(items: Sequence[Item]) -> list[Block]:
    found: list[Block] = []
    for item in items:
        block = _block(item)
        if isinstance(item, Group) and item.final and found:
            block = _below(found.pop(), block, always=True)
        found.append(block)
    return found


def _block(item: Item) -> Block:
    match item:
        case Call():
            detail = [item.detail] if item.detail else []
            kind = CLASSES.get(item.kind, "plain")
            return _box([item.id], kind, detail, title=f"{item.id}, line {item.line}", round_=kind == "wait")
        case Note():
            return _box(
                [f"! {item.text}" if item.opaque else item.text],
                "bad open" if item.opaque else "plain",
                title=f"line {item.line}",
            )
        case Exit():
            block = _box(
                [f"{item.word} {item.text}".rstrip()],
                "bad" if item.word == "raise" else "plain",
                title=f"line {item.line}",
            )
            block.falls = False
            return block
        case Fork(word="try", arms=[arm]):
            return _frame("try", _column(_blocks(arm.items)), "frame")
        case Fork():
            return _fork(item)
        case Loop():
            frame = _frame(item.label, _column(_blocks(item.items)), "frame loop")
            frame.falls = True
            return frame if not item.orelse else _below(frame, _frame(ENDED, _column(_blocks(item.orelse)), "frame"))
        case Group():
            inner = _column(_blocks(item.items))
            frame = _frame(item.title, inner, "frame loop" if item.loose or item.recursive else "frame")
            returns = any(isinstance(part, Exit) and part.word == "return" for part in walk(item.items))
            frame.falls = inner.falls or item.loose or item.recursive or (item.call and returns)
            return frame


def _box(said: list[str], kind: str, small: Sequence[str] = (), *, title: str = "", round_: bool = False) -> Block:
    wide = [canvas.width_of(line) for line in said] + [canvas.width_of(line, canvas.SMALL) for line in small]
    width = max(wide) + 2 * PAD
    height = 10 + canvas.LINE * len(said) + 14 * len(small)
    block = Block(width, height, width / 2)
    block.draw(
        canvas.rect(
            0, 0, width, height, kind, radius=height / 2 if round_ and not small else 12 if round_ else 5, title=title
        )
    )
    y = 17.0
    for line in said:
        block.draw(canvas.text(width / 2, y, line, anchor="middle"))
        y += canvas.LINE
    for line in small:
        block.draw(canvas.text(width / 2, y - 2, line, "faint small", "middle"))
        y += 14
    return block


def _below(above: Block, under: Block, *, always: bool = False) -> Block:
    """Two blocks, the ports in one line. `always`: the lower one is entered also where the upper one leads elsewhere."""
    port = max(above.port, under.port)
    right = max(above.width - above.port, under.width - under.port)
    block = Block(port + right, above.height + GAP + under.height, port, above.falls and under.falls)
    block.put(above, port - above.port, 0)
    block.put(under, port - under.port, above.height + GAP)
    if above.falls or always:
        block.draw(canvas.path([(port, above.height), (port, above.height + GAP)], "line", arrow=True))
    return block


def _column(blocks: Sequence[Block]) -> Block:
    if not blocks:
        return Block(0, 0, 0)
    whole = blocks[0]
    for block in blocks[1:]:
        whole = _below(whole, block)
    return whole


def _frame(title: str, inner: Block, kind: str) -> Block:
    width = max(inner.width, canvas.width_of(title, canvas.SMALL)) + 2 * PAD
    left = (width - inner.width) / 2
    block = Block(width, HEAD + inner.height + PAD, left + inner.port, inner.falls)
    block.draw(canvas.rect(0, 0, width, block.height, kind), canvas.text(PAD, 15, title, "faint small"))
    block.put(inner, left, HEAD)
    return block


def _fork(item: Fork) -> Block:
    """The word, a line across, each way below its label, and a line across where ways meet again."""
    head = _box(
        [item.word + (", all at once" if item.parallel else "")], "plain", title=f"line {item.line}", round_=True
    )
    arms = [(arm, _column(_blocks(arm.items))) for arm in item.arms if arm.items or not item.parallel]
    labels = any(arm.label for arm, _ in arms)
    top = head.height + 12
    start = top + (canvas.LINE + 26 if labels else 16)
    bottom = start + max((way.height for _, way in arms), default=0) + 14
    lefts, ports, x = [0.0] * len(arms), [0.0] * len(arms), 0.0
    for place, (arm, way) in enumerate(arms):
        half = max(canvas.width_of(arm.label, canvas.SMALL) / 2 + 4, 10)
        before, after = max(way.port, half), max(way.width - way.port, half)
        lefts[place], ports[place] = x + before - way.port, x + before
        x += before + after + SIDE
    port = (ports[0] + ports[-1]) / 2
    shift = max(0.0, head.width / 2 - port)
    block = Block(
        max(x - SIDE + shift, port + shift + head.width / 2), bottom, port + shift, any(way.falls for _, way in arms)
    )
    block.put(head, block.port - head.width / 2, 0)
    block.draw(canvas.path([(block.port, head.height), (block.port, top)], "line"))
    for place, (arm, way) in enumerate(arms):
        _way(
            block,
            arm.label,
            way,
            ports[place] + shift,
            lefts[place] + shift,
            (top, start, bottom),
            _line(item, arm.rescue),
        )
    meets = [ports[i] + shift for i, (_, way) in enumerate(arms) if way.falls]
    block.draw(canvas.path([(ports[0] + shift, top), (ports[-1] + shift, top)], "line"))
    if meets:
        block.draw(canvas.path([(min([*meets, block.port]), bottom), (max([*meets, block.port]), bottom)], "line"))
    return block


def _line(item: Fork, rescue: bool) -> str:  # noqa: FBT001 - as the arm says
    return "line often" if rescue else "line thick" if item.parallel else "line"


def _way(
    block: Block, label: str, way: Block, x: float, left: float, heights: tuple[float, float, float], kind: str
) -> None:
    top, start, bottom = heights
    begins = top
    if label:
        block.draw(canvas.path([(x, top), (x, top + 8)], kind), canvas.text(x, top + 19, label, "small", "middle"))
        begins = top + 24
    block.put(way, left, start)
    if way.height:
        block.draw(canvas.path([(x, begins), (x, start)], kind, arrow=True))
    if way.falls:
        block.draw(canvas.path([(x, start + way.height if way.height else begins), (x, bottom)], kind))
