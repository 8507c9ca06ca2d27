"""The benchmark: what it computes, and the shape of what it says. Never a speed: that is what it is for."""

from __future__ import annotations

import asyncio
import json
import os
import signal
import sys
from collections.abc import Iterator
from pathlib import Path

import asyncpg
import pytest

from bench import table, targets
from bench.board import Board
from bench.processes import ROOT, ChildFailed, child
from bench.run import rotated
from bench.systems import us_plans
from bench.systems.floor import Floor
from tests.roads.command import Shop

KEYS = (
    "A1 A16 Abulk B C Cmarked Calone_ms Dstart_ms Dwake_ms Epending Ehistory Esnapshot Ecold F Gimport_ms Grss_mb cpu_run_us cpu_step_us "
    "server_run_us wal_run_b"
).split()
COLUMNS = "us absurd dbos procrastinate pgqueuer oban chancy floor target met".split()

FIGURES: dict[str, dict[str, float]] = {
    "us": {"A1": 2000, "A16": 9000, "Abulk": 30_000, "B": 18_000, "C": 20_000, "Cmarked": 11_000, "Dwake_ms": 1.0, "Dwake99_ms": 3.9, "F": 0.5},
    "absurd": {"A1": 2100, "A16": 2900, "B": 3000, "C": 2001, "Dwake_ms": 129},
    "procrastinate": {"A1": 1500, "A16": 2500, "Abulk": 20_000, "B": 1100, "F": 0.85},
    "pgqueuer": {"A1": 2000, "A16": 2800, "Abulk": 64_000, "B": 22_000},
    "floor": {"A1": 3300, "A16": 39_000, "Abulk": 235_000, "B": 61_000, "C": 170_000},
}  # fmt: skip


# The arithmetic


@pytest.mark.parametrize(
    ("key", "bar", "met"),
    [
        ("A1", 2100, False),  # the best peer, and never the floor
        ("A16", 3 * 2900, True),
        ("Abulk", 32_000, False),  # of 1.5 x Procrastinate and 0.5 x PgQueuer the larger
        ("B", 6 * 3000, True),  # reached exactly
        ("C", 10 * 2001, False),
        ("Cmarked", 5 * 2001, True),
        ("F", 0.5, True),
        ("Dwake_ms", 1.5, True),
        ("Dstart_ms", 1.5, None),  # not measured
    ],
)
def test_a_target_is_computed_from_the_peers_of_the_same_run(key: str, bar: float, met: bool | None) -> None:
    assert targets.target(key, FIGURES) == pytest.approx(bar)
    assert targets.met(key, FIGURES) is met


def test_a_wake_is_slow_when_one_in_a_hundred_is() -> None:
    late = FIGURES | {"us": FIGURES["us"] | {"Dwake99_ms": 4.1}}
    assert targets.met("Dwake_ms", late) is False


@pytest.mark.parametrize("peer", ["procrastinate", "pgqueuer"])
def test_without_a_peer_that_its_rule_names_there_is_no_target(peer: str) -> None:
    alone = {name: figures for name, figures in FIGURES.items() if name != peer}
    assert targets.target("Abulk", alone) is None
    assert targets.met("Abulk", alone) is None


def test_a_ratio_is_to_the_best_peer_of_rates_the_fastest_of_times_the_shortest() -> None:
    assert targets.ratio("B", FIGURES) == pytest.approx(18_000 / 22_000)
    assert targets.ratio("Dwake_ms", FIGURES) == pytest.approx(1 / 129)
    assert targets.ratio("Cmarked", FIGURES) is None, "no peer has such steps"


def test_of_the_rounds_the_medians_count() -> None:
    measured = [("us", {"B": 1.0}), ("us", {"B": 9.0, "F": 0.3}), ("us", {"B": 2.0}), ("absurd", {"B": 5.0})]
    assert targets.medians(measured) == {"us": {"B": 2.0, "F": 0.3}, "absurd": {"B": 5.0}}


def test_in_every_round_another_system_begins() -> None:
    names = ["us", "absurd", "floor"]
    assert [rotated(names, turn) for turn in (1, 2, 3)] == [names, ["absurd", "floor", "us"], ["floor", "us", "absurd"]]
    assert rotated(names, 4) == names
    assert rotated([], 2) == []


