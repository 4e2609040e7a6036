"""A TCP proxy between a ZooKeeper client and a real server: it records every frame and injects faults at exact places.

It is an independent witness: it reads frames with struct, knows a table of opcodes and nothing of zkwire.

    async with Proxy(zookeeper.hosts) as proxy:
        client = ...connect(proxy.hosts)
        mark = proxy.mark()
        lost = proxy.drop_after("create")          # the server applies it, the client gets no reply
        ...
        await lost.until_hit()
        assert proxy.requests(mark) == ["create2"]

A `Match` is the name of a request's opcode or a predicate on a Frame.  The handshake has the opcode name "connect".
"""

from __future__ import annotations

import socket
import struct
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Literal, Self

from tests.support.relay import Listener, Pair, Wire

Direction = Literal["request", "reply", "event"]

OPCODES = {
    1: "create",
    2: "delete",
    3: "exists",
    4: "getData",
    5: "setData",
    6: "getACL",
    7: "setACL",
    8: "getChildren",
    9: "sync",
    11: "ping",
    12: "getChildren2",
    13: "check",
    14: "multi",
    15: "create2",
    16: "reconfig",
    17: "checkWatches",
    18: "removeWatches",
    19: "createContainer",
    21: "createTTL",
    22: "multiRead",
    100: "auth",
    101: "setWatches",
    102: "sasl",
    103: "getEphemerals",
    104: "getAllChildrenNumber",
    105: "setWatches2",
    106: "addWatch",
    107: "whoAmI",
    -11: "closeSession",
}

# A name that means several requests, in the arguments of faults.  Any other name means the one request of that name.
_KINDS = {
    "create": frozenset({"create", "create2", "createContainer", "createTTL"}),
    "getChildren": frozenset({"getChildren", "getChildren2"}),
    "setWatches": frozenset({"setWatches", "setWatches2"}),
}

EVENT_TYPES = {1: "NodeCreated", 2: "NodeDeleted", 3: "NodeDataChanged", 4: "NodeChildrenChanged"}

# Every other request's record begins with its path.
_PATHLESS = frozenset(
    {"ping", "multi", "reconfig", "multiRead", "auth", "setWatches", "sasl", "setWatches2", "whoAmI", "closeSession"}
)

_INT = struct.Struct(">i")
_REQUEST_HEADER = struct.Struct(">ii")
_REPLY_HEADER = struct.Struct(">iqi")

# Read as a length, a four-letter word and the first bytes of TLS are above this; ZooKeeper's frames are far below.
_MAX_LENGTH = 0x0FFFFFFF

# struct tcp_info of Linux: the number of segments with data that have arrived (tcpi_data_segs_in).
_DATA_SEGMENTS_OFFSET = 152

# The body of a multi with a single check, of the root.
_PROOF: bytes = struct.pack(">i?ii1si", 13, False, -1, 1, b"/", -1) + struct.pack(">i?i", -1, True, -1)


@dataclass(slots=True)
class Frame:
    """One frame that reached the proxy.

    Attributes:
        opcode: The request's name; a reply carries the name and the path of the request that it answers ("?" if it
            answers none), an event carries its type ("NodeDeleted", ...).  An unknown opcode is its number as text.
        path: Empty where there is none.
        payload: The whole frame without its length.
        write: The number of the socket read that completed a request, over all connections; 0 for other frames.
    """

    direction: Direction
    opcode: str
    xid: int
    err: int
    zxid: int
    path: str
    payload: bytes = field(repr=False)
    write: int = 0

    @property
    def body(self) -> bytes:
        """What follows the header; the whole payload of a handshake."""
        if self.opcode == "connect":
            return self.payload
        return self.payload[_REQUEST_HEADER.size if self.direction == "request" else _REPLY_HEADER.size :]


Match = str | Callable[[Frame], bool]


