"""The crash harness: a real process is killed at every boundary it knows, and everything must still come out right.

A scenario is run undisturbed first; its boundaries are counted: every statement before it is sent, after it was executed and after
its callers were told, and every named point. Then it is run once for each of them, with a process that stops dead at the boundary
and is ended there by SIGKILL. A second worker heals; the expected end, the invariants and a log of effects outside the database are
judged. Some runs are killed a second time while they recover.

    python -m tests.crash --all            everything
    python -m tests.crash --slice 120      what fits into two minutes, another part each day
    python -m tests.crash --scenario S08   one of them; --seed N repeats a choice
"""
