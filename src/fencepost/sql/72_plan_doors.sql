-- 72_plan_doors.sql: how a plan comes to be, what carries an attempt of its steps, and what can be read of it.
--
-- LAW    70.2   run, steps and first event are one transaction; the same id with another definition is `conflict`
--        70.8   hand-offs are resolved after begin, and recorded per attempt with their digests
--        70.9   the packet comes from here, whatever the worker was told before
--        70.10  the process is recorded before it may begin; who adopts it keeps number and fence
--        70.11  what a fence that died leaves running on a host is ended by whoever lives there
--        97.1   what is read is looked up within its organisation
-- OWNS   nothing; writes run, task, event, plan, step, edge, binding, process, handoff
-- LOCKS  the child run's row (hold_); a plan that nobody else has seen

-- Answers: created · replayed · conflict (then `stored`) · refused.
create function fencepost.admit_plan(_org text, _id text, _name text, _lane integer, _release text, _source text, _priority integer, _definition text)
returns table (answer text, rid bigint, stored jsonb) language plpgsql volatile as $law$
#variable_conflict use_column
declare v_now timestamptz := fencepost.now_(); v_rid bigint; v_policy record; v_plan jsonb := _definition::jsonb; v_steps integer; v_edges integer; v_wanted integer; r record;
begin
  if current_setting('synchronous_commit') = 'off' then perform set_config('synchronous_commit', 'on', true); end if;
  select p.priority into v_policy from fencepost.policy p where p.source = coalesce(_source, 'api');
  v_steps := jsonb_array_length(v_plan->'steps');
  if not found or fencepost.good_names_(_org, _id, _name) is not true or coalesce(v_steps, 0) = 0
     or length(_id) + 6 + (select max(length(s.value->>'id')) from jsonb_array_elements(v_plan->'steps') s(value)) > 200 then
    return query select 'refused', null::bigint, null::jsonb; return;
  end if;
  insert into fencepost.run (org, id, kind, name, lane, release, source, priority, input, on_lost, key_root, submitted_at)
  values (_org, _id, 'plan', _name, _lane, _release, coalesce(_source, 'api'), coalesce(_priority, v_policy.priority), _definition, 'replay', gen_random_uuid(), v_now)
  on conflict (org, id) do nothing returning run.rid into v_rid;
  if v_rid is null then
    select x.* into r from fencepost.run x where x.org = _org and x.id = _id;
    return query select case when r.kind = 'plan' and r.name = _name and r.input::jsonb = v_plan then 'replayed' else 'conflict' end, r.rid,
      case when r.kind <> 'plan' or r.name <> _name or r.input::jsonb <> v_plan then jsonb_build_object('kind', r.kind, 'name', r.name, 'input', r.input::jsonb) end;
    return;
  end if;
  insert into fencepost.task (rid, lane, org, state, park, priority, ready_at, turn_at, seq, on_lost)
  values (v_rid, _lane, _org, 'parked', 'plan', coalesce(_priority, v_policy.priority), v_now, v_now, 1, 'replay');
  insert into fencepost.plan (rid, most, steps, open) values (v_rid, (v_plan->>'max_concurrency')::integer, v_steps,
    v_steps - (select count(*) from jsonb_array_elements(v_plan->'steps') s(spec) where (s.spec->>'initially_skipped')::boolean));
  insert into fencepost.definition (rid, no, spec) select v_rid, s.no, s.spec from jsonb_array_elements(v_plan->'steps') with ordinality as s(spec, no);
  insert into fencepost.step (rid, no, id, kind, state, needs, reason, ended_at)
  select v_rid, s.no, s.spec->>'id', s.spec->>'kind',
         case when (s.spec->>'initially_skipped')::boolean then 'skipped' when s.needs = 0 then 'ready' else 'blocked' end, s.needs,
         case when (s.spec->>'initially_skipped')::boolean then 'initially_skipped' end, case when (s.spec->>'initially_skipped')::boolean then v_now end
    from (select s.no, s.spec, coalesce(jsonb_array_length(s.spec->'needs'), 0) as needs from jsonb_array_elements(v_plan->'steps') with ordinality as s(spec, no)) s;
  -- Names are numbers from here on; asked in one go, for nobody knows yet how large the table is.
  with f as materialized (select f.no, f.spec->>'id' as id from jsonb_array_elements(v_plan->'steps') with ordinality as f(spec, no))
  insert into fencepost.edge (rid, source, target, optional)
  select v_rid, f.no, s.no, coalesce((n.value->>'optional')::boolean, false)
    from jsonb_array_elements(v_plan->'steps') with ordinality as s(spec, no) cross join jsonb_array_elements(s.spec->'needs') n(value)
    join f on f.id = n.value->>'step';
  get diagnostics v_edges = row_count;
  with f as materialized (select f.no, f.spec->>'id' as id from jsonb_array_elements(v_plan->'steps') with ordinality as f(spec, no))
  insert into fencepost.binding (rid, target, id, input, source, output, mode, required, description)
  select v_rid, s.no, h.value->>'id', h.value->>'input', f.no, h.value->>'output', h.value->>'mode', (h.value->>'required')::boolean, coalesce(h.value->>'description', '')
    from jsonb_array_elements(v_plan->'steps') with ordinality as s(spec, no) cross join jsonb_array_elements(s.spec->'handoffs') h(value)
    join f on f.id = h.value->>'step';
  select coalesce(sum(s.needs), 0) into v_wanted from fencepost.step s where s.rid = v_rid;
  if v_edges <> v_wanted then raise exception 'plan %: a step needs one that is not there', quote_literal(_id) using errcode = '22023'; end if;
  perform fencepost.advance_(v_rid, '{}', array(select s.no from fencepost.step s where s.rid = v_rid and s.state = 'skipped' order by s.no), v_now);
  return query select 'created', v_rid, null::jsonb;
