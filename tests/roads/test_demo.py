"""The main job, as a user plays it: `fencepost demo`, in a home of its own, against the same work undisturbed."""

from __future__ import annotations

import asyncio
import fcntl
import hashlib
import json
import os
import signal
import sys
from collections.abc import AsyncIterator
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest

from examples.airports.press import Press
from examples.airports.work import AIRPORTS, read_rows
from fencepost.demo import facts
from fencepost.ledger import Event
from fencepost.postgres.files import lock

ROOT = Path(__file__).resolve().parents[2]
FIELDS = "rows rows_done_once rows_rerun effects unknown resolved_by kills output_sha256 ok".split()
SECONDS = 120  # of one command, on a machine that does much else


@dataclass
class Home:
    """An embedded home, and the environment of whoever works in it."""

    path: Path
    more: dict[str, str] = field(default_factory=dict)
    started: list[asyncio.subprocess.Process] = field(default_factory=list)

    @property
    def environment(self) -> dict[str, str]:
        kept = {name: value for name, value in os.environ.items() if not name.startswith("FENCEPOST_")}
        programs = os.environ.get("FENCEPOST_TEST_PG_BIN")
        return (
            kept | {"FENCEPOST_HOME": str(self.path)} | ({"FENCEPOST_PG_BIN": programs} if programs else {}) | self.more
        )

    async def start(self, *words: str, cwd: Path) -> asyncio.subprocess.Process:
        process = await asyncio.create_subprocess_exec(
            sys.executable, "-m", "fencepost", *words, cwd=cwd, env=self.environment, start_new_session=True,
            stdout=asyncio.subprocess.PIPE, stderr=asyncio.subprocess.PIPE,
        )  # fmt: skip
        self.started.append(process)
        return process

    async def run(self, *words: str, cwd: Path) -> tuple[int | None, str, str]:
        """Exit code, stdout, stderr."""
        process = await self.start(*words, cwd=cwd)
        out, err = await finished(process)
        return process.returncode, out, err

    def folders(self) -> list[Path]:
        """What each demo left to be looked at, oldest first."""
        return sorted((self.path / "demo").iterdir(), key=lambda folder: folder.stat().st_ctime_ns)

    def processes(self) -> list[str]:
        """The command lines of every process with this home in its environment."""
        found: list[str] = []
        for process in Path("/proc").iterdir():
            try:
                if f"FENCEPOST_HOME={self.path}".encode() in (process / "environ").read_bytes().split(b"\0"):
                    found.append((process / "cmdline").read_bytes().replace(b"\0", b" ").decode())
            except OSError:
                continue  # no process, or one that has just ended
        return found

    def until_still(self) -> None:
        """Until the server, which outlives its last client by a second, has gone."""
        for name in ("keeper.lock", "server.lock"):
            if (self.path / name).exists():
                with (self.path / name).open() as held:
                    assert lock(held.fileno(), fcntl.LOCK_EX, 30), f"{name} of {self.path} is held: the server stays"


async def finished(process: asyncio.subprocess.Process) -> tuple[str, str]:
    """Stdout and stderr of a process, once it has ended."""
    async with asyncio.timeout(SECONDS):
        out, err = await process.communicate()
    return out.decode(), err.decode()


async def told(process: asyncio.subprocess.Process, words: str) -> None:
    """Once it has said a line with these words on stderr."""
    assert process.stderr is not None
    async with asyncio.timeout(SECONDS):
        while words not in (line := (await process.stderr.readline()).decode()):
            assert line, f"it ended before it said {words!r}"


@pytest.fixture
async def home(tmp_path: Path) -> AsyncIterator[Home]:
    home = Home(tmp_path / "home")
    yield home
    for process in home.started:  # of a test that failed
        if process.returncode is None:
            process.terminate()
            await process.wait()
    home.until_still()
    assert home.processes() == []


