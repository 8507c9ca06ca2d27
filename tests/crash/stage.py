"""A stage: one database, one zygote, one healer; on it one crash after the other."""

from __future__ import annotations

import asyncio
import contextlib
import itertools
import json
import os
import signal
import socket
import subprocess
import sys
import time
from pathlib import Path
from typing import Any, Self

import asyncpg

from fencepost import explain, ledger, terminal
from fencepost.client import Client
from fencepost.db import Database
from fencepost.runner import tree
from fencepost.testing import Installation
from fencepost.words import TERMINAL
from tests.crash import effects
from tests.support import as_worker
from tests.support_invariants import WATCH, broken

# A run that has not ended, by its own id.
LIVE = "create view watch.live as select r.id, t.* from fencepost.task t join fencepost.run r using (rid)"
LEASE = 1.5
BEAT = 0.4
HEALER_BEAT = 0.2
# Everything ends within three leases (L-1); what is more is for a machine that does something else as well.
SECONDS = 3 * LEASE + float(os.environ.get("FENCEPOST_CRASH_SLACK", "6"))


class Stuck(AssertionError):
    """Something did not come to its end in time."""


class Child:
    """A forked process, as the harness sees it."""

    def __init__(self, stage: Stage, token: str, pid: int) -> None:
        self.pid = pid
        self.token = token
        self.hit: asyncio.Future[str] = asyncio.get_running_loop().create_future()
        self.ready: asyncio.Future[str] = asyncio.get_running_loop().create_future()
        self.ended = asyncio.Event()
        self.exit: int | None = None
        self.said: Any = None
        self.counted: list[str] = []
        self.marks: dict[str, asyncio.Event] = {}
        self.gate: asyncio.Event = asyncio.Event()
        self.gate_open = False
        self._descriptor = os.pidfd_open(pid)
        asyncio.get_running_loop().add_reader(self._descriptor, self._on_end)

    def heard(self, line: dict[str, Any]) -> None:
        if "boundary" in line:
            self.counted.append(line["boundary"])
        elif "hit" in line and not self.hit.done():
            self.hit.set_result(line["hit"])
        elif "ready" in line and not self.ready.done():
            self.ready.set_result(line["ready"])
        elif "mark" in line:
            self.mark(line["mark"]).set()
        elif "gate" in line:
            self.gate_open = line["gate"]
            self.gate.set()
        elif "exit" in line:
            self.exit, self.said = line["exit"], line.get("said")

    def mark(self, name: str) -> asyncio.Event:
        return self.marks.setdefault(name, asyncio.Event())

    def signal(self, number: int) -> None:
        if not self.ended.is_set():
            with contextlib.suppress(ProcessLookupError):
                os.kill(self.pid, number)

    async def kill(self) -> None:
        """SIGKILL, and it is gone."""
        self.signal(signal.SIGKILL)
        await self.ended.wait()

    def _on_end(self) -> None:
        asyncio.get_running_loop().remove_reader(self._descriptor)
        os.close(self._descriptor)
        self.ended.set()


