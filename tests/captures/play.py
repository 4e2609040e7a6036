"""Plays the fixed script of requests to a target, and compares each reply with the meaning that the script states.

A target is a real server behind sockets, the in-memory server's pure state machine, or a recording of an earlier play.
The script (script/*.py, listed in themes.py) is the same for all.  What was sent and received is kept as a list of
exchanges.
"""

from collections.abc import Callable, Collection, Iterable
from dataclasses import dataclass, field
from typing import Protocol

from tests.captures import build
from tests.captures.meaning import EVENT_TYPES, Masker, decode_connect_response, decode_event, decode_reply
from zkwire.wire.jute import Record
from zkwire.wire.records import EVENT_XID, ConnectResponse, Stat
from zkwire.wire.requests import CreateReply, StatReply

# These opcodes take a zxid even when refused.  One that cannot be decoded takes a zxid only if it is a multi.
WRITES = {1, 2, 5, 7, 14, 15, 16, 19, 21, -11}
MULTI, SET_WATCHES, SET_WATCHES2, CLOSE_SESSION, PING = 14, 101, 105, -11, 11
MARSHALLING_ERROR = -5

# The expected body of a reply, or a function that makes it from the reply's zxid.
Meant = Record | Callable[[int], Record] | None


@dataclass(slots=True)
class Exchange:
    """One step of the script: what was done on one connection, and everything that every connection then received."""

    name: str
    means: str
    action: str  # "open", "send" or "drop"
    connection: str
    sent: bytes = b""  # as it went over the wire, lengths included
    received: list[tuple[str, bytes]] = field(default_factory=list)  # connection, frame without its length
    closed: list[str] = field(default_factory=list)  # the connections that the server closed, sorted

    @property
    def opcode(self) -> int:
        """The opcode of the request that was sent."""
        return int.from_bytes(self.sent[8:12], "big", signed=True)


@dataclass(slots=True)
class Recording:
    """All exchanges of one theme; `base` is the server's last zxid before it."""

    theme: str
    base: int
    exchanges: list[Exchange]


class Target(Protocol):
    """A server, or something that behaves like one, to which the script is played."""

    def open(self, connection: str) -> None: ...

    def send(self, connection: str, data: bytes) -> None: ...

    def drop(self, connection: str) -> None: ...

    def gather(self, connection: str | None, closing: Collection[str]) -> tuple[list[tuple[str, bytes]], list[str]]:
        """Wait for what the last step causes; return the frames received, and the connections that the server closed.

        `connection` is the one on which a reply is expected, None if there will be no reply; `closing` are the
        connections that the server is expected to close.
        """
        ...


class Unexpected(AssertionError):
    """The server's answer is not the one that the script expects."""


