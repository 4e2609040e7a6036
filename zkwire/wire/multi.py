"""The transaction request: several writes that the server carries out together or not at all.

On the wire it is a list without a count: each operation behind a MultiHeader, then a header with `done` set.  Results
come back in the same shape and are decoded by the type that they name themselves, because servers before
3.7.2 and 3.8.2 answer a create2 with the result of a create.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final

from zkwire.wire.jute import DecodeError, Int, Record, record
from zkwire.wire.records import MultiHeader
from zkwire.wire.requests import (
    CheckVersionRequest,
    Create2Reply,
    Create2Request,
    CreateContainerRequest,
    CreateReply,
    CreateRequest,
    CreateTTLRequest,
    DeleteRequest,
    GetChildrenReply,
    GetChildrenRequest,
    GetDataReply,
    GetDataRequest,
    Nothing,
    Request,
    SetDataRequest,
    StatReply,
)

_ERROR_TYPE: Final = -1
_END: Final = MultiHeader(_ERROR_TYPE, True, -1).encode()
_MARK_SIZE: Final = len(_END)  # what stands before each operation and behind the last

_RESULT_BY_TYPE: Final[dict[int, type[Record]]] = {
    CreateRequest.opcode: CreateReply,
    Create2Request.opcode: Create2Reply,
    CreateContainerRequest.opcode: Create2Reply,
    DeleteRequest.opcode: Nothing,
    SetDataRequest.opcode: StatReply,
    CheckVersionRequest.opcode: Nothing,
    GetDataRequest.opcode: GetDataReply,
    GetChildrenRequest.opcode: GetChildrenReply,
}

_WRITES: Final[dict[int, type[Request[Any]]]] = {
    cls.opcode: cls
    for cls in (
        CreateRequest,
        Create2Request,
        CreateContainerRequest,
        CreateTTLRequest,
        DeleteRequest,
        SetDataRequest,
        CheckVersionRequest,
    )
}
_READS: Final[dict[int, type[Request[Any]]]] = {cls.opcode: cls for cls in (GetDataRequest, GetChildrenRequest)}


@record
class ErrorResult(Record):
    """What an operation of a refused transaction got: 0 before the refused one, -2 behind it."""

    err: Int


class MultiReply(Record):
    """The results, one for each operation, in their order; all are ErrorResult when the transaction was refused.

    Arguments: `results`; `types`, what the server puts in front of each: the operation's opcode, but that of create2
    for every create that answers with a Stat, and -1 for an ErrorResult.  Only needed to encode.
    """

    __slots__ = ("results", "types")

    def __init__(self, results: list[Record], types: Sequence[int] = ()) -> None:
        self.results = results
        self.types = types

    @staticmethod
    def decode(data: bytes, at: int) -> tuple[MultiReply, int]:
        """Return the results in `data` from `at` on.  Raises: DecodeError."""
        results: list[Record] = []
        types: list[int] = []
        while True:
            header, at = MultiHeader.decode(data, at)
            if header.done:
                return MultiReply(results, types), at
            kind = ErrorResult if header.type == _ERROR_TYPE else _RESULT_BY_TYPE.get(header.type)
            if kind is None:
                raise DecodeError(f"a transaction's result of the unknown type {header.type}, before byte {at}")
            result, at = kind.decode(data, at)
            results.append(result)
            types.append(header.type)

    def encode(self) -> bytes:
        """Return each result behind its header, and the end mark.  Raises: ValueError without a type for each."""
        parts = []
        for kind, result in zip(self.types, self.results, strict=True):
            err = result.err if isinstance(result, ErrorResult) else 0
            parts += [MultiHeader(kind, False, err).encode(), result.encode()]
        return b"".join([*parts, _END])


def _decode_operations(data: bytes, at: int) -> tuple[list[Request[Any]], int]:
    operations: list[Request[Any]] = []
    allowed = _WRITES | _READS
    while True:
        header, at = MultiHeader.decode(data, at)
        if header.done:
            return operations, at
        kind = allowed.get(header.type)
        if kind is None:
            raise DecodeError(f"an operation of the type {header.type}, which cannot stand here, before byte {at}")
        operation, at = kind.decode(data, at)
        operations.append(operation)
        allowed = _WRITES if header.type in _WRITES else _READS  # the first one decides: the two do not mix


class _Operations:
    """What the two requests below share: operations behind one another, without a count."""

    __slots__ = ()

    operations: Sequence[Request[Any]]

    def encode(self) -> bytes:
        """Return each operation behind its header, and the end mark."""
        parts = []
        for operation in self.operations:
            parts += [MultiHeader(operation.opcode, False, -1).encode(), operation.encode()]
        return b"".join([*parts, _END])


class MultiRequest(_Operations, Request[MultiReply], opcode=14):
    """The operations of one transaction, in the order in which the server is to carry them out."""

    __slots__ = ("operations",)

    def __init__(self, operations: Sequence[Request[Any]]) -> None:
        self.operations = operations

    @staticmethod
    def decode(data: bytes, at: int) -> tuple[MultiRequest, int]:
        """Return the operations in `data` from `at` on.  Raises: DecodeError, also where writes and reads mix."""
        operations, at = _decode_operations(data, at)
        return MultiRequest(operations), at


class MultiReadRequest(_Operations, Request[MultiReply], opcode=22, repeatable=True):
    """Reads of data and children, each answered for itself, with no write in between; their watch flags do nothing."""

    __slots__ = ("operations",)

    def __init__(self, operations: Sequence[Request[Any]]) -> None:
        self.operations = operations

    @staticmethod
    def decode(data: bytes, at: int) -> tuple[MultiReadRequest, int]:
        """Return the operations in `data` from `at` on.  Raises: DecodeError, also where writes and reads mix."""
        operations, at = _decode_operations(data, at)
        return MultiReadRequest(operations), at


def batched(operations: Sequence[Request[Any]], most_bytes: int, most: int | None = None) -> list[list[Request[Any]]]:
    """Return the operations in their order, cut into as few lists as can be sent.

    Arguments: `most_bytes`, how large the body of a request may be; an operation that is larger stands alone; `most`,
    how many operations may stand in one, None for any number.
    """
    batches: list[list[Request[Any]]] = []
    size = 0
    for operation in operations:
        more = _MARK_SIZE + len(operation.encode())
        if not batches or size + more > most_bytes or len(batches[-1]) == most:
            batches.append([])
            size = _MARK_SIZE
        batches[-1].append(operation)
        size += more
    return batches
