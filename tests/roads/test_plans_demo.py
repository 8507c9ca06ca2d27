"""The two plans of the examples, as a user plays them: killed in the middle, typed again, counted outside."""

from __future__ import annotations

import asyncio
import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from examples.release_notes import topics

ROOT = Path(__file__).resolve().parents[2]
BUNDLE = ROOT / "examples" / "release_notes" / "history.bundle"


@pytest.mark.timeout(300)
async def test_both_plans_survive_their_kill_and_keep_every_result_once(dsn: str, tmp_path: Path) -> None:
    """70.6, 70.10 One object, counted in a book outside and in the ledger."""
    kept = {name: value for name, value in os.environ.items() if not name.startswith("FENCEPOST_")}
    process = await asyncio.create_subprocess_exec(
        sys.executable, "-m", "examples.plans", "--json", cwd=ROOT,
        env=kept | {"FENCEPOST_DATABASE_URL": dsn, "FENCEPOST_FILES": str(tmp_path / "files"), "TMPDIR": str(tmp_path)},
        stdout=asyncio.subprocess.PIPE, stderr=asyncio.subprocess.PIPE,
    )  # fmt: skip
    out, err = await process.communicate()
    assert process.returncode == 0, (out.decode(), err.decode())
    (line,) = out.decode().splitlines()
    assert json.loads(line) == {
        "plans": 2, "kills": 2, "steps": 11, "committed": 11, "committed_twice": 0, "begun": 11, "begun_unasked": 0, "met_again": 2,
        "ok": True,
    }  # fmt: skip
    assert [path.name for path in tmp_path.iterdir()] == ["files"], "it leaves nothing but the files of its attempts"


def test_the_history_is_real_and_small() -> None:
    assert BUNDLE.stat().st_size < 300_000
    said = subprocess.run(
        ["git", "bundle", "list-heads", str(BUNDLE)], capture_output=True, text=True, check=True
    ).stdout
    assert [line.split()[1] for line in said.splitlines()] == ["HEAD", "refs/heads/main"]


def test_every_commit_has_one_heading() -> None:
    log = "a1\t2026-11-29\tLaws of lanes attacked\nb2\t2026-11-29\tSomething else\nc3\t2026-11-30\tThe worker sleeps"
    found = topics.group(log)
    assert found == {
        "commits": 3,
        "topics": [
            {
                "heading": "Laws and tests",
                "commits": [{"commit": "a1", "day": "2026-11-29", "subject": "Laws of lanes attacked"}],
            },
            {
                "heading": "The worker",
                "commits": [{"commit": "c3", "day": "2026-11-30", "subject": "The worker sleeps"}],
            },
            {
                "heading": "Everything else",
                "commits": [{"commit": "b2", "day": "2026-11-29", "subject": "Something else"}],
            },
        ],
    }
