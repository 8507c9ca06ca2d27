"""The files of this repository, as tidy sees them."""

from __future__ import annotations

import ast
import functools
import io
import subprocess
import tokenize
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
SRC = ROOT / "src" / "fencepost"
SQL = SRC / "sql"


@functools.cache
def files() -> tuple[Path, ...]:
    """Every file git knows or would take, without what was deleted and not yet said so."""
    listed = subprocess.run(
        ["git", "ls-files", "-z", "--cached", "--others", "--exclude-standard"],
        cwd=ROOT,
        check=True,
        capture_output=True,
    ).stdout.decode()
    return tuple(path for name in sorted(set(listed.split("\0")) - {""}) if (path := ROOT / name).is_file())


def under(folder: str, suffix: str = ".py") -> list[Path]:
    """The files of one kind below a folder of the repository."""
    return [path for path in files() if path.suffix == suffix and path.is_relative_to(ROOT / folder)]


def name(path: Path) -> str:
    return path.relative_to(ROOT).as_posix()


@functools.cache
def text(path: Path) -> str:
    return path.read_text(encoding="utf-8")


@functools.cache
def tree(path: Path) -> ast.Module:
    return ast.parse(text(path), filename=name(path))


def calls(path: Path) -> Iterator[tuple[int, str]]:
    """Line number and dotted name of each call, inside f-strings too: prose breaks no rule."""
    for node in ast.walk(tree(path)):
        if isinstance(node, ast.Call):
            yield node.lineno, ast.unparse(node.func)


def comments(path: Path) -> Iterator[tuple[int, str]]:
    """Line number and text of each comment."""
    for token in tokenize.generate_tokens(io.StringIO(text(path)).readline):
        if token.type == tokenize.COMMENT:
            yield token.start[0], token.string


def functions(path: Path) -> Iterator[tuple[str, int]]:
    """Qualified name and length of each function, in lines, its docstring and decorators aside."""

    def walk(node: ast.AST, prefix: str) -> Iterator[tuple[str, int]]:
        for child in ast.iter_child_nodes(node):
            if isinstance(child, ast.ClassDef):
                yield from walk(child, f"{prefix}{child.name}.")
            elif isinstance(child, ast.FunctionDef | ast.AsyncFunctionDef):
                yield f"{prefix}{child.name}", span(child) - (span(child.body[0]) if ast.get_docstring(child) else 0)
                yield from walk(child, f"{prefix}{child.name}.")
            else:
                yield from walk(child, prefix)

    yield from walk(tree(path), "")


def span(node: ast.stmt) -> int:
    assert node.end_lineno is not None
    return node.end_lineno - node.lineno + 1
