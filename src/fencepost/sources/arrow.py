"""Tables in Arrow's formats: Parquet files, and IPC files or streams. pyarrow (the extra `tables`) is imported when one is read or written."""

from __future__ import annotations

import os
from abc import abstractmethod
from collections.abc import Callable, Iterable, Iterator
from dataclasses import KW_ONLY, dataclass
from importlib import import_module
from pathlib import Path
from typing import Any, ClassVar

from fencepost.sources.table import Row, Table, Tell, Writer, judge_columns

_BATCH_ROWS = 2_000
_BLOCK = 1 << 20
_MAGIC = b"ARROW1"
_TYPES = {"text": "string", "json": "string", "integer": "int64", "number": "float64", "boolean": "bool_"}


def _arrow(name: str = "pyarrow") -> Any:
    try:
        return import_module(name)
    except ModuleNotFoundError as error:
        raise ModuleNotFoundError(
            "tables in Arrow's formats need pyarrow: install fencepost with the extra `tables` (pip install 'fencepost[tables]')"
        ) from error


class _Arrow(Table):
    """What both have in common. `columns`: only these, in this order."""

    __slots__ = ()
    unit: ClassVar[str] = "row"
    columns: tuple[str, ...] | list[str] | None

    def ready(self) -> None:
        _arrow()

    def settings(self) -> dict[str, Any]:
        return {"columns": self.columns}

    def read(self, tell: Tell, needs: str | None) -> Iterator[tuple[int, Row]]:
        arrow = _arrow()
        number = 0
        try:
            with Path(self.path).open("rb") as file:
                while data := file.read(_BLOCK):
                    tell(data)
                file.seek(0)
                for batch in self._batches(file, needs):
                    for row in batch.to_pylist():
                        number += 1
                        yield number, row
        except arrow.ArrowInvalid as error:
            raise self.refused(f"it is not what it should be: {error}", number + 1 if number else None) from None
        except arrow.ArrowException as error:
            raise self.refused(f"it cannot be read: {error}", number + 1 if number else None) from None
        except OSError as error:
            raise self.unreadable(error) from None

    @abstractmethod
    def _batches(self, file: Any, needs: str | None) -> Iterator[Any]:
        """Its rows, in Arrow's own batches."""

    def _chosen(self, names: list[str], needs: str | None) -> list[str]:
        chosen = names if self.columns is None else list(self.columns)
        for name in chosen:
            if name not in names:
                raise self.missing(name, names, None)
        if len(set(names)) != len(names):
            twice = next(name for name in names if names.count(name) > 1)
            raise self.refused("two columns have the same name", None, twice)
        if needs is not None and needs not in chosen:
            raise self.missing(needs, chosen, None)
        return chosen


@dataclass(frozen=True, slots=True)
class Parquet(_Arrow):
    """A Parquet file, read a piece of a row group at a time. Timestamps and decimals become the texts that JSON has for them."""

    path: str | os.PathLike[str]
    _: KW_ONLY
    columns: tuple[str, ...] | list[str] | None = None

    def __post_init__(self) -> None:
        object.__setattr__(self, "columns", judge_columns(f"Parquet({os.fspath(self.path)!r})", self.columns))

    def _batches(self, file: Any, needs: str | None) -> Iterator[Any]:
        found = _arrow("pyarrow.parquet").ParquetFile(file)
        chosen = self._chosen(list(found.schema_arrow.names), needs)
        for batch in found.iter_batches(batch_size=_BATCH_ROWS, columns=chosen, use_threads=False):
            yield batch.select(chosen)

    def writer(self, file: Any, columns: list[tuple[str, str]]) -> Writer:
        return _ArrowWriter(columns, lambda schema: _arrow("pyarrow.parquet").ParquetWriter(file, schema))


@dataclass(frozen=True, slots=True)
class ArrowFile(_Arrow):
    """An Arrow IPC file or stream, told apart by its first bytes."""

    path: str | os.PathLike[str]
    _: KW_ONLY
    columns: tuple[str, ...] | list[str] | None = None

    def __post_init__(self) -> None:
        object.__setattr__(self, "columns", judge_columns(f"ArrowFile({os.fspath(self.path)!r})", self.columns))

    def _batches(self, file: Any, needs: str | None) -> Iterator[Any]:
        ipc = _arrow("pyarrow.ipc")
        is_file = file.read(len(_MAGIC)) == _MAGIC
        file.seek(0)
        found = ipc.open_file(file) if is_file else ipc.open_stream(file)
        chosen = self._chosen(list(found.schema.names), needs)
        batches: Iterable[Any] = (
            (found.get_batch(place) for place in range(found.num_record_batches)) if is_file else found
        )
        for batch in batches:
            for start in range(0, batch.num_rows, _BATCH_ROWS):
                yield batch.slice(start, _BATCH_ROWS).select(chosen)

    def writer(self, file: Any, columns: list[tuple[str, str]]) -> Writer:
        return _ArrowWriter(columns, lambda schema: _arrow("pyarrow.ipc").new_file(file, schema))


class _ArrowWriter:
    """Rows become batches of one size, whatever pages they came in: the same rows give the same file."""

    def __init__(self, columns: list[tuple[str, str]], make: Callable[[Any], Any]) -> None:
        arrow = _arrow()
        self._schema = arrow.schema([(name, getattr(arrow, _TYPES[kind])()) for name, kind in columns])
        self._writer = make(self._schema)
        self._held: list[list[Any]] = []

    def add(self, rows: Iterable[list[Any]]) -> None:
        for row in rows:
            self._held.append(row)
            if len(self._held) == _BATCH_ROWS * 10:
                self._flush()

    def _flush(self) -> None:
        if self._held:
            arrays = [list(column) for column in zip(*self._held, strict=True)]
            self._writer.write_batch(_arrow().record_batch(arrays, schema=self._schema))
            self._held = []

    def close(self) -> None:
        self._flush()
        self._writer.close()