def test_the_object_has_every_key_and_every_column_also_of_what_was_not_measured() -> None:
    said = targets.verdict(FIGURES)
    assert list(said) == KEYS
    assert all(list(row) == COLUMNS for row in said.values())
    assert said["B"]["oban"] is None
    assert (said["B"]["floor"], said["B"]["target"], said["B"]["met"]) == (61_000, 18_000, True)
    assert json.loads(json.dumps(said, allow_nan=False)) == said


@pytest.mark.parametrize(("reached", "met"), [(0.49, "no"), (0.5, "yes")])
def test_a_target_of_our_own_is_judged_in_the_table_and_is_no_word_of_the_object(reached: float, met: str) -> None:
    measured = [("us", {"Plan_wide": reached, "Commands": 30.0})]
    _, _, plan, commands = table.rows(measured, missing={})
    assert plan.endswith(f"| {reached} | – | ≥ 0.5 | {met} |")
    assert commands.endswith("| 30 | – |  |  |"), "no bound, no verdict"
    assert list(targets.verdict(targets.medians(measured))) == KEYS


def test_the_table_shows_median_range_ratio_and_target() -> None:
    measured = [("us", {"B": 10_000.0}), ("us", {"B": 14_000.0}), ("us", {"B": 12_000.0}), ("absurd", {"B": 1500.0})]
    head, _, row = table.rows(measured, missing={})
    assert head == "| test | us | absurd | ÷ best peer | target | met |"
    assert row == "| B: no-op runs, 1 worker process, /s | 12,000 (10,000…14,000) | 1,500 | 8 | ≥ 9,000 | yes |"


# The plans


def test_a_plan_that_is_measured_is_as_wide_and_as_deep_as_its_name_says() -> None:
    wide, layers, lone = (us_plans.plan_of(kind, 250).definition() for kind in ("wide", "layers", "lone"))
    assert [len(plan.steps) for plan in (wide, layers, lone)] == [250] * 3
    assert (wide.max_concurrency, layers.max_concurrency) == (1000, 1000)
    assert not any(step.needs for step in wide.steps)
    needs = [[need.step for need in step.needs] for step in layers.steps]
    assert needs == [[]] * 100 + [[f"s{n - 100}"] for n in range(100, 250)]
    assert [[need.step for need in step.needs] for step in lone.steps] == [[], *([f"s{n - 1}"] for n in range(1, 250))]
    commands = us_plans.plan_of("commands", 9).definition()
    assert commands.max_concurrency == 8
    assert not any(step.needs for step in commands.steps)


# The run


async def bench(*words: str) -> asyncio.subprocess.Process:
    environ = {k: v for k, v in os.environ.items() if not k.startswith(("FENCEPOST_", "PG"))}
    if named := os.environ.get("FENCEPOST_TEST_PG_BIN"):
        environ["FENCEPOST_BENCH_PG_BIN"] = named
    return await asyncio.create_subprocess_exec(
        sys.executable, "-m", "bench", "--tiny", *words, cwd=ROOT, env=environ,
        stdout=asyncio.subprocess.PIPE, stderr=asyncio.subprocess.PIPE,
    )  # fmt: skip


def home_of(process: asyncio.subprocess.Process) -> Path:
    return ROOT / "bench" / "results" / "tmp" / f"server-{process.pid}"


