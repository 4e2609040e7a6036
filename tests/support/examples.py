"""How many examples random tests try, and which values long tests: `make quick` tries some of them."""

from collections.abc import Iterable
from typing import Any, Final

import pytest
from hypothesis import settings

QUICK: Final = "quick"
FULL: Final = "zkwire"
_USUAL: Final = 100


def register() -> None:
    """Make the two profiles known to hypothesis, and load that of the whole suite."""
    # No deadline: the time of an example depends more on the load of the machine than on the code.
    settings.register_profile(FULL, deadline=None, max_examples=_USUAL)
    settings.register_profile(QUICK, deadline=None, max_examples=_USUAL // 4)
    settings.load_profile(FULL)


def examples(count: int) -> settings:
    """Return settings for `count` examples in the whole suite, and fewer by the profile that is loaded."""
    return settings(max_examples=max(1, count * settings().max_examples // _USUAL))


def stride() -> int:
    """Return how far apart the moments are at which a play is disturbed: 1, or more by the profile that is loaded."""
    return _USUAL // settings().max_examples


def some_in_quick(values: Iterable[Any], count: int) -> list[Any]:
    """Return `values` for a parametrized test; all but the first `count` are marked as slow.

    A tuple holds the values of several parameters.
    """
    slow = pytest.mark.slow("the first values show the usual faults")
    rows = [value if isinstance(value, tuple) else (value,) for value in values]
    return [pytest.param(*row, marks=[] if at < count else slow) for at, row in enumerate(rows)]
