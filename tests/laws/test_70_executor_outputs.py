"""Outputs and logs: what is missing, foreign, torn, changed or endless is a typed outcome, and memory stays flat."""

from __future__ import annotations

import hashlib
import json
import os
import re
import signal
from pathlib import Path
from typing import Any

import pytest

from fencepost.runner.kept import Sink
from fencepost.worker import process
from fencepost.worker.commands import Failed, orders, outputs
from tests.attempts_here import JSON, TEXT, Place, ended, packet, shell, until

FLAT_KIB = 64 * 1024  # what a process may grow by, whatever it handles
OBJECT = {
    "type": "object",
    "required": ["rows"],
    "properties": {"rows": {"type": "array", "items": {"type": "integer"}}},
}


def file(path: str = "f", media_type: str = TEXT, **more: Any) -> dict[str, Any]:
    return {"out": {"from": "file", "path": path, "media_type": media_type, **more}}


def peak(pid: int) -> int:
    """The most memory that a process has held, in KiB."""
    found = re.search(r"VmHWM:\s+(\d+) kB", Path(f"/proc/{pid}/status").read_text())
    assert found
    return int(found[1])


@pytest.mark.parametrize(
    ("script", "declared", "said"),
    [
        ("true", file(), "'out' is missing: no file 'f' was written to FENCEPOST_OUTPUTS"),
        ("mkdir $FENCEPOST_OUTPUTS/f", file(), "'out' cannot be taken: it is not a regular file"),
        ("mkfifo $FENCEPOST_OUTPUTS/f", file(), "'out' cannot be taken: it is not a regular file"),
        ("ln -s /etc/passwd $FENCEPOST_OUTPUTS/f", file(), "'out' cannot be taken: it leads out of its folder, to /etc/passwd"),
        ("ln -s ../packet.json $FENCEPOST_OUTPUTS/f", file(), "'out' cannot be taken: it leads out of its folder, to"),
        ("rm -r $FENCEPOST_OUTPUTS/d; ln -s / $FENCEPOST_OUTPUTS/d", file("d/etc/passwd"), "it leads out of its folder, to /etc/passwd"),
        ("ln -s f $FENCEPOST_OUTPUTS/f", file(), "'out' cannot be taken"),
        ("printf '[1,' > $FENCEPOST_OUTPUTS/f", file("f", JSON), "'out' is not valid JSON"),
        ("printf 'NaN' > $FENCEPOST_OUTPUTS/f", file("f", "application/x+json"), "'out' is not valid JSON"),
        ("printf '\\377' > $FENCEPOST_OUTPUTS/f", file("f", JSON), "'out' is not valid JSON"),
        (": > $FENCEPOST_OUTPUTS/f", file("f", JSON), "'out' is not valid JSON"),
        (
            "printf '{{\"rows\": [1, 2, \"x\", null]}}' > $FENCEPOST_OUTPUTS/f", file("f", JSON, schema=OBJECT),
            "'out' does not keep its schema: $.rows[2]: ",
        ),
        ("printf '{{}}' > $FENCEPOST_OUTPUTS/f", file("f", JSON, schema=OBJECT), "'out' does not keep its schema: $: "),
        ("printf '1' > $FENCEPOST_OUTPUTS/f", file("f", JSON, schema=False), "'out' does not keep its schema"),
    ],
)  # fmt: skip
async def test_an_output_that_is_not_what_was_declared_is_invalid_output(
    here: Place, script: str, declared: dict[str, Any], said: str
) -> None:
    """70.6 Named, with what is wrong and where; no result is committed for an exit of 0."""
    error = await here.fails(shell(script, outputs=declared))
    assert (error["outcome"], error["exit_code"]) == ("invalid_output", 0), error
    assert said in error["message"], error


async def test_every_fault_of_outputs_is_named_at_once(here: Place) -> None:
    """70.6 And a schema that is kept, a missing output that may be, and a link inside the folder are none."""
    good = "printf '{{\"rows\": [1]}}' > $FENCEPOST_OUTPUTS/f; ln -s f $FENCEPOST_OUTPUTS/g"
    declared = file("f", JSON, schema=OBJECT) | {
        "link": {"from": "file", "path": "g", "media_type": JSON},
        "maybe": {"from": "file", "path": "no", "media_type": TEXT, "required": False},
    }
    assert set(await here.outputs(shell(good, outputs=declared))) == {"out", "link"}
    error = await here.fails(shell("true", outputs=declared))
    assert "'out' is missing" in error["message"]
    assert "'link' is missing" in error["message"]
    assert "'maybe'" not in error["message"]


