-- 90_ledger.sql: what happened, in order, and why a run waits.
--
-- LAW    90.1   per run the sequences are 1..n without gaps: transitions are event rows, or carry their place in their own row
--        90.2   a watch resumes from any sequence
--        90.3   progress is a hint: no event, no answer anybody waits for
--        90.4   whatever waits can be explained from durable facts
--        00.16  SQL null is told apart from JSON null: `output` is null, or text
-- OWNS   the views of the reader role; reads everything

-- One writer per fact: a run's own row tells that it was admitted, and its outcome's how it ended.
create view fencepost.transition as
  select r.rid, 1 as seq, r.submitted_at as at, 'run.admitted' as type, null::integer as number, r.told as data, r.tx from fencepost.run r
  union all
  select e.rid, e.seq, e.at, e.type, e.number, e.data, e.tx from fencepost.event e
  union all
  select o.rid, o.seq, o.ended_at, 'run.' || o.status, nullif(o.number, 0), null, o.tx from fencepost.outcome o;

-- Without the rows of maps: there may be a million of them.
create view fencepost.ledger_of_runs as
  select e.rid, e.seq, e.at, e.type, e.number, e.data from fencepost.transition e
  union all
  select b.rid, b.opened_seq, coalesce(b.opened_at, b.at),
         case b.kind when 'step' then 'step.marked' when 'map' then 'map.opened' when 'child' then 'child.started' else 'wait.armed' end,
         coalesce((select e.number from fencepost.event e where e.rid = b.rid and e.seq < b.opened_seq and e.type = 'attempt.claimed' order by e.seq desc limit 1), b.number),
         jsonb_build_object('kind', b.kind, 'name', b.name, 'ordinal', b.ordinal)
    from fencepost.boundary b where b.opened_seq is not null and b.opened_seq is distinct from b.seq
  union all
  select b.rid, b.seq, b.at, case when b.kind in ('sleep', 'signal') or b.kind = 'child' and b.state <> 'kept' then 'wait.' else b.kind || '.' end
         || case b.state when 'set_aside' then case when b.kind in ('sleep', 'signal', 'child') then 'cancelled' else 'failed' end else b.state end, b.number,
         jsonb_build_object('kind', b.kind, 'name', b.name, 'ordinal', b.ordinal)
    from fencepost.boundary b where b.seq is not null;

create view fencepost.ledger as
  select l.rid, l.seq, l.at, l.type, l.number, l.data from fencepost.ledger_of_runs l
  union all
  select m.rid, r.opened_seq, r.at, 'row.marked',
         coalesce((select e.number from fencepost.event e where e.rid = m.rid and e.seq < r.opened_seq and e.type = 'attempt.claimed' order by e.seq desc limit 1), r.number), jsonb_build_object('map', m.name, 'key', r.key)
    from fencepost.map m join fencepost.row r on r.mid = m.mid where r.opened_seq is not null
  union all
  select m.rid, r.seq, r.at, 'row.' || r.state, r.number, jsonb_build_object('map', m.name, 'key', r.key)
    from fencepost.map m join fencepost.row r on r.mid = m.mid where r.seq is not null;

create view fencepost.runs as
  select r.rid, r.org, r.id, r.kind, r.name, l.name as lane, r.release, r.source, r.priority, r.submitted_at, coalesce(o.status, case t.park when 'plan' then 'running' else t.state end, 'queued') as status,
         r.input, o.output, coalesce(o.error, case when t.state in ('unknown', 'parked') then t.trouble end) as error,
         coalesce(o.number, t.number, 0) as attempts, coalesce(o.tries, t.tries, 0) as tries, o.ended_at as finished_at,
         p.id as parent, g.id as origin
    from fencepost.run r join fencepost.lane l on l.lane = r.lane
    left join fencepost.outcome o on o.rid = r.rid left join fencepost.task t on t.rid = r.rid
    left join fencepost.run p on p.rid = r.parent left join fencepost.run g on g.rid = r.origin;

