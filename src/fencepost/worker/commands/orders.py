"""What stands in an attempt's folder before the word "go": inputs, the packet file, and the supervisor's order."""

from __future__ import annotations

import json
import os
import shutil
import sys
from collections.abc import Callable, Iterable, Mapping
from dataclasses import fields
from pathlib import Path
from typing import Any, Final

import msgspec

from fencepost.planning import templates
from fencepost.planning.model import CommandStep, Output, PythonStep
from fencepost.runner.kept import STOP_AT
from fencepost.settings import VARIABLES, Settings
from fencepost.shown import clip, said
from fencepost.store import Store
from fencepost.worker.commands import folders
from fencepost.worker.commands.inputs import Given, give
from fencepost.worker.commands.packets import TAKEN, Packet

CEILING_MS: Final = 6 * 3600 * 1000  # of a step without a time-out
GRACES_MS: Final = (5_000, 5_000)  # after SIGINT, after SIGTERM
LINGER_MS: Final = 250  # what a command left running may end by itself, such as a pipe's reader
ENDING_BYTES: Final = 64 * 1024  # of a stream that passed its bound, its end is kept too
LOG_BYTES_MAX: Final = 16 * 1024 * 1024
STDOUT_BYTES_MAX: Final = 64 * 1024 * 1024  # where an output is taken from it

# What holds a password is not handed to code of authors, nor what is about an attempt around this one.
HIDDEN: Final = frozenset(
    {VARIABLES[item.name] for item in fields(Settings) if not item.repr and item.name in VARIABLES}
)
OURS: Final = frozenset(f"FENCEPOST_{word}" for word in ("PACKET", "OUTPUTS", "RUN", "STEP", "ATTEMPT"))


def environment() -> dict[str, str]:
    """The environment of this worker, without what is not for others."""
    return {name: value for name, value in os.environ.items() if name not in HIDDEN and name not in OURS}


def prepare(folder: Path, packet: Packet, store: Store) -> None:
    """Write everything but "go".

    Raises    StoreAway: it may be done again. StoreFailed, OSError, ValueError, KeyError: it cannot be launched (`refusal` says why).
    """
    shutil.rmtree(folder / "inputs", ignore_errors=True)  # of a time before, when the store went away half-way
    for name in ("inputs", "outputs", "work", "returns"):
        (folder / name).mkdir(mode=0o700, exist_ok=True)
    given = {name: give(folder / "inputs" / name, name, one, store) for name, one in packet.inputs.items()}
    folders.write(folder / TAKEN, msgspec.json.encode(packet))
    outputs = {name: _place(folder, name, output) for name, output in packet.definition.outputs.items()}
    folders.write(folder / "packet.json", msgspec.json.encode(_packet(packet, given, outputs)))
    # The standard library's JSON bears what is no UTF-8 in an environment or a path; it arrives as it was.
    folders.write(folder / "order.json", json.dumps(_order(folder, packet, given, outputs)).encode())


def refusal(error: Exception) -> str:
    """Why it cannot be launched, in plain words."""
    if isinstance(error, OSError):
        return clip(f"the attempt's folder could not be made ready: {error.strerror or said(error)}", 2000)
    if isinstance(error, KeyError):
        return clip(f"a template asks for {error.args[0]!r}, which this try was not given", 2000)
    return clip(said(error), 2000)


def _place(folder: Path, name: str, output: Output) -> Path:
    """Where an output's bytes are to be found."""
    match output.from_:
        case "stdout":
            return folder / "stdout"
        case "return":
            return folder / "returns" / name
        case "file":
            path = folder / "outputs" / (output.path or name)
            path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
            return path


