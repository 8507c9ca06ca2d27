"""`fencepost lanes`: which release rides which lane."""

from __future__ import annotations

import click

from fencepost.cli import say
from fencepost.cli.place import Place, database_options, opened, run_async
from fencepost.cli.say import DONE


@click.group()
def lanes() -> None:
    """Lanes: the queue and workers of one release."""


@lanes.command("list")
@database_options
def list_(dsn: str | None, as_json: bool) -> int:
    """Every registered lane, oldest first, with its live workers."""

    async def go(place: Place) -> int:
        from fencepost import lanes as doors
        from fencepost import ledger

        async with place.database() as db:
            found = [(lane, len(await ledger.read_workers(db, lane.lane))) for lane in await doors.read(db)]
        if as_json:
            for lane, workers in found:
                say.data({"lane": lane.name, "release": lane.release, "live_workers": workers})
        else:
            say.table(
                ["LANE", "RELEASE", "LIVE WORKERS"],
                [[lane.name, lane.release, str(workers)] for lane, workers in found],
            )
        return DONE

    with opened(dsn) as place:
        return run_async(go(place))


@lanes.command()
@click.argument("release")
@database_options
def register(release: str, dsn: str | None, as_json: bool) -> int:
    """Register the lane of a release before anything of it runs. A release whose lane another one holds is refused."""

    async def go(place: Place) -> int:
        from fencepost import lanes as doors

        async with place.database() as db:
            lane = await doors.register(db, release)
        say.words(f"registered: release {say.clean(lane.release)} rides lane {lane.name}")
        if as_json:
            say.data({"lane": lane.name, "release": lane.release})
        return DONE

    with opened(dsn) as place:
        return run_async(go(place))
