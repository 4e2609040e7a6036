"""A TCP proxy between a ZooKeeper client and a real server: it records every frame and injects faults at exact places.

It is an independent witness: it reads frames with struct, knows a table of opcodes and nothing of zkwire.
It runs on the test's own loop, without tasks but for dialling the server, so that a fault happens in the same callback
that reads the frame.

    async with Proxy(zookeeper.hosts) as proxy:
        client = ...connect(proxy.hosts)
        mark = proxy.mark()
        lost = proxy.drop_after("create")          # the server applies it, the client gets no reply
        ...
        await lost.until_hit()
        assert proxy.requests(mark) == ["create2"]

A `Match` is the name of a request's opcode or a predicate on a Frame. The handshake has the opcode name "connect".
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import socket
import struct
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from types import TracebackType
from typing import Literal, Self, TypeVar, cast

from tests.support.faults import PathPattern

_LOGGER = logging.getLogger("tests.proxy")

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

    `opcode` is the request's name; a reply carries the name and the path of the request it answers ("?" if it answers
    none), an event carries its type ("NodeDeleted", ...). An opcode missing from the table is its number as text.
    `path` is empty where there is none. `payload` is the whole frame without its length. `write` numbers the socket
    read that completed a request, over all connections; it is 0 for frames of the server.
    `dropped` is True for a frame that was not passed on.
    """

    direction: Direction
    connection: int
    opcode: str
    xid: int
    err: int
    zxid: int
    path: str
    payload: bytes = field(repr=False)
    write: int = 0
    dropped: bool = False

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


class _Selector:
    """Chooses requests: those that fit, from the `nth` on, `times` of them (None: all)."""

    def __init__(
        self, operation: Match | int | None, path: PathPattern, session: int | None, nth: int, times: int | None
    ) -> None:
        if nth < 1 or (times is not None and times < 1):
            raise ValueError(f"nth and times count from 1, not nth={nth!r}, times={times!r}")
        if isinstance(operation, int):
            operation = OPCODES[operation]
        elif isinstance(operation, str):
            if operation not in {*OPCODES.values(), "connect"}:
                raise ValueError(f"no request is called {operation!r}; there are {', '.join(OPCODES.values())}")
            operation = _of_kind(operation)
        self.operation = operation
        self.path = path
        self.session = None if session is None else _signed(session)
        # Without any property of a request, a fault is about everything that the server sends.
        self.is_everything = operation is None and path is None and nth == 1 and times is None
        self._to_pass = nth - 1
        self._left = times

    def takes(self, frame: Frame, session: int) -> bool:
        """Return whether the fault hits this request, and count it."""
        if self._left == 0 or not self._fits(frame, session):
            return False
        if self._to_pass:
            self._to_pass -= 1
            return False
        if self._left is not None:
            self._left -= 1
        return True

    @property
    def is_used_up(self) -> bool:
        """Whether the fault can hit no further request."""
        return self._left == 0

    def _fits(self, frame: Frame, session: int) -> bool:
        if self.session is not None and self.session != session:
            return False
        if self.operation is None:
            if frame.opcode in ("ping", "connect"):
                return False  # a ping comes at any time, and would take the place of the request that is meant
        elif not _matches(self.operation, frame, "request"):
            return False
        if self.path is None:
            return True
        if isinstance(self.path, str):
            return self.path == frame.path
        return self.path.fullmatch(frame.path) is not None


def _of_kind(name: str) -> Callable[[Frame], bool]:
    names = _KINDS.get(name, {name})
    return lambda frame: frame.opcode in names


def _signed(session_id: int) -> int:
    """Return a session id as it is on the wire; ids are often printed unsigned."""
    return (session_id + 2**63) % 2**64 - 2**63


