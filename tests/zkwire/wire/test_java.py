"""The requests of Apache's Java client, as recorded by a proxy, are decoded and encoded to the same bytes."""

from pathlib import Path
from typing import Any

import pytest

from zkwire.wire import multi, requests
from zkwire.wire.records import ConnectRequest
from zkwire.wire.requests import Request

BY_OPCODE = {
    kind.opcode: kind
    for module in (requests, multi)
    for kind in vars(module).values()
    if isinstance(kind, type) and issubclass(kind, Request) and kind is not Request and not kind.is_recovered
}
RECORDED = Path(__file__).parents[2] / "captures" / "java" / "frames.txt"


def load() -> dict[str, list[bytes]]:
    """Return the frames of each call under its name."""
    calls: dict[str, list[bytes]] = {}
    for line in RECORDED.read_text(encoding="ascii").splitlines():
        if line.startswith("== "):
            frames = calls[line.removeprefix("== ")] = []
        elif line.startswith("> "):
            frames.append(bytes.fromhex(line.removeprefix("> ")))
        elif line.startswith("  "):
            frames[-1] += bytes.fromhex(line)
    return calls


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
