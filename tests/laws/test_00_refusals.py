"""Law 00.5: what cannot be kept is refused with its path before anything begins. No database."""

from __future__ import annotations

import dataclasses
import datetime as dt
import decimal
import enum
import json
import math
import pathlib
import re
import uuid
import zoneinfo
from typing import Any

import msgspec
import pydantic
import pytest
from hypothesis import given
from hypothesis import strategies as st

from fencepost.limits import PAYLOAD_BYTES
from fencepost.values import DEPTH_MAX, Unstorable, decode, encode


class Level(enum.IntEnum):
    LOW = 1


@dataclasses.dataclass
class Sheet:
    path: str


class Strip(msgspec.Struct, rename="camel", tag="strip"):
    run_way: str


class Verdict(pydantic.BaseModel):
    ok: bool
    note: str = ""


class Login(pydantic.BaseModel):
    user: str
    password: pydantic.SecretStr


class Logins(pydantic.BaseModel):
    every: list[Login]


@dataclasses.dataclass
class Holder:
    child: Any


def refused(value: object, **options: Any) -> Unstorable:
    with pytest.raises(Unstorable) as caught:
        encode(value, **options)
    return caught.value


class Opaque:
    pass


def endless() -> list[Any]:
    inner: list[Any] = []
    inner.append(inner)
    return inner


async def unawaited() -> None: ...


HOSTILE: list[tuple[Any, str]] = [
    ("a\0b", "NUL"),
    ("é\0", "NUL"),
    ("\ud800", "surrogate"),
    ("ok\udfff", "surrogate"),
    (math.nan, "nan is no number"),
    (math.inf, "inf is no number"),
    (-math.inf, "-inf is no number"),
    (decimal.Decimal("NaN"), "no number"),
    (decimal.Decimal("sNaN"), "no number"),
    (decimal.Decimal("-Infinity"), "no number"),
    (10**300, "300 digits"),
    (-(10**5000), "300 digits"),
    (b"x", "base64"),
    (bytearray(b"x"), "base64"),
    (memoryview(b"x"), "base64"),
    (len, "builtin_function_or_method is not a type of JSON"),
    (Opaque(), "Opaque is not a type of JSON"),
    (Opaque, "type is not a type of JSON"),
    (Sheet, "type is not a type of JSON"),
    (Verdict, "is not a type of JSON"),
    (1j, "complex"),
    (range(3), "range"),
    ((x for x in "ab"), "generator"),
    ({}.keys(), "dict_keys"),
    (pathlib.Path("a"), r"str\(path\)"),
    (msgspec.Raw(b"NaN"), "Raw"),
    (msgspec.UNSET, "UnsetType"),
    (ValueError("x"), "ValueError"),
    (dt.datetime(1900, 1, 1, tzinfo=dt.timezone(dt.timedelta(minutes=19, seconds=32))), "exactly"),
    (dt.time(1, tzinfo=zoneinfo.ZoneInfo("Europe/Paris")), "exactly"),
    (enum.Enum("Odd", {"A": (1, 2)}).A, "neither texts nor integers"),  # type: ignore[attr-defined]  # made here
    (Strip("\0"), "NUL"),
    (Sheet("\ud800"), "surrogate"),
    (Verdict.model_construct(ok=True, note="\0"), "NUL"),
    (Verdict.model_construct(ok=True, note="\ud800"), "surrogate"),
    (Verdict.model_construct(ok="perhaps"), "could not be read"),
    (Login(user="u", password=pydantic.SecretStr("p")), "secret"),
]
BELOW = {Strip: ".runWay", Sheet: ".path", Verdict: ".note", Login: ".password"}


def tail(value: Any, problem: str) -> str:
    return "" if isinstance(value, type) or "could not be read" in problem else BELOW.get(type(value), "")


