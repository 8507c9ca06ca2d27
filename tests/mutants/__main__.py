"""`python -m tests.mutants [WORD ...]`: break each guard (whose name holds a word) and see a test turn red."""

from __future__ import annotations

import argparse
import asyncio
import os
import re
import shutil
import subprocess
import sys
import tempfile
import uuid
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import asyncpg

from fencepost import schema
from fencepost.postgres import TEST_SETTINGS, open_home
from tests import mutants
from tests.mutants import Mutant
from tests.places import HOME, fast_place

SECONDS = 300


def main(words: list[str]) -> int:
    """How many guards are not guarded: a mutant that lives, does not load, or whose text is gone."""
    parser = argparse.ArgumentParser(prog="python -m tests.mutants", description=__doc__)
    parser.add_argument("word", nargs="*", help="only guards whose name or chapter holds one of these")
    parser.add_argument("-j", "--jobs", type=int, default=2, help="how many at a time (2)")
    parser.add_argument("--list", action="store_true", help="only say what would be tried")
    said = parser.parse_args(words)
    chosen = [
        mutant
        for mutant in mutants.every().values()
        if not said.word or any(word in mutant.guard or word in mutant.chapter for word in said.word)
    ]
    if said.list:
        for mutant in chosen:
            print(f"{mutant.chapter:20} {mutant.guard}")
        return 0
    place = fast_place() / f"fp-mutants-{uuid.uuid4().hex[:12]}"
    programs = os.environ.get("FENCEPOST_TEST_PG_BIN")
    try:
        with (
            open_home(place, create=True, settings=TEST_SETTINGS, bin_dir=Path(programs) if programs else None) as home,
            ThreadPoolExecutor(said.jobs) as pool,
        ):
            found = list(pool.map(lambda mutant: judge(mutant, place, home.dsn), chosen))
    finally:
        shutil.rmtree(place, ignore_errors=True)
    alive = [mutant for mutant, caught in zip(chosen, found, strict=True) if not caught]
    print(f"{len(chosen) - len(alive)} of {len(chosen)} guards are guarded")
    for mutant in alive:
        print(f"NOT GUARDED  {mutant.chapter}: {mutant.guard}")
    return len(alive)


def judge(mutant: Mutant, place: Path, dsn: str) -> bool:
    """Whether a test turned red; says so."""
    try:
        asyncio.run(load(mutant, dsn))
    except Exception as error:
        said, caught = f"does not load: {error}", False
    else:
        said, caught = run(mutant, place)
    print(f"{'guarded' if caught else 'ALIVE':8} {mutant.chapter[:2]}  {mutant.guard:75} {said}", flush=True)
    return caught


async def load(mutant: Mutant, dsn: str) -> None:
    """Install the chapters with the mutant, and take it back: SQL that does not load would turn every test red."""
    connection = await asyncpg.connect(dsn)
    try:
        transaction, name = connection.transaction(), f"m{uuid.uuid4().hex}"
        await transaction.start()
        await connection.execute(f"create schema {name}; set local search_path = pg_catalog, pg_temp")
        for script in mutants.mutated(mutant, schema.chapters()):
            await connection.execute(schema.render(script.text, name))
        await transaction.rollback()
    finally:
        await connection.close()


def run(mutant: Mutant, place: Path) -> tuple[str, bool]:
    tests = [f"tests/laws/{test}" if not test.startswith("tests/") else test for test in mutant.tests]
    with tempfile.TemporaryFile("w+") as out:
        code = subprocess.run(
            [sys.executable, "-m", "pytest", "-q", "-x", "-p", "no:cacheprovider", "--no-header", "--tb=short", *tests],
            env=os.environ | {mutants.WORN: mutant.key, HOME: str(place)},
            stdout=out, stderr=subprocess.STDOUT, check=False, timeout=SECONDS,
        ).returncode  # fmt: skip
        out.seek(0)
        text = out.read()
    # An error is red only where it is what `lawful` found when the test was over.
    red = re.findall(r"^FAILED (\S+?::\S+)", text, re.MULTILINE) or re.findall(
        r"^_+ ERROR at teardown of (\S+)", text, re.MULTILINE
    )
    if code == 1 and red:
        return red[0].removeprefix("tests/laws/"), True
    return ("every test stayed green" if code == 0 else f"pytest ended with {code}: {text[-300:]}"), False


if __name__ == "__main__":
    sys.exit(min(main(sys.argv[1:]), 100))
