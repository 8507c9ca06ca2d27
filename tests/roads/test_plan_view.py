"""The live view of a plan: kept from events, as large as the terminal, and never larger for a larger plan."""

from __future__ import annotations

import asyncio
import fcntl
import os
import pty
import re
import struct
import termios
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

from fencepost.cli.plan_board import Board
from fencepost.cli.plan_view import last_line, picture
from fencepost.ledger import Event
from fencepost.planning.reading import read_text
from tests.roads.command import FENCEPOST, SOON, Shop
from tests.roads.planned import begun, waits

NOON = datetime(2026, 11, 30, 12, tzinfo=UTC)


def chain(*ids: str, more: str = "") -> Board:
    """A board of steps in a row."""
    text = 'name = "row"\n'
    for before, each in zip(("", *ids), ids, strict=False):
        needs = f'needs = ["{before}"]' if before else ""
        text += f'[[step]]\nid = "{each}"\ncommand = ["true"]\n{needs}\n'
    return Board(read_text(text + more))


def events(*told: str) -> Iterator[Event]:
    """`started:log:2` and so on, a second apart; what follows is try, or outcome."""
    for seq, each in enumerate(told, start=1):
        word, _, rest = each.partition(":")
        step, _, more = rest.partition(":")
        data: dict[str, Any] = {"step": step}
        if word == "started":
            data["try"] = int(more or 1)
        elif word == "skipped":
            data["reason"] = more
        elif more:
            data |= {"outcome": more, "try": 1, "delay_ms": 500}
        yield Event(seq, NOON + timedelta(seconds=seq), f"plan.step_{word}", None, data)


def states(board: Board) -> dict[str, str]:
    return {name: standing.state for name, standing in board.steps.items()}


# What is kept


def test_a_board_stands_as_its_events_say() -> None:
    board = chain(
        "a", "b", "c", more='[[step]]\nid = "d"\ncommand = ["true"]\nneeds = ["a", { step = "c", optional = true }]\n'
    )
    assert states(board) == {"a": "ready", "b": "blocked", "c": "blocked", "d": "blocked"}
    said = [board.apply(event) for event in events("started:a", "succeeded:a:success", "started:b", "failed:b:timeout")]
    assert [line.split(" ", 1)[1] for line in said] == [
        "a: running", "a: succeeded after 1s", "b: running", "b: failed (timeout) after 1s",
    ]  # fmt: skip
    assert states(board) == {"a": "succeeded", "b": "failed", "c": "ready", "d": "blocked"}, (
        "c's skip is told, not guessed"
    )
    (said,) = [board.apply(event) for event in events("skipped:c:needs b, which failed")]
    assert said.endswith("c: skipped: needs b, which failed")
    assert states(board)["d"] == "ready"
    assert +board.counts == {"succeeded": 1, "failed": 1, "skipped": 1, "ready": 1}
    assert board.moving == {}


def test_a_step_that_waits_for_its_next_try_moves_and_an_unknown_one_too() -> None:
    board = chain("a", "b")
    told = [board.apply(event) for event in events("started:a", "waiting:a:failure", "started:a:2", "unknown:a")]
    assert told[1].endswith("a: try 1 ended in failure, tries again in 500ms")
    assert told[2].endswith("a: running (try 2)")
    assert list(board.moving) == ["a"]
    board.apply(next(events("resumed:a")))
    assert (states(board)["a"], board.steps["a"].words) == ("running", "goes on (try 2)")


def test_what_is_initially_skipped_is_skipped_before_anything_is_told() -> None:
    more = '[[step]]\nid = "x"\ncommand = ["true"]\ninitially_skipped = true\n'
    more += '[[step]]\nid = "y"\ncommand = ["true"]\nneeds = [{ step = "x", optional = true }]\n'
    assert states(chain("a", more=more)) == {"a": "ready", "x": "skipped", "y": "ready"}


# What is drawn