@pytest.mark.parametrize(("value", "problem"), HOSTILE, ids=[problem for _, problem in HOSTILE])
@pytest.mark.parametrize(
    ("wrap", "where"),
    [
        (lambda v: v, "$"),
        (lambda v: [1, v], "$[1]"),
        (lambda v: {"a": {"b c": v}}, '$.a["b c"]'),
        (lambda v: ({"rows": [{}, {}, {}, {"name": v}]},), "$[0].rows[3].name"),
        (lambda v: Holder([v]), "$.child[0]"),
        (lambda v: {"x": None, "y": [Holder({"k": v})]}, "$.y[0].child.k"),
    ],
    ids=["root", "list", "dict", "rows", "dataclass", "mixed"],
)
def test_a_hostile_value_is_refused_with_its_path(value: Any, problem: str, wrap: Any, where: str) -> None:
    """00.5, B107, B109 NUL, lone surrogates, NaN, ±Infinity and what is not JSON are refused anywhere, with the path."""
    error = refused(wrap(value))
    assert error.path == where + tail(value, problem)
    assert re.search(problem, error.problem), error
    said = str(error)
    assert said.isprintable()
    assert said.startswith(f"The value at {error.path} cannot be stored: ")


def test_a_forgotten_await_is_named() -> None:
    """00.5 A coroutine is refused with the remedy."""
    coroutine = unawaited()
    assert "await" in refused({"a": coroutine}).problem
    coroutine.close()


@pytest.mark.parametrize("value", [value for value, _ in HOSTILE[:20]], ids=[problem for _, problem in HOSTILE[:20]])
def test_a_hostile_value_thirty_levels_deep_is_refused_with_its_path(value: Any) -> None:
    """00.5, B113 Depth hides nothing."""
    for level in range(30):
        value = {"k": value} if level % 3 else [value]
    assert refused(value).path == "$" + ".k.k[0]" * 10


@pytest.mark.parametrize(
    ("key", "where", "problem"),
    [
        ("a\0", r'$["a\u0000"]', "the key contains a NUL"),
        ("\ud800", r'$["\ud800"]', "the key contains a lone surrogate"),
        (1, "$.1", "the key is of type int"),
        (None, "$.None", "the key is of type NoneType"),
        (b"k", "$", "the key is of type bytes"),
        (math.nan, "$", "the key is of type float"),
        (uuid.UUID(int=0), "$", "the key is of type UUID"),
        (("a",), "$", "the key is of type tuple"),
        (Level.LOW, "$", "the key is of type Level"),
    ],
    ids=repr,
)
def test_a_hostile_key_is_refused_with_its_path(key: Any, where: str, problem: str) -> None:
    """00.5 Keys are values too: a key that is not text would come back as another one."""
    for wrapped, before in (({key: 1}, "$"), ([{"fine": 1, key: [1]}], "$[0]"), (Holder({key: (1,)}), "$.child")):
        error = refused(wrapped)
        assert error.path.startswith(before)
        assert error.path.isascii()
        assert problem in error.problem
        if "[" in where:
            assert error.path == before + where[1:]


texts = st.text(st.characters(exclude_categories=["Cs"], exclude_characters="\0"), max_size=20)
good = st.recursive(
    st.none() | st.booleans() | st.integers(-(2**70), 2**70) | st.floats(allow_nan=False, allow_infinity=False) | texts,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(texts, inner, max_size=3),
    max_leaves=10,
)
hostile_leaves = st.one_of(
    st.builds(lambda a, b: a + "\0" + b, texts, texts),
    st.builds(lambda a, b, c: a + b + c, texts, st.characters(categories=["Cs"]), texts),
    st.sampled_from([math.nan, math.inf, -math.inf, b"x", Opaque(), len, 10**300, decimal.Decimal("NaN")]),
)
steps = st.lists(st.tuples(st.sampled_from(["list", "tuple", "dict", "dataclass"]), good, texts), max_size=10)


@given(hostile_leaves, steps)
def test_whatever_surrounds_a_hostile_value_its_path_is_found(leaf: Any, around: list[tuple[str, Any, str]]) -> None:
    """00.5 Property: one bad part in any tree of good ones is refused, and the path leads to it."""
    value = leaf
    for kind, beside, key in around:
        if kind in {"list", "tuple"}:
            value = [beside, value, beside] if kind == "list" else (beside, value)
        else:
            value = {"beside" + key: beside, key: value} if kind == "dict" else Holder(value)
    found: Any = value
    for name, step in re.findall(r"\.(\w+)|\[(\d+|\"(?:[^\"\\]|\\.)*\")\]", refused(value).path):
        key = name or json.loads(step)
        found = found.child if isinstance(found, Holder) else found[key]
    assert found is leaf