class ProxyFault:
    """A fault of a Proxy, with what `tests.support.faults.Fault` promises.

    `frames` holds what it has struck: the swallowed reply of a drop_after, otherwise the request or what was kept back.
    `until_hit` raises ConnectionAbortedError when the connection that the fault has chosen ends in another way.
    """

    def __init__(self, proxy: Proxy, name: str, selector: _Selector) -> None:
        self.proxy = proxy
        self.name = name
        self.selector = selector
        self.frames: list[Frame] = []
        self.is_over = False
        self._hits = 0
        self._failure = ""
        self._waiting: list[tuple[int, asyncio.Future[None]]] = []

    @property
    def hits(self) -> int:
        return self._hits

    async def until_hit(self, hits: int = 1) -> None:
        """Wait until the fault has struck `hits` times in all."""
        if self._hits < hits:
            if self._failure:
                raise ConnectionAbortedError(self._failure)
            future: asyncio.Future[None] = asyncio.get_running_loop().create_future()
            self._waiting.append((hits, future))
            await future

    def end(self) -> None:
        """Let the fault strike no more; nothing happens when it is over already."""
        if not self.is_over:
            self.is_over = True
            if not self._hits:
                _LOGGER.warning("the fault %s never hit anything", self.name)
            self.proxy._fault_ended(self)

    def strike(self, frame: Frame | None) -> None:
        """Count a hit."""
        self._hits += 1
        if frame is not None:
            self.frames.append(frame)
        for wanted, future in self._waiting:
            if wanted <= self._hits and not future.done():
                future.set_result(None)

    def fail(self, reason: str) -> None:
        """Wake the tests that wait for a hit: the chosen connection has ended before it was struck."""
        if self.selector.is_used_up:
            self._failure = reason  # no later request can be hit, so a later wait would never end
        for _, future in self._waiting:
            if not future.done():
                future.set_exception(ConnectionAbortedError(reason))

    def cancel(self) -> None:
        """Cancel the waits: the proxy is being closed."""
        for _, future in self._waiting:
            future.cancel()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.end()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.end()


class _Drop(ProxyFault):
    """Cuts a connection before or after a request."""

    def __init__(self, proxy: Proxy, name: str, selector: _Selector, *, before: bool, reset: bool) -> None:
        super().__init__(proxy, name, selector)
        self.before = before
        self.reset = reset


class ProxyHold(ProxyFault):
    """Keeps replies, and what follows them, back until it ends."""

    def release(self) -> None:
        """Send what was kept back, in its order, and keep nothing back any more."""
        self.end()


class _Delay(ProxyFault):
    """Keeps replies, and what follows them, back for `seconds`."""

    def __init__(self, proxy: Proxy, selector: _Selector, seconds: float) -> None:
        super().__init__(proxy, "delay_replies", selector)
        self.seconds = seconds


class _Refusal(ProxyFault):
    """Resets new connections at once."""


F = TypeVar("F", bound=ProxyFault)


@dataclass(eq=False, slots=True)
class _Cut:
    """Stands among the replies in place of the swallowed one, so that those in front are delivered first."""

    faults: list[_Drop]
    reply: Frame


@dataclass(eq=False, slots=True)
class _Kept:
    """What goes to the client once its time has come and the holds are over."""

    item: bytes | Frame | _Cut
    holds: list[ProxyHold]
    ready_at: float


