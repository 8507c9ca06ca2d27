"""A run along time, from its document and its events: what is recorded, and nothing else.

A step that is repeatable and has no time-out is not marked when it begins, and a row's mark does not keep its instant: of those
only the commit is known, and only that is drawn.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from itertools import pairwise
from typing import Any, Final, TypeAlias, cast

from fencepost.ledger import Event
from fencepost.spelling import instant, read_instant

Document: TypeAlias = dict[str, Any]

EVENTS_MAX: Final = 200_000  # read for one picture
OPENS: Final = frozenset({"step.marked", "map.opened", "child.started", "wait.armed"})
GAP_MOST: Final = 1.0  # of the time in which an attempt ran: no single pause is drawn longer


@dataclass(slots=True)
class Bar:
    """A line of the picture. `begin` is None where no begin is recorded, `end` where it has not ended; `ticks`: commits of rows.

    `kind`: run · attempt · step · map · sleep · signal · child · value. `state`: how it stands, a word of the ledger.
    """

    kind: str
    label: str
    state: str
    begin: datetime | None
    end: datetime | None
    detail: str = ""
    ticks: list[datetime] = field(default_factory=list[datetime])

    def as_json(self) -> dict[str, Any]:
        """The same for machines; instants in UTC with milliseconds."""
        found = {
            "kind": self.kind,
            "label": self.label,
            "state": self.state,
            "begin": instant(self.begin) if self.begin else None,
            "end": instant(self.end) if self.end else None,
        }
        found |= {"detail": self.detail} if self.detail else {}
        return found | ({"ticks": [instant(tick) for tick in self.ticks]} if self.ticks else {})


@dataclass(frozen=True, slots=True)
class Timeline:
    """All of it between two instants. `whole` is false where there were more events than are read for a picture."""

    title: str
    begin: datetime
    end: datetime
    bars: list[Bar]
    whole: bool

    def as_json(self) -> dict[str, Any]:
        """What `runs show --timeline --json` prints."""
        return {
            "begin": instant(self.begin), "end": instant(self.end), "whole": self.whole, "bars": [bar.as_json() for bar in self.bars],
        }  # fmt: skip


def read(doc: Document, events: Sequence[Event], *, whole: bool = True) -> Timeline:
    """Lay out the document that `read_run` gives, and the run's events."""
    begin = read_instant(doc["submitted_at"])
    latest = max([begin, *(event.at for event in events)])
    end = read_instant(doc["finished_at"]) if doc.get("finished_at") else max(latest, read_instant(doc["now"]))
    bars = [_run(doc, events, begin), *_attempts(doc), *_boundaries(doc, events)]
    return Timeline(f"{doc['name']} {doc['run_id']}", begin, end, bars, whole)


def _parts(doc: Document, key: str) -> list[Document]:
    return cast("list[Document]", doc.get(key) or [])


def _at(value: str | None) -> datetime | None:
    return read_instant(value) if value else None


def _run(doc: Document, events: Iterable[Event], begin: datetime) -> Bar:
    told = [event.at for event in events if event.type.startswith(("run.", "signal.", "late."))]
    return Bar(
        "run",
        "run",
        doc["status"],
        begin,
        _at(doc.get("finished_at")),
        ticks=told[1:-1] if doc.get("finished_at") else told[1:],
    )


def _attempts(doc: Document) -> list[Bar]:
    bars: list[Bar] = []
    for leg in _parts(doc, "attempt_history"):
        why = f" ({leg['reason']})" if leg.get("reason") else ""
        detail = f"{leg['ended']}{why} on {str(leg['holder'])[:8]}"
        bars.append(
            Bar(
                "attempt",
                f"attempt {leg['number']}",
                leg["ended"],
                _at(leg["claimed_at"]),
                _at(leg["ended_at"]),
                detail,
            )
        )
    task, holder = cast("Document", doc.get("task") or {}), cast("Document", doc.get("holder") or {})
    if task.get("claimed_at"):
        who = f"{holder.get('name')} (pid {holder.get('pid')})" if holder else str(task.get("holder"))[:8]
        bars.append(
            Bar("attempt", f"attempt {task['number']}", task["state"], _at(task["claimed_at"]), None, f"on {who}")
        )
    return bars