-- Everything `runs show` needs, as one document; null when there is no such run in the organisation.
create function fencepost.read_run(_org text, _id text) returns jsonb language sql stable as $law$
  select jsonb_build_object(
    'run_id', v.id, 'org', v.org, 'kind', v.kind, 'name', v.name, 'status', v.status, 'output', v.output, 'error', v.error, 'attempts', v.attempts, 'tries', v.tries,
    'lane', v.lane, 'release', v.release, 'source', v.source, 'priority', v.priority, 'submitted_at', v.submitted_at, 'finished_at', v.finished_at,
    'input', v.input, 'parent', v.parent, 'origin', v.origin, 'rid', v.rid,
    'started_at', least((select min(a.claimed_at) from fencepost.attempt a where a.rid = v.rid), t.claimed_at),
    'task', case when t.rid is not null then jsonb_build_object('state', t.state, 'park', t.park, 'ready_at', t.ready_at, 'due_at', t.due_at, 'claim_by', t.claim_by,
              'holder', t.holder, 'claimed_at', t.claimed_at, 'begun', t.begun, 'losses', t.losses, 'deferrals', t.deferrals, 'unknown', t.unknown,
              'trouble', t.trouble, 'cancel_reason', t.cancel_reason, 'cancel_until', t.cancel_until, 'progress', t.progress, 'number', t.number) end,
    'holder', (select jsonb_build_object('id', i.id, 'name', i.name, 'pid', i.pid, 'heard_at', i.heard_at, 'lease_ms', i.lease_ms, 'ended', i.ended)
                 from fencepost.incarnation i where i.id = t.holder),
    'now', fencepost.now_(),
    'cancelling_at', (select max(e.at) from fencepost.event e where e.rid = v.rid and e.type = 'run.cancelling'),
    'steps', (select jsonb_agg(jsonb_build_object('name', b.name, 'ordinal', b.ordinal, 'kind', b.kind, 'state',
                       case when b.state = 'marked' and not b.repeatable and b.fence is distinct from t.fence then 'unknown' else b.state end,
                       'attempt', b.number, 'value', b.value, 'repeatable', b.repeatable, 'at', b.at, 'until', b.until, 'asked_ms', b.asked_ms, 'seq', coalesce(b.seq, b.opened_seq),
                       'child', (select c.id from fencepost.run c where c.rid = b.child),
                       'late', exists (select from fencepost.late l where l.rid = b.rid and l.name = b.name and l.ordinal = b.ordinal and l.fence = b.fence and b.state = 'marked'))
                     order by coalesce(b.seq, b.opened_seq)) from (select b.* from fencepost.boundary b where b.rid = v.rid order by coalesce(b.seq, b.opened_seq) limit 10000) b),
    'rows', (select jsonb_build_object('completed', count(*) filter (where w.state = 'kept'), 'failed', count(*) filter (where w.state = 'failed'),
                      'unknown', count(*) filter (where w.state = 'marked' and not w.repeatable and w.fence is distinct from t.fence),
                      'skipped', count(*) filter (where w.state = 'skipped'), 'total', count(*))
               from fencepost.map m join fencepost.row w on w.mid = m.mid where m.rid = v.rid),
    'attempt_history', (select jsonb_agg(jsonb_build_object('number', a.number, 'ended', a.ended, 'reason', a.reason, 'claimed_at', a.claimed_at, 'ended_at', a.ended_at,
                          'holder', a.holder) order by a.number) from fencepost.attempt a where a.rid = v.rid),
    'late_results', (select jsonb_agg(jsonb_build_object('kind', l.kind, 'name', l.name, 'ordinal', l.ordinal, 'ok', l.ok, 'value', l.value, 'accepted', l.accepted, 'at', l.at)
                       order by l.lid) from fencepost.late l where l.rid = v.rid),
    'signals_waiting', (select count(*) from fencepost.signal s where s.rid = v.rid and s.taken is null),
    'children', (select jsonb_agg(c.id order by c.rid) from fencepost.run c join fencepost.task ct on ct.rid = c.rid where c.parent = v.rid),
    'plan', (select jsonb_build_object('steps', p.steps, 'open', p.open, 'running', p.flying - p.unknown, 'unknown', p.unknown, 'failed', p.failed, 'succeeded', p.succeeded,
               'max_concurrency', p.most, 'waiting', (select count(*) from fencepost.step s where s.rid = p.rid and s.due_at is not null),
               'unknown_steps', (select coalesce(jsonb_agg(x.id order by x.no), '[]') from (
                  select s.id, s.no from fencepost.task c join fencepost.step s on s.child = c.rid where c.parent = p.rid and c.state = 'unknown' order by s.no limit 10) x)) from fencepost.plan p where p.rid = v.rid),
    'process', (select jsonb_build_object('host', x.host, 'pid', x.pid, 'begun_at', x.begun_at, 'ceiling_at', x.ceiling_at)
                  from fencepost.process x where x.rid = v.rid and x.number = t.number and t.begun and t.holder is not null),
    'workers', (select jsonb_agg(jsonb_build_object('name', i.name, 'heard_at', i.heard_at, 'lease_ms', i.lease_ms, 'runs_it', v.name = any (i.workflows)))
                  from fencepost.incarnation i join fencepost.run r on r.rid = v.rid where i.ended is null and i.lane = r.lane))
    from fencepost.runs v left join fencepost.task t on t.rid = v.rid where v.org = _org and v.id = _id
