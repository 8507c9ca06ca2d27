"""`plan show`, `plan output`, `plan lost`: what is known of a plan, and the bytes that it committed."""

from __future__ import annotations

import asyncio
import hashlib
import os
import signal

import asyncpg
import pytest

from tests.roads.command import Shop, ended
from tests.roads.planned import FAILS, NOTES, begun, book, waits, write

LARGE = """
name = "large"

[[step]]
id = "make"
command = ["sh", "-c", "head -c 300000 /dev/zero | tee \\"$FENCEPOST_OUTPUTS/zeros\\" | wc -c; printf '\\\\377\\\\000'"]
outputs.zeros = { from = "file", path = "zeros" }
outputs.said = { from = "stdout", media_type = "application/octet-stream" }
"""


async def ran(shop: Shop, name: str, text: str, run_id: str) -> None:
    said = await shop("plan", "run", write(shop, name, text), "--here", "--id", run_id, "--json")
    assert said.code in {0, 1}, said


# show


async def test_show_tells_states_tries_outcomes_and_digests(shop: Shop) -> None:
    await ran(shop, "notes.toml", NOTES, "n1")
    said = await shop("plan", "show", "n1")
    assert said.code == 0
    lines = said.out.splitlines()
    table = next(number for number, line in enumerate(lines) if line.startswith("STEP "))
    assert lines[table].split() == ["STEP", "STATE", "ATTEMPTS", "OUTCOME", "ELAPSED", "AFTER"]
    assert [line.split()[:4] for line in lines[table + 1 : table + 3]] == [
        ["log", "succeeded", "1", "success"], ["count", "succeeded", "1", "success"],
    ]  # fmt: skip
    assert lines[table + 2].split()[-1] == "log", "what it waits for"
    digest = hashlib.sha256(b"one\ntwo\n").hexdigest()
    for words in (
        "status:       completed",
        "steps:        2 succeeded",
        "n1/count/1",
        f"sha256:{digest[:12]}…",
        "8 bytes",
    ):
        assert words in said.out
    found = (await shop("plan", "show", "n1", "--json")).object
    log = found["steps"]["log"]
    assert found["counts"] == {"succeeded": 2}
    assert log["outputs"]["log"] == {
        "media_type": "text/plain; charset=utf-8", "size": 8, "digest": f"sha256:{digest}", "value": "one\ntwo\n",
    }  # fmt: skip
    assert (log["kind"], log["child"], log["child_state"], log["needs"]) == ("command", "n1/log/1", "completed", [])
    assert log["started_at"] <= log["ended_at"]
    assert (await shop("runs", "show", log["child"])).code == 0


async def test_show_says_why_steps_did_not_succeed(shop: Shop) -> None:
    await ran(shop, "fails.toml", FAILS, "f1")
    said = await shop("plan", "show", "f1")
    why = said.out.partition("why:\n")[2].partition("\n\n")[0].splitlines()
    assert [line.split()[0] for line in why] == ["first", "second", "third"]
    assert why[1].endswith("needs first, which failed")


async def test_a_file_stands_for_the_run_that_it_starts(shop: Shop) -> None:
    write(shop, "notes.toml", NOTES)
    said = await shop("plan", "show", "notes.toml", "--json")
    assert (said.code, said.object["error"]["code"]) == (2, "NOT_FOUND")
    run_id = (await shop("plan", "run", "notes.toml", "--here", "--json")).object["run_id"]
    assert (await shop("plan", "show", "notes.toml", "--json")).object["run_id"] == run_id
    assert (await shop("plan", "output", "notes.toml", "log.log")).out == "one\ntwo\n"


async def test_what_is_not_there_is_not_found_and_another_organisation_s_is_not_either(shop: Shop) -> None:
    """97.1"""
    await ran(shop, "notes.toml", NOTES, "n1")
    await shop("run", "shop:nothing", "--id", "w1", "--detach")
    for args in (
        ["show", "n2"], ["show", "n1", "--org", "acme"], ["show", "w1"], ["show", "a\tb"], ["show", "n1", "--logs", "none"],
        ["output", "n2", "log.log"], ["output", "n1", "log.log", "--org", "acme"], ["output", "n1", "none.log"],
        ["output", "n1", "log.none"], ["lost", "n1", "none"], ["lost", "n2", "log"], ["lost", "n1", "log", "--org", "acme"],
    ):  # fmt: skip
        said = await shop(
            "plan",
            *args,
            *(["--out", "x", "--json"] if args[0] == "output" else ["--json"] if "--logs" not in args else []),
        )
        assert said.code == 2, (args, said)
        if "--logs" not in args:
            assert said.object["error"]["code"] == "NOT_FOUND", (args, said)
    assert not (shop.place / "x").exists()
    assert "it has log" in (await shop("plan", "output", "n1", "log.none")).err


