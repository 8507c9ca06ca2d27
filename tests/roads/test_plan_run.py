"""`plan run` as a user types it: the same plan is the same run, kill what you like, and never a traceback."""

from __future__ import annotations

import asyncio
import os
import re
import signal
from typing import Any

import asyncpg
import pytest

from fencepost import Client, LaunchConflict, LaunchRefused, Plan, PlanInvalid, stdout, sync
from fencepost.settings import read_settings
from tests.roads.command import SOON, Shop, ended, until_says
from tests.roads.planned import CALLS, FAILS, NOTES, begun, book, waits, write

KEYS = {"run_id", "org", "name", "status", "reason", "error", "steps"}


# What it says


async def test_a_plan_runs_to_its_end_and_the_last_line_is_one_object(shop: Shop) -> None:
    """70.2, 70.6 The default id is the name and twelve digits of the digest; typed again it is the same run, and nobody works."""
    said = await shop("plan", "run", write(shop, "notes.toml", NOTES), "--here", "--json")
    assert said.code == 0, said.err
    (found,) = said.lines
    assert set(found) == KEYS
    assert re.fullmatch(r"notes-[0-9a-f]{12}", found["run_id"])
    assert (found["org"], found["name"], found["status"], found["error"]) == ("default", "notes", "completed", None)
    assert list(found["steps"]) == ["log", "count"]
    assert {key: found["steps"]["log"][key] for key in ("state", "attempts", "outcome")} == {
        "state": "succeeded", "attempts": 1, "outcome": "success",
    }  # fmt: skip
    log, lines = found["steps"]["log"]["outputs"]["log"], found["steps"]["count"]["outputs"]["lines"]
    assert (log["media_type"], log["size"], log["value"]) == ("text/plain; charset=utf-8", 8, "one\ntwo\n")
    assert re.fullmatch(r"sha256:[0-9a-f]{64}", log["digest"])
    assert (lines["media_type"], lines["value"]) == ("application/json", 2)
    for words in (f"run: {found['run_id']}", "log: succeeded after", "count: running"):
        assert words in said.err
    again = await shop("plan", "run", "notes.toml", "--json")
    assert (again.code, again.lines) == (0, [found]), "a run that has ended needs no worker"


async def test_a_person_is_told_what_there_is_to_read(shop: Shop) -> None:
    said = await shop("plan", "run", write(shop, "notes.toml", NOTES), "--here", "--id", "n 1")
    assert said.code == 0
    assert [line.split()[0] for line in said.out.splitlines()] == ["log.log", "count.lines"]
    assert "completed: 2 succeeded" in said.err
    assert "\x1b" not in said.err, "no picture where nobody looks"


async def test_events_are_lines_before_the_object(shop: Shop) -> None:
    """90.1 Gapless, in order, and only with --json."""
    said = await shop("plan", "run", write(shop, "notes.toml", NOTES), "--here", "--json", "--events")
    assert said.code == 0
    *events, found = said.lines
    assert set(found) == KEYS
    assert [event["seq"] for event in events] == list(range(1, len(events) + 1))
    assert [(event["type"], event["data"].get("step")) for event in events] == [
        ("run.admitted", None), ("plan.step_started", "log"), ("plan.step_succeeded", "log"), ("plan.step_started", "count"),
        ("plan.step_succeeded", "count"), ("run.completed", None),
    ]  # fmt: skip


async def test_a_failed_step_is_1_and_says_why_for_each(shop: Shop) -> None:
    """70.3, 70.7, 70.12 The try is repeated as declared, what needs it is skipped to the end, the rest runs."""
    said = await shop("plan", "run", write(shop, "fails.toml", FAILS), "--here", "--json")
    assert said.code == 1
    found = said.object
    first = found["steps"]["first"]
    assert (found["status"], found["error"]["code"]) == ("failed", "STEP_FAILED")
    assert (first["state"], first["attempts"], first["outcome"], first["outputs"]) == ("failed", 2, "failure", {})
    assert first["error"]["exit_code"] == 7
    assert [found["steps"][step]["state"] for step in ("second", "third", "aside")] == [
        "skipped",
        "skipped",
        "succeeded",
    ]
    assert found["steps"]["third"]["reason"] == "needs second, which was skipped"
    assert "first: failed:" in said.err
    assert "first: try 1 of 2 ended in failure, tries again at once" in said.err


# Ids


