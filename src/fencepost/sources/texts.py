"""Tables that are text: CSV, and JSON lines. Read by the standard library and msgspec, a bounded piece at a time."""

from __future__ import annotations

import codecs
import csv
import io
import os
from collections.abc import Iterable, Iterator
from dataclasses import KW_ONLY, dataclass
from pathlib import Path
from typing import Any, BinaryIO, ClassVar, cast

import msgspec

from fencepost import limits
from fencepost.errors import SourceRefused
from fencepost.sources.table import Row, Table, Tell, Writer, judge_columns

_BLOCK = 1 << 18
_BOM = codecs.BOM_UTF8


class _Told(io.RawIOBase):
    """A file that tells what is read from it."""

    def __init__(self, file: BinaryIO, tell: Tell) -> None:
        self._file = file
        self._tell = tell

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: Any, /) -> int:
        data = self._file.read(len(buffer))
        buffer[: len(data)] = data
        self._tell(data)
        return len(data)


@dataclass(frozen=True, slots=True)
class Csv(Table):
    """Comma-separated values with a header line. Every value is text; the step's parameter type says what becomes of it.

    `columns`: only these, in this order. `header=False`: the first line is a row already, and `columns` names every field.
    `empty=None`: an empty cell is null. Raises ValueError for options that mean nothing.
    """

    texts: ClassVar[bool] = True

    path: str | os.PathLike[str]
    _: KW_ONLY
    encoding: str = "utf-8"
    delimiter: str = ","
    columns: tuple[str, ...] | list[str] | None = None
    header: bool = True
    empty: str | None = ""

    def __post_init__(self) -> None:
        what = f"Csv({os.fspath(self.path)!r})"
        object.__setattr__(self, "columns", judge_columns(what, self.columns))
        if len(self.delimiter) != 1 or self.delimiter in '"\r\n':
            raise ValueError(f"{what}: delimiter is one character, and no quote or line end: {self.delimiter!r}")
        if self.empty not in ("", None):
            raise ValueError(f'{what}: empty cells are "" or None, not {self.empty!r}')
        if not self.header and self.columns is None:
            raise ValueError(f"{what}: without a header, columns= names the fields")
        try:
            name = codecs.lookup(self.encoding).name
        except LookupError:
            raise ValueError(f"{what}: there is no encoding {self.encoding!r}") from None
        object.__setattr__(self, "encoding", name)

    def settings(self) -> dict[str, Any]:
        return {
            "encoding": self.encoding,
            "delimiter": self.delimiter,
            "columns": self.columns,
            "header": self.header,
            "empty": self.empty,
        }

    def read(self, tell: Tell, needs: str | None) -> Iterator[tuple[int, Row]]:
        encoding = "utf-8-sig" if self.encoding == "utf-8" else self.encoding
        # A process has one limit of a field's length, and its default of 128 KiB is less than a value may have.
        csv.field_size_limit(max(csv.field_size_limit(), limits.PAYLOAD_BYTES))
        line = 1
        try:
            with Path(self.path).open("rb") as file:
                told = io.BufferedReader(_Told(file, tell), _BLOCK)
                reader = csv.reader(
                    io.TextIOWrapper(told, encoding, "strict", newline=""), delimiter=self.delimiter, strict=True
                )
                names = self._names(reader, needs)
                line = reader.line_num + 1
                places = None if self.columns is None else [names.index(name) for name in self.columns]
                chosen = names if self.columns is None else list(self.columns)
                for cells in reader:
                    if len(cells) != len(names):
                        if not cells:  # a blank line
                            line = reader.line_num + 1
                            continue
                        raise self._ragged(line, len(cells), names)
                    if places is not None:
                        cells = [cells[place] for place in places]  # noqa: PLW2901 - the same row, fewer of it
                    row: Row = dict(zip(chosen, cells, strict=True))
                    if self.empty is None:
                        row = {name: cell or None for name, cell in row.items()}
                    yield line, row
                    line = reader.line_num + 1
        except UnicodeError:
            raise self._undecodable() from None
        except csv.Error as error:
            raise self.refused(f"{error}; is a quote left open?", line) from None
        except OSError as error:
            raise self.unreadable(error) from None

    def _names(self, reader: Iterator[list[str]], needs: str | None) -> list[str]:
        """The name of every field of a line."""
        columns = list(self.columns or ())
        if not self.header:
            if needs is not None and needs not in columns:
                raise self.missing(needs, columns, None)
            return columns
        names = next(reader, None)
        if not names:
            raise self.refused("it is empty: not even a header line is there", 1)
        for place, name in enumerate(names):
            if not name:
                raise self.refused(f"field {place + 1} of the header is empty", 1)
            if name in names[:place]:
                raise self.refused(f"fields {names.index(name) + 1} and {place + 1} of the header have the same name", 1, name)  # fmt: skip
        for name in columns:
            if name not in names:
                raise self.missing(name, names, 1)
        if needs is not None and needs not in (columns or names):
            raise self.missing(needs, columns or names, 1)
        return names

    def _ragged(self, line: int, cells: int, names: list[str]) -> SourceRefused:
        missing = f"field {cells + 1}, {names[cells]!r}, is missing" if cells < len(names) else ""
        where = missing or f"field {len(names) + 1} belongs to no column"
        return self.refused(f"it has {cells} fields, and there are {len(names)} columns: {where}", line)

    def _undecodable(self) -> SourceRefused:
        """Where the first byte is that the encoding does not have: asked only once something is wrong."""
        decoder = codecs.getincrementaldecoder(self.encoding)("strict")
        byte, line, column = 0, 1, 1
        with Path(self.path).open("rb") as file:
            while block := file.read(_BLOCK):
                before = decoder.getstate()
                try:
                    text = decoder.decode(block)
                except UnicodeError:
                    decoder.setstate(before)
                    break
                byte += len(block)
                line, column = _past(text, line, column)
            for value in block:  # one byte after the other, to the one that cannot go on
                try:
                    text = decoder.decode(bytes([value]))
                except UnicodeError:
                    break
                byte += 1
                line, column = _past(text, line, column)
        byte -= len(decoder.getstate()[0])  # where the character begins that this byte does not end
        return self.refused(f"byte {byte + 1} of the file, character {column} of the line, is not {self.encoding}", line)  # fmt: skip

    def writer(self, file: Any, columns: list[tuple[str, str]]) -> Writer:
        return _CsvWriter(self, file, columns)


