"""What a person sees while a plan is followed, on stderr: its graph on a terminal, a line a change elsewhere; events as objects on stdout."""

from __future__ import annotations

import asyncio
import contextlib
import os
import sys
import time
from collections.abc import AsyncGenerator, Callable, Iterator
from datetime import datetime, timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from fencepost.cli import say
from fencepost.cli.documents import event_object
from fencepost.cli.plan_board import ENDED, Board, Standing
from fencepost.ledger import Event
from fencepost.spelling import read_instant, span

if TYPE_CHECKING:
    from rich.text import Text

    from fencepost.client import Handle

LOOK_SECONDS: Final = 1.0  # between two questions where the programs write
FRAMES: Final = 4  # a second
TAIL_BYTES: Final = 2048
INDENT_MAX: Final = 6
NEEDS_SHOWN: Final = 3

# state: (sign, sign where only ASCII can be written, colour)
SIGNS: Final = {
    "blocked": ("·", ".", "dim"), "ready": ("○", "o", ""), "running": ("▸", ">", "cyan"), "waiting": ("↻", "@", "yellow"),
    "unknown": ("?", "?", "bold magenta"), "succeeded": ("✓", "+", "green"), "failed": ("✗", "x", "bold red"), "skipped": ("–", "-", "dim"),
    "cancelled": ("⊘", "/", "yellow"),
}  # fmt: skip

Show = Callable[[Event], None]


@contextlib.asynccontextmanager
async def view(board: Board, handle: Handle[Any], *, objects: bool) -> AsyncGenerator[Show]:
    """Gives the function that is told every event. `objects`: each is also a line of JSON on stdout."""

    def told(event: Event) -> str:
        if objects:
            say.data(event_object(event))
        return board.apply(event)

    if not sys.stderr.isatty():
        yield lambda event: say.words(say.clean(told(event)))
        return
    async with _live(board, handle) as drawn:

        def show(event: Event) -> None:
            told(event)
            drawn.set()

        yield show


@contextlib.asynccontextmanager
async def _live(board: Board, handle: Handle[Any]) -> AsyncGenerator[asyncio.Event]:
    """The graph, drawn from the board alone; the last frame stays."""
    from rich.console import Console
    from rich.live import Live

    console = Console(stderr=True)
    clock = Clock()
    plain = not _writes(console.encoding)

    def frame() -> Text:
        return picture(board, console.width, max(4, console.height - 2), clock.now(board.last), plain=plain)

    changed = asyncio.Event()
    looking = asyncio.ensure_future(_look(board, handle, clock, changed))
    try:
        with Live(console=console, get_renderable=frame, refresh_per_second=FRAMES, vertical_overflow="crop"):
            yield changed
    finally:
        looking.cancel()
        await asyncio.gather(looking, return_exceptions=True)


class Clock:
    """What the database's clock says, by its own instants and this machine's steady clock (law 00.1)."""

    def __init__(self) -> None:
        self._at: datetime | None = None
        self._then = 0.0

    def set(self, at: datetime) -> None:
        self._at, self._then = at, time.monotonic()

    def now(self, last: datetime | None) -> datetime | None:
        """Now, or the last instant that was told."""
        return last if self._at is None else self._at + timedelta(seconds=time.monotonic() - self._then)


async def _look(board: Board, handle: Handle[Any], clock: Clock, changed: asyncio.Event) -> None:
    """Where the programs that run write, asked again only while that is open, for a twentieth of the time at most."""
    from fencepost import plans

    while True:
        await changed.wait()
        changed.clear()
        before = time.monotonic()
        doc = await plans.read(handle.db, handle.org, handle.id, busy=True)
        if doc is not None:
            clock.set(read_instant(doc["now"]))
            for step in doc["steps"]:
                if step["id"] in board.moving:
                    board.moving[step["id"]].folder = step.get("folder")
        await asyncio.sleep(max(LOOK_SECONDS, 20 * (time.monotonic() - before)))  # waits: a picture needs no more
        if any(each.state == "running" and each.runs_here and not each.folder for each in board.moving.values()):
            changed.set()  # started is in the line; that its program has begun is no event of the plan


