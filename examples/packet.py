"""What a step's program is given, read as a program without any library reads it; and the outside world of the two plans.

`FENCEPOST_PACKET` names the packet: who runs, which try this is, and the inputs by name. For the play (examples/plans.py) alone:
`PLAN_BOOK` names a book that every program writes a line into, without a look at who wrote before, and `PLAN_GATE` a port of this machine where the
program of the named step stands in the middle of its work until it is let through.
"""

from __future__ import annotations

import json
import os
import socket
from pathlib import Path
from typing import Any

Packet = dict[str, Any]


def read() -> Packet:
    """The packet of this attempt."""
    found: Packet = json.loads(Path(os.environ["FENCEPOST_PACKET"]).read_text(encoding="utf-8"))
    return found


def folder() -> Path:
    """The folder of this attempt."""
    return Path(os.environ["FENCEPOST_PACKET"]).parent


def text(packet: Packet, name: str) -> str:
    """An input of mode content or quote, as text."""
    return Path(packet["inputs"][name]["path"]).read_text(encoding="utf-8")


def value(packet: Packet, name: str) -> Any:
    """An input of mode content, as the JSON that it is."""
    return json.loads(text(packet, name))


def source(packet: Packet, name: str) -> str:
    """Where an input comes from, as a foot-note says it."""
    given = packet["inputs"][name]
    return f"{given['source']['step']}.{given['source']['output']} ({given['size']} bytes, {given['digest'][:19]}…)"


def write(name: str, content: str) -> None:
    """An output from a file."""
    (Path(os.environ["FENCEPOST_OUTPUTS"]) / name).write_text(content, encoding="utf-8")


def tell(packet: Packet, what: str) -> None:
    """A line in the book: which step of which run, in which attempt, did `what`."""
    if "PLAN_BOOK" in os.environ:
        line = json.dumps({key: packet[key] for key in ("run", "step", "attempt")} | {"what": what, "pid": os.getpid()})
        book = os.open(os.environ["PLAN_BOOK"], os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o600)
        os.write(book, line.encode() + b"\n")
        os.close(book)


def stand(packet: Packet) -> None:
    """In the middle of the work: tell who waits for this very step, and go on when let through."""
    step, _, gate = os.environ.get("PLAN_GATE", "").partition(":")
    if gate and step == packet["step"]:
        with socket.create_connection(("127.0.0.1", int(gate))) as way:
            way.sendall(f"{os.getpid()}\n".encode())
            way.recv(1)
