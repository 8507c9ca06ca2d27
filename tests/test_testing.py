"""The tools that users test with."""

from __future__ import annotations

import asyncio
import json
import os
import subprocess
import sys
import uuid
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import asyncpg
import pytest

from fencepost import faults
from fencepost.db import Database
from fencepost.ledger import read_installation
from fencepost.testing import Clock, Spot, TemplateDatabase, at_point, database, pause_at, raise_at
from tests.roads.crew import until_row
from tests.support import admit_one, look


async def test_the_clock_stands_where_it_was_set_and_everybody_reads_it(db: Database, clock: Clock) -> None:
    noon = datetime(2031, 5, 6, 12, tzinfo=UTC)
    assert await clock.set(noon) == noon == await clock.now()
    assert await clock.advance(1.5) == noon + timedelta(seconds=1.5)
    assert await clock.advance(timedelta(days=1)) == noon + timedelta(days=1, seconds=1.5)
    assert datetime.fromisoformat((await read_installation(db))["now"]) == await clock.now()


async def test_a_clone_is_an_installation_of_its_own_and_no_copy(db: Database, template: TemplateDatabase) -> None:
    facts = await read_installation(db)
    assert facts["test"] is True
    assert facts["is_copy"] is False
    async with template.clone() as other:
        connection = await asyncpg.connect(other.dsn)
        assert str(await connection.fetchval("select installation from fencepost.meta")) != facts["installation"]
        await connection.close()


async def test_two_processes_that_make_one_template_at_once_both_have_it(server: str) -> None:
    """The other's rename is not committed when ours begins, so that ours meets an entry of the index and not a database."""
    schema = f"fencepost_{uuid.uuid4().hex[:8]}"
    name = await TemplateDatabase(server, schema).make()
    ours = "select pid from pg_stat_activity where query like 'alter database fencepost_building%' and wait_event_type = 'Lock'"
    other, watch = await asyncpg.connect(server), await asyncpg.connect(server)
    try:
        await other.execute(f"alter database {name} rename to {name}_made")
        async with other.transaction():
            await other.execute(f"alter database {name}_made rename to {name}")
            making = asyncio.ensure_future(TemplateDatabase(server, schema).make())
            await until_row(lambda: watch.fetchval(ours), "our rename behind theirs")
        assert await making == name
        assert await watch.fetchval("select count(*) from pg_database where datname = $1", name) == 1
    finally:
        await other.execute(f"drop database if exists {name} (force)")
        await other.close()
        await watch.close()


async def test_a_users_database_is_migrated_and_gone_afterwards(server: str) -> None:
    async with database(server) as installation:
        await installation.clock.advance(1)
    with pytest.raises(asyncpg.InvalidCatalogNameError):
        await asyncpg.connect(installation.dsn)


async def test_only_a_test_installation_has_a_clock_to_set(admin: asyncpg.Connection, clock: Clock) -> None:
    await admin.execute("update fencepost.meta set test_now = null, test = false")
    for asked in (clock.now(), clock.set(datetime.now(UTC)), clock.advance(1)):
        with pytest.raises(RuntimeError, match="migrated for tests"):
            await asked


async def test_who_reaches_a_pause_waits_there_until_released(db: Database) -> None:
    with pause_at("statement.executed", when=lambda facts: facts["door"] == "read_lanes", nth=2) as pause:
        await db.call("read_lanes")
        asked = asyncio.ensure_future(db.call("read_lanes"))
        assert await pause.reached() == {"door": "read_lanes"}
        assert not asked.done()
        pause.release()
        await asked
    assert faults.hook is None


async def test_an_error_is_raised_at_the_point_once(db: Database) -> None:
    with raise_at("statement.executed", ConnectionResetError("gone")):
        assert await db.call("read_lanes") == []  # the call was asked again (law 00.3)
    with pytest.raises(ValueError, match=r"no fault point .*step\.marked"), at_point("step.nowhere", lambda *_: None):
        pass


