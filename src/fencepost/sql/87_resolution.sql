-- 87_resolution.sql: how somebody who knows says what became of the unknown, and how ended work is done again.
--
-- LAW    85.5   unknown steps, rows and attempts are resolved once, with an audit line; redrive is a new admission
--        50.7   nothing deletes a mark: it is resolved, or stays
--        00.3   the same word, asked again after a lost reply, has no second effect and gets the same answer
-- OWNS   nothing; writes run, task, boundary, map, row, late, event, outcome
-- LOCKS  the run and its ancestors, ascending; a redrive writes a run that nobody else has seen

-- 85.5. Verdicts: completed · failed · again · late · lookup. With a name: that step (or, with a key, that row of a map); without: the attempt
-- as a whole. Only while no attempt runs. The run continues when nothing of it is unknown any more, or at once when asked to look up.
-- Answers: done (also to the same word asked again after a lost reply) · refused (then `why`) · unknown_run.
create function fencepost.resolve_unknown(_org text, _id text, _name text, _ordinal integer, _key text, _verdict text, _value text, _by text)
returns table (answer text, why text) language plpgsql volatile as $law$
#variable_conflict use_column
declare v_now timestamptz := fencepost.enter_(); v_rid bigint; t record; v_why text; v_state text; v_value text; v_seq integer;
  v_said jsonb := jsonb_strip_nulls(jsonb_build_object('verdict', _verdict, 'step', _name, 'ordinal', _ordinal, 'row', _key, 'by', _by,
    'value', encode(sha256(convert_to(_value, 'UTF8')), 'hex')));
