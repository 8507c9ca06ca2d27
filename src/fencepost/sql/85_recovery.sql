-- 85_recovery.sql: what becomes of work whose worker is gone, and how the unknown is resolved.
--
-- LAW    85.1   verdicts are unique: a lost attempt has left its holder, so no second sweep finds it
--        85.2   a verdict is conditional on the row it was decided on, under that row's lock; it never claims
--        85.3   from silence: a full lease observed by this observer's incarnation, counted anew after it was deaf; or proof of death
--        85.4   recovery needs no queue: any worker's beat does it, in bounded pieces; what a fault cuts off the next beat finds
--        85.5   unknown steps, rows and attempts are resolved once, with an audit line; redrive is a new admission
--        85.6   sweeps are bounded, skip what is locked, and page on
--        85.7   one rule of loss: replay | fail | ask, as stored at admission
--        40.9   a beat names its incarnation; an ended one is told `buried`
--        40.11  close_incarnation: the stopping worker records what still runs as lost itself
--        40.12  the beat, and the deadline that any beat enforces a lease after it
--        40.14  what an answered request gave and the worker does not hold goes back; what it holds and has lost is named
--        40.15  five losses without a committed boundary: LOST_TOO_OFTEN
-- OWNS   incarnation; writes task, attempt, boundary, outcome, event
-- LOCKS  incarnations by id, then run rows ascending with their ancestors, skipping what is locked

-- THE RULE OF LOSS. The caller holds the row and its ancestors. `_reason` is kept with the attempt.
create function fencepost.lose_(_rid bigint, _reason text, _now timestamptz) returns text language plpgsql volatile as $law$
declare t record; v_error text; v_code text;
begin
  select x.* into t from fencepost.task x where x.rid = _rid and x.fence is not null;
  if not found then return 'nothing'; end if;
  if t.state = 'cancelling' then
    perform fencepost.close_leg_(array[_rid], 'lost', _reason, _now);
    perform fencepost.let_go_(_rid, _now);
    return 'cancelled';
  end if;
  if not t.begun then
    perform fencepost.return_(_rid, _reason, _now);
    return 'given_back';
  end if;
  v_error := json_build_object('code', 'RUNNER_LOST', 'message', format('attempt %s was lost (%s)', t.number, _reason), 'attempt', t.number)::text;
  if t.on_lost = 'fail' and not fencepost.has_unknown_(_rid) then
    update fencepost.task x set tries = t.tries + 1 where x.rid = _rid;
    perform fencepost.end_runs_(array[_rid], array['failed'], array[null::text], array[v_error], 'lost', _now);
    return 'failed';
  end if;
  perform fencepost.close_leg_(array[_rid], 'lost', _reason, _now);
  insert into fencepost.event (rid, seq, at, type, number, data)
  values (_rid, t.seq + 1, _now, 'attempt.lost', t.number, jsonb_build_object('reason', _reason, 'holder', t.holder));
  v_code := case when t.on_lost <> 'replay' then 'RUNNER_LOST' when t.losses + 1 >= 5 then 'LOST_TOO_OFTEN' end;
  if v_code is null then
    update fencepost.task x
       set state = 'queued', tries = t.tries + 1, losses = t.losses + 1, fence = null, holder = null, request = null, claimed_at = null, begun = false,
           ready_at = _now, turn_at = _now - t.priority * interval '60 s', seq = t.seq + 1
     where x.rid = _rid;
    perform fencepost.rouse_(t.lane, 1);
    return 'replay';
  end if;
  update fencepost.task x
     set state = 'unknown', unknown = v_code, tries = t.tries + 1, losses = t.losses + 1, fence = null, holder = null, request = null, claimed_at = null,
         begun = false, seq = t.seq + 2,
         trouble = case v_code when 'RUNNER_LOST' then v_error
                   else json_build_object('code', v_code, 'message', format('%s losses without a newly committed boundary, the last: %s', t.losses + 1, _reason))::text end
   where x.rid = _rid;
  insert into fencepost.event (rid, seq, at, type, number, data)
  values (_rid, t.seq + 2, _now, 'run.unknown', t.number, jsonb_build_object('code', v_code));
  return 'unknown';
