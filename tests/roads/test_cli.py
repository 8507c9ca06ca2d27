"""The command line as a user meets it: data on stdout, words on stderr, exit codes, and never a traceback."""

from __future__ import annotations

import signal
import subprocess
import sys

import asyncpg
import pytest

from tests.roads.command import Shop, ended, until_says

RUN_KEYS = {"run_id", "org", "kind", "name", "status", "output", "error", "attempts", "tries"}
SHOW_KEYS = RUN_KEYS | {
    "lane", "release", "source", "priority", "submitted_at", "started_at", "finished_at", "waiting_for", "unknown", "steps", "rows",
    "attempt_history",
}  # fmt: skip


# What it is


async def test_help_names_the_commands_that_exist_and_no_others(lonely: Shop) -> None:
    said = await lonely("--help")
    listed = [
        line.split()[0]
        for line in said.out.partition("Commands:")[2].splitlines()
        if line.startswith("  ") and line[2] != " "
    ]
    assert (said.code, listed) == (
        0,
        ["demo", "dev", "run", "worker", "runs", "plan", "graph", "lanes", "migrate", "doctor", "bench"],
    )
    said = await lonely("runs", "--help")
    for command in "list show watch explain rows cancel signal end wake resolve redrive".split():
        assert f"  {command} " in said.out


def test_version_imports_neither_the_driver_nor_the_view() -> None:
    code = "import sys\nfrom fencepost.cli import main\nassert main(['--version']) == 0\nprint(*sys.modules)"
    out = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout
    assert out.startswith("fencepost ")
    assert not {"asyncpg", "rich", "pydantic", "opentelemetry"} & set(out.split())


async def test_an_unknown_command_is_usage(lonely: Shop) -> None:
    said = await lonely("serve", "--json")
    assert said.code == 2
    assert said.object["error"]["code"] == "USAGE"
    assert "serve" in said.err


# run


async def test_run_gives_the_result_on_stdout_and_its_progress_on_stderr(shop: Shop) -> None:
    said = await shop("run", "shop:order", "--input", '{"n": 4}', "--here", "--id", "o1")
    assert (said.code, said.out) == (0, "8\n")
    for words in ("run: o1", "run.admitted", "attempt.claimed", "double#1", "run.completed"):
        assert words in said.err
    said = await shop("run", "shop:order", "--input", '{"n": 4}', "--id", "o1", "--json")
    assert said.code == 0, "a run that has ended needs no worker"
    assert said.lines == [
        {
            "run_id": "o1",
            "org": "default",
            "kind": "workflow",
            "name": "order",
            "status": "completed",
            "output": 8,
            "error": None,
            "attempts": 1,
            "tries": 0,
        }
    ]


async def test_a_null_output_and_no_output_are_told_apart(shop: Shop) -> None:
    """00.16, B135 And what a stored value holds steers no terminal."""
    said = await shop("run", "shop:nothing", "--here", "--json")
    assert said.code == 0
    assert said.object["output"] is None
    assert set(said.object) == RUN_KEYS
    assert (await shop("run", "shop:nothing", "--here")).out == "null\n"
    said = await shop("run", "shop:fails", "--input", "1", "--here", "--json")
    assert said.code == 1
    assert set(said.object) == RUN_KEYS - {"output"}
    assert said.object["error"]["code"] == "WORKFLOW_ERROR"
    assert said.object["error"]["message"] == "out of\n\x1b[31mstock"
    assert "\x1b" not in said.err, "a stored value cannot steer the terminal"


