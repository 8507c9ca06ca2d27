"""The content store: bytes under their digest, whole or not at all, and never other bytes."""

from __future__ import annotations

import asyncio
import hashlib
import os
import signal
import sys
from pathlib import Path

import pytest

from fencepost.store import DirectoryStore, StoreFailed
from tests.attempts_here import until


@pytest.fixture
def store(tmp_path: Path) -> DirectoryStore:
    return DirectoryStore(tmp_path / "store")


def test_the_same_bytes_have_one_place_and_are_given_back(store: DirectoryStore, tmp_path: Path) -> None:
    """70.6 Immutable: kept twice is kept once; bytes, files and streams alike."""
    (tmp_path / "file").write_bytes(b"content")
    by_bytes, by_path = store.put("inst-1", b"content"), store.put("inst-1", tmp_path / "file")
    with (tmp_path / "file").open("rb") as stream:
        by_stream = store.put("inst-1", stream)
    assert by_bytes == by_path == by_stream
    assert by_bytes.place == f"inst-1/sha256-{hashlib.sha256(b'content').hexdigest()}"
    assert [path.name for path in (store.root / "inst-1").iterdir()] == [by_bytes.place.split("/")[1]]
    assert store.read(by_bytes.place) == b"content"
    store.copy(by_bytes.place, tmp_path / "copy")
    assert (tmp_path / "copy").read_bytes() == b"content"
    assert store.local_path(by_bytes.place).read_bytes() == b"content"


def test_other_bytes_are_never_given_as_these(store: DirectoryStore, tmp_path: Path) -> None:
    """70.8 Changed, cut, removed: each door says so, and a copy that cannot be trusted is not left behind."""
    kept = store.put("inst-1", b"content" * 1000)
    file = store.root / kept.place
    file.chmod(0o600)
    for spoil in (b"content" * 999, b"contenT" * 1000, b""):
        file.write_bytes(spoil)
        for read in (store.read, store.local_path, lambda place: store.copy(place, tmp_path / "copy")):
            with pytest.raises(StoreFailed, match="was changed"):
                read(kept.place)
        assert not (tmp_path / "copy").exists()
    file.unlink()
    with pytest.raises(StoreFailed, match="is not in the store"):
        store.read(kept.place)
    assert store.put("inst-1", b"content" * 1000) == kept, "and it can be kept again"
    assert store.read(kept.place) == b"content" * 1000


@pytest.mark.parametrize(
    "place", ["", "../x/sha256-" + "0" * 64, "a/../../etc/passwd", "/etc/passwd", "a/sha256-zz", "..", "a/b\n"]
)
def test_a_place_leads_nowhere_else(store: DirectoryStore, place: str) -> None:
    """97.1 What is no place is refused before any file is looked at."""
    with pytest.raises(StoreFailed, match="is not a place"):
        store.read(place)


@pytest.mark.parametrize("key", ["", ".", "..", "a/b", "a\n", ".hidden", "x" * 201])
def test_a_key_is_one_plain_word(store: DirectoryStore, key: str) -> None:
    """97.1 It becomes a folder, and only one below the store's."""
    with pytest.raises(ValueError, match="a key of the store"):
        store.put(key, b"")
    assert store.forget(key) is False


def test_what_a_run_kept_goes_with_it_and_nothing_else(store: DirectoryStore) -> None:
    """95.1 By its key."""
    first, second = store.put("inst-1", b"same"), store.put("inst-11", b"same")
    assert store.keys() == ["inst-1", "inst-11"]
    assert store.forget("inst-1") is True
    assert store.forget("inst-1") is False
    with pytest.raises(StoreFailed):
        store.read(first.place)
    assert store.read(second.place) == b"same"
    assert DirectoryStore(store.root / "nowhere").keys() == []


KEEPER = """
import sys
from pathlib import Path
from fencepost.store import DirectoryStore
store = DirectoryStore(sys.argv[1])
while True:
    store.put("inst-1", Path(sys.argv[2]))
"""


async def test_a_keeper_that_is_killed_leaves_no_half_of_a_file(store: DirectoryStore, tmp_path: Path) -> None:
    """70.6 Whatever the instant: what stands under a digest has that digest."""
    source = tmp_path / "source"
    source.write_bytes(os.urandom(8 * 1024 * 1024))
    kept = store.put("inst-1", source)
    for _ in range(5):
        (store.root / kept.place).unlink(missing_ok=True)
        keeper = await asyncio.create_subprocess_exec(sys.executable, "-c", KEEPER, store.root, source)
        await until(lambda: any(path.name.endswith(".part") for path in (store.root / "inst-1").iterdir()))
        keeper.send_signal(signal.SIGKILL)
        await keeper.wait()
        for path in (store.root / "inst-1").glob("sha256-*"):
            assert store.read(f"inst-1/{path.name}") == source.read_bytes()
        for left in (store.root / "inst-1").glob(".*.part"):
            left.unlink()
    assert store.forget("inst-1")


def test_what_cannot_be_kept_is_said_and_leaves_nothing(store: DirectoryStore) -> None:
    """00.5 No room, no rights: the store says which store and why."""
    blocked = DirectoryStore("/dev/null/store")
    with pytest.raises(StoreFailed, match="/dev/null/store cannot keep it: Not a directory"):
        blocked.put("inst-1", b"x")

    with pytest.raises(StoreFailed, match="cannot keep it: No such file"):
        store.put("inst-1", store.root / "not there")
    assert list((store.root / "inst-1").iterdir()) == []
