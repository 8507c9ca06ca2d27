"""What an expression asks of the Context, in the order it is evaluated."""

from __future__ import annotations

import ast
from collections.abc import Sequence
from typing import Any, Final

from fencepost.pictures.calls import QUIET, boundaries
from fencepost.pictures.following import Following
from fencepost.pictures.model import Arm, Call, Fork, Item, Loop, Note
from fencepost.pictures.names import Scope, text_of

BEGINS: Final = frozenset({"create_task", "ensure_future", "start_soon"})  # begin a coroutine beside what follows
PASSES_ON: Final = frozenset({"wait_for", "shield"})  # await their first argument
TOGETHER: Final = frozenset({"gather"})


class Asking(Following):
    """Reads expressions. `Reading` adds the statements."""

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
        if followed := self._functions(func, scope):
            ways = [self._helper(node, one, given, scope, awaited=awaited) for one in followed]
            arms = [Arm(f"as of line {one[0].lineno}", way) for one, way in zip(followed, ways, strict=True)]
            return ways[0] if len(ways) == 1 else self._fork(arms, node)
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

    def _arm(self, arg: ast.expr, scope: Scope) -> Arm:
        """One of several coroutines that are awaited together."""
        value = arg.value if isinstance(arg, ast.Starred) else arg
        items = self.asked(value, scope, awaited=True)
        return Arm("", items, direct=self.is_direct(items))

    @staticmethod
    def is_direct(items: Sequence[Item]) -> bool:
        """One boundary with a known name, counted at once when its task begins."""
        return len(items) == 1 and isinstance(items[0], Call) and items[0].known
