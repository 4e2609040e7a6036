"""What the commands `zkwire` and `zklock` have in common: options, the connection that they describe, and the end.

| status | meaning |
|---|---|
| 0 | done |
| 1 | the ensemble has refused, or something is wrong with the input |
| 2 | a mistake in the arguments |
| 3 | no server could be reached in time, or the session was lost |
| 130 | interrupted |
"""

import argparse
import asyncio
import contextlib
import logging
import os
import ssl
import sys
from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractAsyncContextManager
from typing import Any, Final

import zkwire
from zkwire import SessionState
from zkwire.command import output

DEFAULT_HOSTS: Final = "127.0.0.1:2181"
REFUSED: Final = 1
MISUSED: Final = 2
UNREACHABLE: Final = 3
INTERRUPTED: Final = 130

FLAG: Final[dict[str, Any]] = {"action": "store_true"}  # the settings of an argument without a value


class CommandError(Exception):
    """The command has failed.

    Args:
        text: The line for the standard error.
        status: The exit status.
    """

    def __init__(self, text: str, status: int = REFUSED) -> None:
        super().__init__(text)
        self.status = status


def exit_status(program: str, body: Callable[[], int | None], failed: int | None = None) -> int:
    """Run `body`; return its exit status, or the status of its error, which becomes a line on the standard error.

    Args:
        program: The name that the line begins with.
        body: What to run; None counts as 0.
        failed: The status of all errors but a CommandError, in place of 1, 2 and 3.
    """
    output.prepare_streams()
    levels = {log: log.level for log in map(logging.getLogger, ("zkwire", "recipes"))}
    for log in levels:
        log.setLevel(logging.CRITICAL)  # an error is reported once, at the end
    try:
        status = body() or 0
        sys.stdout.flush()
        return status
    except KeyboardInterrupt:
        return INTERRUPTED
    except BrokenPipeError:
        # The reader of our output, for example `head`, has ended.  Python would complain when it flushes at its end.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 0
    except CommandError as error:
        status, text = error.status, str(error)
    except (TimeoutError, ConnectionError, zkwire.ConnectionLostError, zkwire.SessionError) as error:
        status, text = failed or UNREACHABLE, str(error)
    except (argparse.ArgumentTypeError, ValueError, TypeError) as error:
        # What zkwire refuses before it sends anything, such as a bad path.
        status, text = failed or MISUSED, str(error)
    except (zkwire.ZooKeeperError, OSError) as error:
        status, text = failed or REFUSED, str(error)
    finally:
        for log, level in levels.items():
            log.setLevel(level)
    print(f"{program}: {text}", file=sys.stderr)
    return status


def add_arguments(parser: argparse.ArgumentParser, names: str, settings: Mapping[str, Mapping[str, Any]]) -> None:
    """Add arguments to the parser.

    Args:
        names: The keys of the arguments, separated by spaces: "path" or "-l/--long"; "?" at the end is not in the name.
        settings: The keyword arguments of `add_argument` by key; options that are not in it are flags without help.
    """
    for key in names.split():
        parser.add_argument(*key.rstrip("?").split("/"), **settings[key])


def add_connection_options(
    parser: argparse.ArgumentParser, *, bound: str = "--within", session_timeout: float = 10.0
) -> None:
    """Add the options of a connection; the environment has their defaults.

    Args:
        parser: Gets the options.
        bound: The name of the option that bounds the time for connecting.
        session_timeout: The default, in seconds.
    """
    # The environment is for secrets: other users of a machine can read the arguments of a command.
    secret = os.environ.get("ZKWIRE_AUTH")
    add = parser.add_argument_group("connection").add_argument
    add(
        "--hosts",
        default=os.environ.get("ZKWIRE_HOSTS", DEFAULT_HOSTS),
        metavar="HOST:PORT,...[/CHROOT]",
        help=f"the servers, and the node that counts as the root; ZKWIRE_HOSTS, or {DEFAULT_HOSTS}",
    )
    add(
        "--auth",
        action="append",
        type=credential,
        default=[secret] if secret else [],
        metavar="SCHEME:CREDENTIAL",
        help="an identity to show, for example digest:user:password; may be repeated; better in ZKWIRE_AUTH",
    )
    add("--tls", action="store_true", help="connect with TLS and the system's authorities")
    add("--tls-ca", metavar="FILE", help="connect with TLS and trust the authorities in this PEM file")
    add("--tls-cert", metavar="FILE", help="our own certificate, PEM, with its key or beside --tls-key")
    add("--tls-key", metavar="FILE", help="the key of our certificate, PEM")
    timeout, within = f"of the session; {session_timeout:g}", "give up connecting after; 10"
    add(bound, type=seconds, default=10.0, metavar="SECONDS", dest="to_connect", help=within)
    add("--session-timeout", type=seconds, default=session_timeout, metavar="SECONDS", help=timeout)


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
    """Return the scheme and the credential in "digest:user:password".

    Raises:
        argparse.ArgumentTypeError: if there is no scheme.
    """
    scheme, colon, secret = text.partition(":")
    if not colon or not scheme:
        raise argparse.ArgumentTypeError("a credential is SCHEME:CREDENTIAL, for example digest:user:password")
    return scheme, os.fsencode(secret)  # the bytes that were given, also if they are no text


def tls_of(options: argparse.Namespace) -> ssl.SSLContext | None:
    """Return the context for TLS, or None for plain connections.

    Raises:
        OSError: if a file cannot be read.
    """
    if not (options.tls or options.tls_ca or options.tls_cert):
        return None
    context = ssl.create_default_context(cafile=options.tls_ca)
    if options.tls_cert:
        context.load_cert_chain(options.tls_cert, options.tls_key)
    return context


def connected(options: argparse.Namespace) -> AbstractAsyncContextManager[zkwire.Client]:
    """Return a context with the client that the options describe.

    Raises:
        argparse.ArgumentTypeError: if ZKWIRE_AUTH is bad.
        OSError: if a file for TLS cannot be read; entering the context raises what `zkwire.connect` does.
    """
    # The credential of the environment is still a text: argparse would not say which command it belongs to.
    auth = [credential(each) if isinstance(each, str) else each for each in options.auth]
    within, tls = options.to_connect, tls_of(options)
    return zkwire.connect(options.hosts, options.session_timeout, within=within, auth=auth, ssl=tls)


@contextlib.contextmanager
def connection_told(zk: zkwire.Client, program: str) -> Iterator[None]:
    """Print a line on the standard error for each change of the connection, while the body runs.

    Args:
        zk: The client, which is connected.
        program: The name that the lines begin with.
    """

    async def tell() -> None:
        told = SessionState.CONNECTED
        async for state in states:
            if state is not told:
                print(f"{program}: {state.value}", file=sys.stderr, flush=True)
            told = state

    states = zk.states()  # before the task begins: no change in between is missed
    telling = asyncio.create_task(tell())
    try:
        yield
    finally:
        telling.cancel()
