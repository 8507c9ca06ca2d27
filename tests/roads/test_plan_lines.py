"""Lines of a document's places: the scan agrees with the one who wrote it, whatever way was taken to write it."""

from __future__ import annotations

import json
import random
import tomllib
from typing import Any

from hypothesis import example, given, settings
from hypothesis import strategies as st

from fencepost.planning import lines
from tests.roads.plan_writing import TABLES, TEXTS, Json, Toml

PLAIN = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | TEXTS,
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(TEXTS, inner, max_size=4),
    max_leaves=15,
)


@settings(max_examples=150, deadline=None)
@given(document=TABLES, seed=st.integers(0, 2**32))
@example(document={"a": [{"b": 'x""', "": "'"}, {"c": {"d": [1, {"e": "\\n"}]}}]}, seed=1)
def test_the_line_of_every_place_in_toml(document: dict[str, Any], seed: int) -> None:
    written = Toml(document, random.Random(seed))
    assert tomllib.loads(written.text) == document, "the writer writes TOML"
    found = lines.of_toml(written.text)
    assert {at: line for at, line in found.found.items() if at} == {
        at: line for at, line in written.lines.items() if at
    }


@settings(max_examples=150, deadline=None)
@given(document=PLAIN, seed=st.integers(0, 2**32))
def test_the_line_of_every_place_in_json(document: Any, seed: int) -> None:
    written = Json(document, random.Random(seed))
    assert json.loads(written.text) == document, "the writer writes JSON"
    found = lines.of_json(written.text)
    assert found.found == written.lines
    assert found.twice == []


def test_a_place_without_a_line_of_its_own_has_the_nearest_around_it() -> None:
    found = lines.of_toml('name = "n"\n\n[[step]]\nid = "a"\n')
    assert [found.line(at) for at in [(), ("x",), ("step", 0, "needs", 3), ("step", 0, "id")]] == [1, 1, 3, 4]


def test_tables_inside_the_last_entry_of_an_array() -> None:
    text = '[[step]]\nid = "a"\n[step.retry]\non = []\n[[step]]\nid = "b"\n[step.retry]\non = [\n"x"]\n[step.outputs.o]\nfrom = 1\n'
    found = lines.of_toml(text)
    assert found.found["step", 0, "retry", "on"] == 4
    assert found.found["step", 1, "retry", "on", 0] == 9
    assert found.found["step", 1, "outputs", "o", "from"] == 11
