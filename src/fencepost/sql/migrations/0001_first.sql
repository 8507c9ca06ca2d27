-- 0001_first.sql: the chapters, as the first release had them. Written by tests/tidy/freeze.py.

-- 00_ground.sql: the clock, the moves, the gate every transaction enters by.
--
-- LAW    00.1   one clock, read once, in the database; a fake one only in an installation marked test, as a row
--        00.2   moves are rows; any other move is refused
--        00.3   a door asked again gives the same answer: each chapter says how
--        00.4   what a correct caller can meet is an answer; an exception here is LWnnn
--        00.7   every name is qualified: `fencepost.` is replaced by the installation's own schema, quoted
--        00.8   the schema's version is a row that starting processes assert
--        00.10  nothing here rests on SERIALIZABLE: engine doors demand READ COMMITTED (00.14)
--        00.15  a reply means durable: engine writes force synchronous_commit on
-- OWNS   meta, migration, move
-- CODES  LW001 unlawful move · LW002 a number or sequence that shrinks · LW003 wrong isolation for an engine door
--
-- Functions that end in `_` are inner rooms; every other function is a door (99_grants.sql).

create table fencepost.meta (
  one               boolean primary key default true check (one),
  installation      uuid not null default gen_random_uuid(),
  schema_version    integer not null,
  system_identifier text not null,
  database_oid      oid not null,
  test              boolean not null default false,
  test_now          timestamptz,
  check (test or test_now is null)
);

create table fencepost.migration (
  version    integer primary key,
  name       text not null,
  sha256     text not null,
  applied_at timestamptz not null
);

-- Law 00.1. `transaction_timestamp()` cannot be read twice differently by accident.
-- (Every room that a hot door enters is plpgsql, for a SQL function is planned again at every call. This one is a mere word for another,
-- which the planner writes in its place: it costs nothing.)
create function fencepost.now_() returns timestamptz language sql stable as $law$ select transaction_timestamp() $law$;

-- What now_() is made a word for in an installation marked test: to look for a row that is never there costs a lone launch a twentieth.
create function fencepost.test_now_() returns timestamptz language plpgsql stable as $law$
begin
  return coalesce((select m.test_now from fencepost.meta m where m.one), transaction_timestamp());
end $law$;

-- One of many ids, from one random seed that nobody knows: a hash of both is as random as the seed. To ask the system for each costs 3 µs
-- where PostgreSQL is built without OpenSSL, and this less than 1. `_n`: another for each id of a seed.
create function fencepost.random_id_(_seed uuid, _n bigint) returns uuid language sql immutable as $law$
  select encode(substr(sha256(uuid_send(_seed) || int8send(_n)), 1, 16), 'hex')::uuid
$law$;

-- What a starting process asserts: it may see no table (00.8, 00.9).
create function fencepost.read_version() returns integer language sql stable as $law$ select m.schema_version from fencepost.meta m $law$;

create function fencepost.read_clock() returns timestamptz language sql stable as $law$ select fencepost.now_() $law$;

-- Every engine door begins here and hands the instant inward.
create function fencepost.enter_() returns timestamptz language plpgsql volatile as $law$
begin
  if current_setting('transaction_isolation') <> 'read committed' then
    raise exception 'engine doors run READ COMMITTED, not %', current_setting('transaction_isolation') using errcode = 'LW003';
  end if;
  if current_setting('synchronous_commit') = 'off' then
    perform set_config('synchronous_commit', 'on', true);
  end if;
  return fencepost.now_();
end $law$;

-- For how long something took, and never for what time it is: that is now_().
create function fencepost.stopwatch_() returns timestamptz language sql volatile as $law$ select clock_timestamp() $law$;

-- A channel of this installation: names are short, and two installations in one database never hear each other.
create function fencepost.channel_(_what text) returns text language plpgsql stable as $law$
begin
  return (select 'fp_' || left(replace(m.installation::text, '-', ''), 12) || '_' || _what from fencepost.meta m where m.one);
end $law$;

-- Three names at once, with one look for control characters (30.6). They are counted up, for what [[:cntrl:]] means is up to the locale.
create function fencepost.good_names_(_org text, _id text, _name text) returns boolean language sql immutable as $law$
  select length(_org) between 1 and 200 and length(_id) between 1 and 200 and length(_name) between 1 and 200
     and '' not in (btrim(_org), btrim(_id), btrim(_name)) and _org || _id || _name !~ '[\u0001-\u001f\u007f-\u009f\u2028\u2029]'
$law$;

create table fencepost.move (
  was     text collate "C" not null,
  becomes text collate "C" not null,
  by      text[] not null,
  because text not null,
  primary key (was, becomes)
);

insert into fencepost.move (was, becomes, by, because) values
  ('queued',     'running',    '{claim_attempts,claim_tree}', 'a worker took it: number + 1, a new fence'),
  ('queued',     'cancelling', '{cancel_run}', 'cancelled while descendants still live'),
  ('queued',     'cancelled',  '{cancel_run}', 'cancelled before anybody ran it'),
  ('queued',     'failed',     '{beat,judge_bound,end_run}', 'past its claim bound, or ended by an operator'),
  ('running',    'queued',     '{finish_attempts,defer_attempts,give_back_attempts,beat,close_incarnation}',
                               'a declared retry, a deferral, a give-back, or lost and declared replay'),
  ('running',    'parked',     '{park_attempts,finish_attempts}', 'every branch waits, or the code does not fit its history'),
  ('running',    'cancelling', '{cancel_run}', 'cancel accepted; its code is told to stop'),
  ('running',    'unknown',    '{finish_attempts,beat,close_incarnation}', 'a step, or the attempt, with an outcome nobody knows'),
  ('running',    'completed',  '{finish_attempts}', 'it said so with a living fence'),
  ('running',    'failed',     '{finish_attempts,defer_attempts,beat,close_incarnation,end_run}', 'it failed, or was lost and declared fail'),
  ('parked',     'queued',     '{send_signals,finish_attempts,beat,wake_run,register_workflows}', 'what it waited for came, or the hour did'),
  ('parked',     'cancelling', '{cancel_run}', 'cancelled while descendants still live'),
  ('parked',     'cancelled',  '{cancel_run}', 'cancelled while it waited'),
  ('parked',     'failed',     '{end_run,finish_attempts,beat,close_incarnation,lose_step,resolve_unknown,declare_lost,admit_plan}',
                               'ended by an operator; or a plan whose last step has ended'),
  ('parked',     'completed',  '{finish_attempts,beat,resolve_unknown,admit_plan}', 'a plan whose last step has ended'),
  ('parked',     'unknown',    '{finish_attempts,beat,lose_step,declare_lost}', 'a plan of which nothing moves any more but what nobody knows'),
  ('cancelling', 'cancelled',  '{finish_attempts,beat,close_incarnation,cancel_run,end_run}', 'its code stopped, or the grace is over'),
  ('unknown',    'parked',     '{resolve_unknown,beat,end_run,cancel_run}', 'a plan whose step is known again'),
  ('unknown',    'queued',     '{resolve_unknown,wake_run}', 'resolved: the run continues'),
  ('unknown',    'completed',  '{resolve_unknown}', 'an operator knows that it was done'),
  ('unknown',    'failed',     '{resolve_unknown,end_run}', 'an operator knows that it was not'),
  ('unknown',    'cancelling', '{cancel_run}', 'cancelled while descendants still live'),
  ('unknown',    'cancelled',  '{cancel_run}', 'cancelled; the unknown step stays in the record');

create function fencepost.refuse_move_() returns trigger language plpgsql set search_path = pg_catalog, pg_temp as $law$
begin
  if old.rid <> new.rid or new.number < old.number or new.seq < old.seq then
    raise exception 'run %: number % -> %, sequence % -> %: these only grow', old.rid, old.number, new.number, old.seq, new.seq
      using errcode = 'LW002';
  end if;
  raise exception 'run %: no move % -> %', old.rid, old.state, new.state using errcode = 'LW001';
end $law$;

-- 10_lanes.sql: which queue a release's runs ride.
--
-- LAW    10.1  a run rides one lane for life
--        10.2  the lane of a release id (naming is idempotent)
--        10.3  two release ids never share a lane
--        10.4  submitter and worker derive the same lane: both ask register_lane
--        10.5  a worker of a foreign schema must say its release (kept by settings)
-- OWNS   lane

create table fencepost.lane (
  lane          integer generated always as identity primary key,
  name          text collate "C" not null unique check (octet_length(name) between 1 and 63),
  release       text collate "C" not null unique check (release !~ '[\u0001-\u001f\u007f-\u009f\u2028\u2029]' and btrim(release) <> ''),
  registered_at timestamptz not null,
  retired_at    timestamptz,
  woken_at      timestamptz[] not null default '{}',  -- when timers of the last second were woken, and how many (law 60.9)
  woken         integer[] not null default '{}'
);

-- Lower case, one `_` for every run of other characters, none outside. ASCII only, so that every database agrees.
create function fencepost.normalise_(_id text) returns text language sql immutable as $law$
  select btrim(regexp_replace(lower(_id collate "C"), '[^a-z0-9_]+', '_', 'g'), '_')
$law$;

create function fencepost.shorten_(_name text, _most integer) returns text language sql immutable as $law$
  select case when length(_name) <= _most then _name
              else rtrim(left(_name, _most - 9), '_') || '_' || left(encode(sha256(convert_to(_name, 'UTF8')), 'hex'), 8) end
$law$;

-- Null for an id that names nothing.
create function fencepost.lane_name_(_release text) returns text language sql immutable as $law$
  select case when _release = 'dev' then 'runs'
              when _release like 'dev-%' then 'runs_' || nullif(fencepost.shorten_(fencepost.normalise_(substr(_release, 5)), 32), '')
              else 'runs_' || nullif(fencepost.shorten_(fencepost.normalise_(_release), 40), '') end
$law$;

-- Answers: registered · refused_blank · refused_dev · refused_twin (then `holder` names the release that has the lane).
create function fencepost.register_lane(_release text)
returns table (answer text, lane integer, name text, holder text) language plpgsql volatile as $law$
#variable_conflict use_column
declare v_name text := fencepost.lane_name_(_release); v_norm text := fencepost.normalise_(_release); v_found record;
begin
  -- Also inside a caller's transaction, of whatever isolation (30.10), so it does not enter.
  if current_setting('synchronous_commit') = 'off' then perform set_config('synchronous_commit', 'on', true); end if;
  if v_name is null or _release ~ '[\u0001-\u001f\u007f-\u009f\u2028\u2029]' or length(_release) > 200 then
    return query select 'refused_blank', null::integer, null::text, null::text; return;
  end if;
  if _release <> 'dev' and _release not like 'dev-%' and (v_norm = 'dev' or v_norm like 'dev\_%') then
    return query select 'refused_dev', null::integer, v_name, null::text; return;
  end if;
  select l.lane, l.release into v_found from fencepost.lane l where l.name = v_name;
  if v_found is null then
    insert into fencepost.lane (name, release, registered_at) values (v_name, _release, fencepost.now_()) on conflict do nothing;
    select l.lane, l.release into v_found from fencepost.lane l where l.name = v_name;
  end if;
  if v_found.release <> _release then
    return query select 'refused_twin', null::integer, v_name, v_found.release; return;
  end if;
  return query select 'registered', v_found.lane, v_name, null::text;
end $law$;

create function fencepost.read_lanes()
returns table (lane integer, name text, release text, registered_at timestamptz, retired_at timestamptz) language sql stable as $law$
  select l.lane, l.name, l.release, l.registered_at, l.retired_at from fencepost.lane l order by l.lane
$law$;

-- 15_shapes.sql: the rows that more than one chapter writes, and what they can never look like.
--
-- LAW    00.2   every (state, fence, holder, begun, wait) shape that is not legal is impossible; moves are refused by trigger
--        00.16  SQL null is "no output"; a JSON null is the text `null`
--        30.6   blank ids, over-long ids and control characters are impossible
--        40.2   numbers only grow; a fence is 128 random bits, never lent twice
--        80.1   the key of `outcome` is "the first terminal wins"
--        90.1   one closed list of event types; (run, seq) is unique
-- OWNS   run, task, outcome, attempt, boundary, map, row, signal, late, shared, asker, incarnation, sleeper, watcher, event
--
-- Text that is a key is compared byte by byte (collate "C"): an index in a language's order is broken by an upgrade of the machine's C library,
-- and a broken index admits a run twice (30.2).
-- Identities are bigint inside; text ids stand in `run` only. Author values are text: the bytes the edge wrote (50.1).
-- `run`, `outcome` and `event` are insert-only, so their payloads never rewrite a hot row. `task` is narrow and hot, has
-- partial indexes that match each query exactly, and is deleted by the terminal write: finished work costs a claim nothing.

-- A constraint's text is parsed anew by every statement that writes its table: a list of forty words cost five times what the write
-- itself costs, measured. So the lists and shapes of the hot tables stand in functions, which a session reads once.
create function fencepost.is_run_(_org text, _id text, _name text, _kind text, _on_lost text, _priority integer) returns boolean language plpgsql immutable as $law$
begin
  return fencepost.good_names_(_org, _id, _name) and _kind in ('workflow', 'plan', 'step') and _on_lost in ('replay', 'fail', 'ask')
     and _priority between -1000000 and 1000000;
end $law$;

create function fencepost.is_boundary_(_kind text, _state text, _ordinal integer, _opened_seq integer, _seq integer) returns boolean language plpgsql immutable as $law$
begin
  return _kind in ('step', 'map', 'sleep', 'signal', 'child', 'value')
     and _state in ('marked', 'kept', 'failed', 'armed', 'arrived', 'timed_out', 'cancelled', 'open', 'set_aside', 'again')
     and _ordinal >= 1
     and ((_state in ('marked', 'armed', 'open', 'again')) = (_seq is null) or _state = 'set_aside')
     and (_state not in ('marked', 'armed', 'open') or _opened_seq is not null);
end $law$;

create function fencepost.is_outcome_(_status text, _output text, _error text) returns boolean language plpgsql immutable as $law$
begin
  return _status in ('completed', 'failed', 'cancelled')
     and ((_status = 'failed') = (_error is not null) or _status = 'cancelled')
     and (_output is null or _status = 'completed');
end $law$;

create function fencepost.is_attempt_(_number integer, _ended text) returns boolean language plpgsql immutable as $law$
begin
  return _number >= 1 and _ended in ('finished', 'parked', 'deferred', 'given_back', 'lost', 'retrying', 'unknown');
end $law$;

create function fencepost.is_event_(_type text) returns boolean language plpgsql immutable as $law$
begin
  return _type in (
    'run.admitted', 'run.recovered', 'run.woken', 'run.cancelling', 'run.unknown', 'run.resolved', 'run.completed', 'run.failed', 'run.cancelled',
    'attempt.claimed', 'attempt.begun', 'attempt.parked', 'attempt.deferred', 'attempt.given_back', 'attempt.lost', 'attempt.retrying',
    'attempt.unfit', 'attempt.adopted', 'signal.sent', 'late.accepted',
    'plan.step_started', 'plan.step_succeeded', 'plan.step_failed', 'plan.step_waiting', 'plan.step_skipped', 'plan.step_cancelled', 'plan.step_unknown',
    'plan.step_resumed', 'plan.stuck',
    -- What a boundary or row tells by itself; it becomes an event when the record is written over (50_steps).
    'step.marked', 'step.kept', 'step.failed', 'value.kept', 'value.failed', 'map.opened', 'map.kept', 'map.failed', 'child.started', 'child.kept',
    'wait.armed', 'wait.arrived', 'wait.timed_out', 'wait.cancelled', 'row.marked', 'row.kept', 'row.failed', 'row.skipped');
end $law$;

create table fencepost.run (
  rid          bigint generated always as identity primary key,
  org          text collate "C" not null,
  id           text collate "C" not null,
  kind         text not null,
  name         text not null,
  lane         integer not null,
  release      text not null,
  source       text not null,
  priority     integer not null,
  input        text not null,
  contract     jsonb not null default '{}',
  on_lost      text not null,
  parent       bigint,
  origin       bigint,
  key_root     uuid not null,
  submitted_at timestamptz not null,
  told         jsonb,                       -- what its admission says besides: of a redrive, the origin's id and who asked (85.4)
  tx           bigint not null default (pg_current_xact_id()::text::bigint),
  unique (org, id),
  check (fencepost.is_run_(org, id, name, kind, on_lost, priority))
);
create index run_parent on fencepost.run (parent) where parent is not null;
create index run_origin on fencepost.run (origin) where origin is not null;
create index run_submitted on fencepost.run (submitted_at);
create index run_tx on fencepost.run using brin (tx);

create table fencepost.task (
  rid            bigint primary key,
  lane           integer not null,
  org            text collate "C" not null,
  state          text not null,
  priority       integer not null,
  ready_at       timestamptz not null,
  turn_at        timestamptz not null,      -- ready_at - priority x 60 s: its place in the organisation's line (20.9)
  due_at         timestamptz,               -- when a timer must act for it: not claimable before, or the earliest wait
  claim_by       timestamptz,               -- 30.8: the bound that ends with the first claim
  number         integer not null default 0,
  tries          integer not null default 0,
  losses         integer not null default 0,  -- since the last committed boundary (40.15)
  deferrals      integer not null default 0,
  deferred_since timestamptz,
  seq            integer not null,
  fence          uuid,
  holder         uuid,
  request        bigint,
  claimed_at     timestamptz,
  begun          boolean not null default false,
  park           text,
  code_digest    text,                      -- parked on its code: the digest that did not fit (50.4)
  unknown        text,
  cancel_reason  text,
  cancel_until   timestamptz,
  trouble        text,                      -- the error shown while unknown, deferred or parked on its code
  progress       text,
  on_lost        text not null,
  parent         bigint,
  opaque         boolean not null default false  -- begun, it is lost by proof, by its ceiling or by its own word only (70.10)
) with (fillfactor = 70, autovacuum_vacuum_scale_factor = 0.02, autovacuum_vacuum_cost_delay = 0);

