"""What a holder writes into the data of its own ticket for the tickets after it, and the hash chain that proves it.

It is one line before the data that the ticket was created with: either that readers are let in beside the holder, or a
time limit.  Any client that has the permission may write into a node.  But only the creator chooses the node's name,
and no client can change it.  So the unique id in the name is the end of a chain of hashes.  The beginning is a secret
of the creator.  What the creator writes as version n of the data contains the link that gives the id after n steps.
That link has not been shown before, so no other client can have written version n.  Shown later, in version n + 1, it
proves nothing.

Without a valid link the line means nothing: no data of a caller can be taken for one.  Other clients in the same line
see data that has changed, and nothing else.

Pure: knows nothing of servers and clocks.
"""

import math
import re
from typing import Final, NamedTuple

_ID: Final = 16  # bytes, of the last link
# The bits of a UUID that are fixed: version 4, variant 2.  122 bits of the hash remain.
_FREE: Final = ~(0xF << 76 | 0x3 << 62)
_FIXED: Final = 0x4 << 76 | 0x2 << 62

# The greatest number of links that one ticket can show.  The whole chain is made with the ticket, which takes some
# tenths of a millisecond.
MOST_LINKS: Final = 300

_LINE: Final = rb"zkwire (?:shared|limit ([0-9]{1,10}\.[0-9]{3})) ([0-9a-f]{64})\n"
LONGEST_LIMIT: Final = 10.0**9  # seconds


class HashChain:
    """The chain of one ticket.

    Args:
        secret: What no other client can guess.
        count: For how many versions there is a link.
    """

    __slots__ = ("_links",)

    def __init__(self, secret: str, count: int) -> None:
        from hashlib import sha256  # most locks need no chain

        link = sha256(secret.encode()).digest()
        self._links = [link]
        for _ in range(count):
            link = sha256(link).digest()
            self._links.append(link)
        self._links.reverse()

    @property
    def id(self) -> str:
        """The id for the ticket's name, in the form of a UUID."""
        return _as_id(self._links[0])

    def link(self, version: int) -> str | None:
        """Return the link for the data of `version`, which is 1 or more; None if there is none for it."""
        return self._links[version].hex() if version < len(self._links) else None


def is_proven(name: str, version: int, link: str) -> bool:
    """Return whether `link`, found in the data of `version`, shows that the ticket `name`'s creator has written it."""
    if not 1 <= version <= MOST_LINKS:
        return False
    from hashlib import sha256  # most locks need no chain

    step = bytes.fromhex(link)
    for _ in range(version):
        step = sha256(step).digest()
    return name.startswith(f"_c_{_as_id(step)}-")


def _as_id(link: bytes) -> str:
    digits = f"{int.from_bytes(link[:_ID]) & _FREE | _FIXED:032x}"
    return "-".join((digits[:8], digits[8:12], digits[12:16], digits[16:20], digits[20:]))


class TicketData(NamedTuple):
    """What the holder has written into its ticket.

    Attributes:
        limit: The holder has promised to be done in so many seconds from the writing; None: it has promised nothing,
            but it only reads, and lets readers in beside it.
    """

    limit: float | None


def shared(link: str, data: bytes) -> bytes:
    """Return `data` with the line that lets readers in before it."""
    return b"zkwire shared %s\n" % link.encode() + data


def limited(seconds: float, link: str, data: bytes) -> bytes:
    """Return `data` with the promise to be done in `seconds`, rounded up to a millisecond, before it."""
    milliseconds = math.ceil(seconds * 1000)
    return b"zkwire limit %d.%03d %s\n" % (*divmod(milliseconds, 1000), link.encode()) + data


def parse(name: str, data: bytes, version: int) -> TicketData | None:
    """Return what the client of the ticket `name` has written into its node, None if nothing is proven to be from it.

    Args:
        data: The data of the ticket's node, and `version` its version.
    """
    line = re.match(_LINE, data)
    if line is None or not is_proven(name, version, line[2].decode()):
        return None
    return TicketData(None if line[1] is None else float(line[1]))


def lets_readers_in(name: str, data: bytes, version: int) -> bool:
    """Return whether the client of the ticket `name` has written that readers are let in beside it."""
    written = parse(name, data, version)
    return written is not None and written.limit is None


def without_line(name: str, data: bytes, version: int) -> bytes:
    """Return the data that the ticket `name` was given, without the line that its client has written before it."""
    return data if parse(name, data, version) is None else data.partition(b"\n")[2]


def checked_limit(seconds: float) -> float:
    """Return `seconds` if it may be the time limit of a holder.

    Raises:
        TypeError: if it is not a number.
        ValueError: if it is not more than 0, or longer than 10**9 seconds.
    """
    if isinstance(seconds, bool) or not isinstance(seconds, int | float):
        raise TypeError(f"a limit is a number of seconds, not {seconds!r}")
    if not 0 < seconds <= LONGEST_LIMIT:
        raise ValueError(f"a limit is more than 0 and at most {LONGEST_LIMIT:.0f} seconds, not {seconds!r}")
    return float(seconds)
