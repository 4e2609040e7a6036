"""Proofs that the data of a ticket's node was written by the client that has created the ticket.

Any client that has the permission may write into a node.  But only the creator chooses the node's name, and no client
can change it.  So the unique id in the name is the end of a chain of hashes.  The beginning is a secret of the creator.
What the creator writes as version n of the data contains the link that gives the id after n steps.  That link has not
been shown before, so no other client can have written version n.  Shown later, in version n + 1, it proves nothing.

Pure: knows nothing of servers and clocks.
"""

from __future__ import annotations

from hashlib import sha256
from typing import Final

_LINK: Final = 32  # bytes
_ID: Final = 16  # bytes, of the last link
# The bits of a UUID that are fixed: version 4, variant 2.  122 bits of the hash remain.
_FREE: Final = ~(0xF << 76 | 0x3 << 62)
_FIXED: Final = 0x4 << 76 | 0x2 << 62

# The greatest number of proofs of one ticket.  The whole chain is made with the ticket, which takes some tenths of a
# millisecond.
MOST_PROOFS: Final = 300


class Proofs:
    """The chain of one ticket.

    Arguments: `secret`, which no other client can guess; `count`, for how many versions there is a proof.
    """

    __slots__ = ("_links",)

    def __init__(self, secret: str, count: int) -> None:
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

    def proof(self, version: int) -> str | None:
        """Return the proof for the data of `version`, which is 1 or more; None if there is none for it."""
        return self._links[version].hex() if version < len(self._links) else None


def is_proven(name: str, version: int, proof: str) -> bool:
    """Return whether `proof`, found in the data of `version`, shows that the ticket `name`'s creator has written it."""
    if not 1 <= version <= MOST_PROOFS or len(proof) != 2 * _LINK:
        return False
    link = bytes.fromhex(proof)
    for _ in range(version):
        link = sha256(link).digest()
    return name.startswith(f"_c_{_as_id(link)}-")


def _as_id(link: bytes) -> str:
    digits = f"{int.from_bytes(link[:_ID]) & _FREE | _FIXED:032x}"
    return "-".join((digits[:8], digits[8:12], digits[12:16], digits[16:20], digits[20:]))