-- Of the whole row, for every column that a constraint names is parsed anew as well. Not so where a row holds payloads, which would be copied.
create function fencepost.is_task_(_t fencepost.task) returns boolean language plpgsql immutable as $law$
begin
  return _t.state in ('queued', 'running', 'parked', 'cancelling', 'unknown')
     and _t.on_lost in ('replay', 'fail', 'ask')
     and (_t.park is null or _t.park in ('wait', 'code', 'plan'))
     and _t.number >= _t.tries and _t.tries >= 0 and _t.losses >= 0 and _t.seq >= 1
     and (_t.fence is null) = (_t.holder is null) and (_t.fence is null) = (_t.claimed_at is null) and (_t.fence is null) = (_t.request is null)
     and (not _t.begun or _t.fence is not null)
     and (_t.state = 'unknown') = (_t.unknown is not null)
     and (_t.state = 'parked') = (_t.park is not null)
     and (_t.state = 'cancelling') = (_t.cancel_until is not null)
     and case _t.state when 'queued' then _t.fence is null
                     when 'running' then _t.fence is not null and _t.due_at is null
                     when 'parked' then _t.fence is null and (_t.park <> 'code' or _t.due_at is null)
                     when 'unknown' then _t.fence is null and _t.due_at is null
                     when 'cancelling' then _t.due_at is null end
     and (_t.claim_by is null or (_t.state = 'queued' and _t.number = 0))
     and (_t.code_digest is null or _t.park = 'code');
end $law$;
alter table fencepost.task add check (fencepost.is_task_(task));

-- The claim's line. Parked, delayed, suspect and finished work is in no claim index.
create index task_line on fencepost.task (lane, org, turn_at, rid) where state = 'queued' and due_at is null and losses = 0;
create index task_suspect on fencepost.task (lane, turn_at, rid) where state = 'queued' and due_at is null and losses > 0;
create index task_held on fencepost.task (holder) where holder is not null;
create index task_due on fencepost.task (lane, due_at, rid) where due_at is not null;
create index task_bound on fencepost.task (claim_by) where claim_by is not null;
create index task_cancelling on fencepost.task (cancel_until) where state = 'cancelling';
create index task_parent on fencepost.task (parent) where parent is not null;
create index task_opaque on fencepost.task (rid) where opaque and holder is not null;
create index task_code on fencepost.task (lane) where park = 'code';

create table fencepost.outcome (
  rid      bigint primary key,
  status   text not null,
  output   text,
  error    text,
  number   integer not null,
  tries    integer not null,
  fence    uuid,
  seq      integer not null,
  ended_at timestamptz not null,
  tx       bigint not null default (pg_current_xact_id()::text::bigint),
  check (fencepost.is_outcome_(status, output, error))
);
create index outcome_ended on fencepost.outcome (ended_at);
create index outcome_tx on fencepost.outcome using brin (tx);

-- The history of legs, written at a leg's end, with the answer its fence was given (80.2).
create table fencepost.attempt (
  rid        bigint not null,
  number     integer not null,
  fence      uuid not null,
  holder     uuid not null,
  claimed_at timestamptz not null,
  ended_at   timestamptz not null,
  ended      text not null,
  begun      boolean not null,
  reason     text,
  primary key (rid, number),
  check (fencepost.is_attempt_(number, ended))
);
create index attempt_holder on fencepost.attempt (holder);

create table fencepost.boundary (
  rid        bigint not null,
  kind       text collate "C" not null,
  name       text collate "C" not null,
  ordinal    integer not null,
  state      text not null,
  opened_seq integer,                       -- marked, armed or opened
  seq        integer,                       -- resolved: results reach the code in this order (50.4)
  number     integer not null,              -- the attempt that wrote it last
  fence      uuid,
  hash       text not null default '',      -- of the arguments (50.4)
  repeatable boolean not null default true,
  loose      boolean not null default false, -- recorded before a declared retry, or by a redrive's origin: may stay unasked
  value      text,                          -- the value kept, the payload delivered, or the error of a failure
  asked_ms   bigint,                        -- of a wait: what was asked (60.5)
  until      timestamptz,                   -- of a wait: its time-out; of a mark: the step's durable deadline (40.12)
  child      bigint,
  at         timestamptz not null,
  opened_at  timestamptz,
  primary key (rid, kind, name, ordinal),
  check (fencepost.is_boundary_(kind, state, ordinal, opened_seq, seq))
);
create index boundary_armed on fencepost.boundary (rid) where state = 'armed';
create index boundary_child on fencepost.boundary (child) where child is not null;
create index boundary_deadline on fencepost.boundary (until) where state = 'marked' and until is not null;
create index boundary_marked on fencepost.boundary (rid) where state = 'marked';

create table fencepost.map (
  mid     bigint generated always as identity primary key,
  rid     bigint not null,
  name    text collate "C" not null,
  ordinal integer not null,
  total   integer not null,                 -- rows stored so far; all of them once `whole`
  whole   boolean not null default false,
  unique (rid, name, ordinal)
);

create table fencepost.row (
  mid        bigint not null,
  index      integer not null check (index >= 0),
  key        text collate "C" not null,
  input      text not null,
  state      text not null default 'waiting' check (state in ('waiting', 'marked', 'kept', 'failed', 'skipped', 'again')),
  number     integer,
  fence      uuid,
  repeatable boolean not null default true,
  opened_seq integer,
  seq        integer,
  value      text,
  at         timestamptz,
  primary key (mid, index),
  unique (mid, key),
  check ((state in ('kept', 'failed', 'skipped')) = (seq is not null)),
  check (state <> 'marked' or fence is not null)
) with (fillfactor = 80);
create index row_open on fencepost.row (mid) where state in ('waiting', 'marked', 'again');

create table fencepost.signal (
  sid     bigint generated always as identity primary key,
  rid     bigint not null,
  name    text collate "C" not null,
  dedupe  text collate "C",
  payload text not null,
  sent_at timestamptz not null,
  taken   integer                           -- the ordinal of the wait it was delivered to
);
create unique index signal_dedupe on fencepost.signal (rid, name, dedupe) where dedupe is not null;
create index signal_waiting on fencepost.signal (rid, name, sid) where taken is null;
create index signal_rid on fencepost.signal (rid);

-- Evidence that came too late to be the record: a commit by a dead fence, a result after an accepted cancel (50.2, 80.4).
create table fencepost.late (
  lid      bigint generated always as identity primary key,
  rid      bigint not null,
  kind     text not null,
  name     text not null,
  ordinal  integer not null,
  fence    uuid not null,
  ok       boolean not null,
  value    text,
  at       timestamptz not null,
  accepted boolean not null default false
);
create index late_rid on fencepost.late (rid);

-- 50.9. A step of scope `org`: which run took it on, and what a forgotten run left of it.
create table fencepost.shared (
  eid      bigint generated always as identity primary key,
  org      text collate "C" not null,
  name     text collate "C" not null,
  key      text collate "C" not null,
  epoch    text collate "C" not null,
  root     uuid not null default gen_random_uuid(),  -- what the key of its call is made of: the same for every run that takes it on
  rid      bigint,                          -- with ordinal: the boundary that says how it stands
  ordinal  integer,
  marker   uuid,                            -- the incarnation that marked it last
  left_as  text check (left_as in ('kept', 'unknown')),
  value    text,
  made_at  timestamptz not null,
  asked_at timestamptz not null,            -- to the hour
  unique (org, name, key, epoch),
  check ((rid is null) = (ordinal is null)),
  check (left_as is null or rid is null),
  check ((left_as = 'kept') is not distinct from true or value is null)
);
create index shared_rid on fencepost.shared (rid) where rid is not null;

-- A call that asked for one, until it is given a value.
create table fencepost.asker (
  rid     bigint not null,
  name    text collate "C" not null,
  ordinal integer not null,
  eid     bigint not null,
  how     text not null check (how in ('holds', 'waits', 'told', 'woken')),
  wait    text not null,                    -- the name of the signal that wakes it
  primary key (rid, name, ordinal)
) with (fillfactor = 80);
create index asker_open on fencepost.asker (eid) where how in ('waits', 'told');
create index asker_entry on fencepost.asker (eid);

-- A worker process, from its start to its end: never reused, whatever its name (40.9).
create table fencepost.incarnation (
  id              uuid primary key,
  lane            integer not null,
  name            text not null,
  boot_id         text collate "C",                     -- with pid_namespace and process_start: what proof of death needs (85.3)
  pid_namespace   text collate "C",
  pid             integer not null,
  process_start   text,
  lease_ms        integer not null check (lease_ms > 0),
  beat_ms         integer not null check (beat_ms > 0 and lease_ms >= 3 * beat_ms),
  started_at      timestamptz not null,
  heard_at        timestamptz not null,
  observing_since timestamptz not null,     -- silence counts from here: an observer that was deaf heard nobody's (85.3)
  request         bigint not null default 0,
  answered        bigint not null default 0,
  workflows       text[] not null default '{}',
  ended_at        timestamptz,
  ended           text check (ended in ('closed', 'proven', 'silent')),
  gone_at         timestamptz,              -- its death is confirmed (50.11)
  check ((ended is null) = (ended_at is null)),
  check (answered <= request)
);
create index incarnation_live on fencepost.incarnation (heard_at) where ended is null;
create index incarnation_host on fencepost.incarnation (boot_id, pid_namespace) where gone_at is null;

create table fencepost.sleeper (
  holder uuid primary key,
  lane   integer not null,
  since  timestamptz not null
);
create index sleeper_lane on fencepost.sleeper (lane, since);

create table fencepost.watcher (
  rid     bigint not null,
  channel text collate "C" not null,
  until   timestamptz not null,
  primary key (rid, channel)
);

-- What happened between a run's first row and its last, which tell of themselves (the view `transition`, 90).
create table fencepost.event (
  rid    bigint not null,
  seq    integer not null,
  at     timestamptz not null,
  type   text not null,
  number integer,                           -- the attempt it belongs to
  data   jsonb,
  tx     bigint not null default (pg_current_xact_id()::text::bigint),
  primary key (rid, seq),
  check (fencepost.is_event_(type) and seq > 1)
);
-- Insert-only and in order: a block range index finds the tail of the outbox and costs an insert nothing (so run_tx, outcome_tx).
create index event_tx on fencepost.event using brin (tx);

-- Its list is generated from `move`; a test compares the two.
create function fencepost.may_move_(text, text) returns boolean language plpgsql immutable as $law$ begin return false; end $law$;
do $law$ begin
  execute format('create or replace function %s(text, text) returns boolean language plpgsql immutable as %L', 'fencepost.may_move_'::regproc,
    (select format('begin return ($1, $2) in (%s); end', string_agg(format('(%L,%L)', m.was, m.becomes), ',' order by m.was, m.becomes)) from fencepost.move m));
end $law$;
-- AFTER, so that it locks nothing of its own.
create trigger task_moves after update on fencepost.task for each row when (
    (old.state <> new.state and not fencepost.may_move_(old.state, new.state)) or new.number < old.number or new.seq < old.seq or new.rid <> old.rid)
  execute function fencepost.refuse_move_();

-- A task leaves only to an outcome, by a move the table knows. Once a statement, not once a row.
create function fencepost.refuse_leaving_() returns trigger language plpgsql set search_path = pg_catalog, pg_temp as $law$
declare v_bad record;
begin
  select g.rid, g.state, o.status into v_bad
    from gone g
    left join lateral (select x.status from fencepost.outcome x where x.rid = g.rid limit 1) o on true
   where o.status is null or not fencepost.may_move_(g.state, o.status) limit 1;
  if found then
    raise exception 'run %: no move % -> %', v_bad.rid, v_bad.state, coalesce(v_bad.status, 'nothing') using errcode = 'LW001';
  end if;
  return null;
end $law$;
create trigger task_leaves after delete on fencepost.task referencing old table as gone
  for each statement execute function fencepost.refuse_leaving_();

-- 30_admission.sql: how a run comes to be.
--
-- LAW    30.1   run and queue entry commit together
--        30.2   a run id is unique in its organisation: one `created`, the others `replayed`
--        30.3   the same id with another launch is `conflict`; nothing changes
--        30.4   the launch: kind, name, input as given and contract, compared as jsonb
--        30.5   a queued run that lost its entry is re-entered only when asked
--        30.6   bad ids and names are refused before any write
--        30.7   policy by source
--        30.8   the claim bound ends with the first claim; whoever waits may ask for the verdict (judge_bound, 80)
--        30.9   past its bound a run ends ADMISSION_EXPIRED (expire_, 80); what has no bound never does
--        30.10  admission works inside the caller's own transaction
--        00.13  an item that is refused changes no other; with `_patience_ms` a twin still uncommitted elsewhere is weather
-- OWNS   policy; writes run, task (and event, where a run is re-entered)
-- LOCKS  run rows in the order of (org, id): one order for everybody

create table fencepost.policy (
  source     text collate "C" primary key,
  priority   integer not null,
  claim_ms   bigint,                        -- longest wait to be claimed; null: for ever
  sandbox_ms bigint
);
insert into fencepost.policy (source, priority, claim_ms, sandbox_ms) values
  ('api', 100, 10000, 0), ('webhook', 0, null, null), ('cron', -10, 1800000, 1800000),
  ('sql_listener', -10, 1800000, 1800000), ('async_child', 0, null, null), ('program', 0, null, null);

-- Wakes as many sleepers as there is work for, and one more, for a sleeper may have died in its sleep; a herd for one run would
-- stampede the claim. Whom, is left to chance: many admissions of one transaction, none of which sees what the others did, wake many.
create function fencepost.rouse_(_lane integer, _most integer) returns void language plpgsql volatile as $law$
begin
  perform pg_notify(fencepost.channel_(left(replace(s.holder::text, '-', ''), 24)), 'work')
     from (select s.holder from fencepost.sleeper s where s.lane = _lane order by random() limit _most + 1) s;
end $law$;

-- Answers: created · replayed · recovered · conflict (then `stored` is the launch on record) · refused.
-- Workflows only; a plan comes with its steps (admit_plan, 70). `_patience_ms` null: in the caller's own transaction, with its settings.
create function fencepost.admit_launch(_org text, _id text, _name text, _lane integer, _release text, _input text, _source text,
  _priority integer, _on_lost text, _claim_ms bigint, _delay_ms bigint, _contract jsonb, _repair boolean, _patience_ms integer,
  out rid bigint, out answer text, out repair_needed boolean, out stored jsonb) language plpgsql volatile as $law$
#variable_conflict use_column
declare v_now timestamptz := fencepost.now_(); v_turn integer; v_asleep boolean; v_was text;
begin
  if _patience_ms is not null then          -- (an assignment runs no query)
    v_was := set_config('lock_timeout', _patience_ms::text, true);
    if current_setting('synchronous_commit') = 'off' then v_was := set_config('synchronous_commit', 'on', true); end if;
  end if;
  -- (Two statements and no third for what they have in common: to begin one costs more than to look a policy up twice.)
  insert into fencepost.run (org, id, kind, name, lane, release, source, priority, input, contract, on_lost, key_root, submitted_at)
  select _org, _id, 'workflow', _name, _lane, _release, p.source, coalesce(_priority, p.priority), _input, coalesce(_contract, '{}'),
         coalesce(_on_lost, 'replay'), gen_random_uuid(), v_now
    from fencepost.policy p where p.source = coalesce(_source, 'api') and fencepost.good_names_(_org, _id, _name)
  on conflict (org, id) do nothing returning run.rid, run.priority into rid, v_turn;
  if rid is not null then
    insert into fencepost.task (rid, lane, org, state, priority, ready_at, turn_at, due_at, claim_by, seq, on_lost)
    select rid, _lane, _org, 'queued', v_turn, v_now, v_now - v_turn * interval '60 s', i.later,
           case when i.bound >= 0 then coalesce(i.later, v_now) + i.bound * interval '1 ms' end, 1, coalesce(_on_lost, 'replay')
      from fencepost.policy p
      cross join lateral (select coalesce(_claim_ms, p.claim_ms) as bound, v_now + nullif(greatest(_delay_ms, 0), 0) * interval '1 ms' as later) i
     where p.source = coalesce(_source, 'api')
    returning exists (select from fencepost.sleeper s where s.lane = _lane) into v_asleep;
    if v_asleep then perform fencepost.rouse_(_lane, 1); end if;
    answer := 'created'; repair_needed := false;
    return;
  end if;
  if not coalesce(fencepost.good_names_(_org, _id, _name), false) or not exists (select from fencepost.policy p where p.source = coalesce(_source, 'api')) then
    answer := 'refused'; return;
  end if;
  -- A younger snapshot: it sees whom ON CONFLICT met.
  select x.rid, case when y.same then 'replayed' else 'conflict' end,
         not exists (select from fencepost.task t where t.rid = x.rid) and not exists (select from fencepost.outcome o where o.rid = x.rid),
         case when not y.same then jsonb_build_object('kind', x.kind, 'name', x.name, 'input', x.input::jsonb, 'contract', x.contract) end
    into rid, answer, repair_needed, stored
    from fencepost.run x
    cross join lateral (select x.kind = 'workflow' and x.name = _name and x.input::jsonb = _input::jsonb and x.contract = coalesce(_contract, '{}') as same) y
   where x.org = _org and x.id = _id;
  if not found then
    raise exception 'run % was forgotten while it was admitted again: ask again', quote_literal(_id) using errcode = '40001';
  end if;
  if _repair and repair_needed and answer = 'replayed' and fencepost.reenter_(rid, v_now) then
    answer := 'recovered'; repair_needed := false;
  end if;
end $law$;

create function fencepost.spread_(_said anyarray, _n integer) returns anyarray language sql immutable as $law$
  select case when cardinality(_said) = 1 then array_fill(_said[1], array[_n]) else _said end
$law$;

-- Launches by their ids. Of the other arrays an empty one says null of every launch and one of a single element says the same of all: an
-- element costs the driver as much as a whole argument does.
create function fencepost.launches_(_orgs text[], _ids text[], _names text[], _lanes integer[], _releases text[], _inputs text[], _sources text[],
  _priorities integer[], _on_losts text[], _claim_mss bigint[], _delay_mss bigint[], _contracts jsonb[])