def check(home: Home, played: tuple[int | None, str, str], nth: int) -> dict[str, Any]:
    """Every claim of one demo, held against what it left outside the database."""
    code, out, err = played
    assert code == 0, err
    assert len(out.splitlines()) == 1, "with --json stdout is the object and nothing else"
    found: dict[str, Any] = json.loads(out)
    assert list(found) == FIELDS
    assert (found["rows"], found["effects"], found["unknown"], found["resolved_by"]) == (3000, 1, 1, "lookup")
    assert found["ok"] is True
    assert found["rows_done_once"] + found["rows_rerun"] == 3000
    assert 0 <= found["rows_rerun"] <= 20
    assert [kill["boundary"] for kill in found["kills"]] == [
        "row 1000 of 3000 kept",
        "inside publish: posted, the reply not received",
    ]
    assert all(f"pid {kill['pid']} by SIGKILL" in err for kill in found["kills"])

    assert len(home.folders()) == nth, "a fresh folder each time"
    folder = home.folders()[-1]
    begun = (folder / "begun.log").read_text().split()
    assert set(begun) == {row["icao"] for row in read_rows(AIRPORTS)}
    assert len(begun) == found["rows_done_once"] + 2 * found["rows_rerun"]
    (post,) = (folder / "posts.jsonl").read_text().splitlines()
    assert json.loads(json.loads(post)["body"])["rows"] == 3000
    assert hashlib.sha256((folder / "located.jsonl").read_bytes()).hexdigest() == found["output_sha256"]
    assert [line for line in home.processes() if "airports" in line or "heartbeat" in line] == []
    return found


@pytest.mark.timeout(500)
async def test_the_demo_keeps_every_claim_each_time_and_gives_what_an_undisturbed_run_gives(
    home: Home, tmp_path: Path
) -> None:
    first = check(home, await home.run("demo", "--json", cwd=tmp_path), 1)
    code, out, err = await home.run("demo", cwd=tmp_path)
    assert err == "", "without --json it is all told on stdout, the object last"
    second = check(home, (code, out.splitlines()[-1], out), 2)
    assert first["output_sha256"] == second["output_sha256"] == await undisturbed(home, tmp_path)


async def undisturbed(home: Home, tmp_path: Path) -> str:
    """The hash of what the same workflow writes when nobody is killed: the commands a user types, one real worker."""
    async with Press(tmp_path / "posts.jsonl") as press:
        sheet = {"path": str(AIRPORTS), "press": press.url, "out": str(tmp_path / "out"), "log": str(tmp_path / "log")}
        examples = ROOT / "examples"
        run = await home.start(
            "run", "airports.app:enrich", "--id", "plain", "--input", json.dumps(sheet), "--json", cwd=examples
        )
        await told(run, "run: plain")
        code, _, err = await home.run("runs", "signal", "plain", "review", '{"ok": true}', cwd=tmp_path)
        assert code == 0, err
        said, err = await finished(run)
        assert run.returncode == 0, err
        output = json.loads(said.splitlines()[-1])["output"]
        assert press.effects() == 1
        assert press.asked == [], "nothing was lost, so nothing is looked up"
    begun = (tmp_path / "log").read_text().split()
    assert len(begun) == len(set(begun)) == 3000
    digest = hashlib.sha256((tmp_path / "out").read_bytes()).hexdigest()
    assert output == digest
    return digest


@pytest.mark.timeout(300)
@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
async def test_a_demo_that_is_interrupted_leaves_no_process_and_no_waiting_run(
    home: Home, tmp_path: Path, number: int
) -> None:
    playing = await home.start("demo", "--json", cwd=tmp_path)
    await told(playing, "worker 2")
    os.kill(playing.pid, number)
    out, err = await finished(playing)
    assert (playing.returncode, out) == (130, ""), err
    assert [line for line in home.processes() if "airports" in line or "heartbeat" in line] == []
    code, said, err_text = await home.run("runs", "list", "--json", cwd=tmp_path)
    assert code == 0, err_text
    assert [json.loads(line)["status"] for line in said.splitlines()] == ["cancelled"]


