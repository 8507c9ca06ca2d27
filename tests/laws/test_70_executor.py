"""What a command is given, and what becomes of it: real processes under real supervisors, no database."""

from __future__ import annotations

import asyncio
import hashlib
import json
import os
import stat
import sys
from pathlib import Path
from typing import Any

import pytest

from fencepost.runner import child
from fencepost.store import StoreFailed
from fencepost.worker import commands
from fencepost.worker.commands import Completed, Failed, LaunchRefused, orders
from tests.attempts_here import JSON, TEXT, Place, ended, gone, packet, python, shell, until

STDOUT = {"outputs": {"out": {"from": "stdout", "media_type": TEXT}}}


async def test_exit_0_is_success_and_its_outputs_are_its_result(here: Place) -> None:
    """70.6 Named, with media type, size and digest; small ones as text, verbatim."""
    found = await here.outputs(
        shell(
            "printf ' a\\n'; printf '# b' > $FENCEPOST_OUTPUTS/sub/notes.md",
            outputs={
                "out": {"from": "stdout", "media_type": TEXT},
                "notes": {"from": "file", "path": "sub/notes.md", "media_type": "text/markdown"},
            },
        )
    )
    assert found["out"]["text"] == " a\n"
    digest = f"sha256:{hashlib.sha256(b'# b').hexdigest()}"
    assert found["notes"] == {"media_type": "text/markdown", "size": 3, "text": "# b", "digest": digest}


@pytest.mark.parametrize(
    ("script", "outcome", "said", "facts"),
    [
        ("echo no >&2; echo such file >&2; exit 3", "failure", "it exited with 3: such file", {"exit_code": 3}),
        ("kill -9 $$", "failure", "it was ended by signal 9 (SIGKILL)", {"signal": 9}),
    ],
)
async def test_any_other_end_is_a_failure_in_plain_words(
    here: Place, script: str, outcome: str, said: str, facts: dict[str, int]
) -> None:
    """70.7 An outcome of the worker's own, with exit code or signal and the last words of the command."""
    assert await here.fails(shell(script)) == {"code": "STEP_FAILED", "outcome": outcome, "message": said, **facts}


async def test_a_command_that_cannot_be_started_is_a_launch_error(here: Place, tmp_path: Path) -> None:
    """70.7 It does not exist, is not executable, is no program, has no working folder: said, each, in words."""
    plain = tmp_path / "plain"
    plain.write_text("echo no\n")
    empty = tmp_path / "empty"
    empty.write_text("")
    empty.chmod(0o700)
    cases = {
        "does not exist (looked for on PATH)": {"command": ["no-such-command-here"]},
        "does not exist (looked for from": {"command": [str(tmp_path / "nothing")]},
        "is not executable": {"command": [str(plain)]},
        "is not a program": {"command": [str(empty)]},
        f"the working folder {tmp_path}/nowhere does not exist": {"command": ["true"], "cwd": f"{tmp_path}/nowhere"},
        f"the working folder {plain} is not a folder": {"command": ["true"], "cwd": str(plain)},
        "more arguments": {"command": ["true", "x" * 200_000]},
        "embedded null byte": {"command": ["true", "a\0b"]},
    }
    for said, definition in cases.items():
        error = await here.fails(packet(definition))
        assert (error["outcome"], said in error["message"]) == ("launch_error", True), (said, error)
        assert "exit_code" not in error


async def test_a_command_knows_who_it_is_and_nothing_that_is_secret(
    here: Place, monkeypatch: pytest.MonkeyPatch
) -> None:
    """97.3 The environment of the worker without its passwords; 70.9 the identities in it are a copy."""
    monkeypatch.setenv("FENCEPOST_DATABASE_URL", "postgresql://u:password@h/d")
    monkeypatch.setenv("FENCEPOST_LISTEN_URL", "postgresql://u:password@h/d")
    monkeypatch.setenv("FENCEPOST_STEP", "of somebody else")
    monkeypatch.setenv("USUAL", "there")
    supervised = await here.go(
        packet(
            {"command": ["env", "-0"], "env": {"OWN": "{step}/{attempt}", "FENCEPOST_RUN": "posing"}, **STDOUT}, try_=3
        )
    )
    await ended(supervised)
    found = dict(line.split("=", 1) for line in (supervised.folder / "stdout").read_text().split("\0") if line)
    assert "password" not in str(found)
    assert found["USUAL"] == "there"
    assert found["OWN"] == "step/3"
    assert (found["FENCEPOST_RUN"], found["FENCEPOST_STEP"], found["FENCEPOST_ATTEMPT"]) == ("run-1", "step", "3")
    assert found["FENCEPOST_PACKET"] == str(supervised.folder / "packet.json")
    assert found["FENCEPOST_OUTPUTS"] == str(supervised.folder / "outputs")
    assert "password" not in (supervised.folder / "order.json").read_text()
    waiting = await here.start()
    assert b"password" not in Path(f"/proc/{waiting.facts.pid}/environ").read_bytes()