begin
  select r.rid into v_rid from fencepost.run r where r.org = _org and r.id = _id;
  if v_rid is null then return query select 'unknown_run', null::text; return; end if;
  perform from fencepost.task x where x.rid = any (array(select a.rid from fencepost.ancestors_(array[v_rid]) a(rid)) || v_rid) order by x.rid for no key update;
  select x.* into t from fencepost.task x where x.rid = v_rid;
  v_seq := t.seq;
  v_state := case _verdict when 'completed' then 'kept' when 'failed' then 'failed' when 'again' then 'again' end;
  v_value := case _verdict when 'completed' then coalesce(_value, 'null') when 'failed' then _value end;
  v_why := case when t.rid is null then 'the run has ended'
                when exists (select from fencepost.plan p where p.rid = v_rid) then coalesce('a plan is resolved by its steps: ' || (
                  select string_agg(x.id, ', ' order by x.no) from (select c.id, s.no from fencepost.step s join fencepost.run c on c.rid = s.child
                                                                     where s.rid = v_rid and s.state = 'unknown' order by s.no limit 10) x), 'no step of the plan is unknown')
                when t.state = 'cancelling' then 'the run is being cancelled'
                when t.fence is not null then 'an attempt of the run still runs'
                when _verdict is null or _verdict not in ('completed', 'failed', 'again', 'late', 'lookup') then 'a verdict is completed, failed, again, late or lookup'
                when _verdict = 'failed' and _value is null then 'a failure needs its error'
                when _verdict = 'lookup' and t.state <> 'unknown' then format('the run is %s, not unknown: it asks by itself', t.state) end;

  if v_why is not null then
    null;
  elsif _key is not null then                              -- a row
    if v_state is null then
      v_why := 'a row is resolved completed, failed or again';
    else
      update fencepost.row r set state = v_state, value = v_value, seq = case when v_state <> 'again' then v_seq + 1 end, at = v_now
       where (r.mid, r.index) = (
         select w.mid, w.index from fencepost.map m join fencepost.row w on w.mid = m.mid
          where m.rid = v_rid and (_name is null or m.name = _name) and (_ordinal is null or m.ordinal = _ordinal)
            and w.key = _key and w.state = 'marked' and not w.repeatable order by w.mid limit 1);
      if not found then v_why := 'no unknown row has this key'; end if;
    end if;
  elsif _name is not null then                             -- a step
    if _verdict = 'late' then
      update fencepost.late l set accepted = true
       where l.lid = (select l.lid from fencepost.late l join fencepost.boundary b on b.rid = l.rid and b.kind = 'step' and b.name = l.name and b.ordinal = l.ordinal
                       where l.rid = v_rid and l.kind = 'step' and l.name = _name and l.ordinal = coalesce(_ordinal, 1)
                         and l.fence = b.fence and b.state = 'marked' and not b.repeatable order by l.lid limit 1)
      returning case when l.ok then 'kept' else 'failed' end, l.value into v_state, v_value;
      if not found then v_why := 'no late evidence of this step was kept'; end if;
    end if;
    if v_why is null and _verdict = 'lookup' then
      if not exists (select from fencepost.boundary x where x.rid = v_rid and x.kind = 'step' and x.name = _name and x.ordinal = coalesce(_ordinal, 1)
                        and x.state = 'marked' and not x.repeatable) then v_why := 'no unknown step has this name and number'; end if;
    elsif v_why is null then
      update fencepost.boundary x
         set state = v_state, value = v_value, seq = case when v_state <> 'again' then v_seq + 1 end, until = null, at = v_now
       where x.rid = v_rid and x.kind = 'step' and x.name = _name and x.ordinal = coalesce(_ordinal, 1) and x.state = 'marked' and not x.repeatable;
      if not found then v_why := 'no unknown step has this name and number'; end if;
    end if;
  else                                                     -- the attempt as a whole
    v_why := case when t.state <> 'unknown' then format('the run is %s, not unknown', t.state)
                  when _verdict = 'late' then 'an attempt is resolved completed, failed, again or by a look-up'
                  when _verdict <> 'lookup' and fencepost.has_unknown_(v_rid) then 'resolve its unknown steps and rows first'
                  when _verdict = 'completed' and t.opaque and not fencepost.is_result_(v_value)
                    then 'a step ends with {"outputs": {NAME: {"media_type": TEXT, "size": BYTES, "digest": "sha256:...", "text": TEXT}}}, or with null' end;
  end if;
  if v_why is not null then
    return query select case when x.said then 'done' else 'refused' end, case when not x.said then v_why end
      from (select exists (select from fencepost.event e where e.rid = v_rid and e.type in ('run.resolved', 'late.accepted') and e.data = v_said) as said) x;
    return;
  end if;
  -- A result of a step or row stands at its own place, the audit line at the next.
  if (_name is not null or _key is not null) and v_state in ('kept', 'failed') then v_seq := v_seq + 1; end if;
  v_seq := v_seq + 1;
  update fencepost.task x set seq = v_seq where x.rid = v_rid;
  insert into fencepost.event (rid, seq, at, type, number, data)
  values (v_rid, v_seq, v_now, case _verdict when 'late' then 'late.accepted' else 'run.resolved' end, nullif(t.number, 0), v_said);
  if _name is null and _key is null and _verdict in ('completed', 'failed') then
    perform fencepost.end_runs_(array[v_rid], array[_verdict], array[case _verdict when 'completed' then _value end], array[case _verdict when 'failed' then _value end], 'finished', v_now);
  elsif t.state = 'unknown' and (_verdict = 'lookup' or not fencepost.has_unknown_(v_rid)) then
    perform fencepost.unpark_(v_rid, v_now);
  end if;
  return query select 'done', null::text;
end $law$;

