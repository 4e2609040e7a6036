"""The transaction: worked bytes, results decoded by their own type, what may be in one, and nonsense."""

from typing import Any

import pytest

from zkwire.wire import requests as r
from zkwire.wire.multi import MultiReadRequest, MultiReply, MultiRequest, batched
from zkwire.wire.primitives import DecodeError
from zkwire.wire.records import OPEN_ACL, MultiHeader, RequestHeader, Stat

OPEN = list(OPEN_ACL)
STAT = Stat(4, 4, 0x01A1FA8988A3, 0x01A1FA8988A3, 1, 0, 0, 0, 2, 0, 4)
END = bytes.fromhex("ffffffff 01 ffffffff")

GOOD = MultiRequest(
    [
        r.CreateRequest("/m", b"1", OPEN, 0),
        r.CheckVersionRequest("/m", 0),
        r.SetDataRequest("/m", b"22", 0),
        r.DeleteRequest("/m", 1),
    ]
)
GOOD_SENT = bytes.fromhex(
    "00000083 00000006 0000000e"
    "00000001 00 ffffffff 00000002 2f6d 00000001 31"
    "00000001 0000001f 00000005 776f726c64 00000006 616e796f6e65 00000000"
    "0000000d 00 ffffffff 00000002 2f6d 00000000"
    "00000005 00 ffffffff 00000002 2f6d 00000002 3232 00000000"
    "00000002 00 ffffffff 00000002 2f6d 00000001"
    "ffffffff 01 ffffffff"
)
GOOD_RECEIVED = bytes.fromhex(
    "00000087 00000006 0000000000000004 00000000"
    "00000001 00 00000000 00000002 2f6d"
    "0000000d 00 00000000"
    "00000005 00 00000000 0000000000000004 0000000000000004 000001a1fa8988a3 000001a1fa8988a3"
    "00000001 00000000 00000000 0000000000000000 00000002 00000000 0000000000000004"
    "00000002 00 00000000"
    "ffffffff 01 ffffffff"
)
BAD = MultiRequest(
    [r.CreateRequest("/m", None, OPEN, 0), r.CheckVersionRequest("/none", 0), r.DeleteRequest("/m", -1)],
)
BAD_SENT = bytes.fromhex(
    "0000006c 00000007 0000000e"
    "00000001 00 ffffffff 00000002 2f6d ffffffff 00000001 0000001f 00000005 776f726c64 00000006 616e796f6e65 00000000"
    "0000000d 00 ffffffff 00000005 2f6e6f6e65 00000000"
    "00000002 00 ffffffff 00000002 2f6d ffffffff"
    "ffffffff 01 ffffffff"
)
BAD_RECEIVED = bytes.fromhex(
    "00000040 00000007 0000000000000005 00000000"
    "ffffffff 00 00000000 00000000"
    "ffffffff 00 ffffff9b ffffff9b"
    "ffffffff 00 fffffffe fffffffe"
    "ffffffff 01 ffffffff"
)


def _frame(xid: int, request: r.Request[Any]) -> bytes:
    body = RequestHeader(xid, request.opcode).encode() + request.encode()
    return len(body).to_bytes(4, "big") + body


def _result(kind: int, body: bytes, err: int = 0) -> bytes:
    return MultiHeader(kind, False, err).encode() + body


def test_a_transaction_is_encoded_byte_for_byte() -> None:
    assert _frame(6, GOOD) == GOOD_SENT
    assert _frame(7, BAD) == BAD_SENT


def test_the_results_of_a_transaction_are_decoded_byte_for_byte() -> None:
    assert GOOD_RECEIVED[4:20].hex(" ", 4) == "00000006 00000000 00000004 00000000"
    reply, end = MultiReply.decode(GOOD_RECEIVED, 20)
    assert reply.results == [r.CreateReply("/m"), r.Nothing(), r.StatReply(STAT), r.Nothing()]
    assert end == len(GOOD_RECEIVED)


def test_a_create2_may_be_answered_as_a_create_whose_path_is_the_name_that_was_made() -> None:
    """Servers before 3.7.2 and 3.8.2 do so.  Pitfall 66"""
    request = MultiRequest([r.Create2Request("/q-", b"", OPEN, 2)])
    assert request.encode().startswith(bytes.fromhex("0000000f 00 ffffffff"))
    (result,) = MultiReply.decode(_result(1, r.CreateReply("/q-0000000003").encode()) + END, 0)[0].results
    assert result == r.CreateReply("/q-0000000003")


@pytest.mark.parametrize("stat", [STAT, Stat(*[0] * 11)], ids=["valid", "zero"])
def test_a_create2_result_has_the_stat_that_the_server_sent(stat: Stat) -> None:
    """Pitfall 67: some servers send a Stat of zeros."""
    (result,) = MultiReply.decode(_result(15, r.Create2Reply("/m", stat).encode()) + END, 0)[0].results
    assert result == r.Create2Reply("/m", stat)


def test_a_container_in_a_transaction_keeps_its_own_opcode() -> None:
    """Pitfall 68"""
    request = MultiRequest([r.CreateContainerRequest("/c", b"", OPEN, 4)])
    assert request.encode().startswith(bytes.fromhex("00000013 00 ffffffff"))


@pytest.mark.parametrize("kind", [0, 3, 9, 10, 99, -2, -11, 2**31 - 1, -(2**31)])
def test_a_result_of_an_unknown_type_is_a_decode_error_that_names_it(kind: int) -> None:
    with pytest.raises(DecodeError, match=str(kind)):
        MultiReply.decode(_result(kind, b"\0" * 8) + END, 0)


# -- the server's side --------------------------------------------------------------------------------


@pytest.mark.parametrize("received", [GOOD_RECEIVED, BAD_RECEIVED], ids=["good", "bad"])
def test_the_worked_replies_are_encoded_again(received: bytes) -> None:
    reply, _ = MultiReply.decode(received, 20)
    assert reply.encode() == received[20:]


@pytest.mark.parametrize(
    "operations",
    [
        [r.SetACLRequest("/a", OPEN, -1)],
        [r.GetDataRequest("/a", False), r.DeleteRequest("/a", -1)],
        [r.DeleteRequest("/a", -1), r.GetChildrenRequest("/a", False)],
    ],
)
def test_an_operation_that_is_not_allowed_in_a_transaction_is_a_decode_error(operations: list[r.Request[Any]]) -> None:
    for kind in (MultiRequest, MultiReadRequest):
        with pytest.raises(DecodeError, match="not allowed here"):
            kind.decode(MultiRequest(operations).encode(), 0)


@pytest.mark.parametrize(
    ("room", "most", "sizes"),
    [(0, None, [3, 3, 1]), (-1, None, [2, 2, 2, 1]), (0, 3, [3, 3, 1]), (0, 2, [2, 2, 2, 1]), (0, 1, [1] * 7)],
)
def test_a_batch_is_filled_to_the_last_byte_and_to_the_last_operation(
    room: int, most: int | None, sizes: list[int]
) -> None:
    operations = [r.DeleteRequest(f"/{number}", -1) for number in range(7)]
    three = len(MultiRequest(operations[:3]).encode())
    batches = batched(operations, three + room, most)
    assert [len(batch) for batch in batches] == sizes
    assert [operation for batch in batches for operation in batch] == operations
    assert batched([], 0) == []
