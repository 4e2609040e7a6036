"""One connection, without a socket and without a clock: handshake, replies, events and times; nonsense: tests/fuzz."""

import math
import struct
import tracemalloc
from collections.abc import Iterator
from itertools import pairwise
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from zkwire.errors import ProtocolError
from zkwire.wire import requests as r
from zkwire.wire import timing
from zkwire.wire.certainty import AckLevel, Certainty, Upkeep
from zkwire.wire.connection import AuthenticationDemand, Call, Connection, Incoming
from zkwire.wire.multi import ErrorResult, MultiReply, MultiRequest
from zkwire.wire.records import OPEN_ACL, PING_XID, ConnectRequest, ConnectResponse, Stat, xids
from zkwire.wire.watch_table import Notification

SESSION = 0x0100001E14CA0000
PASSWORD = bytes(range(16))
TIMEOUT = 12.0
LIMIT = 1000
STAT = Stat(*range(11))


def _framed(payload: bytes) -> bytes:
    return struct.pack(">i", len(payload)) + payload


def _accepted(timeout: int = 12_000, session: int = SESSION, password: bytes = PASSWORD, tail: bytes = b"\0") -> bytes:
    return _framed(ConnectResponse(0, timeout, session, password).encode() + tail)


def _reply(xid: int, body: bytes = b"", *, zxid: int = 1, err: int = 0) -> bytes:
    return _framed(struct.pack(">iqi", xid, zxid, err) + body)


def _event(kind: int, path: str, zxid: int = -1) -> bytes:
    raw = path.encode()
    return _framed(struct.pack(">iqiiii", -1, zxid, 0, kind, 3, len(raw)) + raw)


def _fresh(
    *,
    session: int = 0,
    last_zxid: int = 0,
    limit: int = LIMIT,
    now: float = 0.0,
    session_xids: Iterator[int] | None = None,
) -> Connection:
    return Connection(ConnectRequest(0, last_zxid, 12_000, session, PASSWORD, False), limit, now, session_xids)


def _opened(**options: Any) -> Connection:
    connection, now = _fresh(**options), options.get("now", 0.0)
    assert len(connection.receive(_accepted(), now)) == 1
    connection.data_to_send()
    return connection


def _sent(connection: Connection, *requests: r.Request[Any], now: float = 0.0) -> list[Call]:
    calls = [Call(request) for request in requests]
    for call in calls:
        connection.send(call, now)
    return calls


def _summary(arrived: list[Incoming]) -> list[object]:
    return [(item.xid, item.code, item.reply) if isinstance(item, Call) else item for item in arrived]


def _message(connection: Connection) -> str:
    assert isinstance(connection.error, ProtocolError)
    assert not connection.is_open
    return str(connection.error)


# -- the handshake ------------------------------------------------------------------------------------


def test_the_first_bytes_are_the_connect_request() -> None:
    connection = Connection(ConnectRequest(0, 0, 10_000, 0, bytes(16), False), LIMIT, 0.0)
    assert connection.data_to_send() == bytes.fromhex(
        "0000002d 00000000 0000000000000000 00002710 0000000000000000 00000010 00000000000000000000000000000000 00"
    )
    assert connection.data_to_send() == b""
    assert not connection.is_open


@pytest.mark.parametrize("err", [-119, 0, -9999])
def test_a_first_frame_of_16_bytes_is_an_error_that_does_not_end_the_session(err: int) -> None:
    connection = _fresh(session=SESSION)
    assert connection.receive(_reply(0, err=err), 0.0) == []
    assert str(err) in _message(connection)


@pytest.mark.parametrize("after", [_accepted(), _accepted(0, 0), _reply(1), _event(1, "/a"), _framed(b"")])
@pytest.mark.parametrize("cut", [True, False])
def test_no_frame_may_follow_a_refusal(after: bytes, cut: bool) -> None:
    connection = _fresh(session=SESSION)
    refusal = _accepted(0, 0, bytes(16))
    pieces = [refusal, after] if cut else [refusal + after]
    arrived = [item for piece in pieces for item in connection.receive(piece, 0.0)]
    assert [item.timeout for item in arrived if isinstance(item, ConnectResponse)] == [0]
    assert len(arrived) == 1
    assert connection.error is not None


