"""What concerns several steps of a plan: ids, dependencies, cycles, and where hand-offs come from (law 70.1).

Near-linear: a plan of 20 000 steps is judged in a second, however long its chains and however far its hand-offs reach.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Final

from fencepost.planning.faults import At, Faults, quoted
from fencepost.planning.steps import Draft
from fencepost.shown import clip

SWEEP: Final = 4096  # sources that one pass over the plan answers for; a step's answer is that many bits
CYCLE_SHOWN: Final = 12


def judge(faults: Faults, drafts: Sequence[Draft]) -> None:
    """Name every fault between steps."""
    index = _ids(faults, drafts)
    needs = [_needs(faults, draft, index) for draft in drafts]
    groups = list(components(needs))
    for group in groups:
        if len(group) > 1:
            _name_cycle(faults, drafts, needs, group)
    _handoffs(faults, drafts, index, needs, groups)


def _ids(faults: Faults, drafts: Sequence[Draft]) -> dict[str, int]:
    found: dict[str, int] = {}
    for draft in drafts:
        if draft.id is None:
            continue
        first = found.setdefault(draft.id, draft.place)
        if first != draft.place:
            faults.add((*draft.at, "id"), f"{draft.id!r} is the id of step[{first + 1}] too: give each step its own")
    return found


def _needs(faults: Faults, draft: Draft, index: dict[str, int]) -> list[int]:
    """The places of what a step needs; what is wrong with an entry is named."""
    found: list[int] = []
    seen = set[str]()
    for n, need in draft.needs:
        at = (*draft.at, "needs", n)
        place = index.get(need.step)
        if need.step in seen:
            faults.add(at, f"{clip(need.step, 100)!r} stands there already: take it out")
        elif need.step == draft.id:
            faults.add(at, "is the step itself, which would wait for ever: take it out")
        elif place is None:
            faults.add(at, f"there is no step {clip(need.step, 100)!r}{faults.like(need.step, index)}")
        else:
            found.append(place)
        seen.add(need.step)
    return found


@dataclass(slots=True)
class _Visit:
    place: int
    rest: Iterator[int]


def components(needs: Sequence[Sequence[int]]) -> Iterator[list[int]]:
    """Groups of steps that need each other, what is needed before what needs it: Tarjan's, without recursion.

    Without a cycle every group is one step, and their order is one in which the plan could run.
    """
    low, number = [0] * len(needs), [0] * len(needs)  # 0: not yet met
    open_, waits, met = list[int](), [False] * len(needs), 0
    for root in range(len(needs)):
        if number[root]:
            continue
        path = [_Visit(root, iter(needs[root]))]
        met = number[root] = low[root] = met + 1
        open_.append(root)
        waits[root] = True
        while path:
            visit = path[-1]
            here = visit.place
            for there in visit.rest:
                if not number[there]:
                    met = number[there] = low[there] = met + 1
                    open_.append(there)
                    waits[there] = True
                    path.append(_Visit(there, iter(needs[there])))
                    break
                if waits[there] and number[there] < low[here]:
                    low[here] = number[there]
            else:
                path.pop()
                if path and low[here] < low[path[-1].place]:
                    low[path[-1].place] = low[here]
                if low[here] == number[here]:
                    yield _closed(open_, waits, here)


def _closed(open_: list[int], waits: list[bool], head: int) -> list[int]:
    group: list[int] = []
    while not group or group[-1] != head:
        group.append(open_.pop())
        waits[group[-1]] = False
    return group


def _name_cycle(faults: Faults, drafts: Sequence[Draft], needs: Sequence[Sequence[int]], group: list[int]) -> None:
    """One shortest cycle through the first step of the group, as it is written."""
    inside, start = set(group), min(group)
    came: dict[int, int] = {}
    queue = deque([start])
    while start not in came:
        here = queue.popleft()
        for there in needs[here]:
            if there in inside and there not in came:
                came[there] = here
                queue.append(there)
    cycle = [start]
    while len(cycle) == 1 or cycle[-1] != start:
        cycle.append(came[cycle[-1]])
    cycle.reverse()
    names = [repr(drafts[place].id) for place in cycle]
    if len(names) > CYCLE_SHOWN:
        names = [*names[: CYCLE_SHOWN - 2], f"… ({len(names) - CYCLE_SHOWN} more)", names[-2], names[-1]]
    said = ", which needs ".join(names)
    second = drafts[cycle[1]].id
    n = next(n for n, need in drafts[start].needs if need.step == second)
    faults.add((*drafts[start].at, "needs", n), f"is part of a cycle: {said}; take one of these needs away")


def _handoffs(
    faults: Faults,
    drafts: Sequence[Draft],
    index: dict[str, int],
    needs: Sequence[Sequence[int]],
    groups: Sequence[Sequence[int]],
) -> None:
    far: list[tuple[int, int, At]] = []  # source, step, where: not a direct need, so to be looked for
    for draft in drafts:
        near = set(needs[draft.place]) if draft.handoffs else set[int]()
        for n, handoff in draft.handoffs:
            at = (*draft.at, "handoffs", n, "from")
            source = index.get(handoff.step)
            if not handoff.step:
                continue
            if source is None:
                faults.add(at, f"there is no step {clip(handoff.step, 100)!r}{faults.like(handoff.step, index)}")
                continue
            if handoff.step == draft.id:
                faults.add(at, "is an output of the step itself: take one of an earlier step")
                continue
            if source not in near:
                far.append((source, draft.place, at))
            _output(faults, at, drafts[source], handoff.output)
    for source, place, at in unreached(far, needs, groups):
        faults.add(at, f"step {drafts[source].id!r} is not among what {drafts[place].id!r} waits for: add it to needs")


def _output(faults: Faults, at: At, source: Draft, output: str) -> None:
    has = source.outputs
    if has is None or output in has:
        return
    there = f"it has {quoted(list(has))}" if has else f"it has none: give it outputs.{clip(output, 64)}"
    faults.add(at, f"step {source.id!r} has no output {clip(output, 100)!r}; {there}{faults.like(output, has)}")


def unreached(
    asked: Sequence[tuple[int, int, At]], needs: Sequence[Sequence[int]], groups: Iterable[Sequence[int]]
) -> Iterator[tuple[int, int, At]]:
    """Of (source, step, …) those where the step does not need the source, directly or through others.

    A bit for each source is handed along the plan's order, SWEEP sources at a time: exact, and no search for each question.
    """
    sources = sorted({source for source, _, _ in asked})
    order = list(groups) if sources else []
    for start in range(0, len(sources), SWEEP):
        bit = {source: 1 << n for n, source in enumerate(sources[start : start + SWEEP])}
        reach = [0] * len(needs)  # of a step: the sources it needs; of what needs it, its own bit too
        for group in order:
            found = 0
            for place in group:
                for need in needs[place]:
                    found |= reach[need] | bit.get(need, 0)
            for place in group:
                reach[place] = found
        yield from (question for question in asked if question[0] in bit and not reach[question[1]] & bit[question[0]])
