"""A campaign: count the boundaries of each scenario, crash at each, heal, run on, judge."""

from __future__ import annotations

import asyncio
import itertools
import random
import signal
import time
from collections import deque
from collections.abc import Callable
from contextlib import AbstractAsyncContextManager
from dataclasses import dataclass, field

from tests.crash.boundaries import Boundary
from tests.crash.poison import Poison
from tests.crash.scenario import Case, Scenario
from tests.crash.scenarios import WORDS
from tests.crash.stage import Child, Stage

TRIES = 3  # a boundary that was not reached is looked for again
DOUBLES = 0.05
PLAYS = 60  # then another database: what is judged after each crash is everything in it
BREAKS = 3  # a scenario that broke so often is left alone
_runs = itertools.count(1)


class Broken(AssertionError):
    """A crash did not come out right. Its words say how to see it again."""


@dataclass(slots=True)
class Tally:
    """What became of a scenario."""

    scenario: Scenario | Poison
    known: list[Boundary] = field(default_factory=list)
    todo: list[Boundary] = field(default_factory=list)
    hit: set[Boundary] = field(default_factory=set)
    missed: list[Boundary] = field(default_factory=list)
    broken: int = 0
    crashes: int = 0
    doubles: int = 0
    seconds: float = 0.0

    def line(self) -> str:
        broken = f", broken {self.broken}" if self.broken else ""
        return (
            f"{self.scenario.name:5} boundaries known {len(self.known):3}, hit {len(self.hit):3}, missed {len(self.missed)}{broken}; "
            f"crashes {self.crashes}, double {self.doubles}; {self.seconds:.1f} s"
        )


async def play(
    stage: Stage, scenario: Scenario, *, target: Boundary | None = None, nth: int | None = None, counting: bool = False
) -> tuple[bool, list[str], Case]:
    """Run a scenario once: whether the target was hit, what was counted. `nth`: the second victim dies at its nth boundary."""
    run = f"{scenario.name}-{stage.name}{next(_runs)}"
    case = Case(stage, run, disturbed=target is not None)
    stage.begin()
    stage.plays += 1
    try:
        hit, counted = await _play(stage, scenario, case, target, nth, counting)
    except Exception as error:
        told = await stage.tell(run)
        once_more = f" --boundary '{target}'" * (target is not None) + f" --second {nth}" * (nth is not None)
        raise Broken(
            f"{type(error).__name__}: {error}\nat {target}, second victim: {nth}, run {run}; log: {stage.log}\n"
            f"again: python -m tests.crash --scenario {scenario.name}{once_more}\n{told}"
        ) from error
    return hit, counted, case


async def _play(
    stage: Stage, scenario: Scenario, case: Case, target: Boundary | None, nth: int | None, counting: bool
) -> tuple[bool, list[str]]:
    await stage.gate(scenario.healer_works)
    await scenario.before(case)
    victim = await stage.fork(
        role=scenario.role, scenario=scenario.name, run=case.run, app=scenario.app, target=str(target) if target else None,
        counting=counting, hearts=scenario.hearts, marks=scenario.marks, **scenario.order,
    )  # fmt: skip
    beside = asyncio.create_task(scenario.beside(case, victim))
    try:
        hit = await _until_hit(stage, scenario, case, victim)
        if hit:
            await _kill(scenario, case, victim)
            if nth is not None and await _second(stage, scenario, case, nth):
                case.facts["double"] = True
            await scenario.heal(case)
        else:
            assert victim.exit is not None, f"the victim ended by itself: see {stage.log}"
            case.said = victim.said
            if scenario.role == "client" or "child" in case.facts:
                await stage.gate(True)
        finish = asyncio.create_task(scenario.finish(case))
        try:
            await asyncio.wait({finish, beside}, return_when=asyncio.FIRST_EXCEPTION)
            if beside.done():
                beside.result()  # what broke there first is why the rest is stuck
            await finish
            await stage.within(beside, "what happens beside it")
        finally:
            finish.cancel()
            await asyncio.gather(finish, return_exceptions=True)
    finally:
        beside.cancel()
        await asyncio.gather(beside, return_exceptions=True)
        await stage.dismiss(victim)
    await scenario.judge(case)
    await stage.judge()
    return hit, victim.counted


async def _until_hit(stage: Stage, scenario: Scenario, case: Case, victim: Child) -> bool:
    """True when the victim stands at its boundary; False when it has ended without."""
    done = asyncio.create_task(scenario.done(case))
    ended = asyncio.create_task(victim.ended.wait())
    try:
        await stage.within(
            asyncio.wait({victim.hit, done, ended}, return_when=asyncio.FIRST_COMPLETED),
            f"the boundary or the end of {case.run}",
        )
        if done.done() and not victim.hit.done():
            done.result()
            victim.signal(signal.SIGTERM)
            await stage.within(
                asyncio.wait({victim.hit, ended}, return_when=asyncio.FIRST_COMPLETED), "the victim's end"
            )
        return victim.hit.done()
    finally:
        for task in (done, ended):
            task.cancel()
        await asyncio.gather(done, ended, return_exceptions=True)


async def _kill(scenario: Scenario, case: Case, victim: Child) -> None:
    # It stands still: what is true now is what it leaves behind. Unless it is its heart that stands, and its hands go on.
    case.vague |= victim.hit.result().partition("[")[2].startswith("heart:")
    await scenario.at_kill(case)
    await victim.kill()
    case.kills += 1


