"""Laws 00.5, 00.6, 30.6, 50.1, 50.3 and 50.4: from text to value, names and keys. No database."""

from __future__ import annotations

import dataclasses
import enum
import pathlib
import subprocess
import sys
from typing import Any, Literal

import msgspec
import pydantic
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from fencepost.keys import hash_args, hash_call, step_key
from fencepost.limits import NAME_CHARS
from fencepost.values import Undecodable, Unstorable, check_name, check_type, decode, encode


class Opaque:
    pass


@dataclasses.dataclass
class Sheet:
    path: str
    limit: int | None = None


@dataclasses.dataclass
class Holder:
    child: Any


class Strip(msgspec.Struct, rename="camel", tag="strip"):
    run_way: str


class Verdict(pydantic.BaseModel):
    ok: bool
    note: str = ""


class Review(pydantic.BaseModel):
    verdicts: list[Verdict]
    by: str = pydantic.Field("", alias="reviewed-by")


@pydantic.dataclasses.dataclass
class Checked:
    size: int = pydantic.Field(gt=0)


def test_a_stored_text_that_does_not_fit_names_type_and_path() -> None:
    """00.6 The refusal says which type, where in the value and what is wrong, and shows none of the value."""
    for text, type_, what, problem in [
        ('[{"ok":true},{"note":"SECRET"}]', list[Verdict], "list[", "$[1].ok: Field required"),
        ('{"a":{"ok":"SECRET"}}', dict[str, Verdict], "dict[", ".ok: Input should be a valid boolean"),
        ('{"verdicts":[{"ok":1},{}]}', Review, "Review", "$.verdicts[1].ok: Field required"),
        ('{"path":3}', Sheet, "Sheet", "$.path: Expected `str`, got `int`"),
        ('"SECRET"', int, "int", "$: Expected `int`, got `str`"),
        ("[1", Any, "Any", "$: it is not JSON"),
        ('{"size":-1}', Checked, "Checked", "$.size: Input should be greater than 0"),
        ("3", list[Verdict | str], "list[", "$: Input should be a valid"),
        ('"\\ud800"', str, "str", "it is not JSON"),
        ("NaN", float, "float", "it is not JSON"),
        ("[" * 100_000 + "]" * 100_000, Any, "Any", "RecursionError"),
    ]:
        with pytest.raises(Undecodable) as caught:
            decode(text, type_)
        assert caught.value.what.startswith(what)
        assert problem in caught.value.problem
        assert "SECRET" not in str(caught.value)
        assert str(caught.value).startswith(f"The stored value does not fit {caught.value.what}: $")


ATTACKS = [
    '{"lc":1,"type":"constructor","id":["os","system"],"kwargs":{"command":"true"}}',
    '{"py/object":"subprocess.Popen","py/reduce":[{"py/function":"os.system"},["true"]]}',
    '{"__reduce__":["os.system",["true"]]}',
    '{"__class__":"os._wrap_close","__module__":"os"}',
    '"gASVIQAAAAAAAACMBXBvc2l4lIwGc3lzdGVtlJOUjAR0cnVllIWUUpQu"',
    '{"type":"strip","runWay":"a","__struct_fields__":[]}',
    "\x80\x04\x95!\x00.",
]


@pytest.mark.parametrize(
    "type_", [Any, dict[str, Any], str, Verdict, list[Verdict], Sheet, Strip, Holder, Review | Sheet]
)
def test_decoding_imports_nothing_and_runs_nothing(type_: Any) -> None:
    """00.6, B110 Hostile texts, straight from a column: plain data or a refusal; the interpreter's own audit sees nothing."""
    check_type(type_)  # what the type itself needs is loaded by now
    seen: list[str] = []
    watching = True

    def hook(event: str, _: Any) -> None:
        if watching and event.partition(".")[0] in {
            "import",
            "exec",
            "compile",
            "subprocess",
            "os",
            "open",
            "pickle",
            "ctypes",
        }:
            seen.append(event)

    decode("[]", list)
    sys.addaudithook(hook)
    for text in ATTACKS:
        try:
            found = decode(text, type_)
        except Undecodable:
            continue
        if type_ is Any:
            assert type(found) in {dict, str}
    watching = False
    assert seen == []


def test_a_field_that_appeared_has_its_default_and_one_that_left_is_passed_over() -> None:
    """50.1 A text kept by the code of yesterday is read by the code of today."""
    assert decode('{"path":"a","gone":1}', Sheet) == Sheet("a")
    assert decode('{"ok":true,"gone":1}', Verdict) == Verdict(ok=True)


def test_an_alias_is_read_and_the_name_of_the_field_too() -> None:
    """50.1 What a caller sends by alias and what the edge keeps by name are the same value."""
    for text in ('{"verdicts":[],"by":"x"}', '{"verdicts":[],"reviewed-by":"x"}'):
        assert decode(text, Review).by == "x"
        assert decode(f"[{text}]", list[Review])[0].by == "x"
        assert decode(f"[{text}]", list[Review | str])[0].by == "x"


