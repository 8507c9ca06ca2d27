"""Tables of rows as the input of a map, and as the place of its results: read in windows, never loaded whole.

Each is a value that says what the file is; nothing is opened before a map asks. `Parquet` and `ArrowFile` need the extra `tables`.
"""

from __future__ import annotations

from fencepost.sources.arrow import ArrowFile, Parquet
from fencepost.sources.table import Row, Table
from fencepost.sources.texts import Csv, JsonLines

__all__ = ["ArrowFile", "Csv", "JsonLines", "Parquet", "Row", "Table", "by_name"]


def by_name(path: str) -> Table:
    """The table that a file's name says: `.csv`, `.tsv`, `.jsonl`, `.ndjson`, `.parquet`, `.arrow`, `.feather`. Raises ValueError."""
    ending = path.rpartition(".")[2].lower()
    match ending:
        case "csv":
            return Csv(path)
        case "tsv":
            return Csv(path, delimiter="\t")
        case "jsonl" | "ndjson":
            return JsonLines(path)
        case "parquet":
            return Parquet(path)
        case "arrow" | "feather":
            return ArrowFile(path)
        case _:
            raise ValueError(
                f"{path}: what kind of table this is does not show: .csv, .tsv, .jsonl, .parquet or .arrow"
            )
