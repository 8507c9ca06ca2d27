"""Guards of attempts."""

from tests.mutants import Mutant

ATTEMPTS = "40_attempts.sql"
DEAD = ("test_40_attempts.py::test_a_dead_fence_changes_nothing_and_is_told_that_it_is_stale",)
NOBODY = ("test_40_attempts.py::test_without_a_claim_nothing_can_be_written",)
LOCKED = ("test_00_batches.py::test_in_a_batch_stale_and_locked_items_delay_and_change_no_other",)
TWENTY = ("test_40_claims.py::test_after_twenty_deferrals_the_run_ends_in_the_transaction_of_the_refused_one",)
HOUR = ("test_40_claims.py::test_half_an_hour_from_the_first_deferral_is_the_end_too",)
BUDGET = ("test_40_claims.py::test_the_budget_counts_since_an_attempt_last_began",)
TWICE = ("test_00_doors.py::test_a_door_asked_again_has_no_second_effect_and_gives_the_same_answer",)

MUTANTS = [
    Mutant(
        "the gate looks at the fence",
        ATTEMPTS,
        "case when t.fence is null or t.fence is distinct from i.fence then",
        "case when t.fence is null then",
        DEAD,
    ),
    Mutant(
        "the gate looks at the fence of a lone item",
        ATTEMPTS,
        "case when t.fence is null or t.fence is distinct from _fences[1] then",
        "case when t.fence is null then",
        DEAD,
    ),
    Mutant(
        "no fence is nobody's right", ATTEMPTS, "case when t.fence is null or", "case when t.rid is null or", NOBODY, 2
    ),
    Mutant(
        "a batch waits for no row",
        ATTEMPTS,
        "order by t.rid for no key update skip locked) l);",
        "order by t.rid for no key update) l);",
        LOCKED,
    ),
    Mutant(
        "what is locked elsewhere is not held",
        ATTEMPTS,
        "when v_missed and (not",
        "when false and (not",
        LOCKED,
    ),
    Mutant(
        "the gate locks before it looks",
        ATTEMPTS,
        "perform from fencepost.task t where t.rid = any (v_want) order by t.rid for no key update;",
        "perform from fencepost.task t where t.rid = any (v_want) order by t.rid;",
        ("test_00_ground.py::test_what_is_judged_after_waiting_for_a_lock_is_judged_anew",),
    ),
    Mutant(
        "a begin is told once",
        ATTEMPTS,
        "h.how = 'held' and h.state = 'running' and not h.begun as new",
        "h.how = 'held' and h.state = 'running' as new",
        TWICE,
    ),
    Mutant(
        "a begin is the start of a new count",
        ATTEMPTS,
        "seq = t.seq + 1, deferrals = 0, deferred_since = null\n           where t.rid = any (array(select h.rid",
        "seq = t.seq + 1\n           where t.rid = any (array(select h.rid",
        BUDGET,
    ),
    Mutant(
        "a loss is the start of a new count",
        "85_recovery.sql",
        "losses = t.losses + 1, deferrals = 0, deferred_since = null,",
        "losses = t.losses + 1,",
        BUDGET,
        2,
    ),
    Mutant(
        "a retry is the start of a new count",
        "80_terminal.sql",
        "deferrals = 0, deferred_since = null, ready_at",
        "ready_at",
        BUDGET,
    ),
    Mutant(
        "a park is the start of a new count",
        "60_suspension.sql",
        "losses = 0, deferrals = 0, deferred_since = null, progress",
        "losses = 0, progress",
        BUDGET,
    ),
    Mutant("twenty deferrals", ATTEMPTS, "v_task.n > 20", "v_task.n > 21", TWENTY),
    Mutant(
        "half an hour",
        ATTEMPTS,
        "v_now - v_task.since >= interval '30 minutes'",
        "v_now - v_task.since > interval '30 minutes'",
        HOUR,
    ),
    Mutant(
        "a missing workflow eats no budget",
        ATTEMPTS,
        "v_recovery := _reasons[h.ord] <> 'workflow_missing';",
        "v_recovery := true;",
        ("test_40_returns.py::test_a_workflow_this_worker_does_not_have_costs_thirty_seconds_and_nothing_else",),
    ),
    Mutant(
        "a deferral is a delay",
        ATTEMPTS,
        "due_at = v_now + _delay_mss[h.ord] * interval '1 ms', ready_at",
        "due_at = v_now, ready_at",
        ("test_40_returns.py::test_a_workflow_this_worker_does_not_have_costs_thirty_seconds_and_nothing_else",),
    ),
    Mutant(
        "what has begun is not deferred",
        ATTEMPTS,
        "if h.begun and (v_task.on_lost <> 'replay' or v_task.opaque) then",
        "if false then",
        ("test_40_returns.py::test_an_attempt_whose_code_may_have_run_is_not_deferred",),
    ),
    Mutant(
        "a deferral asked again gets its answer",
        ATTEMPTS,
        "where e.ended in ('deferred', 'exhausted');",
        "where false;",
        TWICE,
    ),
    Mutant(
        "a give-back asked again gets its answer",
        ATTEMPTS,
        "fencepost.ended_(h.rid, _fences[h.ord]) = 'given_back'",
        "false",
        TWICE,
    ),
    Mutant(
        "five losses",
        "85_recovery.sql",
        "when t.losses + 1 >= 5 then",
        "when t.losses + 1 >= 6 then",
        ("test_40_claims.py::test_after_five_losses_without_a_new_boundary_the_run_is_unknown",),
    ),
    Mutant(
        "a boundary clears the suspect",
        "50_steps.sql",
        "update fencepost.task t set losses = 0, seq = v_seq",
        "update fencepost.task t set seq = v_seq",
        ("test_40_claims.py::test_after_five_losses_without_a_new_boundary_the_run_is_unknown",),
    ),
    Mutant(
        "what is not held goes back (40.14)",
        "85_recovery.sql",
        "where t.holder = _id and t.request <= _answered\n     and not exists",
        "where false and t.holder = _id and t.request <= _answered\n     and not exists",
        ("test_40_claims.py::test_what_an_answered_request_gave_and_the_worker_does_not_hold_goes_back",),
    ),
    Mutant(
        "what was not answered is not given back",
        "85_recovery.sql",
        "t.request <= _answered",
        "true",
        ("test_40_claims.py::test_what_an_answered_request_gave_and_the_worker_does_not_hold_goes_back",),
        3,
    ),
]
