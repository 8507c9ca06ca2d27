"""A map's results as a table: the columns found first, then written beside the file's place, and moved there when whole."""

from __future__ import annotations

import contextlib
import glob
import hashlib
import os
import secrets
from collections.abc import Iterable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Self, cast

from fencepost import values
from fencepost.sources.table import Table, Writer

Result = tuple[str, str]  # key and JSON text, of a row that was kept
_INTEGERS = range(-(2**63), 2**63)


@dataclass(frozen=True, slots=True)
class Written:
    """A file of results. `sha256` of its bytes in hex."""

    path: str
    sha256: str
    rows: int


@dataclass(slots=True)
class Shape:
    """The columns that results need: the key, then every field in the order it is first seen. A result that is no object is `value`."""

    key: str
    _kinds: dict[str, set[str]] = field(default_factory=dict[str, set[str]])
    _is_key: bool = True  # every result's field of the key's name holds the key

    def see(self, results: Iterable[Result]) -> None:
        for key, text in results:
            for name, value in _fields(text).items():
                if name == self.key and str(value) != key:
                    self._is_key = False
                if value is not None:
                    self._kinds.setdefault(name, set()).add(_kind(value))
                else:
                    self._kinds.setdefault(name, set())

    def columns(self) -> list[tuple[str, str]]:
        """Name and kind of each."""
        return [(self.key, "text"), *((self._named(name), _one(kinds)) for name, kinds in self._shown())]

    def rows(self, results: Iterable[Result]) -> Iterable[list[Any]]:
        """The values of each, in the order of the columns."""
        kinds = [(name, _one(kinds)) for name, kinds in self._shown()]
        for key, text in results:
            fields = _fields(text)
            yield [key, *(_as(fields.get(name), kind) for name, kind in kinds)]

    def _shown(self) -> list[tuple[str, set[str]]]:
        return [(name, kinds) for name, kinds in self._kinds.items() if name != self.key or not self._is_key]

    def _named(self, name: str) -> str:
        return f"result.{name}" if name == self.key else name


def _fields(text: str) -> dict[str, Any]:
    value = values.decode(text, Any)
    return cast("dict[str, Any]", value) if isinstance(value, dict) else {"value": value}


def _kind(value: Any) -> str:
    match value:
        case bool():
            return "boolean"
        case int():
            return "integer" if value in _INTEGERS else "json"
        case float():
            return "number"
        case str():
            return "text"
        case _:
            return "json"


def _one(kinds: set[str]) -> str:
    """The kind that holds them all."""
    if kinds == {"integer", "number"}:
        return "number"
    return next(iter(kinds)) if len(kinds) == 1 else "json" if kinds else "text"


def _as(value: Any, kind: str) -> Any:
    if value is None or kind in ("text", "boolean", "integer"):
        return value
    return float(value) if kind == "number" else values.encode(value)


class Results:
    """A table of results being made. Nothing is at its place before `finish`; leaving the block without it leaves nothing."""

    def __init__(self, table: Table, shape: Shape, owner: str) -> None:
        """`owner` names whose results they are: what a dead process of the same owner left half-written is taken away."""
        self._table = table
        self._shape = shape
        self._place = Path(table.path)
        self._owner = hashlib.sha256(owner.encode()).hexdigest()[:16]
        self._rows = 0

    def __enter__(self) -> Self:
        beginning = f".{self._place.name[:80]}.{self._owner}."
        for left in self._place.parent.glob(f"{glob.escape(beginning)}*.part"):
            left.unlink(missing_ok=True)
        self._temporary = self._place.parent / f"{beginning}{secrets.token_hex(4)}.part"
        try:
            self._file = self._temporary.open("x+b")
            self._writer: Writer = self._table.writer(self._file, self._shape.columns())
        except BaseException:
            self.__exit__()
            raise
        return self

    def add(self, results: list[Result]) -> None:
        """More results, in the order of the file."""
        self._writer.add(self._shape.rows(results))
        self._rows += len(results)

    def finish(self) -> Written:
        """The whole file takes its place; what was there before is gone in the same instant."""
        self._writer.close()
        self._file.flush()
        os.fsync(self._file.fileno())
        self._file.seek(0)
        digest = hashlib.file_digest(self._file, "sha256").hexdigest()
        self._file.close()
        self._temporary.replace(self._place)
        folder = os.open(self._place.parent, os.O_RDONLY)
        try:
            os.fsync(folder)
        finally:
            os.close(folder)
        return Written(self._table.name, digest, self._rows)

    def __exit__(self, *_: object) -> None:
        if hasattr(self, "_file"):
            with contextlib.suppress(OSError, ValueError):
                self._file.close()
        with contextlib.suppress(FileNotFoundError):
            self._temporary.unlink()


def judge_place(table: Table, source: Table | None = None) -> None:
    """That a file can be written there, and not over its own source. Raises SourceRefused before anything begins."""
    folder = Path(table.path).parent
    problem = None
    if not folder.is_dir():
        problem = f"results cannot be written there: there is no folder {str(folder)!r}"
    elif Path(table.path).is_dir():
        problem = "results cannot be written there: it is a folder"
    elif not os.access(folder, os.W_OK):
        problem = f"results cannot be written there: nothing may be written into {str(folder)!r}"
    elif source is not None and Path(table.path).resolve() == Path(source.path).resolve():
        problem = "results cannot be written over the table that they are made from"
    if problem is not None:
        raise table.refused(problem)


def stands(written: Written) -> bool:
    """Whether the file is still there, as it was written."""
    try:
        with Path(written.path).open("rb") as file:
            return hashlib.file_digest(file, "sha256").hexdigest() == written.sha256
    except OSError:
        return False
