"""A plan whose large outputs are kept in a bucket: handed on, read, asked for again when the bucket is away, and never run again for it."""

from __future__ import annotations

import asyncio
import hashlib
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from fencepost import App, ledger
from fencepost.db import Database
from fencepost.settings import Settings
from fencepost.store import store_of
from fencepost.worker.loop import Worker
from tests.bucket import Bucket, served
from tests.roads.command import Shop, ended, until_says
from tests.roads.crew import until
from tests.roads.planned import write

SIZE = 300_000
GRACE_SECONDS = 30.0  # of a cancel, after which what has not stopped is fenced out

# Every program writes its name into a book outside; two wait for a file there.
PLAN = """
name = "large"

[[step]]
id = "make"
command = ["sh", "-c", "echo make >> book; until [ -e make ]; do sleep 0.05; done; head -c 300000 /dev/zero > $0", "{{outputs.bulk.path}}"]
cwd = "{here}"
outputs.bulk = {{ from = "file", path = "bulk", media_type = "application/octet-stream" }}

[[step]]
id = "gate"
needs = ["make"]
command = ["sh", "-c", "until [ -e gate ]; do sleep 0.05; done; echo open"]
cwd = "{here}"
outputs.said = {{ from = "stdout" }}

[[step]]
id = "use"
needs = ["make", "gate"]
command = ["sh", "-c", "echo use >> book; sha256sum $@ > sums; cat $FENCEPOST_PACKET", "sh", "{{inputs.whole.path}}", "{{inputs.there.path}}"]
cwd = "{here}"
handoffs = [
  {{ input = "said", from = "gate.said", mode = "content" }},
  {{ input = "whole", from = "make.bulk", mode = "content" }},
  {{ input = "there", from = "make.bulk", mode = "reference" }},
]
outputs.packet = {{ from = "stdout", media_type = "application/json" }}
"""


@pytest.fixture
def bucket(tmp_path: Path) -> Iterator[Bucket]:
    with served(tmp_path / "served") as found:
        yield found


@pytest.fixture
def keeping(shop: Shop, bucket: Bucket) -> Shop:
    """A shop whose large outputs go to the bucket."""
    shop.environ |= bucket.environ | {"FENCEPOST_STORE": "s3://kept/of/plans"}
    return shop


def plan(shop: Shop, *opened: str) -> str:
    for name in opened:
        (shop.place / name).touch()
    return write(shop, "large.toml", PLAN.format(here=shop.place))


def book(shop: Shop) -> list[str]:
    return (shop.place / "book").read_text().split()


def objects(bucket: Bucket) -> list[Path]:
    return list((bucket.root / "kept" / "of" / "plans").glob("*/sha256-*"))


async def state(shop: Shop, step: str) -> Any:
    return (await shop("plan", "show", "b1", "--json")).object["steps"][step]["state"]


async def test_a_large_output_lies_in_the_bucket_and_is_handed_on_and_read(keeping: Shop, bucket: Bucket) -> None:
    """70.6, 70.8 Nothing is kept in the directory that a store would be in without it."""
    said = await keeping("plan", "run", plan(keeping, "make", "gate"), "--id", "b1", "--here", "--json")
    assert said.code == 0, said.err
    digest = hashlib.sha256(bytes(SIZE)).hexdigest()
    (kept,) = objects(bucket)
    assert (kept.name, kept.read_bytes()) == (f"sha256-{digest}", bytes(SIZE))
    assert not (keeping.place / "files" / "store").exists()
    bulk = said.object["steps"]["make"]["outputs"]["bulk"]
    assert (bulk["size"], bulk["digest"]) == (SIZE, f"sha256:{digest}")
    inputs = json.loads((await keeping("plan", "output", "b1", "use.packet")).out)["inputs"]
    assert inputs["there"]["place"] == f"{kept.parent.name}/{kept.name}"
    assert inputs["there"]["digest"] == inputs["whole"]["digest"] == f"sha256:{digest}"
    assert (keeping.place / "sums").read_text().split()[::2] == [digest, digest], "the programs had files of it"
    assert (await keeping("plan", "output", "b1", "make.bulk", "--out", "bulk")).code == 0
    assert (keeping.place / "bulk").read_bytes() == bytes(SIZE)
    kept.write_bytes(b"\1" * SIZE)
    bucket.kill()
    bucket.start()  # it has no memory of what was there
    said = await keeping("plan", "output", "b1", "make.bulk")
    assert (said.code, said.out) == (1, "")
    assert "was changed" in said.err