@pytest.mark.parametrize(
    "answer",
    [
        _accepted(session=0),
        _accepted(password=bytes(15)),
        _accepted(password=bytes(17)),
        _framed(struct.pack(">iiqi", 0, 12_000, SESSION, -1)),
    ],
    ids=["no id", "15 bytes", "17 bytes", "null"],
)
def test_a_handshake_that_makes_no_session_is_an_error(answer: bytes) -> None:
    connection = _fresh()
    assert connection.receive(answer, 0.0) == []
    assert "makes no session" in _message(connection)


@pytest.mark.parametrize(("wanted", "least"), [(12_000, 50), (50, 50), (49, 49), (2, 2)])
def test_a_timeout_that_no_real_server_would_grant_is_an_error(wanted: int, least: int) -> None:
    """50 ms, or less if less was asked for; more than an hour, of which the end would not be noticed."""
    for granted, why in (
        (least, None),
        (least - 1, "too short to keep a session"),
        (3_600_000, None),
        (3_600_001, "too long to notice its end"),
        (2**31 - 1, "too long to notice its end"),
    ):
        connection = Connection(ConnectRequest(0, 0, wanted, 0, PASSWORD, False), LIMIT, 0.0)
        assert len(connection.receive(_accepted(granted), 0.0)) == (why is None)
        assert connection.is_open is (why is None)
        if why is None:
            assert connection.timeout == granted / 1000
        else:
            assert _message(connection) == f"granted a session timeout of {granted} ms, {why}"


def test_another_session_than_the_one_to_resume_is_an_error() -> None:
    connection = _fresh(session=0x77)
    assert connection.receive(_accepted(), 0.0) == []
    assert "0x77" in _message(connection)
    assert _fresh(session=SESSION).receive(_accepted(), 0.0) != []


# -- replies ------------------------------------------------------------------------------------------


def test_a_large_request_is_not_kept_in_memory_and_counts_while_it_is_in_flight() -> None:
    """More than 4 KiB with the header; it is encoded when it is sent, and sent whole."""
    connection = _opened(limit=100_000)
    overhead = 8 + len(r.SetDataRequest("/a", b"", -1).encode())
    small, large, larger = (r.SetDataRequest("/a", bytes(size - overhead), -1) for size in (4096, 4097, 50_000))
    calls = [Call(request) for request in (small, large, larger)]
    assert [call.size for call in calls] == [4096, 4097, 50_000]
    assert [call.body for call in calls] == [small.encode(), None, None]
    in_flight = []
    for call in calls:
        connection.send(call, 0.0)
        in_flight.append(connection.large_in_flight)
    assert in_flight == [0, 4097, 54_097]
    frames = [struct.pack(">ii", each.xid, 5) + each.request.encode() for each in calls]
    assert connection.data_to_send() == b"".join(map(_framed, frames))
    for xid, left in [(1, 54_097), (2, 50_000), (3, 0)]:
        connection.receive(_reply(xid, err=-101), 0.0)
        assert connection.large_in_flight == left


