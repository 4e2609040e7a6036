"""Faults at exact points: which requests they hit, how often they have struck, and how long they are active.

Knows requests as bytes and sessions as numbers, and knows no socket: the server asks which faults a request meets, and
carries them out.
"""

from __future__ import annotations

import asyncio
import logging
import math
import re
from typing import Any, Final, Self, TypeAlias, TypedDict, Unpack

from zkwire.errors import ServerError, TransactionError
from zkwire.testing.memory.operations import OPERATIONS
from zkwire.wire.multi import MultiReadRequest, MultiRequest
from zkwire.wire.primitives import DecodeError
from zkwire.wire.records import RequestHeader
from zkwire.wire.requests import AuthRequest, GetEphemeralsRequest, PingRequest, Request, SaslRequest

_LOGGER = logging.getLogger("zkwire.testing")

Operation: TypeAlias = str | int | type[Request[Any]] | None
PathPattern: TypeAlias = str | re.Pattern[str] | None
Refusal: TypeAlias = int | ServerError | type[ServerError]

HEADER_BYTES: Final = 8
_REQUESTS: Final[dict[int, type[Request[Any]]]] = {
    **{opcode: operation.request for opcode, operation in OPERATIONS.items()},
    **{kind.opcode: kind for kind in (AuthRequest, SaslRequest)},
}


def _named(kind: type[Request[Any]]) -> str:
    """Return the name that a test uses for requests of this kind, and for others that do the same."""
    return "create" if kind.operation.startswith("create") else kind.operation.removesuffix("2")


# A name means all the requests that do this; a class or a number means exactly one kind of request.
_OPCODES: Final = {
    _named(kind): frozenset(opcode for opcode, other in _REQUESTS.items() if _named(other) == _named(kind))
    for kind in _REQUESTS.values()
}


class RequestBytes:
    """A request as it arrived: its xid, its opcode, and the nodes that it names."""

    def __init__(self, payload: bytes) -> None:
        header, self._at = RequestHeader.decode(payload, 0)
        self.xid: int = header.xid
        self.opcode: int = header.opcode
        self._payload = payload

    def paths(self) -> list[str | None]:
        """Return the node that the request names, or those that the operations of a transaction name."""
        try:
            request = _REQUESTS[self.opcode].decode(self._payload, self._at)[0]
        except (KeyError, DecodeError):
            return []  # the server answers a request that it cannot decode as without faults
        if isinstance(request, MultiRequest | MultiReadRequest):
            return [operation.subject for operation in request.operations]
        return [request.prefix if isinstance(request, GetEphemeralsRequest) else request.subject]


class Choice(TypedDict, total=False):
    """How a fault chooses requests, see `Faults.drop_before`."""

    path: PathPattern
    session: int | None
    nth: int
    times: int | None


def _opcodes(operation: Operation) -> frozenset[int] | None:
    if operation is None:
        return None
    if isinstance(operation, str):
        if operation not in _OPCODES:
            raise ValueError(f"no request is called {operation!r}; there are {', '.join(_OPCODES)}")
        return _OPCODES[operation]
    return frozenset({operation if isinstance(operation, int) else operation.opcode})


def signed(session_id: int) -> int:
    """Return a session id as a signed number, as it is on the wire; ids are often printed unsigned."""
    return (session_id + 2**63) % 2**64 - 2**63


REQUEST, OUTPUT, CONNECTION = "request", "output", "connection"


class Fault:
    """A fault, active from its creation until `end` or the end of its `with` or `async with` block.

    It strikes requests that fit, from the `nth` on, `times` of them (None: all), at its `point`.
    `hits` counts how often it has struck. A fault that ends without a hit logs a warning, because the test has
    then shown nothing.
    """

    def __init__(
        self,
        name: str,
        owner: Faults,
        operation: Operation = None,
        *,
        code: int = 0,
        seconds: float = 0.0,
        **choice: Unpack[Choice],
    ) -> None:
        path, session = choice.get("path"), choice.get("session")
        nth, times = choice.get("nth", 1), choice.get("times")
        if nth < 1 or (times is not None and times < 1):
            raise ValueError(f"nth and times count from 1, not nth={nth!r}, times={times!r}")
        self.name = name
        self.code = code  # with which error it answers
        self.seconds = seconds  # for how long it delays
        self._opcodes = _opcodes(operation)
        self._path = re.compile(re.escape(path)) if isinstance(path, str) else path
        self._session = None if session is None else signed(session)
        self._to_pass = nth - 1
        self._left = times
        # Without any property of a request, a fault is about all output, not only about replies.
        is_everything = operation is None and path is None and nth == 1 and times is None
        self._point: str = OUTPUT if is_everything and name in ("hold_replies", "delay_replies") else REQUEST
        if name == "refuse_connections":
            self._point = CONNECTION
        self.hits: int = 0
        self.is_over: bool = False
        self._struck = asyncio.Event()
        self._owner = owner
        owner._faults.append(self)

    def _takes(self, request: RequestBytes | None, session: int) -> bool:
        """Return whether the fault strikes here, and count it.

        Args:
            request: The request, None for output or a new connection.
            session: Its session.
        """
        if self._session not in (None, session) or (request is not None and not self._fits(request)):
            return False
        if self._left == 0:
            return False
        if self._to_pass:
            self._to_pass -= 1
            return False
        if self._left is not None:
            self._left -= 1
        self.hits += 1
        self._struck.set()
        return True

    def _fits(self, request: RequestBytes) -> bool:
        if self._opcodes is None:
            if request.opcode == PingRequest.opcode:
                return False  # a ping comes at any time, and would be hit in place of the request that the test means
        elif request.opcode not in self._opcodes:
            return False
        if self._path is None:
            return True
        return any(path is not None and self._path.fullmatch(path) for path in request.paths())

    async def until_hit(self, hits: int = 1) -> None:
        """Wait until the fault has struck `hits` times in all."""
        while self.hits < hits:
            self._struck.clear()
            await self._struck.wait()

    def end(self) -> None:
        """Let the fault strike no more; nothing happens when it is over already."""
        if not self.is_over:
            self.is_over = True
            if not self.hits:
                _LOGGER.warning("%s never hit anything", self)
            self._owner._fault_ended(self)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *exc_info: object) -> None:
        self.end()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *exc_info: object) -> None:
        self.end()

    def __str__(self) -> str:
        return f"the fault {self.name}"

    def __repr__(self) -> str:
        return f"<{self}, hits: {self.hits}>"