async def test_the_same_id_with_another_launch_conflicts_and_says_where(shop: Shop) -> None:
    """30.3"""
    assert (await shop("run", "shop:order", "--input", '{"n": 4}', "--id", "o1", "--detach")).out == "o1\n"
    said = await shop("run", "shop:order", "--input", '{"n": 5}', "--id", "o1", "--detach", "--json")
    assert said.code == 1
    assert said.object["error"]["code"] == "LAUNCH_CONFLICT"
    assert said.object["error"]["differs"] == [{"path": "$.input.n", "stored": 4, "given": 5}]
    said = await shop("run", "shop:order", "--input", '{"n": 4, "note": null}', "--id", "o1", "--detach", "--json")
    assert said.object["error"]["differs"] == [{"path": "$.input.note", "given": None}], (
        "compared as given, before defaults (30.4)"
    )
    assert (await shop("run", "shop:order", "--input", ' {"n" :4.0}', "--id", "o1", "--detach")).code == 0, (
        "compared as a value, not as a text"
    )


@pytest.mark.parametrize(
    ("args", "words", "more"),
    [
        (["shop:order", "--input", '{"n": 4'], "line 1, column 8", {"line": 1, "column": 8}),
        (["shop:order", "--input", "@bad.json"], "line 3, column 3", {"line": 3, "column": 3}),
        (["shop:order", "--input", '{"n": "four"}'], "$.n", {"path": "$.n"}),
        (["shop:order", "--input", "{}"], "$.n", {"path": "$.n"}),
        (["shop:fails", "--input", '"x"'], "does not fit int", {"path": "$"}),
        (["shop:fails", "--input", "NaN"], "NaN", {}),
        (["shop:order", "--input", '{"n": 1e999}'], "$.n", {"path": "$.n"}),
        (["shop:order", "--input", '{"n": 1, "note": "\\u0000"}'], "$.note", {"path": "$.note"}),
        (["shop:order", "--input", "@nowhere.json"], "cannot be read", {}),
        (["shop:order", "--input", "@latin.json"], "not UTF-8", {}),
        (["shop:order"], "takes an input", {}),
        (["shop:nothing", "--input", "1"], "takes no input", {}),
        (["shop:order", "--input", '{"n": 1}', "--id", " "], "blank", {}),
        (["shop:order", "--input", '{"n": 1}', "--org", "a\nb"], "control character", {}),
    ],
)
async def test_unusable_input_says_where_and_admits_nothing(
    shop: Shop, args: list[str], words: str, more: dict[str, object], admin: asyncpg.Connection
) -> None:
    (shop.place / "bad.json").write_text('{\n  "n": 4,\n  x\n}')
    (shop.place / "latin.json").write_bytes(b'{"n": "\xe9"}')
    said = await shop("run", *args, "--detach", "--json")
    assert said.code == 2
    assert said.object["error"]["code"] == "UNUSABLE_INPUT"
    assert said.object["error"].items() >= more.items()
    assert words in said.err
    assert await admin.fetchval("select count(*) from fencepost.run") == 0


@pytest.mark.parametrize(
    ("target", "words"),
    [
        ("shop", "MODULE:WORKFLOW"),
        ("nowhere:order", "no module 'nowhere'"),
        ("shop:orders", "no 'orders'"),
        ("shop:double", "is a step, not a workflow; shop has order"),
        ("shop:app", "is an App, not a workflow"),
        ("shop:HERE", "not a workflow"),
        ("broken:order", "ZeroDivisionError: division by zero"),
        ("unwritten:order", "line 1"),
        ("needy:order", "No module named 'not_installed'"),
    ],
)
async def test_a_target_that_is_no_workflow_is_one_clear_sentence(lonely: Shop, target: str, words: str) -> None:
    (lonely.place / "broken.py").write_text("1 / 0\n")
    (lonely.place / "unwritten.py").write_text("def (\n")
    (lonely.place / "needy.py").write_text("import not_installed\n")
    said = await lonely("run", target, "--input", "1")
    assert (said.code, said.out) == (2, "")
    assert words in said.err
    assert len(said.err.splitlines()) == 1
    assert not (lonely.place / ".fencepost").exists()


