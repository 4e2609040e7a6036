"""The commands on servers: ping, srvr, mntr."""

import argparse
import textwrap
from typing import Any

import zkwire
from zkwire import Client
from zkwire.command import output
from zkwire.command.options import tls_of


async def ping(zk: Client, options: argparse.Namespace) -> None:
    """Print the round trips of requests to the server, in milliseconds."""
    for _ in range(options.number or 1):
        taken = await zk.ping()
        fields = {"server": zk.server, "milliseconds": round(1000 * taken, 3)}
        print(output.as_json(fields) if options.json else f"{zk.server} {1000 * taken:.3f} ms")


async def ask(options: argparse.Namespace) -> None:
    """Ask every server for the four letter word that the command is called by."""
    unreachable: list[str] = []
    refused: list[str] = []
    for server in options.hosts.partition("/")[0].split(","):
        try:
            answer: Any = await zkwire.four_letter_word(
                server, options.name, within=options.to_connect, ssl=tls_of(options)
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
        raise ConnectionError("; ".join(unreachable + refused))
    if refused:
        raise zkwire.ZooKeeperError("; ".join(refused))