# A whole conversation: the requests, and what the server sends, with events between the replies.
REQUESTS: list[r.Request[Any]] = [
    r.GetDataRequest("/a", True),
    r.PingRequest(),
    r.CreateRequest("/a/b", b"", list(OPEN_ACL), 0),
    r.ExistsRequest("/gone", True),
    r.GetChildrenRequest("/a", False),
    MultiRequest([r.DeleteRequest("/a", -1), r.DeleteRequest("/b", -1)]),
    r.DeleteRequest("/a", 3),
    r.CloseSessionRequest(),
]
MULTI_BODY = bytes.fromhex("ffffffff 00 ffffff9b ffffff9b  ffffffff 00 fffffffe fffffffe  ffffffff 01 ffffffff")
TALK = [
    _accepted(),
    _reply(1, r.GetDataReply(b"data", STAT).encode(), zxid=5),
    _event(3, "/a", 6),
    _reply(PING_XID, zxid=6),
    _event(4, "/a"),
    _reply(2, r.CreateReply("/a/b").encode(), zxid=7),
    _reply(3, zxid=7, err=-101),
    _event(1, "/gone"),
    _event(2, "/gone"),
    _reply(4, r.GetChildrenReply(["b", "c"]).encode(), zxid=9),
    _reply(5, MULTI_BODY, zxid=10),
    _reply(6, b"trailing", zxid=11, err=-103),
    _reply(7, zxid=12),
]
TALK_MEANS: list[object] = [
    ConnectResponse(0, 12_000, SESSION, PASSWORD),
    (1, 0, r.GetDataReply(b"data", STAT)),
    Notification(3, "/a", 6),
    (PING_XID, 0, r.Nothing()),
    Notification(4, "/a", -1),
    (2, 0, r.CreateReply("/a/b")),
    (3, -101, None),
    Notification(1, "/gone", -1),
    Notification(2, "/gone", -1),
    (4, 0, r.GetChildrenReply(["b", "c"])),
    [ErrorResult(-101), ErrorResult(-2)],
    (6, -103, None),
    (7, 0, r.Nothing()),
]


def _talk(pieces: list[bytes]) -> tuple[Connection, list[object]]:
    """Send all requests right after the handshake request, then receive the pieces."""
    connection = _fresh()
    _sent(connection, *REQUESTS)
    arrived: list[Incoming] = []
    for piece in pieces:
        arrived += connection.receive(piece, 0.0)
    means: list[object] = [
        item.reply.results if isinstance(item, Call) and isinstance(item.reply, MultiReply) else summary
        for item, summary in zip(arrived, _summary(arrived), strict=True)
    ]
    return connection, means


def _means_the_same(pieces: list[bytes]) -> None:
    connection, means = _talk(pieces)
    assert means == TALK_MEANS
    assert connection.error is None
    assert not connection.calls
    assert connection.last_zxid == 12


def test_a_stream_means_the_same_in_one_segment_frame_by_frame_byte_by_byte_and_split_anywhere() -> None:
    """Replies and events come out in the order of the wire.  Pitfall 62"""
    stream = b"".join(TALK)
    _means_the_same([stream])
    _means_the_same(TALK)
    _means_the_same([bytes([byte]) for byte in stream])
    for cut in range(len(stream) + 1):
        _means_the_same([stream[:cut], stream[cut:]])


@given(st.integers(0, len(b"".join(TALK))))
def test_a_cut_inside_a_frame_is_known_and_is_no_error(cut: int) -> None:
    stream = b"".join(TALK)
    connection, _ = _talk([stream[:cut]])
    edges = {sum(map(len, TALK[:count])) for count in range(len(TALK) + 1)}
    assert connection.is_inside_frame is (cut not in edges)
    assert connection.error is None


# -- urgent events --------------------------------------------------------------------------------------


def _with_urgent(*paths: str) -> tuple[Connection, list[str]]:
    """An open connection with urgent callbacks for `paths`, and the list to which each callback adds its path."""
    connection = _opened()
    called: list[str] = []
    for path in paths:
        connection.add_urgent(path, lambda path=path: called.append(path))  # type: ignore[misc]
    return connection, called


def _take(connection: Connection, data: bytes) -> list[object]:
    """Receive `data` as a link does."""
    callback = connection.take_urgent(data)
    if callback is not None:
        callback()
    return list(connection.receive(data, 0.0))


