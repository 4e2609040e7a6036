"""The transaction request: several writes that the server carries out together or not at all.

On the wire it is a list without a count: each operation behind a MultiHeader, then a header with `done` set.  Results
come back in the same shape and are decoded by the type that they name themselves, because servers before
3.7.2 and 3.8.2 answer a create2 with the result of a create.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final

from zkwire.jute import DecodeError, Int, Record, record
from zkwire.records import MultiHeader
from zkwire.requests import (
    CheckVersionRequest,
    Create2Reply,
    Create2Request,
    CreateContainerRequest,
    CreateReply,
    CreateRequest,
    DeleteRequest,
    Nothing,
    Request,
    SetDataRequest,
    StatReply,
)

_ERROR_TYPE: Final = -1
_END: Final = MultiHeader(_ERROR_TYPE, True, -1).encode()

_RESULT_BY_TYPE: Final[dict[int, type[Record]]] = {
    CreateRequest.opcode: CreateReply,
    Create2Request.opcode: Create2Reply,
    CreateContainerRequest.opcode: Create2Reply,
    DeleteRequest.opcode: Nothing,
    SetDataRequest.opcode: StatReply,
    CheckVersionRequest.opcode: Nothing,
}


@record
class ErrorResult(Record):
    """What an operation of a refused transaction got: 0 before the refused one, -2 behind it."""

    err: Int


class MultiReply(Record):
    """The results, one for each operation, in their order; all are ErrorResult when the transaction was refused."""

    __slots__ = ("results",)

    def __init__(self, results: list[Record]) -> None:
        self.results = results

    @staticmethod
    def decode(data: bytes, at: int) -> tuple[MultiReply, int]:
        """Return the results in `data` from `at` on.  Raises: DecodeError."""
        results: list[Record] = []
        while True:
            header, at = MultiHeader.decode(data, at)
            if header.done:
                return MultiReply(results), at
            kind = ErrorResult if header.type == _ERROR_TYPE else _RESULT_BY_TYPE.get(header.type)
            if kind is None:
                raise DecodeError(f"a transaction's result of the unknown type {header.type}, before byte {at}")
            result, at = kind.decode(data, at)
            results.append(result)


class MultiRequest(Request[MultiReply], opcode=14):
    """The operations of one transaction, in the order in which the server is to carry them out."""

    __slots__ = ("operations",)

    def __init__(self, operations: Sequence[Request[Any]]) -> None:
        self.operations = operations

    def encode(self) -> bytes:
        """Return each operation behind its header, and the end mark."""
        parts = []
        for operation in self.operations:
            parts += [MultiHeader(operation.opcode, False, -1).encode(), operation.encode()]
        return b"".join([*parts, _END])