$law$;

create function fencepost.read_unknown_rows(_org text, _id text, _limit integer) returns table (map text, ordinal integer, key text) language sql stable as $law$
  select m.name, m.ordinal, w.key
    from fencepost.run r join fencepost.map m on m.rid = r.rid
    join fencepost.row w on w.mid = m.mid and w.state in ('waiting', 'marked', 'again')
    left join fencepost.task t on t.rid = r.rid
   where r.org = _org and r.id = _id and w.state = 'marked' and not w.repeatable and w.fence is distinct from t.fence
   order by m.mid, w.index limit _limit
$law$;

create function fencepost.read_runs(_org text, _statuses text[], _name text, _before timestamptz, _limit integer)
returns table (run_id text, org text, kind text, name text, status text, attempts integer, tries integer, submitted_at timestamptz, finished_at timestamptz) language sql stable as $law$
  select v.id, v.org, v.kind, v.name, v.status, v.attempts, v.tries, v.submitted_at, v.finished_at from fencepost.runs v
   where (_org is null or v.org = _org) and (_statuses is null or v.status = any (_statuses)) and (_name is null or v.name = _name)
     and (_before is null or v.submitted_at < _before)
   order by v.submitted_at desc, v.rid desc limit least(_limit, 10000)
$law$;

create function fencepost.read_events(_org text, _id text, _after integer, _limit integer)
returns table (seq integer, at timestamptz, type text, number integer, data jsonb) language plpgsql stable as $law$
#variable_conflict use_column
-- The run is looked up first: as a join its number would not reach the branches of the view, which then read every run's rows.
declare v_most integer := least(_limit, 10000); v_rid bigint := (select r.rid from fencepost.run r where r.org = _org and r.id = _id);
begin
  -- Whoever waits at the end asks often: the run's last number is at hand.
  if _after >= coalesce((select o.seq from fencepost.outcome o where o.rid = v_rid), (select t.seq from fencepost.task t where t.rid = v_rid)) then return; end if;
  -- There are no gaps, so a page is the next numbers, and of a million rows only its own are written out. Where there is one all the same
  -- (history that was restored in part), the page is looked for behind it.
  return query select l.seq, l.at, l.type, l.number, l.data from fencepost.ledger l where l.rid = v_rid and l.seq > _after and l.seq <= _after::bigint + v_most order by l.seq;
  if not found then
    return query select l.seq, l.at, l.type, l.number, l.data from fencepost.ledger l where l.rid = v_rid and l.seq > _after order by l.seq limit v_most;
  end if;
