"""Scenarios in which a worker is killed, where they differ from the plain one."""

from __future__ import annotations

import asyncio
import json
import signal
import zlib
from typing import Any

from fencepost import suspension
from tests.crash.boundaries import Boundary
from tests.crash.scenario import Case, Scenario
from tests.crash.stage import Child


class Signalled(Scenario):
    """Signals come while the worker runs the run: before its wait, or when it is parked."""

    parked = True
    signals: tuple[tuple[str, int], ...] = (("go", 7),)

    async def before(self, case: Case) -> None:
        await super().before(case)
        if not self.parked:
            await self.send(case)

    async def beside(self, case: Case, child: Child) -> None:
        if self.parked:
            await case.stage.until_parked(case.run)
            await self.send(case)

    async def send(self, case: Case) -> None:
        for name, value in self.signals:
            await suspension.signal(case.stage.db, "default", case.run, name, dedupe=f"{name}1", payload=str(value))


class AtTheHour(Signalled):
    """The signal is sent at the instant at which the wait times out, a little more or less."""

    async def beside(self, case: Case, child: Child) -> None:
        stage = case.stage
        hour = await stage.until(
            """select extract(epoch from b.until - clock_timestamp())::float8 + 1000 from fencepost.boundary b join fencepost.run r using (rid)
                where r.id = $1 and b.kind = 'signal' and b.until is not null""",
            case.run, what=f"the wait of {case.run}",
        )  # fmt: skip
        with_jitter = hour - 1000 + (zlib.crc32(case.run.encode()) % 7 - 3) / 1000
        if with_jitter > 0:
            await asyncio.sleep(with_jitter)  # waits: for the hour
        await self.send(case)

    def judge_outcome(self, case: Case) -> None:
        assert case.outcome is not None
        output = json.loads(case.outcome.output or "null")
        assert case.outcome.status == "completed", case.outcome
        assert output in (["in time", 7], ["later", 7]), output


class MayFail(Scenario):
    """`on_lost` fail: lost after it began, the run fails; otherwise it completes."""

    async def at_kill(self, case: Case) -> None:
        if await case.stage.value(
            "select exists (select from watch.live where id = $1 and begun)",
            case.run,
        ):
            case.facts["lost"] = True

    def judge_outcome(self, case: Case) -> None:
        assert case.outcome is not None
        if not case.facts.get("lost"):
            super().judge_outcome(case)
            return
        assert case.outcome.status == "failed", case.outcome
        assert json.loads(case.outcome.error or "{}")["code"] == "RUNNER_LOST", case.outcome

    def judge_effects(self, case: Case) -> None:
        counted = case.counted()
        for step in self.again:
            assert counted["begin", step] <= 1, f"{step} began twice, and the run had declared that a loss is its end"
            assert case.facts.get("lost") or counted["effect", step] == 1, counted


class Fails(Scenario):
    code = "STEP_FAILED"

    def judge_outcome(self, case: Case) -> None:
        super().judge_outcome(case)
        assert case.outcome is not None
        assert json.loads(case.outcome.error or "{}")["code"] == self.code, case.outcome

    def judge_effects(self, case: Case) -> None:
        counted = case.counted()
        assert 1 <= counted["begin", "breaks"] <= 1 + case.permitted["breaks"], counted
        assert counted["effect", "ra"] >= 1, counted


class LooksUp(Scenario):
    """A provider's call with a look-up: one effect, and nobody is asked."""

    def __init__(self, *args: Any, paid: str, **given: Any) -> None:
        super().__init__(*args, asks=False, **given)
        self.paid = paid

    def judge_effects(self, case: Case) -> None:
        counted = case.counted()
        assert counted["effect", self.paid] == 1, counted
        assert counted["begin", self.paid] <= 1 + case.kills, counted
        assert counted["effect", "ra"] >= 1, counted


class Changed(Scenario):
    """The run meets code that does not fit its history, waits for code that does, and ends with it."""

    app = "changed"

    async def before(self, case: Case) -> None:
        stage = case.stage
        await super().before(case)
        await stage.gate(True)
        await stage.until_parked(case.run)
        await stage.gate(False)
        await suspension.signal(stage.db, "default", case.run, "go", dedupe="go1", payload="7")

    async def done(self, case: Case) -> None:
        await case.stage.until_parked(case.run, "code")

    async def heal(self, case: Case) -> None:
        stage = case.stage
        other = await stage.fork(role="worker", app="changed")
        try:
            await stage.until_parked(case.run, "code")
        finally:
            await stage.dismiss(other)
        case.facts["other"] = await stage.fork(role="worker", app="main")

    async def finish(self, case: Case) -> None:
        if "other" not in case.facts:
            case.facts["other"] = await case.stage.fork(role="worker", app="main")
        await super().finish(case)
        await case.stage.dismiss(case.facts["other"])

    def judge_effects(self, case: Case) -> None:
        super().judge_effects(case)
        assert case.counted()["begin", "rc"] == 0, "code that does not fit the history had an effect"


