"""The transaction request: several writes that the server carries out together or not at all.

On the wire it is a list without a count: a MultiHeader before each operation, and at the end a MultiHeader with `done`
set.  The results come back in the same form.  Each result is decoded by the type in its own header and not by the
operation that was sent, because servers before 3.7.2 and 3.8.2 answer a create2 with the result of a create.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final, Self, TypeAlias, get_args

from zkwire.wire import requests
from zkwire.wire.certainty import AckLevel
from zkwire.wire.jute import Record, record
from zkwire.wire.primitives import DecodeError, Int
from zkwire.wire.records import MultiHeader
from zkwire.wire.requests import Request

_ERROR_TYPE: Final = -1
_END: Final = MultiHeader(_ERROR_TYPE, True, -1).encode()
_HEADER_SIZE: Final = len(_END)

_AnyWrite: TypeAlias = (
    requests.AnyCreate | requests.DeleteRequest | requests.SetDataRequest | requests.CheckVersionRequest
)
_WRITES: Final[dict[int, type[Request[Any]]]] = {cls.opcode: cls for cls in get_args(_AnyWrite)}
_READS: Final[dict[int, type[Request[Any]]]] = {
    cls.opcode: cls for cls in (requests.GetDataRequest, requests.GetChildrenRequest)
}
# A create with a time to live has the result of a create2.
_RESULT_BY_TYPE: Final = {
    kind: cls.reply for kind, cls in (_WRITES | _READS).items() if cls is not requests.CreateTTLRequest
}


@record
class ErrorResult(Record):
    """The result of one operation of a refused transaction: 0 before the refused operation, -2 after it."""

    err: Int


class MultiReply(Record):
    """The results of a transaction's operations, in order; all are ErrorResult when the transaction was refused.

    Args:
        results: One for each operation.
        types: The type in the header of each result: the operation's opcode, except that every create that returns a
            Stat has the opcode of create2, and an ErrorResult has -1.  Only `encode` needs the types.
    """

    __slots__ = ("results", "types")

    def __init__(self, results: list[Record], types: Sequence[int] = ()) -> None:
        self.results: list[Record] = results
        self.types: Sequence[int] = types

    @staticmethod
    def decode(data: bytes, at: int) -> tuple[MultiReply, int]:
        """Return the reply that begins at `at` in `data`, and the offset after it.

        Raises:
            DecodeError: If the bytes are no such reply.
        """
        results: list[Record] = []
        types: list[int] = []
        while True:
            kind, type_, at = MultiReply.next_result(data, at)
            if kind is None:
                return MultiReply(results, types), at
            result, at = kind.decode(data, at)
            results.append(result)
            types.append(type_)

    @property
    def error(self) -> int:
        """The code of the refused operation, 0 if all were carried out: the reply's header says 0 in either case."""
        codes = (result.err for result in self.results if isinstance(result, ErrorResult))
        return next((code for code in codes if code), 0)

    @staticmethod
    def next_result(data: bytes, at: int) -> tuple[type[Record] | None, int, int]:
        """Return the class of the result at `at`, None at the end; its type; and the offset after its header.

        Raises:
            DecodeError: If no operation has a result of that type.
        """
        header, at = MultiHeader.decode(data, at)
        if header.done:
            return None, header.type, at
        kind = ErrorResult if header.type == _ERROR_TYPE else _RESULT_BY_TYPE.get(header.type)
        if kind is None:
            raise DecodeError(f"a transaction's result of the unknown type {header.type}, before byte {at}")
        return kind, header.type, at

    def encode(self) -> bytes:
        """Return each header and result, and the end mark.

        Raises:
            ValueError: If a result has no type.
        """
        parts = []
        for kind, result in zip(self.types, self.results, strict=True):
            err = result.err if isinstance(result, ErrorResult) else 0
            parts += [MultiHeader(kind, False, err).encode(), result.encode()]
        return b"".join([*parts, _END])


class _Operations:
    """The base of the two requests below: a list of operations without a count."""

    __slots__ = ("operations",)

    def __init__(self, operations: Sequence[Request[Any]]) -> None:
        self.operations: Sequence[Request[Any]] = operations

    @classmethod
    def decode(cls, data: bytes, at: int) -> tuple[Self, int]:
        """Return the request that begins at `at`, and the offset after it.

        Raises:
            DecodeError: If the bytes are no such request, or if reads and writes mix in it.
        """
        operations: list[Request[Any]] = []
        allowed = _WRITES | _READS
        while True:
            header, at = MultiHeader.decode(data, at)
            if header.done:
                return cls(operations), at
            kind = allowed.get(header.type)
            if kind is None:
                raise DecodeError(f"an operation of the type {header.type} is not allowed here, before byte {at}")
            operation, at = kind.decode(data, at)
            operations.append(operation)
            # Reads and writes do not mix: the first operation decides what may follow.
            allowed = _WRITES if header.type in _WRITES else _READS

    def encode(self) -> bytes:
        """Return each header and operation, and the end mark."""
        parts = []
        for operation in self.operations:
            parts += [MultiHeader(operation.opcode, False, -1).encode(), operation.encode()]
        return b"".join([*parts, _END])


class MultiRequest(_Operations, Request[MultiReply], opcode=14, ack_level=AckLevel.QUORUM):
    """Carry out the operations in their order, as one transaction."""

    __slots__ = ()


class MultiReadRequest(
    _Operations,
    Request[MultiReply],
    opcode=22,
    repeatable=True,
    since="3.6.0",
    needs="; Client.pipeline reads from older ones",
):
    """Read data and children of several nodes, with no write between the reads.

    Each read succeeds or fails by itself.  The server ignores their watch flags.
    """

    __slots__ = ()


def empty_write() -> MultiRequest:
    """Return a write that a quorum commits and that changes nothing, since it only checks that the root exists."""
    return MultiRequest([requests.CheckVersionRequest("/", -1)])


def batched(operations: Sequence[Request[Any]], most_bytes: int, most: int | None = None) -> list[list[Request[Any]]]:
    """Return the operations in their order, split into as few lists as the limits allow.

    Args:
        operations: The operations to split.
        most_bytes: The largest body of a request in bytes; an operation that is larger gets a list of its own.
        most: The largest number of operations in one list, None for no limit.
    """
    batches: list[list[Request[Any]]] = []
    size = 0
    for operation in operations:
        more = _HEADER_SIZE + len(operation.encode())
        if not batches or size + more > most_bytes or len(batches[-1]) == most:
            batches.append([])
            size = _HEADER_SIZE
        batches[-1].append(operation)
        size += more
    return batches