async def test_the_same_id_with_a_changed_plan_conflicts_and_says_where(shop: Shop, admin: asyncpg.Connection) -> None:
    """70.2, 30.3"""
    write(shop, "notes.toml", NOTES)
    assert (await shop("plan", "run", "notes.toml", "--id", "n1", "--detach")).out == "n1\n"
    write(
        shop,
        "other.toml",
        NOTES.replace("two", "deux").replace('name = "notes"', 'name = "notes"\nmax_concurrency = 2'),
    )
    said = await shop("plan", "run", "other.toml", "--id", "n1", "--detach", "--json")
    assert (said.code, said.object["error"]["code"]) == (1, "LAUNCH_CONFLICT")
    assert [each["path"] for each in said.object["error"]["differs"]] == ["$.max_concurrency", "$.steps.log.command[2]"]
    write(shop, "more.toml", NOTES + '\n[[step]]\nid = "last"\ncommand = ["true"]\n')
    said = await shop("plan", "run", "more.toml", "--id", "n1", "--here", "--json")
    (more,) = said.object["error"]["differs"]
    assert (said.code, more["path"], more["given"]["kind"]) == (1, "$.steps.last", "command")
    assert "stored" not in more
    write(shop, "same.toml", "# a remark\n" + NOTES.replace("max", "max"))
    assert (await shop("plan", "run", "same.toml", "--id", "n1", "--detach")).code == 0, (
        "how it is written is no difference"
    )
    await shop("run", "shop:nothing", "--id", "w1", "--detach")
    said = await shop("plan", "run", "notes.toml", "--id", "w1", "--detach", "--json")
    assert (said.code, said.object["error"]["code"]) == (1, "LAUNCH_CONFLICT")
    assert await admin.fetchval("select count(*) from fencepost.run where kind = 'plan'") == 1


async def test_new_is_another_run_of_the_same_plan(shop: Shop) -> None:
    write(shop, "notes.toml", NOTES)
    ids = [
        (await shop("plan", "run", "notes.toml", *more, "--detach")).out.strip()
        for more in ([], [], ["--new"], ["--new"])
    ]
    assert ids[0] == ids[1]
    assert len(set(ids)) == 3
    assert all(each.startswith(f"{ids[0]}-") for each in ids[2:])


# What is refused


@pytest.mark.parametrize(
    ("args", "code", "words"),
    [
        (["nowhere.toml"], "PLAN_INVALID", "cannot be read"),
        (["bad.toml"], "PLAN_INVALID", "bad.toml:3:"),
        (["faulty.toml"], "PLAN_INVALID", "needs"),
        (["stranger.toml"], "PLAN_INVALID", "no module 'nowhere'"),
        (["notes.toml", "--id", " "], "UNUSABLE_INPUT", "blank"),
        (["notes.toml", "--org", "a\nb"], "UNUSABLE_INPUT", "control character"),
        (["notes.toml", "--id", "x", "--new"], "USAGE", "--new"),
        (["notes.toml", "--here"], "USAGE", "--detach"),
        (["notes.toml", "--events"], "USAGE", "--detach"),
        (["notes.toml", "--timeout", "5s"], "USAGE", "--detach"),
        ([], "USAGE", "FILE"),
    ],
)
async def test_what_cannot_be_run_is_named_and_nothing_is_admitted(
    shop: Shop, admin: asyncpg.Connection, args: list[str], code: str, words: str
) -> None:
    """70.1"""
    write(shop, "notes.toml", NOTES)
    write(shop, "bad.toml", 'name = "x"\n\n[[step\n')
    write(shop, "faulty.toml", 'name = "x"\n[[step]]\nid = "a"\nneeds = ["b"]\ncommand = ["true"]\n')
    write(shop, "stranger.toml", 'name = "x"\n[[step]]\nid = "a"\nworkflow = "nowhere:order"\n')
    said = await shop("plan", "run", *args, "--detach", "--json")
    assert (said.code, said.object["error"]["code"]) == (2, code), said
    assert words in said.err
    assert await admin.fetchval("select count(*) from fencepost.run") == 0


async def test_events_without_json_are_usage(shop: Shop) -> None:
    said = await shop("plan", "run", write(shop, "notes.toml", NOTES), "--events")
    assert said.code == 2
    assert "--json" in said.err


# Who works on it


