"""What one worker is told to do and what it records, and what the records of all workers say together.

Pure: no process, no socket, no client. All times are CLOCK_MONOTONIC nanoseconds, a clock that the processes of one
machine share.
"""

import heapq
import itertools
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Final, NamedTuple

SESSION_TIMEOUT: Final = 10.0  # seconds, of every contestant's sessions


@dataclass(frozen=True, slots=True)
class Order:
    """One worker's part in one race: so many turns at the lock whose node is ``lock``, a path without a chroot."""

    contestant: str
    host: str
    port: int
    lock: str
    turns: int
    hold: float  # seconds


class Turn(NamedTuple):
    """One ownership of the lock: when it was asked for, had, given back and known to be back, and its fencing token."""

    acquire_called: int
    acquired: int
    release_called: int
    released: int
    token: int


def hand_overs(turns: Sequence[Turn], first: int, count: int) -> list[int]:
    """Return the nanoseconds from each release to the next acquire, of ``count`` turns from turn number ``first`` on.

    Turns are ordered by their tokens. One whose owner was not yet waiting at the release is left out: its wait says
    nothing about the lock.
    """
    ordered = sorted(turns, key=lambda turn: turn.token)
    window = range(max(first, 1), min(first + count, len(ordered)))
    pairs = ((ordered[n - 1], ordered[n]) for n in window)
    return [new.acquired - old.release_called for old, new in pairs if new.acquire_called < old.release_called]


def overlaps(turns: Iterable[Turn]) -> int:
    """Return how many pairs of turns were owners at the same time: of a lock that excludes, none."""
    pairs = 0
    owners: list[int] = []  # the release times of those who own, a heap
    for turn in sorted(turns, key=lambda turn: turn.acquired):
        while owners and owners[0] <= turn.acquired:
            heapq.heappop(owners)
        pairs += len(owners)
        heapq.heappush(owners, turn.release_called)
    return pairs


def misordered(turns: Iterable[Turn]) -> int:
    """Return how often a lock went to an owner whose token was not above the one before: of a fencing token, never."""
    tokens = [turn.token for turn in sorted(turns, key=lambda turn: turn.acquired)]
    return sum(new <= old for old, new in itertools.pairwise(tokens))
