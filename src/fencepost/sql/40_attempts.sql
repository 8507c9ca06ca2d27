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
--        40.14  a claim carries the incarnation's request number: asked again it gives the same attempts
--        40.15  a suspect is claimed alone
--        00.13  a row locked by another is `again`: ask for it alone; it delays no neighbour
--        20.9   organisations take fair turns; within one, turn_at
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

-- What a leg needs to replay without another trip: recorded boundaries in the order of their results, by bytes
-- (a larger one travels alone); `more` says that read_boundaries has the rest. A claim's pages share 8 MiB: 128 KiB each for up to
-- 64 runs, 64 KiB for 128.
create type fencepost.paged_ as (boundaries text, more boolean);

create function fencepost.page_(_rid bigint, _after_seq integer, _after_place text, _bytes integer) returns fencepost.paged_ language plpgsql stable as $law$
declare v fencepost.paged_;
begin
  select '[' || coalesce(string_agg(p.doc, ',' order by p.at_seq, p.place) filter (where p.fits), '') || ']', coalesce(bool_or(not p.fits), false) into v.boundaries, v.more
    from (select b.doc, b.at_seq, b.place,
                 sum(octet_length(b.doc)) over w <= _bytes and row_number() over w <= 1000 or row_number() over w = 1 as fits
            from (select coalesce(b.seq, b.opened_seq, 0) as at_seq, b.kind || ' ' || b.name || ' ' || b.ordinal as place,
                         json_build_array(b.kind, b.name, b.ordinal, b.state, coalesce(b.seq, b.opened_seq, 0), b.hash, b.loose,
                           b.repeatable, b.value, b.fence, b.child, b.asked_ms)::text as doc
                    from fencepost.boundary b where b.rid = _rid) b
           where (b.at_seq, b.place) > (_after_seq, _after_place)
          window w as (order by b.at_seq, b.place)) p;
  return v;
end $law$;

create function fencepost.read_boundaries(_rid bigint, _after_seq integer, _after_place text, out boundaries text, out more boolean) language sql stable as $law$
  select p.boundaries, p.more from fencepost.page_(_rid, _after_seq, _after_place, 1048576) p
$law$;

create type fencepost.claimed_ as (
  answer text, rid bigint, number integer, fence uuid, org text, id text, name text, input text, key_root uuid, on_lost text, begun boolean,
  tries integer, losses integer, seq integer, boundaries text, more boolean, parent bigint, submitted_at timestamptz, turn_at timestamptz, opaque boolean,
  look_us bigint);

-- An answer that gives no run.
create function fencepost.not_claimed_(_answer text, _since timestamptz, _look_us bigint default null) returns fencepost.claimed_ language plpgsql immutable as $law$
declare v fencepost.claimed_;
begin
  v.answer := _answer; v.submitted_at := _since; v.look_us := _look_us;
  return v;
end $law$;

-- An input that did not fit into the claim's 8 MiB.
create function fencepost.read_input(_rid bigint) returns text language sql stable as $law$
  select r.input from fencepost.run r where r.rid = _rid
$law$;