end $law$;

-- The same without what became of a map's rows, for whoever follows a run and not each of its rows.
create function fencepost.read_run_events(_org text, _id text, _after integer, _limit integer)
returns table (seq integer, at timestamptz, type text, number integer, data jsonb) language sql stable as $law$
  select l.seq, l.at, l.type, l.number, l.data from fencepost.ledger_of_runs l
   where l.rid = (select r.rid from fencepost.run r where r.org = _org and r.id = _id) and l.seq > _after and l.type not like 'row.%'
   order by l.seq limit least(10000, _limit)
$law$;

-- The outbox. A cursor (tx, rid, seq) never passes a transaction that is still open: those could still add behind it.
create function fencepost.read_outbox(_tx bigint, _rid bigint, _seq integer, _limit integer)
returns table (tx bigint, rid bigint, seq integer, org text, run_id text, at timestamptz, type text, number integer, data jsonb) language sql stable as $law$
  select e.tx, e.rid, e.seq, r.org, r.id, e.at, e.type, e.number, e.data
    from fencepost.transition e join fencepost.run r on r.rid = e.rid
   where e.tx >= _tx and (e.tx, e.rid, e.seq) > (_tx, _rid, _seq) and e.tx < pg_snapshot_xmin(pg_current_snapshot())::text::bigint
   order by e.tx, e.rid, e.seq limit least(_limit, 10000)
$law$;

-- Progress is a hint, not a transition: no event, no answer anybody waits for (90.3). A dead fence changes nothing.
create function fencepost.note_progress(_rids bigint[], _fences uuid[], _texts text[]) returns integer language plpgsql volatile as $law$
declare v_note record; v_n integer := 0;
begin
  for v_note in select distinct on (i.rid) i.* from unnest(_rids, _fences, _texts) with ordinality as i(rid, fence, text, ord) order by i.rid, i.ord desc loop
    perform from fencepost.task t where t.rid = v_note.rid and t.fence = v_note.fence for no key update skip locked;
    if found then
      update fencepost.task t set progress = v_note.text where t.rid = v_note.rid and t.fence = v_note.fence;
      v_n := v_n + 1;
    end if;
  end loop;
  return v_n;
end $law$;

-- Facts of the installation, for start-up checks and doctor.
create function fencepost.read_installation() returns jsonb language sql stable as $law$
  select jsonb_build_object('installation', m.installation, 'schema_version', m.schema_version, 'test', m.test, 'now', fencepost.now_(),
    'is_copy', m.database_oid <> (select d.oid from pg_catalog.pg_database d where d.datname = current_database())
            or m.system_identifier <> (select s.system_identifier::text from pg_control_system() s),
    'owner', (select pg_get_userbyid(n.nspowner) from pg_catalog.pg_namespace n join pg_catalog.pg_class c on c.relnamespace = n.oid where c.oid = 'fencepost.meta'::regclass),
    'user', session_user, 'server_version', current_setting('server_version_num')::integer,
    'synchronous_commit', current_setting('synchronous_commit'), 'fsync', current_setting('fsync'),
    'live_workers', (select count(*) from fencepost.incarnation i where i.ended is null),
    'tasks', (select coalesce(jsonb_object_agg(x.state, x.n), '{}') from (select t.state, count(*) as n from fencepost.task t group by t.state) x))
    from fencepost.meta m
$law$;

-- Live workers of a lane (heard within their lease), and what they run.
create function fencepost.read_workers(_lane integer) returns table (id uuid, name text, pid integer, heard_ms bigint, lease_ms integer, workflows text[]) language sql stable as $law$
  select i.id, i.name, i.pid, (extract(epoch from fencepost.now_() - i.heard_at) * 1000)::bigint, i.lease_ms, i.workflows
    from fencepost.incarnation i where i.ended is null and i.lane = _lane and i.heard_at > fencepost.now_() - i.lease_ms * interval '1 ms' order by i.started_at
$law$;
