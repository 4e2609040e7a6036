"""The function `connect`: checks its options, opens a session and returns the Client."""

import asyncio
import random
import ssl as tls
import warnings
from collections.abc import Callable, Coroutine, Generator, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any, Final

from zkwire.client.client import Client
from zkwire.client.follow_config import follow_config as follow
from zkwire.client.requester import check_kind, check_number
from zkwire.session import credentials, hosts
from zkwire.session.credentials import scrub_traceback
from zkwire.session.observer import Observer
from zkwire.session.opening import opener_of
from zkwire.session.request_queue import REQUEST_LIMIT
from zkwire.session.sasl import DigestMD5, SaslMechanism
from zkwire.session.session import REPLY_LIMIT, Session
from zkwire.session.transport import OpenLink
from zkwire.wire import requests, timing
from zkwire.wire.jute import prepare
from zkwire.wire.records import WatcherEvent, printed

_PASSWORD_BYTES: Final = 16
_LEAST_LIMIT: Final = 1024  # bytes: room for the client's own requests and their replies
# What a lock sends that waits for others.
_OF_LOCKS: Final = (
    requests.CreateContainerRequest,
    requests.Create2Request,
    requests.GetChildrenRequest,
    requests.GetDataRequest,
    requests.DeleteRequest,
)
_MOST_LIMIT: Final = 2**31 - 1  # bytes: the wire counts them in 32 bits


class _ConnectContext:
    """The object that `connect` returns: `await` it, or enter it with `async with`, to get the Client.

    Nothing is opened before.  As a context manager it closes the client at the end of the block.
    """

    def __init__(self, connected: Callable[[], Coroutine[Any, Any, Client]]) -> None:
        self._connected = connected
        self._is_used = False
        self._client: Client

    def __await__(self) -> Generator[Any, None, Client]:
        return self._connect().__await__()

    async def __aenter__(self) -> Client:
        self._client = await self._connect()
        return self._client

    async def __aexit__(self, *exc_info: object) -> None:
        await self._client.close()

    if not TYPE_CHECKING:  # a type checker would otherwise take every attribute for known

        def __getattr__(self, name: str) -> Any:
            raise AttributeError(
                f"the object that zkwire.connect returns is not a client and has no {name!r}: await it, or use"
                " `async with`"
            )

    def __del__(self) -> None:
        if not self._is_used:
            warnings.warn(
                "the result of zkwire.connect(...) was never awaited, so nothing was connected: write `zk = await"
                " zkwire.connect(...)` or `async with zkwire.connect(...) as zk`",
                RuntimeWarning,
                stacklevel=2,
                source=self,
            )

    def _connect(self) -> Coroutine[Any, Any, Client]:
        if self._is_used:
            raise RuntimeError("the result of zkwire.connect(...) was awaited already: call zkwire.connect again")
        self._is_used = True
        return self._connected()


async def _connected(
    chroot: str, within: float | None, follows_config: bool, has_tls: bool, options: dict[str, Any]
) -> Client:
    """Open a session with these `options` of Session, and return its client."""
    request_timeout = options.pop("request_timeout")
    session = Session(**options)
    identities = (options["sasl"] is not None) + has_tls
    rng, is_resumed = options["rng"], bool(options["session_id"])
    if options["locks"]:
        # Not at the first acquire, for which others may wait, but while the servers make the session.
        replies = (each.reply for each in _OF_LOCKS)
        asyncio.get_running_loop().call_soon(prepare, (*_OF_LOCKS, WatcherEvent), (*replies, WatcherEvent))
    del options  # a traceback with local variables must not show the session's password
    try:
        await session.wait_started(within)
    except BaseException:
        # A session that was to be resumed belongs to the caller: it must live on, to be resumed later.
        await session.close(keep_session=is_resumed)
        raise
    if follows_config:
        session.run_in_background(follow(session, rng))
    return Client(session, chroot, rng, identities, request_timeout)


