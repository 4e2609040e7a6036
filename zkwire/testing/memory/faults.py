"""Faults at exact points: which requests they hit, how often they have struck, and how long they are active.

Knows requests as bytes and sessions as numbers, and knows no socket: the server asks which faults a request meets, and
carries them out.
"""

from __future__ import annotations

import asyncio
import logging
import math
import re
from collections.abc import Callable
from types import TracebackType
from typing import Any, Final, Self, TypeAlias, TypeVar

from zkwire.errors import ServerError
from zkwire.wire.jute import Record, record
from zkwire.wire.multi import MultiReadRequest, MultiRequest
from zkwire.wire.primitives import DecodeError, UString
from zkwire.wire.records import RequestHeader
from zkwire.wire.requests import PingRequest, Request

_LOGGER = logging.getLogger("zkwire.testing")

Operation: TypeAlias = str | int | type[Request[Any]] | None
PathPattern: TypeAlias = str | re.Pattern[str] | None
Refusal: TypeAlias = int | ServerError | type[ServerError]

# A name means all the requests that do this; a class or a number means exactly one kind of request.
_OPCODES: Final[dict[str, frozenset[int]]] = {
    "create": frozenset({1, 15, 19, 21}),
    "delete": frozenset({2}),
    "exists": frozenset({3}),
    "getData": frozenset({4}),
    "setData": frozenset({5}),
    "getACL": frozenset({6}),
    "setACL": frozenset({7}),
    "getChildren": frozenset({8, 12}),
    "sync": frozenset({9}),
    "ping": frozenset({11}),
    "multi": frozenset({14}),
    "reconfig": frozenset({16}),
    "checkWatches": frozenset({17}),
    "removeWatches": frozenset({18}),
    "multiRead": frozenset({22}),
    "auth": frozenset({100}),
    "setWatches": frozenset({101, 105}),
    "sasl": frozenset({102}),
    "getEphemerals": frozenset({103}),
    "getAllChildrenNumber": frozenset({104}),
    "addWatch": frozenset({106}),
    "whoAmI": frozenset({107}),
    "closeSession": frozenset({-11}),
}
_HEADER_BYTES: Final = 8
_SINGLE_PATH: Final = frozenset({1, 2, 3, 4, 5, 6, 7, 8, 9, 12, 15, 17, 18, 19, 21, 103, 104, 106})


@record
class _Subject(Record):
    path: UString


class Asked:
    """A request as it arrived: its xid, its opcode, and the nodes that it names."""

    def __init__(self, payload: bytes) -> None:
        header, at = RequestHeader.decode(payload, 0)
        self.xid = header.xid
        self.opcode = header.opcode
        self._payload = payload
        self._at = at

    def paths(self) -> list[str]:
        """Return the node that the request names, or those that the operations of a transaction name."""
        try:
            if self.opcode in _SINGLE_PATH:
                return [_Subject.decode(self._payload, self._at)[0].path]
            if self.opcode == MultiRequest.opcode:
                return _paths(MultiRequest.decode(self._payload, self._at)[0])
            if self.opcode == MultiReadRequest.opcode:
                return _paths(MultiReadRequest.decode(self._payload, self._at)[0])
        except DecodeError:
            pass  # a request that cannot be decoded names no node; the server answers it as without faults
        return []


def _paths(request: MultiRequest | MultiReadRequest) -> list[str]:
    return [operation.subject for operation in request.operations if operation.subject is not None]