async def test_without_a_live_worker_it_says_how_to_start_one_and_admits_nothing(
    shop: Shop, admin: asyncpg.Connection
) -> None:
    said = await shop("run", "shop:order", "--input", '{"n": 4}', "--json")
    assert (said.code, said.object["error"]["code"]) == (5, "NO_WORKER")
    assert "fencepost worker shop:APP" in said.err
    assert await admin.fetchval("select count(*) from fencepost.run") == 0
    (shop.place / "bare.py").write_text("from fencepost import App\napp = App('bare')\n")
    async with shop.worker(target="bare:app"):
        said = await shop("run", "shop:order", "--input", '{"n": 4}')
        assert said.code == 5
        assert "none has workflow order" in said.err
        await shop("run", "shop:order", "--input", '{"n": 4}', "--id", "o1", "--detach")
        assert "a worker that has workflow order" in (await shop("runs", "explain", "o1")).out
    await shop("run", "shop:order", "--input", '{"n": 4}', "--id", "o2", "--detach")
    assert "no live worker" in (await shop("runs", "explain", "o2")).out


async def test_a_worker_says_when_it_is_ready_runs_what_comes_and_drains_at_sigterm(shop: Shop) -> None:
    async with shop.worker() as worker:
        said = await shop("run", "shop:order", "--input", "-", stdin=b'{"n": 21}')
        assert (said.code, said.out) == (0, "42\n")
        worker.send_signal(signal.SIGTERM)
        assert (await ended(worker)).code == 0
    lanes = await shop("lanes", "list", "--json")
    assert lanes.lines == [{"lane": "runs", "release": "dev", "live_workers": 0}]


async def test_ctrl_c_stops_following_and_the_same_command_goes_on(shop: Shop) -> None:
    args = ("run", "shop:review", "--input", "3", "--here", "--id", "r1", "--json")
    process = await shop.start(*args)
    await until_says(process, "attempt.parked")
    process.send_signal(signal.SIGINT)
    said = await ended(process)
    assert (said.code, said.object["status"]) == (130, "parked")
    process = await shop.start(*args)
    await until_says(process, "attempt.parked")
    assert (await shop("runs", "signal", "r1", "review", "7")).code == 0
    said = await ended(process)
    assert (said.code, said.object["output"]) == (0, {"first": 6, "said": 7})
    assert said.object["attempts"] == 2


async def test_what_has_not_ended_within_the_time_out_is_4_and_stays(shop: Shop) -> None:
    said = await shop("run", "shop:naps", "--input", "3", "--here", "--id", "n1", "--timeout", "1s", "--json")
    assert said.code == 4
    assert said.object["status"] in {"queued", "running", "parked"}, "how far it came is a matter of the machine"
    said = await shop("run", "shop:naps", "--input", "3", "--timeout", "90")
    assert said.code == 2
    assert "90s" in said.err, "nobody can tell the unit of a bare number"


async def test_a_history_that_no_longer_fits_parks_the_run_on_its_code(shop: Shop) -> None:
    """50.4: exit 4, and explain says so."""
    process = await shop.start("run", "shop:review", "--input", "3", "--here", "--id", "r1")
    await until_says(process, "attempt.parked")
    process.send_signal(signal.SIGINT)
    assert (await ended(process)).code == 130
    module = shop.place / "shop.py"
    module.write_text(module.read_text().replace("ctx.step(double, n)", "ctx.step(charge, n)"))
    await shop("runs", "signal", "r1", "review", "7")
    said = await shop("run", "shop:review", "--input", "3", "--here", "--id", "r1", "--json")
    assert (said.code, said.object["status"]) == (4, "parked")
    assert said.object["error"]["code"] == "NONDETERMINISM"
    said = await shop("runs", "explain", "r1")
    assert "other code" in said.out
    assert "fencepost runs wake r1" in said.out
    assert (await shop("runs", "watch", "r1")).code == 4
    module.write_text(module.read_text().replace("ctx.step(charge, n)", "ctx.step(double, n)"))
    said = await shop("run", "shop:review", "--input", "3", "--here", "--id", "r1", "--json")
    assert (said.code, said.object["output"]) == (0, {"first": 6, "said": 7})


