"""A few boundaries of the scenarios of plans, every day the same; all of them are walked by the campaign."""

from __future__ import annotations

from pathlib import Path

import pytest

from fencepost.testing import TemplateDatabase
from tests.crash.boundaries import Boundary
from tests.crash.campaign import Broken, Tally, count, play
from tests.crash.power import POWER
from tests.crash.scenarios import SCENARIOS
from tests.crash.test_crash import mutate, staged

pytestmark = pytest.mark.timeout(300)

POINTS = {
    "S29": ("statement.executed[begin_steps]:1", "step.begun[c]:1", "step.gone[d]:1", "step.ended[a]:1"),
    "S30": ("step.told[k01]:2",),
    "S31": ("step.ended[taker]:1",),
    "S32": ("statement.before[finish_attempts]:2",),
}


async def test_a_plan_has_its_boundaries_by_name(template: TemplateDatabase, tmp_path: Path) -> None:
    async with staged(template, tmp_path) as stage:
        known = set(await count(stage, SCENARIOS["S29"]))
    for point in ("started", "begun", "gone", "ended", "told"):
        assert {Boundary(f"step.{point}", step, 1) for step in "abcdefg"} <= known
    for door in ("begin_steps", "finish_attempts"):
        assert Boundary("statement.executed", door, 3) in known


async def test_a_worker_that_is_killed_takes_nothing_of_a_plan_along(
    template: TemplateDatabase, tmp_path: Path
) -> None:
    async with staged(template, tmp_path) as stage:
        for name, points in POINTS.items():
            for point in points:
                hit, _, _ = await play(stage, SCENARIOS[name], target=Boundary.parse(point))
                assert hit, f"{name} {point}"


async def test_a_law_that_loses_what_is_only_silent_is_red(template: TemplateDatabase, tmp_path: Path) -> None:
    """A command whose worker is dead is not lost: it goes on, and is adopted."""
    async with staged(template, tmp_path) as stage:
        kept = "if t.opaque and t.begun and _reason not in ('process_gone', 'ceiling_passed', 'grace_over', 'operator') then return 'kept'; end if;"
        await mutate(stage, "lose_", kept, "")
        await mutate(stage, "reap_", " and not (t.opaque and t.begun)", "")
        with pytest.raises(Broken, match="lost"):
            await play(stage, SCENARIOS["S29"], target=Boundary.parse("step.gone[c]:1"))


async def test_a_plan_goes_on_after_the_power_is_back(template: TemplateDatabase, tmp_path: Path) -> None:
    [power] = POWER
    tally = Tally(power)
    tally.known = [Boundary.parse("step.gone[c]:1"), Boundary.parse("statement.executed[finish_attempts]:4")]
    tally.todo = list(tally.known)
    async with staged(template, tmp_path) as stage:
        await power.play(stage, tally)
    assert tally.hit == set(tally.known)
