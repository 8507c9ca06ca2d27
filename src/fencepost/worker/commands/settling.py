"""From what a supervisor wrote to what the database is told: a function of the packet and the folder alone.

Two workers that settle the same try, or one that settles it again after a lost reply, tell the same text byte for byte.
"""

from __future__ import annotations

import signal
from pathlib import Path
from typing import Any, Final

from fencepost.planning.model import PythonStep
from fencepost.shown import clip
from fencepost.store import Store
from fencepost.worker.commands import folders, outputs
from fencepost.worker.commands.orders import CEILING_MS
from fencepost.worker.commands.packets import Packet
from fencepost.worker.commands.reports import Completed, Ended, Failed

SAID_BYTES: Final = 8192  # of a log's end, where its last line is looked for
SAID_CHARS: Final = 300
OUTSIDE: Final = ""  # the supervisor's reason for a signal that came without one


async def settle(store: Store, packet: Packet, folder: Path, ended: Ended) -> Completed | Failed:
    """The outcome of a try that has ended: its outputs collected, judged and kept. Asked again, it is the same text.

    Raises    StoreFailed: the store cannot keep them now. Nothing is lost: record again later, never run again (law 70.7).
    """
    return await folders.in_thread(_settle, store, packet, folder, ended)


def failed(outcome: str, message: str, **facts: int | None) -> Failed:
    """The document of a failure; `facts`: exit_code, signal."""
    known = {name: fact for name, fact in facts.items() if fact is not None}
    return Failed({"code": "STEP_FAILED", "outcome": outcome, "message": clip(message, 2000), **known})


def _settle(store: Store, packet: Packet, folder: Path, ended: Ended) -> Completed | Failed:
    if (refused := _not_launched(packet, folder, ended)) is not None:
        return failed("launch_error", refused)
    facts = {"exit_code": ended.exit_code, "signal": ended.signal}
    if ended.stopped == OUTSIDE:
        return failed("failure", "it was ended from outside: somebody sent its supervisor SIGTERM", **facts)
    if ended.stopped is not None:
        return failed("cancelled", f"it was stopped: {ended.stopped}", **facts)
    if ended.timed_out:
        return failed("timeout", _too_long(packet), **facts)
    if ended.signal is not None:
        return failed("failure", f"it was ended by {_signal_name(ended.signal)}{_last_words(folder)}", **facts)
    if ended.exit_code != 0:
        return failed("failure", f"it exited with {ended.exit_code}{_last_words(folder)}", **facts)
    collected = outputs.collect(store, folder, packet.definition.outputs, ended)
    if isinstance(collected, str):
        return Completed(collected)
    return failed("invalid_output", "; ".join(collected), **facts)


def _not_launched(packet: Packet, folder: Path, ended: Ended) -> str | None:
    """Why nothing of the author's ran; a python step's function may be nowhere."""
    if ended.launch_error is not None:
        return ended.launch_error
    if isinstance(packet.definition, PythonStep) and ended.exit_code == 127:
        try:
            return (folder / "returns" / ".launch_error").read_text(encoding="utf-8", errors="replace")
        except OSError:
            return None
    return None


def _too_long(packet: Packet) -> str:
    given = packet.definition.timeout_ms
    return (
        f"it ran longer than its ceiling of {CEILING_MS // 3_600_000} hours, which a step without a time-out has"
        if given is None
        else f"it ran longer than its time-out of {given / 1000:g} seconds"
    )


def _signal_name(number: int) -> str:
    try:
        return f"signal {number} ({signal.Signals(number).name})"
    except ValueError:
        return f"signal {number}"


def _last_words(folder: Path) -> str:
    """The last line of standard error, which usually says what went wrong."""
    try:
        with (folder / "stderr").open("rb") as file:
            file.seek(max(0, file.seek(0, 2) - SAID_BYTES))
            lines = file.read().decode(errors="replace").split("\n")
    except OSError:
        return ""
    words: Any = next((line.strip() for line in reversed(lines) if line.strip()), "")
    return f": {clip(words, SAID_CHARS)}" if words else ""
