"""Laws 00.16, 50.1 and 50.4: what is kept is what is given back. fencepost.values alone, no database."""

from __future__ import annotations

import dataclasses
import datetime as dt
import decimal
import enum
import json
import math
import os
import subprocess
import sys
import uuid
import zoneinfo
from typing import Any, Literal, NamedTuple, TypedDict

import msgspec
import pydantic
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from fencepost.values import Undecodable, check_type, decode, encode

NOON = dt.datetime.fromisoformat("2026-01-01T12:00")


class Colour(enum.StrEnum):
    RED = "red"
    BLUE = "blue"


class Level(enum.IntEnum):
    LOW = 1


class Shape(enum.Enum):
    DOT = "dot"


class Point(TypedDict):
    x: float
    y: float


class Pair(NamedTuple):
    left: str
    right: int


@dataclasses.dataclass
class Sheet:
    path: str
    limit: int | None = None
    _private: int = 3


class Strip(msgspec.Struct, rename="camel", tag="strip"):
    run_way: str
    length_ft: float = 0.0


class Row(msgspec.Struct, array_like=True, tag=7):
    key: str
    more: list[int]


class Verdict(pydantic.BaseModel):
    ok: bool
    note: str = ""


class Review(pydantic.BaseModel, extra="forbid"):
    verdicts: list[Verdict]
    at: dt.datetime | None = None
    by: str = pydantic.Field("", alias="reviewed-by")

    @pydantic.computed_field  # type: ignore[prop-decorator]  # mypy does not take a property here
    @property
    def count(self) -> int:
        return len(self.verdicts)


class Strict(pydantic.BaseModel, strict=True, extra="forbid"):
    at: dt.datetime
    who: uuid.UUID


class Root(pydantic.RootModel[list[int]]):
    pass


@pydantic.dataclasses.dataclass
class Checked:
    size: int = pydantic.Field(gt=0)


@dataclasses.dataclass
class Holder:
    child: Any


def json_values(leaves: st.SearchStrategy[Any]) -> st.SearchStrategy[Any]:
    return st.recursive(
        leaves,
        lambda inner: st.lists(inner, max_size=5) | st.dictionaries(texts, inner, max_size=5),
        max_leaves=30,
    )


# Text that may be kept: neither NUL nor surrogates, and all that looks like them.
texts = st.text(st.characters(exclude_categories=["Cs"], exclude_characters="\0"), max_size=20) | st.sampled_from(
    [
        "\\u0000",
        "\\ud800",
        "\\",
        '"',
        "\x01\x1f\x7f\x85",
        "\u2028",
        "\ufeff",
        "\uffff",
        "null",
        "NaN",
        "𝄞",
        "**********",
    ]
)
leaves = (
    st.none()
    | st.booleans()
    | st.integers(-(10**300) + 1, 10**300 - 1)
    | st.floats(allow_nan=False, allow_infinity=False)
    | texts
)


def same(a: Any, b: Any) -> bool:
    """Equal, and of equal types all the way down (1, 1.0 and True are equal, and not the same)."""
    if type(a) is not type(b):
        return False
    if isinstance(a, dict):
        return list(a) == list(b) and all(same(a[key], b[key]) for key in a)
    if isinstance(a, list):
        return len(a) == len(b) and all(map(same, a, b))
    return bool(a == b) and (a != 0 or not isinstance(a, float) or math.copysign(1, a) == math.copysign(1, b))


@given(json_values(leaves))
@example({"\\u0000": "\\\\u0000"})
@example([None, 0, False, "", [], {}])
def test_what_is_kept_is_what_is_given_back(value: Any) -> None:
    """50.1 A value of JSON's types is read from its text as it was, key order and number types too."""
    text = encode(value)
    assert same(decode(text, Any), value)
    assert encode(decode(text, Any)) == text, "the text never changes"
    assert same(json.loads(text), value), "and any other reader of JSON reads the same"


