-- 41_claims.sql: who gets which run next, and with it all that is needed to run it.
--
-- LAW    20.9   organisations take fair turns; within one, turn_at
--        40.14  a claim carries the incarnation's request number: asked again it gives the same attempts
--        40.15  a suspect is claimed alone
--        10.7   work of another lane is never claimed
-- OWNS   nothing; writes task, event, incarnation
-- LOCKS  incarnation, then run rows as they stand in the line, passing by what somebody else has locked

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

-- `turn`: turn_at in seconds since 1970, which holds every microsecond there may be: a driver reads a number in a tenth of the time.
create type fencepost.claimed_ as (
  answer text, rid bigint, number integer, fence uuid, org text, id text, name text, input text, key_root uuid, begun boolean, tries integer,
  losses integer, boundaries text, more boolean, parent bigint, turn double precision, opaque boolean, since timestamptz, look_us bigint);

-- An answer that gives no run.
create function fencepost.not_claimed_(_answer text, _since timestamptz, _look_us bigint default null) returns fencepost.claimed_ language plpgsql immutable as $law$
declare v fencepost.claimed_;
begin
  v.answer := _answer; v.since := _since; v.look_us := _look_us;
  return v;
end $law$;

-- An input that did not fit into the claim's 8 MiB.
create function fencepost.read_input(_rid bigint) returns text language sql stable as $law$
  select r.input from fencepost.run r where r.rid = _rid
$law$;

-- Takes the given rows (already locked by the caller's statement) for a holder, and says all that is needed to run them.
create function fencepost.take_(_rids bigint[], _holder uuid, _request bigint, _now timestamptz) returns setof fencepost.claimed_ language plpgsql volatile as $law$
-- unfenced: the fence is given here; the caller locked what waits
declare v_data jsonb := jsonb_build_object('holder', _holder); v_seed uuid := gen_random_uuid();
begin
  return query
  with u as (update fencepost.task t
                set state = 'running', number = t.number + 1, fence = fencepost.random_id_(v_seed, t.rid), holder = _holder, request = _request,
                    claimed_at = _now, begun = t.on_lost = 'replay' and not t.opaque, seq = t.seq + 1, claim_by = null, trouble = null
              where t.rid = any (_rids)
              returning t.rid, t.number, t.fence, t.org, t.seq, t.begun, t.tries, t.losses, t.parent, t.turn_at, t.opaque),
    e as (insert into fencepost.event (rid, seq, at, type, number, data)
          select u.rid, u.seq, _now, 'attempt.claimed', u.number, v_data from u)
  select 'claimed', u.rid, u.number, u.fence, u.org, r.id, r.name,
         case when sum(octet_length(r.input)) over (order by u.rid) <= 8388608 then r.input end, r.key_root, u.begun, u.tries, u.losses,
         p.boundaries, coalesce(p.more, false), u.parent, date_part('epoch', u.turn_at), u.opaque, null::timestamptz, null::bigint
    from u cross join lateral (select r.id, r.name, r.input, r.key_root from fencepost.run r where r.rid = u.rid limit 1) r
    left join lateral (select (case when u.seq > 2 then fencepost.page_(u.rid, -1, '', least(131072, 8388608 / cardinality(_rids))) end).* offset 0) p on true
   order by array_position(_rids, u.rid);
end $law$;

-- 40.14. `new`: the caller should look for work. The row lock makes requests of one incarnation a line.
create function fencepost.open_request_(_holder uuid, _request bigint, out answer text) language plpgsql volatile as $law$
declare v_was bigint; v_ended timestamptz;
begin
  update fencepost.incarnation i set request = _request where i.id = _holder and i.request < _request and i.ended_at is null;
  if found then answer := 'new'; return; end if;
  select i.request, i.ended_at into v_was, v_ended from fencepost.incarnation i where i.id = _holder;
  answer := case when not found or v_ended is not null then 'buried' when _request < v_was then 'closed' else 'repeated' end;
end $law$;

create function fencepost.repeat_claim_(_holder uuid, _request bigint) returns setof fencepost.claimed_ language sql stable as $law$
  select 'claimed', t.rid, t.number, t.fence, t.org, r.id, r.name,
         case when sum(octet_length(r.input)) over (order by t.rid) <= 8388608 then r.input end, r.key_root, t.begun, t.tries, t.losses,
         p.boundaries, coalesce(p.more, false), t.parent, date_part('epoch', t.turn_at), t.opaque, null::timestamptz, null::bigint
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

-- What a worker that holds nothing meets most often: one run, or none, and then there are no turns to be taken. Null: there are more.
create function fencepost.pick_only_(_lane integer) returns bigint[] language plpgsql volatile as $law$
declare v_rids bigint[];
begin
  v_rids := array(select t.rid from fencepost.task t where t.lane = _lane and t.state = 'queued' and t.due_at is null and t.losses = 0
                   order by t.lane, t.org, t.turn_at, t.rid limit 2);
  if cardinality(v_rids) = 2 then return null; end if;      -- (nothing is locked that may be left to others)
  return array(select t.rid from fencepost.task t where t.rid = v_rids[1] and t.state = 'queued' and t.due_at is null and t.losses = 0
                for no key update skip locked);
end $law$;

-- The same between two such scans, where the dead lie thick before the living (a snapshot that nobody lets go keeps them): the
-- organisations that the caller knows, each from the place of the last run it took there. It sees nothing that came in before a mark.
create function fencepost.pick_after_(_lane integer, _n integer, _orgs text[], _turns double precision[], _rids bigint[]) returns bigint[]
language plpgsql volatile as $law$
declare v_quota integer := greatest(1, ceil(_n::numeric / greatest(1, cardinality(_orgs))));
begin
  return (
    with pick as materialized (
        select c.rid, c.rank, m.k from unnest(_orgs, _turns, _rids) with ordinality as m(org, turn, rid, k) cross join lateral (
          select t.rid, row_number() over () as rank from (
            select t.rid from fencepost.task t where t.lane = _lane and t.org = m.org and t.state = 'queued' and t.due_at is null and t.losses = 0
               and (t.turn_at, t.rid) > (to_timestamp(m.turn), m.rid) order by t.turn_at, t.rid limit v_quota for no key update skip locked) t) c)
    select array_agg(p.rid order by p.rank, p.k) from (select pick.* from pick order by pick.rank, pick.k limit _n) p);
end $law$;

-- A row `buried` says that this incarnation was judged dead. `_alone`: the worker holds nothing and may take a suspect (40.15); a row
-- `suspect` with no run says that one waits for a worker that holds nothing. `_orgs` …: marks (pick_after_); none: look at all, and a row
-- `looked` says how long that took.
create function fencepost.claim_attempts(_holder uuid, _request bigint, _lane integer, _n integer, _cursor text, _alone boolean,
  _orgs text[] default '{}', _turns double precision[] default '{}', _rids bigint[] default '{}')
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
      if _alone then v_rids := fencepost.pick_only_(_lane); end if;
      if v_rids is null then v_rids := fencepost.pick_(_lane, _n, _cursor); end if;
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
  if v_rids <> '{}' then
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
