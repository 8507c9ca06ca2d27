"""A timeline as SVG."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from fencepost.pictures import canvas
from fencepost.pictures.bars import BAD
from fencepost.pictures.timeline import Bar, Scale, Timeline, scale, shortened
from fencepost.spelling import instant, span

LINES_MAX: Final = 500
ROW: Final = 24.0
THICK: Final = 12.0
AXIS: Final = 640.0
MARGIN: Final = 20.0
CLASSES: Final = {
    "run": "value", "attempt": "good", "step": "step", "map": "map", "sleep": "wait", "signal": "wait", "child": "child", "value": "value",
}  # fmt: skip


def svg(timeline: Timeline) -> str:
    """The picture as a document: a line each, the axis below."""
    on = scale(timeline)
    first, last, between = shortened(timeline.bars, LINES_MAX)
    left = MARGIN + max(canvas.width_of(bar.label) for bar in [*first, *last]) + 14
    after = max(canvas.width_of(_after(bar), canvas.SMALL) for bar in [*first, *last])
    parts = [canvas.text(MARGIN, MARGIN + 12, timeline.title, "strong")]
    long = span((timeline.end - timeline.begin).total_seconds())
    parts.append(canvas.text(MARGIN, MARGIN + 28, f"{instant(timeline.begin)}, {long}", "faint small"))
    top = MARGIN + 44
    bottom = top + ROW * (len(first) + len(last) + bool(between))
    parts += _axis(timeline, on, left, top, bottom)
    y = top
    for bar in first:
        parts += _row(bar, timeline, on, left, y)
        y += ROW
    if between:
        parts.append(canvas.text(MARGIN, y + 16, f"… {between} more …", "faint"))
        y += ROW
    for bar in last:
        parts += _row(bar, timeline, on, left, y)
        y += ROW
    y += 26
    for said in _legend(timeline, on):
        parts.append(canvas.text(MARGIN, y + 12, said, "faint small"))
        y += canvas.LINE
    return canvas.picture(left + AXIS + 14 + after + MARGIN, y + MARGIN, parts, timeline.title)


def _axis(timeline: Timeline, on: Scale, left: float, top: float, bottom: float) -> Iterator[str]:
    """Lines with their times, as far from each other as their words need."""
    for begin, end in on.breaks:
        x, right = left + AXIS * on.place(begin), left + AXIS * on.place(end)
        yield f'<rect x="{x:.1f}" y="{top:.1f}" width="{right - x:.1f}" height="{bottom - top:.1f}" class="gap"/>'
    for mark in range(6):
        x = left + AXIS * mark / 5
        said = span((on.instant(mark / 5) - timeline.begin).total_seconds())
        yield canvas.path([(x, top), (x, bottom + 4)], "rule")
        yield canvas.text(x, bottom + 16, said, "faint small", "middle")


def _row(bar: Bar, timeline: Timeline, on: Scale, left: float, y: float) -> Iterator[str]:
    kind = "bad" if bar.state in BAD else CLASSES.get(bar.kind, "plain")
    right = left + AXIS * on.place(bar.end or timeline.end)
    middle = y + ROW / 2
    yield canvas.text(left - 14, middle + 4, bar.label, anchor="end")
    words = f"{bar.label}: {_after(bar)}"
    if bar.begin is not None:
        x = left + AXIS * on.place(bar.begin)
        thick = THICK / 2 if bar.kind in ("run", "sleep", "signal") else THICK
        open_ = " open" if bar.end is None else ""
        yield canvas.rect(x, middle - thick / 2, max(2.0, right - x), thick, kind + open_, radius=2, title=words)
        for at in sorted({round(left + AXIS * on.place(tick)) for tick in bar.ticks}):  # one a pixel
            yield canvas.path([(at, middle - THICK / 2), (at, middle + THICK / 2)], f"tick {kind}")
    else:
        yield f'<circle cx="{right:.1f}" cy="{middle:.1f}" r="4.5" class="mark {kind}"><title>{canvas.xml(words)}</title></circle>'
    yield canvas.text(left + AXIS + 14, middle + 4, _after(bar), "faint small")


def _after(bar: Bar) -> str:
    long = f"{span((bar.end - bar.begin).total_seconds())} " if bar.begin and bar.end else ""
    return long + (bar.detail if bar.kind == "attempt" else f"{bar.state} {bar.detail}".rstrip())


def _legend(timeline: Timeline, on: Scale) -> Iterator[str]:
    if any(bar.begin is None for bar in timeline.bars):
        yield "a dot is a commit whose begin is not recorded"
    if on.breaks:
        yield "shaded: no attempt, drawn shorter than it was"
    if not timeline.whole:
        yield "the run has more events than are read for a picture: this is its beginning"
