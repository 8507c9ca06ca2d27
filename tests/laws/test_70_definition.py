"""Chapter 70, the definition: a plan with faults is refused before anything is asked, and every fault is named, with line and path."""

from __future__ import annotations

import json
import tomllib
from typing import Any

import pytest

from fencepost import Plan, PlanInvalid, planning
from fencepost.planning import document
from tests.laws.plan_faults import CASES, GOOD, Told


def told(text: str, format: Any = "toml") -> Told:
    """Every fault that is named of a text: line, path, message."""
    try:
        planning.read_text(text, format, resolve=resolve)
    except PlanInvalid as error:
        return [(fault.line, fault.path, fault.message) for fault in error.faults]
    return []


def resolve(target: str) -> str:
    if target == "shop:order":
        return "order"
    raise ValueError(f"module shop has no {target!r}")


def test_a_plan_without_faults_is_read_as_it_stands() -> None:
    """70.1 every field is there in the normal form, defaults too."""
    found = planning.read_text(GOOD)
    assert (found.name, found.max_concurrency, [each.id for each in found.steps]) == (
        "release-notes",
        2,
        ["log", "notes"],
    )
    assert found.normal()["steps"][1] == {
        "id": "notes", "kind": "command", "command": ["python", "notes.py"], "env": {}, "cwd": None, "stdin": None,
        "needs": [{"step": "log", "optional": False}],
        "handoffs": [
            {"id": "log", "input": "log", "step": "log", "output": "log", "mode": "content", "required": True, "description": ""},
        ],
        "retry": {
            "max_attempts": 3, "backoff": "exponential", "initial_delay_ms": 500, "max_delay_ms": 10000, "on": ["failure", "timeout"],
        },
        "timeout_ms": 120_000, "on_lost": "fail", "initially_skipped": False,
        "outputs": {
            "notes": {"from": "file", "path": "notes.md", "media_type": "text/markdown; charset=utf-8", "schema": None, "required": True},
        },
    }  # fmt: skip


@pytest.mark.parametrize("case", CASES)
def test_every_fault_is_named_with_its_line_and_path(case: str) -> None:
    """70.1 in TOML: all of them, nothing else, each on its line."""
    text, wanted = CASES[case]
    found = told(text)
    assert sorted(each[:2] for each in found) == sorted(each[:2] for each in wanted), found
    for line, path, part in wanted:
        assert any(part in message for at, where, message in found if (at, where) == (line, path)), (part, found)


def _as_json(text: str) -> str | None:
    try:
        return json.dumps(tomllib.loads(text), indent=1, allow_nan=False)
    except (TypeError, ValueError):  # dates and nan: JSON cannot even spell these faults
        return None


@pytest.mark.parametrize("case", [case for case in CASES if _as_json(CASES[case][0])])
def test_the_same_faults_are_named_of_the_same_plan_as_json(case: str) -> None:
    """70.1 in JSON: the same paths and the same words, and each line holds what the path ends with."""
    text = _as_json(CASES[case][0]) or ""
    found = told(text, "json")
    assert sorted(each[1:] for each in found) == sorted(each[1:] for each in told(CASES[case][0]))
    lines = text.splitlines()
    for line, path, _ in found:
        assert line is not None
        last = path.split(": ")[-1].split(".")[-1].split("[")[0].strip("'")
        entry = path.endswith("]")
        assert last in lines[line - 1] or not path or entry or (path.startswith("step[") and ": " not in path), (
            line,
            path,
        )


def test_every_fault_of_all_cases_is_named_at_once() -> None:
    """70.1 one reading names what is wrong with forty steps, however many faults came before."""
    texts = [CASES[case][0] for case in CASES if CASES[case][0].startswith('name = "n"\n[[step]]\nid = "a"')]
    assert len(texts) > 10
    blocks, wanted = list[str](), 0
    for n, text in enumerate(texts):
        body = (
            text.removeprefix('name = "n"\n')
            .replace('"a"', f'"a{n}"')
            .replace('"b"', f'"b{n}"')
            .replace('"a.o"', f'"a{n}.o"')
        )
        blocks.append(body)
        wanted += len(told('name = "n"\n' + body))
    assert wanted > 40
    assert len(told('name = "n"\n' + "\n\n".join(blocks))) == wanted


def test_lines_of_json_are_exact() -> None:
    """70.1 in JSON, written by hand."""
    text = (
        '{"name": "n", "max_concurrency": 0,\n "step": [\n  {"id": "a", "command": ["x",\n    7]},\n'
        '  {"id": "b",\n   "command": ["y"], "retry":\n     {"max_attempts":\n       0}}]}'
    )
    assert [(line, path) for line, path, _ in told(text, "json")] == [
        (1, "max_concurrency"),
        (4, "step[1] a: command[2]"),
        (7, "step[2] b: retry.max_attempts"),
    ]