def test_a_type_that_cannot_be_kept_is_refused_when_it_is_declared() -> None:
    """00.5 Before anything begins: bytes, paths, odd keys and foreign classes are named at the declaration."""
    for type_, word in [
        (bytes, "bytes"),
        (list[dict[str, bytes]], "bytes"),
        (pathlib.Path, "Path"),
        (list[Opaque], "Opaque"),
        (dict[int, str], "int"),
        (enum.Enum("Odd", {"A": "a", "B": 2}), "Enum"),
        (Opaque | int, "custom type"),
    ]:
        with pytest.raises(TypeError, match=word) as caught:
            check_type(type_)
        assert "declare types of JSON" in str(caught.value)
    for type_ in (Any, object, None, int | None, list[Any], dict[str, list[Sheet]], Review | Sheet, Literal["a"]):
        check_type(type_)


def test_pydantic_is_not_imported_by_us() -> None:
    """00.6 Whoever declares no model pays for none: neither the import nor a decode loads pydantic."""
    code = (
        "import sys; from fencepost.values import *; from dataclasses import dataclass\n"
        "@dataclass\nclass A: x: int\n"
        "assert decode(encode(A(1)), A) == A(1); describe_error(ValueError(), 'X'); check_type(list[A])\n"
        "assert 'pydantic' not in sys.modules"
    )
    subprocess.run([sys.executable, "-c", code], check=True)


# Names and keys


@pytest.mark.parametrize("name", ["a", " a ", "x" * NAME_CHARS, "é𝄞", "a\u00a0b", "a\u200db", "airports:2026-11", "0"])
def test_a_usable_name_is_given_back_as_it_is(name: str) -> None:
    """30.6 Nothing is trimmed or changed."""
    assert check_name(name, "the id") is name


@pytest.mark.parametrize(
    ("name", "problem"),
    [
        ("", "blank"),
        (" \t\u00a0", "blank"),
        ("x" * (NAME_CHARS + 1), "201 characters"),
        ("a\0", "U\\+0000"),
        ("a\nb", "U\\+000A"),
        ("\x7f!", "U\\+007F"),
        ("a\x85b", "U\\+0085"),
        ("a\u2028b", "U\\+2028"),
        ("\ud800", "U\\+D800"),
        (3, "type int"),
        (None, "type NoneType"),
    ],
)
def test_an_unusable_name_is_refused_with_the_reason(name: Any, problem: str) -> None:
    """30.6 Blank, long or with control characters: refused before any write, saying what and why."""
    with pytest.raises(ValueError, match=problem) as caught:
        check_name(name, "the run id")
    assert str(caught.value).startswith("the run id ")
    assert str(caught.value).isprintable()


def test_the_hash_of_arguments_ignores_order_and_spaces_and_nothing_else() -> None:
    """50.4 The same value, the same hash, however its text is written; another value, another hash."""
    first = hash_args('[{"b":1,"a":[1,2.5,"é"]}]')
    assert hash_args('[ {"a": [1, 2.5, "\\u00e9"], "b": 1} ]') == first
    assert len(first) == 16
    int(first, 16)
    others = [
        "[1]",
        "[2]",
        '["1"]',
        "[1.5]",
        "[null]",
        "[]",
        "{}",
        "[[1]]",
        "[[2,1]]",
        "[[1,2]]",
        '[""]',
        "[false]",
        "[0]",
    ]
    others += [f"[{10**200 + n}]" for n in range(3)]
    assert len({first, *map(hash_args, others)}) == len(others) + 1
    with pytest.raises(Undecodable):
        hash_args("[1")


@given(
    st.recursive(
        st.none()
        | st.booleans()
        | st.integers()
        | st.floats()
        | st.text(max_size=5)
        | st.sampled_from(["\0", "\ud800"]),
        lambda inside: st.lists(inside, max_size=3) | st.dictionaries(st.text(max_size=3), inside, max_size=3),
        max_leaves=8,
    )
)
@example(Sheet("a", 1))
def test_the_hash_of_a_call_is_that_of_its_text(value: Any) -> None:
    """50.4, 00.5 The short way for plain arguments gives what the long way gives, and refuses what it refuses."""
    try:
        text = encode([[value], {"by": value}])
    except Unstorable as refused:
        with pytest.raises(Unstorable) as caught:
            hash_call((value,), {"by": value})
        assert (caught.value.path, caught.value.problem) == (refused.path, refused.problem)
    else:
        assert hash_call((value,), {"by": value}) == hash_args(text)


def test_keys_of_steps_never_change() -> None:
    """50.3 Providers remember keys: this one was given in the first release."""
    assert step_key("root", "step", "publish", 1) == "11f1f582eb24e57b4234515870f106ac"
    assert step_key("root", "row", "publish", 1, "KJFK") == "b01026f5e9d9b7ce23e64686c53eef7d"


parts = st.text(max_size=6) | st.sampled_from(["1", "1:1", "4:step", ",", ""])
calls = st.tuples(parts, parts, parts, st.integers(1, 30), st.none() | parts)


@given(calls, calls)
@example(("a", "step", "n", 11, None), ("a", "step", "n1", 1, None))
@example(("a", "step", "n", 1, ""), ("a", "step", "n", 1, None))
@example(("a", "step", "n,1:1,", 1, None), ("a", "step", "n", 1, "1"))
def test_two_calls_have_one_key_only_if_they_are_the_same_call(one: Any, other: Any) -> None:
    """50.3 Different for every step, row and run, however their names are spelled; the same on every replay."""
    assert (step_key(*one) == step_key(*other)) == (one == other)
    assert len(step_key(*one)) == 32
    int(step_key(*one), 16)
