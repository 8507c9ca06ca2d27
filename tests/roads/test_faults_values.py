"""Hostile values in every slot that a caller, author or operator has, through a real worker; and rows that something corrupted."""

from __future__ import annotations

import asyncio
import json
import logging
from collections.abc import AsyncIterator, Awaitable, Callable
from typing import Any

import asyncpg
import pytest

from fencepost import App, Context, RunFailed, StepFailed, terminal
from fencepost.client import Client
from fencepost.db import Database
from fencepost.errors import LaunchRefused, RunNotFound
from fencepost.values import Unstorable
from tests.roads.crew import until_row
from tests.roads.inside import working
from tests.support_invariants import broken

app = App("hostile", release="dev")

# What JSON text can carry, and no text column or terminal should be hurt by.
KEPT = [
    '\r\n{"level":"info"}',
    "\x1b[31mred\x1b[0m",
    "a\u2028b\u2029c",
    "\u202eevil",
    "é\ufffe",
    "'; drop table run; --",
    "\\",
    "%s{}",
    "x" * 100_000,
]
# What PostgreSQL's text, or UTF-8, cannot hold.
REFUSED = ["a\x00b", "\ud800", "\udfff\ud800", "tail\x00"]
CORPUS = [*KEPT, *REFUSED]


class Odd(Exception):
    """Says whatever it is told to."""


@app.step(repeatable=True)
async def echo(value: Any) -> Any:
    return value


@app.step(repeatable=True)
async def corpus(n: int) -> str:
    return CORPUS[n]


@app.step(repeatable=True)
async def breaks(n: int) -> None:
    raise Odd(CORPUS[n])


@app.workflow()
async def gives(ctx: Context, n: int) -> str:
    """The step's value, or what its refusal said."""
    ctx.log(CORPUS[n], **{CORPUS[n][:50]: CORPUS[n], "value": CORPUS[n]})
    ctx.progress(1, 2, CORPUS[n])
    try:
        return await ctx.step(corpus, n)
    except StepFailed as error:
        return f"refused: {error.code}"


@app.workflow()
async def fails(ctx: Context, n: int) -> None:
    try:
        await ctx.step(breaks, n)
    except StepFailed as error:
        raise Odd(CORPUS[n] + str(error)) from None


@app.workflow()
async def returns(ctx: Context, n: int) -> Any:
    return CORPUS[n]


@app.workflow()
async def same(ctx: Context, value: Any) -> Any:
    return await ctx.step(echo, value)


@app.workflow()
async def waits(ctx: Context) -> Any:
    return await ctx.wait_for("go", Any)


@app.workflow()
async def kept_then_waits(ctx: Context, value: Any) -> Any:
    """A kept step in front of a wait: its value is read again by the next leg."""
    value = await ctx.step(echo, value)
    await ctx.wait_for("go", Any)
    return value


@pytest.fixture
async def client(worker_dsn: str) -> AsyncIterator[Client]:
    async with Client(Database(worker_dsn), "dev") as made:
        yield made


async def test_what_author_code_gives_or_raises_ends_its_own_run_as_it_should(
    worker_dsn: str, client: Client, admin: asyncpg.Connection
) -> None:
    """B107, B109, B106 Kept and given back, or a typed failure; and the path of an error takes everything. Neighbours go on."""
    async with working(app, worker_dsn):
        given = await client.start_many(gives, range(len(CORPUS)))
        failing = await client.start_many(fails, range(len(CORPUS)))
        returned = await client.start_many(returns, range(len(CORPUS)))
        for n, word in enumerate(CORPUS):
            kept = n < len(KEPT)
            assert await given[n].result(timeout=30) == (word if kept else "refused: UNSTORABLE_RESULT")
            with pytest.raises(RunFailed) as failed:
                await failing[n].result(timeout=30)
            assert failed.value.code == "WORKFLOW_ERROR"
            assert failed.value.error["type"] == "Odd"
            if kept:
                assert await returned[n].result(timeout=30) == word
            else:
                with pytest.raises(RunFailed) as failed:
                    await returned[n].result(timeout=30)
                assert failed.value.code == "UNSTORABLE_RESULT"
    sizes = "select max(octet_length(error)) from fencepost.outcome"
    assert await admin.fetchval(sizes) <= 16 * 1024, "bounded, whatever an exception says"
    assert await broken(admin) == {}


JSON: list[Any] = [None, True, 0, -1.5, "", "null", [], {}, [None], {"a": None}, 2**53 + 1, [[]], {"": ""}]


async def test_every_json_value_is_itself_in_every_slot(worker_dsn: str, client: Client) -> None:
    """B115, B101 As input, argument, step's value, signal and output: null, scalars and what is empty too; integers beyond 2^53."""
    async with working(app, worker_dsn):
        through = await client.start_many(same, JSON)
        waiting = await client.start_many(waits, [None] * len(JSON))
        for value, one, other in zip(JSON, through, waiting, strict=True):
            await other.signal("go", value)
            for got in (await one.result(timeout=30), await other.result(timeout=30)):
                assert (got, type(got)) == (value, type(value))


