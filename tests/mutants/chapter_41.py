"""Guards of claims, and of turns."""

from tests.mutants import Mutant

CLAIMS = "41_claims.sql"
TREES = ("test_40_trees.py",)
DEAD = ("test_40_attempts.py::test_a_dead_fence_changes_nothing_and_is_told_that_it_is_stale",)
FENCES = ("test_40_attempts.py::test_each_run_of_a_claim_has_a_fence_of_its_own_and_none_comes_twice",)
NUMBERS = ("test_40_attempts.py::test_numbers_are_one_two_three_whatever_ended_the_legs",)
RACE = ("test_40_attempts.py::test_of_many_racing_claimants_at_most_one_wins",)
REQUEST = (
    "test_40_claims.py::test_a_request_asked_again_gives_the_same_attempts",
    "test_40_claims.py::test_a_request_older_than_the_newest_is_closed",
    "test_40_claims.py::test_of_one_request_asked_twice_at_once_the_second_waits_and_gets_the_same",
)
SUSPECT = ("test_40_claims.py::test_a_suspect_is_claimed_only_by_a_worker_that_holds_nothing_else",)
LINE = ("test_20_turns.py::test_behind_the_head_of_a_line_stands_nothing_but_what_waits_in_it",)
SOLE = ("test_40_claims.py::test_of_claimants_that_race_for_the_only_run_one_gets_it",)
ONLY = ("test_20_turns.py::test_a_worker_that_holds_nothing_takes_the_only_run_and_of_several_those_whose_turn_it_is",)
LANE = ("test_20_turns.py::test_no_head_of_another_lane_is_come_by",)
HEADS = (
    "test_20_turns.py::test_of_many_organisations_the_head_of_each_line_is_taken_or_the_next_where_another_has_it",
)
TURNS = ("test_20_turns.py", "test_40_marks.py")
STOP = ("test_40_attempts.py::test_a_stopping_worker_gives_back_what_it_never_dispatched_and_loses_the_rest_itself",)

MUTANTS = (
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
    *(
        Mutant(f"the only run: {guard}", CLAIMS, text, instead, ONLY)
        for guard, text, instead in (
            ("there are no more", "t.rid limit 2);", "t.rid limit 1);"),
            (
                "it is of this lane",
                "v_rids := array(select t.rid from fencepost.task t where t.lane = _lane and",
                "v_rids := array(select t.rid from fencepost.task t where",
            ),
            (
                "several are picked from",
                "if v_rids is null then v_rids := fencepost.pick_(",
                "if false then v_rids := fencepost.pick_(",
            ),
        )
    ),
    Mutant(
        "the only run: it is locked",
        CLAIMS,
        "where t.rid = v_rids[1] and t.state = 'queued' and t.due_at is null and t.losses = 0\n                for no key update skip locked);",
        "where t.rid = v_rids[1]);",
        SOLE,
    ),
    Mutant(
        "the only run: it still waits",
        CLAIMS,
        "where t.rid = v_rids[1] and t.state = 'queued' and",
        "where t.rid = v_rids[1] and",
        SOLE,
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
)
