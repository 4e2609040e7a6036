"""A standalone ZooKeeper server as a pure state machine: frames and the time go in, frames come out.

    machine = Machine(Settings(), now=0.0, wall=1.7e9)
    connection = machine.open("127.0.0.1", 50000, 0.0)
    machine.receive(connection, payload, 0.1)
    machine.take_dirty(), connection.outgoing, connection.closing

It owns no socket and no clock, and answers as a real 3.9 server does.  The machine carries out one request at a time,
sends events before the reply to the request that caused them, and keeps the frames of each connection in one order.
These three rules give all the guarantees of order that ZooKeeper makes.
"""

import struct
from typing import Final

from zkwire.errors import MarshallingError, UnimplementedError
from zkwire.testing.memory import access, writes
from zkwire.testing.memory.operations import OPERATIONS, Operation
from zkwire.testing.memory.refusal import Refused
from zkwire.testing.memory.sessions import password_of
from zkwire.testing.memory.state import NO_ZXID, ServerConnection, Settings, State
from zkwire.testing.memory.tree import Tree
from zkwire.wire import requests
from zkwire.wire.frames import LENGTH
from zkwire.wire.multi import MultiRequest
from zkwire.wire.primitives import DecodeError
from zkwire.wire.records import PING_XID, ConnectRequest, ConnectResponse

__all__ = ["Machine", "ServerConnection", "Settings"]

_HEADER: Final = struct.Struct(">ii")
_AUTH_FAILED: Final = -115
_NO_PASSWORD: Final = bytes(16)

_PING: Final = requests.PingRequest.opcode
# The reading thread of the real server answers these itself, so they do not extend the session.
_WITHOUT_SESSION: Final = (requests.AuthRequest.opcode, requests.SaslRequest.opcode)