async def test_an_unknown_step_is_4_is_explained_and_is_resolved_once(shop: Shop) -> None:
    """85.5, 90.4"""
    (shop.place / "hang").touch()
    process = await shop.start("run", "shop:pays", "--input", "5", "--here", "--id", "p 1")
    await until_says(process, "step.marked")
    process.kill()
    await process.wait()
    (shop.place / "hang").unlink()
    said = await shop("run", "shop:pays", "--input", "5", "--here", "--id", "p 1", "--json")
    assert (said.code, said.object["status"], said.object["error"]["code"]) == (4, "unknown", "STEP_OUTCOME_UNKNOWN")
    assert (shop.place / "charged").read_text() == "5\n", "it was not repeated"
    said = await shop("runs", "explain", "p 1")
    for words in (
        "charge#1",
        "fencepost runs resolve 'p 1' --step 'charge#1' completed --value JSON",
        "--error TEXT",
        "since 2",
    ):
        assert words in said.out
    said = await shop("runs", "show", "p 1", "--json")
    assert said.object["unknown"] == [
        {"kind": "step", "name": "charge", "ordinal": 1, "attempt": 1, "late_evidence": False}
    ]
    assert (await shop("doctor", "--json")).object["database"]["tasks"] == {"unknown": 1}
    for wrong in (["completed"], ["failed"], ["again", "--value", "1"], ["completed", "--value", "{"]):
        assert (await shop("runs", "resolve", "p 1", "--step", "charge#1", *wrong)).code == 2
    refused = await shop("runs", "resolve", "p 1", "--step", "charge#2", "again", "--json")
    assert (refused.code, refused.object["answer"]) == (1, "refused")
    done = await shop("runs", "resolve", "p 1", "--step", "charge#1", "completed", "--value", "5", "--json")
    assert (done.code, done.object) == (0, {"run_id": "p 1", "org": "default", "answer": "done"})
    assert (await shop("runs", "resolve", "p 1", "--step", "charge#1", "completed", "--value", "6")).code == 1
    said = await shop("run", "shop:pays", "--input", "5", "--here", "--id", "p 1")
    assert (said.code, said.out) == (0, "5\n")
    said = await shop("runs", "redrive", "p 1", "--from", "charge", "--id", "p2", "--json")
    assert (said.code, said.object["answer"]) == (1, "refused")
    assert "--again" in said.object["why"]
    said = await shop("runs", "redrive", "p 1", "--id", "p2", "--json")
    assert (said.code, said.object) == (0, {"run_id": "p2", "org": "default", "answer": "created", "origin": "p 1"})
    assert (await shop("run", "shop:pays", "--input", "5", "--here", "--id", "p2")).out == "5\n"
    assert (shop.place / "charged").read_text() == "5\n"


# runs


