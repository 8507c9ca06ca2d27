"""Chapters 69 and 72: rows and doors of plans."""

from tests.mutants import Mutant

ROWS = "69_plan_rows.sql"
DOORS = "72_plan_doors.sql"

MUTANTS = (
    # what may be a row
    Mutant(
        "a step is of a known kind",
        ROWS,
        "_kind in ('command', 'python', 'workflow')\n     and ",
        "",
        ("test_70_plans.py::test_an_admission_that_fails_leaves_nothing",),
    ),
    Mutant(
        "an end has its hour",
        ROWS,
        "     and (_state in ('succeeded', 'failed', 'skipped', 'cancelled')) = (_ended_at is not null)\n",
        "",
        ("test_70_rows.py::test_no_row_of_a_step_looks_like_nothing_that_can_be",),
    ),
    Mutant(
        "a delay has its hour",
        ROWS,
        "     and (_state = 'waiting') = (_due_at is not null)\n",
        "",
        ("test_70_rows.py::test_no_row_of_a_step_looks_like_nothing_that_can_be",),
    ),
    Mutant(
        "a step that runs has a try",
        ROWS,
        "     and (_state not in ('running', 'unknown') or _child is not null and _try >= 1)\n",
        "",
        ("test_70_rows.py::test_no_row_of_a_step_looks_like_nothing_that_can_be",),
    ),
    Mutant(
        "what is blocked waits for something",
        ROWS,
        "     and (_state <> 'blocked' or _needs > 0) and _needs >= 0;",
        "     and _needs >= 0;",
        ("test_70_rows.py::test_no_row_of_a_step_looks_like_nothing_that_can_be",),
    ),
    Mutant(
        "no row counts more than it may",
        ROWS,
        "check (flying between 0 and most)",
        "",
        ("test_70_rows.py::test_more_tries_than_slots_are_impossible",),
    ),
    Mutant(
        "a mode is one of four",
        ROWS,
        " check (mode in ('none', 'reference', 'quote', 'content'))",
        "",
        ("test_70_plans.py::test_an_admission_that_fails_leaves_nothing",),
    ),
    # doors
    Mutant(
        "what has no steps is refused",
        DOORS,
        " or coalesce(v_steps, 0) = 0\n",
        "\n",
        ("test_70_plans.py::test_what_cannot_be_a_run_is_refused_before_any_write",),
    ),
    Mutant(
        "every try has an id",
        DOORS,
        " > 200 then\n",
        " > 1000 then\n",
        ("test_70_plans.py::test_what_cannot_be_a_run_is_refused_before_any_write",),
    ),
    Mutant(
        "a changed plan is a conflict",
        DOORS,
        "r.name = _name and r.input::jsonb = v_plan then 'replayed'",
        "r.name = _name then 'replayed'",
        ("test_70_plans.py::test_the_same_plan_again_is_the_same_run_and_another_one_a_conflict",),
    ),
    Mutant(
        "a plan is not another kind of run",
        DOORS,
        "case when r.kind = 'plan' and r.name",
        "case when r.name",
        ("test_70_plans.py::test_a_plan_does_not_take_the_place_of_another_kind_of_run",),
    ),
    Mutant(
        "a need is there",
        DOORS,
        "  if v_edges <> v_wanted then raise",
        "  if false then raise",
        ("test_70_plans.py::test_an_admission_that_fails_leaves_nothing",),
    ),
    Mutant(
        "what is cancelling does not begin",
        DOORS,
        "case when h.how <> 'held' then h.how when h.state = 'cancelling' then 'cancelled' else 'begun' end;",
        "case when h.how <> 'held' then h.how else 'begun' end;",
        ("test_70_handoffs.py::test_only_a_living_fence_begins",),
    ),
    Mutant(
        "a begin asked again begins nothing",
        DOORS,
        "    if answer = 'begun' and not h.begun then",
        "    if answer = 'begun' then",
        ("test_70_handoffs.py::test_the_packet_of_an_attempt_is_one_packet",),
    ),
    Mutant(
        "a ceiling is the time out and a minute",
        DOORS,
        "coalesce(s.timeout_ms, 21600000) * interval '1 ms' + interval '60 s')",
        "coalesce(s.timeout_ms, 21600000) * interval '1 ms' + interval '59 s')",
        ("test_70_ceilings.py::test_silent_past_its_ceiling_it_is_lost",),
    ),
    Mutant(
        "an orphan is of this boot",
        DOORS,
        "me.id = _me and p.boot_id = me.boot_id and p.pid_namespace = me.pid_namespace",
        "me.id = _me and p.pid_namespace = me.pid_namespace",
        ("test_70_inquiry.py::test_orphans_are_told_to_workers_of_their_boot_and_namespace_only",),
    ),
    Mutant(
        "an orphan is of this namespace",
        DOORS,
        "me.id = _me and p.boot_id = me.boot_id and p.pid_namespace = me.pid_namespace",
        "me.id = _me and p.boot_id = me.boot_id",
        ("test_70_inquiry.py::test_orphans_are_told_to_workers_of_their_boot_and_namespace_only",),
    ),
    Mutant(
        "what a living worker holds is no orphan",
        DOORS,
        " or not exists (select from fencepost.incarnation i where i.id = t.holder and i.ended is null));",
        " or true);",
        ("test_70_inquiry.py::test_only_what_is_asked_for_and_only_orphans_are_adopted",),
    ),
    Mutant(
        "what a worker dropped is its own to adopt",
        DOORS,
        "(t.holder = _me and t.rid = any (_dropped) or not exists",
        "(not exists",
        ("test_70_inquiry.py::test_what_a_worker_does_not_hold_and_has_begun_is_not_given_back",),
    ),
    Mutant(
        "one plans worker adopts its own",
        DOORS,
        " and (_root is null or t.parent = _root)",
        "",
        ("test_70_inquiry.py::test_only_what_is_asked_for_and_only_orphans_are_adopted",),
    ),
    Mutant(
        "the buried adopt nothing",
        DOORS,
        "  if v_how = 'buried' then return next fencepost.not_claimed_('buried', null); return; end if;\n  if v_how = 'closed'",
        "  if v_how = 'buried' then v_how := 'new'; end if;\n  if v_how = 'closed'",
        ("test_70_inquiry.py::test_a_buried_worker_adopts_nothing",),
    ),
    Mutant(
        "a result is its organisations",
        DOORS,
        "   where r.org = _org and r.id = _id and s.id = _step and o.name = _name",
        "   where r.id = _id and s.id = _step and o.name = _name",
        ("test_70_sight.py::test_another_organisation_meets_a_plan_as_if_it_were_not_there",),
    ),
    Mutant(
        "a plan is its organisations",
        DOORS,
        "where r.org = _org and r.id = _id)\n",
        "where r.id = _id)\n",
        ("test_70_sight.py::test_another_organisation_meets_a_plan_as_if_it_were_not_there",),
    ),
)
