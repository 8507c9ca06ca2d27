-- 55_shared.sql: steps of scope `org`, done once for an organisation, whichever of its runs asks.
--
-- LAW    50.9   leased by one attempt, completed once, given to every later asker until its epoch; marked and not completed it is unknown
--        50.2   what nobody knows is unknown to every asker; whoever looks it up takes its mark over
--        50.3   the key of the call is the entry's: the same for every run that takes it on
--        50.7   the lease is the fence that the mark names: gone with it
--        00.3   asked again by the fence that holds it, it is held; a call that is resolved is answered from its record
-- OWNS   shared, asker; writes boundary, task
-- LOCKS  the run's row (hold_), then the entry's: always in this order
--
-- THE IDEA. An entry holds no value and no state of its own: it names the boundary of the run that took it on. What that boundary says
-- (marked by a living fence, kept, failed, marked by a dead one) is what the entry is, so whatever resolves the boundary (a look-up, an
-- operator, late evidence) resolves the entry, once. Only a run that is forgotten leaves its value, or its unknown, in the entry.

-- How an entry stands: held · kept · free · unknown. A dead fence never lives again and a kept value never changes, so what is read
-- here without the holder's lock is true, or (held) was true a moment ago, and then whoever waits is woken.
create function fencepost.judge_entry_(_eid bigint, out how text, out value text, out fence uuid, out rid bigint, out ordinal integer)
language plpgsql stable as $law$
begin
  select case when s.left_as is not null then s.left_as
              when b.state = 'kept' then 'kept'
              when b.state is distinct from 'marked' then 'free'
              when t.fence = b.fence then 'held'
              when b.repeatable then 'free'
              else 'unknown' end,
         case when s.left_as is not null then s.value else b.value end, b.fence, s.rid, s.ordinal
    into how, value, fence, rid, ordinal
    from fencepost.shared s
    left join lateral (select b.* from fencepost.boundary b where b.rid = s.rid and b.kind = 'step' and b.name = s.name and b.ordinal = s.ordinal limit 1) b on true
    left join lateral (select t.fence from fencepost.task t where t.rid = s.rid limit 1) t on true
   where s.eid = _eid;
end $law$;

-- The entry that this call of a run is bound to, from its first asking on: a later epoch is for later calls. Locked, and made if missing.
create function fencepost.bind_entry_(_rid bigint, _name text, _ordinal integer, _key text, _epoch text, _now timestamptz) returns bigint
language plpgsql volatile as $law$
declare v_eid bigint; v_org text;
begin
  select r.org into v_org from fencepost.run r where r.rid = _rid;
  loop                                    -- again, if it was forgotten between two statements
    select a.eid into v_eid from fencepost.asker a where a.rid = _rid and a.name = _name and a.ordinal = _ordinal;
    if v_eid is null then
      insert into fencepost.shared (org, name, key, epoch, made_at, asked_at) values (v_org, _name, _key, _epoch, _now, _now)
      on conflict (org, name, key, epoch) do nothing;
      select s.eid into v_eid from fencepost.shared s where s.org = v_org and s.name = _name and s.key = _key and s.epoch = _epoch;
    end if;
    perform from fencepost.shared s where s.eid = v_eid for no key update;
    exit when found;
    delete from fencepost.asker a where a.rid = _rid and a.name = _name and a.ordinal = _ordinal and a.eid = v_eid;
  end loop;
  update fencepost.shared s set asked_at = _now where s.eid = v_eid and s.asked_at < _now - interval '1 hour';
  return v_eid;
end $law$;

-- Writes the asking call's own boundary: its mark, or what it was given.
create function fencepost.write_asked_(h fencepost.held_, _name text, _ordinal integer, _state text, _fence uuid, _hash text, _repeatable boolean,
  _value text, _until timestamptz, _now timestamptz) returns integer language plpgsql volatile as $law$
-- unfenced: the caller came through the gate and holds the row.
declare v_mark boolean := _state = 'marked';
begin
  insert into fencepost.boundary as b (rid, kind, name, ordinal, state, opened_seq, seq, number, fence, hash, repeatable, value, until, at, opened_at)
  values (h.rid, 'step', _name, _ordinal, _state, case when v_mark then h.seq + 1 end, case when not v_mark then h.seq + 1 end, h.number, _fence, _hash,
          _repeatable, _value, _until, _now, case when v_mark then _now end)
  on conflict (rid, kind, name, ordinal) do update
     set state = excluded.state, opened_seq = coalesce(excluded.opened_seq, b.opened_seq), seq = excluded.seq, number = excluded.number, fence = excluded.fence,
         hash = excluded.hash, repeatable = excluded.repeatable, value = excluded.value, until = excluded.until, loose = false, at = excluded.at,
         opened_at = coalesce(excluded.opened_at, b.opened_at);
  update fencepost.task t set seq = t.seq + 1, losses = case when v_mark then t.losses else 0 end where t.rid = h.rid;
  return h.seq + 1;
