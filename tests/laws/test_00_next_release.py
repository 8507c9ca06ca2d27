"""Law 00.8: this code on the schema of the next release, of the one after it, and the next release's code on this schema.

There is no next release yet, so one is made: a copy of the package with one more migration, whose own command migrates.
"""

from __future__ import annotations

import asyncio
import json
import re
import shutil
import sys
from pathlib import Path

import asyncpg
import pytest

import fencepost
from fencepost.client import Client
from fencepost.db import Database
from fencepost.schema import SCHEMA_VERSION, SchemaMismatch, migrate
from tests.roads.command import Said, Shop, ended

PACKAGE = Path(fencepost.__file__).resolve().parent
# What a release may do to the one before it: columns, a door, and another body of a door.
COMING = """
alter table fencepost.run add column coming{n} text not null default 'new';
alter table fencepost.task add column coming{n} bigint;
alter table fencepost.attempt add column coming{n} jsonb;
alter table fencepost.boundary add column coming{n} text;
alter table fencepost.outcome add column coming{n} timestamptz;
create function fencepost.read_coming{n}(_org text) returns text language plpgsql stable as $law$
begin
  return (select max(r.coming{n}) from fencepost.run r where r.org = _org);
end $law$;
create or replace function fencepost.read_clock() returns timestamptz language sql stable as $law$ select fencepost.now_() -- {n}
$law$;
"""


class Release:
    """A copy of the package, `ahead` schema versions further than this code."""

    def __init__(self, place: Path, ahead: int) -> None:
        self.place = place / f"ahead{ahead}"
        copy = self.place / "fencepost"
        shutil.copytree(PACKAGE, copy, ignore=shutil.ignore_patterns("__pycache__"))
        for n in range(SCHEMA_VERSION + 1, SCHEMA_VERSION + ahead + 1):
            (copy / "sql" / "migrations" / f"{n:04}_coming.sql").write_text(COMING.format(n=n))
        text = (copy / "schema.py").read_text()
        said = f"SCHEMA_VERSION: Final = {SCHEMA_VERSION}\n"
        assert said in text
        (copy / "schema.py").write_text(text.replace(said, f"SCHEMA_VERSION: Final = {SCHEMA_VERSION + ahead}\n"))

    async def __call__(self, shop: Shop, *args: str) -> Said:
        """The command of that release, in the shop."""
        process = await asyncio.create_subprocess_exec(
            sys.executable, "-m", "fencepost", *args, cwd=shop.place, env=shop.environ | {"PYTHONPATH": str(self.place)},
            stdin=asyncio.subprocess.PIPE, stdout=asyncio.subprocess.PIPE, stderr=asyncio.subprocess.PIPE,
        )  # fmt: skip
        return await ended(process)


@pytest.fixture
def shop(tmp_path: Path, dsn: str) -> Shop:
    return Shop(tmp_path, dsn)


async def test_a_worker_a_client_and_the_commands_of_this_release_work_on_the_schema_of_the_next(
    shop: Shop, tmp_path: Path, db: Database, admin: asyncpg.Connection
) -> None:
    """00.8 N-1 code runs on schema N: a run begun before the migration ends after it, others begin and end."""
    shop.environ["PYTHONPATH"] = str(PACKAGE.parent)
    async with shop.worker():
        before = await shop("run", "shop:review", "--input", "4", "--id", "before", "--detach")
        assert before.code == 0, before.err
        said = await Release(tmp_path, 1)(shop, "migrate", "--json")
        assert said.object["applied"] == [f"{SCHEMA_VERSION + 1:04}_coming.sql"], said.err
        assert await admin.fetchval("select fencepost.read_coming2('default')") == "new"
        assert (await shop("runs", "signal", "before", "review", "7")).code == 0
        said = await shop("run", "shop:review", "--input", "4", "--id", "before")
        assert said.code == 0, said.err
        assert json.loads(said.out) == {"first": 8, "said": 7}
    async with shop.worker():  # started on the newer schema
        said = await shop("run", "shop:order", "--input", '{"n": 5}', "--id", "after")
        assert (said.code, said.out) == (0, "10\n"), said.err
        client = Client(db, "dev")
        assert await client.handle("after", returns=int).result() == 10
        assert await client.handle("after").status() == "completed"
        await client.close()
    await migrate(admin, "fencepost")  # as an embedded home's commands do first: nothing to do, and no refusal
    assert (await shop("migrate", "--check", "--json")).object["pending"] == []
    assert (await shop("doctor", "--json")).object["database"]["schema_version"] == SCHEMA_VERSION + 1


async def test_a_schema_two_releases_ahead_is_refused_by_each_who_starts(
    shop: Shop, tmp_path: Path, db: Database, admin: asyncpg.Connection
) -> None:
    """00.8 It says what to run; nothing is executed."""
    assert (await Release(tmp_path, 2)(shop, "migrate", "--json")).code == 0
    words = re.escape(
        f"the schema is version {SCHEMA_VERSION + 2}, newer than this code's {SCHEMA_VERSION}: install the"
    )
    for args in (
        ["worker", "shop:app"],
        ["run", "shop:order", "--input", '{"n": 5}', "--detach"],
        ["runs", "list"],
        ["migrate"],
        ["migrate", "--check"],
    ):
        said = await shop(*args, "--json")
        assert (said.code, said.object["error"]["code"]) == (5, "WRONG_SCHEMA"), args
        assert re.search(words, said.err), args
    with pytest.raises(SchemaMismatch, match=words):
        await db.ready()
    assert await admin.fetchval("select count(*) from fencepost.run") == 0


async def test_the_next_release_refuses_a_schema_that_was_not_migrated_and_says_what_to_run(
    shop: Shop, tmp_path: Path, admin: asyncpg.Connection
) -> None:
    """00.8 It executes no DDL."""
    release = Release(tmp_path, 1)
    for args in (["worker", "shop:app"], ["run", "shop:order", "--input", '{"n": 5}', "--detach"], ["doctor"]):
        said = await release(shop, *args, "--json")
        assert said.code == 5, args
        assert (
            f"the schema is version {SCHEMA_VERSION}, older than this code's {SCHEMA_VERSION + 1}"
            in said.err + said.out
        )
        assert "run `fencepost migrate`" in said.err + said.out
    said = await release(shop, "migrate", "--check", "--json")
    assert (said.code, said.object["pending"]) == (1, [f"{SCHEMA_VERSION + 1:04}_coming.sql"])
    assert await admin.fetchval("select schema_version from fencepost.meta") == SCHEMA_VERSION
