"""Whether a write whose answer was lost can still be carried out after the session has moved to another server.

Callers find out what became of such a write, and repeat it if it was not carried out.  So no read may come too early.
The leader carries out a write only if it comes through the server at which the session was resumed last, its *owner*
(SessionTrackerImpl.checkSession).  Once another server has answered a handshake, all that the former server has still
to pass on is refused.

Another handshake with the former server breaks this: it makes that server the owner again (Leader.revalidateSession),
and writes that came with it, or just before it, are carried out.  So each server is remembered that may have such a
write, until it is known to have passed everything on.  There are two cases:

- The client gives up a handshake after the loss, and another server resumes the session.  The handshake may come to the
  leader at any time: the server that has it is `doubtful`.  The client tries it once more, and otherwise ends the
  session.  When the former server answers, nothing of it is late any more: its requests and handshakes reach
  the leader in one order, and a server that resumes a session ends its earlier connection.
- Another server has resumed the session, callers have read, and now the client turns to the former one.  It must be
  `flushed` before it gets a handshake: a sync of another session comes to the leader after all that waited there.

A server is identified by its IP address and port, since a host's name may have several.  Servers behind a balancer with
one address count as one.

A handshake that comes to the leader late also gives the session the timeout that its server grants, counted from then.
So the client must count with that timeout before the handshake is sent.  What a server grants shows its first answer to
a handshake: another session is made there, and ended.  `PreparedServers` does this, and has servers flushed.
"""

import asyncio
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import TypeAlias

from zkwire.session.attempt import Attempt, RefusedError, SessionKey
from zkwire.session.hosts import Address
from zkwire.session.keepalive import Lifetime
from zkwire.session.transport import Link, OpenLink
from zkwire.session.witness import MakeWitness
from zkwire.wire.records import ConnectRequest

Peer: TypeAlias = tuple[str, int]  # the IP address and the port of a server


@dataclass(slots=True, eq=False, repr=False)
class LateServer:
    """A server that may have a write: its `address` in the list of servers; whether a handshake was given up there
    since; whether it was tried once more for that reason; whether another server has resumed the session since.
    """

    address: Address
    has_handshake: bool = False
    was_asked_again: bool = False
    is_former: bool = False


class LateWrites:
    """The servers through which a write of the present session may come late.

    `doubtful` is one through which a write may come although another server has resumed the session; None: what reads
    show from now on, they show after all writes that were lost.
    """

    def __init__(self) -> None:
        self.doubtful: LateServer | None = None
        self._servers: dict[Peer, LateServer] = {}

    def __bool__(self) -> bool:
        """Whether any write was lost since its server last answered a handshake."""
        return bool(self._servers)

    def lost(self, server: Peer, address: Address) -> None:
        """Record that the connection to `server` broke with a write unanswered."""
        self._servers.setdefault(server, LateServer(address))

    def given_up(self, server: Peer, address: Address) -> None:
        """Record that a handshake was sent to `server`, and given up before the answer."""
        # It may be the server of the lost write by another address.
        if any(not other.is_former for other in self._servers.values()):
            self._servers.setdefault(server, LateServer(address)).has_handshake = True

    def resumed(self, server: Peer, *, is_read_only: bool) -> None:
        """Record that `server` has answered a handshake; by itself, without the leader, if it is read-only."""
        self.doubtful = None
        if is_read_only:
            return
        self._servers.pop(server, None)
        self.doubtful = next((other for other in self._servers.values() if other.has_handshake), None)
        if self.doubtful is None:
            for former in self._servers.values():
                former.is_former = True

    def needs_flush(self, server: Peer) -> bool:
        """Return whether `server` must be flushed before it gets a handshake."""
        return server in self._servers and self._servers[server].is_former

    def flushed(self, server: Peer) -> None:
        """Record that `server` has passed on to the leader all that it had."""
        self._servers.pop(server, None)


def peer_of(link: Link, address: Address) -> Peer:
    """Return what identifies the server of `link`; `address` is the one that was connected to."""
    return link.peer or address


class PreparedServers:
    """Opens connections to servers that are prepared for a handshake.

    While connections break, one session serves all tries: the leader has to end each that is left.

    Attributes:
        late_writes: Those of the present session; to be replaced with the session.
        granted: The timeout that each server grants, in seconds, as far as it is known.
    """

    def __init__(self, lifetime: Lifetime, open_link: OpenLink, make_witness: MakeWitness) -> None:
        self._lifetime = lifetime
        self._open_link = open_link
        self._make_witness = make_witness
        self.late_writes: LateWrites = LateWrites()
        self.granted: dict[Peer, float] = {}
        self._left = SessionKey()

    def opener(self, address: Address, attempt: Attempt, within: float) -> OpenLink:
        """Return what opens a connection to `address` on which the handshake of `attempt` may be sent at once.

        A handshake of the other session may take `within` seconds, and then the limit of `attempt` begins again: a
        server that is slow, but answers in time, does not cost the session.
        """
        if not attempt.hello.session_id:
            return self._open_link

        async def open_prepared(make: Callable[[], Link], host: str, port: int) -> Link:
            link = await self._open_link(make, host, port)
            # A host's name may have several servers: each is prepared on the connection that was opened to it.
            while not self._is_prepared(server := peer_of(link, address)):
                await self._prepare(link, server, address, attempt.hello, within)
                attempt.limit.reschedule(asyncio.get_running_loop().time() + within)
                link = await self._open_link(make, host, port)
            if (granted := self.granted.get(server)) is not None:
                self._lifetime.resuming(asyncio.get_running_loop().time(), granted)
            return link

        return open_prepared

    def _is_prepared(self, server: Peer) -> bool:
        if self.late_writes.needs_flush(server):
            return False
        return server in self.granted or not self._lifetime.may_be_certain

    async def _prepare(self, link: Link, server: Peer, address: Address, hello: ConnectRequest, within: float) -> None:
        async def take_over(make: Callable[[], Link], host: str, port: int) -> Link:
            other = make()
            link.hand_over(other)
            return other

        witness = self._make_witness(take_over, address, within)
        needs_flush = self.late_writes.needs_flush(server)
        try:
            # With the last zxid of the client, so that a server that has seen less refuses it at once.
            other_hello = replace(hello, session_id=self._left.id, password=self._left.password)
            is_flushed = await witness.ask(other_hello, flush=needs_flush)
        except RefusedError:
            return  # the session that was left has expired: the next try makes a new one
        finally:
            self._left = witness.left
            if witness.granted:  # also if it has answered no more than the handshake: the next attempt need not ask
                self.granted[server] = witness.granted
        if is_flushed:
            self.late_writes.flushed(server)
        elif needs_flush:
            raise ConnectionError("a server without a quorum cannot show whether it has a late write")
