"""Functions that are given the Context, or use it: followed into, once for each call."""

from __future__ import annotations

import ast
from abc import ABC, abstractmethod
from collections.abc import Sequence
from typing import Any, Final, cast

from fencepost.pictures.model import Group, Item, Note
from fencepost.pictures.names import (
    NOT_KNOWN,
    FunctionNode,
    NoSource,
    Scope,
    global_function,
    local_functions,
    own,
    parameters,
    parsed,
    resolve,
    text_of,
)

FOLLOWED_MAX: Final = 200  # functions followed in one picture
ELSEWHERE: Final = "awaited elsewhere"


class Following(ABC):
    """Follows calls. `Asking` adds what expressions ask, `Reading` what statements do; they call each other."""

    def __init__(self) -> None:
        self._stack: list[tuple[FunctionNode, Group]] = []
        self._followed = 0
        self._sources: dict[Any, Any] = {}

    @abstractmethod
    def body(self, node: FunctionNode, scope: Scope) -> list[Item]:
        """What a function does."""

    @abstractmethod
    def all_asked(self, nodes: Sequence[ast.AST], scope: Scope) -> list[Item]:
        """What several expressions ask, one after the other."""

    def _handed_on(self, node: ast.expr, scope: Scope) -> list[Item]:
        """A function that uses the Context and is passed to somebody: called whenever, and as often as, they like."""
        found: list[Item] = []
        for function, place in local_functions(node, scope):
            if self._uses_context(function, place):
                items = self._follow(function, place, None, scope, text_of(node), awaited=True)
                if isinstance(group := items[-1], Group):
                    group.title += ", called by others and any number of times"
                    group.loose = group.recursive = True
                found += items
        return found

    def _begun(self, items: Sequence[Item], node: ast.expr, *, awaited: bool) -> list[Item]:
        """A coroutine that nobody awaits here is begun beside what follows."""
        if awaited or not items or all(isinstance(item, Note) for item in items):
            return list(items)
        return self._beside(items, node, ELSEWHERE)

    def _beside(self, items: Sequence[Item], node: ast.expr, how: str) -> list[Item]:
        match items:
            case [Group(call=True) as group]:
                group.title += f", {how}"
                group.loose = True
                return [group]
            case _:
                return [Group(f"{text_of(node)}, {how}", list(items), node.lineno, loose=True)]

    def _functions(self, func: ast.expr, scope: Scope) -> list[tuple[FunctionNode, Scope | None, Any]]:
        """What a call calls: functions of this one (several of one name: each of them), or one of a module, with its source."""
        if found := local_functions(func, scope):
            return [(function, place, place.outer) for function, place in found]
        plain = global_function(func, scope)
        if plain is None or plain.__module__.partition(".")[0] in ("asyncio", "fencepost"):
            return []
        if plain not in self._sources:
            try:
                self._sources[plain] = parsed(plain)
            except NoSource:
                self._sources[plain] = None
        source = self._sources[plain]
        return [] if source is None else [(source[0], None, source[1])]

    def _helper(
        self, node: ast.Call, followed: tuple[FunctionNode, Scope | None, Any], given: list[ast.expr], scope: Scope, *, awaited: bool
    ) -> list[Item]:  # fmt: skip
        function, place, outer = followed
        arguments = self.all_asked([arg for arg in given if not self._carries(arg, scope)], scope)
        takes = any(self._carries(arg, scope) for arg in given)
        if not takes and not (place is not None and self._uses_context(function, place)):
            return arguments
        body = self._follow(function, place, node, scope, text_of(node), awaited=awaited, outer=outer)
        if self._yields(function):  # one half of it runs after what follows
            body = self._beside(body, node, "in turns with what follows")
        plain = not isinstance(function, ast.AsyncFunctionDef)
        return arguments + (body if plain or self._yields(function) else self._begun(body, node, awaited=awaited))

    def _carries(self, arg: ast.expr, scope: Scope) -> bool:
        """The Context, or a function that uses it: followed into the function that is given it."""
        return scope.is_context(arg) or any(self._uses_context(*found) for found in local_functions(arg, scope))

    def _follow(
        self, function: FunctionNode, place: Scope | None, call: ast.Call | None, scope: Scope, title: str, *, awaited: bool, outer: Any = None
    ) -> list[Item]:  # fmt: skip
        for known, group in self._stack:
            if known is function:
                group.recursive = True
                again: list[Item] = [Note(f"{title} again", function_line(function, call))]
                return again + self._handed_in(call, scope)
        if self._followed >= FOLLOWED_MAX:
            return [
                Note(f"{title}: not followed, the picture is large enough", function_line(function, call), opaque=True)
            ]
        self._followed += 1
        inner = Scope(function, outer if outer is not None else (place.outer if place else scope.outer), place)
        inner.awaits_return = awaited and not isinstance(function, ast.AsyncFunctionDef)
        lost = self._bind(inner, call, scope) if call is not None else []
        group = Group(title, [], function_line(function, call), call=True)
        self._stack.append((function, group))
        try:
            group.items = self.body(function, inner)
            if group.recursive:  # where it calls itself, its parameters may stand for something else
                inner.bound = {name: found for name, found in inner.bound.items() if found[1] is inner}
                group.items = self.body(function, inner)
                group.title += ", which calls itself"
                lost += self._handed_in(call, scope)
        finally:
            self._stack.pop()
        return [*lost, group]

    def _handed_in(self, call: ast.Call | None, scope: Scope) -> list[Item]:
        """The functions among the arguments of a call of itself: somebody further in calls them."""
        given = [*call.args, *(keyword.value for keyword in call.keywords)] if call is not None else []
        return [item for arg in given if not scope.is_context(arg) for item in self._handed_on(arg, scope)]

    def _bind(self, inner: Scope, call: ast.Call, scope: Scope) -> list[Item]:
        """Give the parameters their meaning. What carries the Context and reaches no parameter is said to be lost."""
        reached = bind(inner, call, scope)
        given = [*call.args, *(keyword.value for keyword in call.keywords)]
        return [
            Note(f"{text_of(arg)} given to {text_of(call, 40)}: not followed", call.lineno, opaque=True)
            for arg in given
            if arg not in reached and self._carries(arg, scope)
        ]

    def _uses_context(self, function: FunctionNode, place: Scope) -> bool:
        inner = Scope(function, place.outer, place)
        for node in own(function):
            if inner.is_context(node):
                return True
            deeper = node if isinstance(node, ast.Lambda | ast.FunctionDef | ast.AsyncFunctionDef) else None
            if deeper is not None and self._uses_context(deeper, inner):
                return True
            for called, stands in local_functions(node, inner):
                if called is not function and stands is place and self._uses_once(called, place):
                    return True
        return False

    def _uses_once(self, function: FunctionNode, place: Scope) -> bool:
        """Whether a sibling uses the Context in its own body: two that call each other must not be asked for ever."""
        inner = Scope(function, place.outer, place)
        return any(inner.is_context(node) for node in own(function))

    def is_generator_of_ours(self, node: ast.expr, scope: Scope) -> bool:
        """A call of a generator function that is followed."""
        found = self._functions(node.func, scope) if isinstance(node, ast.Call) else []
        return any(self._yields(function) for function, _, _ in found)

    @staticmethod
    def _yields(function: FunctionNode) -> bool:
        return any(isinstance(node, ast.Yield | ast.YieldFrom) for node in own(function))