def _matches(match: Match, frame: Frame, direction: Direction | None) -> bool:
    if isinstance(match, str):
        return frame.opcode == match and frame.direction == (direction or "request")
    return (direction is None or frame.direction == direction) and match(frame)


def _string(data: bytes, offset: int) -> str:
    if len(data) < offset + _INT.size:
        return ""
    (length,) = _INT.unpack_from(data, offset)
    return data[offset + _INT.size : offset + _INT.size + max(length, 0)].decode("utf-8", "replace")


class Fault:
    """A fault of a proxy, active until `end` or the end of its `with` block."""

    def __init__(self, proxy: Proxy) -> None:
        self.hits = 0
        self.is_over = False
        self._proxy = proxy

    async def until_hit(self, hits: int = 1) -> None:
        """Wait until the fault has struck `hits` times in all."""
        await self._proxy.until(lambda: self.hits >= hits)

    def strike(self) -> None:
        """Count a hit."""
        self.hits += 1
        self._proxy.changed()

    def end(self) -> None:
        """Let the fault strike no more; nothing happens when it is over already."""
        if not self.is_over:
            self.is_over = True
            self._proxy.fault_ended(self)

    release = end

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *exc_info: object) -> None:
        self.end()


class Drop(Fault):
    """Cuts the connection at the `nth` request of a kind, before the request or in place of its reply."""

    def __init__(self, proxy: Proxy, operation: str | int | None, *, nth: int, is_before: bool) -> None:
        super().__init__(proxy)
        name = OPCODES[operation] if isinstance(operation, int) else operation
        if name is not None and name not in {*OPCODES.values(), "connect"}:
            raise ValueError(f"no request is called {name!r}; there are {', '.join(OPCODES.values())}")
        self.is_before = is_before
        self._names = None if name is None else _KINDS.get(name, frozenset({name}))
        self._left = nth

    def takes(self, request: Frame) -> bool:
        """Return whether the fault hits this request, and count it."""
        if self._names is None:
            if request.opcode in ("ping", "connect"):  # a ping comes at any time, in place of what is meant
                return False
        elif request.opcode not in self._names:
            return False
        self._left -= 1
        return self._left == 0


class Hold(Fault):
    """Keeps back everything that servers send, until it ends."""


class Refusal(Fault):
    """Resets new connections at once."""


class _Frames:
    """Splits a stream into frames.

    `is_raw` is whether it has turned out to have none: a four-letter word, or TLS.
    """

    def __init__(self) -> None:
        self.is_raw = False
        self._buffer = bytearray()

    def feed(self, data: bytes) -> list[bytes]:
        """Return the payloads of the frames that `data` completes."""
        self._buffer += data
        payloads = []
        while not self.is_raw and len(self._buffer) >= _INT.size:
            (length,) = _INT.unpack_from(self._buffer)
            if not 0 <= length <= _MAX_LENGTH:
                self.is_raw = True
                break
            end = _INT.size + length
            if len(self._buffer) < end:
                break
            payloads.append(bytes(self._buffer[_INT.size : end]))
            del self._buffer[:end]
        return payloads

    def rest(self) -> bytes:
        """Take the bytes that belong to no complete frame."""
        rest = bytes(self._buffer)
        self._buffer.clear()
        return rest