returns table (org text, id text, name text, lane integer, release text, input text, source text, priority integer, on_lost text, claim_ms bigint,
  delay_ms bigint, contract jsonb, ord bigint) language sql immutable as $law$
  select * from unnest(fencepost.spread_(_orgs, cardinality(_ids)), _ids, fencepost.spread_(_names, cardinality(_ids)),
    fencepost.spread_(_lanes, cardinality(_ids)), fencepost.spread_(_releases, cardinality(_ids)), fencepost.spread_(_inputs, cardinality(_ids)),
    fencepost.spread_(_sources, cardinality(_ids)), fencepost.spread_(_priorities, cardinality(_ids)), fencepost.spread_(_on_losts, cardinality(_ids)),
    fencepost.spread_(_claim_mss, cardinality(_ids)), fencepost.spread_(_delay_mss, cardinality(_ids)), fencepost.spread_(_contracts, cardinality(_ids)))
    with ordinality
$law$;

-- Many, in one commit; each has the answer it would have alone.
create function fencepost.admit_launches(_orgs text[], _ids text[], _names text[], _lanes integer[], _releases text[],
  _inputs text[], _sources text[], _priorities integer[], _on_losts text[], _claim_mss bigint[], _delay_mss bigint[], _contracts jsonb[],
  _repair boolean, _patience_ms integer)
returns table (ord integer, rid bigint, answer text, repair_needed boolean, stored jsonb) language plpgsql volatile as $law$
#variable_conflict use_column
declare v_now timestamptz := fencepost.now_(); v_new bigint[]; v_asleep boolean; v_was text; v_seed uuid := gen_random_uuid();
begin
  v_was := set_config('lock_timeout', _patience_ms::text, true);
  if current_setting('synchronous_commit') = 'off' then v_was := set_config('synchronous_commit', 'on', true); end if;
  -- As if all of them were new and good, which is the commonest case: to look at each id first, and to enter it on trial, costs a launch
  -- an eighth more. No CTE is joined with another: both seem to hold one row, and n times n are compared.
  begin
    with i as materialized (
        select nextval('fencepost.run_rid_seq') as rid, s.* from (
          select i.*, coalesce(i.priority, p.priority) as turn, coalesce(i.claim_ms, p.claim_ms) as bound, v_now + nullif(greatest(i.delay_ms, 0), 0) * interval '1 ms' as later
            from fencepost.launches_(_orgs, _ids, _names, _lanes, _releases, _inputs, _sources, _priorities, _on_losts, _claim_mss, _delay_mss, _contracts) i
            left join lateral (select p.priority, p.claim_ms from fencepost.policy p where p.source = coalesce(i.source, 'api') limit 1) p on true
           order by i.org collate "C", i.id collate "C") s),
      r as (insert into fencepost.run (rid, org, id, kind, name, lane, release, source, priority, input, contract, on_lost, key_root, submitted_at)
            overriding system value
            select i.rid, i.org, i.id, 'workflow', i.name, i.lane, i.release, coalesce(i.source, 'api'), i.turn, i.input, coalesce(i.contract, '{}'),
                   coalesce(i.on_lost, 'replay'), fencepost.random_id_(v_seed, i.rid), v_now from i),
      t as (insert into fencepost.task (rid, lane, org, state, priority, ready_at, turn_at, due_at, claim_by, seq, on_lost)
            select i.rid, i.lane, i.org, 'queued', i.turn, v_now, v_now - i.turn * interval '60 s', i.later,
                   case when i.bound >= 0 then coalesce(i.later, v_now) + i.bound * interval '1 ms' end, 1, coalesce(i.on_lost, 'replay') from i)
    select array_agg(i.rid order by i.ord), exists (select from fencepost.sleeper s where s.lane = any (_lanes)) into v_new, v_asleep from i;
  exception when unique_violation or check_violation or not_null_violation then
    -- An id that is taken, a name that is none, a source that has no policy: each by itself, in the same order.
    return query
      select i.ord::integer, a.rid, a.answer, a.repair_needed, a.stored
        from (select i.* from fencepost.launches_(_orgs, _ids, _names, _lanes, _releases, _inputs, _sources, _priorities, _on_losts, _claim_mss,
                                _delay_mss, _contracts) i
               order by i.org collate "C", i.id collate "C", i.ord) i
       cross join lateral fencepost.admit_launch(i.org, i.id, i.name, i.lane, i.release, i.input, i.source, i.priority, i.on_lost, i.claim_ms,
                     i.delay_ms, i.contract, _repair, _patience_ms) a
       order by i.ord;
    return;
  end;
  if v_asleep then
    perform fencepost.rouse_(l.lane, least(l.n, 16)::integer) from (select l.lane, count(*) as n from unnest(fencepost.spread_(_lanes, cardinality(_ids))) l(lane) group by l.lane) l;
  end if;
  return query select n.ord::integer, n.rid, 'created'::text, false, null::jsonb from unnest(v_new) with ordinality as n(rid, ord);
end $law$;

create function fencepost.good_name_(_name text) returns boolean language sql immutable as $law$
  select _name is not null and length(_name) between 1 and 200 and _name !~ '[\u0001-\u001f\u007f-\u009f\u2028\u2029]' and btrim(_name) <> ''
$law$;

-- 30.5. The entry continues the numbers and the sequence that the run's history already used. False: somebody else was first.
create function fencepost.reenter_(_rid bigint, _now timestamptz) returns boolean language plpgsql volatile as $law$
declare v_run fencepost.run; v_seq integer;
begin
  select r.* into v_run from fencepost.run r where r.rid = _rid;
  select greatest(1, coalesce((select max(e.seq) from fencepost.event e where e.rid = v_run.rid), 0),
                     coalesce((select max(greatest(b.seq, b.opened_seq)) from fencepost.boundary b where b.rid = v_run.rid), 0),
                     coalesce((select max(greatest(w.seq, w.opened_seq)) from fencepost.map m join fencepost.row w on w.mid = m.mid where m.rid = v_run.rid), 0)) + 1
    into v_seq;
  insert into fencepost.task (rid, lane, org, state, park, opaque, priority, ready_at, turn_at, number, seq, on_lost, parent)
  values (v_run.rid, v_run.lane, v_run.org, case v_run.kind when 'plan' then 'parked' else 'queued' end, case v_run.kind when 'plan' then 'plan' end,
          v_run.kind = 'step', v_run.priority, _now, _now - v_run.priority * interval '60 s',
          coalesce((select max(a.number) from fencepost.attempt a where a.rid = v_run.rid), 0), v_seq, v_run.on_lost, v_run.parent)
  on conflict do nothing;
  if not found then return false; end if;
  insert into fencepost.event (rid, seq, at, type) values (v_run.rid, v_seq, _now, 'run.recovered');
  return true;
end $law$;

-- For SQL callers, in their own transaction: the same words as Python's `app.start`. A release that was never registered
-- is refused: the run would wait in a lane that no worker serves.
create function fencepost.admit_run(name text, input jsonb default 'null', id text default null, org text default 'default',
  release text default 'dev', source text default 'program', priority integer default null, on_lost text default null)
returns table (answer text, run_id text, differs jsonb) language plpgsql volatile as $law$
#variable_conflict use_variable
declare v_lane integer; v_answer text; v_stored jsonb; v_id text := coalesce(id,
  -- The time first, as the client does it: new ids stand beside each other in the index.
  'run-' || lpad(to_hex((extract(epoch from fencepost.now_()) * 1000)::bigint), 12, '0') || right(replace(gen_random_uuid()::text, '-', ''), 20));
begin
  select r.lane into v_lane from fencepost.register_lane(release) r where r.answer = 'registered';
  if v_lane is null then
    raise exception 'release % names no lane of its own', quote_literal(release) using errcode = '22023',
      hint = 'choose another release id; `fencepost lanes list` shows who has which lane';
  end if;
  select a.answer, a.stored into v_answer, v_stored
    from fencepost.admit_launch(org, v_id, name, v_lane, release, input::text, source, priority, on_lost, -1, null, null, false, null) a;
  if v_answer = 'refused' then
    raise exception 'a run needs a name, an id and an organisation of 1 to 200 characters without control characters, and a known source'
      using errcode = '22023';
  end if;
  return query select v_answer, v_id, v_stored;
end $law$;

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
--        40.14  kept by 41 (open_request_, repeat_claim_)
--        40.15  kept by 41 (claim_attempts)
--        00.13  a row locked by another is `again`: ask for it alone; it delays no neighbour
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

-- 69_plan_rows.sql: what a plan is made of, and what its rows can never look like.
--
-- LAW    00.2   every shape of a step that is not legal is impossible
--        70.4   more child runs than `most` are impossible
--        70.6   the key of `result` is "a step has at most one, immutable"
-- OWNS   plan, step, definition, edge, binding, result, handoff, process

create table fencepost.plan (
  rid       bigint primary key,
  most      integer not null check (most >= 1),
  steps     integer not null,
  open      integer not null check (open >= 0),        -- steps that have not ended
  flying    integer not null default 0 check (flying between 0 and most),  -- child runs that live, unknown ones too
  unknown   integer not null default 0 check (unknown between 0 and flying),
  succeeded integer not null default 0,
  failed    integer not null default 0
) with (fillfactor = 50);

create function fencepost.is_step_(_kind text, _state text, _needs integer, _try integer, _child bigint, _due_at timestamptz, _outcome text, _ended_at timestamptz)
returns boolean language plpgsql immutable as $law$
begin
  return _kind in ('command', 'python', 'workflow')
     and _state in ('blocked', 'ready', 'running', 'waiting', 'unknown', 'succeeded', 'failed', 'skipped', 'cancelled')
     and (_outcome is null or _outcome in ('success', 'failure', 'timeout', 'cancelled', 'launch_error', 'lost', 'invalid_output'))
     and (_state in ('succeeded', 'failed', 'skipped', 'cancelled')) = (_ended_at is not null)
     and (_state <> 'succeeded' or _outcome = 'success')
     and (_state = 'waiting') = (_due_at is not null)
     and (_state not in ('running', 'unknown') or _child is not null and _try >= 1)
     and (_state <> 'blocked' or _needs > 0) and _needs >= 0;
end $law$;

create table fencepost.step (
  rid        bigint not null,
  no         integer not null,              -- its place as written, from 1
  id         text collate "C" not null,
  kind       text not null,
  state      text not null,
  ready      boolean not null generated always as (state = 'ready') stored,  -- what an index names, so that other moves are no index's business
  needs      integer not null,              -- dependencies that have not ended
  try        integer not null default 0,
  child      bigint,                        -- the run of its newest try
  due_at     timestamptz,
  outcome    text,
  reason     text,
  started_at timestamptz,
  ended_at   timestamptz,
  -- In this order: where the planner knows nothing of the table it takes the later one, and what goes on asks by number.
  primary key (rid, id),
  unique (rid, no),
  check (fencepost.is_step_(kind, state, needs, try, child, due_at, outcome, ended_at))
) with (fillfactor = 70);
create index step_ready on fencepost.step (rid, no) where ready;
create index step_due on fencepost.step (rid, due_at) where due_at is not null;
create index step_child on fencepost.step (child) where child is not null;

-- The step as it was written: never rewritten, so it stands apart from the row that is.
create table fencepost.definition (
  rid  bigint not null,
  no   integer not null,
  spec jsonb not null,
  primary key (rid, no)
);

create table fencepost.edge (
  rid      bigint not null,
  source   integer not null,
  target   integer not null,
  optional boolean not null,
  primary key (rid, source, target)
);

create table fencepost.binding (
  rid         bigint not null,
  target      integer not null,
  id          text collate "C" not null,
  input       text not null,
  source      integer not null,
  output      text not null,
  mode        text not null check (mode in ('none', 'reference', 'quote', 'content')),
  required    boolean not null,
  description text not null,
  primary key (rid, target, id)
);

create table fencepost.result (
  rid        bigint not null,
  step       integer not null,
  name       text collate "C" not null,
  media_type text not null,
  size       bigint not null,
  digest     text not null,
  text       text,                          -- verbatim, if small
  place      text,                          -- in the content store
  child      bigint not null,
  at         timestamptz not null,
  primary key (rid, step, name)
);