async def _second(stage: Stage, scenario: Scenario, case: Case, nth: int) -> bool:
    """Another of the same kind takes over and is killed at its nth boundary; whether it came so far."""
    second = await stage.fork(
        role=scenario.role, scenario=scenario.name, run=case.run, app=scenario.app, nth=nth, hearts=scenario.hearts
    )
    await stage.look()
    try:
        if await _until_hit(stage, scenario, case, second):
            await _kill(scenario, case, second)
            return True
        return False
    finally:
        await stage.dismiss(second)


async def count(stage: Stage, scenario: Scenario) -> list[Boundary]:
    """The boundaries of two undisturbed runs, in order: what only one of them met is chance."""
    found: list[list[Boundary]] = []
    for _ in range(2):
        _, counted, _ = await play(stage, scenario, counting=True)
        found.append([b for b in map(Boundary.parse, counted) if scenario.counts(b)])
    twice = set(found[1])
    return [b for b in found[0] if b in twice]


class Campaign:
    """Lanes side by side, each on a stage of its own. `until`: the monotonic instant at which no more crash begins; None: all of them."""

    def __init__(
        self, opened: Callable[[str], AbstractAsyncContextManager[Stage]], *, seed: int, until: float | None, say: Callable[[str], None],
        at_once: int = 10**9,
    ) -> None:  # fmt: skip
        self._opened = opened
        self._seed = seed
        self._until = until
        self._say = say
        self._at_once = at_once
        self.failures: list[str] = []
        self.tallies: list[Tally] = []

    async def run(
        self,
        lanes: int,
        scenarios: list[Scenario | Poison],
        boundaries: list[Boundary] | None = None,
        nth: int | None = None,
    ) -> bool:
        """Whether everything came out right. `boundaries`: only these; `nth`: where the second victim dies."""
        order = list(scenarios)
        if self._until is not None:
            random.Random(self._seed).shuffle(order)
        self.tallies = [Tally(scenario) for scenario in order]
        line = deque(self.tallies)
        await asyncio.gather(*(self._work(chr(ord("a") + lane), line, boundaries, nth) for lane in range(lanes)))
        return self._report()

    def _over(self) -> bool:
        return self._until is not None and time.monotonic() > self._until

    async def _work(self, lane: str, line: deque[Tally], boundaries: list[Boundary] | None, nth: int | None) -> None:
        while line and not self._over():
            async with self._opened(lane) as stage:
                while line and not self._over() and stage.plays < PLAYS and not stage.spoilt:
                    await self._turn(stage, line, boundaries, nth)

    async def _turn(self, stage: Stage, line: deque[Tally], boundaries: list[Boundary] | None, nth: int | None) -> None:
        tally = line.popleft()
        started = time.monotonic()
        try:
            await self._some(stage, tally, boundaries, nth)
        except Broken as error:
            stage.spoilt = True
            tally.broken += 1
            self.failures.append(str(error))
            self._say(f"{tally.scenario.name}: BROKEN, seed {self._seed}: {error}")
            if tally.broken == BREAKS or not tally.known:
                tally.todo = []
        tally.seconds += time.monotonic() - started
        if not tally.todo:
            self._say(tally.line())
        elif self._until is None:
            line.appendleft(tally)
        else:
            line.append(tally)

    async def _some(self, stage: Stage, tally: Tally, boundaries: list[Boundary] | None, nth: int | None) -> None:
        if isinstance(tally.scenario, Poison):
            try:
                await tally.scenario.play(stage, tally)
            except (AssertionError, TimeoutError) as error:
                raise Broken(f"{tally.scenario.name}: {type(error).__name__}: {error}") from error
            return
        if not tally.known:
            tally.known = boundaries or await count(stage, tally.scenario)
            tally.todo = list(tally.known)
            if not tally.known:
                raise Broken(f"{tally.scenario.name} has no boundaries")
            if self._until is not None:
                random.Random(f"{self._seed} {tally.scenario.name}").shuffle(tally.todo)
        for _ in range(self._at_once):
            if not tally.todo or self._over() or stage.plays >= PLAYS:
                return
            await self._one(stage, tally, tally.todo.pop(0), nth)

    async def _one(self, stage: Stage, tally: Tally, target: Boundary, nth: int | None) -> None:
        scenario = tally.scenario
        assert isinstance(scenario, Scenario)
        chance = random.Random(f"{self._seed} {scenario.name} {target}")
        if nth is None and scenario.doubles and chance.random() < DOUBLES:
            nth = chance.randint(1, len(tally.known))
        for _ in range(TRIES):
            hit, _, case = await play(stage, scenario, target=target, nth=nth)
            if hit:
                tally.hit.add(target)
                tally.crashes += 1
                tally.doubles += bool(case.facts.get("double"))
                return
        tally.missed.append(target)

    def _report(self) -> bool:
        missed = [f"{tally.scenario.name} {b}" for tally in self.tallies for b in tally.missed]
        known, hit = (sum(len(getattr(t, what)) for t in self.tallies) for what in ("known", "hit"))
        crashes, doubles = (sum(getattr(t, what) for t in self.tallies) for what in ("crashes", "doubles"))
        left = sum(len(t.todo) for t in self.tallies)
        self._say(
            f"seed {self._seed}: scenarios {len(self.tallies)}, boundaries known {known}, hit {hit}, missed {len(missed)}, "
            f"left for another day {left}; crashes {crashes + doubles}, of them second ones {doubles}"
        )
        for name in missed:
            self._say(f"never hit: {name}")
        return not missed and not self.failures


def every() -> list[Scenario | Poison]:
    """All scenarios, in the order of their numbers."""
    from tests.crash.poison import POISONS
    from tests.crash.power import POWER

    return [*WORDS, *POISONS, *POWER]
