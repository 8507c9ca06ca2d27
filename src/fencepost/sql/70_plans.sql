-- 70_plans.sql: a DAG of steps. Each try of a step is a child run of the plan's; whoever ends one advances the plan.
--
-- LAW    70.1   judged by planning/ before any write; a plan that gets past it all the same is said to be stuck (70.13)
--        70.2   admit_plan (72)
--        70.3   ready when every dependency succeeded, or is optional and ended; any other end skips, to the end, at once
--        70.4   at most `most` child runs live at a time, in written order; a step that waits out a delay holds no slot
--        70.5   a claim is a claim of the child run: number, fence, holder are its own (40)
--        70.6   results are written once, by the transaction that ends the child that succeeded
--        70.7   a retry is a new child, for an outcome that its worker reported and the step lists, after its delay on the database's clock
--        70.8   hand-offs are resolved by begin_steps (72; workflow steps: when the child is admitted) and recorded per attempt
--        70.9   what a worker is told comes from here; what it brings is judged by its fence, and lands in its own step
--        70.10  opaque work is not lost by silence: its fence stays until an inquiry, its ceiling, or an operator (85, 86)
--        70.11  cancel_steps_: what has not begun is cancelled with the plan; the rest is cancelled as runs are (80.4)
--        70.12  ended by the advance that finds nothing open
--        70.13  one that cannot go on says `plan.stuck`; the next instant is the task's due_at, so nobody polls
--        70.14  `<run>/<step>/<try>`, source async_child, same lane and organisation
--        80.1   advance_ ends the run through end_runs_ (35)
-- OWNS   result; writes run, task, event, plan, step (69)
-- LOCKS  the plan's task row, before its children's

-- What became of a step whose child run has ended.
create function fencepost.outcome_(_status text, _error text) returns text language plpgsql immutable as $law$
declare v_error jsonb;
begin
  if _status <> 'failed' then return case _status when 'completed' then 'success' else 'cancelled' end; end if;
  v_error := _error::jsonb;
  return case when v_error->>'outcome' in ('failure', 'timeout', 'launch_error', 'invalid_output') then v_error->>'outcome'
              when v_error->>'code' = 'RUNNER_LOST' then 'lost' when v_error->>'code' = 'TIMED_OUT' then 'timeout' else 'failure' end;
end $law$;

-- 70.7. Milliseconds before the try after `_try`.
create function fencepost.delay_(_retry jsonb, _try integer) returns bigint language plpgsql immutable as $law$
declare v_first numeric := coalesce((_retry->>'initial_delay_ms')::numeric, 0); v_most numeric := coalesce((_retry->>'max_delay_ms')::numeric, 0); v_delay numeric;
begin
  v_delay := case _retry->>'backoff' when 'linear' then v_first * _try when 'exponential' then v_first * 2::numeric ^ least(_try - 1, 60) else v_first end;
  return case when v_most > 0 then least(v_delay, v_most) else least(v_delay, 604800000) end;
end $law$;

create function fencepost.plan_events_(_rid bigint, _types text[], _data jsonb[], _now timestamptz) returns void language plpgsql volatile as $law$
-- unfenced: the caller holds the plan's row, and no worker ever does.
declare v_seq integer;
begin
  if _types = '{}' then return; end if;
  update fencepost.task t set seq = t.seq + cardinality(_types) where t.rid = _rid returning t.seq - cardinality(_types) into v_seq;
  insert into fencepost.event (rid, seq, at, type, data)
  select _rid, v_seq + x.ord, _now, x.type, x.data from unnest(_types, _data) with ordinality as x(type, data, ord);
end $law$;