@pytest.mark.parametrize("kind", [1, 3, 4])
def test_no_other_event_calls_an_urgent_callback(kind: int) -> None:
    """An event of another kind removes the callback, because the watch is used up."""
    connection, called = _with_urgent("/a", "/b")
    for event in (_event(kind, "/a"), _event(2, "/ab"), _event(2, "/"), _event(2, "/a")):
        _take(connection, event)
    assert called == []
    _take(connection, _event(2, "/b"))
    assert called == ["/b"]


def test_the_bytes_of_a_deletion_inside_another_frame_call_nothing() -> None:
    connection, called = _with_urgent("/a")
    _take(connection, struct.pack(">i", 100))
    _take(connection, _event(2, "/a"))
    assert called == []


def test_a_discarded_callback_a_replaced_one_and_one_of_a_broken_connection_are_not_called() -> None:
    connection, called = _with_urgent("/a", "/b", "/c")
    connection.discard_urgent("/a")
    connection.discard_urgent("/never set")
    connection.add_urgent("/b", lambda: called.append("/b, the later one"))
    _take(connection, _event(2, "/a"))
    _take(connection, _event(2, "/b"))
    _take(connection, _reply(12345))
    assert connection.error is not None
    _take(connection, _event(2, "/c"))
    assert called == ["/b, the later one"]


# -- replies that do not fit ------------------------------------------------------------------------------


@pytest.mark.parametrize("xid", [0, 2, 3, -2, -3, -4, -8, 2**31 - 1, -(2**31)])
def test_a_reply_with_another_xid_ends_the_connection_and_settles_nothing(xid: int) -> None:
    connection = _opened()
    calls = _sent(connection, r.DeleteRequest("/a", -1), r.DeleteRequest("/b", -1))
    assert connection.receive(_reply(xid), 0.0) == []
    message = _message(connection)
    assert f"xid {xid} " in message
    assert "xid 1 " in message
    assert list(connection.calls) == calls
    assert [(call.code, call.reply) for call in calls] == [(0, None), (0, None)]


@pytest.mark.parametrize("err", [0, -101, -6, -124])
def test_a_reply_without_a_request_ends_the_connection(err: int) -> None:
    connection = _opened()
    assert connection.receive(_reply(7, err=err), 0.0) == []
    assert "nothing was expected" in _message(connection)
    connection = _opened()
    _sent(connection, r.DeleteRequest("/a", -1))
    assert connection.receive(_reply(7, err=err), 0.0) == []
    assert "xid 1 was expected" in _message(connection)


def test_the_first_error_stays() -> None:
    connection = _opened()
    connection.receive(_reply(1) + b"\0\0", 0.0)
    error = connection.error
    assert error is not None
    connection.receive(struct.pack(">i", -1), 5.0)
    assert connection.error is error
    assert connection.heard == 0.0


# -- xids and zxids -----------------------------------------------------------------------------------


def test_xids_go_on_from_connection_to_connection_and_after_the_largest_comes_1_pitfall_84() -> None:
    of_session = xids(2**31 - 3)
    former, connection = _opened(session_xids=of_session), _opened(session_xids=of_session)
    assert [call.xid for call in _sent(former, r.SyncRequest("/"))] == [2**31 - 3]
    calls = _sent(connection, *[r.SyncRequest("/")] * 4)
    assert [call.xid for call in calls] == [2**31 - 2, 2**31 - 1, 1, 2]
    stream = b"".join(_reply(call.xid, b"\0\0\0\1/") for call in calls)
    assert connection.receive(stream, 0.0) == calls


DATA = r.GetDataReply(b"data", STAT).encode()


