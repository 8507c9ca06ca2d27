"""Fixtures of the law tests."""

import uuid
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any

import asyncpg
import pytest

from fencepost import App, hot
from fencepost.db import Database
from tests.attempts_here import Place
from tests.legs import Driver, Effects
from tests.plan_table import Table
from tests.support_invariants import lawful

__all__ = ["lawful"]


@pytest.fixture
def app() -> App:
    """An app of the test's own: it declares what it needs."""
    return App("laws")


@pytest.fixture(params=["alone", "among"])
def company(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """A hot door may have a short way for one item: what holds of an item alone holds of it beside one of nobody's."""

    def beside_a_stranger(items: Iterable[Sequence[Any]]) -> list[list[Any]]:
        all_of_them = list(items)
        return columns([*all_of_them, (10**15, uuid.uuid4(), *all_of_them[0][2:])])

    columns = hot.columns
    if request.param == "among":
        monkeypatch.setattr(hot, "columns", beside_a_stranger)


@pytest.fixture
def driver(db: Database, app: App) -> Driver:
    return Driver(db, app)


@pytest.fixture
def effects(tmp_path: Path) -> Effects:
    """What author code did, counted outside the database."""
    return Effects(tmp_path / "effects")


@pytest.fixture
def here(tmp_path: Path) -> Iterator[Place]:
    """Attempts of commands on this host, without a database."""
    place = Place(tmp_path / "here")
    yield place
    place.end()


@pytest.fixture
async def table(db: Database, admin: asyncpg.Connection) -> Table:
    """A worker at whose table plans are carried out by hand."""
    return await Table.lay(db, admin)
