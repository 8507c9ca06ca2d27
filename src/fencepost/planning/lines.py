"""Where in a text its values stand: the line of every table, key and entry. Python's readers of TOML and JSON do not say.

The text has been read before by one of those, so what is met here is well-formed; a scan only has to know where things end.
It is made when a plan has faults, and only then.
"""

from __future__ import annotations

import json
import re
import tomllib
from bisect import bisect_right
from dataclasses import dataclass, field
from typing import Final

from fencepost.planning.faults import At

# TOML

_BLANK: Final = re.compile(r"[ \t]*")
_BETWEEN: Final = re.compile(r"(?:[ \t\r\n]+|#[^\n]*)*")
_BARE_KEY: Final = re.compile(r"[A-Za-z0-9_-]+")
_TEXTS: Final = (
    # Up to two more quotes belong to the text before the three that end it.
    re.compile(r'"""(?:[^\\"]|\\.|"(?!""))*"{3,5}', re.DOTALL),
    re.compile(r"'''(?:[^']|'(?!''))*'{3,5}", re.DOTALL),
    re.compile(r'"(?:[^"\\\n]|\\.)*"'),
    re.compile(r"'[^'\n]*'"),
)
_PLAIN: Final = re.compile(r"[^,\]}#\n]+")

# JSON

_SPACE: Final = re.compile(r"[ \t\r\n]*")
_JSON_TEXT: Final = re.compile(r'"(?:[^"\\]|\\.)*"')
_JSON_PLAIN: Final = re.compile(r"[^,\]}\s]+")


@dataclass(slots=True)
class Lines:
    """Place -> line, from 1. `twice`: keys that an object of JSON has more than once, which is no fault to its reader."""

    text: str
    found: dict[At, int] = field(default_factory=dict[At, int])
    twice: list[tuple[At, int]] = field(default_factory=list[tuple[At, int]])
    _ends: list[int] = field(default_factory=list[int])

    def __post_init__(self) -> None:
        self._ends = [found.start() for found in re.finditer("\n", self.text)]

    def at(self, position: int) -> int:
        """The line of a position in the text."""
        return bisect_right(self._ends, position - 1) + 1

    def note(self, at: At, position: int) -> None:
        """A place begins here; what was noted first stays."""
        if at not in self.found:
            self.found[at] = self.at(position)

    def line(self, at: At) -> int:
        """The line of a place, or of the nearest around it; of the document itself the first."""
        while at:
            if (line := self.found.get(at)) is not None:
                return line
            at = at[:-1]
        return 1


def of_toml(text: str) -> Lines:
    """The lines of a document that `tomllib.loads` has read."""
    scan = _Toml(Lines(text.replace("\r\n", "\n")))
    scan.document()
    return scan.lines


def of_json(text: str) -> Lines:
    """The lines of a document that `json.loads` has read."""
    scan = _Json(Lines(text))
    scan.value((), 0)
    return scan.lines


@dataclass(slots=True)
class _Toml:
    lines: Lines
    entries: dict[At, int] = field(default_factory=dict[At, int])  # of each array of tables: the index of its last one

    def document(self) -> None:
        text, here = self.lines.text, At()
        position = self._between(0)
        while position < len(text):
            if text[position] == "[":
                here, position = self._header(position)
            else:
                position = self._pair(here, position)
            position = self._between(position)

    def _between(self, position: int) -> int:
        return _match(_BETWEEN, self.lines.text, position)

    def _blank(self, position: int) -> int:
        return _match(_BLANK, self.lines.text, position)

    def _header(self, start: int) -> tuple[At, int]:
        several = self.lines.text.startswith("[[", start)
        keys, position = self._key(start + 1 + several)
        at: At = ()
        for key in keys[:-1]:
            at = self._last((*at, key))
            self.lines.note(at, start)
        at = (*at, keys[-1])
        self.lines.note(at, start)
        if several:
            self.entries[at] = self.entries.get(at, -1) + 1
        at = self._last(at)
        self.lines.note(at, start)
        return at, position + 1 + several

    def _last(self, at: At) -> At:
        """An array of tables means its last one, wherever it is named."""
        return (*at, self.entries[at]) if at in self.entries else at

    def _key(self, position: int) -> tuple[list[str], int]:
        """A key, dotted or not, and where it ends."""
        keys: list[str] = []
        while True:
            position = self._blank(position)
            bare = _BARE_KEY.match(self.lines.text, position)
            if bare is not None:
                keys.append(bare.group())
                position = bare.end()
            else:
                end = self._text(position)
                keys.append(tomllib.loads(f"k = {self.lines.text[position:end]}")["k"])
                position = end
            position = self._blank(position)
            if not self.lines.text.startswith(".", position):
                return keys, position
            position += 1

    def _pair(self, here: At, start: int) -> int:
        keys, position = self._key(start)
        for key in keys:
            here = (*here, key)
            self.lines.note(here, start)
        return self._value(here, self._blank(position + 1))

    def _value(self, at: At, position: int) -> int:
        match self.lines.text[position]:
            case "[":
                return self._entries(at, position)
            case "{":
                return self._inline(at, position)
            case '"' | "'":
                return self._text(position)
            case _:
                return _match(_PLAIN, self.lines.text, position)

    def _entries(self, at: At, position: int) -> int:
        text, n = self.lines.text, 0
        position = self._between(position + 1)
        while text[position] != "]":
            self.lines.note((*at, n), position)
            position = self._between(self._value((*at, n), position))
            n += 1
            if text[position] == ",":
                position = self._between(position + 1)
        return position + 1

    def _inline(self, at: At, position: int) -> int:
        text = self.lines.text
        position = self._between(position + 1)
        while text[position] != "}":
            position = self._between(self._pair(at, position))
            if text[position] == ",":
                position = self._between(position + 1)
        return position + 1

    def _text(self, position: int) -> int:
        for form in _TEXTS:
            found = form.match(self.lines.text, position)
            if found is not None:
                return found.end()
        raise ValueError(f"no text at {position}")


@dataclass(slots=True)
class _Json:
    lines: Lines

    def value(self, at: At, position: int) -> int:
        """Past the value that begins at the position."""
        text = self.lines.text
        position = _match(_SPACE, text, position)
        self.lines.note(at, position)
        match text[position]:
            case "{":
                return self._object(at, position)
            case "[":
                return self._list(at, position)
            case '"':
                return _match(_JSON_TEXT, text, position)
            case _:
                return _match(_JSON_PLAIN, text, position)

    def _object(self, at: At, position: int) -> int:
        text, seen = self.lines.text, set[str]()
        position = _match(_SPACE, text, position + 1)
        while text[position] != "}":
            end = _match(_JSON_TEXT, text, position)
            key = json.loads(text[position:end], strict=False)
            if key in seen:
                self.lines.twice.append(((*at, key), self.lines.at(position)))
            seen.add(key)
            self.lines.note((*at, key), position)
            colon = _match(_SPACE, text, end)
            position = _match(_SPACE, text, self.value((*at, key), colon + 1))
            if text[position] == ",":
                position = _match(_SPACE, text, position + 1)
        return position + 1

    def _list(self, at: At, position: int) -> int:
        text, n = self.lines.text, 0
        position = _match(_SPACE, text, position + 1)
        while text[position] != "]":
            position = _match(_SPACE, text, self.value((*at, n), position))
            n += 1
            if text[position] == ",":
                position = _match(_SPACE, text, position + 1)
        return position + 1


def _match(form: re.Pattern[str], text: str, position: int) -> int:
    found = form.match(text, position)
    if found is None:
        raise ValueError(f"the text at {position} is not what its reader saw there")
    return found.end()
