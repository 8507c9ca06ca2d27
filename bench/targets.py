"""The targets, and whether this run met them: pure functions of the figures of one run."""

from __future__ import annotations

import statistics
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any, Final

#: System -> key -> what was measured. A system that was not measured, or has no such thing, has no entry.
Figures = Mapping[str, Mapping[str, float]]

PEERS: Final = ("absurd", "dbos", "procrastinate", "pgqueuer", "oban", "chancy")
COLUMNS: Final = ("us", *PEERS, "floor")


@dataclass(frozen=True, slots=True)
class Key:
    """One figure. Its target is a `bound`; or so many times the `best` peer; or the largest of so many times some peers' figures.

    `of`: (peer, the peer's key, factor). `limits`: further figures of ours that may not pass a bound.
    """

    what: str
    unit: str
    lower: bool = False
    bound: float | None = None
    best: float | None = None
    of: tuple[tuple[str, str, float], ...] = ()
    limits: tuple[tuple[str, float], ...] = ()


KEYS: Final[Mapping[str, Key]] = {
    "A1": Key("enqueue, 1 caller", "/s", best=1.0),
    "A16": Key("enqueue, 16 callers in one process", "/s", best=3.0),
    "Abulk": Key("enqueue in bulk", "/s", of=(("procrastinate", "Abulk", 1.5), ("pgqueuer", "Abulk", 0.5))),
    "B": Key("no-op runs, 1 worker process", "/s", of=(("absurd", "B", 6.0),)),
    "C": Key("steps of 10-step workflows, repeatable", "/s", of=(("absurd", "C", 10.0),)),
    "Cmarked": Key("the same, marked", "/s", of=(("absurd", "C", 5.0),)),
    "Calone_ms": Key("a lone workflow, a step", "ms", lower=True, bound=0.6),
    "Dstart_ms": Key("start, p50", "ms", lower=True, bound=1.5),
    "Dwake_ms": Key("wake after a durable park, p50", "ms", lower=True, bound=1.5, limits=(("Dwake99_ms", 4.0),)),
    "Epending": Key("1 M pending ÷ 10 k", "", bound=0.85),
    "Ehistory": Key("1 M parked + 1 M ended ÷ none", "", bound=0.9),
    "Esnapshot": Key("last fifth of 60 k, old snapshot held ÷ none", "", bound=0.7),
    "Ecold": Key("burst on plans of empty tables ÷ of full ones", "", bound=0.7),
    "F": Key("statements of an idle worker", "/s", lower=True, bound=0.5),
    "Gimport_ms": Key("import", "ms", lower=True, bound=200.0),
    "Grss_mb": Key("resident after import", "MB", lower=True, bound=50.0),
    "cpu_run_us": Key("client CPU, a no-op run", "µs", lower=True, bound=40.0),
    "cpu_step_us": Key("client CPU, a step", "µs", lower=True, bound=40.0),
    "server_run_us": Key("server CPU, a no-op run", "µs", lower=True, bound=40.0),
    "wal_run_b": Key("WAL, a no-op run", "B", lower=True, bound=1800.0),
}

#: What the full table has besides. A bound here is a target of our own: the table judges it, the one object has no word of it.
EXTRAS: Final[Mapping[str, Key]] = {
    "Dstart99_ms": Key("start, p99", "ms", lower=True),
    "Dwake99_ms": Key("wake, p99", "ms", lower=True),
    "Epending1": Key("1 M pending of 1 organisation ÷ 10 k", ""),
    "Epending1000": Key("1 M pending of 1 000 organisations ÷ 10 k", ""),
    "server_step_us": Key("server CPU, a step", "µs", lower=True),
    "wal_step_b": Key("WAL, a step", "B", lower=True),
    "B_2workers": Key("no-op runs, 2 worker processes", "/s"),
    "B_4workers": Key("no-op runs, 4 worker processes", "/s"),
    "B_1kB": Key("no-op runs, inputs of 1 kB", "/s"),
    "B_100kB": Key("no-op runs, inputs of 100 kB", "/s"),
    "rows": Key("rows of one map", "/s"),
    "Plan_wide": Key("no-op steps of a plan, none needs another ÷ no-op runs", "", bound=0.5),
    "Plan_layers": Key("no-op steps of a plan of 100 chains ÷ no-op runs", "", bound=0.5),
    "Command_ms": Key("a lone command step", "ms", lower=True),
    "Commands": Key("command steps, 8 at a time", "/s"),
}

RULES: Final[Mapping[str, Key]] = {**KEYS, **EXTRAS}


def medians(measured: Iterable[tuple[str, Mapping[str, float]]]) -> dict[str, dict[str, float]]:
    """Of (system, figures by key) of every measurement: the median of each."""
    found = values(measured)
    return {name: {key: statistics.median(all_) for key, all_ in keys.items()} for name, keys in found.items()}


def values(measured: Iterable[tuple[str, Mapping[str, float]]]) -> dict[str, dict[str, list[float]]]:
    """The same, with all that was measured."""
    found: dict[str, dict[str, list[float]]] = {}
    for name, figures in measured:
        for key, value in figures.items():
            found.setdefault(name, {}).setdefault(key, []).append(value)
    return found


def best_peer(key: str, figures: Figures, *, lower: bool = False) -> float | None:
    """The best that a peer did in this run; the floor is no peer."""
    theirs = [figures[name][key] for name in PEERS if key in figures.get(name, {})]
    return (min if lower else max)(theirs) if theirs else None


def target(key: str, figures: Figures) -> float | None:
    """What this run asks of us. None: nothing, or what it is computed from was not measured."""
    rule = RULES[key]
    if rule.bound is not None:
        return rule.bound
    if rule.best is not None:
        best = best_peer(key, figures)
        return None if best is None else rule.best * best
    if not rule.of:
        return None
    asked = [figures.get(name, {}).get(theirs) for name, theirs, _ in rule.of]
    if None in asked:
        return None
    return max(factor * value for value, (_, _, factor) in zip(asked, rule.of, strict=True) if value is not None)


def met(key: str, figures: Figures) -> bool | None:
    """None: not measured, or no target."""
    rule, ours, bar = RULES[key], figures.get("us", {}), target(key, figures)
    if key not in ours or bar is None:
        return None
    within = [(ours[key], bar)] if rule.lower else [(bar, ours[key])]
    within += [(ours[other], bound) for other, bound in rule.limits if other in ours]
    return all(small <= large for small, large in within)


def ratio(key: str, figures: Figures) -> float | None:
    """Ours ÷ the best peer's; over 1 is better for rates, under 1 for what should be small."""
    rule = RULES[key]
    ours, best = figures.get("us", {}).get(key), best_peer(key, figures, lower=rule.lower)
    return None if ours is None or not best else ours / best


def verdict(figures: Figures) -> dict[str, dict[str, Any]]:
    """The one object: by key what each system did, the target of this run and whether we met it."""
    return {
        key: {
            **{name: shown(figures.get(name, {}).get(key)) for name in COLUMNS},
            "target": shown(target(key, figures)),
            "met": met(key, figures),
        }
        for key in KEYS
    }


def shown(value: float | None) -> float | None:
    """Five significant figures: more is noise."""
    return None if value is None else float(f"{value:.5g}")
