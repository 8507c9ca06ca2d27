-- The least that a durable queue must write: a bound, not a design. `runs` is the record; `ready` is the hot row, deleted at the end.
create schema floor;
create table floor.runs (
  id       bigint generated always as identity primary key,
  name     text not null,
  args     bytea,
  result   bytea,
  state    smallint not null default 0,
  created  timestamptz not null default now(),
  finished timestamptz
) with (fillfactor = 80);
create table floor.ready (
  id    bigint primary key,
  prio  smallint not null default 0,
  at    timestamptz not null default now(),
  lease timestamptz,
  owner integer
) with (fillfactor = 70, autovacuum_vacuum_scale_factor = 0.02, autovacuum_vacuum_cost_delay = 0);
create index ready_claim on floor.ready (prio, id) where owner is null;
create table floor.steps (run bigint, seq integer, result bytea, primary key (run, seq));
create table floor.events (name text primary key, payload bytea);
create table floor.waits (run bigint primary key, name text not null);