def test_the_picture_is_the_graph_in_written_order() -> None:
    board = chain("fetch", "count", "print")
    for event in events("started:fetch", "succeeded:fetch:success", "started:count"):
        board.apply(event)
    lines = picture(board, 100, 20, NOON + timedelta(seconds=10)).plain.splitlines()
    assert lines == [
        "row  1/3 succeeded, 1 running, 1 blocked  9s",
        "  ✓ fetch  succeeded after 1s",
        "    ▸ count ← fetch  running  7s",
        "      · print ← count",
    ]
    assert picture(board, 100, 20, NOON, plain=True).plain.isascii(), "where nothing else can be written"
    assert all(len(line) <= 30 for line in picture(board, 30, 20, NOON).plain.splitlines())


@pytest.mark.parametrize("running", [0, 7, 500])
def test_ten_thousand_steps_are_counts_and_those_that_run(running: int) -> None:
    text = 'name = "wide"\nmax_concurrency = 1000\n'
    text += "".join(f'[[step]]\nid = "s{number}"\ncommand = ["true"]\n' for number in range(10_000))
    board = Board(read_text(text))
    for event in events(*(f"started:s{number}" for number in range(running))):
        board.apply(event)
    lines = picture(board, 80, 24, NOON + timedelta(hours=1)).plain.splitlines()
    assert len(lines) <= 24
    assert "10,000" in lines[0].replace(f"{10_000 - running:,} ready", "10,000")
    shown = [line.split()[1] for line in lines[1:] if line.split()[0] == "▸"]
    assert shown == [f"s{number}" for number in range(min(running, 22))]
    assert (f"and {running - 22:,} more" in lines[-1]) == (running > 22)


def test_what_a_program_writes_steers_no_terminal(tmp_path: Path) -> None:
    assert last_line(tmp_path) == "", "nothing is there yet"
    (tmp_path / "stderr").write_bytes(b"only here\n\n")
    assert last_line(tmp_path) == "only here"
    (tmp_path / "stdout").write_bytes(b"x" * 9000 + b"\n10%\r\x1b[31m\xff 20%\r\n\n")
    assert last_line(tmp_path) == "\\x1b[31m\ufffd 20%"


# On a terminal


def bare(shown: bytearray) -> str:
    """Without what moves and colours."""
    return re.sub(rb"\x1b\[[0-9;?]*[A-Za-z]", b"", bytes(shown)).decode(errors="replace")


async def test_on_a_terminal_the_graph_is_drawn_with_the_last_line_of_what_runs(shop: Shop) -> None:
    theirs, ours = pty.openpty()
    fcntl.ioctl(ours, termios.TIOCSWINSZ, struct.pack("HHHH", 30, 100, 0, 0))
    process = await asyncio.create_subprocess_exec(
        FENCEPOST, "plan", "run", waits(shop), "--here", "--json", cwd=shop.place, env=shop.environ | {"TERM": "xterm"},
        stdout=asyncio.subprocess.PIPE, stderr=ours,
    )  # fmt: skip
    os.close(ours)
    os.set_blocking(theirs, False)
    shown = bytearray()
    seen = asyncio.Event()

    def read() -> None:
        try:
            shown.extend(os.read(theirs, 65536))
        except OSError:
            asyncio.get_running_loop().remove_reader(theirs)
        if re.search("wait  running  \\d+s  │ begun", bare(shown)):
            seen.set()

    asyncio.get_running_loop().add_reader(theirs, read)
    try:
        await begun(shop)
        async with asyncio.timeout(SOON):
            await seen.wait()
            (shop.place / "go").touch()
            out, _ = await process.communicate()
    finally:
        asyncio.get_running_loop().remove_reader(theirs)
        os.close(theirs)
    assert process.returncode == 0
    assert b'"status":"completed"' in out
    assert b"\x1b" not in out, "data is data"
    last = bare(shown).rpartition("waits  ")[2]
    assert "✓ wait  succeeded after" in last
    assert "✓ after  succeeded after" in last
