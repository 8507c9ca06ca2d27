"""Guards of attempts."""

from tests.mutants import Mutant

ATTEMPTS, CLAIMS = "40_attempts.sql", "41_claims.sql"
TREES = ("test_40_trees.py",)
DEAD = ("test_40_attempts.py::test_a_dead_fence_changes_nothing_and_is_told_that_it_is_stale",)
NOBODY = ("test_40_attempts.py::test_without_a_claim_nothing_can_be_written",)
FENCES = ("test_40_attempts.py::test_each_run_of_a_claim_has_a_fence_of_its_own_and_none_comes_twice",)
NUMBERS = ("test_40_attempts.py::test_numbers_are_one_two_three_whatever_ended_the_legs",)
RACE = ("test_40_attempts.py::test_of_many_racing_claimants_at_most_one_wins",)
LOCKED = ("test_00_batches.py::test_in_a_batch_stale_and_locked_items_delay_and_change_no_other",)
REQUEST = (
    "test_40_claims.py::test_a_request_asked_again_gives_the_same_attempts",
    "test_40_claims.py::test_a_request_older_than_the_newest_is_closed",
    "test_40_claims.py::test_of_one_request_asked_twice_at_once_the_second_waits_and_gets_the_same",
)
SUSPECT = ("test_40_claims.py::test_a_suspect_is_claimed_only_by_a_worker_that_holds_nothing_else",)
TWENTY = ("test_40_claims.py::test_after_twenty_deferrals_the_run_ends_in_the_transaction_of_the_refused_one",)
HOUR = ("test_40_claims.py::test_half_an_hour_from_the_first_deferral_is_the_end_too",)
BUDGET = ("test_40_claims.py::test_the_budget_counts_since_an_attempt_last_began",)
TWICE = ("test_00_doors.py::test_a_door_asked_again_has_no_second_effect_and_gives_the_same_answer",)
LINE = ("test_20_turns.py::test_behind_the_head_of_a_line_stands_nothing_but_what_waits_in_it",)
LANE = ("test_20_turns.py::test_no_head_of_another_lane_is_come_by",)
HEADS = (
    "test_20_turns.py::test_of_many_organisations_the_head_of_each_line_is_taken_or_the_next_where_another_has_it",
)
TURNS = ("test_20_turns.py", "test_40_marks.py")
STOP = ("test_40_attempts.py::test_a_stopping_worker_gives_back_what_it_never_dispatched_and_loses_the_rest_itself",)

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
        "a quick look at a tree reads what lives",
        CLAIMS,
        "v_tree := _root || case when _whole then",
        "v_tree := _root || case when true then",
        TREES,
    ),
    Mutant(
        "a whole look at a tree finds who lives below the dead",
        CLAIMS,
        "v_tree := _root || case when _whole then",
        "v_tree := _root || case when false then",
        TREES,
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
    Mutant("numbers are without gaps", CLAIMS, "number = t.number + 1", "number = t.number + 2", NUMBERS),
    Mutant(
        "a fence is never lent twice", CLAIMS, "fencepost.random_id_(v_seed, t.rid)", "md5(t.rid::text)::uuid", DEAD
    ),
    Mutant("no two runs of a claim share a fence", CLAIMS, "(v_seed, t.rid)", "(v_seed, 0)", FENCES),
    Mutant(
        "a claim is for whoever locked",
        CLAIMS,
        "order by t.turn_at, t.rid limit q.quota for no key update skip locked) t)",
        "order by t.turn_at, t.rid limit q.quota) t)",
        RACE,
    ),
    Mutant(
        "begun is recorded at the claim only for replay", CLAIMS, "begun = t.on_lost = 'replay'", "begun = true", STOP
    ),
    Mutant(
        "begun at the claim where loss means replay",
        CLAIMS,
        "begun = t.on_lost = 'replay'",
        "begun = false",
        ("test_40_returns.py",),
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
    Mutant(
        "a repeated request gives the same",
        CLAIMS,
        "else 'repeated' end;",
        "else 'new' end;",
        REQUEST,
    ),
    Mutant(
        "an older request is closed",
        CLAIMS,
        "when _request < v_was then 'closed' ",
        "",
        REQUEST,
    ),
    Mutant(
        "a request is new once",
        CLAIMS,
        " and i.request < _request",
        "",
        REQUEST,
    ),
    Mutant(
        "the buried claim nothing", CLAIMS, "i.request < _request and i.ended_at is null", "i.request < _request", STOP
    ),
    Mutant("the buried are told", CLAIMS, "when not found or v_ended is not null then", "when not found then", STOP),
    Mutant(
        "what is delayed is not in the line",
        CLAIMS,
        "and t.due_at is null\n               and t.losses = 0 and (t.turn_at",
        "and t.losses = 0 and (t.turn_at",
        LINE,
    ),
    Mutant(
        "what another has is not in the line",
        CLAIMS,
        "t.org = o.org and t.state = 'queued' and",
        "t.org = o.org and",
        LINE,
    ),
    Mutant(
        "a suspect is not in the line",
        CLAIMS,
        "and t.losses = 0 and (t.turn_at, t.rid) >=",
        "and (t.turn_at, t.rid) >=",
        LINE,
    ),
    Mutant("a suspect is for the empty-handed", CLAIMS, "  if _alone then\n", "  if true then\n", SUSPECT),
    Mutant(
        "a suspect comes alone",
        CLAIMS,
        "order by t.turn_at, t.rid limit 1 for no key update skip locked) s;",
        "order by t.turn_at, t.rid limit 0 for no key update skip locked) s;",
        SUSPECT,
    ),
    Mutant(
        "a scan is its lane's",
        CLAIMS,
        "t.lane = _lane and t.org > o.org and",
        "t.org > o.org and",
        LANE,
    ),
    Mutant(
        "a scan that has come round is its lane's",
        CLAIMS,
        "o.lap = 0 and t.lane = _lane and",
        "o.lap = 0 and",
        LANE,
    ),
    Mutant(
        "a line is its lane's, from the front",
        CLAIMS,
        "where h.rid is null and t.lane = _lane and t.org = o.org",
        "where h.rid is null and t.org = o.org",
        LINE,
    ),
    Mutant(
        "a line is its lane's, from a mark",
        CLAIMS,
        "where t.lane = _lane and t.org = m.org",
        "where t.org = m.org",
        ("test_10_lanes.py::test_work_of_another_lane_is_never_claimed", "test_40_marks.py"),
    ),
    Mutant(
        "where somebody else has the head of a line, it is walked",
        CLAIMS,
        "where h.rid is null and t.lane",
        "where false and t.lane",
        HEADS,
    ),
    Mutant(
        "the head of a line is its first",
        CLAIMS,
        "order by t.lane, t.org, t.turn_at, t.rid limit 1",
        "order by t.lane, t.org, t.turn_at desc, t.rid limit 1",
        HEADS,
        2,
    ),
    Mutant(
        "the head of a line still waits",
        CLAIMS,
        "t.rid = o.rid and t.state = 'queued' and",
        "t.rid = o.rid and",
        ("test_40_attempts.py::test_of_many_racing_claimants_at_most_one_wins",),
    ),
    Mutant(
        "turns begin behind the cursor",
        CLAIMS,
        'select _cursor collate "C", null::timestamptz, null::bigint, 0, 0',
        "select ''::text collate \"C\", null::timestamptz, null::bigint, 0, 0",
        TURNS,
    ),
    Mutant(
        "organisations share alike",
        CLAIMS,
        "order by pick.rank, pick.k limit _n",
        "order by pick.k, pick.rank limit _n",
        TURNS,
        2,
    ),
    Mutant(
        "a mark is where a claim goes on",
        CLAIMS,
        " and (t.turn_at, t.rid) > (to_timestamp(m.turn), m.rid)",
        "",
        ("test_40_marks.py::test_a_claim_from_marks_takes_what_is_behind_them_and_organisations_share_alike",),
    ),
    Mutant(
        "a look says how long it took",
        CLAIMS,
        "(extract(epoch from fencepost.stopwatch_() - v_began) * 1000000)::bigint",
        "0",
        ("test_40_marks.py::test_a_claim_says_how_long_it_looked_from_the_front_and_nothing_where_it_did_not",),
    ),
    Mutant("no more than asked", CLAIMS, "order by pick.rank, pick.k limit _n", "order by pick.rank, pick.k", TURNS, 2),
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
        "inputs of a claim are bounded",
        CLAIMS,
        "<= 8388608 then r.input end",
        "<= 83886080 then r.input end",
        ("test_40_claims.py::test_a_large_input_travels_alone",),
        2,
    ),
    Mutant(
        "inputs of a claim are counted in bytes",
        CLAIMS,
        "sum(octet_length(r.input)) over",
        "sum(length(r.input)) over",
        ("test_40_claims.py::test_a_large_input_travels_alone",),
        2,
    ),
    Mutant(
        "histories of a claim are bounded",
        CLAIMS,
        "least(131072, 8388608 / cardinality(_rids))",
        "131072",
        ("test_40_claims.py::test_the_histories_of_many_runs_share_one_claim",),
    ),
    Mutant(
        "histories of a claim that is asked again are bounded",
        CLAIMS,
        "fencepost.page_(t.rid, -1, '', 65536)",
        "fencepost.page_(t.rid, -1, '', 131072)",
        ("test_40_claims.py::test_the_histories_of_many_runs_share_one_claim",),
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
