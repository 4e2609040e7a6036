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
import math
import os
import re
import ssl
import sys
from collections.abc import Callable, Coroutine, Iterator, Mapping, Sequence
from contextlib import AbstractAsyncContextManager
from pathlib import Path
from typing import Any, Final, NoReturn, Self

import zkwire
from zkwire.command import output

DEFAULT_HOSTS: Final = "127.0.0.1:2181"
REFUSED: Final = 1
MISUSED: Final = 2
UNREACHABLE: Final = 3
INTERRUPTED: Final = 130

FLAG: Final[dict[str, Any]] = {"action": "store_true"}  # the settings of an argument without a value
_ADVICE: Final = {  # what stands in a shell for the advice of errors, which names arguments of zkwire.connect
    "zkwire.connect a longer `within`, or None to wait for ever": "it more time to connect, see --help",
    "`auth` (or|and) `sasl` of zkwire.connect": "--auth",
    "^session_timeout is": "--session-timeout is",
    r"ensure_path\('/'\)": "zkwire create -p /",
    "leave out ssl": "leave out the options of TLS",
    "see ssl=": "see --tls",
    "^(the semaphore (.*) has .* not (.*): .*), or None to use the stored one.*": r"\1, or change it: zkwire set \2 \3",
    r",( or)? see `\w+` of zkwire.connect|: use connect\(.*": "",
}


class CommandError(Exception):
    """The command has failed.

    Args:
        text: The line for the standard error.
        status: The exit status.
    """

    def __init__(self, text: str, status: int = REFUSED) -> None:
        super().__init__(text)
        self.status = status


class Parser(argparse.ArgumentParser):
    """A parser whose complaints contain nothing that was given: a misplaced word may be a password.

    Attributes:
        misused: The exit status when it does not understand the arguments.
        advice: What follows in the complaint about arguments that it does not know.
        commands: The commands that it has, by `add_parser`; each sets `parser` to its own parser.
    """

    misused = MISUSED
    advice = ""
    commands: Any

    @classmethod
    def top(cls, program: str, description: str) -> Self:
        """Return the parser of a whole command line, still without commands."""
        parser = cls(prog=program, description=f"{description}  Options may stand before the command or after it.")
        parser.add_argument("--version", action="version", version=f"{program} {zkwire.__version__}")
        parser.commands = parser.add_subparsers(required=True, metavar="COMMAND")
        return parser

    def __init__(self, **settings: Any) -> None:
        super().__init__(allow_abbrev=False, **settings)

    def error(self, message: str) -> NoReturn:
        """Print the usage and the complaint without what it quotes; exit."""
        text = re.sub(r"(?s):? ?['\"].*", "", message)
        with contextlib.suppress(OSError):  # argparse may fail when the standard error has no reader
            self.print_usage(sys.stderr)
            print(f"{self.prog}: error: {text}; see {self.prog} --help", file=sys.stderr)
        self.exit(self.misused)

    def understand(self, given: Sequence[str]) -> argparse.Namespace:
        """Return the options that were given, before or after the name of the command."""
        commands = self.commands.choices
        # The value of an option may be the name of a command.
        actions = [action for each in commands.values() for action in each._actions if action.nargs != 0]
        before, taking = ("", *given), {word for action in actions for word in action.option_strings}
        at = next((at for at, word in enumerate(given) if word in commands and before[at] not in taking), 0)
        options, unknown = self.parse_known_args([*given[at : at + 1], *given[:at], *given[at + 1 :]])
        if unknown:
            options.parser.error(f"unrecognized arguments{options.parser.advice}")
        if not getattr(options, "path", "/").startswith("/"):
            options.parser.error("a path begins with /")
        return options


def exit_status(program: str, body: Callable[[], int | None], failed: int | None = None) -> int:
    """Run `body`; return its exit status, or the status of its error, which becomes a line on the standard error.

    Args:
        program: The name that the line begins with.
        body: What to run; None counts as 0.
        failed: The status of all errors but a CommandError, in place of 1, 2 and 3.
    """
    for name in ("zkwire", "recipes"):
        logging.getLogger(name).addHandler(logging.NullHandler())  # an error is reported once, at the end
    try:
        status = body() or 0
        sys.stdout.flush()
        return status
    except KeyboardInterrupt:
        return INTERRUPTED
    except BrokenPipeError:
        return 0  # the reader of our output, for example `head`, has ended
    except CommandError as error:
        status, text = error.status, str(error)
    except (TimeoutError, ConnectionError, zkwire.ConnectionLostError, zkwire.SessionError) as error:
        status, text = failed or UNREACHABLE, str(error)
    except (argparse.ArgumentTypeError, ValueError, TypeError) as error:
        # What zkwire refuses before it sends anything, such as a bad path.
        status, text = failed or MISUSED, str(error)
    except (zkwire.ZooKeeperError, OSError) as error:
        status, text = failed or REFUSED, str(error)
    for ours, theirs in _ADVICE.items():
        text = re.sub(ours, theirs, text)
    output.say(f"{program}: {text}", to=sys.stderr)
    return status


