"""A timeline as lines of a terminal: as wide as it is, coloured only where somebody looks."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Final

from rich.cells import cell_len, set_cell_size
from rich.text import Text

from fencepost.notes import escape
from fencepost.pictures.timeline import Bar, Scale, Timeline, scale, shortened
from fencepost.spelling import instant, span

LINES_MAX: Final = 200
LABEL_MAX: Final = 32  # cells
NARROWEST: Final = 20  # cells of the axis

COLOURS: Final = {
    "attempt": "blue", "run": "bold", "step": "cyan", "map": "green", "sleep": "yellow", "signal": "yellow", "child": "magenta", "value": "white",
}  # fmt: skip
BAD: Final = frozenset({"failed", "lost", "unknown", "cancelled", "timed_out"})


@dataclass(frozen=True, slots=True)
class Signs:
    """What bars are drawn with."""

    held: str
    line: str
    wait: str
    tick: str
    kept: str
    failed: str
    unknown: str
    other: str
    open: str
    broken: str
    more: str


UNICODE: Final = Signs("█", "━", "┄", "┿", "●", "✗", "?", "◌", "▸", "≈", "…")
ASCII: Final = Signs("#", "=", "-", "+", "o", "x", "?", "~", ">", "~", ">")


def lines(timeline: Timeline, width: int, signs: Signs = UNICODE) -> Iterator[Text]:
    """The picture, `width` cells wide."""
    on = scale(timeline)
    first, last, between = shortened(timeline.bars, LINES_MAX)
    shown = first + last
    label = min(LABEL_MAX, max(cell_len(escape(bar.label)) for bar in shown))
    after = max(cell_len(_after(bar)) for bar in shown)
    axis = max(NARROWEST, width - label - 2 - min(after + 2, width * 2 // 5))
    yield Text(
        f"{escape(timeline.title)}  {instant(timeline.begin)}  {span((timeline.end - timeline.begin).total_seconds())}"
    )
    for bar in first:
        yield _line(bar, timeline, on, (label, axis, width), signs)
    if between:
        yield Text(f"  {signs.more} {between} more {signs.more}")
    for bar in last:
        yield _line(bar, timeline, on, (label, axis, width), signs)
    yield Text(" " * (label + 2) + "".join(_axis(timeline, on, axis, signs)), style="dim")
    yield from _legend(timeline, on, signs)


def _line(bar: Bar, timeline: Timeline, on: Scale, widths: tuple[int, int, int], signs: Signs) -> Text:
    label, axis, width = widths
    cells = [" "] * axis
    end = bar.end if bar.end is not None else timeline.end

    def cell(place: float) -> int:
        return min(axis - 1, int(place * axis))

    if bar.begin is not None:
        sign = (
            signs.held
            if bar.kind == "attempt"
            else signs.wait
            if bar.kind in ("sleep", "signal", "run")
            else signs.line
        )
        for at in range(cell(on.place(bar.begin)), cell(on.place(end)) + 1):
            cells[at] = sign
    for tick in bar.ticks:
        cells[cell(on.place(tick))] = signs.tick
    cells[cell(on.place(end))] = _ending(bar, signs)
    colour = "red" if bar.state in BAD else COLOURS.get(bar.kind, "white")
    found = Text(set_cell_size(escape(bar.label), label) + "  ")
    found.append("".join(cells), style=colour)
    found.append(f"  {_after(bar)}")
    found.rstrip()
    if found.cell_len > width:
        found.truncate(width - 1, overflow="crop")
        found.append(signs.more)
    return found


def _ending(bar: Bar, signs: Signs) -> str:
    if bar.state == "unknown":
        return signs.unknown
    if bar.end is None:
        return signs.open
    if bar.kind == "attempt":
        return signs.failed if bar.state in ("lost", "failed") else signs.held
    if bar.state == "failed":
        return signs.failed
    return signs.other if bar.state in ("timed_out", "cancelled", "set_aside") else signs.kept


def _after(bar: Bar) -> str:
    long = f"{span((bar.end - bar.begin).total_seconds())} " if bar.begin and bar.end else ""
    return escape(long + (bar.detail if bar.kind == "attempt" else f"{bar.state} {bar.detail}".rstrip()))


def _axis(timeline: Timeline, on: Scale, axis: int, signs: Signs) -> list[str]:
    """Times since the beginning, as many as there is room for; a break where time is drawn shorter than it was."""
    cells = [" "] * axis
    for begin, end in on.breaks:
        for at in range(int(on.place(begin) * axis), min(axis, int(on.place(end) * axis))):
            cells[at] = signs.broken
    many = max(1, min(5, axis // 14))
    for mark in range(many):
        said = span((on.instant(mark / many) - timeline.begin).total_seconds())
        at = mark * axis // many
        cells[at : at + len(said) + 1] = [*said, " "]
    last = span((timeline.end - timeline.begin).total_seconds())
    if len(last) + 1 < axis:
        cells[axis - len(last) - 1 : axis] = [" ", *last]
    return cells[:axis]


def _legend(timeline: Timeline, on: Scale, signs: Signs) -> Iterator[Text]:
    if any(bar.begin is None for bar in timeline.bars):
        yield Text(f"a lone {signs.kept} is a commit whose begin is not recorded", style="dim")
    if on.breaks:
        yield Text(f"{signs.broken}  no attempt: drawn shorter than it was", style="dim")
    if not timeline.whole:
        yield Text("the run has more events than are read for a picture: this is its beginning", style="dim")
