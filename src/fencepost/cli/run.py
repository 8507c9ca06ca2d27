"""`fencepost run`: admit a run and follow it. Embedded, what is missing is started, and this process works on the run itself."""

from __future__ import annotations

import shlex
from dataclasses import dataclass
from functools import partial
from importlib import import_module
from typing import TYPE_CHECKING, Any, cast

import click

from fencepost.cli import inputs, say
from fencepost.cli.place import Place, database_options, migrate_home, opened, org_option, run_async
from fencepost.cli.say import DONE, NO_DATABASE, USAGE, Stop
from fencepost.cli.working import accompany, working
from fencepost.words import SOURCES

if TYPE_CHECKING:
    from fencepost.app import App
    from fencepost.authoring import Workflow
    from fencepost.client import Client, Handle
    from fencepost.words import Source


@dataclass(frozen=True, slots=True)
class Order:
    """What was asked for."""

    target: str
    app: App
    workflow: Workflow[Any, Any]
    text: str
    run_id: str | None
    org: str
    source: Source
    detach: bool
    here: bool
    timeout: float | None
    as_json: bool


@click.command()
@click.argument("target", metavar="MODULE:WORKFLOW")
@click.option("--input", "given", metavar="JSON|@FILE|-", help="The workflow's input.")
@click.option(
    "--id", "run_id", metavar="ID", help="The run's id. With the id of a live run: follow it, and work on it."
)
@click.option("--source", type=click.Choice(SOURCES), help="Else api; with --detach, program.")
@click.option("--detach", is_flag=True, help="Admit it and leave: nothing is started, nothing followed.")
@click.option("--here", is_flag=True, help="With a database of somebody else's: work on the run in this process.")
@click.option(
    "--timeout", type=inputs.Duration(), help="Follow it for so long (90s, 1h30m), then exit 4; the run goes on."
)
@org_option
@database_options
def run(
    target: str, given: str | None, run_id: str | None, source: str | None, detach: bool, here: bool, timeout: float | None,
    org: str, dsn: str | None, as_json: bool,
) -> int:  # fmt: skip
    """Admit a run and follow it until it ends or is unknown. The result is on stdout; Ctrl-C stops following.

    Without a database the embedded one is used, made if need be, and this process works on the run and its descendants; the same
    command with the same --id, typed again after a crash, goes on where it stopped.
    """
    from fencepost.cli.targets import find_workflow

    if detach and (here or timeout is not None):
        raise Stop(USAGE, "USAGE", "--detach starts and follows nothing: it goes with neither --here nor --timeout")
    app, workflow = find_workflow(target)
    chosen = cast("Source", source or ("program" if detach else "api"))
    order = Order(target, app, workflow, _input(workflow, given), run_id, org, chosen, detach, here, timeout, as_json)
    with opened(dsn, homes="create") as place:
        return run_async(_run(place, order))


def _input(workflow: Workflow[Any, Any], given: str | None) -> str:
    """The input's text as given, judged by what the workflow declares. Raises Stop (2), with the path."""
    from fencepost.client.launching import judge_input
    from fencepost.values import Undecodable

    if given is None and not workflow.takes_input:
        return "null"
    text = "null" if given is None else inputs.json_text(given, "the input")
    try:
        judge_input(workflow, text)
    except Undecodable as error:
        if given is None:
            raise Stop(
                USAGE,
                "UNUSABLE_INPUT",
                f"workflow {workflow.name} takes an input ({error.what}): give --input JSON|@file|-",
            ) from None
        path = error.problem.partition(": ")[0]
        raise Stop(
            USAGE, "UNUSABLE_INPUT", f"the input does not fit {error.what}: {error.problem}", path=path
        ) from None
    return text


async def _run(place: Place, order: Order) -> int:
    from fencepost.client import Client

    await migrate_home(place)
    async with place.database() as db:
        client = Client(db, order.app.release or place.release, listen_dsn=place.settings.listen_url)
        try:
            works_here = (place.embedded is not None or order.here) and not order.detach
            if works_here:
                import_module("fencepost.worker.loop")  # what cannot work says so before it has admitted anything
            elif not order.detach:
                await _need_worker(client, order)
            # Who works on it itself keeps nobody waiting: a bound would end the run while this worker is starting.
            handle = await client.start_text(
                order.workflow, order.text, id=order.run_id, org=order.org, source=order.source, bounded=not works_here
            )
            say.words(f"run: {say.clean(handle.id)}")
            if order.detach:
                return await _detached(handle, as_json=order.as_json)
            return await _follow(place, client, order, handle, works_here=works_here)
        finally:
            await client.close()


async def _need_worker(client: Client, order: Order) -> None:
    """A live worker of the lane that has this workflow; a run that has ended needs none. Raises Stop (5): nothing is admitted."""
    from fencepost import ledger, terminal
    from fencepost.words import TERMINAL

    if order.run_id is not None:
        outcome = await terminal.watch_outcome(client.db, order.org, order.run_id, None)
        if outcome is not None and outcome.status in TERMINAL:
            return
    live = await ledger.read_workers(client.db, await client.lane())
    if any(order.workflow.name in worker.workflows for worker in live):
        return
    found = f"{len(live)} live, none has workflow {order.workflow.name}" if live else "none is alive"
    target = shlex.quote(order.target.partition(":")[0]) + ":APP"
    raise Stop(
        NO_DATABASE, "NO_WORKER",
        f"no worker of release {client.release} would run it ({found}); nothing was admitted: start one with "
        f"`fencepost worker {target}`, or work on it in this process with --here, or leave it in the queue with --detach",
    )  # fmt: skip


async def _detached(handle: Handle[Any], *, as_json: bool) -> int:
    from fencepost.cli.documents import run_object
    from fencepost.cli.follow import document

    found = run_object(await document(handle))
    if as_json:
        say.data(found)
    else:
        say.plain(say.clean(handle.id))
    return DONE


async def _follow(place: Place, client: Client, order: Order, handle: Handle[Any], *, works_here: bool) -> int:
    from fencepost.cli import follow
    from fencepost.cli.documents import run_object
    from fencepost.cli.progress import progress

    work = partial(working, place, client, order.app, handle) if works_here else None
    doc, interrupted = await accompany(
        work, progress(handle), lambda show: follow.follow(handle, show, rows=False), order.timeout
    )
    if doc is not None:
        _result(doc, as_json=order.as_json)
        return follow.exit_code(doc)
    doc = await follow.document(handle)
    if interrupted:
        say.words(f"left: the run goes on when a worker has it; follow it again with --id {shlex.quote(handle.id)}")
        if order.as_json:
            say.data(run_object(doc))
        return say.INTERRUPTED
    say.words("no longer followed: the run goes on when a worker has it")
    _result(doc, as_json=order.as_json)
    return follow.exit_code(doc)


def _result(doc: dict[str, Any], *, as_json: bool) -> None:
    """The result on stdout; why there is none, on stderr."""
    from fencepost import explain
    from fencepost.cli.documents import run_object

    found = run_object(doc)
    if doc["status"] != "completed":
        for line in explain.words(doc):
            say.words(say.clean(line))
    if as_json:
        say.data(found)
    elif "output" in found:
        say.pretty(found["output"])
