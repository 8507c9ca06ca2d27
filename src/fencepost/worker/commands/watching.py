"""A supervisor as its worker sees it: started, told to go, waited for, stopped; met again by another worker."""

from __future__ import annotations

from pathlib import Path

from fencepost.store import Store
from fencepost.worker.commands.packets import Packet
from fencepost.worker.commands.reports import Dead, Ended, NotStarted
from fencepost.worker.process import Facts


class Supervised:
    """The supervisor of one attempt. `facts`: its process, to be recorded before the attempt begins; `folder`: the attempt's."""

    def __init__(self, folder: Path, facts: Facts) -> None:
        self.folder = folder
        self.facts = facts

    async def go(self, packet: Packet, store: Store) -> None:
        """Write packet, inputs and order, and let the command run. Raises LaunchRefused: nothing ran, the supervisor has left."""
        raise NotImplementedError

    async def ended(self) -> Ended | Dead | NotStarted:
        """Wait until it is known what became of the try. It may be asked by several, again and again."""
        raise NotImplementedError

    def stop(self, reason: str) -> None:
        """Have the command ended: SIGINT, SIGTERM, SIGKILL, each after its grace. The first reason stays. Idempotent."""
        raise NotImplementedError

    def close(self) -> None:
        """Watch no longer. What was let go goes on without us; what was not ends with nothing run."""
        raise NotImplementedError


async def start(root: Path, name: str) -> Supervised:
    """Make the attempt's folder and start its supervisor, which waits for `go`. Raises OSError: nothing was started."""
    raise NotImplementedError


def meet(folder: Path, pid: int, process_start: str | None) -> Supervised:
    """The supervisor of an attempt that somebody else started on this host (same boot, same pid namespace: the caller has compared)."""
    raise NotImplementedError