def test_a_spot_reads_as_it_is_written() -> None:
    assert Spot.parse("row.kept:1000") == Spot("row.kept", (), 1000)
    spot = Spot.parse("statement.executed[door=retain]:2")
    assert (spot.n, spot.matches({"door": "retain", "x": 1}), spot.matches({"door": "beat"})) == (2, True, False)
    for wrong in ("row.kept:0", "row.kept:x", "nowhere", "row.kept[door:2"):
        with pytest.raises(ValueError, match="no fault point"):
            Spot.parse(wrong)


STOPS = """
import asyncio, sys
from fencepost import faults, testing
async def leg():
    for n in range(5):
        await faults.reach("row.kept", key=n)
        print("kept", n, flush=True)
async def other():
    await asyncio.get_running_loop().run_in_executor(None, sys.stdin.readline)
    print("alive", flush=True)
async def main():
    await asyncio.gather(leg(), other())
testing.arm(testing.Spot.parse("row.kept:3"), die=DIE, report_fd=int(sys.argv[1]))
asyncio.run(main())
"""


@pytest.mark.timeout(60)
@pytest.mark.parametrize("die", [False, True])
def test_a_process_stops_at_the_nth_time_and_its_parent_is_told(die: bool) -> None:
    read, write = os.pipe()
    child = subprocess.Popen(
        [sys.executable, "-c", STOPS.replace("DIE", str(die)), str(write)],
        stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, pass_fds=[write],
    )  # fmt: skip
    os.close(write)
    try:
        with os.fdopen(read) as told:
            assert json.loads(told.readline()) == {"point": "row.kept", "n": 3, "pid": child.pid, "facts": {"key": "2"}}
        assert child.stdout
        assert [child.stdout.readline() for _ in range(2)] == ["kept 0\n", "kept 1\n"]
        if not die:  # the rest of the process goes on
            assert child.stdin
            child.stdin.write("\n")
            child.stdin.flush()
            assert child.stdout.readline() == "alive\n"
            child.kill()
        assert child.stdout.read() == ""
        assert child.wait(20) == -9
    finally:
        child.kill()
        child.communicate()


APP = """
from fencepost import App
app = App("paused")
@app.step()
async def pay(n: int) -> int:
    return n
@app.workflow()
async def work(ctx) -> int:
    return sum([await ctx.step(pay, n) for n in range(4)])
"""


def worker(place: Path, dsn: str, *words: str, **how: Any) -> subprocess.Popen[bytes]:
    environment = {**os.environ, "FENCEPOST_DATABASE_URL": dsn, "PYTHONPATH": str(place)}
    command = [sys.executable, "-m", "fencepost.testing", "worker", *words, "paused_app:app"]
    return subprocess.Popen(command, env=environment, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, **how)


@pytest.mark.parametrize("how", ["--pause", "--die"])
async def test_a_worker_process_stops_at_its_spot_and_another_finishes(
    db: Database, worker_dsn: str, admin: asyncpg.Connection, tmp_path: Path, how: str
) -> None:
    (tmp_path / "paused_app.py").write_text(APP)
    rid = await admit_one(db, "it", name="work")
    read, write = os.pipe()
    first = worker(tmp_path, worker_dsn, how, "step.kept:2", "--report-fd", str(write), pass_fds=[write])
    os.close(write)
    second = None
    try:
        with os.fdopen(read) as told:
            said = json.loads(await asyncio.to_thread(told.readline))
        assert (said["point"], said["n"], said["pid"]) == ("step.kept", 2, first.pid)
        if how == "--pause":
            assert await look(admin, rid, "state") == "running"
            first.kill()
        assert await asyncio.to_thread(first.wait, 20) == -9
        assert await look(admin, rid, "count(*)", table="boundary") == 2
        second = worker(tmp_path, worker_dsn)
        async with asyncio.timeout(60):
            while await look(admin, rid, "status", table="outcome") is None:  # each look is a round trip
                assert second.poll() is None
        assert await look(admin, rid, "output", "number", table="outcome") == ("6", 2)
    finally:
        for process in (first, second):
            if process is not None:
                process.kill()
                process.wait()
