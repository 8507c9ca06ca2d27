"""`fencepost plan show`: how every step of a plan stands, and what its programs say."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from fencepost.cli import say
from fencepost.cli.place import Place, database_options, opened, org_option, run_async
from fencepost.cli.say import DONE, USAGE, Stop

if TYPE_CHECKING:
    from fencepost.db import Database


@click.command()
@click.argument("target", metavar="ID|FILE")
@click.option("--logs", metavar="STEP", help="What the program of this step wrote on stdout, in its newest attempt.")
@click.option("--stderr", is_flag=True, help="With --logs: on stderr instead.")
@click.option("--follow", "follows", is_flag=True, help="With --logs: also what it goes on to write, until it ends.")
@org_option
@database_options
def show(target: str, logs: str | None, stderr: bool, follows: bool, org: str, dsn: str | None, as_json: bool) -> int:
    """How the steps of a plan's run stand. FILE: the run that `plan run FILE` starts."""
    if logs is None and (stderr or follows):
        raise Stop(USAGE, "USAGE", "--stderr and --follow say which logs: give --logs STEP too")
    run_id = run_of(target)
    with opened(dsn) as place:
        if logs is not None:
            from fencepost.cli.plan_logs import show_logs

            return run_async(
                show_logs(place, run_id, org, logs, "stderr" if stderr else "stdout", follows=follows, as_json=as_json)
            )
        return run_async(_show(place, run_id, org, as_json=as_json))


def run_of(target: str) -> str:
    """The run's id: of the plan in a file, where there is such a file; else what was given. Raises PlanInvalid, Stop (2)."""
    if not Path(target).is_file():
        return target
    from fencepost.cli.plan_files import read_given

    return read_given(target).definition.run_id


async def _show(place: Place, run_id: str, org: str, *, as_json: bool) -> int:
    from fencepost.cli.plan_documents import show_object
    from fencepost.cli.plan_showing import show_lines

    async with place.database() as db:
        doc = await read_plan(db, run_id, org)
    if as_json:
        say.data(show_object(doc))
    else:
        for line in show_lines(doc):
            say.plain(line)
    return DONE


async def read_plan(db: Database, run_id: str, org: str) -> dict[str, Any]:
    """The plan's document. Raises RunNotFound: also for what cannot be an id, and for a run that is no plan."""
    from fencepost import plans
    from fencepost.errors import RunNotFound
    from fencepost.values import check_name

    try:
        check_name(run_id, "a run's id")
        check_name(org, "an organisation")
    except ValueError:
        raise RunNotFound(run_id, org) from None
    doc = await plans.read(db, org, run_id)
    if doc is None:
        raise RunNotFound(run_id, org)
    return doc
