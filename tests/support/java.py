"""Which tests need Java: those that may start a real ZooKeeper, themselves or by a fixture."""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable, Iterator
from types import CodeType, FunctionType
from typing import Any, Final

import pytest

from zkwire.testing import RealEnsemble, RealServer

# A module of tests or of their helpers begins with one of these names.
_OURS: Final = ("tests", "conftest", "test_")


def needs_java(item: pytest.Item) -> bool:
    """Return whether the code of a test or of its fixtures names RealServer or RealEnsemble, directly or by a call.

    A name counts wherever it occurs, so that a test which needs no Java may be taken for one that does.
    """
    return isinstance(item, pytest.Function) and any(map(_starts_a_real_server, _functions(item)))


def _functions(item: pytest.Function) -> Iterator[Callable[..., Any]]:
    """Yield the function of a test and those of its fixtures, also of a fixture that a parameter names."""
    yield item.obj
    names = list(item.fixturenames)
    callspec = getattr(item, "callspec", None)
    if callspec is not None:
        names += [value for value in callspec.params.values() if isinstance(value, str)]
    for name in names:
        for definition in item.session._fixturemanager.getfixturedefs(name, item) or ():
            yield definition.func


def _starts_a_real_server(function: Any) -> bool:
    given = getattr(function, "hypothesis", None)
    function = inspect.unwrap(getattr(function, "__func__", function) if given is None else given.inner_test)
    return isinstance(function, FunctionType) and _names_a_real_server(function)


@functools.cache
def _names_a_real_server(code: FunctionType | type) -> bool:
    """Return whether a function, or a method of a class, leads to a real server; only code of the tests is followed."""
    members = vars(code).values() if isinstance(code, type) else [code]
    return any(_follow(member, {member}) for member in members if isinstance(member, FunctionType))


def _follow(function: FunctionType, seen: set[FunctionType]) -> bool:
    for name in _names(function.__code__):
        value = function.__globals__.get(name)
        if value is RealServer or value is RealEnsemble:
            return True
        if not str(getattr(value, "__module__", "")).startswith(_OURS):
            continue
        callees = vars(value).values() if isinstance(value, type) else [value]
        for callee in map(inspect.unwrap, filter(callable, callees)):
            if isinstance(callee, FunctionType) and callee not in seen:
                seen.add(callee)
                if _follow(callee, seen):
                    return True
    return False


def _names(code: CodeType) -> Iterator[str]:
    """Yield the global names that a function uses, also within functions that it defines."""
    yield from code.co_names
    for constant in code.co_consts:
        if isinstance(constant, CodeType):
            yield from _names(constant)
