"""A client of the in-memory machine without a socket: it sends requests and decodes replies and events."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from zkwire.testing.memory.machine import Machine, ServerConnection, Settings
from zkwire.wire.jute import Record
from zkwire.wire.records import (
    ACL,
    EVENT_XID,
    OPEN_ACL,
    ConnectRequest,
    ConnectResponse,
    ReplyHeader,
    RequestHeader,
    WatcherEvent,
)
from zkwire.wire.requests import Create2Request, ExistsRequest, Nothing, Request, SetDataRequest

WALL = 1_700_000_000.0
OPEN = list(OPEN_ACL)
EPHEMERAL, SEQUENTIAL = 1, 2

CREATED, DELETED, CHANGED, CHILDREN = 1, 2, 3, 4


@dataclass(slots=True)
class Answer:
    """One reply: its header, and its record if it has a body."""

    xid: int
    zxid: int
    err: int
    body: bytes
    reply: Any = None


class World:
    """A machine and its clock."""

    def __init__(self, settings: Settings | None = None, now: float = 1000.0) -> None:
        self.now = now
        self.machine = Machine(settings or Settings(), now=now, wall=WALL)

    def client(self, **connect: Any) -> Client:
        """Return a client with a session; the arguments are those of `Client.connect`."""
        client = Client(self)
        client.connect(**connect)
        return client

    def sleep(self, seconds: float) -> None:
        """Let time pass; the machine does what is due at each of its deadlines."""
        until = self.now + seconds
        while self.machine.next_deadline() <= until:
            self.now = self.machine.next_deadline()
            self.machine.advance(self.now)
        self.now = until


class Client:
    """One connection."""

    def __init__(self, world: World, peer: str = "127.0.0.1") -> None:
        self.world = world
        self.connection: ServerConnection = world.machine.open(peer, 40_000, world.now)
        self.welcome: ConnectResponse | None = None
        self.events: list[tuple[int, str]] = []
        self.event_zxids: list[int] = []
        self._xid = 0

    @property
    def is_closed(self) -> bool:
        return self.connection.closing

    @property
    def session_id(self) -> int:
        assert self.welcome is not None
        return self.welcome.session_id

    def send(self, payload: bytes) -> list[bytes]:
        """Send a payload and return the payloads that the machine has sent; each frame must have the right length."""
        self.world.machine.receive(self.connection, payload, self.world.now)
        return self.take()

    def take(self) -> list[bytes]:
        frames, self.connection.outgoing[:] = list(self.connection.outgoing), []
        for frame in frames:
            assert int.from_bytes(frame[:4], "big") == len(frame) - 4
        return [frame[4:] for frame in frames]

    def connect(
        self, *, resume: Client | None = None, timeout: int = 10_000, seen: int = 0, password: bytes | None = None
    ) -> ConnectResponse | None:
        """Do the handshake; None if the server closes the connection without a reply."""
        of = resume.welcome if resume is not None else None
        session_id, known = (0, bytes(16)) if of is None else (of.session_id, of.password)
        request = ConnectRequest(0, seen, timeout, session_id, known if password is None else password, False)
        frames = self.send(request.encode())
        if frames:
            assert len(frames) == 1
            assert len(frames[0]) == 37
            self.welcome = ConnectResponse.decode(frames[0], 0)[0]
        return self.welcome

    def ask(self, request: Request[Any], *, opcode: int | None = None, body: bytes | None = None) -> Answer:
        """Send a request and return its answer, which must be the last frame; events go to `events`."""
        self._xid += 1
        xid = self._xid if request.fixed_xid is None else request.fixed_xid
        payload = RequestHeader(xid, request.opcode if opcode is None else opcode).encode()
        frames = self.send(payload + (request.encode() if body is None else body))
        assert frames, "no answer"
        self._keep(frames[:-1])
        return self._answer(request, xid, frames[-1])

    def look(self) -> list[tuple[int, str]]:
        """Return the events since the last call, without sending a request."""
        self._keep(self.take())
        events, self.events = self.events, []
        return events

    def create(self, path: str, data: bytes | None = b"", flags: int = 0, acl: list[ACL] | None = None) -> Answer:
        return self.ask(Create2Request(path, data, OPEN if acl is None else acl, flags))

    def set(self, path: str, data: bytes | None = b"", version: int = -1) -> Answer:
        return self.ask(SetDataRequest(path, data, version))

    def exists(self, path: str, *, watch: bool = False) -> Answer:
        return self.ask(ExistsRequest(path, watch))

    def _keep(self, frames: list[bytes]) -> None:
        for frame in frames:
            header, at = ReplyHeader.decode(frame, 0)
            assert (header.xid, header.err) == (EVENT_XID, 0)
            event, end = WatcherEvent.decode(frame, at)
            assert (event.state, end) == (3, len(frame))
            self.events.append((event.type, event.path))
            self.event_zxids.append(header.zxid)

    def _answer(self, request: Request[Any], xid: int, frame: bytes) -> Answer:
        header, at = ReplyHeader.decode(frame, 0)
        assert header.xid == xid
        answer = Answer(header.xid, header.zxid, header.err, frame[at:])
        if header.err == 0:
            kind: type[Record] = request.reply
            answer.reply, end = kind.decode(frame, at)
            assert end == len(frame), f"{len(frame) - end} bytes too many behind {answer.reply}"
            assert kind is not Nothing or end == at
        return answer