def add_arguments(parser: argparse._ActionsContainer, names: str, settings: Mapping[str, Mapping[str, Any]]) -> None:
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
    add = parser.add_argument_group("connection").add_argument
    text = f"the servers, and the node that counts as the root; ZKWIRE_HOSTS, or {DEFAULT_HOSTS}"
    add("--hosts", default=os.environ.get("ZKWIRE_HOSTS", DEFAULT_HOSTS), metavar="HOST:PORT,...[/CHROOT]", help=text)
    text = "an identity to show, for example digest:user:password; may be repeated; better in ZKWIRE_AUTH"
    add("--auth", action="append", type=credential, default=[], metavar="SCHEME:CREDENTIAL", help=text)
    text = "a file with such identities, one a line; ZKWIRE_AUTH_FILE"
    add("--auth-file", default=os.environ.get("ZKWIRE_AUTH_FILE"), metavar="FILE", help=text)
    add("--tls", action="store_true", help="connect with TLS and the system's authorities")
    # A Path is true, also one of an empty variable: no option of TLS is taken for none.
    file: dict[str, Any] = {"type": Path, "metavar": "FILE"}
    add("--tls-ca", **file, help="connect with TLS and trust the authorities in this PEM file")
    add("--tls-cert", **file, help="our own certificate, PEM, with its key or beside --tls-key")
    add("--tls-key", **file, help="the key of our certificate, PEM")
    timeout, within = f"of the session; {session_timeout:g}", "give up connecting after; 10"
    add(bound, type=seconds, default=10.0, metavar="SECONDS", dest="to_connect", help=within)
    add("--session-timeout", type=seconds, default=session_timeout, metavar="SECONDS", help=timeout)


def seconds(
    text: str, what: str = "a number of seconds above 0", kind: type[float] = float, least: float = math.ulp(0.0)
) -> float:
    """Return the number in `text`.

    Raises:
        argparse.ArgumentTypeError: if it is not `what`, as `kind` and `least` say.
    """
    with contextlib.suppress(ValueError):
        if least <= (value := kind(text)) < float("inf"):
            return value
    raise argparse.ArgumentTypeError(f"it must be {what}")


def positive(text: str) -> float:
    """Return the whole number above 0 in `text`, as `seconds` does."""
    return seconds(text, "a whole number above 0", int)


def credential(text: str, where: str = "") -> tuple[str, bytes]:
    """Return the scheme and the credential in "digest:user:password"; an error begins with `where`.

    Raises:
        argparse.ArgumentTypeError: if there is no scheme.
    """
    scheme, colon, secret = text.partition(":")
    if not colon or not scheme:
        raise argparse.ArgumentTypeError(f"{where}a credential is SCHEME:CREDENTIAL, for example digest:user:password")
    return scheme, os.fsencode(secret)  # the bytes that were given, also if they are no text


def tls_of(options: argparse.Namespace) -> ssl.SSLContext | None:
    """Return the context for TLS, or None for plain connections.

    Raises:
        argparse.ArgumentTypeError: if there is a key without its certificate.
        OSError: if a file cannot be read.
    """
    if options.tls_key and not options.tls_cert:
        raise argparse.ArgumentTypeError("--tls-key needs --tls-cert")
    if not (options.tls or options.tls_ca or options.tls_cert):
        return None
    try:
        context = ssl.create_default_context(cafile=options.tls_ca)
        if options.tls_cert:
            context.load_cert_chain(options.tls_cert, options.tls_key)
    except OSError as error:
        raise OSError(f"a file of --tls-ca, --tls-cert or --tls-key: {error}") from error  # ssl does not name it
    return context


def connected(options: argparse.Namespace) -> AbstractAsyncContextManager[zkwire.Client]:
    """Return a context with the client that the options describe.

    Raises:
        argparse.ArgumentTypeError: if ZKWIRE_AUTH or the file of identities is bad, or for `tls_of`.
        OSError: if a file of TLS cannot be read; entering the context raises what `zkwire.connect` does.
    """
    # The environment is for secrets: other users of a machine can read the arguments of a command.
    secrets = {"": os.environ.get("ZKWIRE_AUTH", "")}
    if options.auth_file:
        where = "the file of --auth-file: "
        try:
            lines = Path(options.auth_file).read_bytes().splitlines()
        except OSError as error:  # without the name, which may be an identity in the wrong place
            raise argparse.ArgumentTypeError(f"{where}{error.strerror}") from None
        for number, line in enumerate(map(bytes.lstrip, lines), 1):
            secrets[f"line {number} of {where}"] = "" if line.startswith(b"#") else os.fsdecode(line)
    auth = [*(credential(text, where) for where, text in secrets.items() if text), *options.auth]
    within, tls = options.to_connect, tls_of(options)
    return zkwire.connect(options.hosts, options.session_timeout, within=within, auth=auth, ssl=tls)


@contextlib.contextmanager
def beside(telling: Coroutine[Any, Any, None]) -> Iterator[None]:
    """Run `telling` in a task of its own, while the body runs."""
    task = asyncio.create_task(telling)
    try:
        yield
    finally:
        task.cancel()


async def tell_connection(zk: zkwire.Client, program: str) -> None:
    """Print a line on the standard error for each change of the connection, which begins with the program's name."""
    states = zk.states()
    await anext(states)
    async for state in states:
        output.say(f"{program}: {state.value}", to=sys.stderr)
