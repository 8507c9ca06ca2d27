"""`fencepost runs show --timeline`: what is recorded of a run, along time."""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import pty
import re
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any
from xml.etree import ElementTree as ET

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fencepost import App, Context, StepFailed, ledger
from fencepost.db import Database
from fencepost.ledger import Event
from fencepost.pictures import bars, gantt, timeline
from fencepost.pictures.timeline import Bar, Timeline
from tests.legs import Driver
from tests.roads.command import FENCEPOST, Shop

app = App("along")
START = datetime(2026, 11, 29, 12, tzinfo=UTC)


@app.step(repeatable=True)
async def double(n: int) -> int:
    return n * 2


@app.step()
async def charge(n: int) -> int:
    return n


@app.step()
async def boom(n: int) -> int:
    raise ValueError(n)


@app.workflow()
async def kid(ctx: Context, n: int) -> int:
    return await ctx.step(double, n)


@app.workflow()
async def long(ctx: Context, n: int) -> int:
    await ctx.step(double, n)
    await ctx.step(charge, n)
    with contextlib.suppress(StepFailed):
        await ctx.step(boom, n)
    await ctx.map(double, [1, 2, 3], key=str)
    await ctx.run_child(kid, n)
    await ctx.wait_for("go", int, within=0)
    await ctx.now()
    return n


@app.workflow()
async def pays(ctx: Context, n: int) -> int:
    return await ctx.step(charge, n)


async def drawn(db: Database, run: str) -> tuple[Timeline, dict[str, Bar]]:
    doc = await ledger.read_run(db, "default", run)
    assert doc is not None
    found = timeline.read(doc, await ledger.read_events(db, "default", run, after=0, limit=10_000))
    return found, {bar.label: bar for bar in found.bars}


# What is drawn of real runs


async def test_a_begin_is_drawn_exactly_where_one_is_recorded(db: Database) -> None:
    driver = Driver(db, app)
    run = await driver.start(long, 2)
    await driver.run_until(run)
    found, by = await drawn(db, run)
    assert [
        (bar.label, bar.state, bar.begin is not None) for bar in found.bars if bar.kind not in ("attempt", "run")
    ] == [
        ("step double#1", "kept", False),
        ("step charge#1", "kept", True),
        ("step boom#1", "failed", True),
        ("map double#1", "kept", True),
        ("child kid#1", "arrived", True),
        ("signal go#1", "timed_out", True),
        ("value now#1", "kept", False),
    ]
    events = await ledger.read_events(db, "default", run, after=0, limit=10_000)
    instants = {event.at for event in events}
    for bar in by.values():
        if bar.kind != "attempt":
            assert {bar.begin, bar.end, *bar.ticks} - {None} <= instants, (
                f"{bar.label} has an instant that nobody recorded"
            )
    assert by["map double#1"].ticks
    assert by["child kid#1"].detail == f"run {run}/kid/1"
    attempts = [bar for bar in found.bars if bar.kind == "attempt"]
    assert [bar.state for bar in attempts] == ["parked"] * (len(attempts) - 1) + ["finished"]
    assert (found.begin, found.end) == (by["run"].begin, by["run"].end)


async def test_a_lost_attempt_and_an_unknown_step_are_told(db: Database) -> None:
    driver = Driver(db, app)
    run = await driver.start(pays, 2)
    await driver.lose_at("step.marked")
    _, by = await drawn(db, run)
    assert by["attempt 1"].state == "lost"
    assert by["attempt 1"].detail.startswith("lost (")
    assert (by["step charge#1"].state, by["step charge#1"].end) == ("unknown", None)
    await driver.run_until(run, "unknown")
    found, by = await drawn(db, run)
    assert (by["run"].state, by["run"].end, by["step charge#1"].state) == ("unknown", None, "unknown")
    said = "\n".join(line.plain for line in bars.lines(found, 100))
    assert next(line for line in said.splitlines() if line.startswith("step charge#1")).rstrip().endswith("?  unknown")


