"""Chapter 10: which queue a release's runs ride."""

from __future__ import annotations

import asyncio
import hashlib
import re

import asyncpg
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from fencepost import attempts, lanes, recovery
from fencepost.db import Database
from fencepost.lanes import LaneRefused
from tests.support import admit_one, claim_all, lane_of, look, new_holder, next_request, until_blocked
from tests.support_runs import child_of, finish, keep, lose, running

pytestmark = pytest.mark.usefixtures("lawful")

# 10.1


async def test_a_run_its_children_and_its_redrives_ride_one_lane_for_life(
    db: Database, admin: asyncpg.Connection
) -> None:
    """10.1 Through a loss, a retry, a park and a redrive, while other lanes exist."""
    await lane_of(db, "r1")
    lane = await lane_of(db, "r2")
    await lane_of(db, "r3")
    first = await running(db, "it", release="r2")
    await child_of(db, first.fence, "kid", waits=False)
    await lose(db, await look(admin, first.fence.rid, "holder"))
    (second,) = await claim_all(db, await new_holder(db, release="r2"), release="r2")
    await finish(db, second.fence, "retry", delay_ms=0, most_tries=9)
    (third,) = [
        c for c in await claim_all(db, await new_holder(db, release="r2"), release="r2", most=9) if c.id == "it"
    ]
    await finish(db, third.fence, "failed")
    assert await recovery.redrive(db, "default", "it", new_id="anew", from_step=None, again=[], by="me") == (
        "created",
        None,
    )
    rows = await admin.fetch("select distinct r.lane, r.release from fencepost.run r")
    assert [tuple(row) for row in rows] == [(lane, "r2")]
    assert await admin.fetchval("select array_agg(distinct lane) from fencepost.task") == [lane]
    assert await admin.fetchval("select count(*) from fencepost.run") == 3


# 10.2


def normalised(release: str) -> str:
    low = "".join(c.lower() if c.isascii() else c for c in release)
    return re.sub(r"[^a-z0-9_]+", "_", low).strip("_")


def shortened(name: str, most: int) -> str:
    if len(name) <= most:
        return name
    return name[: most - 9].rstrip("_") + "_" + hashlib.sha256(name.encode()).hexdigest()[:8]


def named(release: str) -> str | None:
    """Law 10.2, read again from the page."""
    if release == "dev":
        return "runs"
    suffix = (
        shortened(normalised(release[4:]), 32) if release.startswith("dev-") else shortened(normalised(release), 40)
    )
    return f"runs_{suffix}" if suffix else None


releases = st.one_of(
    st.text(st.characters(exclude_characters="\0", exclude_categories=["Cs"]), max_size=80),
    st.from_regex(r"(dev-)?[A-Za-z0-9._/@+-]{0,90}", fullmatch=True),
    st.from_regex(r"[a-z]{20,31}[-_.]{0,9}[a-z]{0,20}", fullmatch=True),
)