class _Recorded(Pair):
    """A client's connection and its counterpart to the server, with all faults."""

    def __init__(self, proxy: Proxy, upstream: int) -> None:
        super().__init__(upstream, proxy.over)
        self.kept: deque[bytes | Drop] = deque()  # what goes to the client; a drop is in place of its reply
        self._proxy = proxy
        self._frames = {self.client: _Frames(), self.server: _Frames()}
        self._unanswered: deque[tuple[Frame, Drop | None]] = deque()
        self._is_doomed = False  # a request that will be dropped is with the server: nothing may follow it
        self._segments = 0
        self._is_greeted = {self.client: False, self.server: False}

    def opened(self, wire: Wire) -> None:
        if wire is not self.client or self._proxy.accepts(self):
            super().opened(wire)

    def may_read(self, wire: Wire) -> bool:
        return not self._proxy.is_paused

    def received(self, wire: Wire, data: bytes) -> None:
        if wire is self.client:
            self._from_client(data)
        else:
            self._from_server(data)
        self._proxy.changed()

    def ended(self, wire: Wire) -> None:
        super().ended(wire)
        self._proxy.changed()

    def pass_end(self, wire: Wire) -> None:
        rest = self._frames[wire].rest()
        if wire is self.server:
            self._deliver(rest)
        elif not self._is_doomed:
            self.server.write(rest)
            self.server.finish()

    def keeps_back(self) -> bool:
        return bool(self.kept)

    # Client to server.

    def _from_client(self, data: bytes) -> None:
        frames = self._frames[self.client]
        self._proxy.count_read(self._new_segments())
        for payload in frames.feed(data):
            self._request(payload)
        if frames.is_raw and not self.is_cut and not self._is_doomed:
            self._frames[self.server].is_raw = True
            rest = frames.rest()
            if self._is_first(self.client):
                # A four-letter word is in the place of the first length.
                self._proxy.record(self._request_frame(rest[:4].decode("latin-1"), rest))
            self.server.write(rest)

    def _new_segments(self) -> int:
        """Return how many TCP segments with data have arrived since the last call."""
        assert self.client.transport is not None
        sock = self.client.transport.get_extra_info("socket")
        info = sock.getsockopt(socket.IPPROTO_TCP, socket.TCP_INFO, _DATA_SEGMENTS_OFFSET + 4)
        before, self._segments = self._segments, int(struct.unpack_from("=I", info, _DATA_SEGMENTS_OFFSET)[0])
        return self._segments - before

    def _is_first(self, wire: Wire) -> bool:
        is_first, self._is_greeted[wire] = not self._is_greeted[wire], True
        return is_first

    def _request(self, payload: bytes) -> None:
        frame = self._parse_request(payload)
        is_lost = self.is_cut or self._is_doomed
        drop = None if is_lost else self._proxy.drop_for(frame)
        self._proxy.record(frame)
        if drop is not None and drop.is_before:
            self.cut_by(drop)
        elif not is_lost:
            self._unanswered.append((frame, drop))
            self._is_doomed = drop is not None
            self.server.write(_INT.pack(len(payload)) + payload)

    def _request_frame(self, opcode: str, payload: bytes, xid: int = 0, path: str = "") -> Frame:
        return Frame("request", opcode, xid, 0, 0, path, payload, self._proxy.reads)

    def _parse_request(self, payload: bytes) -> Frame:
        if self._is_first(self.client):
            return self._request_frame("connect", payload)
        if len(payload) < _REQUEST_HEADER.size:
            return self._request_frame("?", payload)
        xid, code = _REQUEST_HEADER.unpack_from(payload)
        opcode = OPCODES.get(code, str(code))
        path = _string(payload, _REQUEST_HEADER.size) if code in OPCODES and opcode not in _PATHLESS else ""
        return self._request_frame(opcode, payload, xid, path)

    # Server to client.

    def _from_server(self, data: bytes) -> None:
        frames = self._frames[self.server]
        for payload in frames.feed(data):
            frame, drop = self._parse_reply(payload)
            self._proxy.record(frame)
            if drop is not None:
                self._deliver(drop)
            elif not self.is_cut and not any(isinstance(item, Drop) for item in self.kept):
                self._deliver(_INT.pack(len(payload)) + payload)
        if frames.is_raw:
            self._deliver(frames.rest())

    def _parse_reply(self, payload: bytes) -> tuple[Frame, Drop | None]:
        if self._is_first(self.server):
            drop = self._unanswered.popleft()[1] if self._unanswered else None
            return Frame("reply", "connect", 0, 0, 0, "", payload), drop
        xid, zxid, err = _REPLY_HEADER.unpack_from(payload) if len(payload) >= _REPLY_HEADER.size else (0, 0, 0)
        if xid == -1:
            kind = _INT.unpack_from(payload, _REPLY_HEADER.size)[0] if len(payload) >= _REPLY_HEADER.size + 4 else 0
            path = _string(payload, _REPLY_HEADER.size + 8)
            return Frame("event", EVENT_TYPES.get(kind, str(kind)), xid, err, zxid, path, payload), None
        for index, (request, drop) in enumerate(self._unanswered):
            # Every ping is answered under -2; replies to auth overtake, so the one looked for need not be the first.
            if request.opcode == "ping" if xid == -2 else request.xid == xid:
                del self._unanswered[index]
                return Frame("reply", request.opcode, xid, err, zxid, request.path, payload), drop
        return Frame("reply", "?", xid, err, zxid, "", payload), None

    def _deliver(self, item: bytes | Drop) -> None:
        self._proxy.strike_holds()
        self.kept.append(item)
        self.flush()

    def flush(self) -> None:
        """Pass on what waits for the client, as far as no fault keeps it back."""
        while self.kept and not self.is_cut and not self._proxy.keeps_back():
            item = self.kept.popleft()
            if isinstance(item, Drop):
                self.cut_by(item)
            else:
                self.client.write(item)
        if not self.kept and self.server.got_eof and not self.is_cut:
            self.client.finish()

    def cut_by(self, drop: Drop) -> None:
        """End both connections."""
        self.cut()
        drop.strike()

    def cut(self, *, reset: bool = False) -> None:
        self.kept.clear()
        super().cut(reset=reset)