-- THE PLAN GOES ON. The caller holds the plan's row. `_ended`: child runs that have just ended; `_done`: steps that have ended without one.
-- Costs what ended and what became ready, never what the plan is long.
-- False: the run is no plan.
create function fencepost.advance_(_rid bigint, _ended bigint[], _done integer[], _now timestamptz) returns boolean language plpgsql volatile as $law$
-- unfenced: the caller holds the plan's row, and no worker ever does.
declare t record; v_done integer[] := _done; v_fresh integer[];
begin
  if not exists (select from fencepost.plan p where p.rid = _rid) then return false; end if;
  select x.state into t from fencepost.task x where x.rid = _rid;
  if not found then return true; end if;
  if _ended <> '{}' then v_done := v_done || fencepost.record_(_rid, _ended, t.state = 'cancelling', _now); end if;
  if t.state = 'cancelling' then return true; end if;    -- it ends when its last child has (let_go_)
  update fencepost.step s set state = 'ready', due_at = null where s.rid = _rid and s.due_at <= _now;
  loop
    v_fresh := fencepost.follow_(_rid, v_done, _now);
    v_done := fencepost.start_steps_(_rid, v_fresh, _now);
    exit when v_done = '{}';
  end loop;
  perform fencepost.conclude_(_rid, _now);
  return true;
end $law$;

-- Ended child runs: results, retries, ends. Returns the steps that have ended.
create function fencepost.record_(_rid bigint, _ended bigint[], _cancelling boolean, _now timestamptz) returns integer[] language plpgsql volatile as $law$
declare v_done integer[]; v_types text[]; v_data jsonb[];
begin
  with e as materialized (
      select s.ctid as place, s.no, s.id, s.kind, s.try, s.child, s.state as was, o.output, o.ended_at, x.outcome,
             case when x.outcome = 'success' then 'succeeded'
                  when _cancelling then case x.outcome when 'cancelled' then 'cancelled' else 'failed' end
                  when x.outcome not in ('lost', 'cancelled') and d.retry->'on' ? x.outcome and s.try < (d.retry->>'max_attempts')::integer
                       and (select a.ended from fencepost.attempt a where a.rid = c.rid and a.number = o.number and a.fence = o.fence limit 1) = 'finished'
                    then case when fencepost.delay_(d.retry, s.try) > 0 then 'waiting' else 'ready' end
                  else 'failed' end as becomes,
             case when x.outcome <> 'success' then fencepost.delay_(d.retry, s.try) end as delay_ms, case when o.error is not null then o.error::jsonb->>'message' end as message
        from unnest(_ended) c(rid)
        cross join lateral (select s.ctid, s.* from fencepost.step s where s.child = c.rid and s.state in ('running', 'unknown') limit 1) s
        cross join lateral (select o.* from fencepost.outcome o where o.rid = c.rid limit 1) o
        cross join lateral (select case o.status when 'completed' then 'success' else fencepost.outcome_(o.status, o.error) end as outcome) x
        left join lateral (select d.spec->'retry' as retry from fencepost.definition d where x.outcome <> 'success' and d.rid = _rid and d.no = s.no limit 1) d on true
       where s.rid = _rid),               -- outside, or it would be asked for by that
    w as (insert into fencepost.result (rid, step, name, media_type, size, digest, text, place, child, at)
          -- A workflow's own output is its one result.
          select _rid, e.no, 'result', 'application/json', octet_length(x.output), 'sha256:' || encode(sha256(convert_to(x.output, 'UTF8')), 'hex'), x.output, null,
                 e.child, _now from e cross join lateral (select coalesce(e.output, 'null') as output) x
           where e.becomes = 'succeeded' and e.kind = 'workflow'
          union all
          select _rid, e.no, r.key, r.value->>'media_type', (r.value->>'size')::bigint, r.value->>'digest', r.value->>'text', r.value->>'place', e.child, _now
            from e cross join lateral json_each(e.output::json->'outputs') r where e.becomes = 'succeeded' and e.kind <> 'workflow'),
    u as (update fencepost.step s
             set state = e.becomes, outcome = e.outcome, reason = case when e.becomes <> 'succeeded' then left(coalesce(e.message, e.outcome), 1000) end,
                 due_at = case e.becomes when 'waiting' then e.ended_at + e.delay_ms * interval '1 ms' end,
                 ended_at = case when e.becomes in ('succeeded', 'failed', 'cancelled') then _now end
            from e where s.ctid = e.place),    -- rows by their place: nobody else moves them, and no plan of a statement reads the others
    p as (update fencepost.plan p
             set flying = p.flying - n.n, unknown = p.unknown - n.unknown, open = p.open - n.ended, succeeded = p.succeeded + n.succeeded, failed = p.failed + n.failed
            from (select count(*) as n, count(*) filter (where e.was = 'unknown') as unknown, count(*) filter (where e.becomes not in ('ready', 'waiting')) as ended,
                         count(*) filter (where e.becomes = 'succeeded') as succeeded, count(*) filter (where e.becomes = 'failed') as failed from e) n
           where p.rid = _rid)
  select coalesce(array_agg(e.no order by e.no) filter (where e.becomes in ('succeeded', 'failed', 'cancelled')), '{}'),
         coalesce(array_agg('plan.step_' || case e.becomes when 'ready' then 'waiting' else e.becomes end order by e.no), '{}'),
         coalesce(array_agg(jsonb_strip_nulls(jsonb_build_object('step', e.id, 'try', e.try, 'outcome', e.outcome,
           'delay_ms', case when e.becomes in ('ready', 'waiting') then e.delay_ms end)) order by e.no), '{}')
    into v_done, v_types, v_data from e;
  perform fencepost.plan_events_(_rid, v_types, v_data, _now);
  return v_done;
