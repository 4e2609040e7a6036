"""What a holder writes into the data of its own ticket, for the tickets behind it.

It is one line ahead of the data that the ticket was created with: either that readers are let in beside the holder, or
a time limit.  Only data that was written after the creation counts, so the data of version 0 is never looked at; and
data that a caller writes later must pass `checked_plain`.  So no data of a caller can be taken for such a line.  Other
clients in the same line see data that has changed, and nothing else.
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
    """What the holder has written into its ticket.

    `is_shared`: the holder only reads, and lets readers in beside it; `limit`: the holder has promised to be done in so
    many seconds from the writing, None without a promise.
    """

    is_shared: bool = False
    limit: float | None = None


def shared(data: bytes) -> bytes:
    """Return `data` with the line that lets readers in ahead of it."""
    return _SHARED + data


def limited(seconds: float, data: bytes) -> bytes:
    """Return `data` with the promise to be done in `seconds`, rounded up to a millisecond, ahead of it."""
    milliseconds = math.ceil(seconds * 1000)
    return b"zkwire limit %d.%03d\n" % divmod(milliseconds, 1000) + data


def parse(data: bytes, version: int) -> TicketData | None:
    """Return what a holder has written into its ticket, None if nothing.

    Arguments: `data`, of the ticket's node; `version`, its version.
    """
    if not version:
        return None
    if data.startswith(_SHARED):
        return TicketData(is_shared=True)
    limit = _LIMITED.match(data)
    return TicketData(limit=int(limit[1]) + int(limit[2]) / 1000) if limit else None


def checked_plain(data: bytes) -> bytes:
    """Return `data` if a caller may write it into a ticket.

    Raises: ValueError when it begins like a line that only the recipes write.
    """
    if isinstance(data, bytes | bytearray | memoryview) and parse(bytes(data), _LATER) is not None:
        first = bytes(data).partition(b"\n")[0].decode()
        raise ValueError(f"the first line {first!r} has a meaning for waiting clients: put anything else ahead of it")
    return data


def checked_limit(seconds: float) -> float:
    """Return `seconds` if it may be the time limit of a holder.  Raises: TypeError, ValueError."""
    if isinstance(seconds, bool) or not isinstance(seconds, int | float):
        raise TypeError(f"a limit is a number of seconds, not {seconds!r}")
    if not 0 < seconds <= LONGEST_LIMIT:
        raise ValueError(f"a limit is more than 0 and at most {LONGEST_LIMIT:.0f} seconds, not {seconds!r}")
    return float(seconds)
