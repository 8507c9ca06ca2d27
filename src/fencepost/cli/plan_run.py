"""`fencepost plan run`: admit a plan, or go on with it, and follow it. Embedded, this process works on its steps itself."""

from __future__ import annotations

import secrets
import shlex
from dataclasses import dataclass
from functools import partial
from importlib import import_module
from typing import TYPE_CHECKING, Any, Final

import click

from fencepost.cli import inputs, say
from fencepost.cli.place import Place, database_options, migrate_home, opened, org_option, run_async
from fencepost.cli.say import DONE, NO_DATABASE, USAGE, Stop
from fencepost.cli.working import accompany, working

if TYPE_CHECKING:
    from fencepost.cli.plan_files import Given
    from fencepost.client import Client, Handle
    from fencepost.words import Source


RESULTS_SHOWN: Final = 50


@dataclass(frozen=True, slots=True)
class Order:
    """What was asked for."""

    file: str
    given: Given
    run_id: str
    org: str
    detach: bool
    here: bool
    timeout: float | None
    events: bool
    as_json: bool


@click.command()
@click.argument("file", metavar="FILE|MODULE:PLAN")
@click.option("--id", "run_id", metavar="ID", help="The run's id; else the plan's name and 12 digits of its digest.")
@click.option("--new", is_flag=True, help="Another run of the same plan, with an id of its own.")
@click.option("--detach", is_flag=True, help="Admit it and leave: nothing is started, nothing followed.")
@click.option("--here", is_flag=True, help="With a database of somebody else's: run its steps in this process.")
@click.option(
    "--timeout", type=inputs.Duration(), help="Follow it for so long (90s, 1h30m), then exit 4; the run goes on."
)
@click.option("--events", is_flag=True, help="With --json: also every event, a line each, before the last object.")
@org_option
@database_options
def run(
    file: str, run_id: str | None, new: bool, detach: bool, here: bool, timeout: float | None, events: bool, org: str, dsn: str | None,
    as_json: bool,
) -> int:  # fmt: skip
    """Run a plan, or go on with it, and follow it until it ends or is unknown. The same plan is the same run: type it again.

    FILE is TOML or JSON. What was committed stays; what still runs is met again; what was lost follows its on_lost. Without a
    database the embedded one is used, made if need be, and this process runs the steps.
    """
    from fencepost.cli.plan_files import read_given

    if detach and (here or timeout is not None or events):
        raise Stop(
            USAGE, "USAGE", "--detach starts and follows nothing: it goes with none of --here, --timeout, --events"
        )
    if new and run_id is not None:
        raise Stop(USAGE, "USAGE", "--new makes an id and --id gives one: say one of them")
    if events and not as_json:
        raise Stop(USAGE, "USAGE", "--events are objects: say --json too")
    given = read_given(file)
    chosen = run_id if run_id is not None else given.definition.run_id + (f"-{secrets.token_hex(4)}" if new else "")
    order = Order(file, given, chosen, org, detach, here, timeout, events, as_json)
    with opened(dsn, homes="create") as place:
        return run_async(_run(place, order))


async def _run(place: Place, order: Order) -> int:
    from fencepost.client import Client

    await migrate_home(place)
    async with place.database() as db:
        client = Client(db, order.given.app.release or place.release, listen_dsn=place.settings.listen_url)
        try:
            works_here = (place.embedded is not None or order.here) and not order.detach
            if works_here:
                import_module("fencepost.worker.loop")  # what cannot work says so before it has admitted anything
            elif not order.detach:
                await _need_worker(client, order)
            source: Source = "program" if order.detach else "api"
            handle = await client.start_plan(order.given.definition, id=order.run_id, org=order.org, source=source)
            say.words(f"run: {say.clean(handle.id)}")
            if order.detach:
                return await _detached(handle, as_json=order.as_json)
            return await _follow(place, client, order, handle, works_here=works_here)
        finally:
            await client.close()


async def _need_worker(client: Client, order: Order) -> None:
    """Live workers of the lane for every step; a run that has ended needs none. Raises Stop (5): nothing is admitted."""
    from fencepost import ledger, terminal
    from fencepost.cli.plan_files import workflows_of
    from fencepost.words import TERMINAL

    outcome = await terminal.watch_outcome(client.db, order.org, order.run_id, None)
    if outcome is not None and outcome.status in TERMINAL:
        return
    live = await ledger.read_workers(client.db, await client.lane())
    missing = workflows_of(order.given.definition).difference(*(worker.workflows for worker in live))
    if live and not missing:
        return
    found = f"{len(live)} live, none has workflow {', '.join(sorted(missing)[:5])}" if live else "none is alive"
    raise Stop(
        NO_DATABASE, "NO_WORKER",
        f"no worker of release {client.release} would run it ({found}); nothing was admitted: start one with "
        f"`fencepost worker{' MODULE:APP' if missing else ''}`, or run its steps in this process with --here, or leave it in the queue with "
        "--detach",
    )  # fmt: skip


async def _detached(handle: Handle[Any], *, as_json: bool) -> int:
    from fencepost.cli.plan_documents import plan_object
    from fencepost.cli.plan_following import document

    if as_json:
        say.data(plan_object(await document(handle)))
    else:
        say.plain(say.clean(handle.id))
    return DONE


async def _follow(place: Place, client: Client, order: Order, handle: Handle[Any], *, works_here: bool) -> int:
    from fencepost.cli.follow import exit_code
    from fencepost.cli.plan_board import Board
    from fencepost.cli.plan_following import document, follow
    from fencepost.cli.plan_view import view

    board = Board(order.given.definition)
    work = partial(working, place, client, order.given.app, handle) if works_here else None
    over, interrupted = await accompany(
        work, view(board, handle, objects=order.events), partial(follow, handle), order.timeout
    )
    doc = await document(handle)
    if not over:
        org = [] if order.org == "default" else ["--org", order.org]
        again = shlex.join(["fencepost", "plan", "run", order.file, "--id", handle.id, *org])
        say.words(
            f"{'left' if interrupted else 'no longer followed'}: the run goes on when a worker has it; follow it with {again}"
        )
    _result(doc, as_json=order.as_json)
    return say.INTERRUPTED if interrupted and not over else exit_code(doc)


def _result(doc: dict[str, Any], *, as_json: bool) -> None:
    """The object on stdout, or how it stands in words: on stderr what went wrong, on stdout what there is to read."""
    from fencepost.cli.plan_documents import plan_object
    from fencepost.cli.plan_showing import STATES, remedy, results, why
    from fencepost.explain import part

    for step in doc["steps"]:
        if step["state"] in {"failed", "unknown"}:
            say.words(say.clean(f"{step['id']}: {step['state']}: {why(step)}"))
        if step["state"] == "unknown":
            say.words(say.clean(f"  {remedy(step, doc['run_id'], doc['org'])}"))
        if step["child_state"] == "parked" and step["trouble"] is not None:
            say.words(
                say.clean(f"{step['id']}: its workflow waits for other code: fencepost runs explain {step['child']}")
            )
    if as_json:
        say.data(plan_object(doc))
        return
    counts = part(doc, "counts")
    say.words(
        say.clean(f"{doc['status']}: " + ", ".join(f"{counts[state]} {state}" for state in STATES if counts.get(state)))
    )
    lines = list(results(doc))
    for line in lines[:RESULTS_SHOWN]:
        say.plain(line)
    if len(lines) > RESULTS_SHOWN:
        say.words(f"and {len(lines) - RESULTS_SHOWN:,} more results: fencepost plan show {shlex.quote(doc['run_id'])}")