class Selector:
    """Chooses requests: those that fit, from the `nth` on, `times` of them (None: all)."""

    def __init__(
        self, operation: Operation, path: PathPattern, session: int | None, nth: int, times: int | None
    ) -> None:
        if nth < 1 or (times is not None and times < 1):
            raise ValueError(f"nth and times count from 1, not nth={nth!r}, times={times!r}")
        self.opcodes = _opcodes(operation)
        self.path = path
        self.session = None if session is None else signed(session)
        # Without any property of a request, a fault is about all output, not only about replies.
        self.is_everything = operation is None and path is None and nth == 1 and times is None
        self._to_pass = nth - 1
        self._left = times

    def takes(self, asked: Asked, session: int) -> bool:
        """Return whether the fault hits this request, and count it."""
        if not self._fits(asked, session) or self._left == 0:
            return False
        if self._to_pass:
            self._to_pass -= 1
            return False
        if self._left is not None:
            self._left -= 1
        return True

    def _fits(self, asked: Asked, session: int) -> bool:
        if self.session is not None and self.session != session:
            return False
        if self.opcodes is None:
            if asked.opcode == PingRequest.opcode:
                return False  # a ping comes at any time, and would be hit in place of the request that the test means
        elif asked.opcode not in self.opcodes:
            return False
        if self.path is None:
            return True
        if isinstance(self.path, str):
            return self.path in asked.paths()
        return any(self.path.fullmatch(path) for path in asked.paths())


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


class Fault:
    """A fault, active from its creation until `end` or the end of its `with` or `async with` block.

    `hits` counts how often it has struck. A fault that ends without a hit logs a warning, because the test has
    then shown nothing.
    """

    def __init__(self, name: str, selector: Selector, ended: Callable[[Fault], None]) -> None:
        self.name = name
        self.selector = selector
        self.hits = 0
        self.is_over = False
        self._ended = ended
        self._waiting: list[tuple[int, asyncio.Future[None]]] = []

    async def until_hit(self, hits: int = 1) -> None:
        """Wait until the fault has struck `hits` times in all."""
        if self.hits < hits:
            future: asyncio.Future[None] = asyncio.get_running_loop().create_future()
            self._waiting.append((hits, future))
            await future

    def end(self) -> None:
        """Let the fault strike no more; nothing happens when it is over already."""
        if not self.is_over:
            self.is_over = True
            if not self.hits:
                _LOGGER.warning("%s never hit anything", self)
            self._ended(self)

    def strike(self) -> None:
        """Count a hit."""
        self.hits += 1
        for wanted, future in self._waiting:
            if wanted <= self.hits and not future.done():
                future.set_result(None)
        self._waiting = [(wanted, future) for wanted, future in self._waiting if not future.done()]

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.end()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.end()

    def __str__(self) -> str:
        return f"the fault {self.name}"

    def __repr__(self) -> str:
        return f"<{self}, hits: {self.hits}>"


class DropBefore(Fault):
    """Drops the connection instead of carrying out a request."""


class DropAfter(Fault):
    """Carries out a request and drops the connection instead of answering."""


class Answering(Fault):
    """Answers a request with the error `code` instead of carrying it out."""

    def __init__(self, code: int, selector: Selector, ended: Callable[[Fault], None]) -> None:
        super().__init__("answering", selector, ended)
        self.code = code


class Delay(Fault):
    """Keeps back replies, and what follows them, for `seconds`."""

    def __init__(self, seconds: float, selector: Selector, ended: Callable[[Fault], None]) -> None:
        super().__init__("delay_replies", selector, ended)
        self.seconds = seconds


class Hold(Fault):
    """Keeps back replies, and what follows them, until it ends."""

    def release(self) -> None:
        """Send what was held, in its order, and hold nothing more; the end of the block does the same."""
        self.end()


class Refusing(Fault):
    """Closes new connections at once."""


F = TypeVar("F", bound=Fault)


