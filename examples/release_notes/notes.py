"""Writes the notes of the release from what three steps found out."""

from __future__ import annotations

from examples import packet


def main() -> None:
    """Read the packet, write `notes.md`."""
    given = packet.read()
    packet.tell(given, "notes")
    grouped = packet.value(given, "topics")
    lines = ["# Release notes", "", f"{grouped['commits']} commits; {packet.text(given, 'size').strip()}.", ""]
    packet.stand(given)
    for topic in grouped["topics"]:
        lines += [f"## {topic['heading']}", ""]
        lines += [f"- {one['subject']} ({one['commit']}, {one['day']})" for one in topic["commits"]]
        lines.append("")
    lines += ["## By", "", *(f"- {line.strip()}" for line in packet.text(given, "authors").splitlines()), ""]
    lines += [f"From {', '.join(packet.source(given, name) for name in ('topics', 'size', 'authors'))}."]
    packet.write("notes.md", "\n".join(lines) + "\n")
    print(f"{len(grouped['topics'])} headings")


if __name__ == "__main__":
    main()
