"""Chapter 30: how a run comes to be."""

from __future__ import annotations

import asyncio
import json
import random
from datetime import UTC, datetime
from typing import Any

import asyncpg
import pytest
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st

from fencepost import admission, retention, terminal
from fencepost.admission import Admitted, Conflict, Refused
from fencepost.db import Database
from fencepost.testing import Clock
from tests.support import admit_one, claim_all, claim_one, lane_of, launch, look, new_holder, tables
from tests.support_runs import finish, keep, running

NOON = datetime(2031, 5, 6, 12, tzinfo=UTC)
pytestmark = pytest.mark.usefixtures("lawful")


async def admit(db: Database, **changed: Any) -> Any:
    """One launch's answer."""
    given = {"lane": await lane_of(db)} | changed
    return (await admission.admit(db, [launch(**given)]))[0]


# 30.1, 30.10


async def test_run_and_queue_entry_and_event_commit_together(db: Database, admin: asyncpg.Connection) -> None:
    """30.1 Until the transaction commits an observer sees none of the three, afterwards all; then it can be claimed at once."""
    lane = await lane_of(db)
    count = "select (select count(*) from fencepost.run), (select count(*) from fencepost.task), (select count(*) from fencepost.transition)"
    async with db.connection() as mine, mine.transaction():
        await admission.admit_on(db, mine, launch(lane=lane))
        assert tuple(await admin.fetchrow(count)) == (0, 0, 0)
        assert await claim_all(db, await new_holder(db)) == ()
    assert tuple(await admin.fetchrow(count)) == (1, 1, 1)
    assert (await claim_one(db)).name == "work"


async def test_an_admission_carries_its_finished_launch(db: Database, admin: asyncpg.Connection) -> None:
    """30.1 What the worker is given is the text that was admitted, byte for byte, and nothing read since."""
    text = '{"b" : 1.50, "a":[ ] }'
    rid = await admit_one(db, "it", input=text, contract='{"edition": 2}', on_lost="ask")
    claimed = await claim_one(db)
    assert (claimed.fence.rid, claimed.input, claimed.org, claimed.id) == (rid, text, "default", "it")
    assert await look(admin, rid, "on_lost") == "ask"


@pytest.mark.parametrize("isolation", ["read_committed", "repeatable_read", "serializable"])
@pytest.mark.parametrize("how", ["python", "sql"])
async def test_admission_joins_the_callers_transaction(
    db: Database, admin: asyncpg.Connection, isolation: str, how: str
) -> None:
    """30.10 Rolled back, no run existed, and its id is free; committed, it does. In any isolation."""
    lane = await lane_of(db)

    async def start(connection: asyncpg.Connection) -> str:
        if how == "python":
            answer = await admission.admit_on(db, connection, launch(id="mine", lane=lane))
            assert isinstance(answer, Admitted)
            return answer.how
        return str((await db.call_on(connection, "admit_run", "work", "null", "mine"))[0]["answer"])

    async with db.connection() as mine:
        before = await tables(admin)
        transaction = mine.transaction(isolation=isolation)
        await transaction.start()
        assert await start(mine) == "created"
        await transaction.rollback()
        assert await tables(admin) == before
        async with mine.transaction(isolation=isolation):
            assert await start(mine) == "created"
            assert await start(mine) == "replayed"
    assert await admin.fetchval("select count(*) from fencepost.task") == 1


# 30.2


async def test_of_many_identical_submissions_at_once_one_creates_the_run(
    db: Database, worker_dsn: str, admin: asyncpg.Connection
) -> None:
    """30.2, B71 Twelve, by four processes' worth of connections."""
    lane = await lane_of(db)
    others = [Database(worker_dsn, connections=1) for _ in range(4)]
    answers = await asyncio.gather(*(admission.admit(others[n % 4], [launch(id="it", lane=lane)]) for n in range(12)))
    assert sorted(answer.how for (answer,) in answers) == ["created"] + ["replayed"] * 11
    assert len({answer.rid for (answer,) in answers}) == 1
    for table in ("run", "task", "transition"):
        assert await admin.fetchval(f"select count(*) from fencepost.{table}") == 1
    for other in others:
        await other.close()


