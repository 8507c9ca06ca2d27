"""What a workflow's source says: a tree of items, in the order the code reads. Frozen shapes, filled in by three passes.

`reading` makes the tree, `ordinals` says which calls of a (kind, name) each boundary can be, `pruned` leaves glue out.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from typing import Literal, TypeAlias


@dataclass(eq=False, slots=True)
class Call:
    """A boundary: (kind, name, ordinal) as the ledger has it. `verb`: the method of the Context that asks for it.

    `known` is false where the name is no literal: `name` is then its expression. `low` and `high` bound its ordinal: equal where the
    code decides it alone, `high` None where a loop (or a name that is not known) leaves it open.
    """

    verb: str
    kind: str
    name: str
    known: bool
    line: int
    detail: str = ""
    low: int = 1
    high: int | None = 1

    @property
    def id(self) -> str:
        """`step publish#1` as at run time; `#*` any, `#1-2` one of; a `?` after a name that is an expression."""
        ordinal = str(self.low) if self.low == self.high else f"{self.low}-{self.high}"
        if self.high is None or not self.known:
            ordinal = "*"
        return f"{self.kind} {self.name}{'' if self.known else '?'}#{ordinal}"


@dataclass(eq=False, slots=True)
class Note:
    """Code between boundaries. `opaque`: it is given the Context and could not be followed, so boundaries may be missing."""

    text: str
    line: int
    opaque: bool = False


@dataclass(eq=False, slots=True)
class Exit:
    """Code that goes on elsewhere."""

    word: Literal["return", "raise", "break", "continue"]
    text: str
    line: int


@dataclass(eq=False, slots=True)
class Arm:
    """One way of a fork. `direct`: the coroutine of a boundary itself, which counts its call when its task begins."""

    label: str
    items: list[Item]
    direct: bool = False
    rescue: bool = False  # entered from wherever an exception left the first arm


@dataclass(eq=False, slots=True)
class Fork:
    """Ways of which one is taken, or (`parallel`) all at once. `word`: if · match · try · and · or · gather · first of."""

    word: str
    arms: list[Arm]
    line: int
    parallel: bool = False


@dataclass(eq=False, slots=True)
class Loop:
    """Items that happen any number of times; `orelse` when it ended without a break."""

    label: str
    items: list[Item]
    line: int
    orelse: list[Item] = field(default_factory=list["Item"])


@dataclass(eq=False, slots=True)
class Group:
    """Items under a title. `call`: a function's body, out of which `return` leads; `recursive`: it calls itself, so it is a loop.

    `loose`: begun beside what follows and not awaited here. `final`: happens however the items before it ended.
    """

    title: str
    items: list[Item]
    line: int
    call: bool = False
    recursive: bool = False
    loose: bool = False
    final: bool = False


Item: TypeAlias = Call | Note | Exit | Fork | Loop | Group


@dataclass(frozen=True, slots=True)
class Flow:
    """The picture of one workflow. `source`: file and first line, for a person."""

    workflow: str
    source: str
    items: list[Item]

    @property
    def calls(self) -> list[Call]:
        """Every boundary, in the order of the source."""
        return [item for item in walk(self.items) if isinstance(item, Call)]

    @property
    def opaque(self) -> list[Note]:
        """What could not be followed: where there is any, the run may record more than the picture shows."""
        return [item for item in walk(self.items) if isinstance(item, Note) and item.opaque]


def inside(item: Item) -> list[list[Item]]:
    """The lists of items inside an item."""
    match item:
        case Fork():
            return [arm.items for arm in item.arms]
        case Loop():
            return [item.items, item.orelse]
        case Group():
            return [item.items]
        case _:
            return []


def walk(items: Sequence[Item]) -> Iterator[Item]:
    """Every item, outer ones first."""
    for item in items:
        yield item
        for part in inside(item):
            yield from walk(part)


def pruned(flow: Flow) -> Flow:
    """The same without glue, and without the structure that held nothing else."""
    items = _prune(flow.items)
    if items and isinstance(items[-1], Exit) and items[-1].word == "return":
        items = items[:-1]  # a workflow's last line ends it anyhow
    return replace(flow, items=items)


def _prune(items: Sequence[Item]) -> list[Item]:
    found: list[Item] = []
    for item in items:
        match item:
            case Call() | Exit():
                found.append(item)
            case Note():
                found += [item] if item.opaque else []
            case Fork():
                arms = [replace(arm, items=_prune(arm.items)) for arm in item.arms]
                found += [replace(item, arms=arms)] if any(arm.items for arm in arms) else []
            case Loop():
                body, orelse = _prune(item.items), _prune(item.orelse)
                found += [replace(item, items=body, orelse=orelse)] if _matters(body) or _matters(orelse) else []
            case Group():
                body = _prune(item.items)
                if item.call and body and isinstance(body[-1], Exit) and body[-1].word == "return":
                    body = body[:-1]
                found += [replace(item, items=body)] if _matters(body) else []
    return found


def _matters(items: Sequence[Item]) -> bool:
    """A boundary, or a way out of more than a loop."""
    return any(
        isinstance(item, Call | Note) or (isinstance(item, Exit) and item.word in ("return", "raise"))
        for item in walk(items)
    )
