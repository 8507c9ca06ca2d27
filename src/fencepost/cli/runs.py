"""`fencepost runs`: the commands that read. Those that act are in act.py."""

from __future__ import annotations

import click

from fencepost.cli import act, resolve, rows, say
from fencepost.cli.place import Place, database_options, opened, org_option, run_async
from fencepost.cli.say import DONE, USAGE, Stop
from fencepost.words import STATUSES


@click.group()
def runs() -> None:
    """Look at runs, and act on them."""


def _not_found(run_id: str, org: str) -> Stop:
    from fencepost.errors import RunNotFound

    return Stop(USAGE, "NOT_FOUND", str(RunNotFound(run_id, org)))


@runs.command("list")
@click.option(
    "--status", "statuses", multiple=True, type=click.Choice(STATUSES), help="Only these; may be given several times."
)
@click.option("--name", help="Only runs of this workflow.")
@click.option("--org", help="Only runs of this organisation.")
@click.option("--limit", default=50, show_default=True, type=click.IntRange(1, 10_000), help="The newest so many.")
@database_options
def list_(
    statuses: tuple[str, ...], name: str | None, org: str | None, limit: int, dsn: str | None, as_json: bool
) -> int:
    """Runs, newest first."""
    with opened(dsn) as place:
        return run_async(_list(place, statuses, name, org, limit, as_json=as_json))


async def _list(
    place: Place, statuses: tuple[str, ...], name: str | None, org: str | None, limit: int, *, as_json: bool
) -> int:
    from fencepost import ledger
    from fencepost.cli.documents import listed_object
    from fencepost.spelling import instant

    async with place.database() as db:
        found = await ledger.read_runs(db, org=org, statuses=statuses, name=name, before=None, limit=limit)
    if as_json:
        for run in found:
            say.data(listed_object(run))
    else:
        lines = [
            [
                r.run_id,
                r.org,
                r.name,
                r.status,
                str(r.attempts),
                instant(r.submitted_at),
                instant(r.finished_at) if r.finished_at else "",
            ]
            for r in found
        ]
        say.table(["RUN ID", "ORG", "NAME", "STATUS", "ATTEMPTS", "SUBMITTED", "FINISHED"], lines)
    return DONE


@runs.command()
@click.argument("run_id")
@click.option("--timeline", "as_bars", is_flag=True, help="Its attempts, steps and waits along time.")
@click.option("--svg", "file", metavar="FILE", help="The timeline as SVG, written to FILE; - is stdout.")
@org_option
@database_options
def show(run_id: str, as_bars: bool, file: str | None, org: str, dsn: str | None, as_json: bool) -> int:
    """Everything known of a run."""
    with opened(dsn) as place:
        if as_bars or file is not None:
            return run_async(_timeline(place, run_id, org, file, as_json=as_json))
        return run_async(_show(place, run_id, org, as_json=as_json))


async def _timeline(place: Place, run_id: str, org: str, file: str | None, *, as_json: bool) -> int:
    from fencepost import ledger
    from fencepost.cli import timeline

    if file == "-" and as_json:
        raise Stop(USAGE, "USAGE", "--svg - and --json both want stdout: give --svg a file")
    async with place.database() as db:
        doc = await ledger.read_run(db, *_named(org, run_id))
        if doc is None:
            raise _not_found(run_id, org)
        found = await timeline.read(db, doc)
    return timeline.show(found, file=file, as_json=as_json)


async def _show(place: Place, run_id: str, org: str, *, as_json: bool) -> int:
    from fencepost import ledger
    from fencepost.cli.documents import show_object
    from fencepost.cli.showing import show_lines

    async with place.database() as db:
        doc = await ledger.read_run(db, *_named(org, run_id))
        if doc is None:
            raise _not_found(run_id, org)
        rows = await ledger.read_unknown_rows(db, org, run_id) if doc["rows"]["unknown"] else []
    found = show_object(doc, rows)
    if as_json:
        say.data(found)
    else:
        for line in show_lines(found):
            say.plain(line)
    return DONE


@runs.command()
@click.argument("run_id")
@org_option
@database_options
def explain(run_id: str, org: str, dsn: str | None, as_json: bool) -> int:
    """Why a run stands where it stands: what it waits for, since when, until when, and who can end it."""
    with opened(dsn) as place:
        return run_async(_explain(place, run_id, org, as_json=as_json))


async def _explain(place: Place, run_id: str, org: str, *, as_json: bool) -> int:
    from fencepost import explain as explaining
    from fencepost import ledger

    async with place.database() as db:
        doc = await ledger.read_run(db, *_named(org, run_id))
        if doc is None:
            raise _not_found(run_id, org)
        rows = await ledger.read_unknown_rows(db, org, run_id) if doc["rows"]["unknown"] else []
    lines = explaining.words(doc, rows[:20])
    if as_json:
        waiting = [wait.as_json() for wait in explaining.waits(doc, rows)]
        say.data(
            {
                "run_id": run_id,
                "org": org,
                "status": doc["status"],
                "words": lines,
                "waiting_for": waiting,
                "unknown": explaining.unknowns(doc, rows),
            }
        )
    else:
        for line in lines:
            say.plain(say.clean(line))
    return DONE


@runs.command()
@click.argument("run_id")
@click.option(
    "--from",
    "after",
    default=0,
    show_default=True,
    type=click.IntRange(0, 2**31 - 1),
    metavar="N",
    help="Events after sequence N.",
)
@click.option("--no-rows", is_flag=True, help="Without what became of a map's rows.")
@org_option
@database_options
def watch(run_id: str, after: int, no_rows: bool, org: str, dsn: str | None, as_json: bool) -> int:
    """Every event of a run, in order, until it ends (or is unknown, or parked on its code). Exit code: how it stands."""
    with opened(dsn) as place:
        return run_async(_watch(place, run_id, after, org, rows=not no_rows, as_json=as_json))


async def _watch(place: Place, run_id: str, after: int, org: str, *, rows: bool, as_json: bool) -> int:
    from fencepost.cli import follow
    from fencepost.cli.documents import event_object
    from fencepost.client import Client
    from fencepost.ledger import Event

    def show_event(event: Event) -> None:
        if as_json:
            say.data(event_object(event))
        else:
            say.plain(follow.event_line(event))

    async with place.database() as db:
        client = Client(db, place.release, listen_dsn=place.settings.listen_url)
        try:
            doc = await follow.follow(client.handle(run_id, org=org), show_event, after=after, rows=rows)
        finally:
            await client.close()
    return follow.exit_code(doc)


def _named(org: str, run_id: str) -> tuple[str, str]:
    """The same, unless it cannot be the name of anything: then there is no such run."""
    from fencepost.values import check_name

    try:
        return check_name(org, "an organisation"), check_name(run_id, "a run's id")
    except ValueError:
        raise _not_found(run_id, org) from None


for _command in (*act.COMMANDS, resolve.resolve, rows.rows):
    runs.add_command(_command)
