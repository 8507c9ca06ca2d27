"""What an expression asks of the Context, in the order it is evaluated."""

from __future__ import annotations

import ast
from collections.abc import Sequence
from typing import Any, Final, cast

from fencepost.pictures.calls import QUIET, boundaries
from fencepost.pictures.model import Arm, Call, Fork, Group, Item, Loop, Note
from fencepost.pictures.names import (
    NOT_KNOWN,
    FunctionNode,
    NoSource,
    Scope,
    global_function,
    local_function,
    own,
    parameters,
    parsed,
    resolve,
    text_of,
)

FOLLOWED_MAX: Final = 200  # functions followed in one picture
BEGINS: Final = frozenset({"create_task", "ensure_future", "start_soon"})  # begin a coroutine beside what follows
PASSES_ON: Final = frozenset({"wait_for", "shield"})  # await their first argument
TOGETHER: Final = frozenset({"gather"})


class Asking:
    """Reads expressions. `Reading` adds the statements; the two call each other."""

    def __init__(self) -> None:
        self._stack: list[tuple[FunctionNode, Group]] = []
        self._followed = 0
        self._sources: dict[Any, Any] = {}

    def body(self, node: FunctionNode, scope: Scope) -> list[Item]:
        """What a function does."""
        raise NotImplementedError

    def all_asked(self, nodes: Sequence[ast.AST], scope: Scope) -> list[Item]:
        """What several ask, one after the other."""
        return [item for node in nodes for item in self.asked(node, scope)]

    def asked(self, node: ast.AST, scope: Scope, *, awaited: bool = False, keeps: bool = False) -> list[Item]:
        """What an expression asks. `awaited`: the coroutine it makes is. `keeps`: it is given a name, by which it is followed."""
        match node:
            case ast.Await(value=value):
                return self.asked(value, scope, awaited=True)
            case ast.Call():
                return self._call(node, scope, awaited=awaited)
            case ast.IfExp(test=test, body=body, orelse=orelse):
                arms = [
                    Arm(f"if {text_of(test)}", self.asked(body, scope, awaited=awaited)),
                    Arm("else", self.asked(orelse, scope, awaited=awaited)),
                ]
                return [*self.asked(test, scope), *self._fork(arms, node)]
            case ast.BoolOp(op=op, values=[first, *rest]):
                return self._either(isinstance(op, ast.And), first, rest, scope)
            case ast.ListComp() | ast.SetComp() | ast.GeneratorExp() | ast.DictComp():
                return self._comprehension(node, scope, awaited=awaited)
            case ast.Lambda():
                return [] if keeps else self._handed_on(node, scope)
            case ast.Attribute(value=value, attr=attr) if scope.is_context(value):
                return [] if attr in QUIET else [Note(f"{text_of(node)} is passed on", node.lineno, opaque=True)]
            case ast.Name(ctx=ast.Load()):
                if scope.is_context(node):
                    return [] if keeps else [Note(f"{node.id} is passed on", node.lineno, opaque=True)]
                return [] if keeps else self._handed_on(node, scope)
            case _:
                return self.all_asked(list(ast.iter_child_nodes(node)), scope)

    # ── parts that may not happen, or happen often ───────────────────────────────────────────────────────────────────

    def _fork(self, arms: list[Arm], node: ast.expr) -> list[Item]:
        return [Fork("if", arms, node.lineno)] if any(arm.items for arm in arms) else []

    def _either(self, both: bool, first: ast.expr, rest: Sequence[ast.expr], scope: Scope) -> list[Item]:  # noqa: FBT001 - and, or
        found = self.asked(first, scope)
        if rest and (later := self._either(both, rest[0], rest[1:], scope)):
            test = f"if {text_of(first)}" if both else f"if not {text_of(first)}"
            found.append(Fork("if", [Arm(test, later), Arm("else", [])], first.lineno))
        return found

    def _comprehension(
        self, node: ast.ListComp | ast.SetComp | ast.GeneratorExp | ast.DictComp, scope: Scope, *, awaited: bool = False
    ) -> list[Item]:
        first, *_ = node.generators
        makes = [node.key, node.value] if isinstance(node, ast.DictComp) else [node.elt]
        inner = [part for each in node.generators[1:] for part in (each.iter, *each.ifs)]
        body = self.all_asked([*first.ifs, *inner], scope)
        body += [item for make in makes for item in self.asked(make, scope, awaited=awaited)]
        source = self.asked(first.iter, scope)
        if not body:
            return source
        if first.is_async:
            return [self._loop_of(node, [*source, *body])]
        return [*source, self._loop_of(node, body)]

    def _loop_of(self, node: Any, body: list[Item]) -> Loop:
        said = ", ".join(f"for {text_of(each.target, 30)} in {text_of(each.iter, 40)}" for each in node.generators)
        return Loop(said, body, node.lineno)

    def _handed_on(self, node: ast.expr, scope: Scope) -> list[Item]:
        """A function that uses the Context and is passed to somebody: called whenever, and as often as, they like."""
        found = local_function(node, scope)
        if found is None or not self._uses_context(*found):
            return []
        title = f"{text_of(node)}, called by whom it is given to"
        items = self._follow(found[0], found[1], None, scope, title, awaited=True)
        return [Group(title, [Loop("any number of times", items, node.lineno)], node.lineno, loose=True)]

    # ── calls ────────────────────────────────────────────────────────────────────────────────────────────────────────

    def _call(self, node: ast.Call, scope: Scope, *, awaited: bool) -> list[Item]:
        func = node.func
        given = [*node.args, *(keyword.value for keyword in node.keywords)]
        if isinstance(func, ast.Attribute) and scope.is_context(func.value):
            before = self.all_asked(given, scope)
            found = boundaries(func.attr, node, scope)
            if found is None:
                found = [Note(f"{text_of(node)}: not known to this picture", node.lineno, opaque=True)]
            return before + self._begun(found, node, awaited=awaited)
        if (followed := self._function(func, scope)) is not None:
            return self._helper(node, followed, given, scope, awaited=awaited)
        name = func.attr if isinstance(func, ast.Attribute) else func.id if isinstance(func, ast.Name) else ""
        if name in TOGETHER and node.args:
            arms = [self._arm(arg, scope) for arg in node.args]
            arms = [arm for arm in arms if arm.items]
            found = [Fork(name, arms, node.lineno, parallel=True)] if arms else []
            return self._begun(found, node, awaited=awaited)
        if name in PASSES_ON and node.args:
            return self._begun(self.asked(node.args[0], scope, awaited=True), node, awaited=awaited)
        if name in BEGINS and node.args:
            rest = self.all_asked(given[1:], scope)
            return rest + self._begun(self.asked(node.args[0], scope, awaited=True), node, awaited=awaited)
        if any(scope.is_context(arg) for arg in given):
            others = self.all_asked([arg for arg in given if not scope.is_context(arg)], scope)
            return [*others, Note(f"{text_of(node)}: not followed", node.lineno, opaque=True)]
        return self.all_asked([func, *given], scope)

    def _begun(self, items: Sequence[Item], node: ast.expr, *, awaited: bool) -> list[Item]:
        """A coroutine that nobody awaits here is begun beside what follows."""
        if awaited or not items or all(isinstance(item, Note) for item in items):
            return list(items)
        return [Group(f"{text_of(node)}, awaited elsewhere", list(items), node.lineno, loose=True)]

    def _arm(self, arg: ast.expr, scope: Scope) -> Arm:
        """One of several coroutines that are awaited together."""
        value = arg.value if isinstance(arg, ast.Starred) else arg
        items = self.asked(value, scope, awaited=True)
        return Arm("", items, direct=self.is_direct(items))

    @staticmethod
    def is_direct(items: Sequence[Item]) -> bool:
        """One boundary with a known name, counted at once when its task begins."""
        return len(items) == 1 and isinstance(items[0], Call) and items[0].known

    # ── functions that are followed ──────────────────────────────────────────────────────────────────────────────────

    def _function(self, func: ast.expr, scope: Scope) -> tuple[FunctionNode, Scope | None, Any] | None:
        """What a call calls: a function of this one, or one of a module, with its source."""
        found = local_function(func, scope)
        if found is not None:
            return *found, found[1].outer
        plain = global_function(func, scope)
        if plain is None or plain.__module__.partition(".")[0] in ("asyncio", "fencepost"):
            return None
        if plain not in self._sources:
            try:
                self._sources[plain] = parsed(plain)
            except NoSource:
                self._sources[plain] = None
        source = self._sources[plain]
        return None if source is None else (source[0], None, source[1])

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
            body = [Group(f"{text_of(node)}, in turns with what follows", body, node.lineno, loose=True)]
        plain = not isinstance(function, ast.AsyncFunctionDef)
        return arguments + (body if plain or self._yields(function) else self._begun(body, node, awaited=awaited))

    def _carries(self, arg: ast.expr, scope: Scope) -> bool:
        """The Context, or a function that uses it: followed into the function that is given it."""
        found = local_function(arg, scope)
        return scope.is_context(arg) or (found is not None and self._uses_context(*found))

    def _follow(
        self, function: FunctionNode, place: Scope | None, call: ast.Call | None, scope: Scope, title: str, *, awaited: bool, outer: Any = None
    ) -> list[Item]:  # fmt: skip
        for known, group in self._stack:
            if known is function:
                group.recursive = True
                return [Note(f"{title} again", getattr(call or function, "lineno", 0))]
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
        finally:
            self._stack.pop()
        return [*lost, group]

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
            called = local_function(node, inner) if isinstance(node, ast.Name) else None
            if called and called[0] is not function and called[1] is place and self._uses_once(called[0], place):
                return True
        return False

    def _uses_once(self, function: FunctionNode, place: Scope) -> bool:
        """Whether a sibling uses the Context in its own body: two that call each other must not be asked for ever."""
        inner = Scope(function, place.outer, place)
        return any(inner.is_context(node) for node in own(function))

    def is_generator_of_ours(self, node: ast.expr, scope: Scope) -> bool:
        """A call of a generator function that is followed."""
        found = self._function(node.func, scope) if isinstance(node, ast.Call) else None
        return found is not None and self._yields(found[0])

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
            elif resolve(value, stands) is not NOT_KNOWN or local_function(value, stands) is not None:
                inner.bound[arg.arg] = (value, stands)
            reached.append(value)
    return reached
