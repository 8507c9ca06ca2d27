-- 35_rooms.sql: the inner rooms that doors of several chapters act through. The caller holds the run's row (and, where a run
-- may end, its ancestors'), took its locks in an earlier statement, and hands the instant in.
--
-- LAW    60.2   a wait is settled under the run's lock, judged after the lock was got
--        60.3   signals are delivered in the order sent, each to one wait
--        60.5   a wait resolves once: arrived | timed_out | cancelled
--        60.10  a child's end wakes its parent in the transaction that ends the child
--        80.1   one writer of `outcome`; after an accepted cancel only `cancelled` (80.4)
--        80.6   a terminal run has no lease, wait, timer or open child request
-- OWNS   nothing; writes task, outcome, attempt, boundary, signal, event, late

-- Resolves every armed wait of the run that can resolve now; a parked run for which one did goes back to the line.
-- A signal is looked for before the hour: one that was sent in time is delivered even if the clock has passed.
create function fencepost.settle_(_rid bigint, _now timestamptz) returns integer language plpgsql volatile as $law$
-- unfenced: waits belong to the run; the caller holds it.
declare v_task record; w record; s record; v_seq integer; v_done integer := 0; v_state text; v_value text;
begin
  select t.seq, t.number, t.state, t.park, t.lane, t.priority into v_task from fencepost.task t where t.rid = _rid;
  if not found then return 0; end if;
  if v_task.park = 'plan' then perform fencepost.advance_(_rid, '{}', '{}', _now); return 0; end if;
  v_seq := v_task.seq;
  -- 60.11: in the order in which it came to pass, so that the first of a race wins at its own time, however late somebody looks.
  for w in select b.* from (
               select b.*, row_number() over (partition by b.kind, b.name order by b.opened_seq) as nth
                 from fencepost.boundary b where b.rid = _rid and b.state = 'armed') b
             left join lateral (select x.sid, x.sent_at from fencepost.signal x
                                 where b.kind = 'signal' and x.rid = _rid and x.name = b.name and x.taken is null order by x.sid offset b.nth - 1 limit 1) g on true
             left join lateral (select x.ended_at from fencepost.outcome x where b.kind = 'child' and x.rid = b.child limit 1) o on true
            order by coalesce(g.sent_at, o.ended_at, b.until), g.sid, b.opened_seq loop
    v_state := null; v_value := null;
    if w.kind = 'signal' then
      select g.sid, g.payload into s from fencepost.signal g where g.rid = _rid and g.name = w.name and g.taken is null order by g.sid limit 1;
      if found then
        v_state := 'arrived'; v_value := s.payload;
        update fencepost.signal g set taken = w.ordinal where g.sid = s.sid;
      end if;
    elsif w.kind = 'child' then
      select format('{"status":"%s","has_output":%s,"output":%s,"error":%s}', o.status, (o.output is not null)::text, coalesce(o.output, 'null'),
                    coalesce(o.error, 'null')) into v_value from fencepost.outcome o where o.rid = w.child;
      if found then v_state := 'arrived'; end if;
    end if;
    if v_state is null and w.until <= _now then
      v_state := case w.kind when 'sleep' then 'arrived' else 'timed_out' end;
    end if;
    if v_state is not null then
      v_seq := v_seq + 1; v_done := v_done + 1;
      update fencepost.boundary b set state = v_state, value = v_value, seq = v_seq, number = v_task.number, at = _now
       where b.rid = _rid and b.kind = w.kind and b.name = w.name and b.ordinal = w.ordinal;
    end if;
  end loop;
  if v_done = 0 then return 0; end if;
  if v_task.state = 'parked' and v_task.park = 'wait' then
    v_seq := v_seq + 1;
    update fencepost.task t
       set state = 'queued', park = null, due_at = null, ready_at = _now, turn_at = _now - t.priority * interval '60 s', seq = v_seq
     where t.rid = _rid;
    insert into fencepost.event (rid, seq, at, type, number) values (_rid, v_seq, _now, 'run.woken', v_task.number);
    perform fencepost.rouse_(v_task.lane, 1);
  else
    update fencepost.task t set seq = v_seq where t.rid = _rid;
  end if;
  return v_done;
end $law$;

