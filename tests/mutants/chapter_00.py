"""Guards of the ground and of the shapes."""

from tests.mutants import Mutant

GROUND, SHAPES = "00_ground.sql", "15_shapes.sql"
CLOCK = ("test_00_ground.py::test_a_transaction_reads_the_clock_once",)
DATABASES = ("test_00_ground.py::test_an_installation_that_was_not_made_for_tests_reads_no_clock_but_the_databases",)
SET = ("test_00_ground.py::test_every_session_reads_the_clock_that_a_test_set",)
SHAPE = ("test_00_moves.py::test_a_shape_that_is_not_legal_is_impossible",)
GROWS = ("test_00_moves.py::test_numbers_only_grow_and_a_row_stays_its_runs",)
MOVES = ("test_00_moves.py::test_a_move_that_is_no_row_of_the_table_is_refused_whoever_asks",)


def shape(guard: str, text: str) -> Mutant:
    """A constraint of the task that is no constraint any more."""
    return Mutant(f"shape: {guard}", SHAPES, f"     and {text}", "", SHAPE)


RECORD = ("test_00_moves.py::test_a_record_of_a_shape_that_is_not_legal_is_impossible",)
RECORDS = {
    "a kind of boundary is known": (
        "return _kind in ('step', 'map', 'sleep', 'signal', 'child', 'value')",
        "return true",
    ),
    "a state of a boundary is known": (
        "and _state in ('marked', 'kept', 'failed', 'armed', 'arrived', 'timed_out', 'cancelled', 'open', 'set_aside', 'again')",
        "",
    ),
    "a boundary is counted from one": ("and _ordinal >= 1", ""),
    "a resolved boundary has a place": (
        "and ((_state in ('marked', 'armed', 'open', 'again')) = (_seq is null) or _state = 'set_aside')",
        "",
    ),
    "an open boundary has a place": ("and (_state not in ('marked', 'armed', 'open') or _opened_seq is not null)", ""),
    "an end is known": ("return _status in ('completed', 'failed', 'cancelled')", "return true"),
    "a failure has an error": ("and ((_status = 'failed') = (_error is not null) or _status = 'cancelled')", ""),
    "an output is of a completed run": ("and (_output is null or _status = 'completed')", ""),
    "attempts are counted from one": ("return _number >= 1 and _ended", "return _ended"),
    "an end of a leg is known": (
        " and _ended in ('finished', 'parked', 'deferred', 'given_back', 'lost', 'retrying', 'unknown')",
        "",
    ),
}

