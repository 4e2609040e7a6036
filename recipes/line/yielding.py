"""Yielding the processor to other processes of this machine."""

from __future__ import annotations

import os


def yield_processor() -> None:
    """Let other processes that wait for this processor run first.

    One deletion wakes two clients: the one that owns now, and the one that looks ahead (or has just released).  The
    second has nothing urgent to do.  If both run on one machine with few processors, the new owner would have to wait
    until the second has finished its work.
    """
    if hasattr(os, "sched_yield"):
        os.sched_yield()
