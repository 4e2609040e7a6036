"""The transaction: results decoded by their own type, what may be in one, how many go in a batch.

tests/captures has whole frames of it, as servers and the Java client send them.
"""

from typing import Any

import pytest

from zkwire.wire import requests as r
from zkwire.wire.multi import MultiReadRequest, MultiReply, MultiRequest, batched
from zkwire.wire.primitives import DecodeError
from zkwire.wire.records import OPEN_ACL, MultiHeader, Stat

OPEN = list(OPEN_ACL)
STAT = Stat(*range(11))
END = bytes.fromhex("ffffffff 01 ffffffff")


def _result(kind: int, body: bytes, err: int = 0) -> bytes:
    return MultiHeader(kind, False, err).encode() + body


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
def test_a_batch_is_filled_to_the_last_byte_and_last_operation(room: int, most: int | None, sizes: list[int]) -> None:
    operations = [r.DeleteRequest(f"/{number}", -1) for number in range(7)]
    three = len(MultiRequest(operations[:3]).encode())
    batches = batched(operations, three + room, most)
    assert [len(batch) for batch in batches] == sizes
    assert [operation for batch in batches for operation in batch] == operations
    assert batched([], 0) == []
