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
-- OWNS   policy; writes run, task (and event, where a run is re-entered)
-- LOCKS  run rows in the order of (org, id): one order for everybody

create table fencepost.policy (
  source     text collate "C" primary key,
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

-- Answers: created · replayed · recovered · conflict (then `stored` is the launch on record) · refused.
-- Workflows only; a plan comes with its steps (admit_plan, 70). `_patience_ms` null: in the caller's own transaction, with its settings.
create function fencepost.admit_launch(_org text, _id text, _name text, _lane integer, _release text, _input text, _source text,
  _priority integer, _on_lost text, _claim_ms bigint, _delay_ms bigint, _contract jsonb, _repair boolean, _patience_ms integer,
  out rid bigint, out answer text, out repair_needed boolean, out stored jsonb) language plpgsql volatile as $law$
#variable_conflict use_column
declare v_now timestamptz := fencepost.now_(); v_turn integer; v_asleep boolean; v_was text;
begin
  if _patience_ms is not null then          -- (an assignment runs no query)
    v_was := set_config('lock_timeout', _patience_ms::text, true);
    if current_setting('synchronous_commit') = 'off' then v_was := set_config('synchronous_commit', 'on', true); end if;
  end if;
  -- (Two statements and no third for what they have in common: to begin one costs more than to look a policy up twice.)
  insert into fencepost.run (org, id, kind, name, lane, release, source, priority, input, contract, on_lost, key_root, submitted_at)
  select _org, _id, 'workflow', _name, _lane, _release, p.source, coalesce(_priority, p.priority), _input, coalesce(_contract, '{}'),
         coalesce(_on_lost, 'replay'), gen_random_uuid(), v_now
    from fencepost.policy p where p.source = coalesce(_source, 'api') and fencepost.good_names_(_org, _id, _name)
  on conflict (org, id) do nothing returning run.rid, run.priority into rid, v_turn;
  if rid is not null then
    insert into fencepost.task (rid, lane, org, state, priority, ready_at, turn_at, due_at, claim_by, seq, on_lost)
    select rid, _lane, _org, 'queued', v_turn, v_now, v_now - v_turn * interval '60 s', i.later,
           case when i.bound >= 0 then coalesce(i.later, v_now) + i.bound * interval '1 ms' end, 1, coalesce(_on_lost, 'replay')
      from fencepost.policy p
      cross join lateral (select coalesce(_claim_ms, p.claim_ms) as bound, v_now + nullif(greatest(_delay_ms, 0), 0) * interval '1 ms' as later) i
     where p.source = coalesce(_source, 'api')
    returning exists (select from fencepost.sleeper s where s.lane = _lane) into v_asleep;
    if v_asleep then perform fencepost.rouse_(_lane, 1); end if;
    answer := 'created'; repair_needed := false;
    return;
  end if;
  if not coalesce(fencepost.good_names_(_org, _id, _name), false) or not exists (select from fencepost.policy p where p.source = coalesce(_source, 'api')) then
    answer := 'refused'; return;
  end if;
  -- A younger snapshot: it sees whom ON CONFLICT met.
  select x.rid, case when y.same then 'replayed' else 'conflict' end,
         not exists (select from fencepost.task t where t.rid = x.rid) and not exists (select from fencepost.outcome o where o.rid = x.rid),
         case when not y.same then jsonb_build_object('kind', x.kind, 'name', x.name, 'input', x.input::jsonb, 'contract', x.contract) end
    into rid, answer, repair_needed, stored
    from fencepost.run x
    cross join lateral (select x.kind = 'workflow' and x.name = _name and x.input::jsonb = _input::jsonb and x.contract = coalesce(_contract, '{}') as same) y
   where x.org = _org and x.id = _id;
  if not found then
    raise exception 'run % was forgotten while it was admitted again: ask again', quote_literal(_id) using errcode = '40001';
  end if;
  if _repair and repair_needed and answer = 'replayed' and fencepost.reenter_(rid, v_now) then
    answer := 'recovered'; repair_needed := false;
  end if;
end $law$;

create function fencepost.spread_(_said anyarray, _n integer) returns anyarray language sql immutable as $law$
  select case when cardinality(_said) = 1 then array_fill(_said[1], array[_n]) else _said end
$law$;

-- Launches by their ids. Of the other arrays an empty one says null of every launch and one of a single element says the same of all: an
-- element costs the driver as much as a whole argument does.
create function fencepost.launches_(_orgs text[], _ids text[], _names text[], _lanes integer[], _releases text[], _inputs text[], _sources text[],
  _priorities integer[], _on_losts text[], _claim_mss bigint[], _delay_mss bigint[], _contracts jsonb[])
returns table (org text, id text, name text, lane integer, release text, input text, source text, priority integer, on_lost text, claim_ms bigint,
  delay_ms bigint, contract jsonb, ord bigint) language sql immutable as $law$
  select * from unnest(fencepost.spread_(_orgs, cardinality(_ids)), _ids, fencepost.spread_(_names, cardinality(_ids)),
    fencepost.spread_(_lanes, cardinality(_ids)), fencepost.spread_(_releases, cardinality(_ids)), fencepost.spread_(_inputs, cardinality(_ids)),
    fencepost.spread_(_sources, cardinality(_ids)), fencepost.spread_(_priorities, cardinality(_ids)), fencepost.spread_(_on_losts, cardinality(_ids)),
    fencepost.spread_(_claim_mss, cardinality(_ids)), fencepost.spread_(_delay_mss, cardinality(_ids)), fencepost.spread_(_contracts, cardinality(_ids)))
    with ordinality
$law$;

-- Many, in one commit; each has the answer it would have alone.
create function fencepost.admit_launches(_orgs text[], _ids text[], _names text[], _lanes integer[], _releases text[],
  _inputs text[], _sources text[], _priorities integer[], _on_losts text[], _claim_mss bigint[], _delay_mss bigint[], _contracts jsonb[],
  _repair boolean, _patience_ms integer)
returns table (ord integer, rid bigint, answer text, repair_needed boolean, stored jsonb) language plpgsql volatile as $law$
#variable_conflict use_column
declare v_now timestamptz := fencepost.now_(); v_new bigint[]; v_asleep boolean; v_was text; v_seed uuid := gen_random_uuid();
begin
  v_was := set_config('lock_timeout', _patience_ms::text, true);
  if current_setting('synchronous_commit') = 'off' then v_was := set_config('synchronous_commit', 'on', true); end if;
  -- As if all of them were new and good, which is the commonest case: to look at each id first, and to enter it on trial, costs a launch
  -- an eighth more. No CTE is joined with another: both seem to hold one row, and n times n are compared.
  begin
    with i as materialized (
        select nextval('fencepost.run_rid_seq') as rid, s.* from (
          select i.*, coalesce(i.priority, p.priority) as turn, coalesce(i.claim_ms, p.claim_ms) as bound, v_now + nullif(greatest(i.delay_ms, 0), 0) * interval '1 ms' as later
            from fencepost.launches_(_orgs, _ids, _names, _lanes, _releases, _inputs, _sources, _priorities, _on_losts, _claim_mss, _delay_mss, _contracts) i
            left join lateral (select p.priority, p.claim_ms from fencepost.policy p where p.source = coalesce(i.source, 'api') limit 1) p on true
           order by i.org collate "C", i.id collate "C") s),
      r as (insert into fencepost.run (rid, org, id, kind, name, lane, release, source, priority, input, contract, on_lost, key_root, submitted_at)
            overriding system value
            select i.rid, i.org, i.id, 'workflow', i.name, i.lane, i.release, coalesce(i.source, 'api'), i.turn, i.input, coalesce(i.contract, '{}'),
                   coalesce(i.on_lost, 'replay'), fencepost.random_id_(v_seed, i.rid), v_now from i),
      t as (insert into fencepost.task (rid, lane, org, state, priority, ready_at, turn_at, due_at, claim_by, seq, on_lost)
            select i.rid, i.lane, i.org, 'queued', i.turn, v_now, v_now - i.turn * interval '60 s', i.later,
                   case when i.bound >= 0 then coalesce(i.later, v_now) + i.bound * interval '1 ms' end, 1, coalesce(i.on_lost, 'replay') from i)
    select array_agg(i.rid order by i.ord), exists (select from fencepost.sleeper s where s.lane = any (_lanes)) into v_new, v_asleep from i;
  exception when unique_violation or check_violation or not_null_violation then
    -- An id that is taken, a name that is none, a source that has no policy: each by itself, in the same order.
    return query
      select i.ord::integer, a.rid, a.answer, a.repair_needed, a.stored
        from (select i.* from fencepost.launches_(_orgs, _ids, _names, _lanes, _releases, _inputs, _sources, _priorities, _on_losts, _claim_mss,
                                _delay_mss, _contracts) i
               order by i.org collate "C", i.id collate "C", i.ord) i
       cross join lateral fencepost.admit_launch(i.org, i.id, i.name, i.lane, i.release, i.input, i.source, i.priority, i.on_lost, i.claim_ms,
                     i.delay_ms, i.contract, _repair, _patience_ms) a
       order by i.ord;
    return;
  end;
  if v_asleep then
    perform fencepost.rouse_(l.lane, least(l.n, 16)::integer) from (select l.lane, count(*) as n from unnest(fencepost.spread_(_lanes, cardinality(_ids))) l(lane) group by l.lane) l;
  end if;
  return query select n.ord::integer, n.rid, 'created'::text, false, null::jsonb from unnest(v_new) with ordinality as n(rid, ord);
end $law$;

create function fencepost.good_name_(_name text) returns boolean language sql immutable as $law$
  select _name is not null and length(_name) between 1 and 200 and _name !~ '[\u0001-\u001f\u007f-\u009f\u2028\u2029]' and btrim(_name) <> ''
$law$;

-- 30.5. The entry continues the numbers and the sequence that the run's history already used. False: somebody else was first.
create function fencepost.reenter_(_rid bigint, _now timestamptz) returns boolean language plpgsql volatile as $law$
declare v_run fencepost.run; v_seq integer;
begin
  select r.* into v_run from fencepost.run r where r.rid = _rid;
  select greatest(1, coalesce((select max(e.seq) from fencepost.event e where e.rid = v_run.rid), 0),
                     coalesce((select max(greatest(b.seq, b.opened_seq)) from fencepost.boundary b where b.rid = v_run.rid), 0),
                     coalesce((select max(greatest(w.seq, w.opened_seq)) from fencepost.map m join fencepost.row w on w.mid = m.mid where m.rid = v_run.rid), 0)) + 1
    into v_seq;
  insert into fencepost.task (rid, lane, org, state, park, opaque, priority, ready_at, turn_at, number, seq, on_lost, parent)
  values (v_run.rid, v_run.lane, v_run.org, case v_run.kind when 'plan' then 'parked' else 'queued' end, case v_run.kind when 'plan' then 'plan' end,
          v_run.kind = 'step', v_run.priority, _now, _now - v_run.priority * interval '60 s',
          coalesce((select max(a.number) from fencepost.attempt a where a.rid = v_run.rid), 0), v_seq, v_run.on_lost, v_run.parent)
  on conflict do nothing;
  if not found then return false; end if;
  insert into fencepost.event (rid, seq, at, type) values (v_run.rid, v_seq, _now, 'run.recovered');
  return true;
end $law$;

-- For SQL callers, in their own transaction: the same words as Python's `app.start`. A release that was never registered
-- is refused: the run would wait in a lane that no worker serves.
create function fencepost.admit_run(name text, input jsonb default 'null', id text default null, org text default 'default',
  release text default 'dev', source text default 'program', priority integer default null, on_lost text default null)
returns table (answer text, run_id text, differs jsonb) language plpgsql volatile as $law$
#variable_conflict use_variable
declare v_lane integer; v_answer text; v_stored jsonb; v_id text := coalesce(id,
  -- The time first, as the client does it: new ids stand beside each other in the index.
  'run-' || lpad(to_hex((extract(epoch from fencepost.now_()) * 1000)::bigint), 12, '0') || right(replace(gen_random_uuid()::text, '-', ''), 20));
begin
  select r.lane into v_lane from fencepost.register_lane(release) r where r.answer = 'registered';
  if v_lane is null then
    raise exception 'release % names no lane of its own', quote_literal(release) using errcode = '22023',
      hint = 'choose another release id; `fencepost lanes list` shows who has which lane';
  end if;
  select a.answer, a.stored into v_answer, v_stored
    from fencepost.admit_launch(org, v_id, name, v_lane, release, input::text, source, priority, on_lost, -1, null, null, false, null) a;
  if v_answer = 'refused' then
    raise exception 'a run needs a name, an id and an organisation of 1 to 200 characters without control characters, and a known source'
      using errcode = '22023';
  end if;
  return query select v_answer, v_id, v_stored;
end $law$;
