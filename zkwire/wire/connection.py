"""One TCP connection as a state machine, without a socket and without a clock.

Bytes that have arrived and the present time go in.  Answered calls, events and the result of the handshake come out, in
the order of the wire; `data_to_send` returns the bytes to send.  The machine never raises for what the peer sent: bytes
that break the protocol set `error`, and the connection is over.  What a reply means for the session is decided
elsewhere.
"""

import math
import struct
from collections import deque
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Any, Final, NamedTuple, Protocol, TypeAlias

from zkwire.errors import AuthenticationRequiredError, NoAuthError, ProtocolError, UnimplementedError
from zkwire.wire import timing
from zkwire.wire.certainty import AckLevel, Certainty, Upkeep
from zkwire.wire.frames import LENGTH, FrameReader
from zkwire.wire.jute import Record
from zkwire.wire.multi import MultiReply, empty_write
from zkwire.wire.primitives import DecodeError
from zkwire.wire.records import EVENT_XID, PING_XID, ConnectRequest, ConnectResponse, WatcherEvent, printed, xids
from zkwire.wire.requests import SET_WATCHES, PingRequest, Request, SyncRequest
from zkwire.wire.stepwise import LARGE, Decoding, decode_in_steps
from zkwire.wire.watch_table import Notification, Watcher, WatchKind, deletion_frame

_LENGTH_AT: Final = LENGTH.unpack_from
_REQUEST_START: Final = struct.Struct(">iii")  # length, xid, opcode
_REPLY_HEADER: Final = struct.Struct(">iqi")  # xid, zxid, err
_SERVER: Final = AckLevel.SERVER
_PASSWORD_BYTES: Final = 16
REQUEST_HEADER_SIZE: Final = 8  # bytes: xid and opcode
_LARGE: Final = 4 * 1024  # bytes: a larger request is encoded when it is sent, and counts in `large_in_flight`
_SESSION_EXPIRED: Final = -112  # the server is closing the session: that it is gone only the next handshake proves
_SESSION_MOVED: Final = -118  # inside a transaction's reply only: for other writes the server closes the connection


class Waiter(Protocol):
    """The result of a call, to be set when the reply comes; an asyncio.Future is one."""

    def done(self) -> bool: ...

    def set_result(self, result: Any, /) -> None: ...

    def set_exception(self, exception: BaseException, /) -> None: ...


@dataclass(slots=True, eq=False, repr=False)
class Call:
    """One request, waiting or in flight: its size, the waiter for its reply and, later, the reply.

    The request is encoded when the call is made, so that one that cannot be encoded is refused before anything is sent.
    A large body is not kept: it is encoded again when it is sent, so that calls that wait need no memory for it.

    Attributes:
        body: The encoded request without its header, None if it is large.
        size: The number of bytes in the request's frame, without the length in front.
        code: The error code of the reply, 0 for success and until the reply comes.
        zxid: The zxid of the reply: for a write, its own transaction.
        times_unreadable: How often something unreadable came in place of the reply; a large request, at which the
            server may have closed the connection for its size, adds a half.
    """

    request: Request[Any]
    waiter: Waiter | None = None
    watcher: Watcher | None = None
    watch_kind: WatchKind = WatchKind.DATA
    size: int = field(init=False)
    body: bytes | None = field(init=False)
    xid: int = field(init=False, default=0)
    sent_at: float = field(init=False, default=0.0)
    code: int = field(init=False, default=0)
    zxid: int = field(init=False, default=0)
    times_unreadable: float = field(init=False, default=0)
    reply: Record | None = field(init=False, default=None)

    def __post_init__(self) -> None:
        body = self.request.encode()
        self.size = len(body) + REQUEST_HEADER_SIZE
        self.body = body if self.size <= _LARGE else None


class AuthenticationDemand(NamedTuple):
    """The server refused a request because it requires authentication; it closes the connection after this."""

    operation: str


Incoming: TypeAlias = Call | Notification | ConnectResponse | AuthenticationDemand


