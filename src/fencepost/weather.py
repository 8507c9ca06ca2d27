"""Weather: what the database answers, or does not, that is nobody's fault; the same call may simply be asked again."""

from __future__ import annotations

from typing import Final

import asyncpg

# SQLSTATE classes and codes that are neither's fault (FAULTS: B80, B92, B93). A connection that met one of the second list is dropped.
_WEATHER_CODES: Final = frozenset({"40001", "40003", "40P01", "55P03", "57014", "53300", "53400", "57P05", "55006"})
_WEATHER_LOST: Final = frozenset({"25006", "57P01", "57P02", "57P03", "XX000", "58000", "58030", "53100", "53200"})


def is_weather(error: BaseException) -> bool:
    """True when the same call may simply be asked again."""
    if isinstance(error, asyncpg.PostgresError):
        state = str(error.sqlstate or "")
        return state in _WEATHER_CODES or state in _WEATHER_LOST or state.startswith("08")
    if isinstance(error, asyncpg.InterfaceError):
        return "connection" in str(error) or "pool" in str(error)
    return isinstance(error, OSError | TimeoutError | asyncpg.InternalClientError | EOFError)


def loses_connection(error: BaseException) -> bool:
    """True when the connection that met it is not to be used again."""
    if isinstance(error, asyncpg.PostgresError):
        state = str(error.sqlstate or "")
        return state in _WEATHER_LOST or state.startswith("08")
    return True
