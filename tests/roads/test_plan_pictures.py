"""`fencepost plan check` and `fencepost plan graph`: what a person is told of a file, and what is drawn of it."""

from __future__ import annotations

import json
import random
import re
from itertools import pairwise
from pathlib import Path
from typing import Any
from xml.etree import ElementTree as ET

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from fencepost import planning
from fencepost.pictures import layers, mermaid, plans
from tests.laws.plan_faults import CASES, GOOD
from tests.roads.command import Shop
from tests.roads.plan_drawing import documents
from tests.roads.test_graph import boxes_of, texts_of

DIAMOND = {
    "name": "diamond",
    "max_concurrency": 2,
    "step": [
        {"id": "a", "command": ["git", "log", "--since=last week"], "outputs": {"log": {"from": "stdout"}}},
        {"id": "b", "python": "notes:write", "needs": ["a"], "handoffs": [{"input": "log", "from": "a.log"}]},
        {"id": "c", "workflow": "translate", "needs": [{"step": "a", "optional": True}], "retry": {"max_attempts": 3}},
        {
            "id": "publish", "command": ["sh"], "needs": ["b", "c"],
            "handoffs": [{"input": "log", "from": "a.log", "mode": "quote"}, {"input": "notes", "from": "b.result"}],
        },
    ],
}  # fmt: skip


def drawn(document: dict[str, Any]) -> plans.PlanGraph:
    return plans.graph(planning.read_text(json.dumps(document), "json"))


# What is drawn


def test_a_plan_as_lines() -> None:
    assert list(plans.lines(drawn(DIAMOND))) == [
        "plan diamond   4 steps, at most 2 at a time",
        "1 ─ a        git log '--since=last week'",
        "2 ┬ b        notes:write                  after a; takes a.log",
        "  └ c        workflow translate           after a?; up to 3 tries",
        "3 ─ publish  sh                           after b, c; takes a.log, b.result",
        "?  optional: it waits for that step's end, whatever it was",
    ]


def test_a_plan_as_mermaid() -> None:
    assert list(mermaid.lines(drawn(DIAMOND))) == [
        "flowchart TD",
        "  n0[\"a<br/>git log '--since=last week'\"]",
        '  n1[["b<br/>notes:write"]]',
        '  n2[/"c<br/>workflow translate"/]',
        '  n3["publish<br/>sh"]',
        '  n0 -->|"log"| n1',
        "  n0 -.-> n2",
        '  n1 -->|"result"| n3',
        "  n2 --> n3",
        '  n0 ==>|"log"| n3',
    ]


def test_a_plan_as_a_drawn_picture() -> None:
    document = layers.svg(drawn(DIAMOND))
    words = [said for said, _ in texts_of(document)]
    assert {
        "a",
        "b",
        "c",
        "publish",
        "notes:write",
        "takes a.log as quote",
        "dashed: it waits for the end, whatever it was",
    } <= set(words)
    classes = [kind for kind, _ in boxes_of(document)]
    assert classes == ["step", "map", "child", "step"]
    ways = [element.get("class") for element in ET.fromstring(document).iter() if element.get("marker-end")]
    assert sorted(ways) == ["line", "line", "line", "line often", "line thick"]


def points_of(document: str) -> Any:
    """Each line's points."""
    for element in ET.fromstring(document).iter():
        if element.get("marker-end"):
            numbers = [float(number) for number in re.findall(r"-?[\d.]+", element.get("d", ""))]
            yield list(zip(numbers[::2], numbers[1::2], strict=True))


