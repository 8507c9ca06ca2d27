"""The edge of values: what an author gives is judged here, once, before anything begins (law 00.5).

A value becomes compact JSON text, or is refused with the path of what is wrong with it. A stored text becomes a value
of the type the code declares (decoding.py). The error path, at the end, takes anything and never fails. No I/O here.
"""

from __future__ import annotations

import dataclasses
import datetime as dt
import decimal
import enum
import inspect
import math
import unicodedata
import uuid
from collections.abc import Callable, Iterable, Mapping
from functools import lru_cache
from typing import Any, Final, cast

import msgspec

from fencepost.decoding import Undecodable, check_type, decode, is_model, takes_both_names
from fencepost.limits import ERROR_BYTES, NAME_CHARS, PAYLOAD_BYTES
from fencepost.shown import At, clip, path, said, shown, type_name

__all__ = [
    "Undecodable",
    "Unstorable",
    "check_name",
    "check_type",
    "decode",
    "describe_error",
    "encode",
    "encode_error",
    "sorted_text",
    "unstorable_result",
]

# pydantic's parser of JSON ends at 200 levels, PostgreSQL's at the end of its stack.
DEPTH_MAX: Final = 128
# Longer integers would be written and not read back (found by trying: 320 digits are read, 400 are not).
INTEGER_DIGITS_MAX: Final = 300

_INTEGER_END: Final = 10**INTEGER_DIGITS_MAX
_JSON: Final = frozenset({str, int, float, bool, type(None), list, dict})
_LEAVES: Final = _JSON - {list, dict}
_NUMBERS: Final = frozenset({int, float})
_TEXT: Final = frozenset({str})
_NUL: Final = b"\\u0000"
_MASKED: Final = "*" * 10  # what pydantic writes for a secret

_class_of: Callable[[object], Any] = cast("Any", type)
_encode: Final = msgspec.json.Encoder().encode
_CONSTANTS: Final[dict[object, str]] = {None: "null", True: "true", False: "false"}
_encode_sorted: Final = msgspec.json.Encoder(order="sorted").encode


class Unstorable(Exception):
    """The value cannot be kept as JSON; nothing has begun. `path` is of the offending part: `$.rows[3].name`."""

    def __init__(self, path: str, problem: str) -> None:
        super().__init__(path, problem)
        self.path = path
        self.problem = problem

    def __str__(self) -> str:
        return f"The value at {self.path} cannot be stored: {self.problem}."


# From a value to its text


def encode(value: object, *, limit: int = PAYLOAD_BYTES) -> str:
    """The text that is kept for `value` (law 50.1): compact JSON, from which `decode` gives the same value again.

    Models, dataclasses, Structs and attrs classes become objects by the names of their fields; tuples and sets become
    arrays, a set in a fixed order; enums their values; datetime, date, time, timedelta, UUID and Decimal texts.

    Units     `limit` in bytes of UTF-8.
    Raises    Unstorable (law 00.5).
    """
    if value is None or value is True or value is False:
        return _CONSTANTS[value]
    try:
        if _is_plain(value, DEPTH_MAX):
            text = _encode(value)
            if _NUL not in text and len(text) <= limit:
                return text.decode()
    except (UnicodeEncodeError, RecursionError):
        pass  # judged again below, where the path is known
    try:
        text = _encode(_judged(value, None, DEPTH_MAX))
    except RecursionError:
        raise Unstorable("$", "it is nested deeper than what is left of the stack") from None
    if len(text) > limit:
        raise Unstorable("$", f"it is {len(text):,} bytes of JSON, and the limit is {limit:,} bytes")
    return text.decode()


def _is_plain(value: Any, deep: int) -> bool:
    """Whether the value holds nothing but JSON's own types and finite numbers. What is in its texts, encoding tells.

    Most values are plain, and a set of types is made in C: it costs a fraction of looking at every part.
    """
    kind = _class_of(value)
    if kind is dict:
        if not _TEXT.issuperset(map(type, value)):
            return False
        parts = value.values()
    elif kind is list:
        parts = value
    elif kind in _NUMBERS:
        parts = (value,)
    else:
        return kind in _LEAVES
    kinds = set(map(type, parts))
    if deep <= 0 or not kinds <= _JSON:
        return False
    if not kinds.isdisjoint(_NUMBERS):
        for part in parts:
            if type(part) is int:
                if not -_INTEGER_END < part < _INTEGER_END:
                    return False
            elif type(part) is float and not math.isfinite(part):
                return False
    if kinds <= _LEAVES:
        return True
    return all([_is_plain(part, deep - 1) for part in parts if type(part) is dict or type(part) is list])  # noqa: C419 - a list is quicker


