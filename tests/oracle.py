"""What the laws say that a caller sees, as plain Python: an oracle that knows LAWS.md and nothing of the project.

It interprets the programs of `oracle_workflows` over dictionaries. Whoever drives it says what the driver of the product
did (this run was claimed, this attempt was lost); it raises `Disagreement` where no law permits that, and predicts
states, outputs, error codes, attempts, tries and how often every step has been begun. Where the laws leave something open it
says so: with `AnyOf`, with a span of instants, with `loose`.
"""

from __future__ import annotations

from typing import Any

from tests.oracle_legs import Legs
from tests.oracle_records import LOSSES, REPEATABLE, AnyOf, Disagreement, Record, Run


class Oracle(Legs):
    """What callers, time, a worker and an operator do to runs, and what they are told."""

    # ── callers ──────────────────────────────────────────────────────────────────────────────────────────────────────

    def start(self, id: str, tag: str, workflow: str, ops: list[dict[str, Any]], delay: float = 0) -> Run:
        run = self.runs[id] = Run(id, tag, workflow, ops, (self.now + delay, self.now + delay))
        return run

    def signal(self, run: Run, name: str, payload: int, dedupe: str | None) -> Any:
        """60.3: one delivery each, in the order sent; a repeat is harmless."""
        if run.ended:
            return AnyOf("ended", "repeated") if (name, dedupe) in run.dedupes else "ended"
        if dedupe is not None and (name, dedupe) in run.dedupes:
            return "repeated"
        if dedupe is not None:
            run.dedupes.add((name, dedupe))
        self._sent += 1
        run.signals.append((self._sent, name, payload))
        if run.state == "parked":
            for record in run.history.values():
                if record.state == "armed" and name in record.names:
                    self._take(run, record)
                    self._wake(run)
        return "sent" if not run.cancelling else AnyOf("sent", "ended")

    def cancel(self, run: Run) -> Any:
        """80.4: accepted, or too late; it reaches every descendant."""
        if run.ended:
            return AnyOf("accepted", "too_late") if run.state == "cancelled" else "too_late"
        for member in self._tree(run):
            if not member.ended:
                member.cancelling, member.state = True, "cancelling"
        self._bury()
        return "accepted"

    def end(self, run: Run) -> Any:
        """85.5: an operator may end any run that is not terminal; who holds it is out (80.1)."""
        if run.ended:
            return AnyOf("done", "too_late") if run.by_operator else "too_late"  # 00.3: it may be a lost reply
        if run.held:
            self._orphan(run, proven=False)
        run.by_operator = True
        self._end(run, "cancelled" if run.cancelling else "failed", code="OPERATOR_ENDED")  # 80.4
        self._bury()
        return "done"

    def wake(self, run: Run) -> None:
        """An operator's word ends a delay."""
        run.ready = (self.now, self.now)

    def resolve(self, run: Run, place: str | None, verdict: str, value: Any) -> Any:
        """85.5: once, with a value, an error or leave to run again; then the run continues."""
        if place is None and run.state != "unknown":
            return AnyOf("done", "refused") if run.by_operator else "refused"  # 00.3
        if place is None:
            run.by_operator = True
            if verdict == "completed":
                self._end(run, "completed", output=value)
            elif verdict == "failed":
                self._end(run, "failed", code=AnyOf())
            else:
                self._requeue(run)
            run.losses = 0
            return "done"
        if verdict == "late":
            if place not in run.late:
                return "refused"
            run.history[place] = run.late[place]
        elif verdict == "again":
            del run.history[place]
        else:
            done = verdict == "completed"
            run.history[place] = Record("kept", value) if done else Record("failed", ["failed", AnyOf()])
        run.has_result(place)
        if run.state == "unknown" and not run.unknown():
            run.losses = 0
            self._requeue(run)
        return "done"

    def redrive(self, run: Run, new_id: str, start: str | None, named: set[str]) -> str:
        """85.5, for programs of steps and maps: committed steps come along; none that is not repeatable is repeated unless named."""
        if not run.ended:
            return "refused"
        aside = set() if start is None else {p for p in run.history if int(p.partition("/")[0]) >= int(start)}
        done = {
            p for p in aside if run.history[p].state != "failed" and not (run.op(p)["do"] == "map" and "/" not in p)
        }
        again = {p.partition("/")[0] for p in done if run.kind(p) not in REPEATABLE}
        if again - named:
            return "refused"
        new = self.start(new_id, run.tag, run.workflow, run.ops)
        for place, r in run.history.items():
            if place not in aside and r.state != "failed":
                new.history[place] = Record(r.state, r.value, proven=r.proven)
        new.ever_told = {p for p in run.ever_told if start is None or int(p) < int(start)}
        return "created"

    # ── time and the worker ──────────────────────────────────────────────────────────────────────────────────────────

    def tick(self, seconds: float) -> None:
        """Time passes, and a living worker has beaten since: what is due is woken."""
        self.now += seconds
        for run in self.runs.values():
            for place, record in run.history.items():
                if (
                    run.state == "parked"
                    and record.state == "armed"
                    and record.due is not None
                    and record.due <= self.now
                ):
                    record.state, run.losses = "timed_out", 0
                    run.has_result(place)
                    self._wake(run)

    def due(self) -> list[str]:
        """Runs that a worker which claims must get."""
        return [r.id for r in self.runs.values() if r.state == "queued" and r.ready[1] <= self.now]

    def claimed(self, id: str, number: int) -> None:
        """The worker claimed this run and drives it until it rests."""
        run = self.runs.get(id)
        if run is None or run.state != "queued" or run.ready[0] > self.now or number != run.attempts + 1:
            raise Disagreement(f"{id} was claimed as attempt {number}, and is {run}")
        run.attempts, run.state, run.held, run.answers, run.met_unknown = number, "running", True, {}, False
        # What the code was told, and went on from, it is told again (50.4); where nothing followed it is asked afresh, and where
        # all that followed fits the resolution too, that is what it is given.
        last = max((int(place.partition("/")[0]) for place in [*run.history, *run.opened]), default=-1)
        run.told = {
            place: raised
            for place, raised in run.told.items()
            if int(place) < last and not run.sees_what_was_resolved(place)
        }
        self._go(run)
        self._bury()

    def release(self, run: Run) -> None:
        """The gate where the leg stands opens."""
        assert run.inside is not None
        if run.cancelling:
            run.loose = True
            self.gates = {at: phase for at, phase in self.gates.items() if at[0] != run.tag}
        self._go(run)
        self._bury()

    def heed(self, ids: list[str]) -> None:
        """Held legs of cancelling runs were told, and their code has stopped."""
        for id in ids:
            self.runs[id].held, self.runs[id].inside = False, None
        self._bury()

    def lose(self, run: Run, *, proven: bool) -> None:
        """85.7: what was declared happens; the step it stood in is unknown unless it is repeatable."""
        self._orphan(run, proven=proven)
        if run.cancelling:
            return self._bury()
        run.tries += 1
        run.losses += 1
        # What 85.7 says of `fail`, the house does not do over an unknown step: the run is unknown, for a failure would bury it.
        if run.workflow == "failing" and not run.unknown():
            self._end(run, "failed", code="RUNNER_LOST")
        elif run.workflow in {"failing", "asking"} or run.losses >= LOSSES:
            run.state = "unknown"
        else:
            self._requeue(run)
        return None

    def release_zombie(self, which: int) -> None:
        """A holder that was put out goes on: its effect happens, the record does not change, nothing more is begun (40.4)."""
        run, inside = self.zombies.pop(which)
        op, fails = self._op(run, inside.place)
        if inside.phase == "before" and inside.n > fails:
            self.effects[run.tag, inside.place] = inside.n
        if op["kind"] not in REPEATABLE and "/" not in inside.place and not run.ended:
            failed = inside.phase == "before" and inside.n <= fails
            if failed and op["kind"] == "doubtful":
                return
            run.late[inside.place] = (
                self._failure(op["kind"]) if failed else Record("kept", f"{inside.place}@{inside.n}")
            )