class _Side(asyncio.Protocol):
    """One of the two TCP connections of a link: splits its stream into frames and knows how to end."""

    def __init__(self, link: _Link) -> None:
        self.link = link
        self.transport: asyncio.Transport | None = None
        self.raw = False  # no frames, or no longer: bytes pass as they are
        self.got_eof = False
        self.lost = False
        self._wants_reading = True
        self._buffer = bytearray()
        self._on_drained: Callable[[], None] | None = None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self.transport = cast(asyncio.Transport, transport)  # uvloop's is one, but is not derived from it
        self.transport.set_write_buffer_limits(high=0)  # resume_writing then means: nothing is left in the transport
        self.link.opened(self)

    def data_received(self, data: bytes) -> None:
        self.link.received(self, data)

    def eof_received(self) -> bool:
        self.got_eof = True
        self.link.ended(self)
        return True  # the other direction stays open: the proxy is to be invisible to a half-close

    def connection_lost(self, exc: Exception | None) -> None:
        self.lost = True
        self._on_drained = None
        self.link.lost(self, exc)

    def resume_writing(self) -> None:
        if self._on_drained is not None:
            self._on_drained()

    def split(self, data: bytes) -> list[bytes]:
        """The payloads of the frames that `data` completes; none once the stream has turned out to have no frames."""
        self._buffer += data
        payloads = []
        offset = 0
        while not self.raw and len(self._buffer) >= offset + _INT.size:
            (length,) = _INT.unpack_from(self._buffer, offset)
            if not 0 <= length <= _MAX_LENGTH:
                self.raw = True
                break
            end = offset + _INT.size + length
            if len(self._buffer) < end:
                break
            payloads.append(bytes(self._buffer[offset + _INT.size : end]))
            offset = end
        del self._buffer[:offset]
        return payloads

    def take_rest(self) -> bytes:
        """Bytes that belong to no complete frame."""
        rest = bytes(self._buffer)
        self._buffer.clear()
        return rest

    def segments(self) -> int:
        """How many TCP segments with data have arrived so far."""
        assert self.transport is not None
        info = self.transport.get_extra_info("socket").getsockopt(
            socket.IPPROTO_TCP, socket.TCP_INFO, _DATA_SEGMENTS_OFFSET + 4
        )
        return int(struct.unpack_from("=I", info, _DATA_SEGMENTS_OFFSET)[0])

    def write(self, data: bytes) -> None:
        assert self.transport is not None  # nothing is read before both sides are connected
        if not self.lost:
            self.transport.write(data)

    def read(self, wanted: bool) -> None:
        if self.transport is None or self.lost or self.transport.is_closing() or self.got_eof:
            return
        if wanted:
            self.transport.resume_reading()
        else:
            self.transport.pause_reading()

    def finish(self) -> None:
        """Send FIN behind what was written.

        Not close(): closing over unread bytes sends RST, which destroys what is on its way.
        """
        if self.transport is None or self.lost:
            return
        with contextlib.suppress(OSError):  # the peer has reset the connection already; connection_lost follows
            self.transport.write_eof()

    def close(self) -> None:
        if self.transport is not None:
            self.transport.close()

    def abort(self) -> None:
        """Send RST now."""
        if self.transport is None or self.lost:
            return
        self.transport.get_extra_info("socket").setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        self.transport.abort()

    def when_sent(self, action: Callable[[], None]) -> None:
        """Call `action` when all that was written is in the peer's kernel, whence RST does not take it back (Linux)."""
        assert self.transport is not None
        if self.transport.get_write_buffer_size():
            self._on_drained = lambda: self.when_sent(action)
            return
        self._on_drained = None
        # The transport owns its descriptor in the loop, hence the duplicate. With NOTSENT_LOWAT 1 a socket is writable
        # only if the kernel holds nothing unsent.
        loop = asyncio.get_running_loop()
        twin = self.transport.get_extra_info("socket").dup()
        twin.setsockopt(socket.IPPROTO_TCP, socket.TCP_NOTSENT_LOWAT, 1)

        def writable() -> None:
            loop.remove_writer(twin)
            self.link.twins.discard(twin)
            twin.close()
            action()

        self.link.twins.add(twin)
        loop.add_writer(twin, writable)