@pytest.mark.parametrize("word", CORPUS, ids=lambda word: ascii(word)[:30])
async def test_what_callers_and_operators_say_is_kept_or_refused_before_anything_is_written(
    word: str, client: Client, db: Database, admin: asyncpg.Connection
) -> None:
    """B107, B109, B05 Input, id, signal's name and payload, reasons and names: a value or a refusal of its kind, and no driver's error."""
    bad = word in REFUSED
    rows = "select (select count(*) from fencepost.run), (select count(*) from fencepost.signal)"
    handle = await client.start(waits, id="good")
    before = tuple(await admin.fetchrow(rows))
    asked: list[Callable[[], Awaitable[object]]] = []
    if bad:
        asked += [
            lambda: client.start(same, {"a": [word]}, id="input"),
            lambda: handle.signal("go", {"a": word}),
            lambda: handle.signal(word),
            lambda: handle.cancel(word),
        ]
    if bad or len(word) > 200 or set(word) & set("\r\x1b\u2028"):
        asked += [lambda: client.start(waits, id=word), lambda: client.start(waits, org=word)]
    for ask in asked:
        with pytest.raises((Unstorable, LaunchRefused)):
            await ask()
    assert tuple(await admin.fetchrow(rows)) == before
    with pytest.raises(RunNotFound):
        await client.handle(word).status()
    if not bad:
        assert await client.start(same, {"a": [word]}, id="input")
        assert await handle.signal("go", {"a": word}) == "sent"
        assert await handle.cancel(word) == "accepted"
        assert await client.start(same, word, id="other")
        assert (await terminal.end(db, "default", "other", by=word[:150], reason=word))[0] == "done"
    assert await broken(admin) == {}


async def test_a_value_in_a_log_forges_no_line(
    worker_dsn: str, client: Client, caplog: pytest.LogCaptureFixture
) -> None:
    """B135 One record an event, on one line, with no control character in it, and bounded; whatever code gives as words, names or values."""
    with caplog.at_level(logging.INFO, "fencepost"):
        async with working(app, worker_dsn):
            for one in await client.start_many(gives, range(len(CORPUS))):
                await one.result(timeout=30)
    said = [record.getMessage() for record in caplog.records if record.name.startswith("fencepost")]
    assert len([line for line in said if "value=" in line]) == len(CORPUS)
    for line in said:
        assert line.isprintable(), ascii(line)
        assert len(line) < 7000


# Rows that something corrupted

GARBAGE = ["", "{", '"\\ud800"', "[1,", "\x01", "nonsense", '{"a":1}}', "1" * 100_000 + "x"]


@pytest.mark.parametrize("garbage", GARBAGE, ids=lambda text: ascii(text)[:20])
async def test_a_corrupted_row_hurts_its_own_run_only(
    garbage: str, worker_dsn: str, client: Client, admin: asyncpg.Connection
) -> None:
    """B119, B110, B111 An input that is none fails its run; a kept value or a signal that is none parks it; good ones beside them go on."""
    bad_input = await client.start(same, 1, id="bad input")
    async with working(app, worker_dsn):
        bad_step = await client.start(kept_then_waits, 2, id="bad step")
        bad_signal = await client.start(waits, id="bad signal")
        parked = "select count(*) = 2 from fencepost.task where state = 'parked'"
        await until_row(lambda: admin.fetchval(parked), "two that wait")
    bad_input = await client.start(same, 1, id="bad input 2")
    await admin.execute("update fencepost.run set input = $1 where id = 'bad input 2'", garbage)
    await admin.execute("update fencepost.boundary set value = $1 where state = 'kept'", garbage)
    for handle in (bad_step, bad_signal):
        await handle.signal("go", 7)
    mine = "where rid = (select rid from fencepost.run where id = 'bad signal')"
    await admin.execute(f"update fencepost.boundary set value = $1 {mine} and state = 'arrived'", garbage)
    await admin.execute(f"update fencepost.signal set payload = $1 {mine}", garbage)
    good = await client.start_many(same, range(5))
    async with working(app, worker_dsn):
        assert [await one.result(timeout=30) for one in good] == list(range(5))
        with pytest.raises(RunFailed) as failed:
            await bad_input.result(timeout=30)
        assert failed.value.code == "UNDECODABLE"
        on_code = "select count(*) = 2 from fencepost.task where park = 'code'"
        await until_row(lambda: admin.fetchval(on_code), "the two whose record cannot be read")
        troubles = [json.loads(row[0])["code"] for row in await admin.fetch("select trouble from fencepost.task")]
        assert troubles == ["UNDECODABLE"] * 2
        numbers = await admin.fetch("select number from fencepost.task")
        await asyncio.sleep(0.5)  # waits: for nothing to happen
        assert await admin.fetch("select number from fencepost.task") == numbers, "nobody tries it again and again"
        again = await client.start_many(same, [8, 9], ids=["ok", "ok2"])
        assert [await one.result(timeout=30) for one in again] == [8, 9]
    assert await broken(admin) == {}
