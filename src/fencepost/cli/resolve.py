"""`fencepost runs resolve`: an operator's word on what is unknown: a step, an attempt, a row, or many rows at once."""

from __future__ import annotations

import sys
from collections import Counter
from collections.abc import AsyncIterator, Iterable
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import click

from fencepost.cli import inputs, say
from fencepost.cli.act import answer_object, checked, tell
from fencepost.cli.place import Place, database_options, opened, org_option, run_async
from fencepost.cli.say import DONE, FAILED, USAGE, Stop

if TYPE_CHECKING:
    from fencepost.db import Database

BATCH: Final = 200  # rows of one transaction: the run is locked no longer than that takes
COUNTED: Final = {"done": "resolved", "refused": "refused", "not_found": "not_found"}


@click.command()
@click.argument("run_id")
@click.argument("verdict", type=click.Choice(["completed", "failed", "again", "late", "lookup"]))
@click.option("--step", metavar="NAME#N", help="The unknown step; of rows, the map that they are of.")
@click.option("--row", "given", multiple=True, metavar="KEY", help="An unknown row, by its key; several may be given.")
@click.option("--rows", "listed", metavar="@FILE|-", help="Unknown rows: a key a line.")
@click.option("--all-unknown", "every", is_flag=True, help="Every unknown row of the run (with --step: of that map).")
@click.option("--value", metavar="JSON|@FILE|-", help="With completed: what it returned.")
@click.option("--error", metavar="TEXT", help="With failed: why.")
@org_option
@database_options
def resolve(
    run_id: str, verdict: str, step: str | None, given: tuple[str, ...], listed: str | None, every: bool, value: str | None, error: str | None,
    org: str, dsn: str | None, as_json: bool,
) -> int:  # fmt: skip
    """Say what became of an unknown step, row, or (neither given) attempt. Done once, with an audit line; the run then goes on.

    completed: it happened, with this value. failed: it failed, with this error. again: run it again. late: the evidence that came late
    is its result. lookup: ask its look-up again. Many rows get one word, each its own audit line.
    """
    from fencepost.cli.resolving import resolve_run, verdict_value

    if sum((bool(given), listed is not None, every)) > 1:
        raise Stop(USAGE, "USAGE", "one of --row, --rows and --all-unknown says which rows")
    text = verdict_value(verdict, value, error)
    checked(run_id, org, step or "", *given)
    keys = _keys(listed) if listed is not None else given

    async def go(place: Place) -> int:
        async with place.database() as db:
            if listed is not None or len(given) > 1 or (every and verdict != "lookup"):
                found = await _many(db, org, run_id, None if every else keys, verdict=verdict, step=step, text=text)
                return _count(found, as_json=as_json)
            one = given[0] if given else None
            answer, why = await resolve_run(
                db, org, run_id, verdict=verdict, step=None if every else step, row=one, text=text
            )
        found = answer_object(run_id, org, answer, None) | ({"why": why} if why else {})
        return tell(
            found, "resolved" if answer == "done" else f"refused: {why}", done=answer == "done", as_json=as_json
        )

    with opened(dsn) as place:
        return run_async(go(place))


def _keys(listed: str) -> tuple[str, ...]:
    """The keys of a file, one a line. Raises Stop (2)."""
    if listed != "-" and not listed.startswith("@"):
        raise Stop(USAGE, "USAGE", "--rows takes @FILE or -: a single key is --row KEY")
    place = "the keys from stdin" if listed == "-" else listed[1:]
    try:
        raw = sys.stdin.buffer.read() if listed == "-" else Path(listed[1:]).read_bytes()
        lines = raw.decode("utf-8-sig").split("\n")
    except UnicodeDecodeError as error:
        raise Stop(USAGE, "UNUSABLE_INPUT", f"{place}: byte {error.start + 1} is not UTF-8") from None
    except OSError as error:
        raise Stop(USAGE, "UNUSABLE_INPUT", f"{place} cannot be read: {error.strerror or error}") from None
    keys = tuple(dict.fromkeys(key for line in lines if (key := line.removesuffix("\r"))))
    if not keys:
        raise Stop(USAGE, "UNUSABLE_INPUT", f"{place}: no key is there")
    return keys


async def _many(
    db: Database, org: str, run_id: str, keys: Iterable[str] | None, *, verdict: str, step: str | None, text: str | None
) -> dict[str, Any]:
    """Counts by answer, and the first reasons of refusals. `keys` None: every unknown row. Each batch stands by itself."""
    from fencepost.cli.resolving import resolve_batch

    counts: Counter[str] = Counter()
    refusals: list[dict[str, str]] = []
    async for batch in _batches(db, org, run_id, keys, step):
        answers = await resolve_batch(db, org, run_id, batch, verdict=verdict, step=step, text=text)
        for key, (answer, why) in zip(batch, answers, strict=True):
            answer_object(run_id, org, answer, None)
            counts[answer] += 1
            if answer != "done" and len(refusals) < 20:
                refusals.append({"row": key, "answer": answer, "why": why or ""})
    found = {"run_id": run_id, "org": org, **{word: counts[answer] for answer, word in COUNTED.items()}}
    return found | ({"refusals": refusals} if refusals else {})


async def _batches(
    db: Database, org: str, run_id: str, keys: Iterable[str] | None, step: str | None
) -> AsyncIterator[list[str]]:
    from fencepost import terminal
    from fencepost.cli.rows import pages

    if keys is None:
        if await terminal.watch_outcome(db, org, run_id, None) is None:
            answer_object(run_id, org, "unknown_run", None)
        async for page in pages(db, org, run_id, inputs.step(step) if step else None, ("unknown",)):
            found = [row.key for row in page]
            for start in range(0, len(found), BATCH):
                yield found[start : start + BATCH]
        return
    listed = list(keys)
    for start in range(0, len(listed), BATCH):
        yield listed[start : start + BATCH]


def _count(found: dict[str, Any], *, as_json: bool) -> int:
    """0: every row was resolved. 1: one was refused by the run's state. 2: one is no row of the run."""
    say.words(f"resolved {found['resolved']}, refused {found['refused']}, not found {found['not_found']}")
    for refusal in found.get("refusals", ()):
        say.words(say.clean(f"{refusal['row']}: {refusal['answer'].replace('_', ' ')}: {refusal['why']}"))
    if as_json:
        say.data(found)
    return FAILED if found["refused"] else USAGE if found["not_found"] else DONE
