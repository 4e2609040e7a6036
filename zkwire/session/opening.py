"""Opens connections: resolves a host's name, tries the addresses, and does the TLS handshake.

`unfit` says which failures are final: the server cannot be used in the wanted way, however often it is tried.  Names
are resolved apart from connecting, since a resolver may need longer than one attempt to connect may take.  All
sockets of a client are opened here, or by the function that is passed to `zkwire.connect` in its place.
"""

import asyncio
import contextlib
import itertools
import socket
import ssl
import threading
from collections import deque
from collections.abc import Callable, Iterable
from typing import Any, Final, TypeAlias

from zkwire.session.transport import Link

# Seconds after which the next address of a name is tried while the first one does not answer (RFC 8305: 0.1 at least).
_NEXT_ADDRESS_AFTER: Final = 0.1
# Seconds to wait for the resolver if it has answered before; then the last answer is used.
_LAST_ANSWER_AFTER: Final = 0.1
# Seconds after which a question to the resolver counts as hung: one that tries dead name servers may need as long.
_HUNG_AFTER: Final = 30.0

_ANSWER_WITHIN: Final = 1.0  # seconds, for the two questions below
_WORD: Final = b"srvr"  # a server answers it with text, even where it is not allowed
# A ClientHello of TLS 1.2 that offers one cipher.  Every server for TLS answers it with a TLS record: with its own
# hello, or with an alert.  A ZooKeeper server without TLS reads a much too large length, and closes the connection.
_HELLO: Final = (
    b"\x16\x03\x01\x00\x2d"  # a record of the handshake, TLS 1.0 as usual for the first one, 45 bytes
    b"\x01\x00\x00\x29\x03\x03" + bytes(32) + b"\x00"  # ClientHello, 41 bytes, TLS 1.2, random, no session to resume
    b"\x00\x02\xc0\x2f\x01\x00"  # one cipher, no compression
)
_RECORDS: Final = (b"\x15", b"\x16")  # the first byte of an alert, and of a handshake

# The codes of OpenSSL for a certificate that is not accepted, and what to do about it.
_NOT_YET_VALID: Final = 9
_TRUST: Final = "; the context must trust its authority, see SSLContext.load_verify_locations"
_NAME: Final = "; the connect string must name the server as its certificate does"
_REMEDIES: Final = {18: _TRUST, 19: _TRUST, 20: _TRUST, 21: _TRUST, 62: _NAME, 64: _NAME}

# Alerts of a server that may accept the next handshake.
_PASSING_ALERTS: Final = {"INTERNAL_ERROR", "USER_CANCELLED"}
# Alerts about the certificate that this client has shown, or has not; most of them contain this word.
_CERTIFICATE: Final = "CERTIFICATE"
_OF_CERTIFICATE: Final = {"ACCESS_DENIED", "UNKNOWN_CA"}
# The alert for no cipher in common; of some servers, up to TLS 1.2, also for no certificate.
_ANY_REASON: Final = "HANDSHAKE_FAILURE"
_SHOW: Final = (
    "if the server wants one, the context must hold a certificate that it trusts, see SSLContext.load_cert_chain"
)
# What OpenSSL says of bytes that are no TLS; which of these depends on its version.
_NO_TLS: Final = {"HTTP_REQUEST", "PACKET_LENGTH_TOO_LONG", "RECORD_LAYER_FAILURE", "WRONG_VERSION_NUMBER"}

_Info: TypeAlias = tuple[int, int, int, str, Any]  # what getaddrinfo returns for an address


class UnfitError(ConnectionError):
    """The server cannot be connected to in this way, however often it is tried."""


def unfit(failure: Exception) -> UnfitError | None:
    """Return what is wrong with a server if `failure`, of an attempt to connect, is final; None if it may pass."""
    if isinstance(failure, UnfitError):
        return failure
    wrong = None
    if isinstance(failure, ssl.SSLCertVerificationError):
        wrong = _of_certificate(failure)
    elif type(failure) is ssl.SSLError:  # its other subclasses are for connections that were closed
        wrong = _of_tls(failure)
    if wrong is None:
        return None
    error = UnfitError(wrong)
    error.__cause__ = failure
    return error


def _of_certificate(failure: ssl.SSLCertVerificationError) -> str | None:
    if failure.verify_code == _NOT_YET_VALID:  # it will be, and the clock of one of the two machines may be set soon
        return None
    why = failure.verify_message.rstrip(".")
    return f"the server's certificate is not accepted: {why}{_REMEDIES.get(failure.verify_code, '')}"


def _of_tls(failure: ssl.SSLError) -> str | None:
    reason = failure.reason or str(failure)
    if reason in _NO_TLS:
        return "the server does not answer with TLS: the port may be one without TLS, or of another service"
    alert = reason.rpartition("ALERT_")[2]
    if alert in _PASSING_ALERTS:
        return None
    if alert != reason and (_CERTIFICATE in alert or alert in _OF_CERTIFICATE):
        return f"the server refuses this client's certificate, or the lack of one ({_words(alert)}): {_SHOW}"
    if alert == _ANY_REASON:
        return f"the server refuses the TLS handshake: no cipher in common, or no certificate of this client: {_SHOW}"
    subject = "the server refuses" if alert != reason else "OpenSSL gives up"
    return f"{subject} the TLS handshake: {_words(alert)}"


