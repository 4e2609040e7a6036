"""The life of one TCP connection as a machine without a socket and without a clock.

Bytes that arrived and the present time go in; answered calls, notifications and the handshake's result come out, in the
order of the wire; bytes to send wait in `data_to_send`.  It never raises for what the peer sent: nonsense sets
`error`, and then the connection is over.  What an answer means for the session is not known here.
"""

from __future__ import annotations

import struct
from collections import deque
from collections.abc import Callable
from typing import Any, Final, NamedTuple, Protocol, TypeAlias

from zkwire.errors import AuthenticationRequiredError, ProtocolError, SessionError, UnimplementedError
from zkwire.wire import timing
from zkwire.wire.frames import LENGTH, FrameError, FrameReader
from zkwire.wire.jute import DecodeError, Record
from zkwire.wire.records import EVENT_XID, PING_XID, ConnectRequest, ConnectResponse, WatcherEvent
from zkwire.wire.requests import AUTH_XID, PingRequest, Request
from zkwire.wire.watch_table import WatchEventType, WatchKind

_REQUEST_START: Final = struct.Struct(">iii")  # length, xid, opcode
_REPLY_HEADER: Final = struct.Struct(">iqi")  # xid, zxid, err
_EVENT_START: Final = struct.Struct(">ii")  # length, xid
_SYNC_CONNECTED: Final = 3  # the state in every event
_MAX_XID: Final = 2**31 - 1
_PASSWORD_BYTES: Final = 16
_SESSION_EXPIRED: Final = -112  # to a write of a session that is being closed; the next handshake tells for sure


class Waiter(Protocol):
    """Who waits for an answer; an asyncio.Future is one."""

    def done(self) -> bool: ...

    def set_result(self, result: Any, /) -> None: ...

    def set_exception(self, exception: BaseException, /) -> None: ...


class Watcher(Protocol):
    """Who waits for a watch; all three are called in the step in which the bytes that tell of it are decoded.

    `rearmed` tells that the watch now stands on another connection: a one-shot one before any event of that
    connection, a lasting one once the server has it again.
    """

    given_up: bool

    def fire(self, event: WatchEventType, told: Notification) -> None: ...

    def fail(self, error: SessionError) -> None: ...

    def rearmed(self) -> None: ...


class Call:
    """One request on its way: its body, who waits for the answer, and, once there, the answer.

    `times_unreadable` counts how often something that could not be accepted came in the place of the answer.
    """

    __slots__ = (
        "body", "code", "reply", "request", "sent_at", "times_unreadable", "waiter", "watch_kind", "watcher", "xid"
    )  # fmt: skip

    def __init__(
        self,
        request: Request[Any],
        waiter: Waiter | None = None,
        watcher: Watcher | None = None,
        watch_kind: WatchKind = WatchKind.DATA,
    ) -> None:
        self.request = request
        self.body = request.encode()
        self.waiter = waiter
        self.watcher = watcher
        self.watch_kind = watch_kind
        self.xid = 0
        self.sent_at = 0.0
        self.code = 0
        self.times_unreadable = 0
        self.reply: Record | None = None


class Notification(NamedTuple):
    """A watch event as it came: type number, the server's path, zxid (-1 where the server sends none)."""

    type: int
    path: str
    zxid: int


class AuthenticationDemand(NamedTuple):
    """The server answered a request, out of order, by the demand for an authentication; it closes behind this."""

    operation: str


Incoming: TypeAlias = Call | Notification | ConnectResponse | AuthenticationDemand


