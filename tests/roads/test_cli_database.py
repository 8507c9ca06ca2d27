"""The command line and its database: the schema, the diagnosis, the embedded home, and what a person's terminal does."""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import subprocess

import asyncpg
import pytest

from tests.roads.command import FENCEPOST, Shop
from tests.roads.crew import hearts_of
from tests.seams.embedded import ended, needs_linux, wait_stopped


async def test_migrate_checks_prints_and_applies(shop: Shop, dsn: str, admin: asyncpg.Connection) -> None:
    await admin.execute("drop schema fencepost cascade")
    said = await shop("runs", "list", "--json")
    assert (said.code, said.object["error"]["code"]) == (5, "WRONG_SCHEMA")
    assert "fencepost migrate" in said.err
    said = await shop("migrate", "--check", "--json")
    assert (said.code, said.object["version"]) == (1, None)
    assert said.object["pending"]
    script = await shop("migrate", "--sql")
    assert script.code == 0
    await admin.execute(script.out)
    said = await shop("migrate", "--check", "--json")
    assert (said.code, said.object["pending"]) == (0, [])
    assert (await shop("migrate", "--json")).object["applied"] == []
    assert (await shop("run", "shop:order", "--input", '{"n": 4}', "--here")).out == "8\n"
    await admin.execute("drop schema fencepost cascade")
    assert (await shop("migrate", "--roles", "--json")).object["applied"]
    await admin.execute("update fencepost.meta set schema_version = 99")
    said = await shop("runs", "list")
    assert said.code == 5
    assert "newer" in said.err


async def test_a_migration_that_was_changed_after_it_was_applied_is_named(
    shop: Shop, admin: asyncpg.Connection
) -> None:
    """Law 00.8"""
    await admin.execute("update fencepost.migration set sha256 = 'of another text'")
    said = await shop("migrate", "--check", "--json")
    assert (said.code, said.object["pending"], said.object["changed"]) == (1, [], ["0001_first.sql"])
    words = "migration 0001_first.sql of this code changed after this schema was made: install the release that made it"
    assert words in said.err
    for how in ((), ("--sql",)):
        said = await shop("migrate", *how, "--json")
        assert (said.code, said.object["error"]) == (5, {"code": "WRONG_SCHEMA", "message": words})
    said = await shop("doctor", "--json")
    assert said.code == 1
    assert words in [finding["finding"] for finding in said.object["findings"]]


async def test_doctor_says_what_is_set_from_where_and_what_to_mend(shop: Shop, dsn: str) -> None:
    shop.environ["FENCEPOST_RELEASE"] = " r7 "
    said = await shop("doctor", "--json")
    assert said.object["settings"]["FENCEPOST_RELEASE"] == {"value": "r7", "origin": "environment"}
    assert said.object["settings"]["FENCEPOST_SCHEMA"] == {"value": "fencepost", "origin": "default"}
    assert said.object["database"]["roles"] is True
    assert said.code == (1 if said.object["findings"] else 0)
    assert all(finding["remedy"] for finding in said.object["findings"] + said.object["notes"])
    shop.environ["FENCEPOST_DATABASE_URL"] = "postgresql://me:hidden@127.0.0.1:1/nowhere"
    said = await shop("doctor", "--json")
    assert said.code == 5
    assert "hidden" not in said.out + said.err
    assert said.object["ok"] is False


async def test_a_database_that_does_not_answer_is_5_at_once(shop: Shop, dsn: str) -> None:
    for url in (
        "postgresql://me@127.0.0.1:1/nowhere",
        dsn.replace("/" + dsn.partition("?")[0].rpartition("/")[2], "/no_such_database"),
    ):
        said = await shop("runs", "list", "--dsn", url, "--json")
        assert (said.code, said.object["error"]["code"]) == (5, "NO_DATABASE"), url
    said = await shop("runs", "list", "--dsn", "nonsense", "--json")
    assert (said.code, said.object["error"]["code"]) == (2, "BAD_SETTINGS")


