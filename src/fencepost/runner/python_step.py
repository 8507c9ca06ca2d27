"""The process of a python step (`python -P -m fencepost.runner.python_step MODULE:FUNCTION FOLDER`): calls it, writes what it returns.

The function gets the step's `input` and its inputs as keyword arguments, and may be a coroutine function. What it returns is the
step's output from `return`, as JSON. A function that cannot be found leaves a word in `returns/.launch_error` and exits with 127;
one that raises exits with 1, its traceback on standard error.
"""

from __future__ import annotations

import asyncio
import importlib
import inspect
import json
import os
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any, Final

from fencepost import values
from fencepost.values import Unstorable

NOT_FOUND: Final = 127
RESULT_BYTES_MAX: Final = 64 * 1024 * 1024


class NotFound(Exception):
    """There is no such function; the text says what is missing."""


def find(target: str) -> Callable[..., Any]:
    """The function that MODULE:FUNCTION names. Raises NotFound; what the module itself raises passes."""
    module_name, _, path = target.partition(":")
    try:
        found: Any = importlib.import_module(module_name)
    except ModuleNotFoundError as error:
        # A module that it imports in turn is the author's own trouble, and was met in the author's code.
        if error.name is not None and (module_name == error.name or module_name.startswith(f"{error.name}.")):
            raise NotFound(
                f"there is no module {error.name!r} (looked for in {', '.join(sys.path[:2])} and Python's path)"
            ) from None
        raise
    for name in path.split("."):
        if not hasattr(found, name):
            raise NotFound(f"module {module_name!r} has no {path!r}")
        found = getattr(found, name)
    if not callable(found):
        raise NotFound(f"{target} is not a function: it is of type {type(found).__name__}")
    function: Callable[..., Any] = found
    return function


def arguments(packet: dict[str, Any]) -> dict[str, Any]:
    """The keyword arguments: `input`, and each hand-off by its input's name.

    content: its value (JSON decoded, text, or bytes) · quote: its text · reference: {path, digest, size, media_type} · none: None
    """
    return {**packet.get("input", {}), **{name: argument(one) for name, one in packet["inputs"].items()}}


def argument(one: dict[str, Any]) -> Any:
    """What a function gets for one input."""
    if one["mode"] == "none":
        return None
    if one["mode"] == "reference":
        return {name: one.get(name) for name in ("path", "place", "digest", "size", "media_type")}
    if one.get("value") is not None:
        return one["value"]
    content = Path(one["path"]).read_bytes()
    if one["mode"] == "content" and "json" in (one["media_type"] or ""):
        return json.loads(content)
    try:
        return content.decode()
    except UnicodeDecodeError:
        return content


def call(function: Callable[..., Any], given: dict[str, Any]) -> Any:
    """What it returns; a coroutine is run to its end."""
    found = function(**given)
    if inspect.iscoroutine(found):
        return asyncio.run(found)
    return found


def keep(value: Any, packet: dict[str, Any]) -> None:
    """Write what was returned as the output from `return`; a value that JSON has not is said instead."""
    for output in packet["outputs"].values():
        if output["from"] == "return":
            path = Path(output["path"])
            try:
                path.write_text(values.encode(value, limit=RESULT_BYTES_MAX), encoding="utf-8")
            except Unstorable as error:
                path.with_name(f"{path.name}.problem").write_text(str(error), encoding="utf-8")


def main(target: str, folder: str) -> None:
    """Find, call, keep."""
    packet_file = Path(os.environ["FENCEPOST_PACKET"])
    packet: dict[str, Any] = json.loads(packet_file.read_bytes())
    # After our own imports: an author's file of the same name as a library's module poses as it for nobody but the author.
    sys.path[:0] = list(dict.fromkeys([str(Path.cwd()), folder]))
    try:
        function = find(target)
    except NotFound as error:
        packet_file.with_name("returns").joinpath(".launch_error").write_text(str(error), encoding="utf-8")
        sys.exit(NOT_FOUND)
    keep(call(function, arguments(packet)), packet)


if __name__ == "__main__":
    main(sys.argv[1], sys.argv[2])
