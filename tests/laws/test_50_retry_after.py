"""Law 50.10, and what a `Retry` makes of a time that the other side asks for."""

from __future__ import annotations

import asyncio
import math
from typing import Any

import pytest

from fencepost import App, Context, Retry
from fencepost.db import Database
from tests.legs import Driver

pytestmark = pytest.mark.usefixtures("lawful")


class Throttled(Exception):
    def __init__(self, seconds: Any) -> None:
        super().__init__(seconds)
        self.seconds = seconds


def told(error: Exception) -> float | None:
    return error.seconds if isinstance(error, Throttled) else None


# What `Retry-After` says -> the least pause, and how often it was asked in all.
SAID: list[tuple[Any, float, int]] = [
    (0.3, 0.3, 2), (None, 0.0, 2), (-3, 0.0, 2), (math.nan, 0.0, 2), ("soon", 0.0, 2), (5, 0.0, 1), (math.inf, 0.0, 1),
]  # fmt: skip


@pytest.mark.parametrize(("said", "least", "asked"), SAID, ids=str)
async def test_nobody_asks_again_before_the_time_that_was_asked_for(
    db: Database, said: Any, least: float, asked: int
) -> None:
    """50.10 Longer than `most`, nobody asks again at all: the failure stands. What is no time says nothing."""
    app = App("throttled")
    at: list[float] = []

    @app.step(retry=Retry(2, on=(Throttled,), delay=0, most=1, after=told), timeout=5)
    async def ask() -> None:
        at.append(asyncio.get_running_loop().time())
        raise Throttled(said)

    @app.workflow()
    async def flow(ctx: Context) -> None:
        await ctx.step(ask)

    driver = Driver(db, app)
    run = await driver.start(flow)
    assert (await driver.run_until(run))["status"] == "failed"
    assert len(at) == asked
    assert at[-1] - at[0] >= least
    assert ask.longest == 11, "the mark's deadline counts the longest pause that may be asked for"


async def test_an_after_that_raises_says_nothing(db: Database) -> None:
    """50.10, 00.5 The error path never fails on author code."""
    app = App("throttled")
    tries: list[int] = []

    def broken(error: Exception) -> float:
        raise KeyError("Retry-After")

    @app.step(retry=Retry(3, delay=0, after=broken))
    async def ask() -> int:
        tries.append(1)
        if len(tries) < 3:
            raise OSError("not yet")
        return len(tries)

    @app.workflow()
    async def flow(ctx: Context) -> int:
        return await ctx.step(ask)

    driver = Driver(db, app)
    run = await driver.start(flow)
    await driver.run_until(run)
    assert await driver.output(run) == 3


def test_a_workflows_retry_takes_no_after() -> None:
    """50.10 What it sees is StepFailed, which says no time: a declaration that means nothing is refused."""
    app = App("throttled")
    with pytest.raises(ValueError, match="after="):

        @app.workflow(retry=Retry(2, after=told))
        async def flow(ctx: Context) -> None: ...
