-- 95_retention.sql: what may be forgotten, and when.
--
-- LAW    95.1   only terminal rows older than the policy and free of live references go, in bounded batches that always progress;
--               nothing parked or unknown, however old, is touched; scratch (rows, boundaries, signals) goes first, the ledger outlives it
-- OWNS   nothing; deletes run, outcome, attempt, boundary, map, row, signal, late, event, incarnation, watcher
--
-- A run is referenced while a descendant or its parent lives, or while a redrive of it has not ended.

create function fencepost.is_referenced_(_rid bigint) returns boolean language sql stable as $law$
  select exists (select from fencepost.task t where t.rid = _rid)
      or exists (select from fencepost.task c where c.parent = _rid)
      or exists (select from fencepost.run r join fencepost.task p on p.rid = r.parent where r.rid = _rid)
      or exists (select from fencepost.run r join fencepost.task t on t.rid = r.rid where r.origin = _rid)
      or exists (select from fencepost.boundary b join fencepost.task t on t.rid = b.rid where b.child = _rid)
$law$;

-- Returns how many runs were forgotten and how many lost their scratch. Ages in seconds.
create function fencepost.retain(_scratch_s bigint, _runs_s bigint, _most integer) returns table (scratched integer, forgotten integer) language plpgsql volatile as $law$
declare v_now timestamptz := fencepost.enter_(); v_old bigint[]; v_mids bigint[];
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
    select array_agg(m.mid) into v_mids from fencepost.map m where m.rid = any (v_old);
    delete from fencepost.row r where r.mid = any (v_mids);
    delete from fencepost.map m where m.rid = any (v_old);
    delete from fencepost.boundary b where b.rid = any (v_old);
    delete from fencepost.signal s where s.rid = any (v_old);
    delete from fencepost.late l where l.rid = any (v_old);
    delete from fencepost.attempt a where a.rid = any (v_old);
    delete from fencepost.event e where e.rid = any (v_old);
    delete from fencepost.outcome o where o.rid = any (v_old);
    delete from fencepost.run r where r.rid = any (v_old);
  end if;
  delete from fencepost.watcher w where w.until < v_now;
  delete from fencepost.incarnation i where i.id = any (array(
    select i.id from fencepost.incarnation i where i.ended_at < v_now - _runs_s * interval '1 s'
       and not exists (select from fencepost.task t where t.holder = i.id) and not exists (select from fencepost.attempt a where a.holder = i.id) limit _most));
  return next;
end $law$;
