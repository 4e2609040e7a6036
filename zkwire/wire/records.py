"""The records that several requests share, as ZooKeeper's own definition lists them, and a few constants.

Field order is wire order.  Nothing here knows who sends what.
"""

from __future__ import annotations

import enum
from typing import Final

from zkwire.wire.jute import Boolean, Buffer, Int, Long, Record, Text, UString, record


@record
class Stat(Record):
    """What the server keeps about a node beside its data.

    zxids number the ensemble's transactions: `czxid` created the node, `mzxid` last set its data, `pzxid` last
    created or deleted a child.  `ctime` and `mtime` are milliseconds since 1970 by the leader's clock.  `version`,
    `cversion` and
    `aversion` count changes of data, children and ACL.  `ephemeral_owner` is the owning session's id, 0 for any
    other node (containers and TTL nodes included).
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


class Perms(enum.IntFlag):
    """What an ACL entry allows; combine with `|`."""

    READ = 1
    WRITE = 2
    CREATE = 4
    DELETE = 8
    ADMIN = 16
    ALL = 31


@record
class ACL(Record):
    """One entry of an access control list: `perms` (see Perms) for whoever has the identity `scheme`:`id`."""

    perms: Int
    scheme: Text
    id: Text


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
    password: Buffer
    read_only: Boolean


@record
class ConnectResponse(Record):
    """The server's first frame; a `timeout` of 0 or less is the one sign that the session is gone.

    The flag read_only, one byte behind the record, is absent from servers before 3.4, so that it is read apart.
    """

    protocol_version: Int
    timeout: Int
    session_id: Long
    password: Buffer


@record
class RequestHeader(Record):
    """What precedes every request but the first."""

    xid: Int
    opcode: Int


@record
class ReplyHeader(Record):
    """What precedes every reply but the first."""

    xid: Int
    zxid: Long
    err: Int


@record
class WatcherEvent(Record):
    """The body of a notification; `state` is always 3 (SyncConnected) on the wire."""

    type: Int
    state: Int
    path: UString


@record
class MultiHeader(Record):
    """What precedes each operation of a transaction and each of its results; `done` marks the end."""

    type: Int
    done: Boolean
    err: Int


EVENT_XID: Final = -1
PING_XID: Final = -2