class _Link:
    """A client's connection and its counterpart to the server."""

    def __init__(self, proxy: Proxy) -> None:
        self.proxy = proxy
        self.number = 0
        self.client = _Side(self)
        self.server = _Side(self)
        self.dialling: asyncio.Task[None] | None = None
        self.twins: set[socket.socket] = set()
        self.session_id = 0
        self.unanswered: deque[tuple[Frame, list[ProxyFault]]] = deque()
        self.held: deque[_Kept] = deque()
        self.doomed: _Drop | None = None  # its request is with the server: nothing behind it may follow
        self.cutting = False  # nothing is passed on any more
        self._cut_happened: Callable[[], None] | None = None
        self._segments = 0
        self._timer: asyncio.TimerHandle | None = None
        self._handshakes = {"request": False, "reply": False}

    # Called by the two sides.

    def opened(self, side: _Side) -> None:
        if side is self.client:
            self.proxy._accepted(self)
        elif self.client.lost:
            side.close()
        elif self.cutting:
            side.finish()
        # Not now: Python 3.11.2 and uvloop begin to read when connection_made has returned, even after a pause in it.
        asyncio.get_running_loop().call_soon(self.adjust_reading)

    def received(self, side: _Side, data: bytes) -> None:
        if side is self.client:
            self._from_client(data)
        else:
            self._from_server(data)
        self.proxy._changed()

    def ended(self, side: _Side) -> None:
        """FIN is passed on in order, behind what came before it."""
        if not self.cutting:
            if side is self.client:
                if self.doomed is None:
                    self.server.write(side.take_rest())
                    self.server.finish()
            else:
                self._deliver(side.take_rest())
        self._close_if_over()
        self.proxy._changed()

    def lost(self, side: _Side, exc: Exception | None) -> None:
        other = self.server if side is self.client else self.client
        if other.transport is not None and not other.lost:
            if exc is not None and not self.cutting:
                other.abort()
            elif side is self.server and not self.cutting:
                other.finish()
            elif side is self.client:
                other.close()
        if side is self.client:
            if self.server.transport is None and self.dialling is not None:
                self.dialling.cancel()
            if self._cut_happened is not None:  # the client went before all was sent to it
                self._cut_happened()
            for cut in self._forget_held():
                self._fail(cut)
        held, self.held = self.held, deque()  # a client may still get what is kept for it
        self._forget_faults()
        self.held = held
        self._check_over()

    # Client to server.

    def _from_client(self, data: bytes) -> None:
        if self.cutting:
            return
        proxy = self.proxy
        proxy._reads += 1
        segments = self.client.segments()
        proxy._segments_of_read[proxy._reads] = segments - self._segments
        self._segments = segments
        for payload in self.client.split(data):
            self._request(payload)
        if self.client.raw and not self.cutting and self.doomed is None:
            self.server.raw = True
            rest = self.client.take_rest()
            if not self._handshakes["request"]:
                self._handshakes["request"] = True
                word = rest[:4].decode("latin-1")  # a four-letter word is in the place of the first length
                proxy._record(Frame("request", self.number, word, 0, 0, 0, "", rest, proxy._reads))
            self.server.write(rest)

    def _request(self, payload: bytes) -> None:
        frame = self._parse_request(payload)
        if self.cutting or self.doomed is not None:
            frame.dropped = True
            self.proxy._record(frame)
            return
        faults = self.proxy._faults_for(frame, self.session_id)
        drops = [fault for fault in faults if isinstance(fault, _Drop)]
        before = [fault for fault in drops if fault.before]
        if before:
            frame.dropped = True
            self.proxy._record(frame)
            self._cut(before[0].reset, in_order=True, faults=drops, outcome=frame)
            return
        self.proxy._record(frame)
        self.unanswered.append((frame, faults))
        self.doomed = drops[0] if drops else None
        self.server.write(_INT.pack(len(payload)) + payload)

    def _parse_request(self, payload: bytes) -> Frame:
        if not self._handshakes["request"]:
            self._handshakes["request"] = True
            return Frame("request", self.number, "connect", 0, 0, 0, "", payload, self.proxy._reads)
        if len(payload) < _REQUEST_HEADER.size:
            return Frame("request", self.number, "?", 0, 0, 0, "", payload, self.proxy._reads)
        xid, code = _REQUEST_HEADER.unpack_from(payload)
        opcode = OPCODES.get(code, str(code))
        path = _string(payload, _REQUEST_HEADER.size) if code in OPCODES and opcode not in _PATHLESS else ""
        return Frame("request", self.number, opcode, xid, 0, 0, path, payload, self.proxy._reads)

    # Server to client.

    def _from_server(self, data: bytes) -> None:
        if self.cutting:
            return
        for payload in self.server.split(data):
            self._reply(payload)
        if self.server.raw:
            self._deliver(self.server.take_rest())

    def _reply(self, payload: bytes) -> None:
        frame, faults = self._parse_reply(payload)
        if self.cutting or any(isinstance(kept.item, _Cut) for kept in self.held):
            frame.dropped = True
            self.proxy._record(frame)
            return
        drops = [fault for fault in faults if isinstance(fault, _Drop)]
        frame.dropped = bool(drops)
        self.proxy._record(frame)
        for fault in faults:
            if not isinstance(fault, _Drop):
                fault.strike(frame)
        self._deliver(_Cut(drops, frame) if drops else frame, faults)

    def _parse_reply(self, payload: bytes) -> tuple[Frame, list[ProxyFault]]:
        xid, zxid, err = _REPLY_HEADER.unpack_from(payload) if len(payload) >= _REPLY_HEADER.size else (0, 0, 0)
        if not self._handshakes["reply"]:
            self._handshakes["reply"] = True
            if len(payload) != _REPLY_HEADER.size:  # a read-only server refuses with a bare reply header
                xid = zxid = err = 0
                if len(payload) > _REPLY_HEADER.size:
                    (self.session_id,) = struct.unpack_from(">q", payload, 8)
            faults = self.unanswered.popleft()[1] if self.unanswered else []
            return Frame("reply", self.number, "connect", xid, err, zxid, "", payload), faults
        if xid == -1:
            kind = _INT.unpack_from(payload, _REPLY_HEADER.size)[0] if len(payload) >= _REPLY_HEADER.size + 4 else 0
            path = _string(payload, _REPLY_HEADER.size + 8)
            return Frame("event", self.number, EVENT_TYPES.get(kind, str(kind)), xid, err, zxid, path, payload), []
        for index, (request, faults) in enumerate(self.unanswered):
            # Every ping is answered under -2; replies to auth overtake, so the one looked for need not be the first.
            if request.opcode == "ping" if xid == -2 else request.xid == xid:
                del self.unanswered[index]
                return Frame("reply", self.number, request.opcode, xid, err, zxid, request.path, payload), faults
        return Frame("reply", self.number, "?", xid, err, zxid, "", payload), []

    def _deliver(self, item: bytes | Frame | _Cut, faults: Sequence[ProxyFault] = ()) -> None:
        everything = self.proxy._keeping_back(self.session_id)
        for fault in everything:
            fault.strike(item if isinstance(item, Frame) else None)
        faults = [*faults, *everything]
        holds = [fault for fault in faults if isinstance(fault, ProxyHold)]
        delay = max((fault.seconds for fault in faults if isinstance(fault, _Delay)), default=0.0)
        self.held.append(_Kept(item, holds, asyncio.get_running_loop().time() + delay if delay else 0.0))
        self.flush()

    def flush(self) -> None:
        """Pass on what waits for the client, as far as no fault keeps it back."""
        loop = asyncio.get_running_loop()
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        while self.held and not self.cutting and not self.proxy._paused:
            first = self.held[0]
            if not all(hold.is_over for hold in first.holds):
                break
            if first.ready_at > loop.time():
                self._timer = loop.call_at(first.ready_at, self.flush)
                break
            item = self.held.popleft().item
            if isinstance(item, _Cut):
                self._cut(item.faults[0].reset, in_order=True, faults=item.faults, outcome=item.reply)
            elif isinstance(item, Frame):
                self.client.write(_INT.pack(len(item.payload)) + item.payload)
            else:
                self.client.write(item)
        if not self.held and self.server.got_eof and not self.cutting:
            self.client.finish()

    # The end.

    def cut(self, reset: bool) -> None:
        self._cut(reset, in_order=False)

    def _cut(
        self, reset: bool, *, in_order: bool, faults: Sequence[ProxyFault] = (), outcome: Frame | None = None
    ) -> None:
        """End both connections; `in_order`: what was passed on before reaches the client first."""
        if self.cutting:
            return
        self.cutting = True
        for kept in self.held:
            if isinstance(kept.item, Frame):
                kept.item.dropped = True
        # The server's side ends by FIN in any case: RST could destroy requests that the log shows as passed on.
        self.server.finish()
        self._forget_faults()

        def happened() -> None:
            self._cut_happened = None
            for fault in faults:
                fault.strike(outcome)

        def abort() -> None:
            self.client.abort()
            happened()

        if not reset:
            self.client.finish()
            happened()
        elif in_order and not self.client.lost:
            self._cut_happened = happened
            self.client.when_sent(abort)
        else:
            abort()
        self.adjust_reading()

    def _forget_faults(self) -> None:
        """Fail the drops that had chosen a request of this connection, which has ended in another way."""
        waiting: list[ProxyFault] = [fault for _, faults in self.unanswered for fault in faults]
        self.unanswered.clear()
        waiting += self._forget_held()
        for fault in waiting:
            if isinstance(fault, _Drop):
                self._fail(fault)

    def _forget_held(self) -> list[_Drop]:
        cuts = [fault for kept in self.held if isinstance(kept.item, _Cut) for fault in kept.item.faults]
        self.held.clear()
        return cuts

    def _fail(self, fault: _Drop) -> None:
        if self.proxy._closing:
            fault.cancel()
        else:
            fault.fail(f"connection {self.number} ended before this cut")

    def _close_if_over(self) -> None:
        if self.client.got_eof and (self.server.got_eof or self.server.lost) and not self.held:
            self.client.close()
        if self.server.got_eof and (self.client.got_eof or self.client.lost):
            self.server.close()

    def _check_over(self) -> None:
        dialled = self.dialling is None or self.dialling.done()
        if self.client.lost and dialled and (self.server.transport is None or self.server.lost):
            self.proxy._over(self)

    def destroy(self) -> None:
        self.cutting = True
        self._forget_faults()
        if self._timer is not None:
            self._timer.cancel()
        for twin in self.twins:
            asyncio.get_running_loop().remove_writer(twin)
            twin.close()
        self.twins.clear()
        if self.dialling is not None:
            self.dialling.cancel()
        self.client.abort()
        self.server.abort()

    def adjust_reading(self) -> None:
        """Read once there is a server to write to, and not in a pause; after a cut always, to see FIN."""
        wanted = self.cutting or (not self.proxy._paused and self.server.transport is not None)
        self.client.read(wanted)
        self.server.read(wanted)

    async def dial(self) -> None:
        host, _, port = self.proxy.upstream.rpartition(":")
        try:
            await asyncio.get_running_loop().create_connection(lambda: self.server, host.strip("[]"), int(port))
        except OSError:
            self.client.abort()  # as a server that is down would answer