async def test_a_bucket_that_is_away_holds_steps_up_and_fails_none(keeping: Shop, bucket: Bucket) -> None:
    """70.7, 70.8 An output is kept when it is back, an input fetched; no program runs twice for it."""
    file = plan(keeping)
    async with keeping.worker(target=None) as worker:
        assert (await keeping("plan", "run", file, "--id", "b1", "--detach")).code == 0
        await until((keeping.place / "book").exists, "the first program")
        bucket.kill()
        (keeping.place / "make").touch()
        said = await until_says(worker, "an output cannot be kept")
        assert "Connection refused" in said
        assert await state(keeping, "make") == "running"
        said = await keeping("plan", "output", "b1", "make.bulk")
        assert said.code == 2, "there is none yet"
        bucket.start()
        while await state(keeping, "gate") != "running":
            pass
        bucket.kill()
        assert (await keeping("plan", "output", "b1", "make.bulk")).code == 1
        (keeping.place / "gate").touch()
        await until_says(worker, "an input cannot be fetched")
        assert book(keeping) == ["make"], "what has not its input does not run"
        bucket.start()
        said = await keeping("plan", "run", file, "--id", "b1", "--json")
    assert (said.code, said.object["status"]) == (0, "completed")
    assert book(keeping) == ["make", "use"]
    assert [step["attempts"] for step in said.object["steps"].values()] == [1, 1, 1]


async def test_a_step_that_waits_for_the_bucket_is_cancelled_and_its_worker_stops(
    keeping: Shop, bucket: Bucket
) -> None:
    """70.11, 40.11 It waits for the bucket, and hears both."""
    file = plan(keeping, "make")
    async with keeping.worker(target=None) as worker:
        assert (await keeping("plan", "run", file, "--id", "b1", "--detach")).code == 0
        while await state(keeping, "gate") != "running":
            pass
        bucket.kill()
        (keeping.place / "gate").touch()
        for _ in range(4):  # the pauses between two tries grow
            await until_says(worker, "an input cannot be fetched")
        assert (await keeping("runs", "cancel", "b1")).code == 0
        async with asyncio.timeout(GRACE_SECONDS * 2 / 3):
            assert (await keeping("plan", "run", file, "--id", "b1", "--json")).object["status"] == "cancelled"
        assert (await keeping("plan", "run", file, "--id", "b2", "--detach")).code == 0
        await until_says(worker, "an output cannot be kept")
        worker.terminate()
        await until_says(worker, "draining")
        worker.terminate()
        assert (await ended(worker)).code == 0
    assert book(keeping) == ["make", "make"]


async def test_a_store_that_cannot_be_used_is_told_before_anything_runs(shop: Shop) -> None:
    """00.12 A worker does not start without the extra, and says what to install; doctor says so too."""
    shop.environ |= {"FENCEPOST_STORE": "s3://kept", "PYTHONPATH": str(shop.place / "without")}
    (shop.place / "without").mkdir()
    (shop.place / "without" / "sitecustomize.py").write_text("import sys; sys.modules['obstore'] = None\n")
    for words in (["worker"], ["plan", "run", plan(shop), "--here"]):
        said = await shop(*words)
        assert said.code == 2
        assert 'pip install "fencepost[objects]"' in said.err
    assert not (shop.place / "book").exists()
    assert (await shop("plan", "show", "b1")).code == 2
    said = await shop("doctor")
    assert said.code == 1
    assert 'pip install "fencepost[objects]"' in said.out
    shop.environ["FENCEPOST_STORE"] = "/mnt/store"
    said = await shop("worker")
    assert said.code == 2
    assert "FENCEPOST_STORE is not the URL of a store" in said.err


async def test_what_forgotten_runs_kept_goes_from_the_bucket_when_it_is_back(
    dsn: str,
    db: Database,
    bucket: Bucket,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
) -> None:
    """95.1 A sweep that met nobody is no end of sweeping; what another installation keeps there stays."""
    for name, value in bucket.environ.items():
        monkeypatch.setenv(name, value)
    monkeypatch.setattr("fencepost.worker.loop.SWEEP_SECONDS", 0.1)
    settings = Settings(database_url=dsn, files=tmp_path / "files", store="s3://kept/of/plans")
    ours = str((await ledger.read_installation(db))["installation"]).replace("-", "")[:12]
    for key in (f"{ours}-999", f"{'0' * 12}-999"):
        store_of(settings).put(key, b"kept")
    assert len(objects(bucket)) == 2
    bucket.kill()
    stop = asyncio.Event()
    working = asyncio.ensure_future(Worker(App("sweeper"), settings, threads=2).run(stop))
    await until(lambda: "files could not be swept" in caplog.text, "a sweep that fails")
    bucket.start()
    await until(lambda: len(objects(bucket)) == 1, "a sweep that does not")
    stop.set()
    assert await working == 0
    assert [path.parent.name for path in objects(bucket)] == [f"{'0' * 12}-999"]