async def test_an_id_is_unique_within_its_organisation_only(db: Database, admin: asyncpg.Connection) -> None:
    """30.2"""
    first = await admit(db, id="it", org="acme")
    second = await admit(db, id="it", org="globex", input="7")
    assert (first.how, second.how) == ("created", "created")
    assert first.rid != second.rid
    assert (await admit(db, id="it", org="globex", input="7")).rid == second.rid


async def test_a_run_that_has_ended_is_replayed_while_the_ledger_remembers_it(
    db: Database, admin: asyncpg.Connection, clock: Clock
) -> None:
    """30.2 An ended run's id is taken; once retention has forgotten the run, it is free."""
    await clock.set(NOON)
    first = await admit(db, id="it")
    await terminal.finish(db, (await claim_one(db)).fence, "completed", "1")
    again = await admit(db, id="it")
    assert again == Admitted(first.rid, "replayed", repair_needed=False)
    await admin.execute("drop schema watch cascade")  # what is forgotten is deleted
    await clock.advance(31 * 86400)
    assert await retention.retain(db) == (0, 1)
    third = await admit(db, id="it")
    assert third.how == "created"
    assert third.rid > first.rid


async def test_a_retry_after_a_lost_reply_leaves_the_database_as_one_submission_does(
    db: Database, admin: asyncpg.Connection
) -> None:
    """30.2"""
    await admit(db, id="it")
    before = await tables(admin)
    assert (await admit(db, id="it")).how == "replayed"
    assert await tables(admin) == before


# 30.3, 30.4


@pytest.mark.parametrize(
    ("changed", "differs"),
    [
        ({"input": '{"a":{"b":[1,3]}}'}, [{"path": "$.input.a.b[1]", "stored": 2, "given": 3}]),
        ({"input": '{"a":{"b":[1]}}'}, [{"path": "$.input.a.b", "stored": [1, 2], "given": [1]}]),
        (
            {"input": '{"a":{},"c":null}'},
            [{"path": "$.input.a.b", "stored": [1, 2]}, {"path": "$.input.c", "given": None}],
        ),
        ({"input": "null"}, [{"path": "$.input", "stored": {"a": {"b": [1, 2]}}, "given": None}]),
        ({"name": "other"}, [{"path": "$.name", "stored": "work", "given": "other"}]),
        ({"contract": '{"edition": 2}'}, [{"path": "$.contract.edition", "stored": 1, "given": 2}]),
    ],
)
async def test_a_changed_launch_under_the_same_id_is_a_conflict_that_says_what_differs(
    db: Database, admin: asyncpg.Connection, changed: dict[str, Any], differs: list[dict[str, Any]]
) -> None:
    """30.3 And nothing changes."""
    given = {"id": "it", "input": '{"a":{"b":[1,2]}}', "contract": '{"edition": 1}'}
    await admit(db, **given)
    before = await tables(admin)
    assert await admit(db, **(given | changed)) == Conflict(differs)
    assert await tables(admin) == before


@pytest.mark.parametrize(
    "changed",
    [{"priority": 7}, {"source": "cron"}, {"release": "other"}, {"delay_ms": 5}, {"claim_ms": 1}, {"on_lost": "fail"}],
)
async def test_context_priority_and_lane_are_no_part_of_the_launch(
    db: Database, admin: asyncpg.Connection, changed: dict[str, Any]
) -> None:
    """30.4 The same launch with another of these is a replay, and what was first said stays."""
    await admit(db, id="it")
    before = await tables(admin)
    lane = await lane_of(db, "other") if "release" in changed else await lane_of(db)
    before = before if "release" not in changed else await tables(admin)
    assert (await admit(db, id="it", lane=lane, **changed)).how == "replayed"
    assert await tables(admin) == before


texts = st.text(st.characters(exclude_characters="\0", exclude_categories=["Cs"]), max_size=8)
numbers = st.one_of(st.integers(-(10**20), 10**20), st.floats(allow_nan=False, allow_infinity=False))
values = st.recursive(
    st.one_of(st.none(), st.booleans(), numbers, texts),
    lambda inner: st.one_of(st.lists(inner, max_size=3), st.dictionaries(texts, inner, max_size=3)),
    max_leaves=8,
)