async def test_an_environment_that_is_no_text_arrives_as_it_was(here: Place, monkeypatch: pytest.MonkeyPatch) -> None:
    """00.5 Bytes that are no UTF-8, in what the worker itself was given."""
    monkeypatch.setenv("ODD", os.fsdecode(b"a\xff"))
    supervised = await here.go(shell('printf %s "$ODD"'))
    assert (await ended(supervised)).exit_code == 0
    assert (supervised.folder / "stdout").read_bytes() == b"a\xff"


@pytest.mark.parametrize("means", ["waitid", "waitpid"])
@pytest.mark.parametrize(("script", "status"), [("exit 3", 3), ("kill -9 $$", -9), ("exit 0", 0)])
async def test_how_a_child_ended_is_known_on_every_system(
    monkeypatch: pytest.MonkeyPatch, means: str, script: str, status: int
) -> None:
    """70.10 Where a system cannot look without reaping, it reaps."""
    if means == "waitpid":
        monkeypatch.delattr(os, "waitid")
    pid = os.posix_spawn(
        "/bin/sh", ["sh", "-c", f"read x; {script}"], {}, file_actions=[(os.POSIX_SPAWN_OPEN, 0, "/dev/null", 0, 0)]
    )
    found: list[int] = []
    await until(lambda: found or ((seen := child.status_of(pid)) is not None and found.append(seen) is None))
    assert found == [status]
    if means == "waitid":
        assert os.waitpid(pid, 0)[0] == pid, "it was looked at, not reaped"


async def test_nobody_else_reads_an_attempts_folder(here: Place) -> None:
    """97.3 Folders 0700, files 0600; the command's own umask is the worker's."""
    supervised = await here.go(shell("umask > mask"))
    await ended(supervised)
    assert stat.S_IMODE(supervised.folder.stat().st_mode) == 0o700
    for name in ("packet.json", "taken.json", "order.json", "result.json", "stdout", "stderr"):
        assert stat.S_IMODE((supervised.folder / name).stat().st_mode) == 0o600, name
    mask = os.umask(0o022)
    os.umask(mask)
    assert int((supervised.folder / "work" / "mask").read_text(), 8) == mask


def source(output: str = "log") -> dict[str, str]:
    return {"run": "run-1", "step": "log", "output": output}


async def test_inputs_arrive_as_their_mode_says(here: Place) -> None:
    """70.8 content: the value; quote: the text with digest and origin; reference: where it is; none: why not."""
    large = here.store.put("inst-1", b"L" * 300_000)
    small = here.store.put("inst-1", b'{"a": [1, 2.50]}')
    binary = here.store.put("inst-1", b"\xff\x00")

    def one(mode: str, kept: Any, media: str = TEXT, **more: Any) -> dict[str, Any]:
        facts = {"binding": "b", "mode": mode, "source": source(), "media_type": media}
        return {**facts, "size": kept.size, "digest": kept.digest, "place": kept.place, **more}

    supervised = await here.go(
        packet(
            {"command": ["true"]},
            {
                "json": one("content", small, JSON),
                "quoted": one("quote", small, JSON),
                "long": one("content", large),
                "raw": one("content", binary, "application/octet-stream"),
                "far": one("reference", large),
                "near": {
                    "binding": "b",
                    "mode": "reference",
                    "media_type": TEXT,
                    "size": 2,
                    "text": "hi",
                    "source": source(),
                },
                "not": {"binding": "b", "mode": "content", "required": False, "reason": "step log was skipped"},
            },
        )
    )
    await ended(supervised)
    found = json.loads((supervised.folder / "packet.json").read_text())["inputs"]
    assert found["json"]["value"] == {"a": [1, 2.5]}
    assert b'"value":{"a": [1, 2.50]}' in (supervised.folder / "packet.json").read_bytes(), "as it was written"
    assert found["quoted"]["value"] == '{"a": [1, 2.50]}'
    assert (found["quoted"]["digest"], found["quoted"]["source"]) == (small.digest, source())
    assert "value" not in found["long"]
    assert Path(found["long"]["path"]).stat().st_size == 300_000
    assert found["raw"]["value"] is None
    assert Path(found["raw"]["path"]).read_bytes() == b"\xff\x00"
    assert "value" not in found["far"]
    assert Path(found["far"]["path"]).read_bytes() == b"L" * 300_000
    assert Path(found["near"]["path"]).read_text() == "hi"
    assert (found["not"]["mode"], found["not"]["reason"]) == ("none", "step log was skipped")
    assert "path" not in found["not"]