async def test_without_a_live_worker_it_says_how_to_start_one_and_admits_nothing(
    shop: Shop, admin: asyncpg.Connection
) -> None:
    write(shop, "notes.toml", NOTES)
    write(shop, "calls.toml", CALLS)
    said = await shop("plan", "run", "notes.toml", "--json")
    assert (said.code, said.object["error"]["code"]) == (5, "NO_WORKER")
    assert "`fencepost worker`" in said.err
    assert await admin.fetchval("select count(*) from fencepost.run") == 0
    async with shop.worker(target=None):
        said = await shop("plan", "run", "notes.toml", "--json")
        assert (said.code, said.object["status"]) == (0, "completed"), "a worker without an app runs commands"
        said = await shop("plan", "run", "calls.toml", "--json")
        assert said.code == 5
        assert "none has workflow order" in said.err
    assert await admin.fetchval("select count(*) from fencepost.run where kind = 'plan'") == 1


async def test_a_workflow_of_the_code_is_a_child_run_whose_app_works_here(shop: Shop) -> None:
    """70.14"""
    said = await shop("plan", "run", write(shop, "calls.toml", CALLS), "--here", "--json", "--id", "c1")
    assert said.code == 0, said.err
    assert said.object["steps"]["order"]["outputs"]["result"]["value"] == 8
    child = await shop("runs", "show", "c1/order/1", "--json")
    assert (child.object["status"], child.object["output"], child.object["source"]) == ("completed", 8, "async_child")


async def test_detach_starts_nothing_and_a_worker_of_any_app_runs_it(shop: Shop) -> None:
    write(shop, "notes.toml", NOTES)
    said = await shop("plan", "run", "notes.toml", "--id", "n1", "--detach", "--json")
    assert (said.code, said.object["status"]) == (0, "running")
    assert said.object["steps"]["log"]["state"] == "running", "its first steps are in the line at once"
    assert (await shop("plan", "run", "notes.toml", "--id", "n1", "--json")).code == 5
    async with shop.worker():
        said = await shop("plan", "run", "notes.toml", "--id", "n1", "--json")
    assert (said.code, said.object["status"]) == (0, "completed")


# Leaving, and coming back


@pytest.mark.timeout(180)
async def test_killed_in_the_middle_the_same_command_meets_the_program_again(shop: Shop) -> None:
    """70.10 One program, one effect: who followed it died, it did not."""
    args = ("plan", "run", waits(shop), "--here", "--json")
    process = await shop.start(*args)
    await until_says(process, "wait: running")
    await begun(shop)
    process.kill()
    await ended(process)
    process = await shop.start(*args)
    await until_says(process, "wait: running")
    (shop.place / "go").touch()
    said = await ended(process)
    assert (said.code, said.object["status"]) == (0, "completed"), said
    assert said.object["steps"]["wait"]["attempts"] == 1
    assert said.object["steps"]["wait"]["outputs"]["said"]["value"] == "begun\ndone\n"
    assert len(book(shop)) == 2, "begun once, and what comes after it once"


async def test_ctrl_c_stops_following_and_what_runs_goes_on(shop: Shop) -> None:
    args = ("plan", "run", waits(shop), "--here", "--json")
    process = await shop.start(*args)
    await begun(shop)
    process.send_signal(signal.SIGINT)
    said = await ended(process)
    assert (said.code, said.object["status"]) == (130, "running")
    assert "follow it with fencepost plan run waits.toml --id" in said.err
    os.kill(int(book(shop)[0]), 0)  # the program lives
    (shop.place / "go").touch()
    said = await shop(*args)
    assert (said.code, said.object["status"]) == (0, "completed")
    assert len(book(shop)) == 2


async def test_what_has_not_ended_within_the_time_out_is_4(shop: Shop) -> None:
    said = await shop("plan", "run", waits(shop), "--here", "--json", "--timeout", "1s")
    assert (said.code, said.object["status"]) == (4, "running")
    (shop.place / "go").touch()


async def test_a_cancel_from_elsewhere_ends_it_with_3(shop: Shop) -> None:
    """70.11"""
    process = await shop.start("plan", "run", waits(shop), "--here", "--json", "--id", "w1")
    await begun(shop)
    assert (await shop("runs", "cancel", "w1", "--reason", "enough")).code == 0
    said = await ended(process)
    assert (said.code, said.object["status"]) == (3, "cancelled")
    assert said.object["steps"]["after"]["state"] == "cancelled"
    assert len(book(shop)) == 1


# From Python

