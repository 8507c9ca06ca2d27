"""Definitions: one plan in TOML, JSON and Python has one digest; edges are judged as a slow and simple judge does."""

from __future__ import annotations

import gc
import hashlib
import json
import random
import subprocess
import sys
from itertools import pairwise
from pathlib import Path
from typing import Any

import msgspec
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from fencepost import App, Context, Plan, PlanInvalid, StepRetry, planning, stdout
from fencepost.planning import schemas, templates
from fencepost.planning.edges import components
from fencepost.planning.model import CommandStep, WorkflowStep
from tests.roads.plan_drawing import built, documents
from tests.roads.plan_writing import Json, Toml

# One plan, three spellings


@settings(max_examples=100, deadline=None, suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large])
@given(document=documents(), seed=st.integers(0, 2**32))
def test_a_plan_has_one_digest_however_it_is_written(document: dict[str, Any], seed: int) -> None:
    chance = random.Random(seed)
    by_toml = planning.read_text(Toml(document, chance).text)
    by_json = planning.read_text(Json(document, chance).text, "json")
    by_python = built(document).definition()
    assert by_toml == by_json == by_python
    assert by_toml.digest == by_json.digest == by_python.digest
    again = planning.definition_of(by_toml.canonical)
    assert again == by_toml
    assert [planning.step_of(step) for step in by_toml.normal()["steps"]] == list(by_toml.steps)
    assert [step["id"] for step in by_toml.normal()["steps"]] == [step["id"] for step in document["step"]], (
        "written order"
    )


@settings(max_examples=100, deadline=None, suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large])
@given(document=documents())
def test_the_canonical_text_is_json_with_sorted_keys_and_nothing_between(document: dict[str, Any]) -> None:
    found = planning.read_text(json.dumps(document), "json")
    same = json.dumps(json.loads(found.canonical), sort_keys=True, separators=(",", ":"), ensure_ascii=False)
    assert found.canonical == same
    assert found.digest == hashlib.sha256(same.encode()).hexdigest()
    assert found.run_id == f"{document['name']}-{found.digest[:12]}"


def test_what_differs_has_another_digest_and_what_says_the_same_has_not() -> None:
    def digest(**changed: Any) -> str:
        step = {"id": "a", "command": ["x"]} | changed
        return planning.read_text(json.dumps({"name": "n", "step": [step]}), "json").digest

    plain = digest()
    same = [
        {"timeout": None},
        {"on_lost": "fail"},
        {"needs": []},
        {"retry": {"max_attempts": 1, "on": ["failure"]}},
        {"env": {}},
    ]
    assert {digest(**fields) for fields in same} == {plain}
    assert digest(retry={"on": ["timeout", "failure"]}) == digest(retry={"on": ["failure", "timeout"]})
    other = [
        {"timeout": "1s"},
        {"on_lost": "ask"},
        {"cwd": "/"},
        {"env": {"A": ""}},
        {"stdin": ""},
        {"initially_skipped": True},
    ]
    assert len({plain, *(digest(**fields) for fields in other)}) == len(other) + 1


def test_a_normal_form_that_is_none_is_refused() -> None:
    with pytest.raises(msgspec.ValidationError):
        planning.definition_of('{"name": "n", "steps": [{"kind": "dance", "id": "a"}]}')


# Edges, against a slow judge


