-- 30_admission.sql: how a run comes to be.
--
-- LAW    30.1   run and queue entry commit together
--        30.2   a run id is unique in its organisation: one `created`, the others `replayed`
--        30.3   the same id with another launch is `conflict`; nothing changes
--        30.4   the launch: kind, name, input as given and contract, compared as jsonb
--        30.5   a queued run that lost its entry is re-entered only when asked
--        30.6   bad ids and names are refused before any write
--        30.7   policy by source
--        30.8   the claim bound ends with the first claim; whoever waits may ask for the verdict (judge_bound, 80)
--        30.9   past its bound a run ends ADMISSION_EXPIRED (expire_, 80); what has no bound never does
--        30.10  admission works inside the caller's own transaction
--        00.13  an item that is refused changes no other; with `_patience_ms` a twin still uncommitted elsewhere is weather
-- OWNS   policy; writes run, task, event
-- LOCKS  run rows in the order of (org, id): one order for everybody

create table fencepost.policy (
  source     text primary key,
  priority   integer not null,
  claim_ms   bigint,                        -- longest wait to be claimed; null: for ever
  sandbox_ms bigint
);
insert into fencepost.policy (source, priority, claim_ms, sandbox_ms) values
  ('api', 100, 10000, 0), ('webhook', 0, null, null), ('cron', -10, 1800000, 1800000),
  ('sql_listener', -10, 1800000, 1800000), ('async_child', 0, null, null), ('program', 0, null, null);

-- Wakes as many sleepers as there is work for, and one more, for a sleeper may have died in its sleep; a herd for one run would
-- stampede the claim. Whom, is left to chance: many admissions of one transaction, none of which sees what the others did, wake many.
create function fencepost.rouse_(_lane integer, _most integer) returns void language plpgsql volatile as $law$
begin
  perform pg_notify(fencepost.channel_(left(replace(s.holder::text, '-', ''), 24)), 'work')
     from (select s.holder from fencepost.sleeper s where s.lane = _lane order by random() limit _most + 1) s;
end $law$;

-- One launch, the commonest case: what the statement for many below does (a test compares the two), without the machinery of sets, which
-- costs a lone call more than its three rows.
create function fencepost.admit_one_(_org text, _id text, _name text, _lane integer, _release text, _source text, _priority integer,
  _input text, _contract jsonb, _on_lost text, _claim_ms bigint, _delay_ms bigint, _now timestamptz) returns bigint[] language plpgsql volatile as $law$
declare v_policy record; v_rid bigint; v_turn integer; v_bound bigint; v_later timestamptz := _now + _delay_ms * interval '1 ms';
begin
  select p.priority, p.claim_ms, exists (select from fencepost.sleeper s where s.lane = _lane) as asleep into v_policy
    from fencepost.policy p where p.source = coalesce(_source, 'api');
  if not found or fencepost.good_names_(_org, _id, _name) is not true then return '{}'; end if;
  v_turn := coalesce(_priority, v_policy.priority);
  v_bound := coalesce(_claim_ms, v_policy.claim_ms);
  insert into fencepost.run (org, id, kind, name, lane, release, source, priority, input, contract, on_lost, key_root, submitted_at)
  values (_org, _id, 'workflow', _name, _lane, _release, coalesce(_source, 'api'), v_turn, _input, coalesce(_contract, '{}'), coalesce(_on_lost, 'replay'),
          gen_random_uuid(), _now)
  on conflict (org, id) do nothing returning rid into v_rid;
  if v_rid is null then return '{}'; end if;
  insert into fencepost.task (rid, lane, org, state, priority, ready_at, turn_at, due_at, claim_by, seq, on_lost)
  values (v_rid, _lane, _org, 'queued', v_turn, _now, _now - v_turn * interval '60 s', case when _delay_ms > 0 then v_later end,
          case when v_bound >= 0 then coalesce(v_later, _now) + v_bound * interval '1 ms' end, 1, coalesce(_on_lost, 'replay'));
  insert into fencepost.event (rid, seq, at, type) values (v_rid, 1, _now, 'run.admitted');
  if v_policy.asleep then perform fencepost.rouse_(_lane, 1); end if;
  return array[v_rid];
end $law$;

-- Answers: created · replayed · recovered · conflict (then `stored` is the launch on record) · refused.
-- Workflows only; a plan comes with its steps (admit_plan, 70). An array that is empty says null of every launch.
create function fencepost.admit_runs(_orgs text[], _ids text[], _names text[], _lanes integer[], _releases text[],
  _sources text[], _priorities integer[], _inputs text[], _contracts jsonb[], _on_losts text[], _claim_mss bigint[],
  _delay_mss bigint[], _repair boolean, _patience_ms integer)
