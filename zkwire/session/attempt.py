"""One attempt to get a session from a server: it opens a connection, shakes hands and, with SASL, authenticates.

`Session` decides which server is tried with which handshake, and what a failure means for the session.
"""

import asyncio
import ssl
from collections.abc import Awaitable, Callable, Iterator
from dataclasses import dataclass
from inspect import isawaitable
from typing import Any, Final

from zkwire.errors import AuthFailedError, ProtocolError, explained
from zkwire.session.closing import ask, end_session, finish
from zkwire.session.hosts import Address
from zkwire.session.opening import Opener, UnfitError
from zkwire.session.sasl import SaslMechanism
from zkwire.session.transport import Link, LinkOwner, OpenLink
from zkwire.wire import timing
from zkwire.wire.connection import Connection
from zkwire.wire.frames import TlsRecordError
from zkwire.wire.records import ConnectRequest, ConnectResponse
from zkwire.wire.requests import SaslRequest

# Seconds in which a server that runs ends a session that the client does not want any more.
FAREWELL: Final = 0.25
_LARGEST_TOKEN: Final = 64 * 1024  # bytes: more than any SASL mechanism sends, and little to parse
_NO_PASSWORD: Final = bytes(16)
_FAILED: Final = "no authentication by SASL with"
# The OSErrors that do not pass: of a file, such as a keytab, and of a certificate.
_FILE: Final = (FileNotFoundError, PermissionError, IsADirectoryError, NotADirectoryError)
_FINAL: Final = (*_FILE, ssl.SSLCertVerificationError)


class RefusedError(Exception):
    """The server says that the session is gone."""


@dataclass(slots=True, eq=False, repr=False)
class SessionKey:
    """The id of a session, 0 for none yet, and its password, which no repr shows.

    `is_resumable` says whether any server can resume it.  A session that a server without a quorum has granted exists
    on that server alone: no other one knows its id.
    """

    id: int = 0
    password: bytes = _NO_PASSWORD
    is_resumable: bool = False

    def hello(self, timeout: float, last_zxid: int, *, accepts_read_only: bool) -> ConnectRequest:
        """Return the handshake that asks for the session if it is resumable, otherwise for a new one.

        A server that has not seen `last_zxid` yet turns the client away.
        """
        key = self if self.is_resumable else SessionKey()
        return ConnectRequest(0, last_zxid, round(timeout * 1000), key.id, key.password, accepts_read_only)

    def granted(self, response: ConnectResponse, *, is_read_only: bool) -> None:
        """Take the session that a server has granted or resumed."""
        if not is_read_only:
            self.is_resumable = True
        elif response.session_id != self.id:  # a new session, made by a server without a quorum
            self.is_resumable = False
        self.id = response.session_id
        self.password = response.password or _NO_PASSWORD