def _past(text: str, line: int, column: int) -> tuple[int, int]:
    lines = text.count("\n")
    return (line, column + len(text)) if not lines else (line + lines, len(text) - text.rfind("\n"))


class _CsvWriter:
    def __init__(self, table: Csv, file: Any, columns: list[tuple[str, str]]) -> None:
        self._text = io.TextIOWrapper(file, table.encoding, "strict", newline="", write_through=False)
        self._csv = csv.writer(self._text, delimiter=table.delimiter, lineterminator="\n")
        if table.header:
            self._csv.writerow([name for name, _ in columns])

    def add(self, rows: Iterable[list[Any]]) -> None:
        self._csv.writerows([_cell(value) for value in row] for row in rows)

    def close(self) -> None:
        self._text.flush()
        self._text.detach()


def _cell(value: Any) -> Any:
    if value is None or isinstance(value, str):
        return value
    return msgspec.json.encode(value).decode()


@dataclass(frozen=True, slots=True)
class JsonLines(Table):
    """A JSON object per line, in UTF-8. Blank lines are passed over; a file without any line has no rows."""

    path: str | os.PathLike[str]

    def settings(self) -> dict[str, Any]:
        return {}

    def read(self, tell: Tell, needs: str | None) -> Iterator[tuple[int, Row]]:
        decode = msgspec.json.Decoder().decode
        longest = limits.PAYLOAD_BYTES
        try:
            with Path(self.path).open("rb") as file:
                number = 0
                while data := file.readline(longest + 1):
                    tell(data)
                    number += 1
                    if len(data) > longest:
                        raise self.refused(f"it is longer than {longest:,} bytes", number)
                    if number == 1 and data.startswith(_BOM):
                        data = data[len(_BOM) :]
                    if not data.strip():
                        continue
                    row = self._object(decode, data, number)
                    if needs is not None and needs not in row:
                        raise self.missing(needs, list(row), number)
                    yield number, row
        except OSError as error:
            raise self.unreadable(error) from None

    def _object(self, decode: Any, data: bytes, number: int) -> Row:
        try:
            data.decode()
            found = decode(data)
        except UnicodeDecodeError as error:
            raise self.refused(f"byte {error.start + 1} of the line is not utf-8", number) from None
        except (msgspec.DecodeError, RecursionError) as error:
            words = str(error).replace("JSON is malformed: ", "")
            raise self.refused(f"it is not JSON: {words}", number) from None
        if not isinstance(found, dict):
            raise self.refused(f"it is no JSON object but {type(found).__name__}", number)
        return cast("Row", found)

    def writer(self, file: Any, columns: list[tuple[str, str]]) -> Writer:
        return _LinesWriter(file, [name for name, _ in columns])


class _LinesWriter:
    def __init__(self, file: Any, names: list[str]) -> None:
        self._file = file
        self._names = names

    def add(self, rows: Iterable[list[Any]]) -> None:
        encode = msgspec.json.encode
        self._file.write(b"".join(encode(dict(zip(self._names, row, strict=True))) + b"\n" for row in rows))

    def close(self) -> None:
        pass