end $law$;

-- Locks what is free of the given runs and their ancestors; returns those runs of which all were got.
create function fencepost.seize_(_rids bigint[]) returns bigint[] language plpgsql volatile as $law$
declare v_locked bigint[];
begin
  select array_agg(l.rid) into v_locked from (
    select t.rid from fencepost.task t where t.rid = any (_rids || array(select a.rid from fencepost.ancestors_(_rids) a(rid)))
     order by t.rid for no key update skip locked) l;
  return array(select r.rid from unnest(_rids) r(rid) where r.rid = any (v_locked)
                  and not exists (select from fencepost.ancestors_(array[r.rid]) a(rid) where not (a.rid = any (v_locked))) order by r.rid);
end $law$;

-- Loses what the given incarnations still hold, at most `_most`. Returns how many.
create function fencepost.reap_(_holders uuid[], _reason text, _most integer, _now timestamptz) returns integer language plpgsql volatile as $law$
declare v_rids bigint[]; v_rid bigint; v_n integer := 0;
begin
  select array_agg(t.rid order by t.rid) into v_rids from (
    select t.rid from unnest(_holders) i(id) cross join lateral (select t.rid from fencepost.task t where t.holder = i.id) t limit _most) t;
  if v_rids is null then return 0; end if;
  foreach v_rid in array fencepost.seize_(v_rids) loop
    -- Again under the lock (85.2): whoever finished in the meantime is not lost.
    if exists (select from fencepost.task t where t.rid = v_rid and t.holder = any (_holders)) then
      perform fencepost.lose_(v_rid, _reason, _now);
      v_n := v_n + 1;
    end if;
  end loop;
  return v_n;
end $law$;

-- One door for a worker's heartbeat and everybody's sweeps. `_held_*` and `_answered` were published together by the loop.
-- `_dead`: incarnations of this host (same boot id and pid namespace) whose process this one has seen to be gone.
-- The answer: {buried, cancel: [{rid, number, reason}], lost: [{rid, number}], peers: [{id, pid, process_start}], due_ms, woken, reaped}.
create function fencepost.beat(_id uuid, _answered bigint, _held_rids bigint[], _held_numbers integer[], _dead uuid[]) returns jsonb language plpgsql volatile as $law$
declare v_now timestamptz := fencepost.enter_(); me record; v_rids bigint[]; v_rid bigint; v_silent uuid[]; v_reaped integer := 0; v_woken integer; v_due timestamptz;
  v_lost jsonb; v_cancel jsonb; v_peers jsonb;
