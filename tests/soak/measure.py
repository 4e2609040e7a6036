"""What a soak measures, and the verdict on it: does anything grow that should stay as it is?

The verdict is pure.  Samples are taken while nothing is under way, so that counts need no allowance: they must not be
greater at the end than they were at the beginning.  Memory is allowed to move a little.
"""

import asyncio
import ctypes
import gc
import os
import statistics
import sys
from collections.abc import Sequence
from dataclasses import dataclass, fields
from typing import Final

import zkwire
from zkwire import paths

# What there may be more of at the end, however long the soak is.  From round 60 to round 278 the blocks moved up and
# down by 130, and what malloc gave out by 12 kB.  A leak of one block in each round is more than 500 after 500 rounds.
BLOCKS: Final = 500
KILOBYTES: Final = 200
_PAGE: Final = os.sysconf("SC_PAGE_SIZE")
_COUNTS: Final = ("tasks", "descriptors", "watches", "nodes", "ephemerals", "sessions")
_ON_SERVER: Final = {
    "watches": "zk_watch_count",
    "nodes": "zk_znode_count",
    "ephemerals": "zk_ephemerals_count",
    "sessions": "zk_num_alive_connections",
}
_HEADS: Final = {"seconds": "time", "megabytes": "MB", "large": "large kB"}


@dataclass(frozen=True, slots=True)
class Sample:
    """One row of the table.

    Arguments: `seconds` since the beginning; `rounds` of work so far; `megabytes`, resident memory of this process,
    which moves too much for a verdict; `blocks`, how many blocks of up to 512 bytes Python has allocated, without those
    of the cache of valid paths; `large`, how many kilobytes the larger ones take; `tasks` and `descriptors` of this
    process; the others are the server's: `watches`, `nodes`, `ephemerals` among them, and `sessions`, its connections.
    """

    seconds: float
    rounds: int
    megabytes: float
    blocks: int
    large: int
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
    """Return the server's counts (of its word mntr): watches, nodes, ephemerals among them, and sessions.

    The rest of what mntr says is dropped: it has lines for each name below the root that was ever used, so that it
    grows with the soak.  In memory, at the moment of a sample, it would look like a leak.
    """
    figures = await zkwire.four_letter_word(hosts, "mntr")
    found = {}
    for count, name in _ON_SERVER.items():
        value = figures[name]
        assert isinstance(value, int)
        found[count] = value
    return found


class _MallInfo(ctypes.Structure):
    """What glibc (2.33 or newer) says of its memory, all in bytes or counts."""

    _fields_ = [
        (name, ctypes.c_size_t)
        for name in (
            "arena",
            "ordblks",
            "smblks",
            "hblks",
            "hblkhd",
            "usmblks",
            "fsmblks",
            "uordblks",
            "fordblks",
            "keepcost",
        )
    ]


def _given_out_by_malloc() -> int:
    """Return how many bytes are in use: what Python has for larger objects, as it asks malloc for these only."""
    mallinfo = ctypes.CDLL(None).mallinfo2
    mallinfo.restype = _MallInfo
    said = mallinfo()
    return int(said.uordblks) + int(said.hblkhd)


async def sample(hosts: str, seconds: float, rounds: int) -> Sample:
    """Take a sample of this process and of the server."""
    there = await on_server(hosts)
    paths._VALID.clear()  # a cache that fills and is emptied: a thousand strings more or less would hide a slow leak
    gc.collect()
    with open("/proc/self/statm", "rb") as file:
        pages = int(file.read().split()[1])
    return Sample(
        seconds=seconds,
        rounds=rounds,
        megabytes=pages * _PAGE / 1e6,
        blocks=sys.getallocatedblocks(),
        large=_given_out_by_malloc() // 1000,
        tasks=len(asyncio.all_tasks()),
        descriptors=len(os.listdir("/proc/self/fd")),
        **there,
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
    if after - before > BLOCKS:
        found.append(f"memory: {before:.0f} blocks at first, {after:.0f} at the end, after {rounds:.0f} more rounds")
    before, after = (statistics.median(each.large for each in part) for part in (early, late))
    if after - before > KILOBYTES:
        found.append(f"large: {before:.0f} kB at first, {after:.0f} at the end, after {rounds:.0f} more rounds")
    return found
