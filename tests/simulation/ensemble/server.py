"""One server of the ensemble: its clients, its disk, and its role, which is leader, learner or none.

A server answers reads from its own copy.  What must go through the leader it gives to its role, and answers it when the
role brings it back; requests of one session are answered in their order.
"""

import struct
from collections import deque
from collections.abc import Callable
from typing import Any, Final, Protocol

from tests.simulation.ensemble.habits import Habits
from tests.simulation.ensemble.history import (
    CLOSE_SESSION,
    CREATE_SESSION,
    MULTI,
    ClientConnection,
    Pending,
    Replica,
    Transaction,
)
from tests.simulation.ensemble.process import Process
from tests.simulation.links import Connection as Wire
from tests.simulation.links import Network
from zkwire.errors import SessionMovedError, ThrottledError
from zkwire.testing.memory.four_letter_words import VERSION
from zkwire.testing.memory.sessions import password_of
from zkwire.testing.memory.state import Settings
from zkwire.wire.frames import LENGTH
from zkwire.wire.records import PING_XID, ConnectRequest, ConnectResponse
from zkwire.wire.requests import PingRequest

_HEADER: Final = struct.Struct(">ii")
_PING: Final = PingRequest.opcode
_HANDSHAKE_WITHIN: Final = 10.0  # seconds
_ONE_BY_ONE: Final = 0.2  # how often several frames are not sent together
_NO_PASSWORD: Final = bytes(16)
_NOT_SERVING: Final = b"This ZooKeeper instance is not currently serving requests\n"
_NEVER_REFUSED: Final = (_PING, CLOSE_SESSION)  # Request.isThrottlable


class Role(Protocol):
    """What a server is in the ensemble.

    `name` is that of the mode.  `is_serving` is whether clients are let in.  `forwards` are the opcodes that go through
    the leader and come back.
    """

    name: str
    is_serving: bool
    forwards: frozenset[int]

    def touch(self, session_id: int, timeout_ms: int) -> bool:
        """Note that a client was heard; return False if its session is known to be gone."""

    def in_order(self, call: Callable[..., None], *args: Any) -> None:
        """Make a call after those that wait for the leader's thread that orders requests; at once on a learner."""

    def submit(self, pending: Pending) -> None:
        """Have a request carried out by the ensemble."""

    def claim(self, transaction: Transaction) -> Pending | None:
        """Return the request of a client of this server or, on a leader, of any that `transaction` answers."""

    def revalidate(self, client: ClientConnection) -> None:
        """Ask whether the session of a client that reconnects lives; `SimulatedServer.admit` gets the answer."""

    def catch_up(self) -> None:
        """Carry out what was committed while the server lagged."""

    def resign(self) -> None:
        """Give up the role."""


