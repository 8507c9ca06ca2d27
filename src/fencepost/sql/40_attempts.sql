-- 40_attempts.sql: who may act for a run, and until when.
--
-- LAW    40.1   without a claim nothing executes; a terminal run has no row to claim
--        40.2   at most one fence is alive per run; numbers are 1, 2, 3 … without gaps
--        40.3   a write with an older, wrong or retired fence changes nothing: `stale`
--        40.4   what a dead fence may still do is deliver evidence (50) and observe
--        40.5   a run returns to the queue only by the moves of 00_ground
--        40.6   an unknown outcome is never turned into a retry (finish_attempts, 80)
--        40.7   number is not tries: a deferral, a park and a give-back cost no try
--        40.8   a wait answered in place keeps number and fence; a wake gets the next
--        40.9   a worker is an incarnation, minted at start
--        40.10  a late but unchallenged holder still counts: no gate looks at a lease
--        40.11  told to stop: give_back_attempts, then close_incarnation (85)
--        40.12  kept by 85 (beat, reap_late_): the gate looks at no heartbeat
--        40.13  recovery deferrals are finite
--        40.14  kept by 41 (open_request_, repeat_claim_)
--        40.15  kept by 41 (claim_attempts)
--        00.13  a row locked by another is `again`: ask for it alone; it delays no neighbour
-- OWNS   the gate (hold_); writes task, attempt, incarnation, sleeper
-- LOCKS  incarnation, then run rows ascending
-- CODES  LW401 a deferral of an attempt whose code may have run (an answer of the item here, raised by the caller: 00.13)

create type fencepost.held_ as (
  ord integer, rid bigint, how text, state text, number integer, seq integer, holder uuid, claimed_at timestamptz,
  begun boolean, parent bigint, losses integer);

-- THE GATE. The only place where a fence is judged. Statement 1 locks in ascending order, statement 2 looks with a snapshot
-- younger than the lock. `how`: held · stale · again (locked by somebody else: in a batch nobody waits for one item).
-- `_also` are further runs to lock in the same order (parents).
create function fencepost.hold_(_rids bigint[], _fences uuid[], _also bigint[]) returns fencepost.held_[] language plpgsql volatile as $law$
declare v_locked bigint[]; v_want bigint[] := _rids || _also; v_missed boolean := false;
begin
  if cardinality(v_want) = 1 then         -- one item, the commonest case: a row that is locked is read as whoever held it left it
    return coalesce((
      select array[row(1, t.rid, case when t.fence is null or t.fence is distinct from _fences[1] then 'stale' else 'held' end,
                       t.state, t.number, t.seq, t.holder, t.claimed_at, t.begun, t.parent, t.losses)::fencepost.held_]
        from fencepost.task t where t.rid = _rids[1] for no key update), array[row(1, _rids[1], 'stale', null, null, null, null, null, null, null, null)::fencepost.held_]);
  elsif _rids[1] = all (_rids) then       -- one run, so waiting delays no neighbour: the rows of a map keep each other's company
    perform from fencepost.task t where t.rid = any (v_want) order by t.rid for no key update;
    v_locked := v_want;
  else
    v_locked := array(select l.rid from (select t.rid from fencepost.task t where t.rid = any (v_want) order by t.rid for no key update skip locked) l);
    v_missed := cardinality(v_locked) < cardinality(v_want) and exists (select from fencepost.task t where t.rid = any (v_want) and not (t.rid = any (v_locked)));
  end if;
  return (
    select array_agg(row(i.ord, i.rid,
             case when t.fence is null or t.fence is distinct from i.fence then 'stale'
                  when v_missed and (not (i.rid = any (v_locked)) or t.parent is not null and _also <> '{}'
                            and exists (select from fencepost.ancestors_(array[i.rid]) a(rid) where not (a.rid = any (v_locked)))) then 'again'
                  else 'held' end,
             t.state, t.number, t.seq, t.holder, t.claimed_at, t.begun, t.parent, t.losses)::fencepost.held_ order by i.ord)
      from unnest(_rids, _fences) with ordinality as i(rid, fence, ord)
      left join lateral (select t.* from fencepost.task t where t.rid = i.rid limit 1) t on true);
end $law$;

create function fencepost.descendants_(_rids bigint[]) returns setof bigint language sql stable as $law$
  with recursive d(rid) as (
    select r.rid from unnest(_rids) p(rid) cross join lateral (select r.rid from fencepost.run r where r.parent = p.rid) r
    union
    select r.rid from d cross join lateral (select r.rid from fencepost.run r where r.parent = d.rid) r)
  select d.rid from d
$law$;