class Machine(State):
    """A standalone server.

    Args:
        settings: The configuration.
        now: Seconds by the clock that every later `now` is read from.
        wall: Seconds since 1970 at that moment.
    """

    def __init__(self, settings: Settings, *, now: float = 0.0, wall: float = 0.0) -> None:
        super().__init__(settings)
        self.restart(now, wall)

    # -- connections --------------------------------------------------------------------------------------

    def open(self, peer: str, port: int, now: float) -> ServerConnection:
        """Accept a connection from the address `peer`."""
        self.now: float = now
        connection = ServerConnection(peer, port, now)
        self.connections[connection] = None
        return connection

    def receive(self, connection: ServerConnection, payload: bytes, now: float) -> None:
        """Carry out the request in one frame, given without its length; raises nothing, whatever the frame holds."""
        if connection.closing:
            return  # frames after the request that ended the connection are dropped
        self.now = now
        self.received += 1
        connection.received += 1
        session = connection.session
        if session is None:
            self._connect(connection, payload)
            return
        if len(payload) < _HEADER.size:
            self.close(connection)
            return
        xid, opcode = _HEADER.unpack_from(payload)
        if opcode in _WITHOUT_SESSION:
            try:
                self._authenticate(connection, xid, opcode, payload)
            except DecodeError:
                self.close(connection)
            return
        self.sessions.touch(session, now)
        operation = OPERATIONS.get(opcode)
        if operation is not None:
            self._carry_out(connection, operation, PING_XID if opcode == _PING else xid, payload)
        else:
            self.reply(connection, xid, NO_ZXID, UnimplementedError.code)
            self.close(connection)

    def lost(self, connection: ServerConnection, now: float) -> None:
        """Forget a connection that is gone; its session lives until its timeout."""
        self.now = now
        connection.outgoing.clear()
        self.close(connection)

    def _connect(self, connection: ServerConnection, payload: bytes) -> None:
        """Answer a ConnectRequest; the decisions come in the order in which the real server makes them."""
        try:
            # Clients before 3.4 leave out the last byte, the flag read_only, and get a reply without it.
            request, end = ConnectRequest.decode(payload + b"\0", 0)
        except DecodeError:
            self.close(connection)
            return
        flag = b"\0" if end <= len(payload) else b""
        if request.last_zxid_seen > self.last_zxid:
            self.close(connection)
            return
        shortest, longest = self.settings.timeout_range_ms()
        timeout = min(max(request.timeout, shortest), longest)
        if request.session_id == 0:
            session = self.sessions.create()
            self.next_zxid()
        else:
            known = self.sessions.by_id.get(request.session_id)
            if known is not None and known.connection is not None:
                # Before the password is checked: as on the real server, a wrong one drops the owner's connection, too.
                self.close(known.connection)
            if known is None or request.password != password_of(known.id):
                self._answer_connect(connection, ConnectResponse(0, 0, 0, _NO_PASSWORD), flag)
                self.close(connection)
                return
            session = known
        session.timeout_ms = timeout
        self.sessions.touch(session, self.now)
        connection.session = session
        session.connection = connection
        connection.last_operation = "SESS"
        connection.last_zxid = self.last_zxid
        connection.last_response = self.now
        self._answer_connect(connection, ConnectResponse(0, timeout, session.id, password_of(session.id)), flag)

    def _answer_connect(self, connection: ServerConnection, response: ConnectResponse, flag: bytes) -> None:
        body = response.encode() + flag
        self.send(connection, LENGTH.pack(len(body)) + body)

    # -- time ---------------------------------------------------------------------------------------------

    def advance(self, now: float) -> None:
        """Do what is due at `now`: expire sessions, clean up containers and TTL nodes."""
        self.now = now
        self._tick_at = self.sessions.next_tick(now)
        for session in self.sessions.due(now):
            self.expire(session.id)
        if now >= self._cleanup_at:
            for path in self.tree.expired(self.wall_ms()):
                self.next_zxid()
                writes.remove(self, path)
            interval = self.settings.container_interval
            self._cleanup_at += interval * ((now - self._cleanup_at) // interval + 1)

    def next_deadline(self) -> float:
        """Return when `advance` may have something to do next."""
        return min(self._tick_at, self._cleanup_at)

    def expire(self, session_id: int) -> None:
        """Expire a session at once.

        Raises:
            KeyError: if there is no session of that id.
        """
        session = self.sessions.by_id[session_id]
        if session.connection is not None:
            self.close(session.connection)  # first, so that no event is sent to a closed connection
        writes.end_session(self, session)

    def restart(self, now: float, wall: float = 0.0, port: int = 0) -> None:
        """Start the server, again or for the first time: sessions get their full timeout, connections are gone.

        Args:
            now: As in the constructor, and so is `wall`.
            wall: Seconds since 1970.
            port: The port that four-letter words show.
        """
        self.now = now
        self.start: float = now
        self.port = port
        self._wall_offset = wall - now
        for connection in list(self.connections):
            self.lost(connection, now)
        self.sessions.restart(now)
        self._cleanup_at = now + self.settings.container_interval
        self._tick_at = self.sessions.next_tick(now)

    def lose_data(self) -> None:
        """Forget the nodes, the sessions and the count of transactions; a restart follows."""
        self.tree: Tree = Tree()
        self.last_zxid = 0
        self.sessions.by_id.clear()

    # -- requests -----------------------------------------------------------------------------------------

    def _carry_out(self, connection: ServerConnection, operation: Operation, xid: int, payload: bytes) -> None:
        connection.last_operation = operation.name
        if operation.request is MultiRequest:
            self.next_zxid()  # here, because one that cannot be decoded takes a zxid, too
        try:
            request, _ = operation.request.decode(payload, _HEADER.size)
        except DecodeError:  # a write that cannot be read takes no zxid
            self.reply(connection, xid, self.last_zxid, MarshallingError.code)
            return
        try:
            if operation.read is not None:
                body = operation.read(self, connection, request)
            else:
                assert operation.write is not None
                self.next_zxid()
                change = operation.write(self, connection, request)
                change.send_events(self)
                body = writes.body(operation.request, change)
        except Refused as refused:
            self.reply(connection, xid, self.last_zxid, refused.code, refused.body)
        else:
            self.reply(connection, xid, self.last_zxid, 0, body)

    def _authenticate(self, connection: ServerConnection, xid: int, opcode: int, payload: bytes) -> None:
        if opcode == requests.SaslRequest.opcode:
            # As on a server without SASL, the answer is a null token, which authenticates nothing.
            requests.SaslRequest.decode(payload, _HEADER.size)
            self.reply(connection, xid, 0, 0, requests.SaslReply(None).encode())
            return
        request, _ = requests.AuthRequest.decode(payload, _HEADER.size)
        gained = access.authenticate(request.scheme, request.data, connection.address, self.settings.super_digest)
        if not gained:
            self.reply(connection, xid, 0, _AUTH_FAILED)
            self.close(connection)
            return
        connection.identities = list(dict.fromkeys([*gained, *connection.identities]))
        self.reply(connection, xid, 0, 0)