@settings(max_examples=75, deadline=None, suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large])
@given(document=documents())
def test_boxes_lie_apart_lines_miss_them_and_nothing_leaves_the_picture(document: dict[str, Any]) -> None:
    found = drawn(document)
    picture = layers.svg(found)
    width, height = (float(ET.fromstring(picture).get(side, 0)) for side in ("width", "height"))
    boxes = [box for _, box in boxes_of(picture)]
    assert len(boxes) == len(document["step"])
    for n, box in enumerate(boxes):
        assert box[0] >= 0
        assert box[1] >= 0
        assert box[2] <= width
        assert box[3] <= height
        for second in boxes[n + 1 :]:
            assert box[2] <= second[0] or second[2] <= box[0] or box[3] <= second[1] or second[3] <= box[1]
    for said, (left, _, right, _) in texts_of(picture):
        assert left >= 0, said
        assert right <= width, said
    for points in points_of(picture):
        for (x0, y0), (x1, y1) in pairwise(points):
            for left, top, right, bottom in boxes:
                for part in range(1, 20):  # a line from box to box touches them at its ends only
                    x, y = x0 + (x1 - x0) * part / 20, y0 + (y1 - y0) * part / 20
                    assert not (left < x < right and top < y < bottom)


@settings(max_examples=50, deadline=None, suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large])
@given(document=documents(), seed=st.integers(0, 2**32))
def test_every_edge_goes_down_and_every_need_and_hand_off_has_one(document: dict[str, Any], seed: int) -> None:
    found = drawn(document)
    level = {place: number for number, places in enumerate(found.levels) for place in places}
    assert sorted(level) == list(range(len(document["step"])))
    place = {step["id"]: n for n, step in enumerate(document["step"])}
    wanted = {
        (place[need if isinstance(need, str) else need["step"]], n)
        for n, step in enumerate(document["step"])
        for need in step.get("needs", [])
    } | {
        (place[each["from"].partition(".")[0]], n)
        for n, step in enumerate(document["step"])
        for each in step.get("handoffs", [])
    }
    edges = [(int(edge.source[1:]), int(edge.target[1:])) for edge in found.edges]
    assert len(edges) == len(set(edges))
    assert set(edges) == wanted
    assert all(level[source] < level[target] for source, target in edges)
    lines = list(plans.lines(found))
    assert all(line.isprintable() for line in lines)
    chart = list(mermaid.lines(found))
    assert all(line.isprintable() and line.count('"') in (0, 2) for line in chart)
    random.Random(seed).shuffle(document["step"])
    json.dumps(found.as_json())


def test_a_wide_and_a_long_plan_are_drawn_and_one_too_large_is_refused() -> None:
    wide = [
        {"id": "first", "command": ["x"]},
        *({"id": f"w{n}", "command": ["x"], "needs": ["first"]} for n in range(500)),
    ]
    wide.append({"id": "last", "command": ["x"], "needs": [f"w{n}" for n in range(500)]})
    found = drawn({"name": "wide", "step": wide})
    assert layers.svg(found).count("<rect") == 503
    *_, last = plans.lines(found)
    assert last == "3 ─ last   x  after w0, w1, w2, w3, w4, w5, w6 and 493 more"
    chain = [{"id": f"s{n}", "command": ["x"], "needs": [f"s{n - 1}"] if n else []} for n in range(1000)]
    assert layers.svg(drawn({"name": "long", "step": chain})).count("<rect") == 1001
    skipping = [step | {"needs": [*step["needs"], *(["s0"] if n > 1 else [])]} for n, step in enumerate(chain)]
    with pytest.raises(layers.TooLarge, match="1,000 steps and the lines between them are too many"):
        layers.svg(drawn({"name": "skipping", "step": skipping}))


# The commands


async def test_check_says_that_a_plan_is_one(lonely: Shop) -> None:
    (lonely.place / "notes.toml").write_text(GOOD)
    found = planning.read_text(GOOD)
    said = await lonely("plan", "check", "notes.toml")
    assert (said.code, said.out) == (0, f"release-notes: 2 steps, no fault; its run is {found.run_id}\n")
    assert (await lonely("plan", "check", "notes.toml", "--json")).object == {
        "name": "release-notes", "run_id": found.run_id, "digest": found.digest, "max_concurrency": 2, "steps": 2,
    }  # fmt: skip