@settings(max_examples=200, deadline=None)
@given(data=st.data(), count=st.integers(1, 9))
def test_cycles_and_far_hand_offs_are_found_as_a_slow_judge_finds_them(data: st.DataObject, count: int) -> None:
    ids = [f"s{n}" for n in range(count)]
    needs = {id: data.draw(st.lists(st.sampled_from(ids), unique=True, max_size=3)) for id in ids}
    sources = {id: data.draw(st.lists(st.sampled_from(ids), max_size=2)) for id in ids}
    steps = [
        {"id": id, "command": ["x"], "outputs": {"o": {"from": "stdout"}}, "needs": needs[id],
         "handoffs": [{"input": f"i{n}", "from": f"{source}.o"} for n, source in enumerate(sources[id])]}
        for id in ids
    ]  # fmt: skip
    reach = {id: {need for need in needs[id] if need != id} for id in ids}
    for _ in ids:  # a step reaches what what it reaches reaches
        reach = {id: found.union(*(reach[other] for other in found)) for id, found in reach.items()}
    wanted = {
        f"step[{n + 1}] {id}: needs[{k + 1}]"
        for n, id in enumerate(ids)
        for k, need in enumerate(needs[id])
        if need == id
    }
    wanted |= {
        f"step[{n + 1}] {id}: handoffs[{k + 1}].from"
        for n, id in enumerate(ids)
        for k, source in enumerate(sources[id])
        if source == id or source not in reach[id]
    }
    rings = {frozenset(other for other in reach[id] if id in reach[other]) for id in ids if id in reach[id]}
    faults = Plan("n").validate() if not steps else faults_of(steps)
    cycles = [message for _, message in faults if "cycle" in message]
    assert len(cycles) == len(rings)
    for message in cycles:
        said = message.removeprefix("is part of a cycle: ").partition(";")[0].replace("'", "").split(", which needs ")
        assert said[0] == said[-1]
        assert all(there in needs[here] for here, there in pairwise(said)), "a cycle that is there"
        assert frozenset(said) <= next(ring for ring in rings if said[0] in ring)
    assert {path for path, message in faults if "cycle" not in message} == wanted


def faults_of(steps: list[dict[str, Any]]) -> list[tuple[str, str]]:
    try:
        planning.read_text(json.dumps({"name": "n", "step": steps}), "json")
    except PlanInvalid as error:
        return [(fault.path, fault.message) for fault in error.faults]
    return []


def test_far_hand_offs_of_a_long_plan_are_judged_in_one_sweep(monkeypatch: pytest.MonkeyPatch) -> None:
    """More sources than one sweep takes, each wanted from the far end and from beside."""
    monkeypatch.setattr("fencepost.planning.edges.SWEEP", 64)
    chain = [
        {"id": f"s{n}", "command": ["x"], "outputs": {"o": {"from": "stdout"}}, "needs": [f"s{n - 1}"] if n else []}
        for n in range(2000)
    ]
    far = [{"input": f"i{n}", "from": f"s{n}.o"} for n in range(0, 1999, 7)]
    steps = [
        *chain[:-1],
        chain[-1] | {"handoffs": far},
        {"id": "beside", "command": ["x"], "needs": ["s99"], "handoffs": far},
    ]
    found = faults_of(steps)
    assert [path for path, _ in found] == [
        f"step[2001] beside: handoffs[{k + 1}].from" for k, n in enumerate(range(0, 1999, 7)) if n > 99
    ]


def test_what_is_needed_comes_before_what_needs_it() -> None:
    needs = [[3], [0, 2], [], [2]]
    order = [place for [place] in components(needs)]
    assert all(order.index(need) < order.index(place) for place, found in enumerate(needs) for need in found)


def test_a_plan_of_a_hundred_thousand_steps_in_a_chain_needs_no_deep_stack() -> None:
    groups = list(components([[n - 1] if n else [] for n in range(99_999, -1, -1)][::-1]))
    assert [group[0] for group in groups] == list(range(100_000))
    [ring] = components([[(n + 1) % 100_000] for n in range(100_000)])
    assert len(ring) == 100_000


# The builder

app = App("plans of a test")


@app.workflow(name="the-order")
async def order(ctx: Context) -> int:
    return 1


def work(n: int) -> int:
    return n


def test_functions_and_workflows_are_named_as_others_can_import_them() -> None:
    plan = Plan("n")
    first = plan.python("a", work, input={"n": 1})
    plan.python("b", "reports.notes:write", needs=[first], inputs={"x": first.output().content()})
    plan.workflow("c", order, needs=[first.optional()])
    found = plan.definition().steps
    assert [getattr(step, step.kind) for step in found] == [f"{__name__}:work", "reports.notes:write", "the-order"]
    assert (found[2].on_lost, found[0].on_lost, [*found[2].outputs]) == ("replay", "fail", ["result"])
    assert isinstance(found[2], WorkflowStep)


