"""`fencepost plan show --logs`: what a step's program wrote, from the folder of its newest attempt on this host."""

from __future__ import annotations

import asyncio
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from fencepost.cli import say
from fencepost.cli.place import Place
from fencepost.cli.plan_show import read_plan
from fencepost.cli.say import DONE, USAGE, Stop

if TYPE_CHECKING:
    from fencepost.worker.commands.folders import Stream

LOOK_SECONDS: Final = 0.2


async def show_logs(
    place: Place, run_id: str, org: str, step: str, stream: Stream, *, follows: bool, as_json: bool
) -> int:
    """Copy the log to stdout; `follows`: until the attempt has ended. Raises RunNotFound, Stop (2)."""
    from fencepost.client import Client

    if as_json:
        raise Stop(USAGE, "USAGE", "--logs shows bytes as they were written: it goes without --json")
    async with place.database() as db:
        client = Client(db, place.release, listen_dsn=place.settings.listen_url)
        try:
            shown = _step(await read_plan(db, run_id, org), step)
            folder = _folder(shown)
            if not follows:
                _copy(folder, stream, 0)
                return DONE
            ending = asyncio.ensure_future(_ended(client, org, shown["child"]))
            try:
                await _tail(folder, stream, ending)
            finally:
                ending.cancel()
        finally:
            await client.close()
    return DONE


def _step(doc: dict[str, Any], step: str) -> dict[str, Any]:
    found: dict[str, Any] | None = next((each for each in doc["steps"] if each["id"] == step), None)
    if found is None:
        raise Stop(USAGE, "NOT_FOUND", f"the plan {say.clean(doc['run_id'])} has no step {step!r}")
    return found


def _folder(step: dict[str, Any]) -> Path:
    """The folder of the newest attempt. Raises Stop (2) where it is not on this host, with where it is."""
    if step["kind"] == "workflow":
        raise Stop(
            USAGE, "USAGE", f"step {step['id']} is a workflow: see `fencepost runs show {step.get('child') or 'ID'}`"
        )
    if not step.get("folder"):
        raise Stop(USAGE, "NOT_FOUND", f"step {step['id']} is {step['state']}: its program has not begun")
    folder = Path(step["folder"])
    if not folder.is_dir():
        host = step.get("host") or "the worker's host"
        raise Stop(
            USAGE, "NOT_FOUND", f"the logs of step {step['id']} are in {folder} on {host}, not here, or were removed"
        )
    return folder


def _copy(folder: Path, stream: Stream, start: int) -> int:
    """Everything from a byte on, to stdout; the byte to go on from."""
    from fencepost.worker.commands.folders import tail

    while True:
        found, after = tail(folder, stream, start)
        if not found:
            return start
        sys.stdout.buffer.write(found)
        sys.stdout.buffer.flush()
        start = after


async def _tail(folder: Path, stream: Stream, ending: asyncio.Future[None]) -> None:
    start = 0
    while True:
        ended = ending.done()  # seen before the read: what was written until then is in what is read
        start = _copy(folder, stream, start)
        if ended:
            return
        await asyncio.wait({ending}, timeout=LOOK_SECONDS)  # a file sends no notification


async def _ended(client: Any, org: str, child: str) -> None:
    """Until the run of the try has ended."""
    async for _ in client.handle(child, org=org).watch(rows=False):
        pass
