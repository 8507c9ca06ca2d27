"""A shop to type commands in: with a database, and without one."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.roads.command import Shop


@pytest.fixture
def shop(tmp_path: Path, dsn: str) -> Shop:
    """A database is set."""
    return Shop(tmp_path, dsn)


@pytest.fixture
def lonely(tmp_path: Path) -> Shop:
    """No database is set."""
    return Shop(tmp_path, None)
