"""Chapter 50, the gate it stands on, and the places of the ledger."""

# ruff: noqa: E501 - a guard is quoted as it stands

from tests.mutants import Mutant

ATTEMPTS = "40_attempts.sql"
STEPS = "50_steps.sql"

ONCE = ("test_00_ground.py::test_what_is_the_same_of_a_whole_batch_is_said_once",)

MUTANTS = (
    Mutant("_kinds said once is said of all", STEPS, "fencepost.spread_(_kinds, cardinality(_rids))", "_kinds", ONCE),
    Mutant("_oks said once is said of all", STEPS, "fencepost.spread_(_oks, cardinality(_rids))", "_oks", ONCE),
    Mutant(
        "_values said once is said of all", STEPS, "fencepost.spread_(_values, cardinality(_rids))", "_values", ONCE
    ),
    Mutant(
        "_timeout_mss said once is said of all",
        STEPS,
        "fencepost.spread_(_timeout_mss, cardinality(_rids))",
        "_timeout_mss",
        ONCE,
    ),
    Mutant(
        "_agains said once is said of all", STEPS, "fencepost.spread_(_agains, cardinality(_rids))", "_agains", ONCE
    ),
    Mutant(
        "a mark is taken over only when it may",
        STEPS,
        " and ok.marked_by <> ok.fence and ok.again))),",
        " and ok.marked_by <> ok.fence))),",
        ("test_50_steps.py::test_a_mark_names_its_fence_and_stands_in_the_way_of_the_next",),
    ),
    Mutant(
        "another fence is told that a mark stands",
        STEPS,
        "when ok.was = 'marked' and (ok.marked_by = ok.fence or ok.again) then 'marked'",
        "when ok.was = 'marked' then 'marked'",
        ("test_50_steps.py::test_a_mark_names_its_fence_and_stands_in_the_way_of_the_next",),
    ),
    Mutant(
        "a mark alone is taken over only when it may",
        STEPS,
        " and b.fence <> _fences[1] and _agains[1])\n",
        " and b.fence <> _fences[1])\n",
        ("test_50_steps.py::test_a_mark_names_its_fence_and_stands_in_the_way_of_the_next",),
    ),
    Mutant(
        "a dead fence alone marks nothing",
        STEPS,
        "if cardinality(_rids) = 1 and v_held[1].how = 'held' and v_held[1].state = 'running' then",
        "if cardinality(_rids) = 1 and v_held[1].state = 'running' then",
        ("test_50_steps.py",),
    ),
    Mutant(
        "nothing alone is marked in a cancelling run",
        STEPS,
        "v_held[1].how = 'held' and v_held[1].state = 'running' then",
        "v_held[1].how = 'held' then",
        ("test_50_steps.py::test_nothing_is_marked_in_a_cancelling_run_and_what_happened_is_kept",),
    ),
    Mutant(
        "a dead fence alone keeps nothing",
        STEPS,
        "if cardinality(_rids) = 1 and v_held[1].how = 'held' then     -- one",
        "if cardinality(_rids) = 1 then     -- one",
        ("test_50_steps.py",),
    ),
    Mutant(
        "the first value kept alone stays",
        STEPS,
        "     where b.state in ('marked', 'set_aside', 'again', 'open')\n",
        "",
        ("test_50_steps.py::test_a_committed_value_never_changes",),
    ),
    Mutant(
        "nothing is marked in a cancelling run",
        STEPS,
        "where ok.how = 'held' and ok.state = 'running' and ok.nth = 1",
        "where ok.how = 'held' and ok.nth = 1",
        ("test_50_steps.py::test_nothing_is_marked_in_a_cancelling_run_and_what_happened_is_kept",),
    ),
    Mutant(
        "whoever marks in a cancelling run is told",
        STEPS,
        "                      when ok.state = 'cancelling' then 'cancelled'\n",
        "",
        ("test_50_steps.py::test_nothing_is_marked_in_a_cancelling_run_and_what_happened_is_kept",),
    ),
    Mutant(
        "the first value kept stays",
        STEPS,
        " and (ok.was is null or ok.was in ('marked', 'set_aside', 'again', 'open')) as new",
        " as new",
        ("test_50_steps.py::test_a_committed_value_never_changes",),
    ),
    Mutant(
        "what was set aside is kept anew",
        STEPS,
        " and (ok.was is null or ok.was in ('marked', 'set_aside', 'again', 'open')) as new",
        " and (ok.was is null or ok.was in ('marked', 'again', 'open')) as new",
        ("test_50_steps.py::test_a_failure_set_aside_may_be_kept_without_a_mark",),
    ),
    Mutant(
        "a keep asked again is answered the same",
        STEPS,
        " or n.same then 'kept' when n.nth > 1 then 'again' else 'kept_before' end,",
        " then 'kept' when n.nth > 1 then 'again' else 'kept_before' end,",
        ("test_50_steps.py::test_a_keep_whose_answer_was_lost_is_asked_again_and_answered_the_same",),
    ),
    Mutant(
        "a boundary twice in a batch is one",
        STEPS,
        "ok.how = 'held' and ok.nth = 1 and (ok.was is null or ok.was in ('marked', 'set_aside', 'again', 'open')) as new",
        "ok.how = 'held' and (ok.was is null or ok.was in ('marked', 'set_aside', 'again', 'open')) as new",
        ("test_50_steps.py::test_the_same_boundary_twice_in_a_batch_is_one_boundary",),
    ),
    Mutant(
        "a kept step begins the count of losses anew",
        STEPS,
        "up as (update fencepost.task t set losses = 0, seq",
        "up as (update fencepost.task t set seq",
        ("test_40_losses.py::test_a_committed_boundary_begins_the_count_anew",),
    ),
    Mutant(
        "evidence is the marks own fences",
        STEPS,
        " and b.fence = _fence and b.state = 'marked'\n",
        " and b.state = 'marked'\n",
        ("test_50_steps.py::test_a_late_commit_by_the_marks_fence_is_kept_as_evidence_once",),
    ),
    Mutant(
        "evidence is kept once",
        STEPS,
        "     and not exists (select from fencepost.late l where l.rid = _rid and l.kind = 'step' and l.name = _name and l.ordinal = _ordinal and l.fence = _fence);",
        "     ;",
        ("test_50_steps.py::test_a_late_commit_by_the_marks_fence_is_kept_as_evidence_once",),
    ),
    Mutant(
        "a death is confirmed by proof alone",
        STEPS,
        "(select i.gone_at from fencepost.incarnation i",
        "(select coalesce(i.gone_at, i.ended_at) as gone_at from fencepost.incarnation i",
        ("test_50_lookups.py::test_a_death_is_confirmed_by_proof_alone",),
    ),
    Mutant(
        "the holder asked for is the marks",
        STEPS,
        "on a.rid = o.rid and a.fence = b.fence limit 1",
        "on a.rid = o.rid limit 1",
        ("test_50_lookups.py::test_the_mark_of_a_living_attempt_has_no_dead_holder",),
    ),
    Mutant(
        "a redrive knows its origins attempts",
        STEPS,
        "r on r.origin is not null)",
        "r on false)",
        ("test_50_lookups.py::test_a_redrive_knows_the_holders_of_its_origins_marks",),
    ),
    Mutant(
        "rows are stored once",
        STEPS,
        "     where _from + i.ord::integer - 1 >= v_map.total;",
        "     ;",
        ("test_50_rows.py::test_a_chunk_that_was_half_stored_is_completed_not_doubled",),
    ),
    Mutant(
        "a map is whole once",
        STEPS,
        "  if not v_map.whole then\n    update fencepost.map m set",
        "  if true then\n    update fencepost.map m set",
        ("test_50_rows.py::test_every_row_is_stored_with_key_and_index_before_the_first_begins",),
    ),
    Mutant(
        "a row that is not repeatable stands",
        STEPS,
        "(ok.was = 'marked' and ok.repeatable and ok.marked_by <> ok.fence)",
        "(ok.was = 'marked' and ok.marked_by <> ok.fence)",
        ("test_50_rows.py::test_a_lost_worker_loses_no_committed_row_and_repeats_none_that_is_unknown",),
    ),
    Mutant(
        "a fence reaches its own runs rows only",
        STEPS,
        "exists (select from fencepost.map m where m.mid = i.mid and m.rid = i.rid)",
        "true",
        ("test_50_rows.py::test_a_fence_reaches_no_row_of_another_run",),
        count=2,
    ),
    Mutant(
        "a row commits once",
        STEPS,
        "ok.nth = 1 and ok.was in ('waiting', 'marked', 'again'), false)",
        "ok.nth = 1 and ok.was is not null, false)",
        ("test_50_rows.py::test_rows_commit_by_key_in_any_order_once",),
    ),
    Mutant(
        "only a new row begins the count of losses anew",
        STEPS,
        "from n where n.new group by n.rid),\n    ut as (update fencepost.task t set losses = 0",
        "from (select ok.rid, ok.seq as nseq from ok) n group by n.rid),\n    ut as (update fencepost.task t set losses = 0",
        ("test_40_losses.py::test_a_row_that_was_kept_before_does_not_begin_the_count_anew",),
    ),
    Mutant(
        "no row is marked in a cancelling run",
        STEPS,
        "ok.how = 'held' and ok.state <> 'cancelling' and ok.nth = 1",
        "ok.how = 'held' and ok.nth = 1",
        ("test_50_rows.py::test_nothing_of_a_cancelling_map_begins_and_what_happened_is_kept",),
    ),
    Mutant(
        "no map is opened in a cancelling run",
        STEPS,
        "  if h.state = 'cancelling' then return query select 'cancelled', null::bigint",
        "  if false then return query select 'cancelled', null::bigint",
        ("test_50_rows.py::test_nothing_of_a_cancelling_map_begins_and_what_happened_is_kept",),
    ),
    Mutant(
        "a boundary written over leaves its place",
        STEPS,
        "   where i.seq is not null and i.gone;",
        "   where false;",
        (
            "test_50_steps.py::test_a_mark_is_taken_over_only_when_the_taker_says_that_it_may",
            "test_50_steps.py::test_a_declared_retry_keeps_successes_and_asks_failures_again",
        ),
    ),
    Mutant(
        "a row written over leaves its place",
        STEPS,
        "   where m.mid = old.mid and i.seq is not null and i.instead is distinct from i.seq;",
        "   where false;",
        ("test_50_rows.py::test_a_repeatable_row_is_marked_again_by_the_next_attempt",),
    ),
    Mutant(
        "pages of rows are bounded",
        STEPS,
        " where p.bytes <= _bytes or p.nth = 1",
        " where p.bytes <= _bytes",
        ("test_50_rows.py::test_pages_of_rows_are_bounded_in_bytes_and_miss_none",),
    ),
    Mutant(
        "a reopened map forgets its failure",
        STEPS,
        "seq = null, opened_seq = excluded.opened_seq, number = excluded.number, fence = excluded.fence, hash",
        "seq = boundary.seq, opened_seq = excluded.opened_seq, number = excluded.number, fence = excluded.fence, hash",
        ("test_50_rows.py::test_a_declared_retry_does_failed_and_skipped_rows_again_and_no_kept_one",),
    ),
    Mutant(
        "nobody acts on a row it did not lock",
        ATTEMPTS,
        "    v_locked := array(select l.rid from (select t.rid from fencepost.task t where t.rid = any (v_want) order by t.rid for no key update skip locked) l);",
        "    select array_agg(l.rid) into v_locked from (select t.rid from fencepost.task t where t.rid = any (v_want) order by t.rid for no key update skip locked) l;",
        ("test_50_steps.py::test_in_a_batch_a_locked_run_is_again_even_when_every_one_is",),
    ),
    Mutant(
        "a lone call waits for its row",
        ATTEMPTS,
        "from fencepost.task t where t.rid = _rids[1] for no key update)",
        "from fencepost.task t where t.rid = _rids[1])",
        (
            "test_00_ground.py::test_what_is_judged_after_waiting_for_a_lock_is_judged_anew",
            "../races/test_two_doors.py::test_two_finishes_of_one_fence_with_different_values_meet",
            "../races/test_two_doors.py::test_a_finish_that_waited_behind_a_park_is_told_stale",
        ),
    ),
    Mutant(
        "only living ancestors are locked",
        ATTEMPTS,
        "     cross join lateral (select p.rid, p.parent from fencepost.task p where p.rid = t.parent limit 1) p\n",
        "     cross join lateral (select t.parent as rid, null::bigint as parent where t.parent is not null) p\n",
        ("test_85_recovery.py::test_a_lost_child_of_an_ended_parent_is_reaped_like_any_other",),
    ),
)