@pytest.mark.parametrize("how", ["content", "longer", "gone", "fifo", "link"])
async def test_an_output_that_changed_after_the_supervisors_digest_is_invalid(here: Place, how: str) -> None:
    """70.6 What is kept has the digest that was taken when the command had ended, or is not kept; small and large alike."""
    for size in (10, 200_000):
        tried = shell(f"head -c {size} /dev/zero > $FENCEPOST_OUTPUTS/f", outputs=file())
        supervised = await here.go(tried)
        found = await ended(supervised)
        changed = supervised.folder / "outputs" / "f"
        match how:
            case "content":
                changed.write_bytes(b"x" * size)
            case "longer":
                changed.write_bytes(b"\0" * (size + 1))
            case "gone":
                changed.unlink()
            case "fifo":
                changed.unlink()
                os.mkfifo(changed)
            case _:
                changed.rename(changed.with_name("real"))
                changed.symlink_to("real")
        outcome = await here.settle(tried, supervised, found)
        assert isinstance(outcome, Failed)
        assert outcome.outcome == "invalid_output"
        assert "output 'out' was changed after the command had ended" in outcome.error["message"]


async def test_a_failure_takes_no_outputs(here: Place) -> None:
    """70.6 Only a succeeded attempt commits a result; what a failed one wrote stays in its folder."""
    tried = shell("echo x > $FENCEPOST_OUTPUTS/f; exit 1", outputs=file())
    supervised = await here.go(tried)
    found = await ended(supervised)
    assert found.outputs == {}
    assert isinstance(await here.settle(tried, supervised, found), Failed)
    assert not here.store.root.exists()


@pytest.mark.parametrize(
    ("content", "inline"),
    [
        (b"x" * 65536, True),
        (b"x" * 65537, False),
        (b"a\0b", False),
        (b"\xff", False),
        ("ä€😀".encode(), True),
        (b"", True),
    ],
)
async def test_small_text_is_told_and_everything_else_is_kept_by_its_digest(
    here: Place, tmp_path: Path, content: bytes, inline: bool
) -> None:
    """70.6 Verbatim, either way: the text is the bytes, and the place gives them back."""
    (tmp_path / "content").write_bytes(content)
    found = (await here.outputs(shell(f"cp {tmp_path}/content $FENCEPOST_OUTPUTS/f", outputs=file())))["out"]
    digest = hashlib.sha256(content).hexdigest()
    assert (found["size"], found["digest"]) == (len(content), f"sha256:{digest}")
    if inline:
        assert found["text"].encode() == content
        assert "place" not in found
    else:
        assert found["place"] == f"inst-7/sha256-{digest}"
        assert here.store.read(found["place"]) == content


async def test_a_result_document_stays_small_however_many_outputs_there_are(here: Place) -> None:
    """00.5 Texts of a megabyte in all; what comes after stands in the store."""
    declared = {f"o{n:02}": {"from": "file", "path": f"o{n}", "media_type": TEXT} for n in range(40)}
    found = await here.outputs(
        shell(
            "for n in $(seq 0 39); do head -c 60000 /dev/zero | tr '\\0' x > $FENCEPOST_OUTPUTS/o$n; done",
            outputs=declared,
        )
    )
    assert len(json.dumps(found)) < 1_100_000
    assert sum("place" in one for one in found.values()) > 20


async def test_a_flood_on_both_streams_is_bounded_and_counted(here: Place, monkeypatch: pytest.MonkeyPatch) -> None:
    """00.5 The beginning and the end are kept, what is between them is counted to the byte, and memory stays flat."""
    monkeypatch.setattr(orders, "LOG_BYTES_MAX", 1024 * 1024)
    monkeypatch.setenv("FENCEPOST_SUPERVISOR_STOP_AT", "digested")
    size = 64 * 1024 * 1024
    supervised = await here.go(shell(f"head -c {size} /dev/zero & head -c {size} /dev/zero >&2; wait; echo the end"))
    await until(lambda: process.is_stopped(supervised.facts.pid))
    assert peak(supervised.facts.pid) < FLAT_KIB
    os.kill(supervised.facts.pid, signal.SIGCONT)
    found = await ended(supervised)
    assert found.exit_code == 0
    assert found.stdout.size == size + len("the end\n")
    for name, stream in (("stdout", found.stdout), ("stderr", found.stderr)):
        kept = (supervised.folder / name).read_bytes()
        mark = f"\n[fencepost: {stream.dropped} bytes are not kept here]\n".encode()
        assert kept.count(mark) == 1
        assert stream.size - stream.dropped == len(kept) - len(mark) == 1024 * 1024
    assert (supervised.folder / "stdout").read_bytes().endswith(b"the end\n")


