"""The third agent: writes the report. It quotes the facts word by word, and says of each finding where it comes from.

python3 -m examples.research_plan.write HEADLINE < the task
"""

from __future__ import annotations

import json
import sys
from pathlib import Path

from examples import packet


def main(headline: str, findings: Path) -> int:
    """Write `report.md`."""
    given = packet.read()
    packet.tell(given, "written")
    task = sys.stdin.read().strip()
    found = json.loads(findings.read_text(encoding="utf-8"))
    lines = [f"# {headline}", "", f"*{task}*", ""]
    lines += [f"{number}. {one['says']} [{one['rests_on']}]" for number, one in enumerate(found["findings"], start=1)]
    lines += [
        "",
        "## The facts, as they were given",
        "",
        "```json",
        packet.text(given, "height"),
        "```",
        "",
        "## Sources",
        "",
    ]
    lines += [f"- {name}: {packet.source(given, name)}" for name in sorted(given["inputs"])]
    packet.stand(given)
    packet.write("report.md", "\n".join(lines) + "\n")
    print(f"{len(found['findings'])} findings")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1], Path(sys.argv[2])))
