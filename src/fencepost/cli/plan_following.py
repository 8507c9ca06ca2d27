"""Following a plan: its events, until it has ended or nothing of it moves any more; then how it stands."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from fencepost import ledger, plans, terminal
from fencepost.cli.follow import HALTS
from fencepost.cli.plan_board import STEP
from fencepost.client import Handle
from fencepost.errors import RunNotFound
from fencepost.ledger import Event

Show = Callable[[Event], None]


async def follow(handle: Handle[Any], show: Show) -> bool:
    """Show every event until the plan has ended, or is unknown and nobody works on it. True. Raises RunNotFound.

    Nothing that is asked here grows with the plan, but the page of events that are new.
    """
    halted = False
    async for event in handle.watch(rows=False):
        show(event)
        halted = event.type in HALTS or (halted and not event.type.startswith(STEP))
        if halted and await _at_rest(handle, event.seq):
            return True
    return True


async def _at_rest(handle: Handle[Any], after: int) -> bool:
    """Unknown, and there is nothing to tell after `after`."""
    outcome = await terminal.watch_outcome(handle.db, handle.org, handle.id, None)
    if outcome is None or outcome.status != "unknown":
        return False
    return not await ledger.read_events(handle.db, handle.org, handle.id, after=after, limit=1, rows=False)


async def document(handle: Handle[Any]) -> dict[str, Any]:
    """The whole plan as it stands, once. Raises RunNotFound."""
    found = await plans.read(handle.db, handle.org, handle.id)
    if found is None:
        raise RunNotFound(handle.id, handle.org)
    return found
