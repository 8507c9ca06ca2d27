"""`fencepost graph`: what is drawn of a workflow, and that a run records nothing that is not in the picture."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any
from xml.etree import ElementTree as ET

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from rich.cells import cell_len

from fencepost import Context
from fencepost.db import Database
from fencepost.pictures import calls, flow, mermaid, svg, text
from fencepost.pictures.graph import graph
from fencepost.pictures.names import NoSource
from tests.legs import Driver
from tests.roads.command import Shop
from tests.roads.drawn import DRAWN
from tests.roads.drawn_programs import programs, source_of
from tests.roads.pictured import CASES, flow_of, module_of, workflow_of

EXAMPLES = Path(__file__).parents[2] / "examples"


# What is drawn


@pytest.mark.parametrize("case", CASES)
def test_every_control_structure_is_drawn(case: str, tmp_path: Path) -> None:
    found = flow_of(CASES[case], tmp_path)
    drawn = [line for line in text.lines(found) if line[:1] in "├└│ !n" and not line.startswith("!  ")]
    assert "\n".join(drawn) == DRAWN[case].strip("\n")


def test_all_shows_the_code_between_boundaries(tmp_path: Path) -> None:
    body = "'''words'''\ntotal = n + 1\nif total > 3:\n    total = 0\nawait ctx.step(one)\nreturn total\n"
    assert list(text.lines(flow_of(body, tmp_path)))[1:] == ["└─ step one#1"]
    assert list(text.lines(flow_of(body, tmp_path, all_=True)))[1:] == [
        "├─ · total = n + 1",
        "├─ if total > 3",
        "│  └─ · total = 0",
        "├─ step one#1",
        "└─ return total",
    ]


async def test_the_airports_example_in_every_format(lonely: Shop) -> None:
    lonely.environ["PYTHONPATH"] = str(EXAMPLES)
    said = await lonely("graph", "airports.app:enrich")
    assert said.code == 0
    assert [line.lstrip("├└─│ ").split("   ")[0] for line in said.out.splitlines()[1:]] == [
        "step read#1",
        "map locate#1",
        "signal review#1",
        "if isinstance(verdict, TimedOut) or not verdict.ok",
        "raise PermissionError('not approved')",
        "step publish#1",
        "step write#1",
    ]
    doc = (await lonely("graph", "airports.app:enrich", "--json")).object
    assert (doc["workflow"], doc["complete"], doc["not_followed"]) == ("enrich", True, [])
    nodes = {node["key"]: node for node in doc["nodes"]}
    assert [node["id"] for node in nodes.values() if "id" in node] == [
        "step read#1", "map locate#1", "signal review#1", "step publish#1", "step write#1",
    ]  # fmt: skip
    way = {(nodes[edge["from"]]["kind"], nodes[edge["to"]]["kind"]): edge.get("label") for edge in doc["edges"]}
    assert way["fork", "raise"] == "if isinstance(verdict, TimedOut) or not verdict.ok"
    assert way["fork", "step"] == "else"
    assert ("raise", "end") not in way
    flowchart = (await lonely("graph", "airports.app:enrich", "--format", "mermaid")).out
    assert flowchart.startswith("flowchart TD\n")
    assert flowchart in f"{(EXAMPLES.parent / 'docs' / 'pictures.md').read_text()}\n", "the page shows today's picture"
    drawing = ET.fromstring((await lonely("graph", "airports.app:enrich", "--format", "svg")).out)
    words = {element.text for element in drawing.iter() if element.tag.endswith("}text")}
    assert {"map locate#1", "begun once, looked up when lost", "raise PermissionError('not approved')"} <= words


def test_every_word_of_the_context_is_known_to_the_picture() -> None:
    """A new one gets a line in calls.MAKERS that says what it records, or in calls.QUIET."""
    words = {word for word in dir(Context) if not word.startswith("_")}
    assert words <= calls.MAKERS.keys() | calls.QUIET
    assert calls.MAKERS.keys() | calls.QUIET <= words


# Every edge leads somewhere

BESIDE = ("awaited elsewhere", "in turns with what follows", "any number of times")  # nobody is said to wait for these


@pytest.mark.parametrize("case", CASES)
def test_every_node_is_reached_and_has_a_way_on(case: str, tmp_path: Path) -> None:
    found = graph(flow_of(CASES[case], tmp_path))
    sources, targets = {edge.source for edge in found.edges}, {edge.target for edge in found.edges}
    for node in found.nodes:
        assert node.kind == "start" or node.key in targets, node
        beside = any(title.endswith(BESIDE) for _, title in node.groups)
        assert node.kind in ("end", "raise") or beside or node.key in sources, node


@pytest.mark.parametrize("case", CASES)
def test_an_svg_is_xml_and_no_box_lies_over_another(case: str, tmp_path: Path) -> None:
    boxes = list(boxes_of(svg.svg(flow_of(CASES[case], tmp_path))))
    for place, (name, box) in enumerate(boxes):
        for other, second in boxes[place + 1 :]:
            apart = box[2] <= second[0] or second[2] <= box[0] or box[3] <= second[1] or second[3] <= box[1]
            assert apart, (name, box, other, second)


@pytest.mark.parametrize("case", CASES)
def test_nothing_is_drawn_outside_an_svg_or_its_box(case: str, tmp_path: Path) -> None:
    document = svg.svg(flow_of(CASES[case], tmp_path))
    width, height = (float(ET.fromstring(document).get(side, 0)) for side in ("width", "height"))
    boxes = list(boxes_of(document))
    for name, (left, top, right, bottom) in boxes:
        assert left >= 0, name
        assert top >= 0, name
        assert right <= width + 1, name
        assert bottom <= height + 1, name
    for said, (left, top, right, bottom) in texts_of(document):
        assert left >= 0, said
        assert right <= width + 1, said
        around = [box for _, box in boxes if box[1] < top < box[3] and box[0] < (left + right) / 2 < box[2]]
        for box in around:
            assert box[0] <= left, said
            assert right <= box[2], said
            assert bottom <= box[3], said


def texts_of(document: str) -> Any:
    """(text, its corners) of each line of text; as wide as its cells are in a usual font."""
    for element, dx, dy in moved(ET.fromstring(document), 0.0, 0.0):
        if element.tag.endswith("}text"):
            x, y = float(element.get("x", 0)) + dx, float(element.get("y", 0)) + dy
            small = "small" in element.get("class", "")
            wide = cell_len(element.text or "") * 0.602 * (10 if small else 12)
            left = x - wide / 2 if element.get("text-anchor") == "middle" else x
            yield element.text, (left, y - (7 if small else 9), left + wide, y + 3)


def boxes_of(document: str) -> Any:
    """(class, its corners) of each box; the ground and frames aside."""
    for element, dx, dy in moved(ET.fromstring(document), 0.0, 0.0):
        kind = element.get("class", "")
        if element.tag.endswith("}rect") and kind != "ground" and not kind.startswith("frame"):
            x, y = float(element.get("x", 0)) + dx, float(element.get("y", 0)) + dy
            yield kind, (x, y, x + float(element.get("width", 0)), y + float(element.get("height", 0)))


def moved(element: ET.Element, dx: float, dy: float) -> Any:
    """Every element, and how far the groups around it move it."""
    by = element.get("transform", "").removeprefix("translate(").removesuffix(")").split()
    dx, dy = (dx + float(by[0]), dy + float(by[1])) if by else (dx, dy)
    yield element, dx, dy
    for child in element:
        yield from moved(child, dx, dy)


# Hostile texts

HOSTILE = """
await ctx.sleep("<script>alert('x')</script>", 0)
await ctx.sleep('a "quoted" ] end --> b; #quot; `c` | {d}', 0)
await ctx.sleep("nul \\x00 bell \\x07 esc \\x1b[31m lone \\ud800 line\\u2028", 0)
if n == "</text><script>&":
    raise ValueError("]]>")
