"""`runs show --timeline`: a run along time, in the terminal or as SVG."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterable
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from fencepost.cli import say
from fencepost.cli.say import DONE, USAGE, Stop

if TYPE_CHECKING:
    from rich.text import Text

    from fencepost.db import Database
    from fencepost.pictures.timeline import Timeline

PAGE: Final = 5000
WIDTH: Final = 100  # cells, where nobody says how wide the terminal is


async def read(db: Database, doc: dict[str, Any]) -> Timeline:
    """The timeline of the run that `read_run` gave as `doc`."""
    from fencepost import ledger
    from fencepost.pictures import timeline

    events: list[ledger.Event] = []
    after = 0
    while after < timeline.EVENTS_MAX:
        page = await ledger.read_events(db, doc["org"], doc["run_id"], after=after, limit=PAGE)
        # The mark of a row does not keep its instant, so it has no place in the picture.
        events += [event for event in page if event.type != "row.marked"]
        if not page:
            return timeline.read(doc, events)
        after = page[-1].seq
    return timeline.read(doc, events, whole=False)


def show(found: Timeline, *, file: str | None, as_json: bool) -> int:
    """Write the SVG to `file` (`-`: stdout), or print the bars. Raises Stop (2) where it cannot be written."""
    from fencepost.pictures import gantt

    if file == "-":
        say.plain(gantt.svg(found).rstrip("\n"))
        return DONE
    if file is not None:
        try:
            Path(file).write_text(gantt.svg(found), encoding="utf-8")
        except OSError as error:
            raise Stop(USAGE, "USAGE", f"{file} cannot be written: {error.strerror or error}") from None
        say.words(f"written: {file}")
    if as_json:
        say.data(found.as_json())
    elif file is None:
        _print(found)
    return DONE


def _print(found: Timeline) -> None:
    from rich.console import Console

    from fencepost.pictures import bars

    signs = bars.UNICODE if _writes(sys.stdout.encoding, "".join(_signs(bars.UNICODE))) else bars.ASCII
    if sys.stdout.isatty():
        console = Console(file=sys.stdout, highlight=False)
        for line in bars.lines(found, console.width, signs):
            console.print(line, soft_wrap=True)
        return
    said = os.environ.get("COLUMNS", "")
    width = min(int(said), 500) if said.isascii() and said.isdecimal() and len(said) < 9 and int(said) else WIDTH
    lines: Iterable[Text] = bars.lines(found, width, signs)
    for line in lines:
        say.plain(line.plain)


def _signs(signs: Any) -> list[str]:
    return [getattr(signs, name) for name in signs.__slots__]


def _writes(encoding: str | None, signs: str) -> bool:
    """Whether every sign can be written as it is."""
    try:
        signs.encode(encoding or "ascii")
    except (UnicodeEncodeError, LookupError):
        return False
    return True
