"""`fencepost plan lost`: an operator's word that the process of a step is gone, where nobody can ask its host any more."""

from __future__ import annotations

import click

from fencepost.cli import inputs
from fencepost.cli.act import answer_object, checked, tell
from fencepost.cli.place import Place, database_options, opened, org_option, run_async


@click.command()
@click.argument("run_id", metavar="ID")
@click.argument("step", metavar="STEP")
@org_option
@database_options
def lost(run_id: str, step: str, org: str, dsn: str | None, as_json: bool) -> int:
    """Say that the program of a step is gone for good: its host is. The step follows its on_lost; an audit line is kept.

    A program whose host lives is asked about by the workers there, and needs no word. Refused (1) while its worker is alive.
    """
    checked(run_id, org, step)

    async def go(place: Place) -> int:
        from fencepost import plans

        async with place.database() as db:
            answer, why = await plans.declare_lost(db, org, run_id, step, by=inputs.person())
        found = answer_object(run_id, org, answer, None, step=step) | ({"why": why} if why else {})
        said = f"lost: {why}" if answer == "done" else f"refused: {why}"
        return tell(found, said, done=answer == "done", as_json=as_json)

    with opened(dsn) as place:
        return run_async(go(place))
