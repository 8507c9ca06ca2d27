"""Guards of the ledger, of retention and of the grants."""

from tests.mutants import Mutant

LEDGER, RETENTION, GRANTS = "90_ledger.sql", "95_retention.sql", "99_grants.sql"
TOLD = ("test_90_ledger.py::test_every_transition_of_a_run_is_told_once_in_order",)
OUTBOX = (
    "test_90_ledger.py::test_a_cursor_never_passes_a_transaction_that_is_still_open",
    "test_90_ledger.py::test_a_consumer_of_the_outbox_misses_and_repeats_nothing",
)
WATCH = ("test_90_watch.py::test_a_watch_resumes_from_any_sequence_and_misses_and_repeats_nothing",)
PROGRESS = ("test_90_ledger.py::test_progress_waits_for_nobody_and_is_no_transition",)
REFERRED = ("test_95_retention.py::test_what_something_alive_refers_to_stays",)
OLD = ("test_95_retention.py::test_only_terminal_rows_older_than_the_policy_go",)

MUTANTS = [
    Mutant(
        "a run's own row has its entry",
        LEDGER,
        "r.tx from fencepost.run r\n",
        "r.tx from fencepost.run r where false\n",
        TOLD,
    ),
    Mutant(
        "an outcome has its entry",
        LEDGER,
        "o.tx from fencepost.outcome o;",
        "o.tx from fencepost.outcome o where false;",
        TOLD,
    ),
    Mutant(
        "a mark has its entry",
        LEDGER,
        "from fencepost.boundary b where b.opened_seq is not null and b.opened_seq is distinct from b.seq",
        "from fencepost.boundary b where false",
        TOLD,
    ),
    Mutant(
        "a result has its entry",
        LEDGER,
        "from fencepost.boundary b where b.seq is not null;\n",
        "from fencepost.boundary b where false;\n",
        TOLD,
    ),
    Mutant(
        "a cancelled wait names its attempt",
        "60_suspension.sql",
        "set state = 'cancelled', seq = v_seq + 1, number = h.number, at = v_now",
        "set state = 'cancelled', seq = v_seq + 1, at = v_now",
        TOLD,
    ),
    Mutant(
        "a cursor stops at an open transaction",
        LEDGER,
        " and e.tx < pg_snapshot_xmin(pg_current_snapshot())::text::bigint",
        "",
        OUTBOX,
    ),
    Mutant(
        "a cursor is a place, not a transaction",
        LEDGER,
        "(e.tx, e.rid, e.seq) > (_tx, _rid, _seq)",
        "e.tx > _tx",
        OUTBOX,
    ),
    Mutant(
        "a watch begins behind its place",
        LEDGER,
        "where l.rid = v_rid and l.seq > _after",
        "where l.rid = v_rid and l.seq >= _after",
        WATCH,
        2,
    ),
    Mutant(
        "a watch at the end reads no rows",
        LEDGER,
        "if _after >= coalesce((select o.seq",
        "if false and _after >= coalesce((select o.seq",
        ("test_90_watch.py::test_whoever_waits_at_the_end_of_a_map_does_not_read_its_rows_again_and_again",),
    ),
    Mutant(
        "a watch passes over a gap",
        LEDGER,
        "and l.seq > _after order by l.seq limit v_most",
        "and false order by l.seq limit v_most",
        ("test_90_watch.py::test_a_watch_passes_over_what_a_restored_history_lacks",),
    ),
    Mutant(
        "events come in order",
        LEDGER,
        "_after::bigint + v_most order by l.seq;",
        "_after::bigint + v_most order by l.type;",
        WATCH,
    ),
    Mutant(
        "progress is the living fence's",
        LEDGER,
        "where t.rid = v_note.rid and t.fence = v_note.fence",
        "where t.rid = v_note.rid",
        PROGRESS,
        2,
    ),
    Mutant(
        "progress waits for nobody",
        LEDGER,
        "t.fence = v_note.fence for no key update skip locked;",
        "t.fence = v_note.fence for no key update;",
        PROGRESS,
    ),
    Mutant(
        "the living refer to themselves",
        RETENTION,
        "or exists (select from fencepost.task c where c.parent = _rid)",
        "",
        REFERRED,
    ),
    Mutant(
        "what a redrive took over stays",
        RETENTION,
        "or exists (select from fencepost.boundary b join fencepost.task t on t.rid = b.rid where b.child = _rid)",
        "",
        REFERRED,
    ),
    Mutant(
        "the origin of the living stays",
        RETENTION,
        "or exists (select from fencepost.run r join fencepost.task t on t.rid = r.rid where r.origin = _rid)",
        "",
        REFERRED,
    ),
    Mutant(
        "old is older than the policy",
        RETENTION,
        "where o.ended_at < v_now - _runs_s * interval '1 s' and not",
        "where o.ended_at <= v_now - _runs_s * interval '1 s' and not",
        OLD,
    ),
    Mutant("rows go with their map", RETENTION, "delete from fencepost.row r where r.mid = any (v_mids);", "", OLD),
    Mutant("events go with their run", RETENTION, "delete from fencepost.event e where e.rid = any (v_old);", "", OLD),
    Mutant(
        "a pass is bounded",
        RETENTION,
        "where o.ended_at < v_now - _runs_s * interval '1 s' and not fencepost.is_referenced_(o.rid)\n     order by o.ended_at limit _most) x;",
        "where o.ended_at < v_now - _runs_s * interval '1 s' and not fencepost.is_referenced_(o.rid)\n     order by o.ended_at) x;",
        ("test_95_retention.py::test_batches_are_bounded_and_always_progress",),
    ),
    Mutant(
        "the referenced hide nobody",
        RETENTION,
        "where o.ended_at < v_now - _runs_s * interval '1 s' and not fencepost.is_referenced_(o.rid)\n     order by o.ended_at limit _most) x;",
        "where o.ended_at < v_now - _runs_s * interval '1 s'\n     order by o.ended_at limit _most) x where not fencepost.is_referenced_(x.rid);",
        ("test_95_retention.py::test_batches_are_bounded_and_always_progress",),
    ),
    Mutant(
        "scratch is six hours old",
        RETENTION,
        "where o.ended_at < v_now - _scratch_s * interval '1 s' and",
        "where o.ended_at <= v_now - _scratch_s * interval '1 s' and",
        ("test_95_retention.py::test_scratch_goes_six_hours_after_the_end_and_the_ledger_outlives_it",),
    ),
    Mutant(
        "living workers are not forgotten",
        RETENTION,
        "where i.ended_at < v_now - _runs_s * interval '1 s'\n",
        "where i.started_at < v_now - _runs_s * interval '1 s'\n",
        ("test_95_retention.py::test_workers_that_nothing_names_any_more_are_forgotten",),
    ),
    Mutant(
        "workers in the history are not forgotten",
        RETENTION,
        " and not exists (select from fencepost.attempt a where a.holder = i.id)",
        "",
        ("test_95_retention.py::test_workers_that_nothing_names_any_more_are_forgotten",),
    ),
    Mutant(
        "inner rooms are closed",
        GRANTS,
        "execute format('revoke all on function %s from public', f.signature);",
        "",
        ("test_schema_roles.py::test_the_worker_role_acts_through_doors_only",),
    ),
    Mutant(
        "doors run on a pinned path",
        GRANTS,
        "security definer set search_path = pg_catalog, pg_temp set",
        "security definer set",
        ("test_schema_roles.py::test_every_door_runs_as_the_owner_on_a_pinned_path",),
    ),
    Mutant(
        "the reader reads",
        GRANTS,
        "if f.proname like 'read\\_%' then",
        "if true then",
        ("test_schema_roles.py::test_the_reader_sees_views_and_reads_and_nothing_else",),
    ),
    Mutant(
        "the worker sees no view",
        GRANTS,
        "grant select on %I.runs, %I.ledger to %I', v_schema, v_schema, v_reader)",
        "grant select on %I.runs, %I.ledger to %I', v_schema, v_schema, v_worker)",
        ("test_schema_roles.py::test_the_worker_role_acts_through_doors_only",),
    ),
    Mutant(
        "who parks shows its last word",
        "60_suspension.sql",
        "progress = coalesce(_saids[h.ord], t.progress), ",
        "",
        ("test_90_ledger.py::test_a_leg_that_parks_leaves_its_last_word_behind_and_nothing_that_is_dead_does",),
    ),
    Mutant(
        "who parks without a word leaves what is shown",
        "60_suspension.sql",
        "progress = coalesce(_saids[h.ord], t.progress), ",
        "progress = _saids[h.ord], ",
        ("test_90_ledger.py::test_a_leg_that_parks_leaves_its_last_word_behind_and_nothing_that_is_dead_does",),
    ),
    Mutant(
        "a look-up goes by its index whatever the planner believes",
        "99_grants.sql",
        "set enable_seqscan = off set jit = off ",
        "set jit = off ",
        ("test_plans.py",),
    ),
]
