"""Plans at the doors: steps in their normal form, and a table at which they are claimed, begun and ended by hand."""

from __future__ import annotations

import hashlib
import json
import uuid
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

import asyncpg

from fencepost import attempts, ledger, plans, recovery, terminal
from fencepost.attempts import Claimed
from fencepost.db import Database
from fencepost.plans import Carrier
from fencepost.recovery import Beat
from fencepost.words import Verdict
from tests.support import lane_of, new_holder, next_request
from tests.support_runs import beat, lose

TEXT = "text/plain; charset=utf-8"
JSON = "application/json"


def retry(
    tries: int, backoff: str = "none", first: int = 0, most: int = 0, on: Iterable[str] = ("failure",)
) -> dict[str, Any]:
    return {
        "max_attempts": tries,
        "backoff": backoff,
        "initial_delay_ms": first,
        "max_delay_ms": most,
        "on": list(on),
    }


def maybe(step: str) -> dict[str, Any]:
    """An optional dependency."""
    return {"step": step, "optional": True}


def hand(source: str, mode: str = "content", *, required: bool = True, input: str | None = None) -> dict[str, Any]:
    """A hand-off of STEP.OUTPUT."""
    step, _, output = source.partition(".")
    name = input or step
    return {
        "id": name,
        "input": name,
        "step": step,
        "output": output,
        "mode": mode,
        "required": required,
        "description": f"of {step}",
    }


def step(id: str, *needs: str | dict[str, Any], kind: str = "command", **changed: Any) -> dict[str, Any]:
    """A step in its normal form, with what a test changes of it."""
    given: dict[str, Any] = {
        "id": id,
        "kind": kind,
        "needs": [n if isinstance(n, dict) else {"step": n, "optional": False} for n in needs],
        "handoffs": [],
        "retry": retry(1),
        "timeout_ms": None,
        "on_lost": "replay" if kind == "workflow" else "fail",
        "initially_skipped": False,
        "outputs": {},
    }
    own: dict[str, dict[str, Any]] = {
        "command": {"command": ["true"], "env": {}, "cwd": None, "stdin": None},
        "python": {"python": "m:f", "env": {}, "cwd": None, "input": {}},
        "workflow": {"workflow": "kid", "input": None},
    }
    return given | own[kind] | changed


def definition(*steps: dict[str, Any], most: int = 4, name: str = "p") -> str:
    return json.dumps({"name": name, "max_concurrency": most, "steps": list(steps)})


def digest_of(text: str) -> str:
    return f"sha256:{hashlib.sha256(text.encode()).hexdigest()}"


def result(outputs: Mapping[str, str], media_type: str = TEXT) -> str:
    """What a step's child ends with, as its executor writes it."""
    made = {
        name: {"media_type": media_type, "size": len(text.encode()), "digest": digest_of(text), "text": text}
        for name, text in outputs.items()
    }
    return json.dumps({"outputs": made})


def failure(outcome: str = "failure", message: str = "it exited with 3") -> str:
    return json.dumps({"code": "STEP_FAILED", "outcome": outcome, "message": message})


def step_of(claimed: Claimed) -> str:
    """The step whose try this run is: `<run>/<step>/<try>`."""
    return claimed.id.rsplit("/", 2)[1]


