"""One table of a plan's document, read field by field; what does not fit is a fault, and the reading goes on with the default."""

from __future__ import annotations

import datetime as dt
import math
import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any, Final, cast

from fencepost.planning.faults import At, Faults, quoted
from fencepost.shown import clip, type_name
from fencepost.spelling import read_span
from fencepost.values import DEPTH_MAX, Unstorable, encode

ID: Final = re.compile(r"[A-Za-z0-9][A-Za-z0-9_-]{0,63}")
ID_WORDS: Final = "letters, digits, - and _, beginning with a letter or digit, at most 64"
LEAVES: Final = (str, int, float)


def kind_of(value: object) -> str:
    """What a value is called in a sentence."""
    match value:
        case None:
            return "null"
        case bool():
            return "true" if value else "false"
        case str():
            return "text"
        case int():
            return "a whole number"
        case float():
            return "a number with a point"
        case list():
            return "a list"
        case dict():
            return "a table"
        case dt.date() | dt.time():
            return "a date or a time"
        case _:
            return f"of type {type_name(value)}"


def bad_text(value: str) -> str | None:
    """What keeps a text from being stored, if anything does."""
    if value.isascii() and "\0" not in value:
        return None
    try:
        encode(value)
    except Unstorable as error:
        return error.problem
    return None


@dataclass(slots=True)
class Table:
    """The values of one table of the document, at `at`."""

    faults: Faults
    at: At
    values: Mapping[str, Any]

    @staticmethod
    def of(faults: Faults, at: At, value: object, like: str) -> Table | None:
        """The table that stands at a place; None and a fault where something else does. `like`: how it is written."""
        if isinstance(value, dict):
            return Table(faults, at, cast("dict[str, Any]", value))
        faults.add(at, f"is {kind_of(value)}: write a table, such as {like}")
        return None

    def fault(self, key: str, message: str) -> None:
        """What is wrong with a field."""
        self.faults.add((*self.at, key), message)

    def known(self, keys: Iterable[str], elsewhere: Mapping[str, str] | None = None) -> set[str]:
        """Name every key that means nothing here; the known ones that were most likely meant. `elsewhere`: key -> where it belongs."""
        known, meant = list(keys), set[str]()
        odd = self.values.keys() - known
        for key in [key for key in self.values if key in odd] if odd else ():
            if elsewhere and key in elsewhere:
                self.fault(key, f"is for {elsewhere[key]}: take it out")
                continue
            near = self.faults.nearest(key, [*known, *(elsewhere or ())])
            if near is None:
                self.fault(key, f"is no word here: take it out, or write one of {', '.join(known)}")
            else:
                meant.add(near)
                self.fault(key, f"is no word here; did you mean {near!r}?")
        return meant

    def text(self, key: str, *, empty: bool = False, chars: int | None = None) -> str | None:
        """A text; None where there is none."""
        value = self.values.get(key)
        if value is None:
            return None
        if not isinstance(value, str):
            self.fault(key, f"is {kind_of(value)}: write text, in quotes")
        elif not value and not empty:
            self.fault(key, "is empty: write something, or leave it out")
        elif (problem := bad_text(value)) is not None:
            self.fault(key, f"cannot be stored: {problem}")
        elif chars is not None and len(value) > chars:
            self.fault(key, f"has {len(value):,} characters, and {chars:,} is the limit")
        else:
            return value
        return None

    def name(self, key: str) -> str | None:
        """An id, or a name of the same form."""
        value = self.text(key, empty=True)
        return None if value is None else self.judged_name(key, value)

    def judged_name(self, key: str, value: str) -> str | None:
        """The id itself, if it may be one."""
        if ID.fullmatch(value):
            return value
        said = "is empty: give it a name of" if not value else f"{clip(value, 100)!r} is no name: use"
        self.fault(key, f"{said} {ID_WORDS}")
        return None

    def flag(self, key: str, *, default: bool) -> bool:
        """True or false."""
        value = self.values.get(key)
        if isinstance(value, bool) or value is None:
            return default if value is None else value
        self.fault(key, f"is {kind_of(value)}: write true or false, without quotes")
        return default

    def whole(self, key: str, low: int, high: int, default: int) -> int:
        """A whole number from `low` to `high`."""
        value = self.values.get(key)
        if value is None:
            return default
        if not isinstance(value, int) or isinstance(value, bool):
            self.fault(key, f"is {kind_of(value)}: write a whole number from {low:,} to {high:,}")
        elif not low <= value <= high:
            shown = f"{value:,}" if abs(value) < 10**30 else "a huge number"
            self.fault(key, f"is {shown}: write a whole number from {low:,} to {high:,}")
        else:
            return value
        return default

    def word(self, key: str, words: tuple[str, ...], default: str) -> str:
        """One of a closed list."""
        value = self.values.get(key)
        if value is None:
            return default
        if isinstance(value, str) and value in words:
            return value
        if isinstance(value, str):
            self.fault(key, f"{clip(value, 80)!r} is not known: write {quoted(words)}{self.faults.like(value, words)}")
        else:
            self.fault(key, f"is {kind_of(value)}: write {quoted(words)}")
        return default

    def items(self, key: str, like: str) -> list[object]:
        """A list; empty where there is none."""
        value = self.values.get(key)
        if value is None:
            return []
        if not isinstance(value, list):
            self.fault(key, f"is {kind_of(value)}: write a list, such as {like}")
            return []
        return cast("list[object]", value)

    def span_ms(self, key: str, most: int) -> int | None:
        """A duration as people write it, `90s`, `1h30m`: in ms."""
        value = self.values.get(key)
        if value is None:
            return None
        if not isinstance(value, str):
            self.fault(key, f'is {kind_of(value)}: write a duration with its unit, such as "90s" or "1h30m"')
            return None
        try:
            ms = read_span(value) * 1000
        except (ValueError, OverflowError):
            self.fault(key, f'{clip(value, 80)!r} is not a duration: write one with its unit, such as "90s" or "1h30m"')
            return None
        if not 1 <= ms <= most:
            self.fault(key, f"is {clip(value, 80)}: write a duration from 1ms to {most // 86_400_000}d")
            return None
        return round(ms)

    def tree(self, key: str, like: str) -> dict[str, Any] | None:
        """A table of any values of JSON; None where there is none, or it holds what JSON has not."""
        value = self.values.get(key)
        table = None if value is None else Table.of(self.faults, (*self.at, key), value, like)
        if table is None or not json_values(self.faults, table.at, table.values):
            return None
        return dict(table.values)

    def texts(self, key: str, like: str) -> dict[str, str]:
        """A table of texts."""
        value = self.values.get(key)
        table = None if value is None else Table.of(self.faults, (*self.at, key), value, like)
        if table is None:
            return {}
        found = {name: table.text(name, empty=True) for name in table.values}
        return {name: value for name, value in found.items() if value is not None}