class Faults:
    """The faults of a server; each method returns a fault that is active at once, and that `with` can bound.

    Arguments that choose requests: `operation`, a name in ZooKeeper's own terms ("create" means every kind of
    create, "getChildren" and "setWatches" for both of theirs), a request class or an opcode for exactly that request,
    None for every request but a ping; `path`, the node named by the request, or by any operation of a transaction: a
    str for exactly that node, a compiled pattern that must match the whole path, None for any; `session`, a session's
    id, None for all; `nth`, the first of the fitting requests that is hit, from 1; `times`, how many are hit, None for
    all from there on.
    """

    def __init__(self) -> None:
        self._faults: list[Fault] = []

    def drop_before(
        self,
        operation: Operation = None,
        *,
        path: PathPattern = None,
        session: int | None = None,
        nth: int = 1,
        times: int | None = 1,
    ) -> Fault:
        """Drop the connection when a chosen request arrives; the request is not carried out."""
        selector = Selector(operation, path, session, nth, times)
        return self._begin(DropBefore("drop_before", selector, self._fault_ended))

    def drop_after(
        self,
        operation: Operation = None,
        *,
        path: PathPattern = None,
        session: int | None = None,
        nth: int = 1,
        times: int | None = 1,
    ) -> Fault:
        """Carry out a chosen request and drop its connection in place of the reply."""
        selector = Selector(operation, path, session, nth, times)
        return self._begin(DropAfter("drop_after", selector, self._fault_ended))

    def answering(
        self,
        operation: Operation,
        error: Refusal,
        *,
        path: PathPattern = None,
        session: int | None = None,
        nth: int = 1,
        times: int | None = None,
    ) -> Fault:
        """Answer requests with `error` (a ServerError, its class, or a code) without carrying them out."""
        code = error if isinstance(error, int) else error.code
        if code == 0:
            raise ValueError("0 is the code of success: give an error that has a code")
        return self._begin(Answering(code, Selector(operation, path, session, nth, times), self._fault_ended))

    def hold_replies(
        self,
        operation: Operation = None,
        *,
        path: PathPattern = None,
        session: int | None = None,
        nth: int = 1,
        times: int | None = None,
    ) -> Hold:
        """Keep back replies until `release`, or until the end of the block; the requests are carried out.

        Without an argument, or with `session` alone, it holds all output from now on; otherwise it holds the reply to
        each chosen request.

        Order: what follows on the same connection, events too, waits behind the held reply.
        """
        selector = Selector(operation, path, session, nth, times)
        return self._begin(Hold("hold_replies", selector, self._fault_ended))

    def delay_replies(
        self,
        seconds: float,
        operation: Operation = None,
        *,
        path: PathPattern = None,
        session: int | None = None,
        nth: int = 1,
        times: int | None = None,
    ) -> Fault:
        """Keep back replies for `seconds` of the server's clock.

        Without an argument, or with `session` alone, it delays all output from now on; otherwise it delays the reply to
        each chosen request. A reply that is delayed when the block ends is still sent at its time.

        Order: what follows on the same connection, events too, waits behind the delayed reply.
        """
        if not 0 <= seconds < math.inf:
            raise ValueError(f"a delay lasts 0 or more seconds, not {seconds!r}")
        return self._begin(Delay(seconds, Selector(operation, path, session, nth, times), self._fault_ended))

    def refuse_connections(self) -> Fault:
        """Close every new connection at once; open connections stay."""
        return self._begin(Refusing("refuse_connections", Selector(None, None, None, 1, None), self._fault_ended))

    # -- for the server -----------------------------------------------------------------------------------

    def _hit_by(self, payload: bytes, session: int) -> tuple[int, list[Fault]]:
        """Return the xid of a request and the faults that it meets, and count the hits."""
        if len(payload) < _HEADER_BYTES:
            return 0, []
        asked = Asked(payload)
        by_request = [fault for fault in self._faults if not (isinstance(fault, Refusing) or _keeps_all(fault))]
        hit = [fault for fault in by_request if fault.selector.takes(asked, session)]
        for fault in hit:
            fault.strike()
        return asked.xid, hit

    def _keeping_back(self, session: int) -> list[Fault]:
        """Return the faults that keep back all output to a session, and count the hits."""
        kept = [fault for fault in self._faults if _keeps_all(fault) and fault.selector.session in (None, session)]
        for fault in kept:
            fault.strike()
        return kept

    def _refuses(self) -> bool:
        """Return whether a new connection must be closed, and count the hits."""
        refusing = [fault for fault in self._faults if isinstance(fault, Refusing)]
        for fault in refusing:
            fault.strike()
        return bool(refusing)

    def _begin(self, fault: F) -> F:
        self._faults.append(fault)
        return fault

    def _fault_ended(self, fault: Fault) -> None:
        self._faults.remove(fault)


def _keeps_all(fault: Fault) -> bool:
    return isinstance(fault, Hold | Delay) and fault.selector.is_everything
