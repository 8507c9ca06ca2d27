"""Fencepost's own rows, written by SQL as a million runs would have left them: what is pending, parked on a signal, ended."""

from __future__ import annotations

_RUN = """
with b as materialized (select coalesce(max(r.rid), 0) as rid from fencepost.run r)
insert into fencepost.run (rid, org, id, kind, name, lane, release, source, priority, input, on_lost, key_root, submitted_at)
overriding system value
select b.rid + g, {org}, 'fill-' || (b.rid + g), 'workflow', '{name}', (select l.lane from fencepost.lane l where l.release = 'dev'),
       'dev', 'program', 0, '1', 'replay', gen_random_uuid(), now() from b, generate_series(1, {n}) g
"""
_SEQUENCE = "select setval(pg_get_serial_sequence('fencepost.run', 'rid'), (select max(r.rid) from fencepost.run r))"
_NEW = "(select r.* from fencepost.run r order by r.rid desc limit {n}) r"
_EVENT = """
insert into fencepost.event (rid, seq, at, type, number)
select r.rid, e.seq, now(), e.type, e.number from {new}, (values {events}) e(seq, type, number)
"""
_ATTEMPT = """
insert into fencepost.attempt (rid, number, fence, holder, claimed_at, ended_at, ended, begun, reason)
select r.rid, 1, gen_random_uuid(), '{holder}', now(), now(), '{ended}', true, {reason} from {new}
"""
_HOLDER = "00000000-0000-4000-8000-000000000000"


def statements(pending: int, parked: int, ended: int, orgs: int) -> list[str]:
    """`orgs`: over how many organisations what is pending is spread."""
    made = ["set synchronous_commit = off"]
    if ended:
        made += _ended(ended)
    if parked:
        made += _parked(parked)
    if pending:
        made += _pending(pending, orgs)
    return [*made, "reset synchronous_commit"]


def _runs(n: int, name: str, org: str) -> list[str]:
    return [_RUN.format(n=n, name=name, org=org), _SEQUENCE]


def _pending(n: int, orgs: int) -> list[str]:
    new = _NEW.format(n=n)
    org = "'default'" if orgs == 1 else f"'org-' || (g % {orgs})"
    return [
        *_runs(n, "noop", org),
        # One after the other, as they came: the line of an organisation is in the order of their instants.
        f"""insert into fencepost.task (rid, lane, org, state, priority, ready_at, turn_at, seq, on_lost)
            select r.rid, r.lane, r.org, 'queued', 0, t.at, t.at, 1, 'replay'
              from {new} cross join lateral (select now() - interval '1 hour' + r.rid * interval '1 us' as at) t""",
    ]


def _parked(n: int) -> list[str]:
    new = _NEW.format(n=n)
    return [
        *_runs(n, "event", "'default'"),
        f"""insert into fencepost.task (rid, lane, org, state, priority, ready_at, turn_at, number, tries, seq, on_lost, park)
            select r.rid, r.lane, r.org, 'parked', 0, now(), now(), 1, 1, 4, 'replay', 'wait' from {new}""",
        f"""insert into fencepost.boundary (rid, kind, name, ordinal, state, opened_seq, number, at, opened_at)
            select r.rid, 'signal', 'go', 1, 'armed', 3, 1, now(), now() from {new}""",
        _ATTEMPT.format(new=new, holder=_HOLDER, ended="parked", reason="null"),
        _EVENT.format(new=new, events="(2, 'attempt.claimed', 1), (4, 'attempt.parked', 1)"),
    ]


def _ended(n: int) -> list[str]:
    new = _NEW.format(n=n)
    return [
        *_runs(n, "noop", "'default'"),
        f"""insert into fencepost.outcome (rid, status, output, number, tries, fence, seq, ended_at)
            select r.rid, 'completed', '1', 1, 1, gen_random_uuid(), 3, now() from {new}""",
        _ATTEMPT.format(new=new, holder=_HOLDER, ended="finished", reason="'completed'"),
        _EVENT.format(new=new, events="(2, 'attempt.claimed', 1)"),
    ]