@pytest.mark.parametrize(
    ("frames", "last_zxid"),
    [
        ([_reply(1, DATA, zxid=50)], 50),
        ([_reply(1, zxid=0x1_0000_0000, err=-101)], 0x1_0000_0000),
        ([_reply(1, DATA, zxid=7)], 9),
        ([_reply(1, zxid=0, err=-6)], 9),
        ([_reply(1, zxid=-1, err=-6)], 9),
        ([_reply(1, zxid=-(2**63), err=-6)], 9),
        ([_event(3, "/a", 50)], 9),
        ([_event(3, "/a", 50), _reply(1, DATA, zxid=10), _reply(PING_XID, zxid=60)], 10),
        ([_reply(1, DATA, zxid=10), _reply(PING_XID, zxid=11), _reply(2, DATA, zxid=12)], 12),
        ([_reply(1, b"cannot be decoded", zxid=50)], 9),
    ],
    ids=["reply", "refusal", "older", "0", "-1", "negative", "event", "ping", "several", "broken"],
)
def test_last_zxid_is_raised_by_the_replies_to_requests_only(frames: list[bytes], last_zxid: int) -> None:
    """Pitfall 33: the watches are set again from here, and later events may not have come.  Pitfall 61"""
    connection = _opened(last_zxid=9)
    _sent(connection, r.GetDataRequest("/a", False), r.PingRequest(), r.GetDataRequest("/a", False))
    connection.receive(b"".join(frames), 0.0)
    assert connection.last_zxid == last_zxid


# -- time ---------------------------------------------------------------------------------------------


def test_pings_are_counted_from_the_last_sending() -> None:
    """Pitfall 52: a server that sends all the time must still hear from the client."""
    connection = _opened(now=0.0)
    ping = timing.ping_after(TIMEOUT)
    now, pings = 0.0, []
    while now < 5 * ping:
        now += ping / 10
        connection.receive(_event(3, "/busy"), now)
        assert connection.tick(now)
        if connection.data_to_send():
            pings.append(now)
            connection.receive(_reply(PING_XID), now)
    assert len(pings) in (4, 5)
    assert all(later - earlier <= ping * 1.11 for earlier, later in pairwise([0.0, *pings]))


def test_on_a_late_event_loop_the_ping_goes_first_and_gets_its_time_to_be_answered() -> None:
    """Pitfall 75: the silence was the client's own."""
    connection = _opened(now=10.0)
    late = 10.0 + 2 * timing.dead_after(TIMEOUT)
    assert connection.tick(late)
    assert connection.data_to_send() != b""
    assert connection.next_tick() == late + timing.unanswered_after(TIMEOUT)
    assert not connection.tick(connection.next_tick())


def _certainty() -> Certainty:
    """Return what a handshake at 0.0 has proven."""
    certainty = Certainty()
    certainty.begun(0.0, 0.0, TIMEOUT)
    return certainty


@pytest.mark.parametrize(
    ("upkeep", "is_provable", "sent", "dead"),
    [
        (Upkeep.NONE, True, [], 7.0),
        (Upkeep.NONE, True, [0.5], 7.0),
        (Upkeep.NONE, True, [5.0, 6.0], 7.4),
        (Upkeep.READY, True, [], math.inf),
        (Upkeep.READY, True, [0.5], 7.0),
        (Upkeep.READY, True, [5.0, 6.0], 7.4),
        (Upkeep.CERTAIN, True, [], math.inf),
        (Upkeep.CERTAIN, True, [0.5], 5.0),
        (Upkeep.CERTAIN, True, [4.0, 6.0], 6.0),
        (Upkeep.CERTAIN, False, [], 7.0),
        (Upkeep.CERTAIN, False, [0.5], 7.0),
        (Upkeep.CERTAIN, False, [5.0, 6.0], 7.4),
    ],
)
def test_a_link_is_dead_after_a_silence_that_is_not_the_clients_own_pitfall_51(
    upkeep: Upkeep, is_provable: bool, sent: list[float], dead: float
) -> None:
    """Half of the timeout after it was heard, or a third, but a fifth of it after the oldest request, or a sixth."""
    connection = _opened()
    connection.certainty, connection.upkeep = _certainty() if is_provable else None, upkeep
    connection.is_held = True  # no ping
    for at in sent:
        _sent(connection, r.GetDataRequest("/a", False), now=at)
    connection.receive(_event(3, "/a"), 1.0)
    assert connection.next_tick() == pytest.approx(dead)
    assert connection.silent_since(99.0) == (max(1.0, sent[0]) if sent else 99.0)
    if dead < math.inf:
        assert connection.tick(dead - 0.001)
        assert not connection.tick(dead + 0.001)


