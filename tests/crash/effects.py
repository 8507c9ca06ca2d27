"""The log of effects: what author code did, outside the database. One line an effect, appended whole and flushed."""

from __future__ import annotations

import os
from collections import Counter
from dataclasses import dataclass
from pathlib import Path

_path: Path | None = None


def write_to(path: Path) -> None:
    """From now on this process notes here."""
    global _path  # noqa: PLW0603 - a process has one log
    _path = path


def note(word: str, run: str, step: str, key: str = "-") -> None:
    """Say that it happened. On disk when this returns."""
    assert _path is not None
    descriptor = os.open(_path, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o600)
    try:
        os.write(descriptor, f"{word} {run} {step} {key} {os.getpid()}\n".encode())
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


@dataclass(frozen=True, slots=True)
class Effect:
    word: str
    run: str
    step: str
    key: str
    pid: int


def read(path: Path | None = None, *, run: str | None = None, start: int = 0) -> list[Effect]:
    """Every line from byte `start` on, or those of a run and its children."""
    place = path or _path
    if place is None or not place.exists():
        return []
    with place.open("rb") as log:
        log.seek(start)
        lines = [line.split() for line in log.read().decode().splitlines()]
    found = [Effect(word, whose, step, key, int(pid)) for word, whose, step, key, pid in lines]
    return [e for e in found if run is None or e.run == run or e.run.startswith(f"{run}/")]


def counted(found: list[Effect]) -> Counter[tuple[str, str]]:
    """(word, step) -> how often."""
    return Counter((e.word, e.step) for e in found)