async def test_check_names_every_fault_as_a_compiler_does(lonely: Shop) -> None:
    text, wanted = CASES["limits out of range"]
    (lonely.place / "bad.toml").write_text(text)
    said = await lonely("plan", "check", "bad.toml", "--json")
    assert said.code == 2
    error = said.object["error"]
    assert (error["code"], len(error["faults"])) == ("PLAN_INVALID", len(wanted))
    assert [fault["line"] for fault in error["faults"]] == sorted(line or 0 for line, _, _ in wanted)
    lines = said.err.splitlines()
    assert lines[0] == "error: bad.toml cannot be used: 5 faults"
    assert lines[1] == "bad.toml:2: max_concurrency: is 0: write a whole number from 1 to 10,000"
    assert lines[1:] == [f"bad.toml:{fault['line']}: {fault['path']}: {fault['message']}" for fault in error["faults"]]


async def test_check_finds_workflows_by_their_place(lonely: Shop) -> None:
    steps = '{"id": "a", "workflow": "shop:order"},\n{"id": "b", "workflow": "shop:ordre"}, {"id": "c", "workflow": "nope:x"}'
    text = f'{{"name": "n", "step": [\n{steps}]}}'
    (lonely.place / "flows.json").write_text(text)
    said = await lonely("plan", "check", "flows.json")
    assert said.code == 2
    assert re.search(
        r"^flows\.json:3: step\[2\] b: workflow: module shop has no 'ordre'; shop has ", said.err, re.MULTILINE
    )
    assert re.search(r"^flows\.json:3: step\[3\] c: workflow: there is no module 'nope'", said.err, re.MULTILINE)
    (lonely.place / "flow.json").write_text('{"name": "n", "step": [{"id": "a", "workflow": "shop:order"}]}')
    graph = (await lonely("plan", "graph", "flow.json", "--json")).object
    assert graph["nodes"] == [{"key": "n0", "step": "a", "kind": "workflow", "what": "workflow order", "level": 1}]


@pytest.mark.parametrize(
    ("name", "held", "part"),
    [
        ("none.toml", None, "none.toml: cannot be read: No such file or directory"),
        (".", None, ".: cannot be read: Is a directory"),
        ("empty.toml", b"", "empty.toml: is empty"),
        ("latin.toml", b'name = "\xe9"', "latin.toml:1: is not UTF-8"),
        ("broken.toml", b'name = "n"\nstep = [', "broken.toml:2: is not TOML"),
        ("broken.json", b'{"name"\n: }', "broken.json:2: is not JSON"),
    ],
)
async def test_what_cannot_be_read_is_one_sentence_and_2(
    lonely: Shop, name: str, held: bytes | None, part: str
) -> None:
    if held is not None:
        (lonely.place / name).write_bytes(held)
    for command in ("check", "graph"):
        said = await lonely("plan", command, name)
        assert (said.code, said.out) == (2, "")
        assert part in said.err
        assert "Traceback" not in said.err


async def test_graph_in_every_format_and_into_a_file(lonely: Shop) -> None:
    (lonely.place / "diamond.json").write_text(json.dumps(DIAMOND))
    found = drawn(DIAMOND)
    assert (await lonely("plan", "graph", "diamond.json")).out.splitlines() == list(plans.lines(found))
    assert (await lonely("plan", "graph", "diamond.json", "--format", "mermaid")).out.splitlines() == list(
        mermaid.lines(found)
    )
    assert (await lonely("plan", "graph", "diamond.json", "--format", "svg")).out == layers.svg(found)
    said = await lonely("plan", "graph", "diamond.json", "--format", "svg", "--out", "diamond.svg")
    assert (said.code, said.out, said.err) == (0, "", "written: diamond.svg\n")
    assert Path(lonely.place / "diamond.svg").read_text() == layers.svg(found)
    said = await lonely("plan", "graph", "diamond.json", "--out", "no/such/place")
    assert (said.code, said.err) == (2, "error: no/such/place cannot be written: No such file or directory\n")


async def test_graph_of_a_plan_with_faults_draws_nothing(lonely: Shop) -> None:
    (lonely.place / "bad.toml").write_text(CASES["a cycle"][0])
    said = await lonely("plan", "graph", "bad.toml")
    assert (said.code, said.out) == (2, "")
    assert "bad.toml:6: step[1] log: needs[1]: is part of a cycle" in said.err
