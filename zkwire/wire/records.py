"""The records that several requests share, as in ZooKeeper's own definition of its protocol, and a few constants.

The order of the fields is their order on the wire.  This module does not know which record is sent when.
"""

import enum
import itertools
from collections.abc import Iterator
from typing import Final

from zkwire.wire.jute import Record, frozen_record, record
from zkwire.wire.primitives import Boolean, Int, JavaText, Long, Secret, Text, UString


@record
class Stat(Record):
    """What the server stores about a node besides its data.

    A zxid is the number of a transaction of the ensemble.  Do not change a Stat: it is hashable.  It is not a frozen
    dataclass, because those are much slower to decode.

    Attributes:
        czxid: The zxid that created the node.
        mzxid: The zxid that last set its data.
        ctime: When it was created, in milliseconds since 1970, by the leader's clock.
        mtime: When its data was last set, in milliseconds since 1970, by the leader's clock.
        version: How often its data was set.
        cversion: How often a child was created or deleted.
        aversion: How often its ACL was set.
        ephemeral_owner: The id of the session that owns an ephemeral node, 0 for any other node (containers and TTL
            nodes included).
        data_length: The number of bytes in its data.
        num_children: The number of its children.
        pzxid: The zxid that last created or deleted a child.
    """

    czxid: Long
    mzxid: Long
    ctime: Long
    mtime: Long
    version: Int
    cversion: Int
    aversion: Int
    ephemeral_owner: Long
    data_length: Int
    num_children: Int
    pzxid: Long

    def __hash__(self) -> int:
        return hash((self.czxid, self.mzxid, self.pzxid, self.version, self.cversion, self.aversion))


class Perms(enum.IntFlag):
    """What an ACL entry allows; combine with `|`."""

    READ = 1
    WRITE = 2
    CREATE = 4
    DELETE = 8
    ADMIN = 16
    ALL = 31


@frozen_record
class ACL(Record):
    """One entry of an access control list.

    Args:
        perms: What it grants, see Perms.
        scheme: The scheme of the identity to which it grants it, such as "digest".
        id: The identity in that scheme.
    """

    perms: Int
    scheme: Text
    id: JavaText

    def __repr__(self) -> str:
        # The hash of a password, or one in place of its hash, is masked as the servers mask it.
        user, colon, _ = str(self.id).partition(":")
        shown = f"{colon and user}{colon}x" if self.scheme in ("digest", "auth") and self.id else self.id
        return f"ACL(perms={self.perms!r}, scheme={self.scheme!r}, id={shown!r})"


OPEN_ACL: Final = (ACL(Perms.ALL, "world", "anyone"),)
READ_ONLY_ACL: Final = (ACL(Perms.READ, "world", "anyone"),)
CREATOR_ALL_ACL: Final = (ACL(Perms.ALL, "auth", ""),)


@record
class ConnectRequest(Record):
    """The first frame of a connection; `session_id` 0 asks for a new session, `timeout` is in milliseconds."""

    protocol_version: Int
    last_zxid_seen: Long
    timeout: Int
    session_id: Long
    password: Secret
    read_only: Boolean


@record
class ConnectResponse(Record):
    """The server's first frame; only a `timeout` of 0 or less means that the session does not exist any more.

    After the record comes one byte, the flag read_only.  Servers before 3.4 do not send it, so it is no field here.
    """

    protocol_version: Int
    timeout: Int
    session_id: Long
    password: Secret


@record
class RequestHeader(Record):
    """The header of every request except the handshake."""

    xid: Int
    opcode: Int


@record
class WatcherEvent(Record):
    """The body of an event; `state` is always 3 (SyncConnected) on the wire."""

    type: Int
    state: Int
    path: UString


@record
class MultiHeader(Record):
    """The header of each operation of a transaction and of each result; `done` marks the end of the list."""

    type: Int
    done: Boolean
    err: Int


EVENT_XID: Final = -1
PING_XID: Final = -2
_MAX_XID: Final = 2**31 - 1
_XIDS: Final = range(1, _MAX_XID + 1)


def xids(first: int = 1) -> Iterator[int]:
    """Return the xids of a session's requests, on all of its connections, one after the other.

    A follower finds the request of a committed write by session and xid alone.  If an xid came again on the next
    connection, its request could get the answer of a write that was outstanding on the former one (pitfall 84).
    """
    return itertools.chain(range(first, _MAX_XID + 1), itertools.chain.from_iterable(itertools.repeat(_XIDS)))


def printed(number: int) -> str:
    """Return a session's id, or a zxid, as the server prints it in its logs: in hexadecimal, without a sign."""
    return f"{number % 2**64:#x}"
