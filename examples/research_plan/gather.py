"""The first agent: answers one question from the sheet of airports, as facts in JSON.

    python3 -m examples.research_plan.gather height|reach|zones

Its library is closed to the question about zones at the first try: it says so and exits with 75, and the plan tries again.
"""

from __future__ import annotations

import csv
import json
import sys
from collections import Counter
from pathlib import Path
from typing import Any

from examples import packet

SHEET = Path(__file__).parents[1] / "airports" / "data" / "airports.csv"
CLOSED = 75  # EX_TEMPFAIL
Row = dict[str, str]


def height(rows: list[Row]) -> list[dict[str, Any]]:
    """The five highest."""
    found = sorted(rows, key=lambda row: float(row["elevation"]), reverse=True)[:5]
    return [{"airport": row["name"], "country": row["country"], "feet": float(row["elevation"])} for row in found]


def reach(rows: list[Row]) -> list[dict[str, Any]]:
    """The northernmost and the southernmost."""
    found = sorted(rows, key=lambda row: float(row["lat"]))
    return [
        {"airport": row["name"], "country": row["country"], "latitude": float(row["lat"])}
        for row in (found[-1], found[0])
    ]


def zones(rows: list[Row]) -> list[dict[str, Any]]:
    """The five time zones with the most airports."""
    return [{"zone": zone, "airports": count} for zone, count in Counter(row["tz"] for row in rows).most_common(5)]


QUESTIONS = {"height": height, "reach": reach, "zones": zones}


def main(question: str) -> int:
    """Write `facts.json`."""
    given = packet.read()
    packet.tell(given, "asked")
    if question == "zones" and given["attempt"] == 1:
        print("the library is closed to this question: come back", file=sys.stderr)
        return CLOSED
    with SHEET.open(encoding="utf-8", newline="") as sheet:
        rows = list(csv.DictReader(sheet))
    facts = {"question": question, "airports": len(rows), "facts": QUESTIONS[question](rows)}
    packet.write("facts.json", json.dumps(facts, ensure_ascii=False, indent=1))
    print(f"{question}: {len(facts['facts'])} facts from {len(rows)} airports")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1]))
