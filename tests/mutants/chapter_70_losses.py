"""Chapter 86, and what chapters 40, 85, 87 and 90 do for plans: opaque work, its loss, and who says what became of it."""

from tests.mutants import Mutant

RECOVERY = "85_recovery.sql"
INQUIRY = "86_inquiry.sql"
RESOLUTION = "87_resolution.sql"
LEDGER = "90_ledger.sql"

MUTANTS = (
    # loss
    Mutant(
        "silence loses nothing that has begun",
        RECOVERY,
        "  if t.opaque and t.begun and _reason not in ('process_gone', 'ceiling_passed', 'grace_over', 'operator') then return 'kept'; end if;\n",
        "",
        ("test_70_inquiry.py::test_silence_of_any_length_loses_nothing_that_has_begun",),
    ),
    Mutant(
        "what is dropped and has begun goes not back",
        RECOVERY,
        " and t.state = 'running' and not (t.opaque and t.begun)) then",
        " and t.state = 'running') then",
        ("test_70_inquiry.py::test_what_a_worker_does_not_hold_and_has_begun_is_not_given_back",),
    ),
    Mutant(
        "a living worker has a lease past the ceiling",
        RECOVERY,
        "p.ceiling_at + coalesce(i.lease_ms, 0) * interval '1 ms' <= _now",
        "p.ceiling_at <= _now",
        ("test_70_ceilings.py::test_a_worker_that_lives_has_a_lease_more",),
        count=2,
    ),
    Mutant(
        "ceilings page past what is locked",
        RECOVERY,
        "    v_seen := v_rids || v_seen;\n",
        "    v_seen := v_rids || v_seen; v_n := v_n + 100;\n",
        ("test_70_ceilings.py::test_a_locked_ceiling_hides_no_other",),
    ),
    Mutant(
        "a plan is told of a loss",
        RECOVERY,
        "  perform fencepost.tell_plan_(_rid, _now);\n  return 'unknown';",
        "  return 'unknown';",
        ("test_70_cancel.py::test_a_plan_is_unknown_when_nothing_moves_but_what_nobody_knows",),
    ),
    Mutant(
        "a plan is told of the return",
        RECOVERY,
        "  perform fencepost.tell_plan_(_rid, _now);\n  perform fencepost.rouse_(t.lane, 1);",
        "  perform fencepost.rouse_(t.lane, 1);",
        ("test_70_cancel.py::test_an_unknown_step_is_resolved_once_and_the_plan_goes_on",),
    ),
    Mutant(
        "what a process may have run is not deferred",
        "40_attempts.sql",
        "(v_task.on_lost <> 'replay' or v_task.opaque)",
        "v_task.on_lost <> 'replay'",
        ("test_70_ceilings.py::test_a_leg_that_has_begun_cannot_defer",),
    ),
    Mutant(
        "a loss said again is one",
        INQUIRY,
        "  if v_held[1].how = 'stale' then ",
        "  if false then ",
        ("test_70_inquiry.py::test_what_a_loss_means_was_declared",),
    ),
    Mutant(
        "what never ran costs nothing",
        INQUIRY,
        "  if _begun then\n",
        "  if true then\n",
        ("test_70_inquiry.py::test_a_process_that_never_got_the_word_is_tried_again_free_of_charge",),
    ),
    Mutant(
        "what never ran of a cancelling plan ends it",
        INQUIRY,
        "  if v_held[1].state = 'cancelling' then",
        "  if false then",
        ("test_70_ceilings.py::test_proof_of_death_in_a_cancelled_plan_ends_it",),
    ),
    Mutant(
        "an operator does not overrule a living worker",
        INQUIRY,
        "  if exists (select from fencepost.incarnation i where i.id = t.holder and i.ended is null) then",
        "  if false then",
        ("test_70_ceilings.py::test_an_operators_word_is_refused_where_it_can_be_known",),
    ),
    Mutant(
        "an operators word is of what has begun",
        INQUIRY,
        "t.fence is null or not t.begun then",
        "t.fence is null then",
        ("test_70_ceilings.py::test_an_operators_word_is_refused_where_it_can_be_known",),
    ),
    Mutant(
        "an operators word said again is done",
        INQUIRY,
        "case when x.said then 'done' else 'refused' end, case when not x.said then 'no process",
        "case when false then 'done' else 'refused' end, case when not x.said then 'no process",
        ("test_70_ceilings.py::test_an_operator_may_say_that_a_process_is_gone",),
    ),
    Mutant(
        "a plan is resolved by its steps",
        RESOLUTION,
        "when exists (select from fencepost.plan p where p.rid = v_rid) then",
        "when false then",
        ("test_70_cancel.py::test_a_plan_itself_is_not_resolved",),
    ),
    Mutant(
        "a step is resolved with outputs it can have",
        RESOLUTION,
        "when _verdict = 'completed' and t.opaque and not fencepost.is_result_(v_value)",
        "when false",
        ("test_70_cancel.py::test_an_operator_who_brings_no_outputs_is_told_how_they_look",),
    ),
    Mutant(
        "the unknown steps of a plan are named",
        LEDGER,
        "where c.parent = p.rid and c.state = 'unknown' order by",
        "where c.parent = p.rid order by",
        ("test_70_sight.py::test_read_run_counts_the_steps_of_a_plan",),
    ),
)