async def test_stdout_over_its_bound_is_no_output(here: Place, monkeypatch: pytest.MonkeyPatch) -> None:
    """70.6 At the bound it is one, to the byte; one more and it is invalid."""
    bound = 256 * 1024
    monkeypatch.setattr(orders, "STDOUT_BYTES_MAX", bound)
    declared = {"out": {"from": "stdout", "media_type": TEXT}}
    code = "head -c {} /dev/zero | tr '\\0' x"
    found = (await here.outputs(shell(code.format(bound), outputs=declared)))["out"]
    assert here.store.read(found["place"]) == b"x" * bound
    error = await here.fails(shell(code.format(bound + 1), outputs=declared))
    assert error["outcome"] == "invalid_output"
    assert "262,145 bytes were written to stdout, and 262,144 could be kept" in error["message"]


async def test_json_too_long_to_be_judged_is_said(here: Place, monkeypatch: pytest.MonkeyPatch) -> None:
    """00.5 Judging takes memory, so it is bounded; the same bytes as plain ones are kept."""
    monkeypatch.setattr(outputs, "JSON_BYTES_MAX", 1000)
    script = "(printf '\"'; head -c 2000 /dev/zero | tr '\\0' x; printf '\"') > $FENCEPOST_OUTPUTS/f"
    error = await here.fails(shell(script, outputs=file("f", JSON)))
    assert "'out' is too long to be judged as JSON: 2,002 bytes" in error["message"]
    assert (await here.outputs(shell(script, outputs=file())))["out"]["size"] == 2002


async def test_an_output_of_a_gigabyte_streams_through_digests_and_store(
    here: Place, monkeypatch: pytest.MonkeyPatch
) -> None:
    """70.6 One GiB: the supervisor's memory and the worker's stay flat, and what is handed on has the same digest."""
    size = 2**30
    monkeypatch.setenv("FENCEPOST_SUPERVISOR_STOP_AT", "digested")
    tried = shell(f"truncate -s {size} $FENCEPOST_OUTPUTS/f", outputs=file("f", "application/octet-stream"))
    supervised = await here.go(tried)
    await until(lambda: process.is_stopped(supervised.facts.pid), 60)
    assert peak(supervised.facts.pid) < FLAT_KIB
    os.kill(supervised.facts.pid, signal.SIGCONT)
    found = await ended(supervised)
    Path("/proc/self/clear_refs").write_text("5")  # from here on the peak is counted anew
    before = peak(os.getpid())
    outcome = await here.settle(tried, supervised, found)
    monkeypatch.delenv("FENCEPOST_SUPERVISOR_STOP_AT")
    kept = json.loads(outcome.text)["outputs"]["out"]  # type: ignore[union-attr]  # a failure has none, and the test fails
    assert (kept["size"], kept["digest"]) == (size, found.outputs["out"].digest)
    assert peak(os.getpid()) - before < FLAT_KIB
    one = {"binding": "b", "mode": "reference", "media_type": "application/octet-stream", **kept}
    given = {"big": one | {"source": {"run": "run-1", "step": "step", "output": "out"}}}
    reader = packet(
        {
            "command": ["stat", "-c", "%s", "{inputs.big.path}"],
            "outputs": {"n": {"from": "stdout", "media_type": TEXT}},
        },
        given,
    )
    assert (await here.outputs(reader))["n"]["text"] == f"{size}\n"
    assert peak(os.getpid()) - before < FLAT_KIB


async def test_a_full_disk_loses_a_log_and_no_outcome(here: Place) -> None:
    """70.10 What could not be written is counted as not kept; an output from it is invalid, not torn."""
    folder = here.attempts
    folder.mkdir(parents=True)
    sink = Sink(str(folder / "log"), 10_000, 100)
    full = os.open("/dev/full", os.O_WRONLY)
    sink.take(b"a" * 50)
    os.dup2(full, sink.fd)
    os.close(full)
    sink.take(b"b" * 500)
    assert sink.close() == {"size": 550, "dropped": 500}