@dataclass
class Table:
    """One worker, and who may look at the tables."""

    db: Database
    admin: asyncpg.Connection
    lane: int
    me: uuid.UUID

    @classmethod
    async def lay(cls, db: Database, admin: asyncpg.Connection) -> Table:
        return cls(db, admin, await lane_of(db), await new_holder(db))

    async def ask(self, id: str, text: str, **changed: Any) -> plans.PlanAdmission:
        given: dict[str, Any] = {
            "org": "default", "name": "p", "lane": self.lane, "release": "dev", "source": "program",
        }  # fmt: skip
        return await plans.admit(self.db, run_id=id, definition=text, **(given | changed))

    async def admit(self, id: str, *steps: dict[str, Any], most: int = 4, org: str = "default") -> int:
        made = await self.ask(id, definition(*steps, most=most), org=org)
        assert made.answer == "created", made
        assert made.rid is not None
        return made.rid

    async def claim(self, most: int = 64, *, holder: uuid.UUID | None = None) -> dict[str, Claimed]:
        """What the line gives, by step, in its order."""
        claim = await attempts.claim(
            self.db, holder or self.me, next_request(), lane=self.lane, most=most, cursor="", alone=True, patience=30
        )
        return {step_of(c): c for c in claim.claimed}

    async def one(self, step: str, *, holder: uuid.UUID | None = None) -> Claimed:
        """The next of the line, which must be a try of this step."""
        (claimed,) = (await self.claim(1, holder=holder)).items()
        assert claimed[0] == step, claimed
        return claimed[1]

    async def begin(self, claimed: Claimed, **facts: Any) -> Any:
        """The packet, or the answer that there is none."""
        given = {"boot_id": "boot", "pid_namespace": "4026531836", "pid": 7, "process_start": "9", "host": "h"}
        answer = await plans.begin(self.db, claimed.fence, Carrier(**({**given, "folder": "/f"} | facts)))
        return json.loads(answer) if isinstance(answer, str) else answer

    async def win(self, claimed: Claimed, **outputs: str) -> Any:
        return await terminal.finish(self.db, claimed.fence, "completed", result(outputs))

    async def fail(self, claimed: Claimed, outcome: str = "failure", message: str = "it exited with 3") -> Any:
        return await terminal.finish(self.db, claimed.fence, "failed", failure(outcome, message))

    async def through(self, *steps: str, **outputs: str) -> None:
        """Each of these, in this order, is the next of the line, and succeeds."""
        for name in steps:
            await self.win(await self.one(name), **outputs)

    async def orphan(self, step: str, *, worker: dict[str, Any] | None = None, **facts: Any) -> Claimed:
        """A try of this step that has begun, and whose worker is gone without a word of it."""
        gone = await new_holder(self.db, **(worker or {}))
        claimed = await self.one(step, holder=gone)
        assert isinstance(await self.begin(claimed, **facts), dict)
        await lose(self.db, gone)
        return claimed

    async def beat(self, holder: uuid.UUID | None = None, **how: Any) -> Beat:
        return await beat(self.db, holder or self.me, **how)

    async def adopt(self, *rids: int, holder: uuid.UUID | None = None, root: int | None = None) -> tuple[Claimed, ...]:
        return (
            await attempts.claim_orphans(self.db, holder or self.me, next_request(), rids, root=root, patience=30)
        ).claimed

    async def resolve(self, id: str, verdict: Verdict, value: str | None = None) -> tuple[str, str | None]:
        return await recovery.resolve(
            self.db, "default", id, step=None, ordinal=None, row_key=None, verdict=verdict, value=value, by="me"
        )

    async def plan(self, id: str) -> dict[str, Any]:
        found = await plans.read(self.db, "default", id)
        assert found is not None, id
        return found

    async def steps(self, id: str) -> dict[str, dict[str, Any]]:
        return {s["id"]: s for s in (await self.plan(id))["steps"]}

    async def states(self, id: str) -> dict[str, str]:
        return {name: s["state"] for name, s in (await self.steps(id)).items()}

    async def status(self, id: str) -> str:
        return str((await self.plan(id))["status"])

    async def story(self, id: str, *types: str) -> list[tuple[str, ...]]:
        """Its events, each with the step it is about."""
        events = await ledger.read_events(self.db, "default", id, after=0, limit=10_000)
        return [
            (e.type, *([e.data["step"]] if "step" in e.data else [])) for e in events if not types or e.type in types
        ]

    async def flying(self, id: str) -> int:
        """How many tries of its steps live."""
        n: int = await self.admin.fetchval(
            "select count(*) from fencepost.task t join fencepost.run r on r.rid = t.parent where r.id = $1", id
        )
        return n
