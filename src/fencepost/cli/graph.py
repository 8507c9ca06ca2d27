"""`fencepost graph`: what a workflow can do, as a picture of its source."""

from __future__ import annotations

import click

from fencepost.cli import say
from fencepost.cli.say import DONE, USAGE, Stop


@click.command()
@click.argument("target", metavar="MODULE:WORKFLOW")
@click.option(
    "--format",
    "as_what",
    type=click.Choice(["text", "mermaid", "svg"]),
    default="text",
    show_default=True,
    help="On stdout.",
)
@click.option("--all", "all_", is_flag=True, help="Also the code between boundaries.")
@click.option("--json", "as_json", is_flag=True, help="Nodes and edges as one object, whatever the format.")
def graph(target: str, as_what: str, all_: bool, as_json: bool) -> int:
    """A picture of a workflow's steps, waits and ways, from its source.

    The module is imported; the workflow is not run, and no database is asked.
    """
    from fencepost.cli.targets import find_workflow
    from fencepost.pictures import flow, mermaid, svg, text
    from fencepost.pictures import graph as graphs

    _, workflow = find_workflow(target)
    try:
        found = flow.read(workflow, all_=all_)
    except flow.NoSource as error:
        raise Stop(USAGE, "USAGE", f"{target} cannot be drawn: its source cannot be read ({error})") from None
    if as_json:
        say.data(graphs.graph(found).as_json())
    elif as_what == "svg":
        say.plain(svg.svg(found).rstrip("\n"))
    else:
        for line in text.lines(found) if as_what == "text" else mermaid.lines(graphs.graph(found)):
            say.plain(line)
    return DONE
