"""Chapters 69, 72, 85 and 86, where real workers and processes must notice."""

from tests.mutants import Mutant

ROWS = "69_plan_rows.sql"
DOORS = "72_plan_doors.sql"
RECOVERY = "85_recovery.sql"
RACES = "tests/races/test_plans_racing.py"
TRAPS = "tests/races/test_plans_traps.py"
LEAVING = "tests/races/test_plans_leaving.py"
FENCED_OUT = (
    f"{LEAVING}::test_a_process_whose_attempt_was_fenced_out_is_stopped_when_its_host_has_a_worker_again[declared lost]"
)

MUTANTS = (
    Mutant(
        "a command is not lost by the silence of its worker",
        RECOVERY,
        "  if t.opaque and t.begun and _reason not in ('process_gone', 'ceiling_passed', 'grace_over', 'operator') then return 'kept'; end if;\n",
        "",
        (f"{LEAVING}::test_a_worker_that_drains_leaves_its_command_to_the_next",),
    ),
    Mutant(
        "what was lost may run on",
        ROWS,
        "when (new.ended = 'lost' and new.begun) execute",
        "when (false) execute",
        (FENCED_OUT,),
    ),
    Mutant(
        "a beat names what is to be ended on its host",
        RECOVERY,
        "    'loose', fencepost.loose_(me.boot_id, me.pid_namespace));",
        "    'loose', '[]'::jsonb);",
        (FENCED_OUT,),
    ),
    Mutant(
        "what was seen to end is looked for no more",
        DOORS,
        "  update fencepost.process p set loose = false\n",
        "  update fencepost.process p set loose = true\n",
        (FENCED_OUT,),
    ),
    Mutant(
        "an orphan is adopted on its own host",
        DOORS,
        "     where me.id = _me and p.boot_id = me.boot_id and p.pid_namespace = me.pid_namespace\n",
        "     where me.id = _me\n",
        (f"{TRAPS}::test_a_lease_that_is_lost_in_mid_run_neither_wedges_nor_polls",),
    ),
    Mutant(
        "an orphan is adopted when its worker is gone",
        DOORS,
        "not exists (select from fencepost.incarnation i where i.id = t.holder and i.ended is null));\nend $law$;",
        "false);\nend $law$;",
        (f"{RACES}::test_a_worker_that_was_stopped_past_its_lease_comes_back_too_late",),
    ),
)
