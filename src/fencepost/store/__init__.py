"""The content store: outputs too large for a row, each under the digest of its bytes; in a directory, or in an object store.

A place is `<key>/sha256-<64 hex digits>`, the same on every machine and whoever stored it; `key` names the run, and is forgotten
with it. What is kept appears whole or not at all, and what is read is compared with its digest: other bytes are never handed out as
these. Everything here blocks: a loop calls it in a thread.
"""

from __future__ import annotations

from urllib.parse import unquote, urlsplit

from fencepost.settings import VARIABLES, BadSettings, Settings
from fencepost.store.base import CHUNK_BYTES, Store, StoreAway, Stored, StoreFailed
from fencepost.store.directory import DirectoryStore

__all__ = ["CHUNK_BYTES", "DirectoryStore", "Store", "StoreAway", "StoreFailed", "Stored", "store_of"]


def store_of(settings: Settings) -> Store:
    """The store that these settings name; nothing is asked of it yet. Raises BadSettings: it cannot be used from here."""
    url = settings.store
    if url is None:
        return DirectoryStore(settings.files.absolute() / "store")
    if url.startswith("file:"):
        return DirectoryStore(unquote(urlsplit(url).path))
    try:
        from fencepost.store.objects import ObjectStore
    except ModuleNotFoundError as error:
        if error.name != "obstore":
            raise
        raise BadSettings(
            [f'{VARIABLES["store"]} is {url}, and what speaks to it is not installed: pip install "fencepost[objects]"']
        ) from None
    try:
        return ObjectStore(url)
    except ValueError as error:
        raise BadSettings([f"{VARIABLES['store']} is {url}, which cannot be used: {error}"]) from None
