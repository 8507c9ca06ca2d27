"""A flow as a tree of lines, for a terminal."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Final, TypeAlias

from fencepost.notes import escape
from fencepost.pictures.model import Call, Exit, Flow, Fork, Group, Item, Loop, Note

ENDED: Final = "when it ended without a break"

Branch: TypeAlias = tuple[str, "list[Branch]"]


def lines(flow: Flow) -> Iterator[str]:
    """The picture, and below it what its signs mean, as far as they occur."""
    yield escape(f"workflow {flow.workflow}   {flow.source}")
    yield from _drawn(_branches(flow.items), "")
    yield from legend(flow)


def legend(flow: Flow) -> Iterator[str]:
    """What a reader cannot guess."""
    calls = flow.calls
    if not calls:
        yield "no boundaries: nothing that it does is recorded"
    if any(call.high is None for call in calls):
        yield "#*  any ordinal: in a loop, or after something that was not followed"
    if any(call.known and call.high is not None and call.high != call.low for call in calls):
        yield "#1-2  one of these ordinals, by the way that was taken"
    if any(not call.known for call in calls):
        yield "?  the name is an expression, known when it runs"
    if flow.opaque:
        yield "!  was given the Context and was not followed: a run may record more than is shown"


def said(item: Call | Exit | Note) -> str:
    """A leaf in words."""
    match item:
        case Call():
            return item.id + (f"   {item.detail}" if item.detail else "")
        case Exit():
            return f"{item.word} {item.text}".rstrip()
        case Note():
            return f"! {item.text}" if item.opaque else f"· {item.text}"


def _branches(items: Sequence[Item]) -> list[Branch]:
    return [branch for item in items for branch in _branch(item)]


def _branch(item: Item) -> list[Branch]:
    match item:
        case Fork(word="if" | "try"):
            arms = [(arm.label, _branches(arm.items)) for arm in item.arms if arm.items or arm.label != "else"]
            return [arm for arm in arms if arm[1] or item.word == "try" or arm[0].startswith(("if", "elif"))]
        case Fork():
            inner: list[Branch] = []
            for arm in item.arms:
                found = _branches(arm.items)
                one = not arm.label and len(found) == 1
                inner += found if one else [(arm.label or "beside the others", found)] if found or arm.label else []
            return [(f"{item.word}{', all at once' if item.parallel else ''}", inner)]
        case Loop():
            orelse = [(ENDED, _branches(item.orelse))] if item.orelse else []
            return [(item.label, _branches(item.items)), *orelse]
        case Group():
            return [(item.title, _branches(item.items))]
        case _:
            return [(said(item), [])]


def _drawn(branches: Sequence[Branch], indent: str) -> Iterator[str]:
    for place, (text, inner) in enumerate(branches):
        last = place == len(branches) - 1
        yield f"{indent}{'└─ ' if last else '├─ '}{escape(text)}"
        yield from _drawn(inner, indent + ("   " if last else "│  "))