def _judged(value: Any, at: At, deep: int) -> Any:
    """The same value in JSON's own types, every part of it looked at, or Unstorable."""
    if type(value) is str and value.isascii() and "\0" not in value:
        return value
    if isinstance(value, enum.Enum):
        if type(value.value) not in {str, int}:
            raise _refused(at, f"the members of {type_name(value)} are neither texts nor integers")
        value = value.value
    if value is None or isinstance(value, bool):
        return value
    if isinstance(value, str):
        return _judged_text(value, at, "text")
    if isinstance(value, int):
        if not -_INTEGER_END < value < _INTEGER_END:
            raise _refused(at, f"the integer has more than {INTEGER_DIGITS_MAX} digits: give it as text")
        return int.__index__(value)
    if isinstance(value, float):
        if not math.isfinite(value):
            raise _refused(at, f"{float.__repr__(value)} is no number in JSON")
        return float.__float__(value)
    if isinstance(value, dt.date | dt.time | dt.timedelta | uuid.UUID | decimal.Decimal):
        return _judged_scalar(value, at)
    if deep <= 0:
        raise _refused(at, f"it is nested deeper than {DEPTH_MAX} levels, or contains itself")
    if is_model(_class_of(value)):
        return _judged(_dumped(value, at), at, deep - 1)
    inside = _opened(value, at)
    if isinstance(inside, dict):
        return {_judged_key(key, at): _judged(part, (at, key), deep - 1) for key, part in inside.items()}
    parts = [_judged(part, (at, index), deep - 1) for index, part in enumerate(inside)]
    # A set has another order in every process; its text, and so the hash of a step's arguments, has one.
    return sorted(parts, key=_encode_sorted) if isinstance(value, set | frozenset) else parts


def _judged_text(text: str, at: At, what: str) -> str:
    text = str.__str__(text)
    if (index := text.find("\0")) >= 0:
        raise _refused(at, f"the {what} contains a NUL character (index {index})")
    try:
        text.encode()
    except UnicodeEncodeError as error:
        raise _refused(at, f"the {what} contains a lone surrogate (index {error.start})") from None
    return text


def _judged_key(key: object, at: At) -> str:
    if not isinstance(key, str):
        raise _refused((at, shown(key, 40)), f"the key is of type {type_name(key)}, and keys in JSON are text")
    return _judged_text(key.value if isinstance(key, enum.Enum) else key, (at, key), "key")


def _judged_scalar(value: Any, at: At) -> str:
    """The text of a value that msgspec writes as text, if reading it gives the same value again."""
    if isinstance(value, uuid.UUID):
        return uuid.UUID.__str__(value)
    if isinstance(value, decimal.Decimal):
        if not value.is_finite():
            raise _refused(at, f"Decimal {value} is no number")
        return decimal.Decimal.__str__(value)
    kind = next(kind for kind in (dt.datetime, dt.date, dt.time, dt.timedelta) if isinstance(value, kind))
    try:
        text: str = msgspec.to_builtins(value)
        same = _is_same(msgspec.convert(text, kind), value)
    except (TypeError, ValueError, OverflowError):
        same, text = False, ""
    if not same:
        raise _refused(at, f"{type_name(value)} {shown(value, 80)} has no JSON text that gives it again exactly")
    return text


def _is_same(back: Any, given: Any) -> bool:
    if isinstance(given, dt.datetime | dt.time):
        # In the hour by which a clock is set back, Python calls instants of different zones unequal.
        wall = back.replace(tzinfo=None) == given.replace(tzinfo=None, fold=0)
        zones = (back.tzinfo is None) == (given.tzinfo is None)
        return bool(wall and zones and back.utcoffset() == given.utcoffset())
    return bool(back == given)


# Objects: here code of the author may run


def _dumped(model: Any, at: At) -> Any:
    """What the model dumps, in a form that it reads again."""
    options = {"by_alias": False, "warnings": "error"} if takes_both_names(_class_of(model)) else {"by_alias": True}
    try:
        inside = model.model_dump(mode="json", round_trip=True, **options)
    except Exception as error:
        raise _unreadable(model, at, error) from error
    if _MASKED in str(inside) and (hidden := _masked_secret(model, inside, at)) is not None:
        raise _refused(hidden, "it is a secret, and its model writes only asterisks: give the name of where it is kept")
    return inside


def _masked_secret(value: Any, dumped: Any, at: At) -> At:
    """Where asterisks stand for a secret: they would be read back as the secret."""
    cls = _class_of(value)
    if hasattr(cls, "get_secret_value"):
        return at if dumped == _MASKED else None
    if issubclass(cls, list | tuple):
        parts: Iterable[tuple[Any, Any]] = enumerate(cast("list[Any]", value))
    else:
        parts = (value if issubclass(cls, dict) else getattr(value, "__dict__", {})).items()
    for key, part in parts:
        try:
            below = dumped[key]
        except (LookupError, TypeError):
            continue
        if (found := _masked_secret(part, below, (at, key))) is not None:
            return found
    return None


