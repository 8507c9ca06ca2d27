"""What a person sees while a run is followed, on stderr: a live view on a terminal, a line a change of state elsewhere."""

from __future__ import annotations

import asyncio
import contextlib
import math
import sys
import time
from collections import deque
from collections.abc import AsyncGenerator, Callable
from typing import TYPE_CHECKING, Any, Final

from fencepost.cli import say
from fencepost.cli.follow import document, event_line
from fencepost.ledger import Event
from fencepost.spelling import span

if TYPE_CHECKING:
    from fencepost.client import Handle

LOOK_SECONDS: Final = 0.5
LINE_SECONDS: Final = 15.0  # where there is no bar: a line now and then
QUIET: Final = ("row.",)  # a map of a thousand rows is a bar, not a thousand lines

Show = Callable[[Event], None]


class Pace:
    """How fast rows go, from how many were done at the last looks."""

    def __init__(self) -> None:
        self._looks: deque[tuple[float, int]] = deque(maxlen=20)

    def words(self, done: int, total: int, now: float | None = None) -> str:
        """`1,200/5,000 rows, 310/s, 12s left`; the rate from the second look on. `now`: seconds of any steady clock."""
        now = time.monotonic() if now is None else now
        self._looks.append((now, done))
        then, before = self._looks[0]
        found = f"{done:,}/{total:,} rows"
        if done > before and now > then:
            rate = (done - before) / (now - then)
            found += f", {rate:,.0f}/s" if rate >= 1 else f", {rate * 60:,.1f}/min"
            if done < total:
                found += f", {span(math.ceil((total - done) / rate))} left"
        return found


@contextlib.asynccontextmanager
async def progress(handle: Handle[Any]) -> AsyncGenerator[Show]:
    """Gives the function that is told every event."""
    if sys.stderr.isatty():
        async with _live(handle) as show:
            yield show
        return

    def tell(_: int, __: int, words: str) -> None:
        if words.split(",", 1)[0] != told[-1]:
            told.append(words.split(",", 1)[0])
            say.words(words)

    told = [""]
    async with _looking(handle, tell, LINE_SECONDS, first=LINE_SECONDS):
        yield _plain


@contextlib.asynccontextmanager
async def _looking(
    handle: Handle[Any], tell: Callable[[int, int, str], None], every: float, *, first: float = 0.0
) -> AsyncGenerator[None]:
    """Meanwhile the rows of the run are looked at: `tell` is given how many are done, how many there are, and the words."""

    async def look() -> None:
        pace = Pace()
        await asyncio.sleep(first)  # waits: who is done by then needs no such line
        while True:
            before = time.monotonic()
            rows = (await document(handle))["rows"]
            done = rows["completed"] + rows["failed"] + rows["skipped"]
            if rows["total"]:
                tell(done, rows["total"], pace.words(done, rows["total"]))
            # A million rows are not counted twice a second: looking takes a tenth of the time at most.
            rest = max(every, 9 * (time.monotonic() - before))
            await asyncio.sleep(rest)  # waits: rows send no notification, and a bar is a picture of now

    looking = asyncio.ensure_future(look())
    try:
        yield
    finally:
        looking.cancel()
        await asyncio.gather(looking, return_exceptions=True)


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

        def tell(done: int, total: int, words: str) -> None:
            view.update(task, total=total, completed=done, rows=words)

        async with _looking(handle, tell, LOOK_SECONDS):
            yield show
