"""What is measured, each trial as one function of a system's side that gives figures by their keys."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import Final

from bench.field import Side
from bench.trials import admissions, backlog, drains, extras, idle, imports, latencies

Figures = dict[str, float]


@dataclass(frozen=True, slots=True)
class Trial:
    """`steps`: for systems with durable steps only. `rounds`: False, once is enough. `peers`: how far it is asked of others."""

    name: str
    test: str  # its letter
    run: Callable[[Side], Awaitable[Figures]]
    steps: bool = False
    rounds: bool = True
    only: frozenset[str] = frozenset()
    extra: bool = False  # of the full table
    peers: bool = True  # False: in the quick run ours and the floor's only


TRIALS: Final = (
    Trial("admissions", "A", admissions.admissions),
    Trial("drain", "B", drains.drain),
    Trial("flows", "C", drains.flows, steps=True),
    Trial("marked", "C", drains.marked, only=frozenset({"us"})),
    Trial("latencies", "D", latencies.latencies, rounds=False),
    Trial("pending", "E", backlog.pending, rounds=False, peers=False),
    Trial("history", "E", backlog.history, rounds=False, peers=False),
    Trial("snapshot", "E", backlog.snapshot, rounds=False, peers=False),
    Trial("cold", "E", backlog.cold, rounds=False, peers=False),
    Trial("idle", "F", idle.idle, rounds=False),
    Trial("imports", "G", imports.imports, rounds=False),
    Trial("workers", "B", extras.workers, extra=True, rounds=False),
    Trial("payloads", "B", extras.payloads, extra=True, rounds=False),
    Trial("rows", "C", extras.rows, extra=True, rounds=False, only=frozenset({"us"})),
)