end $law$;

-- What a worker needs to carry out an attempt. Identities, bindings and policy come from here, whatever else it was told (70.9).
create function fencepost.packet_(_rid bigint, _number integer) returns text language sql stable as $law$
  select json_build_object('run', p.id, 'org', p.org, 'plan', p.name, 'step', s.id, 'try', s.try, 'child', c.id, 'attempt', _number, 'definition', d.spec,
           'inputs', (select coalesce(json_object_agg(h->>'input', h), '{}') from jsonb_array_elements(fencepost.handed_(s.rid, s.no, c.rid, _number)) h))::text
    from fencepost.run c cross join lateral (select p.* from fencepost.run p where p.rid = c.parent limit 1) p
    cross join lateral (select s.* from fencepost.step s where s.child = c.rid limit 1) s
    cross join lateral (select d.spec from fencepost.definition d where d.rid = s.rid and d.no = s.no limit 1) d where c.rid = _rid
$law$;

-- The begun mark of opaque work: its process is recorded first, so that whoever comes later knows whom to ask for (70.10).
-- Answers: begun (then `packet`) · stale · cancelled · again.
create function fencepost.begin_steps(_rids bigint[], _fences uuid[], _boot_ids text[], _pid_namespaces text[], _pids integer[], _process_starts text[],
  _hosts text[], _folders text[])
returns table (ord integer, answer text, packet text) language plpgsql volatile as $law$
#variable_conflict use_column
declare v_now timestamptz := fencepost.enter_(); v_held fencepost.held_[] := fencepost.hold_(_rids, _fences, '{}'); h fencepost.held_; s record;
begin
  foreach h in array v_held loop
    ord := h.ord; packet := null;
    answer := case when h.how <> 'held' then h.how when h.state = 'cancelling' then 'cancelled' else 'begun' end;
    if answer = 'begun' and not h.begun then
      select x.rid, x.no, (d.spec->>'timeout_ms')::bigint as timeout_ms into s
        from fencepost.step x cross join lateral (select d.spec from fencepost.definition d where d.rid = x.rid and d.no = x.no limit 1) d
       where x.child = h.rid and x.state in ('running', 'unknown');
      insert into fencepost.process (rid, number, boot_id, pid_namespace, pid, process_start, host, folder, begun_at, ceiling_at)
      values (h.rid, h.number, _boot_ids[h.ord], _pid_namespaces[h.ord], _pids[h.ord], _process_starts[h.ord], left(_hosts[h.ord], 200), _folders[h.ord], v_now,
              v_now + coalesce(s.timeout_ms, 21600000) * interval '1 ms' + interval '60 s')
      on conflict do nothing;
      insert into fencepost.handoff (rid, number, id, input, mode, source, output, digest, reason, at)
      select h.rid, h.number, x->>'binding', x->>'input', x->>'mode', x->'source'->>'run', x->'source'->>'output', x->>'digest', x->>'reason', v_now
        from jsonb_array_elements(fencepost.handed_(s.rid, s.no, null, null)) x
      on conflict do nothing;
      update fencepost.task t set begun = true, seq = t.seq + 1, deferrals = 0, deferred_since = null where t.rid = h.rid;
      insert into fencepost.event (rid, seq, at, type, number) values (h.rid, h.seq + 1, v_now, 'attempt.begun', h.number);
    end if;
    if answer = 'begun' then packet := fencepost.packet_(h.rid, h.number); end if;
    return next;
  end loop;