@pytest.mark.parametrize("is_provable", [True, False])
def test_a_session_that_is_kept_is_proven_in_place_of_pings_and_neither_while_it_is_held(is_provable: bool) -> None:
    connection = _opened()
    certainty = connection.certainty = _certainty() if is_provable else None
    connection.upkeep = Upkeep.READY
    due = certainty.due(Upkeep.READY) if certainty else TIMEOUT / 4
    connection.is_held = True
    assert connection.tick(due)
    connection.is_held = False
    assert connection.next_tick() == due
    assert connection.tick(due - 0.001)
    assert not connection.calls
    assert connection.tick(due)
    assert [call.request for call in connection.calls] == [r.SyncRequest("/") if is_provable else r.PingRequest()]


def test_a_reply_certifies_the_session_from_the_sending_of_its_own_request() -> None:
    connection = _opened()
    for at in (1.0, 2.0):
        _sent(connection, r.GetDataRequest("/a", False), now=at)
    connection.receive(_reply(1, err=-101), 3.0)
    assert (connection.answered, connection.heard) == (1.0, 3.0)


PROOFS = {
    "a sync": (0.001, "00000009 00000001 2f"),
    "a transaction that changes nothing": (
        0.0,
        "0000000e 0000000d 00 ffffffff 00000001 2f ffffffff ffffffff 01 ffffffff",
    ),
}


@pytest.mark.parametrize(("early", "proof"), PROOFS.values(), ids=PROOFS)
def test_a_session_is_proven_by_a_sync_or_if_its_last_write_is_old_by_a_transaction(early: float, proof: str) -> None:
    connection = _opened(now=0.0)
    connection.certainty, connection.upkeep = _certainty(), Upkeep.CERTAIN
    connection.prove(0.65 * TIMEOUT + 0.0005 - early)
    assert connection.data_to_send() == _framed(bytes.fromhex(f"00000001 {proof}"))
    assert connection.certainty.due(Upkeep.CERTAIN) == math.inf  # one at a time


def test_a_transaction_that_was_refused_proves_nothing_pitfall_87() -> None:
    for code, err in [(0, 0), (-101, 0), (-112, 0), (-118, 0), (0, -101)]:
        connection = _opened(now=0.0)
        connection.certainty = certainty = _certainty()
        for at in (1.0, 1.0 + 0.31 * TIMEOUT):
            certainty.answered(at, at, AckLevel.LEADER)
        _sent(connection, MultiRequest([r.CheckVersionRequest("/", -1)]), now=0.5 * TIMEOUT)
        result = struct.pack(">i?i", -1 if code else 13, False, code) + (struct.pack(">i", code) if code else b"")
        certainty.asked(0.5 * TIMEOUT)
        connection.receive(_reply(1, result + struct.pack(">i?i", -1, True, -1), err=err), 0.5 * TIMEOUT)
        assert certainty.until == TIMEOUT + (code == err == 0)
        assert (certainty.due(Upkeep.CERTAIN) == math.inf) is (code in (-112, -118))  # a refused one is repeated
        assert connection.is_session_over is (code == -112)


def test_a_server_that_trickles_the_bytes_of_a_frame_is_dead_after_a_session_timeout_pitfall_83() -> None:
    """It is never silent, and never answers."""
    connection = _opened(now=0.0)
    _sent(connection, r.SyncRequest("/"), now=0.0)
    whole = _reply(1, b"\0\0\0\1/")
    ends = []
    for now in range(1, 20):
        connection.receive(whole[now - 1 : now], float(now))
        _sent(connection, r.SyncRequest("/"), now=float(now))  # the oldest call decides
        if not connection.tick(float(now)):
            ends.append(now)
    assert ends[0] == 1 + TIMEOUT


