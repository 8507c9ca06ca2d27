"""Law 50.6: a map's rows are judged before the first begins."""

from __future__ import annotations

from typing import Any

import asyncpg
import pytest

from fencepost import App, Context, Mapped
from tests.legs import Driver, Effects
from tests.support_runs import rows_of

pytestmark = pytest.mark.usefixtures("lawful")


@pytest.mark.parametrize(
    ("rows", "key", "match"),
    [
        ([{"id": "a"}, {"id": "b"}, {"id": "a"}], "id", "rows 0 and 2 have the same key 'a'"),
        ([{"id": 1}, {"id": "1"}], "id", "rows 0 and 1 have the same key '1'"),
        ([{"id": "a"}, {}], "id", "row 1 has no usable key 'id'"),
        ([{"id": None}], "id", "row 0 has no usable key"),
        ([{"id": True}], "id", "row 0 has no usable key"),
        ([{"id": 1.5}], "id", "row 0 has no usable key"),
        ([{"id": " "}], "id", "key of row 0 is blank"),
        ([{"id": "a\n"}], "id", "control character"),
        ([{"id": "a"}], lambda row: row["nothing"], "nothing"),
        ([{"id": "a", "n": 1}, {"id": "b", "n": {1}}], "id", None),
    ],
)
async def test_rows_are_judged_before_the_first_begins(
    driver: Driver, app: App, effects: Effects, admin: asyncpg.Connection, rows: list[Any], key: Any, match: str | None
) -> None:
    """50.6 A missing, unusable or twice used key, and a row that cannot be stored, with its place."""

    @app.step(repeatable=True)
    async def work(row: dict[str, Any]) -> int:
        effects.happen("work")
        return 1

    @app.workflow()
    async def flow(ctx: Context) -> str:
        with pytest.raises(Exception, match=match or r"\$\[1\]\.n|set") as caught:
            await ctx.map(work, rows, key=key)
        return type(caught.value).__name__

    run = await driver.start(flow)
    if match is None:  # a set is a list to the edge, an object is not
        rows[1]["n"] = object()
    assert await driver.run_one_leg() == "completed"
    assert await driver.output(run) in ("ValueError", "KeyError", "Unstorable")
    assert effects.all() == []
    assert await rows_of(admin, "key") == []


async def test_an_empty_map_and_a_map_that_means_nothing(driver: Driver, app: App) -> None:
    """50.6"""

    @app.step(repeatable=True)
    async def work(row: str) -> int:
        return 1

    @app.workflow()
    async def flow(ctx: Context) -> int:
        for bad in ({"concurrency": 0}, {"tolerance": -1}):
            with pytest.raises(ValueError, match="must be at least"):
                await ctx.map(work, ["a"], key=str, **bad)
        found: Mapped[int] = await ctx.map(work, [], key=str)
        await ctx.sleep("nap", 0.001)
        return len(found)

    run = await driver.start(flow)
    await driver.run_losing(run, 1)
    assert await driver.output(run) == 0
