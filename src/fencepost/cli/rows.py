"""`fencepost runs rows`: the rows of a run's maps, page by page, however many; shown, as JSON lines, or written as a table."""

from __future__ import annotations

from collections.abc import AsyncIterator
from typing import TYPE_CHECKING, Any, Final, cast

import click

from fencepost.cli import inputs, say
from fencepost.cli.place import Place, database_options, opened, org_option, run_async
from fencepost.cli.say import DONE, USAGE, Stop

if TYPE_CHECKING:
    from fencepost.db import Database
    from fencepost.sources.results import Result
    from fencepost.steps import RunRow

Asked = tuple[str, str, tuple[str, int] | None, tuple[str, ...] | None]  # organisation, run, map, states

SHOWN_MAX: Final = 200  # to a person who did not say how many


@click.command()
@click.argument("run_id")
@click.option("--unknown", "states", flag_value="unknown", multiple=True, help="Rows whose outcome nobody knows.")
@click.option("--failed", "states", flag_value="failed", multiple=True, help="Rows that failed.")
@click.option("--completed", "states", flag_value="kept", multiple=True, help="Rows that are done, with their results.")
@click.option("--all", "every", is_flag=True, help="Every row, also those that wait.")
@click.option("--map", "step", metavar="NAME#N", help="Only of this map.")
@click.option("--limit", type=click.IntRange(1), help=f"At most so many; on a terminal {SHOWN_MAX} unless said.")
@click.option("--out", metavar="FILE", help="Write them as a table: .csv, .jsonl, .parquet or .arrow.")
@org_option
@database_options
def rows(
    run_id: str, states: tuple[str, ...], every: bool, step: str | None, limit: int | None, out: str | None, org: str, dsn: str | None, as_json: bool
) -> int:  # fmt: skip
    """The rows of a run's maps, in input order: those that are unknown or failed, unless others are asked for."""
    chosen = None if every else (*states,) or ("unknown", "failed")
    with opened(dsn) as place:
        return run_async(_rows(place, run_id, org, chosen, step, limit, out, as_json=as_json))


async def _rows(
    place: Place, run_id: str, org: str, states: tuple[str, ...] | None, step: str | None, limit: int | None, out: str | None, *, as_json: bool
) -> int:  # fmt: skip
    from fencepost import terminal
    from fencepost.cli.documents import row_object, row_state
    from fencepost.cli.runs import _named, _not_found

    async with place.database() as db:
        if await terminal.watch_outcome(db, *_named(org, run_id), None) is None:
            raise _not_found(run_id, org)
        asked = (org, run_id, inputs.step(step) if step else None, states)
        if out is not None:
            return await _write(db, asked, limit, out, as_json=as_json)
        if as_json:
            async for page in pages(db, *asked, limit=limit):
                for row in page:
                    say.data(row_object(row))
            return DONE
        most = limit or SHOWN_MAX
        found = [row async for page in pages(db, *asked, limit=most + 1) for row in page]
    say.table(
        ["MAP", "KEY", "STATE", "VALUE OR ERROR"],
        [[f"{r.map}#{r.ordinal}", r.key, row_state(r), _words(r)] for r in found[:most]],
    )
    if len(found) > most and limit is None:
        say.words(f"there are more than {most}: --limit N shows more, --json or --out FILE all of them")
    return DONE


async def pages(
    db: Database, org: str, run_id: str, step: tuple[str, int] | None, states: tuple[str, ...] | None, *, limit: int | None = None
) -> AsyncIterator[list[RunRow]]:  # fmt: skip
    """Rows by map and index, a bounded page at a time."""
    from fencepost import steps

    name, ordinal = step or (None, None)
    after, left = (0, -1), limit
    while left is None or left > 0:
        page = await steps.read_run_rows(
            db, org, run_id, name=name, ordinal=ordinal, states=states, after=after, most=min(left or 1000, 1000)
        )
        if not page:
            return
        yield page
        after = (page[-1].mid, page[-1].index)
        left = None if left is None else left - len(page)


async def _write(db: Database, asked: Asked, limit: int | None, out: str, *, as_json: bool) -> int:
    from fencepost.sources import by_name
    from fencepost.sources.results import Results, Shape, judge_place

    try:
        table = by_name(out)
        judge_place(table)
    except ValueError as error:
        raise Stop(USAGE, "UNUSABLE_INPUT", str(error)) from None
    shape = Shape("key")
    async for page in pages(db, *asked, limit=limit):
        shape.see(map(_result, page))
    try:
        with Results(table, shape, f"rows of {asked[1]}") as results:
            async for page in pages(db, *asked, limit=limit):
                results.add([_result(row) for row in page])
            written = results.finish()
    except (OSError, ModuleNotFoundError) as error:
        raise Stop(USAGE, "UNUSABLE_INPUT", f"{out} cannot be written: {error}") from None
    say.words(f"{written.rows} rows written to {say.clean(out)}")
    if as_json:
        say.data({"path": written.path, "rows": written.rows, "sha256": written.sha256})
    return DONE


def _result(row: RunRow) -> Result:
    """A row as a table has it: its map and state, then the fields of its result, or of its error."""
    from fencepost.cli.documents import row_object
    from fencepost.values import encode

    doc = row_object(row)
    fields: dict[str, Any] = {}
    if "value" in doc:
        fields = cast("dict[str, Any]", doc["value"]) if isinstance(doc["value"], dict) else {"value": doc["value"]}
    elif "error" in doc:
        fields = {"error": doc["error"].get("message", ""), "error_code": doc["error"].get("code", "")}
    own = {"map": f"{row.map}#{row.ordinal}", "state": doc["state"]}
    return row.key, encode(
        {**own, **{f"value.{name}" if name in own or name == "key" else name: v for name, v in fields.items()}}
    )


def _words(row: RunRow) -> str:
    from fencepost.explain import error_of
    from fencepost.shown import clip

    return clip(row.value or "", 100) if row.state == "kept" else str(error_of(row.value).get("message", ""))