class Proxy(Listener):
    """Listens on an address of its own (`hosts`), passes everything on to `upstream` ("host:port") and keeps `log`.

    `upstream` may be changed for later connections.  `connections` counts the accepted ones.
    """

    def __init__(self, upstream: str) -> None:
        super().__init__()
        self.upstream = upstream
        self.log: list[Frame] = []
        self.reads = 0
        self.is_paused = False
        self._pairs: list[_Recorded] = []
        self._faults: list[Fault] = []
        self._segments_of_read: dict[int, int] = {}

    def accept(self) -> Wire:
        return _Recorded(self, int(self.upstream.rpartition(":")[2])).client

    async def end_connections(self) -> None:
        for pair in list(self._pairs):
            pair.destroy()
        await self.until(lambda: not self._pairs)

    @property
    def open(self) -> int:
        """How many connections have not ended on both sides."""
        return len(self._pairs)

    # What happened.

    def mark(self) -> int:
        """Return the present end of the log, for the argument `since`."""
        return len(self.log)

    def requests(self, since: int = 0) -> list[str]:
        """Return the names of the client's requests in order, also of those that a fault has kept from the server."""
        return [frame.opcode for frame in self._requests(since)]

    def events(self, since: int = 0) -> list[tuple[str, str]]:
        """Return type and path of the events in order."""
        return [(frame.opcode, frame.path) for frame in self.log[since:] if frame.direction == "event"]

    def segments(self, since: int = 0) -> int:
        """Return in how many TCP segments the reads of these requests came.

        On loopback and with TCP_NODELAY each write is one segment, or more from 32 KiB on, so this counts the client's
        writes even where one read brought several.
        """
        return sum(self._segments_of_read[read] for read in {frame.write for frame in self._requests(since)})

    def _requests(self, since: int) -> list[Frame]:
        frames = (frame for frame in self.log[since:] if frame.direction == "request")
        # The write that a client sends by itself after a reconnect counts as a ping.
        return [frame for frame in frames if frame.opcode != "ping" and frame.body != _PROOF]

    async def seen(self, match: Match, since: int = 0, *, direction: Direction | None = None) -> Frame:
        """Wait for a matching frame at or after `since` and return the first.

        A name means a request unless `direction` says otherwise; a predicate is asked about every frame, or every frame
        of `direction`.
        """
        position = since

        def found() -> bool:
            nonlocal position
            while position < len(self.log):
                if _matches(match, self.log[position], direction):
                    return True
                position += 1
            return False

        await self.until(found)
        return self.log[position]

    # Faults.

    def drop_before(self, operation: str | int | None = None, *, nth: int = 1) -> Fault:
        """Cut the connection when the `nth` request of a kind arrives; it does not reach the server.

        Requests before it do.  Replies still under way from the server are lost.  The client sees FIN.
        `operation`: a name or an opcode; None for every request but pings.
        """
        return self._begin(Drop(self, operation, nth=nth, is_before=True))

    def drop_after(self, operation: str | int | None = None, *, nth: int = 1) -> Fault:
        """Cut the connection in place of the reply to the `nth` request of a kind.

        The server has answered the request, hence applied it, and nothing that the client sent after it reaches the
        server.  Replies and events before the answer are delivered; the answer and all after it are not.  While replies
        are held, so is the cut.
        """
        return self._begin(Drop(self, operation, nth=nth, is_before=False))

    def hold_replies(self) -> Fault:
        """Keep back everything that servers send from now on, in order; it is recorded as it comes."""
        return self._begin(Hold(self))

    def refuse_connections(self) -> Fault:
        """Reset every new connection at once; open connections stay."""
        return self._begin(Refusal(self))

    def drop(self, *, reset: bool = False) -> None:
        """Cut every connection now, by FIN or RST.  Held replies are lost; requests in the log reach the server."""
        for pair in list(self._pairs):
            pair.cut(reset=reset)

    def pause(self) -> None:
        """Pass nothing either way and close nothing, as a silent network.  New connections are accepted, and silent."""
        self.is_paused = True
        self._adjust()

    def resume(self) -> None:
        """Go on after `pause`."""
        self.is_paused = False
        self._adjust()

    def _begin(self, fault: Fault) -> Fault:
        self._faults.append(fault)
        return fault

    def _adjust(self) -> None:
        for pair in list(self._pairs):
            pair.adjust_reading()
            pair.flush()
            pair.close_if_over()

    # Called by the pairs and the faults.

    def fault_ended(self, fault: Fault) -> None:
        """Let what a fault kept back go on."""
        self._faults.remove(fault)
        self._adjust()

    def keeps_back(self) -> bool:
        """Return whether nothing goes to clients now."""
        return self.is_paused or any(isinstance(fault, Hold) for fault in self._faults)

    def strike_holds(self) -> None:
        """Count what is kept back."""
        for fault in self._faults:
            if isinstance(fault, Hold):
                fault.strike()

    def drop_for(self, request: Frame) -> Drop | None:
        """Return the fault that a request meets; all count it."""
        hit = [fault for fault in self._faults if isinstance(fault, Drop) and fault.takes(request)]
        return hit[0] if hit else None

    def record(self, frame: Frame) -> None:
        """Put a frame into the log."""
        self.log.append(frame)
        self.changed()

    def count_read(self, segments: int) -> None:
        """Number a read from a client."""
        self.reads += 1
        self._segments_of_read[self.reads] = segments

    def accepts(self, pair: _Recorded) -> bool:
        """Return whether a new connection is passed on; otherwise it is reset."""
        self._pairs.append(pair)
        refusals = [fault for fault in self._faults if isinstance(fault, Refusal)]
        is_refused = bool(refusals) or self._is_closing
        if is_refused:
            for refusal in refusals:
                refusal.strike()
            pair.destroy()
        else:
            self.connections += 1
        self.changed()
        return not is_refused

    def over(self, pair: Pair) -> None:
        """Forget a connection that has ended."""
        self._pairs = [each for each in self._pairs if each is not pair]
        self.changed()
