"""Programs for the oracle's games, invented from one number: whichever number it is, every kind of step has its fair share."""

from __future__ import annotations

import random
from typing import Any

Ops = list[dict[str, Any]]

KINDS = ["again", "patient", "once", "once", "careful", "declared", "doubtful", "found", "found", "honoured", "unsure"]
FAILS = [0, 0, 0, 0, 1, 1, 9]
GATES = [None, None, "before", "after"]
WITHIN = [None, 10, 60]


def invent(number: int) -> tuple[str, Ops]:
    """A workflow and its program."""
    rng = random.Random(number)
    workflow = rng.choice(["plain", "plain", "plain", "retrying", "retrying", "failing", "asking"])
    if workflow == "retrying":
        # Whether a workflow retry asks for a failed child again is nobody's law: those that retry have none.
        return workflow, _ops(rng, children=0, most=3)
    if rng.random() < 0.4:
        return workflow, _ops(rng, children=0, most=4)
    return workflow, _ops(rng, children=2, most=4)


def _ops(rng: random.Random, *, children: int, most: int) -> Ops:
    return [_op(rng, children) for _ in range(rng.randint(1, most))]


def _op(rng: random.Random, children: int) -> dict[str, Any]:
    what = rng.choice(
        ["step"] * 6 + ["sleep", "wait", "wait", "first", "map", "map", "raise"] + ["child"] * children * 2
    )
    match what:
        case "step":
            kind = rng.choice(KINDS)
            return {
                "do": "step",
                "kind": kind,
                "fails": rng.choice(FAILS),
                "gate": rng.choice(GATES),
                "caught": rng.random() < 0.5,
            }
        case "sleep":
            return {"do": "sleep", "seconds": rng.choice([10, 60])}
        case "wait":
            return {"do": "wait", "name": rng.choice("ab"), "within": rng.choice(WITHIN)}
        case "first":
            return {"do": "first", "names": rng.sample("ab", 2), "within": rng.choice(WITHIN)}
        case "map":
            return _map(rng)
        case "child":
            kind = rng.choice(["plain", "plain", "retrying", "failing"])
            ops = _ops(rng, children=0 if kind == "retrying" else children - 1, most=3)
            return {"do": "child", "kind": kind, "ops": ops, "waits": rng.random() < 0.7, "caught": rng.random() < 0.5}
        case _:
            return {"do": "raise"}


def _map(rng: random.Random) -> dict[str, Any]:
    kind = rng.choice(["row_again", "row_once"])
    # Whether unknown rows or too many failures are told first is nobody's law: rows that can be unknown fail within the tolerance.
    tolerance = 3 if kind == "row_once" else rng.choice([0, 1])
    rows = [{"key": key, "fails": rng.choice(FAILS), "gate": rng.choice(GATES)} for key in "xyz"]
    return {"do": "map", "kind": kind, "rows": rows, "tolerance": tolerance, "caught": rng.random() < 0.5}


def choose(number: int, game: Any) -> tuple[str, dict[str, Any]]:
    """A move that means something as the game stands, by weight."""
    rng, runs = random.Random(number), list(game.oracle.runs.values())
    held = any(run.held for run in runs)
    unknown = any(run.state == "unknown" for run in runs)
    delayed = any(run.state == "queued" and run.ready[0] > game.oracle.now for run in runs)
    weights = {
        "start": 6 if len(runs) < 8 else 0, "start_again": 2, "signal": 8, "cancel": 2, "end": 1, "wake": 3 if delayed else 0.3,
        "advance": 7, "work": 5, "settle": 12, "gate": 4, "release": 9 * held, "lose": 6 * held, "haunt": 4 * held,
        "cancel_inside": 3 * held, "release_zombie": 6 if game.zombies else 0, "batter": 1.5, "resolve": 10 if unknown else 0.5,
        "redrive": 3 if any(run.ended for run in runs) else 0,
    }  # fmt: skip
    (name,) = rng.choices(list(weights), list(weights.values()))
    return name, _how(rng, name)


def _how(rng: random.Random, name: str) -> dict[str, Any]:
    which, phase = {"which": rng.randrange(12)}, {"phase": rng.choice(["before", "after"])}
    match name:
        case "start":
            workflow, ops = invent(rng.getrandbits(32))
            how = rng.choice(["plain", "plain", "many", "rolled_back", "committed"])
            return {"workflow": workflow, "ops": ops, "delay": rng.choice([0, 0, 0, 30]), "how": how}
        case "start_again":
            return which | {"changed": rng.choice(["nothing", "name", "input"])}
        case "signal":
            return which | {
                "name": rng.choice("ab"),
                "payload": rng.randrange(100),
                "dedupe": rng.choice([None, None, "one", "two"]),
            }
        case "advance":
            return {"seconds": rng.choice([1, 10, 30, 100, 4000])}
        case "work":
            return {"most": rng.randint(1, 3)}
        case "gate":
            return which | phase | {"op": rng.randrange(12)}
        case "lose":
            return which | {"silent": rng.random() < 0.5}
        case "haunt":
            return which | phase | {"soon": rng.random() < 0.5}
        case "batter":
            return which | phase
        case "resolve":
            return which | {"place": rng.randrange(6), "verdict": rng.choice(["completed", "failed", "again", "late"])}
        case "redrive":
            return which | {"start": rng.choice([None, None, 0, 1, 2]), "name_all": rng.random() < 0.5}
        case "settle":
            return {}
        case _:
            return which
