"""Migration 0001, written from the chapters: `python -m tests.tidy.freeze`.

The grants (99) are left out: they run after every migration. Once a second migration exists, 0001 is history.
"""

from __future__ import annotations

from fencepost.schema import SCHEMA_VERSION
from tests.tidy.sql import chapters
from tests.tidy.tree import SQL, name

FIRST = SQL / "migrations" / "0001_first.sql"


def frozen() -> str:
    """What the first migration must hold while it is the only one."""
    parts = ["-- 0001_first.sql: the chapters, as the first release had them. Written by tests/tidy/freeze.py.\n"]
    parts += [path.read_text(encoding="utf-8") for number, path in sorted(chapters().items()) if number != "99"]
    return "\n".join(parts)


if __name__ == "__main__":
    assert SCHEMA_VERSION == 1, "a released migration is never written again"
    FIRST.parent.mkdir(exist_ok=True)
    FIRST.write_text(frozen(), encoding="utf-8")
    print(name(FIRST))
