"""Publishes the notes: an effect outside, so it happens at most once, and when it is lost a person is asked."""

from __future__ import annotations

import json

from examples import packet


def main() -> None:
    """Write it into the book; say on stdout what was published."""
    given = packet.read()
    notes = packet.text(given, "notes")
    packet.tell(given, "published")
    packet.stand(given)
    print(json.dumps({"published": given["inputs"]["notes"]["digest"], "lines": len(notes.splitlines())}))


if __name__ == "__main__":
    main()
