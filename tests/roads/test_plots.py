"""`python -m bench.plots`: what a run of the benchmark measured, as bars."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any
from xml.etree import ElementTree as ET

import pytest

from bench import plots

LINES: list[dict[str, Any]] = [
    {"header": {"python": "3.11", "postgres": "18.6", "cores": 2, "machine": "Linux", "quick": True}},
    {"round": 1, "trial": "drains", "test": "B", "system": "us", "figures": {"B": 1000.0, "F": 0.0}},
    {"round": 2, "trial": "drains", "test": "B", "system": "us", "figures": {"B": 3000.0, "F": 0.25}},
    {"round": 1, "trial": "drains", "test": "B", "system": "absurd", "figures": {"B": 300.0}},
    {"round": 1, "trial": "drains", "test": "B", "system": "<script>", "figures": {"B": 200.0, "Dwake_ms": -2.5}},
]


def file_of(place: Path, *lines: Any) -> Path:
    file = place / "run.jsonl"
    file.write_text("".join(f"{line if isinstance(line, str) else json.dumps(line)}\n" for line in lines))
    return file


def test_every_key_has_its_bars_range_and_target(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert plots.main([str(file_of(tmp_path, *LINES))]) == 0
    picture = tmp_path / "run.svg"
    assert capsys.readouterr().out == f"{picture}\n"
    assert "<script" not in picture.read_text()
    drawing = ET.parse(picture).getroot()
    words = [element.text for element in drawing.iter() if element.tag.endswith("}text")]
    assert {
        "B: no-op runs, 1 worker process",
        "2,000 (1,000…3,000)",
        "300",
        "<script>",
        "target 1,800",
        "0.125 (0…0.25)",
    } <= set(words)
    assert not [word for word in words if word and word.startswith("A1")], "what was not measured has no chart"
    bars = [float(element.get("width", 0)) for element in drawing.iter() if element.get("rx") == "2"]
    assert bars[:3] == pytest.approx([2 / 3 * plots.BARS, 0.1 * plots.BARS, 200 / 3000 * plots.BARS], abs=0.1)
    assert all(0 < bar <= plots.BARS for bar in bars)


@pytest.mark.parametrize(
    "lines", [["no json"], ["[]"], ['{"figures": {"B": "fast"}, "system": "us"}'], ['{"figures": {"B": 1.0}}']]
)
def test_what_is_no_result_is_one_sentence_and_2(
    tmp_path: Path, lines: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    assert plots.main([str(file_of(tmp_path, *LINES, *lines))]) == 2
    said = capsys.readouterr()
    assert said.out == ""
    assert "line 6" in said.err
    assert not (tmp_path / "run.svg").exists()


def test_a_file_that_is_not_there_is_2(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert plots.main([str(tmp_path / "none.jsonl")]) == 2
    assert "none.jsonl" in capsys.readouterr().err


def test_a_run_that_measured_nothing_is_a_picture_without_charts(tmp_path: Path) -> None:
    assert ET.parse(plots.write(file_of(tmp_path, LINES[0]))).getroot() is not None