end $law$;

-- 70.3. What the ends of these steps mean to those that need them, wave by wave. Returns those that became ready.
create function fencepost.follow_(_rid bigint, _done integer[], _now timestamptz) returns integer[] language plpgsql volatile as $law$
declare v_done integer[] := _done; v_skipped integer := 0; v_types text[]; v_data jsonb[]; v_all text[] := '{}'; v_told jsonb[] := '{}';
  v_free integer[]; v_fresh integer[] := '{}';
begin
  while v_done <> '{}' loop
    with h as materialized (
        select e.target, count(*)::integer as n, bool_or(not e.optional and s.state <> 'succeeded') as bad, min(d.no) filter (where not e.optional and s.state <> 'succeeded') as cause
          from unnest(v_done) d(no)
          cross join lateral (select e.target, e.optional from fencepost.edge e where e.rid = _rid and e.source = d.no offset 0) e
          cross join lateral (select s.state from fencepost.step s where s.rid = _rid and s.no = d.no limit 1) s
         group by e.target),
      t as materialized (
        select h.*, x.place, x.needs = h.n and not h.bad as free, f.id, f.state from h
         cross join lateral (select x.ctid as place, x.needs from fencepost.step x where x.rid = _rid and x.no = h.target and x.state = 'blocked' limit 1) x
          left join lateral (select f.id, f.state from fencepost.step f where f.rid = _rid and f.no = h.cause limit 1) f on true),
      u as (update fencepost.step x
               set needs = x.needs - t.n, state = case when t.bad then 'skipped' else 'blocked' end,
                   reason = case when t.bad then format('needs %s, which %s', t.id, case t.state when 'failed' then 'failed' else 'was ' || t.state end) end, ended_at = case when t.bad then _now end
              from t where x.ctid = t.place and not t.free
         returning x.no, x.id, x.state, x.reason)
    select coalesce(array_agg(u.no order by u.no), '{}'), coalesce(array_agg('plan.step_skipped'::text order by u.no), '{}'),
           coalesce(array_agg(jsonb_build_object('step', u.id, 'reason', u.reason) order by u.no), '{}'),
           array(select t.target from t where t.free)
      into v_done, v_types, v_data, v_free from u where u.state = 'skipped';
    v_fresh := v_fresh || v_free;
    v_skipped := v_skipped + cardinality(v_done);
    v_all := v_all || v_types; v_told := v_told || v_data;
  end loop;
  if v_skipped > 0 then
    update fencepost.plan p set open = p.open - v_skipped where p.rid = _rid;
    perform fencepost.plan_events_(_rid, v_all, v_told, _now);
  end if;
  return v_fresh;
end $law$;

