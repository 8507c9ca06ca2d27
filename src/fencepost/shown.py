"""Words about any value whatever: bounded, printable, and never failing, whatever its methods do (law 00.5).

They serve messages and the error path. Nothing that is kept is made here.
"""

from __future__ import annotations

import json
import reprlib
from collections.abc import Callable
from typing import Any, Final, cast

import msgspec

_PATH_CHARS_MAX: Final = 500
_KEY_CHARS_MAX: Final = 60
_INNER_ERRORS_MAX: Final = 5

# Where in a value: None is the root, else (where that holds it, its key or index).
At = tuple[Any, object] | None


def path(at: At) -> str:
    """`$.rows[3].name`; a key that is no plain word stands in brackets, its odd characters escaped."""
    steps: list[str] = []
    while at is not None:
        at, step = at
        if isinstance(step, int):
            steps.append(f"[{step}]")
        elif not isinstance(step, str):
            steps.append(f"[{shown(step, 80)}]")
        elif step.isascii() and step.isidentifier() and len(step) <= _KEY_CHARS_MAX:
            steps.append(f".{step}")
        else:
            steps.append(f"[{json.dumps(str.__getitem__(step, slice(_KEY_CHARS_MAX)))}]")
    found = "$" + "".join(reversed(steps))
    return found if len(found) <= _PATH_CHARS_MAX else f"{found[:_PATH_CHARS_MAX]}…"


def type_name(of: object) -> str:
    """The name of the class of `of`."""
    try:
        return clip(type(of).__name__, 200)
    except BaseException:  # a metaclass may say anything
        return "?"


def said(of: object) -> str:
    """What str() gives; of a group of errors also what those inside say."""
    text = _asked(str, of)
    if isinstance(of, BaseExceptionGroup):
        inner: tuple[BaseException, ...] = cast("Any", BaseExceptionGroup).exceptions.__get__(of)
        told = [f"{type_name(error)}: {clip(_asked(str, error), 1000)}" for error in inner[:_INNER_ERRORS_MAX]]
        text = f"{text}: {'; '.join(told)}"
    return text


def shown(of: object, chars: int = 200) -> str:
    """The repr of the value, or its beginning."""
    return clip(_asked(_short.repr, of), chars)


def clip(text: str, limit: int) -> str:
    """The text, NUL and lone surrogates escaped, cut so that as JSON it takes at most `limit` bytes (at least 80)."""
    total = len(text)
    clear = _visible(str.__getitem__(text, slice(limit)))
    if total <= limit and _size(clear) <= limit:
        return clear
    mark = f" … (cut: {total:,} characters in all)"
    room = max(0, limit - len(mark) - 2)  # the ellipsis takes three bytes
    while (size := _size(clear)) > room:
        clear = clear[: min(len(clear) - 1, len(clear) * room // size)]
    return clear + mark


def _visible(text: str) -> str:
    return text.replace("\0", "\\u0000").encode("utf-8", "backslashreplace").decode()


def _size(text: str) -> int:
    return len(msgspec.json.encode(text)) - 2


def _asked(how: Callable[[Any], str], of: object) -> str:
    try:
        text = how(of)
        return str.__getitem__(text, slice(len(text)))
    except BaseException as error:  # a hostile __str__ may raise even SystemExit
        return f"<a {type_name(of)} that cannot be shown: {type_name(error)}>"


class _Short(reprlib.Repr):
    """Long values are cut before they are written out, not after."""

    def __init__(self) -> None:
        super().__init__()
        self.maxstring = self.maxother = 200
        self.maxlevel = 3

    def repr1(self, x: Any, level: int) -> str:
        # Each part by itself: a hostile one does not hide the others.
        return _asked(lambda part: super(_Short, self).repr1(part, level), x)

    def repr_bytes(self, value: bytes, level: int) -> str:  # noqa: ARG002 - reprlib asks with it
        return repr(bytes(value[:60])) + ("…" if len(value) > 60 else "")

    repr_bytearray = repr_bytes


_short: Final = _Short()
