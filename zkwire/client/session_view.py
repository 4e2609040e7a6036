"""The part of the client that is about its session: what it is, its identities and servers, and how it ends.

Knows the session, and no request but those that the session sends itself.
"""

import warnings
from typing import Self

from zkwire.client.requester import Verbs
from zkwire.client.streams import StateStream
from zkwire.session import credentials, hosts
from zkwire.session.observer import SessionState
from zkwire.session.transport import check_loop
from zkwire.wire.records import printed
from zkwire.wire.requests import PingRequest


class SessionView(Verbs):
    """The properties of a Client that show its session, the verbs that change its identities and servers, `close`."""

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *exc_info: object) -> None:
        await self.close()

    def __del__(self) -> None:
        # It is not closed here: a stream or a lock of this client may still be in use.
        if self._unlimited is None and self._session.on_closed.error is None:
            warnings.warn(
                f"the client of session {printed(self._session.key.id)} was dropped and not closed, so the session and"
                " its ephemeral nodes live on: call `await zk.close()`, or use `async with zkwire.connect(...) as zk`",
                ResourceWarning,
                stacklevel=2,
                source=self,
            )

    @property
    def chroot(self) -> str:
        """The path below which all paths of this client are, "" for none."""
        return self._requester.chroot

    @property
    def session_password(self) -> bytes:
        """The session's password, which `connect` needs beside the id to resume the session."""
        return self._session.key.password

    @property
    def session_timeout(self) -> float:
        """The session timeout that the server has granted, in seconds."""
        return self._session.timeout

    @property
    def least_timeout(self) -> float | None:
        """The least timeout that the session was ever granted, in seconds: `connect` needs it to resume the session.

        None in a session that was itself resumed without it, and before there is a session.
        """
        certainty = self._session.lifetime.certainty
        return None if certainty is None or certainty.least == float("inf") else certainty.least

    @property
    def state(self) -> SessionState:
        """The state of the session now."""
        return self._session.states.now

    @property
    def server(self) -> str:
        """The connected server, or the last one tried, as "host:port"."""
        return self._session.requests.server

    @property
    def last_zxid(self) -> int:
        """The newest transaction id that a reply to this session has carried."""
        return self._session.requests.last_zxid

    def states(self) -> StateStream:
        """Return a stream of the session's states, the present one first: ``async for state in zk.states()``.

        Returns:
            The stream.
        """
        return StateStream(self._session.states, self._loop)

    async def ping(self) -> float:
        """Return how many seconds a ping took (request: ping).  The client sends its own pings to keep the session.

        Returns:
            The seconds.
        """
        start = self._loop.time()
        await self._ask(PingRequest())
        return self._loop.time() - start

    async def add_auth(self, scheme: str, data: bytes) -> None:
        """Add an identity to this client, on this connection and on every later one (request: auth).

        The client remembers the identity and sends it first on each new connection.  One that it remembers is not sent
        again: then this returns once a server has accepted it, at once if one has.

        Args:
            scheme: A scheme that the server's plug-ins know, such as "digest".
            data: As the scheme wants it: for "digest" b"user:password", and the server accepts every one.  It crosses
                the network as it is: without TLS everyone between can read the password.

        Raises:
            AuthFailedError: If the server refuses it, and then the whole session is over: the state is AUTH_FAILED, all
                waiting requests fail with the same error, and the ephemeral nodes stay until the session has expired.
                The same happens when a later server refuses it.
            NoAnswerError: With `maybe_applied` if it stays remembered, because it was written; it may be added again.

        Cancellation:
            An identity that was not yet written is forgotten; one that was written stays remembered.

        Order:
            Requests sent after it, awaited or not, have the identity.  While there is no connection it is put before
            all waiting requests.
        """
        check_loop(self._loop)
        try:
            identity = credentials.checked(scheme, data, request_limit=self._session.requests.request_limit)
        finally:
            del scheme, data  # a traceback with local variables must not show them
        kept = self._session.credentials.kept
        await self._requester.bounded("auth", self._session.add_auth(identity), lambda: identity in kept)

    def set_hosts(self, connect_string: str) -> None:
        """Replace the list of servers; the client moves to another server at once if necessary.

        The client leaves a server that is no longer listed.  With some probability it also leaves one that is listed,
        so that many clients that get the same list spread evenly over the servers, and as few of them move as possible.
        A move is a reconnect: the session lives on, requests under way are answered first, waiting ones are sent to the
        new server.  Host names are compared as they are written.

        Args:
            connect_string: As for `connect`: "host[:port],..."; its chroot, if there is one, must be this client's.

        Raises:
            ValueError: If it is bad, or has another chroot.
            TypeError: If it is not a str.
        """
        addresses, chroot = hosts.parse(connect_string)
        if chroot and chroot != self.chroot:
            raise ValueError(f"the chroot of {connect_string!r} is not the one of this client, {self.chroot!r}")
        check_loop(self._loop)
        self._session.set_hosts(addresses)

    async def close(self, *, keep_session: bool = False, within: float | None = None) -> None:
        """End the session, which deletes its ephemeral nodes at once, and close the connection.

        The body of an `async with` of a lock, an election, a claim or a Partitioner that another task runs is cancelled
        first, as when another task releases the lock, and the session is ended when it has ended, so that no other
        holder begins before.  Such a body gets half of the session timeout for its clean-up, or half of `within`.
        A second call waits for the first.  It ends within one session timeout, whatever the servers do, and when no
        server was heard for 2 seconds.  While none is connected, it waits as long for the next connection, and ends the
        session there; if there is none in time, the session is left to expire.  These 2 seconds begin earlier, up to
        half a second before their end, if no server was heard for some time before this call.
        Without this call, a client whose event loop ends (`asyncio.run` cancels all tasks) still ends its session.

        Args:
            keep_session: Whether to keep the session alive on the server, to be resumed by its id and password.  While
                no server is connected, this ends at once, and what was released meanwhile may stay in that session.
            within: A shorter bound, in seconds; 0 sends the request, if connected, and waits for no answer.

        Raises:
            ValueError: If `within` is not 0 or more.

        Cancellation:
            The client closes anyway; the session may then live until it expires.

        Order:
            Verbs called before `close` are answered first.  Verbs called after it raise SessionClosedError, but those
            of a body that is being cancelled.
        """
        check_loop(self._loop)
        if within is not None and not within >= 0:
            raise ValueError(f"close: within must be 0 seconds or more, not {within!r}")
        await self._session.close(keep_session=keep_session, within=within)
