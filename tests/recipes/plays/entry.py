"""What is played with one recipe while faults strike."""

from collections.abc import Collection, Iterable
from dataclasses import dataclass
from typing import Any, Final

import pytest

from tests.support.everywhere import MOST_TURNS, Play

CUT: Final = "cut"
CANCEL: Final = "cancel"
EXPIRE: Final = "expire"
REFUSE: Final = "refuse"
FORBID: Final = "forbid"
EVERY: Final = frozenset({CUT, CANCEL, EXPIRE, REFUSE, FORBID})


@dataclass(frozen=True, slots=True)
class Entry:
    """One play of a recipe, and the faults that it is played with.

    Attributes:
        act: uses the recipe by the client `zk`, and checks the result.
        faults: the kinds of faults.
        prepare: played before, without faults.
        afterwards: played after a cancellation, an expired session or a refusal, to see that the recipe still works;
            `act` itself by default.
        stays: the paths relative to the recipe's path that may be left.
        steps: how many requests the play has at least.
        most: the last turn of the event loop at which it is cancelled, for an `act` that waits for ever.
        lost: what `act` may raise when the session expires, and also when a request is forbidden.
        is_slow: whether `make quick` leaves it out.
    """

    name: str
    act: Play
    faults: Collection[str] = EVERY
    prepare: Play | None = None
    afterwards: Play | None = None
    stays: Collection[str] = ()
    steps: int = 1
    most: int = MOST_TURNS
    lost: tuple[type[Exception], ...] = ()
    is_slow: bool = False


def parameters(entries: Iterable[Entry], fault: str) -> list[Any]:
    """Return the entries that are played with `fault`, as parameters of a test."""
    slow = pytest.mark.slow("other plays show the usual faults")
    return [
        pytest.param(entry, id=entry.name, marks=[slow] if entry.is_slow else [])
        for entry in entries
        if fault in entry.faults
    ]