class Reaps(Scenario):
    """A worker is gone, and nobody but the victim is there to see it: the victim is killed in the beats that find it out (85.4)."""

    hearts = True
    doubles = False

    def counts(self, boundary: Boundary) -> bool:
        return boundary.what == "heart:beat" and boundary.n <= 4

    async def before(self, case: Case) -> None:
        stage = case.stage
        await super().before(case)
        first = await stage.fork(role="worker", app="main", target="step.kept[ra]:1")
        await stage.within(asyncio.shield(first.hit), "the first worker's boundary")
        await stage.dismiss(stage.healer)
        await stage.dismiss(first)
        case.facts["alone"] = True

    async def heal(self, case: Case) -> None:
        await self._back(case)
        await super().heal(case)

    async def finish(self, case: Case) -> None:
        await self._back(case)
        await super().finish(case)

    async def _back(self, case: Case) -> None:
        if case.facts.pop("alone", False):
            await case.stage.start_healer()

    def judge_effects(self, case: Case) -> None:
        counted = case.counted()
        assert counted["effect", "ra"] == 1, "it was kept before anybody was killed"
        assert counted["effect", "rb"] >= 1, counted


class CancelledWhileRunning(Scenario):
    """The worker that is killed is being told to cancel."""

    marks = ("code.begin[hold]",)

    async def beside(self, case: Case, child: Child) -> None:
        await case.stage.until_noted(case.run, "begin", "hold")
        await case.stage.client.handle(case.run).cancel("no more", grace=20)

    def judge_effects(self, case: Case) -> None:
        assert case.counted()["effect", "hold"] == 0


class CancelledTree(Scenario):
    async def beside(self, case: Case, child: Child) -> None:
        await case.stage.until_parked(f"{case.run}/middle/1/leaf/1")
        await case.stage.client.handle(case.run).cancel("no more", grace=20)

    async def judge(self, case: Case) -> None:
        await super().judge(case)
        for child in (f"{case.run}/middle/1", f"{case.run}/middle/1/leaf/1"):
            assert await case.stage.state(child) == "cancelled", child


class Children(Scenario):
    def judge_effects(self, case: Case) -> None:
        counted = case.counted()
        assert counted["effect", "a"] == 1, counted
        assert counted["begin", "a"] <= 1 + case.permitted["a"], counted
        assert counted["effect", "rb"] >= 1, counted

    async def finish(self, case: Case) -> None:
        # The parent waits for a child that may be unknown: the operator looks at both.
        stage, kid = case.stage, f"{case.run}/kid/1"
        for _ in range(8):
            ended = asyncio.ensure_future(stage.settled(case.run))
            asked = asyncio.ensure_future(
                stage.until(
                    "select exists (select from watch.live where id = $1 and state = 'unknown')",
                    kid,
                )
            )
            await stage.within(
                asyncio.wait({ended, asked}, return_when=asyncio.FIRST_COMPLETED), f"the end of {case.run}"
            )
            asked.cancel()
            await asyncio.gather(asked, return_exceptions=True)
            if ended.done() and ended.result().status != "unknown":
                case.outcome = ended.result()
                return
            ended.cancel()
            case.unknown_seen = True
            await self.operate(case)
        raise AssertionError(f"{case.run} is unknown again and again")


class Drains(Scenario):
    """The worker is told to stop in the middle of a step, by SIGTERM; another run waits in the line."""

    startup = True
    marks = ("code.begin[slow]",)
    exits = True

    def counts(self, boundary: Boundary) -> bool:
        return super().counts(boundary) and boundary.what not in {
            "register_lane", "open_incarnation", "register_workflows", "sleep_worker", "claim_attempts",
        }  # fmt: skip

    async def beside(self, case: Case, child: Child) -> None:
        case.facts["child"] = child
        begun, ended = (asyncio.ensure_future(event.wait()) for event in (child.mark("code.begin[slow]"), child.ended))
        await asyncio.wait({begun, ended}, return_when=asyncio.FIRST_COMPLETED)
        child.signal(signal.SIGTERM)
        for task in (begun, ended):
            task.cancel()

    async def done(self, case: Case) -> None:
        await asyncio.Event().wait()  # it ends by itself

    async def judge(self, case: Case) -> None:
        await super().judge(case)
        if not case.disturbed:
            assert case.facts["child"].exit == 0, case.facts["child"].exit

    def judge_effects(self, case: Case) -> None:
        counted = case.counted()
        assert counted["effect", "slow"] >= 1, counted
        assert counted["effect", "ra"] >= 1, counted
