"""Following a plan: its events, until it has ended or nothing of it moves any more; then how it stands."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from typing import Any, Final

from fencepost import ledger, plans, terminal
from fencepost.cli.follow import HALTS
from fencepost.cli.plan_board import STEP
from fencepost.client import Handle
from fencepost.errors import RunNotFound
from fencepost.ledger import Event

Show = Callable[[Event], None]

LOOK_SECONDS: Final = 5.0  # without an event; a child that is parked on its code is none of the plan's events


async def follow(handle: Handle[Any], show: Show) -> bool:
    """Show every event until the plan has ended, is unknown and nobody works on it, or waits for other code only. True. Raises RunNotFound.

    Nothing that is asked here for an event grows with the plan, but the page of events that are new.
    """
    halted = False
    events = handle.watch(rows=False)
    while (event := await _next(events, handle)) is not None:
        show(event)
        halted = event.type in HALTS or (halted and not event.type.startswith(STEP))
        if halted and await _at_rest(handle, event.seq):
            break
    return True


async def _next(events: AsyncIterator[Event], handle: Handle[Any]) -> Event | None:
    """The next event; None: there will be none until somebody acts."""
    coming = asyncio.ensure_future(anext(events, None))
    try:
        while not (await asyncio.wait({coming}, timeout=LOOK_SECONDS))[0]:
            if await _waits_for_code(handle):
                return None
        return coming.result()
    finally:
        coming.cancel()
        await asyncio.gather(coming, return_exceptions=True)


async def _waits_for_code(handle: Handle[Any]) -> bool:
    """All that moves of the plan are workflows that are parked on their code: somebody must change it (law 50.4)."""
    found = await plans.read(handle.db, handle.org, handle.id, busy=True)
    busy: list[dict[str, Any]] = found["steps"] if found is not None else []
    # A run that waits for something else has no trouble.
    return bool(busy) and all(step["child_state"] == "parked" and step["trouble"] is not None for step in busy)


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
