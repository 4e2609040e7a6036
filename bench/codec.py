"""The codec beside ``struct`` by hand: a request is encoded and its reply decoded, without a connection.

Both make the same bytes of the same request, and the same strings and numbers of the same reply.
"""

import struct
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Final

from zkwire.wire.jute import Record
from zkwire.wire.records import OPEN_ACL, Stat
from zkwire.wire.requests import (
    Create2Reply,
    Create2Request,
    CreateFlags,
    GetChildrenReply,
    GetChildrenRequest,
    GetDataReply,
    GetDataRequest,
    Request,
)

BATCH: Final = 20  # exchanges for each reading of the clock, which takes about as long as one of them
PATH: Final = "/locks/orders/_c_2a6a4c1e-7d3f-4e0c-9d51-6f0f3c8f8f11-lock-"
DATA: Final = b"x" * 100
STAT: Final = Stat(7, 7, 1_700_000_000_000, 1_700_000_000_000, 0, 0, 0, 2**56, 100, 0, 7)
CREATED: Final = f"{PATH}0000000042"
MANY: Final = [f"_c_2a6a4c1e-7d3f-4e0c-9d51-6f0f3c8f8f11-lock-{number:010}" for number in range(1000)]

_INT: Final = struct.Struct(">i")
_STAT: Final = struct.Struct(">qqqqiiiqiiq")
_ACL: Final = _INT.pack(1) + _INT.pack(31) + _INT.pack(5) + b"world" + _INT.pack(6) + b"anyone"


@dataclass(frozen=True, slots=True)
class Exchange:
    """A request and its reply.

    Args:
        request: Makes the request.
        answer: Its reply.
        encode: Encodes the same request by hand.
        decode: Decodes the same reply by hand.
    """

    request: Callable[[], Request[Any]]
    answer: Record
    encode: Callable[[], bytes]
    decode: Callable[[bytes], tuple[Any, ...]]

    def ours(self, reply: bytes) -> None:
        """Encode the request and decode the bytes of its reply."""
        request = self.request()
        request.encode()
        request.reply.decode(reply, 0)

    def by_hand(self, reply: bytes) -> None:
        """Do the same with `struct`."""
        self.encode()
        self.decode(reply)


def _encode_create() -> bytes:
    path = PATH.encode()
    return b"".join((_INT.pack(len(path)), path, _INT.pack(len(DATA)), DATA, _ACL, _INT.pack(3)))


def _decode_created(reply: bytes) -> tuple[str, tuple[int, ...]]:
    end = 4 + _INT.unpack_from(reply)[0]
    return reply[4:end].decode(), _STAT.unpack_from(reply, end)


def _encode_read() -> bytes:
    path = PATH.encode()
    return _INT.pack(len(path)) + path + b"\0"


def _decode_data(reply: bytes) -> tuple[bytes, tuple[int, ...]]:
    end = 4 + _INT.unpack_from(reply)[0]
    return reply[4:end], _STAT.unpack_from(reply, end)


def _decode_names(reply: bytes) -> tuple[list[str]]:
    found = []
    at = 4
    for _ in range(_INT.unpack_from(reply)[0]):
        end = at + 4 + _INT.unpack_from(reply, at)[0]
        found.append(reply[at + 4 : end].decode())
        at = end
    return (found,)


EXCHANGES: Final[dict[str, Exchange]] = {
    "codec: create": Exchange(
        lambda: Create2Request(PATH, DATA, list(OPEN_ACL), CreateFlags.EPHEMERAL | CreateFlags.SEQUENTIAL),
        Create2Reply(CREATED, STAT),
        _encode_create,
        _decode_created,
    ),
    "codec: get": Exchange(lambda: GetDataRequest(PATH, False), GetDataReply(DATA, STAT), _encode_read, _decode_data),
    "codec: get_children of 1,000": Exchange(
        lambda: GetChildrenRequest(PATH, False), GetChildrenReply(MANY), _encode_read, _decode_names
    ),
}


def ours(count: int) -> dict[str, list[int]]:
    """Do each exchange `count` times with the codec; return the nanoseconds for each, the mean of each batch."""
    return {name: _timed(exchange.ours, exchange.answer.encode(), count) for name, exchange in EXCHANGES.items()}


def by_hand(count: int) -> dict[str, list[int]]:
    """As `ours`, with `struct`."""
    return {name: _timed(exchange.by_hand, exchange.answer.encode(), count) for name, exchange in EXCHANGES.items()}


def _timed(do: Callable[[bytes], None], reply: bytes, count: int) -> list[int]:
    took = []
    for first in range(0, count, BATCH):
        size = min(BATCH, count - first)
        start = time.perf_counter_ns()
        for _ in range(size):
            do(reply)
        took.append((time.perf_counter_ns() - start) // size)
    return took
