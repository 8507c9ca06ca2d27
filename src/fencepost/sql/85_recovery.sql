-- 85_recovery.sql: what becomes of work whose worker is gone.
--
-- LAW    85.1   verdicts are unique: a lost attempt has left its holder, so no second sweep finds it
--        85.2   a verdict is conditional on the row it was decided on, under that row's lock; it never claims
--        85.3   from silence: a full lease observed by this observer's incarnation, counted anew after it was deaf; or proof of death
--        85.4   recovery needs no queue: any worker's beat does it, in bounded pieces; what a fault cuts off the next beat finds
--        85.5   how the unknown is resolved: 87_resolution; whoever was told of another run's goes on when that is
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
-- unfenced: it is the fence that is judged here.
declare t record; v_error text; v_code text;
begin
  select x.* into t from fencepost.task x where x.rid = _rid and x.fence is not null;
  if not found then return 'nothing'; end if;
  -- 85.7: silence says nothing of opaque work; its fence stays, for an inquiry to settle.
  if t.opaque and t.begun and _reason not in ('process_gone', 'ceiling_passed', 'grace_over', 'operator') then return 'kept'; end if;
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
  -- Its code began, so deferrals are counted anew (40.13).
  if v_code is null then
    update fencepost.task x
       set state = 'queued', tries = t.tries + 1, losses = t.losses + 1, deferrals = 0, deferred_since = null,
           fence = null, holder = null, request = null, claimed_at = null, begun = false,
           ready_at = _now, turn_at = _now - t.priority * interval '60 s', seq = t.seq + 1
     where x.rid = _rid;
    perform fencepost.rouse_(t.lane, 1);
    return 'replay';
  end if;
  update fencepost.task x
     set state = 'unknown', unknown = v_code, tries = t.tries + 1, losses = t.losses + 1, deferrals = 0, deferred_since = null,
         fence = null, holder = null, request = null, claimed_at = null, begun = false, seq = t.seq + 2,
         trouble = case v_code when 'RUNNER_LOST' then v_error
                   else json_build_object('code', v_code, 'message', format('%s losses without a newly committed boundary, the last: %s', t.losses + 1, _reason))::text end
   where x.rid = _rid;
  insert into fencepost.event (rid, seq, at, type, number, data)
  values (_rid, t.seq + 2, _now, 'run.unknown', t.number, jsonb_build_object('code', v_code));
  perform fencepost.tell_plan_(_rid, _now);
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

-- Loses what the given incarnations still hold, page by page until `_most` are lost: what is locked hides nobody (85.6). What only an
-- inquiry can settle (70.10) is not even locked: it may be much, and stay long. Returns how many.
create function fencepost.reap_(_holders uuid[], _reason text, _most integer, _now timestamptz) returns integer language plpgsql volatile as $law$
declare v_rids bigint[]; v_rid bigint; v_after bigint := 0; v_n integer := 0;
begin
  while v_n < _most loop
    v_rids := array(select t.rid from unnest(_holders) i(id) cross join lateral (
        select t.rid from fencepost.task t where t.holder = i.id and t.rid > v_after and not (t.opaque and t.begun) order by t.rid limit _most) t
       order by t.rid limit _most);
    exit when v_rids = '{}';
    v_after := v_rids[cardinality(v_rids)];
    foreach v_rid in array fencepost.seize_(v_rids) loop
      -- Again under the lock (85.2): whoever finished in the meantime is not lost.
      if exists (select from fencepost.task t where t.rid = v_rid and t.holder = any (_holders)) then
        if fencepost.lose_(v_rid, _reason, _now) <> 'kept' then v_n := v_n + 1; end if;
      end if;
    end loop;
  end loop;
  return v_n;
end $law$;