async def test_templates_are_filled_in_where_they_stand(here: Place, tmp_path: Path) -> None:
    """70.8 In arguments, environment, working folder and standard input."""
    supervised = await here.go(
        packet(
            {
                "command": [
                    "sh", "-c", 'printf "%s|" "$@" "$OWN"; pwd; cat; cp "$1" {outputs.o.path}', "-",
                    "{inputs.i.path}", "{inputs.i.value}", "{{{run}}}",
                ],
                "env": {"OWN": "{inputs.away.value}!"},
                "cwd": f"{tmp_path}/{{step}}/..",
                "stdin": "read {inputs.i.value}",
                "outputs": {"o": {"from": "file", "path": "o.txt", "media_type": TEXT}},
            },
            {
                "i": {"binding": "i", "mode": "content", "media_type": TEXT, "text": "words"},
                "away": {"binding": "a", "mode": "content", "required": False, "reason": "skipped"},
            },
        )
    )  # fmt: skip
    await ended(supervised)
    said = (supervised.folder / "stdout").read_text()
    assert said == f"{supervised.folder}/inputs/i|words|{{run-1}}|!|{tmp_path}\nread words"
    assert (supervised.folder / "outputs" / "o.txt").read_text() == "words"


@pytest.mark.parametrize("spoiled", ["changed", "removed", "foreign"])
async def test_an_input_that_is_not_what_was_committed_never_reaches_a_command(here: Place, spoiled: str) -> None:
    """70.8 Its digest is compared; a required one without its bytes does not execute."""
    kept = here.store.put("inst-1", b"committed")
    file = here.store.root / kept.place
    file.chmod(0o600)
    one: dict[str, Any] = {
        "binding": "i",
        "mode": "content",
        "media_type": TEXT,
        "place": kept.place,
        "digest": kept.digest,
    }
    match spoiled:
        case "changed":
            file.write_bytes(b"something else")
        case "removed":
            file.unlink()
        case _:
            one["digest"] = "sha256:" + "0" * 64
    for mode in ("content", "quote", "reference"):
        supervised = await here.start()
        with pytest.raises(LaunchRefused, match=r"changed|is not in the store"):
            await supervised.go(
                packet({"command": ["sh", "-c", f"echo x >> {here.effects}"]}, {"i": {**one, "mode": mode}}), here.store
            )
        assert isinstance(await supervised.ended(), commands.NotStarted)
    assert here.count() == 0


async def test_whoever_settles_and_however_often_says_the_same_text(here: Place) -> None:
    """70.10, 80.2 A function of packet and folder: ten times here, and once in another process."""
    tried = shell(
        "head -c 100000 /dev/zero; echo '{{}}' > $FENCEPOST_OUTPUTS/j; echo b > $FENCEPOST_OUTPUTS/a",
        outputs={
            "z": {"from": "stdout"},
            "j": {"from": "file", "path": "j", "media_type": JSON},
            "a": {"from": "file", "path": "a", "media_type": TEXT},
        },
    )
    supervised = await here.go(tried)
    found = await ended(supervised)
    texts = {outcome.text async for outcome in _settled(here, tried, supervised, found, 10)}
    code = (
        "import asyncio,sys; from pathlib import Path; from fencepost.worker import commands; from fencepost.store import DirectoryStore\n"
        "folder=Path(sys.argv[1]); met=commands.meet(folder,int(sys.argv[2]),sys.argv[3])\n"
        "async def main():\n"
        "  ended=await met.ended(); print((await commands.settle(DirectoryStore(sys.argv[4]),commands.packet_in(folder),folder,ended)).text,end='')\n"
        "asyncio.run(main())"
    )
    facts = supervised.facts
    other = await asyncio.create_subprocess_exec(
        sys.executable, "-c", code, supervised.folder, str(facts.pid), facts.process_start or "", here.store.root,
        stdout=asyncio.subprocess.PIPE,
    )  # fmt: skip
    said, _ = await other.communicate()
    texts.add(said.decode())
    assert len(texts) == 1
    assert len(list(here.store.root.glob("*/*"))) == 1, "what is small is not kept twice"