-- Those that still live: an ended parent has no row to lock, and nothing to be told.
create function fencepost.ancestors_(_rids bigint[]) returns setof bigint language sql stable as $law$
  with recursive a(rid, parent) as (
    select p.rid, p.parent from unnest(_rids) i(rid) cross join lateral (select t.parent from fencepost.task t where t.rid = i.rid limit 1) t
     cross join lateral (select p.rid, p.parent from fencepost.task p where p.rid = t.parent limit 1) p
    union
    select p.rid, p.parent from a cross join lateral (select p.rid, p.parent from fencepost.task p where p.rid = a.parent limit 1) p)
  select a.rid from a
$law$;

-- The same for a door that asks of many runs at once: most have no parent, and that is seen at a glance.
create function fencepost.above_(_rids bigint[]) returns bigint[] language plpgsql stable as $law$
begin
  if not exists (select from fencepost.task t where t.rid = any (_rids) and t.parent is not null) then return '{}'; end if;
  return array(select a.rid from fencepost.ancestors_(_rids) a(rid));
end $law$;

-- A leg's line in the history. The caller holds the row.
create function fencepost.close_leg_(_rids bigint[], _ended text, _reason text, _now timestamptz) returns void language plpgsql volatile as $law$
begin
  insert into fencepost.attempt (rid, number, fence, holder, claimed_at, ended_at, ended, begun, reason)
  select t.rid, t.number, t.fence, t.holder, t.claimed_at, _now, _ended, t.begun, _reason
    from fencepost.task t where t.rid = any (_rids) and t.fence is not null;
end $law$;

-- Answers: begun · stale · cancelled · again. Author code runs only after `begun` where loss does not mean replay.
create function fencepost.begin_attempts(_rids bigint[], _fences uuid[]) returns table (ord integer, answer text) language plpgsql volatile as $law$
declare v_now timestamptz := fencepost.enter_(); v_held fencepost.held_[] := fencepost.hold_(_rids, _fences, '{}');
begin
  return query
  with h as materialized (select h.*, h.how = 'held' and h.state = 'running' and not h.begun as new from unnest(v_held) h),
    u as (update fencepost.task t set begun = true, seq = t.seq + 1, deferrals = 0, deferred_since = null
           where t.rid = any (array(select h.rid from h where h.new))),
    e as (insert into fencepost.event (rid, seq, at, type, number) select distinct on (h.rid) h.rid, h.seq + 1, v_now, 'attempt.begun', h.number from h where h.new)
  select h.ord, case when h.how <> 'held' then h.how when h.state = 'cancelling' then 'cancelled' else 'begun' end from h;
end $law$;

-- 00.3. How the leg of this fence ended, if it did: the answer to whoever asks again after a lost reply.
create function fencepost.ended_(_rid bigint, _fence uuid) returns text language sql stable as $law$
  select case when o.error::json->>'code' = 'RECOVERY_EXHAUSTED' then 'exhausted' else a.ended end
    from fencepost.attempt a left join lateral (select o.error from fencepost.outcome o where o.rid = a.rid and o.fence = a.fence limit 1) o on true
   where a.rid = _rid and a.fence = _fence
$law$;

-- 40.5, 40.13. With pre-code proof only: an attempt that has begun is not deferred, but where loss means replay (there the mark is
-- made by the claim). Answers: deferred · exhausted · stale · again · LW401.
create function fencepost.defer_attempts(_rids bigint[], _fences uuid[], _reasons text[], _dependencies text[], _delay_mss bigint[])
returns table (ord integer, answer text) language plpgsql volatile as $law$
declare v_now timestamptz := fencepost.enter_(); v_held fencepost.held_[] := fencepost.hold_(_rids, _fences, array(select fencepost.ancestors_(_rids))); h fencepost.held_;
  v_task record; v_recovery boolean;
