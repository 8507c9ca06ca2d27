"""`fencepost demo`: the example on real data, with workers that are killed half-way."""

from __future__ import annotations

import click


@click.command()
@click.option("--json", "as_json", is_flag=True, help="The last line as one object, and nothing else, on stdout.")
def demo(as_json: bool) -> int:
    """The main job on bundled real data, with workers killed mid-map and mid-effect. Exit 0 exactly if every effect happened once."""
    from fencepost.demo import run_demo

    return run_demo(json=as_json)
