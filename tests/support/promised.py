"""`python -m tests.support.promised` writes tests/promised.txt: every public name, and how each function is called.

`=` stands for any default value: a default may change, a name may not.  A class is followed by its public bases; what
it inherits from a base that is listed itself is not repeated.
"""

import argparse
import ast
import dataclasses
import functools
import importlib
import inspect
import re
import textwrap
from abc import ABC
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final, Generic, Protocol

from recipes.read_write_lock import _ReadLock, _WriteLock
from zkwire.session.keepalive import OnClosed, OnUncertain
from zkwire.wire.jute import Record

FILE: Final = Path(__file__).resolve().parents[1] / "promised.txt"
COMMAND: Final = ".venv/bin/python -m tests.support.promised"
MODULES: Final = ("zkwire", "zkwire.blocking", "zkwire.testing", "zkwire.testing.fixtures", "recipes")
PROGRAMS: Final = {"zkwire": "zkwire.command.main", "zklock": "recipes.command.main"}
# What methods return: how such an object is made is not promised.  The first have no public name of their own.
_UNNAMED: Final = {
    "zkwire.Client.on_closed": OnClosed,
    "zkwire.Client.on_uncertain": OnUncertain,
    "recipes.ReadWriteLock.read()": _ReadLock,
    "recipes.ReadWriteLock.write()": _WriteLock,
}
_MADE_BY_US: Final = re.compile(
    r"(?!Value)\w*Stream|Client|Contender|EnsembleServer|Fault|GuaranteedDelete|Hold|Item|\w*Lease|Member|On\w+|Terms?"
    r"|Transaction|Watch|_\w+"
)

# That an object may stand in these statements is promised, too.
_STATEMENTS: Final = ("__enter__", "__aenter__", "__await__", "__iter__", "__aiter__")
_INTERNAL: Final = {"encode", "decode"}  # of all records, most of which are private
_NO_BASES: Final = (ABC, Generic, Protocol)
_ANY: Final = type("Any", (), {"__repr__": lambda self: ""})()


def promised() -> str:
    """Return the list as the code has it."""
    values: dict[str, Any] = {}
    for name in MODULES:
        module = importlib.import_module(name)
        values |= {f"{name}.{each}": getattr(module, each) for each in module.__all__}
    values |= _UNNAMED
    classes = {value: name for name, value in values.items() if inspect.isclass(value)}
    lines = [line for name, value in values.items() for line in _described(name, value, classes)]
    lines += [line for name, module in PROGRAMS.items() for line in _options(name, importlib.import_module(module))]
    return "\n".join(sorted(lines)) + "\n"


def _described(name: str, value: Any, classes: dict[type, str]) -> Iterator[str]:
    if not inspect.isclass(value):
        yield name + _called(value)
        return
    bases = [base for base in value.__mro__[1:-1] if base in classes or (not _is_ours(base) and base not in _NO_BASES)]
    near = [base for base in bases if not any(base in other.__mro__[1:] for other in bases)]
    yield " ".join([name, "class", *(classes.get(base, base.__name__) for base in near)])
    inherited = {member for base in near if base in classes for member in _members(base)}
    yield from (name + member for member in _members(value) - inherited)


def _is_ours(thing: Any) -> bool:
    return str(getattr(thing, "__module__", "")).startswith(("zkwire", "recipes", "namedtuple_"))


def _members(cls: type) -> set[str]:
    if issubclass(cls, Record):
        dataclasses.fields(cls)  # makes its methods
    names = {name for each in cls.__mro__ if _is_ours(each) for name in (*vars(each), *_attributes(each))}
    public = {name for name in names if not name.startswith("_") or name in _STATEMENTS} - _INTERNAL
    maker = inspect.getattr_static(cls, "__new__" if hasattr(cls, "_fields") else "__init__")
    made = set() if _MADE_BY_US.fullmatch(cls.__name__) else {_called(maker)} - {""}
    return made | {f".{name}{_called(inspect.getattr_static(cls, name, None))}" for name in public}


@functools.cache
def _attributes(cls: type) -> frozenset[str]:
    """Return the attributes that the methods of a class give to its objects."""
    nodes = ast.walk(ast.parse(textwrap.dedent(inspect.getsource(cls))))
    stored = (node for node in nodes if isinstance(node, ast.Attribute) and isinstance(node.ctx, ast.Store))
    return frozenset(node.attr for node in stored if ast.unparse(node.value) == "self")


def _called(function: Any) -> str:
    """Return how a function is called, or nothing for what is not called."""
    function = getattr(function, "__func__", function)
    if not inspect.isfunction(function) or function.__module__ in ("typing", "enum"):
        return ""
    parameters = [
        each.replace(annotation=each.empty, default=each.empty if each.default is each.empty else _ANY)
        for each in inspect.signature(function).parameters.values()
        if each.name not in ("self", "cls", "_cls")
    ]
    return f"{inspect.Signature(parameters)}{' async' if inspect.iscoroutinefunction(function) else ''}"


def _options(program: str, module: Any) -> Iterator[str]:
    (commands,) = (each for each in module.parser()._actions if isinstance(each, argparse._SubParsersAction))
    for name, parser in commands.choices.items():
        words = [action.dest for action in parser._actions if not action.option_strings]
        options = ("/".join(action.option_strings) for action in parser._actions if action.option_strings)
        yield " ".join([program, name, *words, *sorted(options)])


if __name__ == "__main__":
    FILE.write_text(promised(), encoding="utf-8")