async def test_a_run_that_is_running_has_its_holder_and_no_end(db: Database) -> None:
    driver = Driver(db, app)
    run = await driver.start(pays, 2)
    leg = await driver.one_leg()
    found, by = await drawn(db, run)
    assert (by["attempt 1"].end, by["attempt 1"].state) == (None, "running")
    assert "(pid " in by["attempt 1"].detail
    assert found.end >= found.begin
    await driver.finish(leg)


# The command


async def test_the_command_draws_in_a_pipe_as_svg_and_as_json(shop: Shop) -> None:
    assert (await shop("run", "shop:pays", "--input", "3", "--here", "--id", "o<1>")).code == 0
    said = await shop("runs", "show", "o<1>", "--timeline")
    assert said.code == 0
    assert "\x1b" not in said.out
    assert max(len(line) for line in said.out.splitlines()) <= 100
    (step,) = [line for line in said.out.splitlines() if line.startswith("step charge#1")]
    assert "●" in step
    shop.environ |= {"COLUMNS": "60", "PYTHONIOENCODING": "ascii"}
    said = await shop("runs", "show", "o<1>", "--timeline")
    assert said.out.isascii()
    assert "\\u" not in said.out
    assert max(len(line) for line in said.out.splitlines()[1:-2]) <= 60
    said = await shop("runs", "show", "o<1>", "--timeline", "--json")
    assert [bar["label"] for bar in said.object["bars"]] == ["run", "attempt 1", "step charge#1"]
    said = await shop("runs", "show", "o<1>", "--svg", "run.svg")
    assert (said.code, said.out) == (0, "")
    words = [element.text for element in ET.parse(shop.place / "run.svg").iter() if element.tag.endswith("}text")]
    assert "pays o<1>" in words
    assert ET.fromstring((await shop("runs", "show", "o<1>", "--svg", "-")).out).get("width")


async def test_what_cannot_be_shown_is_one_sentence_and_2(shop: Shop) -> None:
    assert (await shop("run", "shop:nothing", "--here", "--id", "o1")).code == 0
    for args, code in (
        (["nope", "--timeline"], "NOT_FOUND"),
        (["a\tb", "--svg", "x.svg"], "NOT_FOUND"),
        (["o1", "--org", "other", "--timeline"], "NOT_FOUND"),
        (["o1", "--svg", "no/such/folder/x.svg"], "USAGE"),
        (["o1", "--svg", "-"], "USAGE"),
    ):
        said = await shop("runs", "show", *args, "--json")
        assert (said.code, json.loads(said.out.splitlines()[-1])["error"]["code"]) == (2, code), args
        assert said.err.count("\n") == 1, said.err
    assert not (shop.place / "x.svg").exists()


async def test_a_terminal_gets_colours_and_no_line_wider_than_it_is(shop: Shop) -> None:
    assert (await shop("run", "shop:pays", "--input", "3", "--here", "--id", "o1")).code == 0
    ours, theirs = pty.openpty()
    process = await asyncio.create_subprocess_exec(
        FENCEPOST, "runs", "show", "o1", "--timeline", cwd=shop.place, env=shop.environ | {"COLUMNS": "70", "TERM": "xterm-256color"},
        stdout=theirs, stderr=asyncio.subprocess.DEVNULL,
    )  # fmt: skip
    os.close(theirs)
    assert await process.wait() == 0
    said = b""
    while chunk := _read(ours):
        said += chunk
    os.close(ours)
    assert b"\x1b[36m" in said  # a step is cyan
    lines = [re.sub(r"\x1b\[[0-9;]*m", "", line) for line in said.decode().splitlines()]
    assert max(len(line) for line in lines[1:-1]) <= 70, lines


def _read(fd: int) -> bytes:
    try:
        return os.read(fd, 65536)
    except OSError:  # the other side is closed
        return b""


# The axis


