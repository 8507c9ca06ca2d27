"""`fencepost doctor`: the effective settings and where they came from, what the database says, and what to do about it."""

from __future__ import annotations

import contextlib
from dataclasses import dataclass, field
from typing import Any, Final, cast

import click

from fencepost.cli import say
from fencepost.cli.place import Place, database_options, opened, run_async
from fencepost.cli.say import DONE, FAILED

FACTS: Final = (
    "installation", "schema_version", "server_version", "user", "owner", "fsync", "synchronous_commit", "test", "tasks",
)  # fmt: skip


@dataclass(slots=True)
class Report:
    """What was found. A finding is to be mended, a note is to be known; each is (what, remedy)."""

    settings: dict[str, dict[str, str]]
    facts: dict[str, Any] = field(default_factory=dict[str, Any])
    findings: list[tuple[str, str]] = field(default_factory=list[tuple[str, str]])
    notes: list[tuple[str, str]] = field(default_factory=list[tuple[str, str]])

    def as_json(self) -> dict[str, Any]:
        """One object."""
        return {
            "ok": not self.findings,
            "settings": self.settings,
            "database": self.facts,
            "findings": [{"finding": what, "remedy": remedy} for what, remedy in self.findings],
            "notes": [{"note": what, "remedy": remedy} for what, remedy in self.notes],
        }


@click.command()
@database_options
def doctor(dsn: str | None, as_json: bool) -> int:
    """What this process would work with, and what is wrong with it. Exit 0: nothing to mend, 1: findings, 5: no usable database."""
    from fencepost.cli.failures import translate
    from fencepost.settings import VARIABLES, read_settings

    settings = read_settings(dsn=dsn)
    masked = settings.masked()
    report = Report(
        {variable: {"value": masked[word], "origin": settings.origins[word]} for word, variable in VARIABLES.items()}
    )
    code = DONE
    try:
        with opened(dsn) as place:
            _ask_store(place, report)
            run_async(_examine(place, report))
    except Exception as error:
        stop = translate(error)
        if stop is None:
            raise
        report.findings.append((stop.message, "see above: no usable database"))
        code = stop.exit_code
    _tell(report, as_json=as_json)
    return code or (FAILED if report.findings else DONE)


def _ask_store(place: Place, report: Report) -> None:
    """Whether the content store can be used from here."""
    from fencepost.settings import VARIABLES, BadSettings
    from fencepost.store import StoreFailed, store_of

    try:
        store_of(place.settings).keys()
    except (BadSettings, StoreFailed) as problem:
        report.findings.append((str(problem), f"mend {VARIABLES['store']}, or what its provider's variables say"))


async def _examine(place: Place, report: Report) -> None:
    import asyncpg

    from fencepost import lanes, ledger, schema
    from fencepost.cli.migrate import has_roles
    from fencepost.settings import mask

    async with place.database() as db:
        facts = await ledger.read_installation(db)
        live = {lane.name: len(await ledger.read_workers(db, lane.lane)) for lane in await lanes.read(db)}
        async with db.connection() as connection:
            roles = await has_roles(connection, place.settings.schema)
            changed: list[str] = []
            with contextlib.suppress(asyncpg.InsufficientPrivilegeError):  # a worker's login sees no table (law 00.9)
                changed = await schema.changed_migrations(connection, place.settings.schema)
    report.facts = {key: facts[key] for key in FACTS} | {
        "dsn": mask(place.dsn), "embedded": str(place.embedded) if place.embedded else None, "release": place.release, "roles": roles,
        "live_workers": live,
    }  # fmt: skip
    _judge(report, facts, sum(live.values()))
    if changed:
        report.findings.append(
            (schema.refusal(changed), "a changed migration is never applied: put the released file back")
        )
    if not roles:
        report.notes.append(
            (
                "the roles are not installed: whoever connects acts as itself, not through doors only",
                "fencepost migrate --roles",
            )
        )
    elif facts["user"] == facts["owner"]:
        report.notes.append((
            f"this process connects as {facts['user']}, the owner of the schema",
            "let workers and clients log in as a member of the worker role",
        ))  # fmt: skip
    if db.pooled and not place.settings.listen_url:
        report.notes.append(
            (
                "the database is pooled and nothing can listen: whoever waits polls once a second",
                "set FENCEPOST_LISTEN_URL",
            )
        )


def _judge(report: Report, facts: dict[str, Any], live: int) -> None:
    tasks: dict[str, int] = facts["tasks"]
    if facts["fsync"] == "off":
        report.findings.append(
            (
                "fsync is off: a crash of the server may lose or corrupt what was answered",
                "set fsync = on and reload the server",
            )
        )
    if facts["synchronous_commit"] == "off":
        report.findings.append((
            "synchronous_commit is off: engine writes force it on, a launch inside your own transaction is only as durable as that",
            "set synchronous_commit = on for the role or the server",
        ))  # fmt: skip
    if facts["is_copy"]:
        report.findings.append((
            "this database is a copy of another installation (restored or cloned): its workers, waits and effects are those of the original",
            "let no worker run here unless the original is gone for good",
        ))  # fmt: skip
    if tasks.get("unknown"):
        report.findings.append((
            f"{tasks['unknown']} runs are unknown: nobody knows what became of a step",
            "fencepost runs list --status unknown, then fencepost runs explain ID",
        ))  # fmt: skip
    if tasks.get("queued") and not live:
        report.findings.append(
            (f"{tasks['queued']} runs are queued and no worker is alive", "fencepost worker MODULE:APP")
        )
    if facts["test"]:
        report.notes.append(
            ("this is a test installation: its clock can be set", "do not run anything that matters here")
        )


def _tell(report: Report, *, as_json: bool) -> None:
    if as_json:
        say.data(report.as_json())
        return
    say.table(
        ["SETTING", "VALUE", "FROM"],
        [[name, s["value"] or "(unset)", s["origin"]] for name, s in report.settings.items()],
    )
    say.plain("")
    for key, value in report.facts.items():
        inside = cast("dict[str, object]", value) if isinstance(value, dict) else None
        shown = (
            str(cast("object", value))
            if inside is None
            else ", ".join(f"{k}: {v}" for k, v in inside.items()) or "none"
        )
        say.plain(f"{key + ':':<20}{say.clean(shown)}")
    for kind, found in (("finding", report.findings), ("note", report.notes)):
        for what, remedy in found:
            say.plain(f"{kind}: {say.clean(what)}")
            say.plain(f"  remedy: {say.clean(remedy)}")
    if not report.findings:
        say.plain("nothing to mend")
