-- 95_retention.sql: what may be forgotten, and when.
--
-- LAW    95.1   only terminal rows older than the policy and free of live references go, in bounded batches that always progress;
--               nothing parked or unknown, however old, is touched; scratch (rows, boundaries, signals) goes first, the ledger outlives it
--        50.9   what an organisation's runs share outlives the run that did it, until a later epoch has taken its place
--        50.7   a mark that is forgotten with its run stays unknown to whoever asks for it
-- OWNS   nothing; deletes run, outcome, attempt, boundary, map, row, signal, late, event, incarnation, watcher, shared, asker
--
-- A run is referenced while a descendant or its parent lives, while a redrive of it has not ended, or while the plan that it was a try of is known.

create function fencepost.is_referenced_(_rid bigint) returns boolean language sql stable as $law$
  select exists (select from fencepost.task t where t.rid = _rid)
      or exists (select from fencepost.task c where c.parent = _rid)
      or exists (select from fencepost.run r join fencepost.task p on p.rid = r.parent where r.rid = _rid)
      or exists (select from fencepost.run r join fencepost.plan p on p.rid = r.parent where r.rid = _rid)  -- results name what its tries kept
      or exists (select from fencepost.run r join fencepost.task t on t.rid = r.rid where r.origin = _rid)
      or exists (select from fencepost.boundary b join fencepost.task t on t.rid = b.rid where b.child = _rid)
$law$;

-- Returns how many runs were forgotten and how many lost their scratch. Ages in seconds.
create function fencepost.retain(_scratch_s bigint, _runs_s bigint, _most integer) returns table (scratched integer, forgotten integer) language plpgsql volatile as $law$
declare v_now timestamptz := fencepost.enter_(); v_old bigint[]; v_mids bigint[]; v_first bigint; v_last bigint; v_from bigint;
begin
  select array_agg(x.rid) into v_old from (
    select o.rid from fencepost.outcome o
     where o.ended_at < v_now - _scratch_s * interval '1 s' and o.ended_at >= v_now - _runs_s * interval '1 s'
       and exists (select from fencepost.signal s where s.rid = o.rid) and not fencepost.is_referenced_(o.rid)
     order by o.ended_at limit _most) x;
  delete from fencepost.signal s where s.rid = any (v_old);
  scratched := coalesce(cardinality(v_old), 0);
  select array_agg(x.rid) into v_old from (
    select o.rid from fencepost.outcome o where o.ended_at < v_now - _runs_s * interval '1 s' and not fencepost.is_referenced_(o.rid)
     order by o.ended_at limit _most) x;
  forgotten := coalesce(cardinality(v_old), 0);
  if forgotten > 0 then
    update fencepost.shared s
       set left_as = case when b.state = 'kept' then 'kept' when b.state = 'marked' and not b.repeatable then 'unknown' end,
           value = case when b.state = 'kept' then b.value end, rid = null, ordinal = null
      from (select s.eid, b.state, b.repeatable, b.value from fencepost.shared s
              left join fencepost.boundary b on b.rid = s.rid and b.kind = 'step' and b.name = s.name and b.ordinal = s.ordinal
             where s.rid = any (v_old)) b
     where s.eid = b.eid;
    delete from fencepost.asker a where a.rid = any (v_old);
    select array_agg(m.mid) into v_mids from fencepost.map m where m.rid = any (v_old);
    delete from fencepost.row r where r.mid = any (v_mids);
    delete from fencepost.map m where m.rid = any (v_old);
    delete from fencepost.boundary b where b.rid = any (v_old);
    delete from fencepost.signal s where s.rid = any (v_old);
    delete from fencepost.late l where l.rid = any (v_old);
    delete from fencepost.attempt a where a.rid = any (v_old);
    delete from fencepost.event e where e.rid = any (v_old);
    delete from fencepost.process p where p.rid = any (v_old);
    delete from fencepost.handoff h where h.rid = any (v_old);
    delete from fencepost.result o where o.rid = any (v_old);
    delete from fencepost.binding b where b.rid = any (v_old);
    delete from fencepost.edge e where e.rid = any (v_old);
    delete from fencepost.definition d where d.rid = any (v_old);
    delete from fencepost.step s where s.rid = any (v_old);
    delete from fencepost.plan p where p.rid = any (v_old);
    delete from fencepost.outcome o where o.rid = any (v_old);
    delete from fencepost.run r where r.rid = any (v_old);
  end if;
  -- A page of entries, from a place left to chance where there are more: most of the old ones are the last of their kind and stay for good.
  select min(s.eid), max(s.eid) into v_first, v_last from fencepost.shared s;
  v_from := v_first + case when v_last - v_first > 10 * _most then floor(random() * (v_last - v_first + 1 + 10 * _most))::bigint - 10 * _most else 0 end;
  delete from fencepost.shared s where s.eid = any (array(
    select s.eid from fencepost.shared s
     where s.eid = any (array(select p.eid from fencepost.shared p where p.eid >= v_from order by p.eid limit 10 * _most))
       and s.asked_at < v_now - _runs_s * interval '1 s'
       and exists (select from fencepost.shared n where n.org = s.org and n.name = s.name and n.epoch <> s.epoch and n.made_at > s.made_at)
       and not exists (select from fencepost.task t where t.rid = s.rid)
       and not exists (select from fencepost.asker a join fencepost.task t on t.rid = a.rid where a.eid = s.eid)
     order by s.eid limit _most for update skip locked));
  delete from fencepost.watcher w where w.until < v_now;
  delete from fencepost.incarnation i where i.id = any (array(
    select i.id from fencepost.incarnation i where i.ended_at < v_now - _runs_s * interval '1 s'
       and not exists (select from fencepost.task t where t.holder = i.id) and not exists (select from fencepost.attempt a where a.holder = i.id) limit _most));
  return next;
end $law$;

-- Which of these runs are still known: the files of the others may go.
create function fencepost.read_known(_rids bigint[]) returns bigint[] language sql stable as $law$
  select array(select r.rid from fencepost.run r where r.rid = any (_rids))
$law$;
