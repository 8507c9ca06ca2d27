"""Random plans and random moves, from one number each; the same moves through the real doors and by the oracle."""

from __future__ import annotations

import json
import random
import uuid
from collections.abc import Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from typing import Any

import asyncpg
import msgspec

from fencepost import attempts, plans, recovery, terminal
from fencepost.attempts import Claimed
from fencepost.db import Database
from fencepost.plans import Carrier
from tests.oracle_plans import Oracle, Outcome
from tests.plan_table import definition, failure, hand, maybe, result, retry, step, step_of
from tests.support import next_request

ZERO = datetime(2031, 5, 6, 12, tzinfo=UTC)
OUTCOMES: tuple[Outcome, ...] = ("failure", "timeout", "launch_error", "invalid_output")
SEEN = """
select r.id, coalesce(o.status, case t.park when 'plan' then 'running' else t.state end) as status, o.output, t.due_at,
       (select json_agg(json_build_object('id', s.id, 'state', s.state, 'tries', s.try, 'outcome', s.outcome, 'reason', s.reason) order by s.no)
          from fencepost.step s where s.rid = r.rid)::text as steps,
       (select coalesce(json_agg(c.id order by c.rid), '[]') from fencepost.run c join fencepost.task x on x.rid = c.rid and x.state = 'queued'
         where c.parent = r.rid)::text as queued
  from fencepost.run r left join fencepost.outcome o using (rid) left join fencepost.task t using (rid) where r.rid = any ($1)"""


def invent(dice: random.Random) -> dict[str, Any]:
    """A plan of 2 to 25 steps: any DAG, in any written order."""
    n = dice.choice((2, 3, 4, 5, 6, 8, 10, 12, 16, 25))
    density = dice.choice((0.1, 0.25, 0.5))
    names = [f"s{k}" for k in range(n)]
    above: dict[str, set[str]] = {}
    steps = []
    for k, name in enumerate(names):
        needs = [earlier for earlier in names[max(0, k - 8) : k] if dice.random() < density]
        above[name] = set(needs).union(*(above[need] for need in needs))
        sources = dice.sample(sorted(above[name]), min(len(above[name]), dice.choice((0, 0, 0, 1, 2))))
        made = step(
            name,
            *(maybe(need) if dice.random() < 0.3 else need for need in needs),
            kind=dice.choice(("command", "python")),
            handoffs=[
                hand(f"{source}.{dice.choice('oq')}", dice.choice(("none", "reference", "quote", "content")), required=dice.random() < 0.5)
                for source in sources
            ],
            retry=retry(
                dice.choice((1, 1, 2, 3)), dice.choice(("none", "linear", "exponential")), dice.choice((0, 0, 700)),
                dice.choice((0, 1000)), dice.sample(OUTCOMES, dice.choice((1, 2, 4))),
            ),
            on_lost=dice.choice(("fail", "replay", "ask")),
            initially_skipped=dice.random() < 0.07,
        )  # fmt: skip
        steps.append(made)
    dice.shuffle(steps)
    found: dict[str, Any] = json.loads(definition(*steps, most=dice.randint(1, 5)))
    return found


