"""`fencepost runs`: the commands that act. 0 done, 1 refused by the run's state, 2 not found or unusable; one object with --json."""

from __future__ import annotations

from typing import Any, Final

import click

from fencepost.cli import inputs, say
from fencepost.cli.place import Place, database_options, opened, org_option, run_async
from fencepost.cli.say import DONE, FAILED, USAGE, Stop


def tell(found: dict[str, Any], sentence: str, *, done: bool, as_json: bool) -> int:
    """What an acting command ends with: its sentence, its object where that is asked for, and 0 done or 1 refused."""
    say.words(say.clean(sentence))
    if as_json:
        say.data(found)
    return DONE if done else FAILED


def answer_object(run_id: str, org: str, answer: str, status: str | None, **more: Any) -> dict[str, Any]:
    """The object of an acting command; who acted on a run that does not exist is told so (2)."""
    if answer == "unknown_run":
        from fencepost.errors import RunNotFound

        raise Stop(USAGE, "NOT_FOUND", str(RunNotFound(run_id, org)))
    return {"run_id": run_id, "org": org, "answer": answer} | ({"status": status} if status is not None else {}) | more


def checked(run_id: str, org: str, *texts: str) -> None:
    """What is acted on can be an id, and what is said can be stored. Raises Stop (2), Unstorable."""
    from fencepost.values import check_name, encode

    try:
        check_name(run_id, "a run's id")
        check_name(org, "an organisation")
    except ValueError:
        answer_object(run_id, org, "unknown_run", None)
    for text in texts:
        encode(text)


@click.command()
@click.argument("run_id")
@click.option("--reason", default="", help="Kept with the run.")
@org_option
@database_options
def cancel(run_id: str, reason: str, org: str, dsn: str | None, as_json: bool) -> int:
    """Cancel a run and every descendant. Refused (1) when it has ended."""
    checked(run_id, org, reason)

    async def go(place: Place) -> int:
        from fencepost import limits, terminal

        async with place.database() as db:
            answer, status = await terminal.cancel(
                db, org, run_id, reason=reason, grace_ms=int(limits.GRACE_ON_CANCEL_SECONDS * 1000)
            )
        found = answer_object(run_id, org, answer, status)
        sentence = f"cancel accepted: the run is {status}" if answer == "accepted" else f"too late: the run is {status}"
        return tell(found, sentence, done=answer == "accepted", as_json=as_json)

    with opened(dsn) as place:
        return run_async(go(place))


@click.command()
@click.argument("run_id")
@click.option("--reason", default="", help="Kept as the error's message.")
@org_option
@database_options
def end(run_id: str, reason: str, org: str, dsn: str | None, as_json: bool) -> int:
    """End a run as failed (OPERATOR_ENDED), whatever state it is in; code that still runs is fenced out."""
    checked(run_id, org, reason)

    async def go(place: Place) -> int:
        from fencepost import terminal

        async with place.database() as db:
            answer, status = await terminal.end(db, org, run_id, by=inputs.person(), reason=reason)
        found = answer_object(run_id, org, answer, status)
        return tell(
            found,
            f"ended: the run is {status}" if answer == "done" else f"too late: the run is {status}",
            done=answer == "done",
            as_json=as_json,
        )

    with opened(dsn) as place:
        return run_async(go(place))


@click.command()
@click.argument("run_id")
@org_option
@database_options
def wake(run_id: str, org: str, dsn: str | None, as_json: bool) -> int:
    """Try again now what waits out a delay or is parked on its code."""
    checked(run_id, org)

    async def go(place: Place) -> int:
        from fencepost import recovery

        async with place.database() as db:
            answer, status = await recovery.wake(db, org, run_id)
        found = answer_object(run_id, org, answer, status)
        sentence = (
            "woken: the run is queued"
            if answer == "done"
            else f"refused: the run is {status}; only a delay, or a run parked on its code, can be woken"
        )
        return tell(found, sentence, done=answer == "done", as_json=as_json)

    with opened(dsn) as place:
        return run_async(go(place))


@click.command()
@click.argument("run_id")
@click.argument("name")
@click.argument("payload", required=False, metavar="[JSON|@FILE]")
@click.option(
    "--dedupe", metavar="KEY", help="A repeat with the same key is harmless; else one is minted for this call."
)
@org_option
@database_options
def signal(
    run_id: str, name: str, payload: str | None, dedupe: str | None, org: str, dsn: str | None, as_json: bool
) -> int:
    """Send a signal to a run. Without a payload it is null."""
    text = "null" if payload is None else inputs.json_text(payload, "the payload")
    checked(run_id, org, name, dedupe or "")

    async def go(place: Place) -> int:
        import uuid

        from fencepost import suspension
        from fencepost.errors import SignalRefused

        async with place.database() as db:
            answer = await suspension.signal(db, org, run_id, name, dedupe=dedupe or uuid.uuid4().hex, payload=text)
        found = answer_object(run_id, org, answer, None, signal=name)
        if answer == "refused":
            raise Stop(USAGE, "UNUSABLE_INPUT", str(SignalRefused(run_id, name, answer)))
        sent = answer in {"sent", "repeated"}
        return tell(
            found, f"signal {answer}" if sent else str(SignalRefused(run_id, name, answer)), done=sent, as_json=as_json
        )

    with opened(dsn) as place:
        return run_async(go(place))


@click.command()
@click.argument("run_id")
@click.option(
    "--from",
    "from_step",
    metavar="STEP",
    help="Start at this step (NAME#N): what was recorded from it on is set aside.",
)
@click.option(
    "--again", multiple=True, metavar="STEP", help="A step (NAME#N) that may be repeated although it is not repeatable."
)
@click.option("--id", "new_id", metavar="NEW", help="The new run's id.")
@org_option
@database_options
def redrive(
    run_id: str, from_step: str | None, again: tuple[str, ...], new_id: str | None, org: str, dsn: str | None, as_json: bool
) -> int:  # fmt: skip
    """Start a new run from an ended one's committed steps, with their keys."""
    import uuid

    chosen = new_id or f"{run_id[:160]}-redrive-{uuid.uuid4().hex[:8]}"
    checked(run_id, org, chosen, from_step or "", *again)
    named = ["#".join(map(str, inputs.step(name))) for name in again]

    async def go(place: Place) -> int:
        from fencepost import recovery

        async with place.database() as db:
            answer, why = await recovery.redrive(
                db,
                org,
                run_id,
                new_id=chosen,
                from_step=inputs.step(from_step) if from_step else None,
                again=named,
                by=inputs.person(),
            )
        done = answer in {"created", "replayed"}
        found = (
            answer_object(run_id, org, answer, None)
            | ({"why": why} if why else {})
            | ({"run_id": chosen, "origin": run_id} if done else {})
        )
        return tell(found, f"{answer}: run {chosen}" if done else f"refused: {why}", done=done, as_json=as_json)

    with opened(dsn) as place:
        return run_async(go(place))


COMMANDS: Final = (cancel, signal, end, wake, redrive)