def _words(reason: str) -> str:
    return reason.replace("_", " ").lower()


class Opener:
    """Opens TCP connections for one client, with TLS if it has a context.

        link = await opener(make, host, port)

    A name is resolved again at each attempt, since a server may move to another address.  A resolver that fails, or is
    slow, does not keep the client from the addresses that it knew before.  A question that is not answered within 30
    seconds may never be: then the next attempt asks again, in another thread.  Each question that hangs doubles these
    30 seconds, so that a name is never lost, and its resolver, if it hangs for a day, costs a dozen threads.
    A name may have several addresses, and some may not answer: each attempt begins with another one, and goes on to
    the next after a moment.

    Args:
        context: For TLS; the server's certificate is checked against the host name in the connect string, if the
            context says so.

    Raises:
        ValueError: If the context is made for servers.
    """

    def __init__(self, context: ssl.SSLContext | None = None) -> None:
        if context is not None and context.protocol is ssl.PROTOCOL_TLS_SERVER:
            raise ValueError("ssl must be a context for clients, such as ssl.create_default_context() returns")
        self._context = context
        self._names: dict[str, _Name] = {}

    async def __call__(self, make: Callable[[], Link], host: str, port: int) -> Link:
        """Open a connection to `host`:`port` and return the Link that `make` made for it.

        Raises: OSError, and its subclasses UnfitError when the server does not speak TLS, and ssl.SSLError when the TLS
        handshake fails.
        Cancellation: leaves no socket.
        """
        addresses = await self._addresses(host, port)
        sock = await _first_connected(addresses)
        if self._context is None:
            return await _linked(make, sock)
        try:
            return await _linked(make, sock, ssl=self._context, server_hostname=host)
        except ssl.SSLError:
            raise  # the server speaks TLS, or something else
        except OSError:
            # A server closes the connection when it gets a TLS handshake at a port without TLS.  That alone could also
            # be a server that is starting, so ask it.
            if (await _first_byte(addresses, _WORD)).isalpha():
                raise UnfitError("the port is one without TLS: use the secure port, or leave out ssl") from None
            raise

    async def lacks_tls(self, host: str, port: int) -> bool:
        """Return whether this client has no TLS, and the server answers the beginning of a TLS handshake.

        Cancellation: leaves no socket.
        """
        if self._context is not None:
            return False
        return await _first_byte(await self._addresses(host, port), _HELLO) in _RECORDS

    async def _addresses(self, host: str, port: int) -> list[_Info]:
        try:
            # A numeric address needs no resolver: this does not block.
            return [*socket.getaddrinfo(host, port, type=socket.SOCK_STREAM, flags=socket.AI_NUMERICHOST)]
        except Exception:  # noqa: BLE001  # a name; what else a resolver raises, `_resolve` reports
            found = await self._names.setdefault(host, _Name(host)).addresses()
        return [(*info[:4], (info[4][0], port, *info[4][2:])) for info in found]


def opener_of(context: ssl.SSLContext | bool | None) -> Opener:
    """Return an Opener for `context`, where True stands for the default one.

    Raises: TypeError; ValueError if the context is made for servers.
    """
    if not isinstance(context, ssl.SSLContext | bool | None):
        raise TypeError(f"ssl must be an SSLContext, or True for the default one, not {type(context).__name__}")
    return Opener(ssl.create_default_context() if context is True else context or None)


class _Name:
    """A host's name, its last known addresses, and its questions to the resolver: all but the last one hang."""

    def __init__(self, host: str) -> None:
        self._host = host
        self._known: list[_Info] = []
        self._asked: asyncio.Future[list[_Info]] | None = None
        self._again_at: float  # known once it was asked
        self._threads: list[threading.Thread] = []
        self._turns = itertools.count()

    async def addresses(self) -> list[_Info]:
        """Return the addresses, beginning with another one each time.

        Raises: OSError when the resolver fails and has never answered before.
        Cancellation: the question remains, and its answer serves the next attempt.
        """
        asked = self._ask()
        await asyncio.wait({asked}, timeout=_LAST_ANSWER_AFTER if self._known else None)
        if not self._known:
            self._known = asked.result()
        first = next(self._turns) % len(self._known)
        return self._known[first:] + self._known[:first]

    def _ask(self) -> asyncio.Future[list[_Info]]:
        """Return the future of the resolver's answer; ask if no answer is awaited yet, or one is for too long."""
        loop, asked = asyncio.get_running_loop(), self._asked
        if asked is None or asked.done() or loop.time() >= self._again_at:
            self._threads = [each for each in self._threads if each.is_alive()]
            self._again_at = loop.time() + _HUNG_AFTER * 2 ** len(self._threads)
            asked = self._asked = loop.create_future()
            asked.add_done_callback(self._answered)
            # A thread of its own, and not one of the event loop's pool: a resolver that hangs would in time take all
            # of them, and `asyncio.run` waits for the pool at its end.
            resolving = threading.Thread(target=_resolve, args=(self._host, asked), daemon=True)
            try:
                resolving.start()
            except RuntimeError as error:  # the process has too many threads: a later attempt may succeed
                asked.set_exception(OSError(f"no thread can be started to resolve {self._host!r}: {error}"))
            self._threads.append(resolving)
        return asked

    def _answered(self, asked: asyncio.Future[list[_Info]]) -> None:
        if asked.exception() is None:
            self._known = asked.result()