MUTANTS = [
    Mutant(
        "the clock is the transaction's",
        GROUND,
        "m.one), transaction_timestamp())",
        "m.one), clock_timestamp())",
        CLOCK,
    ),
    Mutant(
        "the clock is the transaction's, where no test sets it",
        GROUND,
        "select transaction_timestamp()",
        "select clock_timestamp()",
        DATABASES,
    ),
    Mutant(
        "a clock that is set counts in an installation for tests only",
        GROUND,
        "language sql stable as $law$ select transaction_timestamp() $law$",
        "language plpgsql stable as $law$ begin return coalesce((select m.test_now from fencepost.meta m), transaction_timestamp()); end $law$",
        DATABASES,
    ),
    Mutant(
        "a set clock is read",
        GROUND,
        "(select m.test_now from fencepost.meta m where m.one)",
        "null::timestamptz",
        SET,
    ),
    Mutant(
        "only a test installation has a set clock",
        GROUND,
        "check (test or test_now is null)",
        "check (true)",
        ("test_00_ground.py::test_a_clock_that_is_not_the_databases_exists_only_in_a_test_installation",),
    ),
    Mutant(
        "doors run read committed",
        GROUND,
        "if current_setting('transaction_isolation') <> 'read committed' then",
        "if false then",
        ("test_00_ground.py::test_engine_doors_run_read_committed_and_refuse_anything_else",),
    ),
    Mutant(
        "a reply is durable",
        GROUND,
        "if current_setting('synchronous_commit') = 'off' then",
        "if false then",
        ("test_00_doors.py::test_a_reply_means_durable",),
    ),
    Mutant(
        "an unlawful move is refused",
        GROUND,
        "raise exception 'run %: no move % -> %'",
        "raise notice 'run %: no move % -> %'",
        MOVES,
    ),
    Mutant(
        "only the table's moves pass",
        SHAPES,
        "not fencepost.may_move_(old.state, new.state)",
        "fencepost.may_move_(old.state, new.state)",
        MOVES,
    ),
    Mutant("numbers only grow", SHAPES, "or new.number < old.number or new.seq", "or new.seq", GROWS),
    Mutant("sequences only grow", SHAPES, "or new.seq < old.seq or new.rid", "or new.rid", GROWS),
    Mutant("a row stays its run's", SHAPES, "or new.rid <> old.rid)", ")", GROWS),
    Mutant(
        "a run leaves to an outcome only",
        SHAPES,
        "where o.status is null or not fencepost.may_move_(g.state, o.status) limit 1;",
        "where false limit 1;",
        ("test_00_moves.py::test_a_run_leaves_only_to_an_outcome",),
    ),
    shape("tries are attempts", "_t.number >= _t.tries and _t.tries >= 0 and _t.losses >= 0 and _t.seq >= 1"),
    shape(
        "a fence, its holder, its claim and its request are one",
        "(_t.fence is null) = (_t.holder is null) and (_t.fence is null) = (_t.claimed_at is null) and (_t.fence is null) = (_t.request is null)",
    ),
    shape("nobody begins without a fence", "(not _t.begun or _t.fence is not null)"),
    shape("unknown has a reason", "(_t.state = 'unknown') = (_t.unknown is not null)"),
    shape("parked has a park", "(_t.state = 'parked') = (_t.park is not null)"),
    shape("cancelling has a grace", "(_t.state = 'cancelling') = (_t.cancel_until is not null)"),
    shape("a claim bound ends with the claim", "(_t.claim_by is null or (_t.state = 'queued' and _t.number = 0))"),
    shape("a code digest is of a code park", "(_t.code_digest is null or _t.park = 'code')"),
    Mutant(
        "shape: a queued run has no fence",
        SHAPES,
        "when 'queued' then _t.fence is null",
        "when 'queued' then true",
        SHAPE,
    ),
    Mutant(
        "shape: a running one has", SHAPES, "when 'running' then _t.fence is not null and", "when 'running' then", SHAPE
    ),
    Mutant(
        "shape: no timer of one parked on its code",
        SHAPES,
        "_t.fence is null and (_t.park <> 'code' or _t.due_at is null)",
        "_t.fence is null",
        SHAPE,
    ),
    Mutant(
        "shape: no timer of an unknown one",
        SHAPES,
        "when 'unknown' then _t.fence is null and _t.due_at is null",
        "when 'unknown' then true",
        SHAPE,
    ),
    Mutant(
        "a run's words are usable",
        SHAPES,
        "return fencepost.good_names_(_org, _id, _name) and",
        "return",
        ("test_30_admission.py::test_bad_ids_and_names_are_refused_before_any_write_and_by_a_constraint",),
    ),
    Mutant(
        "an id is unique in its organisation",
        SHAPES,
        "unique (org, id)",
        "unique (org, id, rid)",
        ("test_30_admission.py::test_of_many_identical_submissions_at_once_one_creates_the_run",),
    ),
    Mutant(
        "a place in the ledger is taken once",
        SHAPES,
        "  primary key (rid, seq)",
        "  unique (rid, seq, tx)",
        ("test_90_ledger.py::test_a_type_that_is_not_of_the_list_cannot_be_written_nor_a_place_twice",),
    ),
    Mutant(
        "the first place in the ledger is the run's",
        SHAPES,
        "check (fencepost.is_event_(type) and seq > 1)",
        "check (fencepost.is_event_(type))",
        ("test_90_ledger.py::test_a_type_that_is_not_of_the_list_cannot_be_written_nor_a_place_twice",),
    ),
    *(Mutant(guard, SHAPES, text, instead, RECORD) for guard, (text, instead) in RECORDS.items()),
]
