"""Tables for tests: files of airports, and a workflow that maps one and counts outside the database what began."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.ipc as pa_ipc
import pyarrow.parquet as pa_parquet
import pytest

from fencepost import (
    App,
    ArrowFile,
    Context,
    Csv,
    JsonLines,
    Parquet,
)
from fencepost.sources import judging
from fencepost.sources.table import Table
from tests.legs import Effects

KINDS: dict[str, type[Any]] = {".csv": Csv, ".jsonl": JsonLines, ".parquet": Parquet, ".arrow": ArrowFile}


@dataclass
class Port:
    ident: str
    lat: float
    note: str | None = None


def ports(path: Path, n: int, *, bad: tuple[int, ...] = ()) -> Path:
    """A CSV file of n airports; the latitude of `bad` ones is no number."""
    lines = [f"K{i},{'north' if i in bad else i / 100}," for i in range(n)]
    path.write_text("\n".join(["ident,lat,note", *lines]) + "\n")
    return path


def small_pieces(monkeypatch: pytest.MonkeyPatch) -> None:
    """Rows are stored a few at a time, as those of a large file are."""
    for function in (judging.judge, judging.pieces_of):
        monkeypatch.setattr(function, "__defaults__", (200,))


def mapping(app: App, effects: Effects, table: Table, *, repeatable: bool = False, **options: Any) -> Any:
    """A workflow that maps a table, counting in a file outside the database what began."""

    async def locate(port: Port) -> dict[str, Any]:
        effects.happen(port.ident)
        return {"south": -port.lat}

    step = app.step(repeatable=repeatable)(locate)

    async def flow(ctx: Context) -> dict[str, Any]:
        mapped = await ctx.map(step, table, **{"key": "ident", "concurrency": 4, **options})
        found = [value["south"] async for value in mapped]
        failed = {key: str(error) async for key, error in mapped.failures()}
        return {
            "found": found,
            "failed": failed,
            "unknown": list(mapped.unknown),
            "counts": [mapped.completed, mapped.failed, mapped.skipped, mapped.total],
            "keys": [key async for key, _ in mapped.items()],
        }

    return app.workflow()(flow)


def parquet(rows: dict[str, list[Any]]) -> Callable[[Path], None]:
    return lambda path: pa_parquet.write_table(pa.table(rows), path)


def arrow(rows: dict[str, list[Any]], *, stream: bool) -> Callable[[Path], None]:
    def write(path: Path) -> None:
        table = pa.table(rows)
        make = pa_ipc.new_stream if stream else pa_ipc.new_file
        with make(path, table.schema) as writer:
            writer.write_table(table, max_chunksize=2)

    return write