@settings(max_examples=40, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(ids=st.lists(releases, min_size=1, max_size=50))
async def test_the_lane_of_a_release_is_named_by_the_rule(admin: asyncpg.Connection, ids: list[str]) -> None:
    """10.2 Against the rule written anew; naming is idempotent, fits 63 bytes, and is safe wherever a name stands."""
    found = await admin.fetch(
        """select i.id, fencepost.lane_name_(i.id) as name,
                  fencepost.normalise_(fencepost.normalise_(i.id)) = fencepost.normalise_(i.id) as settled,
                  fencepost.lane_name_(substr(fencepost.lane_name_(i.id), 6)) as again
             from unnest($1::text[]) with ordinality i(id, ord) order by i.ord""",
        ids,
    )
    for row in found:
        assert row["name"] == named(row["id"]), row["id"]
        assert row["settled"]
        if row["name"] not in (None, "runs"):
            assert re.fullmatch(r"runs_[a-z0-9_]{1,40}", row["name"])
            assert len(f"fencepost_{row['name']}_idx".encode()) <= 63
            if not row["id"].startswith("dev-") and row["name"] != "runs_dev":
                assert row["again"] == row["name"], "a name that is named again is the same name"


EXAMPLES = [
    ("dev", "runs"),
    ("dev-Anna's Laptop", "runs_anna_s_laptop"),
    ("v1.2.3", "runs_v1_2_3"),
    ("--V1..2--", "runs_v1_2"),
    ("a" * 40, "runs_" + "a" * 40),
    ("a" * 41, "runs_" + "a" * 31 + "_" + hashlib.sha256(b"a" * 41).hexdigest()[:8]),
    (
        "a" * 30 + "-" + "b" * 19,
        "runs_" + "a" * 30 + "_" + hashlib.sha256(b"a" * 30 + b"_" + b"b" * 19).hexdigest()[:8],
    ),
    ("dev-" + "b" * 33, "runs_" + "b" * 23 + "_" + hashlib.sha256(b"b" * 33).hexdigest()[:8]),
    ("İstanbul", "runs_stanbul"),
]


async def test_lanes_are_named_as_the_law_says(db: Database, admin: asyncpg.Connection) -> None:
    """10.2 By example; the release is stored as given."""
    for release, name in EXAMPLES:
        lane = await lanes.register(db, release)
        assert lane.name == name
        rid = await admit_one(db, release=release)
        assert await look(admin, rid, "release", table="run") == release


# 10.3


TWINS = [
    ("v1.2", "v1-2"), ("v1.2", "V1.2"), ("x", "dev-x"), ("dev-x", "x"), ("dev-a b", "dev-a_b"), ("rel", "rel "), ("a" * 50, "A" * 50),
]  # fmt: skip


async def test_two_releases_never_share_a_lane_and_the_twin_is_told_who_has_it(
    db: Database, admin: asyncpg.Connection
) -> None:
    """10.3 Dev lanes too."""
    for holder, twin in TWINS:
        lane = await lanes.register(db, holder)
        with pytest.raises(LaneRefused, match=re.escape(f"which belongs to release {holder!r}")):
            await lanes.register(db, twin)
        assert await lanes.register(db, holder) == lane
        assert await lanes.read(db) == [lane]
        await admin.execute("delete from fencepost.lane")


NAMELESS = ["", " ", "\t", "---", "***", "é", "柵", "dev-", "dev- ", "dev-é", "a\nb", "a\x7fb", "x" * 201]


async def test_a_release_that_names_nothing_is_refused(db: Database) -> None:
    """10.3 Blank, normalising to nothing, unprintable or without end."""
    for release in NAMELESS:
        with pytest.raises(LaneRefused, match="names nothing"):
            await lanes.register(db, release)
    assert await lanes.read(db) == []


async def test_a_production_id_that_looks_like_dev_is_refused(db: Database) -> None:
    """10.3"""
    for release in ("DEV", "Dev", "dev_x", "dev.x", "DEV-x", " dev", "dev ", "-dev", "dev/main"):
        with pytest.raises(LaneRefused, match="looks like dev"):
            await lanes.register(db, release)
    assert await lanes.read(db) == []
    await lanes.register(db, "developer-tools")


async def test_of_two_twins_that_register_at_once_one_is_refused(
    db: Database, dsn: str, admin: asyncpg.Connection
) -> None:
    """10.3 The second waits for the first's transaction and is then told who has the lane."""
    other = await asyncpg.connect(dsn)
    async with db.connection() as mine:
        async with other.transaction():
            await other.fetch("select * from fencepost.register_lane('v1.0')")
            asked = asyncio.ensure_future(db.call_on(mine, "register_lane", "v1-0"))
            await until_blocked(admin, mine.get_server_pid())
        (row,) = await asked
    await other.close()
    assert (row["answer"], row["holder"]) == ("refused_twin", "v1.0")


async def test_two_releases_in_one_lane_are_impossible(db: Database, admin: asyncpg.Connection) -> None:
    """10.3 By constraint, whoever writes."""
    await lanes.register(db, "v1")
    for name, release in (
        ("runs_v1", "v-one"),
        ("runs_v2", "v1"),
        ("runs_v3", " "),
        ("runs_v4", "a\nb"),
        ("x" * 64, "v5"),
    ):
        with pytest.raises((asyncpg.UniqueViolationError, asyncpg.CheckViolationError)):
            await admin.execute(
                "insert into fencepost.lane (name, release, registered_at) values ($1, $2, now())", name, release
            )


# 10.4, 10.5


async def test_submitters_from_python_from_sql_and_workers_derive_the_same_lane(
    db: Database, admin: asyncpg.Connection
) -> None:
    """10.4 Whoever comes first registers it, concurrent first comers get one."""
    found = await asyncio.gather(*(lanes.register(db, "v7") for _ in range(8)))
    assert len(set(found)) == 1
    (made,) = await db.call("admit_run", "work", "null", "from-sql", "default", "v7")
    assert made["answer"] == "created"
    rid = await admit_one(db, release="v7")
    claimed = await claim_all(db, await new_holder(db, release="v7"), release="v7", most=2)
    assert {c.id for c in claimed} == {"from-sql", await look(admin, rid, "id", table="run")}


async def test_an_sql_caller_whose_release_has_no_lane_of_its_own_is_told(
    db: Database, admin: asyncpg.Connection
) -> None:
    """10.4 Also 10.3: its run would wait in a lane that no worker serves."""
    await lanes.register(db, "v1.0")
    for release in ("v1-0", "", "DEV"):
        with pytest.raises(asyncpg.InvalidParameterValueError, match="names no lane of its own"):
            await db.call("admit_run", "work", "null", None, "default", release)
    assert await admin.fetchval("select count(*) from fencepost.run") == 0


# 10.7


async def test_work_of_another_lane_is_never_claimed(db: Database, admin: asyncpg.Connection) -> None:
    """10.7 Not a new run, not a due one, not a suspect, not by a beat of the other lane's worker."""
    await lane_of(db, "other")
    mine = await running(db, "mine", release="mine")
    await keep(db, mine.fence)
    await lose(db, await look(admin, mine.fence.rid, "holder"))
    await admit_one(db, release="mine")
    await admit_one(db, release="mine", delay_ms=1)
    stranger = await new_holder(db, release="other")
    await recovery.beat(db, stranger, answered=0, held=[], dead=[], patience=30)
    own = await admit_one(db, release="other")
    for found in ([own], []):
        claim = await attempts.claim(
            db,
            stranger,
            next_request(),
            lane=await lane_of(db, "other"),
            most=10,
            cursor="",
            alone=found == [own],
            patience=30,
        )
        assert [c.fence.rid for c in claim.claimed] == found
        assert claim.suspect_since is None
    assert await admin.fetchval("select count(*) from fencepost.task where state = 'queued'") == 3