-- Steps that are ready and do not start at once.
create function fencepost.ready_(_rid bigint, _nos integer[]) returns void language plpgsql volatile as $law$
begin
  update fencepost.step x set state = 'ready', needs = 0
    from unnest(_nos) n(no) cross join lateral (select s.ctid as place from fencepost.step s where s.rid = _rid and s.no = n.no and s.state = 'blocked' limit 1) s
   where x.ctid = s.place;
end $law$;

-- 70.4. Starts what is ready, in written order, as far as slots go; `_fresh` are ready and their rows do not say so yet: where all of them
-- start, each row is written once. Returns steps that ended instead: a required hand-off that has no output, or an id that another run has.
create function fencepost.start_steps_(_rid bigint, _fresh integer[], _now timestamptz) returns integer[] language plpgsql volatile as $law$
-- unfenced: new rows, and the plan's own, which the caller holds.
declare p record; r record; v_nos integer[]; v_bad integer[]; v_children bigint[]; v_started integer[]; v_priority integer; v_seed uuid := gen_random_uuid();
begin
  select x.* into p from fencepost.plan x where x.rid = _rid;
  if _fresh = '{}' or p.flying + cardinality(_fresh) > p.most or exists (select from fencepost.step s where s.rid = _rid and s.ready) then
    perform fencepost.ready_(_rid, _fresh);
    v_nos := array(select s.no from fencepost.step s where s.rid = _rid and s.ready order by s.no limit p.most - p.flying);
  else
    v_nos := array(select f.no from unnest(_fresh) f(no) order by f.no);
  end if;
  if v_nos = '{}' then return '{}'; end if;
  v_bad := array(select distinct b.target from fencepost.binding b where b.rid = _rid and b.target = any (v_nos) and b.required and b.mode <> 'none'
                    and not exists (select from fencepost.result o where o.rid = _rid and o.step = b.source and o.name = b.output));
  if v_bad <> '{}' then
    perform fencepost.end_steps_(_rid, v_bad, 'skipped', null, 'a required hand-off has no output', _now);
    perform fencepost.ready_(_rid, _fresh);
    return v_bad;
  end if;
  select x.org, x.id, x.lane, x.release into r from fencepost.run x where x.rid = _rid;
  select x.priority into v_priority from fencepost.policy x where x.source = 'async_child';
  with s as materialized (
      select nextval('fencepost.run_rid_seq') as child, s.* from (
        select s.no, s.id, s.kind, s.try + 1 as try, d.spec from unnest(v_nos) v(no)
         cross join lateral (select s.* from fencepost.step s where s.rid = _rid and s.no = v.no limit 1) s
         cross join lateral (select d.spec from fencepost.definition d where d.rid = _rid and d.no = v.no limit 1) d order by s.no) s),
    i as (insert into fencepost.run (rid, org, id, kind, name, lane, release, source, priority, input, on_lost, parent, key_root, submitted_at)
          overriding system value
          select s.child, r.org, r.id || '/' || s.id || '/' || s.try, case s.kind when 'workflow' then 'workflow' else 'step' end,
                 coalesce(s.spec->>'workflow', s.id), r.lane, r.release, 'async_child', v_priority,
                 case s.kind when 'workflow' then fencepost.input_(_rid, s.no, s.spec) else 'null' end, s.spec->>'on_lost', _rid, fencepost.random_id_(v_seed, s.child), _now from s
          on conflict (org, id) do nothing returning rid)
  select coalesce(array_agg(i.rid order by i.rid), '{}') into v_children from i;
  v_started := v_nos; v_bad := '{}';      -- both in written order
  if cardinality(v_children) < cardinality(v_nos) then
    v_started := array(select s.no from unnest(v_children) v(rid) cross join lateral (select c.id from fencepost.run c where c.rid = v.rid limit 1) c
                        cross join lateral (select s.no from fencepost.step s where s.rid = _rid and s.id = split_part(substr(c.id, length(r.id) + 2), '/', 1) limit 1) s
                        order by v.rid);
    v_bad := array(select v.no from unnest(v_nos) v(no) where not (v.no = any (v_started)) order by v.no);
  end if;
  with c as materialized (
      select c.rid, c.kind, c.on_lost, s.place from unnest(v_children, v_started) v(rid, no)
       cross join lateral (select c.* from fencepost.run c where c.rid = v.rid limit 1) c
       cross join lateral (select s.ctid as place from fencepost.step s where s.rid = _rid and s.no = v.no limit 1) s),
    t as (insert into fencepost.task (rid, lane, org, state, priority, ready_at, turn_at, seq, on_lost, parent, opaque)
          select c.rid, r.lane, r.org, 'queued', v_priority, _now, _now - v_priority * interval '60 s', 1, c.on_lost, _rid, c.kind = 'step' from c)
  update fencepost.step s
     set state = 'running', needs = 0, try = s.try + 1, child = c.rid, started_at = coalesce(s.started_at, _now), outcome = null, reason = null
    from c where s.ctid = c.place;
  -- 70.8. A workflow's input is one for all its attempts, so what it was handed is recorded with it, as number 0.
  if exists (select from fencepost.binding b where b.rid = _rid and b.target = any (v_started)) then
    insert into fencepost.handoff (rid, number, id, input, mode, source, output, digest, reason, at)
    select v.rid, 0, x->>'binding', x->>'input', x->>'mode', x->'source'->>'run', x->'source'->>'output', x->>'digest', x->>'reason', _now
      from unnest(v_children, v_started) v(rid, no)
     cross join lateral (select s.kind from fencepost.step s where s.rid = _rid and s.no = v.no limit 1) s
     cross join lateral (select h.value as x from jsonb_array_elements(case s.kind when 'workflow' then fencepost.handed_(_rid, v.no, null, null) else '[]' end) h(value)) h;
  end if;
  update fencepost.plan x set flying = x.flying + cardinality(v_children) where x.rid = _rid;
  perform fencepost.plan_events_(_rid, array_fill('plan.step_started'::text, array[cardinality(x.nos)]), x.data, _now)
     from (select array_agg(s.no order by s.no) as nos, array_agg(jsonb_build_object('step', s.id, 'try', s.try) order by s.no) as data
             from unnest(v_started) v(no) cross join lateral (select s.* from fencepost.step s where s.rid = _rid and s.no = v.no limit 1) s) x
    where x.nos is not null;
  perform fencepost.rouse_(r.lane, least(cardinality(v_children), 16));
  if v_bad <> '{}' then perform fencepost.end_steps_(_rid, v_bad, 'failed', 'launch_error', 'another run has the id of this try', _now); end if;
  return v_bad;
