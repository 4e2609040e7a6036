"""Decodes a large reply in steps, between which the event loop can do other work.

A list of a million children takes half a second to decode.  Only vectors can be so many values: every reply has its
vector, if any, as the first field, and a transaction's reply is a vector of results.  Pure, like everything here.
"""

from __future__ import annotations

from collections.abc import Generator
from typing import Any, Final, TypeAlias

from zkwire.wire.jute import Record
from zkwire.wire.multi import MultiReply
from zkwire.wire.primitives import INT, DecodeError, decode_ustring
from zkwire.wire.records import ACL
from zkwire.wire.requests import (
    ClientInfoRecord,
    GetACLReply,
    GetChildren2Reply,
    GetChildrenReply,
    GetEphemeralsReply,
    WhoAmIReply,
)

LARGE: Final = 256 * 1024  # bytes: a smaller frame is decoded at once
_STEP: Final = 4096  # values that one step decodes
_CHUNK: Final = 256  # values between two checks of the size of the step
_NULL: Final = INT.pack(-1)
_REST: Final = 1024  # bytes: more than follows a vector in any reply

# The replies with a vector: its field, which is the first one, and the class of its elements, None for strings.
_VECTORS: Final[dict[type[Record], tuple[str, type[Record] | None]]] = {
    GetChildrenReply: ("children", None),
    GetChildren2Reply: ("children", None),
    GetEphemeralsReply: ("ephemerals", None),
    GetACLReply: ("acl", ACL),
    WhoAmIReply: ("identities", ClientInfoRecord),
}

# Yields how many values it has decoded since the last time; returns the record and the offset after it.
_Decoding: TypeAlias = Generator[int, None, tuple[Any, int]]


class Stepwise:
    """The decoding of one large frame.

    Args:
        kind: The class of the record.
        data: The frame.
        at: Where the record begins in it.

    Attributes:
        frame: The frame.
        record: None until it is decoded, then the result of `kind.decode(data, at)`.
    """

    def __init__(self, kind: type[Record], data: bytes, at: int) -> None:
        self.frame = data
        self.record: Any = None
        self._decoding = _results(data, at) if kind is MultiReply else _vector(kind, data, at)

    def step(self) -> bool:
        """Decode some thousand values more; return whether the record is complete.

        Raises:
            DecodeError: As `kind.decode`.
            struct.error: As `kind.decode`.
        """
        values = 0
        try:
            while values < _STEP:
                values += next(self._decoding)
        except StopIteration as end:
            self.record, _ = end.value
            return True
        return False


def _vector(kind: type[Record], data: bytes, at: int) -> _Decoding:
    if kind not in _VECTORS:
        return kind.decode(data, at)
    name, element_kind = _VECTORS[kind]
    (count,) = INT.unpack_from(data, at)
    if count <= _CHUNK:
        return kind.decode(data, at)
    at += INT.size
    elements: list[Any] = []
    while len(elements) < count:
        chunk = min(_CHUNK, count - len(elements))
        # Looked up for each chunk: a record gets its decoder when it is first used.
        decode_element = _name if element_kind is None else element_kind.decode
        for _ in range(chunk):
            element, at = decode_element(data, at)
            elements.append(element)
        yield chunk
    # The fields after the vector are decoded as if it were empty.
    no_elements = INT.pack(0)
    record, end = kind.decode(no_elements + data[at : at + _REST], 0)
    setattr(record, name, elements)
    return record, at + end - len(no_elements)


def _name(data: bytes, at: int) -> tuple[str, int]:
    if data[at : at + 4] == _NULL:
        raise DecodeError(f"a null string among names, at byte {at}")
    return decode_ustring(data, at)


def _results(data: bytes, at: int) -> _Decoding:
    results: list[Record] = []
    types: list[int] = []
    while True:
        kind, type_, at = MultiReply.next_result(data, at)
        if kind is None:
            return MultiReply(results, types), at
        result, at = yield from _vector(kind, data, at)
        results.append(result)
        types.append(type_)
        yield _CHUNK // 4  # a result costs as much as many elements, and may contain some