begin
  select i.* into me from fencepost.incarnation i where i.id = _id for no key update;
  if not found or me.ended is not null then return jsonb_build_object('buried', true); end if;
  -- Deaf for two beats: silence is counted from now (85.3).
  if v_now - me.heard_at > 2 * me.beat_ms * interval '1 ms' then me.observing_since := v_now; end if;
  update fencepost.incarnation i
     set heard_at = v_now, observing_since = me.observing_since, answered = least(i.request, greatest(i.answered, _answered)) where i.id = _id;

  -- 40.14: given by an answered request, not held.
  select array_agg(t.rid) into v_rids from fencepost.task t
   where t.holder = _id and t.request <= _answered
     and not exists (select from unnest(_held_rids, _held_numbers) h(rid, number) where h.rid = t.rid and h.number = t.number);
  if v_rids is not null then
    foreach v_rid in array fencepost.seize_(v_rids) loop
      if exists (select from fencepost.task t where t.rid = v_rid and t.holder = _id and t.request <= _answered and t.state = 'running') then
        perform fencepost.return_(v_rid, 'not_held', v_now);
      else
        perform fencepost.lose_(v_rid, 'not_held', v_now) from fencepost.task t where t.rid = v_rid and t.holder = _id and t.request <= _answered;
      end if;
    end loop;
  end if;

  v_reaped := fencepost.inquire_(_id, me.boot_id, me.pid_namespace, me.observing_since, _dead, v_now);
  v_reaped := v_reaped + fencepost.reap_late_(v_now);
  v_woken := fencepost.wake_due_(me.lane, 500, v_now);
  perform fencepost.expire_(fencepost.seize_(array(select t.rid from fencepost.task t where t.claim_by <= v_now order by t.claim_by limit 100)), v_now);
  foreach v_rid in array fencepost.seize_(array(select t.rid from fencepost.task t where t.state = 'cancelling' and t.cancel_until <= v_now order by t.cancel_until limit 100)) loop
    perform fencepost.lose_(v_rid, 'grace_over', v_now);
    perform fencepost.let_go_(v_rid, v_now);
  end loop;

  -- What the worker believes to hold and does not; what it holds and should stop.
  select jsonb_agg(jsonb_build_object('rid', h.rid, 'number', h.number)) into v_lost from unnest(_held_rids, _held_numbers) h(rid, number)
   where not exists (select from fencepost.task t where t.rid = h.rid and t.number = h.number and t.holder = _id);
  select jsonb_agg(jsonb_build_object('rid', t.rid, 'number', t.number, 'reason', t.cancel_reason)) into v_cancel
    from unnest(_held_rids) h(rid) cross join lateral (select t.* from fencepost.task t where t.rid = h.rid and t.holder = _id and t.state = 'cancelling') t;
  select jsonb_agg(jsonb_build_object('id', i.id, 'pid', i.pid, 'process_start', i.process_start)) into v_peers
    from (select i.* from fencepost.incarnation i
           where i.boot_id = me.boot_id and i.pid_namespace = me.pid_namespace and i.gone_at is null and i.id <> _id order by i.started_at desc limit 200) i;
  select min(t.due_at) into v_due from (select t.due_at from fencepost.task t where t.lane = me.lane and t.due_at is not null order by t.due_at limit 1) t;
  return jsonb_build_object('buried', false, 'lost', coalesce(v_lost, '[]'), 'cancel', coalesce(v_cancel, '[]'), 'peers', coalesce(v_peers, '[]'),
    'due_ms', case when v_due is not null then greatest(0, ceil(extract(epoch from v_due - v_now) * 1000))::bigint end, 'woken', v_woken, 'reaped', v_reaped);
end $law$;

-- 85.3. Ends incarnations that are proven gone or silent for a full lease of observation, and loses what ended ones hold.
create function fencepost.inquire_(_me uuid, _boot_id text, _pid_namespace text, _observing_since timestamptz, _dead uuid[], _now timestamptz) returns integer language plpgsql volatile as $law$
declare v_gone uuid[]; v_silent uuid[]; v_n integer := 0;
begin
  select array_agg(i.id) into v_gone from (
    select i.id from fencepost.incarnation i
     where i.id = any (_dead) and i.id <> _me and i.boot_id = _boot_id and i.pid_namespace = _pid_namespace and i.gone_at is null
     order by i.id for no key update skip locked) i;
  if v_gone is not null then
    update fencepost.incarnation i set gone_at = _now, ended_at = coalesce(i.ended_at, _now), ended = coalesce(i.ended, 'proven') where i.id = any (v_gone);
    delete from fencepost.sleeper s where s.holder = any (v_gone);
  end if;
  select array_agg(i.id) into v_silent from (
    select i.id from fencepost.incarnation i
     where i.ended is null and i.id <> _me and i.heard_at < _now - i.lease_ms * interval '1 ms'
       and greatest(i.heard_at, _observing_since) <= _now - i.lease_ms * interval '1 ms'
     order by i.id limit 100 for no key update skip locked) i;
  if v_silent is not null then
    update fencepost.incarnation i set ended_at = _now, ended = 'silent' where i.id = any (v_silent);
    delete from fencepost.sleeper s where s.holder = any (v_silent);
  end if;
  -- Also what an earlier sweep ended and could not finish (85.4).
  v_n := fencepost.reap_(array(
    select i.id from fencepost.incarnation i where i.ended is not null and i.ended_at > _now - interval '30 days'
       and exists (select from fencepost.task t where t.holder = i.id) order by i.ended_at limit 20), 'holder_gone', 100, _now);
  return v_n;