returns table (ord integer, rid bigint, answer text, repair_needed boolean, stored jsonb) language plpgsql volatile as $law$
#variable_conflict use_column
declare v_now timestamptz := fencepost.now_(); v_new bigint[]; v_fixed bigint[] := '{}'; v_asleep boolean; v_was text;
begin
  if _patience_ms is not null then          -- (an assignment runs no query)
    v_was := set_config('lock_timeout', _patience_ms::text, true);
    if current_setting('synchronous_commit') = 'off' then v_was := set_config('synchronous_commit', 'on', true); end if;
  end if;
  if cardinality(_ids) = 1 then
    v_new := fencepost.admit_one_(_orgs[1], _ids[1], _names[1], _lanes[1], _releases[1], _sources[1], _priorities[1], _inputs[1],
      _contracts[1], _on_losts[1], _claim_mss[1], _delay_mss[1], v_now);
    if v_new <> '{}' then
      ord := 1; rid := v_new[1]; answer := 'created'; repair_needed := false; return next; return;
    end if;
  else
    -- An id that is taken uses up the number that was drawn for it. `(… in …) is true` is a look into a hash: no CTE may be joined with
    -- another, for both seem to hold one row and n times n are compared; and so they are by `any (array …)`.
    with i as materialized (
        select nextval('fencepost.run_rid_seq') as rid, s.* from (
          select i.*, coalesce(i.priority, p.priority) as turn, coalesce(i.claim_ms, p.claim_ms) as bound, v_now + i.delay_ms * interval '1 ms' as later
            from unnest(_orgs, _ids, _names, _lanes, _releases, _sources, _priorities, _inputs, _contracts, _on_losts, _claim_mss, _delay_mss)
                 with ordinality as i(org, id, name, lane, release, source, priority, input, contract, on_lost, claim_ms, delay_ms, ord)
            cross join lateral (select p.priority, p.claim_ms from fencepost.policy p where p.source = coalesce(i.source, 'api') limit 1) p
           where fencepost.good_names_(i.org, i.id, i.name)
           order by i.org collate "C", i.id collate "C", i.ord) s),
      r as (insert into fencepost.run (rid, org, id, kind, name, lane, release, source, priority, input, contract, on_lost, key_root, submitted_at)
            overriding system value
            select i.rid, i.org, i.id, 'workflow', i.name, i.lane, i.release, coalesce(i.source, 'api'), i.turn, i.input, coalesce(i.contract, '{}'),
                   coalesce(i.on_lost, 'replay'), gen_random_uuid(), v_now from i
            on conflict (org, id) do nothing
            returning rid),
      n as materialized (select i.* from i where (i.rid in (select r.rid from r)) is true),
      t as (insert into fencepost.task (rid, lane, org, state, priority, ready_at, turn_at, due_at, claim_by, seq, on_lost)
            select n.rid, n.lane, n.org, 'queued', n.turn, v_now, v_now - n.turn * interval '60 s', case when n.delay_ms > 0 then n.later end,
                   case when n.bound >= 0 then coalesce(n.later, v_now) + n.bound * interval '1 ms' end, 1, coalesce(n.on_lost, 'replay') from n),
      e as (insert into fencepost.event (rid, seq, at, type) select n.rid, 1, v_now, 'run.admitted' from n)
    select coalesce(array_agg(n.rid order by n.ord), '{}'), exists (select from fencepost.sleeper s where s.lane = any (_lanes)) into v_new, v_asleep from n;
    if v_asleep and v_new <> '{}' then
      perform fencepost.rouse_(l.lane, least(l.n, 16)::integer) from (select l.lane, count(*) as n from unnest(_lanes) l(lane) group by l.lane) l;
    end if;
  end if;
  if _repair then
    v_fixed := fencepost.reenter_(_orgs, _ids, v_now);
  end if;
  if cardinality(v_new) = cardinality(_ids) then
    return query select n.ord::integer, n.rid, 'created'::text, false, null::jsonb from unnest(v_new) with ordinality as n(rid, ord);
    return;
  end if;
  -- A younger snapshot: it sees whom ON CONFLICT met.
  return query
    select i.ord::integer, x.rid,
           case when x.rid is null then 'refused'
                when x.rid = any (v_new) and i.ord = (select min(j.ord) from unnest(_orgs, _ids) with ordinality j(org, id, ord) where j.org = i.org and j.id = i.id)
                  then 'created'
                when x.kind <> 'workflow' or x.name <> i.name or x.input::jsonb <> i.input::jsonb or x.contract <> coalesce(i.contract, '{}') then 'conflict'
                when x.rid = any (v_fixed) then 'recovered'
                else 'replayed' end,
           x.rid is not null and not x.entered,
           case when x.kind <> 'workflow' or x.name <> i.name or x.input::jsonb <> i.input::jsonb or x.contract <> coalesce(i.contract, '{}')
                then jsonb_build_object('kind', x.kind, 'name', x.name, 'input', x.input::jsonb, 'contract', x.contract) end
      from unnest(_orgs, _ids, _names, _inputs, _contracts) with ordinality as i(org, id, name, input, contract, ord)
      left join lateral (
        select x.rid, x.kind, x.name, x.input, x.contract,
               x.rid = any (v_new) or exists (select from fencepost.task t where t.rid = x.rid)
                 or exists (select from fencepost.outcome o where o.rid = x.rid) as entered
          from fencepost.run x where x.org = i.org and x.id = i.id limit 1) x on true
     order by i.ord;
