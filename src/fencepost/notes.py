"""What the process says: standard logging under `fencepost.*`, one line per state change, values escaped and bounded (97.3).

Users' own handlers, formatters and structlog work on top; `fields` travel as `record.fencepost`.
"""

from __future__ import annotations

import logging
from typing import Any, Final

LINE_CHARS_MAX: Final = 2000

_log = logging.getLogger("fencepost")


def escape(text: object) -> str:
    """One line, whatever the value holds: control characters and line separators become visible escapes; bounded."""
    raw = str(text)
    safe = "".join(
        c if c.isprintable() else c.encode("unicode_escape", "backslashreplace").decode() for c in raw[:LINE_CHARS_MAX]
    )
    return safe + (" …" if len(raw) > LINE_CHARS_MAX else "")


def say(what: str, /, *, level: int = logging.INFO, **fields: Any) -> None:
    """Log one state change: `what` and its fields as key=value."""
    if _log.isEnabledFor(level):
        words = " ".join(f"{escape(k)}={escape(v)}" for k, v in fields.items() if v is not None)
        _log.log(level, "%s", f"{escape(what)} {words}".rstrip(), extra={"fencepost": fields})