end $law$;

-- 40.12. A step's durable deadline, a lease past: the attempt is fenced out, however healthy its worker's heartbeat.
create function fencepost.reap_late_(_now timestamptz) returns integer language plpgsql volatile as $law$
declare v_rids bigint[]; v_rid bigint; v_n integer := 0;
begin
  select array_agg(distinct b.rid) into v_rids from (
    select b.rid from fencepost.boundary b
      cross join lateral (select t.fence, t.holder from fencepost.task t where t.rid = b.rid and t.fence = b.fence limit 1) t
      cross join lateral (select i.lease_ms from fencepost.incarnation i where i.id = t.holder limit 1) i
     where b.state = 'marked' and b.until is not null and b.until <= _now - i.lease_ms * interval '1 ms' order by b.until limit 100) b;
  if v_rids is null then return 0; end if;
  foreach v_rid in array fencepost.seize_(v_rids) loop
    if exists (select from fencepost.boundary b join fencepost.task t on t.rid = b.rid and t.fence = b.fence
                where b.rid = v_rid and b.state = 'marked' and b.until <= _now) then
      perform fencepost.lose_(v_rid, 'deadline_passed', _now);
      v_n := v_n + 1;
    end if;
  end loop;
  return v_n;
end $law$;

-- 40.11. At the end of the drain: what still runs is lost, by its own worker's word; then the incarnation is closed.
create function fencepost.close_incarnation(_id uuid) returns integer language plpgsql volatile as $law$
declare v_now timestamptz := fencepost.enter_(); v_rid bigint; v_n integer := 0;
begin
  perform from fencepost.incarnation i where i.id = _id for no key update;
  perform from fencepost.task t where t.rid = any (
    array(select t.rid from fencepost.task t where t.holder = _id) || array(select a.rid from fencepost.ancestors_(array(select t.rid from fencepost.task t where t.holder = _id)) a(rid)))
    order by t.rid for no key update;
  for v_rid in select t.rid from fencepost.task t where t.holder = _id order by t.rid loop
    perform fencepost.lose_(v_rid, 'worker_stopped', v_now);
    v_n := v_n + 1;
  end loop;
  update fencepost.incarnation i set ended_at = v_now, ended = 'closed' where i.id = _id and i.ended is null;
  delete from fencepost.sleeper s where s.holder = _id;
  return v_n;
end $law$;

-- 50.4. What is parked on its code and belongs to a workflow whose code is another now is claimed again. Also records what this
-- incarnation can run, for `explain` and for clients that look for a live worker.
create function fencepost.register_workflows(_id uuid, _lane integer, _names text[], _digests text[]) returns integer language plpgsql volatile as $law$
declare v_now timestamptz := fencepost.enter_(); v_rid bigint; v_n integer := 0;
begin
  update fencepost.incarnation i set workflows = _names where i.id = _id;
  for v_rid in select t.rid from fencepost.task t cross join lateral (select r.name from fencepost.run r where r.rid = t.rid limit 1) r
     where t.lane = _lane and t.park = 'code' and t.state = 'parked' and array_position(_names, r.name) is not null
       and t.code_digest <> _digests[array_position(_names, r.name)] order by t.rid for no key update of t skip locked loop
    perform fencepost.unpark_(v_rid, v_now);
    v_n := v_n + 1;
  end loop;
  return v_n;
end $law$;