class Hold(Fault):
    """Keeps back replies, and what follows them, until it ends."""

    def release(self) -> None:
        """Send what was held, in its order, and hold nothing more; the end of the block does the same."""
        self.end()


class Faults:
    """The faults of a server; each method returns a fault that is active at once, and that `with` can bound."""

    def __init__(self) -> None:
        self._faults: list[Fault] = []

    def drop_before(self, operation: Operation = None, **choice: Unpack[Choice]) -> Fault:
        """Drop the connection when a chosen request arrives; the request is not carried out.

        Args:
            operation: A name in ZooKeeper's own terms ("create" means every kind of create, "getChildren" and
                "setWatches" both of theirs), a request class or an opcode for exactly that request, None for every
                request but a ping.
            path: The node named by the request, or by any operation of a transaction: a str for exactly that node, a
                compiled pattern that must match the whole path, None for any.
            session: The id of a session, None for all.
            nth: The first of the fitting requests that is hit, from 1.
            times: How many are hit, None for all from there on; 1 by default.
        """
        choice.setdefault("times", 1)
        return Fault("drop_before", self, operation, **choice)

    def drop_after(self, operation: Operation = None, **choice: Unpack[Choice]) -> Fault:
        """Carry out a chosen request and drop its connection in place of the reply.

        Args:
            operation: As for `drop_before`, and so are the others.
        """
        choice.setdefault("times", 1)
        return Fault("drop_after", self, operation, **choice)

    def answering(self, operation: Operation, error: Refusal, **choice: Unpack[Choice]) -> Fault:
        """Answer requests with an error without carrying them out.

        Args:
            operation: As for `drop_before`, and so are the others; `times` is None by default.
            error: A ServerError, its class, or a code. A transaction ("multi") that is answered so raises this error,
                as for an error of the whole request. For a TransactionError, let the nodes themselves refuse one of
                the operations: a `check` of a version that the node does not have, for example.
        """
        code = getattr(error, "code", error)
        if not isinstance(code, int):
            raise TypeError(
                f"error must be a ServerError, its class or a code, not {error!r}: to have a connection or a session"
                " lost, use drop_before, drop_after or Server.expire"
            )
        if code == 0 or isinstance(error, TransactionError):
            raise ValueError(
                f"no request is answered by {error!r}: 0 is the code of success, and a TransactionError comes of the"
                " refusal of one operation; give an error that has a code, or let a `check` in the transaction fail"
            )
        return Fault("answering", self, operation, code=code, **choice)

    def hold_replies(self, operation: Operation = None, **choice: Unpack[Choice]) -> Hold:
        """Keep back replies until `release`, or until the end of the block; the requests are carried out.

        Without an argument, or with `session` alone, it holds all output from now on; otherwise it holds the reply to
        each chosen request.

        Args:
            operation: As for `drop_before`, and so are the others; `times` is None by default.

        Order:
            What follows on the same connection, events too, waits for the held reply.
        """
        return Hold("hold_replies", self, operation, **choice)

    def delay_replies(self, seconds: float, operation: Operation = None, **choice: Unpack[Choice]) -> Fault:
        """Keep back replies for `seconds` of the server's clock.

        Without an argument, or with `session` alone, it delays all output from now on; otherwise it delays the reply to
        each chosen request. A reply that is delayed when the block ends is still sent at its time.

        Args:
            seconds: How long, by the server's clock.
            operation: As for `drop_before`, and so are the others; `times` is None by default.

        Order:
            What follows on the same connection, events too, waits for the delayed reply.
        """
        if not 0 <= seconds < math.inf:
            raise ValueError(f"a delay lasts 0 or more seconds, not {seconds!r}")
        return Fault("delay_replies", self, operation, seconds=seconds, **choice)

    def refuse_connections(self) -> Fault:
        """Close every new connection at once; open connections stay."""
        return Fault("refuse_connections", self)

    # -- for the server -----------------------------------------------------------------------------------

    def _striking(self, point: str, session: int = 0, request: RequestBytes | None = None) -> list[Fault]:
        """Return the faults that strike at a point, and count the hits."""
        return [fault for fault in self._faults if fault._point == point and fault._takes(request, session)]

    def _fault_ended(self, fault: Fault) -> None:
        self._faults.remove(fault)
