"""A run: rounds over the trials, and in each over the systems; every measurement a line of the results as soon as it is made."""

from __future__ import annotations

import json
import sys
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Final

from bench.field import Field
from bench.trials import Figures, Trial

QUIET: Final = 0.15  # cores that others may use before a measurement
DISTURBED: Final = 0.25  # and during one; more, and it is made again


def rotated(names: Sequence[str], turn: int) -> list[str]:
    """In every round another one begins: whoever does meets what the trial before has still on its way to the disk."""
    first = (turn - 1) % len(names) if names else 0
    return [*names[first:], *names[:first]]


class Run:
    """`measured`: (system, figures by key) of every measurement. `failures`: what could not be measured, as sentences."""

    def __init__(self, field: Field, results: Path, header: Mapping[str, Any]) -> None:
        self.field = field
        self.header = header
        self.measured: list[tuple[str, Mapping[str, float]]] = []
        self.failures: list[str] = []
        self.ours_failed = "us" in field.missing
        self._began = time.monotonic()
        results.parent.mkdir(parents=True, exist_ok=True)
        self.results = results
        self._write({"header": header})
        self._word(f"measuring {', '.join(field.versions) or 'nothing'}; every figure goes to {results}")
        for name, why in field.missing.items():
            self._word(f"{name}: not here ({why.splitlines()[-1]})")

    async def rounds(self, trials: Sequence[Trial]) -> None:
        """Every trial once before any is made again, so that the machine's hours fall on all alike."""
        rounds = self.field.sizes.rounds
        for turn in range(1, rounds + 1):
            for trial in trials:
                for name in self._systems(trial, turn):
                    if turn > 1 and time.monotonic() - self._began > self.field.sizes.seconds:
                        self._word(f"round {turn} ends here: the time is over")
                        return
                    await self._one(turn, rounds, trial, name)

    def _systems(self, trial: Trial, turn: int) -> list[str]:
        return rotated(
            [name for name in self.field.versions if trial.asked(name, turn, quick=self.field.sizes.quick)], turn
        )

    async def _one(self, turn: int, rounds: int, trial: Trial, name: str) -> None:
        """Measure, again while others disturbed it, and keep the least disturbed."""
        machine, sizes = self.field.machine, self.field.sizes
        best: tuple[float, Figures] | None = None
        began = time.monotonic()
        for _ in range(sizes.tries):
            await machine.wait_quiet(QUIET, sizes.calm)
            before = machine.moment()
            try:
                async with self.field.side(name) as side:
                    if trial.steps and not side.cls.durable:
                        return
                    figures = await trial.run(side)
            except Exception as error:  # one system's failure does not end the run of the others
                self.ours_failed |= name == "us"
                said = f"{type(error).__name__}: {str(error)[-600:]}"
                self.failures.append(f"{trial.name} of {name}, round {turn}: {said.splitlines()[-1]}")
                self._write({"round": turn, "trial": trial.name, "system": name, "error": said})
                self._word(f"round {turn} of {rounds}: {trial.name}: {name}: {said}")
                return
            foreign = machine.foreign(before, machine.moment())
            if best is None or foreign < best[0]:
                best = (foreign, figures)
            if foreign < DISTURBED:
                break
        assert best is not None, "a measurement has at least one try"
        foreign, figures = best
        self.measured.append((name, figures))
        seconds = time.monotonic() - began
        self._write(
            {"round": turn, "trial": trial.name, "test": trial.test, "system": name, "figures": figures,
             "foreign": round(foreign, 3), "seconds": round(seconds, 1)}
        )  # fmt: skip
        told = ", ".join(f"{key} {value:,.5g}" for key, value in figures.items())
        self._word(
            f"round {turn} of {rounds}: {trial.name}: {name}: {told} ({seconds:.0f} s, others {foreign:.2f} cores)"
        )

    def _write(self, line: Mapping[str, Any]) -> None:
        with self.results.open("a") as file:
            file.write(json.dumps(line) + "\n")

    def _word(self, words: str) -> None:
        print(words, file=sys.stderr, flush=True)