create function fencepost.unpark_(_rid bigint, _now timestamptz) returns void language plpgsql volatile as $law$
declare t record;
begin
  update fencepost.task x
     set state = 'queued', park = null, code_digest = null, unknown = null, trouble = null, due_at = null, losses = 0, ready_at = _now,
         turn_at = _now - x.priority * interval '60 s', seq = x.seq + 1
   where x.rid = _rid returning x.seq, x.number, x.lane into t;
  insert into fencepost.event (rid, seq, at, type, number) values (_rid, t.seq, _now, 'run.woken', nullif(t.number, 0));
  perform fencepost.rouse_(t.lane, 1);
end $law$;

-- An operator's word: a run parked on its code is tried again, one that waits in the line for an hour is due now.
-- Answers: done · refused (then `state`) · unknown_run.
create function fencepost.wake_run(_org text, _id text) returns table (answer text, state text) language plpgsql volatile as $law$
#variable_conflict use_column
declare v_now timestamptz := fencepost.enter_(); v_rid bigint; t record;
begin
  select r.rid into v_rid from fencepost.run r where r.org = _org and r.id = _id;
  if v_rid is null then return query select 'unknown_run', null::text; return; end if;
  perform from fencepost.task x where x.rid = v_rid for no key update;
  select x.* into t from fencepost.task x where x.rid = v_rid;
  if not found then return query select 'refused', o.status from fencepost.outcome o where o.rid = v_rid; return; end if;
  if t.state = 'parked' and t.park = 'code' then
    perform fencepost.unpark_(v_rid, v_now);
  elsif t.state = 'queued' and t.due_at is not null then
    update fencepost.task x set due_at = null, ready_at = v_now, turn_at = v_now - x.priority * interval '60 s', seq = x.seq + 1 where x.rid = v_rid;
    insert into fencepost.event (rid, seq, at, type, number) values (v_rid, t.seq + 1, v_now, 'run.woken', nullif(t.number, 0));
    perform fencepost.rouse_(t.lane, 1);
  else
    return query select 'refused', t.state; return;
  end if;
  return query select 'done', 'queued';
end $law$;