end $law$;

-- `_again`: the look-up of the asker permits to take an unknown over. Answers: marked (run it; `root` is what its key is made of) · given
-- (then seq, state, value: the call's record) · wait (a signal of the name `_wait` will come) · unknown (then `gone_ms`: since when the
-- death of the mark's holder is confirmed, null while it is not) · stale · cancelled.
create function fencepost.ask_shared(_rid bigint, _fence uuid, _name text, _ordinal integer, _hash text, _key text, _epoch text, _repeatable boolean,
  _timeout_ms bigint, _wait text, _again boolean)
returns table (answer text, seq integer, state text, value text, root uuid, gone_ms bigint) language plpgsql volatile as $law$
#variable_conflict use_column
declare v_now timestamptz := fencepost.enter_(); h fencepost.held_ := (fencepost.hold_(array[_rid], array[_fence], '{}'))[1]; own record; j record;
  v_eid bigint; v_how text;
begin
  if h.how <> 'held' or h.state = 'cancelling' then
    return query select case h.how when 'held' then 'cancelled' else h.how end, null::integer, null::text, null::text, null::uuid, null::bigint; return;
  end if;
  select b.state, b.seq, b.value, b.fence, b.repeatable into own from fencepost.boundary b
   where b.rid = _rid and b.kind = 'step' and b.name = _name and b.ordinal = _ordinal;
  if own.state in ('kept', 'failed') then return query select 'given', own.seq, own.state, own.value, null::uuid, null::bigint; return; end if;
  v_eid := fencepost.bind_entry_(_rid, _name, _ordinal, _key, _epoch, v_now);
  select * into j from fencepost.judge_entry_(v_eid);
  v_how := j.how;
  -- A mark of this very call that nobody else answers for (a redrive brought it along): free for others, unknown here.
  if v_how = 'free' and own.state = 'marked' and not own.repeatable and own.fence is distinct from _fence then v_how := 'unknown'; end if;
  if v_how = 'unknown' and _again then v_how := 'free'; end if;
  if v_how = 'held' and j.rid = _rid and j.ordinal = _ordinal and j.fence = _fence then
    v_how := 'mine';
  elsif v_how = 'free' then
    perform fencepost.write_asked_(h, _name, _ordinal, 'marked', _fence, _hash, _repeatable, null, v_now + _timeout_ms * interval '1 ms', v_now);
    update fencepost.shared s set rid = _rid, ordinal = _ordinal, marker = h.holder, left_as = null, value = null where s.eid = v_eid;
  elsif v_how = 'kept' then
    seq := fencepost.write_asked_(h, _name, _ordinal, 'kept', _fence, _hash, _repeatable, j.value, null, v_now);
    delete from fencepost.asker a where a.rid = _rid and a.name = _name and a.ordinal = _ordinal;
    return query select 'given', seq, 'kept', j.value, null::uuid, null::bigint; return;
  elsif v_how = 'unknown' then
    -- The call bears the mark of whoever may have done it: its run has an unknown, and says so (40.6).
    if own.state is distinct from 'marked' then
      perform fencepost.write_asked_(h, _name, _ordinal, 'marked', j.fence, _hash, false, null, null, v_now);
    end if;
    -- The run that left it has ended: from now on this one answers for it, for somebody must be able to (85.5).
    update fencepost.shared s set rid = _rid, ordinal = _ordinal, left_as = null
     where s.eid = v_eid and j.how = 'unknown' and not exists (select from fencepost.task t where t.rid = s.rid);
  end if;
  insert into fencepost.asker (rid, name, ordinal, eid, how, wait)
  values (_rid, _name, _ordinal, v_eid, case v_how when 'held' then 'waits' when 'unknown' then 'told' else 'holds' end, _wait)
  on conflict (rid, name, ordinal) do update set how = excluded.how, wait = excluded.wait;
  return query
  select case v_how when 'held' then 'wait' when 'unknown' then 'unknown' else 'marked' end, null::integer, null::text, null::text, s.root,
         (select greatest(0, extract(epoch from v_now - i.gone_at) * 1000)::bigint from fencepost.incarnation i where i.id = s.marker and i.gone_at is not null)
    from fencepost.shared s where s.eid = v_eid;
end $law$;

-- How the entry of a call stands, for whoever replays it: nothing is written. No row: the call is bound to none.
create function fencepost.peek_shared(_rid bigint, _name text, _ordinal integer) returns table (how text, root uuid, gone_ms bigint) language sql stable as $law$
  select j.how, s.root,
         (select greatest(0, extract(epoch from fencepost.now_() - i.gone_at) * 1000)::bigint from fencepost.incarnation i where i.id = s.marker and i.gone_at is not null)
    from fencepost.asker a
    cross join lateral fencepost.judge_entry_(a.eid) j
    join lateral (select s.* from fencepost.shared s where s.eid = a.eid limit 1) s on true
   where a.rid = _rid and a.name = _name and a.ordinal = _ordinal
$law$;
