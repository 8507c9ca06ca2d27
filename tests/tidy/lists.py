"""What the house rules let pass, each entry with its reason. These lists shrink; a longer one is a decision."""

from __future__ import annotations

# Laws of existing chapters that have nothing here yet to attack. An entry that gains a test must go.
LAWS_WITHOUT_TEST: dict[str, str] = {}

# Laws whose chapter keeps them outside SQL, so that the chapter's header need not name them.
LAWS_KEPT_ELSEWHERE: dict[str, str] = {}

# (chapter, object of a later chapter): why the chapter must name it all the same.
FORWARD: dict[tuple[str, str], str] = {}

# Doors that Python never asks: they are for SQL callers and operators.
SQL_ONLY_DOORS: dict[str, str] = {}

# Files over 400 lines: why they are one room all the same.
LONG_FILES: dict[str, str] = {}

# Functions of src/ over 45 lines, "file:qualified name" -> the length they may not exceed. A ratchet: only downward.
LONG_FUNCTIONS: dict[str, int] = {}

# Files that may print: they speak to a person.
PRINTING = ("src/fencepost/cli", "src/fencepost/demo")
