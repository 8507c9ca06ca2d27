-- 60_suspension.sql: waiting without holding anything.
--
-- LAW    60.1   parking is one transaction: wait armed, holder given back, event recorded
--        60.2   first the signal is looked for, then the run parks, under one lock, judged after the lock was got
--        60.3   a sender's id makes its repeats harmless; undelivered signals are bounded
--        60.4   a signal names its run; a wake never names a fence
--        60.5   the resolution is a column of its own; a resolved sleep keeps what was asked
--        60.6   what a time-out means is what was armed (asked_ms, hash): a later deployment changes nothing
--        60.8   a swallowed suspension changes nothing: the fence is dead (40.3)
--        60.9   a herd is woken at most 1 000 a second a lane, oldest first
--        60.10  children: started and waited for by rows; their end settles the parent (35_rooms); a redrive is given those of its origin
--        60.11  waits are armed and looked at while other branches run; a leg parks only when all wait
--        00.14  whoever changes what a waiter looks for changes the row it locks: a repeatable-read sender fails, never misses
-- OWNS   signal; writes task, boundary, run (children), event
-- LOCKS  run rows ascending (hold_)

-- One item is a leg's present waits: a JSON list of {op: arm|cancel, kind: sleep|signal, name, ordinal, ms, hash}. Children are armed by
-- start_children. `_known` is the newest sequence among wait results that the leg has been told; `_said`, its newest progress that was not
-- shown yet, is shown while the run rests.
-- Answers: here (then `resolved` lists [kind, name, ordinal, state, seq, value]) · armed · parked · stale · cancelled · again.
-- `due_ms`: until the earliest armed hour, on the database's clock.
create function fencepost.park_attempts(_rids bigint[], _fences uuid[], _waits text[], _knowns integer[], _parks boolean[], _saids text[])
returns table (ord integer, answer text, resolved text, due_ms bigint) language plpgsql volatile as $law$
#variable_conflict use_column
declare v_now timestamptz := fencepost.enter_(); v_held fencepost.held_[] := fencepost.hold_(_rids, _fences, '{}'); h fencepost.held_; w record;
  v_seq integer; v_due timestamptz; v_lane integer;
begin
  foreach h in array v_held loop
    ord := h.ord; resolved := null; due_ms := null;
    -- The park of this very fence, asked again after its answer was lost (00.3).
    if h.how = 'stale' and _parks[h.ord] and exists (
      select from fencepost.attempt a where a.rid = h.rid and a.fence = _fences[h.ord] and a.ended = 'parked' and a.reason is null) then
      answer := 'parked'; return next; continue;
    end if;
    if h.how <> 'held' or h.state = 'cancelling' then
      answer := case h.how when 'held' then 'cancelled' else h.how end; return next; continue;
    end if;
    v_seq := h.seq;
    for w in select x.* from json_to_recordset(_waits[h.ord]::json) as x(op text, kind text, name text, ordinal integer, ms bigint, hash text) loop
      if w.op = 'cancel' then
        update fencepost.boundary b set state = 'cancelled', seq = v_seq + 1, number = h.number, at = v_now
         where b.rid = h.rid and b.kind = w.kind and b.name = w.name and b.ordinal = w.ordinal and b.state = 'armed';
        if found then v_seq := v_seq + 1; end if;
      else
        insert into fencepost.boundary as b (rid, kind, name, ordinal, state, opened_seq, number, fence, hash, asked_ms, until, at, opened_at)
        values (h.rid, w.kind, w.name, w.ordinal, 'armed', v_seq + 1, h.number, _fences[h.ord], w.hash, w.ms, v_now + w.ms * interval '1 ms', v_now, v_now)
        on conflict (rid, kind, name, ordinal) do update
           set state = 'armed', opened_seq = excluded.opened_seq, seq = null, number = excluded.number, fence = excluded.fence, hash = excluded.hash, value = null,
               asked_ms = excluded.asked_ms, until = excluded.until, loose = false, at = excluded.at, opened_at = excluded.opened_at
         where b.state = 'set_aside';
        if found then v_seq := v_seq + 1; end if;
      end if;
    end loop;
    if v_seq <> h.seq then update fencepost.task t set seq = v_seq where t.rid = h.rid; end if;
    perform fencepost.settle_(h.rid, v_now);
    select '[' || string_agg(json_build_array(b.kind, b.name, b.ordinal, b.state, b.seq, b.value)::text, ',' order by b.seq) || ']' into resolved
      from fencepost.boundary b where b.rid = h.rid and b.kind in ('sleep', 'signal', 'child') and b.seq > _knowns[h.ord] and b.state in ('arrived', 'timed_out');
    if resolved is not null then answer := 'here'; return next; continue; end if;
    select min(b.until) into v_due from fencepost.boundary b where b.rid = h.rid and b.state = 'armed';
    due_ms := case when v_due is not null then greatest(0, ceil(extract(epoch from v_due - v_now) * 1000))::bigint end;
    if not _parks[h.ord] then answer := 'armed'; return next; continue; end if;
    perform fencepost.close_leg_(array[h.rid], 'parked', null, v_now);
    update fencepost.task t
       set state = 'parked', park = 'wait', due_at = v_due, fence = null, holder = null, request = null, claimed_at = null, begun = false,
           losses = 0, deferrals = 0, deferred_since = null, progress = coalesce(_saids[h.ord], t.progress), seq = t.seq + 1
     where t.rid = h.rid returning t.seq, t.lane into v_seq, v_lane;
    insert into fencepost.event (rid, seq, at, type, number, data)
    values (h.rid, v_seq, v_now, 'attempt.parked', h.number, case when v_due is not null then jsonb_build_object('until', v_due) end);
    answer := 'parked'; return next;
  end loop;
