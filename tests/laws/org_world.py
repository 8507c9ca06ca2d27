"""One step of scope org, a workflow that asks for it, and what both of them did: for the tests of law 50.9."""

from __future__ import annotations

from typing import Any

import pytest

from fencepost import App, Context, StepFailed, StepOutcomeUnknown, step_key
from tests.legs import Effects

__all__ = ["World", "world"]

EPOCH = "2026-11"


class World:
    """One shared step, and a workflow that asks for it; what it gives says whose run did it."""

    def __init__(self, app: App, effects: Effects, **options: Any) -> None:
        self.keys: list[str] = []
        self.told: list[str] = []
        self.fails = 0

        @app.step(**({"scope": "org", "epoch": EPOCH} | options))
        async def price(domain: str) -> str:
            effects.happen(domain)
            self.keys.append(step_key())
            if len(self.keys) <= self.fails:
                raise ValueError("no such domain")
            return f"price {len(self.keys)} of {domain}"

        @app.workflow()
        async def flow(ctx: Context, domain: str) -> str:
            try:
                return await ctx.step(price, domain)
            except StepFailed as error:
                return error.message
            except StepOutcomeUnknown:
                self.told.append(ctx.run_id)
                raise

        self.price: Any = price
        self.flow: Any = flow


@pytest.fixture
def world(app: App, effects: Effects) -> World:
    return World(app, effects)