@dataclass
class Game:
    """One plan at both tables. `play` is one move; what was done is in `moves`."""

    db: Database
    lane: int
    me: uuid.UUID
    seed: int
    now: int
    dice: random.Random = field(init=False)
    oracle: Oracle = field(init=False)
    rid: int = 0
    id: str = ""
    claimed: dict[str, Claimed] = field(default_factory=dict)
    begun: set[str] = field(default_factory=set)
    moves: list[tuple[Any, ...]] = field(default_factory=list)
    stubborn: float = 0.0  # how often a try fails

    def __post_init__(self) -> None:
        self.dice = random.Random(self.seed)
        self.id = f"g-{uuid.uuid4().hex}"
        self.oracle = Oracle(invent(self.dice), self.now)
        self.stubborn = self.dice.choice((0.0, 0.15, 0.5))

    async def admit(self) -> None:
        made = await plans.admit(
            self.db, org="default", run_id=self.id, name="p", lane=self.lane, release="dev", source="program",
            definition=json.dumps(self.oracle.definition),
        )  # fmt: skip
        assert made.answer == "created"
        assert made.rid is not None
        self.rid = made.rid

    @property
    def over(self) -> bool:
        return self.oracle.status() in {"completed", "failed", "cancelled"}

    async def play(self) -> None:
        held, unknown, queued = self.oracle.held(), self.oracle.unknown(), self.oracle.queued()
        able = (
            ["claim"] * 4 * bool(queued) + ["finish"] * 6 * bool(held) + ["begin", "lose", "return"] * bool(held)
            + ["resolve"] * (1 if held or queued else 9) * bool(unknown)
        )  # fmt: skip
        if self.dice.random() < 0.01:
            able = ["cancel"]
        if able:
            move = self.dice.choice(able)
            self.moves.append((move,))
            await getattr(self, f"_{move}")()

    async def _claim(self) -> None:
        most = self.dice.choice((1, 1, 2, 5))
        claim = await attempts.claim_tree(self.db, self.me, next_request(), root=self.rid, most=most, patience=30)
        got = {step_of(c): c for c in claim.claimed}
        self.moves[-1] += tuple(got)
        assert list(got) == self.oracle.claim(most)
        for name, c in got.items():
            assert c.id == f"{self.id}/{name}/{self.oracle.steps[name].tries}"
            assert c.fence.fence not in {old.fence.fence for old in self.claimed.values()}
        self.claimed |= got
        self.begun -= set(got)

    async def _begin(self) -> None:
        name = self._one(self.oracle.held())
        answer = await plans.begin(self.db, self.claimed[name].fence, Carrier("b", "n", 1, "1", "h", "/f"))
        if self.oracle.cancelling:
            assert not isinstance(answer, str)
            return
        assert isinstance(answer, str), answer
        if name not in self.begun:  # asked again it is the packet that it was
            packet = msgspec.json.decode(answer)
            assert {i["input"]: i["mode"] for i in packet["inputs"].values()} == self.oracle.handed(name)
        self.begun.add(name)

    async def _finish(self) -> None:
        held = self.oracle.held()
        chosen = self.dice.sample(held, self.dice.randint(1, len(held)))
        endings: dict[str, tuple[Outcome, list[str]]] = {}
        for name in chosen:
            outcome = self.dice.choice(OUTCOMES) if self.dice.random() < self.stubborn else "success"
            endings[name] = (outcome, [o for o in "oq" if self.dice.random() < 0.8])
        self.moves[-1] += tuple(endings.items())
        fences = [self.claimed[name].fence for name in chosen]
        nothing = [None] * len(chosen)
        rows = await self.db.call(
            "finish_attempts", [f.rid for f in fences], [f.fence for f in fences],
            ["completed" if o == "success" else "failed" for o, _ in endings.values()],
            [result(dict.fromkeys(made, "1")) if o == "success" else failure(o) for o, made in endings.values()],
            nothing, nothing, nothing,
        )  # fmt: skip
        assert {row["answer"] for row in rows} == {"cancelled" if self.oracle.cancelling else "committed"}
        self.oracle.finish(endings)

    async def _lose(self) -> None:
        if not (ready := [name for name in self.oracle.held() if name in self.begun]):
            return
        name = self._one(ready)
        assert await plans.lose(self.db, self.claimed[name].fence, begun=True) == "lost"
        self.oracle.lose(name)

    async def _return(self) -> None:
        name = self._one(self.oracle.held())
        if name in self.begun:
            assert await plans.lose(self.db, self.claimed[name].fence, begun=False) == "given_back"
        else:
            assert await attempts.give_back(self.db, self.claimed[name].fence) == "given_back"
        self.oracle.give_back(name)

    async def _resolve(self) -> None:
        name, verdict = self._one(self.oracle.unknown()), self.dice.choice(("completed", "failed", "again"))
        made = [o for o in "oq" if self.dice.random() < 0.8]
        value = {"completed": result(dict.fromkeys(made, "1")), "failed": failure(), "again": None}[verdict]
        assert await recovery.resolve(
            self.db, "default", f"{self.id}/{name}/{self.oracle.steps[name].tries}", step=None, ordinal=None, row_key=None,
            verdict=verdict, value=value, by="me",  # type: ignore[arg-type]  # a verdict of the three above
        ) == ("done", None)  # fmt: skip
        self.moves[-1] += (verdict, made)
        self.oracle.resolve(name, verdict, made)

    async def _cancel(self) -> None:
        self.oracle.cancel()
        answer, _ = await terminal.cancel(self.db, "default", self.id, reason="r", grace_ms=10**9)
        assert answer == "accepted"

    def _one(self, names: Sequence[str]) -> str:
        name = self.dice.choice(names)
        self.moves[-1] += (name,)
        return name

    def compare(self, seen: asyncpg.Record) -> None:
        assert seen["status"] == self.oracle.status()
        if seen["status"] == "completed":
            assert (json.loads(seen["output"]).get("reason") == "all_skipped") == self.oracle.all_skipped()
        queued = [id.rsplit("/", 2)[1] for id in json.loads(seen["queued"])]
        assert queued == self.oracle.queued()
        for row in json.loads(seen["steps"]):
            expected = self.oracle.steps[row["id"]]
            assert (row["state"], row["tries"]) == (expected.state, expected.tries), row["id"]
            if expected.ended:
                assert row["outcome"] == expected.outcome, row["id"]
            if expected.state == "skipped":
                self._explained(row["reason"], expected.because)
        if not self.over and not self.oracle.cancelling:
            due = self.oracle.next_due()
            assert seen["due_at"] == (None if due is None else ZERO + timedelta(milliseconds=due))

    def _explained(self, reason: str, because: frozenset[str] | str | None) -> None:
        if isinstance(because, frozenset):
            said = {
                f"needs {n}, which {'failed' if self.oracle.steps[n].state == 'failed' else 'was skipped'}"
                for n in because
            }
            assert reason in said
        else:
            assert reason == because
