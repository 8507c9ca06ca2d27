-- 80_terminal.sql: how a leg ends, and how a run ends once.
--
-- LAW    80.1   the first terminal write wins
--        80.2   a fence that asks again gets its answer; one that ends a run twice with different values has broken the law
--        80.3   a leg can complete or fail a run, never cancel it
--        80.4   cancel answers accepted or too_late; it reaches every descendant; final only when code stopped or was fenced out
--        80.5   the order after the commit is the worker's; every door here may be asked again
--        80.6   kept by end_runs_ (35_rooms)
--        40.6   a leg with an unresolved unknown ends as success or as `unknown`, whatever it brings
--        50.4   a history that does not fit the code parks the run on its code
--        50.7   after a failed terminal no mark is leased: the fence it names is gone
--        50.10  a declared retry sets committed failures aside and keeps successes
-- LOCKS  the run's ancestors and the run, ascending (hold_); descendants level by level after their ancestor
-- CODES  LW801 two endings of one fence · LW802 no ending of a leg (answers of the item here, raised by the caller: 00.13)

-- True when a step or row that is not repeatable stands marked: somebody must learn what became of it.
create function fencepost.has_unknown_(_rid bigint) returns boolean language plpgsql stable as $law$
begin
  return exists (select from fencepost.boundary b where b.rid = _rid and b.state = 'marked' and not b.repeatable)
      or exists (select from fencepost.map m join fencepost.row r on r.mid = m.mid and r.state in ('waiting', 'marked', 'again')
                  where m.rid = _rid and r.state = 'marked' and not r.repeatable);
end $law$;

-- Endings: completed (value: output) · failed (value: error) · retry (value: error; after `_delay_mss`, unless `_most_tries` are charged)
-- · unknown (value: error) · unfit (value: error; `_digests`: the code that did not fit).
-- Answers: committed · retrying · unknown · parked · cancelled · already_terminal · stale · again · LW801 · LW802.
-- (Arrays but the first two may be of one element.)
create function fencepost.finish_attempts(_rids bigint[], _fences uuid[], _endings text[], _values text[], _delay_mss bigint[],
  _most_tries integer[], _digests text[])
returns table (ord integer, answer text, status text) language plpgsql volatile as $law$
#variable_conflict use_column
declare v_now timestamptz := fencepost.enter_();
  v_held fencepost.held_[] := fencepost.hold_(_rids, _fences, fencepost.above_(_rids));
  v_end bigint[]; v_statuses text[]; v_outputs text[]; v_errors text[]; v_plain boolean; h record;
