"""A learner: follows the leader as a follower, which votes, or as an observer, which does not.

After Learner, Follower, Observer and LearnerSessionTracker of the real server.
"""

from collections import deque
from collections.abc import Callable
from typing import Any, Final

from tests.simulation.ensemble.disk import Disk
from tests.simulation.ensemble.history import CREATE_SESSION, SYNC, WRITES, ClientConnection, Pending, Transaction
from tests.simulation.ensemble.leader import INIT_LIMIT, SYNC_LIMIT, Leader
from tests.simulation.ensemble.peers import CLOSED, Message, PeerLink
from tests.simulation.ensemble.server import SimulatedServer

_FORWARDS: Final = WRITES | {SYNC}
_DOWN: Final = (0.5, 4.0)  # ticks until a process that has ended is started again
_IN_ORDER: Final = frozenset(("commit", "inform", "synced"))  # messages that wait while the server lags


class Learner:
    """The role of a follower or an observer.

    Arguments: `server`; `leader`, the server that leads.
    """

    forwards = _FORWARDS

    def __init__(self, server: SimulatedServer, leader: SimulatedServer) -> None:
        self.server = server
        self.name = "follower" if server.is_voter else "observer"
        self.leader = leader
        self.is_serving = False
        self._touched: dict[int, int] = {}  # what the next ping of the leader takes along
        self._waiting: deque[Pending] = deque()  # its clients' requests that have to come back from the leader
        self._disk = Disk(server, server.habits.flush, self._flushed)
        self._committed = 0
        self._late: deque[Message] = deque()  # what is committed, and the answers to syncs, while the server lags
        self._heard = server.world.now
        self._limit = 0.0
        self._watches = 0
        self._link = PeerLink(server.network, server, leader, _at_leader(leader), self._received)

    def begin(self) -> None:
        """Join the leader."""
        self._link.to_leader(("join", self.server.is_voter))
        self._expect_within(INIT_LIMIT)

    def resign(self) -> None:
        self.is_serving = False
        self._link.close_by_learner()

    def _expect_within(self, ticks: int) -> None:
        """Give the leader up when it is silent for longer than this; what was said before counts no more."""
        self._limit = ticks * self.server.settings.tick_time
        self._watches += 1
        self._watch(self._watches)

    def _watch(self, number: int) -> None:
        server = self.server
        if server.role is not self or number != self._watches:
            return
        left = self._heard + self._limit - server.world.now
        if left <= 0:
            server.take_role(None)
        else:
            server.after(left + 1e-6, self._watch, number)

    # -- clients ----------------------------------------------------------------------------------------------------

    def touch(self, session_id: int, timeout_ms: int) -> bool:
        self._touched[session_id] = timeout_ms
        return True

    def in_order(self, call: Callable[..., None], *args: Any) -> None:
        call(*args)

    def submit(self, pending: Pending) -> None:
        self._waiting.append(pending)
        self._link.to_leader(("request", pending))

    def revalidate(self, client: ClientConnection) -> None:
        self._link.to_leader(("revalidate", client, client.session_id, client.timeout_ms))

    # -- the leader -------------------------------------------------------------------------------------------------

    def _received(self, link: PeerLink, message: Message) -> None:
        server = self.server
        if server.role is not self:
            return
        self._heard = server.world.now
        if message[0] in _IN_ORDER and (self._late or server.is_lagging):
            self._late.append(message)
        else:
            self._take(message)

    def catch_up(self) -> None:
        late, server = self._late, self.server
        while late and server.role is self and not server.is_lagging:
            self._take(late.popleft())

    def _take(self, message: Message) -> None:
        server = self.server
        name, *args = message
        match name:  # the most frequent first
            case "proposal":
                server.log.append(args[0])
                self._disk.write(args[0].zxid)
            case "commit":
                self._committed = args[0]
                self._apply()
            case "ping":
                touched, self._touched = self._touched, {}
                self._link.to_leader(("ping", touched))
            case "inform":
                server.log.append(args[0])
                self._committed = args[0].zxid
                self._apply()
            case "synced":
                self._synced(args[0])
            case "revalidated":
                client, is_valid = args
                server.admit(client, is_valid=is_valid)
            case "closed":
                server.take_role(None)
            case "history":
                self._take_history(*args)
            case "new leader":
                self._expect_within(SYNC_LIMIT)
                self._link.to_leader(("has history",))
            case "up to date":
                self._committed = max(self._committed, args[0])
                self.is_serving = True
                self._apply()

    def _flushed(self, zxid: int) -> None:
        if self.server.role is self:
            self._link.to_leader(("ack", zxid))

    def claim(self, transaction: Transaction) -> Pending | None:
        """Return the first request that waits here, if it has the session and the xid of `transaction`.

        Whether it is what the transaction was made of is not looked at (CommitProcessor.run, with matchSyncs): a
        request of the session's former connection, to another server, may have the same xid.
        """
        made_of = transaction.pending
        if made_of is None or not self._waiting or not _looks_like(self._waiting[0], made_of):
            return None
        return self._waiting.popleft()

    def _synced(self, pending: Pending) -> None:
        """Answer a sync; if it has been answered by the commit of another request, the process ends."""
        server = self.server
        if self._waiting and self._waiting[0] is pending:
            self._waiting.popleft()
            server.synced(pending)
        else:
            server.kill()
            seconds = server.settings.tick_time * server.world.rng.uniform(*_DOWN)
            server.world.after(seconds, server.start)

    def _take_history(self, history: list[Transaction], epoch: int) -> None:
        server = self.server
        if epoch < server.accepted_epoch:  # a former leader, which does not know it yet
            server.take_role(None)
            return
        assert server.applied <= len(history), f"{server.name} has applied what its leader has not"
        if server.applied:
            assert history[server.applied - 1] is server.log[server.applied - 1], "two histories"
        server.log[:] = history
        server.current_epoch = server.accepted_epoch = epoch

    def _apply(self) -> None:
        server = self.server
        while self.is_serving and server.applied < len(server.log):
            if server.log[server.applied].zxid > self._committed:
                return
            entry = server.apply_next()
            if entry.opcode == CREATE_SESSION:
                # Also when it carries out what it has missed (LearnerSessionTracker.commitSession).
                self._touched[entry.session_id] = entry.timeout_ms


def _looks_like(one: Pending, other: Pending) -> bool:
    return one.xid == other.xid and one.client.session_id == other.client.session_id


def _at_leader(leader: SimulatedServer) -> Callable[[PeerLink, Message], None]:
    """Return what takes the messages to `leader`: its role may have changed when they arrive."""

    def received(link: PeerLink, message: Message) -> None:
        if isinstance(leader.role, Leader):
            leader.role.received(link, message)
        elif message is not CLOSED:
            link.close_by_leader()

    return received
