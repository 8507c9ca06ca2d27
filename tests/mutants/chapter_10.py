"""Guards of lanes and of admission."""

from tests.mutants import Mutant

LANES, ADMISSION = "10_lanes.sql", "30_admission.sql"
NAMES = (
    "test_10_lanes.py::test_the_lane_of_a_release_is_named_by_the_rule",
    "test_10_lanes.py::test_lanes_are_named_as_the_law_says",
)
TWINS = (
    "test_10_lanes.py::test_two_releases_never_share_a_lane_and_the_twin_is_told_who_has_it",
    "test_10_lanes.py::test_of_two_twins_that_register_at_once_one_is_refused",
)
DEV = ("test_10_lanes.py::test_a_production_id_that_looks_like_dev_is_refused",)
JSON = ("test_30_admission.py::test_launches_are_compared_as_json_values",)
CONFLICT = ("test_30_admission.py::test_a_changed_launch_under_the_same_id_is_a_conflict_that_says_what_differs",)
BAD = ("test_30_admission.py::test_bad_ids_and_names_are_refused_before_any_write_and_by_a_constraint",)
POLICY = ("test_30_bounds.py::test_a_launch_has_the_policy_of_its_source",)
REPAIR = (
    "test_30_admission.py::test_a_run_that_lost_its_queue_entry_is_re_entered_only_when_repair_is_asked",
    "test_30_admission.py::test_a_repair_of_another_launch_is_a_conflict_and_of_an_ended_run_a_replay",
)
BOUND = (
    "test_30_bounds.py::test_a_run_past_its_claim_bound_fails_when_anybody_asks_and_no_worker_is_needed",
    "test_30_bounds.py::test_the_claim_bound_ends_with_the_first_claim",
    "test_30_bounds.py::test_the_bound_counts_from_the_instant_the_run_is_due",
)
ROOTS = ("test_30_ids.py::test_launches_of_a_batch_have_key_roots_of_their_own",)
LINE = ("test_20_turns.py::test_within_an_organisation_priority_then_readiness_and_waiting_counts_as_priority",)

ALIKE = ("test_30_admission.py::test_a_launch_admitted_alone_leaves_what_it_leaves_among_others",)
OF_MANY = {
    "a taken id of many sends each by itself": (
        "when unique_violation or check_violation or",
        "when check_violation or",
    ),
    "a bad name of many sends each by itself": (
        "when unique_violation or check_violation or",
        "when unique_violation or",
    ),
    "a negative delay of many is none": (
        "nullif(greatest(i.delay_ms, 0), 0)",
        "nullif(i.delay_ms, 0)",
    ),
    "a negative delay of one is none": (
        "nullif(greatest(_delay_ms, 0), 0)",
        "nullif(_delay_ms, 0)",
    ),
    "an unknown source of many sends each by itself": (
        " or not_null_violation then",
        " then",
    ),
    "no source of many is api": (
        "where p.source = coalesce(i.source, 'api') limit 1) p",
        "where p.source = coalesce(i.source, 'cron') limit 1) p",
    ),
    "the bound of many counts from the due instant": (
        "coalesce(i.later, v_now) + i.bound * interval '1 ms' end, 1, coalesce(i.",
        "v_now + i.bound * interval '1 ms' end, 1, coalesce(i.",
    ),
    "an asked bound of many is no policy's": (
        "coalesce(i.claim_ms, p.claim_ms) as bound",
        "p.claim_ms as bound",
    ),
    "a minute of waiting of many is one of priority": (
        "v_now - i.turn * interval '60 s',",
        "v_now - i.turn * interval '30 s',",
    ),
}

