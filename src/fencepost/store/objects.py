"""The content store in an object store: S3 and what speaks as it does, Google Cloud Storage, Azure Blob Storage.

Credentials, region and endpoint are those of the providers' own environment (AWS_ACCESS_KEY_ID, AWS_ENDPOINT_URL, ...). An object is
named by its digest, so a source is read twice: for its name, and to send it; what is sent is compared before the object appears.
"""

from __future__ import annotations

import contextlib
import hashlib
import io
import os
import re
from collections.abc import Generator, Iterator
from datetime import timedelta
from pathlib import Path
from typing import TYPE_CHECKING, BinaryIO, Final

import obstore
from obstore.exceptions import BaseError
from obstore.store import from_url

from fencepost.shown import clip
from fencepost.store.base import (
    CHUNK_BYTES,
    Store,
    StoreAway,
    Stored,
    StoreFailed,
    check_key,
    digest_in,
    is_key,
    pieces_of,
)

if TYPE_CHECKING:
    from obstore.store import ClientConfig, RetryConfig

PART_BYTES: Final = 8 * 1024 * 1024  # what is longer is sent in parts of this, or of as much as PARTS_MAX asks for
PARTS_MAX: Final = 10_000  # of an object: S3's own bound
PARTS_AT_ONCE: Final = 2
LISTED_TOGETHER: Final = 1000

# A whole request may take as long as its object is large; silence ends it. Who asks asks again, so the library soon gives up.
_CLIENT: Final[ClientConfig] = {"timeout": "1d", "read_timeout": "30s", "connect_timeout": "5s"}
_RETRIES: Final[RetryConfig] = {"max_retries": 3, "retry_timeout": timedelta(seconds=10)}

_ENDPOINTS: Final = ("AWS_ENDPOINT_URL_S3", "AWS_ENDPOINT_URL", "AWS_ENDPOINT")


class ObjectStore(Store):
    """A bucket, or what is under a prefix in one."""

    def __init__(self, url: str) -> None:
        """Raises ValueError: the URL, or what the environment says beside it, cannot be used."""
        self._where = url
        plain = any(os.environ.get(name, "").strip().lower().startswith("http://") for name in _ENDPOINTS)
        options: ClientConfig = {**_CLIENT, "allow_http": plain}  # who writes http:// means it
        try:
            self._bucket = from_url(url, client_options=options, retry_config=_RETRIES)
        except BaseError as error:
            raise ValueError(_said(error)) from None

    @property
    def where(self) -> str:
        return self._where

    def put(self, key: str, source: Path | BinaryIO | bytes) -> Stored:
        """As every store; the object appears whole. Memory is bounded by PARTS_AT_ONCE parts and one."""
        check_key(key)
        with contextlib.ExitStack() as held:
            with self._read():
                file = held.enter_context(_opened(source))
                start = file.tell()
                digest = _digest(file)
                size = file.tell() - start
                file.seek(start)
            place = f"{key}/sha256-{digest}"
            with self._asked("cannot keep it"):
                self._send(place, self._compared(file, digest), size)
        return Stored(place, f"sha256:{digest}", size)

    def local_path(self, place: str) -> None:
        digest_in(place)

    def forget(self, key: str) -> bool:
        if not is_key(key):
            return False
        found = False
        with self._asked(f"cannot forget {key}"):
            for listed in obstore.list(self._bucket, f"{key}/", chunk_size=LISTED_TOGETHER):  # pyright: ignore[reportUnknownMemberType]  # Arrow's, unused
                found = True
                with contextlib.suppress(FileNotFoundError):  # another worker forgets it too
                    obstore.delete(self._bucket, [each["path"] for each in listed])
        return found

    def keys(self) -> list[str]:
        with self._asked("cannot say what it keeps"):
            return sorted(obstore.list_with_delimiter(self._bucket)["common_prefixes"])  # pyright: ignore[reportUnknownMemberType]  # the same

    def _pieces(self, place: str) -> Iterator[bytes]:
        digest_in(place)
        with self._asked(f"cannot give {place}"):
            try:
                yield from map(bytes, obstore.get(self._bucket, place).stream(min_chunk_size=CHUNK_BYTES))
            except FileNotFoundError as error:
                if "NoSuchBucket" in str(error) or "ContainerNotFound" in str(error):
                    raise
                raise self._missing(place) from None

    def _send(self, place: str, content: Iterator[bytes], size: int) -> None:
        if size <= PART_BYTES:
            obstore.put(self._bucket, place, b"".join(content), use_multipart=False)
        else:
            part = max(PART_BYTES, -(-size // PARTS_MAX))
            obstore.put(
                self._bucket, place, content, use_multipart=True, chunk_size=part, max_concurrency=PARTS_AT_ONCE
            )

    def _compared(self, file: BinaryIO, digest: str) -> Iterator[bytes]:
        """The rest of the file. Raises StoreFailed before its end where it is not what was measured: nothing is kept then."""
        found = hashlib.sha256()
        with self._read():
            for chunk in pieces_of(file):
                found.update(chunk)
                yield chunk
        if found.hexdigest() != digest:
            raise StoreFailed(f"the store {self.where} cannot keep it: it was changed while it was sent")

    @contextlib.contextmanager
    def _read(self) -> Generator[None]:
        """What becomes of the source inside is said. Raises StoreFailed."""
        try:
            yield
        except OSError as error:
            raise StoreFailed(f"the store {self.where} cannot keep it: {error.strerror or error}") from error

    @contextlib.contextmanager
    def _asked(self, what: str) -> Generator[None]:
        """What the network and the server do inside is said. Raises StoreAway."""
        try:
            yield
        except (BaseError, FileNotFoundError) as error:
            raise StoreAway(f"the store {self.where} {what}: {_said(error)}") from error


def _opened(source: Path | BinaryIO | bytes) -> contextlib.AbstractContextManager[BinaryIO]:
    if isinstance(source, bytes):
        return io.BytesIO(source)
    return source.open("rb") if isinstance(source, Path) else contextlib.nullcontext(source)


def _digest(file: BinaryIO) -> str:
    found = hashlib.sha256()
    for chunk in pieces_of(file):
        found.update(chunk)
    return found.hexdigest()


def _said(error: Exception) -> str:
    """Who says what, in a line: the server's or the network's own words where the library hands them on, else the library's."""
    text, _, records = str(error).partition("\n\nDebug source:")
    words = [
        *re.findall(r"<(?:Code|Message)>([^<]+)</", text),
        *re.findall(r'message: "([^"]+)"', records),
    ]
    server = re.search(r"https?://[^/\s?]+", text)
    if words and server is not None:
        return clip(" ".join(f"{server[0]}: {': '.join(words)}".split()), 500)
    line = text.partition("\n")[0].partition(": <?xml")[0]
    return clip(re.sub(r"\?\S*", "", line), 500)  # no query of a URL: there may be a signature in it