def respelled(value: Any, seed: int) -> str:
    """The same JSON value in other bytes: keys in another order, other spaces, other escapes."""
    rng = random.Random(seed)

    def turned(v: Any) -> Any:
        if isinstance(v, dict):
            items = list(v.items())
            rng.shuffle(items)
            return {k: turned(i) for k, i in items}
        return [turned(i) for i in v] if isinstance(v, list) else v

    return json.dumps(
        turned(value), ensure_ascii=rng.random() < 0.5, indent=rng.choice([None, 1]), separators=(" ,", " : ")
    )


@settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(first=values, second=values, seed=st.integers(0, 9))
@example(first=1, second=True, seed=0)
@example(first=0, second=False, seed=0)
@example(first=None, second="null", seed=0)
@example(first={"a": None}, second={}, seed=0)
@example(first=1.0, second=1, seed=0)
@example(first="1", second=1, seed=0)
async def test_launches_are_compared_as_json_values(
    db: Database, admin: asyncpg.Connection, first: Any, second: Any, seed: int
) -> None:
    """30.4 Another spelling of the value is a replay; another value is a conflict, and its differences are never none."""
    made = await admit(db, input=json.dumps(first))
    run = await look(admin, made.rid, "id", table="run")
    assert await admit(db, id=run, input=respelled(first, seed)) == Admitted(made.rid, "replayed", repair_needed=False)
    same = await admin.fetchval("select $1::jsonb = $2::jsonb", json.dumps(first), json.dumps(second))
    answer = await admit(db, id=run, input=json.dumps(second))
    assert isinstance(answer, Admitted if same else Conflict)
    if isinstance(answer, Conflict):
        assert answer.differs
        assert all(d["path"].startswith("$.input") for d in answer.differs)
    assert await look(admin, made.rid, "input", table="run") == json.dumps(first)


# 30.5


async def test_a_run_that_lost_its_queue_entry_is_re_entered_only_when_repair_is_asked(
    db: Database, admin: asyncpg.Connection, clock: Clock
) -> None:
    """30.5 As after a partial restore: first `repair_needed`, then `recovered`, then as if nothing had been; never a second run."""
    await clock.set(NOON)
    claimed = await running(db, "it")
    rid = claimed.fence.rid
    await keep(db, claimed.fence, value="7")
    await finish(db, claimed.fence, "retry", delay_ms=0, most_tries=9)
    await admin.execute(
        "alter table fencepost.task disable trigger user; delete from fencepost.task; alter table fencepost.task enable trigger user"
    )
    assert await admit(db, id="it") == Admitted(rid, "replayed", repair_needed=True)
    known = launch(id="it", lane=await lane_of(db))
    (other,) = await admission.admit(db, [known._replace(input="2")], repair=True)
    assert isinstance(other, Conflict), "another launch enters nothing"
    assert await claim_all(db, await new_holder(db)) == ()
    assert await admission.admit(db, [known], repair=True) == [Admitted(rid, "recovered", repair_needed=False)]
    assert await admission.admit(db, [known], repair=True) == [Admitted(rid, "replayed", repair_needed=False)]
    assert await admin.fetchval("select count(*) from fencepost.run") == 1
    again = await claim_one(db)
    assert again.fence.number == 2, "numbers go on where the history ends"
    assert again.boundaries is not None
    assert "7" in again.boundaries


async def test_a_repair_of_another_launch_is_a_conflict_and_of_an_ended_run_a_replay(
    db: Database, admin: asyncpg.Connection
) -> None:
    """30.5"""
    claimed = await running(db, "it")
    await finish(db, claimed.fence)
    before = await tables(admin)
    lane = await lane_of(db)
    (replayed, conflict) = [
        (await admission.admit(db, [launch(id="it", lane=lane, input=text)], repair=True))[0] for text in ("null", "1")
    ]
    assert replayed == Admitted(claimed.fence.rid, "replayed", repair_needed=False)
    assert isinstance(conflict, Conflict)
    assert await tables(admin) == before


# 30.6

BAD = ["", " ", "\t", "a\nb", "\x01", "a\x7f", "x" * 201, "\u200b\n", "a\rb", "\x1b[31m"]


