"""What every content store promises, wherever it keeps: bytes under their digest, compared with it whenever they are given."""

from __future__ import annotations

import contextlib
import hashlib
import re
from abc import ABC, abstractmethod
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import BinaryIO, Final

CHUNK_BYTES: Final = 1024 * 1024

_KEY: Final = re.compile(r"[A-Za-z0-9_-][A-Za-z0-9._-]{0,199}")
_PLACE: Final = re.compile(rf"({_KEY.pattern})/sha256-([0-9a-f]{{64}})")


class StoreFailed(Exception):
    """The store could not keep or give this: it is not there, was changed, or its disk refused. The text says which."""


class StoreAway(StoreFailed):
    """Nothing was found out: the store does not answer, or not to us. It is to be asked again, once what the text says is mended."""


@dataclass(frozen=True, slots=True)
class Stored:
    """What is kept: where, its digest (`sha256:<hex>`) and its size in bytes."""

    place: str
    digest: str
    size: int


class Store(ABC):
    """A place is `<key>/sha256-<64 hex digits>`; the key names a run, and what is kept under it goes with it."""

    @property
    @abstractmethod
    def where(self) -> str:
        """The store itself, for messages."""

    @abstractmethod
    def put(self, key: str, source: Path | BinaryIO | bytes) -> Stored:
        """Keep the bytes, or those of the file from where it stands; kept already is kept. Memory is bounded, whatever the size.

        Raises    StoreFailed: nothing is kept. ValueError: the key is no word of [A-Za-z0-9._-].
        """

    @abstractmethod
    def local_path(self, place: str) -> Path | None:
        """The file of a place, compared with its digest now; None: the store is none of files. Raises StoreFailed.

        It is read-only: whoever changes it spoils it for all.
        """

    @abstractmethod
    def forget(self, key: str) -> bool:
        """Remove everything kept under a key, when its run is forgotten. Whether there was anything. Raises StoreFailed."""

    @abstractmethod
    def keys(self) -> list[str]:
        """The keys under which something is kept. Raises StoreFailed."""

    @abstractmethod
    def _pieces(self, place: str) -> Iterator[bytes]:
        """What stands at a place, as it is. Raises StoreFailed."""

    def chunks(self, place: str) -> Iterator[bytes]:
        """The bytes at a place, piece by piece. Raises StoreFailed, at the latest after the last piece: they are not what was kept."""
        digest = digest_in(place)
        found = hashlib.sha256()
        for piece in self._pieces(place):
            found.update(piece)
            yield piece
        if found.hexdigest() != digest:
            raise StoreFailed(
                f"{place} in the store {self.where} was changed: its digest is sha256:{found.hexdigest()}"
            )

    def read(self, place: str) -> bytes:
        """All bytes at a place. Raises StoreFailed."""
        return b"".join(self.chunks(place))

    def copy(self, place: str, target: Path) -> None:
        """Write what is at a place into a new file, as `chunks` gives it. Raises StoreFailed, OSError of the target."""
        try:
            with target.open("xb") as file:
                for chunk in self.chunks(place):
                    file.write(chunk)
        except StoreFailed:
            target.unlink(missing_ok=True)
            raise

    def _missing(self, place: str) -> StoreFailed:
        return StoreFailed(
            f"{place} is not in the store {self.where}: it was removed, or kept by a worker with another store"
        )


def is_key(word: str) -> bool:
    """Whether something may be kept under it."""
    return _KEY.fullmatch(word) is not None


def check_key(word: str) -> None:
    """Raises ValueError."""
    if not is_key(word):
        raise ValueError(f"a key of the store is a word of letters, digits, dots, dashes and underscores: {word!r}")


def digest_in(place: str) -> str:
    """The digest that a place names, in hex. Raises StoreFailed: it is no place."""
    matched = _PLACE.fullmatch(place)
    if matched is None:
        raise StoreFailed(f"{place[:300]!r} is not a place of a store")
    return matched[2]


def pieces_of(source: Path | BinaryIO | bytes) -> Iterator[bytes]:
    """Its bytes, CHUNK_BYTES at a time. Raises OSError."""
    if isinstance(source, bytes):
        yield source
        return
    with source.open("rb") if isinstance(source, Path) else contextlib.nullcontext(source) as file:
        while chunk := file.read(CHUNK_BYTES):
            yield chunk