def test_a_function_that_nobody_else_can_import_is_refused_where_it_is_given(tmp_path: Path) -> None:
    def inner() -> None: ...

    for bad, part in [
        (lambda: 1, "is made inside a function"),
        (inner, "is made inside a function"),
        (Plan, "is no function"),
        (Plan("x").validate, "is not what"),
        (json.JSONEncoder().encode, "is not what"),
    ]:
        with pytest.raises(ValueError, match="another process can import") as refused:
            Plan("n").python("a", bad)
        assert part in str(refused.value)
    (tmp_path / "script.py").write_text(
        "from fencepost import Plan\ndef work(): ...\ntry:\n    Plan('n').python('a', work)\nexcept ValueError as error:\n    print(error)\n"
        "    raise SystemExit(7)\nprint(Plan('n').python('a', work).plan.definition().steps[0].python)\n"
    )
    script = subprocess.run(
        [sys.executable, tmp_path / "script.py"], capture_output=True, text=True, check=False, timeout=60
    )
    assert (script.returncode, 'give "script:…" as text' in script.stdout) == (7, True), script
    module = subprocess.run(
        [sys.executable, "-m", "script"], capture_output=True, text=True, check=False, timeout=60, cwd=tmp_path
    )
    assert (module.returncode, module.stdout) == (0, "script:work\n"), module.stderr


def test_an_edge_leads_to_a_step_of_the_same_plan() -> None:
    other = Plan("other").command("a", ["x"], outputs={"o": stdout()})
    plan = Plan("n")
    with pytest.raises(ValueError, match="step 'b': step 'a' belongs to another plan, 'other'"):
        plan.command("b", ["x"], needs=[other])
    with pytest.raises(ValueError, match="belongs to another plan"):
        plan.command("b", ["x"], inputs={"x": other.output("o").content()})
    bad: Any = "a"
    with pytest.raises(TypeError, match=r"an edge leads to what plan\.command\(…\) gave, not to 'a'"):
        plan.command("b", ["x"], needs=[bad])
    with pytest.raises(TypeError, match="keys are text"):
        plan.python("b", "m:f", input={1: 2})  # type: ignore[dict-item]  # on purpose
    assert plan.validate()[-1].message.startswith("has no step")


def test_what_is_no_json_is_a_fault_of_the_builder_too() -> None:
    plan = Plan("n")
    plan.python("a", "m:f", input={"x": {1, 2}, "y": float("inf"), "z": "\ud800", "w": (1, 2)})
    assert [(fault.path, fault.message.partition(":")[0]) for fault in plan.validate()] == [
        ("step[1] a: input.x", "is of type set, which JSON has not"),
        ("step[1] a: input.y", "is inf, which is no number in JSON"),
        ("step[1] a: input.z", "cannot be stored"),
    ]


def test_a_command_as_one_text_is_a_fault() -> None:
    plan = Plan("n")
    plan.command("a", "git log", retry=StepRetry(max_attempts=0))
    assert [fault.path for fault in plan.validate()] == ["step[1] a: retry.max_attempts", "step[1] a: command"]


# Templates


@pytest.mark.parametrize(
    ("text", "rendered"),
    [
        ("plain", "plain"),
        ("{inputs.log.path}", "/in/log"),
        ("--in={inputs.log.path} {run}/{step}/{attempt}", "--in=/in/log r/s/2"),
        ("{{inputs.log.path}} }}{{", "{inputs.log.path} }{"),
        ("{{{step}}}", "{s}"),
        ("[{inputs.gone.value}]", "[]"),
    ],
)
def test_templates_are_filled_in_once(text: str, rendered: str) -> None:
    given = {"inputs.log.path": "/in/log", "inputs.gone.value": None, "run": "r", "step": "s", "attempt": "2"}
    assert templates.render(text, given) == rendered
    assert templates.check(text, {"log": "content", "gone": "quote"}, {}, lambda *_: "") == []


def test_a_value_that_looks_like_a_template_stays_as_it_is() -> None:
    assert templates.render("{inputs.a.value}", {"inputs.a.value": "{run} {{ }"}) == "{run} {{ }"
    assert templates.names("{inputs.a.value} {{x}} {run}") == ["inputs.a.value", "run"]