begin
  if cardinality(_rids) > 1 then
    _endings := fencepost.spread_(_endings, cardinality(_rids)); _values := fencepost.spread_(_values, cardinality(_rids));
    _delay_mss := fencepost.spread_(_delay_mss, cardinality(_rids)); _most_tries := fencepost.spread_(_most_tries, cardinality(_rids));
    _digests := fencepost.spread_(_digests, cardinality(_rids));
  end if;
  -- What ends a run, together. An item that comes twice in one batch ends once.
  select array_agg(x.rid), array_agg(x.ending), array_agg(case when x.ending = 'completed' then x.value end), array_agg(case when x.ending = 'failed' then x.value end),
         count(*) = cardinality(_rids) and bool_and(x.state = 'running')
    into v_end, v_statuses, v_outputs, v_errors, v_plain
    from (select distinct on (h.rid) h.rid, h.state, h.ending, h.value
            from unnest(v_held, _endings, _values) as h(ord, rid, how, state, number, seq, holder, claimed_at, begun, parent, losses, ending, value)
           where h.how = 'held' and (h.ending = 'completed' or h.state = 'cancelling' or (h.ending = 'failed' and not fencepost.has_unknown_(h.rid)))
           order by h.rid, h.ord) x;
  if v_end is not null then
    if not v_plain then
      -- A cancelling run waits for its descendants (80.4): its leg is over, the run is not.
      for h in select t.rid from fencepost.task t where t.rid = any (v_end) and t.state = 'cancelling'
                  and exists (select from fencepost.task c where c.parent = t.rid) and t.cancel_until > v_now loop
        insert into fencepost.late (rid, kind, name, ordinal, fence, ok, value, at)
        select t.rid, 'run', 'result', 1, t.fence, v_statuses[array_position(v_end, t.rid)] = 'completed',
               coalesce(v_outputs[array_position(v_end, t.rid)], v_errors[array_position(v_end, t.rid)]), v_now
          from fencepost.task t where t.rid = h.rid and v_statuses[array_position(v_end, t.rid)] in ('completed', 'failed');
        perform fencepost.close_leg_(array[h.rid], 'finished', 'cancelled', v_now);
        perform fencepost.let_go_(h.rid, v_now);
        v_statuses := v_statuses[:array_position(v_end, h.rid) - 1] || v_statuses[array_position(v_end, h.rid) + 1:];
        v_outputs := v_outputs[:array_position(v_end, h.rid) - 1] || v_outputs[array_position(v_end, h.rid) + 1:];
        v_errors := v_errors[:array_position(v_end, h.rid) - 1] || v_errors[array_position(v_end, h.rid) + 1:];
        v_end := array_remove(v_end, h.rid);
      end loop;
    end if;
    if 'failed' = any (v_statuses) then  -- 40.7: a dispatched attempt that failed is charged, the last one too
      update fencepost.task t set tries = t.tries + 1 where t.rid = any (v_end) and t.state = 'running' and v_statuses[array_position(v_end, t.rid)] = 'failed';
    end if;
    if cardinality(v_end) > 0 then perform fencepost.end_runs_(v_end, v_statuses, v_outputs, v_errors, 'finished', v_now); end if;
  end if;
  if v_plain then                         -- the usual case: every item was held, and its run ended as it said
    return query select x.ord::integer, 'committed', x.ending from unnest(_endings) with ordinality as x(ending, ord);
    return;
  end if;
  for h in select x.* from unnest(v_held) x loop
    ord := h.ord; status := null;
    if h.how = 'again' then answer := 'again'; return next; continue; end if;
    if h.how = 'held' and h.state = 'running' and exists (select from fencepost.task t where t.rid = h.rid and t.fence = _fences[h.ord]) then
      answer := fencepost.turn_(h.rid, _endings[h.ord], _values[h.ord], _delay_mss[h.ord], _most_tries[h.ord], _digests[h.ord], v_now);
      if answer = 'failed' then answer := 'committed'; status := 'failed'; end if;
      return next; continue;
    end if;
    -- Over: by this very call, by this fence before, or by somebody else. The answer is the one kept with the attempt.
    select f.answer, f.status into answer, status from fencepost.recall_(h.rid, _fences[h.ord], _endings[h.ord], _values[h.ord]) f;
    return next;
  end loop;
end $law$;

create function fencepost.recall_(_rid bigint, _fence uuid, _ending text, _value text) returns table (answer text, status text) language plpgsql stable as $law$
#variable_conflict use_column
declare v_attempt record; v_outcome record;
begin
  select a.ended, a.reason into v_attempt from fencepost.attempt a where a.rid = _rid and a.fence = _fence;
  select o.status, o.fence, o.output, o.error into v_outcome from fencepost.outcome o where o.rid = _rid;
  if v_attempt.ended = 'finished' and v_outcome.fence = _fence then
    if v_outcome.status = 'cancelled' then return query select 'cancelled', 'cancelled';
    elsif _ending in ('completed', 'failed') and (v_outcome.status, coalesce(v_outcome.output, v_outcome.error)) is distinct from (_ending, _value)
          and not (_ending = 'completed' and v_outcome.status = 'completed' and _value is null and v_outcome.output is null) then
      return query select 'LW801', v_outcome.status;
    else return query select 'committed', v_outcome.status; end if;
  elsif v_attempt.ended = 'finished' and v_outcome.fence is null and v_attempt.reason = 'cancelled' then return query select 'cancelled', v_outcome.status;
  elsif v_attempt.ended = 'retrying' then return query select 'retrying', null::text;
  elsif v_attempt.ended = 'unknown' then return query select 'unknown', null::text;
  elsif v_attempt.ended = 'parked' and v_attempt.reason = 'unfit' then return query select 'parked', null::text;
  elsif v_outcome.status is not null then return query select 'already_terminal', v_outcome.status;
  else return query select 'stale', null::text; end if;
