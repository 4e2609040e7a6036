"""What a soak measures, and the verdict on it: does anything grow that should stay as it is?

The verdict is pure.  Samples are taken while nothing is under way, so that counts need no allowance: they must not be
greater at the end than they were at the beginning.  Memory is allowed to move a little.
"""

import asyncio
import gc
import os
import statistics
import sys
from collections.abc import Mapping, Sequence
from typing import Final

import zkwire
from zkwire import paths

# What there may be more of at the end, however long the soak is.  From round 60 to round 278 the blocks moved up and
# down by 130.  A leak of one block in each round is more than 500 after 500 rounds.
ALLOWED: Final = {"blocks": 500}
# The counts of the server by its word mntr.
_ON_SERVER: Final = {
    "watches": "zk_watch_count",
    "nodes": "zk_znode_count",
    "ephemerals": "zk_ephemerals_count",
    "sessions": "zk_num_alive_connections",
}
_COUNTS: Final = ("tasks", "descriptors", *_ON_SERVER)
_COLUMNS: Final = ("seconds", "rounds", "MB", *ALLOWED, *_COUNTS)

# One row of the table: seconds since the beginning; rounds of work so far; resident memory of this process in MB, which
# moves too much for a verdict; how many blocks of up to 512 bytes Python has allocated, without those of the cache of
# valid paths; tasks and descriptors of this process; the others are of the server: watches, nodes, ephemerals among
# them, and sessions, its connections.
Sample = Mapping[str, float]


def head() -> str:
    """Return the head of the table."""
    return "".join(f"{name:>12}" for name in _COLUMNS)


def row(sample: Sample) -> str:
    """Return a line of the table."""
    return "".join(f"{sample[name]:>12.{name in ('seconds', 'MB'):d}f}" for name in _COLUMNS)


async def on_server(hosts: str) -> dict[str, int]:
    """Return the counts of the server.

    The rest of what mntr says is dropped: it has lines for each name below the root that was ever used, so that it
    grows with the soak.  In memory, at the moment of a sample, it would look like a leak.
    """
    figures = await zkwire.four_letter_word(hosts, "mntr")
    return {count: int(figures[name]) for count, name in _ON_SERVER.items()}


async def sample(hosts: str, seconds: float, rounds: int) -> Sample:
    """Take a sample of this process and of the server."""
    there = await on_server(hosts)
    paths._VALID.clear()  # a cache that fills and is emptied: a thousand strings more or less would hide a slow leak
    gc.collect()
    with open("/proc/self/statm", "rb") as file:
        pages = int(file.read().split()[1])
    return {
        "seconds": seconds,
        "rounds": rounds,
        "MB": pages * os.sysconf("SC_PAGE_SIZE") / 1e6,
        "blocks": sys.getallocatedblocks(),
        "tasks": len(asyncio.all_tasks()),
        "descriptors": len(os.listdir("/proc/self/fd")),
        **there,
    }


def verdict(samples: Sequence[Sample]) -> list[str]:
    """Return a line for each thing that has grown.

    The first quarter is left out, as the time in which caches fill.

    Raises:
        ValueError: if there are less than eight samples.
    """
    if len(samples) < 8:
        raise ValueError(f"{len(samples)} samples are too few for a verdict: eight at least")
    settled = samples[len(samples) // 4 :]
    third = len(settled) // 3
    early, late = settled[:third], settled[-third:]
    rounds = late[0]["rounds"] - early[0]["rounds"]
    found = []
    for name in (*_COUNTS, *ALLOWED):
        # Of counts the least of several: a single sample may meet something that has not ended yet.
        of_several = statistics.median if name in ALLOWED else min
        before, after = (of_several([each[name] for each in part]) for part in (early, late))
        if after - before > ALLOWED.get(name, 0):
            found.append(f"{name}: {before:.0f} at first, {after:.0f} at the end, after {rounds:.0f} more rounds")
    return found
