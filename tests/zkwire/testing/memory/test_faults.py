"""Which requests a fault hits, and how long it is active; test_server_faults.py tests what the server then does."""

from __future__ import annotations

import re
from typing import Any

import pytest

from zkwire.errors import BadVersionError, ConnectionLostError, NoNodeError, TransactionError
from zkwire.testing import VirtualClock
from zkwire.testing.memory.faults import OUTPUT, REQUEST, Faults, RequestBytes
from zkwire.wire.multi import MultiReadRequest, MultiRequest
from zkwire.wire.records import RequestHeader
from zkwire.wire.requests import (
    CreateRequest,
    DeleteRequest,
    GetChildren2Request,
    GetChildrenRequest,
    GetDataRequest,
    PingRequest,
    Request,
)


def payload(body: Request[Any], xid: int = 1) -> bytes:
    return RequestHeader(xid, body.opcode).encode() + body.encode()


GET_A = payload(GetDataRequest("/a", False), 7)
GET_B = payload(GetDataRequest("/b", True))
CREATE_A = payload(CreateRequest("/a", b"", [], 0))
MULTI = payload(MultiRequest([DeleteRequest("/x", -1), DeleteRequest("/a", -1)]))
READS = payload(MultiReadRequest([GetDataRequest("/x", False), GetDataRequest("/a", False)]))
PING = payload(PingRequest(), -2)


def hits(faults: Faults, *payloads: bytes, session: int = 1) -> list[int]:
    return [len(faults._striking(REQUEST, session, RequestBytes(one))) for one in payloads]


def test_a_ping_is_hit_by_its_name_alone() -> None:
    faults = Faults()
    faults.drop_before(times=None)
    assert hits(faults, GET_A, CREATE_A, MULTI, PING) == [1, 1, 1, 0]
    faults.drop_after("ping")
    assert hits(faults, GET_A, PING) == [1, 1]


def test_a_hold_without_a_choice_is_about_all_output_of_its_session() -> None:
    faults = Faults()
    hold = faults.hold_replies(session=1)
    faults.hold_replies("getData")
    assert hits(faults, CREATE_A, GET_A) == [0, 1]
    assert [faults._striking(OUTPUT, session) for session in (1, 2)] == [[hold], []]
    hold.release()
    assert faults._striking(OUTPUT, 1) == []


@pytest.mark.parametrize(
    ("operation", "expected"),
    [("getChildren", [1, 1]), (GetChildrenRequest, [1, 0]), (GetChildren2Request, [0, 1]), (12, [0, 1])],
)
def test_a_name_is_for_all_that_do_so_a_class_or_number_for_one(operation: Any, expected: list[int]) -> None:
    faults = Faults()
    faults.answering(operation, BadVersionError)
    asked = payload(GetChildrenRequest("/a", False)), payload(GetChildren2Request("/a", False))
    assert hits(faults, *asked) == expected


def test_paths_are_exact_or_patterns_and_looked_for_in_transactions() -> None:
    faults = Faults()
    faults.drop_after(path="/a", times=None)
    faults.drop_after(path="/.", times=None)  # no pattern
    assert hits(faults, GET_A, GET_B, MULTI, READS) == [1, 0, 1, 1]
    faults = Faults()
    faults.drop_after(path=re.compile("/[b-z]"), times=None)
    assert hits(faults, GET_A, GET_B, MULTI, READS) == [0, 1, 1, 1]


def test_nth_and_times_count_what_fits() -> None:
    faults = Faults()
    fault = faults.answering("getData", -101, path="/a", nth=2, times=2)
    assert hits(faults, GET_A, GET_B, GET_A, GET_A, GET_A) == [0, 0, 1, 1, 0]
    assert fault.hits == 2


@pytest.mark.parametrize("wrong", [{"nth": 0}, {"times": 0}, {"operation": "get_data"}])
def test_wrong_arguments_are_refused(wrong: dict[str, Any]) -> None:
    with pytest.raises(ValueError, match=r"count from 1|no request is called 'get_data'; there are create, delete"):
        Faults().drop_before(**wrong)


@pytest.mark.parametrize(
    ("error", "refused", "advice"),
    [
        (0, ValueError, "^no request is answered by 0: 0 is the code of success"),
        (TransactionError, ValueError, "let a `check` in the transaction fail$"),
        (TransactionError(NoNodeError(-101), 0, []), ValueError, "let a `check` in the transaction fail$"),
        (
            ConnectionLostError,
            TypeError,
            r"not <class 'zkwire.*Lost.*'>: .* drop_before, drop_after or Server\.expire$",
        ),
        ("NoNode", TypeError, "not 'NoNode'"),
    ],
)
def test_what_no_server_answers_is_refused(error: Any, refused: type[Exception], advice: str) -> None:
    with pytest.raises(refused, match=advice):
        Faults().answering("multi", error)


def test_a_delay_is_not_negative() -> None:
    for seconds in (-1, float("nan"), float("inf")):
        with pytest.raises(ValueError, match="a delay lasts"):
            Faults().delay_replies(seconds)


# -- the clock that they wait by ----------------------------------------------------------------------


def test_the_clock_makes_calls_in_order_at_their_times() -> None:
    clock, made = VirtualClock(wall=1000.0), list[tuple[str, float]]()
    clock.call_at(3, lambda: made.append(("c", clock.time())))
    clock.call_at(1, lambda: clock.call_at(2, lambda: made.append(("b", clock.time()))))
    clock.call_at(1, lambda: made.append(("a", clock.time())))
    clock.call_at(1, lambda: made.append(("cancelled", 0))).cancel()
    clock.advance(2.5)
    assert made == [("a", 1.0), ("b", 2.0)]
    assert (clock.time(), clock.wall()) == (2.5, 1002.5)
    clock.advance(0.5)
    assert made[-1] == ("c", 3.0)


@pytest.mark.parametrize("seconds", [-1, float("nan"), float("inf")])
def test_the_clock_goes_forward_only(seconds: float) -> None:
    with pytest.raises(ValueError, match="0 or more"):
        VirtualClock().advance(seconds)