class Stage:
    """Use it with `async with`. Without `heals` it has no healer: every worker is the test's own."""

    def __init__(self, installation: Installation, folder: Path, name: str, *, heals: bool = True) -> None:
        self.heals = heals
        self.installation = installation
        self.owner_dsn = installation.dsn
        self.dsn = as_worker(installation.dsn)
        self.log = folder / f"{name}.log"
        self.effects = folder / f"{name}.effects"
        self.files = folder / f"{name}.files"  # of plans: the folders of attempts, and the content store
        self.name = name
        self.plays = 0
        self.spoilt = False  # something here came out wrong: what is judged here from now on says nothing
        self.place = 0  # of this crash's first effect
        self.children: dict[str, Child] = {}
        self._tokens = itertools.count(1)
        self._lock = asyncio.Lock()
        self._early: dict[str, list[dict[str, Any]]] = {}  # what a process said before its number was known here

    async def __aenter__(self) -> Self:
        loop = asyncio.get_running_loop()
        self._admin = await asyncpg.connect(self.owner_dsn)
        self._asking = asyncio.Lock()
        await self.execute(f"{WATCH};{LIVE}")
        self.installation_id = str(await self.value("select installation from fencepost.meta"))
        self.db = Database(self.dsn, name="crash harness")
        self.client = Client(self.db, "dev")
        await self.client.lane()
        read, self._report_fd = os.pipe()
        self._reader = asyncio.StreamReader()
        self._transport, _ = await loop.connect_read_pipe(
            lambda: asyncio.StreamReaderProtocol(self._reader), os.fdopen(read, "rb")
        )
        self._listening = asyncio.create_task(self._listen())
        ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        with theirs, self.log.open("ab") as log:
            self._zygote = subprocess.Popen(
                [sys.executable, "-m", "tests.crash.zygote", str(theirs.fileno())], stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=log,
                pass_fds=[theirs.fileno(), self._report_fd], env=os.environ | {"PYTHONPATH": os.pathsep.join(p for p in sys.path if p)},
            )  # fmt: skip
        ours.setblocking(False)
        self._orders = ours
        if self.heals:
            await self.start_healer()
        return self

    async def __aexit__(self, *_: object) -> None:
        for child in list(self.children.values()):
            await child.kill()
        for pid, start in self.supervisors().items():  # each takes its command along
            tree.kill(pid, start)
        self._orders.close()
        await asyncio.to_thread(self._zygote.wait)
        self._listening.cancel()
        await asyncio.gather(self._listening, return_exceptions=True)
        self._transport.close()
        os.close(self._report_fd)
        await self.client.close()
        await self._admin.close()

    # ── processes ────────────────────────────────────────────────────────────────────────────────────────────────────

    async def fork(self, **order: Any) -> Child:
        """A process that is what the order says."""
        loop = asyncio.get_running_loop()
        token = str(next(self._tokens))
        given = {"token": token, "report_fd": self._report_fd, "dsn": self.dsn, "owner_dsn": self.owner_dsn, "log": str(self.log),
                 "effects": str(self.effects), "files": str(self.files), "lease": LEASE, "beat": BEAT}  # fmt: skip
        async with self._lock:
            await loop.sock_sendall(self._orders, json.dumps(given | order).encode())
            answer = await loop.sock_recv(self._orders, 64)
        if not answer:
            raise RuntimeError(f"the zygote ended: see {self.log}")
        child = self.children[token] = Child(self, token, int(answer))
        for line in self._early.pop(token, []):
            child.heard(line)
        return child

    async def _listen(self) -> None:
        while line := await self._reader.readline():
            said = json.loads(line)
            child = self.children.get(said["token"])
            if child is None:
                self._early.setdefault(said["token"], []).append(said)
            else:
                child.heard(said)

    async def start_healer(self) -> None:
        """A second worker, which finds the dead at once and claims when its gate is opened."""
        self.healer = await self.fork(role="worker", app="main", gate=True, beat=HEALER_BEAT, concurrency=32)
        await self.within(asyncio.shield(self.healer.ready), "the healer's start", seconds=30)

    async def dismiss(self, child: Child) -> None:
        """Kill it if it lives, and forget it."""
        await child.kill()
        self.children.pop(child.token, None)

    def supervisors(self) -> dict[int, str]:
        """The supervisors of attempts of plans' steps that live here: id and start."""
        mark = os.fsencode(self.files)
        found: dict[int, str] = {}
        for entry in Path("/proc").iterdir():
            try:
                words = (entry / "cmdline").read_bytes().split(b"\0") if entry.name.isdigit() else []
            except OSError:
                continue
            if any(word.startswith(mark) for word in words) and (start := tree.start_of(int(entry.name))) is not None:
                found[int(entry.name)] = start
        # Between its fork and its exec a command still bears its supervisor's words.
        for command in [child for pid in found for child in tree.children(pid)]:
            found.pop(command, None)
        return found

    async def gate(self, wanted: bool) -> None:
        """Let the healer claim, or let it not; then look after its peers."""
        self.healer.gate.clear()
        self.healer.signal(signal.SIGUSR1 if wanted else signal.SIGUSR2)
        while self.healer.gate_open != wanted or not self.healer.gate.is_set():
            await self.within(self.healer.gate.wait(), "the healer's gate")
            if self.healer.gate_open != wanted:
                self.healer.gate.clear()
        if wanted:
            await self.look()

    async def look(self) -> None:
        """Ask the healer for a beat: the dead are found at once."""
        channel = f"fp_{self.installation_id.replace('-', '')[:12]}_{self.healer.ready.result()[:24]}"
        await self.value("select pg_notify($1, 'look') is null", channel)

    async def within(self, waiting: Any, what: str, *, seconds: float | None = None) -> Any:
        """Wait for it, and raise Stuck when it does not come."""
        seconds = SECONDS if seconds is None else seconds
        try:
            async with asyncio.timeout(seconds):
                return await waiting
        except TimeoutError:
            raise Stuck(f"{what} did not come within {seconds:g} s") from None

    # ── what is true ─────────────────────────────────────────────────────────────────────────────────────────────────

    async def value(self, query: str, *args: Any) -> Any:
        """Asked as the owner, who may look at every table."""
        async with self._asking:
            return await self._admin.fetchval(query, *args)

    async def rows(self, query: str, *args: Any) -> list[Any]:
        async with self._asking:
            return list(await self._admin.fetch(query, *args))

    async def execute(self, script: str) -> None:
        async with self._asking:
            await self._admin.execute(script)

    async def settled(self, run: str) -> terminal.Outcome:
        """The run's outcome once it is terminal or unknown."""
        return await self.client.handle(run)._settled()

    async def state(self, run: str) -> str | None:
        """The run's status; None when there is no such run."""
        outcome = await terminal.watch_outcome(self.db, "default", run, None)
        return None if outcome is None else outcome.status

    async def until(self, query: str, *args: Any, what: str = "", seconds: float | None = None) -> Any:
        """Ask the tables until the answer is true: they tell nobody."""
        seconds = SECONDS if seconds is None else seconds
        until = time.monotonic() + seconds
        while not (answer := await self.value(query, *args)):
            if time.monotonic() > until:
                raise Stuck(f"{what or query} did not come within {seconds:g} s")
            await asyncio.sleep(0.005)  # waits: for rows that others write
        return answer

    async def until_parked(self, run: str, park: str = "wait") -> None:
        await self.until(
            "select exists (select from watch.live where id = $1 and state = 'parked' and park = $2)",
            run, park, what=f"{run} parked",
        )  # fmt: skip

    async def until_no_supervisor(self) -> None:
        """Wait until no process of an attempt lives here."""
        until = time.monotonic() + SECONDS
        while left := self.supervisors():
            if time.monotonic() > until:
                raise Stuck(f"supervisors are left running: {sorted(left)}")
            await asyncio.sleep(0.02)  # waits: for the ends of processes that are nobody's children here

    async def until_noted(self, run: str, word: str, step: str) -> None:
        """Wait for a line in the log of effects."""
        until = time.monotonic() + SECONDS
        while not any(e.word == word and e.step == step for e in self.noted(run)):
            if time.monotonic() > until:
                raise Stuck(f"{word} {step} of {run} did not come within {SECONDS:g} s")
            await asyncio.sleep(0.005)  # waits: for a line that another process writes

    def noted(self, run: str) -> list[effects.Effect]:
        """What this run's code, and its children's, said it did."""
        return effects.read(self.effects, run=run, start=self.place)

    def begin(self) -> None:
        """What was noted before belongs to crashes that are over."""
        self.place = self.effects.stat().st_size if self.effects.exists() else 0
        self._early.clear()

    async def reconnect(self) -> None:
        """The server was gone and is back, or will be: ask it until it answers."""
        async with asyncio.timeout(60):
            while True:
                try:
                    self._admin = await asyncpg.connect(self.owner_dsn)
                    return
                except (OSError, asyncpg.PostgresError):
                    await asyncio.sleep(0.02)  # waits: only asking tells

    async def judge(self) -> None:
        """Every invariant of every run of this database. Raises AssertionError that names what is broken."""
        async with self._asking:
            found = await broken(self._admin)
        assert not found, found
        idle = await self.rows(
            """select application_name, query from pg_stat_activity
                where datname = current_database() and state like 'idle in transaction%' and state_change < clock_timestamp() - interval '1 s'"""
        )
        assert not idle, [dict(row) for row in idle]

    async def tell(self, run: str) -> str:
        """A run and its children in words, with their events: for a person who looks for a mistake."""
        said: list[str] = []
        for row in await self.rows(
            "select id from fencepost.run where id = $1 or id like $1 || '/%' order by rid", run
        ):
            document = await ledger.read_run(self.db, "default", row["id"])
            said.append(f"-- {row['id']}")
            said += explain.words(document) if document is not None else ["(gone)"]
            events = await self.rows(
                """select l.seq, l.at, l.type, l.number, l.data from fencepost.ledger l join fencepost.run r using (rid)
                    where r.id = $1 order by l.seq""",
                row["id"],
            )
            said += [
                f"   {e['seq']:3} {e['at']:%M:%S.%f} {e['type']} number={e['number']} {e['data'] or ''}" for e in events
            ]
        said += [f"   {e.word} {e.run} {e.step} by {e.pid}" for e in self.noted(run)]
        return "\n".join(said)


def is_terminal(status: str | None) -> bool:
    return status in TERMINAL