@given(st.text(st.sampled_from("{}arun. ")))
def test_any_text_can_be_said_with_doubled_brackets(text: str) -> None:
    spelled = text.replace("{", "{{").replace("}", "}}")
    assert templates.check(spelled, {}, {}, lambda *_: "") == []
    assert templates.render(spelled, {}) == text


@given(st.text(st.sampled_from("{}arun.")))
def test_what_is_accepted_can_be_filled_in(text: str) -> None:
    if not templates.check(text, {}, {}, lambda *_: ""):
        templates.render(text, {"run": "r"})


# Schemas


def test_a_schema_says_where_a_value_does_not_keep_it_and_repeats_nothing_of_it() -> None:
    schema = {"type": "object", "required": ["n"], "properties": {"rows": {"items": {"type": "integer"}}}}
    assert schemas.misfits(schema, {"n": 1, "rows": [1]}) == []
    found = schemas.misfits(schema, {"rows": [1, "a secret"]})
    assert [path for path, _ in found] == ["$.rows[1]", "$"] or [path for path, _ in found] == ["$", "$.rows[1]"]
    assert "secret" not in repr(found)
    assert len(schemas.misfits({"items": {"type": "null"}}, list(range(1000)))) == schemas.FAULTS_MAX


def test_a_pattern_cannot_run_away() -> None:
    slow = {"type": "string", "pattern": "^(?=(a+)+$)(a+)+$"}
    assert schemas.check(slow) == []
    assert schemas.misfits(slow, "a" * 40 + "b") != []


def test_nothing_outside_a_schema_is_fetched(tmp_path: Path) -> None:
    place = tmp_path / "there.json"
    place.write_text('{"type": "object"}')
    for outside in (place.as_uri(), "http://127.0.0.1:9/there.json"):
        [(at, message)] = schemas.check({"$ref": outside})
        assert (at, "is no JSON Schema" in message) == ((), True)
    assert schemas.check({"$ref": "#/$defs/n", "$defs": {"n": {"type": "integer"}}}) == []


def test_schemas_cost_nothing_until_one_is_met() -> None:
    read = """planning.read_text('name="n"\\n[[step]]\\nid="a"\\ncommand=["x"]')"""
    code = f"import sys; from fencepost import planning; {read}; print('jsonschema_rs' in sys.modules)"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True, timeout=60)
    assert done.stdout == "False\n"


# Files


def test_a_file_that_cannot_be_read_is_one_fault(tmp_path: Path) -> None:
    (tmp_path / "latin.toml").write_bytes('name = "n"\n# caf\xe9\n'.encode("latin-1"))
    (tmp_path / "bom.json").write_bytes(b'\xef\xbb\xbf{"name": "n", "step": [{"id": "a", "command": ["x"]}]}')
    for place, line, part in [
        (tmp_path / "none.toml", None, "cannot be read: No such file or directory"),
        (tmp_path, None, "cannot be read: Is a directory"),
        (tmp_path / "latin.toml", 2, "is not UTF-8 (byte 16): save it as UTF-8"),
        ("a\0b", None, "cannot be read: embedded null byte"),
    ]:
        with pytest.raises(PlanInvalid) as refused:
            planning.read(place)
        [fault] = refused.value.faults
        assert (fault.line, fault.path, fault.message) == (line, "", part)
    found = planning.read(tmp_path / "bom.json")
    assert isinstance(found.steps[0], CommandStep)


def test_a_workflow_s_place_needs_somebody_to_look_it_up() -> None:
    text = 'name = "n"\n[[step]]\nid = "a"\nworkflow = "shop:order"\n'
    with pytest.raises(PlanInvalid, match=r"line 4: .*workflow: is a place in the code"):
        planning.read_text(text)
    assert planning.read_text(text, resolve=lambda _: "order") == planning.read_text(text.replace("shop:", ""))


def test_a_large_plan_is_judged_and_garbage_is_collected_again() -> None:
    plan = Plan("large")
    before = plan.command("s0", ["x"], outputs={"o": stdout()})
    for n in range(1, 6000):
        before = plan.command(
            f"s{n}", ["x"], needs=[before], inputs={"x": before.output("o").content()}, outputs={"o": stdout()}
        )
    assert len(plan.definition().steps) == 6000
    assert gc.isenabled()