end $law$;

-- Ends steps of which no child run lives.
create function fencepost.end_steps_(_rid bigint, _nos integer[], _state text, _outcome text, _reason text, _now timestamptz) returns void language plpgsql volatile as $law$
declare v_types text[]; v_data jsonb[];
begin
  with u as (update fencepost.step s set state = _state, outcome = _outcome, reason = _reason, due_at = null, ended_at = _now
              where s.rid = _rid and s.no = any (_nos) returning s.no, s.id)
  select coalesce(array_agg('plan.step_' || _state order by u.no), '{}'),
         coalesce(array_agg(jsonb_strip_nulls(jsonb_build_object('step', u.id, 'outcome', _outcome, 'reason', _reason)) order by u.no), '{}') into v_types, v_data from u;
  update fencepost.plan p set open = p.open - cardinality(v_types), failed = p.failed + case _state when 'failed' then cardinality(v_types) else 0 end where p.rid = _rid;
  perform fencepost.plan_events_(_rid, v_types, v_data, _now);
end $law$;

-- A result's text, if the database can read it: what a step calls JSON may hold what it cannot (a NUL, a number without bounds), and a
-- transaction that fails over it would never end the step.
create function fencepost.as_json_(_text text) returns jsonb language plpgsql immutable as $law$
begin
  return _text::jsonb;
exception when data_exception or program_limit_exceeded then
  return null;
end $law$;

