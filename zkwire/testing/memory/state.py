"""The state of an in-memory server, and how replies and events get into a connection's outgoing frames.

Knows the parts that it consists of (tree, watches, sessions) and the layout of a reply. Does not know any request.
"""

import struct
from dataclasses import dataclass
from typing import Final

from zkwire.errors import MarshallingError, NoAuthError, NoNodeError
from zkwire.testing.memory import access
from zkwire.testing.memory.access import Identity
from zkwire.testing.memory.refusal import Refused
from zkwire.testing.memory.sessions import ServerSession, Sessions
from zkwire.testing.memory.tree import Node, Tree
from zkwire.testing.memory.watch_manager import Watches
from zkwire.testing.settings import check_number, check_seconds, check_text
from zkwire.wire.records import ACL, EVENT_XID, Perms, WatcherEvent

_SYNC_CONNECTED: Final = 3
NO_ZXID: Final = -1

_REPLY: Final = struct.Struct(">iiqi")  # the frame's length and the reply's header
_HEADER_SIZE: Final = _REPLY.size - 4


@dataclass(frozen=True, slots=True)
class Settings:
    """The configuration of a server, with the meanings that Server documents.

    Raises:
        ValueError: if no server can have these settings.
        TypeError: if one of them has the wrong type.
    """

    tick_time: float = 2.0
    min_session_timeout: float | None = None
    max_session_timeout: float | None = None
    max_buffer: int = 1_048_575
    ttl_nodes: bool = True
    super_digest: str | None = None
    container_interval: float = 60.0

    def __post_init__(self) -> None:
        for name in ("tick_time", "container_interval", "min_session_timeout", "max_session_timeout"):
            if (value := getattr(self, name)) is not None:
                check_seconds(name, value)
        shortest, longest = self.min_session_timeout, self.max_session_timeout
        if shortest is not None and longest is not None and shortest > longest:
            raise ValueError(f"min_session_timeout is {shortest:g} s, and max_session_timeout is only {longest:g} s")
        check_number("max_buffer", self.max_buffer, 1, 2**31 - 1)
        if self.super_digest is not None:
            check_text("super_digest", self.super_digest)
            if ":" not in self.super_digest:
                raise ValueError("super_digest must be 'super:<hash>'")

    def timeout_range_ms(self) -> tuple[int, int]:
        """Return the shortest and the longest session timeout that is granted, in ms."""
        shortest = 2 * self.tick_time if self.min_session_timeout is None else self.min_session_timeout
        longest = 20 * self.tick_time if self.max_session_timeout is None else self.max_session_timeout
        return round(shortest * 1000), round(longest * 1000)


class ServerConnection:
    """The server's side of one TCP connection.

    `outgoing` holds whole frames in order; the socket layer takes them and empties the list. If `closing` is set, the
    connection must be closed after them. `opened` and what follows it serve the four-letter words that show
    connections: `received` and `sent` count frames, times are of the server's clock.
    """

    def __init__(self, peer: str, port: int, now: float) -> None:
        self.peer = peer
        self.port = port
        self.session: ServerSession[ServerConnection] | None = None
        self.outgoing: list[bytes] = []
        self.closing = False
        self.address: Identity = access.ip_identity(peer)
        self.identities: list[Identity] = [self.address]
        self.opened = now
        self.received = 0
        self.sent = 0
        self.last_operation = "NA"
        self.last_xid = 0
        self.last_zxid = 0
        self.last_response: float = 0.0


class State:
    """The whole state of a server; `now` is the time of the operation that is being carried out."""

    def __init__(self, settings: Settings) -> None:
        self.settings = settings
        self.now: float = 0.0
        self.last_zxid: int = 0
        self.tree: Tree = Tree()
        self.watches: Watches[ServerConnection] = Watches()
        self.sessions: Sessions[ServerConnection] = Sessions(settings.tick_time)
        self.connections: dict[ServerConnection, None] = {}
        self.received = 0
        self.sent: int = 0
        self._wall_offset = 0.0
        self._dirty: dict[ServerConnection, None] = {}  # in the order in which they got output

    def next_zxid(self) -> None:
        """Begin the next transaction."""
        self.last_zxid += 1

    def wall_ms(self) -> int:
        """Return the wall time in ms since 1970."""
        return int((self.now + self._wall_offset) * 1000)

    def allowed(self, connection: ServerConnection, path: str, perms: int) -> Node:
        """Return the node `path`, on which the connection needs one of the permissions `perms`.

        Raises:
            Refused: if there is no such node or the connection has none of them.
        """
        if path is None:
            raise Refused(MarshallingError)
        node = self.tree.nodes.get(path)
        if node is None:
            raise Refused(NoNodeError)
        if not access.is_allowed(node.acl, perms, connection.identities):
            raise Refused(NoAuthError)
        return node

    # -- what goes out ------------------------------------------------------------------------------------

    def send(self, connection: ServerConnection, frame: bytes) -> None:
        """Append a whole frame to the output of `connection`."""
        connection.outgoing.append(frame)
        connection.sent += 1
        self.sent += 1
        self._dirty[connection] = None

    def reply(self, connection: ServerConnection, xid: int, zxid: int, err: int, body: bytes = b"") -> None:
        """Send the reply to one request."""
        connection.last_xid = xid
        connection.last_zxid = zxid
        connection.last_response = self.now
        self.send(connection, _REPLY.pack(_HEADER_SIZE + len(body), xid, zxid, err) + body)

    def notify(self, connection: ServerConnection, event: int, path: str, zxid: int) -> None:
        """Send an event."""
        body = WatcherEvent(event, _SYNC_CONNECTED, path).encode()
        self.send(connection, _REPLY.pack(_HEADER_SIZE + len(body), EVENT_XID, zxid, 0) + body)

    def close(self, connection: ServerConnection) -> None:
        """Close `connection` after its pending output, and forget it and its watches; its session lives on."""
        connection.closing = True
        self._dirty[connection] = None
        self.connections.pop(connection, None)
        self.watches.forget(connection)
        session = connection.session
        if session is not None and session.connection is connection:
            session.connection = None

    def take_dirty(self) -> list[ServerConnection]:
        """Return the connections that got output, or that must be closed, since the last call."""
        dirty, self._dirty = list(self._dirty), {}
        return dirty

    def notify_all(self, connections: list[ServerConnection], event: int, path: str, acl: tuple[ACL, ...]) -> None:
        """Send an event of the last transaction to those of the watchers that may see it."""
        for connection in connections:
            # A client that may not read the node gets no event, but its one-shot watch is used up.
            if access.is_allowed(acl, Perms.READ, connection.identities):
                self.notify(connection, event, path, self.last_zxid)