end $law$;

create function fencepost.good_name_(_name text) returns boolean language sql immutable as $law$
  select _name is not null and length(_name) between 1 and 200 and _name !~ '[[:cntrl:]]' and btrim(_name) <> ''
$law$;

-- 30.5. The entry continues the numbers and the sequence that the run's history already used.
create function fencepost.reenter_(_orgs text[], _ids text[], _now timestamptz) returns bigint[] language plpgsql volatile as $law$
declare v_run record; v_seq integer; v_fixed bigint[] := '{}';
begin
  for v_run in
    select r.* from unnest(_orgs, _ids) as i(org, id) cross join lateral (select r.* from fencepost.run r where r.org = i.org and r.id = i.id limit 1) r
     where not exists (select from fencepost.task t where t.rid = r.rid) and not exists (select from fencepost.outcome o where o.rid = r.rid)
     order by r.rid
  loop
    select greatest(1, coalesce((select max(e.seq) from fencepost.event e where e.rid = v_run.rid), 0),
                       coalesce((select max(greatest(b.seq, b.opened_seq)) from fencepost.boundary b where b.rid = v_run.rid), 0),
                       coalesce((select max(greatest(w.seq, w.opened_seq)) from fencepost.map m join fencepost.row w on w.mid = m.mid where m.rid = v_run.rid), 0)) + 1
      into v_seq;
    insert into fencepost.task (rid, lane, org, state, park, opaque, priority, ready_at, turn_at, number, seq, on_lost, parent)
    values (v_run.rid, v_run.lane, v_run.org, case v_run.kind when 'plan' then 'parked' else 'queued' end, case v_run.kind when 'plan' then 'plan' end,
            v_run.kind = 'step', v_run.priority, _now, _now - v_run.priority * interval '60 s',
            coalesce((select max(a.number) from fencepost.attempt a where a.rid = v_run.rid), 0), v_seq, v_run.on_lost, v_run.parent)
    on conflict do nothing;
    if found then
      insert into fencepost.event (rid, seq, at, type) values (v_run.rid, v_seq, _now, 'run.recovered');
      v_fixed := v_fixed || v_run.rid;
    end if;
  end loop;
  return v_fixed;
end $law$;

-- For SQL callers, in their own transaction: the same words as Python's `app.start`. A release that was never registered
-- is refused: the run would wait in a lane that no worker serves.
create function fencepost.admit_run(name text, input jsonb default 'null', id text default null, org text default 'default',
  release text default 'dev', source text default 'program', priority integer default null, on_lost text default null)
returns table (answer text, run_id text, differs jsonb) language plpgsql volatile as $law$
#variable_conflict use_variable
declare v_lane integer; v_id text := coalesce(id, 'run-' || gen_random_uuid()); v_answer text; v_stored jsonb;
begin
  select r.lane into v_lane from fencepost.register_lane(release) r where r.answer = 'registered';
  if v_lane is null then
    raise exception 'release % names no lane of its own', quote_literal(release) using errcode = '22023',
      hint = 'choose another release id; `fencepost lanes list` shows who has which lane';
  end if;
  select a.answer, a.stored into v_answer, v_stored
    from fencepost.admit_runs(array[org], array[v_id], array[name], array[v_lane], array[release], array[source],
           array[priority], array[input::text], '{}', array[on_lost], array[-1::bigint], '{}', false, null) a;
  if v_answer is null or v_answer = 'refused' then
    raise exception 'a run needs a name, an id and an organisation of 1 to 200 characters without control characters, and a known source'
      using errcode = '22023';
  end if;
  return query select v_answer, v_id, v_stored;
end $law$;
