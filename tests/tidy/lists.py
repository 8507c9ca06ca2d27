"""What the house rules let pass, each entry with its reason. These lists shrink; a longer one is a decision."""

from __future__ import annotations

# Laws of existing chapters that have nothing here yet to attack. An entry that gains a test must go.
LAWS_WITHOUT_TEST: dict[str, str] = {
    "10.6": "adoption of a retired lane's waits comes with its own piece; until then a run stays on its lane",
    "10.8": "the same: no lane can be retired yet",
    "60.7": "approvals come with the people's door; a wait_for with a time-out is told apart by 60.5",
}

# Laws whose chapter keeps them outside SQL, so that the chapter's header need not name them.
LAWS_KEPT_ELSEWHERE: dict[str, str] = {
    "00.5": "values.py: judged at the edge, before SQL sees them",
    "00.6": "values.py and decoding.py: the database decodes nothing",
    "00.9": "99_grants.sql",
    "00.11": "db.py: a process counts its own connections",
    "00.12": "settings.py and db.py",
    "00.13": "30, 40 and every set-based door: the gate's `again`",
    "00.16": "15_shapes.sql and 90_ledger.sql",
    "10.6": "adoption comes with its own piece",
    "10.7": "the same",
    "10.8": "the same",
    "50.8": "made of steps and maps: worker/waterfall.py and worker/batches.py",
    "50.9": "55_shared.sql",
    "60.7": "approvals come with the people's door",
}

# (chapter, object of a later chapter): why the chapter must name it all the same.
FORWARD: dict[tuple[str, str], str] = {
    ("35", "advance_"): "the transaction that ends a step's run advances its plan (70.12), and a plan ends as runs do",
}

# Doors that Python never asks: they are for SQL callers and operators.
SQL_ONLY_DOORS: dict[str, str] = {
    "admit_run": "for SQL callers, in their own transaction; Python admits through admit_launches",
    "send_signal": "for SQL callers; Python sends through send_signals",
    "read_version": "asked by schema.py before the version is known, so not through db.call",
}

# Files over 400 lines: why they are one room all the same.
LONG_FILES: dict[str, str] = {
    "src/fencepost/sql/migrations/0001_first.sql": "the first migration is the chapters, one after the other",
}

# Functions of src/ over 45 lines, "file:qualified name" -> the length they may not exceed. A ratchet: only downward.
LONG_FUNCTIONS: dict[str, int] = {}

# Files that read a machine's clock, and the reason why nothing is decided by it.
MACHINE_CLOCKS: dict[str, str] = {
    "src/fencepost/client/__init__.py": "the first part of an id that nobody gave, for its place in the index",
}

# Files that may print: they speak to a person.
PRINTING = ("src/fencepost/cli", "src/fencepost/demo")