"""


def test_hostile_names_stay_text(tmp_path: Path) -> None:
    found = flow_of(HOSTILE, tmp_path)
    drawing = svg.svg(found)
    assert "<script" not in drawing
    words = [element.text or "" for element in ET.fromstring(drawing).iter() if element.tag.endswith("}text")]
    assert any(word.startswith("sleep <script>alert('x')</script>#1") for word in words)
    assert any("nul \\x00 bell \\x07 esc \\x1b[31m lone \\ud800 line\\u2028" in word for word in words)
    for lines in (text.lines(found), mermaid.lines(graph(found))):
        assert all(line.isprintable() for line in lines)
    json.dumps(graph(found).as_json())


def test_a_mermaid_label_holds_nothing_that_ends_it(tmp_path: Path) -> None:
    chart = list(mermaid.lines(graph(flow_of(HOSTILE, tmp_path))))
    labels = [line.split('"') for line in chart if '"' in line]
    assert labels
    for parts in labels:
        assert len(parts) == 3, "a label has two quotes, its own"
        assert not set(parts[1].replace("<br/>", "")) & set('<>[]{}|`"'), parts[1]


# What cannot be drawn


async def test_bad_input_is_one_sentence_and_2(lonely: Shop) -> None:
    (lonely.place / "made.py").write_text(
        "from fencepost import App, Context\napp = App('made')\n"
        'exec("@app.workflow()\\nasync def w(ctx: Context) -> None:\\n    return None\\n")\n'
    )
    (lonely.place / "broken.py").write_text("def (:\n")
    for target, words in (
        ("no_such_module:x", "there is no module"),
        ("shop:nope", "has no 'nope'"),
        ("shop", "MODULE:WORKFLOW"),
        ("shop:double", "is a step, not a workflow"),
        ("broken:x", "line 1"),
        ("made:w", "its source cannot be read"),
    ):
        said = await lonely("graph", target, "--json")
        assert (said.code, said.object["error"]["code"]) == (2, "USAGE"), target
        assert words in said.err
        assert said.err.count("\n") == 1
    said = await lonely("graph", "shop:order", "--format", "png")
    assert said.code == 2


def test_a_file_that_changed_is_refused(tmp_path: Path) -> None:
    import linecache

    workflow = workflow_of("await ctx.step(one)\n", tmp_path)
    Path(workflow.function.__code__.co_filename).write_text("def other():\n    pass\n" * 200)
    linecache.checkcache()
    with pytest.raises(NoSource):
        flow.read(workflow)


def test_code_nested_too_deeply_is_refused(tmp_path: Path) -> None:
    with pytest.raises(NoSource, match="nested too deeply"):
        flow_of("x = " + " or ".join(["n"] * 3000) + " or await ctx.now()\n", tmp_path)


def test_importing_fencepost_imports_no_pictures() -> None:
    code = "import sys, fencepost\nfrom fencepost.cli import main\nmain(['--version'])\nprint(*sys.modules)"
    out = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout
    assert not [name for name in out.split() if name.startswith(("fencepost.pictures", "rich"))]


# The picture and the run


def covered(doc: dict[str, Any], kind: str, name: str, ordinal: int) -> bool:
    """A node of the picture stands for this boundary."""
    return any(
        node["kind"] == kind
        and (node["name"] == name or not node["name_known"])
        and node["ordinals"][0] <= ordinal <= (node["ordinals"][1] or ordinal)
        for node in doc["nodes"]
        if "id" in node
    )


@settings(max_examples=60, deadline=None, suppress_health_check=list(HealthCheck))
@given(program=programs(), flips=st.lists(st.booleans(), max_size=14))
@pytest.mark.timeout(900)
async def test_a_random_program_records_nothing_that_is_not_drawn(
    db: Database, tmp_path: Path, program: Any, flips: list[bool]
) -> None:
    module = module_of(source_of(program), tmp_path)
    found = flow.read(module.drawn)
    doc = graph(found).as_json()
    assert doc["complete"]
    driver = Driver(db, module.app)
    shown = await driver.run_until(await driver.start(module.drawn, flips))
    for step in shown["steps"] or []:
        assert covered(doc, step["kind"], step["name"], step["ordinal"]), (
            f"{step['kind']} {step['name']}#{step['ordinal']} is not in\n"
            + "\n".join(text.lines(found))
            + "\n"
            + source_of(program)
        )
    ET.fromstring(svg.svg(found))


@settings(max_examples=15, deadline=None, suppress_health_check=list(HealthCheck))
@given(program=programs(straight=True))
@pytest.mark.timeout(600)
async def test_a_straight_program_records_exactly_what_is_drawn(db: Database, tmp_path: Path, program: Any) -> None:
    module = module_of(source_of(program), tmp_path)
    driver = Driver(db, module.app)
    shown = await driver.run_until(await driver.start(module.drawn, []))
    recorded = [f"{step['kind']} {step['name']}#{step['ordinal']}" for step in shown["steps"] or []]
    assert sorted(recorded) == sorted(call.id for call in flow.read(module.drawn).calls)
