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