-- One door for a worker's heartbeat and everybody's sweeps. `_held_*` and `_answered` were published together by the loop.
-- `_dead`: incarnations of this host (same boot id and pid namespace) whose process this one has seen to be gone.
-- The answer: {buried, cancel: [{rid, number, reason}], lost: [{rid, number}], peers: [{id, pid, process_start}], due_ms, woken, reaped, orphans: [rid],
-- loose: [{rid, number, pid, process_start, folder}]}.
create function fencepost.beat(_id uuid, _answered bigint, _held_rids bigint[], _held_numbers integer[], _dead uuid[]) returns jsonb language plpgsql volatile as $law$
declare v_now timestamptz := fencepost.enter_(); me record; v_rids bigint[]; v_rid bigint; v_reaped integer := 0; v_woken integer; v_due timestamptz;
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
      if exists (select from fencepost.task t where t.rid = v_rid and t.holder = _id and t.request <= _answered and t.state = 'running' and not (t.opaque and t.begun)) then
        perform fencepost.return_(v_rid, 'not_held', v_now);
      else
        perform fencepost.lose_(v_rid, 'not_held', v_now) from fencepost.task t where t.rid = v_rid and t.holder = _id and t.request <= _answered;
      end if;
    end loop;
  end if;

  v_reaped := fencepost.inquire_(_id, me.boot_id, me.pid_namespace, me.observing_since, _dead, v_now);
  v_reaped := v_reaped + fencepost.reap_late_(v_now) + fencepost.reap_ceilings_(v_now);
  perform fencepost.wake_askers_(fencepost.entries_asked_(500), v_now, 500);
  v_woken := fencepost.wake_due_(me.lane, 500, v_now);
  perform fencepost.expire_(array(select t.rid from fencepost.task t where t.claim_by <= v_now order by t.claim_by limit 100 for no key update skip locked), v_now);
  perform fencepost.end_graces_(v_now);

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
    'due_ms', case when v_due is not null then greatest(0, ceil(extract(epoch from v_due - v_now) * 1000))::bigint end, 'woken', v_woken, 'reaped', v_reaped,
    'orphans', (select coalesce(jsonb_agg(o.rid), '[]') from (select o.rid from fencepost.orphans_(_id, coalesce(v_rids, '{}')) o(rid) order by o.rid limit 200) o),
    'loose', fencepost.loose_(me.boot_id, me.pid_namespace));
end $law$;

-- 85.3. Ends incarnations that are proven gone or silent for a full lease of observation, and loses what ended ones hold.
create function fencepost.inquire_(_me uuid, _boot_id text, _pid_namespace text, _observing_since timestamptz, _dead uuid[], _now timestamptz) returns integer language plpgsql volatile as $law$
declare v_gone uuid[]; v_silent uuid[];
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
     where i.ended is null and i.id <> _me and i.heard_at <= _now - i.lease_ms * interval '1 ms'
       and greatest(i.heard_at, _observing_since) <= _now - i.lease_ms * interval '1 ms'
     order by i.id limit 100 for no key update skip locked) i;
  if v_silent is not null then
    update fencepost.incarnation i set ended_at = _now, ended = 'silent' where i.id = any (v_silent);
    delete from fencepost.sleeper s where s.holder = any (v_silent);
  end if;
  -- Also what an earlier sweep ended and could not finish (85.4): of all who hold anything, those who are not alive. As many index
  -- probes as there are holders.
  return fencepost.reap_(array(
    with recursive h(holder) as (
      (select t.holder from fencepost.task t where t.holder is not null order by t.holder limit 1)
      union all
      select n.holder from h cross join lateral (select t.holder from fencepost.task t where t.holder > h.holder order by t.holder limit 1) n)
    select h.holder from h where not exists (select from fencepost.incarnation i where i.id = h.holder and i.ended is null)), 'holder_gone', 100, _now);
end $law$;

-- 40.12. A step's durable deadline, a lease past: the attempt is fenced out, however healthy its worker's heartbeat.
create function fencepost.reap_late_(_now timestamptz) returns integer language plpgsql volatile as $law$
declare v_rids bigint[]; v_seen bigint[] := '{}'; v_rid bigint; v_n integer := 0;
begin
  while v_n < 100 loop
    v_rids := array(
      select distinct b.rid from (
        select b.rid from fencepost.boundary b
          cross join lateral (select t.fence, t.holder from fencepost.task t where t.rid = b.rid and t.fence = b.fence limit 1) t
          cross join lateral (select i.lease_ms from fencepost.incarnation i where i.id = t.holder limit 1) i
         where b.state = 'marked' and b.until is not null and b.until <= _now - i.lease_ms * interval '1 ms' and not (b.rid = any (v_seen))
         order by b.until limit 100) b);
    exit when v_rids = '{}';
    v_seen := v_seen || v_rids;
    foreach v_rid in array fencepost.seize_(v_rids) loop
      if exists (select from fencepost.boundary b join fencepost.task t on t.rid = b.rid and t.fence = b.fence join fencepost.incarnation i on i.id = t.holder
                  where b.rid = v_rid and b.state = 'marked' and b.until <= _now - i.lease_ms * interval '1 ms') then
        perform fencepost.lose_(v_rid, 'deadline_passed', _now);
        v_n := v_n + 1;
      end if;
    end loop;
  end loop;
  return v_n;
