"""The entry of the command `zklock`: parse the arguments, run one command, end with its exit status.

| status | meaning, for run and elect |
|---|---|
| the status of the command | it has ended by itself; 128 + N if signal N has ended it |
| 123 | the lock was lost, and the command was ended, or not started |
| 124 | the lock was not acquired: not in time, or not at once with --try |
| 125 | an error of zklock itself: bad arguments, no server, or a server that has refused |
| 126, 127 | the command cannot be run; it is not found |
| 128 + N | signal N has ended zklock while it waited |

`show` has the statuses of the command zkwire: 0, 1 refused, 2 misused, 3 unreachable, 130 interrupted.
"""

import argparse
import asyncio
import sys
from collections.abc import Sequence
from typing import Any, Final

import zkwire
from recipes.command import running, show
from zkwire.command.options import FLAG, MISUSED, Parser, add_arguments, add_connection_options, exit_status, seconds

_LONG_SESSION: Final = 30.0  # seconds
_GRACE: Final = 2.0  # seconds


def _seconds_or_none(text: str) -> float:
    """Return the number of seconds in `text`, 0 or more; argparse reports the ValueError of anything else."""
    return 0.0 if float(text) == 0 else seconds(text)


_ARGUMENTS: Final[dict[str, dict[str, Any]]] = {
    "path": {"metavar": "PATH"},
    "path?": {"nargs": "?", "default": "/"},
    "--data": {"metavar": "TEXT", "help": "shown to others; host, process id and command by default"},
    "--grace": {
        "type": _seconds_or_none,
        "default": _GRACE,
        "metavar": "SECONDS",
        "help": f"from SIGTERM to SIGKILL when the command has to end; {_GRACE:g}",
    },
    "--once": {**FLAG, "help": "end when the leadership is lost, do not wait again"},
    "--watch": {**FLAG, "help": "now and after each change, until interrupted"},
    "--json": {**FLAG, "help": "print JSON, for programs"},
}


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command that `arguments` name, the program's own by default; return the exit status."""
    given = list(sys.argv[1:] if arguments is None else arguments)
    end = given.index("--") if "--" in given else len(given)
    options = parser().understand(given[:end])
    options.command = given[end + 1 :]
    return exit_status("zklock", lambda: _run(options), options.failed)


def parser() -> Parser:
    """Return the parser of the whole command line, up to the `--` before a command to run."""
    top = Parser.top("zklock", "Run commands under distributed locks, and show the holders of locks.")
    top.set_defaults(within=None, only_try=False, once=True)  # of commands without these options
    commands = top.commands

    command = _add(commands, "run", "run a command while a lock is held", "path --data --grace")
    wait = command.add_mutually_exclusive_group()
    wait.add_argument("--within", type=_seconds_or_none, metavar="SECONDS", help="give up waiting for the lock after")
    wait.add_argument("--try", **FLAG, dest="only_try", help="give up at once if it is held")

    _add(commands, "elect", "run a command while this process leads", "path --data --grace --once")
    _add(commands, "show", "show the locks at a path and below, with their holders and waiters", "path? --watch --json")
    return top


def _add(commands: Any, name: str, text: str, names: str) -> Parser:
    """Add a command with its arguments; every command but `show` runs another one."""
    is_show = name == "show"
    usage = None if is_show else f"zklock {name} PATH [OPTION ...] -- COMMAND [ARGUMENT ...]"
    command: Parser = commands.add_parser(name, help=text, description=text.capitalize() + ".", usage=usage)
    add_arguments(command, names, _ARGUMENTS)
    failed = None if is_show else running.FAILED
    command.misused = failed or MISUSED
    timeout = {} if is_show else {"session_timeout": _LONG_SESSION}
    add_connection_options(command, bound="--connect-within", **timeout)
    command.set_defaults(name=name, parser=command, failed=failed)
    return command


def _run(options: argparse.Namespace) -> int:
    if bool(options.command) is (options.name == "show"):
        raise ValueError("show takes no command" if options.command else "after --, write the command to run")
    zkwire.validate_path(options.path)
    if options.name != "show":
        return running.run(options)
    asyncio.run(show.show(options))
    return 0
