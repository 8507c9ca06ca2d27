"""A scenario: what is admitted, what happens beside it, and what must have come of it, wherever somebody was killed."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import Any

from fencepost import recovery
from fencepost.authoring import Workflow
from fencepost.client import Client
from fencepost.db import Database
from fencepost.terminal import Outcome
from tests.crash import effects
from tests.crash.boundaries import Boundary
from tests.crash.stage import Child, Stage, is_terminal

# What a worker does once, when it starts and when it ends, and what it does whenever it likes.
START_AND_END = frozenset(
    {"register_lane", "open_incarnation", "register_workflows", "sleep_worker", "close_incarnation", ""}
)
NOISE = frozenset({"watch_outcome", "read_run", "retain"})


@dataclass(slots=True)
class Case:
    """One run of a scenario."""

    stage: Stage
    run: str
    disturbed: bool
    kills: int = 0
    unknown_due: bool = False  # at a kill something was begun whose outcome nobody can know
    unknown_seen: bool = False
    vague: bool = False  # it cannot be said which of the two it was
    permitted: Counter[str] = field(default_factory=Counter)  # step -> begins that an operator asked for
    outcome: Outcome | None = None
    said: Any = None
    facts: dict[str, Any] = field(default_factory=dict)

    def counted(self) -> Counter[tuple[str, str]]:
        return effects.counted(self.stage.noted(self.run))


@asynccontextmanager
async def caller(dsn: str) -> AsyncIterator[Client]:
    """A client of its own."""
    async with Client(Database(dsn, name="crash client"), "dev") as client:
        yield client


class Scenario:
    """The worker is killed, unless `role` says that it is a client. What is not overridden is what most scenarios do."""

    role = "worker"
    app = "main"
    startup = False  # the boundaries of a worker's start and end are its own
    hearts = False  # those of its heartbeat process too
    healer_works = False  # from the beginning: whoever is killed is no worker
    claims = 2  # so many claims of the victim are boundaries; later ones are polls
    marks: tuple[str, ...] = ()
    order: Mapping[str, Any] = MappingProxyType({})
    doubles = True

    def __init__(
        self, name: str, workflow: Workflow[Any, Any] | None = None, *, output: Any = None, status: str = "completed",
        once: tuple[str, ...] = (), again: tuple[str, ...] = (), asks: bool = True, **given: Any,
    ) -> None:  # fmt: skip
        self.name = name
        self.workflow = workflow
        self.output = output
        self.status = status
        self.once = once  # steps with one effect, whatever happens
        self.again = again  # steps with at least one
        self.asks = asks  # an unknown outcome is possible and is asked about; else it must never be
        for word, value in given.items():
            assert hasattr(type(self), word), word
            setattr(self, word, value)

    def counts(self, boundary: Boundary) -> bool:
        """Whether this boundary is one of the scenario's own."""
        if boundary.what.startswith("heart:"):
            return self.hearts and boundary.n <= 2 and boundary.what == "heart:beat"
        if boundary.what in NOISE or boundary.what == "beat":
            return False
        if boundary.what == "sleep_worker" and boundary.n > 1:
            return False
        if not self.startup and boundary.point.startswith("statement.") and boundary.what in START_AND_END:
            return False
        if not self.startup and boundary.point == "drain.begun":
            return False
        return boundary.what != "claim_attempts" or boundary.n <= self.claims

    # ── what happens ─────────────────────────────────────────────────────────────────────────────────────────────────

    async def before(self, case: Case) -> None:
        """Before anybody is there to be killed."""
        if self.role == "worker":
            assert self.workflow is not None
            await case.stage.client.start(self.workflow, id=case.run)

    async def client(self, dsn: str, owner_dsn: str, run: str) -> Any:
        """What the client does that may be killed; done again by another when it was. What it was told."""
        raise NotImplementedError

    async def beside(self, case: Case, child: Child) -> None:
        """What others do meanwhile. It goes on while the victim dies."""

    async def done(self, case: Case) -> None:
        """Until the victim has nothing more to do."""
        await case.stage.settled(case.run)

    async def heal(self, case: Case) -> None:
        """Whoever takes over: another client with the same ids, or the healer."""
        if self.role == "client":
            case.said = await case.stage.within(
                self.client(case.stage.dsn, case.stage.owner_dsn, case.run), "the second client"
            )
        await case.stage.gate(True)

    async def finish(self, case: Case) -> None:
        """Bring it to its end, with an operator who knows what the log of effects says."""
        stage = case.stage
        for _ in range(8):
            case.outcome = await stage.within(stage.settled(case.run), f"the end of {case.run}")
            if is_terminal(case.outcome.status):
                return
            case.unknown_seen = True
            await self.operate(case)
        raise AssertionError(f"{case.run} is unknown again and again")

    async def at_kill(self, case: Case) -> None:
        """Somebody stands at a boundary and is killed there: what of it will nobody know?"""
        case.unknown_due |= await case.stage.value(
            """select exists (select from watch.live t where (t.id = $1 or t.id like $1 || '/%')
                                 and (fencepost.has_unknown_(t.rid) or t.begun and t.on_lost = 'ask'))""",
            case.run,
        )

    async def operate(self, case: Case) -> None:
        """Say what became of the unknown: completed where the effect is there, again where it is not."""
        stage = case.stage
        done = {(e.run, e.step) for e in stage.noted(case.run) if e.word == "effect"}
        marked = await stage.rows(
            """with t as (select * from watch.live where (id = $1 or id like $1 || '/%') and state = 'unknown')
               select t.id, b.name, b.ordinal, null as key from t join fencepost.boundary b using (rid)
                where b.kind = 'step' and b.state = 'marked' and not b.repeatable
               union all
               select t.id, m.name, m.ordinal, w.key from t join fencepost.map m using (rid) join fencepost.row w using (mid)
                where w.state = 'marked' and not w.repeatable""",
            case.run,
        )
        for item in marked:
            step = item["name"] if item["key"] is None else f"row{item['key']}"
            known = (item["id"], step) in done
            answer = await recovery.resolve(
                stage.db, "default", item["id"], step=item["name"], ordinal=item["ordinal"], row_key=item["key"],
                verdict="completed" if known else "again", value=json.dumps(step) if known else None, by="the harness",
            )  # fmt: skip
            assert answer[0] == "done", (item, answer)
            case.permitted[step] += not known
        whole = await stage.rows(
            "select id from watch.live where (id = $1 or id like $1 || '/%') and state = 'unknown'", case.run
        )
        for item in whole:
            answer = await recovery.resolve(
                stage.db, "default", item["id"], step=None, ordinal=None, row_key=None, verdict="again", value=None,
                by="the harness",
            )  # fmt: skip
            assert answer[0] == "done", (item, answer)

    # ── what must have come of it ────────────────────────────────────────────────────────────────────────────────────

    async def judge(self, case: Case) -> None:
        """Raises AssertionError with what is wrong."""
        assert case.outcome is not None
        self.judge_outcome(case)
        self.judge_effects(case)
        if not case.disturbed:
            assert not case.unknown_seen, "nobody was killed, and something is unknown"
        elif self.asks and not case.vague:
            assert case.unknown_seen == case.unknown_due, f"unknown: due {case.unknown_due}, seen {case.unknown_seen}"
        elif not self.asks:
            assert not case.unknown_seen, "asked about what it could have known"

    def judge_outcome(self, case: Case) -> None:
        assert case.outcome is not None
        assert case.outcome.status == self.status, case.outcome
        if self.status == "completed":
            assert json.loads(case.outcome.output or "null") == self.output, case.outcome

    def judge_effects(self, case: Case) -> None:
        """I1: begins of what may begin once. Nothing is done that was not asked for, and everything that was is done."""
        counted = case.counted()
        for step in self.once:
            begins = counted["begin", step]
            assert begins <= 1 + case.permitted[step], f"{step} began {begins} times, {case.permitted[step]} permitted"
            assert counted["effect", step] == 1, f"{step}: {counted['effect', step]} effects"
        for step in self.again:
            assert counted["effect", step] >= 1, f"{step} never happened"
            assert case.disturbed or counted["effect", step] == 1, f"{step} was repeated, and nobody was killed"
        strange = {step for word, step in counted if word != "ack"} - set(self.once) - set(self.again)
        assert not strange, f"effects of steps that were not asked for: {strange}"