ONCE = ("test_30_admission.py::test_a_launch_admitted_alone_leaves_what_it_leaves_among_others",)
TOLD = "test_00_ground.py::test_a_worker_that_sleeps_is_told_of_work_in_its_lane_and_nobody_else_is"
MUTANTS = [
    Mutant(
        "a sleeper is told of one launch",
        ADMISSION,
        "if v_asleep then perform fencepost.rouse_(_lane, 1)",
        "if false then perform fencepost.rouse_(_lane, 1)",
        (TOLD,),
    ),
    Mutant("no two launches of a batch share a key root", ADMISSION, "(v_seed, i.rid)", "(v_seed, 0)", ROOTS),
    Mutant("no two batches share key roots", ADMISSION, "(v_seed, i.rid)", "(md5('')::uuid, i.ord)", ROOTS),
    Mutant("a sleeper is told of a batch", ADMISSION, "  if v_asleep then\n", "  if false then\n", (TOLD,)),
    Mutant(
        "a lane that is said once is every launch's",
        ADMISSION,
        "from unnest(fencepost.spread_(_lanes, cardinality(_ids))) l(lane)",
        "from unnest(_lanes) l(lane)",
        ("../races/test_faults_wakes.py::test_many_runs_of_one_call_wake_as_many_as_there_is_work_for",),
    ),
    *(
        Mutant(
            f"what is said once of {column} counts for all",
            ADMISSION,
            f"fencepost.spread_(_{column}, cardinality(_ids)),",
            f"_{column},",
            ONCE,
        )
        for column in ("priorities", "claim_mss", "delay_mss", "sources")
    ),
    Mutant("a lane's name is lower case", LANES, 'lower(_id collate "C")', "_id", NAMES),
    Mutant(
        "a lane's name has no outer _", LANES, "select btrim(regexp_replace(", "select concat(regexp_replace(", NAMES
    ),
    Mutant("a run of strange characters is one _", LANES, "'[^a-z0-9_]+'", "'[^a-z0-9_]'", NAMES),
    Mutant(
        "a long name is cut before a _", LANES, "rtrim(left(_name, _most - 9), '_')", "left(_name, _most - 9)", NAMES
    ),
    Mutant("a suffix of dev has 32 characters", LANES, ", 32), '')", ", 40), '')", NAMES),
    Mutant("a release has 40", LANES, ", 40), '')", ", 50), '')", NAMES),
    Mutant("a twin is refused", LANES, "if v_found.release <> _release then", "if false then", TWINS),
    Mutant("what looks like dev is refused", LANES, "(v_norm = 'dev' or v_norm like 'dev\\_%')", "v_norm = 'dev'", DEV),
    Mutant(
        "dev in other letters is refused",
        LANES,
        "(v_norm = 'dev' or v_norm like 'dev\\_%')",
        "v_norm like 'dev\\_%'",
        DEV,
    ),
    Mutant(
        "a nameless release is refused",
        LANES,
        "if v_name is null or _release ~ '[\\u0001-\\u001f\\u007f-\\u009f\\u2028\\u2029]' or",
        "if v_name is null or",
        ("test_10_lanes.py::test_a_release_that_names_nothing_is_refused",),
    ),
    Mutant(
        "one name, one lane",
        LANES,
        'name          text collate "C" not null unique check',
        'name          text collate "C" not null check',
        ("test_10_lanes.py::test_two_releases_in_one_lane_are_impossible",),
    ),
    Mutant("inputs are compared as jsonb", ADMISSION, "x.input::jsonb = _input::jsonb", "x.input = _input", JSON),
    Mutant("another input is another launch", ADMISSION, " and x.input::jsonb = _input::jsonb", "", CONFLICT),
    Mutant("another name is another launch", ADMISSION, " and x.name = _name", "", CONFLICT),
    Mutant(
        "another kind is another launch",
        ADMISSION,
        "x.kind = 'workflow' and ",
        "",
        ("test_70_plans.py::test_a_workflow_does_not_take_the_place_of_a_plan",),
    ),
    Mutant(
        "another contract is another launch", ADMISSION, " and x.contract = coalesce(_contract, '{}')", "", CONFLICT
    ),
    Mutant(
        "bad names are refused before any write",
        ADMISSION,
        " and fencepost.good_names_(_org, _id, _name)\n",
        "\n",
        BAD,
    ),
    Mutant(
        "bad names are told apart from an id that was forgotten",
        ADMISSION,
        "not coalesce(fencepost.good_names_(_org, _id, _name), false) or ",
        "",
        BAD,
    ),
    Mutant(
        "a source without a policy is told apart from an id that was forgotten",
        ADMISSION,
        " or not exists (select from fencepost.policy p where p.source = coalesce(_source, 'api')) then",
        " then",
        ALIKE,
    ),
    Mutant(
        "an id that nobody gave begins with the time",
        ADMISSION,
        "'run-' || lpad(to_hex((extract(epoch from fencepost.now_()) * 1000)::bigint), 12, '0') ||",
        "'run-' ||",
        ("test_30_ids.py",),
    ),
    Mutant(
        "a name has no control characters",
        "00_ground.sql",
        " and _org || _id || _name !~ '[\\u0001-\\u001f\\u007f-\\u009f\\u2028\\u2029]'",
        "",
        BAD,
    ),
    Mutant(
        "what a control character is, no locale decides",
        "00_ground.sql",
        "_name !~ '[\\u0001-\\u001f\\u007f-\\u009f\\u2028\\u2029]'",
        "_name !~ '[[:cntrl:]]'",
        ("test_00_locales.py::test_the_language_of_the_database_changes_nothing",),
    ),
    Mutant(
        "the index of ids is in no language's order",
        "15_shapes.sql",
        '  id           text collate "C" not null,',
        "  id           text not null,",
        ("test_00_locales.py::test_no_index_is_in_the_order_of_a_language",),
    ),
    Mutant("a name is not blank", "00_ground.sql", " and '' not in (btrim(_org), btrim(_id), btrim(_name))", "", BAD),
    Mutant(
        "no source is api",
        ADMISSION,
        "where p.source = coalesce(_source, 'api') and",
        "where p.source = coalesce(_source, 'cron') and",
        POLICY,
    ),
    Mutant("api waits ten seconds", ADMISSION, "('api', 100, 10000, 0)", "('api', 100, 20000, 0)", POLICY),
    Mutant(
        "cron is patient and quiet",
        ADMISSION,
        "('cron', -10, 1800000, 1800000)",
        "('cron', 0, 1800000, 1800000)",
        POLICY,
    ),
    Mutant(
        "the bound counts from the due instant",
        ADMISSION,
        "coalesce(i.later, v_now) + i.bound * interval '1 ms' end, 1, coalesce(_",
        "v_now + i.bound * interval '1 ms' end, 1, coalesce(_",
        BOUND,
    ),
    Mutant(
        "an asked bound is no policy's",
        ADMISSION,
        "coalesce(_claim_ms, p.claim_ms) as bound",
        "p.claim_ms as bound",
        ("test_30_bounds.py::test_callers_may_override_the_policy",),
    ),
    Mutant(
        "the bound is reached at its instant",
        "80_terminal.sql",
        "t.state = 'queued' and t.claim_by <= _now",
        "t.state = 'queued' and t.claim_by < _now",
        BOUND,
    ),
    Mutant(
        "a bound ends with the first claim",
        "41_claims.sql",
        "seq = t.seq + 1, claim_by = null,",
        "seq = t.seq + 1, claim_by = t.claim_by,",
        BOUND,
    ),
    Mutant("nothing is repaired unasked", ADMISSION, "if _repair and repair_needed", "if repair_needed", REPAIR),
    Mutant(
        "a repair goes on with the numbers",
        ADMISSION,
        "coalesce((select max(a.number) from fencepost.attempt a where a.rid = v_run.rid), 0)",
        "0",
        REPAIR,
    ),
    Mutant(
        "an ended run is not repaired",
        ADMISSION,
        " and not exists (select from fencepost.outcome o where o.rid = x.rid),",
        ",",
        REPAIR,
    ),
    Mutant(
        "a repair of another launch enters nothing",
        ADMISSION,
        "if _repair and repair_needed and answer = 'replayed' and",
        "if _repair and repair_needed and",
        REPAIR,
    ),
    Mutant(
        "a minute of waiting is one of priority",
        ADMISSION,
        "v_now - v_turn * interval '60 s',",
        "v_now - v_turn * interval '30 s',",
        LINE,
    ),
    Mutant(
        "SQL callers are programs",
        ADMISSION,
        "source text default 'program'",
        "source text default 'api'",
        ("test_30_bounds.py::test_sql_callers_default_to_program",),
    ),
    Mutant(
        "an SQL caller's bound is none",
        ADMISSION,
        "on_lost, -1, null",
        "on_lost, null, null",
        ("test_30_bounds.py::test_inside_a_callers_transaction_the_bound_does_not_apply_unless_asked",),
    ),
    *(Mutant(guard, ADMISSION, text, instead, ALIKE) for guard, (text, instead) in OF_MANY.items()),
]