def _packet(packet: Packet, given: Mapping[str, Given], outputs: Mapping[str, Path]) -> dict[str, Any]:
    """What a command reads at FENCEPOST_PACKET. It is a copy: nothing that is written into it changes anything (law 70.9)."""
    definition = packet.definition
    found: dict[str, Any] = {
        "org": packet.org, "run": packet.run, "plan": packet.plan, "step": packet.step, "attempt": packet.try_,
        "claim": packet.attempt,
        "inputs": {name: one.document for name, one in given.items()},
        "outputs": {
            name: {"from": output.from_, "path": str(outputs[name]), "media_type": output.media_type, "required": output.required}
            for name, output in definition.outputs.items()
        },
    }  # fmt: skip
    if isinstance(definition, PythonStep):
        found["input"] = definition.input
    return found


def _order(folder: Path, packet: Packet, given: Mapping[str, Given], outputs: Mapping[str, Path]) -> dict[str, Any]:
    definition = packet.definition
    fill = _filler(packet, given, outputs)
    own = {
        "FENCEPOST_PACKET": str(folder / "packet.json"), "FENCEPOST_OUTPUTS": str(folder / "outputs"), "FENCEPOST_RUN": packet.run,
        "FENCEPOST_STEP": packet.step, "FENCEPOST_ATTEMPT": str(packet.try_),
    }  # fmt: skip
    env = environment() | {name: fill(value) for name, value in definition.env.items()}
    env.pop(STOP_AT, None)
    stdin = None
    if isinstance(definition, CommandStep):
        argv = [fill(word) for word in definition.command]
        if definition.stdin is not None:
            stdin = folder / "stdin"
            folders.write(stdin, fill(definition.stdin).encode())
    else:
        argv, env = _python(definition, env)
    from_stdout = any(output.from_ == "stdout" for output in definition.outputs.values())
    return {
        "argv": argv, "env": env | own, "stdin": str(stdin) if stdin else None,
        "cwd": str(folder / "work") if definition.cwd is None else os.path.abspath(fill(definition.cwd)),  # noqa: PTH100 - `..` as a shell reads it
        "ceiling_ms": definition.timeout_ms or CEILING_MS, "graces_ms": GRACES_MS, "linger_ms": LINGER_MS, "ending": ENDING_BYTES,
        "bounds": {
            "stdout": (STDOUT_BYTES_MAX if from_stdout else LOG_BYTES_MAX) - ENDING_BYTES, "stderr": LOG_BYTES_MAX - ENDING_BYTES,
        },
        "outputs": [
            {"name": name, "path": str(path), "home": str(folder / "outputs") if definition.outputs[name].from_ == "file" else str(folder)}
            for name, path in outputs.items()
        ],
    }  # fmt: skip


def _python(step: PythonStep, env: dict[str, str]) -> tuple[list[str], dict[str, str]]:
    """The caller of a function. Its modules come from where this process has its own; -P keeps a folder's files from posing as some."""
    places = [*filter(None, [env.get("PYTHONPATH")]), *(place for place in sys.path if place)]
    argv = [sys.executable, "-P", "-m", "fencepost.runner.python_step", step.python, os.getcwd()]  # noqa: PTH109 - as text
    return argv, env | {"PYTHONPATH": os.pathsep.join(places)}


def _filler(packet: Packet, given: Mapping[str, Given], outputs: Mapping[str, Path]) -> Callable[[str], str]:
    """What fills in a text's templates; an input's text is read when a template asks for it."""
    plain = {"run": packet.run, "step": packet.step, "attempt": str(packet.try_)}

    def fill(text: str) -> str:
        return templates.render(text, {name: _value(name, plain, given, outputs) for name in _asked(text)})

    return fill


def _asked(text: str) -> Iterable[str]:
    return templates.names(text) if "{" in text else ()


def _value(name: str, plain: Mapping[str, str], given: Mapping[str, Given], outputs: Mapping[str, Path]) -> str | None:
    if name in plain:
        return plain[name]
    group, _, rest = name.partition(".")
    word, _, what = rest.rpartition(".")
    if group == "outputs":
        return str(outputs[word])
    return given[word].text() if what == "value" else given[word].file()
