"""`python -m bench`: every system of the benchmark, one after the other, in rounds; one table, or with --json one object on one line."""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import json
import os
import platform
import signal
import sys
import tempfile
import time
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import asyncpg

from bench import plots, sizes, table, targets
from bench.board import Board
from bench.field import Field
from bench.load import Machine
from bench.processes import ROOT
from bench.run import Run
from bench.server import home, served
from bench.systems import SYSTEMS, system_class
from bench.trials import TRIALS
from fencepost.cli import say
from fencepost.postgres import NoPostgres

RESULTS = ROOT / "bench" / "results"


def parser() -> argparse.ArgumentParser:
    made = argparse.ArgumentParser(prog="make bench", description=__doc__)
    made.add_argument("--quick", action="store_true", help="what the targets need, within 25 minutes on 2 quiet cores")
    made.add_argument("--tiny", action="store_true", help=argparse.SUPPRESS)
    made.add_argument("--json", action="store_true", help="one object on one line, and nothing else on stdout")
    made.add_argument("--rounds", type=int, help="interleaved rounds, of which the medians are told (3)")
    made.add_argument("--systems", default=",".join(SYSTEMS), help="some of: %(default)s")
    tests = "".join(sorted({trial.test for trial in TRIALS}))
    made.add_argument("--tests", default=tests, help=f"letters, of {tests}")
    made.add_argument("--trials", default="", help=f"some of: {', '.join(trial.name for trial in TRIALS)}")
    return made


def asked(words: argparse.Namespace, refuse: Any) -> tuple[list[str], sizes.Sizes]:
    """The systems, and how much of each. Calls `refuse` with a sentence for words that mean nothing."""
    names = [name for name in words.systems.split(",") if name]
    known = {trial.name for trial in TRIALS}
    unknown = [name for name in names if name not in SYSTEMS]
    unknown += [name for name in words.trials.split(",") if name and name not in known]
    if unknown or not names:
        refuse(f"there is no {', '.join(unknown) or 'system'}: see --help")
    if words.rounds is not None and words.rounds < 1:
        refuse("--rounds must be at least 1")
    size = sizes.TINY if words.tiny else sizes.QUICK if words.quick else sizes.FULL
    return names, size if words.rounds is None else replace(size, rounds=words.rounds)


async def measure(
    words: argparse.Namespace, names: list[str], size: sizes.Sizes, dsn: str, settings: dict[str, str]
) -> Run:
    with tempfile.TemporaryDirectory(prefix="fencepost-board-", dir=_shared()) as folder:
        admin = await asyncpg.connect(dsn)
        version = await admin.fetchval("show server_version")
        checkpointer = await admin.fetchval("select pid from pg_stat_activity where backend_type = 'checkpointer'")
        await admin.close()
        machine = Machine(_parent(checkpointer), budget=size.calm * 40)
        board = Board(Path(folder) / "board", create=True)
        field = Field(
            dsn, board, machine, size, home(RESULTS) / "files", statements="shared_preload_libraries" in settings
        )
        await field.enter(names)
        stamp = time.strftime("%Y%m%dT%H%M%S")
        run = Run(field, RESULTS / f"{stamp}-{os.getpid()}.jsonl", header(field, version, settings, words))
        chosen = [trial for trial in TRIALS if trial.test in words.tests]
        if words.trials:
            named = [trial for trial in TRIALS if trial.name in words.trials.split(",")]
            chosen = [trial if trial.quick == "all" else replace(trial, quick="once") for trial in named]
        await run.rounds(chosen)
        return run


def header(field: Field, version: str, settings: dict[str, str], words: argparse.Namespace) -> dict[str, Any]:
    """What was measured, on what, with which settings."""
    return {
        "python": platform.python_version(), "postgres": version, "machine": f"{platform.system()} {platform.machine()}",
        "cores": os.cpu_count(), "settings": settings, "versions": field.versions, "missing": field.missing,
        "system_settings": {name: _settings(name) for name in field.versions}, "quick": words.quick,
    }  # fmt: skip


def _settings(name: str) -> str:
    cls = system_class(name)
    told = [", ".join(f"{word} {value}" for word, value in cls.settings.items())]
    told += [
        f"{trial}: " + ", ".join(f"{word} {value}" for word, value in changed.items())
        for trial, changed in cls.trial_settings.items()
    ]
    return "; ".join(part for part in [*told, f"loop {cls.loop}"] if part)


def _parent(pid: int) -> int:
    return int(Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[1])


def _shared() -> str | None:
    return "/dev/shm" if os.access("/dev/shm", os.W_OK) else None


def _interrupted(*_: object) -> None:
    raise KeyboardInterrupt


def main(given: Sequence[str] | None = None) -> int:
    """0: measured, whatever met its target. 1: something of ours could not be. 2: words that mean nothing. 5: no server. 130: interrupted."""
    made = parser()
    words = made.parse_args(given)
    names, size = asked(words, made.error)
    if not sys.platform.startswith("linux"):
        made.error("CPU and memory are read from /proc: the benchmark runs on Linux")
    signal.signal(signal.SIGTERM, _interrupted)
    try:
        with served(RESULTS) as (dsn, settings):
            run = asyncio.run(measure(words, names, size, dsn, settings))
    except NoPostgres as error:
        return say.refuse(say.Stop(say.NO_DATABASE, "NO_DATABASE", str(error)), as_json=words.json)
    except KeyboardInterrupt:
        return say.INTERRUPTED
    with contextlib.suppress(BrokenPipeError):
        if words.json:
            print(json.dumps(targets.verdict(targets.medians(run.measured))), flush=True)
        else:
            print("\n".join(table.rows(run.measured, missing=run.header["missing"])))
            print("\n".join(table.words(run.header, run.failures)), flush=True)
    print(f"drawn: {plots.write(run.results)}", file=sys.stderr)
    return say.FAILED if run.ours_failed else say.DONE


if __name__ == "__main__":
    sys.exit(main())