-- What an attempt was handed (70.8).
create table fencepost.handoff (
  rid     bigint not null,                  -- of the child run
  number  integer not null,                 -- 0: with the run, for all its attempts (a workflow's)
  id      text collate "C" not null,
  input   text not null,
  mode    text not null,
  source  text,                             -- run/step/try
  output  text,
  digest  text,
  reason  text,
  at      timestamptz not null,
  primary key (rid, number, id)
);

-- The process that carries an attempt of opaque work, recorded before it may begin (70.10).
create table fencepost.process (
  rid           bigint not null,
  number        integer not null,
  boot_id       text collate "C",
  pid_namespace text collate "C",
  pid           integer not null,
  process_start text,
  host          text not null,
  folder        text not null,
  begun_at      timestamptz not null,
  ceiling_at    timestamptz not null,
  loose         boolean not null default false,   -- its fence is dead, and nobody has seen it end
  primary key (rid, number)
);
create index process_loose on fencepost.process (boot_id, pid_namespace) where loose;

-- By whatever door an attempt was lost, its process may run on.
create function fencepost.loosen_() returns trigger language plpgsql volatile as $law$
begin
  update fencepost.process p set loose = true where p.rid = new.rid and p.number = new.number;
  return null;
end $law$;
create trigger attempt_lost after insert on fencepost.attempt for each row when (new.ended = 'lost' and new.begun) execute function fencepost.loosen_();

-- 70_plans.sql: a DAG of steps. Each try of a step is a child run of the plan's; whoever ends one advances the plan.
--
-- LAW    70.1   judged by planning/ before any write; a plan that gets past it all the same is said to be stuck (70.13)
--        70.2   admit_plan (72)
--        70.3   ready when every dependency succeeded, or is optional and ended; any other end skips, to the end, at once
--        70.4   at most `most` child runs live at a time, in written order; a step that waits out a delay holds no slot
--        70.5   a claim is a claim of the child run: number, fence, holder are its own (40)
--        70.6   results are written once, by the transaction that ends the child that succeeded
--        70.7   a retry is a new child, for an outcome that its worker reported and the step lists, after its delay on the database's clock
--        70.8   hand-offs are resolved by begin_steps (72; workflow steps: when the child is admitted) and recorded per attempt
--        70.9   what a worker is told comes from here; what it brings is judged by its fence, and lands in its own step
--        70.10  opaque work is not lost by silence: its fence stays until an inquiry, its ceiling, or an operator (85, 86)
--        70.11  cancel_steps_: what has not begun is cancelled with the plan; the rest is cancelled as runs are (80.4)
--        70.12  ended by the advance that finds nothing open
--        70.13  one that cannot go on says `plan.stuck`; the next instant is the task's due_at, so nobody polls
--        70.14  `<run>/<step>/<try>`, source async_child, same lane and organisation
--        80.1   advance_ ends the run through end_runs_ (35)
-- OWNS   result; writes run, task, event, plan, step (69)
-- LOCKS  the plan's task row, before its children's

-- What became of a step whose child run has ended.
create function fencepost.outcome_(_status text, _error text) returns text language plpgsql immutable as $law$
declare v_error jsonb;
begin
  if _status <> 'failed' then return case _status when 'completed' then 'success' else 'cancelled' end; end if;
  v_error := _error::jsonb;
  return case when v_error->>'outcome' in ('failure', 'timeout', 'launch_error', 'invalid_output') then v_error->>'outcome'
              when v_error->>'code' = 'RUNNER_LOST' then 'lost' when v_error->>'code' = 'TIMED_OUT' then 'timeout' else 'failure' end;
end $law$;

-- 70.7. Milliseconds before the try after `_try`.
create function fencepost.delay_(_retry jsonb, _try integer) returns bigint language plpgsql immutable as $law$
declare v_first numeric := coalesce((_retry->>'initial_delay_ms')::numeric, 0); v_most numeric := coalesce((_retry->>'max_delay_ms')::numeric, 0); v_delay numeric;
begin
  v_delay := case _retry->>'backoff' when 'linear' then v_first * _try when 'exponential' then v_first * 2::numeric ^ least(_try - 1, 60) else v_first end;
  return case when v_most > 0 then least(v_delay, v_most) else least(v_delay, 604800000) end;
end $law$;

create function fencepost.plan_events_(_rid bigint, _types text[], _data jsonb[], _now timestamptz) returns void language plpgsql volatile as $law$
-- unfenced: the caller holds the plan's row, and no worker ever does.
declare v_seq integer;
begin
  if _types = '{}' then return; end if;
  update fencepost.task t set seq = t.seq + cardinality(_types) where t.rid = _rid returning t.seq - cardinality(_types) into v_seq;
  insert into fencepost.event (rid, seq, at, type, data)
  select _rid, v_seq + x.ord, _now, x.type, x.data from unnest(_types, _data) with ordinality as x(type, data, ord);
end $law$;

-- THE PLAN GOES ON. The caller holds the plan's row. `_ended`: child runs that have just ended; `_done`: steps that have ended without one.
-- Costs what ended and what became ready, never what the plan is long.
-- False: the run is no plan.
create function fencepost.advance_(_rid bigint, _ended bigint[], _done integer[], _now timestamptz) returns boolean language plpgsql volatile as $law$
-- unfenced: the caller holds the plan's row, and no worker ever does.
declare t record; v_done integer[] := _done; v_fresh integer[];
begin
  if not exists (select from fencepost.plan p where p.rid = _rid) then return false; end if;
  select x.state into t from fencepost.task x where x.rid = _rid;
  if not found then return true; end if;
  if _ended <> '{}' then v_done := v_done || fencepost.record_(_rid, _ended, t.state = 'cancelling', _now); end if;
  if t.state = 'cancelling' then return true; end if;    -- it ends when its last child has (let_go_)
  update fencepost.step s set state = 'ready', due_at = null where s.rid = _rid and s.due_at <= _now;
  loop
    v_fresh := fencepost.follow_(_rid, v_done, _now);
    v_done := fencepost.start_steps_(_rid, v_fresh, _now);
    exit when v_done = '{}';
  end loop;
  perform fencepost.conclude_(_rid, _now);
  return true;
end $law$;

-- Ended child runs: results, retries, ends. Returns the steps that have ended.
create function fencepost.record_(_rid bigint, _ended bigint[], _cancelling boolean, _now timestamptz) returns integer[] language plpgsql volatile as $law$
declare v_done integer[]; v_types text[]; v_data jsonb[];
begin
  with e as materialized (
      select s.ctid as place, s.no, s.id, s.kind, s.try, s.child, s.state as was, o.output, o.ended_at, x.outcome,
             case when x.outcome = 'success' then 'succeeded'
                  when _cancelling then case x.outcome when 'cancelled' then 'cancelled' else 'failed' end
                  when x.outcome not in ('lost', 'cancelled') and d.retry->'on' ? x.outcome and s.try < (d.retry->>'max_attempts')::integer
                       and (select a.ended from fencepost.attempt a where a.rid = c.rid and a.number = o.number and a.fence = o.fence limit 1) = 'finished'
                    then case when fencepost.delay_(d.retry, s.try) > 0 then 'waiting' else 'ready' end
                  else 'failed' end as becomes,
             case when x.outcome <> 'success' then fencepost.delay_(d.retry, s.try) end as delay_ms, case when o.error is not null then o.error::jsonb->>'message' end as message
        from unnest(_ended) c(rid)
        cross join lateral (select s.ctid, s.* from fencepost.step s where s.child = c.rid and s.state in ('running', 'unknown') limit 1) s
        cross join lateral (select o.* from fencepost.outcome o where o.rid = c.rid limit 1) o
        cross join lateral (select case o.status when 'completed' then 'success' else fencepost.outcome_(o.status, o.error) end as outcome) x
        left join lateral (select d.spec->'retry' as retry from fencepost.definition d where x.outcome <> 'success' and d.rid = _rid and d.no = s.no limit 1) d on true
       where s.rid = _rid),               -- outside, or it would be asked for by that
    w as (insert into fencepost.result (rid, step, name, media_type, size, digest, text, place, child, at)
          -- A workflow's own output is its one result.
          select _rid, e.no, 'result', 'application/json', octet_length(x.output), 'sha256:' || encode(sha256(convert_to(x.output, 'UTF8')), 'hex'), x.output, null,
                 e.child, _now from e cross join lateral (select coalesce(e.output, 'null') as output) x
           where e.becomes = 'succeeded' and e.kind = 'workflow'
          union all
          select _rid, e.no, r.key, r.value->>'media_type', (r.value->>'size')::bigint, r.value->>'digest', r.value->>'text', r.value->>'place', e.child, _now
            from e cross join lateral json_each(e.output::json->'outputs') r where e.becomes = 'succeeded' and e.kind <> 'workflow'),
    u as (update fencepost.step s
             set state = e.becomes, outcome = e.outcome, reason = case when e.becomes <> 'succeeded' then left(coalesce(e.message, e.outcome), 1000) end,
                 due_at = case e.becomes when 'waiting' then e.ended_at + e.delay_ms * interval '1 ms' end,
                 ended_at = case when e.becomes in ('succeeded', 'failed', 'cancelled') then _now end
            from e where s.ctid = e.place),    -- rows by their place: nobody else moves them, and no plan of a statement reads the others
    p as (update fencepost.plan p
             set flying = p.flying - n.n, unknown = p.unknown - n.unknown, open = p.open - n.ended, succeeded = p.succeeded + n.succeeded, failed = p.failed + n.failed
            from (select count(*) as n, count(*) filter (where e.was = 'unknown') as unknown, count(*) filter (where e.becomes not in ('ready', 'waiting')) as ended,
                         count(*) filter (where e.becomes = 'succeeded') as succeeded, count(*) filter (where e.becomes = 'failed') as failed from e) n
           where p.rid = _rid)
  select coalesce(array_agg(e.no order by e.no) filter (where e.becomes in ('succeeded', 'failed', 'cancelled')), '{}'),
         coalesce(array_agg('plan.step_' || case e.becomes when 'ready' then 'waiting' else e.becomes end order by e.no), '{}'),
         coalesce(array_agg(jsonb_strip_nulls(jsonb_build_object('step', e.id, 'try', e.try, 'outcome', e.outcome,
           'delay_ms', case when e.becomes in ('ready', 'waiting') then e.delay_ms end)) order by e.no), '{}')
    into v_done, v_types, v_data from e;
  perform fencepost.plan_events_(_rid, v_types, v_data, _now);
  return v_done;
end $law$;

-- 70.3. What the ends of these steps mean to those that need them, wave by wave. Returns those that became ready.
create function fencepost.follow_(_rid bigint, _done integer[], _now timestamptz) returns integer[] language plpgsql volatile as $law$
declare v_done integer[] := _done; v_skipped integer := 0; v_types text[]; v_data jsonb[]; v_all text[] := '{}'; v_told jsonb[] := '{}';
  v_free integer[]; v_fresh integer[] := '{}';
begin
  while v_done <> '{}' loop
    with h as materialized (
        select e.target, count(*)::integer as n, bool_or(not e.optional and s.state <> 'succeeded') as bad, min(d.no) filter (where not e.optional and s.state <> 'succeeded') as cause
          from unnest(v_done) d(no)
          cross join lateral (select e.target, e.optional from fencepost.edge e where e.rid = _rid and e.source = d.no offset 0) e
          cross join lateral (select s.state from fencepost.step s where s.rid = _rid and s.no = d.no limit 1) s
         group by e.target),
      t as materialized (
        select h.*, x.place, x.needs = h.n and not h.bad as free, f.id, f.state from h
         cross join lateral (select x.ctid as place, x.needs from fencepost.step x where x.rid = _rid and x.no = h.target and x.state = 'blocked' limit 1) x
          left join lateral (select f.id, f.state from fencepost.step f where f.rid = _rid and f.no = h.cause limit 1) f on true),
      u as (update fencepost.step x
               set needs = x.needs - t.n, state = case when t.bad then 'skipped' else 'blocked' end,
                   reason = case when t.bad then format('needs %s, which %s', t.id, case t.state when 'failed' then 'failed' else 'was ' || t.state end) end, ended_at = case when t.bad then _now end
              from t where x.ctid = t.place and not t.free
         returning x.no, x.id, x.state, x.reason)
    select coalesce(array_agg(u.no order by u.no), '{}'), coalesce(array_agg('plan.step_skipped'::text order by u.no), '{}'),
           coalesce(array_agg(jsonb_build_object('step', u.id, 'reason', u.reason) order by u.no), '{}'),
           array(select t.target from t where t.free)
      into v_done, v_types, v_data, v_free from u where u.state = 'skipped';
    v_fresh := v_fresh || v_free;
    v_skipped := v_skipped + cardinality(v_done);
    v_all := v_all || v_types; v_told := v_told || v_data;
  end loop;
  if v_skipped > 0 then
    update fencepost.plan p set open = p.open - v_skipped where p.rid = _rid;
    perform fencepost.plan_events_(_rid, v_all, v_told, _now);
  end if;
  return v_fresh;
end $law$;

-- Steps that are ready and do not start at once.
create function fencepost.ready_(_rid bigint, _nos integer[]) returns void language plpgsql volatile as $law$
begin
  update fencepost.step x set state = 'ready', needs = 0
    from unnest(_nos) n(no) cross join lateral (select s.ctid as place from fencepost.step s where s.rid = _rid and s.no = n.no and s.state = 'blocked' limit 1) s
   where x.ctid = s.place;
end $law$;

-- 70.4. Starts what is ready, in written order, as far as slots go; `_fresh` are ready and their rows do not say so yet: where all of them
-- start, each row is written once. Returns steps that ended instead: a required hand-off that has no output, or an id that another run has.
create function fencepost.start_steps_(_rid bigint, _fresh integer[], _now timestamptz) returns integer[] language plpgsql volatile as $law$
-- unfenced: new rows, and the plan's own, which the caller holds.
declare p record; r record; v_nos integer[]; v_bad integer[]; v_children bigint[]; v_started integer[]; v_priority integer; v_seed uuid := gen_random_uuid();
begin
  select x.* into p from fencepost.plan x where x.rid = _rid;
  if _fresh = '{}' or p.flying + cardinality(_fresh) > p.most or exists (select from fencepost.step s where s.rid = _rid and s.ready) then
    perform fencepost.ready_(_rid, _fresh);
    v_nos := array(select s.no from fencepost.step s where s.rid = _rid and s.ready order by s.no limit p.most - p.flying);
  else
    v_nos := array(select f.no from unnest(_fresh) f(no) order by f.no);
  end if;
  if v_nos = '{}' then return '{}'; end if;
  v_bad := array(select distinct b.target from fencepost.binding b where b.rid = _rid and b.target = any (v_nos) and b.required and b.mode <> 'none'
                    and not exists (select from fencepost.result o where o.rid = _rid and o.step = b.source and o.name = b.output));
  if v_bad <> '{}' then
    perform fencepost.end_steps_(_rid, v_bad, 'skipped', null, 'a required hand-off has no output', _now);
    perform fencepost.ready_(_rid, _fresh);
    return v_bad;
  end if;
  select x.org, x.id, x.lane, x.release into r from fencepost.run x where x.rid = _rid;
  select x.priority into v_priority from fencepost.policy x where x.source = 'async_child';
  with s as materialized (
      select nextval('fencepost.run_rid_seq') as child, s.* from (
        select s.no, s.id, s.kind, s.try + 1 as try, d.spec from unnest(v_nos) v(no)
         cross join lateral (select s.* from fencepost.step s where s.rid = _rid and s.no = v.no limit 1) s
         cross join lateral (select d.spec from fencepost.definition d where d.rid = _rid and d.no = v.no limit 1) d order by s.no) s),
    i as (insert into fencepost.run (rid, org, id, kind, name, lane, release, source, priority, input, on_lost, parent, key_root, submitted_at)
          overriding system value
          select s.child, r.org, r.id || '/' || s.id || '/' || s.try, case s.kind when 'workflow' then 'workflow' else 'step' end,
                 coalesce(s.spec->>'workflow', s.id), r.lane, r.release, 'async_child', v_priority,
                 case s.kind when 'workflow' then fencepost.input_(_rid, s.no, s.spec) else 'null' end, s.spec->>'on_lost', _rid, fencepost.random_id_(v_seed, s.child), _now from s
          on conflict (org, id) do nothing returning rid)
  select coalesce(array_agg(i.rid order by i.rid), '{}') into v_children from i;
  v_started := v_nos; v_bad := '{}';      -- both in written order
  if cardinality(v_children) < cardinality(v_nos) then
    v_started := array(select s.no from unnest(v_children) v(rid) cross join lateral (select c.id from fencepost.run c where c.rid = v.rid limit 1) c
                        cross join lateral (select s.no from fencepost.step s where s.rid = _rid and s.id = split_part(substr(c.id, length(r.id) + 2), '/', 1) limit 1) s
                        order by v.rid);
    v_bad := array(select v.no from unnest(v_nos) v(no) where not (v.no = any (v_started)) order by v.no);
  end if;
  with c as materialized (
      select c.rid, c.kind, c.on_lost, s.place from unnest(v_children, v_started) v(rid, no)
       cross join lateral (select c.* from fencepost.run c where c.rid = v.rid limit 1) c
       cross join lateral (select s.ctid as place from fencepost.step s where s.rid = _rid and s.no = v.no limit 1) s),
    t as (insert into fencepost.task (rid, lane, org, state, priority, ready_at, turn_at, seq, on_lost, parent, opaque)
          select c.rid, r.lane, r.org, 'queued', v_priority, _now, _now - v_priority * interval '60 s', 1, c.on_lost, _rid, c.kind = 'step' from c)
  update fencepost.step s
     set state = 'running', needs = 0, try = s.try + 1, child = c.rid, started_at = coalesce(s.started_at, _now), outcome = null, reason = null
    from c where s.ctid = c.place;
  -- 70.8. A workflow's input is one for all its attempts, so what it was handed is recorded with it, as number 0.
  if exists (select from fencepost.binding b where b.rid = _rid and b.target = any (v_started)) then
    insert into fencepost.handoff (rid, number, id, input, mode, source, output, digest, reason, at)
    select v.rid, 0, x->>'binding', x->>'input', x->>'mode', x->'source'->>'run', x->'source'->>'output', x->>'digest', x->>'reason', _now
      from unnest(v_children, v_started) v(rid, no)
     cross join lateral (select s.kind from fencepost.step s where s.rid = _rid and s.no = v.no limit 1) s
     cross join lateral (select h.value as x from jsonb_array_elements(case s.kind when 'workflow' then fencepost.handed_(_rid, v.no, null, null) else '[]' end) h(value)) h;
  end if;
  update fencepost.plan x set flying = x.flying + cardinality(v_children) where x.rid = _rid;
  perform fencepost.plan_events_(_rid, array_fill('plan.step_started'::text, array[cardinality(x.nos)]), x.data, _now)
     from (select array_agg(s.no order by s.no) as nos, array_agg(jsonb_build_object('step', s.id, 'try', s.try) order by s.no) as data
             from unnest(v_started) v(no) cross join lateral (select s.* from fencepost.step s where s.rid = _rid and s.no = v.no limit 1) s) x
    where x.nos is not null;
  perform fencepost.rouse_(r.lane, least(cardinality(v_children), 16));
  if v_bad <> '{}' then perform fencepost.end_steps_(_rid, v_bad, 'failed', 'launch_error', 'another run has the id of this try', _now); end if;
  return v_bad;
end $law$;

-- Ends steps of which no child run lives.
create function fencepost.end_steps_(_rid bigint, _nos integer[], _state text, _outcome text, _reason text, _now timestamptz) returns void language plpgsql volatile as $law$
declare v_types text[]; v_data jsonb[];
begin
  with u as (update fencepost.step s set state = _state, outcome = _outcome, reason = _reason, due_at = null, ended_at = _now
              where s.rid = _rid and s.no = any (_nos) returning s.no, s.id)
  select coalesce(array_agg('plan.step_' || _state order by u.no), '{}'),
         coalesce(array_agg(jsonb_strip_nulls(jsonb_build_object('step', u.id, 'outcome', _outcome, 'reason', _reason)) order by u.no), '{}') into v_types, v_data from u;
  update fencepost.plan p set open = p.open - cardinality(v_types), failed = p.failed + case _state when 'failed' then cardinality(v_types) else 0 end where p.rid = _rid;
  perform fencepost.plan_events_(_rid, v_types, v_data, _now);
end $law$;

-- A result's text, if the database can read it: what a step calls JSON may hold what it cannot (a NUL, a number without bounds), and a
-- transaction that fails over it would never end the step.
create function fencepost.as_json_(_text text) returns jsonb language plpgsql immutable as $law$
begin
  return _text::jsonb;
exception when data_exception or program_limit_exceeded then
  return null;
end $law$;

-- Whether a command's or a Python step's run may end with it: named outputs, or none.
create function fencepost.is_result_(_text text) returns boolean language plpgsql immutable as $law$
declare v jsonb := fencepost.as_json_(_text)->'outputs';
begin
  return v is null and fencepost.as_json_(_text) is not null
      or jsonb_typeof(v) = 'object' and not exists (
           select from jsonb_each(v) o where jsonb_typeof(o.value->'media_type') is distinct from 'string' or jsonb_typeof(o.value->'size') is distinct from 'number'
              or jsonb_typeof(o.value->'digest') is distinct from 'string');
end $law$;

-- What a workflow step's child is given: its own input, and the hand-offs by name (70.8).
create function fencepost.input_(_rid bigint, _no integer, _spec jsonb) returns text language plpgsql stable as $law$
declare v_handed jsonb;
begin
  if jsonb_array_length(_spec->'handoffs') = 0 then return coalesce(_spec->'input', 'null')::text; end if;
  select jsonb_object_agg(h.input, h.value) into v_handed from (
    select h->>'input' as input, case h->>'mode' when 'content' then coalesce(h->'value', to_jsonb(h->>'text')) when 'quote' then h else h - 'text' end as value
      from jsonb_array_elements(fencepost.handed_(_rid, _no, null, null)) h) h;
  if v_handed is null then return coalesce(_spec->'input', 'null')::text; end if;
  return (case jsonb_typeof(_spec->'input') when 'object' then _spec->'input' else '{}' end || v_handed)::text;
end $law$;

-- The hand-offs of a step as its results stand now; of an attempt that has begun, as they stood then. JSON text is given as `value` too.
create function fencepost.handed_(_rid bigint, _no integer, _child bigint, _number integer) returns jsonb language plpgsql stable as $law$
begin
  return (
    select coalesce(jsonb_agg(jsonb_strip_nulls(jsonb_build_object('binding', b.id, 'input', b.input, 'required', b.required, 'description', b.description,
             'mode', case when o.name is null then 'none' else b.mode end,
             'source', case when o.name is not null then jsonb_build_object('run', c.id, 'step', s.id, 'output', b.output) end,
             'media_type', o.media_type, 'size', o.size, 'digest', o.digest, 'place', o.place,
             'text', o.text,
             'value', case when b.mode = 'content' and o.media_type = 'application/json' then fencepost.as_json_(o.text) end,
             'reason', case when f.id is not null then f.reason when o.name is null and b.mode <> 'none' then format('step %s has no output %s; it %s', s.id, b.output, case s.state when 'skipped' then 'was skipped' when 'cancelled' then 'was cancelled' else s.state end) end)) order by b.id), '[]')
      from fencepost.binding b
      left join lateral (select f.* from fencepost.handoff f where f.rid = _child and f.number = _number and f.id = b.id limit 1) f on true
      cross join lateral (select s.id, s.state from fencepost.step s where s.rid = _rid and s.no = b.source limit 1) s
      left join lateral (select o.* from fencepost.result o where o.rid = _rid and o.step = b.source and o.name = b.output and b.mode <> 'none'
                            and (f.id is null or f.digest is not null) limit 1) o on true
      left join lateral (select c.id from fencepost.run c where c.rid = o.child limit 1) c on true
     where b.rid = _rid and b.target = _no);
end $law$;

-- 70.12, 70.13. Ends the plan, or says what it waits for.
create function fencepost.conclude_(_rid bigint, _now timestamptz) returns void language plpgsql volatile as $law$
-- unfenced: the caller holds the plan's row, and no worker ever does.
declare p record; t record; v_due timestamptz; v_ready boolean; v_stuck boolean;
begin
  select x.* into p from fencepost.plan x where x.rid = _rid;
  select x.state, x.due_at, x.trouble into t from fencepost.task x where x.rid = _rid;
  if p.open = 0 then
    perform fencepost.end_runs_(array[_rid], array[case when p.failed > 0 then 'failed' else 'completed' end],
      array[case when p.failed = 0 then jsonb_strip_nulls(jsonb_build_object('steps', p.steps, 'succeeded', p.succeeded,
        'reason', case when p.succeeded = 0 then 'all_skipped' end))::text end],
      array[case when p.failed > 0 then fencepost.plan_error_(_rid, p.failed) end], 'finished', _now);
    return;
  end if;
  select min(s.due_at) into v_due from fencepost.step s where s.rid = _rid and s.due_at is not null;
  v_ready := p.flying < p.most and exists (select from fencepost.step s where s.rid = _rid and s.ready);
  v_stuck := p.flying = 0 and v_due is null and not v_ready;
  if p.unknown > 0 and p.unknown = p.flying and v_due is null and not v_ready then
    if t.state = 'parked' then
      perform fencepost.plan_events_(_rid, '{run.unknown}', array['{"code": "STEP_OUTCOME_UNKNOWN"}'::jsonb], _now);
      update fencepost.task x set state = 'unknown', unknown = 'STEP_OUTCOME_UNKNOWN', park = null, due_at = null,
             trouble = json_build_object('code', 'STEP_OUTCOME_UNKNOWN', 'message', format('%s of its steps are unknown', p.unknown))::text
       where x.rid = _rid;
    end if;
    return;
  end if;
  if t.state = 'unknown' then
    update fencepost.task x set state = 'parked', park = 'plan', unknown = null, trouble = null, due_at = v_due where x.rid = _rid;
  elsif v_due is distinct from t.due_at then
    update fencepost.task x set due_at = v_due where x.rid = _rid;
  end if;
  if v_stuck and t.trouble is null then
    perform fencepost.plan_events_(_rid, '{plan.stuck}', array[jsonb_build_object('open', p.open)], _now);
    update fencepost.task x set trouble = json_build_object('code', 'PLAN_STUCK', 'message',
        format('%s steps have not ended, and nothing that runs or waits can make them ready', p.open))::text where x.rid = _rid;
  end if;
end $law$;

create function fencepost.plan_error_(_rid bigint, _failed integer) returns text language sql stable as $law$
  select json_build_object('code', 'STEP_FAILED', 'message',
           format('%s of its steps failed, the first: %s (%s: %s)', _failed, (array_agg(s.id order by s.no))[1], (array_agg(s.outcome order by s.no))[1], (array_agg(s.reason order by s.no))[1]),
           'steps', json_agg(json_build_object('step', s.id, 'outcome', s.outcome) order by s.no))::text
    from (select s.* from fencepost.step s where s.rid = _rid and s.state = 'failed' order by s.no limit 100) s
$law$;

-- A child run became unknown, or is no longer. The caller holds its row and the plan's.
create function fencepost.tell_plan_(_child bigint, _now timestamptz) returns void language plpgsql volatile as $law$
declare t record; s record;
begin
  select x.parent, x.state into t from fencepost.task x where x.rid = _child;
  if t.parent is null then return; end if;
  update fencepost.step x set state = case t.state when 'unknown' then 'unknown' else 'running' end
   where x.child = _child and x.state = case t.state when 'unknown' then 'running' else 'unknown' end
  returning x.id, x.try into s;
  if not found then return; end if;
  update fencepost.plan p set unknown = p.unknown + case t.state when 'unknown' then 1 else -1 end where p.rid = t.parent;
  perform fencepost.plan_events_(t.parent, array['plan.step_' || case t.state when 'unknown' then 'unknown' else 'resumed' end],
    array[jsonb_build_object('step', s.id, 'try', s.try)], _now);
  perform fencepost.advance_(t.parent, '{}', '{}', _now);
end $law$;

-- 70.11. With the plan's cancel, under its lock: what has not begun.
create function fencepost.cancel_steps_(_rid bigint, _reason text, _now timestamptz) returns void language plpgsql volatile as $law$
declare v_nos integer[] := array(select s.no from fencepost.step s where s.rid = _rid and s.state in ('blocked', 'ready', 'waiting') order by s.no);
begin
  if v_nos <> '{}' then perform fencepost.end_steps_(_rid, v_nos, 'cancelled', 'cancelled', left(_reason, 1000), _now); end if;
end $law$;

-- 72_plan_doors.sql: how a plan comes to be, what carries an attempt of its steps, and what can be read of it.
--
-- LAW    70.2   run, steps and first event are one transaction; the same id with another definition is `conflict`
--        70.8   hand-offs are resolved after begin, and recorded per attempt with their digests
--        70.9   the packet comes from here, whatever the worker was told before
--        70.10  the process is recorded before it may begin; who adopts it keeps number and fence
--        70.11  what a fence that died leaves running on a host is ended by whoever lives there
--        97.1   what is read is looked up within its organisation
-- OWNS   nothing; writes run, task, event, plan, step, edge, binding, process, handoff
-- LOCKS  the child run's row (hold_); a plan that nobody else has seen

-- Answers: created · replayed · conflict (then `stored`) · refused.
create function fencepost.admit_plan(_org text, _id text, _name text, _lane integer, _release text, _source text, _priority integer, _definition text)
returns table (answer text, rid bigint, stored jsonb) language plpgsql volatile as $law$
#variable_conflict use_column
declare v_now timestamptz := fencepost.now_(); v_rid bigint; v_policy record; v_plan jsonb := _definition::jsonb; v_steps integer; v_edges integer; v_wanted integer; r record;
begin
  if current_setting('synchronous_commit') = 'off' then perform set_config('synchronous_commit', 'on', true); end if;
  select p.priority into v_policy from fencepost.policy p where p.source = coalesce(_source, 'api');
  v_steps := jsonb_array_length(v_plan->'steps');
  if not found or fencepost.good_names_(_org, _id, _name) is not true or coalesce(v_steps, 0) = 0
     or length(_id) + 6 + (select max(length(s.value->>'id')) from jsonb_array_elements(v_plan->'steps') s(value)) > 200 then
    return query select 'refused', null::bigint, null::jsonb; return;
  end if;
  insert into fencepost.run (org, id, kind, name, lane, release, source, priority, input, on_lost, key_root, submitted_at)
  values (_org, _id, 'plan', _name, _lane, _release, coalesce(_source, 'api'), coalesce(_priority, v_policy.priority), _definition, 'replay', gen_random_uuid(), v_now)
  on conflict (org, id) do nothing returning run.rid into v_rid;
  if v_rid is null then
    select x.* into r from fencepost.run x where x.org = _org and x.id = _id;
    return query select case when r.kind = 'plan' and r.name = _name and r.input::jsonb = v_plan then 'replayed' else 'conflict' end, r.rid,
      case when r.kind <> 'plan' or r.name <> _name or r.input::jsonb <> v_plan then jsonb_build_object('kind', r.kind, 'name', r.name, 'input', r.input::jsonb) end;
    return;
  end if;
  insert into fencepost.task (rid, lane, org, state, park, priority, ready_at, turn_at, seq, on_lost)
  values (v_rid, _lane, _org, 'parked', 'plan', coalesce(_priority, v_policy.priority), v_now, v_now, 1, 'replay');
  insert into fencepost.plan (rid, most, steps, open) values (v_rid, (v_plan->>'max_concurrency')::integer, v_steps,
    v_steps - (select count(*) from jsonb_array_elements(v_plan->'steps') s(spec) where (s.spec->>'initially_skipped')::boolean));
  insert into fencepost.definition (rid, no, spec) select v_rid, s.no, s.spec from jsonb_array_elements(v_plan->'steps') with ordinality as s(spec, no);
  insert into fencepost.step (rid, no, id, kind, state, needs, reason, ended_at)
  select v_rid, s.no, s.spec->>'id', s.spec->>'kind',
         case when (s.spec->>'initially_skipped')::boolean then 'skipped' when s.needs = 0 then 'ready' else 'blocked' end, s.needs,
         case when (s.spec->>'initially_skipped')::boolean then 'initially_skipped' end, case when (s.spec->>'initially_skipped')::boolean then v_now end
    from (select s.no, s.spec, coalesce(jsonb_array_length(s.spec->'needs'), 0) as needs from jsonb_array_elements(v_plan->'steps') with ordinality as s(spec, no)) s;
  -- Names are numbers from here on; asked in one go, for nobody knows yet how large the table is.
  with f as materialized (select f.no, f.spec->>'id' as id from jsonb_array_elements(v_plan->'steps') with ordinality as f(spec, no))
  insert into fencepost.edge (rid, source, target, optional)
  select v_rid, f.no, s.no, coalesce((n.value->>'optional')::boolean, false)
    from jsonb_array_elements(v_plan->'steps') with ordinality as s(spec, no) cross join jsonb_array_elements(s.spec->'needs') n(value)
    join f on f.id = n.value->>'step';
  get diagnostics v_edges = row_count;
  with f as materialized (select f.no, f.spec->>'id' as id from jsonb_array_elements(v_plan->'steps') with ordinality as f(spec, no))
  insert into fencepost.binding (rid, target, id, input, source, output, mode, required, description)
  select v_rid, s.no, h.value->>'id', h.value->>'input', f.no, h.value->>'output', h.value->>'mode', (h.value->>'required')::boolean, coalesce(h.value->>'description', '')
    from jsonb_array_elements(v_plan->'steps') with ordinality as s(spec, no) cross join jsonb_array_elements(s.spec->'handoffs') h(value)
    join f on f.id = h.value->>'step';
  select coalesce(sum(s.needs), 0) into v_wanted from fencepost.step s where s.rid = v_rid;
  if v_edges <> v_wanted then raise exception 'plan %: a step needs one that is not there', quote_literal(_id) using errcode = '22023'; end if;
  perform fencepost.advance_(v_rid, '{}', array(select s.no from fencepost.step s where s.rid = v_rid and s.state = 'skipped' order by s.no), v_now);
  return query select 'created', v_rid, null::jsonb;
end $law$;

-- What a worker needs to carry out an attempt. Identities, bindings and policy come from here, whatever else it was told (70.9).
create function fencepost.packet_(_rid bigint, _number integer) returns text language sql stable as $law$
  select json_build_object('run', p.id, 'org', p.org, 'plan', p.name, 'step', s.id, 'try', s.try, 'child', c.id, 'attempt', _number, 'definition', d.spec,
           'inputs', (select coalesce(json_object_agg(h->>'input', h), '{}') from jsonb_array_elements(fencepost.handed_(s.rid, s.no, c.rid, _number)) h))::text
    from fencepost.run c cross join lateral (select p.* from fencepost.run p where p.rid = c.parent limit 1) p
    cross join lateral (select s.* from fencepost.step s where s.child = c.rid limit 1) s
    cross join lateral (select d.spec from fencepost.definition d where d.rid = s.rid and d.no = s.no limit 1) d where c.rid = _rid
$law$;

-- The begun mark of opaque work: its process is recorded first, so that whoever comes later knows whom to ask for (70.10).
-- Answers: begun (then `packet`) · stale · cancelled · again.
create function fencepost.begin_steps(_rids bigint[], _fences uuid[], _boot_ids text[], _pid_namespaces text[], _pids integer[], _process_starts text[],
  _hosts text[], _folders text[])
returns table (ord integer, answer text, packet text) language plpgsql volatile as $law$
#variable_conflict use_column
declare v_now timestamptz := fencepost.enter_(); v_held fencepost.held_[] := fencepost.hold_(_rids, _fences, '{}'); h fencepost.held_; s record;
begin
  foreach h in array v_held loop
    ord := h.ord; packet := null;
    answer := case when h.how <> 'held' then h.how when h.state = 'cancelling' then 'cancelled' else 'begun' end;
    if answer = 'begun' and not h.begun then
      select x.rid, x.no, (d.spec->>'timeout_ms')::bigint as timeout_ms into s
        from fencepost.step x cross join lateral (select d.spec from fencepost.definition d where d.rid = x.rid and d.no = x.no limit 1) d
       where x.child = h.rid and x.state in ('running', 'unknown');
      insert into fencepost.process (rid, number, boot_id, pid_namespace, pid, process_start, host, folder, begun_at, ceiling_at)
      values (h.rid, h.number, _boot_ids[h.ord], _pid_namespaces[h.ord], _pids[h.ord], _process_starts[h.ord], left(_hosts[h.ord], 200), _folders[h.ord], v_now,
              v_now + coalesce(s.timeout_ms, 21600000) * interval '1 ms' + interval '60 s')
      on conflict do nothing;
      insert into fencepost.handoff (rid, number, id, input, mode, source, output, digest, reason, at)
      select h.rid, h.number, x->>'binding', x->>'input', x->>'mode', x->'source'->>'run', x->'source'->>'output', x->>'digest', x->>'reason', v_now
        from jsonb_array_elements(fencepost.handed_(s.rid, s.no, null, null)) x
      on conflict do nothing;
      update fencepost.task t set begun = true, seq = t.seq + 1, deferrals = 0, deferred_since = null where t.rid = h.rid;
      insert into fencepost.event (rid, seq, at, type, number) values (h.rid, h.seq + 1, v_now, 'attempt.begun', h.number);
    end if;
    if answer = 'begun' then packet := fencepost.packet_(h.rid, h.number); end if;
    return next;
  end loop;
end $law$;

-- Opaque work whose worker is gone, on this host: the same attempt, the same fence, another holder (70.10). `_root`: only those of this
-- plan.
create function fencepost.claim_orphans(_holder uuid, _request bigint, _rids bigint[], _root bigint) returns setof fencepost.claimed_ language plpgsql volatile as $law$
declare v_now timestamptz := fencepost.enter_(); v_how text := fencepost.open_request_(_holder, _request); v_rids bigint[];
begin
  if v_how = 'buried' then return next fencepost.not_claimed_('buried', null); return; end if;
  if v_how = 'closed' then return; end if;
  if v_how = 'new' then
    v_rids := array(select t.rid from fencepost.task t where t.rid = any (_rids) and (_root is null or t.parent = _root) order by t.rid for no key update skip locked);
    v_rids := array(select o.rid from fencepost.orphans_(_holder, v_rids) o(rid) where o.rid = any (v_rids));
    with u as (update fencepost.task t set holder = _holder, request = _request, seq = t.seq + 1 where t.rid = any (v_rids) returning t.rid, t.seq, t.number)
    insert into fencepost.event (rid, seq, at, type, number, data)
    select u.rid, u.seq, v_now, 'attempt.adopted', u.number, jsonb_build_object('holder', _holder) from u;
  end if;
  return query select * from fencepost.repeat_claim_(_holder, _request);
end $law$;

-- Begun opaque work that nobody holds who lives, whose process ran where this incarnation runs. `_dropped`: what this incarnation
-- itself was given, and does not hold.
create function fencepost.orphans_(_me uuid, _dropped bigint[]) returns setof bigint language plpgsql stable as $law$
begin
  return query
    select t.rid from fencepost.incarnation me
      cross join lateral (select t.rid, t.number, t.holder from fencepost.task t where t.opaque and t.holder is not null and t.begun) t
      cross join lateral (select p.boot_id, p.pid_namespace from fencepost.process p where p.rid = t.rid and p.number = t.number limit 1) p
     where me.id = _me and p.boot_id = me.boot_id and p.pid_namespace = me.pid_namespace
       and (t.holder = _me and t.rid = any (_dropped) or not exists (select from fencepost.incarnation i where i.id = t.holder and i.ended is null));
end $law$;

-- The packet and the process of an attempt that was adopted.
create function fencepost.read_process(_rid bigint, _fence uuid) returns table (packet text, pid integer, process_start text, folder text) language sql stable as $law$
  select fencepost.packet_(t.rid, t.number), p.pid, p.process_start, p.folder
    from fencepost.task t join fencepost.process p on p.rid = t.rid and p.number = t.number where t.rid = _rid and t.fence = _fence
$law$;

-- `_busy`: only the steps that run, wait out a delay or are unknown: what a live view looks at.
create function fencepost.read_plan(_org text, _id text, _busy boolean) returns jsonb language sql stable as $law$
  with v as (select r.rid, r.id, r.org, r.name, r.release, r.submitted_at, l.name as lane, o.output, o.ended_at, p.most, p.steps,
                    coalesce(o.status, case t.park when 'plan' then 'running' else t.state end) as status, coalesce(o.error, t.trouble) as error
               from fencepost.run r join fencepost.plan p on p.rid = r.rid join fencepost.lane l on l.lane = r.lane
               left join fencepost.outcome o on o.rid = r.rid left join fencepost.task t on t.rid = r.rid where r.org = _org and r.id = _id)
  select jsonb_build_object('run_id', v.id, 'org', v.org, 'name', v.name, 'status', v.status, 'output', v.output, 'error', v.error, 'submitted_at', v.submitted_at,
           'finished_at', v.ended_at, 'max_concurrency', v.most, 'now', fencepost.now_(), 'rid', v.rid, 'lane', v.lane, 'release', v.release, 'total', v.steps,
           'counts', (select jsonb_object_agg(c.state, c.n) from (select case when v.ended_at is not null and s.ended_at is null then 'cancelled' else s.state end as state, count(*) as n
                        from fencepost.step s where s.rid = v.rid group by 1) c),
           'steps', (select coalesce(jsonb_agg(jsonb_build_object('id', s.id, 'kind', s.kind, 'state', case when v.ended_at is not null and s.ended_at is null then 'cancelled' else s.state end,
                       'reason', s.reason, 'outcome', s.outcome, 'needs', (select d.spec->'needs' from fencepost.definition d where d.rid = s.rid and d.no = s.no), 'attempts', s.try, 'started_at', s.started_at, 'ended_at', s.ended_at, 'due_at', s.due_at,
                       'child', c.id, 'child_state', coalesce(o.status, t.state), 'number', coalesce(o.number, t.number), 'error', o.error, 'trouble', t.trouble, 'progress', t.progress,
                       'host', x.host, 'pid', x.pid, 'folder', x.folder, 'ceiling_at', x.ceiling_at,
                       'holder_lives', case when t.holder is not null then exists (select from fencepost.incarnation i where i.id = t.holder and i.ended is null) end,
                       'outputs', (select jsonb_object_agg(q.name, jsonb_strip_nulls(jsonb_build_object('media_type', q.media_type, 'size', q.size, 'digest', q.digest,
                                     'text', q.text, 'place', q.place))) from fencepost.result q where q.rid = v.rid and q.step = s.no)) order by s.no), '[]')
                       from fencepost.step s
                       left join lateral (select c.id from fencepost.run c where c.rid = s.child limit 1) c on true
                       left join lateral (select o.status, o.number, o.error from fencepost.outcome o where o.rid = s.child limit 1) o on true
                       left join lateral (select t.* from fencepost.task t where t.rid = s.child limit 1) t on true
                       left join lateral (select x.* from fencepost.process x where x.rid = s.child order by x.number desc limit 1) x on true
                      where s.rid = v.rid and (not _busy or s.state in ('running', 'waiting', 'unknown'))))
    from v
$law$;

create function fencepost.read_result(_org text, _id text, _step text, _name text)
returns table (media_type text, size bigint, digest text, text text, place text, rid bigint) language sql stable as $law$
  select o.media_type, o.size, o.digest, o.text, o.place, o.rid
    from fencepost.run r join fencepost.step s on s.rid = r.rid join fencepost.result o on o.rid = s.rid and o.step = s.no
   where r.org = _org and r.id = _id and s.id = _step and o.name = _name
$law$;

-- Processes of a host whose fences are dead, for its workers to end.
create function fencepost.loose_(_boot_id text, _pid_namespace text) returns jsonb language plpgsql stable as $law$
begin
  return (select coalesce(jsonb_agg(jsonb_build_object('rid', p.rid, 'number', p.number, 'pid', p.pid, 'process_start', p.process_start, 'folder', p.folder)), '[]')
            from (select p.* from fencepost.process p where p.loose and p.boot_id = _boot_id and p.pid_namespace = _pid_namespace
                   order by p.rid, p.number limit 100) p);
end $law$;

-- Whoever saw them end says so. Takes no fence: theirs are dead, and nothing is decided by it. Returns how many were still looked for.
create function fencepost.clear_loose(_rids bigint[], _numbers integer[]) returns integer language plpgsql volatile as $law$
declare v_n integer;
begin
  update fencepost.process p set loose = false
    from unnest(_rids, _numbers) x(rid, number) where p.rid = x.rid and p.number = x.number and p.loose;
  get diagnostics v_n = row_count;
  return v_n;
end $law$;

-- 80_terminal.sql: how a leg ends, and how a run ends once.
--
-- LAW    80.1   the first terminal write wins
--        80.2   a fence that asks again gets its answer; one that ends a run twice with different values has broken the law
--        80.3   a leg can complete or fail a run, never cancel it
--        80.4   cancel answers accepted or too_late; it reaches every descendant; final only when code stopped or was fenced out
--        80.5   the order after the commit is the worker's; every door here may be asked again
--        80.6   kept by end_runs_ (35_rooms)
--        40.6   a leg with an unresolved unknown ends as success or as `unknown`, whatever it brings
--        50.4   a history that does not fit the code parks the run on its code
--        50.7   after a failed terminal no mark is leased: the fence it names is gone
--        50.10  a declared retry sets committed failures aside and keeps successes
-- LOCKS  the run's ancestors and the run, ascending (hold_); descendants level by level after their ancestor
-- CODES  LW801 two endings of one fence · LW802 no ending of a leg (answers of the item here, raised by the caller: 00.13)

-- True when a step or row that is not repeatable stands marked: somebody must learn what became of it.
create function fencepost.has_unknown_(_rid bigint) returns boolean language plpgsql stable as $law$
begin
  return exists (select from fencepost.boundary b where b.rid = _rid and b.state = 'marked' and not b.repeatable)
      or exists (select from fencepost.map m join fencepost.row r on r.mid = m.mid and r.state in ('waiting', 'marked', 'again')
                  where m.rid = _rid and r.state = 'marked' and not r.repeatable);
end $law$;

-- Endings: completed (value: output) · failed (value: error) · retry (value: error; after `_delay_mss`, unless `_most_tries` are charged)
-- · unknown (value: error) · unfit (value: error; `_digests`: the code that did not fit).
-- Answers: committed · retrying · unknown · parked · cancelled · already_terminal · stale · again · LW801 · LW802.
-- (Arrays but the first two may be of one element.)
create function fencepost.finish_attempts(_rids bigint[], _fences uuid[], _endings text[], _values text[], _delay_mss bigint[],
  _most_tries integer[], _digests text[])
returns table (ord integer, answer text, status text) language plpgsql volatile as $law$
#variable_conflict use_column
declare v_now timestamptz := fencepost.enter_();
  v_held fencepost.held_[] := fencepost.hold_(_rids, _fences, fencepost.above_(_rids));
  v_end bigint[]; v_statuses text[]; v_outputs text[]; v_errors text[]; v_plain boolean; h record;
begin
  if cardinality(_rids) > 1 then
    _endings := fencepost.spread_(_endings, cardinality(_rids)); _values := fencepost.spread_(_values, cardinality(_rids));
    _delay_mss := fencepost.spread_(_delay_mss, cardinality(_rids)); _most_tries := fencepost.spread_(_most_tries, cardinality(_rids));
    _digests := fencepost.spread_(_digests, cardinality(_rids));
  end if;
  -- What ends a run, together. An item that comes twice in one batch ends once.
  select array_agg(x.rid), array_agg(x.ending), array_agg(case when x.ending = 'completed' then x.value end), array_agg(case when x.ending = 'failed' then x.value end),
         count(*) = cardinality(_rids) and bool_and(x.state = 'running')
    into v_end, v_statuses, v_outputs, v_errors, v_plain
    from (select distinct on (h.rid) h.rid, h.state, h.ending, h.value
            from unnest(v_held, _endings, _values) as h(ord, rid, how, state, number, seq, holder, claimed_at, begun, parent, losses, ending, value)
           where h.how = 'held' and (h.ending = 'completed' or h.state = 'cancelling' or (h.ending = 'failed' and not fencepost.has_unknown_(h.rid)))
           order by h.rid, h.ord) x;
  if v_end is not null then
    if not v_plain then
      -- A cancelling run waits for its descendants (80.4): its leg is over, the run is not.
      for h in select t.rid from fencepost.task t where t.rid = any (v_end) and t.state = 'cancelling'
                  and exists (select from fencepost.task c where c.parent = t.rid) and t.cancel_until > v_now loop
        insert into fencepost.late (rid, kind, name, ordinal, fence, ok, value, at)
        select t.rid, 'run', 'result', 1, t.fence, v_statuses[array_position(v_end, t.rid)] = 'completed',
               coalesce(v_outputs[array_position(v_end, t.rid)], v_errors[array_position(v_end, t.rid)]), v_now
          from fencepost.task t where t.rid = h.rid and v_statuses[array_position(v_end, t.rid)] in ('completed', 'failed');
        perform fencepost.close_leg_(array[h.rid], 'finished', 'cancelled', v_now);
        perform fencepost.let_go_(h.rid, v_now);
        v_statuses := v_statuses[:array_position(v_end, h.rid) - 1] || v_statuses[array_position(v_end, h.rid) + 1:];
        v_outputs := v_outputs[:array_position(v_end, h.rid) - 1] || v_outputs[array_position(v_end, h.rid) + 1:];
        v_errors := v_errors[:array_position(v_end, h.rid) - 1] || v_errors[array_position(v_end, h.rid) + 1:];
        v_end := array_remove(v_end, h.rid);
      end loop;
    end if;
    if 'failed' = any (v_statuses) then  -- 40.7: a dispatched attempt that failed is charged, the last one too
      update fencepost.task t set tries = t.tries + 1 where t.rid = any (v_end) and t.state = 'running' and v_statuses[array_position(v_end, t.rid)] = 'failed';
    end if;
    if cardinality(v_end) > 0 then perform fencepost.end_runs_(v_end, v_statuses, v_outputs, v_errors, 'finished', v_now); end if;
  end if;
  if v_plain then                         -- the usual case: every item was held, and its run ended as it said
    return query select x.ord::integer, 'committed', x.ending from unnest(_endings) with ordinality as x(ending, ord);
    return;
  end if;
  for h in select x.* from unnest(v_held) x loop
    ord := h.ord; status := null;
    if h.how = 'again' then answer := 'again'; return next; continue; end if;
    if h.how = 'held' and h.state = 'running' and exists (select from fencepost.task t where t.rid = h.rid and t.fence = _fences[h.ord]) then
      answer := fencepost.turn_(h.rid, _endings[h.ord], _values[h.ord], _delay_mss[h.ord], _most_tries[h.ord], _digests[h.ord], v_now);
      if answer = 'failed' then answer := 'committed'; status := 'failed'; end if;
      return next; continue;
    end if;
    -- Over: by this very call, by this fence before, or by somebody else. The answer is the one kept with the attempt.
    select f.answer, f.status into answer, status from fencepost.recall_(h.rid, _fences[h.ord], _endings[h.ord], _values[h.ord]) f;
    return next;
  end loop;
end $law$;

create function fencepost.recall_(_rid bigint, _fence uuid, _ending text, _value text) returns table (answer text, status text) language plpgsql stable as $law$
#variable_conflict use_column
declare v_attempt record; v_outcome record;
begin
  select a.ended, a.reason into v_attempt from fencepost.attempt a where a.rid = _rid and a.fence = _fence;
  select o.status, o.fence, o.output, o.error into v_outcome from fencepost.outcome o where o.rid = _rid;
  if v_attempt.ended = 'finished' and v_outcome.fence = _fence then
    if v_outcome.status = 'cancelled' then return query select 'cancelled', 'cancelled';
    elsif _ending in ('completed', 'failed') and (v_outcome.status, coalesce(v_outcome.output, v_outcome.error)) is distinct from (_ending, _value)
          and not (_ending = 'completed' and v_outcome.status = 'completed' and _value is null and v_outcome.output is null) then
      return query select 'LW801', v_outcome.status;
    else return query select 'committed', v_outcome.status; end if;
  elsif v_attempt.ended = 'finished' and v_outcome.fence is null and v_attempt.reason = 'cancelled' then return query select 'cancelled', v_outcome.status;
  elsif v_attempt.ended = 'retrying' then return query select 'retrying', null::text;
  elsif v_attempt.ended = 'unknown' then return query select 'unknown', null::text;
  elsif v_attempt.ended = 'parked' and v_attempt.reason = 'unfit' then return query select 'parked', null::text;
  elsif v_outcome.status is not null then return query select 'already_terminal', v_outcome.status;
  else return query select 'stale', null::text; end if;
end $law$;

-- A leg's end that does not end the run; its code began, so deferrals are counted anew (40.13). Answers: retrying · unknown · parked · failed · LW802.
create function fencepost.turn_(_rid bigint, _ending text, _value text, _delay_ms bigint, _most_tries integer, _digest text, _now timestamptz)
returns text language plpgsql volatile as $law$
-- unfenced: the gate has judged.
declare t record; v_error jsonb;
begin
  if _ending is null or _ending not in ('failed', 'retry', 'unknown', 'unfit') then return 'LW802'; end if;
  select x.* into t from fencepost.task x where x.rid = _rid;
  if _ending = 'unfit' then
    perform fencepost.close_leg_(array[_rid], 'parked', 'unfit', _now);
    update fencepost.task x
       set state = 'parked', park = 'code', code_digest = coalesce(_digest, ''), trouble = _value, fence = null, holder = null, request = null,
           claimed_at = null, begun = false, deferrals = 0, deferred_since = null, seq = t.seq + 1
     where x.rid = _rid;
    insert into fencepost.event (rid, seq, at, type, number) values (_rid, t.seq + 1, _now, 'attempt.unfit', t.number);
    return 'parked';
  end if;
  if _ending = 'unknown' or fencepost.has_unknown_(_rid) then
    perform fencepost.close_leg_(array[_rid], 'unknown', null, _now);
    update fencepost.task x
       set state = 'unknown', unknown = 'STEP_OUTCOME_UNKNOWN', trouble = _value, fence = null, holder = null, request = null, claimed_at = null,
           begun = false, deferrals = 0, deferred_since = null, seq = t.seq + 1
     where x.rid = _rid;
    insert into fencepost.event (rid, seq, at, type, number, data)
    values (_rid, t.seq + 1, _now, 'run.unknown', t.number, jsonb_build_object('code', 'STEP_OUTCOME_UNKNOWN'));
    perform fencepost.tell_plan_(_rid, _now);
    return 'unknown';
  end if;
  if t.tries + 1 >= _most_tries then
    v_error := _value::jsonb;
    update fencepost.task x set tries = t.tries + 1 where x.rid = _rid;
    perform fencepost.end_runs_(array[_rid], array['failed'], array[null::text],
      array[jsonb_build_object('code', 'TRIES_EXHAUSTED', 'message', format('%s tries, the last: %s', t.tries + 1, v_error->>'message'), 'last', v_error)::text],
      'finished', _now);
    return 'failed';
  end if;
  perform fencepost.close_leg_(array[_rid], 'retrying', null, _now);
  -- Failures are set aside, and waits that lost a race: asked for again, they are done and armed again. All else is answered when
  -- the code asks for it, and may stay unasked (50.4).
  update fencepost.boundary b set loose = true, state = case when b.state in ('failed', 'cancelled') then 'set_aside' else b.state end where b.rid = _rid;
  update fencepost.row r set state = 'again', seq = null, value = null
    from fencepost.map m
   where m.rid = _rid and r.mid = m.mid and r.state in ('failed', 'skipped')
     and not exists (select from fencepost.boundary b where b.rid = m.rid and b.kind = 'map' and b.name = m.name and b.ordinal = m.ordinal and b.state = 'kept');
  update fencepost.task x
     set state = 'queued', tries = t.tries + 1, fence = null, holder = null, request = null, claimed_at = null, begun = false,
         deferrals = 0, deferred_since = null, ready_at = _now + coalesce(_delay_ms, 0) * interval '1 ms',
         turn_at = _now + coalesce(_delay_ms, 0) * interval '1 ms' - t.priority * interval '60 s',
         due_at = case when _delay_ms > 0 then _now + _delay_ms * interval '1 ms' end, trouble = _value, seq = t.seq + 1
   where x.rid = _rid;
  insert into fencepost.event (rid, seq, at, type, number, data)
  values (_rid, t.seq + 1, _now, 'attempt.retrying', t.number, jsonb_build_object('delay_ms', _delay_ms));
  if coalesce(_delay_ms, 0) = 0 then perform fencepost.rouse_(t.lane, 1); end if;
  return 'retrying';
end $law$;

-- Takes no fence, by decision: an operator's and a client's verb. Answers: accepted · too_late (then `status`) · unknown_run.
create function fencepost.cancel_run(_org text, _id text, _reason text, _grace_ms integer)
returns table (answer text, status text) language plpgsql volatile as $law$
#variable_conflict use_column
declare v_now timestamptz := fencepost.enter_(); v_root bigint; v_tree bigint[] := '{}'; v_more bigint[]; v_plans bigint[] := '{}'; v_idle bigint[]; v_rid bigint; v_seq integer; t record;
begin
  select r.rid into v_root from fencepost.run r where r.org = _org and r.id = _id;
  if v_root is null then return query select 'unknown_run', null::text; return; end if;
  -- Everything that exists of the tree, at once and ascending, also below runs that have ended. What was born meanwhile is not waited
  -- for out of order: it is free in a moment, and the door is asked again (55P03 is weather).
  v_more := array[v_root];
  while cardinality(v_more) > 0 loop
    if v_tree = '{}' then
      v_tree := v_root || array(select d.rid from fencepost.descendants_(array[v_root]) d(rid));
      perform from fencepost.task x where x.rid = any (array(select a.rid from fencepost.ancestors_(array[v_root]) a(rid)) || v_tree) order by x.rid for no key update;
    else
      v_tree := v_tree || v_more;
      perform from fencepost.task x where x.rid = any (v_more) order by x.rid for no key update nowait;
    end if;
    v_more := array(select d.rid from fencepost.descendants_(array[v_root]) d(rid) where not (d.rid = any (v_tree)));
  end loop;
  if not exists (select from fencepost.task x where x.rid = v_root) then
    return query select case o.status when 'completed' then 'too_late' when 'failed' then 'too_late' when 'cancelled' then 'accepted' else 'unknown_run' end, o.status
      from (select v_root as rid) i left join lateral (select o.status from fencepost.outcome o where o.rid = i.rid limit 1) o on true;
    return;
  end if;
  -- Plans first: nothing new of theirs begins (70.11).
  for v_rid in select p.rid from fencepost.plan p where p.rid = any (v_tree) order by p.rid loop
    update fencepost.task x
       set state = 'cancelling', cancel_reason = left(_reason, 1000), cancel_until = v_now + _grace_ms * interval '1 ms', park = null, unknown = null, due_at = null,
           seq = x.seq + 1
     where x.rid = v_rid and x.state <> 'cancelling' returning x.seq into v_seq;
    continue when not found;
    insert into fencepost.event (rid, seq, at, type, data) values (v_rid, v_seq, v_now, 'run.cancelling', jsonb_build_object('reason', left(_reason, 1000)));
    perform fencepost.cancel_steps_(v_rid, _reason, v_now);
    v_plans := v_plans || v_rid;
  end loop;
  -- Tries that nobody has claimed, together: a plan may have thousands of them in the line, and each end goes through it.
  v_idle := array(select x.rid from fencepost.task x where x.rid = any (v_tree) and x.parent = any (v_plans) and x.fence is null and x.state <> 'cancelling'
                     and not exists (select from fencepost.task c where c.parent = x.rid) order by x.rid);
  if v_idle <> '{}' then
    update fencepost.task x set cancel_reason = left(_reason, 1000) where x.rid = any (v_idle);
    perform fencepost.end_runs_(v_idle, array_fill('cancelled'::text, array[cardinality(v_idle)]), array_fill(null::text, array[cardinality(v_idle)]),
      array_fill(null::text, array[cardinality(v_idle)]), 'finished', v_now);
  end if;
  -- Descendants first (a child's id is larger): a parent ends after its children.
  for v_rid in select x.rid from unnest(v_tree) x(rid) order by x.rid desc loop
    select x.* into t from fencepost.task x where x.rid = v_rid;
    if not found then continue; end if;
    if t.state = 'cancelling' then
      null;
    elsif t.fence is null and not exists (select from fencepost.task c where c.parent = v_rid) then
      update fencepost.task x set cancel_reason = left(_reason, 1000) where x.rid = v_rid;
      perform fencepost.end_runs_(array[v_rid], array['cancelled'], array[null::text], array[null::text], 'finished', v_now);
    else
      update fencepost.task x
         set state = 'cancelling', cancel_reason = left(_reason, 1000), cancel_until = v_now + _grace_ms * interval '1 ms', park = null, unknown = null,
             code_digest = null, due_at = null, claim_by = null, seq = t.seq + 1
       where x.rid = v_rid;
      insert into fencepost.event (rid, seq, at, type, number, data)
      values (v_rid, t.seq + 1, v_now, 'run.cancelling', nullif(t.number, 0), jsonb_build_object('reason', left(_reason, 1000)));
      if t.fence is not null then
        perform pg_notify(fencepost.channel_(left(replace(t.holder::text, '-', ''), 24)), 'look');
      end if;
    end if;
    -- Without a grace, or asked again when it is over: fenced out here, for no worker may be there to do it.
    if exists (select from fencepost.task x where x.rid = v_rid and x.state = 'cancelling' and x.cancel_until <= v_now) then
      if t.fence is not null then perform fencepost.close_leg_(array[v_rid], 'lost', 'grace_over', v_now); end if;
      perform fencepost.let_go_(v_rid, v_now);
    end if;
  end loop;
  foreach v_rid in array v_plans loop perform fencepost.let_go_(v_rid, v_now); end loop;
  return query select 'accepted', coalesce((select o.status from fencepost.outcome o where o.rid = v_root), 'cancelling');
end $law$;

-- An operator ends any run that is not terminal; code that still runs is fenced out. With a plan end the tries of its steps. Answers: done · too_late · unknown_run.
create function fencepost.end_run(_org text, _id text, _by text, _reason text) returns table (answer text, status text) language plpgsql volatile as $law$
#variable_conflict use_column
declare v_now timestamptz := fencepost.enter_(); v_rid bigint; v_tries bigint[];
  v_error text := json_build_object('code', 'OPERATOR_ENDED', 'message', coalesce(_reason, ''), 'by', _by)::text;
begin
  select r.rid into v_rid from fencepost.run r where r.org = _org and r.id = _id;
  if v_rid is null then return query select 'unknown_run', null::text; return; end if;
  perform from fencepost.task x where x.rid = any (array(select a.rid from fencepost.ancestors_(array[v_rid]) a(rid)) || v_rid) order by x.rid for no key update;
  if not exists (select from fencepost.task x where x.rid = v_rid) then
    -- Asked again after a lost reply, the same word gets the same answer.
    return query select case when o.status is null then 'unknown_run' when o.error = v_error then 'done' else 'too_late' end, o.status
      from (select v_rid as rid) i left join lateral (select o.status, o.error from fencepost.outcome o where o.rid = i.rid limit 1) o on true;
    return;
  end if;
  perform fencepost.end_runs_(array[v_rid], array['failed'], array[null::text], array[v_error], 'lost', v_now);
  v_tries := array(select t.rid from fencepost.task t where t.parent = v_rid and exists (select from fencepost.plan p where p.rid = v_rid) order by t.rid);
  if v_tries <> '{}' then
    perform from fencepost.task x where x.rid = any (v_tries) order by x.rid for no key update;
    perform fencepost.end_runs_(v_tries, array_fill('failed'::text, array[cardinality(v_tries)]), array_fill(null::text, array[cardinality(v_tries)]),
      array_fill(v_error, array[cardinality(v_tries)]), 'lost', v_now);
  end if;
  return query select 'done', o.status from fencepost.outcome o where o.rid = v_rid;
end $law$;

-- 30.8, 30.9. Anybody who waits may ask; no worker is needed. True when the run ended by its bound.
create function fencepost.judge_bound(_org text, _id text) returns boolean language plpgsql volatile as $law$
declare v_now timestamptz := fencepost.enter_(); v_rid bigint;
begin
  select r.rid into v_rid from fencepost.run r where r.org = _org and r.id = _id;
  if exists (select from fencepost.task t where t.rid = v_rid and t.claim_by <= v_now) then
    perform from fencepost.task t where t.rid = v_rid for no key update;
    perform fencepost.expire_(array[v_rid], v_now);
  end if;
  return exists (select from fencepost.outcome o where o.rid = v_rid and o.status = 'failed' and o.error = fencepost.expired_());
end $law$;

create function fencepost.expired_() returns text language sql immutable as $law$
  select '{"code":"ADMISSION_EXPIRED","message":"no worker claimed the run within its bound"}'
$law$;

create function fencepost.expire_(_rids bigint[], _now timestamptz) returns integer language plpgsql volatile as $law$
declare v_rids bigint[];
begin
  select array_agg(t.rid) into v_rids from fencepost.task t where t.rid = any (_rids) and t.state = 'queued' and t.claim_by <= _now;
  if v_rids is null then return 0; end if;
  perform fencepost.end_runs_(v_rids, array_fill('failed'::text, array[cardinality(v_rids)]), array_fill(null::text, array[cardinality(v_rids)]),
    array_fill(fencepost.expired_(), array[cardinality(v_rids)]), 'finished', _now);
  return cardinality(v_rids);
end $law$;

-- Who waits for a run's end leaves a channel; the end notifies it once. Polling is the truth behind it.
create function fencepost.watch_outcome(_org text, _id text, _channel text) returns table (rid bigint, status text, output text, error text) language plpgsql volatile as $law$
#variable_conflict use_column
declare v_rid bigint;
begin
  select r.rid into v_rid from fencepost.run r where r.org = _org and r.id = _id;
  if v_rid is null then return; end if;
  if _channel is not null and exists (select from fencepost.task t where t.rid = v_rid) then
    insert into fencepost.watcher (rid, channel, until) values (v_rid, _channel, fencepost.now_() + interval '1 hour') on conflict do nothing;
  end if;
  return query select v_rid, coalesce(o.status, case t.park when 'plan' then 'running' else t.state end), o.output, coalesce(o.error, case when t.state in ('unknown', 'parked') then t.trouble end)
    from (select v_rid as rid) x left join lateral (select o.* from fencepost.outcome o where o.rid = x.rid limit 1) o on true
    left join lateral (select t.* from fencepost.task t where t.rid = x.rid limit 1) t on true;
  -- It ended while the channel was being left: nobody calls it any more (80.6).
  if _channel is not null and not exists (select from fencepost.task t where t.rid = v_rid) then
    delete from fencepost.watcher w where w.rid = v_rid and w.channel = _channel;
  end if;
end $law$;

-- 85_recovery.sql: what becomes of work whose worker is gone.
--
-- LAW    85.1   verdicts are unique: a lost attempt has left its holder, so no second sweep finds it
--        85.2   a verdict is conditional on the row it was decided on, under that row's lock; it never claims
--        85.3   from silence: a full lease observed by this observer's incarnation, counted anew after it was deaf; or proof of death
--        85.4   recovery needs no queue: any worker's beat does it, in bounded pieces; what a fault cuts off the next beat finds
--        85.5   how the unknown is resolved: 87_resolution; whoever was told of another run's goes on when that is
--        85.6   sweeps are bounded, skip what is locked, and page on
--        85.7   one rule of loss: replay | fail | ask, as stored at admission
--        40.9   a beat names its incarnation; an ended one is told `buried`
--        40.11  close_incarnation: the stopping worker records what still runs as lost itself
--        40.12  the beat, and the deadline that any beat enforces a lease after it
--        40.14  what an answered request gave and the worker does not hold goes back; what it holds and has lost is named
--        40.15  five losses without a committed boundary: LOST_TOO_OFTEN
-- OWNS   incarnation; writes task, attempt, boundary, outcome, event
-- LOCKS  incarnations by id, then run rows ascending with their ancestors, skipping what is locked

-- THE RULE OF LOSS. The caller holds the row and its ancestors. `_reason` is kept with the attempt.
create function fencepost.lose_(_rid bigint, _reason text, _now timestamptz) returns text language plpgsql volatile as $law$
-- unfenced: it is the fence that is judged here.
declare t record; v_error text; v_code text;
begin
  select x.* into t from fencepost.task x where x.rid = _rid and x.fence is not null;
  if not found then return 'nothing'; end if;
  -- 85.7: silence says nothing of opaque work; its fence stays, for an inquiry to settle.
  if t.opaque and t.begun and _reason not in ('process_gone', 'ceiling_passed', 'grace_over', 'operator') then return 'kept'; end if;
  if t.state = 'cancelling' then
    perform fencepost.close_leg_(array[_rid], 'lost', _reason, _now);
    perform fencepost.let_go_(_rid, _now);
    return 'cancelled';
  end if;
  if not t.begun then
    perform fencepost.return_(_rid, _reason, _now);
    return 'given_back';
  end if;
  v_error := json_build_object('code', 'RUNNER_LOST', 'message', format('attempt %s was lost (%s)', t.number, _reason), 'attempt', t.number)::text;
  if t.on_lost = 'fail' and not fencepost.has_unknown_(_rid) then
    update fencepost.task x set tries = t.tries + 1 where x.rid = _rid;
    perform fencepost.end_runs_(array[_rid], array['failed'], array[null::text], array[v_error], 'lost', _now);
    return 'failed';
  end if;
  perform fencepost.close_leg_(array[_rid], 'lost', _reason, _now);
  insert into fencepost.event (rid, seq, at, type, number, data)
  values (_rid, t.seq + 1, _now, 'attempt.lost', t.number, jsonb_build_object('reason', _reason, 'holder', t.holder));
  v_code := case when t.on_lost <> 'replay' then 'RUNNER_LOST' when t.losses + 1 >= 5 then 'LOST_TOO_OFTEN' end;
  -- Its code began, so deferrals are counted anew (40.13).
  if v_code is null then
    update fencepost.task x
       set state = 'queued', tries = t.tries + 1, losses = t.losses + 1, deferrals = 0, deferred_since = null,
           fence = null, holder = null, request = null, claimed_at = null, begun = false,
           ready_at = _now, turn_at = _now - t.priority * interval '60 s', seq = t.seq + 1
     where x.rid = _rid;
    perform fencepost.rouse_(t.lane, 1);
    return 'replay';
  end if;
  update fencepost.task x
     set state = 'unknown', unknown = v_code, tries = t.tries + 1, losses = t.losses + 1, deferrals = 0, deferred_since = null,
         fence = null, holder = null, request = null, claimed_at = null, begun = false, seq = t.seq + 2,
         trouble = case v_code when 'RUNNER_LOST' then v_error
                   else json_build_object('code', v_code, 'message', format('%s losses without a newly committed boundary, the last: %s', t.losses + 1, _reason))::text end
   where x.rid = _rid;
  insert into fencepost.event (rid, seq, at, type, number, data)
  values (_rid, t.seq + 2, _now, 'run.unknown', t.number, jsonb_build_object('code', v_code));
  perform fencepost.tell_plan_(_rid, _now);
  return 'unknown';
end $law$;

-- Locks what is free of the given runs and their ancestors; returns those runs of which all were got.
create function fencepost.seize_(_rids bigint[]) returns bigint[] language plpgsql volatile as $law$
declare v_locked bigint[];
begin
  select array_agg(l.rid) into v_locked from (
    select t.rid from fencepost.task t where t.rid = any (_rids || array(select a.rid from fencepost.ancestors_(_rids) a(rid)))
     order by t.rid for no key update skip locked) l;
  return array(select r.rid from unnest(_rids) r(rid) where r.rid = any (v_locked)
                  and not exists (select from fencepost.ancestors_(array[r.rid]) a(rid) where not (a.rid = any (v_locked))) order by r.rid);
end $law$;

-- Loses what the given incarnations still hold, page by page until `_most` are lost: what is locked hides nobody (85.6). What only an
-- inquiry can settle (70.10) is not even locked: it may be much, and stay long. Returns how many.
create function fencepost.reap_(_holders uuid[], _reason text, _most integer, _now timestamptz) returns integer language plpgsql volatile as $law$
declare v_rids bigint[]; v_rid bigint; v_after bigint := 0; v_n integer := 0;
begin
  while v_n < _most loop
    v_rids := array(select t.rid from unnest(_holders) i(id) cross join lateral (
        select t.rid from fencepost.task t where t.holder = i.id and t.rid > v_after and not (t.opaque and t.begun) order by t.rid limit _most) t
       order by t.rid limit _most);
    exit when v_rids = '{}';
    v_after := v_rids[cardinality(v_rids)];
    foreach v_rid in array fencepost.seize_(v_rids) loop
      -- Again under the lock (85.2): whoever finished in the meantime is not lost.
      if exists (select from fencepost.task t where t.rid = v_rid and t.holder = any (_holders)) then
        if fencepost.lose_(v_rid, _reason, _now) <> 'kept' then v_n := v_n + 1; end if;
      end if;
    end loop;
  end loop;
  return v_n;
end $law$;

-- One door for a worker's heartbeat and everybody's sweeps. `_held_*` and `_answered` were published together by the loop.
-- `_dead`: incarnations of this host (same boot id and pid namespace) whose process this one has seen to be gone.
-- The answer: {buried, cancel: [{rid, number, reason}], lost: [{rid, number}], peers: [{id, pid, process_start}], due_ms, woken, reaped, orphans: [rid],
-- loose: [{rid, number, pid, process_start, folder}]}.
create function fencepost.beat(_id uuid, _answered bigint, _held_rids bigint[], _held_numbers integer[], _dead uuid[]) returns jsonb language plpgsql volatile as $law$
declare v_now timestamptz := fencepost.enter_(); me record; v_rids bigint[]; v_rid bigint; v_reaped integer := 0; v_woken integer; v_due timestamptz;
  v_lost jsonb; v_cancel jsonb; v_peers jsonb;
begin
  select i.* into me from fencepost.incarnation i where i.id = _id for no key update;
  if not found or me.ended is not null then return jsonb_build_object('buried', true); end if;
  -- Deaf for two beats: silence is counted from now (85.3).
  if v_now - me.heard_at > 2 * me.beat_ms * interval '1 ms' then me.observing_since := v_now; end if;
  update fencepost.incarnation i
     set heard_at = v_now, observing_since = me.observing_since, answered = least(i.request, greatest(i.answered, _answered)) where i.id = _id;

  -- 40.14: given by an answered request, not held.
  select array_agg(t.rid) into v_rids from fencepost.task t
   where t.holder = _id and t.request <= _answered
     and not exists (select from unnest(_held_rids, _held_numbers) h(rid, number) where h.rid = t.rid and h.number = t.number);
  if v_rids is not null then
    foreach v_rid in array fencepost.seize_(v_rids) loop
      if exists (select from fencepost.task t where t.rid = v_rid and t.holder = _id and t.request <= _answered and t.state = 'running' and not (t.opaque and t.begun)) then
        perform fencepost.return_(v_rid, 'not_held', v_now);
      else
        perform fencepost.lose_(v_rid, 'not_held', v_now) from fencepost.task t where t.rid = v_rid and t.holder = _id and t.request <= _answered;
      end if;
    end loop;
  end if;

  v_reaped := fencepost.inquire_(_id, me.boot_id, me.pid_namespace, me.observing_since, _dead, v_now);
  v_reaped := v_reaped + fencepost.reap_late_(v_now) + fencepost.reap_ceilings_(v_now);
  perform fencepost.wake_askers_(fencepost.entries_asked_(500), v_now, 500);
  v_woken := fencepost.wake_due_(me.lane, 500, v_now);
  perform fencepost.expire_(array(select t.rid from fencepost.task t where t.claim_by <= v_now order by t.claim_by limit 100 for no key update skip locked), v_now);
  perform fencepost.end_graces_(v_now);

  -- What the worker believes to hold and does not; what it holds and should stop.
  select jsonb_agg(jsonb_build_object('rid', h.rid, 'number', h.number)) into v_lost from unnest(_held_rids, _held_numbers) h(rid, number)
   where not exists (select from fencepost.task t where t.rid = h.rid and t.number = h.number and t.holder = _id);
  select jsonb_agg(jsonb_build_object('rid', t.rid, 'number', t.number, 'reason', t.cancel_reason)) into v_cancel
    from unnest(_held_rids) h(rid) cross join lateral (select t.* from fencepost.task t where t.rid = h.rid and t.holder = _id and t.state = 'cancelling') t;
  select jsonb_agg(jsonb_build_object('id', i.id, 'pid', i.pid, 'process_start', i.process_start)) into v_peers
    from (select i.* from fencepost.incarnation i
           where i.boot_id = me.boot_id and i.pid_namespace = me.pid_namespace and i.gone_at is null and i.id <> _id order by i.started_at desc limit 200) i;
  select min(t.due_at) into v_due from (select t.due_at from fencepost.task t where t.lane = me.lane and t.due_at is not null order by t.due_at limit 1) t;
  return jsonb_build_object('buried', false, 'lost', coalesce(v_lost, '[]'), 'cancel', coalesce(v_cancel, '[]'), 'peers', coalesce(v_peers, '[]'),
    'due_ms', case when v_due is not null then greatest(0, ceil(extract(epoch from v_due - v_now) * 1000))::bigint end, 'woken', v_woken, 'reaped', v_reaped,
    'orphans', (select coalesce(jsonb_agg(o.rid), '[]') from (select o.rid from fencepost.orphans_(_id, coalesce(v_rids, '{}')) o(rid) order by o.rid limit 200) o),
    'loose', fencepost.loose_(me.boot_id, me.pid_namespace));
end $law$;

-- 85.3. Ends incarnations that are proven gone or silent for a full lease of observation, and loses what ended ones hold.
create function fencepost.inquire_(_me uuid, _boot_id text, _pid_namespace text, _observing_since timestamptz, _dead uuid[], _now timestamptz) returns integer language plpgsql volatile as $law$
declare v_gone uuid[]; v_silent uuid[];
begin
  select array_agg(i.id) into v_gone from (
    select i.id from fencepost.incarnation i
     where i.id = any (_dead) and i.id <> _me and i.boot_id = _boot_id and i.pid_namespace = _pid_namespace and i.gone_at is null
     order by i.id for no key update skip locked) i;
  if v_gone is not null then
    update fencepost.incarnation i set gone_at = _now, ended_at = coalesce(i.ended_at, _now), ended = coalesce(i.ended, 'proven') where i.id = any (v_gone);
    delete from fencepost.sleeper s where s.holder = any (v_gone);
  end if;
  select array_agg(i.id) into v_silent from (
    select i.id from fencepost.incarnation i
     where i.ended is null and i.id <> _me and i.heard_at <= _now - i.lease_ms * interval '1 ms'
       and greatest(i.heard_at, _observing_since) <= _now - i.lease_ms * interval '1 ms'
     order by i.id limit 100 for no key update skip locked) i;
  if v_silent is not null then
    update fencepost.incarnation i set ended_at = _now, ended = 'silent' where i.id = any (v_silent);
    delete from fencepost.sleeper s where s.holder = any (v_silent);
  end if;
  -- Also what an earlier sweep ended and could not finish (85.4): of all who hold anything, those who are not alive. As many index
  -- probes as there are holders.
  return fencepost.reap_(array(
    with recursive h(holder) as (
      (select t.holder from fencepost.task t where t.holder is not null order by t.holder limit 1)
      union all
      select n.holder from h cross join lateral (select t.holder from fencepost.task t where t.holder > h.holder order by t.holder limit 1) n)
    select h.holder from h where not exists (select from fencepost.incarnation i where i.id = h.holder and i.ended is null)), 'holder_gone', 100, _now);
end $law$;

-- 40.12. A step's durable deadline, a lease past: the attempt is fenced out, however healthy its worker's heartbeat.
create function fencepost.reap_late_(_now timestamptz) returns integer language plpgsql volatile as $law$
declare v_rids bigint[]; v_seen bigint[] := '{}'; v_rid bigint; v_n integer := 0;
begin
  while v_n < 100 loop
    v_rids := array(
      select distinct b.rid from (
        select b.rid from fencepost.boundary b
          cross join lateral (select t.fence, t.holder from fencepost.task t where t.rid = b.rid and t.fence = b.fence limit 1) t
          cross join lateral (select i.lease_ms from fencepost.incarnation i where i.id = t.holder limit 1) i
         where b.state = 'marked' and b.until is not null and b.until <= _now - i.lease_ms * interval '1 ms' and not (b.rid = any (v_seen))
         order by b.until limit 100) b);
    exit when v_rids = '{}';
    v_seen := v_seen || v_rids;
    foreach v_rid in array fencepost.seize_(v_rids) loop
      if exists (select from fencepost.boundary b join fencepost.task t on t.rid = b.rid and t.fence = b.fence join fencepost.incarnation i on i.id = t.holder
                  where b.rid = v_rid and b.state = 'marked' and b.until <= _now - i.lease_ms * interval '1 ms') then
        perform fencepost.lose_(v_rid, 'deadline_passed', _now);
        v_n := v_n + 1;
      end if;
    end loop;
  end loop;
  return v_n;
end $law$;

-- 70.10. Opaque work past its ceiling, if its holder is gone, or has said nothing of it for a lease more.
create function fencepost.reap_ceilings_(_now timestamptz) returns integer language plpgsql volatile as $law$
declare v_rids bigint[]; v_seen bigint[] := '{}'; v_rid bigint; v_n integer := 0;
begin
  while v_n < 100 loop
    v_rids := array(
      select t.rid from (select t.rid, t.number, t.holder from fencepost.task t where t.opaque and t.holder is not null and t.begun) t
       cross join lateral (select p.ceiling_at from fencepost.process p where p.rid = t.rid and p.number = t.number limit 1) p
        left join lateral (select i.lease_ms from fencepost.incarnation i where i.id = t.holder and i.ended is null limit 1) i on true
       where p.ceiling_at + coalesce(i.lease_ms, 0) * interval '1 ms' <= _now and not (t.rid = any (v_seen)) order by p.ceiling_at limit 100);
    exit when v_rids = '{}';
    v_seen := v_rids || v_seen;
    foreach v_rid in array fencepost.seize_(v_rids) loop
      -- Again under the lock (85.2): a worker that lives may have adopted it meanwhile.
      if exists (select from fencepost.task t join fencepost.process p on p.rid = t.rid and p.number = t.number
                   left join fencepost.incarnation i on i.id = t.holder and i.ended is null
                  where t.rid = v_rid and t.opaque and t.begun and p.ceiling_at + coalesce(i.lease_ms, 0) * interval '1 ms' <= _now) then
        perform fencepost.lose_(v_rid, 'ceiling_passed', _now);
        v_n := v_n + 1;
      end if;
    end loop;
  end loop;
  return v_n;
end $law$;

-- 80.4. A cancelling run whose grace is over is fenced out, and ends whatever its descendants do.
create function fencepost.end_graces_(_now timestamptz) returns integer language plpgsql volatile as $law$
declare v_rids bigint[]; v_seen bigint[] := '{}'; v_rid bigint; v_n integer := 0;
begin
  while v_n < 100 loop
    v_rids := array(select t.rid from fencepost.task t where t.state = 'cancelling' and t.cancel_until <= _now and not (t.rid = any (v_seen))
                     order by t.cancel_until limit 100);
    exit when v_rids = '{}';
    v_seen := v_seen || v_rids;
    foreach v_rid in array fencepost.seize_(v_rids) loop
      perform fencepost.lose_(v_rid, 'grace_over', _now);
      perform fencepost.let_go_(v_rid, _now);
      v_n := v_n + 1;
    end loop;
  end loop;
  return v_n;
end $law$;

-- 40.11. At the end of the drain: what still runs is lost, by its own worker's word; then the incarnation is closed.
create function fencepost.close_incarnation(_id uuid) returns integer language plpgsql volatile as $law$
declare v_now timestamptz := fencepost.enter_(); v_rid bigint; v_n integer := 0;
begin
  perform from fencepost.incarnation i where i.id = _id for no key update;
  perform from fencepost.task t where t.rid = any (
    array(select t.rid from fencepost.task t where t.holder = _id) || array(select a.rid from fencepost.ancestors_(array(select t.rid from fencepost.task t where t.holder = _id)) a(rid)))
    order by t.rid for no key update;
  for v_rid in select t.rid from fencepost.task t where t.holder = _id order by t.rid loop
    perform fencepost.lose_(v_rid, 'worker_stopped', v_now);
    v_n := v_n + 1;
  end loop;
  update fencepost.incarnation i set ended_at = v_now, ended = 'closed' where i.id = _id and i.ended is null;
  delete from fencepost.sleeper s where s.holder = _id;
  return v_n;
end $law$;

-- 50.4. What is parked on its code and belongs to a workflow whose code is another now is claimed again. Also records what this
-- incarnation can run, for `explain` and for clients that look for a live worker.
create function fencepost.register_workflows(_id uuid, _lane integer, _names text[], _digests text[]) returns integer language plpgsql volatile as $law$
declare v_now timestamptz := fencepost.enter_(); v_rid bigint; v_n integer := 0;
begin
  update fencepost.incarnation i set workflows = _names where i.id = _id;
  for v_rid in select t.rid from fencepost.task t
     where t.lane = _lane and t.park = 'code' and t.state = 'parked'
       and exists (select from fencepost.run r where r.rid = t.rid and t.code_digest <> _digests[array_position(_names, r.name)])
     order by t.rid for no key update loop
    perform fencepost.unpark_(v_rid, v_now);
    v_n := v_n + 1;
  end loop;
  return v_n;
end $law$;

create function fencepost.unpark_(_rid bigint, _now timestamptz) returns void language plpgsql volatile as $law$
-- unfenced: the caller holds the row, and no attempt runs.
declare t record;
begin
  update fencepost.task x
     set state = 'queued', park = null, code_digest = null, unknown = null, trouble = null, due_at = null, losses = 0, ready_at = _now,
         turn_at = _now - x.priority * interval '60 s', seq = x.seq + 1
   where x.rid = _rid returning x.seq, x.number, x.lane into t;
  insert into fencepost.event (rid, seq, at, type, number) values (_rid, t.seq, _now, 'run.woken', nullif(t.number, 0));
  perform fencepost.tell_plan_(_rid, _now);
  perform fencepost.rouse_(t.lane, 1);
end $law$;

-- Entries that somebody waits for, at most so many: from a place left to chance, and wrapped once, so that a page that is full of entries
-- which stay held hides no other for good (85.6).
create function fencepost.entries_asked_(_most integer) returns bigint[] language plpgsql volatile as $law$
declare v_first bigint; v_last bigint; v_from bigint; v_page bigint[];
begin
  select min(x.eid), max(x.eid) into v_first, v_last from fencepost.asker x where x.how in ('waits', 'told');
  if v_first is null then return '{}'; end if;
  v_from := v_first + floor(random() * (v_last - v_first + 1))::bigint;
  v_page := array(select distinct x.eid from fencepost.asker x where x.how in ('waits', 'told') and x.eid >= v_from order by x.eid limit _most);
  return v_page || array(select distinct x.eid from fencepost.asker x where x.how in ('waits', 'told') and x.eid < v_from order by x.eid
                          limit _most - cardinality(v_page));
end $law$;

-- 50.9. Who waits for one of these entries of an organisation that nobody holds any more is woken by a signal: all of them where it is kept, or unknown;
-- of those who could take it on, one, and the next at the next sweep, should that one never come. Who was told that it is unknown, and
-- ended so, asks again once it is resolved. What is locked is passed over: the next sweep finds it. Returns how many.
create function fencepost.wake_askers_(_eids bigint[], _now timestamptz, _most integer) returns integer language plpgsql volatile as $law$
declare a record; t record; v_n integer := 0;
begin
  if _eids = '{}' then return 0; end if;
  for a in
    select x.* from (
      select x.*, j.how as stands, k.rid as living, row_number() over (partition by x.eid, k.rid is null order by x.rid, x.ordinal) as nth
        from unnest(_eids) e(eid)
        cross join lateral fencepost.judge_entry_(e.eid) j
        join fencepost.asker x on x.eid = e.eid
        left join fencepost.task k on k.rid = x.rid
       where k.rid is null and x.how in ('waits', 'told')
          or x.how = 'waits' and j.how <> 'held'
          or x.how = 'told' and j.how in ('kept', 'free') and k.state = 'unknown') x
     where x.living is null or x.stands <> 'free' or x.nth = 1
     order by x.rid, x.ordinal limit _most loop
    if a.living is null then
      delete from fencepost.asker x where x.rid = a.rid and x.name = a.name and x.ordinal = a.ordinal;
      continue;
    end if;
    continue when fencepost.seize_(array[a.rid]) = '{}';
    select x.state, x.park, x.seq, x.number into t from fencepost.task x where x.rid = a.rid;
    if a.how = 'told' then
      continue when t.state is distinct from 'unknown';
      update fencepost.boundary b set state = 'again', until = null, at = _now
       where b.rid = a.rid and b.kind = 'step' and b.name = a.name and b.ordinal = a.ordinal and b.state = 'marked' and not b.repeatable;
    end if;
    update fencepost.asker x set how = 'woken' where x.rid = a.rid and x.name = a.name and x.ordinal = a.ordinal and x.how = a.how;
    continue when not found;
    v_n := v_n + 1;
    if a.how = 'told' then
      if not fencepost.has_unknown_(a.rid) then perform fencepost.unpark_(a.rid, _now); end if;
      continue;
    end if;
    insert into fencepost.signal (rid, name, payload, sent_at) values (a.rid, a.wait, 'null', _now);
    update fencepost.task x set seq = t.seq + 1 where x.rid = a.rid;
    insert into fencepost.event (rid, seq, at, type, number, data) values (a.rid, t.seq + 1, _now, 'signal.sent', nullif(t.number, 0), jsonb_build_object('name', a.wait));
    if t.state = 'parked' and t.park = 'wait' then perform fencepost.settle_(a.rid, _now); else perform fencepost.hint_(a.rid); end if;
  end loop;
  return v_n;
end $law$;

-- The same at once for the entry that this call of a run answers for: its worker has just kept it.
create function fencepost.wake_askers(_rid bigint, _name text, _ordinal integer) returns integer language plpgsql volatile as $law$
declare v_now timestamptz := fencepost.enter_();
begin
  return fencepost.wake_askers_(array(select s.eid from fencepost.shared s where s.rid = _rid and s.name = _name and s.ordinal = _ordinal), v_now, 500);
end $law$;

-- An operator's word: a run parked on its code is tried again, one that waits in the line for an hour is due now.
-- Answers: done (also when it stands in the line already: the word may be asked again, 00.3) · refused (then `state`) · unknown_run.
create function fencepost.wake_run(_org text, _id text) returns table (answer text, state text) language plpgsql volatile as $law$
#variable_conflict use_column
declare v_now timestamptz := fencepost.enter_(); v_rid bigint; t record;
begin
  select r.rid into v_rid from fencepost.run r where r.org = _org and r.id = _id;
  if v_rid is null then return query select 'unknown_run', null::text; return; end if;
  perform from fencepost.task x where x.rid = v_rid for no key update;
  select x.* into t from fencepost.task x where x.rid = v_rid;
  if not found then return query select 'refused', o.status from fencepost.outcome o where o.rid = v_rid; return; end if;
  if t.state = 'parked' and t.park = 'code' then
    perform fencepost.unpark_(v_rid, v_now);
  elsif t.state = 'queued' and t.due_at is not null then
    update fencepost.task x set due_at = null, ready_at = v_now, turn_at = v_now - x.priority * interval '60 s', seq = x.seq + 1 where x.rid = v_rid;
    insert into fencepost.event (rid, seq, at, type, number) values (v_rid, t.seq + 1, v_now, 'run.woken', nullif(t.number, 0));
    perform fencepost.rouse_(t.lane, 1);
  elsif t.state <> 'queued' then
    return query select 'refused', t.state; return;
  end if;
  return query select 'done', 'queued';
end $law$;

-- 86_inquiry.sql: what became of opaque work whose worker is gone, by proof, by its ceiling, or by an operator's word.
--
-- LAW    70.10  live: it is waited for; ended: settled under the same attempt (80); gone: lost now; silent past its ceiling: lost
--        85.7   what lost means was declared: replay | fail | ask
--        85.2   judged again under the lock
-- OWNS   nothing; writes process, and through lose_ (85)
-- LOCKS  the run and its ancestors, ascending

-- Whoever adopted an attempt has proof that its process is gone and left no word; `_begun` false: its command never ran, and no try is charged.
-- Answers: lost (what that means was declared: lose_) · given_back · stale · again.
create function fencepost.lose_step(_rid bigint, _fence uuid, _begun boolean) returns text language plpgsql volatile as $law$
declare v_now timestamptz := fencepost.enter_(); v_held fencepost.held_[] := fencepost.hold_(array[_rid], array[_fence], fencepost.above_(array[_rid]));
begin
  if v_held[1].how = 'stale' then         -- this fence's own word, asked again (00.3)
    return coalesce((select a.ended from fencepost.attempt a where a.rid = _rid and a.fence = _fence
                        and (a.ended = 'lost' or a.ended = 'given_back' and a.reason = 'never_ran')), 'stale');
  end if;
  if v_held[1].how <> 'held' then return v_held[1].how; end if;
  if _begun then
    perform fencepost.lose_(_rid, 'process_gone', v_now);
    update fencepost.process p set loose = false where p.rid = _rid and p.number = v_held[1].number and p.loose;
    return 'lost';
  end if;
  if v_held[1].state = 'cancelling' then
    perform fencepost.close_leg_(array[_rid], 'given_back', 'never_ran', v_now);
    perform fencepost.let_go_(_rid, v_now);
  else
    perform fencepost.return_(_rid, 'never_ran', v_now);
  end if;
  return 'given_back';
end $law$;

-- An operator's word that the process of this step's newest try is gone: its host is, say.
-- Answers: done (also to the same word asked again) · refused (then `why`) · unknown_run.
create function fencepost.declare_lost(_org text, _id text, _step text, _by text) returns table (answer text, why text) language plpgsql volatile as $law$
#variable_conflict use_column
declare v_now timestamptz := fencepost.enter_(); v_said jsonb := jsonb_build_object('verdict', 'lost', 'by', _by); v_rid bigint; t record;
begin
  select s.child into v_rid from fencepost.run r join fencepost.step s on s.rid = r.rid where r.org = _org and r.id = _id and s.id = _step;
  if not found then return query select 'unknown_run', null::text; return; end if;
  perform from fencepost.task x where x.rid = any (array(select a.rid from fencepost.ancestors_(array[v_rid]) a(rid)) || v_rid) order by x.rid for no key update;
  select x.* into t from fencepost.task x where x.rid = v_rid;
  if t.rid is null or not t.opaque or t.fence is null or not t.begun then
    return query select case when x.said then 'done' else 'refused' end, case when not x.said then 'no process of this step runs, as far as anybody knows' end
      from (select exists (select from fencepost.event e where e.rid = v_rid and e.type = 'run.resolved' and e.data = v_said) as said) x;
    return;
  end if;
  if exists (select from fencepost.incarnation i where i.id = t.holder and i.ended is null) then
    return query select 'refused', 'its worker is alive and looks after it: cancel the plan, or stop the worker'; return;
  end if;
  update fencepost.task x set seq = x.seq + 1 where x.rid = v_rid;
  insert into fencepost.event (rid, seq, at, type, number, data)
  values (v_rid, t.seq + 1, v_now, 'run.resolved', t.number, v_said);
  perform fencepost.lose_(v_rid, 'operator', v_now);
  return query select 'done', null::text;
end $law$;

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
