"""Writes docs/reference/: every public name with its signature and docstring.  `make reference` runs it.

It reads the source with ast, so that the pages do not depend on the version of Python.  A name is described where its
package exports it: zkwire, recipes, zkwire.blocking and zkwire.testing.
"""

import ast
import importlib
import inspect
import re
import sys
import textwrap
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType
from typing import Final

ROOT: Final = Path(__file__).resolve().parent.parent
PACKAGES: Final = ("zkwire", "recipes", "zkwire.blocking", "zkwire.testing")
HEAD: Final = "<!-- Made by docs/reference.py from the docstrings: change those, and run `make reference`. -->\n"

Definition = ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef


def pages() -> dict[str, str]:
    """Return the pages by their file names."""
    return {f"{package}.md": page_of(importlib.import_module(package)) for package in PACKAGES}


def page_of(package: ModuleType) -> str:
    """Return the page of one package: its docstring, a list of its names, and each of them."""
    names = [name for name in _names(package) if not inspect.ismodule(getattr(package, name))]
    parts = [HEAD, f"# {package.__name__}\n", _prose(package.__doc__ or "")]
    parts.append(" · ".join(f"[`{name}`](#{name.lower()})" for name in names) + "\n")
    for name in names:
        parts.append(f"## {name}\n")
        parts.extend(_described(package, name))
    return "\n".join(part for part in parts if part)


def _names(package: ModuleType) -> list[str]:
    """Return what a package exports; a module without a list of names exports what it defines."""
    if hasattr(package, "__all__"):
        return list(package.__all__)
    own = [
        (name, thing) for name, thing in vars(package).items() if inspect.isclass(thing) or inspect.isfunction(thing)
    ]
    return [name for name, thing in own if thing.__module__ == package.__name__ and not name.startswith("_")]


def _described(package: ModuleType, name: str) -> Iterator[str]:
    thing = getattr(package, name)
    found = _definition(thing)
    if found is None:
        yield _value(thing)
        return
    source, definition = found
    parts = [_head(source, definition)]
    members = {}
    if isinstance(definition, ast.ClassDef):
        parts[0] += "".join(f"\n    {field}" for field in _fields(definition))
        members = _members(package, thing)
        if "__init__" in members:
            parts.append(members.pop("__init__")[0])
    yield _code("\n\n".join(parts))
    yield _prose(ast.get_docstring(definition) or "")
    for member, (head, text) in members.items():
        yield f"### {name}.{member}\n"
        yield _code(head)
        yield _prose(text)


def _members(package: ModuleType, thing: type) -> dict[str, tuple[str, str]]:
    """Return the head and the docstring of each public method, with those of base classes that are not exported."""
    members: dict[str, tuple[str, str]] = {}
    for base in thing.__mro__:
        found = _definition(base)
        if found is None or (base is not thing and base.__name__ in _names(package)):
            continue
        if base.__module__.startswith("zkwire.wire."):
            continue  # how a record is encoded is no concern of callers
        source, definition = found
        for node in definition.body:
            if not isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef) or node.name in members:
                continue
            text = ast.get_docstring(node)
            if node.name == "__init__":
                head = re.sub(r"\((\s*)self(?:, )?", r"(\1", _head(source, node), count=1).removesuffix(" -> None")
                members["__init__"] = (head.replace("def __init__", thing.__name__, 1), "")
            elif text is not None and not node.name.startswith("_"):
                members[node.name] = (_head(source, node), text)
    return members


def _fields(definition: ast.ClassDef) -> Iterator[str]:
    """Give the public fields of a record, and the values of an enumeration."""
    for node in definition.body:
        target = (
            node.target
            if isinstance(node, ast.AnnAssign)
            else node.targets[0]
            if isinstance(node, ast.Assign)
            else None
        )
        if isinstance(target, ast.Name) and not target.id.startswith("_"):
            yield ast.unparse(node)


def _definition(thing: object) -> tuple[str, Definition] | None:
    """Return the source of the module that defines a class or function, and its definition there."""
    if not (inspect.isclass(thing) or inspect.isfunction(thing)) or thing.__module__.partition(".")[0] not in PACKAGES:
        return None
    source = Path(inspect.getfile(sys.modules[thing.__module__])).read_text(encoding="utf-8")
    for node in ast.parse(source).body:
        if isinstance(node, Definition) and node.name == thing.__name__:
            return source, node
    return None


def _head(source: str, definition: Definition) -> str:
    """Return the lines from `class` or `def`, with their decorators that callers see, up to the body."""
    lines = source.splitlines()[definition.lineno - 1 : definition.body[0].lineno - 1]
    if not lines:  # the body is on the same line
        lines = [source.splitlines()[definition.lineno - 1].partition(": ...")[0]]
    seen = [ast.unparse(each) for each in definition.decorator_list]
    decorators = [f"@{each}" for each in seen if each in ("property", "classmethod", "staticmethod")]
    return "\n".join([*decorators, textwrap.dedent("\n".join(lines)).rstrip().removesuffix(":")])


def _code(text: str) -> str:
    return f"```text\n{text}\n```\n"


def _prose(docstring: str) -> str:
    """Return a docstring as Markdown: what is indented in it is code."""
    blocks = []
    for block in re.split(r"\n\s*\n", docstring.strip()):
        lines = block.splitlines()
        code = [line for line in lines if line.startswith("    ")]
        prose = [line for line in lines if not line.startswith("    ")]
        if prose:
            blocks.append("\n".join(_escaped(line) for line in prose))
        if code:
            blocks.append(_code(textwrap.dedent("\n".join(code))).rstrip())
    return "\n\n".join(blocks) + "\n"


def _escaped(line: str) -> str:
    """Return a line in which Markdown changes nothing; ``name`` becomes `name`."""
    line = line.replace("``", "`")
    return "".join(
        part if part.startswith("`") else re.sub(r"([*<\[\]]|(?<!\w)_)", r"\\\1", part)
        for part in re.split(r"(`[^`]*`)", line)
    )


def _value(thing: object) -> str:
    kind = type(thing)
    where = "" if kind.__module__ == "builtins" else f"{kind.__module__}."
    return f"A value of the type `{where}{kind.__name__}`.\n"


def main() -> None:
    folder = ROOT / "docs" / "reference"
    folder.mkdir(exist_ok=True)
    for name, page in pages().items():
        (folder / name).write_text(page, encoding="utf-8")


if __name__ == "__main__":
    sys.path.insert(0, str(ROOT))
    main()