end $law$;

-- A leg's end that does not end the run; its code began, so deferrals are counted anew (40.13). Answers: retrying · unknown · parked · failed · LW802.
create function fencepost.turn_(_rid bigint, _ending text, _value text, _delay_ms bigint, _most_tries integer, _digest text, _now timestamptz)
returns text language plpgsql volatile as $law$
-- unfenced: the gate has judged.
declare t record; v_error jsonb;
begin
  if _ending is null or _ending not in ('failed', 'retry', 'unknown', 'unfit') then return 'LW802'; end if;
  select x.* into t from fencepost.task x where x.rid = _rid;
  if _ending = 'unfit' then
    perform fencepost.close_leg_(array[_rid], 'parked', 'unfit', _now);
    update fencepost.task x
       set state = 'parked', park = 'code', code_digest = coalesce(_digest, ''), trouble = _value, fence = null, holder = null, request = null,
           claimed_at = null, begun = false, deferrals = 0, deferred_since = null, seq = t.seq + 1
     where x.rid = _rid;
    insert into fencepost.event (rid, seq, at, type, number) values (_rid, t.seq + 1, _now, 'attempt.unfit', t.number);
    return 'parked';
  end if;
  if _ending = 'unknown' or fencepost.has_unknown_(_rid) then
    perform fencepost.close_leg_(array[_rid], 'unknown', null, _now);
    update fencepost.task x
       set state = 'unknown', unknown = 'STEP_OUTCOME_UNKNOWN', trouble = _value, fence = null, holder = null, request = null, claimed_at = null,
           begun = false, deferrals = 0, deferred_since = null, seq = t.seq + 1
     where x.rid = _rid;
    insert into fencepost.event (rid, seq, at, type, number, data)
    values (_rid, t.seq + 1, _now, 'run.unknown', t.number, jsonb_build_object('code', 'STEP_OUTCOME_UNKNOWN'));
    perform fencepost.tell_plan_(_rid, _now);
    return 'unknown';
  end if;
  if t.tries + 1 >= _most_tries then
    v_error := _value::jsonb;
    update fencepost.task x set tries = t.tries + 1 where x.rid = _rid;
    perform fencepost.end_runs_(array[_rid], array['failed'], array[null::text],
      array[jsonb_build_object('code', 'TRIES_EXHAUSTED', 'message', format('%s tries, the last: %s', t.tries + 1, v_error->>'message'), 'last', v_error)::text],
      'finished', _now);
    return 'failed';
  end if;
  perform fencepost.close_leg_(array[_rid], 'retrying', null, _now);
  -- Failures are set aside, and waits that lost a race: asked for again, they are done and armed again. All else is answered when
  -- the code asks for it, and may stay unasked (50.4).
  update fencepost.boundary b set loose = true, state = case when b.state in ('failed', 'cancelled') then 'set_aside' else b.state end where b.rid = _rid;
  update fencepost.row r set state = 'again', seq = null, value = null
    from fencepost.map m
   where m.rid = _rid and r.mid = m.mid and r.state in ('failed', 'skipped')
     and not exists (select from fencepost.boundary b where b.rid = m.rid and b.kind = 'map' and b.name = m.name and b.ordinal = m.ordinal and b.state = 'kept');
  update fencepost.task x
     set state = 'queued', tries = t.tries + 1, fence = null, holder = null, request = null, claimed_at = null, begun = false,
         deferrals = 0, deferred_since = null, ready_at = _now + coalesce(_delay_ms, 0) * interval '1 ms',
         turn_at = _now + coalesce(_delay_ms, 0) * interval '1 ms' - t.priority * interval '60 s',
         due_at = case when _delay_ms > 0 then _now + _delay_ms * interval '1 ms' end, trouble = _value, seq = t.seq + 1
   where x.rid = _rid;
  insert into fencepost.event (rid, seq, at, type, number, data)
  values (_rid, t.seq + 1, _now, 'attempt.retrying', t.number, jsonb_build_object('delay_ms', _delay_ms));
  if coalesce(_delay_ms, 0) = 0 then perform fencepost.rouse_(t.lane, 1); end if;
  return 'retrying';
