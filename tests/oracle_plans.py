"""What a plan should do, from the laws alone: chapter 70 in plain Python, over a definition in its normal form.

Where a law leaves a choice, the choice is written here: a slot is offered to the first of those that are ready, in written order,
and of as many as there are slots those that cannot be begun for want of a required input are skipped before any of them starts.
Milliseconds, from any zero.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any, Literal

ENDED = frozenset({"succeeded", "failed", "skipped", "cancelled"})
LOSSES = 5  # 40.15

Outcome = Literal["success", "failure", "timeout", "launch_error", "invalid_output"]
Child = Literal["queued", "held"]


@dataclass
class Step:
    """`because`: of a skip, the steps any of which explains it, or the words themselves."""

    spec: dict[str, Any]
    state: str = "blocked"
    tries: int = 0
    outcome: str | None = None
    because: frozenset[str] | str | None = None
    due: int | None = None
    outputs: frozenset[str] = frozenset()
    child: Child | None = None  # of the try that lives and is not unknown
    born: int = 0  # the place of its newest child among all
    losses: int = 0

    @property
    def ended(self) -> bool:
        return self.state in ENDED


@dataclass
class Oracle:
    """A plan. Every method is a move; what is not lawful there is the caller's fault."""

    definition: dict[str, Any]
    now: int = 0
    steps: dict[str, Step] = field(default_factory=dict)
    cancelling: bool = False
    births: int = 0

    def __post_init__(self) -> None:
        for spec in self.definition["steps"]:
            step = self.steps[spec["id"]] = Step(spec)
            if spec["initially_skipped"]:
                step.state, step.because = "skipped", "initially_skipped"
        self._go_on()

    # ── what is seen ─────────────────────────────────────────────────────────────────────────────────────────────────

    def status(self) -> str:
        """70.12."""
        states = [step.state for step in self.steps.values()]
        if self.cancelling:
            return "cancelled" if all(state in ENDED for state in states) else "cancelling"
        if all(state in ENDED for state in states):
            return "failed" if "failed" in states else "completed"
        moves = self._flying(held=True) > 0 or "waiting" in states or (self._free() > 0 and "ready" in states)
        return "running" if moves or "unknown" not in states else "unknown"

    def all_skipped(self) -> bool:
        return all(step.state == "skipped" for step in self.steps.values())

    def queued(self) -> list[str]:
        """Who may be claimed, in the order in which they were started."""
        waiting = [(step.born, name) for name, step in self.steps.items() if step.child == "queued"]
        return [name for _, name in sorted(waiting)]

    def held(self) -> list[str]:
        return [name for name, step in self.steps.items() if step.child == "held"]

    def unknown(self) -> list[str]:
        return [name for name, step in self.steps.items() if step.state == "unknown"]

    def next_due(self) -> int | None:
        return min((step.due for step in self.steps.values() if step.due is not None), default=None)

    def handed(self, name: str) -> dict[str, str]:
        """70.8: input -> mode, as it arrives."""
        return {
            h["input"]: h["mode"] if h["output"] in self.steps[h["step"]].outputs else "none"
            for h in self.steps[name].spec["handoffs"]
        }

    # ── moves ────────────────────────────────────────────────────────────────────────────────────────────────────────

    def claim(self, most: int) -> list[str]:
        given = self.queued()[:most]
        for name in given:
            self.steps[name].child = "held"
        return given

    def give_back(self, name: str) -> None:
        """70.10: not begun, or proven not to have run. No try is charged."""
        step = self.steps[name]
        if self.cancelling:
            self._end(step, "cancelled", "cancelled")
        else:
            step.child = "queued"

    def finish(self, endings: Mapping[str, tuple[Outcome, Iterable[str]]]) -> None:
        """Several together, each with its outcome and, of a success, its outputs."""
        for name, (outcome, outputs) in endings.items():
            step = self.steps[name]
            if self.cancelling:
                self._end(step, "cancelled", "cancelled")
            elif outcome == "success":
                step.outputs = frozenset(outputs)
                self._end(step, "succeeded", "success")
            elif outcome in step.spec["retry"]["on"] and step.tries < step.spec["retry"]["max_attempts"]:
                delay = self._delay(step)
                step.state, step.child = ("waiting" if delay else "ready"), None
                step.due = self.now + delay if delay else None
                step.losses = 0
            else:
                self._end(step, "failed", outcome)
        self._go_on()

    def lose(self, name: str) -> None:
        """70.10, 85.7: proof that a begun attempt is gone."""
        step = self.steps[name]
        step.losses += 1
        if self.cancelling:
            self._end(step, "cancelled", "cancelled")
        elif step.spec["on_lost"] == "fail":
            self._end(step, "failed", "lost")
        elif step.spec["on_lost"] == "replay" and step.losses < LOSSES:
            step.child = "queued"
        else:
            step.state, step.child = "unknown", None
        self._go_on()

    def resolve(self, name: str, verdict: str, outputs: Iterable[str]) -> None:
        """85.5. An operator's failure is not retried: no worker reported it (70.7)."""
        step = self.steps[name]
        if verdict == "again":
            step.state, step.child, step.losses = "running", "queued", 0
        elif verdict == "completed":
            step.outputs = frozenset(outputs)
            self._end(step, "succeeded", "success")
        else:
            self._end(step, "failed", "failure")
        self._go_on()

    def cancel(self) -> None:
        """70.11."""
        self.cancelling = True
        for step in self.steps.values():
            if not step.ended and step.child != "held":
                self._end(step, "cancelled", "cancelled")

    def pass_time(self, ms: int) -> None:
        self.now += ms
        self._go_on()

    # ── how it goes on ───────────────────────────────────────────────────────────────────────────────────────────────

    def _go_on(self) -> None:
        if self.cancelling:
            return
        for step in self.steps.values():
            if step.due is not None and step.due <= self.now:
                step.state, step.due = "ready", None
        while True:
            while any(self._follow(step) for step in self.steps.values() if step.state == "blocked"):
                pass
            first = [step for step in self.steps.values() if step.state == "ready"][: self._free()]
            starved = [step for step in first if self._starved(step)]
            for step in starved:
                self._end(step, "skipped", None)
                step.because = "a required hand-off has no output"
            if not starved:
                break
        for step in self.steps.values():
            if step.state == "skipped" and step.because is None:
                step.because = self._bad(step)  # any of them explains it
        for step in first:
            self.births += 1
            step.state, step.child, step.born, step.losses = "running", "queued", self.births, 0
            step.tries += 1

    def _follow(self, step: Step) -> bool:
        """70.3. True when it is blocked no more."""
        if self._bad(step):
            self._end(step, "skipped", None)
        elif all(self.steps[need["step"]].ended for need in step.spec["needs"]):
            step.state = "ready"
        return step.state != "blocked"

    def _bad(self, step: Step) -> frozenset[str]:
        needs = {need["step"] for need in step.spec["needs"] if not need["optional"]}
        return frozenset(n for n in needs if self.steps[n].ended and self.steps[n].state != "succeeded")

    def _starved(self, step: Step) -> bool:
        return any(
            h["required"] and h["mode"] != "none" and h["output"] not in self.steps[h["step"]].outputs
            for h in step.spec["handoffs"]
        )

    def _end(self, step: Step, state: str, outcome: str | None) -> None:
        step.state, step.outcome, step.child, step.due = state, outcome, None, None

    def _flying(self, *, held: bool = False) -> int:
        return sum(s.child is not None or (not held and s.state == "unknown") for s in self.steps.values())

    def _free(self) -> int:
        return max(0, self.definition["max_concurrency"] - self._flying())

    def _delay(self, step: Step) -> int:
        """70.7: after the try that has just ended."""
        retry = step.spec["retry"]
        first, n = retry["initial_delay_ms"], step.tries
        delay = {"none": first, "linear": first * n, "exponential": first * 2 ** (n - 1)}[retry["backoff"]]
        week = 7 * 24 * 3600 * 1000
        return int(min(delay, retry["max_delay_ms"] or week))