class Connection:
    """One connection, from the handshake to its end.

    Args:
        connect_request: The handshake request.
        frame_limit: The largest frame to accept, in bytes.
        now: In seconds, on the clock that all later calls and the attributes use.
        session_xids: The xids that the session has not used.

    Attributes:
        calls: The requests in flight, in the order in which the server will answer them.
        large_in_flight: The number of bytes in the large ones among them, see Call.
        timeout: The negotiated session timeout in seconds, 0 until the handshake is complete.
        answered: When the last request that was answered had been sent.
        heard: When the last bytes arrived.
        last_zxid: The newest zxid in any reply to a request of a caller, up to which no event of a watch is missing.
        error: What ended the connection, None while it is usable.
        is_read_only: Whether the server has no quorum.
        confirms_session: Whether a reply proves that the ensemble keeps the session.
        is_held: Set by the session; while it is True no ping is sent.
        unfolding: A large reply that is being decoded in steps: call `go_on` later, and read no more until then.
        is_session_over: Whether the server has said that it is ending the session.
        urgent: The callbacks of `add_urgent`, by their frames without the zxid and the error code.
        certainty: Set by the session: what replies prove about the session; None where they prove nothing.
        upkeep: Set by the session: how certain the session is kept, by proofs in place of pings.
        is_proof_answered: Set with the reply to a proof: `next_tick` may be earlier now.
    """

    def __init__(
        self, connect_request: ConnectRequest, frame_limit: int, now: float, session_xids: Iterator[int] | None = None
    ) -> None:
        self.calls: deque[Call] = deque()
        self.large_in_flight: int = 0
        self.is_read_only: bool = False
        self.confirms_session: bool = False
        self.is_session_over: bool = False
        self.error: ProtocolError | None = None
        self.timeout: float = 0.0
        self.last_zxid: int = connect_request.last_zxid_seen
        self.is_proof_answered: bool = False
        self.certainty: Certainty | None = None
        self.upkeep: Upkeep = Upkeep.NONE
        self._last_sent = self._next_touch = now  # a touch sent before this is too close to the former one
        self.answered: float = now
        self.heard: float = now
        self._wanted_session = connect_request.session_id
        self._least_timeout = timing.least_granted(connect_request.timeout / 1000)
        self.is_held = self._misses_events = self._is_refused = False
        self._frames = FrameReader(frame_limit)
        self._small = min(frame_limit, LARGE)
        self._undecoded: deque[bytes] = deque()  # with the frame that is being unfolded
        self.unfolding: Decoding | None = None
        self._auth_calls: deque[Call] = deque()
        self.urgent: dict[bytes, Callable[[], None]] = {}
        self._xids = xids() if session_xids is None else session_xids
        self._progress = timing.Progress()
        body = connect_request.encode()
        self._outgoing = [LENGTH.pack(len(body)) + body]

    @property
    def is_open(self) -> bool:
        """Whether the handshake is complete, the session was accepted, and no error has occurred."""
        return self.timeout > 0 and self.error is None

    def send(self, call: Call, now: float) -> None:
        """Assign `call` its xid and queue its frame.

        The server's reading thread answers an auth or sasl request at once: the reply may overtake those to earlier
        requests of other kinds.  The server does not count the two as a sign of life of the session, so they do not put
        off the next ping, and their replies prove nothing.
        """
        request = call.request
        xid = call.xid = next(self._xids) if request.fixed_xid is None else request.fixed_xid
        call.sent_at = now
        body = request.encode() if call.body is None else call.body
        self._outgoing.append(_REQUEST_START.pack(call.size, xid, request.opcode) + body)
        if request.is_answered_at_once:
            self._auth_calls.append(call)
            return
        self._last_sent = now
        self.calls.append(call)
        if call.body is None:
            self.large_in_flight += call.size

    def data_to_send(self) -> bytes:
        """Return all bytes queued since the last call, in one piece."""
        data = b"".join(self._outgoing)
        self._outgoing.clear()
        return data

    # -- urgent events --------------------------------------------------------------------------------------------
    #
    # The fast path of a hand-over: the bytes of the event that makes a waiter the owner are known in advance, but for
    # the zxid and the error code in the header.  The transport compares each read with them, wakes the waiter's task in
    # that step, and then gives the same bytes to `receive`, as for any event.

    def add_urgent(self, path: str, callback: Callable[[], None]) -> None:
        """Make `take_urgent` return `callback`, once, for the event that the node at the server's `path` was deleted.

        A later callback for the same path replaces an earlier one.  The caller must also watch the node: the callback
        is only a short cut, and the event always comes through `receive` as well.
        """
        self.urgent[deletion_frame(path)] = callback

    def discard_urgent(self, path: str) -> None:
        """Remove the callback of `add_urgent` for `path`, if there is one."""
        if self.urgent:
            self.urgent.pop(deletion_frame(path), None)

    def take_urgent(self, data: bytes) -> Callable[[], None] | None:
        """Remove and return the callback for the event in `data`; None unless `data` is that one event and no more.

        Call it before `receive`, with the same bytes.  The callback never overtakes an earlier event or reply,
        because bytes of an unfinished frame, or a read with several frames, have no short cut.
        """
        if self.error is not None or self._frames.held or self.unfolding is not None:
            return None
        # Bytes 8 to 19 are the zxid and the error code.  Servers before 3.9 send no zxid with an event.
        return self.urgent.pop(data[:8] + data[20:], None)

    # -- receiving --------------------------------------------------------------------------------------------------

    def receive(self, data: bytes, now: float) -> list[Incoming]:
        """Take bytes from the peer and return what they complete, in the order of the wire."""
        if self.error is not None:
            return []
        self.heard = now
        arrived: list[Incoming] = []
        at, size = 0, len(data)
        try:
            if size <= self._small and self.timeout and not self._frames.held and self.unfolding is None:
                # The usual case: nothing is unfinished, and no frame of this read is large.
                while size - at >= 4:
                    end = at + 4 + _LENGTH_AT(data, at)[0]
                    if not at + 4 <= end <= size:
                        break
                    arrived.append(self._reply(data[at + 4 : end]))
                    at = end
            if at < size:
                self._undecoded += self._frames.feed(data[at:])
                if self.unfolding is None:
                    self._decode(arrived)
        except (DecodeError, struct.error, ProtocolError) as error:
            self._broken_by(error)
        if self.answered >= self._next_touch and self.certainty is not None:
            # One touch for all replies of this read: the last-sent one.  Replies through the leader are taken in one
            # by one, see `_reply`.
            self._next_touch = self.answered + self.certainty.resolution
            self.certainty.answered(self.answered, now, _SERVER)
        return arrived

    def go_on(self, now: float) -> list[Incoming]:
        """Decode one step more of the large reply; return what it completes, and the frames that wait after it."""
        arrived: list[Incoming] = []
        if self.unfolding is not None:  # the silence is our own
            self.heard = now
            self._progress.restart(now)
            try:
                self._decode(arrived)
            except (DecodeError, struct.error, ProtocolError) as error:
                self._broken_by(error)
        return arrived

    def _decode(self, arrived: list[Incoming]) -> None:
        """Append to `arrived` what the frames mean, up to a large one, of which one step is decoded."""
        while self._undecoded:
            frame, record = self._undecoded[0], None
            if self.unfolding is None and len(frame) > LARGE:
                self._unfold(frame)
            if self.unfolding is not None:
                try:
                    next(self.unfolding)
                except StopIteration as end:
                    (record, _), self.unfolding = end.value, None
                else:
                    return
            # One read may hold the handshake's response and replies after it; `timeout` changes between them.
            arrived.append(self._reply(frame, record) if self.timeout else self._handshake(frame))
            self._undecoded.popleft()
        if self._frames.error is not None:
            raise self._frames.error

    def _broken_by(self, error: DecodeError | struct.error | ProtocolError) -> None:
        self._undecoded.clear()
        if self.calls:  # the server answers in order: it has sent this in place of the oldest one's reply
            self.calls[0].times_unreadable += 1
        if isinstance(error, ProtocolError):
            self.error = error.with_traceback(None)  # a traceback would keep the frame in memory
            return
        self.error = ProtocolError(f"a frame that cannot be decoded: {error}")

    def _unfold(self, frame: bytes) -> None:
        """Begin to decode a large frame in steps if it is a successful reply to the next call."""
        xid, _, code = _REPLY_HEADER.unpack_from(frame)
        if not code and self.calls and self.calls[0].xid == xid:
            self.unfolding = decode_in_steps(self.calls[0].request.reply, frame, _REPLY_HEADER.size)

    def silent_since(self, now: float) -> float:
        """Return since when the peer owes an answer and has sent nothing; `now` if it owes none."""
        return max(self.heard, self.calls[0].sent_at) if self.calls else now

    @property
    def is_inside_frame(self) -> bool:
        """Whether a part of a frame has come, and its end has not."""
        return self._frames.held > 0

    # -- time -------------------------------------------------------------------------------------------------------

    def next_tick(self) -> float:
        """Return when to call `tick` next, if nothing is sent or received until then."""
        dead = self._dead_at()
        return dead if self.is_held else min(self._ping_at(), dead)

    def tick(self, now: float) -> bool:
        """Queue a ping if one is due; return False if the link is dead.

        A link is dead when nothing has arrived for `timing.dead_after` although a request waits for its reply, or when
        the oldest request stays unanswered for a whole session timeout while other bytes arrive, or an auth request
        while other requests are answered.
        """
        # First the ping, then the judgement: on an event loop that was late the ping that was due has not been sent,
        # and the silence is our own.
        if not self.is_held and now >= self._ping_at():
            if self._is_kept:
                self.prove(now)
            else:
                self.send(Call(PingRequest()), now)
        if now >= self._dead_at():
            return False
        if self._progress.is_stuck(self.calls[0] if self.calls else None, self._frames.held, now, self.timeout):
            return False
        return not self._auth_calls or now < self._auth_calls[0].sent_at + self.timeout

    @property
    def _is_kept(self) -> bool:
        return self.certainty is not None and self.upkeep is not Upkeep.NONE

    def prove(self, now: float) -> None:
        """Queue a proof: a request whose reply proves something about the session; see certainty.py."""
        self.send(Call(self.proof(now)), now)
        if self.certainty is not None:
            self.certainty.asked(now)

    def proof(self, now: float) -> Request[Any]:
        """Return a proof to send at `now`: a sync, or a transaction that changes nothing if a write is wanted."""
        if self.certainty is not None and self.certainty.wants_write(now, self.upkeep):
            return empty_write()
        return SyncRequest("/")

    def _ping_at(self) -> float:
        if self.certainty is not None and self.upkeep is not Upkeep.NONE:
            return self.certainty.due(self.upkeep)
        return self._last_sent + timing.ping_after(self.timeout)

    def _dead_at(self) -> float:
        keeps_certain = self._is_kept and self.upkeep is Upkeep.CERTAIN
        silent = self.heard + timing.dead_after(self.timeout, keeps_certain=keeps_certain)
        if not self.calls:  # nothing is owed: proofs at rest are further apart than pings
            return math.inf if self._is_kept else silent
        # A request that was sent late, by an event loop that was late, gets its time to be answered nevertheless.
        return max(silent, self.calls[0].sent_at + timing.unanswered_after(self.timeout, keeps_certain=keeps_certain))

    # -- decoding ---------------------------------------------------------------------------------------------------

    def _handshake(self, frame: bytes) -> ConnectResponse:
        if len(frame) == _REPLY_HEADER.size:
            # A server without a quorum sends a reply header and no response to a client that wants one with a quorum.
            raise ProtocolError(f"turned away with the error {_REPLY_HEADER.unpack(frame)[2]} instead of a session")
        if self._is_refused:
            raise ProtocolError("a frame came after the refusal of the session, where the stream must end")
        response: ConnectResponse
        response, end = ConnectResponse.decode(frame, 0)
        if response.timeout <= 0:
            self._is_refused = True
            return response
        if response.session_id == 0 or len(response.password or b"") != _PASSWORD_BYTES:
            raise ProtocolError(f"a handshake response that makes no session: {response}")
        if self._wanted_session not in (0, response.session_id):
            raise ProtocolError(
                f"asked for session {printed(self._wanted_session)}, got {printed(response.session_id)}"
            )
        timeout = response.timeout / 1000
        if not self._least_timeout <= timeout <= timing.LONGEST:
            too = "short to keep a session" if timeout < self._least_timeout else "long to notice its end"
            raise ProtocolError(f"granted a session timeout of {response.timeout} ms, too {too}")
        self.timeout = timeout
        self.is_read_only = frame[end : end + 1] > b"\0"
        self.confirms_session = not self.is_read_only
        return response

    def _reply(self, frame: bytes, decoded: Record | None = None) -> Call | Notification | AuthenticationDemand:
        xid, zxid, code = _REPLY_HEADER.unpack_from(frame)
        if xid == EVENT_XID:
            event, _ = WatcherEvent.decode(frame, _REPLY_HEADER.size)
            # The event has used up the one-shot watch, so its urgent callback must not stay.  It is still there if the
            # event is no deletion, or if it shared a read with other frames and `take_urgent` did not find it.
            self.discard_urgent(event.path)
            return Notification(event.type, event.path, zxid)
        # The server answers in the order of the requests: the reply belongs to the first call or breaks the protocol,
        # but for the few replies that its reading thread sends out of order.
        if not self.calls or self.calls[0].xid != xid:
            if self._auth_calls and self._auth_calls[0].xid == xid:
                return self._auth_reply(frame, code)
            self._move_to_front(xid, code)
        call = self.calls[0]
        if decoded is not None:
            call.reply = decoded
        elif code == 0:
            call.reply, _ = call.request.reply.decode(frame, _REPLY_HEADER.size)
        elif code == AuthenticationRequiredError.code:
            return AuthenticationDemand(call.request.operation)
        failed_inside = call.reply.error if isinstance(call.reply, MultiReply) else 0
        self.is_session_over = _SESSION_EXPIRED in (code, failed_inside)
        if self.is_session_over or failed_inside == _SESSION_MOVED:
            raise ProtocolError("the server is ending the session, or another server has it")
        call.code = code
        call.zxid = zxid
        self.calls.popleft()
        if call.body is None:
            self.large_in_flight -= call.size
        self.answered = call.sent_at
        if call.request.ack_level is not _SERVER and self.certainty is not None:
            # Only success: some errors are made by the server that we are connected to, without the leader.
            self.is_proof_answered = call.waiter is None
            # A check without READ on the root is refused by the leader, after it has looked for the session.
            if code == 0 and failed_inside in (0, NoAuthError.code):
                self.certainty.answered(call.sent_at, self.heard, call.request.ack_level, zxid)
            else:
                self.certainty.refused(call.sent_at, self.heard)
        # A ping's reply carries the server's newest zxid, which may belong to a change whose event has not come yet.
        # If the connection broke now, setting the watches again from that zxid would miss the change.  Nor may the
        # reply to one of several SetWatches raise it: the next connection sets the later chunks again from the same
        # zxid.  And no reply after a refused chunk may raise it.
        if zxid > self.last_zxid and xid != PING_XID and not isinstance(call.request, SET_WATCHES):
            self.last_zxid = self.last_zxid if self._misses_events else zxid
        elif code and isinstance(call.request, SET_WATCHES):
            self._misses_events = True
        return call

    def _auth_reply(self, frame: bytes, code: int) -> Call:
        call = self._auth_calls[0]
        if code == 0:
            call.reply, _ = call.request.reply.decode(frame, _REPLY_HEADER.size)
        call.code = code
        return self._auth_calls.popleft()

    def _move_to_front(self, xid: int, code: int) -> None:
        """Move the call with this xid to the front of the calls, if its reply may overtake others; raise otherwise.

        The server answers in the order of the requests, with two exceptions that its reading thread sends: the refusal
        of an unknown opcode, and the demand for authentication.  It closes the connection after either.
        """
        if code in (UnimplementedError.code, AuthenticationRequiredError.code):
            for call in self.calls:
                if call.xid == xid:
                    self.calls.remove(call)
                    self.calls.appendleft(call)
                    return
        expected = f"xid {self.calls[0].xid}" if self.calls else "nothing"
        raise ProtocolError(f"a reply with xid {xid} where {expected} was expected")