end $law$;

-- 60.10. Admits children and, where the parent waits, arms the wait: one transaction. An id another launch has is `conflict`.
-- Answers: started · replayed · conflict · refused · stale · cancelled · again.
create function fencepost.start_children(_rids bigint[], _fences uuid[], _names text[], _ordinals integer[], _hashes text[], _waits boolean[],
  _child_ids text[], _child_names text[], _inputs text[], _on_losts text[])
returns table (ord integer, answer text, seq integer, child bigint) language plpgsql volatile as $law$
#variable_conflict use_column
declare v_now timestamptz := fencepost.enter_(); v_held fencepost.held_[] := fencepost.hold_(_rids, _fences, '{}'); h fencepost.held_;
  v_run record; v_had record; v_child bigint; v_seq integer; v_priority integer;
begin
  foreach h in array v_held loop
    ord := h.ord; seq := null; child := null;
    if h.how <> 'held' or h.state = 'cancelling' then
      answer := case h.how when 'held' then 'cancelled' else h.how end; return next; continue;
    end if;
    select b.child, b.seq into v_had from fencepost.boundary b
     where b.rid = h.rid and b.kind = 'child' and b.name = _names[h.ord] and b.ordinal = _ordinals[h.ord] and b.state <> 'set_aside';
    if found then answer := 'replayed'; child := v_had.child; seq := v_had.seq; return next; continue; end if;
    if not fencepost.good_name_(_child_ids[h.ord]) or not fencepost.good_name_(_child_names[h.ord]) then answer := 'refused'; return next; continue; end if;
    select r.org, r.lane, r.release into v_run from fencepost.run r where r.rid = h.rid;
    select p.priority into v_priority from fencepost.policy p where p.source = 'async_child';
    insert into fencepost.run (org, id, kind, name, lane, release, source, priority, input, on_lost, parent, key_root, submitted_at)
    values (v_run.org, _child_ids[h.ord], 'workflow', _child_names[h.ord], v_run.lane, v_run.release, 'async_child', v_priority, _inputs[h.ord],
            coalesce(_on_losts[h.ord], 'replay'), h.rid, gen_random_uuid(), v_now)
    on conflict (org, id) do nothing returning rid into v_child;
    if v_child is null then
      -- (A redrive is given what its origin started, once that has ended: till then it has another parent to wake.)
      select r.rid into v_child from fencepost.run r where r.org = v_run.org and r.id = _child_ids[h.ord]
         and r.name = _child_names[h.ord] and r.input::jsonb = _inputs[h.ord]::jsonb
         and (r.parent = h.rid or (r.parent = any (array(select fencepost.origins_(h.rid))) and exists (select from fencepost.outcome o where o.rid = r.rid)));
      if v_child is null then answer := 'conflict'; return next; continue; end if;
    else
      insert into fencepost.task (rid, lane, org, state, priority, ready_at, turn_at, seq, on_lost, parent)
      values (v_child, v_run.lane, v_run.org, 'queued', v_priority, v_now, v_now - v_priority * interval '60 s', 1, coalesce(_on_losts[h.ord], 'replay'), h.rid);
      perform fencepost.rouse_(v_run.lane, 1);
    end if;
    update fencepost.task t set seq = t.seq + 1, losses = 0 where t.rid = h.rid returning t.seq into v_seq;
    insert into fencepost.boundary as b (rid, kind, name, ordinal, state, opened_seq, seq, number, fence, hash, value, child, at, opened_at)
    values (h.rid, 'child', _names[h.ord], _ordinals[h.ord], case when _waits[h.ord] then 'armed' else 'kept' end, v_seq,
            case when not _waits[h.ord] then v_seq end, h.number, _fences[h.ord], _hashes[h.ord],
            case when not _waits[h.ord] then to_json(_child_ids[h.ord])::text end, v_child, v_now, v_now)
    on conflict (rid, kind, name, ordinal) do update
       set state = excluded.state, opened_seq = excluded.opened_seq, seq = excluded.seq, number = excluded.number, fence = excluded.fence,
           hash = excluded.hash, value = excluded.value, child = excluded.child, loose = false, at = excluded.at;
    answer := 'started'; child := v_child; seq := case when not _waits[h.ord] then v_seq end; return next;
  end loop;
end $law$;

