"""A table judged before anything begins: every row, every key, each key once; then read again in pieces.

Both happen in a thread beside the worker's loop, at steady memory: of a row only eight bytes are kept, a hash of its key.
"""

from __future__ import annotations

import hashlib
import threading
from array import array
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field
from typing import Any

from fencepost import values
from fencepost.errors import SourceRefused
from fencepost.hot import weight
from fencepost.keys import batch_key
from fencepost.limits import PAYLOAD_BYTES
from fencepost.sources.table import Row, Table, Tell, settings_digest

Key = str | Callable[[Row], object]
_Unit = tuple[int, str, str]  # place, key and JSON text of a row, or of the rows of a batch
_SHARDS = 1024
PIECE_BYTES = 1024 * 1024  # of one call that stores rows
_LOOK_EVERY = 1000  # rows


class Stopped(Exception):
    """Whoever asked has gone."""


@dataclass(frozen=True, slots=True)
class Judged:
    """A table that was found good. `sha256` is of its bytes, `read_as` of how they were read, `pieces` of what each call stores: a table
    that is known from the record only has none.
    """

    sha256: str
    read_as: str
    total: int
    pieces: tuple[bytes, ...] = field(default=(), compare=False, repr=False)

    @property
    def hash(self) -> str:
        """The argument of a map's boundary (law 50.4)."""
        return f"{self.sha256}:{self.read_as}:{self.total}"

    @classmethod
    def of(cls, text: str) -> Judged | None:
        """From a boundary's hash; None: it is not of a table."""
        parts = text.split(":")
        return cls(parts[0], parts[1], int(parts[2])) if len(parts) == 3 and parts[2].isdecimal() else None


def key_name(key: Key) -> str:
    """As it is called: a column, or `key` for what a function makes."""
    return key if isinstance(key, str) else "key"


def read_as(table: Table, key: Key, batch: int | None = None) -> str:
    """How a table is read, as a digest: other columns, another key or batches of another size are other arguments."""
    return settings_digest(table, key if isinstance(key, str) else "", batch)


def judge(
    table: Table, key: Key, stop: threading.Event, size: int = PIECE_BYTES, *, batch: int | None = None
) -> Judged:
    """Read the whole table once. `batch`: so many rows are stored as one. Raises SourceRefused for the first thing that is wrong with it,
    with its place.
    """
    digest = hashlib.sha256()
    shards = [array("q") for _ in range(_SHARDS)]

    def see(name: str) -> None:
        hashed = hash(name)
        shards[hashed % _SHARDS].append(hashed)

    total = 0
    pieces: list[bytes] = []
    for keys, inputs in _pieces(_units(table, _rows(table, key, digest.update, stop, see), batch), size):
        total += len(keys)
        pieces.append(_digest(keys, inputs))
    if suspects := _twice(shards):
        _find_twins(table, key, suspects, stop)
    return Judged(digest.hexdigest(), read_as(table, key, batch), total, tuple(pieces))


def pieces_of(
    table: Table, key: Key, judged: Judged, stop: threading.Event, size: int = PIECE_BYTES, *, batch: int | None = None
) -> Iterator[tuple[list[str], list[str]]]:
    """Keys and inputs as they were judged, about `size` bytes at a time; the last only once the file has ended there. Raises SourceRefused
    before anything is given that is not what was judged.
    """
    digest = hashlib.sha256()
    found = _pieces(_units(table, _rows(table, key, digest.update, stop), batch), size)
    try:
        for n, known in enumerate(judged.pieces, start=1):
            piece = next(found, None)
            if piece is None or _digest(*piece) != known:
                raise table.refused("its rows are others now")
            if n == len(judged.pieces) and (next(found, None) is not None or digest.hexdigest() != judged.sha256):
                raise table.refused("it goes on now where it had ended")
            yield piece
    except SourceRefused as error:
        raise table.refused(f"it was changed while it was being read: {error.problem}", error.line) from None