@st.composite
def timelines(draw: st.DrawFn) -> Timeline:
    seconds = st.floats(0, 1e6, allow_nan=False).map(lambda n: START + timedelta(seconds=n))
    end = draw(seconds)
    legs = draw(st.lists(st.tuples(seconds, st.one_of(st.none(), seconds)), max_size=5))
    made = [
        Bar("attempt", f"attempt {n}", "lost", min(b, e or b), e and max(b, e), "on w") for n, (b, e) in enumerate(legs)
    ]
    names = st.text(min_size=1, max_size=40)
    steps = draw(st.lists(st.builds(Bar, st.sampled_from(["step", "map", "child"]), names, st.just("kept"), st.one_of(st.none(), seconds),
        st.one_of(st.none(), seconds), names, st.lists(seconds, max_size=3)), min_size=1, max_size=5))  # fmt: skip
    return Timeline(draw(names), START, end, made + steps, draw(st.booleans()))


@given(timelines(), st.lists(st.floats(-10, 1.1e6, allow_nan=False), max_size=10))
def test_an_axis_never_turns_back_and_stays_in_its_picture(of: Timeline, seconds: list[float]) -> None:
    on = timeline.scale(of)
    places = [on.place(START + timedelta(seconds=n)) for n in sorted(seconds)]
    assert places == sorted(places)
    assert all(0 <= place <= 1 + 1e-9 for place in places)
    for begin, end in on.breaks:
        assert of.begin <= begin <= end <= of.end


@given(timelines(), st.integers(10, 200), st.sampled_from([bars.UNICODE, bars.ASCII]))
def test_any_timeline_is_drawn_in_its_width_and_as_xml(of: Timeline, width: int, signs: bars.Signs) -> None:
    lines = list(bars.lines(of, width, signs))
    for line in lines[1 : 1 + len(of.bars)]:
        assert line.cell_len <= width
        assert "\n" not in line.plain
        assert "\x1b" not in line.plain
    ET.fromstring(gantt.svg(of))


def test_a_long_wait_is_drawn_shorter_and_says_so() -> None:
    hours = [START + timedelta(hours=n) for n in (0, 1, 500, 501)]
    of = Timeline("w r", hours[0], hours[3], [
        Bar("attempt", "attempt 1", "parked", hours[0], hours[1]), Bar("attempt", "attempt 2", "finished", hours[2], hours[3]),
    ], whole=True)  # fmt: skip
    on = timeline.scale(of)
    assert on.breaks == [(hours[1], hours[2])]
    assert on.place(hours[2]) - on.place(hours[1]) == pytest.approx(0.5)
    assert on.instant(on.place(hours[2])) == hours[2]
    said = "\n".join(line.plain for line in bars.lines(of, 100))
    assert "≈  no attempt: drawn shorter than it was" in said
    assert "drawn shorter" in gantt.svg(of)
    short = replace(of, bars=[Bar("attempt", "attempt 1", "finished", hours[0], hours[3])])
    assert timeline.scale(short).breaks == []


def test_rows_of_two_maps_of_one_name_are_nobodys_tick() -> None:
    doc: dict[str, Any] = {
        "run_id": "r", "name": "w", "status": "running", "submitted_at": START.isoformat(), "now": START.isoformat(), "finished_at": None,
    }  # fmt: skip

    def event(seq: int, type_: str, **data: Any) -> Event:
        return Event(seq, START + timedelta(seconds=seq), type_, 1, data)

    one = event(1, "map.opened", kind="map", name="m", ordinal=1)
    row = event(2, "row.kept", map="m", key="a")
    together = replace(row, seq=9)
    assert timeline.read(doc, [one, row, together]).bars[1].ticks == [row.at], "committed together: one tick"
    two = event(3, "map.opened", kind="map", name="m", ordinal=2)
    found = timeline.read(doc, [one, row, two, event(4, "row.kept", map="m", key="a")])
    assert [bar.ticks for bar in found.bars[1:]] == [[row.at], []]


def test_a_run_of_many_steps_shows_its_beginning_and_its_end(tmp_path: Path) -> None:
    steps = [Bar("step", f"step s#{n}", "kept", None, START + timedelta(seconds=n)) for n in range(1, 1001)]
    of = Timeline("w r", START, START + timedelta(seconds=1000), steps, whole=False)
    said = [line.plain for line in bars.lines(of, 80)]
    assert len(said) < bars.LINES_MAX + 10
    assert "800 more" in "\n".join(said)
    assert any(line.startswith("step s#1000 ") for line in said)
    assert "this is its beginning" in said[-1]