class SimulatedServer(Process):
    """One server.

    Arguments: `network`; `name`; `number`, which makes its session ids; `settings`; `habits`; `is_voter`, False for an
    observer; `on_applied`, called when it has carried out a transaction, with the transaction's number and its copy.

    `log`, `current_epoch` and `accepted_epoch` are on its disk.  `replica` is its copy, into which the first `applied`
    entries of the log have gone.  `throttles` is how likely it refuses a request because of overload.  `is_lagging` is
    whether it carries out nothing of what the leader commits.
    """

    def __init__(
        self,
        network: Network,
        name: str,
        number: int,
        settings: Settings,
        habits: Habits,
        *,
        is_voter: bool,
        on_applied: Callable[[int, Replica], None],
    ) -> None:
        super().__init__(network.world, name, habits)
        self.network = network
        self.settings = settings
        self.is_voter = is_voter
        self._on_applied = on_applied
        self.role: Role | None = None
        self.log: list[Transaction] = []
        self.current_epoch = self.accepted_epoch = 0
        self.replica = Replica(settings)
        self.applied = 0
        self.throttles = 0.0
        self._lags = 0
        self.clients: dict[Wire, ClientConnection] = {}
        self._queues: dict[int, deque[Pending]] = {}
        self._throttler: deque[tuple[float, Callable[..., None], tuple[Any, ...]]] = deque()
        self._is_stalled = False
        self._waited = 0.0
        self._idle_base = network.world.rng.uniform(0, habits.idle) if habits.idle else 0.0
        self._next_session = number << 56 | 1
        network.listeners[name] = self

    @property
    def last_zxid(self) -> int:
        """The zxid of the last entry of its log."""
        return self.log[-1].zxid if self.log else 0

    # -- up and down ----------------------------------------------------------------------------------------------

    def take_role(self, role: Role | None) -> None:
        """Take another role, or none; all clients are dropped."""
        former, self.role = self.role, role
        self._queues.clear()
        self._throttler.clear()
        if former is not None:
            former.resign()
        for wire in list(self.clients):
            self.drop(wire)

    def kill(self) -> None:
        """Die: all connections are reset, the disk stays."""
        for wire in list(self.clients):
            self.drop(wire, reset=True)
        self.take_role(None)
        self._is_stalled = False
        self.die()

    def start(self) -> None:
        """Start again after `kill`, without a role."""
        self.revive()

    # -- a server that lags behind ----------------------------------------------------------------------------------

    @property
    def is_lagging(self) -> bool:
        """Whether a follower or observer carries out nothing of what is committed, and does all else."""
        return self._lags > 0

    def lag(self) -> None:
        """Begin to lag, until `catch_up` is called as often.

        The real server has a queue for what is committed and for the answers to syncs (CommitProcessor).  It takes one
        transaction out of it at a time, and between two of them it answers all reads that have come.  Handshakes and
        the leader's pings do not go through this queue.
        """
        self._lags += 1

    def catch_up(self) -> None:
        """Undo one `lag`."""
        self._lags -= 1
        self.post(self._catch_up)

    def _catch_up(self) -> None:
        if not self._lags and self.role is not None:
            self.role.catch_up()

    # -- for the links ----------------------------------------------------------------------------------------------

    def accept(self, connection: Wire) -> bool:
        if self.is_up:
            self.clients[connection] = ClientConnection(connection, self.world.now)
            self.after(self._until_idle(_HANDSHAKE_WITHIN), self._drop_without_handshake, connection)
        return self.is_up

    def _drop_without_handshake(self, wire: Wire) -> None:
        client = self.clients.get(wire)
        if client is not None and not client.timeout_ms:
            self.drop(wire)

    def _until_idle(self, seconds: float) -> float:
        """Return how long it takes to close a connection that is idle for so long.

        Connections are closed in rounds, each `habits.idle` seconds (NIOServerCnxnFactory.ConnectionExpirerThread).
        """
        interval = self.habits.idle
        if not interval:
            return seconds
        now = self.world.now + self._idle_base
        return (int((now + seconds) / interval) + 1) * interval - now

    def _drop_when_idle(self, wire: Wire) -> None:
        """Close a connection on which nothing has come for a session timeout, as the real server does."""
        client = self.clients.get(wire)
        if client is not None:
            left = client.heard + client.timeout_ms / 1000 - self.world.now
            if left > 0:
                self.after(self._until_idle(left) + 0.001, self._drop_when_idle, wire)
            else:
                self.drop(wire)

    def received(self, connection: Wire, data: bytes) -> None:
        if self.is_running:
            self._received(connection, data)
        else:
            self.post(self._received, connection, data)

    def lost(self, connection: Wire) -> None:
        self.post(self._lost, connection)

    def _lost(self, wire: Wire) -> None:
        client = self.clients.pop(wire, None)
        if client is not None:
            self.replica.close(client)

    def drop(self, wire: Wire, *, reset: bool = False) -> None:
        """Close a client's connection."""
        self._lost(wire)
        wire.close(reset=reset)

    # -- the handshake ------------------------------------------------------------------------------------------------

    def _received(self, wire: Wire, data: bytes) -> None:
        client = self.clients.get(wire)
        if client is None:
            return
        client.heard = self.world.now
        if client.word is not None:
            data = client.word = client.word + data
            if len(data) < 4:
                return
            client.word = None
            if data[:4] == b"srvr":
                wire.send(self._srvr())
                self.drop(wire)
                return
        for payload in client.frames.feed(data):
            if client.closing:
                break
            if not client.timeout_ms:
                self._handshake(client, payload)
            elif client.session is None or client.early:
                client.early.append(payload)
            else:
                self._submit(client, payload)
        self.flush()

    def _srvr(self) -> bytes:
        """Return the answer to the word of four letters (SrvrCommand, of StatCommand.java)."""
        role = self.role
        if role is None or not role.is_serving:
            return _NOT_SERVING
        zxid, count = self.replica.last_zxid, len(self.replica.tree.nodes)
        return (
            f"Zookeeper version: {VERSION}\nLatency min/avg/max: 0/0.0/0\nReceived: 1\nSent: 1\n"
            f"Connections: {len(self.clients)}\nOutstanding: 0\nZxid: {zxid:#x}\nMode: {role.name}\n"
            f"Node count: {count}\n"
        ).encode()

    def _early(self, client: ClientConnection) -> None:
        """Carry out what came before the answer to the handshake: the real server does not read it earlier."""
        while client.early and not client.closing:
            self._submit(client, client.early.popleft())
        self.flush()

    def _handshake(self, client: ClientConnection, payload: bytes) -> None:
        """Take the first frame; the decisions come in the order in which the real server makes them."""
        wire = client.wire
        assert wire is not None
        request = ConnectRequest.decode(payload, 0)[0]
        if self.role is None or not self.role.is_serving or request.last_zxid_seen > self.replica.last_zxid:
            self.drop(wire)
            return
        shortest, longest = self.settings.timeout_range_ms()
        client.timeout_ms = min(max(request.timeout, shortest), longest)
        self._drop_when_idle(wire)
        if request.session_id == 0:
            client.session_id = self._next_session
            self._next_session += 1
            pending = Pending(client, 0, CREATE_SESSION, b"", waits=True)
            self.role.in_order(self._queue_up, pending)
            return
        client.session_id = request.session_id
        for other in [each for each in self.clients.values() if each.session_id == request.session_id]:
            if other is not client and other.wire is not None:
                self.drop(other.wire)
        if request.password == password_of(request.session_id):
            self.role.revalidate(client)
        else:
            self.admit(client, is_valid=False)

    def admit(self, client: ClientConnection, *, is_valid: bool) -> None:
        """Answer a handshake."""
        if client.closing:
            return
        wire, session_id = client.wire, client.session_id
        assert wire is not None
        response = ConnectResponse(0, 0, 0, _NO_PASSWORD)
        if is_valid:
            response = ConnectResponse(0, client.timeout_ms, session_id, password_of(session_id))
            client.session = self.replica.sessions.by_id.get(session_id)
            if client.session is None:  # this server is behind: the session's own transaction is on its way
                client.session = self.replica.stand_in(session_id)
        body = response.encode() + b"\0"
        wire.send(LENGTH.pack(len(body)) + body)
        if not is_valid:
            self.drop(wire)
        elif client.early:
            self.post(self._early, client)

    # -- requests -------------------------------------------------------------------------------------------------

    def through_throttler(self, longest: float, call: Callable[..., None], *args: Any) -> None:
        """Have the thread of RequestThrottler make a call, after all that wait for it.

        Arguments: `longest`, for how many seconds at the most it is busy from now on, unless it is already.
        """
        if longest and not self._is_stalled:
            self._is_stalled = True
            self.after(longest * self.world.rng.random(), self._go_on_submitting)
        if self._is_stalled:
            self._throttler.append((self.world.now, call, args))
        else:
            call(*args)

    def _go_on_submitting(self) -> None:
        self._is_stalled = False
        while self._throttler:
            came, call, args = self._throttler.popleft()
            self._waited = self.world.now - came
            call(*args)
        self._waited = 0.0
        self.flush()

    def _submit(self, client: ClientConnection, payload: bytes) -> None:
        """Give a request to the throttler, which waits again and again while the server is overloaded."""
        longest = self.habits.stall if self.throttles else 0.0
        if longest or self._is_stalled:
            self.through_throttler(longest, self._request, client, payload)
        else:
            self._request(client, payload)

    def _is_refused(self, opcode: int) -> bool:
        """Whether a request has waited for too long (RequestThrottler.shouldThrottleOp, Request.isThrottlable).

        Without the habit of keeping requests, each one is refused or not by itself.
        """
        if not self.throttles or opcode in _NEVER_REFUSED:
            return False
        if self.habits.stall:
            return self._waited > self.habits.stall * (1 - self.throttles)
        return self.world.rng.random() < self.throttles

    def _request(self, client: ClientConnection, payload: bytes) -> None:
        if client.closing and self.throttles:
            return  # Request.isStale: an overloaded server drops it
        role = self.role
        assert role is not None
        assert client.session is not None
        xid, opcode = _HEADER.unpack_from(payload)
        if not role.touch(client.session_id, client.timeout_ms):
            return  # as the real leader, which drops requests of a session that it has expired
        if self._is_refused(opcode):
            pending = Pending(client, xid, 0, b"", waits=False)
        else:
            pending = Pending(client, PING_XID if opcode == _PING else xid, opcode, payload, opcode in role.forwards)
        role.in_order(self._queue_up, pending)

    def _queue_up(self, pending: Pending) -> None:
        """Put a request into its queue, and have it carried out by the ensemble if need be."""
        self.enqueue(pending)
        if pending.waits:
            assert self.role is not None
            self.role.submit(pending)
        self._answer_reads(pending.client.session_id)

    def enqueue(self, pending: Pending) -> None:
        """Put a request into the queue of its session, which outlives a connection.

        A leader puts the writes that come from its learners there, too.  So a sync on a new connection to the leader is
        answered behind the writes of the session's former connections, wherever those were.
        """
        self._queues.setdefault(pending.client.session_id, deque()).append(pending)

    def _take(self, pending: Pending) -> None:
        """Take a request that has come back out of its queue."""
        queue = self._queues.get(pending.client.session_id)
        if queue and pending in queue:
            assert queue[0] is pending, "requests of one session come back in their order"
            queue.popleft()

    def _answer_reads(self, session_id: int) -> None:
        """Answer the requests at the head of a session's queue that need no leader."""
        queue = self._queues.get(session_id)
        while queue and not queue[0].waits:
            request = queue.popleft()
            client = request.client
            if not client.closing:
                code, body = self.replica.read(client, request) if request.opcode else (ThrottledError.code, b"")
                self.replica.reply(client, request.xid, self.replica.last_zxid, code, body)
        if queue is not None and not queue:
            self._queues.pop(session_id, None)

    def synced(self, pending: Pending) -> None:
        """Answer a sync that has come back from the leader."""
        pending.waits = False
        self._answer_reads(pending.client.session_id)
        self.flush()

    def apply_next(self) -> Transaction:
        """Carry out the next entry of the log, and answer it if it came from a client of this server."""
        transaction = self.log[self.applied]
        self.applied += 1
        assert self.role is not None
        pending = self.role.claim(transaction)
        client = None
        has_queue = pending is not None and pending.client.session_id in self._queues
        if pending is not None:
            if has_queue:
                self._take(pending)
            if pending.client.wire in self.clients:
                client = pending.client
        self.replica.now = self.world.now
        code, body = self.replica.apply(transaction, client, pending)
        self._on_applied(self.applied, self.replica)
        if client is not None:
            assert pending is not None
            self._answer(client, pending, transaction, code, body)
        if has_queue:
            self._answer_reads(transaction.session_id)
        if transaction.opcode == CLOSE_SESSION:
            for wire, other in list(self.clients.items()):
                if other.session_id == transaction.session_id:
                    self._send(other)
                    self.drop(wire)
        self.flush()
        return transaction

    def _answer(
        self, client: ClientConnection, pending: Pending, transaction: Transaction, code: int, body: bytes
    ) -> None:
        assert client.wire is not None
        assert self.role is not None
        if pending.opcode == CREATE_SESSION:
            self.admit(client, is_valid=True)
            return
        if transaction.refusal == SessionMovedError.code and (pending.opcode != MULTI or self.role.name == "leader"):
            # FinalRequestProcessor: "a connection level error".  A learner finds it inside the results of a multi.
            self.drop(client.wire)
            return
        self.replica.reply(client, pending.xid, transaction.zxid, code, body)

    def flush(self) -> None:
        """Send the replies and events that were made."""
        for client in self.replica.take_dirty():
            assert isinstance(client, ClientConnection)
            self._send(client)

    def _send(self, client: ClientConnection) -> None:
        frames, client.outgoing = client.outgoing, []
        if not frames or client.wire is None:
            return
        # Its thread for output takes what is there by then: often all of it, at times frame by frame.
        if len(frames) > 1 and self.world.rng.random() < _ONE_BY_ONE:
            for frame in frames:
                client.wire.send(frame)
        else:
            client.wire.send(b"".join(frames))
