"""Every door on the rows of one tree, in whatever order: nobody deadlocks, and the tables stay lawful (00.14, B94)."""

from __future__ import annotations

import random
from typing import Any

import asyncpg
import pytest

from fencepost import attempts
from fencepost.db import Database
from fencepost.words import Fence
from tests.support import admit_one, new_holder, next_request
from tests.support_races import Call, together
from tests.support_runs import ERROR, batch, beat, cancel, child_of, lose, send

pytestmark = pytest.mark.usefixtures("lawful")

ROUNDS = 100
AT_ONCE = 5


async def planted(db: Database, n: int) -> tuple[Any, dict[str, Fence]]:
    """A root with two children and a grandchild, all in the hands of one holder."""
    holder = await new_holder(db)
    root = await admit_one(db, f"root{n}", on_lost=("replay", "fail", "ask")[n % 3])

    async def take() -> list[Fence]:
        claim = await attempts.claim_tree(db, holder, next_request(), root=root, most=9, patience=30)
        return [c.fence for c in claim.claimed]

    tree = {"root": (await take())[0]}
    for place, name in enumerate(("a", "b"), start=1):
        await child_of(db, tree["root"], f"{name}{n}", ordinal=place)
    tree["a"], tree["b"] = await take()
    await child_of(db, tree["a"], f"g{n}")
    (tree["g"],) = await take()
    return holder, tree


def moves(databases: list[Database], n: int, holder: Any, watcher: Any, tree: dict[str, Fence]) -> list[Call]:
    """Doors on overlapping rows, parents before children and after."""
    place = iter(range(1000))

    def db() -> Database:
        return databases[next(place) % len(databases)]

    def finishes(*names: str, ending: str = "completed") -> Call:
        items = [
            (tree[m].rid, tree[m].fence, ending, "1" if ending == "completed" else ERROR, 0, 9, None) for m in names
        ]
        return lambda: batch(db(), "finish_attempts", *items)

    def pairs(door: str, *names: str, more: tuple[Any, ...] = ()) -> Call:
        return lambda: batch(db(), door, *((tree[m].rid, tree[m].fence, *more) for m in names))

    def keeps(*names: str) -> Call:
        return pairs("keep_steps", *names, more=("step", "s", 1, "h", True, True, "1"))

    def signals(*names: str) -> Call:
        return lambda: batch(
            db(), "send_signals", *(("default", f"{m}{n}", "review", str(next(place)), "1") for m in names)
        )

    def starts(*names: str) -> Call:
        return lambda: batch(
            db(),
            "start_children",
            *((tree[m].rid, tree[m].fence, "more", 1, "h", True, f"more-{m}{n}", "kid", "1", None) for m in names),
        )

    return [
        finishes("a"), finishes("g"), finishes("root"), finishes("a", "b"), finishes("b", "a"), finishes("g", "root"), finishes("root", "g", "b"),
        finishes("b", "g", ending="failed"), finishes("g", "a", ending="retry"), finishes("a", ending="unknown"), finishes("b", ending="unfit"),
        lambda: cancel(db(), f"root{n}"), lambda: cancel(db(), f"a{n}", grace=0), lambda: cancel(db(), f"b{n}"),
        lambda: db().call("end_run", "default", f"a{n}", "ann", "x"), lambda: db().call("end_run", "default", f"root{n}", "ann", "x"),
        keeps("root", "a", "b", "g"), keeps("g", "b", "a", "root"), signals("g", "root", "b"), signals("b", "a"), lambda: send(db(), f"root{n}"),
        pairs("park_attempts", "root", more=("[]", 0, True, None)),
        pairs("park_attempts", "a", "root", more=("[]", 0, True, None)),
        pairs("give_back_attempts", "g", "b", "root"), pairs("begin_attempts", "b", "a", "root"),
        pairs("defer_attempts", "b", "a", more=("workflow_missing", "x", 1)), starts("b", "root"), starts("g", "a"),
        lambda: lose(db(), holder), lambda: beat(db(), watcher, dead=[holder]), lambda: beat(db(), watcher),
        lambda: db().call("register_workflows", watcher, 1, ["kid", "work"], ["d", "d"]),
        lambda: attempts.claim(db(), watcher, next_request(), lane=1, most=9, cursor="", alone=False, patience=30),
    ]  # fmt: skip


@pytest.mark.parametrize("seed", [1, 2, 3])
async def test_no_two_doors_deadlock(db: Database, worker_dsn: str, admin: asyncpg.Connection, seed: int) -> None:
    """00.14, B94 Five at once from one barrier, on one tree, a deadlock found within 10 ms; none is, not even below the surface."""
    name = await admin.fetchval("select current_database()")
    await admin.execute(f"alter database {name} set deadlock_timeout = '10ms'")
    chance = random.Random(seed)
    others = [Database(worker_dsn, connections=2) for _ in range(AT_ONCE)]
    try:
        assert [r[0] for r in await others[0].call("read_installation")]
        watcher = await new_holder(db)
        for n in range(ROUNDS):
            holder, tree = await planted(db, n)
            await together(*chance.sample(moves(others, n, holder, watcher, tree), AT_ONCE))
    finally:
        for other in others:
            await other.close()
    await admin.execute("select pg_stat_clear_snapshot()")
    assert await admin.fetchval("select deadlocks from pg_stat_database where datname = current_database()") == 0
