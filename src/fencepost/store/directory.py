"""The content store in a directory: a folder per run in it."""

from __future__ import annotations

import contextlib
import hashlib
import os
import secrets
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import BinaryIO

from fencepost.store.base import Store, Stored, StoreFailed, check_key, digest_in, is_key, pieces_of


class DirectoryStore(Store):
    """It is made when the first thing is kept. Workers of several hosts share it or share nothing."""

    def __init__(self, root: str | os.PathLike[str]) -> None:
        self.root = Path(root)

    @property
    def where(self) -> str:
        return str(self.root)

    def put(self, key: str, source: Path | BinaryIO | bytes) -> Stored:
        """As every store; the file appears whole and durable. Memory is bounded by CHUNK_BYTES."""
        check_key(key)
        folder = self.root / key
        temporary = folder / f".{secrets.token_hex(8)}.part"
        try:
            folder.mkdir(mode=0o700, parents=True, exist_ok=True)
            found = hashlib.sha256()
            size = 0
            with temporary.open("xb") as target:
                for chunk in pieces_of(source):
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

    def local_path(self, place: str) -> Path:
        for _ in self.chunks(place):
            pass
        return (self.root / place).absolute()

    def forget(self, key: str) -> bool:
        if not is_key(key) or not (self.root / key).is_dir():
            return False
        shutil.rmtree(self.root / key, ignore_errors=True)
        return True

    def keys(self) -> list[str]:
        try:
            return sorted(entry.name for entry in os.scandir(self.root) if entry.is_dir(follow_symlinks=False))
        except FileNotFoundError:
            return []

    def _pieces(self, place: str) -> Iterator[bytes]:
        digest_in(place)
        try:
            yield from pieces_of(self.root / place)
        except FileNotFoundError:
            raise self._missing(place) from None
        except OSError as error:
            raise StoreFailed(
                f"{place} cannot be read from the store {self.root}: {error.strerror or error}"
            ) from error


def _sync(folder: Path) -> None:
    """Make a rename in it durable."""
    fd = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(fd)
    finally:
        os.close(fd)
