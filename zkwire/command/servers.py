"""The commands on servers: ping, srvr, mntr."""

from __future__ import annotations

import argparse
import textwrap
from collections.abc import Callable
from typing import Any

import zkwire
from zkwire import Client
from zkwire.command import options as connection
from zkwire.command import output


def add_commands(add: Callable[..., argparse.ArgumentParser]) -> None:
    """Add each command to the parser, as `nodes.add_commands` does."""
    command = add("ping", ping, "measure how long the server takes to answer")
    command.add_argument("-n", "--number", type=connection.positive, default=1, metavar="N", help="so many times")
    for word, text in (("srvr", "print what each server says of itself"), ("mntr", "print each server's counters")):
        add(word, words(word), text, needs_session=False)


async def ping(zk: Client, options: argparse.Namespace) -> None:
    """Print the round trips of requests to the server, in milliseconds."""
    for _ in range(options.number):
        taken = await zk.ping()
        fields = {"server": zk.server, "milliseconds": round(1000 * taken, 3)}
        print(output.as_json(fields) if options.json else f"{zk.server} {1000 * taken:.3f} ms")


def words(word: str) -> Callable[[argparse.Namespace], object]:
    """Return the coroutine function that asks every server for the four letter word `word`."""

    async def ask(options: argparse.Namespace) -> None:
        unreachable: list[str] = []
        refused: list[str] = []
        servers = options.hosts.partition("/")[0].split(",")
        for server in servers:
            try:
                answer: Any = await zkwire.four_letter_word(
                    server, word, within=options.to_connect, ssl=connection.tls_of(options)
                )
            except OSError as error:
                unreachable.append(f"{server}: {error or type(error).__name__}")
                continue
            except zkwire.ZooKeeperError as error:
                refused.append(str(error))  # it names the server
                continue
            is_table = isinstance(answer, dict)
            if options.json:
                print(output.as_json({"server": server, **(answer if is_table else {"answer": answer})}))
            else:
                text = "\n".join(f"{name} = {value}" for name, value in answer.items()) if is_table else answer
                print(f"{server}\n{textwrap.indent(text.rstrip(), '  ')}")
        if unreachable:
            raise connection.UnreachableError("; ".join(unreachable + refused))
        if refused:
            raise zkwire.ZooKeeperError("; ".join(refused))

    return ask
