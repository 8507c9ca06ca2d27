"""A step in Python: which commit belongs under which heading. Its argument is the step's inputs, its value the step's result."""

from __future__ import annotations

import re

# Heading -> what a subject says that belongs there; the first that fits takes it.
HEADINGS = {
    "Laws and tests": r"\b(laws?|tests?|attacked|mutants?|crash|races?)\b",
    "Examples and pages": r"\b(demo|examples?|pages|readme)\b",
    "The worker": r"\b(worker|heartbeat|claims?|legs?|replay)\b",
    "The database": r"\b(sql|postgresql|schema|doors?|gate|ledger|migration)\b",
    "The command line": r"\b(command|settings|client|run waits|explain)\b",
}
REST = "Everything else"


def group(log: str) -> dict[str, object]:
    """`log`: a line a commit, `<hash> TAB <day> TAB <subject>`. Headings in the order of the list, without empty ones."""
    found: dict[str, list[dict[str, str]]] = {heading: [] for heading in (*HEADINGS, REST)}
    for line in log.splitlines():
        commit, day, subject = line.split("\t", 2)
        found[heading_of(subject)].append({"commit": commit, "day": day, "subject": subject})
    kept = [{"heading": heading, "commits": commits} for heading, commits in found.items() if commits]
    return {"commits": sum(len(one["commits"]) for one in kept), "topics": kept}


def heading_of(subject: str) -> str:
    """Where a commit belongs, by its subject alone."""
    return next((heading for heading, words in HEADINGS.items() if re.search(words, subject, re.IGNORECASE)), REST)
