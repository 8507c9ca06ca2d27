"""The second example, as a user plays it: services that count what they charge, and a worker killed in the middle."""

from __future__ import annotations

import asyncio
import json
import os
import sys
from collections import Counter
from pathlib import Path

import pytest

from examples.airports import work
from examples.enrich.providers import NAMES, Provider, conduct, countries, expected
from examples.enrich.service import Away, Cut, Refused, ask, billed

ROOT = Path(__file__).resolve().parents[2]
ROWS = 60


@pytest.mark.timeout(180)
async def test_the_example_pays_nobody_twice(dsn: str, tmp_path: Path) -> None:
    """50.8, 50.11 One object, counted at the services; every kind of answer, of failure and of resolution is in it."""
    kept = {name: value for name, value in os.environ.items() if not name.startswith("FENCEPOST_")}
    process = await asyncio.create_subprocess_exec(
        sys.executable, "-m", "examples.enrich", "--rows", str(ROWS), cwd=ROOT, env=kept | {"FENCEPOST_DATABASE_URL": dsn, "TMPDIR": str(tmp_path)},
        stdout=asyncio.subprocess.PIPE, stderr=asyncio.subprocess.PIPE,
    )  # fmt: skip
    out, err = await process.communicate()
    assert process.returncode == 0, (out.decode(), err.decode())
    (line,) = out.decode().splitlines()
    said = json.loads(line)
    assert list(said) == "rows answered_by calls paid paid_twice asked_too_early unknown resolved ok".split()
    icaos = [row["icao"] for row in work.read_rows(work.AIRPORTS, ROWS)]
    assert said["answered_by"] == dict(sorted(Counter(expected(icao) for icao in icaos).items()))
    assert set(said["answered_by"]) == {*NAMES, "nobody"}
    assert (said["rows"], said["paid_twice"], said["asked_too_early"], said["ok"]) == (ROWS, 0, 0, True)
    assert said["paid"] == sum(expected(icao) != "nobody" for icao in icaos)
    cut = [icao for icao in icaos if expected(icao) == "registry" and conduct("registry", icao) == "cut"]
    assert said["resolved"]["operator"] >= len(cut) > 0
    assert said["resolved"]["lookup"] > 0
    assert said["unknown"] == sum(said["resolved"].values())
    assert list(tmp_path.iterdir()) == [], "it leaves nothing"


async def test_the_services_do_what_they_say(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """They charge before they answer, look at nothing, and can be made to charge twice: what the example shows is not their doing."""
    async with Provider("atlas", tmp_path, countries(), lambda: None) as atlas:
        monkeypatch.setenv("ENRICH_ATLAS", atlas.url)
        by = {conduct("atlas", icao): icao for icao in countries()}
        assert await ask("atlas", "k", by["answer"]) == countries()[by["answer"]]
        assert await ask("atlas", "k", by["answer"]) is not None
        assert [key for key, _, _ in atlas.bill()] == ["k", "k"]
        with pytest.raises(Away):
            await ask("atlas", "busy", by["busy"])
        with pytest.raises(Refused):
            await ask("atlas", "refused", by["refuse"])
        with pytest.raises(Cut):
            await ask("atlas", "cut", by["cut"])
        assert await ask("atlas", "nothing", by["nothing"]) is None
        assert [await billed("atlas", key) for key in ("cut", "busy")] == [
            (True, countries()[by["cut"]]),
            (False, None),
        ]
    with pytest.raises(Away):
        await ask("atlas", "k", by["answer"])


async def test_the_registry_counts_who_comes_too_early(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Else `asked_too_early` would be 0 whatever the steps do."""
    async with Provider("registry", tmp_path, countries(), lambda: None) as registry:
        monkeypatch.setenv("ENRICH_REGISTRY", registry.url)
        icao = next(icao for icao in countries() if conduct("registry", icao) == "answer")
        told: list[float | None] = []
        for n in range(6):
            try:
                await ask("registry", f"k{min(n, 3)}", icao)
            except Away as away:
                told.append(away.seconds)
        assert (told, registry.early, len(registry.bill())) == ([1.0] * 3, 2, 3)