@pytest.mark.parametrize(
    ("args", "words"),
    [
        (["show", "n1", "--stderr"], "--logs STEP"),
        (["show", "n1", "--follow"], "--logs STEP"),
        (["show", "n1", "--logs", "log", "--json"], "without --json"),
        (["output", "n1", "log"], "STEP.NAME"),
        (["output", "n1", ".log"], "STEP.NAME"),
        (["output", "n1", "log.log", "--json"], "--out"),
        (["output", "n1"], "STEP.NAME"),
        (["walk"], "walk"),
    ],
)
async def test_what_cannot_be_meant_is_usage(shop: Shop, args: list[str], words: str) -> None:
    said = await shop("plan", *args)
    assert (said.code, said.out if "--json" not in args else "") == (2, "")
    assert words in said.err


# output


async def test_output_gives_the_bytes_that_were_committed_wherever_they_are_kept(shop: Shop) -> None:
    """70.6"""
    await ran(shop, "large.toml", LARGE, "l1")
    process = await shop.start("plan", "output", "l1", "make.said")
    out, _ = await process.communicate()
    assert out == b"300000\n\xff\x00", "what is no text too"
    said = await shop("plan", "output", "l1", "make.zeros", "--out", "zeros", "--json")
    assert said.code == 0
    assert (shop.place / "zeros").read_bytes() == bytes(300_000)
    assert said.object == {
        "run_id": "l1", "org": "default", "step": "make", "output": "zeros", "out": "zeros", "media_type": "application/octet-stream",
        "size": 300_000, "digest": f"sha256:{hashlib.sha256(bytes(300_000)).hexdigest()}",
    }  # fmt: skip
    assert "value" not in (await shop("plan", "show", "l1", "--json")).object["steps"]["make"]["outputs"]["zeros"]
    said = await shop("plan", "output", "l1", "make.zeros", "--out", "nowhere/zeros")
    assert said.code == 2
    assert "cannot be written" in said.err


async def test_bytes_that_are_not_what_was_committed_are_not_given_out(shop: Shop, admin: asyncpg.Connection) -> None:
    await ran(shop, "notes.toml", NOTES, "n1")
    await ran(shop, "large.toml", LARGE, "l1")
    await admin.execute("update fencepost.result set text = 'one' where name = 'log'")
    kept = next(path for path in (shop.place / "files" / "store").rglob("sha256-*") if path.stat().st_size == 300_000)
    kept.chmod(0o600)
    kept.write_bytes(b"\1" * 300_000)
    for run_id, which in (("n1", "log.log"), ("l1", "make.zeros")):
        said = await shop("plan", "output", run_id, which)
        assert (said.code, said.out) == (1, ""), said
        said = await shop("plan", "output", run_id, which, "--out", "x", "--json")
        assert (said.code, said.object["error"]["code"]) == (1, "UNREADABLE")
        assert "digest" in said.err
    kept.unlink()
    said = await shop("plan", "output", "l1", "make.zeros")
    assert (said.code, said.out) == (1, "")
    assert not (shop.place / "x").exists()
    assert not list(shop.place.glob(".fencepost-*")), "nothing half-written stays"


# logs


async def test_logs_are_what_the_program_wrote(shop: Shop) -> None:
    await ran(shop, "notes.toml", NOTES, "n1")
    assert (await shop("plan", "show", "n1", "--logs", "log")).out == "one\ntwo\n"
    assert (await shop("plan", "show", "n1", "--logs", "log", "--stderr")).out == "reading\n"
    assert (await shop("plan", "show", "n1", "--logs", "log", "--follow")).out == "one\ntwo\n"


async def test_logs_are_followed_until_the_program_ends(shop: Shop) -> None:
    process = await shop.start("plan", "run", waits(shop), "--here", "--id", "w1", "--json")
    await begun(shop)
    logs = await shop.start("plan", "show", "w1", "--logs", "wait", "--follow")
    assert logs.stdout is not None
    async with asyncio.timeout(30):
        assert await logs.stdout.readline() == b"begun\n"
    (shop.place / "go").touch()
    said = await ended(logs)
    assert (said.code, said.out) == (0, "done\n")
    assert (await ended(process)).code == 0


async def test_logs_of_a_step_that_has_none_say_where_they_are(shop: Shop) -> None:
    write(shop, "calls.toml", 'name = "calls"\n[[step]]\nid = "a"\nworkflow = "shop:order"\ninput = { n = 1 }\n')
    await shop("plan", "run", "calls.toml", "--id", "c1", "--detach")
    said = await shop("plan", "show", "c1", "--logs", "a")
    assert (said.code, "fencepost runs show c1/a/1" in said.err) == (2, True)
    await shop("plan", "run", write(shop, "notes.toml", NOTES), "--id", "n1", "--detach")
    said = await shop("plan", "show", "n1", "--logs", "count")
    assert said.code == 2
    assert "has not begun" in said.err