-- 85.5. Many rows of a run's maps at once, each by its key, with its own audit line, in the order given; a batch is bounded by who asks.
-- Answers by `ord`: done · refused (then `why`) · not_found (no row of the run has this key) · unknown_run.
create function fencepost.resolve_rows(_org text, _id text, _name text, _ordinal integer, _keys text[], _verdict text, _value text, _by text)
returns table (ord integer, answer text, why text) language plpgsql volatile as $law$
#variable_conflict use_column
declare v_key text; v_found boolean;
begin
  ord := 0;
  foreach v_key in array _keys loop
    ord := ord + 1;
    select x.answer, x.why into answer, why from fencepost.resolve_unknown(_org, _id, _name, _ordinal, v_key, _verdict, _value, _by) x;
    if answer = 'refused' then
      select exists (select from fencepost.run r join fencepost.map m on m.rid = r.rid join fencepost.row w on w.mid = m.mid
                      where r.org = _org and r.id = _id and (_name is null or m.name = _name) and (_ordinal is null or m.ordinal = _ordinal) and w.key = v_key)
        into v_found;
      if not v_found then answer := 'not_found'; end if;
    end if;
    return next;
  end loop;
end $law$;

-- 85.5. A new run from an ended one's committed steps, with their keys. `_from`: what was recorded at and after that step is set aside;
-- refused if a non-repeatable step, or a map with such rows, is among that, unless named in `_again` (NAME#N). Unknown steps and rows of
-- the origin come along as they are; failures are asked again. A child that the origin still waited for when it ended is waited for until it
-- has ended too, or its work might be done twice at once; then the redrive has its end.
-- Answers: created · replayed · refused (then `why`) · unknown_run.
create function fencepost.redrive_run(_org text, _id text, _new_id text, _from_name text, _from_ordinal integer, _again text[], _by text)
returns table (answer text, why text) language plpgsql volatile as $law$
#variable_conflict use_column
declare v_now timestamptz := fencepost.enter_(); r record; v_rid bigint; v_cut integer; v_bad text; v_seq integer := 1; v_n integer; m record; v_mid bigint;
begin
  select x.* into r from fencepost.run x where x.org = _org and x.id = _id;
  if not found then return query select 'unknown_run', null::text; return; end if;
  if r.kind <> 'workflow' then return query select 'refused', 'only workflows are redriven: run the plan again under another id'; return; end if;
  if not exists (select from fencepost.outcome o where o.rid = r.rid) then return query select 'refused', 'the run has not ended'; return; end if;
  if not fencepost.good_name_(_new_id) then return query select 'refused', 'the new id is not a usable id'; return; end if;
  if _from_name is not null then
    select min(coalesce(b.opened_seq, b.seq)) into v_cut from fencepost.boundary b
     where b.rid = r.rid and b.kind in ('step', 'map') and b.name = _from_name and b.ordinal = coalesce(_from_ordinal, 1);
    if v_cut is null then return query select 'refused', 'the origin recorded no such step'; return; end if;
    select string_agg(distinct b.name || '#' || b.ordinal, ', ') into v_bad from fencepost.boundary b
     where b.rid = r.rid and b.kind in ('step', 'map') and coalesce(b.opened_seq, b.seq) >= v_cut
       and case b.kind when 'step' then not b.repeatable and b.state in ('kept', 'marked')
                       else exists (select from fencepost.map m join fencepost.row w on w.mid = m.mid and not w.repeatable and w.state in ('kept', 'marked')
                                     where m.rid = b.rid and m.name = b.name and m.ordinal = b.ordinal) end
       and not ((b.name || '#' || b.ordinal) = any (coalesce(_again, '{}')));
    if v_bad is not null then return query select 'refused', 'would repeat steps that are not repeatable: ' || v_bad || ' (name each with --again)'; return; end if;
  end if;
  select string_agg(distinct c.id, ', ') into v_bad from fencepost.boundary b join fencepost.task t on t.rid = b.child join fencepost.run c on c.rid = b.child
   where b.rid = r.rid and b.kind = 'child' and b.state in ('cancelled', 'set_aside');
  if v_bad is not null then return query select 'refused', 'children of the run have not ended: ' || v_bad || ' (redrive when they have, or cancel them)'; return; end if;
  insert into fencepost.run (org, id, kind, name, lane, release, source, priority, input, contract, on_lost, origin, told, key_root, submitted_at)
  values (_org, _new_id, r.kind, r.name, r.lane, r.release, r.source, r.priority, r.input, r.contract, r.on_lost, r.rid, jsonb_build_object('origin', _id, 'by', _by), r.key_root, v_now)
  on conflict (org, id) do nothing returning rid into v_rid;
  if v_rid is null then
    return query select case when x.origin = r.rid then 'replayed' else 'refused' end, case when x.origin is distinct from r.rid then 'the new id is taken by another launch' end
      from fencepost.run x where x.org = _org and x.id = _new_id;
    return;
  end if;
  -- Maps first: their rows keep what was done and what is unknown; what failed waits again, unless its map was kept.
  for m in select x.*, coalesce(b.state, '') = 'kept' as kept from fencepost.map x
             left join fencepost.boundary b on b.rid = x.rid and b.kind = 'map' and b.name = x.name and b.ordinal = x.ordinal
            where x.rid = r.rid and (v_cut is null or coalesce(b.opened_seq, b.seq) < v_cut) order by x.mid loop
    insert into fencepost.map (rid, name, ordinal, total, whole) values (v_rid, m.name, m.ordinal, m.total, m.whole) returning mid into v_mid;
    insert into fencepost.row (mid, index, key, input, state, number, fence, repeatable, opened_seq, seq, value, at)
    select v_mid, w.index, w.key, w.input, w.becomes, w.number, w.fence, w.repeatable,
           case when w.becomes = 'marked' then v_seq + w.nth end, case when w.becomes not in ('marked', 'waiting') then v_seq + w.nth end,
           case when w.becomes <> 'waiting' then w.value end, w.at
      from (select w.*, row_number() over (partition by w.becomes = 'waiting' order by coalesce(w.seq, w.opened_seq)) as nth
              from (select w.*, case when w.state = 'kept' or w.state = 'marked' and not w.repeatable or m.kept and w.state in ('failed', 'skipped') then w.state
                                     else 'waiting' end as becomes
                      from fencepost.row w where w.mid = m.mid) w) w;
    select count(*) into v_n from fencepost.row w where w.mid = v_mid and w.state <> 'waiting';
    v_seq := v_seq + v_n;
  end loop;
  insert into fencepost.boundary (rid, kind, name, ordinal, state, opened_seq, seq, number, fence, hash, repeatable, loose, value, asked_ms, child, at, opened_at)
  select v_rid, b.kind, b.name, b.ordinal,
         case when b.kind = 'child' and b.state in ('cancelled', 'set_aside') then 'armed' when b.state in ('open', 'failed') then 'set_aside' else b.state end,
         v_seq + row_number() over w,
         case when b.state <> 'marked' and not (b.kind = 'child' and b.state in ('cancelled', 'set_aside')) then v_seq + row_number() over w end,
         b.number, b.fence, b.hash, b.repeatable, true, b.value, b.asked_ms, b.child, b.at, b.opened_at
    from fencepost.boundary b
   where b.rid = r.rid and (b.state in ('kept', 'arrived', 'timed_out') or b.state = 'marked' and not b.repeatable
                            or b.kind = 'child' and b.state in ('cancelled', 'set_aside')
                            or b.kind = 'map' and b.state in ('open', 'failed', 'set_aside'))  -- so that a leg knows of its rows
     and (v_cut is null or coalesce(b.opened_seq, b.seq) < v_cut)
  window w as (order by coalesce(b.seq, b.opened_seq));
  get diagnostics v_n = row_count;
  insert into fencepost.task (rid, lane, org, state, priority, ready_at, turn_at, seq, on_lost)
  values (v_rid, r.lane, _org, 'queued', r.priority, v_now, v_now - r.priority * interval '60 s', v_seq + v_n, r.on_lost);
  perform fencepost.settle_(v_rid, v_now);
  perform fencepost.rouse_(r.lane, 1);
  return query select 'created', null::text;
end $law$;