-- Takes the given rows (already locked by the caller's statement) for a holder, and says all that is needed to run them.
create function fencepost.take_(_rids bigint[], _holder uuid, _request bigint, _now timestamptz) returns setof fencepost.claimed_ language plpgsql volatile as $law$
-- unfenced: the fence is given here; the caller locked what waits
declare v_data jsonb := jsonb_build_object('holder', _holder);
begin
  return query
  with u as (update fencepost.task t
                set state = 'running', number = t.number + 1, fence = gen_random_uuid(), holder = _holder, request = _request,
                    claimed_at = _now, begun = t.on_lost = 'replay' and not t.opaque, seq = t.seq + 1, claim_by = null, trouble = null
              where t.rid = any (_rids)
              returning t.rid, t.number, t.fence, t.org, t.seq, t.begun, t.on_lost, t.tries, t.losses, t.parent, t.turn_at, t.opaque),
    e as (insert into fencepost.event (rid, seq, at, type, number, data)
          select u.rid, u.seq, _now, 'attempt.claimed', u.number, v_data from u)
  select 'claimed', u.rid, u.number, u.fence, u.org, r.id, r.name,
         case when sum(octet_length(r.input)) over (order by u.rid) <= 8388608 then r.input end, r.key_root, u.on_lost, u.begun, u.tries, u.losses, u.seq,
         p.boundaries, coalesce(p.more, false), u.parent, r.submitted_at, u.turn_at, u.opaque, null::bigint
    from u cross join lateral (select r.id, r.name, r.input, r.key_root, r.submitted_at from fencepost.run r where r.rid = u.rid limit 1) r
    left join lateral (select (case when u.seq > 2 then fencepost.page_(u.rid, -1, '', least(131072, 8388608 / cardinality(_rids))) end).* offset 0) p on true
   order by array_position(_rids, u.rid);
end $law$;

-- 40.14. True when the request is new and the caller should look for work; the row lock makes requests of one incarnation a line.
create function fencepost.open_request_(_holder uuid, _request bigint, out answer text) language plpgsql volatile as $law$
declare v_was bigint; v_ended timestamptz;
begin
  select i.request, i.ended_at into v_was, v_ended from fencepost.incarnation i where i.id = _holder for no key update;
  if not found or v_ended is not null then answer := 'buried'; return; end if;
  if _request < v_was then answer := 'closed'; return; end if;
  if _request = v_was then answer := 'repeated'; return; end if;
  update fencepost.incarnation i set request = _request where i.id = _holder;
  answer := 'new';
end $law$;

create function fencepost.repeat_claim_(_holder uuid, _request bigint) returns setof fencepost.claimed_ language sql stable as $law$
  select 'claimed', t.rid, t.number, t.fence, t.org, r.id, r.name,
         case when sum(octet_length(r.input)) over (order by t.rid) <= 8388608 then r.input end, r.key_root, t.on_lost, t.begun, t.tries, t.losses, t.seq,
         p.boundaries, coalesce(p.more, false), t.parent, r.submitted_at, t.turn_at, t.opaque, null::bigint
    from fencepost.task t
    cross join lateral (select r.* from fencepost.run r where r.rid = t.rid limit 1) r
    left join lateral (select q.boundaries, q.more from fencepost.page_(t.rid, -1, '', 65536) q where t.seq > 2) p on true
   where t.holder = _holder and t.request = _request and t.state in ('running', 'cancelling')
$law$;

-- The organisations' next runs: a loose scan from the caller's cursor, an equal share of each, wrapped once: a constant number of
-- index probes per claimed run. The scan comes by the head of each line: of many organisations one run each, the line is walked only where
-- somebody else has its head; and from there, not once more over the dead before it.
create function fencepost.pick_(_lane integer, _n integer, _cursor text) returns bigint[] language plpgsql volatile as $law$
begin
  return (
    with recursive o(org, turn_at, rid, lap, k) as (
        select _cursor collate "C", null::timestamptz, null::bigint, 0, 0
        union all
        select coalesce(a.org, b.org), coalesce(a.turn_at, b.turn_at), coalesce(a.rid, b.rid), o.lap + (a.org is null)::integer, o.k + 1 from o
          left join lateral (select t.org, t.turn_at, t.rid from fencepost.task t where t.lane = _lane and t.org > o.org and t.state = 'queued' and t.due_at is null
                              and t.losses = 0 order by t.lane, t.org, t.turn_at, t.rid limit 1) a on true
          left join lateral (select t.org, t.turn_at, t.rid from fencepost.task t where a.org is null and o.lap = 0 and t.lane = _lane and t.state = 'queued'
                              and t.due_at is null and t.losses = 0 order by t.lane, t.org, t.turn_at, t.rid limit 1) b on true
         where o.k < _n and coalesce(a.org, b.org) is not null and (o.lap + (a.org is null)::integer = 0 or coalesce(a.org, b.org) <= _cursor)),
      q as (select greatest(1, ceil(_n::numeric / greatest(1, count(*) - 1)))::integer as quota from o),
      pick as materialized (              -- materialised: a rescan of LIMIT … SKIP LOCKED would lock more rows than it returns
        select coalesce(h.rid, c.rid) as rid, coalesce(c.rank, 1) as rank, o.k from q cross join o
          left join lateral (select t.rid from fencepost.task t where q.quota = 1 and t.rid = o.rid and t.state = 'queued' and t.due_at is null
                              and t.losses = 0 limit 1 for no key update skip locked) h on true
          left join lateral (select t.rid, row_number() over () as rank from (
            select t.rid from fencepost.task t where h.rid is null and t.lane = _lane and t.org = o.org and t.state = 'queued' and t.due_at is null
               and t.losses = 0 and (t.turn_at, t.rid) >= (o.turn_at, o.rid) order by t.turn_at, t.rid limit q.quota for no key update skip locked) t) c on true
         where o.k > 0 and (h.rid is not null or c.rid is not null))
    -- The first of each before the second of any: cut off in another order, whoever stands at the end would always get less (20.9).
    select array_agg(p.rid order by p.rank, p.k) from (select pick.* from pick order by pick.rank, pick.k limit _n) p);
end $law$;

-- The same between two such scans, where the dead lie thick before the living (a snapshot that nobody lets go keeps them): the
-- organisations that the caller knows, each from the place of the last run it took there. It sees nothing that came in before a mark.
create function fencepost.pick_after_(_lane integer, _n integer, _orgs text[], _turns timestamptz[], _rids bigint[]) returns bigint[]
language plpgsql volatile as $law$
declare v_quota integer := greatest(1, ceil(_n::numeric / greatest(1, cardinality(_orgs))));
begin
  return (
    with pick as materialized (
        select c.rid, c.rank, m.k from unnest(_orgs, _turns, _rids) with ordinality as m(org, turn_at, rid, k) cross join lateral (
          select t.rid, row_number() over () as rank from (
            select t.rid from fencepost.task t where t.lane = _lane and t.org = m.org and t.state = 'queued' and t.due_at is null and t.losses = 0
               and (t.turn_at, t.rid) > (m.turn_at, m.rid) order by t.turn_at, t.rid limit v_quota for no key update skip locked) t) c)
    select array_agg(p.rid order by p.rank, p.k) from (select pick.* from pick order by pick.rank, pick.k limit _n) p);
end $law$;

-- A row `buried` says that this incarnation was judged dead. `_alone`: the worker holds nothing and may take a suspect (40.15); a row
-- `suspect` with no run says that one waits for a worker that holds nothing. `_orgs` …: marks (pick_after_); none: look at all, and a row
-- `looked` says how long that took.
create function fencepost.claim_attempts(_holder uuid, _request bigint, _lane integer, _n integer, _cursor text, _alone boolean,
  _orgs text[] default '{}', _turns timestamptz[] default '{}', _rids bigint[] default '{}')
returns setof fencepost.claimed_ language plpgsql volatile as $law$
declare v_now timestamptz := fencepost.enter_(); v_how text := fencepost.open_request_(_holder, _request); v_rids bigint[]; v_suspect record; v_began timestamptz;
begin
  if v_how = 'repeated' then return query select * from fencepost.repeat_claim_(_holder, _request); return; end if;
  if v_how = 'buried' then return next fencepost.not_claimed_('buried', null); end if;
  if v_how <> 'new' or _n < 1 then return; end if;
  if _alone then
    select array_agg(s.rid) into v_rids from (
      select t.rid from fencepost.task t where t.lane = _lane and t.state = 'queued' and t.due_at is null and t.losses > 0
       order by t.turn_at, t.rid limit 1 for no key update skip locked) s;
  end if;
  if v_rids is null then
    if _orgs = '{}' then
      v_began := fencepost.stopwatch_();
      v_rids := fencepost.pick_(_lane, _n, _cursor);
      return next fencepost.not_claimed_('looked', null, (extract(epoch from fencepost.stopwatch_() - v_began) * 1000000)::bigint);
    else
      v_rids := fencepost.pick_after_(_lane, _n, _orgs, _turns, _rids);
    end if;
    if not _alone then
      select t.ready_at into v_suspect from fencepost.task t
       where t.lane = _lane and t.state = 'queued' and t.due_at is null and t.losses > 0 order by t.turn_at, t.rid limit 1;
      if found then return next fencepost.not_claimed_('suspect', v_suspect.ready_at); end if;
    end if;
  end if;
  if v_rids is not null then
    return query select * from fencepost.take_(v_rids, _holder, _request, v_now);
  end if;
end $law$;

-- `fencepost run` on an embedded home: its worker claims this run and its descendants only. `_whole`: also who lives below runs that have ended,
-- for which all that ever was is looked through.
create function fencepost.claim_tree(_holder uuid, _request bigint, _root bigint, _n integer, _whole boolean)
returns setof fencepost.claimed_ language plpgsql volatile as $law$
declare v_now timestamptz := fencepost.enter_(); v_how text := fencepost.open_request_(_holder, _request); v_rids bigint[]; v_tree bigint[];
begin
  if v_how = 'repeated' then return query select * from fencepost.repeat_claim_(_holder, _request); return; end if;
  if v_how = 'buried' then return next fencepost.not_claimed_('buried', null); end if;
  if v_how <> 'new' or _n < 1 then return; end if;
  v_tree := _root || case when _whole then array(select d.rid from fencepost.descendants_(array[_root]) d(rid)) else array(select d.rid from fencepost.living_(_root) d(rid)) end;
  select array_agg(p.rid) into v_rids from (
    select t.rid from fencepost.task t where t.rid = any (v_tree) and t.state = 'queued' and t.due_at is null order by t.rid limit _n for no key update skip locked) p;
  if v_rids is not null then
    return query select * from fencepost.take_(v_rids, _holder, _request, v_now);
  end if;
end $law$;

-- Those that live below a run, as far as all between them do.
create function fencepost.living_(_rid bigint) returns setof bigint language sql stable as $law$
  with recursive d(rid) as (
    select t.rid from fencepost.task t where t.parent = _rid
    union
    select t.rid from d cross join lateral (select t.rid from fencepost.task t where t.parent = d.rid) t)
  select d.rid from d
$law$;

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
