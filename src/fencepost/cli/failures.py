"""What can go wrong below a command, as a sentence and an exit code. What is not here is a bug, and shows itself."""

from __future__ import annotations

from typing import TYPE_CHECKING

from fencepost.cli.say import FAILED, NO_DATABASE, USAGE, Stop

if TYPE_CHECKING:
    from fencepost import errors


def translate(error: BaseException) -> Stop | None:
    """The Stop that an exception means for a user; None for a bug of ours."""
    from fencepost import errors, lanes, schema, values
    from fencepost.postgres.files import NoPostgres
    from fencepost.settings import BadSettings

    match error:
        case Stop():
            return error
        case errors.LaunchConflict():
            return Stop(FAILED, "LAUNCH_CONFLICT", str(error), differs=error.differs)
        case errors.RunNotFound():
            return Stop(USAGE, "NOT_FOUND", str(error))
        case errors.LaunchRefused():
            return Stop(USAGE, "UNUSABLE_INPUT", str(error))
        case errors.PlanInvalid():
            return _of_plan(error)
        case values.Unstorable():
            return Stop(USAGE, "UNUSABLE_INPUT", str(error), path=error.path)
        case BadSettings():
            return Stop(USAGE, "BAD_SETTINGS", str(error))
        case lanes.LaneRefused():
            return Stop(USAGE, "USAGE", str(error))
        case NoPostgres() | errors.DatabaseUnavailable() | errors.Busy():
            return Stop(NO_DATABASE, "NO_DATABASE", str(error))
        case schema.SchemaMismatch() | schema.MigrationRefused():
            return Stop(NO_DATABASE, "WRONG_SCHEMA", str(error))
        case _:
            return _of_database(error)


def _of_plan(error: errors.PlanInvalid) -> Stop:
    """Every fault on a line of its own, as compilers write them: editors jump to it."""
    count = len(error.faults)
    lines = [f"{error.place} cannot be used: {count} fault{'s' if count > 1 else ''}"]
    for fault in error.faults:
        place = error.place if fault.line is None else f"{error.place}:{fault.line}"
        lines.append(f"{place}: {fault.path}{': ' if fault.path else ''}{fault.message}")
    faults = [{"line": fault.line, "path": fault.path, "message": fault.message} for fault in error.faults]
    return Stop(USAGE, "PLAN_INVALID", "\n".join(lines), faults=faults)


def _of_database(error: BaseException) -> Stop | None:
    """What the driver says when there is no usable database behind the DSN."""
    import asyncpg

    said = str(error).strip() or type(error).__name__
    if isinstance(error, asyncpg.InsufficientPrivilegeError):
        return Stop(
            NO_DATABASE,
            "NO_DATABASE",
            f"the database refused it: {said}; connect as the owner of the schema (see `fencepost doctor`)",
        )
    if isinstance(
        error,
        asyncpg.InvalidAuthorizationSpecificationError
        | asyncpg.InvalidCatalogNameError
        | asyncpg.CannotConnectNowError,
    ):
        return Stop(
            NO_DATABASE, "NO_DATABASE", f"the database refused the connection: {said}; check FENCEPOST_DATABASE_URL"
        )
    if isinstance(error, asyncpg.PostgresError) and (error.sqlstate or "")[:2] in {"08", "53", "57", "58", "28", "3D"}:
        return Stop(NO_DATABASE, "NO_DATABASE", f"the database cannot serve: {said}")
    if isinstance(error, asyncpg.ClientConfigurationError):
        return Stop(NO_DATABASE, "NO_DATABASE", f"FENCEPOST_DATABASE_URL cannot be used: {said}")
    if isinstance(error, asyncpg.InterfaceError | asyncpg.InternalClientError | OSError | TimeoutError | EOFError):
        return Stop(
            NO_DATABASE, "NO_DATABASE", f"no database answers ({said}): check that it runs and FENCEPOST_DATABASE_URL"
        )
    return None
