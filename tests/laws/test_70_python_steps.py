"""Functions as steps: called once in a process of their own, with their inputs as keyword arguments."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from fencepost.worker.commands import Packet
from tests.attempts_here import JSON, TEXT, Place, packet

MODULE = """
import asyncio, os, sys
def add(a, b): return {"sum": a + b, "cwd": os.getcwd(), "step": os.environ["FENCEPOST_STEP"]}
async def later(n):
    await asyncio.sleep(0)
    return n * 2
def everything(**given):
    raw, long = given["raw"].decode("latin-1").replace(chr(0), "|0"), len(given["long"][0])
    return given | {"raw": raw, "long": long}
def read(far): return open(far["path"]).read()
def bad(): raise ValueError("not today")
def leave(): sys.exit(7)
def odd(): return {"when": {1: object()}}
def nothing(): return None
def talk(): print("said"); return 1
class Tool:
    @staticmethod
    def use(): return "used"
number = 5
"""


@pytest.fixture(autouse=True)
def module(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    (tmp_path / "steps_of_a_test.py").write_text(MODULE)
    (tmp_path / "json.py").write_text("raise RuntimeError('the author has a json of his own')")
    (tmp_path / "broken.py").write_text("import no_such_library_here\n")
    monkeypatch.chdir(tmp_path)
    return tmp_path


def step(target: str, inputs: dict[str, Any] | None = None, **more: Any) -> Packet:
    outputs = {"result": {"from": "return", "media_type": JSON}}
    return packet({"kind": "python", "python": target, "outputs": outputs, **more}, inputs)


async def result(here: Place, tried: Packet) -> Any:
    return json.loads((await here.outputs(tried))["result"]["text"])


async def test_a_function_is_called_with_its_input_and_what_it_returns_is_the_output(here: Place) -> None:
    """70.6 From the folder that the worker stands in, in a working folder of its own."""
    found = await result(here, step("steps_of_a_test:add", input={"a": 1, "b": 2}))
    assert (found["sum"], found["step"]) == (3, "step")
    assert Path(found["cwd"]).name == "work"
    assert await result(here, step("steps_of_a_test:later", input={"n": 4})) == 8
    assert await result(here, step("steps_of_a_test:Tool.use")) == "used"
    assert await result(here, step("steps_of_a_test:nothing")) is None
    talking = step(
        "steps_of_a_test:talk",
        outputs={"log": {"from": "stdout", "media_type": TEXT}, "n": {"from": "return", "media_type": JSON}},
    )
    found = await here.outputs(talking)
    assert (found["log"]["text"], found["n"]["text"]) == ("said\n", "1")


async def test_hand_offs_are_keyword_arguments_as_their_mode_says(here: Place) -> None:
    """70.8 content: the value, however long; quote: the text; reference: where it is; none: None."""
    long = here.store.put("inst-1", json.dumps(["x" * 300_000]).encode())
    raw = here.store.put("inst-1", b"\xff\x00")
    given = {
        "value": {"binding": "b", "mode": "content", "media_type": JSON, "text": '{"n": 1}'},
        "long": {"binding": "b", "mode": "content", "media_type": JSON, "place": long.place, "digest": long.digest},
        "raw": {"binding": "b", "mode": "content", "media_type": "application/octet-stream", "place": raw.place},
        "quoted": {"binding": "b", "mode": "quote", "media_type": JSON, "text": '{"n": 1}'},
        "empty": {"binding": "b", "mode": "content", "media_type": JSON, "text": "null"},
        "away": {"binding": "b", "mode": "content", "required": False, "reason": "skipped"},
    }
    found = await result(here, step("steps_of_a_test:everything", given, input={"own": [1]}))
    assert found == {
        "own": [1], "value": {"n": 1}, "long": 300_000, "raw": "\xff|0", "quoted": '{"n": 1}', "empty": None, "away": None,
    }  # fmt: skip
    far = {"far": {"binding": "b", "mode": "reference", "media_type": JSON, "place": long.place, "digest": long.digest}}
    read = await here.outputs(step("steps_of_a_test:read", far))
    assert read["result"]["size"] > 300_000


@pytest.mark.parametrize(
    ("target", "said"),
    [
        ("no_such_module_here:f", "there is no module 'no_such_module_here'"),
        ("steps_of_a_test:missing", "module 'steps_of_a_test' has no 'missing'"),
        ("steps_of_a_test:Tool.missing", "module 'steps_of_a_test' has no 'Tool.missing'"),
        ("steps_of_a_test:number", "steps_of_a_test:number is not a function: it is of type int"),
    ],
)
async def test_a_function_that_cannot_be_found_is_a_launch_error(here: Place, target: str, said: str) -> None:
    """70.7 Nothing of the author's ran."""
    error = await here.fails(step(target))
    assert (error["outcome"], said in error["message"]) == ("launch_error", True), error


@pytest.mark.parametrize(
    ("target", "code", "said"),
    [
        ("steps_of_a_test:bad", 1, "it exited with 1: ValueError: not today"),
        ("broken:f", 1, "it exited with 1: ModuleNotFoundError: No module named 'no_such_library_here'"),
        ("steps_of_a_test:leave", 7, "it exited with 7"),
        ("steps_of_a_test:add", 1, "missing 2 required positional arguments"),
    ],
)
async def test_a_function_that_raises_is_a_failure_with_its_last_words(
    here: Place, target: str, code: int, said: str
) -> None:
    """70.7 The author's code was reached; a module's own missing import is the author's too."""
    error = await here.fails(step(target))
    assert (error["outcome"], error["exit_code"], said in error["message"]) == ("failure", code, True), error


async def test_a_value_that_json_has_not_is_invalid_output(here: Place) -> None:
    """00.5, 70.6 With the path of the offending part."""
    for required in (True, False):
        outputs = {"result": {"from": "return", "media_type": JSON, "required": required}}
        error = await here.fails(step("steps_of_a_test:odd", outputs=outputs))
        assert error["outcome"] == "invalid_output"
        assert "output 'result' cannot be kept: The value at $.when" in error["message"], error


async def test_what_is_returned_keeps_its_schema(here: Place) -> None:
    """70.6 The same judge as for files."""
    outputs = {"result": {"from": "return", "media_type": JSON, "schema": {"type": "string"}}}
    error = await here.fails(step("steps_of_a_test:talk", outputs=outputs))
    assert (error["outcome"], "does not keep its schema: $: " in error["message"]) == ("invalid_output", True)