@pytest.mark.parametrize("column", ["org", "id", "name"])
async def test_bad_ids_and_names_are_refused_before_any_write_and_by_a_constraint(
    db: Database, admin: asyncpg.Connection, column: str
) -> None:
    """30.6, B05"""
    await lane_of(db)
    before = await tables(admin)
    for bad in BAD:
        assert await admit(db, **{column: bad}) == Refused(), repr(bad)
        words = {"org": "o", "id": "i", "name": "n"} | {column: bad}
        with pytest.raises(asyncpg.CheckViolationError):
            await admin.execute(
                """insert into fencepost.run (org, id, kind, name, lane, release, source, priority, input, on_lost, key_root, submitted_at)
                   values ($1, $2, 'workflow', $3, 1, 'dev', 'api', 0, '1', 'replay', gen_random_uuid(), now())""",
                words["org"], words["id"], words["name"],
            )  # fmt: skip
    assert await tables(admin) == before


async def test_two_hundred_characters_are_an_id_whatever_they_weigh(db: Database) -> None:
    """30.6 Characters, not bytes."""
    assert (await admit(db, id="柵" * 200, name="é" * 200, org=" x ")).how == "created"


async def test_a_launch_admitted_alone_leaves_what_it_leaves_among_others(
    db: Database, admin: asyncpg.Connection
) -> None:
    """30.1, 30.7, 30.8 One launch has a door of its own: run, entry, event and answer are those of the door for many, whether all of them are new
    and good or each goes by itself, and whether they are alike or not."""
    lane = await lane_of(db)
    shapes: list[dict[str, Any]] = [
        {}, {"source": None}, {"source": "cron"}, {"source": "nobody"}, {"source": "api", "claim_ms": -1}, {"claim_ms": 5000},
        {"priority": 7}, {"delay_ms": 60_000}, {"source": "api", "delay_ms": 60_000}, {"delay_ms": 0}, {"on_lost": "ask"},
        {"source": "api", "delay_ms": -5},
        {"contract": '{"edition": 2}'}, {"name": " "}, {"org": "acme"}, {"name": "x" * 201}, {"org": "a\tb"},
    ]  # fmt: skip
    alone = [
        (await admission.admit(db, [launch(lane=lane, **({"id": f"a{n}"} | shape))]))[0]
        for n, shape in enumerate(shapes)
    ]
    among = await admission.admit_together(
        db, [launch(lane=lane, **({"id": f"b{n}"} | shape)) for n, shape in enumerate(shapes)]
    )
    good = [n for n, one in enumerate(alone) if isinstance(one, Admitted)]
    together = await admission.admit_together(db, [launch(lane=lane, **({"id": f"c{n}"} | shapes[n])) for n in good])
    assert [getattr(one, "how", one) for one in alone] == [getattr(one, "how", one) for one in among]
    assert {getattr(one, "how", one) for one in together} == {"created"}
    for n in good:  # what is the same of all is said once
        alike = await admission.admit_together(
            db, [launch(lane=lane, **({"id": f"{way}{n}"} | shapes[n])) for way in "efg"]
        )
        assert [getattr(one, "how", one) for one in alike] == ["created"] * 3
    for n in set(range(len(shapes))) - set(good):
        beside = [launch(id=f"d1{n}", lane=lane), launch(lane=lane, **({"id": f"d2{n}"} | shapes[n]))]
        fine, bad = await admission.admit_together(db, beside)
        assert (getattr(fine, "how", fine), bad) == ("created", Refused())
    again = await admission.admit_together(db, [launch(id=run_id, lane=lane) for run_id in ("a0", "d0", "d0")])
    assert [getattr(one, "how", one) for one in again] == ["replayed", "created", "replayed"]
    rows = await admin.fetch(
        """select substr(r.id, 1, 1) as way, substr(r.id, 2)::integer as n,
                  to_jsonb(r) - '{rid,id,key_root,submitted_at,tx}'::text[] as run,
                  to_jsonb(t) - '{rid,ready_at,turn_at,due_at,claim_by}'::text[] as task,
                  t.ready_at - r.submitted_at as ready, t.turn_at - r.submitted_at as turn,
                  t.due_at - r.submitted_at as due, t.claim_by - r.submitted_at as bound,
                  (select jsonb_agg(jsonb_build_array(e.seq, e.type)) from fencepost.transition e where e.rid = r.rid) as events
             from fencepost.run r join fencepost.task t using (rid) order by 2"""
    )
    ways: dict[str, list[tuple[Any, ...]]] = {way: [] for way in "abcdefg"}
    for way, *what in rows:
        ways[way].append(tuple(what))
    assert len(ways["a"]) == len(good) > 10
    assert all(ways["a"] == ways[way] for way in "bcefg")
