"""`connect`: from a connect string and options to a Client whose session a server has taken."""

from __future__ import annotations

import random
import ssl as tls
from collections.abc import Generator, Sequence
from types import TracebackType
from typing import Any, Final

from zkwire.client.client import Client
from zkwire.client.follow_config import follow_config as follow
from zkwire.session import credentials, hosts
from zkwire.session.observer import Observer
from zkwire.session.sasl import DigestMD5, SaslMechanism
from zkwire.session.session import Session
from zkwire.session.transport import OpenLink, open_link, tls_opener

_PASSWORD_BYTES: Final = 16
_LONGEST_TIMEOUT: Final = (2**31 - 1) / 1000  # the wire counts milliseconds in 32 bits


class Connecting:
    """What `connect` returns: await it, or enter it with `async with`, for the Client."""

    def __init__(self, options: dict[str, Any], chroot: str, observer: Observer | None, follows: bool) -> None:
        self._options = options
        self._chroot = chroot
        self._observer = observer
        self._follows = follows
        self._client: Client | None = None

    def __await__(self) -> Generator[Any, None, Client]:
        return self._connect().__await__()

    async def __aenter__(self) -> Client:
        self._client = await self._connect()
        return self._client

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._client is not None:
            await self._client.close()

    async def _connect(self) -> Client:
        session = Session(**self._options, observer=self._observer)
        try:
            await session.wait_started()
        except BaseException:
            await session.close(keep_session=self._options["session_id"] != 0)  # it is not ours to end
            raise
        if self._follows:
            session.run_in_background(follow(session))
        return Client(session, self._chroot, self._options["rng"])


def connect(
    connect_string: str,
    session_timeout: float = 10.0,
    *,
    session_id: int = 0,
    session_password: bytes = b"",
    renew: bool = True,
    max_in_flight: int = 1000,
    read_only: bool = False,
    ssl: tls.SSLContext | bool | None = None,
    auth: Sequence[tuple[str, bytes]] = (),
    sasl: SaslMechanism | None = None,
    follow_config: bool = False,
    observer: Observer | None = None,
    rng: random.Random | None = None,
    open_link: OpenLink | None = None,
) -> Connecting:
    """Connect to an ensemble.

        async with zkwire.connect("zk1:2181,zk2:2181/app") as zk: ...
        zk = await zkwire.connect("zk1:2181"); ...; await zk.close()

    Arguments: `connect_string`, servers and an optional chroot: "host[:port],...[/path]", port 2181 unless named;
    `session_timeout`, in seconds, how long the ensemble keeps the session, and its ephemeral nodes, without a sign of
    life: the server may grant another one, see `session_timeout` of the client; `session_id` and `session_password`,
    a session to resume;
    `renew`, whether an expired session is followed by a new one; `max_in_flight`, how many requests may be unanswered
    at a time, the rest waiting in line;
    `read_only`, whether a server that has lost its quorum will do: the state is then READ_ONLY, writes are refused by
    NotReadOnlyError, and the client goes on looking for a server that can write, to which it moves; what it had from
    the former is a session of that server alone, so that `session_id` changes then, without an EXPIRED, as no
    ephemeral node can have belonged to it; watches come along;
    `ssl`, an SSLContext, with the client's certificate in it if the server wants one, or True for the default one:
    the server's certificate must be for the host as the connect string names it;
    `auth`, credentials as for `Client.add_auth`, shown before anything else is asked; `sasl`, who authenticates by
    SASL before that, such as DigestMD5(user, password): see SaslMechanism;
    `follow_config`, whether to follow /zookeeper/config, in which a reconfigured ensemble lists its servers, as
    `Client.set_hosts` would;
    `observer`, who is told of requests, events and states: see Observer;
    `rng` and `open_link`, the sources of randomness and of connections, to be replaced in simulations.
    Raises: ValueError and TypeError at once for bad arguments; SessionExpiredError when the session to resume is gone;
    AuthFailedError when a server refuses `auth` or `sasl`.
    Otherwise it tries until a server answers, and logs each failure: bound it with asyncio.timeout.
    Cancellation: leaves nothing behind.
    """
    addresses, chroot = hosts.parse(connect_string)
    if isinstance(session_timeout, bool) or not isinstance(session_timeout, int | float):
        raise TypeError(f"session_timeout is a number of seconds, not {session_timeout!r}")
    if not 0 < session_timeout <= _LONGEST_TIMEOUT:  # not a number is not, either
        raise ValueError(
            f"session_timeout must be positive and at most {_LONGEST_TIMEOUT}, in seconds, not {session_timeout!r}"
        )
    if not isinstance(max_in_flight, int) or max_in_flight < 1:
        raise ValueError(f"max_in_flight must be at least 1, not {max_in_flight!r}")
    if not isinstance(session_id, int) or not isinstance(session_password, bytes):
        raise TypeError(f"session_id is an int and session_password bytes, not {session_id!r}, {session_password!r}")
    if not -(2**63) <= session_id < 2**63:
        raise ValueError(f"a session_id has 64 bits, {session_id} has more")
    if session_id and len(session_password) != _PASSWORD_BYTES:
        raise ValueError(f"to resume session {session_id:#x}, give its session_password of {_PASSWORD_BYTES} bytes")
    if session_password and not session_id:
        raise ValueError("a session_password goes with a session_id")
    if open_link is not None and ssl:
        raise ValueError("ssl says how connections are opened, and open_link does too: give one of them")
    if sasl is not None and not isinstance(sasl, SaslMechanism):
        raise TypeError(f"sasl has the methods start and step, as zkwire.DigestMD5 has, and {sasl!r} does not")
    if observer is not None and not isinstance(observer, Observer):
        raise TypeError(f"observer is a zkwire.Observer, not {observer!r}")
    rng = rng or random.Random()
    options = {
        "addresses": addresses,
        "timeout": float(session_timeout),
        "session_id": session_id,
        "password": session_password,
        "renew": renew,
        "max_in_flight": max_in_flight,
        "rng": rng,
        "open_link": open_link or _opener(ssl),
        "auth": [credentials.checked(*each) for each in auth],
        "sasl": sasl.with_rng(rng) if isinstance(sasl, DigestMD5) else sasl,
        "accepts_read_only": bool(read_only),
    }
    return Connecting(options, chroot, observer, bool(follow_config))


def _opener(ssl: tls.SSLContext | bool | None) -> OpenLink:
    if isinstance(ssl, tls.SSLContext):
        return tls_opener(ssl)
    if ssl is not None and not isinstance(ssl, bool):
        raise TypeError(f"ssl is an SSLContext, or True for the default one, not {ssl!r}")
    return tls_opener(tls.create_default_context()) if ssl else open_link