class Connection:
    """One connection, from the handshake to its end.

    Arguments: `hello`, the handshake request; `frame_limit`, the largest frame to accept, in bytes; `now`, in seconds
    on the clock that all later calls use.

    `timeout` is the negotiated session timeout in seconds, 0 until the handshake is through; `answered` is when the
    last answered request was sent; `heard` is when the last bytes came; `last_zxid` is the newest that replies have
    shown; `is_read_only` is whether the server has lost its quorum; `confirms_session` is whether an answer is a
    sign that the
    ensemble keeps the session: a server without a quorum cannot know.  While `is_held` is True no ping is sent.
    `is_session_over` is whether the server has said, to a request, that it is ending the session.
    """

    def __init__(self, hello: ConnectRequest, frame_limit: int, now: float) -> None:
        self.calls: deque[Call] = deque()
        self.is_read_only = self.confirms_session = self.is_held = self.is_session_over = False
        self._apart: deque[Call] = deque()
        self.error: ProtocolError | None = None
        self.timeout = 0.0
        self.last_zxid = hello.last_zxid_seen
        self.answered = self.heard = self._last_sent = now
        self._hello_sent = now
        self._wanted_session = hello.session_id
        self._is_refused = False
        self._frames = FrameReader(frame_limit)
        self._urgent: dict[bytes, Callable[[], None]] = {}
        self._xid = 0
        self._first: Call | None = None  # of the calls, as the last tick saw it, and the first tick that saw it there
        self._first_since = now
        body = hello.encode()
        self._outgoing = [LENGTH.pack(len(body)) + body]

    @property
    def is_open(self) -> bool:
        """Whether the handshake is through, the session accepted, and nothing has gone wrong."""
        return self.timeout > 0 and self.error is None

    def send(self, call: Call, now: float) -> None:
        """Give `call` its xid and queue its frame."""
        xid = call.request.fixed_xid
        if xid is None:
            xid = self._xid = self._xid % _MAX_XID + 1
        elif xid == AUTH_XID:
            self.send_apart(call, now)
            return
        call.xid = xid
        call.sent_at = self._last_sent = now
        self.calls.append(call)
        self._outgoing.append(_REQUEST_START.pack(len(call.body) + 8, xid, call.request.opcode) + call.body)

    def send_apart(self, call: Call, now: float) -> None:
        """Queue the frame of an auth or sasl request, which the server's reading thread answers.

        The answer may overtake those of earlier requests, but not that of an earlier request of this kind; and the
        session's clock takes no notice of it, so that it is no sign of life in either direction.
        """
        xid = call.request.fixed_xid
        if xid is None:
            xid = self._xid = self._xid % _MAX_XID + 1
        call.xid = xid
        call.sent_at = now
        self._apart.append(call)
        self._outgoing.append(_REQUEST_START.pack(len(call.body) + 8, xid, call.request.opcode) + call.body)

    def data_to_send(self) -> bytes:
        """Return what has been queued since the last time, in one piece."""
        data = b"".join(self._outgoing)
        self._outgoing.clear()
        return data

    def add_urgent(self, path: str, callback: Callable[[], None]) -> None:
        """Have `take_urgent` return `callback`, once, for the event of the deletion of the node at the server's `path`.

        There is one for each path, the last that was set: whoever sets one hears of the event in any case, only later.
        """
        self._urgent[_deletion(path)] = callback

    def discard_urgent(self, path: str) -> None:
        """Undo `add_urgent`, if there is one."""
        if self._urgent:
            self._urgent.pop(_deletion(path), None)

    def take_urgent(self, data: bytes) -> Callable[[], None] | None:
        """Return what waits for the one event which is all that `data` holds.

        To be asked ahead of `receive`, which then takes the event as if nothing had been.  Everything that came before
        has been received by then, so that what is told is not told too early.
        """
        if not self._urgent or self.error is not None or self._frames.held:
            return None
        return self._urgent.pop(data[:8] + data[20:], None)  # without zxid and error code

    def receive(self, data: bytes, now: float) -> list[Incoming]:
        """Take bytes from the peer; return what they complete, in the order of the wire."""
        if self.error is not None:
            return []
        self.heard = now
        arrived: list[Incoming] = []
        try:
            frames = self._frames.feed(data)
        except FrameError as error:
            frames = error.frames
            bad_length: FrameError | None = error
        else:
            bad_length = None
        try:
            # What comes before a bad frame is taken all the same.
            arrived.extend(map(self._reply if self.timeout else self._take, frames))
        except (DecodeError, struct.error) as error:
            self.error = ProtocolError(f"a frame that cannot be decoded: {error}")
        except ProtocolError as error:
            self.error = error.with_traceback(None)  # which would keep the frame in memory as long as the error
        if self.error is None and bad_length is not None:
            self.error = ProtocolError(str(bad_length))
            if self.calls:
                self.calls[0].times_unreadable += 1
        return arrived

    def receive_eof(self) -> None:
        """Note that the peer ended the stream; inside a frame that is an error."""
        if self.error is None and not self._frames.is_between_frames:
            self.error = ProtocolError("the stream ended inside a frame")

    def next_tick(self) -> float:
        """When `tick` has something to do, if nothing is sent or received until then."""
        dead = self.heard + timing.dead_after(self.timeout)
        return dead if self.is_held else min(self._last_sent + timing.ping_after(self.timeout), dead)

    def tick(self, now: float) -> bool:
        """Queue a ping when one is due; return False when the link must be taken for dead.

        A server that tells of events and answers nothing is dead as well, if later: much to tell may be in the way.
        """
        if now >= self.heard + timing.dead_after(self.timeout):
            return False
        first = self.calls[0] if self.calls and self._frames.is_between_frames else None
        if first is not self._first:
            self._first, self._first_since = first, now
        elif first is not None and now >= self._first_since + self.timeout:
            return False
        if not self.is_held and now >= self._last_sent + timing.ping_after(self.timeout):
            self.send(Call(PingRequest()), now)
        return True

    def _take(self, frame: bytes) -> Incoming:
        return self._reply(frame) if self.timeout else self._handshake(frame)

    def _handshake(self, frame: bytes) -> ConnectResponse:
        if len(frame) == _REPLY_HEADER.size:  # what a read-only server answers to those that it cannot take
            raise ProtocolError(f"turned away with the error {_REPLY_HEADER.unpack(frame)[2]} instead of a session")
        if self._is_refused:
            raise ProtocolError("something came behind the refusal of the session, where only the end may come")
        response: ConnectResponse
        response, end = ConnectResponse.decode(frame, 0)
        self._is_refused = response.timeout <= 0
        if response.timeout > 0:
            if response.session_id == 0 or len(response.password or b"") != _PASSWORD_BYTES:
                raise ProtocolError(f"a handshake that makes no session: {response}")
            if self._wanted_session not in (0, response.session_id):
                raise ProtocolError(f"asked for session {self._wanted_session:#x}, got {response.session_id:#x}")
            self.timeout = response.timeout / 1000
            self.is_read_only = frame[end : end + 1] > b"\0"
            self.confirms_session = not self.is_read_only
            self.answered = self._hello_sent
        return response

    def _reply(self, frame: bytes) -> Call | Notification | AuthenticationDemand:
        xid, zxid, code = _REPLY_HEADER.unpack_from(frame)
        if xid == EVENT_XID:
            event, _ = WatcherEvent.decode(frame, _REPLY_HEADER.size)
            self.discard_urgent(event.path)  # the watch has fired, for a change or in company
            return Notification(event.type, event.path, zxid)
        if not self.calls or self.calls[0].xid != xid:
            if self._apart and self._apart[0].xid == xid:
                return self._reply_apart(frame, code)
            self._bring_forward(xid, code)
        call = self.calls[0]
        if code == 0:
            try:
                call.reply, _ = call.request.reply.decode(frame, _REPLY_HEADER.size)
            except (DecodeError, struct.error):
                call.times_unreadable += 1
                raise
        elif code == AuthenticationRequiredError.code:
            return AuthenticationDemand(call.request.operation)
        elif code == _SESSION_EXPIRED:
            self.is_session_over = True
            raise ProtocolError("the server is ending the session")
        call.code = code
        self.calls.popleft()
        self.answered = call.sent_at
        if zxid > self.last_zxid and xid != PING_XID:
            self.last_zxid = zxid
        return call

    def _reply_apart(self, frame: bytes, code: int) -> Call:
        call = self._apart[0]
        if code == 0:
            call.reply, _ = call.request.reply.decode(frame, _REPLY_HEADER.size)
        call.code = code
        return self._apart.popleft()

    def _bring_forward(self, xid: int, code: int) -> None:
        """Put the call that is answered out of turn first: only two refusals may overtake other answers.

        That of an unknown opcode, and that of everything where an authentication is missing; the server closes the
        connection behind each.
        """
        for call in self.calls:
            if call.xid == xid and code in (UnimplementedError.code, AuthenticationRequiredError.code):
                self.calls.remove(call)
                self.calls.appendleft(call)
                return
        expected = f"xid {self.calls[0].xid}" if self.calls else "nothing"
        raise ProtocolError(f"a reply with xid {xid} where {expected} was expected")


def _deletion(path: str) -> bytes:
    """Return the frame that tells of a deletion, but for its zxid and error code."""
    event = WatcherEvent(WatchEventType.DELETED, _SYNC_CONNECTED, path).encode()
    return _EVENT_START.pack(_REPLY_HEADER.size + len(event), EVENT_XID) + event
