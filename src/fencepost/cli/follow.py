"""Following a run: its events as lines, until it ends, is unknown, or is parked on its code; then how it stands, as an exit code."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final

from fencepost import ledger
from fencepost.cli.documents import event_data
from fencepost.cli.say import CANCELLED, DONE, FAILED, NOT_ENDED, clean
from fencepost.client import Handle
from fencepost.errors import RunNotFound
from fencepost.ledger import Event
from fencepost.spelling import instant

# After one of these the run may stay as it is until somebody acts; the second list says that it moves again.
HALTS: Final = frozenset({"run.unknown", "attempt.unfit"})
MOVES: Final = frozenset({"attempt.claimed", "run.woken", "run.cancelling"})


async def follow(
    handle: Handle[Any], show_event: Callable[[Event], None], *, after: int = 0, rows: bool = True
) -> dict[str, Any]:
    """Show every event after `after`, `rows`: also of rows; the run's document once it has ended, is unknown or is parked on its code.
    Raises RunNotFound.
    """
    doc = await _at_rest(handle, after, rows=rows)
    if doc is not None:
        return doc
    halted = False
    async for event in handle.watch(after, rows=rows):
        show_event(event)
        halted = event.type in HALTS or (halted and event.type not in MOVES)
        if halted and (doc := await _at_rest(handle, event.seq, rows=rows)) is not None:
            return doc
    return await document(handle)


async def _at_rest(handle: Handle[Any], after: int, *, rows: bool) -> dict[str, Any] | None:
    """The document of a run that has halted and has nothing to tell after `after`."""
    doc = await document(handle)
    if not has_halted(doc) or await ledger.read_events(
        handle.db, handle.org, handle.id, after=after, limit=1, rows=rows
    ):
        return None
    return doc


async def document(handle: Handle[Any]) -> dict[str, Any]:
    """Everything known of the run. Raises RunNotFound."""
    found = await ledger.read_run(handle.db, handle.org, handle.id)
    if found is None:
        raise RunNotFound(handle.id, handle.org)
    return found


def has_halted(doc: dict[str, Any]) -> bool:
    """Unknown, or parked on its code: it goes on when somebody acts."""
    return bool(doc["status"] == "unknown" or (doc["status"] == "parked" and doc["task"]["park"] == "code"))


def exit_code(doc: dict[str, Any]) -> int:
    """How a following command ends."""
    return {"completed": DONE, "failed": FAILED, "cancelled": CANCELLED}.get(doc["status"], NOT_ENDED)


def event_line(event: Event) -> str:
    """One event as a person reads it, whatever its values hold."""
    parts = [instant(event.at), f"{event.seq:>4}", event.type]
    if event.number is not None:
        parts.append(f"attempt={event.number}")
    data = event_data(event)
    name, ordinal = data.pop("name", None), data.pop("ordinal", None)
    if name is not None:
        parts.append(f"{name}#{ordinal}" if ordinal is not None else str(name))
    parts += [f"{key}={value}" for key, value in data.items() if value is not None]
    return clean(" ".join(parts))