def _resolve(host: str, answer: asyncio.Future[list[_Info]]) -> None:
    """Ask the resolver and settle `answer`, by an OSError if there is no address; runs in a thread."""
    outcome: Any
    try:
        found = list(dict.fromkeys(socket.getaddrinfo(host, None, type=socket.SOCK_STREAM)))
        outcome = found or OSError(f"the resolver has no address for {host!r}")
    except BaseException as error:  # noqa: BLE001  # also of a codec, or a library: the next question may succeed
        outcome = error if isinstance(error, OSError) else OSError(f"the resolver fails for {host!r}: {error!r}")
    settle: Callable[[Any], None] = answer.set_result if isinstance(outcome, list) else answer.set_exception
    with contextlib.suppress(RuntimeError):  # the event loop was closed meanwhile
        answer.get_loop().call_soon_threadsafe(settle, outcome)


async def _first_byte(addresses: Iterable[_Info], question: bytes) -> bytes:
    """Return the first byte that the server answers to `question`; nothing for none, or none in time.

    Cancellation: leaves no socket.
    """
    loop = asyncio.get_running_loop()
    try:
        async with asyncio.timeout(_ANSWER_WITHIN):
            with await _first_connected(addresses) as sock:
                await loop.sock_sendall(sock, question)
                return await loop.sock_recv(sock, 1)
    except OSError:  # TimeoutError is a subclass
        return b""


async def _first_connected(addresses: Iterable[_Info]) -> socket.socket:
    """Return a socket that is connected to one of `addresses`.

    They are tried in their order; the next one as soon as one has failed, or has not answered for a moment.
    Raises: OSError when all have failed.
    Cancellation: leaves no socket.
    """
    loop = asyncio.get_running_loop()
    left = deque(addresses)
    if len(left) == 1:
        return await _connected(left.popleft())
    attempts: list[asyncio.Task[socket.socket]] = []
    pending: set[asyncio.Task[socket.socket]] = set()
    winner: asyncio.Task[socket.socket] | None = None
    try:
        while winner is None and (left or pending):
            if left:
                attempts.append(loop.create_task(_connected(left.popleft())))
                pending.add(attempts[-1])
            timeout = _NEXT_ADDRESS_AFTER if left else None
            done, pending = await asyncio.wait(pending, timeout=timeout, return_when=asyncio.FIRST_COMPLETED)
            winner = next((attempt for attempt in done if attempt.exception() is None), None)
    finally:
        for attempt in attempts:
            if attempt is not winner:
                attempt.cancel()
                attempt.add_done_callback(_close)
    if winner is None:
        raise OSError("; ".join(str(attempt.exception()) for attempt in attempts))
    return winner.result()


async def _connected(info: _Info) -> socket.socket:
    """Return a socket that is connected to one address.  Raises: OSError.  Cancellation: leaves no socket."""
    family, kind, protocol, _, address = info
    sock = socket.socket(family, kind, protocol)
    try:
        sock.setblocking(False)
        await asyncio.get_running_loop().sock_connect(sock, address)
    except BaseException:
        sock.close()
        raise
    return sock


async def _linked(make: Callable[[], Link], sock: socket.socket, **tls: Any) -> Link:
    """Return a new link on a connected socket, which is closed if this fails or is cancelled."""
    loop = asyncio.get_running_loop()
    if isinstance(loop, asyncio.BaseEventLoop):
        _, link = await loop.create_connection(make, sock=sock, **tls)
        return link
    made: Link | None = None

    def make_and_keep() -> Link:
        nonlocal made
        made = make()
        return made

    transport: asyncio.BaseTransport | None = None
    try:
        transport, link = await loop.create_connection(make_and_keep, sock=sock, **tls)
        return link
    finally:
        # A connection that ends while it is being opened: uvloop closes the descriptor, and says so neither to the
        # link, for which others wait, nor to this object, which would close the same number once more when it is
        # collected.  By then another socket may have it.
        if transport is None or transport.is_closing():
            sock.detach()
        if transport is None and made is not None:
            made.connection_lost(None)


def _close(attempt: asyncio.Task[socket.socket]) -> None:
    """Close the socket of an attempt that came too late."""
    if not attempt.cancelled() and attempt.exception() is None:
        attempt.result().close()