-- 85.5. Verdicts: completed · failed · again · late · lookup. With a name: that step (or, with a key, that row of a map); without: the attempt
-- as a whole. Only while no attempt runs. The run continues when nothing of it is unknown any more, or at once when asked to look up.
-- Answers: done · refused (then `why`) · unknown_run.
create function fencepost.resolve_unknown(_org text, _id text, _name text, _ordinal integer, _key text, _verdict text, _value text, _by text)
returns table (answer text, why text) language plpgsql volatile as $law$
#variable_conflict use_column
declare v_now timestamptz := fencepost.enter_(); v_rid bigint; t record; b record; v_late record; v_mid bigint; v_state text; v_value text := _value;
begin
  select r.rid into v_rid from fencepost.run r where r.org = _org and r.id = _id;
  if v_rid is null then return query select 'unknown_run', null::text; return; end if;
  perform from fencepost.task x where x.rid = any (array(select a.rid from fencepost.ancestors_(array[v_rid]) a(rid)) || v_rid) order by x.rid for no key update;
  select x.* into t from fencepost.task x where x.rid = v_rid;
  if not found then return query select 'refused', 'the run has ended'; return; end if;
  if t.fence is not null or t.state = 'cancelling' then return query select 'refused', 'an attempt of the run still runs'; return; end if;
  v_state := case _verdict when 'completed' then 'kept' when 'late' then 'kept' when 'failed' then 'failed' when 'again' then 'again' end;

  if _key is not null then                                 -- a row
    select m.mid into v_mid from fencepost.map m where m.rid = v_rid and (_name is null or m.name = _name) and (_ordinal is null or m.ordinal = _ordinal)
       and exists (select from fencepost.row r where r.mid = m.mid and r.key = _key and r.state = 'marked' and not r.repeatable) order by m.mid limit 1;
    if v_mid is null then return query select 'refused', 'no unknown row has this key'; return; end if;
    if v_state is null or _verdict = 'late' then return query select 'refused', 'a row is resolved completed, failed or again'; return; end if;
    update fencepost.row r set state = v_state, value = case when v_state <> 'again' then v_value end, seq = case when v_state <> 'again' then t.seq + 1 end,
           opened_seq = case when v_state = 'again' then t.seq + 1 else r.opened_seq end, at = v_now
     where r.mid = v_mid and r.key = _key;
  elsif _name is not null then                             -- a step
    select x.* into b from fencepost.boundary x where x.rid = v_rid and x.kind = 'step' and x.name = _name and x.ordinal = coalesce(_ordinal, 1)
       and x.state = 'marked' and not x.repeatable;
    if not found then return query select 'refused', 'no unknown step has this name and number'; return; end if;
    if _verdict = 'lookup' then
      perform fencepost.unpark_(v_rid, v_now);
      return query select 'done', null::text; return;
    end if;
    if _verdict = 'late' then
      select l.* into v_late from fencepost.late l where l.rid = v_rid and l.kind = 'step' and l.name = _name and l.ordinal = b.ordinal and l.fence = b.fence
       order by l.lid limit 1;
      if not found then return query select 'refused', 'no late evidence of this step was kept'; return; end if;
      update fencepost.late l set accepted = true where l.lid = v_late.lid;
      v_state := case when v_late.ok then 'kept' else 'failed' end; v_value := v_late.value;
    end if;
    update fencepost.boundary x set state = v_state, value = case when v_state <> 'again' then v_value end, seq = case when v_state <> 'again' then t.seq + 1 end,
           until = null, at = v_now
     where x.rid = v_rid and x.kind = 'step' and x.name = _name and x.ordinal = b.ordinal;
  else                                                     -- the attempt as a whole
    if t.state <> 'unknown' then return query select 'refused', format('the run is %s, not unknown', t.state); return; end if;
    if _verdict in ('completed', 'failed') then
      if fencepost.has_unknown_(v_rid) then return query select 'refused', 'resolve its unknown steps first'; return; end if;
      insert into fencepost.event (rid, seq, at, type, number, data)
      values (v_rid, t.seq + 1, v_now, 'run.resolved', t.number, jsonb_build_object('verdict', _verdict, 'by', _by));
      update fencepost.task x set seq = t.seq + 1 where x.rid = v_rid;
      perform fencepost.end_runs_(array[v_rid], array[_verdict], array[case _verdict when 'completed' then _value end], array[case _verdict when 'failed' then _value end], 'finished', v_now);
      return query select 'done', null::text; return;
    end if;
    if _verdict not in ('again', 'lookup') then return query select 'refused', 'an attempt is resolved completed, failed or again'; return; end if;
  end if;
  insert into fencepost.event (rid, seq, at, type, number, data)
  values (v_rid, t.seq + 2, v_now, case _verdict when 'late' then 'late.accepted' else 'run.resolved' end, t.number,
          jsonb_strip_nulls(jsonb_build_object('verdict', _verdict, 'step', _name, 'ordinal', _ordinal, 'row', _key, 'by', _by)));
  -- The entry of the boundary or row itself stands at t.seq + 1; an attempt as a whole has none, so the audit line takes its place.
  if _name is null and _key is null or _verdict = 'again' and _key is null then
    update fencepost.event e set seq = t.seq + 1 where e.rid = v_rid and e.seq = t.seq + 2;
    update fencepost.task x set seq = t.seq + 1 where x.rid = v_rid;
  else
    update fencepost.task x set seq = t.seq + 2 where x.rid = v_rid;
  end if;
  if t.state = 'unknown' and not fencepost.has_unknown_(v_rid) then perform fencepost.unpark_(v_rid, v_now); end if;
  return query select 'done', null::text;
end $law$;

