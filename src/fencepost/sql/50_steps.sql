-- 50_steps.sql: what a run has done, so that it is never done again in silence.
--
-- LAW    50.1   a committed value is the text it was encoded to and never changes
--        50.2   a step not declared repeatable is marked before it runs; the mark names its fence
--        50.3   every step call has a key (key_root of the run, kind, name, ordinal, row); derived by the worker
--        50.4   a boundary is (kind, name, ordinal); results carry the order in which they reach the code
--        50.5   an unknown kind is impossible here, and raises in the worker that meets one
--        50.6   a map's rows are stored before the first begins, commit by key, once
--        50.7   a mark is leased by the living fence it names: with the fence gone it is unknown, and nothing deletes it
--        50.10  failures are kept like values
--        50.11  ask_mark says whether the death of a mark's holder is confirmed, and since when
--        00.3   asked again by the same fence with the same value, a door that keeps gives the same answer
--        90.1   a record that is written over leaves what it told, at its place in the run's sequence
-- OWNS   boundary, map, row, late; writes task, event
-- LOCKS  run rows ascending (hold_)

-- 90.1. A mark that is taken over, a failure set aside and asked again: the places they had stay theirs.
create function fencepost.keep_boundary_place_() returns trigger language plpgsql set search_path = pg_catalog, pg_temp as $law$
declare v_wait boolean := old.kind in ('sleep', 'signal') or old.kind = 'child' and old.state <> 'kept';
begin
  insert into fencepost.event (rid, seq, at, type, number, data)
  select old.rid, i.seq, i.at, i.type, old.number, jsonb_build_object('kind', old.kind, 'name', old.name, 'ordinal', old.ordinal)
    from (values (old.opened_seq, coalesce(old.opened_at, old.at), new.opened_seq is distinct from old.opened_seq and old.seq is distinct from old.opened_seq,
                  case old.kind when 'step' then 'step.marked' when 'map' then 'map.opened' when 'child' then 'child.started' else 'wait.armed' end),
                 (old.seq, old.at, new.seq is distinct from old.seq,
                  case when v_wait then 'wait.' else old.kind || '.' end
                  || case old.state when 'set_aside' then case when v_wait then 'cancelled' else 'failed' end else old.state end)) as i(seq, at, gone, type)
   where i.seq is not null and i.gone;
  return null;
end $law$;
create trigger boundary_place after update on fencepost.boundary for each row
  when (old.opened_seq is distinct from new.opened_seq and old.opened_seq is not null or old.seq is distinct from new.seq and old.seq is not null)
  execute function fencepost.keep_boundary_place_();

create function fencepost.keep_row_place_() returns trigger language plpgsql set search_path = pg_catalog, pg_temp as $law$
begin
  insert into fencepost.event (rid, seq, at, type, number, data)
  select m.rid, i.seq, old.at, i.type, old.number, jsonb_build_object('map', m.name, 'key', old.key)
    from fencepost.map m
    cross join (values (old.opened_seq, new.opened_seq, 'row.marked'), (old.seq, new.seq, 'row.' || old.state)) as i(seq, instead, type)
   where m.mid = old.mid and i.seq is not null and i.instead is distinct from i.seq;
  return null;
end $law$;
create trigger row_place after update on fencepost.row for each row
  when (old.opened_seq is distinct from new.opened_seq and old.opened_seq is not null or old.seq is distinct from new.seq and old.seq is not null)
  execute function fencepost.keep_row_place_();

