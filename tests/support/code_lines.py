"""Count lines of code: without docstrings, comments and blank lines."""

import ast
from pathlib import Path
from typing import Final

_WITH_DOCSTRING: Final = (ast.Module, ast.ClassDef, ast.FunctionDef, ast.AsyncFunctionDef)


def code_lines(folder: Path) -> int:
    """Return the number of lines of code in all Python files below `folder`."""
    return sum(_of_source(path.read_text(encoding="utf-8")) for path in folder.rglob("*.py"))


def _of_source(source: str) -> int:
    lines = enumerate(source.split("\n"), 1)
    code = {number for number, line in lines if line.strip() and not line.lstrip().startswith("#")}
    docstrings: set[int] = set()
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, _WITH_DOCSTRING) and ast.get_docstring(node, clean=False) is not None:
            docstrings.update(_lines(node.body[0]))
        elif isinstance(node, ast.Constant | ast.JoinedStr):
            code.update(_lines(node))  # also what looks like a comment in it
    return len(code - docstrings)


def _lines(node: ast.expr | ast.stmt) -> range:
    return range(node.lineno, (node.end_lineno or node.lineno) + 1)
