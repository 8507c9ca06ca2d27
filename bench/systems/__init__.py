"""What is measured: one adapter a system, each through its public face, at its best settings."""

from __future__ import annotations

from importlib import import_module
from typing import Final

from bench.system import System

#: Name -> adapter. The order is the order of the tables and of a round.
SYSTEMS: Final = {
    "us": "bench.systems.us:Us",
    "absurd": "bench.systems.absurd:Absurd",
    "dbos": "bench.systems.dbos:Dbos",
    "procrastinate": "bench.systems.procrastinate:Procrastinate",
    "pgqueuer": "bench.systems.pgqueuer:PgQueuer",
    "oban": "bench.systems.oban:Oban",
    "chancy": "bench.systems.chancy:Chancy",
    "floor": "bench.systems.floor:Floor",
}


def system_class(name: str) -> type[System]:
    """Its adapter. The library itself is imported when it is used, not before."""
    module, _, cls = SYSTEMS[name].partition(":")
    found: type[System] = getattr(import_module(module), cls)
    return found
