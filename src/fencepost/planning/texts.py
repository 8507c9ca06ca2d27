"""The texts of a step that are given to a program, and may hold templates: arguments, variables, cwd and stdin."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

from fencepost.planning import model, templates
from fencepost.planning.faults import At
from fencepost.planning.fields import Table, bad_text
from fencepost.shown import clip

RESERVED: Final = ("FENCEPOST_PACKET", "FENCEPOST_OUTPUTS")
TEXT_BYTES_MAX: Final = 128 * 1024  # of one argument or variable: what Linux takes (MAX_ARG_STRLEN)


@dataclass(slots=True)
class Texts:
    """Judges the texts of a step that may hold templates."""

    table: Table
    modes: Mapping[str, str]
    outputs: dict[str, model.Output] | None

    def text(self, key: str, *, empty: bool = False, one: bool = True) -> str | None:
        """A field of text; None where there is none."""
        found = self.table.text(key, empty=empty)
        return None if found is None else self.judged((*self.table.at, key), found, one=one)

    def judged(self, at: At, text: str, *, one: bool = True) -> str:
        """The text. `one`: it becomes one argument or variable, which has a limit."""
        if "{" in text or "}" in text:
            sources = None if self.outputs is None else {name: found.from_ for name, found in self.outputs.items()}
            for problem in templates.check(text, self.modes, sources, self.table.faults.like):
                self.table.faults.add(at, problem)
        if one and len(text) > TEXT_BYTES_MAX // 4 and len(text.encode()) >= TEXT_BYTES_MAX:
            self.table.faults.add(
                at,
                f"has {len(text.encode()):,} bytes, and no program can be given {TEXT_BYTES_MAX:,}: hand it over as a file",
            )
        return text

    def env(self) -> dict[str, str]:
        """The variables that a step sets."""
        found = self.table.texts("env", 'env = { LANG = "C.UTF-8" }')
        for name, value in found.items():
            at = (*self.table.at, "env", name)
            if not name or "=" in name or bad_text(name):
                self.table.faults.add(at, f"{clip(name, 80)!r} cannot name a variable: write a name without =")
            elif name in RESERVED:
                self.table.faults.add(at, "is set for every attempt and cannot be changed: take it out")
            self.judged(at, value)
        return found
