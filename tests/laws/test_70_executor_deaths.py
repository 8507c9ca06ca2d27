"""Kills, pauses, forks and ladders: at every point of a supervisor's life the inquiry is right, and nothing is left running."""

from __future__ import annotations

import asyncio
import json
import os
import signal
import sys
from pathlib import Path
from typing import Any

import pytest

from fencepost.worker import commands, process
from fencepost.worker.commands import Completed, Dead, Ended, Failed, NotStarted, Supervised, orders, watching
from tests.attempts_here import TEXT, Place, ended, gone, is_pending, packet, python, shell, until, verdict

STOP_AT = "FENCEPOST_SUPERVISOR_STOP_AT"

# Where a supervisor is killed -> what an inquiry says, and how many effects there may be.
POINTS: dict[str, tuple[type, set[int]]] = {
    "waiting": (NotStarted, {0}),
    "told": (NotStarted, {0}),
    "forked": (NotStarted, {0}),
    "before command.json": (NotStarted, {0}),
    "after command.json": (Dead, {0}),
    "released": (Dead, {0, 1}),
    "ended": (Dead, {1}),
    "digested": (Dead, {1}),
    "before result.json": (Dead, {1}),
    "after result.json": (Ended, {1}),
}

# A process that leaves its group, its session and its parent, keeps standard output open, and hears no gentle signal.
DAEMON = """
import os, signal, sys, time
for each in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
    signal.signal(each, signal.SIG_IGN)
if os.fork() == 0:
    os.setsid()
    if os.fork() == 0:
        with open(sys.argv[1] + ".part", "w") as file:
            file.write(str(os.getpid()))
        os.rename(sys.argv[1] + ".part", sys.argv[1])
        time.sleep(600)
    os._exit(0)
while not os.path.exists(sys.argv[1]):
    time.sleep(0.005)
"""

# Notes each gentle signal and goes on.
DEAF = """
import os, signal, sys, time
def note(number, frame):
    with open(sys.argv[1], "a") as file:
        file.write(signal.Signals(number).name + "\\n")
for each in (signal.SIGINT, signal.SIGTERM):
    signal.signal(each, note)
open("ready", "w").close()
until = time.monotonic() + 600
while time.monotonic() < until:
    time.sleep(1)
"""


def stands(supervised: Supervised) -> bool:
    return process.is_stopped(supervised.facts.pid)


def kill(supervised: Supervised) -> None:
    os.kill(supervised.facts.pid, signal.SIGKILL)


def stranger(supervised: Supervised) -> Supervised:
    """The same attempt as a worker meets it that did not start it."""
    return commands.meet(supervised.folder, supervised.facts.pid, supervised.facts.process_start)


