"""`fencepost bench`: this machine's figures, beside the peers and the floor. From a checkout, where the benchmark lies."""

from __future__ import annotations

import os
import sys
from pathlib import Path

import click

from fencepost.cli import say
from fencepost.cli.say import USAGE, Stop


@click.command()
@click.option("--quick", is_flag=True, help="What the targets need, within 25 minutes on 2 quiet cores.")
@click.option("--rounds", type=click.IntRange(1, 100), help="Interleaved rounds, of which the medians are told (3).")
@click.option("--tests", metavar="LETTERS", help="Some of A to H.")
@click.option("--systems", metavar="NAMES", help="Some of us, floor and the peers, with commas.")
@click.option("--json", "as_json", is_flag=True, help="One object on one line, and nothing else, on stdout.")
def bench(quick: bool, rounds: int | None, tests: str | None, systems: str | None, as_json: bool) -> int:
    """Measure us, the peers and the floor in one run. Exit 0: measured, 1: something of ours could not be, 5: no server."""
    root = checkout()
    if root is None:
        raise Stop(
            USAGE, "NOT_FOUND",
            "the benchmark is not part of the installed package: in a checkout of the source, say `make bench`",
        )  # fmt: skip
    python = root / ".venv-bench" / "bin" / "python"
    if not python.exists():
        say.words("the peers are not installed, and are left out: `make bench` installs them into .venv-bench")
        python = Path(sys.executable)
    words = ["--quick"] if quick else []
    words += ["--json"] if as_json else []
    for word, value in (("--rounds", rounds), ("--tests", tests), ("--systems", systems)):
        words += [] if value is None else [word, str(value)]
    os.chdir(root)
    os.execv(python, [str(python), "-m", "bench", *words])  # noqa: S606 - its signals and its exit code are ours


def checkout() -> Path | None:
    """The folder of the source that this package runs from, if it is one."""
    root = Path(__file__).resolve().parents[3]
    return root if (root / "bench" / "__main__.py").exists() and (root / "pyproject.toml").exists() else None