end $law$;

-- Opaque work whose worker is gone, on this host: the same attempt, the same fence, another holder (70.10). `_root`: only those of this
-- plan.
create function fencepost.claim_orphans(_holder uuid, _request bigint, _rids bigint[], _root bigint) returns setof fencepost.claimed_ language plpgsql volatile as $law$
declare v_now timestamptz := fencepost.enter_(); v_how text := fencepost.open_request_(_holder, _request); v_rids bigint[];
begin
  if v_how = 'buried' then return next fencepost.not_claimed_('buried', null); return; end if;
  if v_how = 'closed' then return; end if;
  if v_how = 'new' then
    v_rids := array(select t.rid from fencepost.task t where t.rid = any (_rids) and (_root is null or t.parent = _root) order by t.rid for no key update skip locked);
    v_rids := array(select o.rid from fencepost.orphans_(_holder, v_rids) o(rid) where o.rid = any (v_rids));
    with u as (update fencepost.task t set holder = _holder, request = _request, seq = t.seq + 1 where t.rid = any (v_rids) returning t.rid, t.seq, t.number)
    insert into fencepost.event (rid, seq, at, type, number, data)
    select u.rid, u.seq, v_now, 'attempt.adopted', u.number, jsonb_build_object('holder', _holder) from u;
  end if;
  return query select * from fencepost.repeat_claim_(_holder, _request);
end $law$;

-- Begun opaque work that nobody holds who lives, whose process ran where this incarnation runs. `_dropped`: what this incarnation
-- itself was given, and does not hold.
create function fencepost.orphans_(_me uuid, _dropped bigint[]) returns setof bigint language plpgsql stable as $law$
begin
  return query
    select t.rid from fencepost.incarnation me
      cross join lateral (select t.rid, t.number, t.holder from fencepost.task t where t.opaque and t.holder is not null and t.begun) t
      cross join lateral (select p.boot_id, p.pid_namespace from fencepost.process p where p.rid = t.rid and p.number = t.number limit 1) p
     where me.id = _me and p.boot_id = me.boot_id and p.pid_namespace = me.pid_namespace
       and (t.holder = _me and t.rid = any (_dropped) or not exists (select from fencepost.incarnation i where i.id = t.holder and i.ended is null));
end $law$;

-- The packet and the process of an attempt that was adopted.
create function fencepost.read_process(_rid bigint, _fence uuid) returns table (packet text, pid integer, process_start text, folder text) language sql stable as $law$
  select fencepost.packet_(t.rid, t.number), p.pid, p.process_start, p.folder
    from fencepost.task t join fencepost.process p on p.rid = t.rid and p.number = t.number where t.rid = _rid and t.fence = _fence
$law$;