def function_line(function: FunctionNode, call: ast.Call | None) -> int:
    """Where a call stands; of a function that is passed on, where it is written."""
    return call.lineno if call is not None else function.lineno


def bind(inner: Scope, call: ast.Call, scope: Scope) -> list[ast.expr]:
    """Parameters to the expressions a call gives them; those that were bound. One that is assigned again, or comes through a `*`, is not."""
    args = inner.node.args
    places = [*args.posonlyargs, *args.args]
    written = {n.id for n in own(inner.node) if isinstance(n, ast.Name) and isinstance(n.ctx, ast.Store)}
    given: dict[str, tuple[ast.expr, Scope]] = {}
    if inner.parent is None:
        for arg, default in zip(reversed(places), reversed(args.defaults), strict=False):
            given[arg.arg] = (
                default,
                Scope(cast("FunctionNode", ast.parse("lambda: 0", mode="eval").body), inner.outer),
            )
    for place, value in zip(places, call.args, strict=False):
        if isinstance(value, ast.Starred):
            break
        given[place.arg] = (value, scope)
    given |= {keyword.arg: (keyword.value, scope) for keyword in call.keywords if keyword.arg is not None}
    if any(keyword.arg is None for keyword in call.keywords) or any(isinstance(a, ast.Starred) for a in call.args):
        given = {name: found for name, found in given.items() if found[1] is scope}
    reached: list[ast.expr] = []
    for arg in parameters(inner.node):
        if arg.arg in given and arg.arg not in written:
            value, stands = given[arg.arg]
            if stands.is_context(value):
                inner.contexts.add(arg.arg)
            elif resolve(value, stands) is not NOT_KNOWN or local_functions(value, stands):
                inner.bound[arg.arg] = (value, stands)
            reached.append(value)
    return reached