def json_values(faults: Faults, at: At, value: object, deep: int = DEPTH_MAX) -> bool:
    """Whether a value is one of JSON through and through; what is not is a fault at its own place."""
    if value is None or isinstance(value, bool):
        return True
    if deep <= 0:
        faults.add(at, f"is nested deeper than {DEPTH_MAX} levels")
        return False
    if isinstance(value, dict):
        parts = cast("dict[str, object]", value)
        bad = [key for key in parts if bad_text(key) is not None]
        for key in bad:
            faults.add(at, f"has a key that cannot be stored: {bad_text(key)}")
        # Each one is judged, whatever the first said.
        good = [json_values(faults, (*at, key), part, deep - 1) for key, part in parts.items()]
        return all(good) and not bad
    if isinstance(value, list):
        entries = cast("list[object]", value)
        good = [json_values(faults, (*at, n), part, deep - 1) for n, part in enumerate(entries)]
        return all(good)
    if isinstance(value, dt.date | dt.time):
        faults.add(at, "is a date or a time, and JSON has none: write it as text, in quotes")
        return False
    if isinstance(value, float) and not math.isfinite(value):
        faults.add(at, f"is {value}, which is no number in JSON: write a finite one")
        return False
    if type(value) not in LEAVES:
        faults.add(at, f"is of type {type_name(value)}, which JSON has not: write text, a number, a list or a table")
        return False
    try:
        encode(value)
    except Unstorable as error:
        faults.add(at, f"cannot be stored: {error.problem}")
        return False
    return True
