"""The entry of the command `zklock`: parse the arguments, run one command, end with its exit status.

| status | meaning, for run and elect |
|---|---|
| that of the command | it has ended by itself; 128 + N if signal N has ended it |
| 123 | the lock was lost, and the command was ended, or not started |
| 124 | the lock was not acquired: not in time, or not at once with --try |
| 125 | an error of zklock itself: bad arguments, no server, or a server that has refused |
| 126, 127 | the command cannot be run; it is not found |
| 128 + N | signal N has ended zklock while it waited |

`show` has the statuses of the command zkwire: 0, 1 refused, 2 misused, 3 unreachable, 130 interrupted.
"""

from __future__ import annotations

import argparse
import asyncio
import logging
import os
import sys
from collections.abc import Callable, Sequence
from typing import Any, Final, NoReturn

import zkwire
from recipes.command import running, show
from zkwire.command import output
from zkwire.command.options import UnreachableError, add_connection_options, seconds

_REFUSED: Final = 1
_MISUSED: Final = 2
_UNREACHABLE: Final = 3
_INTERRUPTED: Final = 130
_LONG_SESSION: Final = 30.0  # seconds
_GRACE: Final = 2.0  # seconds


class _Parser(argparse.ArgumentParser):
    """A parser that exits with `misused` when it does not understand the arguments."""

    misused = _MISUSED

    def error(self, message: str) -> NoReturn:
        self.print_usage(sys.stderr)
        self.exit(self.misused, f"{self.prog}: {message}\n")


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command that `arguments` name, the program's own by default; return the exit status."""
    given = list(sys.argv[1:] if arguments is None else arguments)
    end = given.index("--") if "--" in given else len(given)
    options, unknown = parser().parse_known_args(given[:end])
    if unknown:  # here, because the parser of all commands would exit with a status of its own
        options.parser.error(f"unrecognized arguments: {' '.join(unknown)}")
    options.command = given[end + 1 :]
    output.prepare_streams()
    if bool(options.command) is not options.takes_command:
        what = "behind --, write the command to run" if options.takes_command else "show takes no command"
        return _failed(what, options.misused)
    log = logging.getLogger("zkwire"), logging.getLogger("recipes")
    levels = [each.level for each in log]
    for each in log:
        each.setLevel(logging.CRITICAL)  # what fails is said once, at the end
    try:
        zkwire.validate_path(options.path)
        status: int = options.run(options)
        sys.stdout.flush()
        return status
    except KeyboardInterrupt:
        return _INTERRUPTED
    except BrokenPipeError:
        # The reader of our output, for example `head`, has ended.  Python would complain when it flushes at its end.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 0
    except running.RunError as error:
        return _failed(error, error.status)
    except (UnreachableError, zkwire.ConnectionLostError, zkwire.SessionError) as error:
        return _failed(error, options.unreachable)
    except (argparse.ArgumentTypeError, ValueError, TypeError) as error:
        return _failed(error, options.misused)  # what zkwire refuses before it sends anything, such as a bad path
    except (zkwire.ZooKeeperError, OSError) as error:
        return _failed(error, options.refused)
    finally:
        for each, level in zip(log, levels, strict=True):
            each.setLevel(level)


def parser() -> argparse.ArgumentParser:
    """Return the parser of the whole command line, up to the `--` in front of a command to run."""
    top = _Parser(prog="zklock", description="Run commands under distributed locks, and show the holders of locks.")
    commands = top.add_subparsers(required=True, metavar="COMMAND")

    command = _add_running(commands, "run", running.run, "run a command while a lock is held")
    wait = command.add_mutually_exclusive_group()
    wait.add_argument("--within", type=_seconds_or_none, metavar="SECONDS", help="give up waiting for the lock after")
    wait.add_argument("--try", action="store_true", dest="only_try", help="give up at once if it is held")

    command = _add_running(commands, "elect", running.elect, "run a command while this process leads")
    command.add_argument("--once", action="store_true", help="end when the leadership is lost, do not wait again")

    text = "show the locks at a path and below, with their holders and the clients that wait"
    command = commands.add_parser("show", help=text, description=text.capitalize() + ".")
    command.add_argument("path", nargs="?", default="/")
    command.add_argument("--watch", action="store_true", help="now and after each change, until interrupted")
    command.add_argument("--json", action="store_true", help="print JSON, for programs")
    add_connection_options(command, bound="--connect-within")
    command.set_defaults(
        run=_show, parser=command, takes_command=False, misused=_MISUSED, refused=_REFUSED, unreachable=_UNREACHABLE
    )
    return top


def _add_running(commands: Any, name: str, run: Callable[..., int], text: str) -> argparse.ArgumentParser:
    command: _Parser = commands.add_parser(
        name,
        help=text,
        description=text.capitalize() + ".",
        usage=f"zklock {name} PATH [OPTION ...] -- COMMAND [ARGUMENT ...]",
    )
    command.misused = running.FAILED
    command.add_argument("path", metavar="PATH")
    command.add_argument("--data", metavar="TEXT", help="shown to others; host, process id and command by default")
    command.add_argument(
        "--grace",
        type=_seconds_or_none,
        default=_GRACE,
        metavar="SECONDS",
        help=f"from SIGTERM to SIGKILL when the command has to end; {_GRACE:g}",
    )
    add_connection_options(command, bound="--connect-within", session_timeout=_LONG_SESSION)
    failed = running.FAILED
    command.set_defaults(
        run=run, parser=command, takes_command=True, misused=failed, refused=failed, unreachable=failed
    )
    return command


def _seconds_or_none(text: str) -> float:
    """Return the number of seconds in `text`, 0 or more; argparse reports the ValueError of anything else."""
    return 0.0 if float(text) == 0 else seconds(text)


def _show(options: argparse.Namespace) -> int:
    asyncio.run(show.show(options))
    return 0


def _failed(error: object, status: int) -> int:
    print(f"zklock: {error}", file=sys.stderr)
    return status
