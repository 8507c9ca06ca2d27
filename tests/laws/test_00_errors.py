"""Law 00.5: the error path takes anything and never fails. No database."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fencepost.limits import ERROR_BYTES
from fencepost.values import Unstorable, describe_error, encode, encode_error, unstorable_result


class Opaque:
    pass


class Liar(type):
    @property
    def __name__(cls) -> str:  # type: ignore[override]  # that is the attack
        raise SystemExit(3)


class Hostile(Exception, metaclass=Liar):
    def __str__(self) -> str:
        raise KeyboardInterrupt

    __repr__ = __str__


class Twisted(str):
    __slots__ = ()

    def __getitem__(self, _: Any) -> str:
        raise ValueError("no")

    __len__ = __str__ = encode = replace = __getitem__  # type: ignore[assignment]  # that is the attack


class Wordless(Exception):
    def __str__(self) -> str:
        return Any(3)


class Endless(Exception):
    def __str__(self) -> str:
        return str(self)


# Made inside the test: pytest itself does not survive some of them.
ERRORS: list[Callable[[], BaseException]] = [
    ValueError,
    lambda: ValueError("a\0b\ud800"),
    lambda: ValueError(b"\0", object()),
    lambda: ValueError("x" * 5_000_000),
    lambda: ValueError("\0" * 100_000),
    lambda: ValueError("\ud800" * 100_000),
    lambda: ValueError("\x01" * 100_000),
    lambda: ValueError("𝄞" * 100_000),
    lambda: ValueError("a" * 16_000 + "\x01" * 1_000),
    lambda: ValueError("\x01" * 100 + "a" * ERROR_BYTES),
    Hostile,
    Wordless,
    Endless,
    lambda: ValueError(Twisted("x")),
    lambda: KeyError("\0"),
    lambda: UnicodeDecodeError("utf-8", b"\xff", 0, 1, "\0\ud800"),
    lambda: OSError(2, "x", "\udcff"),
    asyncio.CancelledError,
    lambda: ExceptionGroup("many", [ValueError("first\0"), Hostile(), ExceptionGroup("more", [KeyError(1)])]),
    lambda: ExceptionGroup("\0" * 9000, [ValueError("\ud800" * 90_000)] * 1000),
    lambda: type("X" * 100_000, (Exception,), {})("x"),
]


def good(text: str) -> Any:
    """The document of a text that every column takes."""
    assert len(text.encode()) <= ERROR_BYTES
    found = json.loads(text)
    assert encode(found, limit=ERROR_BYTES) == text, "neither NUL nor surrogates in it"
    return found


@pytest.mark.parametrize("error", ERRORS, ids=range(len(ERRORS)))
def test_the_error_path_never_fails_on_an_error(error: Callable[[], BaseException]) -> None:
    """00.5 Whatever an error says or does when asked, there is a bounded document, and its text."""
    doc = describe_error(error(), "WORKFLOW_ERROR")
    assert good(encode_error(doc)) == doc, "it fits as it is"
    assert doc["code"] == "WORKFLOW_ERROR"
    assert set(doc) == {"code", "message", "type"}


def test_an_error_is_described_so_that_one_can_read_it() -> None:
    """00.5, B107, B109 NUL and surrogates are escaped visibly; what is cut says so; a group says what is in it."""
    assert describe_error(ValueError("a\0b\ud800é\n"), "X")["message"] == "a\\u0000b\\ud800é\n"
    assert describe_error(ValueError("x"), "X") == {"code": "X", "message": "x", "type": "ValueError"}
    cut = describe_error(ValueError("y" * 5_000_000), "X")["message"]
    assert cut.endswith("… (cut: 5,000,000 characters in all)")
    assert cut.startswith("y" * 15_000)
    group = describe_error(ExceptionGroup("tasks", [ValueError("one"), KeyError("two")]), "X")["message"]
    assert "ValueError: one; KeyError: 'two'" in group
    assert "Hostile" not in describe_error(Hostile(), "X")["type"]
    assert "cannot be shown" in describe_error(Hostile(), "X")["message"]


@given(st.text(st.characters(), max_size=400).map(lambda text: text * 60), st.text(st.characters()))
def test_any_text_fits_into_an_error(message: str, code: str) -> None:
    """00.5, B114 Property: any characters at all, at any length, in the message and in the code."""
    doc = describe_error(ValueError(message), code)
    assert good(encode_error(doc)) == doc


class Refusing(dict[str, Any]):
    def __getitem__(self, _: str) -> Any:
        raise SystemExit

    keys = items = __iter__ = __getitem__  # type: ignore[assignment]  # that is the attack


@pytest.mark.parametrize(
    "doc",
    [
        {},
        {"code": "X", "message": "\0", "type": "\ud800"},
        {"code": "X", "message": object(), "type": 1j},
        {"code": "X", "message": "x" * 1_000_000, "type": "T"},
        {"code": "\x01" * 90_000, "message": "\x01" * 90_000, "type": "\x01" * 90_000},
        {"code": "X", "message": "m", "type": "T", "keys": ["k"] * 10_000},
        {"code": "X", "message": "m", 3: float("nan")},
        Refusing(code="X"),
    ],
    ids=range(8),
)
def test_encoding_an_error_never_fails(doc: dict[Any, Any]) -> None:
    """00.5 A document that does not fit is brought down to what can be kept, and says so."""
    found = good(encode_error(doc))
    assert (found == doc) or (found["cut"] is True and {"code", "message", "type"} < set(found))
    if doc.get("code") == "X":
        assert found.get("code") in {"X", ""}


def test_an_error_that_fits_is_kept_whole() -> None:
    """00.5 Nothing of a good document is lost."""
    doc = {"code": "STEP_OUTCOME_UNKNOWN", "message": "m", "type": "T", "keys": ["a", "b"], "at": {"step": 1}}
    assert json.loads(encode_error(doc)) == doc


class Huge:
    def __repr__(self) -> str:
        return "h" * 10_000_000


@pytest.mark.parametrize(
    "value",
    [
        Opaque(),
        b"\0" * 10_000_000,
        ["\0"] * 10,
        "\ud800",
        Hostile(),
        Huge(),
        {"a": [Huge()] * 100},
        10**5000,
        float("nan"),
    ],
    ids=range(9),
)
def test_a_result_that_cannot_be_kept_becomes_a_typed_failure(value: Any) -> None:
    """00.5, B106 UNSTORABLE_RESULT, with the path, the reason and a bounded description; never a stuck run."""
    with pytest.raises(Unstorable) as caught:
        encode({"result": value})
    found = good(unstorable_result(caught.value, {"result": value}))
    assert found["code"] == "UNSTORABLE_RESULT"
    assert found["path"].startswith("$.result")
    assert found["message"].startswith(f"The value at {found['path']} cannot be stored: ")
    assert "It was a value of type dict: {'result': " in found["message"]
    assert good(unstorable_result(caught.value, value))["code"] == "UNSTORABLE_RESULT"
    assert "cut" not in found