IN_PYTHON = """
from fencepost import Plan, stdout
from shop import app, order

plan = Plan("made")
said = plan.command("say", ["echo", "hello"], outputs={"words": stdout()})
plan.command("again", ["cat", "{inputs.words.path}"], needs=[said], inputs={"words": said.output("words").content()}, outputs={"all": stdout()})
plan.workflow("order", order, needs=[said], input={"n": 3})
bad = Plan("bad")
bad.command("x", [])
"""


async def test_a_plan_made_in_python_is_run_by_its_place(shop: Shop) -> None:
    (shop.place / "planner.py").write_text(IN_PYTHON)
    said = await shop("plan", "run", "planner:plan", "--here", "--json")
    assert said.code == 0, said.err
    assert said.object["steps"]["again"]["outputs"]["all"]["value"] == "hello\n"
    assert said.object["steps"]["order"]["outputs"]["result"]["value"] == 6
    for target, code, words in (
        ("planner:bad", "PLAN_INVALID", "command"), ("planner:order", "USAGE", "is a workflow, not a plan; planner has plan, bad"),
        ("planner:none", "USAGE", "no 'none'; planner has plan, bad"), ("nowhere:plan", "USAGE", "no module"),
    ):  # fmt: skip
        refused = await shop("plan", "run", target, "--here", "--json")
        assert (refused.code, refused.object["error"]["code"]) == (2, code), refused
        assert words in refused.err


async def test_a_client_starts_a_plan_and_waits_for_its_end(dsn: str, shop: Shop) -> None:
    """70.2 Once: the same plan is the same run, also from the synchronous client."""
    plan = Plan("small")
    plan.command("say", ["echo", "hello"], outputs={"words": stdout()})
    async with shop.worker(target=None), Client.from_settings(read_settings(dsn=dsn)) as client:
        handle = await client.start_plan(plan)
        assert handle.id == plan.definition().run_id
        assert await handle.result(timeout=SOON) == {"steps": 1, "succeeded": 1}
        assert (await client.start_plan(plan.definition())).id == handle.id
        plan.command("more", ["true"])
        with pytest.raises(LaunchConflict) as caught:
            await client.start_plan(plan, id=handle.id)
        assert [each["path"] for each in caught.value.differs] == ["$.steps.more"]
        plan.command("say", ["true"])
        with pytest.raises(PlanInvalid):
            await client.start_plan(plan)
        with pytest.raises(LaunchRefused):
            await client.start_plan(small(1), id="x" * 200)

    def alone() -> Any:
        with sync.Client.from_settings(read_settings(dsn=dsn)) as waiting:
            return waiting.start_plan(small(1)).status()

    assert await asyncio.to_thread(alone) == "running"


def small(number: int) -> Plan:
    plan = Plan(f"plan-{number}")
    plan.command("say", ["echo", str(number)])
    return plan


# On the embedded home


@pytest.mark.timeout(180)
async def test_without_a_database_the_home_is_made_and_a_kill_changes_nothing(lonely: Shop) -> None:
    """70.10 And what reads makes none."""
    del lonely.environ["FENCEPOST_FILES"]
    home = lonely.place / ".fencepost"
    args = ("plan", "run", waits(lonely), "--json")
    for words in (
        ["show", "waits.toml"],
        ["output", "waits.toml", "wait.said"],
        ["lost", "x", "y"],
        ["resolve", "x", "y", "again"],
    ):
        assert (await lonely("plan", *words)).code == 5, words
    assert not home.exists()
    process = await lonely.start(*args)
    await begun(lonely)
    process.kill()
    await ended(process)
    (lonely.place / "go").touch()
    said = await lonely(*args)
    assert (said.code, said.object["status"]) == (0, "completed")
    assert said.err.count(f"home: {home}\n") == 1
    assert len(book(lonely)) == 2
    assert len(list((home / "files" / "attempts").iterdir())) == 2
    assert (await lonely("plan", "output", "waits.toml", "wait.said")).out == "begun\ndone\n"


async def test_dev_without_an_app_runs_commands(shop: Shop) -> None:
    process = await shop.start("dev")
    assert process.stdout is not None
    async with asyncio.timeout(SOON):
        assert (await process.stdout.readline()).startswith(b"ready lane=")
    said = await shop("plan", "run", write(shop, "notes.toml", NOTES), "--json")
    assert (said.code, said.object["status"]) == (0, "completed")
    process.send_signal(signal.SIGTERM)
    assert (await ended(process)).code == 0
