"""A large reply is decoded in steps, with the result of decoding it at once, and everything keeps its order."""

import struct
from collections.abc import Callable
from typing import Any, get_type_hints
from unittest.mock import patch

import pytest
from hypothesis import given
from hypothesis import strategies as st

from zkwire.wire import requests, stepwise
from zkwire.wire.connection import Call, Connection, Incoming
from zkwire.wire.jute import Record, first_field
from zkwire.wire.multi import ErrorResult, MultiReply
from zkwire.wire.primitives import DecodeError, VectorCodec
from zkwire.wire.records import ACL, ConnectRequest, ConnectResponse, Stat
from zkwire.wire.requests import (
    GetACLReply,
    GetChildren2Reply,
    GetChildrenReply,
    GetChildrenRequest,
    GetDataReply,
    WhoAmIReply,
)
from zkwire.wire.stepwise import decode_in_steps
from zkwire.wire.watch_table import Notification

MiB = 1 << 20
STAT = Stat(*range(11))


def _stepped(kind: type[Record], data: bytes) -> tuple[Any, int]:
    decoding, steps = decode_in_steps(kind, data, 0), 1
    while True:
        try:
            next(decoding)
        except StopIteration as end:
            return end.value[0], steps
        steps += 1


def _at_once(kind: type[Record], data: bytes) -> tuple[Any, int]:
    return kind.decode(data, 0)


def _outcome(decode: Callable[[type[Record], bytes], tuple[Any, int]], kind: type[Record], data: bytes) -> bytes | None:
    """Return the decoded record, encoded again; None when it is refused."""
    try:
        record: Record = decode(kind, data)[0]
    except (DecodeError, struct.error):
        return None
    return record.encode()


names = st.lists(st.text(max_size=5), max_size=40)


@given(names, st.integers(1, 5))
def test_the_result_is_that_of_decoding_at_once(children: list[str], size: int) -> None:
    records: list[Any] = [
        GetChildrenReply(children),
        GetChildren2Reply(children, STAT),
        GetDataReply("".join(children).encode(), STAT),
        GetACLReply([ACL(31, "digest", name) for name in children], STAT),
    ]
    read = [GetChildrenReply(children), ErrorResult(-101), GetChildrenReply(children[:1])]
    records.append(MultiReply(read, [8, -1, 8]))
    with patch.object(stepwise, "_STEP", size), patch.object(stepwise, "_STEP_BYTES", size):
        for record in records:
            data = record.encode()
            again, _ = _stepped(type(record), data)
            assert again.encode() == data
            if not isinstance(record, MultiReply):
                assert again == record


@pytest.mark.parametrize(
    ("kind", "data"),
    [
        (GetChildrenReply, struct.pack(">i", 100_000) + bytes(4 * 100_000)),
        (GetACLReply, struct.pack(">i", 100_000) + bytes(12 * 100_000) + bytes(68)),
        (WhoAmIReply, struct.pack(">i", 100_000) + bytes(8 * 100_000)),
        (MultiReply, struct.pack(">i?ii", -1, False, 0, 0) * 100_000 + struct.pack(">i?i", -1, True, -1)),
        (MultiReply, (struct.pack(">i?ii", 8, False, 0, 1000) + bytes(4000)) * 100 + struct.pack(">i?i", -1, True, -1)),
    ],
    ids=["names", "acls", "identities", "errors", "many names"],
)
def test_no_step_decodes_more_than_some_thousand_values(kind: type[Record], data: bytes) -> None:
    _, steps = _stepped(kind, data)
    assert 20 <= steps <= 100


def test_every_vector_in_a_reply_is_its_first_field() -> None:
    replies = {each.reply for each in vars(requests).values() if isinstance(each, type) and hasattr(each, "reply")}
    for kind in replies - {MultiReply}:
        hints = get_type_hints(kind, include_extras=True)
        del hints["__dataclass_fields__"]  # what every record has
        lists = [name for name, declared in hints.items() if "list[" in str(declared) or "Sequence[" in str(declared)]
        is_vector = isinstance(first_field(kind)[1], VectorCodec)
        assert lists == ([*hints][:1] if is_vector else [])


def _open() -> Connection:
    made = Connection(ConnectRequest(0, 0, 12_000, 0, bytes(16), False), 64 * MiB, 0.0)
    made.data_to_send()
    response = ConnectResponse(0, 12_000, 5, bytes(range(16))).encode() + b"\0"
    made.receive(struct.pack(">i", len(response)) + response, 0.0)
    return made