end $law$;

-- 70.10. Opaque work past its ceiling, if its holder is gone, or has said nothing of it for a lease more.
create function fencepost.reap_ceilings_(_now timestamptz) returns integer language plpgsql volatile as $law$
declare v_rids bigint[]; v_seen bigint[] := '{}'; v_rid bigint; v_n integer := 0;
begin
  while v_n < 100 loop
    v_rids := array(
      select t.rid from (select t.rid, t.number, t.holder from fencepost.task t where t.opaque and t.holder is not null and t.begun) t
       cross join lateral (select p.ceiling_at from fencepost.process p where p.rid = t.rid and p.number = t.number limit 1) p
        left join lateral (select i.lease_ms from fencepost.incarnation i where i.id = t.holder and i.ended is null limit 1) i on true
       where p.ceiling_at + coalesce(i.lease_ms, 0) * interval '1 ms' <= _now and not (t.rid = any (v_seen)) order by p.ceiling_at limit 100);
    exit when v_rids = '{}';
    v_seen := v_rids || v_seen;
    foreach v_rid in array fencepost.seize_(v_rids) loop
      -- Again under the lock (85.2): a worker that lives may have adopted it meanwhile.
      if exists (select from fencepost.task t join fencepost.process p on p.rid = t.rid and p.number = t.number
                   left join fencepost.incarnation i on i.id = t.holder and i.ended is null
                  where t.rid = v_rid and t.opaque and t.begun and p.ceiling_at + coalesce(i.lease_ms, 0) * interval '1 ms' <= _now) then
        perform fencepost.lose_(v_rid, 'ceiling_passed', _now);
        v_n := v_n + 1;
      end if;
    end loop;
  end loop;
  return v_n;
end $law$;

-- 80.4. A cancelling run whose grace is over is fenced out, and ends whatever its descendants do.
create function fencepost.end_graces_(_now timestamptz) returns integer language plpgsql volatile as $law$
declare v_rids bigint[]; v_seen bigint[] := '{}'; v_rid bigint; v_n integer := 0;
begin
  while v_n < 100 loop
    v_rids := array(select t.rid from fencepost.task t where t.state = 'cancelling' and t.cancel_until <= _now and not (t.rid = any (v_seen))
                     order by t.cancel_until limit 100);
    exit when v_rids = '{}';
    v_seen := v_seen || v_rids;
    foreach v_rid in array fencepost.seize_(v_rids) loop
      perform fencepost.lose_(v_rid, 'grace_over', _now);
      perform fencepost.let_go_(v_rid, _now);
      v_n := v_n + 1;
    end loop;
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
  for v_rid in select t.rid from fencepost.task t
     where t.lane = _lane and t.park = 'code' and t.state = 'parked'
       and exists (select from fencepost.run r where r.rid = t.rid and t.code_digest <> _digests[array_position(_names, r.name)])
     order by t.rid for no key update loop
    perform fencepost.unpark_(v_rid, v_now);
    v_n := v_n + 1;
  end loop;
  return v_n;
end $law$;

create function fencepost.unpark_(_rid bigint, _now timestamptz) returns void language plpgsql volatile as $law$
-- unfenced: the caller holds the row, and no attempt runs.
declare t record;
begin
  update fencepost.task x
     set state = 'queued', park = null, code_digest = null, unknown = null, trouble = null, due_at = null, losses = 0, ready_at = _now,
         turn_at = _now - x.priority * interval '60 s', seq = x.seq + 1
   where x.rid = _rid returning x.seq, x.number, x.lane into t;
  insert into fencepost.event (rid, seq, at, type, number) values (_rid, t.seq, _now, 'run.woken', nullif(t.number, 0));
  perform fencepost.tell_plan_(_rid, _now);
  perform fencepost.rouse_(t.lane, 1);
end $law$;

