"""The requests of Apache's Java client, as recorded by a proxy, are decoded and encoded to the same bytes."""

from typing import Any

import pytest

from tests.captures.java.record import load
from zkwire.wire import multi, requests
from zkwire.wire.records import ConnectRequest
from zkwire.wire.requests import Request

BY_OPCODE = {
    kind.opcode: kind
    for module in (requests, multi)
    for kind in vars(module).values()
    if isinstance(kind, type) and issubclass(kind, Request) and kind is not Request and not kind.is_recovered
}
JAVA = load()


@pytest.mark.parametrize("call", JAVA)
def test_a_request_of_the_java_client_is_decoded_and_encoded_to_the_same_bytes(call: str) -> None:
    for number, frame in enumerate(JAVA[call]):
        is_handshake = number == 0 and (call == "connect" or call.startswith("reconnect"))
        kind: Any = ConnectRequest if is_handshake else BY_OPCODE[int.from_bytes(frame[4:8], "big", signed=True)]
        start = 0 if is_handshake else 8
        read, end = kind.decode(frame, start)
        assert end == len(frame)
        assert read.encode() == frame[start:]