-- 85.5. A new run from an ended one's committed steps, with their keys. `_from`: what was recorded at and after that step is set aside;
-- refused if a non-repeatable step is among that, unless named in `_again` (NAME#N). Unknown steps of the origin come along as they are.
-- Answers: created · replayed · refused (then `why`) · unknown_run.
create function fencepost.redrive_run(_org text, _id text, _new_id text, _from_name text, _from_ordinal integer, _again text[], _by text)
returns table (answer text, why text) language plpgsql volatile as $law$
#variable_conflict use_column
declare v_now timestamptz := fencepost.enter_(); r record; v_rid bigint; v_cut integer; v_bad text; v_seq integer;
begin
  select x.* into r from fencepost.run x where x.org = _org and x.id = _id;
  if not found then return query select 'unknown_run', null::text; return; end if;
  if not exists (select from fencepost.outcome o where o.rid = r.rid) then return query select 'refused', 'the run has not ended'; return; end if;
  if not fencepost.good_name_(_new_id) then return query select 'refused', 'the new id is not a usable id'; return; end if;
  select x.rid into v_rid from fencepost.run x where x.org = _org and x.id = _new_id;
  if found then
    return query select case when x.origin = r.rid then 'replayed' else 'refused' end, case when x.origin is distinct from r.rid then 'the new id is taken by another launch' end
      from fencepost.run x where x.rid = v_rid;
    return;
  end if;
  if _from_name is not null then
    select min(coalesce(b.opened_seq, b.seq)) into v_cut from fencepost.boundary b
     where b.rid = r.rid and b.kind = 'step' and b.name = _from_name and b.ordinal = coalesce(_from_ordinal, 1);
    if v_cut is null then return query select 'refused', 'the origin recorded no such step'; return; end if;
    select string_agg(b.name || '#' || b.ordinal, ', ' order by coalesce(b.opened_seq, b.seq)) into v_bad from fencepost.boundary b
     where b.rid = r.rid and b.kind = 'step' and not b.repeatable and coalesce(b.opened_seq, b.seq) >= v_cut and b.state in ('kept', 'marked')
       and not ((b.name || '#' || b.ordinal) = any (_again));
    if v_bad is not null then return query select 'refused', 'would repeat steps that are not repeatable: ' || v_bad || ' (name each with --again)'; return; end if;
  end if;
  insert into fencepost.run (org, id, kind, name, lane, release, source, priority, input, contract, on_lost, origin, key_root, submitted_at)
  values (_org, _new_id, r.kind, r.name, r.lane, r.release, r.source, r.priority, r.input, r.contract, r.on_lost, r.rid, r.key_root, v_now)
  returning rid into v_rid;
  insert into fencepost.boundary (rid, kind, name, ordinal, state, opened_seq, seq, number, fence, hash, repeatable, loose, value, asked_ms, child, at, opened_at)
  select v_rid, b.kind, b.name, b.ordinal, b.state, 1 + row_number() over w, case when b.seq is not null then 1 + row_number() over w end, b.number, b.fence, b.hash,
         b.repeatable, true, b.value, b.asked_ms, b.child, b.at, b.opened_at
    from fencepost.boundary b
   where b.rid = r.rid and (b.state in ('kept', 'arrived', 'timed_out') and b.kind <> 'map' or b.state = 'marked' and not b.repeatable)
     and (v_cut is null or coalesce(b.opened_seq, b.seq) < v_cut)
  window w as (order by coalesce(b.seq, b.opened_seq));
  get diagnostics v_seq = row_count;
  insert into fencepost.task (rid, lane, org, state, priority, ready_at, turn_at, seq, on_lost)
  values (v_rid, r.lane, _org, 'queued', r.priority, v_now, v_now - r.priority * interval '60 s', v_seq + 1, r.on_lost);
  insert into fencepost.event (rid, seq, at, type, data) values (v_rid, 1, v_now, 'run.admitted', jsonb_build_object('origin', _id, 'by', _by));
  perform fencepost.rouse_(r.lane, 1);
  return query select 'created', null::text;
end $law$;
