"""`fencepost worker` and `fencepost dev`: processes that run workflows, and steps of plans, until they are told to stop."""

from __future__ import annotations

import asyncio
import logging
import os
import signal
from typing import TYPE_CHECKING

import click

from fencepost.cli import say
from fencepost.cli.place import Place, migrate_home, opened, run_long
from fencepost.cli.say import USAGE, Stop

if TYPE_CHECKING:
    from fencepost.app import App
    from fencepost.lanes import Lane

concurrency_option = click.option(
    "--concurrency", default=100, show_default=True, type=click.IntRange(1, 10_000), help="Attempts at a time."
)
threads_option = click.option(
    "--threads", default=32, show_default=True, type=click.IntRange(1, 1000), help="Sync steps at a time."
)
dsn_option = click.option("--dsn", metavar="DSN", help="The database; else FENCEPOST_DATABASE_URL.")
json_option = click.option("--json", "as_json", is_flag=True, help="Objects instead of words, on stdout.")


@click.command()
@click.argument("target", metavar="[MODULE:APP]", required=False)
@concurrency_option
@threads_option
@click.option("--lane", metavar="RELEASE", help="The release (or the name of its lane) whose runs it works on.")
@click.option("--embedded", is_flag=True, help="Use the embedded home (FENCEPOST_HOME), which must exist.")
@click.option("--child-of", type=int, hidden=True, help="The process that starts it: it ends when that one does.")
@dsn_option
@json_option
def worker(
    target: str | None, concurrency: int, threads: int, lane: str | None, embedded: bool, child_of: int | None, dsn: str | None,
    as_json: bool,
) -> int:  # fmt: skip
    """Run the workflows of an app, and the commands and Python steps of plans; without an app, these alone.

    SIGTERM or Ctrl-C drains it: what is not begun is given back, the rest ends; a second one hurries.
    """
    if child_of is not None:
        from fencepost.worker.process import end_with

        end_with(child_of)
    if embedded and dsn is not None:
        raise Stop(USAGE, "USAGE", "--embedded and --dsn name two databases: give one of them")
    app = app_of(target)
    with opened(dsn, homes="never", embedded=embedded) as place:
        return run_long(_work(place, app, concurrency, threads, lane, as_json=as_json))


@click.command()
@click.argument("target", metavar="[MODULE:APP]", required=False)
@concurrency_option
@threads_option
@dsn_option
@json_option
def dev(target: str | None, concurrency: int, threads: int, dsn: str | None, as_json: bool) -> int:
    """Everything a developer needs in one process: a database (embedded unless one is set), its schema, and a worker.

    Without an app it runs the commands and Python steps of plans, and no workflow.
    """
    app = app_of(target)
    with opened(dsn, homes="create") as place:

        async def go() -> int:
            await migrate_home(place)
            return await _work(place, app, concurrency, threads, None, as_json=as_json)

        return run_long(go())


def app_of(target: str | None) -> App:
    """The app that MODULE:APP names; without a target, one that declares nothing. Raises Stop (2)."""
    from fencepost.app import App
    from fencepost.cli.targets import find_app

    return App("plans") if target is None else find_app(target)


async def _work(place: Place, app: App, concurrency: int, threads: int, wanted: str | None, *, as_json: bool) -> int:
    from fencepost.settings import check_worker
    from fencepost.worker.loop import run_worker

    logging.basicConfig(level=logging.INFO, format="%(asctime)s %(levelname)s %(message)s")
    if wanted is None and app.release is None:
        check_worker(place.settings)
    lane = await find_lane(place, wanted or app.release or place.release)
    stop, hurry = asyncio.Event(), asyncio.Event()
    loop = asyncio.get_running_loop()
    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, lambda: hurry.set() if stop.is_set() else stop.set())

    def on_ready(lane: Lane) -> None:
        if as_json:
            say.data({"ready": True, "lane": lane.name, "release": lane.release, "pid": os.getpid()})
        else:
            say.plain(f"ready lane={lane.name} pid={os.getpid()}")

    return await run_worker(
        app,
        place.settings,
        stop=stop,
        hurry=hurry,
        concurrency=concurrency,
        threads=threads,
        lane=lane,
        on_ready=on_ready,
    )


async def find_lane(place: Place, wanted: str) -> Lane:
    """The lane of a release, registered if it is new; an existing lane may be named by its own name too. Raises LaneRefused."""
    from fencepost import lanes

    async with place.database() as db:
        named = [lane for lane in await lanes.read(db) if lane.name == wanted and lane.release != wanted]
        return named[0] if named else await lanes.register(db, wanted)
