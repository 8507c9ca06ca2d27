"""What can be said of a try from its folder and its processes, by whoever asks on this host (laws 70.10, 85.3).

Nothing is guessed: no result and no proof is no answer yet.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import msgspec

from fencepost.runner import tree
from fencepost.worker import process
from fencepost.worker.commands.reports import Dead, Ended, NotStarted

_ended = msgspec.json.Decoder(Ended).decode


def verdict(folder: Path, *, gone: bool) -> Ended | Dead | NotStarted | None:
    """What became of a try; None: it lives, or nobody can tell. `gone`: that its supervisor has ended was proven before this call.

    What a supervisor that is gone left running is ended first: its command, and what carries the name of its packet.
    """
    # Read after the proof: a result comes before its supervisor's end.
    if (result := read_result(folder)) is not None:
        return result
    if not gone:
        return None
    if not folder.is_dir():
        return Dead("its folder is gone, and so is its supervisor")
    if not (folder / "command.json").exists():
        return NotStarted("its supervisor ended before the command was let go")
    if _living(folder):
        return None
    return Dead("its supervisor was ended before it could write a result, and the command with it")


def read_result(folder: Path) -> Ended | None:
    """The supervisor's word; None: there is none, or what stands there is not one."""
    try:
        return _ended((folder / "result.json").read_bytes())
    except (OSError, msgspec.MsgspecError):
        return None


def _living(folder: Path) -> bool:
    """Whether something of the attempt still lives; it is told to go."""
    told = False
    command = _read(folder / "command.json")
    pid, start = command.get("pid"), command.get("process_start")
    if isinstance(pid, int) and pid > 0 and not process.is_gone(pid, start):
        told = True
        if isinstance(start, str):
            tree.kill(pid, start)
    environment: Any = _read(folder / "order.json").get("env")
    packet: Any = environment.get("FENCEPOST_PACKET") if type(environment) is dict else None
    if isinstance(packet, str):
        for left, start in tree.bearing("FENCEPOST_PACKET", packet).items():
            told = True
            tree.kill(left, start)
    return told


def _read(path: Path) -> dict[str, Any]:
    try:
        return msgspec.json.decode(path.read_bytes(), type=dict[str, Any])
    except (OSError, msgspec.MsgspecError):
        return {}
