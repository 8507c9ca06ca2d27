"""The same migration as one SQL text, for whoever may not, or does not want to, let a program do it."""

from __future__ import annotations

from collections.abc import Iterator

from fencepost.schema import Script, chapters, migrations, quote_ident, quote_literal, render, role_names


def script(version: int | None, schema: str, *, roles: bool) -> str:
    """What brings an installation of `version` (None: nothing stands yet) to this code's: one transaction a step; empty when none is due."""
    pending = [s for s in migrations() if s.version > (version or 0)]
    parts: list[str] = list(_roles(schema)) if roles else []
    if version is None:
        body = "\n".join(render(chapter.text, schema) for chapter in chapters())
        parts.append(
            _transaction(f"create schema if not exists {quote_ident(schema)};\n{body}\n{_record(schema, pending)}")
        )
    else:
        grants = render(chapters()[-1].text, schema)
        parts += [_transaction(f"{render(step.text, schema)}\n{grants}\n{_record(schema, [step])}") for step in pending]
        if roles and not pending:
            parts.append(_transaction(grants))
    return "\n".join(parts)


def _roles(schema: str) -> Iterator[str]:
    for role in role_names(schema):
        yield (
            f"do $role$ begin create role {quote_ident(role)} nologin; "
            "exception when duplicate_object or unique_violation then null; end $role$;"
        )


def _transaction(body: str) -> str:
    return f"begin;\nset local search_path = pg_catalog, pg_temp;\n{body}\ncommit;\n"


def _record(schema: str, steps: list[Script]) -> str:
    name = quote_ident(schema)
    rows = ", ".join(
        f"({s.version}, {quote_literal(s.name)}, {quote_literal(s.sha256)}, transaction_timestamp())" for s in steps
    )
    return (
        f"insert into {name}.meta (schema_version, system_identifier, database_oid, test)\n"
        f"  select {steps[-1].version}, s.system_identifier::text, d.oid, false from pg_control_system() s, pg_database d"
        " where d.datname = current_database()\n"
        "  on conflict (one) do update set schema_version = excluded.schema_version;\n"
        f"insert into {name}.migration (version, name, sha256, applied_at) values {rows};"
    )
