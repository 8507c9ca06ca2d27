"""How a function is named so that another process can import it."""

from __future__ import annotations

import inspect
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

from fencepost.shown import shown


def place_of(function: Callable[..., Any]) -> str:
    """`module:function`. Raises ValueError saying why another process could not import it, and what to do."""
    said = f"a step's function must be one that another process can import; {shown(function, 80)}"
    name, module = getattr(function, "__qualname__", None), getattr(function, "__module__", None)
    if not inspect.isroutine(function) or not isinstance(name, str) or not isinstance(module, str):
        raise ValueError(f'{said} is no function: give one defined with def in a module, or its "module:function"')
    if "<lambda>" in name or "<locals>" in name:
        raise ValueError(f"{said} is made inside a function: define it with def at the top of a module")
    found: Any = sys.modules.get(module)
    for part in name.split("."):
        found = getattr(found, part, None)
    if found is not function:
        raise ValueError(
            f'{said} is not what {module} holds as {name}: give the function itself, undecorated, or its "module:function"'
        )
    return f"{_main(said) if module == '__main__' else module}:{name}"


def _main(said: str) -> str:
    """The name by which the module that was started can be imported, where it has one (`python -m`)."""
    main = sys.modules["__main__"]
    spec = getattr(main, "__spec__", None)
    if spec is not None and not spec.name.endswith("__main__"):
        name: str = spec.name
        return name
    here = Path(getattr(main, "__file__", None) or "script.py").stem
    raise ValueError(
        f'{said} stands in the script that was started: put it into a module of its own, or give "{here}:…" as text'
    )
