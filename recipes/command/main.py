"""The entry of the command `zklock`: parse the arguments, run one command, end with its exit status.

| status | meaning, for run and elect |
|---|---|
| the status of the command | it has ended by itself; 128 + N if signal N has ended it |
| 123 | the lock was lost, and the command was ended, or not started |
| 124 | the lock was not acquired: not in time, or not at once with --try; -E sets another status |
| 125 | an error of zklock itself: bad arguments, no server, or a server that has refused |
| 126, 127 | the command cannot be run; it is not found |
| 128 + N | signal N has ended zklock while it waited |

`show`, `leader` and `break` have the statuses of the command zkwire: 0, 1 refused, 2 misused, 3 unreachable, 130
interrupted.
"""

import argparse
import asyncio
import sys
from collections.abc import Sequence
from typing import Any, Final

import zkwire
from recipes.command import breaking, running, show
from zkwire.command import options as common
from zkwire.command import output


def duration(text: str) -> float:
    """Return the number of seconds in `text`, 0 or more, as `common.seconds` does."""
    return common.seconds(text, "a number of seconds, 0 or more", least=0.0)


_SECONDS: Final = {"type": duration, "metavar": "SECONDS"}
_CONFLICT: Final = f"the exit status if it was not acquired; {running.NOT_ACQUIRED}"
_ARGUMENTS: Final[dict[str, dict[str, Any]]] = {
    "path": {"metavar": "PATH"},
    "path?": {"nargs": "?", "default": "/"},
    "--data": {"metavar": "TEXT", "help": "shown to others; host, process id and command by default"},
    "--grace": {**_SECONDS, "help": f"from SIGTERM to SIGKILL; {running.GRACE:g}, or less in a short session"},
    "-q/--quiet": {**common.FLAG, "help": "do not say on whom it waits, nor that the connection is lost"},
    "-E/--conflict-exit-code": {"type": int, "default": running.NOT_ACQUIRED, "metavar": "STATUS", "help": _CONFLICT},
    "--within": {**_SECONDS, "help": "give up waiting for the lock after"},
    "--try": {"action": "store_const", "const": 0.0, "dest": "within", "help": "give up at once if it is held"},
    "-s/--shared": {**common.FLAG, "help": "hold it together with others that are --shared"},
    "-n/--permits": {"type": common.positive, "metavar": "N", "help": "hold it together with others, N at a time"},
    "--once": {**common.FLAG, "help": "end when the leadership is lost, do not wait again"},
    "--follow": {**common.FLAG, "help": "print the leader now and after each change, until interrupted"},
    "--watch": {**common.FLAG, "help": "now and after each change, until interrupted"},
    "-y/--yes": {**common.FLAG, "help": "ask no question"},
    "--json": {**common.FLAG, "help": "print JSON, for programs"},
}

_RUNNING: Final = "path --data --grace -q/--quiet"
_SHOWING: Final = {"show": show.show, "leader": show.leader, "break": breaking.remove_holders}


@output.prepared_streams()
def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command that `arguments` name, the program's own by default; return the exit status."""
    given = list(sys.argv[1:] if arguments is None else arguments)
    end = given.index("--") if "--" in given else len(given)
    options = parser().understand(given[:end])
    options.command = given[end + 1 :]
    return common.exit_status("zklock", lambda: _run(options), options.failed)


def parser() -> common.Parser:
    """Return the parser of the whole command line, up to the `--` before a command to run."""
    top = common.Parser.top("zklock", "Run commands under distributed locks, show and remove the holders of locks.")
    # Of commands without these options.
    top.set_defaults(within=None, once=True, conflict_exit_code=0, follow=False, json=False)

    command = _add(top, "run", "run a command while a lock is held", f"{_RUNNING} -E/--conflict-exit-code")
    for exclusive in ("--within --try", "-s/--shared -n/--permits"):
        common.add_arguments(command.add_mutually_exclusive_group(), exclusive, _ARGUMENTS)
    _add(top, "elect", "run a command while this process leads", f"{_RUNNING} --once --follow")
    _add(top, "show", "show the locks at a path and below, with their holders and waiters", "path? --watch --json")
    _add(top, "leader", "print the data of the leader of an election", "path --follow --json")
    _add(top, "break", "remove the holders of a lock, after a question for each", "path -y/--yes")
    return top


def _add(top: common.Parser, name: str, text: str, names: str) -> common.Parser:
    """Add a command with its arguments; each runs another one, but for those in _SHOWING."""
    shows = name in _SHOWING
    usage = None if shows else f"zklock {name} PATH [OPTION ...] -- COMMAND [ARGUMENT ...]"
    command: common.Parser = top.commands.add_parser(name, help=text, description=text.capitalize() + ".", usage=usage)
    common.add_arguments(command, names, _ARGUMENTS)
    failed = None if shows else running.FAILED
    command.misused = failed or common.MISUSED
    command.advice = "" if shows else "; the command to run stands after --"
    common.add_connection_options(command, bound="--connect-within", session_timeout=10.0 if shows else 30.0)
    command.set_defaults(name=name, parser=command, failed=failed)
    return command


def _run(options: argparse.Namespace) -> int | None:
    shows = _SHOWING.get("leader" if options.follow else options.name)
    name = options.name
    if shows and name == "elect":
        name = "elect --follow"
        for each in ("data", "grace", "quiet", "once"):
            if getattr(options, each) is not options.parser.get_default(each):
                raise ValueError(f"{name} takes no --{each}: it only shows who leads")
    if bool(options.command) is (shows is not None):
        raise ValueError(f"{name} takes no command" if shows else "after --, write the command to run")
    zkwire.validate_path(options.path)
    if not 0 <= options.conflict_exit_code <= 255:
        raise ValueError("--conflict-exit-code is a number from 0 to 255")
    return running.run(options) if shows is None else asyncio.run(shows(options))
