"""`fencepost plan check`: whether a plan can be run, or every fault of it at once."""

from __future__ import annotations

import click

from fencepost.cli import say
from fencepost.cli.say import DONE


@click.command()
@click.argument("file", metavar="FILE|MODULE:PLAN")
@click.option("--json", "as_json", is_flag=True, help="One object; of a plan with faults, each with its line and path.")
def check(file: str, as_json: bool) -> int:
    """Judge a plan in TOML or JSON (- for stdin), without a database.

    Modules that it names as MODULE:WORKFLOW are imported; nothing is run.
    """
    from fencepost.cli.plan_files import read_given

    found = read_given(file).definition
    if as_json:
        say.data(
            {"name": found.name, "run_id": found.run_id, "digest": found.digest, "max_concurrency": found.max_concurrency,
             "steps": len(found.steps)}
        )  # fmt: skip
    else:
        count = len(found.steps)
        say.plain(
            say.clean(f"{found.name}: {count:,} step{'s' if count > 1 else ''}, no fault; its run is {found.run_id}")
        )
    return DONE