@pytest.mark.parametrize(
    ("value", "type_"),
    [
        (Sheet("a.csv", 3), Sheet),
        (Sheet("a.csv", None, 9), Sheet),
        ([Sheet("a"), Sheet("b")], list[Sheet]),
        (Strip("09L", 1.5), Strip),
        (Row("a", [1, 2]), Row),
        ({"x": 1.0, "y": 2.0}, Point),
        (Pair("a", 1), Pair),
        ((1, "a", None), tuple[int, str, None]),
        ({3, 1, 2}, set[int]),
        (frozenset({"b", "a"}), frozenset[str]),
        (Colour.RED, Colour),
        ({Colour.RED: Level.LOW}, dict[Colour, Level]),
        (Shape.DOT, Shape),
        (dt.datetime(2026, 11, 29, 1, 2, 3, 4, tzinfo=dt.UTC), dt.datetime),
        (dt.datetime.fromisoformat("2026-11-29"), dt.datetime),
        (dt.datetime(2026, 10, 25, 2, fold=1, tzinfo=zoneinfo.ZoneInfo("Europe/Paris")), dt.datetime),
        (dt.date(2026, 11, 29), dt.date),
        (dt.time(1, 2, 3, 4), dt.time),
        (dt.timedelta(days=-3, microseconds=1), dt.timedelta),
        (dt.timedelta.max, dt.timedelta),
        (dt.timedelta.min, dt.timedelta),
        (dt.datetime.max.replace(tzinfo=dt.timezone(dt.timedelta(hours=-14))), dt.datetime),
        (dt.datetime.fromisoformat("0001-01-01"), dt.datetime),
        (uuid.UUID(int=5), uuid.UUID),
        (decimal.Decimal("1.10"), decimal.Decimal),
        (Verdict(ok=True), Verdict),
        ([Verdict(ok=True), Verdict(ok=False, note="no")], list[Verdict]),
        ({"a": Verdict(ok=True)}, dict[str, Verdict]),
        (None, Verdict | None),
        (Verdict(ok=True), Verdict | None),
        (Verdict(ok=True), Verdict | str),
        ("a", Verdict | str),
        ([Review(verdicts=[]), Verdict(ok=True)], list[Review | Verdict]),
        (Review(verdicts=[Verdict(ok=True)], at=NOON, **{"reviewed-by": "x"}), Review),
        ([Review(verdicts=[Verdict(ok=True)], **{"reviewed-by": "x"})], list[Review]),
        (Strict(at=NOON, who=uuid.UUID(int=1)), Strict),
        ([Strict(at=NOON, who=uuid.UUID(int=1))], list[Strict]),
        (Root([1, 2]), Root),
        ([Root([1])], list[Root]),
        (Checked(3), Checked),
        (Holder(Verdict(ok=True)), Holder),
        ("red", Literal["red", "blue"]),
        ([{"a": [1]}], list[object]),
    ],
    ids=lambda case: type(case).__name__,  # not what it holds: a set's order is another in each process
)
def test_typed_values_come_back_as_themselves(value: Any, type_: Any) -> None:
    """50.1 Each kind of value an author may declare is given back as that type, equal to what was kept."""
    found = decode(encode(value), type_)
    if isinstance(value, Holder):
        assert found == Holder({"ok": True, "note": ""})  # declared Any: plain data (00.6)
    elif isinstance(value, dt.datetime) and value.tzinfo is not None:
        assert found.utcoffset() == value.utcoffset()
        assert found.replace(tzinfo=None) == value.replace(tzinfo=None, fold=0)
    else:
        assert found == value
        assert type(found) is type(value)
    check_type(type_)


def test_subclasses_of_json_types_are_kept_as_json_types() -> None:
    """50.1 A str, int or float of another library is kept as what it is in JSON."""

    class Text(str):
        __slots__ = ()

    class Number(float):
        def __repr__(self) -> str:
            return "Number"

    class Count(int):
        pass

    class Table(dict[str, Any]):
        pass

    value = Table({Text("a"): [Number(1.5), Count(3), Text("é")]})
    assert encode(value) == '{"a":[1.5,3,"é"]}'


def test_a_set_has_one_text_in_every_process() -> None:
    """50.4 The hash of a step's arguments is the same in the process that replays, whatever order a set has there."""
    code = (
        "from fencepost.values import encode; print(encode([{str(i) for i in range(50)}, {1, 'a', frozenset('xyz')}]))"
    )
    said = {
        subprocess.run(
            [sys.executable, "-c", code],
            env={**os.environ, "PYTHONHASHSEED": seed},
            capture_output=True,
            check=True,
            text=True,
        ).stdout
        for seed in ("1", "2")
    }
    assert len(said) == 1
    assert len(json.loads(said.pop())[0]) == 50


def test_no_value_null_and_text_null_are_told_apart() -> None:
    """00.16, B115 null, "null", "", [] and {} have different texts; the text of null is one, so no output is none."""
    assert [encode(value) for value in (None, "null", "", [], {}, 0, False)] == [
        "null", '"null"', '""', "[]", "{}", "0", "false",
    ]  # fmt: skip
    assert decode("null", Any) is None
    assert decode("null", None) is None
    assert decode("null", int | None) is None
    with pytest.raises(Undecodable):
        decode("null", int)
    with pytest.raises(Undecodable):
        decode("", Any)
