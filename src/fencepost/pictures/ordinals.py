"""Which calls of its (kind, name) each boundary can be (law 50.4 counts them in the order the code makes them).

A walk over the tree with a lower and an upper count per (kind, name). Where ways meet, the bounds are the wider ones; what runs
beside something else may come before or after it; a loop leaves the upper bound open. The bounds hold for every run whose
boundaries are all in the tree; they may be wider than what can happen, never narrower.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from math import inf
from typing import TypeAlias

from fencepost.pictures.model import Arm, Call, Exit, Fork, Group, Item, Loop, Note, walk

Key: TypeAlias = tuple[str, str]
Counts: TypeAlias = dict[Key, float]


@dataclass(slots=True)
class State:
    """How often each (kind, name) was asked for so far: at least, and at most. A name that is not known may be any: key (kind, "")."""

    low: Counter[Key] = field(default_factory=Counter[Key])
    high: Counts = field(default_factory=dict[Key, float])
    blind: bool = False  # code that could not be followed had the Context

    def copy(self) -> State:
        return State(Counter(self.low), dict(self.high), self.blind)

    def widen(self, more: Counts) -> State:
        """The same, where as much more may have happened."""
        for key, count in more.items():
            self.high[key] = self.high.get(key, 0) + count
        return self

    def most(self, kind: str, name: str) -> float:
        if self.blind:
            return inf
        return self.high.get((kind, name), 0) + self.high.get((kind, ""), 0)


def joined(states: Iterable[State | None]) -> State | None:
    """Where ways meet; None: none of them comes through."""
    through = [state for state in states if state is not None]
    if not through:
        return None
    low = Counter({key: min(state.low[key] for state in through) for key in through[0].low})
    keys = {key for state in through for key in state.high}
    high = {key: max(state.high.get(key, 0) for state in through) for key in keys}
    return State(low, high, any(state.blind for state in through))


def most_of(items: Sequence[Item]) -> Counts:
    """How often each (kind, name) can at most be asked for in here, whatever way is taken."""
    found: Counts = {}
    for item in items:
        match item:
            case Call():
                _add(found, {_key(item): 1})
            case Fork(parallel=False) if not any(arm.rescue for arm in item.arms):
                ways = [most_of(arm.items) for arm in item.arms]
                _add(found, {key: max(way.get(key, 0) for way in ways) for way in ways for key in way})
            case Fork():
                for arm in item.arms:
                    _add(found, most_of(arm.items))
            case Loop():
                _add(found, dict.fromkeys(most_of(item.items), inf))
                _add(found, most_of(item.orelse))
            case Group():
                inner = most_of(item.items)
                _add(found, dict.fromkeys(inner, inf) if item.recursive else inner)
            case _:
                pass
    return found


def is_blind(items: Sequence[Item]) -> bool:
    """Code in here was given the Context and could not be followed."""
    return any(isinstance(item, Note) and item.opaque for item in walk(items))


def _add(found: Counts, more: Counts) -> None:
    for key, count in more.items():
        found[key] = found.get(key, 0) + count


def _key(call: Call) -> Key:
    return (call.kind, call.name if call.known else "")


class Numbering:
    """One walk. `number` fills in the bounds of every Call of a tree."""

    def __init__(self, items: Sequence[Item]) -> None:
        self._items = items
        self._total = most_of(items)
        self._blind = is_blind(items)
        self._returns: list[list[State]] = [[]]

    def number(self) -> None:
        self._run(self._items, State())

    def _run(self, items: Sequence[Item], state: State | None) -> State | None:
        """The counts after the items; None when they never come to their end."""
        before, returned = State(), 0
        for place, item in enumerate(items):
            if isinstance(item, Group) and item.final and place > 0:
                state = self._finally(item, items[place - 1], before, state, self._returns[-1][returned:])
                continue
            if state is None:  # never reached: its bounds are as wide as any
                self._item(item, State(Counter(), dict(self._total), self._blind))
                continue
            before, returned = state.copy(), len(self._returns[-1])
            state = self._item(item, state)
        return state

    def _item(self, item: Item, state: State) -> State | None:
        match item:
            case Call():
                return self._count(item, state)
            case Note():
                state.blind |= item.opaque
                return state
            case Exit(word="return"):
                self._returns[-1].append(state)
                return None
            case Exit():
                return None
            case Loop():
                return self._loop(item.items, item.orelse, state)
            case Group(loose=True):
                return self._loose(item, state)
            case Group():
                return self._group(item, state)
            case Fork(parallel=True):
                return self._parallel(item, state)
            case Fork():
                return self._ways(item, state)

    def _count(self, call: Call, state: State) -> State:
        if call.verb == "changed" and call.known:
            call.low = call.high = 1  # asked for once, however often the code asks
            return state
        key = _key(call)
        most = state.most(call.kind, call.name)
        call.low = int(state.low[key]) + 1 if call.known else 1
        call.high = None if not call.known or most == inf else int(most) + 1
        state.low[key] += 1
        return state.widen({key: 1})

    def _apart(self, items: Sequence[Item], state: State) -> None:
        """Number what does not lead on from here."""
        self._returns.append([])
        self._run(items, state)
        self._returns.pop()

    def _loop(self, body: Sequence[Item], orelse: Sequence[Item], state: State) -> State | None:
        state.widen(dict.fromkeys(most_of(body), inf)).blind |= is_blind(body)
        self._run(body, state.copy())
        return joined([self._run(orelse, state.copy()), state] if orelse else [state])

    def _loose(self, group: Group, state: State) -> State:
        """Counted at some time between here and the end."""
        own = most_of(group.items)
        others = {key: count if count == inf else count - own.get(key, 0) for key, count in self._total.items()}
        self._apart(group.items, State(Counter(state.low), others, self._blind))
        state.blind |= is_blind(group.items)
        return state.widen(most_of([group]))

    def _group(self, group: Group, state: State) -> State | None:
        if group.recursive:
            low = Counter(state.low)
            state.widen(dict.fromkeys(most_of(group.items), inf))
            self._apart(group.items, state.copy())
            return State(low, state.high, state.blind or is_blind(group.items))
        if not group.call:
            return self._run(group.items, state)
        self._returns.append([])
        end = self._run(group.items, state)
        return joined([end, *self._returns.pop()])

    def _ways(self, fork: Fork, state: State) -> State | None:
        """One way is taken. An exception comes from anywhere in the first."""
        first, *others = fork.arms
        start = state.copy()
        thrown = state.copy().widen(most_of(first.items))
        thrown.blind |= is_blind(first.items)
        ends = [self._run(first.items, state)]
        ends += [self._run(arm.items, (thrown if arm.rescue else start).copy()) for arm in others]
        return joined(ends)

    def _parallel(self, fork: Fork, state: State) -> State | None:
        totals = [most_of(arm.items) for arm in fork.arms]
        state.blind |= is_blind([fork])
        ends: list[State] = []
        low = Counter(state.low)
        for place, arm in enumerate(fork.arms):
            mine = State(Counter(low if arm.direct else state.low), dict(state.high), state.blind)
            beside = totals[:place] if arm.direct else totals[:place] + totals[place + 1 :]
            for other in beside:
                mine.widen(other)
            returned = len(self._returns[-1])
            ends.append(self._run(arm.items, mine) or mine)
            for gone in self._returns[-1][returned:]:
                for other in totals[:place] + totals[place + 1 :]:
                    gone.widen(other)
            if arm.direct:
                low.update(_key(item) for item in arm.items if isinstance(item, Call))
        return self._met(fork.arms, state, ends, totals)

    @staticmethod
    def _met(arms: Sequence[Arm], base: State, ends: Sequence[State], totals: Sequence[Counts]) -> State:
        """All arms have ended: each has done at least what its own way did, at most what it could."""
        after = base.copy()
        done: Counter[Key] = Counter()
        for arm, end, total in zip(arms, ends, totals, strict=True):
            after.widen(total)
            if arm.direct:
                done.update(_key(item) for item in arm.items if isinstance(item, Call))
            else:
                done.update({key: end.low[key] - base.low[key] for key in end.low if end.low[key] > base.low[key]})
        after.low.update(done)
        return after

    def _finally(
        self, group: Group, tried: Item, before: State, after: State | None, returned: Sequence[State]
    ) -> State | None:
        """Entered from wherever the items before it stopped; it goes on only where they would have."""
        start = before.copy().widen(most_of([tried]))
        start.blind |= is_blind([tried])
        ended = self._run(group.items, start)
        more = most_of(group.items)
        for state in returned:
            state.widen(more)
        if after is None or ended is None:
            return None
        after.low.update({key: n - before.low[key] for key, n in ended.low.items() if n > before.low[key]})
        return after.widen(more)
