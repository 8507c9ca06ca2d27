"""One game of the oracle against the product: moves that are made on both, and what must then agree.

A move is a name and JSON arguments; which run it means is said by a number taken modulo the runs it can mean. So a list of
moves is a test that can be kept in a file (`tests/seeds`), whatever ids it ran under.
"""

from __future__ import annotations

import asyncio
import json
import uuid
from typing import Any

from fencepost import LaunchConflict, RunNotFound, SignalRefused, attempts, recovery, terminal
from fencepost.worker.leg import Leg
from tests import oracle_workflows
from tests.oracle_records import Disagreement, Run
from tests.oracle_table import Held, Seat
from tests.support import new_holder

SILENCE = 6  # beats of ten seconds: a full lease, and more


class Game(Seat):
    """The moves."""

    async def move(self, name: str, /, **how: Any) -> None:
        """Make a move on both sides; raise AssertionError where they disagree."""
        self.moves.append([name, how])
        async with asyncio.timeout(10):
            await self.heed_ended()
            await getattr(self, f"on_{name}")(**how)
            await self.compare()

    # ── choosing ─────────────────────────────────────────────────────────────────────────────────────────────────────

    def _one(self, which: int, among: list[Run] | None = None) -> Run | None:
        runs = self._runs() if among is None else among
        return runs[which % len(runs)] if runs else None

    def _handle(self, run: Run) -> Any:
        return self.table.client.handle(run.id, org=self.org)

    def _runs(self) -> list[Run]:
        return list(self.oracle.runs.values())

    def _live(self) -> list[Run]:
        return [r for r in self._runs() if not r.ended]

    # ── callers' moves ───────────────────────────────────────────────────────────────────────────────────────────────

    async def on_start(self, workflow: str, ops: list[dict[str, Any]], delay: float = 0, how: str = "plain") -> None:
        id = f"r{len(self.oracle.runs)}"
        flow, given = oracle_workflows.WORKFLOWS[workflow], {"tag": id, "ops": ops}
        client = self.table.client
        options: dict[str, Any] = {"org": self.org, "delay": delay or None}
        if how == "plain":
            await client.start(flow, given, id=id, **options)
        elif how == "many":
            two = [given, {"tag": f"{id}-twin", "ops": ops}]
            handles = await client.start_many(flow, two, ids=[id, f"{id}-twin"], **options)
            assert [handle.id for handle in handles] == [id, f"{id}-twin"]
            self.oracle.start(f"{id}-twin", f"{id}-twin", workflow, ops, delay)
            self.oracle.arm(f"{id}-twin", ops)
        else:
            transaction = self.table.owner.transaction()
            await transaction.start()
            handle = await client.start(flow, given, id=id, conn=self.table.owner, **options)
            assert await self._absent(handle), "a run is seen before its transaction has committed"
            if how == "rolled_back":
                await transaction.rollback()
                assert await self._absent(handle), "a run outlives the transaction that was rolled back"
                return
            await transaction.commit()
        self.oracle.start(id, id, workflow, ops, delay)
        self.oracle.arm(id, ops)
        self.world.gates = dict(self.oracle.gates)

    async def _absent(self, handle: Any) -> bool:
        try:
            await handle.status()
        except RunNotFound:
            return True
        return False

    async def on_start_again(self, which: int, changed: str = "nothing") -> None:
        """30.2, 30.3."""
        run = self._one(which, [r for r in self._runs() if r.parent is None and r.tag == r.id])
        if run is None:
            return
        workflow = run.workflow
        given: dict[str, Any] = {"tag": run.tag, "ops": run.ops}
        if changed == "name":
            workflow = "plain" if workflow == "asking" else "asking"
        if changed == "input":
            given["ops"] = [*run.ops, {"do": "raise"}]
        try:
            handle = await self.table.client.start(oracle_workflows.WORKFLOWS[workflow], given, id=run.id, org=self.org)
        except LaunchConflict as conflict:
            assert changed != "nothing", conflict.differs
            paths = [difference["path"] for difference in conflict.differs]
            assert len(paths) >= 1, paths
            assert all(changed in str(path) for path in paths), paths
            assert all(difference["stored"] != difference["given"] for difference in conflict.differs), conflict.differs
        else:
            assert changed == "nothing", f"{run.id} was admitted twice with another {changed}"
            assert handle.id == run.id

    async def on_signal(self, which: int, name: str, payload: int, dedupe: str | None = None) -> None:
        run = self._one(which)
        if run is None:
            return
        try:
            answer: str = await self._handle(run).signal(name, payload, dedupe=dedupe)
        except SignalRefused as refused:
            answer = refused.answer
        told = self.oracle.signal(run, name, payload, dedupe)
        assert told == answer, f"signal to {run.id}: {answer}, the oracle says {told}"

    async def on_cancel(self, which: int) -> None:
        run = self._one(which)
        if run is None:
            return
        answer = await self._handle(run).cancel("enough")
        told = self.oracle.cancel(run)
        assert told == answer, f"cancel of {run.id}: {answer}, the oracle says {told}"

    # ── the worker's moves ───────────────────────────────────────────────────────────────────────────────────────────

    async def on_work(self, most: int) -> None:
        """The worker claims up to so many attempts and drives each until it rests."""
        for _ in range(most):
            if not await self._claim():
                return

    async def on_settle(self) -> None:
        """The worker beats and works until nothing can be claimed."""
        await self._beat()
        for _ in range(60):
            if not await self._claim():
                return
        raise Disagreement(f"no end of claims: {[r for r in self._runs() if not r.ended]}")

    async def _holder(self) -> uuid.UUID:
        """The incarnation that claims: it holds nothing, for whoever comes to hold a leg is left alone with it."""
        if self.holder is None:
            self.holder, self.request = await new_holder(self.table.db), 0
            self.holders.append(self.holder)
        return self.holder

    async def _claim(self) -> bool:
        db, table = self.table.db, self.table
        holder = await self._holder()
        self.request += 1
        claim = await attempts.claim(
            db, holder, self.request, lane=table.lane, most=1, cursor="", alone=True, patience=30
        )
        assert not claim.buried
        if not claim.claimed:
            due = self.oracle.due()
            assert not due, f"nothing was claimed, and {due} are due"
            return False
        (claimed,) = claim.claimed
        assert claimed.org == self.org, claimed
        if not claimed.begun:
            assert await attempts.begin(db, claimed.fence) == "begun"
        leg = Leg(table.face, claimed, oracle_workflows.WORKFLOWS[claimed.name])
        held = Held(leg, asyncio.ensure_future(leg.run()), holder, claimed, self.request)
        self.oracle.claimed(claimed.id, claimed.fence.number)
        if not await self._rest(held, self.oracle.runs[claimed.id]):
            self.held[claimed.id], self.holder = held, None
        return True

    async def _rest(self, held: Held, run: Run) -> bool:
        """Let a leg go on until it is over (True) or stands at a gate."""
        reached = self.world.reached[run.tag]
        waiting = asyncio.ensure_future(reached.wait())
        await asyncio.wait({held.task, waiting}, return_when=asyncio.FIRST_COMPLETED)
        waiting.cancel()
        await self.table.db.quiet()
        reached.clear()
        if held.task.done():
            held.task.result()
        return held.task.done()

    async def on_release(self, which: int) -> None:
        run = self._one(which, [r for r in self._runs() if r.held])
        if run is None:
            return
        assert run.inside is not None
        standing = self.world.standing[run.tag, run.inside.place, run.inside.n]
        held = self.held[run.id]
        self.oracle.release(run)
        self.world.gates = {
            at: gate for at, gate in self.world.gates.items() if not (run.cancelling and at[0] == run.tag)
        }
        standing.set()
        if await self._rest(held, run):
            del self.held[run.id]

    async def on_gate(self, which: int, op: int, phase: str) -> None:
        """The next call of a step of this run will stand there."""
        run = self._one(which, self._live())
        places = [] if run is None else [*self._places(run)]
        if run is None or not places:
            return
        self.oracle.gates[run.tag, places[op % len(places)]] = phase
        self.world.gates = dict(self.oracle.gates)

    def _places(self, run: Run) -> Any:
        for number, op in enumerate(run.ops):
            if op["do"] == "step":
                yield str(number)
            for row in op.get("rows", ()):
                yield f"{number}/{row['key']}"

    async def on_lose(self, which: int, silent: bool = False) -> None:
        """A leg is dropped and its death seen; or it is silent for a lease, and goes on afterwards as a zombie."""
        run = self._one(which, [r for r in self._runs() if r.held])
        if run is None:
            return
        assert run.inside is not None
        held, at = self.held.pop(run.id), (run.tag, run.inside.place, run.inside.n)
        if silent:
            self.zombies.append((held, at))
            for _ in range(SILENCE):
                await self._pass(10)
        else:
            held.leg.abort("lost")
            await held.task
            await self._beat(dead=held.holder)
        self.oracle.lose(run, proven=not silent)
        await self._beat()

    async def on_batter(self, which: int, phase: str) -> None:
        """The same step is met and lost until something gives way (40.15)."""
        for _ in range(6):
            run = self._one(which, [r for r in self._live() if r.id == r.tag and any(self._places(r))])
            if run is None:
                return
            for place in self._places(run):
                self.oracle.gates[run.tag, place] = phase
            self.world.gates = dict(self.oracle.gates)
            await self.on_settle()
            if not run.held:
                return
            await self.on_lose([r for r in self._runs() if r.held].index(run))
            await self.compare()

    async def on_haunt(self, which: int, phase: str, soon: bool) -> None:
        """A holder that fell silent goes on, before or while another stands where it stood (40.3)."""
        held = [r for r in self._runs() if r.held]
        run = self._one(which, held)
        if run is None or run.inside is None:
            return
        if not soon:
            self.oracle.gates[run.tag, run.inside.place] = phase
            self.world.gates = dict(self.oracle.gates)
        await self.on_lose(held.index(run), silent=True)
        if not soon:
            await self.on_settle()
        await self.compare()
        await self.on_release_zombie(len(self.zombies) - 1)

    async def on_cancel_inside(self, which: int) -> None:
        """A run is cancelled while its code runs, and its code goes on before it is told (80.4)."""
        held = [r for r in self._runs() if r.held]
        run = self._one(which, held)
        if run is None:
            return
        await self.on_cancel(self._runs().index(run))
        await self.compare()
        if run.held:
            await self.on_release([r for r in self._runs() if r.held].index(run))

    async def on_release_zombie(self, which: int) -> None:
        """40.3, 40.4."""
        if not self.zombies:
            return
        index = which % len(self.zombies)
        held, at = self.zombies.pop(index)
        run, _ = self.oracle.zombies[index]
        self.oracle.release_zombie(index)
        # The gates are for who holds the run now: a step that is repeatable may be tried again by who was put out.
        self.world.gates = {gate: phase for gate, phase in self.world.gates.items() if gate[0] != run.tag}
        if at in self.world.standing:
            self.world.standing[at].set()
        assert await self._rest(held, run), "a holder that was put out stands at a gate"
        self.world.gates = dict(self.oracle.gates)
        assert held.task.result() in {"stale", "cancelled", "stopped"}, held.task.result()

    async def on_advance(self, seconds: float) -> None:
        await self._pass(seconds)

    async def _pass(self, seconds: float) -> None:
        await self.table.clock.advance(seconds)
        await self._beat()
        self.oracle.tick(seconds)

    async def _beat(self, dead: uuid.UUID | None = None) -> None:
        """Every living worker beats, and heeds what it is told."""
        db = self.table.db
        holder = await self._holder()
        await recovery.beat(db, holder, answered=self.request, held=[], dead=[dead] if dead else [], patience=30)
        told = []
        for id, held in list(self.held.items()):
            at = [(held.claimed.fence.rid, held.claimed.fence.number)]
            beat = await recovery.beat(db, held.holder, answered=held.request, held=at, dead=[], patience=30)
            cancelling = self.oracle.runs[id].cancelling
            assert cancelling or not beat.lost, f"{id} is held, and said to be lost"  # lost: the grace was over first
            assert cancelling == bool(beat.cancel or beat.lost), (
                f"{id}: cancelling is {cancelling}, and it was told {beat}"
            )
            if cancelling:
                held.leg.abort("lost" if beat.lost else "cancelled", "enough")
                await held.task
                del self.held[id]
                told.append(id)
        self.oracle.heed(told)

    # ── an operator's moves ──────────────────────────────────────────────────────────────────────────────────────────

    async def on_end(self, which: int) -> None:
        run = self._one(which)
        if run is None:
            return
        if run.held:
            assert run.inside is not None
            self.zombies.append((self.held.pop(run.id), (run.tag, run.inside.place, run.inside.n)))
        answer, _ = await terminal.end(self.table.db, self.org, run.id, by="operator", reason="over")
        told = self.oracle.end(run)
        assert answer == told, f"end of {run.id}: {answer}, the oracle says {told}"

    async def on_wake(self, which: int) -> None:
        """What waits out a delay is tried now; what has ended is not."""
        now = self.oracle.now
        run = self._one(which, [r for r in self._runs() if r.ended or (r.state == "queued" and r.ready[0] > now)])
        if run is None:
            return
        answer, why = await recovery.wake(self.table.db, self.org, run.id)
        assert answer == ("refused" if run.ended else "done"), (run, answer, why)
        if not run.ended:
            self.oracle.wake(run)

    async def on_resolve(self, which: int, place: int, verdict: str) -> None:
        """What is unknown is said by hand; what is not, cannot be."""
        run = self._one(which, [r for r in self._runs() if r.state == "unknown"])
        run = run or self._one(which, [r for r in self._runs() if r.state in {"queued", "parked"} or r.ended])
        if run is None:
            return
        unknown = [] if run.ended else run.unknown()
        where = unknown[place % len(unknown)] if unknown else None
        step = ordinal = key = None
        if where is not None:
            number, _, row = where.partition("/")
            (step, ordinal), key = self._spelled(run, number), row or None
        elif verdict == "late":
            return
        given: Any = "by hand" if where else ["by hand"]
        error = {"code": "STEP_FAILED", "message": "by hand"}
        value = {"completed": json.dumps(given), "failed": json.dumps(error)}.get(verdict)
        answer, why = await recovery.resolve(
            self.table.db, self.org, run.id, step=step, ordinal=ordinal, row_key=key, verdict=verdict, value=value, by="operator"  # type: ignore[arg-type]  # one of the verdicts
        )  # fmt: skip
        told = self.oracle.resolve(run, where, verdict, given)
        assert answer == told, f"resolve {run.id} {where} {verdict}: {answer} ({why}), the oracle says {told}: {run}"

    async def on_redrive(self, which: int, start: int | None = None, name_all: bool = False) -> None:
        plain = {"step", "map", "raise"}
        run = self._one(
            which, [r for r in self._runs() if r.ended and not r.loose and all(o["do"] in plain for o in r.ops)]
        )
        if run is None:
            return
        recorded = sorted({p.partition("/")[0] for p in run.history})
        # What is recorded after a step is what the program does after it, unless something was asked for again.
        ordered = run.id == run.tag and run.workflow != "retrying"
        begin = recorded[start % len(recorded)] if start is not None and recorded and ordered else None
        spelled = {p: self._spelled(run, p) for p in recorded}
        named = set(recorded) if name_all else set()
        new_id = f"r{len(self.oracle.runs)}"
        answer, why = await recovery.redrive(
            self.table.db, self.org, run.id, new_id=new_id, from_step=None if begin is None else spelled[begin],
            again=[f"{name}#{ordinal}" for place in sorted(named) for name, ordinal in [spelled[place]]], by="operator",
        )  # fmt: skip
        told = self.oracle.redrive(run, new_id, begin, named)
        assert answer == told, (
            f"redrive {run.id} from {begin} again {named}: {answer} ({why}), the oracle says {told}: {run}"
        )

    def _spelled(self, run: Run, number: str) -> tuple[str, int]:
        """A step's or map's name, and which call of it this is."""
        op = run.ops[int(number)]
        return op["kind"], sum(
            1 for o in run.ops[: int(number) + 1] if (o["do"], o.get("kind")) == (op["do"], op["kind"])
        )
