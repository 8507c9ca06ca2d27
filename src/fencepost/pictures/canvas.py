"""SVG by hand: text that is measured before it is drawn, and one style that is read on light and on dark ground."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from html import escape as html_escape
from typing import Final

from rich.cells import cell_len

from fencepost.notes import escape

# A monospaced text is as wide as its cells: 0.602 em in the fonts named below, and a little for others.
CHAR: Final = 7.5  # px, of 12 px text
SMALL: Final = 6.3  # px, of 10 px text
LINE: Final = 16  # px

FONT: Final = 'ui-monospace, SFMono-Regular, Menlo, Consolas, "DejaVu Sans Mono", "Liberation Mono", monospace'

# class -> (fill, stroke) on light ground, then on dark
COLOURS: Final = {
    "step": ("#dbeafe", "#2563eb", "#172b4d", "#60a5fa"),
    "map": ("#ccfbf1", "#0d9488", "#0f3533", "#2dd4bf"),
    "wait": ("#fef3c7", "#b45309", "#3b2a0b", "#fbbf24"),
    "child": ("#ede9fe", "#7c3aed", "#2e2150", "#a78bfa"),
    "value": ("#f3f4f6", "#6b7280", "#262c36", "#9ca3af"),
    "good": ("#dcfce7", "#16a34a", "#12351f", "#4ade80"),
    "bad": ("#fee2e2", "#dc2626", "#451a1a", "#f87171"),
    "plain": ("#ffffff", "#6b7280", "#161b22", "#8b949e"),
}


def xml(text: object) -> str:
    """Text inside SVG: every character is one that XML may hold, and none of them ends what it stands in."""
    return html_escape(escape(text), quote=True)


def width_of(text: str, char: float = CHAR) -> float:
    """How wide a text is drawn, in px; a wide character has two cells."""
    return cell_len(escape(text)) * char


def text(x: float, y: float, said: str, class_: str = "", anchor: str = "") -> str:
    """One line of text, its baseline at y."""
    attributes = (f' class="{class_}"' if class_ else "") + (f' text-anchor="{anchor}"' if anchor else "")
    return f'<text x="{x:.1f}" y="{y:.1f}"{attributes}>{xml(said)}</text>'


def rect(x: float, y: float, width: float, height: float, class_: str, *, radius: float = 5, title: str = "") -> str:
    """A box; `title` is shown by a pointer that rests on it."""
    shape = f'<rect x="{x:.1f}" y="{y:.1f}" width="{width:.1f}" height="{height:.1f}" rx="{radius:g}" class="{class_}"'
    return f"{shape}><title>{xml(title)}</title></rect>" if title else f"{shape}/>"


def path(points: Sequence[tuple[float, float]], class_: str, *, arrow: bool = False) -> str:
    """A line from point to point."""
    place = " L".join(f"{x:.1f} {y:.1f}" for x, y in points)
    tip = ' marker-end="url(#tip)"' if arrow else ""
    return f'<path d="M{place}" class="{class_}"{tip}/>'


def picture(width: float, height: float, parts: Iterable[str], title: str) -> str:
    """A whole SVG document."""
    body = "\n".join(parts)
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" width="{width:.0f}" height="{height:.0f}" '
        f'viewBox="0 0 {width:.0f} {height:.0f}" role="img">\n<title>{xml(title)}</title>\n<style>\n{STYLE}</style>\n'
        '<defs><marker id="tip" viewBox="0 0 8 8" refX="7" refY="4" markerWidth="8" markerHeight="8" markerUnits="userSpaceOnUse" orient="auto">'
        '<path d="M0 0.5 L7 4 L0 7.5 z" class="tip"/></marker></defs>\n'
        f'<rect width="100%" height="100%" class="ground"/>\n{body}\n</svg>\n'
    )


def _style(dark: bool) -> str:  # noqa: FBT001 - one of two grounds
    ink, faint, ground, rule = (
        ("#e6edf3", "#9aa4af", "#0d1117", "#30363d") if dark else ("#1f2328", "#57606a", "#ffffff", "#d0d7de")
    )
    found = [
        f".ground {{ fill: {ground}; }}",
        f"text {{ fill: {ink}; }}",
        f".faint {{ fill: {faint}; }}",
        f".line {{ stroke: {faint}; }} .tip {{ fill: {faint}; }}",
        f".frame {{ stroke: {faint}; }}",
        f".rule {{ stroke: {rule}; }} .gap {{ fill: {rule}; }}",
    ]
    for name, (fill, stroke, dark_fill, dark_stroke) in COLOURS.items():
        pair = (dark_fill, dark_stroke) if dark else (fill, stroke)
        found.append(f".{name} {{ fill: {pair[0]}; stroke: {pair[1]}; }}")
        found.append(f".mark.{name} {{ fill: {pair[1]}; }}")
    return "\n".join(found)


STYLE: Final = (
    f"text {{ font: 12px {FONT}; white-space: pre; }}\n"
    ".small { font-size: 10px; } .strong { font-weight: 600; }\n"
    ".line { fill: none; stroke-width: 1.2; } .often { stroke-dasharray: 4 3; } .thick { stroke-width: 2; }\n"
    ".frame { fill: none; stroke-width: 1; } .loop { stroke-dasharray: 6 4; } .rule { stroke-width: 1; fill: none; }\n"
    ".open { stroke-dasharray: 4 3; } .gap { opacity: 0.45; } .tick { stroke-width: 1.4; }\n"
    + _style(dark=False)
    + "\n@media (prefers-color-scheme: dark) {\n"
    + _style(dark=True)
    + "\n}\n"
)