-- THE END, for every door that ends a run. Statuses: completed · failed · cancelled. A cancelling run ends cancelled,
-- whatever is brought; what was brought is kept as evidence.
create function fencepost.end_runs_(_rids bigint[], _statuses text[], _outputs text[], _errors text[], _ended text, _now timestamptz)
returns void language plpgsql volatile as $law$
-- unfenced: its callers are the gate's doors, and the doors that take no fence by decision; each holds the rows.
declare w record; v_seq integer; v_number integer; v_parents bigint[]; v_parent bigint;
begin
  for w in select b.rid, b.kind, b.name, b.ordinal from fencepost.boundary b where b.rid = any (_rids) and b.state = 'armed' order by b.rid, b.opened_seq loop
    update fencepost.task t set seq = t.seq + 1 where t.rid = w.rid returning t.seq, t.number into v_seq, v_number;
    update fencepost.boundary b set state = 'cancelled', seq = v_seq, number = v_number, at = _now
     where b.rid = w.rid and b.kind = w.kind and b.name = w.name and b.ordinal = w.ordinal;
  end loop;
  with i as materialized (
      select i.rid, t.number, t.fence, t.holder, t.claimed_at, t.begun, t.tries, t.seq + 1 as seq, t.parent,
             t.state = 'cancelling' as cancelling, i.status as brought, coalesce(i.output, i.error) as value,
             case when t.state = 'cancelling' then 'cancelled' else i.status end as status,
             case when t.state <> 'cancelling' then i.output end as output,
             case when t.state = 'cancelling' or i.status = 'cancelled' then json_build_object('code', 'CANCELLED', 'message', coalesce(t.cancel_reason, ''))::text
                  else i.error end as error
        from unnest(_rids, _statuses, _outputs, _errors) as i(rid, status, output, error)
        cross join lateral (select t.* from fencepost.task t where t.rid = i.rid limit 1) t),
    o as (insert into fencepost.outcome (rid, status, output, error, number, tries, fence, seq, ended_at)
          select i.rid, i.status, i.output, i.error, i.number, i.tries, i.fence, i.seq, _now from i),
    a as (insert into fencepost.attempt (rid, number, fence, holder, claimed_at, ended_at, ended, begun, reason)
          select i.rid, i.number, i.fence, i.holder, i.claimed_at, _now, _ended, i.begun, i.status from i where i.fence is not null),
    l as (insert into fencepost.late (rid, kind, name, ordinal, fence, ok, value, at)
          select i.rid, 'run', 'result', 1, i.fence, i.brought = 'completed', i.value, _now from i
           where i.cancelling and i.fence is not null and i.brought in ('completed', 'failed') and _ended = 'finished'),
    d as (delete from fencepost.task t where t.rid = any (_rids))
  select array_agg(distinct i.parent) filter (where i.parent is not null) into v_parents from i;
  perform pg_notify(x.channel, 'ended') from fencepost.watcher x where x.rid = any (_rids);
  if found then delete from fencepost.watcher x where x.rid = any (_rids); end if;
  if v_parents is not null then
    foreach v_parent in array v_parents loop
      -- A running parent looks for itself: every result of a leg gets its place from the leg's own calls (50.4).
      if not fencepost.advance_(v_parent, _rids, '{}', _now) then
        perform fencepost.settle_(v_parent, _now) from fencepost.task t where t.rid = v_parent and t.state = 'parked';
      end if;
      perform fencepost.let_go_(v_parent, _now);
      perform fencepost.hint_(v_parent);
    end loop;
  end if;
end $law$;

-- A running leg with armed waits is told to look: what it waits for may be here. Polling is the truth behind it.
create function fencepost.hint_(_rid bigint) returns void language plpgsql volatile as $law$
begin
  perform pg_notify(fencepost.channel_(left(replace(t.holder::text, '-', ''), 24)), 'look')
     from fencepost.task t where t.rid = _rid and t.holder is not null;
end $law$;

-- A cancelling run that no leg runs any more ends when its descendants have ended, or when the grace is over (80.4).
create function fencepost.let_go_(_rid bigint, _now timestamptz) returns void language plpgsql volatile as $law$
-- unfenced: it acts only where no fence is alive.
declare v_task record;
begin
  select t.fence, t.cancel_until, t.seq, t.number,
         exists (select from fencepost.task c where c.parent = t.rid) as has_children into v_task
    from fencepost.task t where t.rid = _rid and t.state = 'cancelling';
  if not found then return; end if;
  -- The leg's line is written by whoever calls: here the fence, if any, is already in the history.
  if v_task.fence is not null and exists (select from fencepost.attempt a where a.rid = _rid and a.number = v_task.number) then
    update fencepost.task t set fence = null, holder = null, request = null, claimed_at = null, begun = false where t.rid = _rid;
  elsif v_task.fence is not null then
    return;
  end if;
  if not v_task.has_children or v_task.cancel_until <= _now then
    perform fencepost.end_runs_(array[_rid], array['cancelled'], array[null::text], array[null::text], 'finished', _now);
  end if;
end $law$;
