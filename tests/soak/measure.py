"""What a soak measures, and the verdict on it: does anything grow that should stay as it is?

The verdict is pure.  Samples are taken while nothing is under way, so that counts need no allowance: they must not be
greater at the end than they were at the beginning.  Memory is allowed to move a little.
"""

import asyncio
import gc
import os
import statistics
import sys
from collections.abc import Sequence
from dataclasses import dataclass, fields
from typing import Final

import zkwire

# Blocks of memory that there may be more of at the end: caches of a bounded size fill and are emptied (such as that of
# the last thousand valid paths).  In a long run a leak of two blocks in each round is more than that.
BLOCKS: Final = 3000
BLOCKS_A_ROUND: Final = 2.0
_PAGE: Final = os.sysconf("SC_PAGE_SIZE")
_COUNTS: Final = ("tasks", "descriptors", "watches", "nodes", "ephemerals", "sessions")
_HEADS: Final = {"seconds": "time", "megabytes": "MB"}


@dataclass(frozen=True, slots=True)
class Sample:
    """One row of the table.

    Arguments: `seconds` since the beginning; `rounds` of work so far; `megabytes`, resident memory of this process;
    `blocks`, how many blocks of memory Python has allocated; `tasks` and `descriptors` of this process; the others are
    the server's: `watches`, `nodes`, `ephemerals` among them, and `sessions`, its connections.
    """

    seconds: float
    rounds: int
    megabytes: float
    blocks: int
    tasks: int
    descriptors: int
    watches: int
    nodes: int
    ephemerals: int
    sessions: int

    def row(self) -> str:
        """Return the line of the table."""
        values = (getattr(self, field.name) for field in fields(self))
        return "".join(f"{value:>12.1f}" if isinstance(value, float) else f"{value:>12}" for value in values)


def head() -> str:
    """Return the head of the table."""
    return "".join(f"{_HEADS.get(field.name, field.name):>12}" for field in fields(Sample))


async def on_server(hosts: str) -> dict[str, int]:
    """Return the figures of the server (its word mntr)."""
    figures = await zkwire.four_letter_word(hosts, "mntr")
    return {name: value for name, value in figures.items() if isinstance(value, int)}


async def sample(hosts: str, seconds: float, rounds: int) -> Sample:
    """Take a sample of this process and of the server."""
    there = await on_server(hosts)
    gc.collect()
    with open("/proc/self/statm", "rb") as file:
        pages = int(file.read().split()[1])
    return Sample(
        seconds=seconds,
        rounds=rounds,
        megabytes=pages * _PAGE / 1e6,
        blocks=sys.getallocatedblocks(),
        tasks=len(asyncio.all_tasks()),
        descriptors=len(os.listdir("/proc/self/fd")),
        watches=there["zk_watch_count"],
        nodes=there["zk_znode_count"],
        ephemerals=there["zk_ephemerals_count"],
        sessions=there["zk_num_alive_connections"],
    )


def verdict(samples: Sequence[Sample]) -> list[str]:
    """Return what has grown, in words; nothing when all is well.

    The first quarter is left out, as the time in which caches fill.
    Raises: ValueError for less than eight samples.
    """
    if len(samples) < 8:
        raise ValueError(f"{len(samples)} samples are too few for a verdict: eight at least")
    settled = samples[len(samples) // 4 :]
    third = len(settled) // 3
    early, late = settled[:third], settled[-third:]
    found = []
    for name in _COUNTS:
        # The least of several: a single sample may meet something that has not ended yet.
        before, after = (min(getattr(each, name) for each in part) for part in (early, late))
        if after > before:
            found.append(f"{name}: {before} at first, {after} at the end")
    before, after = (statistics.median(each.blocks for each in part) for part in (early, late))
    rounds = statistics.median(each.rounds for each in late) - statistics.median(each.rounds for each in early)
    if after - before > max(BLOCKS, BLOCKS_A_ROUND * rounds):
        found.append(f"memory: {before:.0f} blocks at first, {after:.0f} at the end, after {rounds:.0f} more rounds")
    return found
