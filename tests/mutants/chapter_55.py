"""Chapter 55, the sweep that wakes its askers (85), and what is left when runs are forgotten (95)."""

# ruff: noqa: E501 - a guard is quoted as it stands

from tests.mutants import Mutant

SHARED = "55_shared.sql"
RECOVERY = "85_recovery.sql"
RETENTION = "95_retention.sql"

ORG = "test_50_org.py::"
UNKNOWN = "test_50_org_unknown.py::"
RACES = "tests/races/test_org.py::"

MUTANTS = (
    Mutant(
        "an entry is held while its marks fence lives",
        SHARED,
        "              when t.fence = b.fence then 'held'\n",
        "",
        (f"{RACES}test_of_many_who_ask_at_once_one_does_it",),
    ),
    Mutant(
        "an entry is let go with its holders fence",
        SHARED,
        "when t.fence = b.fence then 'held'",
        "when true then 'held'",
        (f"{UNKNOWN}test_when_the_run_that_left_it_has_ended_the_next_asker_answers_for_it",),
    ),
    Mutant(
        "a lost mark that is not repeatable is unknown to all",
        SHARED,
        "              when b.repeatable then 'free'\n              else 'unknown' end,",
        "              else 'free' end,",
        (f"{RACES}test_the_holder_is_killed",),
    ),
    Mutant(
        "a value is kept for the next asker",
        SHARED,
        "              when b.state = 'kept' then 'kept'\n",
        "",
        (f"{ORG}test_it_is_done_once_and_given_to_every_later_asker",),
    ),
    Mutant(
        "an entry is the organisations own",
        SHARED,
        "where s.org = v_org and s.name = _name",
        "where s.name = _name",
        (f"{ORG}test_another_organisation_another_key_and_another_epoch_are_other_entries",),
    ),
    Mutant(
        "a call stays with its entry",
        SHARED,
        "    select a.eid into v_eid from fencepost.asker a where a.rid = _rid and a.name = _name and a.ordinal = _ordinal;\n",
        "    v_eid := null;\n",
        (f"{UNKNOWN}test_a_call_stays_with_the_epoch_of_its_first_asking",),
    ),
    Mutant(
        "the entry is judged under its lock",
        SHARED,
        "    perform from fencepost.shared s where s.eid = v_eid for no key update;\n",
        "    perform from fencepost.shared s where s.eid = v_eid;\n",
        (
            f"{RACES}test_of_two_who_may_take_an_unknown_over_one_does",
            f"{RACES}test_the_run_is_locked_before_the_entry",
        ),
    ),
    Mutant(
        "a dead fence and a cancelling run take nothing",
        SHARED,
        "if h.how <> 'held' or h.state = 'cancelling' then",
        "if false then",
        (f"{ORG}test_a_dead_fence_takes_nothing",),
    ),
    Mutant(
        "a resolved call is answered from its record",
        SHARED,
        "  if own.state in ('kept', 'failed') then",
        "  if false then",
        (f"{RACES}test_of_many_who_ask_at_once_one_does_it",),
    ),
    Mutant(
        "a mark brought along by a redrive is unknown to it",
        SHARED,
        "if v_how = 'free' and own.state = 'marked' and not own.repeatable",
        "if false and own.state = 'marked' and not own.repeatable",
        (f"{UNKNOWN}test_a_redrive_into_a_later_epoch_does_not_do_what_its_origin_may_have_done",),
    ),
    Mutant(
        "who holds it is answered the same again",
        SHARED,
        "and j.ordinal = _ordinal and j.fence = _fence then",
        "and false then",
        (f"{ORG}test_an_answer_that_was_lost_is_given_again",),
    ),
    Mutant(
        "an unknown is taken over only by permission",
        SHARED,
        "if v_how = 'unknown' and _again then",
        "if v_how = 'unknown' then",
        (f"{UNKNOWN}test_an_operator_resolves_it_once_for_everybody",),
    ),
    Mutant(
        "whoever is told bears the mark",
        SHARED,
        "    if own.state is distinct from 'marked' then\n",
        "    if false then\n",
        (f"{UNKNOWN}test_an_asker_resolved_by_itself_settles_nothing_for_others",),
    ),
    Mutant(
        "when its run has ended the next asker answers for it",
        SHARED,
        "     where s.eid = v_eid and j.how = 'unknown' and",
        "     where false and",
        (f"{UNKNOWN}test_when_the_run_that_left_it_has_ended_the_next_asker_answers_for_it",),
    ),
    Mutant(
        "nobody is woken while it is held",
        RECOVERY,
        "          or x.how = 'waits' and j.how <> 'held'\n",
        "          or x.how = 'waits'\n",
        (f"{ORG}test_who_asks_while_another_holds_it_parks_and_is_woken_by_its_completion",),
    ),
    Mutant(
        "who was told goes on when it is resolved",
        RECOVERY,
        "          or x.how = 'told' and j.how in ('kept', 'free') and k.state = 'unknown') x",
        "          ) x",
        (f"{UNKNOWN}test_an_operator_resolves_it_once_for_everybody",),
    ),
    Mutant(
        "who was told stays so while it is unknown",
        RECOVERY,
        "x.how = 'told' and j.how in ('kept', 'free')",
        "x.how = 'told' and j.how in ('kept', 'free', 'unknown')",
        (f"{UNKNOWN}test_an_asker_resolved_by_itself_settles_nothing_for_others",),
    ),
    Mutant(
        "one of those who could do it is woken at a time",
        RECOVERY,
        "     where x.living is null or x.stands <> 'free' or x.nth = 1\n",
        "",
        (f"{RACES}test_of_those_who_could_take_it_on_one_is_woken_at_a_time",),
    ),
    Mutant(
        "a beat wakes who waits",
        RECOVERY,
        "  perform fencepost.wake_askers_(fencepost.entries_asked_(500), v_now, 500);\n",
        "",
        (f"{ORG}test_a_lost_holder_lets_go_of_it",),
    ),
    Mutant(
        "a waiter that has ended is forgotten",
        RECOVERY,
        "      delete from fencepost.asker x where x.rid = a.rid and x.name = a.name and x.ordinal = a.ordinal;\n",
        "",
        (f"{RACES}test_a_cancelled_waiter_is_forgotten_by_the_sweep",),
    ),
    Mutant(
        "a forgotten run leaves its value",
        RETENTION,
        "value = case when b.state = 'kept' then b.value end, rid = null",
        "value = null, rid = null",
        ("test_95_shared.py::test_what_was_shared_outlives_its_run_until_a_later_epoch_has_taken_its_place",),
    ),
    Mutant(
        "a forgotten run leaves its unknown",
        RETENTION,
        " when b.state = 'marked' and not b.repeatable then 'unknown' end,",
        " end,",
        ("test_95_shared.py::test_an_unknown_that_is_forgotten_with_its_run_stays_unknown",),
    ),
    Mutant(
        "the last epoch stays however old",
        RETENTION,
        "       and exists (select from fencepost.shared n where n.org = s.org and n.name = s.name and n.epoch <> s.epoch and n.made_at > s.made_at)\n",
        "",
        ("test_95_shared.py::test_what_was_shared_outlives_its_run_until_a_later_epoch_has_taken_its_place",),
    ),
    Mutant(
        "a page of entries begins anywhere",
        RECOVERY,
        "v_from := v_first + floor(random() * (v_last - v_first + 1))::bigint;",
        "v_from := v_first;",
        (f"{RACES}test_a_page_of_entries_is_bounded_and_none_is_left_out_for_good",),
    ),
    Mutant(
        "a page of entries is wrapped",
        RECOVERY,
        "limit _most - cardinality(v_page));",
        "limit 0);",
        (f"{RACES}test_a_page_of_entries_is_bounded_and_none_is_left_out_for_good",),
    ),
)