@dataclass(slots=True)
class Client:
    """One connection with a session, as the script uses it."""

    player: "Player"
    name: str
    session_id: int
    password: bytes
    xid: int = 0

    def ask(
        self,
        name: str,
        means: str,
        request: bytes,
        reply: Meant = None,
        *,
        err: int = 0,
        events: Iterable[str] = (),
        closes: Collection[str] = (),
        zxid: int | None = None,
        takes: int | None = None,
        xid: int | None = None,
        reply_xid: int | None = None,
        in_any_order: bool = False,
    ) -> int:
        """Send one request; return the zxid of its reply.

        `events` are lines such as "b created /x", in their order on each connection.  Where the rule of WRITES does not
        apply, `takes` is the number of zxids that the request takes, and `zxid` the one in its reply.
        """
        if xid is None:
            self.xid += 1
            xid = self.xid
        raw = build.frame(build.i32(xid) + request)
        exchange = self.player.step(name, means, "send", self.name, raw, self.name, closes)
        opcode = int.from_bytes(request[:4], "big", signed=True)
        return self.player.check_reply(
            exchange,
            opcode,
            reply_xid if reply_xid is not None else xid,
            zxid,
            takes,
            err,
            reply,
            list(events),
            in_any_order,
        )

    def create(
        self,
        name: str,
        means: str,
        path: str,
        data: bytes | None = b"",
        acl: Iterable[build.Entry] | None = build.OPEN,
        flags: int = 0,
        *,
        events: Iterable[str] = (),
    ) -> None:
        """Send a create whose reply is the path."""
        self.ask(name, means, build.create(path, data, acl, flags), CreateReply(path), events=events)

    def set(
        self,
        name: str,
        means: str,
        path: str,
        data: bytes | None = b"",
        if_version: int = -1,
        *,
        made: int,
        version: int = 1,
        aversion: int = 0,
        events: Iterable[str] = (),
        in_any_order: bool = False,
    ) -> None:
        """Send a setData for a node that has no children; `made` is the zxid of its create, `version` the new one."""

        def reply(zxid: int) -> StatReply:
            return StatReply(Stat(made, zxid, 0, 0, version, 0, aversion, 0, len(data or b""), 0, made))

        request = build.set_data(path, data, if_version)
        self.ask(name, means, request, reply, events=events, in_any_order=in_any_order)

    def send_raw(
        self, name: str, means: str, data: bytes, *, events: Iterable[str] = (), closes: Collection[str] = ()
    ) -> None:
        """Send bytes, which include their length and get no reply."""
        exchange = self.player.step(name, means, "send", self.name, data, None, closes)
        self.player.check_events(exchange, list(events), self.player.last, False)

    def drop(self, name: str, means: str) -> None:
        """Close the TCP connection, without closing the session."""
        self.player.step(name, means, "drop", self.name, b"", None, ())

    def resume(
        self,
        name: str,
        means: str,
        *,
        on: str | None = None,
        timeout: int = 300_000,
        read_only: bool | None = False,
        closes: Collection[str] = (),
    ) -> "Client":
        """Resume the session on a new connection, which is called `on` (None: like this one)."""
        request = build.connect(timeout, self.session_id, self.password, read_only=read_only)
        flag = read_only is not None
        resumed = self.player.handshake(
            on or self.name, name, means, request, timeout=timeout, flag=flag, resumes=self, closes=closes
        )
        assert resumed is not None
        return resumed


