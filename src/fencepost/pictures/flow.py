"""The picture's data, from a declared workflow: its source is read, its module looked at, nothing of it is run."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from fencepost.authoring import Workflow
from fencepost.pictures.model import Flow, pruned
from fencepost.pictures.names import NoSource, Scope, parameters, parsed
from fencepost.pictures.ordinals import Numbering
from fencepost.pictures.reading import Reading

__all__ = ["NoSource", "read"]


def read(workflow: Workflow[Any, Any], *, all_: bool = False) -> Flow:
    """The flow of a workflow, with `all_` its glue too. Raises NoSource, saying why its source cannot be read."""
    node, outer = parsed(workflow.function)
    scope = Scope(node, outer)
    scope.contexts.add(parameters(node)[0].arg)
    try:
        items = Reading().body(node, scope)
        Numbering(items).number()
    except RecursionError:
        raise NoSource("it is nested too deeply") from None
    code = workflow.function.__code__
    flow = Flow(workflow.name, f"{Path(code.co_filename).name}:{node.lineno}", items)
    return flow if all_ else pruned(flow)
