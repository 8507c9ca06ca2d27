"""`fencepost plan graph`: a plan as a picture of its steps and what they wait for."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path
from typing import TYPE_CHECKING

import click

from fencepost.cli import say
from fencepost.cli.say import DONE, USAGE, Stop

if TYPE_CHECKING:
    from fencepost.pictures.plans import PlanGraph


@click.command()
@click.argument("file", metavar="FILE|MODULE:PLAN")
@click.option(
    "--format",
    "as_what",
    type=click.Choice(["text", "mermaid", "svg"]),
    default="text",
    show_default=True,
    help="On stdout, or in the file that --out names.",
)
@click.option("--out", metavar="PATH", help="Write the picture there instead.")
@click.option("--json", "as_json", is_flag=True, help="Nodes and edges as one object, whatever the format.")
def graph(file: str, as_what: str, out: str | None, as_json: bool) -> int:
    """A picture of a plan in TOML or JSON (- for stdin), without a database."""
    from fencepost.cli.plan_files import read_given
    from fencepost.pictures import plans

    found = plans.graph(read_given(file).definition)
    if as_json:
        say.data(found.as_json())
        if out is None:
            return DONE
    if out is None or out == "-":
        for line in _drawn(found, as_what, file):
            say.plain(line)
        return DONE
    try:
        Path(out).write_text("".join(f"{line}\n" for line in _drawn(found, as_what, file)), encoding="utf-8")
    except (OSError, ValueError) as error:
        raise Stop(USAGE, "USAGE", f"{out} cannot be written: {getattr(error, 'strerror', None) or error}") from None
    say.words(f"written: {say.clean(out)}")
    return DONE


def _drawn(found: PlanGraph, as_what: str, file: str) -> Iterable[str]:
    from fencepost.pictures import layers, mermaid, plans

    if as_what == "svg":
        try:
            return [layers.svg(found).rstrip("\n")]
        except layers.TooLarge as error:
            raise Stop(USAGE, "USAGE", f"{file}: {error}: take --format text or mermaid") from None
    return plans.lines(found) if as_what == "text" else mermaid.lines(found)
