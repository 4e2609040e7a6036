"""Decodes a large reply in steps, between which the event loop can do other work.

A list of a million children takes half a second to decode.  Only vectors can be so many values: every reply has its
vector, if any, as the first field, and a transaction's reply is a vector of results.  Pure, like everything here.
"""

from collections.abc import Generator
from typing import Any, Final, TypeAlias

from zkwire.wire.jute import Record, first_field
from zkwire.wire.multi import MultiReply
from zkwire.wire.primitives import INT, VectorCodec

LARGE: Final = 256 * 1024  # bytes: a smaller frame is decoded at once
_STEP: Final = 4096  # elements of a vector that one step decodes
_STEP_BYTES: Final = 16 * 1024  # of a transaction's results that one step decodes
_NO_ELEMENTS: Final = INT.pack(0)
_REST: Final = 1024  # bytes: more than follows a vector in any reply

# Yields between two steps; returns the record and the offset after it.
Decoding: TypeAlias = Generator[None, None, tuple[Any, int]]


def decode_in_steps(kind: type[Record], data: bytes, at: int) -> Decoding:
    """Return what `kind.decode(data, at)` returns, but yield after some thousand values.

    Raises:
        DecodeError: As `kind.decode`.
        struct.error: As `kind.decode`.
    """
    if kind is MultiReply:
        return (yield from _results(data, at))
    name, codec = first_field(kind)
    if not isinstance(codec, VectorCodec):
        return kind.decode(data, at)
    (count,) = INT.unpack_from(data, at)
    at += INT.size
    elements: list[Any] = []
    decode_elements: Any = codec.decode
    while len(elements) < count:
        if elements:
            yield
        some, at = decode_elements(data, at, min(_STEP, count - len(elements)))
        elements += some
    # The fields after the vector are decoded as if it were empty.
    record, end = kind.decode(_NO_ELEMENTS + data[at : at + _REST], 0)
    setattr(record, name, elements)
    return record, at + end - len(_NO_ELEMENTS)


def _results(data: bytes, at: int) -> Decoding:
    results: list[Record] = []
    types: list[int] = []
    pause = at + _STEP_BYTES
    while True:
        kind, type_, at = MultiReply.next_result(data, at)
        if kind is None:
            return MultiReply(results, types), at
        result, at = yield from decode_in_steps(kind, data, at)
        results.append(result)
        types.append(type_)
        if at >= pause:
            yield
            pause = at + _STEP_BYTES
