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
