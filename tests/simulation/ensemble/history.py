"""What servers agree on: transactions in one order, and one server's copy of what they have made.

All servers carry out the same transactions in the same order, so their trees differ only in how far they have come.
"""

from collections import deque
from dataclasses import dataclass, field
from typing import Any, Final

from tests.simulation.links import Connection as Wire
from zkwire.errors import MarshallingError, RuntimeInconsistencyError
from zkwire.testing.memory import writes
from zkwire.testing.memory.operations import OPERATIONS
from zkwire.testing.memory.refusal import Refused
from zkwire.testing.memory.sessions import ServerSession
from zkwire.testing.memory.state import ServerConnection, Settings, State
from zkwire.wire.frames import FrameReader
from zkwire.wire.multi import ErrorResult, MultiReply, MultiRequest
from zkwire.wire.requests import CloseSessionRequest, Nothing, SyncRequest

HEADER_SIZE: Final = 8  # of a request: xid and opcode
CREATE_SESSION: Final = -10
DELETE_CONTAINER: Final = 20
CLOSE_SESSION: Final = CloseSessionRequest.opcode
MULTI: Final = MultiRequest.opcode
SYNC: Final = SyncRequest.opcode
WRITES: Final = frozenset(
    (CREATE_SESSION, CLOSE_SESSION, MULTI, *(opcode for opcode, each in OPERATIONS.items() if each.write is not None))
)
_ADDRESS: Final = "10.0.0.1"
_FRAME_LIMIT: Final = 1_048_575
_ERROR_TYPE: Final = -1


class ClientConnection(ServerConnection):
    """A server's side of a client's connection.

    `wire` is the link; `frames` cuts its bytes; `heard` is when the last ones came; `session_id` and `timeout_ms` are
    those of the handshake, and `session` is set once that is through; `early` are the requests that came before that.
    `word` are the first bytes, until there are four.
    """

    __slots__ = ("early", "frames", "heard", "session_id", "timeout_ms", "wire", "word")

    def __init__(self, wire: Wire | None, now: float) -> None:
        super().__init__(_ADDRESS, 0, now)
        self.wire = wire
        self.frames = FrameReader(_FRAME_LIMIT)
        self.heard = now
        self.early: deque[bytes] = deque()
        self.session_id = 0
        self.timeout_ms = 0
        self.word: bytes | None = b""


@dataclass(slots=True, eq=False)
class Pending:
    """A client's request at its server.  `waits` is whether it must come back from the leader before it is answered."""

    client: ClientConnection
    xid: int
    opcode: int
    payload: bytes
    waits: bool


@dataclass(slots=True, eq=False)
class Transaction:
    """One entry of the history.

    Arguments: `zxid`; `time`, ms since 1970 by the leader's clock; `session_id`; `opcode` and `payload`, the request
    with its header; `timeout_ms`, of a new session; `refusal`, the error code with which the leader has refused the
    session, 0 for none; `pending`, the request that it answers.
    """

    zxid: int
    time: int
    session_id: int
    opcode: int
    payload: bytes = b""
    timeout_ms: int = 0
    refusal: int = 0
    pending: Pending | None = field(default=None, repr=False)
    _decoded: Any = field(default=None, repr=False)

    @property
    def request(self) -> Any:
        """The decoded request: each server needs it, and none changes it."""
        if self._decoded is None:
            self._decoded = OPERATIONS[self.opcode].request.decode(self.payload, HEADER_SIZE)[0]
        return self._decoded


class Replica(State):
    """One server's copy: the tree, the sessions with their timeouts, and the watches of its own clients."""

    def __init__(self, settings: Settings) -> None:
        super().__init__(settings)
        self._nobody = ClientConnection(None, 0.0)
        self._time = 0

    def wall_ms(self) -> int:
        """Return the time of the transaction that is being carried out, by the clock of its leader."""
        return self._time

    def apply(
        self, transaction: Transaction, client: ClientConnection | None, pending: Pending | None = None
    ) -> tuple[int, bytes]:
        """Carry out `transaction` and send its events; return the error code and the body of the reply.

        Arguments: `client`, the connection that the request came on, if it is one of this server's; without it the body
        is empty, because no client gets it; `pending`, the request that is answered, not always the transaction's own.
        """
        self.last_zxid = transaction.zxid
        self._time = transaction.time
        opcode, session_id = transaction.opcode, transaction.session_id
        sessions = self.sessions
        if opcode == CREATE_SESSION:
            session: ServerSession[ServerConnection] = ServerSession(session_id)
            session.timeout_ms = transaction.timeout_ms
            sessions.by_id[session_id] = session
            return 0, b""
        if opcode == CLOSE_SESSION:
            for path in self.tree.ephemerals(session_id):
                writes.remove(self, path)
            sessions.by_id.pop(session_id, None)
            return 0, b""
        if opcode == DELETE_CONTAINER:
            path = transaction.payload.decode()
            node = self.tree.nodes.get(path)
            if node is not None and not node.children:  # PrepRequestProcessor.pRequest2Txn
                writes.remove(self, path)
            return 0, b""
        asked = 0 if client is None or pending is None else pending.opcode
        if client is None:
            client = self._nobody
            client.session = sessions.by_id.get(session_id) or ServerSession(session_id)
        if opcode == MULTI:
            request = transaction.request
            if transaction.refusal:
                return 0, _all_refused(transaction.refusal, len(request.operations))
            return self._answer(asked, pending, results=writes.multi(self, client, request))
        if transaction.refusal:
            return transaction.refusal, b""
        operation = OPERATIONS[opcode]
        assert operation.write is not None
        try:
            change = operation.write(self, client, transaction.request)
        except Refused as refused:
            return refused.code, refused.body
        change.send_events(self)
        return self._answer(asked, pending, change)

    def _answer(
        self, asked: int, pending: Pending | None, change: writes.Change | None = None, results: bytes | None = None
    ) -> tuple[int, bytes]:
        """Return the code and the body for a request of the kind `asked`, 0 for none (FinalRequestProcessor).

        The kind of the request decides, not that of the transaction that has come back for it.
        """
        if not asked:
            return 0, b""
        if asked == SYNC:
            assert pending is not None
            return self.read(pending.client, pending)
        if asked == MULTI:
            return (MarshallingError.code, b"") if results is None else (0, results)
        operation = OPERATIONS.get(asked)
        if operation is None or operation.request.reply is Nothing:
            return 0, b""
        return (MarshallingError.code, b"") if change is None else (0, writes.body(operation.request, change))

    def stand_in(self, session_id: int) -> ServerSession[ServerConnection]:
        """Return a session that this copy does not have yet."""
        return ServerSession(session_id)

    def read(self, client: ClientConnection, pending: Pending) -> tuple[int, bytes]:
        """Carry out a request that changes no node; return the error code and the body of the reply."""
        operation = OPERATIONS[pending.opcode]
        assert operation.read is not None
        request: Any = operation.request.decode(pending.payload, HEADER_SIZE)[0]
        try:
            return 0, operation.read(self, client, request)
        except Refused as refused:
            return refused.code, refused.body


def _all_refused(code: int, count: int) -> bytes:
    codes = [code] + [RuntimeInconsistencyError.code] * (count - 1)
    return MultiReply([ErrorResult(each) for each in codes], [_ERROR_TYPE] * count).encode()
