"""What a holder writes into the data of its own ticket, for the tickets behind it.

It is one line ahead of the data that the ticket was created with: either that readers are let in beside the holder, or
a time limit.  The line ends in a proof that the ticket's own client has written it, see `proofs`: without a valid proof
it means nothing.  So no other client can write such a line, and no data of a caller can be taken for one.  Other
clients in the same line see data that has changed, and nothing else.
"""

from __future__ import annotations

import math
import re
from dataclasses import dataclass
from typing import Final

from recipes.line.proofs import is_proven

_SHARED: Final = re.compile(rb"zkwire shared ([0-9a-f]{64})\n")
_LIMITED: Final = re.compile(rb"zkwire limit ([0-9]{1,10})\.([0-9]{3}) ([0-9a-f]{64})\n")
LONGEST_LIMIT: Final = 10.0**9  # seconds


@dataclass(frozen=True, slots=True)
class TicketData:
    """What the holder has written into its ticket.

    `is_shared`: the holder only reads, and lets readers in beside it; `limit`: the holder has promised to be done in so
    many seconds from the writing, None without a promise.
    """

    is_shared: bool = False
    limit: float | None = None


def shared(proof: str, data: bytes) -> bytes:
    """Return `data` with the line that lets readers in ahead of it."""
    return b"zkwire shared %s\n" % proof.encode() + data


def limited(seconds: float, proof: str, data: bytes) -> bytes:
    """Return `data` with the promise to be done in `seconds`, rounded up to a millisecond, ahead of it."""
    milliseconds = math.ceil(seconds * 1000)
    return b"zkwire limit %d.%03d %s\n" % (*divmod(milliseconds, 1000), proof.encode()) + data


def parse(name: str, data: bytes, version: int) -> TicketData | None:
    """Return what the client of the ticket `name` has written into its node, None if nothing is proven to be from it.

    Arguments: `data`, of the ticket's node; `version`, its version.
    """
    shared = _SHARED.match(data)
    if shared is not None:
        return TicketData(is_shared=True) if is_proven(name, version, shared[1].decode()) else None
    limit = _LIMITED.match(data)
    if limit is None or not is_proven(name, version, limit[3].decode()):
        return None
    return TicketData(limit=int(limit[1]) + int(limit[2]) / 1000)


def without_line(name: str, data: bytes, version: int) -> bytes:
    """Return the data that the ticket `name` was given, without the line that its client has written ahead of it.

    Arguments: as of `parse`.
    """
    return data if parse(name, data, version) is None else data.partition(b"\n")[2]


def checked_limit(seconds: float) -> float:
    """Return `seconds` if it may be the time limit of a holder.  Raises: TypeError, ValueError."""
    if isinstance(seconds, bool) or not isinstance(seconds, int | float):
        raise TypeError(f"a limit is a number of seconds, not {seconds!r}")
    if not 0 < seconds <= LONGEST_LIMIT:
        raise ValueError(f"a limit is more than 0 and at most {LONGEST_LIMIT:.0f} seconds, not {seconds!r}")
    return float(seconds)
