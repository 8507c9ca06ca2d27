-- 99_grants.sql: the database holds the key.
--
-- LAW    00.9   the worker role acts through doors only; the migrating role owns; the reader sees views
--        00.7   every door runs on a pinned search_path
--
-- Every function that does not end in `_` is a door. Doors run as the owner. Query plans are fixed once and never built for an
-- empty table's statistics: look-ups by key go by their index whatever the planner believes (the trap: 80 times slower). Without
-- jit = off the price that this puts on a sequential scan of a one-row table makes the planner compile it: 200 ms a call, measured.

do $law$
declare f record; v_schema text; v_worker text := 'fencepost_worker'; v_reader text := 'fencepost_reader';
begin
  select n.nspname into v_schema from pg_class c join pg_namespace n on n.oid = c.relnamespace where c.oid = 'fencepost.meta'::regclass;
  execute format('revoke all on schema %I from public', v_schema);
  for f in select p.oid::regprocedure::text as signature, p.proname from pg_proc p join pg_namespace n on n.oid = p.pronamespace where n.nspname = v_schema loop
    execute format('revoke all on function %s from public', f.signature);
    continue when right(f.proname, 1) = '_';
    execute format('alter function %s security definer set search_path = pg_catalog, pg_temp set enable_seqscan = off set jit = off '
                   || 'set plan_cache_mode = force_generic_plan', f.signature) ;
  end loop;
  if not exists (select from pg_roles where rolname = v_worker) then return; end if;
  execute format('grant usage on schema %I to %I, %I', v_schema, v_worker, v_reader);
  for f in select p.oid::regprocedure::text as signature, p.proname from pg_proc p join pg_namespace n on n.oid = p.pronamespace
            where n.nspname = v_schema and right(p.proname, 1) <> '_' loop
    execute format('grant execute on function %s to %I', f.signature, v_worker);
    if f.proname like 'read\_%' then execute format('grant execute on function %s to %I', f.signature, v_reader); end if;
  end loop;
  execute format('grant select on %I.runs, %I.ledger to %I', v_schema, v_schema, v_reader);
end $law$;
