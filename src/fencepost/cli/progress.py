"""What a person sees while a run is followed, on stderr: a live view on a terminal, a line a change of state elsewhere."""

from __future__ import annotations

import asyncio
import contextlib
import sys
from collections.abc import AsyncGenerator, Callable
from typing import TYPE_CHECKING, Any, Final

from fencepost.cli import say
from fencepost.cli.follow import document, event_line
from fencepost.ledger import Event

if TYPE_CHECKING:
    from fencepost.client import Handle

LOOK_SECONDS: Final = 0.5
QUIET: Final = ("row.",)  # a map of a thousand rows is a bar, not a thousand lines

Show = Callable[[Event], None]


@contextlib.asynccontextmanager
async def progress(handle: Handle[Any]) -> AsyncGenerator[Show]:
    """Gives the function that is told every event."""
    if sys.stderr.isatty():
        async with _live(handle) as show:
            yield show
    else:
        yield _plain


def _plain(event: Event) -> None:
    if not event.type.startswith(QUIET):
        say.words(event_line(event))


@contextlib.asynccontextmanager
async def _live(handle: Handle[Any]) -> AsyncGenerator[Show]:
    """The events above, and one line below: how the run stands, and a bar of its rows."""
    from rich.console import Console
    from rich.progress import BarColumn, Progress, SpinnerColumn, TextColumn, TimeElapsedColumn
    from rich.text import Text

    console = Console(stderr=True)
    columns = (
        SpinnerColumn(),
        TextColumn("{task.description}", markup=False),
        BarColumn(),
        TextColumn("{task.fields[rows]}"),
        TimeElapsedColumn(),
    )
    with Progress(*columns, console=console, transient=True) as view:
        task = view.add_task("queued", total=None, rows="")

        def show(event: Event) -> None:
            if not event.type.startswith(QUIET):
                console.print(Text(event_line(event)))
            words = str(event.data.get("name") or event.type)
            view.update(task, description=say.clean(words)[:60])

        async def look() -> None:
            while True:
                doc = await document(handle)
                rows = doc["rows"]
                done = rows["completed"] + rows["failed"] + rows["skipped"]
                if rows["total"]:
                    view.update(task, total=rows["total"], completed=done, rows=f"{done}/{rows['total']} rows")
                await asyncio.sleep(LOOK_SECONDS)  # waits: rows send no notification, and a bar is a picture of now

        looking = asyncio.ensure_future(look())
        try:
            yield show
        finally:
            looking.cancel()
            await asyncio.gather(looking, return_exceptions=True)