@pytest.mark.parametrize("point", POINTS)
async def test_whatever_point_a_supervisor_is_killed_at_the_inquiry_is_right(
    here: Place, point: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """70.10, 85.3 Live while it stands there; after the kill dead only if the command was let go, and the command is dead too."""
    monkeypatch.setenv(STOP_AT, point)
    tried = shell(f"echo x >> {here.effects}; [ {point[:3]} = rel ] && exec sleep 600; true")
    supervised = await here.go(tried)
    await until(lambda: stands(supervised))
    if point == "released":
        await until(here.count)
    other = stranger(supervised)
    if point != "after result.json":
        assert await is_pending(other), "a process that is only stopped is not gone"
    command = here.pid(supervised) if (supervised.folder / "command.json").exists() else None
    kill(supervised)
    expected, effects = POINTS[point]
    assert [type(await verdict(one)) for one in (supervised, other, stranger(supervised))] == [expected] * 3
    assert command is None or gone(command)
    assert here.count() in effects
    for one in (other,):
        one.close()


async def test_a_result_that_is_torn_or_no_result_is_none(here: Place, monkeypatch: pytest.MonkeyPatch) -> None:
    """70.10 Whatever stands in result.json: no answer while the supervisor lives, dead with the proof of its death."""
    monkeypatch.setenv(STOP_AT, "before result.json")
    for content in (b"", b'{"outcome": "exi', b"\xff\x00", b"[]", b'{"exit_code": "none"}'):
        supervised = await here.go(shell("true"))
        await until(lambda one=supervised: stands(one))
        (supervised.folder / "result.json").write_bytes(content)
        assert await is_pending(supervised, 0.05)
        kill(supervised)
        assert isinstance(await verdict(supervised), Dead)


WORKER = """
import asyncio, json, sys
from pathlib import Path
from fencepost.store import DirectoryStore
from fencepost.worker import commands
async def main():
    root, word = Path(sys.argv[1]), sys.argv[2]
    supervised = await commands.start(root, commands.attempt_name("inst", 7, 99))
    if word == "go":
        await supervised.go(commands.read_packet(sys.argv[3]), DirectoryStore(sys.argv[4]))
    print(json.dumps([str(supervised.folder), supervised.facts.pid, supervised.facts.process_start]), flush=True)
    await asyncio.sleep(600)  # waits: to be killed
asyncio.run(main())
"""


async def orphan(here: Place, word: str, tried: commands.Packet) -> Supervised:
    """An attempt whose worker was killed in the middle."""
    import msgspec

    worker = await asyncio.create_subprocess_exec(
        sys.executable, "-c", WORKER, here.attempts, word, msgspec.json.encode(tried).decode(), here.store.root,
        stdout=asyncio.subprocess.PIPE,
    )  # fmt: skip
    assert worker.stdout is not None
    folder, pid, start = json.loads(await worker.stdout.readline())
    worker.send_signal(signal.SIGKILL)
    await worker.wait()
    met = commands.meet(Path(folder), pid, start)
    here.all.append(met)
    return met


async def test_a_supervisor_goes_on_without_its_worker_and_is_adopted(here: Place, tmp_path: Path) -> None:
    """70.10 The command runs to its end once; who meets it settles what the supervisor wrote, from the packet in the folder."""
    door = tmp_path / "door"
    os.mkfifo(door)
    tried = shell(f"echo x >> {here.effects}; cat {door}", outputs={"out": {"from": "stdout", "media_type": TEXT}})
    met = await orphan(here, "go", tried)
    await until(here.count)
    assert await is_pending(met)
    await asyncio.get_running_loop().run_in_executor(None, door.write_text, "through")
    found = await ended(met)
    taken = commands.packet_in(met.folder)
    assert taken == tried
    outcome = await here.settle(tried, met, found)
    assert isinstance(outcome, Completed)
    assert json.loads(outcome.text)["outputs"]["out"]["text"] == "through"
    assert here.count() == 1


async def test_a_worker_that_died_before_the_word_leaves_nothing_run(here: Place) -> None:
    """70.10 Dead and not begun: the supervisor leaves by itself, and nothing of the author's ever ran."""
    met = await orphan(here, "wait", shell(f"echo x >> {here.effects}"))
    assert isinstance(await verdict(met), NotStarted)
    assert here.count() == 0


async def test_a_start_that_is_given_up_runs_nothing(here: Place) -> None:
    """70.5 Closed, or told to stop, before the word."""
    closed, stopped = await here.start(), await here.start()
    closed.close()
    stopped.stop("stale")
    await stopped.go(shell(f"echo x >> {here.effects}"), here.store)
    for one in (closed, stopped):
        assert isinstance(await verdict(one), NotStarted)
        one.close()
    assert here.count() == 0


@pytest.mark.parametrize("turns", [0, 1, 3, 10, 30])
async def test_a_stop_at_any_moment_after_the_word_ends_it(here: Place, turns: int) -> None:
    """70.11 While the supervisor is still being loaded too: nothing has run then, or the command is ended; it never stays."""
    supervised = await here.go(shell("exec sleep 600"))
    for _ in range(turns):
        await asyncio.sleep(0.002)  # waits: the moment is what is tried
    supervised.stop("cancelled")
    found = await verdict(supervised)
    if not isinstance(found, NotStarted):
        assert isinstance(found, Ended)
        assert (found.stopped, found.signal or signal.SIGINT) == ("cancelled", signal.SIGINT), (
            "the first rung is not lost"
        )
    if (supervised.folder / "command.json").exists():
        assert gone(here.pid(supervised))


async def test_an_orphan_is_stopped_by_whoever_met_it_and_the_first_reason_stays(here: Place) -> None:
    """80.4, 70.11 Told by a worker that did not start it, twice; the outcome is cancelled."""
    tried = shell("exec sleep 600")
    met = await orphan(here, "go", tried)
    await until((met.folder / "command.json").exists)
    again = commands.meet(met.folder, met.facts.pid, met.facts.process_start)
    met.stop("cancelled")
    again.stop("another reason")
    met.stop("cancelled")
    found = await ended(met)
    assert (found.stopped, found.signal) == ("cancelled", signal.SIGINT)
    outcome = await here.settle(tried, met, found)
    assert isinstance(outcome, Failed)
    assert outcome.outcome == "cancelled"
    again.stop("too late")
    assert await verdict(again) == found
    again.close()


async def test_a_deaf_command_is_ended_by_the_ladders_last_rung_with_its_whole_tree(
    here: Place, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """70.11 SIGINT, then SIGTERM, then SIGKILL: to its group, and to what left its group and its session."""
    monkeypatch.setattr(orders, "GRACES_MS", (150, 150))
    notes, daemon = tmp_path / "notes", tmp_path / "daemon"
    code = f"import subprocess, sys; subprocess.run([sys.executable, '-c', {DAEMON!r}, {str(daemon)!r}])\n{DEAF}"
    tried = packet({"command": [sys.executable, "-c", code.replace("{", "{{").replace("}", "}}"), str(notes)]})
    supervised = await here.go(tried)
    await until((supervised.folder / "work" / "ready").exists)
    supervised.stop("cancelled")
    found = await ended(supervised)
    assert (found.stopped, found.signal, found.left) == ("cancelled", signal.SIGKILL, ())
    assert notes.read_text().split() == ["SIGINT", "SIGTERM"]
    assert gone(here.pid(supervised))
    assert gone(int(daemon.read_text()))


async def test_a_time_out_is_kept_by_the_supervisors_own_clock(here: Place, tmp_path: Path) -> None:
    """70.10 With its worker and without it, and a command that was stopped hears of it too."""
    tried = shell("kill -STOP $$; exec sleep 600", timeout_ms=300)
    supervised = await here.go(tried)
    met = await orphan(Place(tmp_path / "other"), "go", tried)
    for one in (supervised, met):
        found = await ended(one)
        assert (found.timed_out, found.stopped, found.signal) == (True, None, signal.SIGINT)
        outcome = await here.settle(tried, one, found)
        assert isinstance(outcome, Failed)
        assert (outcome.outcome, outcome.error["message"]) == (
            "timeout",
            "it ran longer than its time-out of 0.3 seconds",
        )
    met.close()


async def test_what_a_command_leaves_running_does_not_outlive_it(here: Place, tmp_path: Path) -> None:
    """70.10 Forked away twice, with standard output open: the supervisor neither hangs nor leaves it alive."""
    daemon = tmp_path / "daemon"
    supervised = await here.go(packet({"command": [sys.executable, "-c", DAEMON, str(daemon)]}))
    found = await ended(supervised)
    assert (found.exit_code, found.left) == (0, ())
    assert gone(int(daemon.read_text()))


async def test_what_a_command_leaves_may_end_by_itself_for_a_moment(here: Place) -> None:
    """70.6 A pipe's reader behind the shell still writes what it was given."""
    tried = shell("(sleep 0.1; echo late) & echo soon", outputs={"out": {"from": "stdout", "media_type": TEXT}})
    assert (await here.outputs(tried))["out"]["text"] == "soon\nlate\n"


async def test_nothing_of_a_command_outlives_a_killed_supervisor_once_it_is_called_dead(
    here: Place, tmp_path: Path
) -> None:
    """85.7 What forked away has no parent to be killed with: whoever inquires ends it, and only then says dead."""
    daemon = tmp_path / "daemon"
    code = f"import subprocess, sys, time; subprocess.run([sys.executable, '-c', {DAEMON!r}, {str(daemon)!r}]); time.sleep(600)"
    supervised = await here.go(python(code.replace("{", "{{").replace("}", "}}")))
    await until(daemon.exists)
    kill(supervised)
    await until(lambda: gone(supervised.facts.pid, supervised.facts.process_start))
    await until(lambda: gone(here.pid(supervised)))  # by the kernel
    assert not gone(int(daemon.read_text()))
    assert isinstance(await verdict(stranger(supervised)), Dead)
    assert gone(int(daemon.read_text()))
    assert isinstance(await verdict(supervised), Dead)


async def test_a_signal_from_outside_is_a_failure_and_no_cancellation(here: Place) -> None:
    """80.4 Only who cancels says cancelled: a host that shuts down is not one."""
    tried = shell("exec sleep 600")
    supervised = await here.go(tried)
    await until((supervised.folder / "command.json").exists)
    os.kill(supervised.facts.pid, signal.SIGTERM)
    outcome = await here.settle(tried, supervised, await ended(supervised))
    assert isinstance(outcome, Failed)
    assert (outcome.outcome, "from outside" in outcome.error["message"]) == ("failure", True)


async def test_a_stop_that_comes_before_the_command_is_let_go_lets_nothing_go(
    here: Place, monkeypatch: pytest.MonkeyPatch
) -> None:
    """70.11 Told between the word and the launch."""
    monkeypatch.setenv(STOP_AT, "told")
    tried = shell(f"echo x >> {here.effects}")
    supervised = await here.go(tried)
    await until(lambda: stands(supervised))
    (supervised.folder / "stop").write_text("cancelled")
    os.kill(supervised.facts.pid, signal.SIGCONT)
    outcome = await here.settle(tried, supervised, await ended(supervised))
    assert isinstance(outcome, Failed)
    assert outcome.outcome == "cancelled"
    assert here.count() == 0


async def test_a_child_that_does_not_hear_yet_hears_the_first_rung_when_it_does(
    here: Place, monkeypatch: pytest.MonkeyPatch
) -> None:
    """70.11 It stands right behind the fork, without a group of its own; it is let go and told to stop."""
    monkeypatch.setenv(STOP_AT, "child")
    monkeypatch.setattr(orders, "GRACES_MS", (500, 500))
    supervised = await here.go(shell(f"echo x >> {here.effects}; exec sleep 600"))
    await until((supervised.folder / "command.json").exists)
    await until(lambda: process.is_stopped(here.pid(supervised)))
    supervised.stop("cancelled")
    assert (await ended(supervised)).signal == signal.SIGINT
    assert here.count() == 0


async def test_another_process_of_the_same_number_is_not_the_supervisor(here: Place) -> None:
    """85.3 Its start is of another time: proof that the first is gone, and it is never signalled."""
    bystander = await asyncio.create_subprocess_exec("sleep", "600")
    supervised = await here.go(shell("exec sleep 600"))
    await until((supervised.folder / "command.json").exists)
    met = commands.meet(supervised.folder, bystander.pid, "1")
    met.stop("cancelled")
    assert bystander.returncode is None
    assert not gone(bystander.pid)
    bystander.kill()
    await bystander.wait()
    assert not gone(supervised.facts.pid)
    met.close()


@pytest.mark.parametrize("lacking", ["pidfd_open", "both"])
async def test_where_the_kernel_tells_of_no_end_a_slow_look_finds_it(
    here: Place, monkeypatch: pytest.MonkeyPatch, lacking: str
) -> None:
    """70.10 Without process descriptors the answer is the same, only later."""
    monkeypatch.delattr(os, "pidfd_open")
    if lacking == "both":
        monkeypatch.setattr(watching, "LOOK_SECONDS", 0.02)
    tried = shell("sleep 0.2")
    met = await orphan(here, "go", tried)
    assert isinstance(await verdict(met), Ended)
    stopped = await here.go(shell("exec sleep 600"))
    await until((stopped.folder / "command.json").exists)
    stopped.stop("cancelled")
    assert (await ended(stopped)).stopped == "cancelled"


async def test_many_may_wait_for_one_end_and_one_may_give_up(here: Place, tmp_path: Path) -> None:
    """70.10 Two waiters of one supervised, a third cancelled: each is told the same."""
    door = tmp_path / "door"
    os.mkfifo(door)
    supervised = await here.go(shell(f"cat {door}"))
    waiting: list[asyncio.Task[Any]] = [asyncio.create_task(supervised.ended()) for _ in range(3)]
    await until((supervised.folder / "command.json").exists)
    waiting[0].cancel()
    await asyncio.get_running_loop().run_in_executor(None, door.write_text, "through")
    first, second, third = await asyncio.gather(*waiting, return_exceptions=True)
    assert isinstance(first, asyncio.CancelledError)
    assert second == third
    assert isinstance(second, Ended)


async def test_an_attempt_whose_folder_was_taken_away_is_dead_not_unstarted(here: Place) -> None:
    """85.3 Where nothing can be read nothing is proven to have never run."""
    import shutil

    supervised = await here.go(shell("exec sleep 600"))
    await until((supervised.folder / "command.json").exists)
    command = here.pid(supervised)
    shutil.rmtree(supervised.folder)
    kill(supervised)
    assert isinstance(await verdict(supervised), Dead)
    await until(lambda: gone(command))