begin
  foreach h in array v_held loop
    ord := h.ord;
    if h.how <> 'held' then
      answer := h.how;
      if h.how = 'stale' then
        select e.ended into answer from fencepost.ended_(h.rid, _fences[h.ord]) e(ended) where e.ended in ('deferred', 'exhausted');
        answer := coalesce(answer, 'stale');
      end if;
      return next; continue;
    end if;
    if h.state = 'cancelling' then
      perform fencepost.close_leg_(array[h.rid], 'deferred', 'cancelled', v_now);
      perform fencepost.let_go_(h.rid, v_now);
      answer := 'deferred'; return next; continue;
    end if;
    v_recovery := _reasons[h.ord] <> 'workflow_missing';
    select t.deferrals + 1 as n, coalesce(t.deferred_since, v_now) as since, t.on_lost, t.opaque into v_task from fencepost.task t where t.rid = h.rid;
    if h.begun and (v_task.on_lost <> 'replay' or v_task.opaque) then answer := 'LW401'; return next; continue; end if;
    if v_recovery and (v_task.n > 20 or v_now - v_task.since >= interval '30 minutes') then
      perform fencepost.end_runs_(array[h.rid], array['failed'], array[null::text], array[json_build_object('code', 'RECOVERY_EXHAUSTED',
        'message', format('%s deferrals of this leg since %s, the last for want of %s (%s)', v_task.n - 1, v_task.since, _dependencies[h.ord], _reasons[h.ord]),
        'dependency', _dependencies[h.ord])::text], 'finished', v_now);
      answer := 'exhausted'; return next; continue;
    end if;
    perform fencepost.close_leg_(array[h.rid], 'deferred', _reasons[h.ord], v_now);
    update fencepost.task t
       set state = 'queued', fence = null, holder = null, request = null, claimed_at = null, begun = false,
           due_at = v_now + _delay_mss[h.ord] * interval '1 ms', ready_at = v_now + _delay_mss[h.ord] * interval '1 ms',
           turn_at = v_now + _delay_mss[h.ord] * interval '1 ms' - t.priority * interval '60 s',
           deferrals = case when v_recovery then v_task.n else t.deferrals end,
           deferred_since = case when v_recovery then v_task.since else t.deferred_since end,
           trouble = json_build_object('reason', _reasons[h.ord], 'dependency', _dependencies[h.ord])::text, seq = t.seq + 1
     where t.rid = h.rid;
    insert into fencepost.event (rid, seq, at, type, number, data)
    values (h.rid, h.seq + 1, v_now, 'attempt.deferred', h.number, jsonb_build_object('reason', _reasons[h.ord], 'dependency', _dependencies[h.ord]));
    answer := 'deferred'; return next;
  end loop;
end $law$;

-- The caller holds the rows: back to the line, no try charged.
create function fencepost.return_(_rid bigint, _reason text, _now timestamptz) returns void language plpgsql volatile as $law$
-- unfenced: the caller holds the row and has judged its fence
declare v_task record;
begin
  perform fencepost.close_leg_(array[_rid], 'given_back', _reason, _now);
  update fencepost.task t
     set state = 'queued', fence = null, holder = null, request = null, claimed_at = null, begun = false, ready_at = _now,
         turn_at = _now - t.priority * interval '60 s', seq = t.seq + 1
   where t.rid = _rid returning t.seq, t.number, t.lane into v_task;
  insert into fencepost.event (rid, seq, at, type, number, data)
  values (_rid, v_task.seq, _now, 'attempt.given_back', v_task.number, jsonb_build_object('reason', _reason));
  perform fencepost.rouse_(v_task.lane, 1);
end $law$;

-- 40.11. What was never dispatched. Answers: given_back · stale · again.
create function fencepost.give_back_attempts(_rids bigint[], _fences uuid[]) returns table (ord integer, answer text) language plpgsql volatile as $law$
declare v_now timestamptz := fencepost.enter_(); v_held fencepost.held_[] := fencepost.hold_(_rids, _fences, array(select fencepost.ancestors_(_rids))); h fencepost.held_;
begin
  foreach h in array v_held loop
    ord := h.ord; answer := h.how;
    if h.how = 'held' then
      if h.state = 'cancelling' then
        perform fencepost.close_leg_(array[h.rid], 'given_back', 'cancelled', v_now);
        perform fencepost.let_go_(h.rid, v_now);
      else
        perform fencepost.return_(h.rid, 'not_dispatched', v_now);
      end if;
      answer := 'given_back';
    elsif h.how = 'stale' and fencepost.ended_(h.rid, _fences[h.ord]) = 'given_back' then
      answer := 'given_back';
    end if;
    return next;
  end loop;
end $law$;

create function fencepost.open_incarnation(_id uuid, _lane integer, _name text, _boot_id text, _pid_namespace text, _pid integer,
  _process_start text, _lease_ms integer, _beat_ms integer) returns void language plpgsql volatile as $law$
declare v_now timestamptz := fencepost.enter_();
begin
  insert into fencepost.incarnation (id, lane, name, boot_id, pid_namespace, pid, process_start, lease_ms, beat_ms, started_at, heard_at, observing_since)
  values (_id, _lane, left(_name, 200), _boot_id, _pid_namespace, _pid, _process_start, _lease_ms, _beat_ms, v_now, v_now, v_now)
  on conflict (id) do nothing;
end $law$;

-- A worker that found nothing says so, looks once more, and then sleeps; awake again, it takes the row away.
create function fencepost.sleep_worker(_holder uuid, _lane integer, _asleep boolean) returns text language plpgsql volatile as $law$
begin
  perform fencepost.enter_();
  if _asleep then
    insert into fencepost.sleeper (holder, lane, since) values (_holder, _lane, fencepost.now_()) on conflict (holder) do nothing;
  else
    delete from fencepost.sleeper s where s.holder = _holder;
  end if;
  return fencepost.channel_(left(replace(_holder::text, '-', ''), 24));
end $law$;
