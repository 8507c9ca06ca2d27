"""A slice of the crash campaign, another part each day; and proof that the harness turns red when it must."""

from __future__ import annotations

import contextlib
import os
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from fencepost.testing import TemplateDatabase
from tests.crash.__main__ import arguments, perform
from tests.crash.boundaries import Boundary
from tests.crash.campaign import Broken, Campaign, count, play
from tests.crash.scenarios import SCENARIOS
from tests.crash.stage import Stage

SECONDS = os.environ.get("FENCEPOST_CRASH_SECONDS", "80")


@contextlib.asynccontextmanager
async def staged(template: TemplateDatabase, folder: Path) -> AsyncIterator[Stage]:
    async with template.clone() as installation, Stage(installation, folder, "a") as stage:
        yield stage


@pytest.mark.timeout(600)
async def test_a_slice_of_all_boundaries_comes_out_right(template: TemplateDatabase, tmp_path: Path) -> None:
    said: list[str] = []
    fine = await perform(template, tmp_path, arguments(["--slice", SECONDS, "--lanes", "1"]), said.append)
    assert fine, "\n".join(said)
    print(*said, sep="\n")


async def test_a_scenario_has_its_boundaries_by_name(template: TemplateDatabase, tmp_path: Path) -> None:
    async with staged(template, tmp_path) as stage:
        known = set(await count(stage, SCENARIOS["S01"]))
    for door in (
        "open_incarnation",
        "claim_attempts",
        "mark_steps",
        "keep_steps",
        "finish_attempts",
        "close_incarnation",
    ):
        for phase in ("before", "executed", "after"):
            assert Boundary(f"statement.{phase}", door, 1) in known
    for named in (
        "leg.claimed[]:1",
        "step.marked[a]:1",
        "step.begin[a]:1",
        "code.effect[a]:1",
        "step.end[a]:1",
        "step.kept[a]:1",
        "leg.ended[]:1",
    ):
        assert Boundary.parse(named) in known
    assert Boundary("statement.executed", "heart:beat", 1) in known


async def test_a_boundary_that_is_never_hit_is_red(template: TemplateDatabase, tmp_path: Path) -> None:
    async with staged(template, tmp_path) as stage:
        said: list[str] = []
        campaign = Campaign(lambda _: contextlib.nullcontext(stage), seed=1, until=None, say=said.append)
        assert not await campaign.run(1, [SCENARIOS["S07"]], [Boundary("step.kept", "nowhere", 1)])
    assert any("never hit: S07 step.kept[nowhere]:1" in line for line in said), said


async def mutate(stage: Stage, function: str, text: str, instead: str) -> None:
    """Break the law of this stage's database on purpose."""
    law = await stage.value("select pg_get_functiondef($1::regproc)", f"fencepost.{function}")
    law = law.replace('"fencepost"', "fencepost")
    assert law.count(text) == 1, law
    await stage.execute(law.replace(text, instead))


async def test_a_law_that_forgets_its_marks_is_red(template: TemplateDatabase, tmp_path: Path) -> None:
    """What began may begin again without a word: the log of effects tells."""
    async with staged(template, tmp_path) as stage:
        begins = "  if t.state = 'cancelling' then\n"
        forgets = "  delete from fencepost.boundary b where b.rid = _rid and b.state = 'marked';\n"
        await stage.execute("drop trigger watch_delete on fencepost.boundary")
        await mutate(stage, "lose_", begins, forgets + begins)
        with pytest.raises(Broken, match="a began 2 times, 0 permitted"):
            await play(stage, SCENARIOS["S01"], target=Boundary("step.end", "a", 1))


async def test_a_law_that_loses_nobody_is_red(
    template: TemplateDatabase, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Work whose worker is gone and that nobody takes over is stuck, and its words say where."""
    async with staged(template, tmp_path) as stage:
        monkeypatch.setattr("tests.crash.stage.SECONDS", 3.0)
        loses = "if fencepost.lose_(v_rid, _reason, _now) <> 'kept' then v_n := v_n + 1; end if;"
        await mutate(stage, "reap_", loses, "null;")
        with pytest.raises(Broken, match=r"(?s)Stuck: the end of S07.*is running"):
            await play(stage, SCENARIOS["S07"], target=Boundary("step.kept", "ra", 1))
