"""A run as Markdown: rates, ranges, ratios, and what was measured on what."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from bench.targets import COLUMNS, RULES, medians, met, ratio, target, values


def number(value: float | None) -> str:
    if value is None:
        return "–"
    if abs(value) >= 100:
        return f"{value:,.0f}"
    return f"{value:.3g}"


def cell(found: list[float]) -> str:
    """The median, and from the least to the most where there were several."""
    if not found:
        return "–"
    middle = sorted(found)[len(found) // 2] if len(found) % 2 else sum(sorted(found)[len(found) // 2 - 1 :][:2]) / 2
    return number(middle) + (f" ({number(min(found))}…{number(max(found))})" if len(found) > 1 else "")


def rows(measured: Sequence[tuple[str, Mapping[str, float]]], *, missing: Mapping[str, str]) -> list[str]:
    """The table's lines. A system that is not installed has no column."""
    all_, figures = values(measured), medians(measured)
    names = [name for name in COLUMNS if name not in missing and name in all_]
    heads = ["test", *names, "÷ best peer", "target", "met"]
    made = ["| " + " | ".join(heads) + " |", "|" + "---|" * len(heads)]
    for key, rule in RULES.items():
        if not any(key in all_.get(name, {}) for name in names):
            continue
        bar, verdict = target(key, figures), met(key, figures)
        sign = "≤" if rule.lower else "≥"
        told = [f"{key}: {rule.what}" + (f", {rule.unit}" if rule.unit else "")]
        told += [cell(all_.get(name, {}).get(key, [])) for name in names]
        told += [number(ratio(key, figures)), "" if bar is None else f"{sign} {number(bar)}"]
        told += ["" if verdict is None else "yes" if verdict else "no"]
        made.append("| " + " | ".join(told) + " |")
    return made


def words(header: Mapping[str, Any], failures: list[str]) -> list[str]:
    """Versions, settings and what could not be measured, below the table."""
    made = [
        "",
        f"Python {header['python']}, PostgreSQL {header['postgres']}, {header['cores']} cores, {header['machine']}.",
    ]
    made.append("Server: " + ", ".join(f"{name} = {value}" for name, value in header["settings"].items()) + ".")
    made += ["", "| system | versions | settings |", "|---|---|---|"]
    for name, versions in header["versions"].items():
        told = ", ".join(f"{package} {version}" for package, version in versions.items())
        made.append(f"| {name} | {told} | {header['system_settings'][name]} |")
    for name, why in header["missing"].items():
        made.append(f"| {name} | not measured: {why.splitlines()[-1]} | |")
    if failures:
        made += ["", "Could not be measured:", *(f"- {failure}" for failure in failures)]
    return made