def _keeps_everything(fault: ProxyFault) -> bool:
    return isinstance(fault, ProxyHold | _Delay) and fault.selector.is_everything


class Proxy:
    """Listens on an address of its own (`hosts`), passes everything on to `upstream` ("host:port") and keeps `log`.

    `upstream` may be changed for later connections. `connections` counts the accepted ones,
    `refused` those closed at once. Waits have no time limit but the test's; when the proxy is closed they end with
    ConnectionAbortedError, and faults that have not happened are cancelled.
    """

    def __init__(self, upstream: str) -> None:
        self.upstream = upstream
        self.log: list[Frame] = []
        self.connections = 0
        self.refused = 0
        self._listener: asyncio.Server | None = None
        self._links: list[_Link] = []
        self._faults: list[ProxyFault] = []
        self._waiters: set[asyncio.Future[None]] = set()
        self._reads = 0
        self._segments_of_read: dict[int, int] = {}
        self._paused = False
        self._closing = False
        self._closed = False

    async def __aenter__(self) -> Self:
        loop = asyncio.get_running_loop()
        self._listener = await loop.create_server(lambda: _Link(self).client, "127.0.0.1", 0)
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        assert self._listener is not None
        self._closing = True
        with contextlib.suppress(NotImplementedError):  # uvloop accepts in its own way
            asyncio.get_running_loop().remove_reader(self._listener.sockets[0].fileno())
        for _ in range(3):  # asyncio opens an accepted connection in a task, which ends at its third turn
            await asyncio.sleep(0)
        self._listener.close()
        for link in list(self._links):
            link.destroy()
        await self.until(lambda: not self._links)
        await self._listener.wait_closed()
        for fault in self._faults:
            fault.cancel()
        self._closed = True
        self._changed()

    @property
    def hosts(self) -> str:
        """The connect string to give to the client."""
        assert self._listener is not None
        host, port = self._listener.sockets[0].getsockname()
        return f"{host}:{port}"

    @property
    def open(self) -> int:
        """How many connections have not ended on both sides."""
        return len(self._links)

    # What happened.

    def mark(self) -> int:
        """Return the present end of the log, for the argument `since`."""
        return len(self.log)

    def requests(self, since: int = 0, ignore_pings: bool = True) -> list[str]:
        """The names of the client's requests in order, the dropped ones included."""
        return [frame.opcode for frame in self._requests(since, ignore_pings)]

    def events(self, since: int = 0) -> list[tuple[str, str]]:
        """Type and path of the events in order."""
        return [(frame.opcode, frame.path) for frame in self.log[since:] if frame.direction == "event"]

    def writes(self, since: int = 0, ignore_pings: bool = True) -> int:
        """By how many socket reads these requests came.

        A lower bound of the client's writes: those of one turn of a loop shared with the proxy arrive in one read.
        """
        return len({frame.write for frame in self._requests(since, ignore_pings)})

    def segments(self, since: int = 0, ignore_pings: bool = True) -> int:
        """In how many TCP segments the reads of these requests came.

        On loopback and with TCP_NODELAY each write is one segment, or more from 32 KiB on, so this counts the client's
        writes even where one read brought several.
        """
        reads = {frame.write for frame in self._requests(since, ignore_pings)}
        return sum(self._segments_of_read[read] for read in reads)

    def _requests(self, since: int, ignore_pings: bool) -> list[Frame]:
        frames = (frame for frame in self.log[since:] if frame.direction == "request")
        # The write that a client sends by itself after a reconnect counts as a ping.
        return [frame for frame in frames if not (ignore_pings and (frame.opcode == "ping" or frame.body == _PROOF))]

    # Waits.

    async def connected(self, count: int) -> None:
        """Wait until `count` connections have been accepted since the start."""
        await self.until(lambda: self.connections >= count)

    async def seen(self, match: Match, since: int = 0, *, direction: Direction | None = None) -> Frame:
        """Wait for a matching frame at or behind `since` and return the first.

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

    async def until(self, condition: Callable[[], bool]) -> None:
        """Wait until `condition`, asked again whenever something arrives or a connection changes, is true."""
        while not condition():
            if self._closed:
                raise ConnectionAbortedError("the proxy was closed during this wait")
            waiter = asyncio.get_running_loop().create_future()
            self._waiters.add(waiter)
            try:
                await waiter
            finally:
                self._waiters.discard(waiter)

    # Faults, by the verbs of `tests.support.faults.FaultyServer`.  A predicate on a Frame may choose requests, too.

    def drop_before(
        self,
        operation: Match | int | None = None,
        *,
        path: PathPattern = None,
        session: int | None = None,
        nth: int = 1,
        times: int | None = 1,
        reset: bool = False,
    ) -> ProxyFault:
        """Cut the connection when a chosen request arrives; it does not reach the server.

        Requests in front of it do. Replies still under way from the server are lost. The client sees FIN or, with
        `reset`, RST. `frames` has the request.
        """
        selector = _Selector(operation, path, session, nth, times)
        return self._begin(_Drop(self, "drop_before", selector, before=True, reset=reset))

    def drop_after(
        self,
        operation: Match | int | None = None,
        *,
        path: PathPattern = None,
        session: int | None = None,
        nth: int = 1,
        times: int | None = 1,
        reset: bool = False,
    ) -> ProxyFault:
        """Cut the connection in place of the reply to a chosen request.

        The server has answered the request, hence applied it, and nothing that the client sent behind it reaches the
        server. Replies and events in front of the answer are delivered; the answer and all behind it are not. The
        client sees FIN or, with `reset`, RST. `frames` has the swallowed reply. While replies are held, so is the cut.
        """
        selector = _Selector(operation, path, session, nth, times)
        return self._begin(_Drop(self, "drop_after", selector, before=False, reset=reset))

    def hold_replies(
        self,
        operation: Match | int | None = None,
        *,
        path: PathPattern = None,
        session: int | None = None,
        nth: int = 1,
        times: int | None = None,
    ) -> ProxyHold:
        """Keep back the replies to chosen requests, and all that follows them on the same connection, in order.

        When no argument but `session` is given, everything that servers send from now on is kept back. What is kept
        back is recorded as it comes.
        """
        return self._begin(ProxyHold(self, "hold_replies", _Selector(operation, path, session, nth, times)))

    def delay_replies(
        self,
        seconds: float,
        operation: Match | int | None = None,
        *,
        path: PathPattern = None,
        session: int | None = None,
        nth: int = 1,
        times: int | None = None,
    ) -> ProxyFault:
        """Keep the same replies back for `seconds`."""
        return self._begin(_Delay(self, _Selector(operation, path, session, nth, times), seconds))

    def refuse_connections(self) -> ProxyFault:
        """Reset every new connection at once; open connections stay."""
        return self._begin(_Refusal(self, "refuse_connections", _Selector(None, None, None, 1, None)))

    def drop(self, session_id: int | None = None, *, reset: bool = False) -> int:
        """Cut the connection of a session, or every connection, now; return how many.

        Held replies are lost; requests in the log reach the server.
        """
        wanted = None if session_id is None else _signed(session_id)
        links = [link for link in self._links if wanted in (None, link.session_id) and not link.cutting]
        for link in links:
            link.cut(reset)
        return len(links)

    def pause(self) -> None:
        """Pass nothing either way and close nothing, as a silent network. New connections are accepted, and silent."""
        self._paused = True
        self._adjust_reading()

    def resume(self) -> None:
        """Go on after `pause`."""
        self._paused = False
        self._adjust_reading()
        self._flush()

    @contextlib.contextmanager
    def paused(self) -> Iterator[None]:
        """Be paused in a `with` block."""
        self.pause()
        try:
            yield
        finally:
            self.resume()

    def end_faults(self) -> None:
        """End every active fault, and a pause."""
        for fault in list(self._faults):
            fault.end()
        if self._paused:
            self.resume()

    def _begin(self, fault: F) -> F:
        self._faults.append(fault)
        return fault

    def _fault_ended(self, fault: ProxyFault) -> None:
        self._faults.remove(fault)
        self._flush()

    def _flush(self) -> None:
        for link in list(self._links):
            link.flush()
            link._close_if_over()

    def _adjust_reading(self) -> None:
        for link in self._links:
            link.adjust_reading()

    # Called by the links.

    def _faults_for(self, frame: Frame, session: int) -> list[ProxyFault]:
        """Return the faults that a request meets, each of which has counted it."""
        by_request = (fault for fault in self._faults if not (isinstance(fault, _Refusal) or _keeps_everything(fault)))
        return [fault for fault in by_request if fault.selector.takes(frame, session)]

    def _keeping_back(self, session: int) -> list[ProxyFault]:
        """Return the faults that keep back everything that goes out to a session."""
        return [
            fault for fault in self._faults if _keeps_everything(fault) and fault.selector.session in (None, session)
        ]

    def _record(self, frame: Frame) -> None:
        self.log.append(frame)
        self._changed()

    def _accepted(self, link: _Link) -> None:
        refusals = [fault for fault in self._faults if isinstance(fault, _Refusal)]
        if refusals or self._closing:
            self.refused += 1
            for refusal in refusals:
                refusal.strike(None)
            self._links.append(link)
            link.destroy()
        else:
            self.connections += 1
            link.number = self.connections
            self._links.append(link)
            link.dialling = asyncio.get_running_loop().create_task(link.dial())
            link.dialling.add_done_callback(lambda task: link._check_over())
        self._changed()

    def _over(self, link: _Link) -> None:
        if link in self._links:
            self._links.remove(link)
            self._changed()

    def _changed(self) -> None:
        for waiter in self._waiters:
            if not waiter.done():
                waiter.set_result(None)