end $law$;

-- Takes no fence, by decision: an operator's and a client's verb. Answers: accepted · too_late (then `status`) · unknown_run.
create function fencepost.cancel_run(_org text, _id text, _reason text, _grace_ms integer)
returns table (answer text, status text) language plpgsql volatile as $law$
#variable_conflict use_column
declare v_now timestamptz := fencepost.enter_(); v_root bigint; v_tree bigint[] := '{}'; v_more bigint[]; v_plans bigint[] := '{}'; v_idle bigint[]; v_rid bigint; v_seq integer; t record;
begin
  select r.rid into v_root from fencepost.run r where r.org = _org and r.id = _id;
  if v_root is null then return query select 'unknown_run', null::text; return; end if;
  -- Everything that exists of the tree, at once and ascending, also below runs that have ended. What was born meanwhile is not waited
  -- for out of order: it is free in a moment, and the door is asked again (55P03 is weather).
  v_more := array[v_root];
  while cardinality(v_more) > 0 loop
    if v_tree = '{}' then
      v_tree := v_root || array(select d.rid from fencepost.descendants_(array[v_root]) d(rid));
      perform from fencepost.task x where x.rid = any (array(select a.rid from fencepost.ancestors_(array[v_root]) a(rid)) || v_tree) order by x.rid for no key update;
    else
      v_tree := v_tree || v_more;
      perform from fencepost.task x where x.rid = any (v_more) order by x.rid for no key update nowait;
    end if;
    v_more := array(select d.rid from fencepost.descendants_(array[v_root]) d(rid) where not (d.rid = any (v_tree)));
  end loop;
  if not exists (select from fencepost.task x where x.rid = v_root) then
    return query select case o.status when 'completed' then 'too_late' when 'failed' then 'too_late' when 'cancelled' then 'accepted' else 'unknown_run' end, o.status
      from (select v_root as rid) i left join lateral (select o.status from fencepost.outcome o where o.rid = i.rid limit 1) o on true;
    return;
  end if;
  -- Plans first: nothing new of theirs begins (70.11).
  for v_rid in select p.rid from fencepost.plan p where p.rid = any (v_tree) order by p.rid loop
    update fencepost.task x
       set state = 'cancelling', cancel_reason = left(_reason, 1000), cancel_until = v_now + _grace_ms * interval '1 ms', park = null, unknown = null, due_at = null,
           seq = x.seq + 1
     where x.rid = v_rid and x.state <> 'cancelling' returning x.seq into v_seq;
    continue when not found;
    insert into fencepost.event (rid, seq, at, type, data) values (v_rid, v_seq, v_now, 'run.cancelling', jsonb_build_object('reason', left(_reason, 1000)));
    perform fencepost.cancel_steps_(v_rid, _reason, v_now);
    v_plans := v_plans || v_rid;
  end loop;
  -- Tries that nobody has claimed, together: a plan may have thousands of them in the line, and each end goes through it.
  v_idle := array(select x.rid from fencepost.task x where x.rid = any (v_tree) and x.parent = any (v_plans) and x.fence is null and x.state <> 'cancelling'
                     and not exists (select from fencepost.task c where c.parent = x.rid) order by x.rid);
  if v_idle <> '{}' then
    update fencepost.task x set cancel_reason = left(_reason, 1000) where x.rid = any (v_idle);
    perform fencepost.end_runs_(v_idle, array_fill('cancelled'::text, array[cardinality(v_idle)]), array_fill(null::text, array[cardinality(v_idle)]),
      array_fill(null::text, array[cardinality(v_idle)]), 'finished', v_now);
  end if;
  -- Descendants first (a child's id is larger): a parent ends after its children.
  for v_rid in select x.rid from unnest(v_tree) x(rid) order by x.rid desc loop
    select x.* into t from fencepost.task x where x.rid = v_rid;
    if not found then continue; end if;
    if t.state = 'cancelling' then
      null;
    elsif t.fence is null and not exists (select from fencepost.task c where c.parent = v_rid) then
      update fencepost.task x set cancel_reason = left(_reason, 1000) where x.rid = v_rid;
      perform fencepost.end_runs_(array[v_rid], array['cancelled'], array[null::text], array[null::text], 'finished', v_now);
    else
      update fencepost.task x
         set state = 'cancelling', cancel_reason = left(_reason, 1000), cancel_until = v_now + _grace_ms * interval '1 ms', park = null, unknown = null,
             code_digest = null, due_at = null, claim_by = null, seq = t.seq + 1
       where x.rid = v_rid;
      insert into fencepost.event (rid, seq, at, type, number, data)
      values (v_rid, t.seq + 1, v_now, 'run.cancelling', nullif(t.number, 0), jsonb_build_object('reason', left(_reason, 1000)));
      if t.fence is not null then
        perform pg_notify(fencepost.channel_(left(replace(t.holder::text, '-', ''), 24)), 'look');
      end if;
    end if;
    -- Without a grace, or asked again when it is over: fenced out here, for no worker may be there to do it.
    if exists (select from fencepost.task x where x.rid = v_rid and x.state = 'cancelling' and x.cancel_until <= v_now) then
      if t.fence is not null then perform fencepost.close_leg_(array[v_rid], 'lost', 'grace_over', v_now); end if;
      perform fencepost.let_go_(v_rid, v_now);
    end if;
  end loop;
  foreach v_rid in array v_plans loop perform fencepost.let_go_(v_rid, v_now); end loop;
  return query select 'accepted', coalesce((select o.status from fencepost.outcome o where o.rid = v_root), 'cancelling');
end $law$;

-- An operator ends any run that is not terminal; code that still runs is fenced out. With a plan end the tries of its steps. Answers: done · too_late · unknown_run.
create function fencepost.end_run(_org text, _id text, _by text, _reason text) returns table (answer text, status text) language plpgsql volatile as $law$
#variable_conflict use_column
declare v_now timestamptz := fencepost.enter_(); v_rid bigint; v_tries bigint[];
  v_error text := json_build_object('code', 'OPERATOR_ENDED', 'message', coalesce(_reason, ''), 'by', _by)::text;
begin
  select r.rid into v_rid from fencepost.run r where r.org = _org and r.id = _id;
  if v_rid is null then return query select 'unknown_run', null::text; return; end if;
  perform from fencepost.task x where x.rid = any (array(select a.rid from fencepost.ancestors_(array[v_rid]) a(rid)) || v_rid) order by x.rid for no key update;
  if not exists (select from fencepost.task x where x.rid = v_rid) then
    -- Asked again after a lost reply, the same word gets the same answer.
    return query select case when o.status is null then 'unknown_run' when o.error = v_error then 'done' else 'too_late' end, o.status
      from (select v_rid as rid) i left join lateral (select o.status, o.error from fencepost.outcome o where o.rid = i.rid limit 1) o on true;
    return;
  end if;
  perform fencepost.end_runs_(array[v_rid], array['failed'], array[null::text], array[v_error], 'lost', v_now);
  v_tries := array(select t.rid from fencepost.task t where t.parent = v_rid and exists (select from fencepost.plan p where p.rid = v_rid) order by t.rid);
  if v_tries <> '{}' then
    perform from fencepost.task x where x.rid = any (v_tries) order by x.rid for no key update;
    perform fencepost.end_runs_(v_tries, array_fill('failed'::text, array[cardinality(v_tries)]), array_fill(null::text, array[cardinality(v_tries)]),
      array_fill(v_error, array[cardinality(v_tries)]), 'lost', v_now);
  end if;
  return query select 'done', o.status from fencepost.outcome o where o.rid = v_rid;
end $law$;

-- 30.8, 30.9. Anybody who waits may ask; no worker is needed. True when the run ended by its bound.
create function fencepost.judge_bound(_org text, _id text) returns boolean language plpgsql volatile as $law$
declare v_now timestamptz := fencepost.enter_(); v_rid bigint;
begin
  select r.rid into v_rid from fencepost.run r where r.org = _org and r.id = _id;
  if exists (select from fencepost.task t where t.rid = v_rid and t.claim_by <= v_now) then
    perform from fencepost.task t where t.rid = v_rid for no key update;
    perform fencepost.expire_(array[v_rid], v_now);
  end if;
  return exists (select from fencepost.outcome o where o.rid = v_rid and o.status = 'failed' and o.error = fencepost.expired_());
end $law$;

create function fencepost.expired_() returns text language sql immutable as $law$
  select '{"code":"ADMISSION_EXPIRED","message":"no worker claimed the run within its bound"}'
$law$;

create function fencepost.expire_(_rids bigint[], _now timestamptz) returns integer language plpgsql volatile as $law$
declare v_rids bigint[];
begin
  select array_agg(t.rid) into v_rids from fencepost.task t where t.rid = any (_rids) and t.state = 'queued' and t.claim_by <= _now;
  if v_rids is null then return 0; end if;
  perform fencepost.end_runs_(v_rids, array_fill('failed'::text, array[cardinality(v_rids)]), array_fill(null::text, array[cardinality(v_rids)]),
    array_fill(fencepost.expired_(), array[cardinality(v_rids)]), 'finished', _now);
  return cardinality(v_rids);
end $law$;

-- Who waits for a run's end leaves a channel; the end notifies it once. Polling is the truth behind it.
create function fencepost.watch_outcome(_org text, _id text, _channel text) returns table (rid bigint, status text, output text, error text) language plpgsql volatile as $law$
#variable_conflict use_column
declare v_rid bigint;
begin
  select r.rid into v_rid from fencepost.run r where r.org = _org and r.id = _id;
  if v_rid is null then return; end if;
  if _channel is not null and exists (select from fencepost.task t where t.rid = v_rid) then
    insert into fencepost.watcher (rid, channel, until) values (v_rid, _channel, fencepost.now_() + interval '1 hour') on conflict do nothing;
  end if;
  return query select v_rid, coalesce(o.status, case t.park when 'plan' then 'running' else t.state end), o.output, coalesce(o.error, case when t.state in ('unknown', 'parked') then t.trouble end)
    from (select v_rid as rid) x left join lateral (select o.* from fencepost.outcome o where o.rid = x.rid limit 1) o on true
    left join lateral (select t.* from fencepost.task t where t.rid = x.rid limit 1) t on true;
  -- It ended while the channel was being left: nobody calls it any more (80.6).
  if _channel is not null and not exists (select from fencepost.task t where t.rid = v_rid) then
    delete from fencepost.watcher w where w.rid = v_rid and w.channel = _channel;
  end if;
end $law$;