async def _settled(here: Place, tried: Any, supervised: Any, found: Any, times: int) -> Any:
    for _ in range(times):
        outcome = await here.settle(tried, supervised, found)
        assert isinstance(outcome, Completed)
        yield outcome


async def test_a_store_that_cannot_keep_is_no_outcome(here: Place) -> None:
    """70.7 A failure to record a success is retried as recording: what ran once is settled later, and does not run again."""
    tried = shell(f"echo x >> {here.effects}; head -c 100000 /dev/zero", outputs={"z": {"from": "stdout"}})
    supervised = await here.go(tried)
    found = await ended(supervised)
    here.store.root.write_text("a file stands where the store's folder is to be")
    with pytest.raises(StoreFailed, match="cannot keep it"):
        await here.settle(tried, supervised, found)
    here.store.root.unlink()
    assert isinstance(await here.settle(tried, supervised, found), Completed)
    assert here.count() == 1


async def test_logs_are_read_from_where_one_left_off(here: Place) -> None:
    """90.4 Two streams, each by bytes, while the command runs and after."""
    supervised = await here.go(shell("echo one; echo E >&2; sleep 60"))
    assert commands.tail(supervised.folder, "stdout", 0)[1] in {0, 4}
    await until(lambda: commands.tail(supervised.folder, "stdout", 0)[0] == b"one\n")
    await until(lambda: commands.tail(supervised.folder, "stderr", 0)[0] == b"E\n")  # before it is killed
    found, at = commands.tail(supervised.folder, "stdout", 0)
    assert (found, at) == (b"one\n", 4)
    os.kill(here.pid(supervised), 15)
    await ended(supervised)
    assert commands.tail(supervised.folder, "stderr", 0)[0].startswith(b"E\n")
    assert commands.tail(supervised.folder, "stdout", at)[1] >= at


async def test_folders_of_forgotten_runs_are_swept_and_no_living_one(here: Place) -> None:
    """95.1 The caller says which runs are known; what still runs stays whatever it says."""
    done = [await here.go(shell("true")) for _ in range(3)]
    for one in done:
        await ended(one)
    alive = await here.go(shell("sleep 60"))
    await until((alive.folder / "command.json").exists)
    (here.attempts / "not ours").mkdir()
    asked: list[str] = []

    async def known(names: Any) -> set[str]:
        asked.extend(names)
        return {done[0].folder.name}

    assert await commands.sweep(here.attempts, known) == 2
    assert sorted(asked) == sorted(one.folder.name for one in [*done, alive])
    assert sorted(p.name for p in here.attempts.iterdir()) == sorted(
        [done[0].folder.name, alive.folder.name, "not ours"]
    )
    alive.stop("over")
    await ended(alive)


async def test_an_attempts_folder_is_made_once(here: Place) -> None:
    """70.5 A second start of one attempt is refused: its folder is there."""
    name = commands.attempt_name("inst", 9, 1)
    here.all.append(await commands.start(here.attempts, name))
    with pytest.raises(FileExistsError):
        await commands.start(here.attempts, name)


async def test_hundreds_of_processes_are_not_left_as_zombies(here: Place) -> None:
    """85.3 What falls to the supervisor while its command runs is reaped."""
    code = (
        "import os,time\nfor _ in range(50):\n  pid=os.fork()\n  if pid==0:\n    if os.fork(): os._exit(0)\n    os._exit(0)\n  os.waitpid(pid,0)\n"
        "open('ready','w')\ntime.sleep(60)"
    )
    supervised = await here.go(python(code))
    await until((supervised.folder / "work" / "ready").exists)
    children = Path(f"/proc/{supervised.facts.pid}/task/{supervised.facts.pid}/children")
    await until(lambda: children.read_text().split() == [str(here.pid(supervised))])
    supervised.stop("over")
    await ended(supervised)
    assert gone(here.pid(supervised))


async def test_a_ceiling_stands_where_no_time_out_was_given() -> None:
    """85.7 Six hours: opaque code ends by its ceiling at the latest."""
    assert orders.CEILING_MS == 6 * 3600 * 1000


async def test_failures_are_told_within_bounds(here: Place) -> None:
    """00.5 Whatever the command wrote last."""
    error = await here.fails(python("import sys; sys.stderr.buffer.write(b'\\xff\\0' * 100000); sys.exit(1)"))
    assert len(error["message"]) < 400
    assert "\0" not in error["message"]
    assert isinstance(Failed(error).outcome, str)