def _boundaries(doc: Document, events: Iterable[Event]) -> list[Bar]:
    """In the order of their first event. How each stands is the document's to say: there a mark may be unknown."""
    stands = {(step["kind"], step["name"], step["ordinal"]): step for step in _parts(doc, "steps")}
    bars: dict[tuple[str, str, int], Bar] = {}
    open_maps: dict[str, list[Bar]] = {}
    for event in events:
        if event.type.startswith("row."):
            of = open_maps.get(event.data["map"], [])
            # With two maps of one name open, nobody can say whose row it is. Rows that were committed together are one tick.
            if len(of) == 1 and event.type != "row.marked" and of[0].ticks[-1:] != [event.at]:
                of[0].ticks.append(event.at)
            continue
        if "ordinal" not in event.data:
            continue
        key = (event.data["kind"], event.data["name"], event.data["ordinal"])
        state = stands.get(key, {}).get("state", event.type.partition(".")[2])
        bar = bars.setdefault(
            key, Bar(key[0], f"{key[0]} {key[1]}#{key[2]}", state, None, None, _detail(stands.get(key, {})))
        )
        if event.type in OPENS:
            bar.begin = event.at
            open_maps.setdefault(key[1], []).extend([bar] if key[0] == "map" else [])
        else:
            bar.end = event.at
            open_maps[key[1]] = [open_ for open_ in open_maps.get(key[1], []) if open_ is not bar]
    return list(bars.values())


def _detail(step: Document) -> str:
    if step.get("state") == "armed" and step.get("until"):
        return f"until {instant(step['until'])}"
    return f"run {step['child']}" if step.get("child") else ""


@dataclass(frozen=True, slots=True)
class Scale:
    """From instants to places between 0 and 1. A long time without an attempt is drawn shorter than it was: those are `breaks`."""

    points: list[tuple[datetime, float]]
    breaks: list[tuple[datetime, datetime]]

    def place(self, at: datetime) -> float:
        """Where an instant lies; one outside lies at the edge."""
        for (begin, left), (end, right) in pairwise(self.points):
            if at <= end:
                share = (at - begin) / (end - begin) if end > begin else 0.0
                return left + max(0.0, min(1.0, share)) * (right - left)
        return 1.0

    def instant(self, place: float) -> datetime:
        """The instant at a place."""
        for (begin, left), (end, right) in pairwise(self.points):
            if place <= right:
                return begin + (end - begin) * ((place - left) / (right - left) if right > left else 0.0)
        return self.points[-1][0]


def scale(timeline: Timeline) -> Scale:
    """The axis of a timeline."""
    spans = _held(timeline)
    edges = [timeline.begin, *(edge for span in spans for edge in span), timeline.end]
    held = sum((end - begin for begin, end in spans), timedelta()).total_seconds()
    most = held * GAP_MOST if held else float("inf")
    weights: list[float] = []
    breaks: list[tuple[datetime, datetime]] = []
    for place, (begin, end) in enumerate(pairwise(edges)):
        long, is_gap = (end - begin).total_seconds(), place % 2 == 0
        if is_gap and long > most:
            breaks.append((begin, end))
        weights.append(min(long, most) if is_gap else long)
    total = sum(weights) or 1.0
    points, done = [(timeline.begin, 0.0)], 0.0
    for edge, weight in zip(edges[1:], weights, strict=True):
        done += weight
        points.append((edge, done / total))
    return Scale(points, breaks)


def _held(timeline: Timeline) -> list[tuple[datetime, datetime]]:
    """When an attempt ran, in order, without overlaps, within the picture."""
    spans = sorted((bar.begin, bar.end or timeline.end) for bar in timeline.bars if bar.kind == "attempt" and bar.begin)
    found: list[tuple[datetime, datetime]] = []
    for begin, end in spans:
        low = max(begin, found[-1][1] if found else timeline.begin)
        high = min(end, timeline.end)
        if high > low:
            found.append((low, high))
    return found


def shortened(bars: Sequence[Bar], most: int) -> tuple[list[Bar], list[Bar], int]:
    """The first and the last lines of a long picture, and how many lie between them."""
    if len(bars) <= most:
        return list(bars), [], 0
    half = most // 2
    return list(bars[:half]), list(bars[-half:]), len(bars) - 2 * half
