"""The packet of a try, as `plans.begin` answers it: who it is, its step's definition, and what it was handed (laws 70.8, 70.9)."""

from __future__ import annotations

from pathlib import Path

import msgspec

from fencepost.planning.model import CommandStep, Mode, PythonStep

TAKEN: str = "taken.json"  # in the attempt's folder: the packet, word for word as it was taken


class LaunchRefused(Exception):
    """The try cannot be launched, and nothing of it ran: the outcome is `launch_error`. The text says why in plain words."""


class Source(msgspec.Struct, frozen=True):
    """Where an input comes from."""

    run: str
    step: str
    output: str


class Input(msgspec.Struct, frozen=True, kw_only=True):
    """A resolved hand-off. Its bytes are `text`, or stand in the content store at `place`; `reason`: why there are none."""

    binding: str
    mode: Mode
    required: bool = True
    description: str = ""
    source: Source | None = None
    media_type: str | None = None
    size: int | None = None
    digest: str | None = None
    text: str | None = None
    place: str | None = None
    reason: str | None = None


class Packet(msgspec.Struct, frozen=True, kw_only=True):
    """What one try is about. `try_`: which execution of the step; `attempt`: the fence's number, of the child run."""

    run: str
    org: str
    plan: str
    step: str
    try_: int = msgspec.field(name="try")
    attempt: int
    definition: CommandStep | PythonStep
    inputs: dict[str, Input] = {}


def read_packet(text: str | bytes) -> Packet:
    """The packet of this text. Raises msgspec.ValidationError: it is not one (only a bug makes that)."""
    return _decode(text)


def packet_in(folder: Path) -> Packet | None:
    """The packet that was taken in an attempt's folder, for whoever meets it later; None: there is none."""
    try:
        return _decode((folder / TAKEN).read_bytes())
    except (OSError, msgspec.MsgspecError):
        return None


_decode = msgspec.json.Decoder(Packet).decode
