"""`fencepost plan output`: the bytes of a result, as they were committed."""

from __future__ import annotations

import contextlib
import hashlib
import shutil
import sys
import tempfile
from collections.abc import Generator
from pathlib import Path
from typing import IO, TYPE_CHECKING, Any, Final

import click

from fencepost.cli import say
from fencepost.cli.place import Place, database_options, opened, org_option, run_async
from fencepost.cli.plan_show import read_plan, run_of
from fencepost.cli.say import DONE, FAILED, USAGE, Stop

if TYPE_CHECKING:
    from fencepost.plans import Result

CHUNK: Final = 1024 * 1024


@click.command()
@click.argument("target", metavar="ID|FILE")
@click.argument("which", metavar="STEP.NAME")
@click.option(
    "--out", metavar="FILE", type=click.Path(path_type=Path, dir_okay=False), help="Into this file instead of stdout."
)
@org_option
@database_options
def output(target: str, which: str, out: Path | None, org: str, dsn: str | None, as_json: bool) -> int:
    """The bytes of an output, on stdout; nothing is written unless they are what was committed."""
    step, dot, name = which.partition(".")
    if not (step and dot and name):
        raise Stop(USAGE, "USAGE", f"{which!r} is not of the form STEP.NAME")
    if as_json and out is None:
        raise Stop(
            USAGE, "USAGE", "--json and the output both want stdout: give --out a file, or see `plan show --json`"
        )
    run_id = run_of(target)
    with opened(dsn) as place:
        return run_async(_output(place, run_id, org, (step, name), out, as_json=as_json))


async def _output(
    place: Place, run_id: str, org: str, which: tuple[str, str], out: Path | None, *, as_json: bool
) -> int:
    from fencepost import plans

    step, name = which
    async with place.database() as db:
        found = await plans.read_result(db, org, run_id, step, name)
        if found is None:
            raise _missing(await read_plan(db, run_id, org), step, name)
    if out is None:
        with verified(place, found, None) as file:
            shutil.copyfileobj(file, sys.stdout.buffer, CHUNK)
            sys.stdout.buffer.flush()
        return DONE
    _write(place, found, out)
    facts = {"run_id": run_id, "org": org, "step": step, "output": name, "out": str(out)}
    if as_json:
        say.data(facts | {"media_type": found.media_type, "size": found.size, "digest": found.digest})
    else:
        say.words(f"written: {out} ({found.size:,} bytes, {found.digest})")
    return DONE


def _write(place: Place, found: Result, out: Path) -> None:
    """The file appears whole. Raises Stop (2) where it cannot be written."""
    try:
        with verified(place, found, out.parent) as file:
            Path(file.name).replace(out)
    except OSError as error:
        raise Stop(USAGE, "USAGE", f"{out} cannot be written: {error.strerror or error}") from None


@contextlib.contextmanager
def verified(place: Place, found: Result, folder: Path | None) -> Generator[IO[bytes]]:
    """The bytes in a temporary file in `folder`, compared with their digest. Raises Stop (1): they are not what was committed, or gone."""
    digest = hashlib.sha256()
    with tempfile.NamedTemporaryFile(dir=folder, prefix=".fencepost-", delete=False) as file:
        try:
            for chunk in _chunks(place, found):
                digest.update(chunk)
                file.write(chunk)
            file.flush()
            if f"sha256:{digest.hexdigest()}" != found.digest:
                raise _damaged(f"what is kept has digest sha256:{digest.hexdigest()}, committed was {found.digest}")
            file.seek(0)
            yield file
        finally:
            Path(file.name).unlink(missing_ok=True)


def _chunks(place: Place, found: Result) -> Generator[bytes]:
    if found.text is not None:
        yield found.text.encode()
        return
    from fencepost.store import StoreFailed, store_of

    try:
        yield from store_of(place.settings).chunks(found.place or "")
    except StoreFailed as error:
        raise _damaged(str(error)) from None


def _damaged(problem: str) -> Stop:
    return Stop(FAILED, "UNREADABLE", problem)


def _missing(doc: dict[str, Any], step: str, name: str) -> Stop:
    """Why there is no such output: no such step, no such name, or no result yet."""
    shown = next((each for each in doc["steps"] if each["id"] == step), None)
    if shown is None:
        return Stop(USAGE, "NOT_FOUND", f"the plan {say.clean(doc['run_id'])} has no step {step!r}")
    names = ", ".join(shown.get("outputs") or {})
    said = f"it has {names}" if names else f"it is {shown['state']} and has no result"
    return Stop(USAGE, "NOT_FOUND", f"step {step} has no output {name!r}: {said}")