-- Whether a command's or a Python step's run may end with it: named outputs, or none.
create function fencepost.is_result_(_text text) returns boolean language plpgsql immutable as $law$
declare v jsonb := fencepost.as_json_(_text)->'outputs';
begin
  return v is null and fencepost.as_json_(_text) is not null
      or jsonb_typeof(v) = 'object' and not exists (
           select from jsonb_each(v) o where jsonb_typeof(o.value->'media_type') is distinct from 'string' or jsonb_typeof(o.value->'size') is distinct from 'number'
              or jsonb_typeof(o.value->'digest') is distinct from 'string');
end $law$;

-- What a workflow step's child is given: its own input, and the hand-offs by name (70.8).
create function fencepost.input_(_rid bigint, _no integer, _spec jsonb) returns text language plpgsql stable as $law$
declare v_handed jsonb;
begin
  if jsonb_array_length(_spec->'handoffs') = 0 then return coalesce(_spec->'input', 'null')::text; end if;
  select jsonb_object_agg(h.input, h.value) into v_handed from (
    select h->>'input' as input, case h->>'mode' when 'content' then coalesce(h->'value', to_jsonb(h->>'text')) when 'quote' then h else h - 'text' end as value
      from jsonb_array_elements(fencepost.handed_(_rid, _no, null, null)) h) h;
  if v_handed is null then return coalesce(_spec->'input', 'null')::text; end if;
  return (case jsonb_typeof(_spec->'input') when 'object' then _spec->'input' else '{}' end || v_handed)::text;
end $law$;

-- The hand-offs of a step as its results stand now; of an attempt that has begun, as they stood then. JSON text is given as `value` too.
create function fencepost.handed_(_rid bigint, _no integer, _child bigint, _number integer) returns jsonb language plpgsql stable as $law$
begin
  return (
    select coalesce(jsonb_agg(jsonb_strip_nulls(jsonb_build_object('binding', b.id, 'input', b.input, 'required', b.required, 'description', b.description,
             'mode', case when o.name is null then 'none' else b.mode end,
             'source', case when o.name is not null then jsonb_build_object('run', c.id, 'step', s.id, 'output', b.output) end,
             'media_type', o.media_type, 'size', o.size, 'digest', o.digest, 'place', o.place,
             'text', o.text,
             'value', case when b.mode = 'content' and o.media_type = 'application/json' then fencepost.as_json_(o.text) end,
             'reason', case when f.id is not null then f.reason when o.name is null and b.mode <> 'none' then format('step %s has no output %s; it %s', s.id, b.output, case s.state when 'skipped' then 'was skipped' when 'cancelled' then 'was cancelled' else s.state end) end)) order by b.id), '[]')
      from fencepost.binding b
      left join lateral (select f.* from fencepost.handoff f where f.rid = _child and f.number = _number and f.id = b.id limit 1) f on true
      cross join lateral (select s.id, s.state from fencepost.step s where s.rid = _rid and s.no = b.source limit 1) s
      left join lateral (select o.* from fencepost.result o where o.rid = _rid and o.step = b.source and o.name = b.output and b.mode <> 'none'
                            and (f.id is null or f.digest is not null) limit 1) o on true
      left join lateral (select c.id from fencepost.run c where c.rid = o.child limit 1) c on true
     where b.rid = _rid and b.target = _no);
end $law$;

