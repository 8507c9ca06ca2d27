"""The content store in a bucket: what the one in a directory promises, with a network between and a server that dies."""

from __future__ import annotations

import io
import itertools
import os
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import obstore
import pytest

from fencepost.settings import BadSettings, Settings
from fencepost.store import DirectoryStore, Store, StoreAway, StoreFailed, store_of
from fencepost.store.objects import PART_BYTES
from tests.bucket import Bucket, served

MEBIBYTE = 1024 * 1024
HELD_BYTES_MAX = 64 * MEBIBYTE  # beyond what the interpreter and the library take: whatever the size of what is kept

_prefixes = itertools.count()


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Bucket]:
    with served(tmp_path_factory.mktemp("server") / "served") as bucket:
        yield bucket


@pytest.fixture
def bucket(server: Bucket, monkeypatch: pytest.MonkeyPatch) -> Iterator[Bucket]:
    """Served when the test begins, whatever it does to it."""
    for name, value in server.environ.items():
        monkeypatch.setenv(name, value)
    yield server
    server.kill()
    server.start()


@pytest.fixture
def store(bucket: Bucket) -> Store:
    return named(f"kept/some/{next(_prefixes)}")


def named(bucket_and_prefix: str) -> Store:
    return store_of(Settings(store=f"s3://{bucket_and_prefix}"))


def put_behind(store: Store, place: str, content: bytes) -> None:
    """As somebody else would who has the bucket's keys."""
    obstore.put(store._bucket, place, content)


def seen(store: Store) -> list[str]:
    """The objects there are. (This server shows a folder for what it has half received, and nothing in it.)"""
    return [each["path"] for listed in obstore.list(store._bucket) for each in listed]


@pytest.mark.parametrize("size", [0, 1, PART_BYTES, PART_BYTES + 1, 3 * PART_BYTES])
def test_the_same_bytes_have_one_place_in_every_store(store: Store, tmp_path: Path, size: int) -> None:
    """70.6 Immutable: kept twice is kept once; bytes, files and streams alike, in one part or several."""
    content = os.urandom(size)
    (tmp_path / "file").write_bytes(b"before" + content)
    with (tmp_path / "file").open("rb") as stream:
        stream.seek(6)
        by_stream = store.put("inst-1", stream)
    (tmp_path / "file").write_bytes(content)
    by_path, by_bytes = store.put("inst-1", tmp_path / "file"), store.put("inst-1", content)
    assert by_bytes == by_path == by_stream == DirectoryStore(tmp_path / "store").put("inst-1", content)
    assert store.read(by_bytes.place) == content
    store.copy(by_bytes.place, tmp_path / "copy")
    assert (tmp_path / "copy").read_bytes() == content
    assert store.local_path(by_bytes.place) is None
    assert store.keys() == ["inst-1"]


def test_other_bytes_are_never_given_as_these(store: Store, tmp_path: Path) -> None:
    """70.8 Changed, cut, removed: each door says so, and a copy that cannot be trusted is not left behind."""
    kept = store.put("inst-1", b"content" * 1000)
    for spoil in (b"content" * 999, b"contenT" * 1000, b""):
        put_behind(store, kept.place, spoil)
        for read in (store.read, lambda place: store.copy(place, tmp_path / "copy")):
            with pytest.raises(StoreFailed, match=r"in the store s3://kept/some/\d+ was changed"):
                read(kept.place)
        assert not (tmp_path / "copy").exists()
    assert store.put("inst-1", b"content" * 1000) == kept, "and it can be kept again"
    assert store.read(kept.place) == b"content" * 1000
    assert store.forget("inst-1") is True
    with pytest.raises(StoreFailed, match="is not in the store") as caught:
        store.read(kept.place)
    assert not isinstance(caught.value, StoreAway), "asking again does not bring it back"


