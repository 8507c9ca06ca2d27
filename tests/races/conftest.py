"""Fixtures of the races."""

from __future__ import annotations

from collections.abc import AsyncIterator

import pytest

from fencepost.db import Database
from tests.support_invariants import lawful

__all__ = ["lawful"]


@pytest.fixture
async def rival(worker_dsn: str) -> AsyncIterator[Database]:
    """Another process: its calls and `db`'s are never of one batch."""
    made = Database(worker_dsn, connections=4)
    yield made
    await made.close()


@pytest.fixture(params=["first before second", "second before first"])
def turned(request: pytest.FixtureRequest) -> bool:
    return bool(request.param == "second before first")
