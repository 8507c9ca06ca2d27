"""What a name in a workflow's source stands for: its scopes, and the objects of the imported module. Nothing is called."""

from __future__ import annotations

import ast
import builtins
import inspect
import types
from collections import ChainMap, Counter
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, Final, TypeAlias, cast

from fencepost.notes import escape

TEXT_CHARS: Final = 60  # of an expression in a picture
NOT_KNOWN: Final = object()

FunctionNode: TypeAlias = ast.FunctionDef | ast.AsyncFunctionDef | ast.Lambda


class NoSource(Exception):
    """The source of a function cannot be read, or is not what was found."""


@dataclass(eq=False, slots=True)
class Scope:
    """A function's names. `bound`: parameters and names assigned once, with the expression they are given and where that stands."""

    node: FunctionNode
    outer: Mapping[str, Any]
    parent: Scope | None = None
    contexts: set[str] = field(default_factory=set[str])
    bound: dict[str, tuple[ast.expr, Scope]] = field(default_factory=dict[str, "tuple[ast.expr, Scope]"])
    functions: dict[str, list[FunctionNode]] = field(default_factory=dict[str, list[FunctionNode]])
    stored: frozenset[str] = frozenset()
    awaits_return: bool = False  # a plain function whose coroutine its caller awaits

    def __post_init__(self) -> None:
        stores = [name for node in own(self.node) for name in stored(node)]
        self.stored = frozenset(stores) | {arg.arg for arg in parameters(self.node)}
        shared = {name for node in ast.walk(self.node) if isinstance(node, ast.Nonlocal) for name in node.names}
        once = {name for name, count in Counter(stores).items() if count == 1} - shared
        for node in own(self.node):
            if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
                self.functions.setdefault(node.name, []).append(node)
            elif isinstance(node, ast.Assign) and len(node.targets) == 1 and isinstance(node.targets[0], ast.Name):
                self._bind(node.targets[0].id, node.value, once)
            elif isinstance(node, ast.AnnAssign) and node.value is not None and isinstance(node.target, ast.Name):
                self._bind(node.target.id, node.value, once)

    def _bind(self, name: str, value: ast.expr, once: set[str]) -> None:
        if name not in once or name in {arg.arg for arg in parameters(self.node)}:
            return
        if isinstance(value, ast.Lambda):
            self.functions.setdefault(name, []).append(value)
        elif isinstance(value, ast.Name | ast.Constant | ast.Attribute | ast.JoinedStr) and self._is_settled(value):
            self.bound[name] = (value, self)

    def _is_settled(self, value: ast.expr) -> bool:
        """Every name in it stands for one thing, said before: so no name is bound to itself by a detour."""
        given = {arg.arg for arg in parameters(self.node)} | self.bound.keys() | self.functions.keys()
        names = [node.id for node in ast.walk(value) if isinstance(node, ast.Name)]
        return all(name in given or name not in self.stored for name in names)

    def holder(self, name: str) -> Scope | None:
        """The function that a name is local to; None: it is the module's."""
        scope: Scope | None = self
        while scope is not None and name not in scope.stored and name not in scope.functions:
            scope = scope.parent
        return scope

    def is_context(self, node: ast.AST) -> bool:
        """A bare name that holds the Context."""
        if not isinstance(node, ast.Name) or (scope := self.holder(node.id)) is None:
            return False
        if node.id in scope.contexts:
            return True
        value, place = scope.bound.get(node.id, (None, scope))
        return value is not None and (value is not node) and place.is_context(value)


def parameters(node: FunctionNode) -> list[ast.arg]:
    """All of them, in the order of the signature."""
    args = node.args
    several = [arg for arg in (args.vararg, args.kwarg) if arg is not None]
    return [*args.posonlyargs, *args.args, *args.kwonlyargs, *several]


def stored(node: ast.AST) -> list[str]:
    """The names that a node itself gives a meaning."""
    match node:
        case ast.Name(id=name, ctx=ast.Store() | ast.Del()):
            return [name]
        case ast.ExceptHandler(name=str(name)) | ast.MatchAs(name=str(name)) | ast.MatchStar(name=str(name)):
            return [name]
        case ast.MatchMapping(rest=str(name)):
            return [name]
        case ast.Import(names=names) | ast.ImportFrom(names=names):
            return [(name.asname or name.name).partition(".")[0] for name in names]
        case _:
            return []