@pytest.mark.timeout(300)
@pytest.mark.parametrize("words", ["worker 1", "parked"])
async def test_a_demo_that_is_killed_takes_its_worker_and_the_server_with_it(
    home: Home, tmp_path: Path, words: str
) -> None:
    """Its worker may be starting, or in the middle of its work: it ends by itself, and then so does the server that nobody leases."""
    playing = await home.start("demo", "--json", cwd=tmp_path)
    await told(playing, words)
    assert [line for line in home.processes() if "airports" in line] != []
    os.kill(playing.pid, signal.SIGKILL)
    await finished(playing)  # nobody holds its streams any more
    home.until_still()
    assert home.processes() == []


@pytest.mark.parametrize(
    ("folder", "more"),
    [
        ("file/home", {}),
        ("home", {"FENCEPOST_PG_BIN": "/nowhere"}),
        ("home", {"FENCEPOST_DATABASE_URL": "postgresql://nobody@127.0.0.1:1/none"}),
    ],
    ids=["no home", "no binaries", "no server"],
)
async def test_without_a_database_it_is_one_sentence(tmp_path: Path, folder: str, more: dict[str, str]) -> None:
    (tmp_path / "file").write_text("")
    exit_code, out, err = await Home(tmp_path / folder, more).run("demo", "--json", cwd=tmp_path)
    assert exit_code == 5, err
    assert json.loads(out)["error"]["code"] == "NO_DATABASE"
    assert "Traceback" not in err
    assert err.splitlines()[-1].startswith("error: ")
    assert sorted(place.name for place in tmp_path.iterdir()) == ["file"], "nothing was made"


@pytest.mark.timeout(300)
async def test_a_folder_that_cannot_be_written_is_one_sentence(home: Home, tmp_path: Path) -> None:
    home.path.mkdir(mode=0o711)
    (home.path / "demo").write_text("")
    code, out, err = await home.run("demo", "--json", cwd=tmp_path)
    assert code == 5, err
    assert json.loads(out)["error"]["code"] == "CANNOT_RUN"
    assert err.splitlines()[-1].startswith(f"error: nothing can be written to {home.path / 'demo'}")


# What the claims are counted from


def events(text: str) -> list[Event]:
    """A ledger in words: `claimed marked:publish lost kept:publish`."""
    types = {"claimed": "attempt.claimed", "lost": "attempt.lost", "resolved": "run.resolved"}
    found = []
    for seq, word in enumerate(text.split(), start=1):
        what, _, name = word.partition(":")
        data = {"kind": "step", "name": name, "ordinal": 1} if name else {}
        found.append(Event(seq, datetime.now(UTC), types.get(what, f"step.{what}"), 1, data))
    return found


@pytest.mark.parametrize(
    ("ledger", "unknown"),
    [
        ("claimed marked:publish lost claimed kept:publish", ["lookup"]),
        ("claimed marked:publish lost claimed failed:publish", ["lookup"]),
        ("claimed marked:publish lost claimed marked:publish kept:publish", ["again"]),
        ("claimed marked:publish lost claimed resolved kept:publish", ["operator"]),
        ("claimed marked:publish lost lost claimed", [None]),
        ("claimed marked:publish kept:publish lost claimed", []),
        ("claimed lost claimed marked:publish kept:publish", []),
        ("claimed marked:read lost claimed kept:read", []),
    ],
)
def test_a_step_was_unknown_if_its_mark_stood_when_the_attempt_was_lost(ledger: str, unknown: list[str | None]) -> None:
    found = facts.resolutions(events(ledger), ["publish"])
    assert list(found.values()) == unknown


def test_a_row_begun_twice_is_not_done_once(tmp_path: Path) -> None:
    log = tmp_path / "begun.log"
    log.write_text("KDEN\nKSFO\nKDEN\nEDDF\n")
    begins = facts.read_begins(log)
    assert (begins.once, begins.again, begins.count["KDEN"]) == (2, 1, 2)
