"""The ground floor, read: chapters, their functions, what they name."""

from __future__ import annotations

import functools
import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pglast
from pglast import ast as pg
from pglast.visitors import Visitor

from tests.tidy.tree import SQL, name, text, under

COMMENT = re.compile(r"--[^\n]*|/\*.*?\*/", re.DOTALL)
LAW = re.compile(r"(?<![\d.])\d\d\.\d{1,2}(?![\d.]*\d)")
CREATED = re.compile(
    r"\bcreate\s+(?:or\s+replace\s+)?(?:unlogged\s+)?(?:materialized\s+)?"
    r"(table|function|procedure|view|type|domain|sequence|aggregate)\s+(?:if\s+not\s+exists\s+)?fencepost\.(\w+)",
    re.IGNORECASE,
)
NAMED = re.compile(r"(?<![\w.'\"])fencepost\.([a-z_]\w*)")
LOCK = re.compile(r"\bfor\s+(?:no\s+key\s+)?update\b", re.IGNORECASE)
WRITES_TASK = re.compile(r"\b(?:update|delete\s+from)\s+(?:only\s+)?fencepost\.task\b", re.IGNORECASE)


def sql_files() -> list[Path]:
    return list(under("src/fencepost/sql", ".sql"))


def chapters() -> dict[str, Path]:
    """Number -> file, for the numbered chapters."""
    found = [path for path in sql_files() if path.parent == SQL and re.match(r"\d\d_", path.name)]
    return {path.name[:2]: path for path in found}


def header(path: Path) -> str:
    """The comment block a chapter opens with."""
    lines: list[str] = []
    for line in text(path).splitlines():
        if not line.startswith("--") and line.strip():
            break
        lines.append(line)
    return "\n".join(lines)


def bare(source: str) -> str:
    """Source without its comments, of the same length, so that positions hold."""
    return COMMENT.sub(lambda found: re.sub(r"[^\n]", " ", found.group()), source)


def line_of(source: str, position: int) -> int:
    return source.count("\n", 0, position) + 1


@dataclass(frozen=True, slots=True)
class Function:
    """One `create function` as it stands in its file."""

    name: str
    path: Path
    line: int
    source: str
    language: str

    @property
    def door(self) -> bool:
        return not self.name.endswith("_")


@functools.cache
def statements(path: Path) -> tuple[tuple[int, str, Any], ...]:
    """Start, source and tree of each statement of a file."""
    source = text(path)
    found: list[tuple[int, str, Any]] = []
    for raw in pglast.parse_sql(source):
        end = raw.stmt_location + raw.stmt_len if raw.stmt_len else len(source)
        found.append((raw.stmt_location, source[raw.stmt_location : end], raw.stmt))
    return tuple(found)


@functools.cache
def functions(path: Path) -> tuple[Function, ...]:
    found: list[Function] = []
    for start, source, node in statements(path):
        if isinstance(node, pg.CreateFunctionStmt):
            options = {option.defname: option.arg for option in node.options or ()}
            language = options["language"].sval if "language" in options else "sql"
            first = start + len(source) - len(bare(source).lstrip())
            found.append(Function(node.funcname[-1].sval, path, line_of(text(path), first), source, language))
    return tuple(found)


def all_functions() -> list[Function]:
    return [function for path in chapters().values() for function in functions(path)]


def doors() -> set[str]:
    return {function.name for function in all_functions() if function.door}


def owners() -> dict[str, str]:
    """Object -> chapter that creates it first."""
    found: dict[str, str] = {}
    for number, path in sorted(chapters().items()):
        for match in CREATED.finditer(bare(text(path))):
            found.setdefault(match.group(2), number)
    return found


def locking_rooms() -> set[str]:
    """Functions ending in `_` that take a row lock, themselves or through another room."""
    rooms = {function.name: bare(function.source) for function in all_functions() if not function.door}
    locking = {room for room, source in rooms.items() if LOCK.search(source)}
    while True:
        more = {room for room, source in rooms.items() if any(f"fencepost.{other}(" in source for other in locking)}
        if more <= locking:
            return locking
        locking |= more


def queries(function: Function) -> Iterator[str]:
    """Every statement and expression of a function's body, each as something the SQL parser takes."""
    if function.language == "sql":
        body = re.search(r"(\$\w*\$)(.*)\1", function.source, re.DOTALL)
        if body:
            yield body.group(2)
    elif function.language == "plpgsql":
        # The parser has no catalogue: a row's type is taken from public only, and an array of rows is refused.
        assert "public." not in bare(function.source), f"{where(function)}: nothing of ours is in public"
        source = re.sub(r"\bfencepost\.\w+\[\]", "jsonb", function.source)
        found = pglast.parse_plpgsql(re.sub(r"\bfencepost\.", "public.", source))
        yield from (re.sub(r"\bpublic\.", "fencepost.", query) for query in expressions(found))


def expressions(found: object) -> Iterator[str]:
    if isinstance(found, list):
        for item in found:
            yield from expressions(item)
    elif isinstance(found, dict):
        for key, value in found.items():
            if key == "PLpgSQL_expr":
                # Modes of the parser: 0 a statement, 2 an expression, 3 and more an assignment.
                query, mode = value["query"], value.get("parseMode", 0)
                yield query if mode == 0 else "select " + (query if mode == 2 else query.split(":=", 1)[-1])
            else:
                yield from expressions(value)


class Names(Visitor):
    """Tables and functions a tree names without a schema, names it gives itself aside."""

    def __init__(self) -> None:
        super().__init__()
        self.own: set[str] = set()
        self.tables: set[str] = set()
        self.calls: set[str] = set()
        self.foreign: set[str] = set()

    def visit_CommonTableExpr(self, _: Any, node: pg.CommonTableExpr) -> None:
        self.own.add(node.ctename)

    def visit_TriggerTransition(self, _: Any, node: pg.TriggerTransition) -> None:
        self.own.add(node.name)

    def visit_RangeVar(self, _: Any, node: pg.RangeVar) -> None:
        if node.schemaname is None:
            self.tables.add(node.relname)
        elif node.schemaname not in {"fencepost", "pg_catalog", "information_schema"}:
            self.foreign.add(f"{node.schemaname}.{node.relname}")

    def visit_FuncCall(self, _: Any, node: pg.FuncCall) -> None:
        if len(node.funcname) == 1:
            self.calls.add(node.funcname[0].sval)

    @property
    def unqualified(self) -> set[str]:
        return self.tables - self.own


def transition_tables() -> set[str]:
    """Names that triggers give to the rows they saw; their functions read them without a schema."""
    found: set[str] = set()
    for path in sql_files():
        found.update(re.findall(r"\b(?:old|new)\s+table\s+as\s+(\w+)", bare(text(path)), re.IGNORECASE))
    return found


def names_in(source: str) -> Names:
    seen = Names()
    seen(pglast.parse_sql(source))
    return seen


def where(function: Function) -> str:
    return f"{name(function.path)}:{function.line} {function.name}"