def test_a_server_that_never_answers_an_auth_is_dead_after_a_session_timeout_pitfall_83() -> None:
    """It answers the pings."""
    connection = _opened(now=0.0)
    _sent(connection, r.AuthRequest(0, "digest", b"a:b"), now=0.0)
    ends = []
    for now in range(1, 20):
        ping, _ = _sent(connection, r.PingRequest(), r.AuthRequest(0, "digest", b"c:d"), now=float(now))
        assert connection.receive(_reply(PING_XID), float(now)) == [ping]
        if not connection.tick(float(now)):
            ends.append(now)
    assert ends[0] == TIMEOUT


def test_a_reply_that_the_session_is_ending_ends_the_connection_and_extends_no_certainty() -> None:
    """The server answers -112 to a write in a session that it is closing."""
    connection = _opened(now=0.0)
    calls = _sent(connection, r.SyncRequest("/"), now=3.0)
    assert connection.receive(_reply(1, err=-112), 4.0) == []
    assert connection.is_session_over
    assert isinstance(connection.error, ProtocolError)
    assert connection.answered == 0.0
    assert list(connection.calls) == calls


# -- nonsense -----------------------------------------------------------------------------------------


def test_a_large_frame_that_comes_slowly_takes_bounded_memory() -> None:
    limit = 256 * 1024
    connection = _opened(limit=limit)
    piece = bytes(4096)
    tracemalloc.start()
    try:
        connection.receive(struct.pack(">i", limit), 0.0)
        for _ in range(limit // len(piece) - 1):
            assert connection.receive(piece, 0.0) == []
        held, _ = tracemalloc.get_traced_memory()
        for _ in range(50):
            connection.receive(piece, 0.0)
        left, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert connection.error is not None
    assert held < limit + 50_000
    assert peak < 3 * (limit + len(piece)) + 50_000
    assert left < 100_000


each_set_watches = pytest.mark.parametrize(
    "request_",
    [r.SetWatchesRequest(2, ["/a"], [], []), r.SetWatches2Request(2, ["/a"], [], [], ["/b"], [])],
    ids=["SetWatches", "SetWatches2"],
)


@each_set_watches
def test_the_reply_to_set_watches_does_not_raise_last_zxid_pitfall_71(request_: r.Request[Any]) -> None:
    """The next chunk may still be unanswered.  If the connection breaks now, it must be asked for from the same zxid:
    from a newer one the server would fire no watch whose node has changed meanwhile.
    """
    connection = _opened(last_zxid=2)
    chunk, next_chunk, _ = _sent(connection, request_, request_, r.GetDataRequest("/a", False))
    stream = _event(2, "/a") + _reply(1, zxid=5)
    assert connection.receive(stream, 0.0) == [Notification(2, "/a", -1), chunk]
    assert connection.last_zxid == 2
    assert connection.receive(_reply(2, zxid=5), 0.0) == [next_chunk]
    assert connection.last_zxid == 2
    connection.receive(_reply(3, DATA, zxid=5), 0.0)  # after the last chunk
    assert connection.last_zxid == 5


@each_set_watches
def test_behind_a_refused_set_watches_no_reply_raises_last_zxid(request_: r.Request[Any]) -> None:
    """Its watches are not set, so their events are missing: the next connection must set them from the same zxid."""
    connection = _opened(last_zxid=2)
    _sent(connection, r.GetDataRequest("/a", False), request_, r.GetDataRequest("/a", False))
    connection.receive(_reply(1, err=-101, zxid=4), 0.0)  # the refusal of any other request changes nothing
    assert connection.last_zxid == 4
    connection.receive(_reply(2, err=-4, zxid=0) + _reply(3, DATA, zxid=9), 0.0)
    assert connection.last_zxid == 4


# -- replies out of order -------------------------------------------------------------------------------


def test_replies_to_auth_are_matched_in_their_own_order() -> None:
    """They may overtake the replies to earlier requests."""
    connection = _opened()
    first, ping, auth, other = _sent(
        connection,
        r.DeleteRequest("/a", -1),
        r.PingRequest(),
        r.AuthRequest(0, "digest", b"a:1"),
        r.DeleteRequest("/b", -1),
    )
    (again,) = _sent(connection, r.AuthRequest(0, "no-such", b""))
    assert [call.xid for call in (first, ping, auth, other, again)] == [1, -2, -4, 2, -4]
    assert list(connection.calls) == [first, ping, other]
    answers = [_reply(-4, zxid=0), _reply(1), _reply(-4, zxid=0, err=-115), _reply(-2), _reply(2)]
    assert connection.receive(b"".join(answers), 1.0) == [auth, first, again, ping, other]
    assert [call.code for call in (auth, again)] == [0, -115]
    assert connection.error is None
    assert connection.receive(_reply(-4), 1.0) == []
    assert "xid -4" in _message(connection)


def test_a_reply_with_a_wrong_xid_is_not_taken_for_that_to_auth() -> None:
    connection = _opened()
    _sent(connection, r.AuthRequest(0, "digest", b"u:p"), r.DeleteRequest("/a", -1))
    assert connection.receive(_reply(77), 1.0) == []
    assert "xid 77" in _message(connection)


def test_auth_and_sasl_are_no_sign_of_life_in_either_direction() -> None:
    """The server's reading thread answers them, and the server does not restart the session's clock."""
    connection = _opened()
    due, answered = connection.next_tick(), connection.answered
    _sent(connection, r.AuthRequest(0, "digest", b"a:1"), now=2.0)
    sasl = Call(r.SaslRequest(b""))
    connection.send(sasl, 2.0)
    assert connection.next_tick() == due
    assert connection.receive(_reply(-4, zxid=77) + _reply(1, b"\xff\xff\xff\xff", zxid=78), 2.5)[1] is sasl
    assert sasl.reply == r.SaslReply(None)
    assert (connection.answered, connection.last_zxid) == (answered, 0)


@pytest.mark.parametrize("xid", [1, 2, -2])
def test_the_demand_for_authentication_may_overtake_other_replies(xid: int) -> None:
    """The server closes the connection after it; the call stays unanswered."""
    connection = _opened()
    calls = _sent(connection, r.DeleteRequest("/a", -1), r.DeleteRequest("/b", -1), r.PingRequest())
    operation = "ping" if xid == -2 else "delete"
    assert connection.receive(_reply(xid, err=-124, zxid=0), 1.0) == [AuthenticationDemand(operation)]
    assert set(connection.calls) == set(calls)
    assert connection.error is None


def test_a_server_without_a_quorum_does_not_confirm_the_session() -> None:
    """Its replies do not prove that the ensemble keeps the session, so they must not extend a lease."""
    for tail, is_read_only in ((b"\1", True), (b"\0", False), (b"", False), (b"\0\1", False), (b"\1\0", True)):
        connection = _fresh()
        assert not connection.confirms_session
        connection.receive(_accepted(tail=tail), 0.0)
        assert (connection.is_read_only, connection.confirms_session) == (is_read_only, not is_read_only)


def test_the_refusal_of_an_unknown_opcode_may_overtake_earlier_replies() -> None:
    """The server's reading thread sends it."""
    connection = _opened()
    first, second, third = _sent(connection, r.DeleteRequest("/a", -1), r.WhoAmIRequest(), r.DeleteRequest("/c", -1))
    assert connection.receive(_reply(2, err=-6, zxid=-1), 0.0) == [second]
    assert (second.code, second.reply) == (-6, None)
    assert list(connection.calls) == [first, third]
    assert connection.receive(_reply(1) + _reply(3), 0.0) == [first, third]
    assert connection.error is None
    assert connection.last_zxid == 1
