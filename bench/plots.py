"""`python -m bench.plots [FILE.jsonl …]`: the figures of a run as bars, a chart for each key, in an SVG beside each file.

Without a file: of the newest result.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, Final

from bench.table import number
from bench.targets import COLUMNS, RULES, Key, medians, target, values
from fencepost.pictures import canvas

RESULTS: Final = Path(__file__).parent / "results"
Measured = list[tuple[str, Mapping[str, float]]]

WIDTH: Final = 560.0  # of a chart
BARS: Final = 250.0  # of its longest bar
LEFT: Final = 110.0
ROW: Final = 20.0
GAP: Final = 26.0
MARGIN: Final = 20.0
ACROSS: Final = 2  # charts beside each other


class BadResults(ValueError):
    """A file that is no result of the benchmark; says the file and the line."""


def read(file: Path) -> tuple[dict[str, Any], Measured]:
    """What was measured on (empty where the file does not say), and (system, figures by key) of every measurement. Raises BadResults, OSError."""
    header: dict[str, Any] = {}
    measured: Measured = []
    for place, line in enumerate(file.read_text(encoding="utf-8").splitlines(), start=1):
        try:
            said = json.loads(line)
            if not isinstance(said, dict):
                raise TypeError("no object")
            if "header" in said:
                header = dict(said["header"])
            elif "figures" in said:
                measured.append((str(said["system"]), {key: float(value) for key, value in said["figures"].items()}))
        except (ValueError, TypeError, KeyError, AttributeError) as error:
            raise BadResults(f"{file}, line {place}: {error!r}") from error
    return header, measured


def svg(header: Mapping[str, Any], measured: Measured) -> str:
    """The charts of every key that was measured, as one document. A bar is a median; a thin line goes from the least to the most."""
    every, figures = values(measured), medians(measured)
    systems = [name for name in COLUMNS if name in every] + sorted(every.keys() - set(COLUMNS))
    heights = [MARGIN + 40] * ACROSS
    parts = [
        canvas.text(MARGIN, MARGIN + 12, "make bench", "strong"),
        canvas.text(MARGIN, MARGIN + 28, _about(header), "faint small"),
    ]
    for key, rule in RULES.items():
        found = {name: every[name][key] for name in systems if key in every[name]}
        if not found:
            continue
        column = heights.index(min(heights))
        bar = target(key, figures)
        x, y = MARGIN + column * WIDTH, heights[column]
        parts += _chart(x, y, f"{key}: {rule.what}", rule, found, bar)
        heights[column] += ROW * len(found) + GAP + 24
    return canvas.picture(MARGIN + ACROSS * WIDTH, max(heights) + MARGIN, parts, "make bench")


def _about(header: Mapping[str, Any]) -> str:
    if not header:
        return ""
    quick = ", quick" if header.get("quick") else ""
    told = ("python", "postgres", "cores", "machine")
    python, postgres, cores, machine = (header.get(word, "?") for word in told)
    return f"Python {python}, PostgreSQL {postgres}, {cores} cores, {machine}{quick}; bars are medians, lines go from the least to the most"


def _chart(
    x: float, y: float, title: str, rule: Key, found: Mapping[str, Sequence[float]], bar: float | None
) -> Iterator[str]:
    most = max(max(all_) for all_ in found.values())
    if bar is not None and bar <= 3 * most:
        most = max(most, bar)
    scale = BARS / most if most > 0 else 0.0
    unit = ", ".join(word for word in (rule.unit, "less is better" if rule.lower else "") if word)
    yield canvas.text(x, y + 12, title)
    yield canvas.text(x + canvas.width_of(title) + 8, y + 12, unit, "faint small")
    top = y + 22
    for name, all_ in found.items():
        middle = medians([(name, {"": value}) for value in all_])[name][""]
        kind = "good" if name == "us" else "value"
        centre = top + ROW / 2
        yield canvas.text(x + LEFT - 10, centre + 4, name, "strong" if name == "us" else "", "end")
        yield canvas.rect(x + LEFT, top + 3, max(1.0, middle * scale), ROW - 6, kind, radius=2)
        if len(all_) > 1:
            ends = [(x + LEFT + max(0.0, edge) * scale, centre) for edge in (min(all_), max(all_))]
            yield canvas.path(ends, f"tick {kind}")
        range_ = f" ({number(min(all_))}…{number(max(all_))})" if len(all_) > 1 else ""
        yield canvas.text(x + LEFT + BARS + 12, centre + 4, f"{number(middle)}{range_}", "small")
        top += ROW
    if bar is not None and bar <= most:
        yield canvas.path([(x + LEFT + bar * scale, y + 22), (x + LEFT + bar * scale, top)], "line often")
        yield canvas.text(x + LEFT + bar * scale, top + 11, f"target {number(bar)}", "faint small", "middle")
    elif bar is not None:
        yield canvas.text(x + LEFT, top + 11, f"target {number(bar)}: outside the chart", "faint small")


def write(results: Path) -> Path:
    """Draw a file of results; where the picture is. Raises BadResults, OSError."""
    picture = results.with_suffix(".svg")
    picture.write_text(svg(*read(results)), encoding="utf-8")
    return picture


def main(given: Sequence[str] | None = None) -> int:
    """0: drawn. 2: a file that is not there, or no result."""
    names = [Path(name) for name in (sys.argv[1:] if given is None else given)]
    files = names or sorted(RESULTS.glob("*.jsonl"))[-1:]
    if not files:
        print(f"there is no result in {RESULTS}: make bench measures first", file=sys.stderr)
        return 2
    for file in files:
        try:
            print(write(file))
        except (BadResults, OSError) as error:
            print(f"error: {error}", file=sys.stderr)
            return 2
    return 0


if __name__ == "__main__":
    sys.exit(main())
