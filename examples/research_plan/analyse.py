"""The second agent: reads what the first one gathered, and says what it means. Its findings are on stdout, as JSON."""

from __future__ import annotations

import json
import sys
from collections import Counter

from examples import packet


def main() -> int:
    """Judge the facts; each finding names what it rests on."""
    given = packet.read()
    packet.tell(given, "analysed")
    height, reach, zones = (packet.value(given, name) for name in ("height", "reach", "zones"))
    print(f"reading {sum(len(one['facts']) for one in (height, reach, zones))} facts", file=sys.stderr, flush=True)
    packet.stand(given)
    country, count = Counter(one["country"] for one in height["facts"]).most_common(1)[0]
    north, south = reach["facts"]
    first = zones["facts"][0]
    findings = [
        {"says": f"{count} of the {len(height['facts'])} highest airports are in {country}", "rests_on": "height"},
        {"says": f"from {north['airport']} to {south['airport']} it is {north['latitude'] - south['latitude']:.1f} degrees", "rests_on": "reach"},
        {"says": f"{100 * first['airports'] / zones['airports']:.1f} % of them keep the time of {first['zone']}", "rests_on": "zones"},
    ]  # fmt: skip
    print(json.dumps({"airports": height["airports"], "findings": findings}, ensure_ascii=False))
    return 0


if __name__ == "__main__":
    sys.exit(main())