async def test_without_a_database_it_says_what_to_set_and_makes_nothing(lonely: Shop) -> None:
    for args in (
        ["runs", "list"],
        ["runs", "cancel", "x"],
        ["worker", "shop:app"],
        ["worker", "shop:app", "--embedded"],
        ["lanes", "list"],
        ["migrate"],
    ):
        said = await lonely(*args, "--json")
        assert (said.code, said.object["error"]["code"]) == (5, "NO_DATABASE"), args
        assert "FENCEPOST_DATABASE_URL" in said.err
    assert not (lonely.place / ".fencepost").exists()
    assert (await lonely("doctor")).code == 5
    assert "create schema" in (await lonely("migrate", "--sql")).out


async def test_an_embedded_home_is_made_by_run_and_used_by_the_others(lonely: Shop) -> None:
    said = await lonely("run", "shop:order", "--input", '{"n": 4}', "--id", "o1")
    assert (said.code, said.out) == (0, "8\n")
    assert said.err.count(f"home: {lonely.place / '.fencepost'}\n") == 1
    said = await lonely("runs", "list", "--json")
    assert [run["run_id"] for run in said.lines] == ["o1"]
    assert said.err == f"home: {lonely.place / '.fencepost'}\n"
    async with lonely.worker("--embedded"):
        assert (await lonely("run", "shop:order", "--input", '{"n": 5}', "--id", "o2")).out == "10\n"
    (lonely.place / "file").touch()
    lonely.environ["FENCEPOST_HOME"] = str(lonely.place / "file" / "home")
    said = await lonely("run", "shop:order", "--input", '{"n": 4}', "--json")
    assert (said.code, said.object["error"]["code"]) == (5, "NO_DATABASE")


@needs_linux
@pytest.mark.parametrize("command", [["run", "shop:naps", "--input", "1"], ["dev", "shop:app"]], ids=["run", "dev"])
async def test_a_command_that_is_killed_leaves_no_process_behind(lonely: Shop, command: list[str]) -> None:
    """It works in its own process; its heartbeat and the server of the home end when it does."""
    process = await lonely.start(*command)
    home = lonely.place / ".fencepost"
    async with asyncio.timeout(60):
        while not (children := hearts_of(process.pid)):
            assert process.returncode is None
            await asyncio.sleep(0.02)  # waits: nothing tells that a process has a child
    ends = [os.pidfd_open(child) for child in children]
    process.kill()
    await process.communicate()
    for end in ends:
        assert await asyncio.to_thread(ended, end, 10)
        os.close(end)
    await asyncio.to_thread(wait_stopped, home)


async def test_a_reader_that_goes_away_ends_a_listing_in_silence(shop: Shop) -> None:
    process = subprocess.run(
        f"{FENCEPOST} runs list --json | true; exit ${{PIPESTATUS[0]}}", shell=True, executable="/bin/bash", cwd=shop.place,
        env=shop.environ, capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert "Traceback" not in process.stderr
    assert "Exception" not in process.stderr


async def test_a_person_at_a_terminal_sees_a_live_view_and_the_same_result(shop: Shop) -> None:
    master, slave = os.openpty()
    process = subprocess.Popen(
        [FENCEPOST, "run", "shop:pays_rows", "--input", json.dumps([{"n": n} for n in (1, 3, 4)]), "--here"],
        cwd=shop.place, env=shop.environ | {"TERM": "xterm"}, stdout=subprocess.PIPE, stderr=slave,
    )  # fmt: skip
    os.close(slave)
    out, _ = process.communicate(timeout=30)
    seen = b""
    with contextlib.suppress(OSError):  # the end of a terminal whose other side is closed
        while more := os.read(master, 1 << 16):
            seen += more
    os.close(master)
    assert (process.returncode, json.loads(out)) == (0, [1, 3, 4])
    assert b"run.completed" in seen
    assert b"\x1b[" in seen
