"""`python -m examples.plans`: two plans, each killed in the middle of a program, and the same command typed again.

stdout: one JSON object. stderr: the story. Exit 0 exactly if `ok`.
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import hashlib
import json
import os
import secrets
import signal
import sys
import tempfile
from collections import Counter
from dataclasses import dataclass
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[1]
PATIENCE = 120.0  # seconds for anything to happen


@dataclass(frozen=True)
class Play:
    """A plan, the step to kill in, what its programs write into the book, and the page it ends with."""

    file: str
    middle: str
    begins: dict[str, int]
    page: str


PLAYS = (
    Play(
        "examples/release_notes/release-notes.toml", "publish",
        {"log": 1, "authors": 1, "size": 1, "notes": 1, "publish": 1}, "notes.notes",
    ),
    Play(
        "examples/research_plan/research-plan.toml", "analyst",
        {"height": 1, "reach": 1, "zones": 2, "analyst": 1, "writer": 1}, "writer.report",
    ),
)  # fmt: skip


def main() -> int:
    """Play both; the exit code."""
    parser = argparse.ArgumentParser(prog="python -m examples.plans", description=__doc__)
    parser.add_argument(
        "--json", action="store_true", help="nothing but the object: not the pages that the plans wrote"
    )
    quiet = parser.parse_args().json
    with tempfile.TemporaryDirectory(prefix="fencepost-plans-") as folder:
        found = [asyncio.run(Stage(play, Path(folder)).play(quiet=quiet)) for play in PLAYS]
    result = {
        "plans": len(found),
        "kills": sum(one["killed"] for one in found),
        "steps": sum(one["steps"] for one in found),
        "committed": sum(one["committed"] for one in found),
        "committed_twice": sum(one["committed_twice"] for one in found),
        "begun": sum(one["begun"] for one in found),
        "begun_unasked": sum(one["begun_unasked"] for one in found),
        "met_again": sum(one["met_again"] for one in found),
        "ok": all(one["ok"] for one in found),
    }
    print(json.dumps(result))
    return 0 if result["ok"] else 1


class Stage:
    """One plan, its book, and the gate at which its middle step stands."""

    def __init__(self, play: Play, folder: Path) -> None:
        token = secrets.token_hex(4)
        self._play = play
        self._id = f"{Path(play.file).stem}-{token}"
        self._book = folder / f"{self._id}.book"
        here = ["--here"] if os.environ.get("FENCEPOST_DATABASE_URL") else []
        self._words = ["plan", "run", play.file, "--id", self._id, "--json", *here]
        # A release of its own: nobody else's worker meets its steps.
        self._environ = os.environ | {
            "PLAN_BOOK": str(self._book), "FENCEPOST_RELEASE": f"plans-{token}",
        }  # fmt: skip

    async def play(self, *, quiet: bool) -> dict[str, Any]:
        """Run it, kill who runs it, run it again, and a third time when there is nothing left to do."""
        if "--here" in self._words:
            await self._ask("migrate")
        async with self._standing() as (stands, go_on):
            say(f"$ fencepost {' '.join(self._words)}")
            first = await self._start(*self._words)
            program = await stands
            first.kill()
            await first.communicate()
            say(
                f"killed (SIGKILL) while {self._play.middle} was in the middle of its work; its program (pid {program}) lives"
            )
            say("the same command, typed again")
            second = await self._start(*self._words)
            await until_says(second, b"run: ")
            go_on.set()
            done = json.loads(await self._end(second))
        told = [json.loads(line) for line in (await self._ask("runs", "watch", self._id, "--json")).splitlines()]
        before = self._begins()
        again = json.loads(await self._ask(*self._words))
        page = await self._ask("plan", "output", self._id, self._play.page)
        if not quiet:
            say(page.decode())
        killed = first.returncode == -signal.SIGKILL
        return self._judge(done, told, page, killed=killed, nothing_new=again == done and self._begins() == before)

    def _judge(
        self, done: dict[str, Any], told: list[dict[str, Any]], page: bytes, *, killed: bool, nothing_new: bool
    ) -> dict[str, Any]:
        """What came of it, counted in the book and in the ledger."""
        kept = Counter(one["data"]["step"] for one in told if one["type"] == "plan.step_succeeded")
        begins, wanted = self._begins(), Counter(self._play.begins)
        step, _, name = self._play.page.partition(".")
        whole = f"sha256:{hashlib.sha256(page).hexdigest()}" == done["steps"][step]["outputs"][name]["digest"]
        met = self._pids(self._play.middle)
        steps = done["steps"]
        right = (
            done["status"] == "completed" and set(kept) == set(steps) and set(kept.values()) == {1} and begins == wanted
        )
        return {
            "killed": int(killed),
            "steps": len(steps),
            "committed": len(kept),
            "committed_twice": sum(count - 1 for count in kept.values()),
            "begun": begins.total(),
            "begun_unasked": sum((begins - wanted).values()),
            "met_again": int(len(met) == 1 and steps[self._play.middle]["attempts"] == 1),
            "ok": killed and right and whole and nothing_new and len(met) == 1,
        }

    def _lines(self) -> list[dict[str, Any]]:
        return [json.loads(line) for line in self._book.read_text().splitlines()]

    def _begins(self) -> Counter[str]:
        return Counter(line["step"] for line in self._lines())

    def _pids(self, step: str) -> set[int]:
        return {line["pid"] for line in self._lines() if line["step"] == step}

    @contextlib.asynccontextmanager
    async def _standing(self) -> Any:
        """The gate: (the pid of the program that stands there, once it does; what lets it through)."""
        stands: asyncio.Future[int] = asyncio.get_running_loop().create_future()
        go_on = asyncio.Event()

        async def met(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            pid = int(await reader.readline())
            if not stands.done():
                stands.set_result(pid)
            await go_on.wait()
            writer.write(b"\n")
            await writer.drain()
            writer.close()

        server = await asyncio.start_server(met, "127.0.0.1", 0)
        self._environ["PLAN_GATE"] = f"{self._play.middle}:{server.sockets[0].getsockname()[1]}"
        try:
            async with asyncio.timeout(PATIENCE):
                yield stands, go_on
        finally:
            go_on.set()
            server.close()

    async def _start(self, *words: str) -> asyncio.subprocess.Process:
        return await asyncio.create_subprocess_exec(
            sys.executable, "-m", "fencepost", *words, cwd=ROOT, env=self._environ, stdout=asyncio.subprocess.PIPE, stderr=asyncio.subprocess.PIPE
        )  # fmt: skip

    async def _ask(self, *words: str) -> bytes:
        return await self._end(await self._start(*words))

    async def _end(self, process: asyncio.subprocess.Process) -> bytes:
        """What it says. Raises RuntimeError with its complaint."""
        said, complaint = await process.communicate()
        if process.returncode != 0:
            raise RuntimeError(f"exit code {process.returncode}: {complaint.decode() or said.decode()}")
        return said


async def until_says(process: asyncio.subprocess.Process, words: bytes) -> None:
    """Read its stderr up to a line that begins so."""
    assert process.stderr is not None
    read = b""
    while line := await process.stderr.readline():
        if line.startswith(words):
            return
        read += line
    raise RuntimeError(f"it ended without {words.decode()!r}: {read.decode()}")


def say(words: str) -> None:
    """A line of the story."""
    print(words, file=sys.stderr, flush=True)


if __name__ == "__main__":
    sys.exit(main())
