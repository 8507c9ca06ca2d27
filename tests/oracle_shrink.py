"""Fewer moves and shorter programs that still show the same disagreement: deletions, kept while it stays."""

from __future__ import annotations

import copy
import re
import time
from collections.abc import Iterator
from typing import Any

from tests.oracle_play import Game
from tests.oracle_table import Table

Moves = list[list[Any]]


def sign(error: BaseException) -> str:
    """Which disagreement it is: its first words, whatever runs and numbers it names."""
    return type(error).__name__ + re.sub(r"r\d+\S*|\d+", "", str(error).partition(": Run(")[0])[:150]


async def play(table: Table, moves: Moves) -> BaseException | None:
    """Make the moves in a game of their own; what it raised."""
    game = Game(table)
    try:
        for name, how in copy.deepcopy(moves):
            await game.move(name, **how)
        await game.over()
    except Exception as error:
        return error
    finally:
        await game.leave()
    return None


async def shrink(table: Table, moves: Moves, error: BaseException, *, seconds: float) -> Moves:
    """The least moves found in this time."""
    end, wanted = time.monotonic() + seconds, sign(error)
    shorter = True
    while shorter and time.monotonic() < end:
        shorter = False
        for candidate in _shorter(moves):
            if time.monotonic() > end:
                break
            found = await play(table, candidate)
            if found is not None and sign(found) == wanted:
                moves, shorter = candidate, True
                break
    return moves


def _shorter(moves: Moves) -> Iterator[Moves]:
    size = len(moves) // 2
    while size:
        for start in range(len(moves) - size, -1, -size):
            yield moves[:start] + moves[start + size :]
        size //= 2
    for at, (name, how) in enumerate(moves):
        if name == "start":
            for ops in _shorter_programs(how["ops"]):
                yield [*moves[:at], [name, {**how, "ops": ops}], *moves[at + 1 :]]


def _shorter_programs(ops: list[dict[str, Any]]) -> Iterator[list[dict[str, Any]]]:
    for at, op in enumerate(ops):
        if len(ops) > 1:
            yield ops[:at] + ops[at + 1 :]
        for plain in ({"gate": None}, {"fails": 0}, {"caught": False}):
            if any(op.get(key, value) != value for key, value in plain.items()):
                yield [*ops[:at], {**op, **plain}, *ops[at + 1 :]]
        if "rows" in op and len(op["rows"]) > 1:
            for row in range(len(op["rows"])):
                yield [*ops[:at], {**op, "rows": op["rows"][:row] + op["rows"][row + 1 :]}, *ops[at + 1 :]]
        for inner in _shorter_programs(op.get("ops", [])):
            yield [*ops[:at], {**op, "ops": inner}, *ops[at + 1 :]]