def test_a_key_twice_is_refused_in_json_as_in_toml() -> None:
    """70.1 of two values nobody knows which is meant."""
    assert told('{"name": "n",\n "step": [{"id": "a", "command": ["x"],\n "id": "b"}],\n "name": "m"}', "json") == [
        (3, "step[1]: id", "stands twice in one object: take one away"),
        (4, "name", "stands twice in one object: take one away"),
    ]
    [(line, path, message)] = told('name = "n"\nname = "m"\n')
    assert (line, path) == (2, "")
    assert message.startswith("is not TOML: Cannot overwrite a value")


@pytest.mark.parametrize(
    ("text", "format", "line", "part"),
    [
        ("", "toml", None, "is empty"),
        (" \n", "json", None, "is empty"),
        ('name = "n"\nstep = [\n', "toml", 2, "is not TOML"),
        ('name = "n"\nx\ny = 1\n', "toml", 2, "is not TOML"),
        ('{"name": "n",\n}', "json", 2, "is not JSON"),
        ("[1]", "json", 1, "is no plan: write an object"),
        ('{"name": NaN}', "json", None, "is no number that JSON knows"),
        ('{"a": ' + "[" * 100_000, "json", None, "is nested too deep"),
        ("a = " + "[" * 100_000, "toml", None, "is nested too deep"),
    ],
)
def test_what_is_no_document_is_one_fault(text: str, format: str, line: int | None, part: str) -> None:
    """70.1 the reader's own refusal, with its line."""
    [(at, path, message)] = told(text, format)
    assert (at, path) == (line, "")
    assert part in message


def test_a_hand_off_may_come_from_far_and_through_optional_needs() -> None:
    """70.1 a transitive dependency is enough; what only comes before in the file is not."""
    chain = [
        {"id": f"s{n}", "command": ["x"], "outputs": {"o": {"from": "stdout"}}, "needs": [{"step": f"s{n - 1}", "optional": n % 2 == 0}] if n else []}
        for n in range(50)
    ]  # fmt: skip
    chain[-1]["handoffs"] = [{"input": "x", "from": "s0.o"}, {"input": "y", "from": "s25.o"}]
    chain.append({"id": "beside", "command": ["x"], "handoffs": [{"input": "x", "from": "s0.o"}]})
    assert told(json.dumps({"name": "n", "step": chain}), "json") == [
        (1, "step[51] beside: handoffs[1].from", "step 's0' is not among what 'beside' waits for: add it to needs"),
    ]


def test_two_cycles_are_named_and_a_long_one_is_cut() -> None:
    """70.1 one fault for each knot, at its first step."""
    ring = [{"id": f"r{n}", "command": ["x"], "needs": [f"r{(n + 1) % 30}"]} for n in range(30)]
    pair = [{"id": "p", "command": ["x"], "needs": ["q"]}, {"id": "q", "command": ["x"], "needs": ["p", "r0"]}]
    found = told(json.dumps({"name": "n", "step": [*ring, *pair]}), "json")
    assert [path for _, path, _ in found] == ["step[1] r0: needs[1]", "step[31] p: needs[1]"]
    assert found[0][2].endswith(
        "which needs … (19 more), which needs 'r29', which needs 'r0'; take one of these needs away"
    )
    assert "'p', which needs 'q', which needs 'p'" in found[1][2]


def test_too_many_steps_and_too_large_a_plan_are_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    """70.1 limits of the whole."""
    monkeypatch.setattr("fencepost.planning.model.STEPS_MAX", 1)
    assert told(GOOD) == [(4, "step", "stands 2 times, and 1 steps are the limit: make several plans")]
    monkeypatch.undo()
    monkeypatch.setattr(document, "PAYLOAD_BYTES_MAX", 1000)
    [(line, path, message)] = told(GOOD)
    assert (line, path) == (1, "")
    assert "bytes in all, and 1,000 is the limit" in message


def test_the_builder_names_the_same_faults_without_lines() -> None:
    """70.1 in Python."""
    plan = Plan("n", max_concurrency=0)
    plan.command("", [])
    plan.command("b", ["x {home}"])
    plan.command("b", ["y"])
    assert [(fault.line, fault.path) for fault in plan.validate()] == [
        (None, "max_concurrency"),
        (None, "step[1]: id"),
        (None, "step[1]: command"),
        (None, "step[2] b: command[1]"),
        (None, "step[3] b: id"),
    ]
    with pytest.raises(PlanInvalid) as refused:
        plan.definition()
    assert list(refused.value.faults) == plan.validate()
    assert str(refused.value).startswith("plan n: max_concurrency: is 0")