def own(node: FunctionNode) -> Iterator[ast.AST]:
    """The nodes of a function's body, those of functions and classes inside aside."""
    waiting: list[ast.AST] = list(node.body) if not isinstance(node, ast.Lambda) else [node.body]
    while waiting:
        found = waiting.pop(0)
        yield found
        if not isinstance(found, ast.FunctionDef | ast.AsyncFunctionDef | ast.Lambda | ast.ClassDef):
            waiting = [*ast.iter_child_nodes(found), *waiting]


def text_of(node: ast.AST, most: int = TEXT_CHARS) -> str:
    """An expression on one bounded line."""
    whole = escape(" ".join(ast.unparse(node).split()))
    return whole if len(whole) <= most else whole[: most - 2].rstrip() + " …"


def resolve(node: ast.expr | None, scope: Scope) -> Any:
    """The object an expression stands for, or NOT_KNOWN. Only names, constants, attributes of modules and classes: no code runs."""
    match node:
        case ast.Constant(value=value):
            return value
        case ast.Name(id=name):
            place = scope.holder(name)
            if place is None:
                return scope.outer.get(name, NOT_KNOWN)
            value, at = place.bound.get(name, (None, scope))
            return NOT_KNOWN if value is None or name in place.functions else resolve(value, at)
        case ast.Attribute(value=value, attr=attr):
            owner = resolve(value, scope)
            if not isinstance(owner, types.ModuleType | type):
                return NOT_KNOWN
            try:
                return inspect.getattr_static(owner, attr)
            except AttributeError:
                return NOT_KNOWN
        case ast.JoinedStr(values=values):
            return _joined(values, scope)
        case _:
            return NOT_KNOWN


def _joined(values: list[ast.expr], scope: Scope) -> Any:
    parts: list[str] = []
    for value in values:
        if isinstance(value, ast.FormattedValue) and (value.conversion != -1 or value.format_spec is not None):
            return NOT_KNOWN
        found = resolve(value.value if isinstance(value, ast.FormattedValue) else value, scope)
        if type(found) not in (str, int):
            return NOT_KNOWN
        parts.append(str(found))
    return "".join(parts)


def local_functions(node: ast.AST, scope: Scope) -> list[tuple[FunctionNode, Scope]]:
    """The functions inside a function (or the lambda) that an expression names, and the scope they stand in: one for each definition."""
    if isinstance(node, ast.Lambda):
        return [(node, scope)]
    if not isinstance(node, ast.Name) or (place := scope.holder(node.id)) is None:
        return []
    if node.id in place.functions:
        return [(function, place) for function in place.functions[node.id]]
    value, at = place.bound.get(node.id, (None, scope))
    return local_functions(value, at) if value is not None else []


def parsed(function: Any) -> tuple[ast.FunctionDef | ast.AsyncFunctionDef, Mapping[str, Any]]:
    """A plain function's source, and the names it sees from outside. Raises NoSource."""
    plain = inspect.unwrap(function)
    if not isinstance(plain, types.FunctionType):
        raise NoSource(f"{function!r} is no plain function")
    try:
        source = inspect.getsource(plain)
    except (OSError, TypeError) as error:
        raise NoSource(str(error)) from error
    # Inside a class or a function the lines are indented; the first line stands in for what they are inside of.
    try:
        tree = ast.parse(("if True:\n" if source[:1].isspace() else "\n") + source)
    except (SyntaxError, ValueError) as error:
        raise NoSource(f"what its file holds by now is not Python: {error}") from error
    for node in ast.walk(tree):
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            if node.name != plain.__name__:
                break
            ast.increment_lineno(tree, plain.__code__.co_firstlineno - 2)
            return node, ChainMap(_closure(plain), plain.__globals__, dict(vars(builtins)))
    raise NoSource(f"its file shows something else at line {plain.__code__.co_firstlineno}")


def _closure(function: types.FunctionType) -> dict[str, Any]:
    found: dict[str, Any] = {}
    for name, cell in zip(function.__code__.co_freevars, function.__closure__ or (), strict=True):
        try:
            found[name] = cell.cell_contents
        except ValueError:  # not filled yet
            continue
    return found


def global_function(node: ast.expr, scope: Scope) -> types.FunctionType | None:
    """The plain function of a module that an expression names."""
    found = resolve(node, scope)
    if isinstance(found, staticmethod):
        found = cast("Any", found).__func__
    plain = inspect.unwrap(found) if callable(found) and not isinstance(found, type) else None
    return plain if isinstance(plain, types.FunctionType) else None