@pytest.mark.timeout(300)
async def test_a_tiny_run_of_ours_ends_with_one_object_and_leaves_only_its_results() -> None:
    results = set((ROOT / "bench" / "results").glob("*.jsonl"))
    process = await bench("--systems", "us,floor", "--trials", "admissions,drain,marked,pending,plans", "--json")
    out, err = await process.communicate()
    assert process.returncode == 0, err.decode()
    assert out.count(b"\n") == 1, "stdout is data"
    said = json.loads(out)
    assert list(said) == KEYS
    for key in ("A1", "A16", "Abulk", "B", "Cmarked", "Epending", "cpu_run_us", "server_run_us", "wal_run_b"):
        assert said[key]["us"] is not None, (key, err.decode())
        assert said[key]["us"] >= 0
    assert said["B"]["floor"] > 0
    assert said["Cmarked"]["floor"] is None
    assert said["C"]["us"] is None, "not asked for"
    assert said["A1"]["target"] is None, "no peer ran"
    assert said["Epending"]["met"] in {True, False}
    assert not home_of(process).exists()
    (made,) = set((ROOT / "bench" / "results").glob("*.jsonl")) - results
    lines = [json.loads(line) for line in made.read_text().splitlines()]
    assert made.with_suffix(".svg").read_text().startswith("<svg")
    made.with_suffix(".svg").unlink()
    made.unlink()
    assert lines[0]["header"]["settings"]["fsync"] == "on"
    assert {line["trial"] for line in lines[1:]} == {"admissions", "drain", "marked", "pending", "plans"}
    (plans,) = (line for line in lines[1:] if line["trial"] == "plans")
    assert plans["system"] == "us"
    assert list(plans["figures"]) == ["Plan_wide", "Plan_layers", "Command_ms", "Commands"]
    assert all(figure > 0 for figure in plans["figures"].values())


@pytest.mark.timeout(120)
async def test_an_interrupted_run_leaves_no_server_and_no_child() -> None:
    process = await bench("--systems", "floor", "--tests", "F")
    assert process.stderr is not None
    home = home_of(process)
    async with asyncio.timeout(60):
        assert b"measuring" in await process.stderr.readline()
    postmaster = json.loads((home / "server.json").read_text())["server"]
    process.send_signal(signal.SIGINT)
    _, err = await process.communicate()
    assert process.returncode == 130, err.decode()
    assert not home.exists()
    assert not Path(f"/proc/{postmaster}").exists()
    for made in (ROOT / "bench" / "results").glob(f"*-{process.pid}.jsonl"):
        made.unlink()


# The children


@pytest.fixture
def board(tmp_path: Path) -> Iterator[Board]:
    """A board of its own."""
    made = Board(tmp_path / "board", create=True)
    yield made
    made.close()


async def test_a_child_that_fails_says_why_and_nothing_else_while_the_runner_holds_its_stdin(board: Board) -> None:
    words = ("floor", "wake", "--dsn", "postgresql://nobody@127.0.0.1:1/none", "--board", str(board.path), "--n", "1")
    async with child(*words) as one:
        with pytest.raises(ChildFailed, match="ConnectionRefusedError") as failed:
            await one.next()
    assert "Fatal Python error" not in str(failed.value)


@pytest.mark.timeout(60)
async def test_tasks_of_the_floor_park_at_the_same_time(board: Board, dsn: str, admin: asyncpg.Connection) -> None:
    """One that is not parked is measured as a wake that never came."""
    floor = Floor(dsn, board, 0, "latencies")
    await floor.install()
    working = asyncio.create_task(floor.work(lambda: None))
    await floor.open_client(1)
    await floor.enqueue_many("event", list(range(20)))
    parked = 0
    while parked < 20 and not working.done():
        parked = await admin.fetchval("select count(*) from floor.waits")
        await asyncio.sleep(0.02)  # waits: a park rings nobody outside
    assert not working.done(), working.exception()
    working.cancel()
    await asyncio.gather(working, return_exceptions=True)
    await floor.close_client()


# The command


async def test_words_that_mean_nothing_are_refused(lonely: Shop) -> None:
    said = await lonely("bench", "--rounds", "0", "--json")
    assert (said.code, said.object["error"]["code"]) == (2, "USAGE")
    said = await lonely("bench", "--systems", "nobody")
    assert said.code == 2
    assert "nobody" in said.err


def test_an_installed_package_says_where_the_benchmark_is(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from fencepost.cli import bench as command
    from fencepost.cli.say import Stop

    assert command.checkout() == ROOT
    monkeypatch.setattr(command, "__file__", str(tmp_path / "site-packages" / "fencepost" / "cli" / "bench.py"))
    assert command.checkout() is None
    with pytest.raises(Stop, match="make bench") as told:
        command.bench.callback(quick=False, rounds=None, tests=None, systems=None, as_json=False)  # type: ignore[misc]  # click's
    assert told.value.exit_code == 2
