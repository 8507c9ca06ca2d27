"""From what a supervisor wrote to what the database is told: a function of the packet and the folder alone."""

from __future__ import annotations

from pathlib import Path

from fencepost.store import Store
from fencepost.worker.commands.packets import Packet
from fencepost.worker.commands.reports import Completed, Ended, Failed


async def settle(store: Store, packet: Packet, folder: Path, ended: Ended) -> Completed | Failed:
    """The outcome of a try that has ended: its outputs collected, judged and kept. Asked again, it is the same text.

    Raises    StoreFailed: the store cannot keep them now. Nothing is lost: record again later, never run again (law 70.7).
    """
    raise NotImplementedError