-- Anyone's door: it takes no fence, by decision. It locks the run, then looks; a running leg that waits is hinted.
-- Answers: sent · repeated · full · ended · unknown_run · refused.
create function fencepost.send_signals(_orgs text[], _ids text[], _names text[], _dedupes text[], _payloads text[])
returns table (ord integer, answer text) language plpgsql volatile as $law$
#variable_conflict use_column
declare v_now timestamptz := fencepost.now_(); i record; v_task record; v_seq integer;
begin
  if current_setting('synchronous_commit') = 'off' then perform set_config('synchronous_commit', 'on', true); end if;
  for i in select i.*, r.rid from unnest(_orgs, _ids, _names, _dedupes, _payloads) with ordinality as i(org, id, name, dedupe, payload, ord)
             left join lateral (select r.rid from fencepost.run r where r.org = i.org and r.id = i.id limit 1) r on true
            order by r.rid nulls first, i.ord loop
    ord := i.ord;
    if i.rid is null then answer := 'unknown_run'; return next; continue; end if;
    if not fencepost.good_name_(i.name) or i.payload is null then answer := 'refused'; return next; continue; end if;
    perform from fencepost.task t where t.rid = i.rid for no key update;
    select t.state, t.park, t.number into v_task from fencepost.task t where t.rid = i.rid;
    if exists (select from fencepost.signal s where s.rid = i.rid and s.name = i.name and s.dedupe = i.dedupe) then answer := 'repeated'; return next; continue; end if;
    if v_task.state is null then answer := 'ended'; return next; continue; end if;
    if (select count(*) >= 1000 from fencepost.signal s where s.rid = i.rid and s.taken is null) then answer := 'full'; return next; continue; end if;
    insert into fencepost.signal (rid, name, dedupe, payload, sent_at) values (i.rid, i.name, i.dedupe, i.payload, v_now);
    update fencepost.task t set seq = t.seq + 1 where t.rid = i.rid returning t.seq into v_seq;
    insert into fencepost.event (rid, seq, at, type, number, data)
    values (i.rid, v_seq, v_now, 'signal.sent', nullif(v_task.number, 0), jsonb_build_object('name', i.name));
    if v_task.state = 'parked' and v_task.park = 'wait' then
      perform fencepost.settle_(i.rid, v_now);
    elsif exists (select from fencepost.boundary b where b.rid = i.rid and b.state = 'armed') then
      perform fencepost.hint_(i.rid);
    end if;
    answer := 'sent'; return next;
  end loop;
end $law$;

-- For SQL callers, in their own transaction. Without `dedupe` a repeat is another signal (60.3).
create function fencepost.send_signal(run_id text, name text, payload jsonb default 'null', dedupe text default null, org text default 'default')
returns text language sql volatile as $law$
  select s.answer from fencepost.send_signals(array[org], array[run_id], array[name], array[dedupe], array[payload::text]) s
$law$;

-- Timers: bounded, oldest first, at most `_most` and at most 1 000 in any second of the lane's. Returns how many woke.
create function fencepost.wake_due_(_lane integer, _most integer, _now timestamptz) returns integer language plpgsql volatile as $law$
declare v_lane record; v_most integer; v_woken integer := 0; v_rid bigint; v_rids bigint[];
begin
  if not exists (select from fencepost.task t where t.lane = _lane and t.due_at <= _now) then return 0; end if;
  perform from fencepost.lane l where l.lane = _lane for no key update skip locked;
  if not found then return 0; end if;
  select coalesce(array_agg(w.at), '{}') as at, coalesce(array_agg(w.n), '{}') as n, coalesce(sum(w.n), 0) as total into v_lane
    from fencepost.lane l cross join unnest(l.woken_at, l.woken) w(at, n) where l.lane = _lane and w.at > _now - interval '1 second';
  v_most := least(_most, 1000 - v_lane.total);
  if v_most <= 0 then return 0; end if;
  select array_agg(x.rid order by x.rid) into v_rids from (
    select t.rid from fencepost.task t where t.lane = _lane and t.due_at <= _now order by t.due_at, t.rid limit v_most for no key update skip locked) x;
  if v_rids is null then return 0; end if;
  foreach v_rid in array v_rids loop
    perform fencepost.settle_(v_rid, _now) from fencepost.task t where t.rid = v_rid and t.state = 'parked';
    -- A delayed entry of the line whose hour has come.
    update fencepost.task t set due_at = null, seq = t.seq + 1 where t.rid = v_rid and t.state = 'queued' and t.due_at <= _now;
    if found then
      insert into fencepost.event (rid, seq, at, type, number)
      select t.rid, t.seq, _now, 'run.woken', nullif(t.number, 0) from fencepost.task t where t.rid = v_rid;
    end if;
    v_woken := v_woken + 1;
  end loop;
  update fencepost.lane l set woken_at = v_lane.at || _now, woken = v_lane.n || v_woken where l.lane = _lane;
  perform fencepost.rouse_(_lane, least(v_woken, 16));
  return v_woken;
end $law$;
