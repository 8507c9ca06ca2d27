"""Documents written by hand, in any of the ways TOML and JSON allow, by one who knows the line of every place."""

from __future__ import annotations

import datetime as dt
import json
import random
import re
from typing import Any

from hypothesis import strategies as st

At = tuple[str | int, ...]

TEXTS = st.text(st.characters(exclude_categories=["Cs"]), max_size=12) | st.sampled_from(
    ['""', "''", '"""', "'''", "# no comment", "[[x]]", "a\n\n= b", "\\", "}", '"', "'", "a\r\nb", "\x7f", "x]"]
)
SCALARS = (
    TEXTS
    | st.integers(-(2**63), 2**63 - 1)
    | st.booleans()
    | st.floats(allow_nan=False, allow_infinity=False)
    | st.dates(min_value=dt.date(1000, 1, 1))
    | st.datetimes(min_value=dt.datetime(1000, 1, 1))  # noqa: DTZ001 - TOML's local date-times have no zone
)
VALUES = st.recursive(
    SCALARS, lambda inner: st.lists(inner, max_size=3) | st.dictionaries(TEXTS, inner, max_size=3), max_leaves=12
)
TABLES = st.dictionaries(TEXTS, VALUES | st.lists(st.dictionaries(TEXTS, SCALARS, max_size=3), max_size=3), max_size=5)


class Toml:
    """Writes one document; `lines` is where each place begins."""

    def __init__(self, document: dict[str, Any], chance: random.Random) -> None:
        self.text = ""
        self.lines: dict[At, int] = {}
        self.chance = chance
        self._table((), [], document)

    def _note(self, at: At) -> None:
        self.lines.setdefault(at, self.text.count("\n") + 1)

    def _put(self, text: str) -> None:
        self.text += text

    def _odds(self, *ways: str) -> str:
        return self.chance.choice(ways)

    def _between(self) -> None:
        """What may stand between two lines."""
        for _ in range(self.chance.randrange(3)):
            self._put(self._odds("\n", "# x = [1,\n", '  # """\n', "\t\n"))

    def _end(self) -> None:
        self._put(self._odds("\n", "  \n", " # '''\n", "\r\n"))

    def _key(self, key: str) -> str:
        if re.fullmatch(r"[A-Za-z0-9_-]+", key) and self._odds("bare", "quoted") == "bare":
            return key
        if not re.search(r"['\x00-\x1f\x7f]", key) and self._odds("basic", "literal") == "literal":
            return f"'{key}'"
        return basic(key)

    def _table(self, at: At, keys: list[str], table: dict[str, Any]) -> None:
        later: list[tuple[str, Any]] = []
        for key, value in table.items():
            headed = isinstance(value, dict) or (
                isinstance(value, list) and value and all(isinstance(v, dict) for v in value)
            )
            if headed and self._odds("header", "inline") == "header":
                later.append((key, value))
            else:
                self._pair(at, key, value)
        for key, value in later:
            several = isinstance(value, list)
            for n, entry in enumerate(value if several else [value]):
                self._between()
                for depth in range(len(at) + 2):
                    self._note((*at, key)[:depth] if depth else ())
                here = (*at, key, n) if several else (*at, key)
                self._note(here)
                name = ".".join([*keys, self._key(key)])
                self._put(f"[[ {name} ]]" if several else f"[{name}]")
                self._end()
                self._table(here, [*keys, self._key(key)], entry)

    def _pair(self, at: At, key: str, value: Any) -> None:
        self._between()
        self._put(self._odds("", "  "))
        if isinstance(value, dict) and value and self._odds("dotted", "inline") == "dotted":
            for inner, part in value.items():
                self._note((*at, key))
                self._note((*at, key, inner))
                self._put(f"{self._key(key)} . {self._key(inner)} = ")
                self._value((*at, key, inner), part)
                self._end()
            return
        self._note((*at, key))
        self._put(f"{self._key(key)}{self._odds(' = ', '=')}")
        self._value((*at, key), value)
        self._end()

    def _value(self, at: At, value: Any) -> None:
        match value:
            case dict():
                self._put("{")
                for n, (key, part) in enumerate(value.items()):
                    self._put(", " if n else " ")
                    self._note((*at, key))
                    self._put(f"{self._key(key)} = ")
                    self._value((*at, key), part)
                self._put(" }")
            case list():
                self._put("[")
                for n, part in enumerate(value):
                    self._put(self._odds("", " ", "\n", "\n  # ] }\n"))
                    self._note((*at, n))
                    self._value((*at, n), part)
                    self._put(self._odds(",", " ,", "\n,") if n < len(value) - 1 else self._odds("", ",", "\n"))
                self._put("]")
            case str():
                self._put(self._string(value))
            case bool():
                self._put("true" if value else "false")
            case dt.datetime():
                self._put(value.isoformat(self._odds(" ", "T")))
            case dt.date():
                self._put(value.isoformat())
            case _:
                self._put(repr(value))

    def _string(self, text: str) -> str:
        lines = not re.search(r"[\x00-\x08\x0b-\x1f\x7f]", text)
        ways = ["basic"]
        if lines and "\n" not in text and "'" not in text:
            ways.append("literal")
        if lines and "'''" not in text:
            ways.append("literals")
        match self._odds(*ways, "basics"):
            case "literal":
                return f"'{text}'"
            case "literals":
                return f"'''\n{text}'''"
            case "basics":
                return f'"""\n{several(text)}"""'
            case _:
                return basic(text)


def basic(text: str) -> str:
    """A text in quotes, as JSON writes it; TOML wants one more character escaped."""
    return json.dumps(text, ensure_ascii=False).replace("\x7f", "\\u007f")


def several(text: str) -> str:
    """The inside of a text over several lines: line ends as they are, and quotes where there are not three in a row."""
    inside = re.sub(r"\\\\|\\n", lambda found: "\n" if found.group() == "\\n" else found.group(), basic(text)[1:-1])
    return (
        inside
        if '"""' in text
        else re.sub(r'\\\\|\\"', lambda found: found.group()[-1] if found.group() == '\\"' else found.group(), inside)
    )


class Json:
    """Writes one document, its parts wherever they fall."""

    def __init__(self, document: Any, chance: random.Random) -> None:
        self.text = ""
        self.lines: dict[At, int] = {}
        self.chance = chance
        self._value((), document)

    def _space(self) -> None:
        self.text += self.chance.choice(["", " ", "\n", "\n\n", "\t", "\r\n"])

    def _value(self, at: At, value: Any) -> None:
        self._space()
        self.lines.setdefault(at, self.text.count("\n") + 1)
        match value:
            case dict() | list():
                parts = list(value.items()) if isinstance(value, dict) else list(enumerate(value))
                self.text += "{" if isinstance(value, dict) else "["
                for n, (key, part) in enumerate(parts):
                    self.text += "," if n else ""
                    if isinstance(value, dict):
                        self._space()
                        self.lines.setdefault((*at, key), self.text.count("\n") + 1)
                        self.text += json.dumps(key, ensure_ascii=self.chance.random() < 0.5)
                        self._space()
                        self.text += ":"
                    self._value((*at, key), part)
                    self._space()
                self.text += "}" if isinstance(value, dict) else "]"
            case _:
                self.text += json.dumps(value)