def _pieces(units: Iterable[_Unit], size: int) -> Iterator[tuple[list[str], list[str]]]:
    """Keys and texts, at least one piece, which may be empty."""
    keys: list[str] = []
    inputs: list[str] = []
    held = 0
    for _, name, text in units:
        if inputs and held + len(text) > size:
            yield keys, inputs
            keys, inputs, held = [], [], 0
        keys.append(name)
        inputs.append(text)
        held += len(text)
    yield keys, inputs


def _digest(keys: list[str], inputs: list[str]) -> bytes:
    """Of a piece. JSON text and keys hold no line ends."""
    return hashlib.blake2b("\n".join((*keys, *inputs)).encode(), digest_size=16).digest()


def _units(table: Table, rows: Iterable[_Unit], batch: int | None) -> Iterable[_Unit]:
    """What is stored as a row of the map: each row, or each list of `batch` rows."""
    return rows if batch is None else _batches(table, rows, batch)


def _batches(table: Table, rows: Iterable[_Unit], batch: int) -> Iterator[_Unit]:
    """Raises SourceRefused for rows that are too many bytes together, before more of them are held than that."""
    keys: list[str] = []
    texts: list[str] = []
    first, held = 0, 1  # bytes: a bracket, and a comma or the other bracket behind each row
    for line, name, text in rows:
        first = first if keys else line
        held += weight(text) + 1
        if held > PAYLOAD_BYTES:
            raise table.refused(
                f"a batch of {batch} rows from here on is over {PAYLOAD_BYTES:,} bytes of JSON: give a smaller size",
                first,
            )
        keys.append(name)
        texts.append(text)
        if len(keys) == batch:
            yield first, batch_key(keys), f"[{','.join(texts)}]"
            keys, texts, held = [], [], 1
    if keys:
        yield first, batch_key(keys), f"[{','.join(texts)}]"


def _rows(
    table: Table, key: Key, tell: Tell, stop: threading.Event, see: Callable[[str], None] | None = None
) -> Iterator[_Unit]:
    """Every row. `see`: is told every key."""
    for seen, (line, row) in enumerate(table.read(tell, key if isinstance(key, str) else None)):
        if seen % _LOOK_EVERY == 0 and stop.is_set():
            raise Stopped
        name = _key_of(table, row, key, line)
        try:
            text = values.encode(row)
        except values.Unstorable as error:
            raise table.refused(f"it cannot be stored: {error.problem}", line, error.path.removeprefix("$.")) from None
        if see is not None:
            see(name)
        yield line, name, text


def _key_of(table: Table, row: Row, key: Key, line: int) -> str:
    column = key_name(key)
    found: Any
    if isinstance(key, str):
        found = row[key]
    else:
        try:
            found = key(row)
        except Exception as error:
            raise table.refused(f"key= raised {type(error).__name__}: {error}", line) from error
    if found is None or found == "":
        raise table.refused("the key is empty", line, column)
    if not isinstance(found, str | int) or isinstance(found, bool):
        raise table.refused(f"the key is neither text nor a whole number: {type(found).__name__}", line, column)
    try:
        return values.check_name(str(found), "the key")
    except ValueError as error:
        raise table.refused(str(error), line, column) from None


def _twice(shards: Iterable[array[int]]) -> set[int]:
    """Hashes that are there more than once."""
    found: set[int] = set()
    for shard in shards:
        before: int | None = None
        for hashed in sorted(shard):
            if hashed == before:
                found.add(hashed)
            before = hashed
    return found


def _find_twins(table: Table, key: Key, suspects: set[int], stop: threading.Event) -> None:
    """Two keys may share a hash: only the same key twice is a fault. Both places are named."""
    seen: dict[str, int] = {}
    for line, name, _ in _rows(table, key, lambda _: None, stop):
        if hash(name) in suspects:
            first = seen.setdefault(name, line)
            if first != line:
                raise table.refused(f"the key {name!r} is the key of {table.unit} {first} too", line, key_name(key))
