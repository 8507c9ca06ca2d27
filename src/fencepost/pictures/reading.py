"""From the statements of a workflow to its items. Functions that are given the Context are followed; a call of itself is a loop."""

from __future__ import annotations

import ast
from collections.abc import Sequence
from typing import Final

from fencepost.pictures.asking import Asking
from fencepost.pictures.following import ELSEWHERE
from fencepost.pictures.model import Arm, Exit, Fork, Group, Item, Loop, Note
from fencepost.pictures.names import FunctionNode, Scope, text_of

GLUE_CHARS: Final = 100


class Reading(Asking):
    """Reads functions' bodies. What expressions ask for is in `asking`."""

    def body(self, node: FunctionNode, scope: Scope) -> list[Item]:
        """What a function does, its docstring aside."""
        if isinstance(node, ast.Lambda):
            return self.asked(node.body, scope, awaited=scope.awaits_return)
        said = ast.get_docstring(node, clean=False) is not None
        return self.block(node.body[1:] if said else node.body, scope)

    def block(self, statements: Sequence[ast.stmt], scope: Scope) -> list[Item]:
        """Statements, one after the other."""
        return [item for statement in statements for item in self.statement(statement, scope)]

    def statement(self, node: ast.stmt, scope: Scope) -> list[Item]:
        match node:
            case ast.If():
                return self._if(node, scope)
            case ast.For() | ast.AsyncFor() | ast.While():
                return self._loop(node, scope)
            case ast.Try() | ast.TryStar():
                return self._try(node, scope)
            case ast.With() | ast.AsyncWith():
                return self._with(node, scope)
            case ast.Match():
                return self._match(node, scope)
            case ast.FunctionDef() | ast.AsyncFunctionDef() | ast.Pass() | ast.Global() | ast.Nonlocal():
                return []  # a function inside is read where it is called
            case ast.Return() | ast.Raise() | ast.Break() | ast.Continue():
                return self._exit(node, scope)
            case ast.Assign(targets=targets, value=value):
                found = [*self._given(targets[0], value, scope), *self.all_asked(targets, scope)]
            case ast.AnnAssign(target=target, value=value):
                found = [*(self._given(target, value, scope) if value is not None else []), *self.asked(target, scope)]
            case _:
                found = self.all_asked(list(ast.iter_child_nodes(node)), scope)
        return found or [Note(text_of(node, GLUE_CHARS), node.lineno)]

    def _given(self, target: ast.expr, value: ast.expr, scope: Scope) -> list[Item]:
        """The Context, or a function, that gets one more name is followed by that name."""
        kept = isinstance(target, ast.Name) and target.id in (scope.bound.keys() | scope.functions.keys())
        return self.asked(value, scope, keeps=kept)

    def _exit(self, node: ast.Return | ast.Raise | ast.Break | ast.Continue, scope: Scope) -> list[Item]:
        match node:
            case ast.Return(value=value):
                found = self.asked(value, scope, awaited=scope.awaits_return) if value is not None else []
                text = "" if found or value is None else text_of(value)
                return [*found, Exit("return", text, node.lineno)]
            case ast.Raise(exc=exc, cause=cause):
                found = self.all_asked([part for part in (exc, cause) if part is not None], scope)
                return [*found, Exit("raise", "" if exc is None else text_of(exc), node.lineno)]
            case ast.Break():
                return [Exit("break", "", node.lineno)]
            case ast.Continue():
                return [Exit("continue", "", node.lineno)]

    def _if(self, node: ast.If, scope: Scope) -> list[Item]:
        """An `elif` that asks for nothing is one more arm; one that asks for something is a fork inside the else."""
        found = self.asked(node.test, scope)
        arms = [Arm(f"if {text_of(node.test)}", self.block(node.body, scope))]
        orelse = node.orelse
        while len(orelse) == 1 and isinstance(nested := orelse[0], ast.If) and not self.asked(nested.test, scope):
            arms.append(Arm(f"elif {text_of(nested.test)}", self.block(nested.body, scope)))
            orelse = nested.orelse
        arms.append(Arm("else", self.block(orelse, scope)))
        return [*found, Fork("if", arms, node.lineno)]

    def _match(self, node: ast.Match, scope: Scope) -> list[Item]:
        found = self.asked(node.subject, scope)
        arms: list[Arm] = []
        total = False
        for case in node.cases:
            guard = f" if {text_of(case.guard)}" if case.guard is not None else ""
            asked = self.asked(case.guard, scope) if case.guard is not None else []
            arms.append(Arm(f"case {text_of(case.pattern)}{guard}", [*asked, *self.block(case.body, scope)]))
            total |= not guard and isinstance(case.pattern, ast.MatchAs) and case.pattern.pattern is None
        if not total:
            arms.append(Arm("no case", []))
        return [*found, Fork(f"match {text_of(node.subject)}", arms, node.lineno)]

    def _loop(self, node: ast.For | ast.AsyncFor | ast.While, scope: Scope) -> list[Item]:
        orelse = self.block(node.orelse, scope)
        body = self.block(node.body, scope)
        if isinstance(node, ast.While):
            again = self.asked(node.test, scope)
            return [Loop(f"while {text_of(node.test)}", [*again, *body], node.lineno, orelse)]
        label = f"for {text_of(node.target, 30)} in {text_of(node.iter)}"
        source = self.asked(node.iter, scope)
        if isinstance(node, ast.AsyncFor) or self.is_generator_of_ours(node.iter, scope):
            return [Loop(label, [*source, *body], node.lineno, orelse)]  # its source goes on between two rounds
        return [*source, Loop(label, body, node.lineno, orelse)]

    def _try(self, node: ast.Try | ast.TryStar, scope: Scope) -> list[Item]:
        body = [*self.block(node.body, scope), *self.block(node.orelse, scope)]
        arms = [Arm("try", body)]
        for handler in node.handlers:
            what = f" {text_of(handler.type)}" if handler.type is not None else ""
            arms.append(Arm(f"except{what}", self.block(handler.body, scope), rescue=True))
        found: list[Item] = [Fork("try", arms, node.lineno)]
        if node.finalbody:
            found.append(Group("finally", self.block(node.finalbody, scope), node.finalbody[0].lineno, final=True))
        return found

    def _with(self, node: ast.With | ast.AsyncWith, scope: Scope) -> list[Item]:
        title = f"with {', '.join(text_of(item, 40) for item in node.items)}"
        entered = [asked for item in node.items for asked in self.asked(item.context_expr, scope)]
        for item in node.items:
            what = item.context_expr
            called = text_of(what.func).rpartition(".")[2] if isinstance(what, ast.Call) else ""
            if called == "TaskGroup":
                return [*entered, *self._task_group(node, scope)]
            if called == "suppress" and isinstance(what, ast.Call):
                hidden = Arm(f"except {', '.join(text_of(arg) for arg in what.args)}", [], rescue=True)
                return [*entered, Fork("try", [Arm("try", self.block(node.body, scope)), hidden], node.lineno)]
        return [*entered, Group(title, self.block(node.body, scope), node.lineno)]

    def _task_group(self, node: ast.With | ast.AsyncWith, scope: Scope) -> list[Item]:
        """Its tasks beside each other and beside its own body; tasks begun inside a loop or an if stay where they are."""
        main: list[Item] = []
        tasks: list[Arm] = []
        for statement in node.body:
            for item in self.statement(statement, scope):
                if isinstance(item, Group) and item.loose and item.call:
                    item.loose, item.title = False, item.title.removesuffix(f", {ELSEWHERE}")
                    tasks.append(Arm("", [item]))
                elif isinstance(item, Group) and item.loose:
                    tasks.append(Arm("", item.items, direct=self.is_direct(item.items)))
                else:
                    main.append(item)
        body = [Arm("", main)] if any(not isinstance(item, Note) or item.opaque for item in main) else []
        arms = [*body, *tasks]
        return [Fork("TaskGroup", arms, node.lineno, parallel=True)] if arms else main