-- 70.12, 70.13. Ends the plan, or says what it waits for.
create function fencepost.conclude_(_rid bigint, _now timestamptz) returns void language plpgsql volatile as $law$
-- unfenced: the caller holds the plan's row, and no worker ever does.
declare p record; t record; v_due timestamptz; v_ready boolean; v_stuck boolean;
begin
  select x.* into p from fencepost.plan x where x.rid = _rid;
  select x.state, x.due_at, x.trouble into t from fencepost.task x where x.rid = _rid;
  if p.open = 0 then
    perform fencepost.end_runs_(array[_rid], array[case when p.failed > 0 then 'failed' else 'completed' end],
      array[case when p.failed = 0 then jsonb_strip_nulls(jsonb_build_object('steps', p.steps, 'succeeded', p.succeeded,
        'reason', case when p.succeeded = 0 then 'all_skipped' end))::text end],
      array[case when p.failed > 0 then fencepost.plan_error_(_rid, p.failed) end], 'finished', _now);
    return;
  end if;
  select min(s.due_at) into v_due from fencepost.step s where s.rid = _rid and s.due_at is not null;
  v_ready := p.flying < p.most and exists (select from fencepost.step s where s.rid = _rid and s.ready);
  v_stuck := p.flying = 0 and v_due is null and not v_ready;
  if p.unknown > 0 and p.unknown = p.flying and v_due is null and not v_ready then
    if t.state = 'parked' then
      perform fencepost.plan_events_(_rid, '{run.unknown}', array['{"code": "STEP_OUTCOME_UNKNOWN"}'::jsonb], _now);
      update fencepost.task x set state = 'unknown', unknown = 'STEP_OUTCOME_UNKNOWN', park = null, due_at = null,
             trouble = json_build_object('code', 'STEP_OUTCOME_UNKNOWN', 'message', format('%s of its steps are unknown', p.unknown))::text
       where x.rid = _rid;
    end if;
    return;
  end if;
  if t.state = 'unknown' then
    update fencepost.task x set state = 'parked', park = 'plan', unknown = null, trouble = null, due_at = v_due where x.rid = _rid;
  elsif v_due is distinct from t.due_at then
    update fencepost.task x set due_at = v_due where x.rid = _rid;
  end if;
  if v_stuck and t.trouble is null then
    perform fencepost.plan_events_(_rid, '{plan.stuck}', array[jsonb_build_object('open', p.open)], _now);
    update fencepost.task x set trouble = json_build_object('code', 'PLAN_STUCK', 'message',
        format('%s steps have not ended, and nothing that runs or waits can make them ready', p.open))::text where x.rid = _rid;
  end if;
end $law$;

create function fencepost.plan_error_(_rid bigint, _failed integer) returns text language sql stable as $law$
  select json_build_object('code', 'STEP_FAILED', 'message',
           format('%s of its steps failed, the first: %s (%s: %s)', _failed, (array_agg(s.id order by s.no))[1], (array_agg(s.outcome order by s.no))[1], (array_agg(s.reason order by s.no))[1]),
           'steps', json_agg(json_build_object('step', s.id, 'outcome', s.outcome) order by s.no))::text
    from (select s.* from fencepost.step s where s.rid = _rid and s.state = 'failed' order by s.no limit 100) s
$law$;

-- A child run became unknown, or is no longer. The caller holds its row and the plan's.
create function fencepost.tell_plan_(_child bigint, _now timestamptz) returns void language plpgsql volatile as $law$
declare t record; s record;
begin
  select x.parent, x.state into t from fencepost.task x where x.rid = _child;
  if t.parent is null then return; end if;
  update fencepost.step x set state = case t.state when 'unknown' then 'unknown' else 'running' end
   where x.child = _child and x.state = case t.state when 'unknown' then 'running' else 'unknown' end
  returning x.id, x.try into s;
  if not found then return; end if;
  update fencepost.plan p set unknown = p.unknown + case t.state when 'unknown' then 1 else -1 end where p.rid = t.parent;
  perform fencepost.plan_events_(t.parent, array['plan.step_' || case t.state when 'unknown' then 'unknown' else 'resumed' end],
    array[jsonb_build_object('step', s.id, 'try', s.try)], _now);
  perform fencepost.advance_(t.parent, '{}', '{}', _now);
end $law$;

-- 70.11. With the plan's cancel, under its lock: what has not begun.
create function fencepost.cancel_steps_(_rid bigint, _reason text, _now timestamptz) returns void language plpgsql volatile as $law$
declare v_nos integer[] := array(select s.no from fencepost.step s where s.rid = _rid and s.state in ('blocked', 'ready', 'waiting') order by s.no);
begin
  if v_nos <> '{}' then perform fencepost.end_steps_(_rid, v_nos, 'cancelled', 'cancelled', left(_reason, 1000), _now); end if;
end $law$;