@pytest.mark.parametrize("word", ["", ".", "..", "a/b", "a\n", ".hidden", "x" * 201])
def test_keys_and_places_lead_nowhere_else(store: Store, word: str) -> None:
    """97.1 What is no key or no place is refused before the server is asked."""
    with pytest.raises(ValueError, match="a key of the store"):
        store.put(word, b"")
    assert store.forget(word) is False
    for door in (store.read, store.local_path):
        with pytest.raises(StoreFailed, match="is not a place"):
            door(f"{word}/sha256-{'0' * 64}")


def test_what_a_run_kept_goes_with_it_and_nothing_else(store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    """95.1 By its key, however many there are; another prefix of the bucket is another store."""
    monkeypatch.setattr("fencepost.store.objects.LISTED_TOGETHER", 2)
    for n in range(7):
        store.put("inst-1", b"%d" % n)
    other = store.put("inst-11", b"same")
    elsewhere = named(f"kept/some/{next(_prefixes)}")
    assert elsewhere.keys() == []
    elsewhere.put("inst-1", b"same")
    assert store.keys() == ["inst-1", "inst-11"]
    assert store.forget("inst-1") is True
    assert store.forget("inst-1") is False
    assert store.keys() == ["inst-11"]
    assert store.read(other.place) == b"same"
    assert elsewhere.keys() == ["inst-1"]


class Turning(io.FileIO):
    """A file that somebody writes into once it was read."""

    def seek(self, offset: int, whence: int = 0) -> int:
        with Path(str(self.name)).open("r+b") as other:
            other.seek(-1, 2)
            other.write(b"!")
        return super().seek(offset, whence)


@pytest.mark.parametrize("size", [1000, PART_BYTES + 1000])
def test_a_source_that_changes_is_not_kept(store: Store, tmp_path: Path, size: int) -> None:
    """70.6 What stands under a digest has that digest: what is not is never seen."""
    (tmp_path / "file").write_bytes(bytes(size))
    with Turning(tmp_path / "file") as stream, pytest.raises(StoreFailed, match="was changed while it was sent"):
        store.put("inst-1", stream)
    assert seen(store) == []


MEASURED = """
import sys
from pathlib import Path
from fencepost.settings import Settings
from fencepost.store import store_of
store = store_of(Settings(store=sys.argv[1]))
source = Path(sys.argv[2])
kept = store.put("inst-1", b"first")
store.read(kept.place)
def peak():  # of this program alone; what getrusage tells, it has from whoever started it
    return next(int(line.split()[1]) * 1024 for line in open("/proc/self/status") if line.startswith("VmHWM"))
before = peak()
kept = store.put("inst-1", source)
assert kept.size == source.stat().st_size
after_put = peak()
store.copy(kept.place, source.with_name("copy"))
print(after_put - before, peak() - before)
"""


def test_memory_does_not_grow_with_what_is_kept(store: Store, tmp_path: Path) -> None:
    """70.6 200 MB pass through, there and back."""
    os.truncate(os.open(tmp_path / "file", os.O_CREAT | os.O_WRONLY), 200_000_000)
    done = subprocess.run(
        [sys.executable, "-c", MEASURED, store.where, tmp_path / "file"], check=True, stdout=subprocess.PIPE, timeout=100
    )  # fmt: skip
    put, both = map(int, done.stdout.split())
    print(f"{put / MEBIBYTE:.0f} MiB to keep it, {both / MEBIBYTE:.0f} MiB with fetching it")
    assert max(put, both) <= HELD_BYTES_MAX
    assert (tmp_path / "copy").stat().st_size == 200_000_000


class Deadly(io.FileIO):
    """A file whose reading does something when it comes to a byte for the second time."""

    at = 0
    passes = 0
    then: Callable[[], None]

    def read(self, size: int | None = -1, /) -> bytes:
        self.passes += self.tell() == self.at
        if self.passes == 2:
            self.passes += 1
            self.then()
        return super().read(-1 if size is None else size)


@pytest.mark.parametrize("kept_before", [False, True])
def test_a_server_that_dies_while_it_is_sent_has_no_half_of_it(
    store: Store, bucket: Bucket, tmp_path: Path, kept_before: bool
) -> None:
    """70.6, 70.7 Whole or not at all: whoever asks again has it kept; what stood there stands."""
    (tmp_path / "file").write_bytes(os.urandom(5 * PART_BYTES))
    before = store.put("inst-1", tmp_path / "file") if kept_before else None
    with Deadly(tmp_path / "file") as stream:
        stream.at, stream.then = 4 * PART_BYTES, bucket.kill
        with pytest.raises(StoreAway, match="cannot keep it"):
            store.put("inst-1", stream)
        assert stream.passes == 3, "the server was killed in the middle"
    bucket.start()
    assert seen(store) == ([before.place] if before else [])
    if before is not None:
        assert store.read(before.place) == (tmp_path / "file").read_bytes()
    kept = store.put("inst-1", tmp_path / "file")
    assert store.read(kept.place) == (tmp_path / "file").read_bytes()


def test_a_server_that_dies_while_it_is_read_leaves_no_half_of_a_copy(
    store: Store, bucket: Bucket, tmp_path: Path
) -> None:
    """70.8 And it is known that nothing is known: it may be asked again."""
    kept = store.put("inst-1", os.urandom(8 * PART_BYTES))
    chunks = store.chunks(kept.place)
    next(chunks)
    bucket.kill()
    with pytest.raises(StoreAway, match="cannot give inst-1/"):
        list(chunks)
    with pytest.raises(StoreAway):
        store.copy(kept.place, tmp_path / "copy")
    assert not (tmp_path / "copy").exists()
    bucket.start()
    store.copy(kept.place, tmp_path / "copy")


def every_door(store: Store) -> list[str]:
    """What each says, when none can be gone through."""
    said = []
    for door in (
        lambda: store.put("inst-1", b"x"),
        lambda: store.put("inst-1", bytes(PART_BYTES + 1)),
        lambda: store.read(f"inst-1/sha256-{'0' * 64}"),
        lambda: store.forget("inst-1"),
        store.keys,
    ):
        with pytest.raises(StoreAway) as caught:
            door()
        said.append(str(caught.value))
        assert store.where in said[-1]
        assert said[-1].isprintable()
        assert "Debug" not in said[-1]
        assert len(said[-1]) < 600
    return said


def test_what_the_server_does_not_do_is_said_in_a_line(
    store: Store, bucket: Bucket, monkeypatch: pytest.MonkeyPatch
) -> None:
    """00.5 Away, no such bucket, not with these keys: which store, and why; nothing of it is proof that something is gone."""
    assert all("NoSuchBucket" in said for said in every_door(named("nobodys/x")))
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "a-wrong-one")
    for said in every_door(named("kept/x")):
        assert "SignatureDoesNotMatch" in said
        assert "a-wrong-one" not in said
    bucket.kill()
    assert all("Connection refused" in said for said in every_door(store))


def test_the_settings_say_which_store(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """00.12 Unset: a folder of the files. What cannot be used is said before anything is kept, and what to do."""
    plain, mounted = store_of(Settings(files=tmp_path)), store_of(Settings(store="file:///mnt/a%20store"))
    assert (plain.where, mounted.where) == (str(tmp_path / "store"), "/mnt/a store")
    assert isinstance(mounted, DirectoryStore)
    monkeypatch.delenv("AZURE_STORAGE_ACCOUNT_NAME", raising=False)
    with pytest.raises(BadSettings, match=r"FENCEPOST_STORE is az://container, which cannot be used: .*[Aa]ccount"):
        store_of(Settings(store="az://container"))
    monkeypatch.setitem(sys.modules, "obstore", None)
    monkeypatch.delitem(sys.modules, "fencepost.store.objects")
    with pytest.raises(BadSettings, match=r'is s3://kept, .*: pip install "fencepost\[objects\]"'):
        store_of(Settings(store="s3://kept"))
