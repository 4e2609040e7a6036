"""A worker's orders, the records that it makes, and what the records of all workers show together.

Pure: no process, no socket, no client.  All times are nanoseconds of CLOCK_MONOTONIC, which the processes of one
machine share.
"""

import heapq
import itertools
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Final, NamedTuple

SESSION_TIMEOUT: Final = 10.0  # seconds, of every contestant's sessions
# What a contestant puts into a queue, see peers/queues.py.
ITEM: Final = b"x" * 100
ITEMS_AT_ONCE: Final = 100


@dataclass(frozen=True, slots=True)
class Order:
    """One worker's part in one race: `turns` turns at the lock whose node is ``lock``, a path without a chroot.

    `place` is the worker's number among those of the race, from 0.
    """

    contestant: str
    host: str
    port: int
    lock: str
    turns: int
    hold: float  # seconds
    place: int = 0


class Turn(NamedTuple):
    """One ownership of the lock: its token, and the times at which acquire and release were called and returned."""

    acquire_called: int
    acquired: int
    release_called: int
    released: int
    token: int


def hand_overs(turns: Sequence[Turn], first: int, count: int) -> list[int]:
    """Return the nanoseconds from each release to the next acquire, for ``count`` turns from number ``first`` on.

    Turns are ordered by their tokens.  A turn whose owner was not yet waiting at the release is left out: its wait
    says nothing about the lock.
    """
    ordered = sorted(turns, key=lambda turn: turn.token)
    window = range(max(first, 1), min(first + count, len(ordered)))
    pairs = ((ordered[n - 1], ordered[n]) for n in window)
    return [new.acquired - old.release_called for old, new in pairs if new.acquire_called < old.release_called]


def turn_rate(turns: Sequence[Turn], first: int, count: int) -> float:
    """Return how many turns there were in a second, of ``count`` turns from number ``first`` on.

    The time ends when the last of them was acquired.  It begins when the turn before the first was, or with the first
    call of all.
    """
    ordered = sorted(turns, key=lambda turn: turn.token)
    window = ordered[first : first + count]
    begin = ordered[first - 1].acquired if first else min(turn.acquire_called for turn in turns)
    return len(window) * 1e9 / (window[-1].acquired - begin)


def releases(turns: Sequence[Turn], first: int, count: int) -> list[int]:
    """Return the nanoseconds that each release took, for ``count`` turns from number ``first`` on."""
    ordered = sorted(turns, key=lambda turn: turn.token)
    return [turn.released - turn.release_called for turn in ordered[first : first + count]]


def overlaps(turns: Iterable[Turn]) -> int:
    """Return how many pairs of turns owned at the same time: 0 for a lock that works."""
    pairs = 0
    owners: list[int] = []  # a heap: the release times of the present owners
    for turn in sorted(turns, key=lambda turn: turn.acquired):
        while owners and owners[0] <= turn.acquired:
            heapq.heappop(owners)
        pairs += len(owners)
        heapq.heappush(owners, turn.release_called)
    return pairs


def misordered(turns: Iterable[Turn]) -> int:
    """Return how often an owner's token was not above the one before: 0 for fencing tokens that work."""
    tokens = [turn.token for turn in sorted(turns, key=lambda turn: turn.acquired)]
    return sum(new <= old for old, new in itertools.pairwise(tokens))
