"""What every table of rows has in common."""

from __future__ import annotations

import hashlib
import os
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import Any, ClassVar, Protocol

import msgspec

from fencepost.errors import SourceRefused

Row = dict[str, Any]
Tell = Callable[[bytes], object]  # is given every byte of the file, in order


class Writer(Protocol):
    """A table being written. Not to be used by two threads at once."""

    def add(self, rows: Iterable[list[Any]]) -> None:
        """More rows, each with a value per column."""
        ...

    def close(self) -> None:
        """What is still held back goes to the file; the file itself is the caller's."""
        ...


class Table(ABC):
    """A file of rows, as a value. `unit`: what a place in it is called. `texts`: every value in it is text, and types are the reader's."""

    __slots__ = ()
    unit: ClassVar[str] = "line"
    texts: ClassVar[bool] = False

    path: str | os.PathLike[str]

    @abstractmethod
    def settings(self) -> dict[str, Any]:
        """What beside its bytes decides which rows the file holds."""

    @abstractmethod
    def read(self, tell: Tell, needs: str | None) -> Iterator[tuple[int, Row]]:
        """Every row with its place (from 1). `needs`: a column that must be there. Raises SourceRefused at the first thing that is wrong."""

    @abstractmethod
    def writer(self, file: Any, columns: list[tuple[str, str]]) -> Writer:
        """To write rows into an open binary file. `columns`: name and kind: text, integer, number, boolean or json."""

    def ready(self) -> None:
        """That what reads and writes it is installed. Raises ModuleNotFoundError, which names the extra."""
        return

    @property
    def name(self) -> str:
        """As sentences call it."""
        return os.fspath(self.path)

    def digest(self) -> str:
        """SHA-256 of the file's bytes, in hex. Raises FileNotFoundError, and SourceRefused where it cannot be read."""
        try:
            with Path(self.path).open("rb") as file:
                return hashlib.file_digest(file, "sha256").hexdigest()
        except FileNotFoundError:
            raise
        except OSError as error:
            raise self.unreadable(error) from None

    def unreadable(self, error: OSError) -> SourceRefused:
        return SourceRefused(self.name, f"it cannot be read: {error.strerror or error}")

    def refused(self, problem: str, line: int | None = None, column: str = "") -> SourceRefused:
        return SourceRefused(self.name, problem, line=line, column=column, unit=self.unit)

    def missing(self, column: str, columns: list[str], line: int | None) -> SourceRefused:
        """A column that is not there, with one that was perhaps meant."""
        import difflib

        near = difflib.get_close_matches(column, columns, 1)
        perhaps = f"; is it {near[0]!r}?" if near else ""
        return self.refused(f"there is no column {column!r}{perhaps} It has: {', '.join(columns[:50])}", line)


def judge_columns(what: str, columns: Iterable[str] | None) -> tuple[str, ...] | None:
    """The columns asked for. Raises ValueError for none, an empty name, or one named twice."""
    if columns is None:
        return None
    found = tuple(columns)
    if isinstance(columns, str) or not found or not all(isinstance(name, str) and name for name in found):
        raise ValueError(f"{what}: columns are names, at least one: {columns!r}")
    if len(set(found)) != len(found):
        raise ValueError(f"{what}: a column is named twice: {', '.join(found)}")
    return found


def settings_digest(table: Table, key: str, batch: int | None) -> str:
    """16 hex digits for how a file is read."""
    text = msgspec.json.encode([type(table).__name__, table.settings(), key, batch], order="sorted")
    return hashlib.blake2b(text, digest_size=8).hexdigest()