# What was lost


async def lose(shop: Shop, on_lost: str) -> None:
    """Run the plan that waits, and kill everything of it while its program runs."""
    args = ("plan", "run", waits(shop, on_lost), "--here", "--json", "--id", "w1")
    process = await shop.start(*args)
    await begun(shop)
    shown = (await shop("plan", "show", "w1", "--json")).object["steps"]["wait"]
    process.kill()
    await ended(process)
    os.kill(shown["pid"], signal.SIGKILL)


async def test_an_unknown_step_is_4_and_says_whom_to_ask(shop: Shop) -> None:
    """70.10, 70.12, 85.5 Its process is proven gone, and it said: ask."""
    await lose(shop, "ask")
    said = await shop("plan", "run", "waits.toml", "--here", "--json", "--id", "w1")
    assert (said.code, said.object["status"]) == (4, "unknown"), said
    assert said.object["steps"]["wait"]["state"] == "unknown"
    assert "fencepost plan resolve w1 wait completed|failed|again" in said.err
    assert "fencepost plan resolve w1 wait" in (await shop("plan", "show", "w1")).out
    assert len(book(shop)) == 1, "it was not run again"
    for wrong, words in (
        (["completed"], "'said' is missing"), (["completed", "--output", "said=x", "--output", "more=x"], "no output 'more'"),
        (["completed", "--output", "said"], "NAME=TEXT"), (["completed", "--output", "said=@nowhere"], "cannot be read"),
        (["failed"], "--error"), (["again", "--error", "x"], "no --error"), (["again", "--output", "said=x"], "no --output"),
    ):  # fmt: skip
        refused = await shop("plan", "resolve", "w1", "wait", *wrong)
        assert (refused.code, words in refused.err) == (2, True), (wrong, refused)
    assert (await shop("plan", "resolve", "w1", "none", "again")).code == 2
    assert (await shop("plan", "resolve", "w1", "after", "again")).code == 2
    assert (await shop("plan", "resolve", "w1", "wait", "again", "--org", "acme")).code == 2
    done = await shop("plan", "resolve", "w1", "wait", "again", "--json")
    assert (done.code, done.object) == (0, {"run_id": "w1", "org": "default", "answer": "done", "step": "wait"})
    refused = await shop("plan", "resolve", "w1", "wait", "failed", "--error", "no", "--json")
    assert (refused.code, refused.object["answer"]) == (1, "refused"), "once"
    (shop.place / "go").touch()
    said = await shop("plan", "run", "waits.toml", "--here", "--json", "--id", "w1")
    assert (said.code, said.object["status"]) == (0, "completed")
    assert len(book(shop)) == 3


async def test_an_operator_who_looked_brings_the_outputs(shop: Shop) -> None:
    """85.5 Judged as the step's own, kept as its own, handed on as its own."""
    await lose(shop, "ask")
    assert (await shop("plan", "run", "waits.toml", "--here", "--json", "--id", "w1")).code == 4
    (shop.place / "found").write_bytes(b"done by hand\n")
    assert (await shop("plan", "resolve", "w1", "wait", "completed", "--output", "said=@found")).code == 0
    said = await shop("plan", "run", "waits.toml", "--here", "--json", "--id", "w1")
    assert (said.code, said.object["steps"]["wait"]["outputs"]["said"]["value"]) == (0, "done by hand\n")
    assert (await shop("plan", "output", "w1", "wait.said")).out == "done by hand\n"
    assert len(book(shop)) == 2, "what comes after it ran, it did not"


async def test_a_lost_step_fails_or_is_run_again_as_it_declared(shop: Shop) -> None:
    """70.10"""
    await lose(shop, "fail")
    said = await shop("plan", "run", "waits.toml", "--here", "--json", "--id", "w1")
    assert (said.code, said.object["steps"]["wait"]["outcome"]) == (1, "lost"), said
    assert said.object["steps"]["after"]["state"] == "skipped"
    assert len(book(shop)) == 1


async def test_an_operator_s_word_is_not_taken_while_its_worker_lives(shop: Shop) -> None:
    process = await shop.start("plan", "run", waits(shop), "--here", "--json", "--id", "w1")
    await begun(shop)
    said = await shop("plan", "lost", "w1", "wait", "--json")
    assert (said.code, said.object["answer"]) == (1, "refused")
    assert "alive" in said.object["why"]
    (shop.place / "go").touch()
    assert (await ended(process)).code == 0
    said = await shop("plan", "lost", "w1", "wait", "--json")
    assert (said.code, said.object["answer"], said.object["step"]) == (1, "refused", "wait")
