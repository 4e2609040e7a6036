"""What must be done at a server before it gets a handshake that resumes the client's session.

The handshake may come to the leader late: after the client has given it up, and has resumed the session elsewhere.  It
then does two things at the leader.  It gives the session the timeout that this server grants, counted from then.  And
it lets late writes through, see late_writes.py.  So two things must be true before it is sent:

- The client counts with a timeout that this server grants as well.  What a server grants shows its first answer to a
  handshake.  So before the first handshake that resumes the session, another session is made there, and ended.
- No write of the session waits in that server, where callers have looked already whether it was carried out.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable
from dataclasses import replace

from zkwire.session.attempt import RefusedError
from zkwire.session.credentials import Credential
from zkwire.session.hosts import Address
from zkwire.session.late_writes import LateWrites, Peer
from zkwire.session.lifetime import Lifetime
from zkwire.session.sasl import SaslMechanism
from zkwire.session.session_key import SessionKey
from zkwire.session.transport import Link, OpenLink
from zkwire.session.witness import Witness
from zkwire.wire.records import ConnectRequest


def peer_of(link: Link, address: Address | None) -> Peer:
    """Return what tells the server of `link` apart; `address` is the one that was connected to."""
    peer = link.peer or address
    assert peer is not None  # a link is used once it is connected
    return peer


class Preparing:
    """Opens connections to servers that are prepared for a handshake; arguments as for Witness.

    While connections break, one session serves all tries: the leader has to end each that is left.
    """

    def __init__(
        self, lifetime: Lifetime, open_link: OpenLink, sasl: SaslMechanism | None, credentials: Iterable[Credential]
    ) -> None:
        self._lifetime = lifetime
        self._open_link = open_link
        self._sasl = sasl
        self._credentials = credentials
        self._granted: dict[Peer, float] = {}
        self._left = SessionKey()

    def granted(self, server: Peer, timeout: float) -> None:
        """Record that `server` has granted `timeout` seconds."""
        self._granted[server] = timeout

    def opener(self, address: Address, hello: ConnectRequest, late_writes: LateWrites, within: float) -> OpenLink:
        """Return what opens a connection to `address` on which `hello` may be sent at once.

        Arguments: `within`, in seconds, how long a handshake of the other session may take.
        """
        if not hello.session_id:
            return self._open_link

        async def open_prepared(make: Callable[[], Link], host: str, port: int) -> Link:
            link = await self._open_link(make, host, port)
            # A host's name may have several servers: each is prepared on the connection that was opened to it.
            while not self._is_prepared(server := peer_of(link, address), late_writes):
                await self._prepare(link, server, address, hello, late_writes, within)
                link = await self._open_link(make, host, port)
            if (granted := self._granted.get(server)) is not None:
                self._lifetime.resuming(asyncio.get_running_loop().time(), granted)
            return link

        return open_prepared

    def _is_prepared(self, server: Peer, late_writes: LateWrites) -> bool:
        if late_writes.needs_flush(server):
            return False
        return server in self._granted or not self._lifetime.may_be_certain

    async def _prepare(
        self, link: Link, server: Peer, address: Address, hello: ConnectRequest, late_writes: LateWrites, within: float
    ) -> None:
        async def take_over(make: Callable[[], Link], host: str, port: int) -> Link:
            other = make()
            link.hand_over(other)
            return other

        witness = Witness(take_over, address, self._sasl, self._credentials, within)
        try:
            # With the last zxid of the client, so that a server that is behind refuses it at once.
            answer = await witness.ask(replace(hello, session_id=self._left.id, password=self._left.password))
        except RefusedError:
            return  # the session that was left has expired: the next try makes a new one
        finally:
            self._left = witness.left
        self.granted(server, answer.granted)
        if answer.is_flushed:
            late_writes.flushed(server)
        elif late_writes.needs_flush(server):
            raise ConnectionError("a server without a quorum cannot show whether it has a late write")
