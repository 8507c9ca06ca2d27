"""How instants and durations are written for people and read back: ISO-8601 UTC with milliseconds, `90s`, `1h30m`."""

from __future__ import annotations

import re
from datetime import UTC, datetime
from typing import Final

_UNITS: Final = (("d", 86_400_000), ("h", 3_600_000), ("m", 60_000), ("s", 1000), ("ms", 1))
_SPAN: Final = re.compile(r"(?:(\d+)d)?(?:(\d+)h)?(?:(\d+)m)?(?:(\d+(?:\.\d+)?)s)?(?:(\d+)ms)?")


def read_instant(text: str) -> datetime:
    """An instant as the database writes it (any offset). Raises ValueError."""
    instant = datetime.fromisoformat(text)
    return instant.replace(tzinfo=UTC) if instant.tzinfo is None else instant.astimezone(UTC)


def instant(value: datetime | str) -> str:
    """`2026-11-29T18:20:00.123Z`."""
    given = read_instant(value) if isinstance(value, str) else value.astimezone(UTC)
    return given.strftime("%Y-%m-%dT%H:%M:%S.") + f"{given.microsecond // 1000:03d}Z"


def span(seconds: float) -> str:
    """`1h30m`, `90s` as `1m30s`, `250ms`: exact to the millisecond under a minute, to the second above."""
    ms = round(abs(seconds) * 1000)
    ms = ms if ms < 60_000 else ms // 1000 * 1000
    if 1000 <= ms < 60_000:
        return f"{ms / 1000:.3f}".rstrip("0").rstrip(".") + "s"
    parts: list[str] = []
    for unit, size in _UNITS:
        count, ms = divmod(ms, size)
        if count:
            parts.append(f"{count}{unit}")
    return "".join(parts) or "0s"


def read_span(text: str) -> float:
    """Seconds of `90s`, `1h30m`, `2d`, `1.5s`, `250ms`; a bare number is refused, because nobody can tell its unit. Raises ValueError."""
    found = _SPAN.fullmatch(text.strip())
    if found is None or not any(found.groups()):
        raise ValueError(f"{text!r} is not a duration: write 90s, 1h30m or 2d")
    return sum(float(count) * size for count, (_, size) in zip(found.groups(), _UNITS, strict=True) if count) / 1000
