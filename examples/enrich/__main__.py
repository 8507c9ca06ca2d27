"""`python -m examples.enrich`: a waterfall over real airports; a worker is killed in the middle, and nobody is paid twice.

stdout: one JSON object. stderr: the story. Exit 0 exactly if `ok`.
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import json
import os
import secrets
import signal
import sys
import tempfile
from collections import Counter
from pathlib import Path
from typing import Any

from examples.airports import work
from examples.enrich.app import Country, app, enrich
from examples.enrich.providers import NAMES, Provider, countries, expected
from fencepost import RunUnknown
from fencepost.postgres import open_home
from fencepost.settings import read_settings

ROOT = Path(__file__).resolve().parents[2]
PATIENCE = 120.0  # seconds for anything to happen
LOOKS = 5  # at the bills: a call that is made again may be lost again


def main() -> int:
    """Play it; the exit code."""
    parser = argparse.ArgumentParser(prog="python -m examples.enrich", description=__doc__)
    parser.add_argument("--rows", type=int, default=90, help="how many airports (90)")
    rows = parser.parse_args().rows
    with contextlib.ExitStack() as stack:
        settings = read_settings()
        if settings.database_url is None:
            home = settings.home.absolute()
            say(f"the database is in {home}")
            os.environ["FENCEPOST_DATABASE_URL"] = stack.enter_context(open_home(home, create=True)).dsn
        # A release of its own: its workers meet nobody else's runs, and nobody else's meet its.
        os.environ["FENCEPOST_RELEASE"] = f"enrich-{secrets.token_hex(4)}"
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="fencepost-enrich-")))
        result = asyncio.run(play(work.read_rows(work.AIRPORTS, rows), folder))
    print(json.dumps(result))
    return 0 if result["ok"] else 1


async def play(rows: list[work.Row], folder: Path) -> dict[str, Any]:
    """Three services, two workers, one kill, one person who looks at a bill."""
    await command("migrate")
    middle = Middle(len(rows) // 3)
    icaos = [row["icao"] for row in rows]
    async with contextlib.AsyncExitStack() as stack:
        known = countries()
        providers = [await stack.enter_async_context(Provider(name, folder, known, middle.charged)) for name in NAMES]
        os.environ.update({f"ENRICH_{provider.name.upper()}": provider.url for provider in providers})
        stack.push_async_callback(app.client().close)
        token = os.environ["FENCEPOST_RELEASE"]
        handles = [await app.start(enrich, icao, id=f"{token}:{icao}") for icao in icaos]
        say(f"{len(rows)} airports wait; the first worker starts")
        first = await worker(folder, stack)
        async with asyncio.timeout(PATIENCE):
            await middle.reached.wait()
        os.kill(first.pid, signal.SIGKILL)
        killed = await first.wait() == -signal.SIGKILL
        middle.go_on.set()
        say(f"worker {first.pid} was killed while a service had charged and not answered; the second starts")
        await worker(folder, stack)
        done, by_hand = await asyncio.gather(*(result(handle) for handle in handles)), list[str]()
        for _ in range(LOOKS):
            waiting = [handle.id for handle, one in zip(handles, done, strict=True) if one is None]
            if not waiting:
                break
            say(f"{len(waiting)} wait for somebody who looks at a bill")
            by_hand += [await resolve(run_id, providers) for run_id in waiting]
            done = await asyncio.gather(*(result(handle) for handle in handles))
        return judge(icaos, done, providers, known, by_hand, killed=killed)


class Middle:
    """The moment to kill in: the nth charge is on the bill, and its answer waits until that is done."""

    def __init__(self, nth: int) -> None:
        self.reached = asyncio.Event()
        self.go_on = asyncio.Event()
        self._left = nth

    async def charged(self) -> None:
        self._left -= 1
        if self._left == 0:
            self.reached.set()
            await self.go_on.wait()


async def result(handle: Any) -> Country | None:
    """What a run came to; None: it is unknown."""
    try:
        found: Country = await handle.result(timeout=PATIENCE)
    except RunUnknown:
        return None
    return found


async def resolve(run_id: str, providers: list[Provider]) -> str:
    """A person looks at the bill, and says what became of the call.

    It is the registry's, which nobody can look up; on a slow machine also one that came so late that its look-up was too early.
    """
    shown = json.loads(await command("runs", "show", run_id, "--json"))
    step = next(step for step in shown["steps"] if step["state"] == "unknown")
    asked = next(provider for provider in providers if provider.name == step["name"])
    icao = run_id.rpartition(":")[2]
    billed = [
        country for _, said, country in asked.bill() if said == icao
    ]  # charged, and what was said: that may be nothing
    word = ["completed", "--value", json.dumps(billed[0])] if billed else ["again"]
    await command("runs", "resolve", run_id, "--step", f"{step['name']}#{step['ordinal']}", *word)
    return run_id


def judge(
    icaos: list[str], done: list[Country | None], providers: list[Provider], known: dict[str, str | None], by_hand: list[str], *, killed: bool
) -> dict[str, Any]:  # fmt: skip
    """What came of it, counted at the services."""
    paid = Counter((provider.name, icao) for provider in providers for _, icao, _ in provider.bill())
    looked_up = {(provider.name, key) for provider in providers for key in provider.calls("GET")}
    answers = {one.icao: one for one in done if one is not None}
    right = all(
        icao in answers
        and answers[icao].provider == expected(icao)
        and answers[icao].country == (None if expected(icao) == "nobody" else known[icao])
        for icao in icaos
    )
    twice = sum(n - 1 for n in paid.values())
    early = sum(provider.early for provider in providers)
    return {
        "rows": len(icaos),
        "answered_by": dict(sorted(Counter(one.provider for one in answers.values()).items())),
        "calls": {provider.name: len(provider.calls("POST")) for provider in providers},
        "paid": len(paid),
        "paid_twice": twice,
        "asked_too_early": early,
        "unknown": len(looked_up) + len(by_hand),
        "resolved": {"lookup": len(looked_up), "operator": len(by_hand)},
        "ok": killed and right and twice == 0 and early == 0,
    }


async def worker(folder: Path, stack: contextlib.AsyncExitStack) -> asyncio.subprocess.Process:
    """A worker process; it is gone when the stack is left."""
    with (folder / "worker.log").open("ab") as log:
        process = await asyncio.create_subprocess_exec(
            sys.executable, "-m", "fencepost", "worker", "examples.enrich.app:app", "--concurrency", "8", cwd=ROOT, stdout=log, stderr=log,
            start_new_session=True,
        )  # fmt: skip
    stack.push_async_callback(end, process)
    return process


async def end(process: asyncio.subprocess.Process) -> None:
    """Kill it, if it lives."""
    with contextlib.suppress(ProcessLookupError):
        process.kill()
    await process.wait()


async def command(*words: str) -> str:
    """What `fencepost` says to these words. Raises RuntimeError with its complaint."""
    process = await asyncio.create_subprocess_exec(
        sys.executable, "-m", "fencepost", *words, cwd=ROOT, stdout=asyncio.subprocess.PIPE, stderr=asyncio.subprocess.PIPE
    )  # fmt: skip
    said, complaint = await process.communicate()
    if process.returncode != 0:
        raise RuntimeError(f"fencepost {' '.join(words)}: {complaint.decode() or said.decode()}")
    return said.decode()


def say(words: str) -> None:
    """A line of the story."""
    print(words, file=sys.stderr, flush=True)


if __name__ == "__main__":
    sys.exit(main())
