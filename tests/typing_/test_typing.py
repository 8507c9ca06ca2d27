"""A wrong argument is a type error, to both checkers, on its line; correct uses are none."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from pathlib import Path

import pytest

HERE = Path(__file__).parent
ROOT = HERE.parent.parent


def by_mypy(file: str) -> dict[int, str]:
    """Line -> error. Errors in other files are told too, by line 0."""
    done = subprocess.run(
        [sys.executable, "-m", "mypy", "--strict", "--no-error-summary", "--hide-error-context", str(HERE / file)],
        cwd=ROOT, capture_output=True, text=True, check=False, timeout=300,
    )  # fmt: skip
    found = {}
    for path, line, said in re.findall(r"^(\S+?):(\d+): error: (.*)$", done.stdout, re.MULTILINE):
        found[int(line) if path.endswith(file) else 0] = f"{path}: {said}"
    assert done.returncode in (0, 1), done.stdout + done.stderr
    return found


def by_pyright(file: str) -> dict[int, str]:
    done = subprocess.run(
        [sys.executable, "-m", "pyright", "--outputjson", str(HERE / file)],
        cwd=ROOT, capture_output=True, text=True, check=False, timeout=300,
    )  # fmt: skip
    assert done.returncode in (0, 1), done.stdout + done.stderr
    told = [one for one in json.loads(done.stdout)["generalDiagnostics"] if one["severity"] == "error"]
    return {one["range"]["start"]["line"] + 1: one["message"] for one in told}


CHECKERS = pytest.mark.parametrize("check", [by_mypy, by_pyright])
pytestmark = pytest.mark.timeout(600)


@CHECKERS
def test_every_typical_mistake_is_an_error_on_its_line(check) -> None:
    marked = {n for n, line in enumerate((HERE / "wrong.py").read_text().splitlines(), 1) if line.endswith("# wrong")}
    found = check("wrong.py")
    assert len(marked) > 30
    assert sorted(marked - set(found)) == [], "accepted, and wrong"
    assert {line: said for line, said in found.items() if line not in marked} == {}, "wrong, and not marked"


@CHECKERS
def test_correct_uses_pass(check) -> None:
    assert check("right.py") == {}
