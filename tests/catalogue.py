"""A schema as its catalogue tells it, line by line: two installations are the same when their lines are."""

from __future__ import annotations

import asyncpg

# Each query gives one line an object; $1 is the schema. What is only storage order or an object's number is left out.
QUERIES = {
    "relation": """
        select format('%s %s owner=%s options=%s acl=%s', c.relkind, c.relname, pg_get_userbyid(c.relowner), c.reloptions,
                      array(select a::text from unnest(c.relacl) a order by 1))
          from pg_class c where c.relnamespace = $1::regnamespace and c.relkind in ('r', 'v', 'S', 'c', 'm', 'i', 'p')""",
    "column": """
        select format('%s.%s %s %s not null=%s identity=%s default=%s collation=%s', c.relname, a.attname, a.attnum,
                      format_type(a.atttypid, a.atttypmod), a.attnotnull, a.attidentity,
                      pg_get_expr(d.adbin, d.adrelid), a.attcollation::regcollation)
          from pg_class c join pg_attribute a on a.attrelid = c.oid and a.attnum > 0 and not a.attisdropped
          left join pg_attrdef d on d.adrelid = c.oid and d.adnum = a.attnum
         where c.relnamespace = $1::regnamespace and c.relkind in ('r', 'v', 'c', 'm', 'p')""",
    "constraint": """
        select format('%s %s %s', n.conrelid::regclass, n.conname, pg_get_constraintdef(n.oid))
          from pg_constraint n where n.connamespace = $1::regnamespace""",
    "index": """
        select pg_get_indexdef(i.indexrelid) from pg_index i join pg_class c on c.oid = i.indexrelid
         where c.relnamespace = $1::regnamespace""",
    "function": """
        select format('%s owner=%s acl=%s', pg_get_functiondef(p.oid), pg_get_userbyid(p.proowner),
                      array(select a::text from unnest(p.proacl) a order by 1))
          from pg_proc p where p.pronamespace = $1::regnamespace""",
    "trigger": """
        select pg_get_triggerdef(t.oid) from pg_trigger t join pg_class c on c.oid = t.tgrelid
         where c.relnamespace = $1::regnamespace and not t.tgisinternal""",
    "view": """
        select c.relname || ': ' || pg_get_viewdef(c.oid) from pg_class c
         where c.relnamespace = $1::regnamespace and c.relkind in ('v', 'm')""",
    "schema": """
        select format('owner=%s acl=%s', pg_get_userbyid(n.nspowner), array(select a::text from unnest(n.nspacl) a order by 1))
          from pg_namespace n where n.oid = $1::regnamespace""",
    "comment": """
        select format('%s %s', d.classoid::regclass, d.description) from pg_description d
          join pg_class c on c.oid = d.objoid where c.relnamespace = $1::regnamespace""",
}
SEEDED = ("move", "policy", "meta", "migration")
OF_THE_PLACE = {"installation", "system_identifier", "database_oid", "applied_at", "test", "test_now"}


async def dump(connection: asyncpg.Connection, schema: str = "fencepost") -> dict[str, list[str]]:
    """Kind of object -> its sorted lines; seeded rows too, without what belongs to the place."""
    quoted = await connection.fetchval("select quote_ident($1)", schema)
    found = {kind: sorted(r[0] for r in await connection.fetch(query, quoted)) for kind, query in QUERIES.items()}
    for table in SEEDED:
        rows = await connection.fetch(f"select * from {quoted}.{table}")
        found[table] = sorted(str({k: v for k, v in row.items() if k not in OF_THE_PLACE}) for row in rows)
    return found


async def functions(connection: asyncpg.Connection, schema: str = "fencepost") -> dict[str, asyncpg.Record]:
    """Name -> name, definer, settings, public (PUBLIC may execute), of every function of the schema."""
    rows = await connection.fetch(
        """select p.proname as name, p.prosecdef as definer, coalesce(p.proconfig, '{}') as settings, p.oid::regprocedure::text as signature,
                  has_function_privilege('public', p.oid, 'execute') as public
             from pg_proc p join pg_namespace n on n.oid = p.pronamespace where n.nspname = $1""",
        schema,
    )
    return {row["name"]: row for row in rows}
