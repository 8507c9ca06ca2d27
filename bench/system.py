"""What a system must be able to do to be measured. An adapter implements it through the library's public face."""

from __future__ import annotations

import abc
import asyncio
from collections.abc import Callable
from pathlib import Path
from typing import Any, ClassVar, Literal

from bench.board import Board

#: What a handler does: nothing; stamp its slot; ten repeatable steps; ten marked ones; ten, stamped at both ends; wait durably, then stamp.
#: Of plans: no-ops without and with edges, commands one after the other and eight at a time.
Kind = Literal["noop", "lat", "steps", "marked", "alone", "event", "rows", "wide", "layers", "lone", "commands"]
Ready = Callable[[], None]


class System(abc.ABC):
    """A system as one process sees it. `settings` are its best ones; a trial may say others (`trial_settings`, by trial)."""

    module: ClassVar[str] = ""  # whose import is measured
    imports: ClassVar[str] = ""  # what a program of one file imports, where that is more than `module`
    packages: ClassVar[tuple[str, ...]] = ()  # whose versions are told
    durable: ClassVar[bool] = False  # has durable steps
    events: ClassVar[bool] = False  # has a wait for an event
    bulk: ClassVar[bool] = False
    polls: ClassVar[bool] = False  # finds work by polling only, every `poll` seconds
    loop: ClassVar[Literal["uvloop", "asyncio"]] = "uvloop"
    drains: ClassVar[bool] = False  # told to stop it gives back what it holds; others are ended
    tables: ClassVar[tuple[str, ...]] = ()  # truncated between measurements
    left_sql: ClassVar[str] = ""  # answers a row while a live task is left
    settings: ClassVar[dict[str, Any]] = {}
    trial_settings: ClassVar[dict[str, dict[str, Any]]] = {}

    def __init__(self, dsn: str, board: Board | None, worker: int, trial: str, files: Path | None = None) -> None:
        self.dsn = dsn
        self.files = files  # where a worker may write
        self.worker = worker
        self.o = {**self.settings, **self.trial_settings.get(trial, {})}
        self.stopping = asyncio.Event()
        self._board = board

    @property
    def board(self) -> Board:
        assert self._board is not None
        return self._board

    @abc.abstractmethod
    async def install(self) -> None:
        """Make the schema in an empty database."""

    @classmethod
    @abc.abstractmethod
    def fill_sql(cls, pending: int, parked: int, ended: int, orgs: int) -> list[str]:
        """Statements that write rows into its own tables, as if they had come the usual way."""

    @abc.abstractmethod
    async def open_client(self, callers: int) -> None:
        """Be ready to enqueue, from so many callers."""

    @abc.abstractmethod
    async def close_client(self) -> None:
        """Let go of what `open_client` opened."""

    @abc.abstractmethod
    async def enqueue(self, kind: Kind, arg: int | str, caller: int = 0) -> Any:
        """One durable enqueue: returns after its commit, with what names the task."""

    async def enqueue_many(self, kind: Kind, args: list[int | str]) -> None:
        """The library's own bulk call: where `bulk`."""
        raise NotImplementedError

    async def enqueue_load(self, kind: Kind, args: list[int | str], callers: int) -> None:
        """The same from so many callers in this process; a synchronous library brings its own threads."""
        waiting = iter(args)

        async def caller(k: int) -> None:
            for arg in waiting:
                await self.enqueue(kind, arg, k)

        await asyncio.gather(*(caller(k) for k in range(callers)))

    async def parked(self, ident: Any, arg: int) -> bool:
        """Does the task wait for its event? Where it has `events`, as the next."""
        raise NotImplementedError

    async def emit(self, ident: Any, arg: int) -> None:
        raise NotImplementedError

    @abc.abstractmethod
    async def work(self, ready: Ready) -> None:
        """Be one worker until cancelled (or, where it `drains`, until `stopping`); `ready()` just before its loop starts."""
