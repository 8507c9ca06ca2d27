"""Scenarios S29 to S32: a worker that carries out a plan is killed. Its commands have processes of their own, and go on."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

from fencepost.planning.model import CommandStep
from tests import support_plans
from tests.crash.boundaries import Boundary
from tests.crash.scenario import Case, Scenario
from tests.crash.stage import Child
from tests.support_plans import chain, diamond, retried, step


class Plan(Scenario):
    """Whoever is killed, no command runs twice, and none is lost: each step has its effects, as often as it was tried."""

    claims = 3

    def __init__(
        self,
        name: str,
        steps: Callable[[Case], list[CommandStep]],
        *,
        tries: dict[str, int] | None = None,
        **given: Any,
    ) -> None:
        super().__init__(name, asks=False, **given)
        self.steps = steps
        self.tries = tries or {}

    def counts(self, boundary: Boundary) -> bool:
        return super().counts(boundary) and boundary.what != "claim_orphans"

    async def before(self, case: Case) -> None:
        await support_plans.admit(case.stage, case.run, self.steps(case))

    async def judge(self, case: Case) -> None:
        document = await support_plans.judge(case.stage, case.run)
        case.facts["states"] = {found["id"]: found["state"] for found in document["steps"]}
        case.facts["attempts"] = {found["id"]: found["attempts"] for found in document["steps"]}
        await super().judge(case)

    def judge_outcome(self, case: Case) -> None:
        assert case.outcome is not None
        assert case.outcome.status == self.status, case.outcome
        if self.status == "completed":
            assert json.loads(case.outcome.output or "null") == self.output, case.outcome
            assert set(case.facts["states"].values()) == {"succeeded"}, case.facts["states"]

    def judge_effects(self, case: Case) -> None:
        counted = case.counted()
        for id, tries in case.facts["attempts"].items():
            wanted = self.tries.get(id, 1)
            assert tries == wanted, f"{id}: {tries} tries, not {wanted}"
            assert counted["begin", id] == wanted, f"{id} began {counted['begin', id]} times in {wanted} tries"
            assert counted["effect", id] == 1, f"{id}: {counted['effect', id]} effects"


class Refuses(Plan):
    """The receiver of a hand-off ends with an error: what it was handed stays, and what needs it is skipped."""

    def judge_effects(self, case: Case) -> None:
        counted, states = case.counted(), case.facts["states"]
        assert states == {"source": "succeeded", "taker": "failed", "x": "skipped", "y": "skipped", "z": "skipped"}, (
            states
        )
        assert counted["begin", "source"] == counted["effect", "source"] == 1, counted
        assert counted["begin", "taker"] == 1, counted
        assert counted["effect", "taker"] == counted["begin", "x"] == 0, counted


class CancelledPlan(Plan):
    """A cancel comes while a step commits; another's command runs until it is stopped."""

    async def beside(self, case: Case, child: Child) -> None:
        stage = case.stage
        await stage.until_noted(case.run, "effect", "a")
        await stage.until_noted(case.run, "begin", "b")
        await stage.client.handle(case.run).cancel("no more", grace=20)
        case.facts["cancelled"] = True

    async def judge(self, case: Case) -> None:
        stage = case.stage
        await super().judge(case)
        await stage.until_no_supervisor()

    def judge_effects(self, case: Case) -> None:
        counted, states = case.counted(), case.facts["states"]
        assert states["a"] == "succeeded", states
        assert states["b"] in {"succeeded", "cancelled"}, states
        assert {states["hold"], states["after"]} == {"cancelled"}, states
        assert counted["effect", "hold"] == counted["begin", "after"] == 0, counted
        for id in ("a", "b", "hold"):
            assert counted["begin", id] <= 1, counted


def plain(case: Case) -> list[CommandStep]:
    return diamond()


def flaky(case: Case) -> list[CommandStep]:
    """The second is tried three times; each time it is handed the same."""
    steps = chain(3)
    broken = step("k01", "k00", code='[ "$FENCEPOST_ATTEMPT" -ge 3 ] || exit 7\n', retry=retried(3, 10))
    return [steps[0], broken, steps[2]]


def refused(case: Case) -> list[CommandStep]:
    taker = step("taker", "source", code='grep -q "what nobody says" "$folder/inputs/source" || exit 9\n')
    return [step("source"), taker, step("x", "taker"), step("y", "x"), step("z", "y")]


def cancelled(case: Case) -> list[CommandStep]:
    return [step("a"), step("hold", "a", code="sleep 600\n"), step("b", "a"), step("after", "b", "hold")]


PLANS: list[Scenario] = [
    Plan("S29", plain, output={"steps": 7, "succeeded": 7}),
    Plan("S30", flaky, output={"steps": 3, "succeeded": 3}, tries={"k01": 3}),
    Refuses("S31", refused, status="failed"),
    CancelledPlan("S32", cancelled, status="cancelled"),
]