@scrub_traceback
def connect(
    connect_string: str,
    session_timeout: float = 10.0,
    *,
    within: float | None = 15.0,
    session_id: int = 0,
    session_password: bytes = b"",
    least_timeout: float | None = None,
    locks: bool = True,
    renew: bool = True,
    max_in_flight: int = 1000,
    request_limit: int = REQUEST_LIMIT,
    reply_limit: int = REPLY_LIMIT,
    read_only: bool = False,
    ssl: tls.SSLContext | bool | None = None,
    auth: Sequence[tuple[str, bytes]] = (),
    sasl: SaslMechanism | None = None,
    follow_config: bool = False,
    request_timeout: float | None = None,
    observer: Observer | None = None,
    rng: random.Random | None = None,
    open_link: OpenLink | None = None,
) -> _ConnectContext:
    """Connect to an ensemble and return the Client, by ``await`` or ``async with``.

    As a context manager, or by hand::

        async with zkwire.connect("zk1:2181,zk2:2181/app") as zk: ...
        zk = await zkwire.connect("zk1:2181"); ...; await zk.close()

    Later, while no server is connected, the client tries for ever.

    Args:
        connect_string: Servers and an optional chroot: "host[:port],...[/path]", with the default port 2181.
        session_timeout: In seconds, how long the ensemble keeps the session and its ephemeral nodes while it hears
            nothing from the client.  The server may grant another timeout, see `Client.session_timeout`.
        within: In seconds, how long to wait for the session to begin.  None: for ever.  0: every server is tried once.
        session_id: The id of a session to resume.
        session_password: The password of a session to resume.
        least_timeout: The least timeout that the session to resume was ever granted, in seconds, by any server: the
            `least_timeout` of the client that had it.  Without it nothing in that session can be certain: to acquire a
            lock raises ValueError.
        locks: Whether the session is kept so that a lock can be certain at once: the client sends 3.3 syncs in each
            session timeout.  False: it sends pings, and the first lock may take three ticks of the server longer.
        renew: Whether a new session follows an expired one.
        max_in_flight: How many requests may be unanswered at a time; the others wait in a queue.  The large ones among
            them, of more than 4 KiB, have no more than 4 MiB together, unless it is a single one.
        request_limit: The largest request that the servers accept, in bytes: their jute.maxbuffer.  A larger request
            raises ValueError and is not sent.
        reply_limit: The largest reply to accept, in bytes.  A read with a larger reply raises ProtocolError, and a
            larger watch event, which has the path of its node, breaks the connection.
        read_only: Whether to accept a server that has lost its quorum.  Such a server needs the Java property
            readonlymode.enabled=true, and from ZooKeeper 3.7 on localSessionsEnabled=true.  Connected to one, the state
            is READ_ONLY and writes raise NotReadOnlyError.  The client goes on looking for a server that can write, and
            moves to it together with its watches.  A session that began on a read-only server exists on that server
            alone: at the move `session_id` changes without an EXPIRED state, because no ephemeral node can have
            belonged to that session.
        ssl: An SSLContext, which contains the client's certificate if the server wants one, or True for the default
            context.  The server's certificate must be valid for the host as the connect string names it.
        auth: Identities as for `Client.add_auth`, sent before all other requests.  A digest's password crosses the
            network as it is: use TLS.
        sasl: A SASL mechanism such as DigestMD5(user, password), which authenticates before `auth`.
        follow_config: Whether to follow /zookeeper/config, where an ensemble that was reconfigured lists its servers.
            Each change of the list works like `Client.set_hosts`, but the servers that were given remain the last
            resort.  The client shows its session and credentials to every server in that list.  Not together with
            `ssl`: the list names the ports without TLS.
        request_timeout: In seconds, how long each request of the client's verbs may take, with the wait for a
            connection.  It begins when the request is written: what is not yet written, because `max_in_flight` others
            wait for their answers, does not count, but the server answers in order, and so the answers to those that
            were written before count.  Then the verb raises NoAnswerError, and the call counts as cancelled, as with
            asyncio.timeout around the verb.  None: without a limit.  Streams have no limit, not even when they are
            entered, and recipes, with the transactions of a lease, have none: one between their steps would break their
            promises.  `within` or asyncio.timeout bounds a call of them.
        observer: An Observer, which gets notified of requests, events and states.
        rng: The source of randomness, for simulations.  Without it, randomness comes from the operating system: the
            names of nodes show some of it, and it must not be guessed.
        open_link: Opens connections, for simulations.

    Returns:
        An object to await, or to enter with ``async with``.

    Raises:
        ValueError: At once, if an argument is bad.
        TypeError: At once, if an argument is bad.
        TimeoutError: If `within` has passed; it says what was wrong with each server at the last attempt.
        SessionExpiredError: If the session to resume is gone.
        AuthFailedError: If a server refuses `auth` or `sasl`.
        ConnectionError: After one round over all servers, if none of them can ever be used because of TLS.  It names
            each server and what is wrong: the server's certificate is not accepted, the server refuses the client's
            certificate or the lack of one, or only one of the two sides uses TLS.  Its ``__cause__`` is the
            ssl.SSLError, if there is one.

    Cancellation:
        It leaves no connection, and no new session, as TimeoutError does: a server that was just about to begin one
        gets the request to end it, and a quarter of a second to do so.  A server with Netty (for TLS) that takes longer
        may not read the request; then the session ends by its timeout.
    """
    addresses, chroot = hosts.parse(connect_string)
    check_kind("session_timeout", session_timeout, int | float, "a number of seconds")
    if session_timeout > timing.LONGEST:
        meant = f": for milliseconds give {session_timeout / 1000:g}" if session_timeout < 1000 * timing.LONGEST else ""
        raise ValueError(f"session_timeout is in seconds, and {session_timeout!r} are more than an hour{meant}")
    if not session_timeout > 0:  # written so that a NaN is refused too
        raise ValueError(f"session_timeout must be a positive number of seconds, not {session_timeout!r}")
    if within is not None:
        check_number("within", within, int | float, "0 seconds or more, or None to wait for ever", least=0)
    if request_timeout is not None:
        wanted = "a number of seconds from 0.001 to a day, or None"
        check_number("request_timeout", request_timeout, int | float, wanted, least=0.001, most=24 * 3600)
    check_number("max_in_flight", max_in_flight, int, "a number of requests, 1 or more", least=1)
    for name, limit in (("request_limit", request_limit), ("reply_limit", reply_limit)):
        wanted = f"a number of bytes, at least {_LEAST_LIMIT} and at most {_MOST_LIMIT}"
        check_number(name, limit, int, wanted, least=_LEAST_LIMIT, most=_MOST_LIMIT)
    check_number("session_id", session_id, int, "an int of 64 bits", least=-(2**63), most=2**63 - 1)
    check_kind("session_password", session_password, bytes | bytearray | memoryview, "bytes")
    if session_id and len(session_password) != _PASSWORD_BYTES:
        raise ValueError(f"to resume {printed(session_id)}, give its session_password of {_PASSWORD_BYTES} bytes")
    if session_password and not session_id:
        raise ValueError("a session_password needs a session_id")
    if least_timeout is not None:
        check_kind("least_timeout", least_timeout, int | float, "a number of seconds")
        if not session_id or not 0 < least_timeout <= timing.LONGEST:
            raise ValueError(
                f"least_timeout must be a positive number of seconds and needs a session_id, not {least_timeout!r}"
            )
    if open_link is not None and ssl:
        raise ValueError("give ssl or open_link, not both: open_link must do the TLS itself")
    if follow_config and ssl:
        raise ValueError(
            "follow_config cannot be used with ssl: the ensemble's configuration lists the ports without TLS; read it"
            " with Client.get_config, and give the ports for TLS to Client.set_hosts"
        )
    if sasl is not None and not isinstance(sasl, SaslMechanism):
        raise TypeError(f"sasl must have the methods start and step, as DigestMD5 has; a {type(sasl).__name__} has not")
    if observer is not None:
        check_kind("observer", observer, Observer, "a zkwire.Observer")
    # Not a random.Random(): the names of nodes show its output, and with enough of that its later output can be
    # computed, SASL's nonces and the names of future nodes included.
    rng = rng or random.SystemRandom()
    options = {
        "addresses": addresses,
        "timeout": float(session_timeout),
        "session_id": session_id,
        "password": bytes(session_password),
        "least_timeout": None if least_timeout is None else float(least_timeout),
        "locks": bool(locks),
        "renew": renew,
        "max_in_flight": max_in_flight,
        "request_limit": request_limit,
        "reply_limit": reply_limit,
        "rng": rng,
        "open_link": open_link or opener_of(ssl),
        "auth": [credentials.checked(*_pair(each), request_limit=request_limit) for each in auth],
        "sasl": sasl._with_rng(rng) if isinstance(sasl, DigestMD5) else sasl,
        "accepts_read_only": bool(read_only),
        "observer": observer,
        "request_timeout": request_timeout,
    }
    return _ConnectContext(partial(_connected, chroot, within, bool(follow_config), bool(ssl), options))


def _pair(each: object) -> Sequence[object]:
    if not isinstance(each, tuple | list) or len(each) != 2:
        raise TypeError("auth must be a sequence of pairs of a scheme and bytes: auth=[('digest', b'user:password')]")
    return each
