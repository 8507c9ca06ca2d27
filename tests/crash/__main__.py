"""`python -m tests.crash`: see the package's text. The exit code is 1 when anything came out wrong or was never hit."""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import datetime as dt
import shutil
import signal
import sys
import tempfile
import time
from collections.abc import AsyncIterator, Callable
from pathlib import Path

from fencepost.testing import TemplateDatabase
from tests.crash import place
from tests.crash.boundaries import Boundary
from tests.crash.campaign import Campaign, every
from tests.crash.stage import Stage


def today() -> int:
    """The seed of this day: what is chosen by chance is another each day, and the same all day."""
    return dt.datetime.now(dt.UTC).date().toordinal()


async def perform(
    template: TemplateDatabase, folder: Path, said: argparse.Namespace, say: Callable[[str], None] = print
) -> bool:
    """A campaign on a server; whether everything came out right."""
    scenarios = [s for s in every() if not said.scenario or s.name in said.scenario]
    if not scenarios:
        raise SystemExit(f"no such scenario; there are: {', '.join(s.name for s in every())}")

    @contextlib.asynccontextmanager
    async def opened(name: str) -> AsyncIterator[Stage]:
        async with template.clone() as installation, Stage(installation, folder, name) as stage:
            yield stage

    until = None if said.slice is None else time.monotonic() + said.slice
    campaign = Campaign(opened, seed=said.seed, until=until, say=say, at_once=4 if until else 10**9)
    boundaries = [Boundary.parse(text) for text in said.boundary] or None
    return await campaign.run(min(said.lanes, len(scenarios)), scenarios, boundaries, said.second)


def arguments(words: list[str]) -> argparse.Namespace:
    parser = argparse.ArgumentParser("python -m tests.crash", description="kill at every boundary, heal, judge")
    parser.add_argument("--all", action="store_true", help="every boundary of every scenario")
    parser.add_argument("--slice", type=float, metavar="SECONDS", help="as much as fits, another part each day")
    parser.add_argument("--scenario", action="append", default=[], metavar="NAME")
    parser.add_argument("--boundary", action="append", default=[], metavar="POINT[WHAT]:N")
    parser.add_argument("--second", type=int, metavar="NTH", help="kill the second victim at its nth boundary")
    parser.add_argument("--seed", type=int, default=today())
    parser.add_argument("--lanes", type=int, default=2, choices=(1, 2))
    said = parser.parse_args(words)
    if said.slice is None and not said.all and not said.scenario:
        said.slice = 120.0
    return said


async def _main(said: argparse.Namespace, server: str, folder: Path) -> bool:
    return await perform(await place.template(server), folder, said)


def main(words: list[str]) -> int:
    said = arguments(words)
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))  # so that the server goes too
    started = time.monotonic()
    folder = Path(tempfile.mkdtemp(prefix="fp-crash-logs-", dir=place.fast_place()))
    fine = False
    try:
        with place.server() as server:
            fine = asyncio.run(_main(said, server, folder))
    finally:
        if fine:
            shutil.rmtree(folder, ignore_errors=True)
        else:
            print(f"seed {said.seed}; logs: {folder}")
    print(f"{'all right' if fine else 'BROKEN'} in {time.monotonic() - started:.0f} s")
    return 0 if fine else 1


if __name__ == "__main__":
    sys.stdout.reconfigure(line_buffering=True)  # type: ignore[union-attr]  # a text stream
    sys.exit(main(sys.argv[1:]))
