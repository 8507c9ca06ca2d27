"""`fencepost plan resolve`: an operator's word on an unknown step, with the outputs that it made after all."""

from __future__ import annotations

import hashlib
import sys
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from fencepost.cli import say
from fencepost.cli.act import answer_object, checked, tell
from fencepost.cli.place import Place, database_options, opened, org_option, run_async
from fencepost.cli.plan_show import read_plan
from fencepost.cli.say import USAGE, Stop

if TYPE_CHECKING:
    from fencepost.db import Database
    from fencepost.planning.model import Output
    from fencepost.worker.commands.reports import Found


@click.command()
@click.argument("run_id", metavar="ID")
@click.argument("step", metavar="STEP")
@click.argument("verdict", type=click.Choice(["completed", "failed", "again"]))
@click.option(
    "--output", "given", multiple=True, metavar="NAME=TEXT|@FILE|-", help="With completed: an output, or from a file."
)
@click.option("--error", metavar="TEXT", help="With failed: why.")
@org_option
@database_options
def resolve(
    run_id: str, step: str, verdict: str, given: tuple[str, ...], error: str | None, org: str, dsn: str | None, as_json: bool
) -> int:  # fmt: skip
    """Say what became of a step that is unknown: completed, with its outputs; failed, with why; or to be run again.

    Done once, with an audit line; the plan then goes on. Outputs are judged as the step's own would be.
    """
    if (verdict == "failed") != (error is not None):
        raise Stop(USAGE, "USAGE", "failed needs why: --error TEXT" if error is None else f"{verdict} takes no --error")
    if given and verdict != "completed":
        raise Stop(USAGE, "USAGE", f"{verdict} takes no --output")
    checked(run_id, org, step, error or "")
    contents = dict(_content(each) for each in given)

    async def go(place: Place) -> int:
        from fencepost.cli.resolving import resolve_run

        async with place.database() as db:
            child, folder = await _unknown(db, run_id, org, step)
            text = error
            if verdict == "completed":
                text = _document(place, folder, contents, await _declared(db, run_id, org, step))
            answer, why = await resolve_run(db, org, child, verdict=verdict, step=None, row=None, text=text)
        found = answer_object(run_id, org, answer, None, step=step) | ({"why": why} if why else {})
        said = "resolved" if answer == "done" else f"refused: {why}"
        return tell(found, said, done=answer == "done", as_json=as_json)

    with opened(dsn) as place:
        return run_async(go(place))


def _content(given: str) -> tuple[str, bytes]:
    """Name and bytes of an output. Raises Stop (2)."""
    name, mark, text = given.partition("=")
    if not (name and mark):
        raise Stop(USAGE, "USAGE", f"{given!r} is not of the form NAME=TEXT, NAME=@FILE or NAME=-")
    try:
        if text == "-":
            return name, sys.stdin.buffer.read()
        return name, Path(text[1:]).read_bytes() if text.startswith("@") else text.encode()
    except (OSError, ValueError) as error:
        problem = getattr(error, "strerror", None) or error
        raise Stop(USAGE, "UNUSABLE_INPUT", f"output {name}: {text[1:]} cannot be read: {problem}") from None


async def _unknown(db: Database, run_id: str, org: str, step: str) -> tuple[str, str]:
    """The run of the step's newest try, and its attempt's folder. Raises Stop (2): there is none, or it is a workflow's."""
    doc = await read_plan(db, run_id, org)
    shown: dict[str, Any] | None = next((each for each in doc["steps"] if each["id"] == step), None)
    if shown is None or not shown.get("child"):
        said = "has not begun" if shown else "is no step of it"
        raise Stop(USAGE, "NOT_FOUND", f"{step!r} {said}: plan {say.clean(run_id)}")
    if shown["kind"] == "workflow":
        raise Stop(
            USAGE,
            "USAGE",
            f"step {step} is a workflow: see what is unknown in `fencepost runs explain {shown['child']}`",
        )
    return str(shown["child"]), str(shown.get("folder") or shown["child"].replace("/", "-"))


async def _declared(db: Database, run_id: str, org: str, step: str) -> dict[str, Output]:
    """The outputs of the step, as the plan declared them."""
    from fencepost import ledger
    from fencepost.planning import definition_of

    run = await ledger.read_run(db, org, run_id) or {}
    return next(each.outputs for each in definition_of(run["input"]).steps if each.id == step)


def _document(place: Place, folder: str, contents: dict[str, bytes], declared: dict[str, Output]) -> str:
    """The result as a worker would have told it. Raises Stop (2) for what the step has not, or what is not as it was declared."""
    from fencepost.store import StoreFailed, store_of
    from fencepost.worker.commands.outputs import collect
    from fencepost.worker.commands.reports import Ended, Found, Log

    if strangers := sorted(contents.keys() - declared.keys()):
        raise Stop(
            USAGE, "USAGE", f"the step has no output {strangers[0]!r}: it has {', '.join(sorted(declared)) or 'none'}"
        )
    with tempfile.TemporaryDirectory(prefix="fencepost-") as files:
        found = {name: _found(Path(files) / name, content) for name, content in contents.items()}
        found |= {name: Found(problem="missing") for name in declared.keys() - contents.keys()}
        log = Log(size=0, dropped=0)
        ended = Ended(outputs=found, stdout=log, stderr=log, ended_at="", seconds=0.0)
        try:
            document = collect(store_of(place.settings), Path(files) / Path(folder).name, declared, ended)
        except StoreFailed as error:
            raise Stop(USAGE, "UNUSABLE_INPUT", str(error)) from None
    if isinstance(document, str):
        return document
    raise Stop(USAGE, "UNUSABLE_INPUT", "; ".join(document))


def _found(path: Path, content: bytes) -> Found:
    from fencepost.worker.commands.reports import Found

    path.write_bytes(content)
    return Found(size=len(content), digest=f"sha256:{hashlib.sha256(content).hexdigest()}", path=str(path))
