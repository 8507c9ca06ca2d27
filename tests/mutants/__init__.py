"""Each guard of the law, broken on purpose: a test must turn red.

A mutant is a guard's name, the chapter, the text that keeps it, what stands there instead, and the tests that must
notice. `python -m tests.mutants` tries them all; a test session wears one with FENCEPOST_SQL_MUTANT=<key>, the
product never does.
"""

from __future__ import annotations

import dataclasses
import importlib
import os
import pkgutil
from dataclasses import dataclass
from types import ModuleType

from fencepost.schema import Script

WORN = "FENCEPOST_SQL_MUTANT"


@dataclass(frozen=True, slots=True)
class Mutant:
    """`tests`: node ids below tests/laws, or whole files; one of them must fail while the mutant is worn."""

    guard: str
    chapter: str
    text: str
    instead: str
    tests: tuple[str, ...]
    count: int = 1  # how often the text stands in the chapter

    @property
    def key(self) -> str:
        """The chapter's number and the guard: what FENCEPOST_SQL_MUTANT says."""
        return f"{self.chapter[:2]} {self.guard}"


def every() -> dict[str, Mutant]:
    """Key -> mutant, from the tables beside this file."""
    found: dict[str, Mutant] = {}
    for module in pkgutil.iter_modules(__path__):
        if not module.name.startswith("chapter_"):
            continue
        for mutant in importlib.import_module(f"{__name__}.{module.name}").MUTANTS:
            assert mutant.key not in found, mutant.key
            found[mutant.key] = mutant
    return found


def wear(schema: ModuleType) -> None:
    """Give this process the chapters with the mutant that the environment names, if it names one."""
    guard = os.environ.get(WORN)
    if guard:
        chapters = schema.chapters
        schema.chapters = lambda: mutated(every()[guard], chapters())


def mutated(mutant: Mutant, scripts: list[Script]) -> list[Script]:
    """The chapters with one guard broken."""
    assert any(script.name == mutant.chapter for script in scripts), mutant.chapter
    return [
        dataclasses.replace(script, text=apply(mutant, script.text)) if script.name == mutant.chapter else script
        for script in scripts
    ]


def apply(mutant: Mutant, text: str) -> str:
    """The chapter's text with its guard broken; raises AssertionError when the guard is not where the table says."""
    assert text.count(mutant.text) == mutant.count, (
        f"{mutant.guard}: {mutant.chapter} has not {mutant.count} times {mutant.text!r}"
    )
    return text.replace(mutant.text, mutant.instead)
