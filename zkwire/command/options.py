"""The options that say which ensemble to ask, and as whom; `connected` opens the client that they describe."""

from __future__ import annotations

import argparse
import contextlib
import os
import ssl
from collections.abc import AsyncIterator, Mapping

import zkwire

DEFAULT_HOSTS = "127.0.0.1:2181"


class UnreachableError(Exception):
    """No server has accepted a session in time."""


def add_connection_options(
    parser: argparse.ArgumentParser,
    environment: Mapping[str, str] = os.environ,
    *,
    bound: str = "--within",
    session_timeout: float = 10.0,
) -> None:
    """Add the options of a connection; their defaults come from `environment`.

    Arguments: `bound`, the name of the option that bounds the time for connecting; `session_timeout`, the default.
    """
    group = parser.add_argument_group("connection")
    group.add_argument(
        "--hosts",
        default=environment.get("ZKWIRE_HOSTS", DEFAULT_HOSTS),
        metavar="HOST:PORT,...[/CHROOT]",
        help=f"the servers, and the node that counts as the root; ZKWIRE_HOSTS, or {DEFAULT_HOSTS}",
    )
    group.add_argument(
        "--auth",
        action="append",
        type=credential,
        # The environment is for secrets: other users of a machine can read the arguments of a command.
        default=[environment["ZKWIRE_AUTH"]] if environment.get("ZKWIRE_AUTH") else [],
        metavar="SCHEME:CREDENTIAL",
        help="an identity to show, for example digest:user:password; may be repeated; better in ZKWIRE_AUTH",
    )
    group.add_argument("--tls", action="store_true", help="connect with TLS and the system's authorities")
    group.add_argument("--tls-ca", metavar="FILE", help="connect with TLS and trust the authorities in this PEM file")
    group.add_argument("--tls-cert", metavar="FILE", help="our own certificate, PEM, with its key or beside --tls-key")
    group.add_argument("--tls-key", metavar="FILE", help="the key of our certificate, PEM")
    group.add_argument(
        bound, type=seconds, default=10.0, metavar="SECONDS", dest="to_connect", help="give up connecting after; 10"
    )
    group.add_argument(
        "--session-timeout",
        type=seconds,
        default=session_timeout,
        metavar="SECONDS",
        help=f"of the session; {session_timeout:g}",
    )


def seconds(text: str) -> float:
    """Return the number of seconds in `text`; argparse reports the ValueError of anything else."""
    value = float(text)
    if not 0 < value < float("inf"):
        raise ValueError
    return value


def positive(text: str) -> int:
    """Return the whole number above 0 in `text`; argparse reports the ValueError of anything else."""
    value = int(text)
    if value < 1:
        raise ValueError
    return value


def credential(text: str) -> tuple[str, bytes]:
    """Return the scheme and the credential in "digest:user:password".  Raises: argparse.ArgumentTypeError."""
    scheme, colon, secret = text.partition(":")
    if not colon or not scheme:
        raise argparse.ArgumentTypeError("a credential is SCHEME:CREDENTIAL, for example digest:user:password")
    return scheme, os.fsencode(secret)  # the bytes that were given, also if they are no text


def tls_of(options: argparse.Namespace) -> ssl.SSLContext | None:
    """Return the context for TLS, or None for plain connections.  Raises: OSError for a file that cannot be read."""
    if not (options.tls or options.tls_ca or options.tls_cert):
        return None
    context = ssl.create_default_context(cafile=options.tls_ca)
    if options.tls_cert:
        context.load_cert_chain(options.tls_cert, options.tls_key)
    return context


@contextlib.asynccontextmanager
async def connected(options: argparse.Namespace) -> AsyncIterator[zkwire.Client]:
    """Connect as the options say, and close the session at the end.

    Raises: UnreachableError; argparse.ArgumentTypeError for a bad ZKWIRE_AUTH; what `zkwire.connect` raises.
    """
    # The one of the environment is still a text: argparse would not say which command it belongs to.
    auth = [credential(each) if isinstance(each, str) else each for each in options.auth]
    tls = tls_of(options)
    try:
        zk = await zkwire.connect(options.hosts, options.session_timeout, within=options.to_connect, auth=auth, ssl=tls)
    except TimeoutError as error:
        raise UnreachableError(str(error)) from None
    async with zk:
        yield zk