async def test_what_acts_answers_done_or_refused_and_never_reaches_another_organisation(shop: Shop) -> None:
    await shop("run", "shop:naps", "--input", "3", "--id", "n1", "--org", "acme", "--detach")
    for args in (["show", "n1"], ["explain", "n1"], ["watch", "n1"], ["rows", "n1"], ["cancel", "n1"], ["end", "n1"], ["wake", "n1"],
                 ["signal", "n1", "go"], ["resolve", "n1", "again"], ["redrive", "n1"], ["show", "never\tso"]):  # fmt: skip
        said = await shop("runs", *args, "--json")
        assert (said.code, said.object["error"]["code"]) == (2, "NOT_FOUND"), args
    assert (await shop("runs", "wake", "n1", "--org", "acme")).code == 0, "it is in the line already"
    assert (
        await shop("runs", "signal", "n1", "go", '{"ok": true}', "--org", "acme", "--dedupe", "k", "--json")
    ).object["answer"] == "sent"
    assert (
        await shop("runs", "signal", "n1", "go", '{"ok": true}', "--org", "acme", "--dedupe", "k", "--json")
    ).object["answer"] == "repeated"
    said = await shop("runs", "cancel", "n1", "--org", "acme", "--reason", "no more", "--json")
    assert (said.code, said.object) == (0, {"run_id": "n1", "org": "acme", "answer": "accepted", "status": "cancelled"})
    assert (await shop("runs", "watch", "n1", "--org", "acme")).code == 3
    said = await shop("runs", "wake", "n1", "--org", "acme", "--json")
    assert (said.code, said.object["answer"], said.object["status"]) == (1, "refused", "cancelled")
    said = await shop("runs", "end", "n1", "--org", "acme", "--json")
    assert (said.code, said.object["answer"], said.object["status"]) == (1, "too_late", "cancelled")
    assert (await shop("runs", "signal", "n1", "go", "--org", "acme")).code == 1
    await shop("run", "shop:naps", "--input", "3", "--id", "n2", "--detach")
    said = await shop("runs", "end", "n2", "--reason", "obsolete", "--json")
    assert (said.code, said.object["answer"]) == (0, "done")
    assert (await shop("runs", "cancel", "n2", "--json")).object["answer"] == "too_late"
    error = (await shop("runs", "show", "n2", "--json")).object["error"]
    assert (error["code"], error["message"]) == ("OPERATOR_ENDED", "obsolete")


async def test_lists_and_watches_are_one_object_a_line(shop: Shop) -> None:
    """90.2"""
    await shop("run", "shop:order", "--input", '{"n": 4}', "--here", "--id", "o1")
    await shop("run", "shop:naps", "--input", "3", "--id", "n1", "--org", "acme", "--detach")
    listed = (await shop("runs", "list", "--json")).lines
    assert [(run["run_id"], run["org"], run["status"]) for run in listed] == [
        ("n1", "acme", "queued"),
        ("o1", "default", "completed"),
    ]
    assert listed[1]["finished_at"].endswith("Z")
    assert len(listed[1]["finished_at"]) == len("2026-11-29T18:20:00.123Z")
    for narrow, want in (
        (["--status", "completed"], "o1"),
        (["--name", "naps"], "n1"),
        (["--org", "acme"], "n1"),
        (["--limit", "1"], "n1"),
    ):
        assert [run["run_id"] for run in (await shop("runs", "list", *narrow, "--json")).lines] == [want]
    assert (await shop("runs", "list", "--status", "finished")).code == 2
    watched = await shop("runs", "watch", "o1", "--json")
    assert watched.code == 0
    assert [event["seq"] for event in watched.lines] == list(range(1, len(watched.lines) + 1))
    assert watched.lines[-1]["type"] == "run.completed"
    rest = await shop("runs", "watch", "o1", "--from", "2", "--json")
    assert rest.lines == watched.lines[2:]
    shown = (await shop("runs", "show", "o1", "--json")).object
    assert set(shown) >= SHOW_KEYS
    assert (
        shown["steps"][0].items()
        >= {"name": "double", "ordinal": 1, "kind": "step", "state": "kept", "value": 8}.items()
    )
    assert shown["rows"] == {"completed": 0, "failed": 0, "unknown": 0, "skipped": 0, "total": 0}
    assert "o1" in (await shop("runs", "show", "o1")).out


async def test_rows_shows_the_rows_that_failed(shop: Shop) -> None:
    said = await shop("run", "shop:pays_rows", "--input", '[{"n": 1}, {"n": 2}]', "--here", "--id", "m1", "--json")
    assert said.code == 1
    rows = await shop("runs", "rows", "m1", "--json")
    assert [(row["key"], row["state"], row["error"]["message"]) for row in rows.lines] == [
        ("2", "failed", "no such row")
    ]
    assert (await shop("runs", "show", "m1", "--json")).object["rows"] == {
        "completed": 1,
        "failed": 1,
        "unknown": 0,
        "skipped": 0,
        "total": 2,
    }
