"""The oracle's half that knows what a leg does: it interprets a program over what is recorded of its run."""

from __future__ import annotations

from collections import Counter
from typing import Any

from tests.oracle_records import (
    REPEATABLE,
    RETRY_SPAN,
    STEP_TRIES,
    WORKFLOW_TRIES,
    AnyOf,
    Inside,
    Raised,
    Record,
    Rest,
    Run,
)


class Legs:
    def __init__(self) -> None:
        self.now = 0.0
        self.runs: dict[str, Run] = {}
        self.begun: Counter[tuple[str, str]] = Counter()
        self.effects: dict[tuple[str, str], int] = {}
        self.gates: dict[tuple[str, str], str] = {}
        self.zombies: list[tuple[Run, Inside]] = []
        self._sent = 0

    # ── a leg ────────────────────────────────────────────────────────────────────────────────────────────────────────

    def _go(self, run: Run) -> None:
        told: list[Any] = []
        try:
            for number, op in enumerate(run.ops):
                try:
                    told.append(self._perform(run, str(number), op))
                except Raised as raised:
                    if not op.get("caught"):
                        raise
                    told.append(raised.shown)
        except Rest:
            return
        except Raised as raised:
            self._over(run, raised.shown)
        else:
            self._over(run, None, told)

    def _over(self, run: Run, raised: list[Any] | None, told: Any = None) -> None:
        run.held, run.inside = False, None
        if run.cancelling:
            return None
        if raised is None:
            return self._end(run, "completed", output=told)
        if run.met_unknown:  # 40.6
            run.state, run.tries = "unknown", AnyOf() if isinstance(run.tries, AnyOf) else run.tries
            return None
        run.tries += 1
        code: Any = {"failed": "STEP_FAILED", "rejected": "WORKFLOW_ERROR", "broken": "WORKFLOW_ERROR"}.get(
            raised[0], AnyOf()
        )
        if raised[0] == "failed":
            code = raised[1]
        if run.workflow != "retrying" or raised[0] not in {"failed", "rejected", "broken"}:
            return self._end(run, "failed", code=code)
        if run.tries >= WORKFLOW_TRIES:
            return self._end(run, "failed", code=AnyOf(code, "TRIES_EXHAUSTED"))
        run.history = {p: r for p, r in run.history.items() if r.state != "failed"}  # 50.10
        run.told = {}
        run.state, run.ready = "queued", (self.now + RETRY_SPAN[0], self.now + RETRY_SPAN[1])
        return None

    def _perform(self, run: Run, place: str, op: dict[str, Any]) -> Any:
        if run.cancelling and place not in run.history and not run.inside:  # nothing more is begun (80.4)
            run.held = False
            raise Rest
        match op["do"]:
            case "step":
                return self._call(run, place, op["kind"], op["fails"])
            case "sleep":
                self._wait(run, place, (), op["seconds"])
                return ["slept"]
            case "wait":
                return self._wait(run, place, (op["name"],), op["within"])
            case "first":
                return self._wait(run, place, tuple(op["names"]), op["within"])
            case "child":
                return self._child(run, place, op)
            case "map":
                return self._map(run, place, op)
        raise Raised("broken")

    def _call(self, run: Run, place: str, kind: str, fails: int) -> str:
        record, inside = run.history.get(place), run.inside
        failed, phase, gate = 0, "", None
        if place in run.told:
            run.met_unknown |= record is not None and record.state == "marked"
            raise run.told[place]
        if inside is not None and inside.place == place:
            n, phase, failed, run.inside = inside.n, inside.phase, inside.failed, None
        elif record is not None and record.state == "kept":
            return record.value
        elif record is not None and record.state == "failed":
            raise Raised(*record.value)
        elif record is not None and (value := self._ask(run, place, kind, record)) is not None:
            return value
        while True:
            if not phase:
                if run.cancelling:  # nothing more is begun (80.4)
                    run.held = False
                    raise Rest
                self.begun[run.tag, place] += 1
                n = self.begun[run.tag, place]
                if kind not in REPEATABLE:
                    run.history[place] = Record("marked")
                gate = self.gates.pop((run.tag, place), None)
                if gate == "before":
                    self._stand(run, Inside(place, n, gate, failed))
            if phase != "after":
                if n <= fails:
                    failed, phase, gate = failed + 1, "", None
                    if failed < STEP_TRIES.get(kind, 1) and (kind in REPEATABLE or not run.cancelling):
                        continue
                    if kind == "doubtful":  # declared to leave it unknown (50.10)
                        self._ask(run, place, kind, run.history[place])
                    self._commit(run, place, self._failure(kind))
                    raise Raised(*run.history[place].value)
                self.effects[run.tag, place] = n
                if gate == "after":
                    self._stand(run, Inside(place, n, gate, failed))
            return self._commit(run, place, Record("kept", f"{place}@{n}")).value

    def _ask(self, run: Run, place: str, kind: str, record: Record) -> str | None:
        """50.2, 50.11: what a marked step's look-up says. None: it may run."""
        if kind in {"found", "honoured"} and place not in run.answers:
            n = self.effects.get((run.tag, place))
            if n is not None:
                return self._commit(run, place, Record("kept", f"{place}@{n}")).value
            if kind == "honoured":
                return None
            if record.proven:  # asked again after `settle`, which the leg sleeps through
                return None
        run.met_unknown = True
        run.answers[place] = Raised("unknown", [])
        if "/" not in place:
            self._tell(run, place, run.answers[place])
        raise run.answers[place]

    def _tell(self, run: Run, place: str, raised: Raised) -> None:
        """That the code was told is on record, like a boundary."""
        if place not in run.ever_told:
            run.ever_told.add(place)
            run.losses = 0
        run.has_result(place)
        run.told[place] = raised
        raise raised

    def _map(self, run: Run, place: str, op: dict[str, Any]) -> Any:
        record = run.history.get(place)
        if record is not None and record.state == "failed":
            raise Raised(*record.value)
        if record is not None:
            return record.value
        if place in run.told:
            run.met_unknown |= any(r.state == "marked" for p, r in run.history.items() if p.startswith(f"{place}/"))
            raise run.told[place]
        run.opened.add(place)
        values, failed, unknown = [], [], []
        for row in op["rows"]:
            try:
                values.append(self._call(run, f"{place}/{row['key']}", op["kind"], row["fails"]))
            except Raised as raised:
                (unknown if raised.shown[0] == "unknown" else failed).append(row["key"])
            if len(failed) > op["tolerance"]:
                break
        if len(failed) > op["tolerance"]:
            self._commit(run, place, Record("failed", ["failed", AnyOf()]))
            raise Raised("failed", AnyOf())
        if unknown:
            self._tell(run, place, Raised("unknown", sorted(unknown)))
        return self._commit(run, place, Record("kept", ["map", values, sorted(failed)])).value

    def _wait(self, run: Run, place: str, names: tuple[str, ...], within: float | None) -> Any:
        record = run.history.get(place)
        if record is None:
            record = run.history[place] = Record(
                "armed", due=None if within is None else self.now + within, names=names
            )
            self._take(run, record)
        if record.state == "timed_out":
            return ["timed out"]
        if record.state == "armed":
            run.state, run.held = "parked", False
            raise Rest
        return record.value

    def _child(self, run: Run, place: str, op: dict[str, Any]) -> Any:
        id, record = f"{run.tag}.{place}", run.history.get(place)
        if record is None:
            child = self.start(id, id, op["kind"], op["ops"])
            child.parent = (run, place)
            run.children.append(child)
            record = run.history[place] = Record("armed") if op["waits"] else Record("kept", ["started", id])
            if not op["waits"]:
                run.has_result(place)
        if record.state == "armed":
            run.state, run.held = "parked", False
            raise Rest
        if record.value[0] in {"child failed", "child cancelled"}:
            raise Raised(*record.value)
        return record.value

    def arm(self, tag: str, ops: list[dict[str, Any]]) -> None:
        """The gates that a program asks for, and its children's."""
        for number, op in enumerate(ops):
            if op.get("gate"):
                self.gates[tag, str(number)] = op["gate"]
            for row in op.get("rows", ()):
                if row.get("gate"):
                    self.gates[tag, f"{number}/{row['key']}"] = row["gate"]
            self.arm(f"{tag}.{number}", op.get("ops", []))

    # ── small words ──────────────────────────────────────────────────────────────────────────────────────────────────

    def _op(self, run: Run, place: str) -> tuple[dict[str, Any], int]:
        number, _, key = place.partition("/")
        op = run.ops[int(number)]
        return op, next(row["fails"] for row in op["rows"] if row["key"] == key) if key else op["fails"]

    def _failure(self, kind: str) -> Record:
        return Record("failed", ["rejected"] if kind == "declared" else ["failed", "STEP_FAILED"])

    def _commit(self, run: Run, place: str, record: Record) -> Record:
        run.history[place] = record
        run.has_result(place)
        run.losses = 0
        return record

    def _stand(self, run: Run, inside: Inside) -> None:
        run.inside = inside
        raise Rest

    def _take(self, run: Run, record: Record) -> None:
        """The earliest signal of the names waited for, if there is one. Every wait of a race that finds one has it delivered: what the race
        does not return is the next wait's of its name, and comes before what is delivered later (60.3).
        """
        signal = next((s for s in (*run.delivered, *run.signals) if s[1] in record.names), None)
        if signal is None:
            return
        if signal in run.signals:
            first = {name: next((s for s in run.signals if s[1] == name), None) for name in record.names}
            found = sorted(s for s in first.values() if s is not None)
            run.signals = [s for s in run.signals if s not in found]
            run.delivered += found
        run.delivered.remove(signal)
        record.state, record.value, run.losses = "arrived", ["signal", *signal[1:]], 0
        run.has_result(next(place for place, one in run.history.items() if one is record))

    def _wake(self, run: Run) -> None:
        if run.state == "parked":
            self._requeue(run)

    def _requeue(self, run: Run) -> None:
        run.state, run.ready = "queued", (self.now, self.now)

    def _orphan(self, run: Run, *, proven: bool) -> None:
        assert run.held
        assert run.inside is not None
        record = run.history.get(run.inside.place)
        if record is not None and record.state == "marked":
            record.proven = proven
        if not proven:
            run.loose |= run.kind(run.inside.place) == "patient"  # nothing keeps it from trying again: it is repeatable
            self.zombies.append((run, run.inside))
        run.held, run.inside = False, None

    def _tree(self, run: Run) -> list[Run]:
        return [run, *(member for child in run.children for member in self._tree(child))]

    def _end(self, run: Run, state: str, *, output: Any = None, code: Any = None) -> None:
        run.state, run.output, run.code = state, output, code
        run.held, run.inside = False, None
        if run.parent is None:
            return
        parent, place = run.parent
        record = parent.history.get(place)
        if record is not None and record.state == "armed" and not parent.ended:
            told = {"completed": ["child", output], "failed": ["child failed", code], "cancelled": ["child cancelled"]}[
                state
            ]
            record.state, record.value, parent.losses = "arrived", told, 0
            parent.has_result(place)
            self._wake(parent)

    def _bury(self) -> None:
        """80.4: a cancelling run ends once nobody holds it and its children have ended."""
        again = True
        while again:
            again = False
            for run in list(self.runs.values()):
                if run.cancelling and not run.ended and not run.held and all(c.ended for c in run.children):
                    self._end(run, "cancelled")
                    again = True