class Player:
    """Plays one theme to a target."""

    def __init__(self, target: Target, theme: str) -> None:
        self.target = target
        self.theme = theme
        self.exchanges: list[Exchange] = []
        self.masker = Masker()
        self.last: int = -1  # the server's last zxid, known after the first reply
        self.base: int = -1

    def start(self, root: bytes | None = None) -> Client:
        """Open connection "a" and create the theme's own node; the theme counts zxids from its reply."""
        client = self.session("a", "start", "a new session for this theme")
        path = f"/{self.theme}"
        exchange = self.step(
            "root",
            "the node that holds all others of this theme",
            "send",
            "a",
            build.frame(build.i32(client.xid) + (root or build.create(path))),
            "a",
            (),
        )
        header, _ = decode_reply(1, exchange.received[-1][1])
        self.last = header.zxid
        self.base = header.zxid - 2  # the session and the node
        return client

    def session(self, connection: str, name: str, means: str) -> Client:
        """Open a connection with a new session, in the ordinary way."""
        client = self.handshake(connection, name, means, build.connect(), timeout=300_000)
        assert client is not None
        return client

    def handshake(
        self,
        connection: str,
        name: str,
        means: str,
        request: bytes,
        *,
        timeout: int | None,
        flag: bool = True,
        resumes: Client | None = None,
        closes: Collection[str] = (),
    ) -> Client | None:
        """Open a connection and send its first frame.

        `timeout` is the expected one in milliseconds; 0 if the server refuses the session, None if it closes the
        connection without an answer.  `flag` says whether the answer has the readOnly byte.
        """
        ends = connection in closes or not timeout
        exchange = self.step(
            name,
            means,
            "open",
            connection,
            build.frame(request),
            None if timeout is None else connection,
            {*closes, connection} if ends else closes,
        )
        if timeout is None:
            self.expect(exchange, exchange.received, [])
            return None
        self.expect(exchange, len(exchange.received), 1)
        response, answered_flag = decode_connect_response(exchange.received[0][1])
        self.expect(exchange, answered_flag, False if flag else None)
        if timeout == 0:
            self.expect(exchange, response, ConnectResponse(0, 0, 0, bytes(16)))
            return None
        self.expect(exchange, (response.protocol_version, response.timeout), (0, timeout))
        self.expect(exchange, len(response.password or b""), 16)
        session = (response.session_id, response.password)
        if resumes is None:
            self.expect(exchange, response.session_id != 0, True)
            self.last += self.last >= 0
        else:
            self.expect(exchange, session, (resumes.session_id, resumes.password))
        return Client(self, connection, response.session_id, response.password or b"")

    def step(
        self,
        name: str,
        means: str,
        action: str,
        connection: str,
        data: bytes,
        answers: str | None,
        closes: Collection[str],
    ) -> Exchange:
        """Do one step, wait for what it causes, and keep it as an exchange."""
        if any(earlier.name == name for earlier in self.exchanges):
            raise ValueError(f"two steps of {self.theme} are called {name!r}")
        exchange = Exchange(name, " ".join(means.split()), action, connection, data)
        if action == "open":
            self.target.open(connection)
        if action == "drop":
            self.target.drop(connection)
        else:
            self.target.send(connection, data)
        exchange.received, exchange.closed = self.target.gather(answers, closes)
        self.exchanges.append(exchange)
        self.expect(exchange, exchange.closed, sorted(closes))
        return exchange

    def check_reply(
        self,
        exchange: Exchange,
        opcode: int,
        xid: int,
        zxid: int | None,
        takes: int | None,
        err: int,
        reply: Meant,
        events: list[str],
        in_any_order: bool,
    ) -> int:
        """Compare the reply, the last frame on its connection, and the events before it with what is expected."""
        own = [frame for connection, frame in exchange.received if connection == exchange.connection]
        if not own:
            raise Unexpected(f"{self.theme}, {exchange.name}: no reply")
        header, body = decode_reply(opcode, own[-1])
        if zxid is None:
            if takes is None:
                takes = opcode in WRITES and not (err == MARSHALLING_ERROR and opcode != MULTI)
            self.last += takes
            zxid = self.last
        self.expect(exchange, (header.xid, header.zxid, header.err), (xid, zxid, err))
        meant = reply(header.zxid) if callable(reply) else reply
        self.expect(exchange, self.masker.without_times(body), self.masker.without_times(meant))
        event_zxid = -1 if opcode in (SET_WATCHES, SET_WATCHES2) else zxid
        self.check_events(exchange, events, event_zxid, in_any_order, reply=own[-1])
        return header.zxid

    def check_events(
        self, exchange: Exchange, events: list[str], zxid: int, in_any_order: bool, reply: bytes | None = None
    ) -> None:
        """Compare the events of one step, connection by connection, with lines such as "b created /x"."""
        came: dict[str, list[str]] = {}
        for connection, frame in exchange.received:
            if frame is reply:
                continue
            header, event = decode_event(frame)
            self.expect(exchange, (header.xid, header.zxid, header.err, event.state), (EVENT_XID, zxid, 0, 3))
            came.setdefault(connection, []).append(f"{connection} {EVENT_TYPES[event.type]} {event.path}")
        meant: dict[str, list[str]] = {}
        for line in events:
            meant.setdefault(line.split()[0], []).append(line)
        if in_any_order:
            came, meant = ({name: sorted(lines) for name, lines in both.items()} for both in (came, meant))
        self.expect(exchange, came, meant)

    def expect(self, exchange: Exchange, came: object, meant: object) -> None:
        """Raise Unexpected, with the step's name, unless the two are equal."""
        if came != meant:
            raise Unexpected(f"{self.theme}, {exchange.name} ({exchange.means}):\n  came  {came}\n  meant {meant}")
