"""Keeps the arguments of refused calls out of tracebacks: some of them are secrets.

Some programs log tracebacks together with the local variables of each function.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import ParamSpec, TypeVar

P = ParamSpec("P")
R = TypeVar("R")


def hides_arguments(function: Callable[P, R]) -> Callable[P, R]:
    """Decorate `function` so that the traceback of its TypeError or ValueError contains no local variable of it."""

    @functools.wraps(function)
    def call(*args: P.args, **kwargs: P.kwargs) -> R:
        try:
            return function(*args, **kwargs)
        except (TypeError, ValueError) as error:
            refusal = error
        del args, kwargs
        # The error in whose handling this one was raised has a traceback with the same variables.
        refusal.__cause__ = refusal.__context__ = None
        try:
            raise refusal.with_traceback(None)
        finally:
            del refusal  # the traceback contains this frame: do not leave a circle for the garbage collector

    return call