-- Answers: marked · standing (another fence's mark, and `_agains` does not permit to take it over) · done (then state, value)
--          · stale · cancelled · again.  A time-out is durable here: `until` (40.12). (Arrays but the first two may be of one element: launches_.)
create function fencepost.mark_steps(_rids bigint[], _fences uuid[], _names text[], _ordinals integer[], _hashes text[],
  _repeatables boolean[], _timeout_mss bigint[], _agains boolean[])
returns table (ord integer, answer text) language plpgsql volatile as $law$
#variable_conflict use_column
declare v_now timestamptz := fencepost.enter_(); v_held fencepost.held_[] := fencepost.hold_(_rids, _fences, '{}'); v_seq integer;
begin
  if cardinality(_rids) = 1 and v_held[1].how = 'held' and v_held[1].state = 'running' then     -- (as in keep_steps)
    insert into fencepost.boundary as b (rid, kind, name, ordinal, state, opened_seq, number, fence, hash, repeatable, until, at, opened_at)
    values (_rids[1], 'step', _names[1], _ordinals[1], 'marked', v_held[1].seq + 1, v_held[1].number, _fences[1], _hashes[1], _repeatables[1],
            v_now + _timeout_mss[1] * interval '1 ms', v_now, v_now)
    on conflict (rid, kind, name, ordinal) do update
       set state = 'marked', opened_seq = excluded.opened_seq, seq = null, number = excluded.number, fence = excluded.fence, hash = excluded.hash,
           repeatable = excluded.repeatable, until = excluded.until, value = null, loose = false, at = excluded.at, opened_at = excluded.opened_at
     where b.state in ('set_aside', 'again') or (b.state = 'marked' and b.fence <> _fences[1] and _agains[1])
    returning b.opened_seq into v_seq;
    if found then
      update fencepost.task t set seq = v_seq where t.rid = _rids[1];
      return query select 1, 'marked'; return;
    end if;
  end if;
  return query
  with ok as materialized (
      select i.*, b.state as was, b.fence as marked_by,
             row_number() over (partition by i.rid, i.name, i.ordinal order by i.ord) as nth
        from unnest(v_held, _fences, fencepost.spread_(_names, cardinality(_rids)), fencepost.spread_(_ordinals, cardinality(_rids)),
                    fencepost.spread_(_hashes, cardinality(_rids)), fencepost.spread_(_repeatables, cardinality(_rids)),
                    fencepost.spread_(_timeout_mss, cardinality(_rids)), fencepost.spread_(_agains, cardinality(_rids)))
             as i(ord, rid, how, state, number, seq, holder, claimed_at, begun, parent, losses, fence, name, ordinal, hash, repeatable, timeout_ms, again)
        left join lateral (select b.state, b.fence from fencepost.boundary b
                            where b.rid = i.rid and b.kind = 'step' and b.name = i.name and b.ordinal = i.ordinal limit 1) b on true),
    new as materialized (
      select ok.*, ok.seq + row_number() over (partition by ok.rid order by ok.ord) as nseq from ok
       where ok.how = 'held' and ok.state = 'running' and ok.nth = 1
         and (ok.was is null or ok.was in ('set_aside', 'again') or (ok.was = 'marked' and ok.marked_by <> ok.fence and ok.again))),
    ins as (insert into fencepost.boundary as b (rid, kind, name, ordinal, state, opened_seq, number, fence, hash, repeatable, until, at, opened_at)
            select n.rid, 'step', n.name, n.ordinal, 'marked', n.nseq, n.number, n.fence, n.hash, n.repeatable,
                   v_now + n.timeout_ms * interval '1 ms', v_now, v_now from new n
            on conflict (rid, kind, name, ordinal) do update
               set state = 'marked', opened_seq = excluded.opened_seq, seq = null, number = excluded.number, fence = excluded.fence, hash = excluded.hash,
                   repeatable = excluded.repeatable, until = excluded.until, value = null, loose = false, at = excluded.at, opened_at = excluded.opened_at),
    m as materialized (select n.rid, max(n.nseq) as seq from new n group by n.rid),
    up as (update fencepost.task t set seq = (array(select m.seq from m order by m.rid))[array_position(array(select m.rid from m order by m.rid), t.rid)]
            where t.rid = any (array(select m.rid from m)))
  select ok.ord, case when ok.how <> 'held' then ok.how
                      when ok.state = 'cancelling' then 'cancelled'
                      when ok.was is null or ok.was in ('set_aside', 'again') then 'marked'
                      when ok.was = 'marked' and (ok.marked_by = ok.fence or ok.again) then 'marked'
                      when ok.was = 'marked' then 'standing'
                      else 'done' end from ok;
end $law$;

-- First write wins. Answers: kept (also to the fence that kept this very value before) · kept_before (then state and value are the
-- record) · stale · again. `seq` is the place of
-- the result among all results of the run. A cancelling run's step is kept: it happened. (Arrays but the first two may be of one element.)
create function fencepost.keep_steps(_rids bigint[], _fences uuid[], _kinds text[], _names text[], _ordinals integer[], _hashes text[],
  _repeatables boolean[], _oks boolean[], _values text[])
returns table (ord integer, answer text, seq integer, state text, value text) language plpgsql volatile as $law$
#variable_conflict use_column
declare v_now timestamptz := fencepost.enter_(); v_held fencepost.held_[] := fencepost.hold_(_rids, _fences, '{}'); v_seq integer;
begin
  if cardinality(_rids) = 1 and v_held[1].how = 'held' then     -- one step that is new, the commonest case, without the machinery of sets
    insert into fencepost.boundary as b (rid, kind, name, ordinal, state, seq, number, fence, hash, repeatable, value, at)
    values (_rids[1], _kinds[1], _names[1], _ordinals[1], case when _oks[1] then 'kept' else 'failed' end, v_held[1].seq + 1, v_held[1].number, _fences[1], _hashes[1],
            _repeatables[1], _values[1], v_now)
    on conflict (rid, kind, name, ordinal) do update
       set state = excluded.state, seq = excluded.seq, number = excluded.number, fence = excluded.fence, hash = excluded.hash,
           value = excluded.value, until = null, loose = false, at = excluded.at
     where b.state in ('marked', 'set_aside', 'again', 'open')
    returning b.seq into v_seq;
    if found then
      update fencepost.task t set losses = 0, seq = v_seq where t.rid = _rids[1];
      return query select 1, 'kept', v_seq, null::text, null::text; return;
    end if;
  end if;
  return query
  with ok as materialized (
      select i.*, b.state as was, b.seq as was_seq, b.value as was_value,
             b.fence = i.fence and b.state = case when i.ok then 'kept' else 'failed' end and b.value is not distinct from i.value as same,
             row_number() over (partition by i.rid, i.kind, i.name, i.ordinal order by i.ord) as nth
        from unnest(v_held, _fences, fencepost.spread_(_kinds, cardinality(_rids)), fencepost.spread_(_names, cardinality(_rids)),
                    fencepost.spread_(_ordinals, cardinality(_rids)), fencepost.spread_(_hashes, cardinality(_rids)),
                    fencepost.spread_(_repeatables, cardinality(_rids)), fencepost.spread_(_oks, cardinality(_rids)), fencepost.spread_(_values, cardinality(_rids)))
             as i(ord, rid, how, state, number, seq, holder, claimed_at, begun, parent, losses, fence, kind, name, ordinal, hash, repeatable, ok, value)
        left join lateral (select b.state, b.seq, b.value, b.fence from fencepost.boundary b
                            where b.rid = i.rid and b.kind = i.kind and b.name = i.name and b.ordinal = i.ordinal limit 1) b on true),
    n as materialized (
      select i.*, case when i.new then i.seq + count(*) filter (where i.new) over (partition by i.rid order by i.ord) end::integer as nseq
        from (select ok.*, ok.how = 'held' and ok.nth = 1 and (ok.was is null or ok.was in ('marked', 'set_aside', 'again', 'open')) as new from ok) i),
    ins as (insert into fencepost.boundary as b (rid, kind, name, ordinal, state, seq, number, fence, hash, repeatable, value, at)
            select n.rid, n.kind, n.name, n.ordinal, case when n.ok then 'kept' else 'failed' end, n.nseq, n.number, n.fence, n.hash, n.repeatable, n.value, v_now
              from n where n.new
            on conflict (rid, kind, name, ordinal) do update
               set state = excluded.state, seq = excluded.seq, number = excluded.number, fence = excluded.fence, hash = excluded.hash,
                   value = excluded.value, until = null, loose = false, at = excluded.at),
    m as materialized (select n.rid, max(n.nseq) as seq from n where n.new group by n.rid),
    up as (update fencepost.task t set losses = 0, seq = (array(select m.seq from m order by m.rid))[array_position(array(select m.rid from m order by m.rid), t.rid)]
            where t.rid = any (array(select m.rid from m)))
  select n.ord, case when n.how <> 'held' then n.how when n.new or n.same then 'kept' when n.nth > 1 then 'again' else 'kept_before' end,
         case when n.how = 'held' then coalesce(n.nseq, n.was_seq) end,
         case when n.how = 'held' and not n.new then n.was end, case when n.how = 'held' and not n.new then n.was_value end
    from n;
end $law$;

-- 50.2: a commit by the fence that the mark names, after that fence died. Kept as evidence; the record does not change.
-- Answers: evidence · nothing (the mark is another fence's, or resolved).
create function fencepost.deliver_late(_rid bigint, _fence uuid, _name text, _ordinal integer, _ok boolean, _value text) returns text language plpgsql volatile as $law$
declare v_now timestamptz := fencepost.enter_();
begin
  insert into fencepost.late (rid, kind, name, ordinal, fence, ok, value, at)
  select b.rid, 'step', b.name, b.ordinal, _fence, _ok, _value, v_now from fencepost.boundary b
   where b.rid = _rid and b.kind = 'step' and b.name = _name and b.ordinal = _ordinal and b.fence = _fence and b.state = 'marked'
     and not exists (select from fencepost.late l where l.rid = _rid and l.kind = 'step' and l.name = _name and l.ordinal = _ordinal and l.fence = _fence);
  return case when found or exists (select from fencepost.late l where l.rid = _rid and l.kind = 'step' and l.name = _name and l.ordinal = _ordinal
                                       and l.fence = _fence and l.ok = _ok and l.value is not distinct from _value) then 'evidence' else 'nothing' end;
end $law$;

-- A run and what it is a redrive of, and so on.
create function fencepost.origins_(_rid bigint) returns setof bigint language sql stable as $law$
  with recursive o(rid) as (select _rid union select r.origin from o join lateral (select r.origin from fencepost.run r where r.rid = o.rid limit 1) r on r.origin is not null)
  select o.rid from o
$law$;

-- 50.11. Milliseconds since the death of the mark's holder was confirmed; null while it is not. A mark of this very fence: null.
-- A redrive brings its origin's marks along: their attempts are the origin's.
create function fencepost.ask_mark(_rid bigint, _name text, _ordinal integer) returns bigint language sql stable as $law$
  select greatest(0, extract(epoch from fencepost.now_() - i.gone_at) * 1000)::bigint
    from fencepost.boundary b
    join lateral (select a.holder from fencepost.origins_(_rid) o(rid) join fencepost.attempt a on a.rid = o.rid and a.fence = b.fence limit 1) a on true
    join lateral (select i.gone_at from fencepost.incarnation i where i.id = a.holder limit 1) i on true
   where b.rid = _rid and b.kind = 'step' and b.name = _name and b.ordinal = _ordinal and i.gone_at is not null
$law$;

-- Stores rows of a map, in as many calls as their size asks for; `_whole` with the last. Answers: open (with mid) · done ·
-- stale · cancelled.
create function fencepost.open_map(_rid bigint, _fence uuid, _name text, _ordinal integer, _hash text, _from integer, _keys text[], _inputs text[],
  _repeatable boolean, _whole boolean)
returns table (answer text, mid bigint, total integer, whole boolean) language plpgsql volatile as $law$
#variable_conflict use_column
declare v_now timestamptz := fencepost.enter_(); h fencepost.held_ := (fencepost.hold_(array[_rid], array[_fence], '{}'))[1]; v_map record; v_was text;
begin
  if h.how <> 'held' then return query select h.how, null::bigint, null::integer, null::boolean; return; end if;
  if h.state = 'cancelling' then return query select 'cancelled', null::bigint, null::integer, null::boolean; return; end if;
  select b.state into v_was from fencepost.boundary b where b.rid = _rid and b.kind = 'map' and b.name = _name and b.ordinal = _ordinal;
  if v_was is null or v_was = 'set_aside' then
    insert into fencepost.boundary as b (rid, kind, name, ordinal, state, opened_seq, number, fence, hash, repeatable, at, opened_at)
    values (_rid, 'map', _name, _ordinal, 'open', h.seq + 1, h.number, _fence, _hash, _repeatable, v_now, v_now)
    on conflict (rid, kind, name, ordinal) do update
       set state = 'open', seq = null, opened_seq = excluded.opened_seq, number = excluded.number, fence = excluded.fence, hash = excluded.hash,
           repeatable = excluded.repeatable, value = null, loose = false, at = excluded.at, opened_at = excluded.opened_at;
    update fencepost.task t set seq = t.seq + 1 where t.rid = _rid;
  end if;
  insert into fencepost.map (rid, name, ordinal, total) values (_rid, _name, _ordinal, 0) on conflict (rid, name, ordinal) do nothing;
  select m.mid, m.total, m.whole into v_map from fencepost.map m where m.rid = _rid and m.name = _name and m.ordinal = _ordinal;
  if not v_map.whole and cardinality(_keys) > 0 and _from + cardinality(_keys) > v_map.total then
    insert into fencepost.row (mid, index, key, input, repeatable)
    select v_map.mid, _from + i.ord::integer - 1, i.key, i.input, _repeatable from unnest(_keys, _inputs) with ordinality as i(key, input, ord)
     where _from + i.ord::integer - 1 >= v_map.total;
  end if;
  if not v_map.whole then
    update fencepost.map m set total = greatest(m.total, _from + cardinality(_keys)), whole = _whole where m.mid = v_map.mid
    returning m.mid, m.total, m.whole into v_map;
  end if;
  return query select case when v_was in ('kept', 'failed') then 'done' else 'open' end, v_map.mid, v_map.total, v_map.whole;
end $law$;

-- A batch of rows is looked up by key, one by one, and written where it was found, by place: no plan of this can walk a map, whatever the
-- planner believes of its size (the states that make `row_open` eligible are asked of what was found). The run's lock holds the places.
-- Answers: marked · standing · done · stale · cancelled · again.
create function fencepost.mark_rows(_rids bigint[], _fences uuid[], _mids bigint[], _indexes integer[]) returns table (ord integer, answer text) language plpgsql volatile as $law$
#variable_conflict use_column
declare v_now timestamptz := fencepost.enter_(); v_held fencepost.held_[] := fencepost.hold_(_rids, _fences, '{}');
begin
  return query
  with ok as materialized (
      select i.*, w.place, w.state as was, w.fence as marked_by, w.repeatable, row_number() over (partition by i.rid, i.mid, i.index order by i.ord) as nth
        from unnest(v_held, _fences, _mids, _indexes)
             as i(ord, rid, how, state, number, seq, holder, claimed_at, begun, parent, losses, fence, mid, index)
        left join lateral (select r.ctid as place, r.state, r.fence, r.repeatable from fencepost.row r
                            where r.mid = i.mid and r.index = i.index and exists (select from fencepost.map m where m.mid = i.mid and m.rid = i.rid) limit 1) w on true),
    n as materialized (
      select i.*, case when i.new then i.seq + count(*) filter (where i.new) over (partition by i.rid order by i.ord) end::integer as nseq
        from (select ok.*, coalesce(ok.how = 'held' and ok.state <> 'cancelling' and ok.nth = 1
                and (ok.was in ('waiting', 'again') or (ok.was = 'marked' and ok.repeatable and ok.marked_by <> ok.fence)), false) as new from ok) i),
    up as (update fencepost.row r set state = 'marked', fence = n.fence, number = n.number, opened_seq = n.nseq, at = v_now from n where n.new and r.ctid = n.place),
    m as materialized (select n.rid, max(n.nseq) as seq from n where n.new group by n.rid),
    ut as (update fencepost.task t set seq = (array(select m.seq from m order by m.rid))[array_position(array(select m.rid from m order by m.rid), t.rid)]
            where t.rid = any (array(select m.rid from m)))
  select n.ord, case when n.how <> 'held' then n.how when n.new then 'marked' when n.state = 'cancelling' then 'cancelled'
                     when n.nth > 1 then 'again'
                     when n.was = 'marked' then case when n.marked_by = n.fence then 'marked' else 'standing' end
                     else 'done' end
    from n;
end $law$;

-- Answers: kept (also to the fence that kept this very value before) · kept_before · stale · again. `_states`: kept | failed | skipped.
create function fencepost.keep_rows(_rids bigint[], _fences uuid[], _mids bigint[], _indexes integer[], _states text[], _values text[])
returns table (ord integer, answer text) language plpgsql volatile as $law$
#variable_conflict use_column
declare v_now timestamptz := fencepost.enter_(); v_held fencepost.held_[] := fencepost.hold_(_rids, _fences, '{}');
begin
  return query
  with ok as materialized (
      select i.*, w.place, w.state as was, w.fence = i.fence and w.state = i.becomes and w.value is not distinct from i.value as same,
             row_number() over (partition by i.rid, i.mid, i.index order by i.ord) as nth
        from unnest(v_held, _fences, _mids, _indexes, _states, _values)
             as i(ord, rid, how, state, number, seq, holder, claimed_at, begun, parent, losses, fence, mid, index, becomes, value)
        left join lateral (select r.ctid as place, r.state, r.fence, r.value from fencepost.row r
                            where r.mid = i.mid and r.index = i.index and exists (select from fencepost.map m where m.mid = i.mid and m.rid = i.rid) limit 1) w on true),
    n as materialized (
      select i.*, case when i.new then i.seq + count(*) filter (where i.new) over (partition by i.rid order by i.ord) end::integer as nseq
        from (select ok.*, coalesce(ok.how = 'held' and ok.nth = 1 and ok.was in ('waiting', 'marked', 'again'), false) as new from ok) i),
    up as (update fencepost.row r set state = n.becomes, value = n.value, seq = n.nseq, fence = n.fence, number = n.number, at = v_now
             from n where n.new and r.ctid = n.place),
    m as materialized (select n.rid, max(n.nseq) as seq from n where n.new group by n.rid),
    ut as (update fencepost.task t set losses = 0, seq = (array(select m.seq from m order by m.rid))[array_position(array(select m.rid from m order by m.rid), t.rid)]
            where t.rid = any (array(select m.rid from m)))
  select n.ord, case when n.how <> 'held' then n.how when n.new or n.same then 'kept' when n.nth > 1 then 'again' else 'kept_before' end from n;
end $law$;

-- Pages of a map's rows by index, at most `_bytes` of payload (a larger one travels alone); an empty page is the end.
create function fencepost.read_rows(_mid bigint, _after integer, _bytes integer)
returns table (index integer, key text, state text, input text, value text, fence uuid) language sql stable as $law$
  select p.index, p.key, p.state, p.input, p.value, p.fence
    from (select r.index, r.key, r.state, case when r.state in ('waiting', 'marked', 'again') then r.input end as input, r.value, r.fence,
                 sum(octet_length(coalesce(r.value, '')) + octet_length(r.input)) over w as bytes, row_number() over w as nth
            from (select r.* from fencepost.row r where r.mid = _mid and r.index > _after order by r.index limit 5000) r
          window w as (order by r.index)) p
   where p.bytes <= _bytes or p.nth = 1
   order by p.index
$law$;

-- Pages of a map's rows that are not committed, by index, at most `_most` and `_bytes` of input (a larger one travels alone); an empty
-- page is the end. What is committed is passed over unread, however much of it there is.
create function fencepost.read_open_rows(_mid bigint, _after integer, _most integer, _bytes integer)
returns table (index integer, key text, state text, input text, fence uuid) language sql stable as $law$
  select p.index, p.key, p.state, p.input, p.fence
    from (select r.index, r.key, r.state, r.input, r.fence, sum(octet_length(r.input)) over w as bytes, row_number() over w as nth
            -- Not the states as `row_open` has them: it knows no order, and every page would walk all of it.
            from (select r.* from fencepost.row r where r.mid = _mid and r.index > _after and coalesce(r.state, '') in ('waiting', 'marked', 'again')
                   order by r.index limit _most) r
          window w as (order by r.index)) p
   where p.nth = 1 or p.bytes <= _bytes
   order by p.index
$law$;

-- How a map's rows stand, and the first that failed.
create function fencepost.read_row_counts(_mid bigint)
returns table (kept integer, failed integer, skipped integer, open integer, first_key text, first_error text) language sql stable as $law$
  select c.kept, c.failed, c.skipped, c.open, f.key, f.value
    from (select (count(*) filter (where r.state = 'kept'))::integer as kept, (count(*) filter (where r.state = 'failed'))::integer as failed,
                 (count(*) filter (where r.state = 'skipped'))::integer as skipped,
                 (count(*) filter (where r.state not in ('kept', 'failed', 'skipped')))::integer as open
            from fencepost.row r where r.mid = _mid) c
    left join lateral (select r.key, r.value from fencepost.row r where c.failed > 0 and r.mid = _mid and r.state = 'failed' order by r.index limit 1) f on true
$law$;

-- Pages of the rows of a run's maps after (map, index), in that order, for whoever looks: of one map (name, number) or of all, in these
-- states (waiting · running · kept · failed · skipped · unknown · again) or in any. At most `_most` and `_bytes`, of one map at a time: so
-- the key alone says where a page begins. An empty page is the end.
create function fencepost.read_run_rows(_org text, _id text, _name text, _ordinal integer, _states text[], _mid bigint, _after integer, _most integer, _bytes integer)
returns table (mid bigint, map text, ordinal integer, index integer, key text, state text, value text) language plpgsql stable as $law$
#variable_conflict use_column
declare m record;
begin
  for m in select x.mid, x.name, x.ordinal, t.fence from fencepost.map x left join fencepost.task t on t.rid = x.rid
            where x.rid = (select r.rid from fencepost.run r where r.org = _org and r.id = _id) and x.mid >= _mid
              and (_name is null or x.name = _name) and (_ordinal is null or x.ordinal = _ordinal) order by x.mid loop
    return query
    select m.mid, m.name, m.ordinal, p.index, p.key, p.state, p.value
      from (select x.*, sum(coalesce(octet_length(x.value), 0)) over w as bytes, row_number() over w as nth
              from (select w.index, w.key, s.state, w.value from fencepost.row w
                     cross join lateral (values (case when w.state <> 'marked' then w.state
                                                      when not w.repeatable and w.fence is distinct from m.fence then 'unknown' else 'running' end)) as s(state)
                     where w.mid = m.mid and w.index > case when m.mid = _mid then _after else -1 end and (_states is null or s.state = any (_states))
                     order by w.index limit _most) x
            window w as (order by x.index)) p
     where p.nth = 1 or p.bytes <= _bytes
     order by p.index;
    if found then return; end if;
  end loop;
end $law$;
