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
