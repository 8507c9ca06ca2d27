"""What can be said of a try from its folder and its processes, by whoever asks on this host (laws 70.10, 85.3).

Nothing is guessed: no result and no proof is no answer yet.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import msgspec

from fencepost.runner import tree
from fencepost.worker import process
from fencepost.worker.commands.reports import Dead, Ended, NotStarted


class _Command(msgspec.Struct):
    pid: int = 0
    process_start: str | None = None


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
    command = _command(folder)
    if command.pid > 0 and not process.is_gone(command.pid, command.process_start):
        told = True
        if command.process_start is not None:
            tree.kill(command.pid, command.process_start)
    packet = _marker(folder)
    if packet is not None:
        for left, start in tree.bearing("FENCEPOST_PACKET", packet).items():
            told = True
            tree.kill(left, start)
    return told


def _command(folder: Path) -> _Command:
    try:
        return msgspec.json.decode((folder / "command.json").read_bytes(), type=_Command)
    except (OSError, msgspec.MsgspecError):
        return _Command()


def _marker(folder: Path) -> str | None:
    """What every process of the attempt bears in its environment, unless it took it off."""
    try:
        marker: Any = json.loads((folder / "order.json").read_bytes())["env"]["FENCEPOST_PACKET"]
    except (OSError, ValueError, LookupError, TypeError):
        return None
    return marker if isinstance(marker, str) else None