@dataclass(eq=False, repr=False)
class Attempt:
    """One attempt to connect.

    Args:
        owner: The owner of the link.
        hello: The handshake request.
        reply_limit: The largest frame to accept, in bytes.
        sasl: The mechanism that authenticates after the handshake, None for none.
        session_xids: Those that the session has not used.
        is_first: Whether the client has never been connected, so that it wants to know why it cannot be.

    Attributes:
        greeted: Whether the server has accepted the handshake; set by the owner of the link.
        sent_at: When the handshake request was written, on the event loop's clock.
        limit: The time limit of `run`, which the opener of the connection may have begin again.
    """

    owner: LinkOwner
    hello: ConnectRequest
    reply_limit: int
    sasl: SaslMechanism | None
    session_xids: Iterator[int]
    is_first: bool

    def __post_init__(self) -> None:
        self._loop = asyncio.get_running_loop()
        self._link: Link | None = None
        self.greeted: asyncio.Future[bool] = self._loop.create_future()
        self.sent_at: float
        self._is_asked = self._is_refused = False
        self._missing = "answer"  # what the attempt waits for
        self.limit: asyncio.Timeout

    @property
    def given_up(self) -> Link | None:
        """The link on which a handshake was sent that the server has neither answered nor refused; None: there is none.

        A server that does not serve refuses at once, by closing the connection.
        """
        return self._link if self._is_asked and not self.greeted.done() and not self._is_refused else None

    async def run(self, open_link: OpenLink, address: Address, within: float) -> Link:
        """Return a link to `address` on which the handshake, and the SASL exchange if there is one, are through.

        Raises: RefusedError when the server says that the session is gone; AuthFailedError; ProtocolError and OSError
        when this server will not do.
        Cancellation: leaves no socket, and no new session but one that a server begins later than a quarter of a second
        from now, if it does not read what is left of a closed connection.
        """
        try:
            async with asyncio.timeout(within) as self.limit:
                return await self._run(open_link, address)
        except BaseException as error:
            if self._link is not None:
                await self._give_up(self._link)
            if isinstance(error, TimeoutError) and not str(error):
                raise TimeoutError(f"no {self._missing} within {within:.3g} s") from None
            raise

    async def _run(self, open_link: OpenLink, address: Address) -> Link:
        link = await open_link(self._make, address.host, address.port)
        first = None
        if self.sasl is not None:
            # Before the handshake: while the mechanism cannot begin, because a KDC is away, no server makes a session.
            self._missing = "first token of the SASL mechanism"
            first = await _ask(self.sasl.start, address.host, address)
            self._missing = "answer"
        # Not before: while the link is being opened, a cancellation closes it at once, and a session that has begun
        # could not be ended.
        link.flush()
        self._is_asked, asked_at = True, self._loop.time()
        either: set[asyncio.Future[Any]] = {self.greeted, link.closed}
        await asyncio.wait(either, return_when=asyncio.FIRST_COMPLETED)
        if not self.greeted.done():
            self._is_refused = self._loop.time() < asked_at + timing.refused_within(self.hello.timeout / 1000)
            raise await self._failure(link, open_link, address)
        if not self.greeted.result():
            if not self.hello.session_id:
                raise ProtocolError("the server refuses to make a session")
            raise RefusedError
        if self.sasl is not None:
            await authenticate(self.sasl, first, link, address)
            if link.is_lost:  # by a bad frame in the same read as the last token
                raise await link.closed
            link.release()
        return link

    async def _give_up(self, link: Link) -> None:
        """Close `link`; if the server has begun a new session on it, or is about to, have it end this session.

        Not without SASL once the handshake is answered: then the client uses the session.

        The server reads the request to end the session when the session has begun.  With NIO, its default, it does so
        whenever that is, also after the connection was closed.  With Netty it must have begun before that.
        """
        is_in_use = self.greeted.done() and self.sasl is None
        try:
            if not self.hello.session_id and self._is_asked and not link.is_lost and not is_in_use:
                link.owner = LinkOwner()
                await end_session(link, FAREWELL)
        finally:
            await finish(link)

    async def _failure(self, link: Link, open_link: OpenLink, address: Address) -> Exception:
        """Return why `link` was closed in place of an answer."""
        failure = link.closed.result()
        is_tls = isinstance(failure, TlsRecordError)
        if self.is_first and isinstance(failure, ConnectionError) and isinstance(open_link, Opener):
            # A server for TLS closes a connection without TLS.  So does a server that is starting.
            is_tls = await open_link.lacks_tls(address.host, address.port)
        if is_tls:
            return UnfitError("the port is one for TLS: connect with TLS, or use the port without TLS")
        return failure

    def _make(self) -> Link:
        self.sent_at = self._loop.time()
        self._link = Link(Connection(self.hello, self.reply_limit, self.sent_at, self.session_xids), self.owner)
        self._link.connection.is_held = self.sasl is not None
        return self._link


async def authenticate(mechanism: SaslMechanism, request: SaslRequest | None, link: Link, address: Address) -> None:
    """Exchange tokens on `link`, to the server at `address`, until `mechanism` has no more to send after `request`.

    Raises: AuthFailedError when the server or the mechanism refuses; ConnectionError when the mechanism cannot go on
    now; ProtocolError for a token of more than 64 KiB; the reason of the loss when the link is lost.
    """
    while request is not None:
        answer = await ask(link, request)
        refusal = answer.exception()
        if refusal is not None:
            raise AuthFailedError(f"{_FAILED} {address}: the server refuses: {refusal}") from refusal
        token = answer.result().token or b""
        if len(token) > _LARGEST_TOKEN:
            raise ProtocolError(f"a SASL token of {len(token)} bytes, where {_LARGEST_TOKEN} are accepted")
        request = await _ask(mechanism.step, token, address)


async def _ask(
    method: Callable[[Any], bytes | Awaitable[bytes | None] | None], argument: object, address: Address
) -> SaslRequest | None:
    """Return the request with the next token of a mechanism, which may be the user's own code; None at the end.

    The token may contain a password: no repr shows it, and no local variable when an error is raised.
    Raises: ConnectionError when the mechanism asks to be tried again later; AuthFailedError for any other exception of
    it, and for a token that is not bytes.
    """
    try:
        token = method(argument)
        if isawaitable(token):
            token = await token
    except Exception as error:
        if isinstance(error, OSError) and not isinstance(error, _FINAL):
            raise ConnectionError(f"{_FAILED} {address} now: {explained(error)}") from error
        raise AuthFailedError(f"{_FAILED} {address}: {error}") from error
    if token is None:
        return None
    if isinstance(token, bytes):
        return SaslRequest(token)
    kind = type(token).__name__
    del token
    raise AuthFailedError(f"{_FAILED} {address}: the mechanism must return bytes or None, and returned {kind}")