def picture(board: Board, width: int, height: int, now: datetime | None, *, plain: bool = False) -> Text:
    """The graph in at most `height` lines: all steps where they fit, else how many stand how, and those that move."""
    from rich.text import Text

    lines = [_head(board, now)]
    if len(board.steps) < height:
        lines += [_line(standing, now, width, plain=plain) for standing in board.steps.values()]
    else:
        room = height - 2
        moving = list(board.moving.values())[:room]
        lines += [_line(standing, now, width, plain=plain, flat=True) for standing in moving]
        if len(board.moving) > room:
            lines.append(Text(f"  and {len(board.moving) - room:,} more that move", style="dim"))
    for line in lines:
        line.truncate(width, overflow="ellipsis")
    return Text("\n").join(lines)


def _head(board: Board, now: datetime | None) -> Text:
    from rich.text import Text

    order = ("running", "waiting", "ready", "blocked", "unknown", "failed", "skipped", "cancelled")
    parts = [f"{board.counts['succeeded']:,}/{len(board.steps):,} succeeded"]
    parts += [f"{board.counts[state]:,} {state}" for state in order if board.counts[state]]
    taken = f"  {_span(now - board.first)}" if now and board.first else ""
    return Text.assemble((say.clean(board.name), "bold"), f"  {', '.join(parts)}{taken}")


def _line(standing: Standing, now: datetime | None, width: int, *, plain: bool, flat: bool = False) -> Text:
    """Where it is in the graph, how it stands, and the last line that its program wrote."""
    from rich.text import Text

    sign, bare, style = SIGNS[standing.state]
    found = Text("  " if flat else "  " * (1 + min(standing.depth, INDENT_MAX)))
    found.append(f"{bare if plain else sign} ", style=style)
    found.append(standing.id, style="" if standing.state in {"running", "waiting", "unknown", "failed"} else style)
    found.append("".join(_needs(standing, plain=plain)), style="dim")
    if standing.words:
        found.append(f"  {say.clean(standing.words)}", style=style)
    if standing.state == "running" and standing.started and now:
        found.append(f"  {_span(now - standing.started)}")
    if standing.folder and standing.state == "running" and (last := last_line(Path(standing.folder))):
        found.append(f"  {'|' if plain else '│'} {last[: max(0, width - len(found.plain) - 4)]}", style="dim")
    return found


def _needs(standing: Standing, *, plain: bool) -> Iterator[str]:
    if standing.needs and standing.state not in ENDED:
        shown = ", ".join(standing.needs[:NEEDS_SHOWN])
        more = len(standing.needs) - NEEDS_SHOWN
        yield f" {'<-' if plain else '←'} {shown}" + (f" and {more} more" if more > 0 else "")


def last_line(folder: Path) -> str:
    """The last line that is not empty of what a program wrote to stdout, or else to stderr; on this host only."""
    for stream in ("stdout", "stderr"):
        with contextlib.suppress(OSError), (folder / stream).open("rb") as file:
            file.seek(max(0, os.fstat(file.fileno()).st_size - TAIL_BYTES))
            lines = file.read(TAIL_BYTES).decode("utf-8", "replace").split("\n")
            found = next((line.rstrip("\r").rpartition("\r")[2] for line in reversed(lines) if line.strip()), "")
            if found:
                return say.clean(found.strip())
    return ""


def _span(time_: timedelta) -> str:
    """Whole seconds: a picture is no stop-watch."""
    return span(max(0, int(time_.total_seconds())))


def _writes(encoding: str) -> bool:
    try:
        "".join(sign for sign, _, _ in SIGNS.values()).encode(encoding)
    except (UnicodeEncodeError, LookupError):
        return False
    return True