def _framed(xid: int, body: bytes) -> bytes:
    return struct.pack(">iiqi", 16 + len(body), xid, 1, 0) + body


EVENT = _framed(-1, struct.pack(">iii", 3, 3, 2) + b"/a")


def _read(made: Connection) -> list[Call]:
    calls = [Call(GetChildrenRequest(path, False)) for path in ("/a", "/b")]
    for call in calls:
        made.send(call, 1.0)
    return calls


def test_frames_after_a_large_reply_wait_for_it() -> None:
    made = _open()
    first, second = _read(made)
    children = [f"{number:06d}" for number in range(100_000)]
    data = _framed(1, GetChildrenReply(children).encode()) + EVENT
    assert made.receive(data[:-10], 2.0) == []
    assert made.unfolding is not None
    assert made.receive(data[-10:] + _framed(2, GetChildrenReply(["b"]).encode()), 2.0) == []
    assert made.receive(EVENT, 2.0) == []
    arrived: list[Incoming] = []
    steps = 0
    while made.unfolding is not None:
        assert arrived == []
        arrived, steps = made.go_on(30.0 + steps), steps + 1
        assert made.tick(30.0 + steps), "the silence is our own"
    assert steps > 20
    event = Notification(3, "/a", 1)
    assert arrived == [first, event, second, event]
    assert first.reply == GetChildrenReply(children)
    assert second.reply == GetChildrenReply(["b"])


def test_a_large_reply_that_cannot_be_decoded_ends_the_connection() -> None:
    made = _open()
    first, _ = _read(made)
    body = GetChildrenReply(["name"] * 100_000).encode()[:-1]
    assert made.receive(_framed(1, body), 2.0) == []
    while made.unfolding is not None and made.error is None:
        assert made.go_on(3.0) == []
    assert "cannot be decoded" in str(made.error)
    assert first.times_unreadable == 1
    assert made.go_on(3.0) == []


def test_bytes_after_a_bad_length_are_no_frames() -> None:
    made = _open()
    first, _ = _read(made)
    large = _framed(1, GetChildrenReply(["name"] * 100_000).encode())
    assert made.receive(large + EVENT + struct.pack(">i", -1), 2.0) == []
    assert made.receive(_framed(2, GetChildrenReply(["b"]).encode()), 2.0) == []
    arrived: list[Incoming] = []
    while made.unfolding is not None:
        arrived += made.go_on(3.0)
    assert arrived == [first, Notification(3, "/a", 1)]
    assert "a frame of -1 bytes" in str(made.error)


@pytest.mark.parametrize("has_calls", [True, False])
def test_a_large_frame_under_a_wrong_xid_ends_the_connection(has_calls: bool) -> None:
    made = _open()
    if has_calls:
        _read(made)
    assert made.receive(_framed(9, bytes(stepwise.LARGE + 1)), 2.0) == []
    assert "xid 9" in str(made.error)


def test_a_large_refusal_ends_its_call_and_not_the_connection() -> None:
    made = _open()
    first, second = _read(made)
    body = b"/" * stepwise.LARGE
    refusal = struct.pack(">iiqi", 16 + len(body), 1, 1, -101) + body
    event = _framed(-1, struct.pack(">iii", 3, 3, len(body)) + body)
    answer = _framed(2, GetChildrenReply(["b"]).encode())
    assert made.receive(event + refusal + answer, 2.0) == [Notification(3, body.decode(), 1), first, second]
    assert (first.code, first.reply, second.reply) == (-101, None, GetChildrenReply(["b"]))


def test_no_urgent_event_overtakes_a_large_reply_that_is_being_decoded() -> None:
    made = _open()
    first, _ = _read(made)
    woken: list[str] = []
    made.add_urgent("/a", lambda: woken.append("/a"))
    deletion = _framed(-1, struct.pack(">iii", 2, 3, 2) + b"/a")
    assert made.receive(_framed(1, GetChildrenReply(["name"] * 100_000).encode()), 2.0) == []
    assert made.take_urgent(deletion) is None
    assert made.receive(deletion, 2.0) == []
    arrived: list[Incoming] = []
    while made.unfolding is not None:
        arrived += made.go_on(3.0)
    assert arrived == [first, Notification(2, "/a", 1)]
    assert made.take_urgent(deletion) is None  # used up by the event
    assert made.go_on(4.0) == []
    assert made.heard == 3.0
