"""What a holder writes into the data of its own ticket, for those who wait behind it.

A mark is a line of its own ahead of the data that the ticket was made with.  Data is a mark only where it was written
later: a ticket's first version is never looked at, and what a caller writes later must pass `checked_plain`, so that
no data that a caller gives can be taken for one.  Clients that know no marks see data that somebody has changed, and
nothing else.
"""

from __future__ import annotations

import math
import re
from dataclasses import dataclass
from typing import Final

_SHARED: Final = b"zkwire shared\n"
_LIMITED: Final = re.compile(rb"zkwire limit ([0-9]{1,10})\.([0-9]{3})\n")
_LATER: Final = 1  # any version but the first
LONGEST_LIMIT: Final = 10.0**9  # seconds


@dataclass(frozen=True, slots=True)
class TicketData:
    """`is_shared`: the holder lets readers in beside it; `limit`: for how many seconds from the writing it holds."""

    is_shared: bool = False
    limit: float | None = None


def shared(data: bytes) -> bytes:
    """Return what the ticket with `data` says of a holder that reads only, from now on."""
    return _SHARED + data


def limited(seconds: float, data: bytes) -> bytes:
    """Return what the ticket with `data` says of a holder that will be done in `seconds`; rounded up."""
    milliseconds = math.ceil(seconds * 1000)
    return b"zkwire limit %d.%03d\n" % divmod(milliseconds, 1000) + data


def parse(data: bytes, version: int) -> TicketData | None:
    """Return the mark in the data of that version of a ticket's node, None if there is none."""
    if not version:
        return None
    if data.startswith(_SHARED):
        return TicketData(is_shared=True)
    limit = _LIMITED.match(data)
    return TicketData(limit=int(limit[1]) + int(limit[2]) / 1000) if limit else None


def checked_plain(data: bytes) -> bytes:
    """Return `data` if it may be written into a ticket by a caller.  Raises: ValueError when it is a mark."""
    if isinstance(data, bytes | bytearray | memoryview) and parse(bytes(data), _LATER) is not None:
        first = bytes(data).partition(b"\n")[0].decode()
        raise ValueError(
            f"data that begins with the line {first!r} means something to those who wait: put anything else ahead of it"
        )
    return data


def checked_limit(seconds: float) -> float:
    """Return `seconds` if a holder can promise to be done in so many.  Raises: TypeError, ValueError."""
    if isinstance(seconds, bool) or not isinstance(seconds, int | float):
        raise TypeError(f"a limit is a number of seconds, not {seconds!r}")
    if not 0 < seconds <= LONGEST_LIMIT:
        raise ValueError(f"a limit is more than 0 and at most {LONGEST_LIMIT:.0f} seconds, not {seconds!r}")
    return float(seconds)
