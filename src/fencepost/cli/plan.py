"""`fencepost plan`: graphs of steps, from a file to the bytes of a result."""

from __future__ import annotations

from typing import Final

import click

from fencepost.cli.lazy import Lazy

COMMANDS: Final = {
    "check": "fencepost.cli.plan_check:check",
    "graph": "fencepost.cli.plan_graph:graph",
    "run": "fencepost.cli.plan_run:run",
    "show": "fencepost.cli.plan_show:show",
    "output": "fencepost.cli.plan_output:output",
    "resolve": "fencepost.cli.plan_resolve:resolve",
    "lost": "fencepost.cli.plan_lost:lost",
}


@click.group(cls=Lazy, places=COMMANDS)
def plan() -> None:
    """Graphs of commands, Python functions, workflows and agents' programs, from a file of TOML or JSON."""
