"""`python -m bench [--quick] [--json]`: one table, or with --json one object on the last line."""

from __future__ import annotations

import argparse
import asyncio
import json
import platform
import statistics
import sys

from bench.measures import MEASURES
from bench.place import place

# Bounds that need no other system beside us, by figure: (bound, lower is better).
TARGETS: dict[str, tuple[float, bool]] = {
    "Dstart_ms": (1.5, True),
    "Dwake_ms": (1.5, True),
    "Calone_ms": (0.6, True),
    "F": (0.5, True),
    "Gimport_ms": (200, True),
    "Grss_mb": (50, True),
    "cpu_run_us": (40, True),
    "cpu_step_us": (40, True),
    "wal_run_b": (1800, True),
}


async def measure(*, quick: bool, rounds: int) -> dict[str, list[float]]:
    found: dict[str, list[float]] = {}
    for turn in range(rounds):
        async with place() as where:
            version = await where.admin.fetchval("show server_version")
            for one in MEASURES:
                print(f"round {turn + 1} of {rounds}: {one.__name__} (PostgreSQL {version})", file=sys.stderr)
                for name, value in (await one(where, quick)).items():
                    found.setdefault(name, []).append(value)
    return found


def main() -> int:
    parser = argparse.ArgumentParser(prog="make bench", description=__doc__)
    parser.add_argument("--quick", action="store_true", help="fewer runs, one round")
    parser.add_argument("--json", action="store_true", help="one object on one line")
    parser.add_argument("--rounds", type=int, default=None, help="interleaved rounds (3; with --quick 1)")
    words = parser.parse_args()
    found = asyncio.run(measure(quick=words.quick, rounds=words.rounds or (1 if words.quick else 3)))
    figures = {name: statistics.median(values) for name, values in found.items()}
    rows = {}
    for name, us in figures.items():
        bound, lower = TARGETS.get(name, (None, False))
        met = None if bound is None else (us <= bound if lower else us >= bound)
        rows[name] = {
            "us": round(us, 3),
            "range": [round(min(found[name]), 3), round(max(found[name]), 3)],
            "target": bound,
            "met": met,
        }
    if words.json:
        print(json.dumps(rows))
        return 0
    print(f"Python {platform.python_version()}, {platform.machine()}\n")
    print("| figure | median | range | target | met |\n|---|---|---|---|---|")
    for name, row in rows.items():
        low, high = row["range"]
        met = {None: "", True: "yes", False: "no"}[row["met"]]
        print(f"| {name} | {row['us']:,.6g} | {low:,.6g} … {high:,.6g} | {row['target'] or '–'} | {met} |")
    return 0


if __name__ == "__main__":
    sys.exit(main())
