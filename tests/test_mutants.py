"""The mutants themselves: each breaks something that stands in its chapter, and names tests that exist."""

from __future__ import annotations

import re

from fencepost import schema
from tests import mutants
from tests.tidy.tree import ROOT, text


def test_every_mutant_breaks_a_guard_that_stands_in_its_chapter() -> None:
    chapters = {script.name: script.text for script in schema.chapters()}
    faults = []
    for mutant in mutants.every().values():
        try:
            assert mutants.apply(mutant, chapters[mutant.chapter]) != chapters[mutant.chapter]
        except AssertionError as error:
            faults.append(f"{mutant.chapter}: {error}")
    assert not faults, "\n".join(faults)


def test_every_mutant_names_tests_that_exist() -> None:
    faults = []
    for mutant in mutants.every().values():
        for test in mutant.tests:
            path, _, name = test.partition("::")
            where = ROOT / path if path.startswith("tests/") else ROOT / "tests" / "laws" / path
            function = name.partition("[")[0]
            if not where.is_file() or (
                function and not re.search(rf"^(?:async )?def {function}\(", text(where), re.MULTILINE)
            ):
                faults.append(f"{mutant.guard}: {test}")
    assert not faults, "\n".join(faults)
