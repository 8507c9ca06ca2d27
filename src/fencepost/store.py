"""The content store: outputs too large for a row, each under the digest of its bytes, in a folder per run.

A place is `<key>/sha256-<64 hex digits>`, the same on every machine and whoever stored it; `key` names the run, and is forgotten
with it. Files appear whole or not at all, and what is read is compared with its digest: other bytes are never handed out as these.
Everything here blocks: a loop calls it in a thread.
"""

from __future__ import annotations

import contextlib
import hashlib
import os
import re
import secrets
import shutil
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import BinaryIO, Final

CHUNK_BYTES: Final = 1024 * 1024

_KEY: Final = re.compile(r"[A-Za-z0-9_-][A-Za-z0-9._-]{0,199}")
_PLACE: Final = re.compile(rf"({_KEY.pattern})/sha256-([0-9a-f]{{64}})")


class StoreFailed(Exception):
    """The store could not keep or give this: it is not there, was changed, or its disk refused. The text says which."""


@dataclass(frozen=True, slots=True)
class Stored:
    """What is kept: where, its digest (`sha256:<hex>`) and its size in bytes."""

    place: str
    digest: str
    size: int


class Store:
    """A store in a local directory; it is made when the first thing is kept. Workers of several hosts share it or share nothing."""

    def __init__(self, place: str | os.PathLike[str]) -> None:
        self.root = Path(place)

    def put(self, key: str, source: Path | BinaryIO | bytes) -> Stored:
        """Keep the bytes, or those of the file from where it stands; kept already is kept. Memory is bounded by CHUNK_BYTES.

        Raises    StoreFailed: nothing is kept. ValueError: the key is no word of [A-Za-z0-9._-].
        """
        if not _KEY.fullmatch(key):
            raise ValueError(f"a key of the store is a word of letters, digits, dots, dashes and underscores: {key!r}")
        folder = self.root / key
        temporary = folder / f".{secrets.token_hex(8)}.part"
        try:
            folder.mkdir(mode=0o700, parents=True, exist_ok=True)
            found = hashlib.sha256()
            size = 0
            with temporary.open("xb") as target:
                for chunk in _chunks(source):
                    found.update(chunk)
                    target.write(chunk)
                    size += len(chunk)
                target.flush()
                os.fchmod(target.fileno(), 0o400)
                os.fsync(target.fileno())
            name = f"sha256-{found.hexdigest()}"
            temporary.replace(folder / name)
            _sync(folder)
        except OSError as error:
            raise StoreFailed(f"the store {self.root} cannot keep it: {error.strerror or error}") from error
        finally:
            with contextlib.suppress(OSError):
                temporary.unlink()
        return Stored(f"{key}/{name}", f"sha256:{found.hexdigest()}", size)

    def chunks(self, place: str) -> Iterator[bytes]:
        """The bytes at a place, piece by piece. Raises StoreFailed, at the latest after the last piece: they are not what was kept."""
        path, digest = self._file(place)
        found = hashlib.sha256()
        try:
            for chunk in _chunks(path):
                found.update(chunk)
                yield chunk
        except FileNotFoundError:
            raise StoreFailed(
                f"{place} is not in the store {self.root}: it was removed, or kept by a worker with another store"
            ) from None
        except OSError as error:
            raise StoreFailed(
                f"{place} cannot be read from the store {self.root}: {error.strerror or error}"
            ) from error
        if found.hexdigest() != digest:
            raise StoreFailed(f"{place} in the store {self.root} was changed: its digest is sha256:{found.hexdigest()}")

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

    def local_path(self, place: str) -> Path:
        """The file of a place, compared with its digest now. It is read-only: whoever changes it spoils it for all. Raises StoreFailed."""
        for _ in self.chunks(place):
            pass
        return self._file(place)[0].absolute()

    def forget(self, key: str) -> bool:
        """Remove everything kept under a key, when its run is forgotten. Whether there was anything."""
        if not _KEY.fullmatch(key) or not (self.root / key).is_dir():
            return False
        shutil.rmtree(self.root / key, ignore_errors=True)
        return True

    def keys(self) -> list[str]:
        """The keys under which something is kept."""
        try:
            return sorted(entry.name for entry in os.scandir(self.root) if entry.is_dir(follow_symlinks=False))
        except FileNotFoundError:
            return []

    def _file(self, place: str) -> tuple[Path, str]:
        matched = _PLACE.fullmatch(place)
        if matched is None:
            raise StoreFailed(f"{place[:300]!r} is not a place of a store")
        return self.root / place, matched[2]


def _chunks(source: Path | BinaryIO | bytes) -> Iterator[bytes]:
    if isinstance(source, bytes):
        yield source
        return
    with source.open("rb") if isinstance(source, Path) else contextlib.nullcontext(source) as file:
        while chunk := file.read(CHUNK_BYTES):
            yield chunk


def _sync(folder: Path) -> None:
    """Make a rename in it durable."""
    fd = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(fd)
    finally:
        os.close(fd)
