"""The entry of the command `zkwire`: parse the arguments, run one command, end with its exit status.

| status | meaning |
|---|---|
| 0 | done |
| 1 | the ensemble has refused, or something is wrong with the input; the reason is on the standard error |
| 2 | a mistake in the arguments |
| 3 | no server could be reached in time, or the session was lost |
| 130 | interrupted |
"""

from __future__ import annotations

import argparse
import asyncio
import logging
import os
import sys
from collections.abc import Callable, Sequence
from typing import Any

import zkwire
from zkwire.command import copying, nodes, output, servers
from zkwire.command.options import UnreachableError, add_connection_options, connected

_REFUSED = 1
_MISUSED = 2
_UNREACHABLE = 3
_INTERRUPTED = 130


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command that `arguments` name, the program's own by default; return the exit status."""
    options = parser().parse_args(arguments)
    log = logging.getLogger("zkwire")
    level = log.level
    log.setLevel(logging.CRITICAL)  # what fails is said once, at the end
    output.prepare_streams()
    try:
        # Before the session begins: reading the standard input takes as long as its writer likes.
        options.read_input(options)
        asyncio.run(_run(options))
        sys.stdout.flush()
    except KeyboardInterrupt:
        return _INTERRUPTED
    except BrokenPipeError:
        # The reader of our output, for example `head`, has ended.  Python would complain when it flushes at its end.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 0
    except (UnreachableError, zkwire.ConnectionLostError, zkwire.SessionError) as error:
        return _failed(error, _UNREACHABLE)
    except (
        argparse.ArgumentTypeError,
        ValueError,
        TypeError,
    ) as error:  # what zkwire refuses before it sends anything, such as a bad path
        return _failed(error, _MISUSED)
    except (zkwire.ZooKeeperError, copying.BadDumpError, OSError) as error:
        return _failed(error, _REFUSED)
    finally:
        log.setLevel(level)
    return 0


def parser() -> argparse.ArgumentParser:
    """Return the parser of the whole command line."""
    top = argparse.ArgumentParser(
        prog="zkwire", description="Look at the nodes of a ZooKeeper ensemble, and change them."
    )
    commands = top.add_subparsers(required=True, metavar="COMMAND")

    def add(name: str, run: Callable[..., Any], text: str, *, needs_session: bool = True) -> argparse.ArgumentParser:
        command = commands.add_parser(name, help=text, description=text.capitalize() + ".")
        add_connection_options(command)
        command.add_argument("--json", action="store_true", help="print JSON, for programs")
        command.set_defaults(run=run, needs_session=needs_session, read_input=lambda _: None)
        return command

    for module in (nodes, servers, copying):
        module.add_commands(add)
    return top


async def _run(options: argparse.Namespace) -> None:
    if not options.needs_session:
        await options.run(options)
        return
    async with connected(options) as zk:
        await options.run(zk, options)


def _failed(error: BaseException, status: int) -> int:
    print(f"zkwire: {error}", file=sys.stderr)
    return status