-- `_busy`: only the steps that run, wait out a delay or are unknown: what a live view looks at.
create function fencepost.read_plan(_org text, _id text, _busy boolean) returns jsonb language sql stable as $law$
  with v as (select r.rid, r.id, r.org, r.name, r.release, r.submitted_at, l.name as lane, o.output, o.ended_at, p.most, p.steps,
                    coalesce(o.status, case t.park when 'plan' then 'running' else t.state end) as status, coalesce(o.error, t.trouble) as error
               from fencepost.run r join fencepost.plan p on p.rid = r.rid join fencepost.lane l on l.lane = r.lane
               left join fencepost.outcome o on o.rid = r.rid left join fencepost.task t on t.rid = r.rid where r.org = _org and r.id = _id)
  select jsonb_build_object('run_id', v.id, 'org', v.org, 'name', v.name, 'status', v.status, 'output', v.output, 'error', v.error, 'submitted_at', v.submitted_at,
           'finished_at', v.ended_at, 'max_concurrency', v.most, 'now', fencepost.now_(), 'rid', v.rid, 'lane', v.lane, 'release', v.release, 'total', v.steps,
           'counts', (select jsonb_object_agg(c.state, c.n) from (select case when v.ended_at is not null and s.ended_at is null then 'cancelled' else s.state end as state, count(*) as n
                        from fencepost.step s where s.rid = v.rid group by 1) c),
           'steps', (select coalesce(jsonb_agg(jsonb_build_object('id', s.id, 'kind', s.kind, 'state', case when v.ended_at is not null and s.ended_at is null then 'cancelled' else s.state end,
                       'reason', s.reason, 'outcome', s.outcome, 'needs', (select d.spec->'needs' from fencepost.definition d where d.rid = s.rid and d.no = s.no), 'attempts', s.try, 'started_at', s.started_at, 'ended_at', s.ended_at, 'due_at', s.due_at,
                       'child', c.id, 'child_state', coalesce(o.status, t.state), 'number', coalesce(o.number, t.number), 'error', o.error, 'trouble', t.trouble, 'progress', t.progress,
                       'host', x.host, 'pid', x.pid, 'folder', x.folder, 'ceiling_at', x.ceiling_at,
                       'holder_lives', case when t.holder is not null then exists (select from fencepost.incarnation i where i.id = t.holder and i.ended is null) end,
                       'outputs', (select jsonb_object_agg(q.name, jsonb_strip_nulls(jsonb_build_object('media_type', q.media_type, 'size', q.size, 'digest', q.digest,
                                     'text', q.text, 'place', q.place))) from fencepost.result q where q.rid = v.rid and q.step = s.no)) order by s.no), '[]')
                       from fencepost.step s
                       left join lateral (select c.id from fencepost.run c where c.rid = s.child limit 1) c on true
                       left join lateral (select o.status, o.number, o.error from fencepost.outcome o where o.rid = s.child limit 1) o on true
                       left join lateral (select t.* from fencepost.task t where t.rid = s.child limit 1) t on true
                       left join lateral (select x.* from fencepost.process x where x.rid = s.child order by x.number desc limit 1) x on true
                      where s.rid = v.rid and (not _busy or s.state in ('running', 'waiting', 'unknown'))))
    from v
$law$;

create function fencepost.read_result(_org text, _id text, _step text, _name text)
returns table (media_type text, size bigint, digest text, text text, place text, rid bigint) language sql stable as $law$
  select o.media_type, o.size, o.digest, o.text, o.place, o.rid
    from fencepost.run r join fencepost.step s on s.rid = r.rid join fencepost.result o on o.rid = s.rid and o.step = s.no
   where r.org = _org and r.id = _id and s.id = _step and o.name = _name
$law$;

-- Processes of a host whose fences are dead, for its workers to end.
create function fencepost.loose_(_boot_id text, _pid_namespace text) returns jsonb language plpgsql stable as $law$
begin
  return (select coalesce(jsonb_agg(jsonb_build_object('rid', p.rid, 'number', p.number, 'pid', p.pid, 'process_start', p.process_start, 'folder', p.folder)), '[]')
            from (select p.* from fencepost.process p where p.loose and p.boot_id = _boot_id and p.pid_namespace = _pid_namespace
                   order by p.rid, p.number limit 100) p);
end $law$;

-- Whoever saw them end says so. Takes no fence: theirs are dead, and nothing is decided by it. Returns how many were still looked for.
create function fencepost.clear_loose(_rids bigint[], _numbers integer[]) returns integer language plpgsql volatile as $law$
declare v_n integer;
begin
  update fencepost.process p set loose = false
    from unnest(_rids, _numbers) x(rid, number) where p.rid = x.rid and p.number = x.number and p.loose;
  get diagnostics v_n = row_count;
  return v_n;
end $law$;
