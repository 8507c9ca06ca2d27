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