def test_a_value_that_contains_itself_or_is_nested_too_deep_is_refused() -> None:
    """00.5 Recursion ends in an answer: no crash, and no text that the database's own parser would die of."""
    mutual: dict[str, Any] = {}
    mutual["a"] = {"b": mutual}
    holder = Holder(None)
    holder.child = [holder]
    for value in (endless(), mutual, holder):
        assert "contains itself" in refused(value).problem

    def nested(levels: int, wrap: Any) -> Any:
        value: Any = []
        for _ in range(levels - 1):
            value = wrap(value)
        return value

    for wrap in (lambda v: [v], lambda v: {"k": v}, lambda v: (v,)):
        assert decode(encode(nested(DEPTH_MAX, wrap)), Any) is not None
        assert refused(nested(DEPTH_MAX + 1, wrap)).path.startswith("$")
        assert "deeper than 128" in refused(nested(100_000, wrap)).problem


@pytest.mark.parametrize(
    "wrap", [lambda v: v, lambda v: [v], lambda v: (v,), Holder], ids="text list tuple object".split()
)
def test_a_value_over_the_limit_is_refused_with_limit_and_size(wrap: Any) -> None:
    """00.5, B114 One byte under and at the limit are kept; one over is refused, with both numbers."""
    around = len(encode(wrap("")))
    for size in (999, 1000):
        assert len(encode(wrap("x" * (size - around)), limit=1000).encode()) == size
    error = refused(wrap("x" * (1001 - around)), limit=1000)
    assert (error.path, error.problem) == ("$", "it is 1,001 bytes of JSON, and the limit is 1,000 bytes")
    assert "bytes" in refused(wrap("é" * 500), limit=1000).problem, "bytes of UTF-8, not characters"


def test_the_default_limit_is_the_payload_limit() -> None:
    """00.5 Without a limit said, PAYLOAD_BYTES counts."""
    assert len(encode("x" * (PAYLOAD_BYTES - 2))) == PAYLOAD_BYTES
    assert f"{PAYLOAD_BYTES:,}" in refused("x" * (PAYLOAD_BYTES - 1)).problem


def test_paths_are_bounded() -> None:
    """00.5 A refusal's path is short however long the keys are."""
    assert len(refused({"k" * 10_000: b""}).path) < 100
    value: Any = b""
    for _ in range(100):
        value = {"key" * 10: value}
    assert len(refused(value).path) <= 501


def test_objects_that_raise_when_read_are_refused() -> None:
    """00.5 Code of the author that fails at the edge is a refusal with a path, not a crash."""

    class Bad(pydantic.BaseModel):
        x: int = 1

        @pydantic.model_serializer
        def dump(self) -> dict[str, Any]:
            raise RuntimeError("no \0 dump")

    class Gone(msgspec.Struct):
        x: int = 1

        def __getattribute__(self, name: str) -> Any:
            if name == "x":
                raise OSError("gone")
            return super().__getattribute__(name)

    for value in (Bad(), Gone()):
        error = refused({"a": [value]})
        assert error.path == "$.a[0]"
        assert "could not be read" in error.problem
        assert "\0" not in str(error)


@pytest.mark.filterwarnings("ignore")
def test_a_model_that_holds_what_it_does_not_declare_is_refused() -> None:
    """00.5 What its own model would not read back is refused now, not found unreadable later; a warning is not enough."""
    with pytest.raises(Unstorable, match="Verdict could not be read"):
        encode([Verdict.model_construct(ok="perhaps")])


def test_a_secret_deep_inside_a_model_is_refused() -> None:
    """00.5 A secret is written as asterisks and would be read back as asterisks: refused, unless it is asterisks."""
    secret, stars = pydantic.SecretStr("p"), "**********"
    value = Logins(every=[Login(user=stars, password=secret)])
    assert refused([value]).path == "$[0].every[0].password"
    assert decode(encode(Verdict(ok=True, note=stars)), Verdict).note == stars
