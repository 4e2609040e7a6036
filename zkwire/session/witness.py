"""A witness: a second session, which shows what the leader has done by then.

It is ended by the leader, to show that it has ended all that was due before.  Or it asks a server what the client needs
to know before it resumes its own session there; see late_writes.py.

The leader takes all sessions of which it has not heard in time, and ends them one after the other.  Until its turn,
such a session looks alive: its requests are carried out.  A client that was cut off for long cannot see whether its
session is among them.  But a session that begins now, and is silent, comes to its end after all of them.
docs/waiting-line.md has the argument.
"""

import asyncio
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any, Final, TypeAlias

from zkwire.errors import NoNodeError, ProtocolError
from zkwire.session.attempt import FAREWELL, Attempt, RefusedError, SessionKey
from zkwire.session.closing import ask, end_session, finish
from zkwire.session.credentials import Credential
from zkwire.session.hosts import Address
from zkwire.session.sasl import SaslMechanism
from zkwire.session.transport import Link, LinkOwner, OpenLink
from zkwire.wire.connection import Call, Incoming
from zkwire.wire.records import OPEN_ACL, ConnectRequest, ConnectResponse, printed, xids
from zkwire.wire.requests import CreateRequest, Request, SyncRequest

_SHORTEST: Final = 0.001  # seconds: the server grants its least timeout
_ENDED_AFTER: Final = 1.6  # times that timeout: the leader ends a session one timeout and one tick after it was made
_EPHEMERAL: Final = 1
_REPLY_LIMIT: Final = 64 * 1024  # bytes


@dataclass(eq=False, repr=False)
class Witness(LinkOwner):
    """One session that is made to be ended by the leader; the owner of its links, see LinkOwner.

    Args:
        sasl: The client's mechanism, None for none.
        credentials: The client's credentials.
        open_link: Opens connections.
        address: The server to make it at.
        within: How long one attempt to connect may take, in seconds.

    Attributes:
        left: The key of a session which `ask` could not end; the key of a new session if there is none.
        granted: The timeout that the server grants, in seconds, 0 until it has answered the handshake of `ask`.
    """

    sasl: SaslMechanism | None
    credentials: Iterable[Credential]
    open_link: OpenLink
    address: Address
    within: float

    def __post_init__(self) -> None:
        self._xids = xids()
        self._attempt: Attempt
        self._key = SessionKey()
        self.left: SessionKey = SessionKey()
        self.granted: float = 0.0

    async def run(self) -> None:
        """Make the session, leave it alone, and return when the leader has ended it.

        Raises: OSError, ProtocolError and AuthFailedError when the server cannot be used.
        Cancellation: leaves no socket; the session ends by itself.
        """
        link = await self._connect(self._key.hello(_SHORTEST, 0, accepts_read_only=False))
        try:
            await self._make_global(link)
        finally:
            await finish(link)
        pause = link.connection.timeout * _ENDED_AFTER
        while True:
            await asyncio.sleep(pause)
            pause *= 2  # each try has kept the session for longer
            try:
                # With the zxid of its creation: a server that has not seen that does not know the session, and does not
                # answer.
                await finish(await self._connect(self._key.hello(_SHORTEST, self._zxid, accepts_read_only=False)))
            except RefusedError:
                return

    async def ask(self, hello: ConnectRequest, *, flush: bool) -> bool:
        """Find out what the server grants, and end the session; with `flush`, return whether the server was flushed.

        A server that was flushed has passed on to the leader all that it had, see LateWrites.  A sync goes through the
        leader, after everything that came to the same server before.  `hello` asks for a new session, or for one that
        another call has left.  The end of the session is asked for, and its answer is not waited for longer than a
        moment: nothing depends on it.
        Raises: RefusedError if that one has expired; otherwise as `run`.
        Cancellation: leaves no socket; the session is left.
        """
        link = await self._connect(hello)
        try:
            self.granted = link.connection.timeout
            if link.connection.is_read_only:  # such a session exists on that server alone
                return False
            self.left = self._key
            if flush and (error := await self._ask(link, SyncRequest("/"))):
                raise ProtocolError(f"a sync was refused: {error}")
            await end_session(link, FAREWELL)
            self.left = SessionKey()
            return flush
        finally:
            await finish(link)

    async def _connect(self, hello: ConnectRequest) -> Link:
        self._attempt = Attempt(self, hello, _REPLY_LIMIT, self.sasl, self._xids, is_first=False)
        link = await self._attempt.run(self.open_link, self.address, self.within)
        for credential in self.credentials:
            link.connection.send(Call(credential.request), asyncio.get_running_loop().time())
        return link

    async def _make_global(self, link: Link) -> None:
        """Have the leader know the session.

        Where sessions are local to their servers at first, the server makes one known to the leader before it carries
        out the create of an ephemeral node, also one that it refuses then, because the parent does not exist.
        """
        path = f"/zkwire-{printed(self._key.id)}/witness"
        error = await self._ask(link, CreateRequest(path, b"", OPEN_ACL, _EPHEMERAL))
        self._zxid = link.connection.last_zxid
        if not isinstance(error, NoNodeError):
            raise ProtocolError(f"the answer to a create below a missing node is {error}")

    async def _ask(self, link: Link, request: Request[Any]) -> BaseException | None:
        """Send `request` after the credentials, and return its refusal, None if it was carried out."""
        async with asyncio.timeout(self.within):
            return (await ask(link, request)).exception()

    # -- called by the link: see LinkOwner --------------------------------------------------------------------------

    def link_delivered(self, link: Link, arrived: list[Incoming]) -> None:
        """Take the answer to the handshake, and to the create."""
        for item in arrived:
            if isinstance(item, ConnectResponse):
                self._key.granted(item, is_read_only=link.connection.is_read_only)
                self._attempt.greeted.set_result(item.timeout > 0)
            elif isinstance(item, Call) and item.waiter is not None:
                if item.code:
                    item.waiter.set_exception(item.request.refusal(item.code, str(self.address)))
                else:
                    item.waiter.set_result(item.reply)


MakeWitness: TypeAlias = Callable[[OpenLink, Address, float], Witness]