-- Entries that somebody waits for, at most so many: from a place left to chance, and wrapped once, so that a page that is full of entries
-- which stay held hides no other for good (85.6).
create function fencepost.entries_asked_(_most integer) returns bigint[] language plpgsql volatile as $law$
declare v_first bigint; v_last bigint; v_from bigint; v_page bigint[];
begin
  select min(x.eid), max(x.eid) into v_first, v_last from fencepost.asker x where x.how in ('waits', 'told');
  if v_first is null then return '{}'; end if;
  v_from := v_first + floor(random() * (v_last - v_first + 1))::bigint;
  v_page := array(select distinct x.eid from fencepost.asker x where x.how in ('waits', 'told') and x.eid >= v_from order by x.eid limit _most);
  return v_page || array(select distinct x.eid from fencepost.asker x where x.how in ('waits', 'told') and x.eid < v_from order by x.eid
                          limit _most - cardinality(v_page));
end $law$;

-- 50.9. Who waits for one of these entries of an organisation that nobody holds any more is woken by a signal: all of them where it is kept, or unknown;
-- of those who could take it on, one, and the next at the next sweep, should that one never come. Who was told that it is unknown, and
-- ended so, asks again once it is resolved. What is locked is passed over: the next sweep finds it. Returns how many.
create function fencepost.wake_askers_(_eids bigint[], _now timestamptz, _most integer) returns integer language plpgsql volatile as $law$
declare a record; t record; v_n integer := 0;
begin
  if _eids = '{}' then return 0; end if;
  for a in
    select x.* from (
      select x.*, j.how as stands, k.rid as living, row_number() over (partition by x.eid, k.rid is null order by x.rid, x.ordinal) as nth
        from unnest(_eids) e(eid)
        cross join lateral fencepost.judge_entry_(e.eid) j
        join fencepost.asker x on x.eid = e.eid
        left join fencepost.task k on k.rid = x.rid
       where k.rid is null and x.how in ('waits', 'told')
          or x.how = 'waits' and j.how <> 'held'
          or x.how = 'told' and j.how in ('kept', 'free') and k.state = 'unknown') x
     where x.living is null or x.stands <> 'free' or x.nth = 1
     order by x.rid, x.ordinal limit _most loop
    if a.living is null then
      delete from fencepost.asker x where x.rid = a.rid and x.name = a.name and x.ordinal = a.ordinal;
      continue;
    end if;
    continue when fencepost.seize_(array[a.rid]) = '{}';
    select x.state, x.park, x.seq, x.number into t from fencepost.task x where x.rid = a.rid;
    if a.how = 'told' then
      continue when t.state is distinct from 'unknown';
      update fencepost.boundary b set state = 'again', until = null, at = _now
       where b.rid = a.rid and b.kind = 'step' and b.name = a.name and b.ordinal = a.ordinal and b.state = 'marked' and not b.repeatable;
    end if;
    update fencepost.asker x set how = 'woken' where x.rid = a.rid and x.name = a.name and x.ordinal = a.ordinal and x.how = a.how;
    continue when not found;
    v_n := v_n + 1;
    if a.how = 'told' then
      if not fencepost.has_unknown_(a.rid) then perform fencepost.unpark_(a.rid, _now); end if;
      continue;
    end if;
    insert into fencepost.signal (rid, name, payload, sent_at) values (a.rid, a.wait, 'null', _now);
    update fencepost.task x set seq = t.seq + 1 where x.rid = a.rid;
    insert into fencepost.event (rid, seq, at, type, number, data) values (a.rid, t.seq + 1, _now, 'signal.sent', nullif(t.number, 0), jsonb_build_object('name', a.wait));
    if t.state = 'parked' and t.park = 'wait' then perform fencepost.settle_(a.rid, _now); else perform fencepost.hint_(a.rid); end if;
  end loop;
  return v_n;
end $law$;

-- The same at once for the entry that this call of a run answers for: its worker has just kept it.
create function fencepost.wake_askers(_rid bigint, _name text, _ordinal integer) returns integer language plpgsql volatile as $law$
declare v_now timestamptz := fencepost.enter_();
begin
  return fencepost.wake_askers_(array(select s.eid from fencepost.shared s where s.rid = _rid and s.name = _name and s.ordinal = _ordinal), v_now, 500);
end $law$;

-- An operator's word: a run parked on its code is tried again, one that waits in the line for an hour is due now.
-- Answers: done (also when it stands in the line already: the word may be asked again, 00.3) · refused (then `state`) · unknown_run.
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
  elsif t.state <> 'queued' then
    return query select 'refused', t.state; return;
  end if;
  return query select 'done', 'queued';
end $law$;