def _opened(value: Any, at: At) -> dict[Any, Any] | list[Any]:
    """What a container or an object holds: parts by key, or parts in order."""
    cls = _class_of(value)
    if issubclass(cls, dict):
        return cast("dict[Any, Any]", value)
    if issubclass(cls, list | tuple | set | frozenset):
        return list(value)
    try:
        if (layout := _layout(cls)) is not None:
            found = {key: part for key, name in layout if (part := getattr(value, name)) is not msgspec.UNSET}
            return found if not issubclass(cls, msgspec.Struct) else _as_struct(cls, found)
    except Exception as error:
        raise _unreadable(value, at, error) from error
    raise _refused(at, f"{type_name(value)} is not a type of JSON{_advice(value)}")


@lru_cache(maxsize=1024)
def _layout(cls: Any) -> tuple[tuple[str, str], ...] | None:
    """The fields of an object: the key under which each is kept, and its name."""
    if issubclass(cls, msgspec.Struct):
        return tuple(zip(cls.__struct_encode_fields__, cls.__struct_fields__, strict=True))
    fields: Iterable[Any] = getattr(cls, "__attrs_attrs__", ())
    if dataclasses.is_dataclass(cls):
        fields = dataclasses.fields(cls)
    elif not hasattr(cls, "__attrs_attrs__"):
        return None
    return tuple((field.name, field.name) for field in fields)


def _as_struct(cls: Any, found: dict[str, Any]) -> dict[Any, Any] | list[Any]:
    config: msgspec.structs.StructConfig = cls.__struct_config__
    if config.array_like:
        return [*([] if config.tag is None else [config.tag]), *found.values()]
    return found if config.tag is None else {config.tag_field: config.tag, **found}


def _advice(value: object) -> str:
    if isinstance(value, bytes | bytearray | memoryview):
        return ": give text, for example base64"
    if inspect.isawaitable(value):
        return ": an `await` is missing"
    if hasattr(value, "__fspath__"):
        return ": give str(path)"
    return ""


# Names and keys


def check_name(name: str, what: str) -> str:
    """The name itself, if an id or a name may be so (law 30.6): 1 to 200 characters, not blank, no control characters.

    Raises    ValueError saying what is wrong with which name.
    """
    if not isinstance(cast("object", name), str):
        raise ValueError(f"{what} is of type {type_name(name)}: give text")  # noqa: TRY004 - one kind of refusal for names
    if not name.strip():
        raise ValueError(f"{what} is blank: give 1 to {NAME_CHARS} characters")
    if len(name) > NAME_CHARS:
        raise ValueError(f"{what} has {len(name):,} characters, and {NAME_CHARS} is the limit: {shown(name, 40)}")
    # The database refuses the same ones (good_names_), and a lone surrogate cannot even be sent there.
    if not name.isprintable():
        for index, char in enumerate(name):
            if unicodedata.category(char) in {"Cc", "Cs", "Zl", "Zp"}:
                raise ValueError(
                    f"{what} contains the control character U+{ord(char):04X} (index {index}): {shown(name, 40)}"
                )
    return name


def sorted_text(value: object) -> bytes | None:
    """The value's text with every object's keys in order, where `encode` would give it as it stands; None: ask `encode`."""
    try:
        if _is_plain(value, DEPTH_MAX):
            text = _encode_sorted(value)
            if _NUL not in text and len(text) <= PAYLOAD_BYTES:
                return text
    except (UnicodeEncodeError, RecursionError):
        pass
    return None


def _refused(at: At, problem: str) -> Unstorable:
    return Unstorable(path(at), problem)


def _unreadable(value: object, at: At, error: Exception) -> Unstorable:
    return _refused(
        at, f"{type_name(value)} could not be read ({type_name(error)}: {clip(' '.join(said(error).split()), 500)})"
    )


# The error path: it takes anything and never fails


def describe_error(error: BaseException, code: str) -> dict[str, str]:
    """What is kept of an error: `code`, `message`, `type` (the name of its class). As JSON within ERROR_BYTES."""
    return {
        "code": clip(code, 200),
        "message": clip(said(error), ERROR_BYTES - 1000),
        "type": type_name(error),
    }


def encode_error(doc: Mapping[str, Any]) -> str:
    """The JSON text of an error's document, at most ERROR_BYTES.

    A document that does not fit, or holds what is not JSON, is brought down to `code`, `message`, `type` and `cut`.
    """
    try:
        return encode(dict(doc), limit=ERROR_BYTES)
    except BaseException:  # whatever its methods raise, there is a text
        found = {
            word: clip(_part_said(doc, word), size)
            for word, size in (("code", 200), ("message", 12_000), ("type", 200))
        }
        return _encode({**found, "cut": True}).decode()


def _part_said(doc: Mapping[str, Any], word: str) -> str:
    try:
        return said(doc[word])
    except BaseException:
        return ""


def unstorable_result(error: Unstorable, value: object) -> str:
    """The text of the typed failure that stands for a result or an error that cannot be kept (law 00.5)."""
    message = f"{said(error)} It was a value of type {type_name(value)}: {shown(value, 1000)}"
    return encode_error({"code": "UNSTORABLE_RESULT", "message": message, "type": "Unstorable", "path": error.path})
